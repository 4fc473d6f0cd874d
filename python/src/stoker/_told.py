"""What a dataset told its user: a loader over other data raises an error.

A dataset is indexed more than once: when it is made, when a loader over it opens, on a new engine. Ids, labels and
lengths that the user has been told hold only while all of these find the same.

Contents   what there was when a dataset was indexed
Told       what a dataset, and the copies that were made of it, have told
Member     one dataset of a loader: where it is stored, and what was told of it
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ._errors import DataError, many

if TYPE_CHECKING:
    from ._client import Loader


class Contents(NamedTuple):
    """What there was when a dataset was indexed."""

    samples: int
    digest: str
    stamp: str = ""  # of sizes and times of the stored files, on this machine; "": not known

    def differs(self, other: Contents) -> bool:
        """Whether the other is of other data, or of a file that was written again."""
        stamped = bool(self.stamp and other.stamp)
        return self.digest != other.digest or self.samples != other.samples or (stamped and self.stamp != other.stamp)

    def became(self, now: Contents) -> str:
        """How many samples there were and are; without a difference, what else differs."""
        if self.samples != now.samples:
            return f"it had {many(self.samples, 'sample')} and has {now.samples:,} now"
        if self.digest != now.digest:
            return f"its digest was {self.digest} and is {now.digest} now"
        return "a file was written again"


class Told:
    """What was told of data, by where it is stored. Datasets that are made of one another share one."""

    def __init__(self) -> None:
        # With who looked, weakly: that loader has this Told among its members, and ends with its dataset.
        self._told: dict[str, tuple[Contents, weakref.ref[Loader] | None]] = {}
        self._loaded: dict[str, Contents] = {}  # by the loader opened last
        self.found = ""  # a file that had changed since it was indexed when a loader read it

    def stale(self, where: str, found: Contents) -> bool:
        """Whether a loader has found other data since, and nothing was told before."""
        return where not in self._told and where in self._loaded and self._loaded[where].differs(found)

    def tell(self, kind: str, where: str, found: Contents, remote: Loader) -> None:
        """The user is told of these contents; DataError if he was told of others, or a loader has opened others."""
        before = self._told[where][0] if where in self._told else self._loaded.get(where, found)
        if before.differs(found):
            raise changed(kind, before, found, {}, self.found)
        self._told.setdefault(where, (found, weakref.ref(remote)))

    def load(self, where: str, found: Contents) -> None:
        """A loader has opened them."""
        self._loaded[where] = found

    def before(self, where: str) -> tuple[Contents, Loader | None] | None:
        """What was told, and by whom: his loader in the engine may be there still."""
        if where not in self._told:
            return None
        contents, looked = self._told[where]
        return contents, looked() if looked is not None else None

    def __getstate__(self) -> dict[str, Any]:
        # Times of files are this machine's, and an engine is this process's.
        told = {where: (contents._replace(stamp=""), None) for where, (contents, _) in self._told.items()}
        return {"_told": told, "_loaded": {}, "found": ""}


class Member(NamedTuple):
    """One dataset of a loader."""

    kind: str  # its class
    where: str
    told: Told


def where(dataset: Mapping[str, Any]) -> str:
    """Where a dataset of a Spec is stored: the rest does not decide what its samples are."""
    return json.dumps({k: v for k, v in dataset.items() if k not in ("fields", "shuffle", "weight")}, sort_keys=True)


def read_error(members: Sequence[Member], error: DataError) -> None:
    """Remembers which file a read found changed since it was indexed. The index is then made again, so a dataset that
    told its user of the old one finds other data, and only the read knows which file it was."""
    file = error.where.get("file") or error.where.get("shard")
    if error.code == "changed" and "sample" in error.where and file and len(members) == 1:
        members[0].told.found = str(file)


def changed(kind: str, before: Contents, now: Contents, change: Mapping[str, str], found: str = "") -> DataError:
    """The error of a loader that found other data than the user was told of. ``change`` is the first file that differs,
    and how; without it, ``found`` is a file that had changed since it was indexed when it was read.

    The error does not say that the data changed after the dataset was made: the index may be older, since a file that
    is rewritten in an otherwise unchanged folder is noticed only when it is read."""
    cause = before.became(now)
    file, how = change.get("file", ""), change.get("how", "")
    if not how and found:
        file, how = found, "had changed since it was indexed"
    if how:
        cause = f"{file} {how}" if before.digest == now.digest else f"{cause}: {file} {how}"
    return DataError(
        f"the data changed after it was indexed for the {kind}",
        code="changed",
        where={"file": file} if file else None,
        cause=cause,
        hint="make the dataset again, and everything made from it: samplers, weights and lists",
    )

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
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ._errors import DataError

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
            return f"it had {self.samples:,} samples and has {now.samples:,} now"
        if self.digest != now.digest:
            return f"its digest was {self.digest} and is {now.digest} now"
        return "a file was written again"


class Told:
    """What was told of data, by where it is stored. Datasets that are made of one another share one."""

    def __init__(self) -> None:
        # With who looked, weakly: that loader has this Told among its members, and ends with its dataset.
        self._told: dict[str, tuple[Contents, weakref.ref[Loader] | None]] = {}
        self._loaded: dict[str, Contents] = {}  # by the loader opened last

    def stale(self, where: str, found: Contents) -> bool:
        """Whether a loader has found other data since, and nothing was told before."""
        return where not in self._told and where in self._loaded and self._loaded[where].differs(found)

    def tell(self, kind: str, where: str, found: Contents, remote: Loader) -> None:
        """The user is told of these contents; DataError if he was told of others, or a loader has opened others."""
        before = self._told[where][0] if where in self._told else self._loaded.get(where, found)
        if before.differs(found):
            raise changed(kind, before, found, {})
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
        return {"_told": told, "_loaded": {}}


class Member(NamedTuple):
    """One dataset of a loader."""

    kind: str  # its class
    where: str
    told: Told


def where(dataset: Mapping[str, Any]) -> str:
    """Where a dataset of a Spec is stored: the rest does not decide what its samples are."""
    return json.dumps({k: v for k, v in dataset.items() if k not in ("fields", "shuffle", "weight")}, sort_keys=True)


def changed(kind: str, before: Contents, now: Contents, change: Mapping[str, str]) -> DataError:
    """The error of a loader that found other data than the user was told of."""
    cause = before.became(now)
    if how := change.get("how"):
        told = f"{change['file']} {how}"
        cause = told if before.digest == now.digest else f"{cause}: {told}"
    return DataError(
        f"the data changed after the {kind} was made",
        code="changed",
        where={"file": change["file"]} if change.get("file") else None,
        cause=cause,
        hint="make the dataset again, and everything made from it: samplers, weights and lists",
    )

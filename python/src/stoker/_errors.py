"""Everything that stoker raises.

    StokerError
     ├── ConfigError      the request cannot be carried out as written (also a ValueError)
     ├── DataError        bytes are not what they should be
     ├── SourceError      the storage refused or failed (also an OSError)
     ├── ResourceError    out of memory: a limit, or too many batches held
     ├── EngineError      the engine: a bug in stoker, another version, or it died too often
     ├── StallError       nothing moved before the deadline (also a TimeoutError)
     └── StateError       a saved state that does not fit

The engine names the class of each of its errors; ``testdata/errors.json`` holds
the table code -> [exit status of the command line, class] for both languages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ._shown import shown_text

_WHERE_WORDS = {
    "file": "{}",
    "shard": "shard {}",
    "member": "member {}",
    "field": 'field "{}"',
    "offset": "offset {}",
    "sample": "sample {}",
    "worker": "worker {}",
}


def _name(value: Any) -> str:
    """A name from the data on one line, quoted if a character cannot be printed: names are untrusted."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def located(where: Mapping[str, Any]) -> str:
    """A location in words."""
    return ", ".join(form.format(_name(where[key])) for key, form in _WHERE_WORDS.items() if key in where)


def _plain(text: str) -> str:
    """Text in which only newlines and tabs move the cursor; other control characters are escaped."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else repr(c)[1:-1] for c in text)


class StokerError(Exception):
    """Base of every error of this package.

    ``what`` is one sentence that says what happened, ``code`` a stable word for the kind of failure, ``where`` the
    location as far as it is known (keys ``file shard member field offset sample epoch step rank worker``; offset in
    bytes), ``cause`` the text of the underlying error or None, ``hint`` what to try, or None. ``traceback`` is what
    Python prints of an exception of the user's code in a worker, or None; ``__cause__`` is that exception.
    """

    default_code = "bug"

    def __init__(
        self,
        what: str,
        *,
        code: str | None = None,
        where: Mapping[str, Any] | None = None,
        cause: str | None = None,
        hint: str | None = None,
    ) -> None:
        what = shown_text(what)
        super().__init__(what)
        self.what = what
        self.code = code or self.default_code
        self.where: dict[str, Any] = {
            key: shown_text(value) if isinstance(value, str) else value for key, value in (where or {}).items()
        }
        self.cause = shown_text(cause) if cause else None
        self.hint = shown_text(hint) if hint else None
        self.traceback: str | None = None

    def __str__(self) -> str:
        text = _plain(self.what)
        told = f'"{self.where.get("file")}"' in self.what
        where = {key: value for key, value in self.where.items() if not (told and key == "file")}
        if location := located(where):
            text += f" ({location})"
        if self.cause:
            text += f": {_plain(self.cause)}"
        if self.hint:
            text += f"\n  try: {_plain(self.hint)}"
        if self.traceback:
            text += f"\n\nIn the worker:\n{_plain(self.traceback.rstrip())}"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.code, self.where, self.cause, self.hint, self.traceback)


class ConfigError(StokerError, ValueError):
    """The request cannot be carried out as written. All problems of one call are in one error."""

    default_code = "config"


class DataError(StokerError):
    """Bytes are not what their format, their index or a saved state says."""

    default_code = "damaged"


class SourceError(StokerError, OSError):
    """The storage refused or failed.

    ``code`` says how: ``unreadable``, a disk or a mount failed; ``unreachable``, a server could not be reached until
    the deadline; ``denied``, a store refused the credentials, or there are none; ``throttled``, a store refused
    requests as too many until the deadline. It never counts as a bad sample, whatever ``on_bad`` says.
    """

    default_code = "unreadable"


class ResourceError(StokerError):
    """A memory limit was reached, or all batches that memory allows are held."""

    default_code = "memory"


class EngineError(StokerError, RuntimeError):
    """The engine cannot run, has another version, failed because of a bug in stoker, or died too often."""

    default_code = "died"


class StallError(StokerError, TimeoutError):
    """Nothing moved before the deadline; the text names the stage and the sample."""

    default_code = "stalled"


class StateError(StokerError, ValueError):
    """A saved state does not fit this loader."""

    default_code = "state"


_CLASSES: dict[str, type[StokerError]] = {
    cls.__name__: cls
    for cls in (ConfigError, DataError, SourceError, ResourceError, EngineError, StallError, StateError)
}


def _rebuild(
    cls: type[StokerError],
    what: str,
    code: str,
    where: Mapping[str, Any],
    cause: str | None,
    hint: str | None,
    traceback: str | None = None,
) -> StokerError:
    made = cls(what, code=code, where=where, cause=cause, hint=hint)
    made.traceback = traceback
    return made


# The engine calls settings as its Spec does; these are the same in Python. Where a key of the Spec is the keyword with
# a group before it, the group goes.
_WORDS = [
    (re.compile(rf"(?<![\w/.\"'-]){words}(?![/\"'-]|\.\w)"), keyword)
    for words, keyword in (
        (r"dataset\.window\.([a-z]+)\b", r"\1"),
        (r"dataset\.window\b", "length"),
        (r"dataset\.path_column\b", "path"),
        (r"([a-z_]+) in dataset\.storage: ", r"storage_options \1: "),
        (r"dataset\.storage\.([a-z_]+)\b", r"\1 of storage_options"),
        (r"dataset\.storage\b", "storage_options"),
        (r"fetch\.([a-z]+) \(stoker bench: --[a-z]+\)", r"\1 of fetch"),
        (r"fetch\.([a-z]+)\b", r"\1 of fetch"),
        (r"batch\.size\b", "batch_size"),
        (r"batch\.window\b", "length_window"),
        (
            r"workers is (-?\d+): it can be 1 to (\d+) lanes, or 0 for all",
            r"num_workers is \1: it can be 1 to \2 lanes",
        ),
        (r"workers is (?=-?\d)", "num_workers is "),
        (r"max_pixels is (-?\d+): it can be 1 to (\d+), or 0 for \d+", r"max_pixels is \1: it can be 1 to \2"),
        (r"fields\[(\d+)\]\.from\b", r"source of field \1"),
        (r"fields\[(\d+)\]\.(?:pad\.)?([a-z]+)\b", r"\2 of field \1"),
        (r"subset is of one dataset\b", "SubsetRandomSampler is for one dataset"),
        (r"subset\[(\d+)\]", r"id \1 of the sampler"),
        (r"set replacement\b", "pass replacement=True"),
        (r"allow_empty=true\b", "allow_empty=True"),
        (r"deliver\.memory\b", "memory="),
        (r"window=(?=\d)", "length="),
        (r"pad of field\b", "to, multiple, value and truncate of field"),
        (r"pad: \{truncate: true\}", "truncate=True"),
        (r"raise pad\.to\b", "raise to="),
        (r"name the arrays to load \(columns=\)", 'name the arrays to load, NpyDataset(x="data.npz")'),
        (
            r"name the fields, each with its paths: columns: \[\{name: x, path: x\.npy\}\]",
            'name the fields, each with its paths: NpyDataset(x="x.npy", y="y.npy")',
        ),
        (r"unless from= names\b", "unless source= names"),
        (
            r"\[from, to\] as in Python's slices, null for an open end",
            "(begin, end) as of a slice, None for an open end",
        ),
        (r"(?:order|batch)\.(?:global_size)\b", "global_batch_size"),
        (r"cache\.memory\b", "cache="),
        (r"mix\.stop ([a-z_]+)", r"stop='\1'"),
        (r"goes with repeat\b", "goes with stop='repeat'"),
        (r"shuffle (block|window|full|none)\b", r"shuffle='\1'"),
        (r"shuffle is (block|window|full|none)\b", r"shuffle is '\1'"),
        (r"on_bad (replace|skip|fail)\b", r"on_bad='\1'"),
        (r"batch (padded|ragged|dense)\b", r"batch='\1'"),
        (r"batch size (?=is |\d)", "batch_size "),
        (r"on_bad\.policy\b", "on_bad"),
        (r"(?:dataset|pad|mix|batch|order|deliver|on_bad)\.([a-z_]+)\b(?!\()", r"\1"),
    )
]


def in_words(text: str) -> str:
    """A text from the engine, with Python's names."""
    for words, keyword in _WORDS:
        text = words.sub(keyword, text)
    return text


def from_wire(error: Mapping[str, Any]) -> StokerError:
    """The exception for an ``error`` object from the engine; values that are missing or marked unknown are left out."""
    where = {
        key: value
        for key, value in (error.get("where") or {}).items()
        if not (key in ("offset", "sample") and value < 0)
    }
    cls = _CLASSES.get(str(error.get("exception")), EngineError)
    made = cls(
        in_words(str(error.get("what", "the engine reported an error without a message"))),
        code=str(error.get("code", "bug")),
        where=where,
        cause=error.get("cause"),
        hint=in_words(error.get("hint") or ""),
    )
    made.traceback = error.get("text") or None
    if pickled := error.get("python"):
        from ._blob import exception  # which needs arrays, and they need errors

        made.__cause__ = _here.pop(pickled, None) or exception(pickled)
    return made


# Exceptions of user's code in this process, by what the engine gets instead of a pickle.
_here: dict[str, BaseException] = {}
_MOST_HERE = 64  # of samples that were skipped in passes that nobody went on with


def here(error: BaseException) -> str:
    """A word for an exception of this process; ``from_wire`` makes it the cause of the error again."""
    word = f"here:{id(error)}"
    _here[word] = error
    while len(_here) > _MOST_HERE:
        _here.pop(next(iter(_here)))
    return word


class Problems:
    """Collects what is wrong with a request, so that the user sees everything at once.

    >>> problems = Problems("DataLoader")
    >>> problems.add("batch_size is 0", "give at least 1")
    >>> problems.raise_any()                        # ConfigError, unless there were none
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._found: list[tuple[str, str | None]] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, what: str, hint: str | None = None) -> None:
        self._found.append((what, hint))

    def take(self, error: StokerError) -> None:
        """Adds the text of an error raised at a lower level."""
        self._found.append((error.what, error.hint))

    def raise_any(self) -> None:
        if not self._found:
            return
        if len(self._found) == 1:
            what, hint = self._found[0]
            raise ConfigError(f"{self._subject}: {what}", hint=hint)
        lines = [f"{self._subject}: {len(self._found)} problems"]
        for what, hint in self._found:
            lines.append(f"  - {what}")
            if hint:
                lines.append(f"    try: {hint}")
        raise ConfigError("\n".join(lines))


def many(number: int, what: str) -> str:
    """So many things: ``1 sample``, ``1,200 batches``."""
    return f"{number:,} {what}" + ("" if number == 1 else "es" if what.endswith(("ch", "s")) else "s")


MAX_COUNT = 1 << 53  # of samples, in what decides an order: a float holds every integer up to it
MAX_EPOCH = (1 << 63) - 1  # and the last place of an epoch: the engine counts in 64 bits


def whole(value: Any) -> bool:
    """Whether value is an integer and not a bool."""
    return isinstance(value, int) and not isinstance(value, bool)

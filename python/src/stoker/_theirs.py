"""What is known of a user's own dataset and code: names, lengths, digests, and what changed since a state was saved."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

from . import _notice
from ._errors import MAX_COUNT, ConfigError, whole

_DEEPEST = 8  # datasets of datasets that are looked into


def kind(user: Any) -> str:
    """The name of its class, with the module unless that is the script."""
    of = type(user)
    return of.__qualname__ if of.__module__ in ("builtins", "__main__") else f"{of.__module__}.{of.__qualname__}"


def ours(user: Any) -> bool:
    """Whether it is a dataset of this package's with steps of Python (_steps.py, _mixed.py)."""
    return type(user).__module__ in (f"{__package__}._steps", f"{__package__}._mixed")


def asked(where: str, function: Callable[..., Any], *args: Any, name: str = "") -> Any:
    """What the user's code returns. StopIteration would end the loop as if there were no more batches. ``name`` is what
    the error calls the function, if its own says nothing."""
    try:
        return function(*args)
    except StopIteration as error:
        raise RuntimeError(
            f"{where}: {name or called(function)} raised StopIteration, because an iterator that it reads has run out: "
            "make that endless, or a new one for each epoch"
        ) from error


def called(thing: Any) -> str:
    """The name of a function or class, with file and line if it is not a library's."""
    inner = inspect.unwrap(thing) if callable(thing) else thing
    inner = getattr(inner, "__func__", getattr(inner, "func", inner))  # of a method, of functools.partial
    if not isinstance(inner, type) and not hasattr(inner, "__qualname__"):
        inner = type(inner)
    name = str(inner.__qualname__).replace("<locals>.", "")
    if (code := getattr(inner, "__code__", None)) is not None:
        file, line = code.co_filename, code.co_firstlineno
    else:
        try:
            file, line = inspect.getsourcefile(inner) or "", inspect.getsourcelines(inner)[1]
        except (OSError, TypeError):
            return name
    if not file or _library(str(inner.__module__)) or "site-packages" in file:
        return name
    below = os.path.join(os.getcwd(), "")
    return f"{name} ({file.removeprefix(below)}:{line})"


def iterated(user: Any) -> bool:
    """Whether it gives its samples one after another, and has none by number: torch's IterableDataset, or a class whose
    ``__iter__`` is Python code. Python's own iterators (a generator, zip, a file) are none: they cannot begin again."""
    of = type(user)
    if any(base.__name__ == "IterableDataset" and _package(base) in ("torch", "datasets") for base in of.__mro__):
        return hasattr(of, "__iter__")
    return inspect.isfunction(getattr(of, "__iter__", None)) and not hasattr(of, "__getitem__")


def _package(of: type) -> str:
    return of.__module__.partition(".")[0]


def length(user: Any, least: int = 0) -> int:
    """len(user); ConfigError if it has none, or fewer samples."""
    try:
        found = len(user)
    except Exception as error:
        raise ConfigError(
            f"the dataset {kind(user)} has no length: {type(error).__name__}{': ' * bool(str(error))}{error}",
            hint="give the class a method __len__ that returns the number of its samples",
        ) from error
    if not least <= found <= MAX_COUNT:
        raise ConfigError(f"the dataset {kind(user)} is empty", hint="check what it is made of")
    return found


def digest(user: Any, samples: int) -> str:
    """What states and receipts know a dataset by: the name of its class, its length, and its own ``fingerprint``."""
    told = [kind(user), str(samples)]
    stamp = _attribute(user, "fingerprint")
    if inspect.ismethod(stamp):
        stamp = stamp()
    if isinstance(stamp, (str, bytes)) or whole(stamp):
        told.append(repr(stamp))
    return hashlib.blake2b("\0".join(told).encode(), digest_size=16).hexdigest()


def takes_lists(user: Any, depth: int = 0) -> bool:
    """Whether it makes the samples of a batch in one call, ``__getitems__``. torch's Subset and StackDataset have that
    method in any case; what counts is what they are made of."""
    data: Any = sys.modules.get("torch.utils.data")
    if data is not None and depth < _DEEPEST:
        if type(user) is data.Subset:
            return takes_lists(user.dataset, depth + 1)
        if type(user) is getattr(data, "StackDataset", None):
            inner: Iterable[Any] = user.datasets.values() if isinstance(user.datasets, dict) else user.datasets
            return any(takes_lists(one, depth + 1) for one in inner)
    return callable(_attribute(user, "__getitems__"))


def _attribute(user: Any, name: str) -> Any:
    """An attribute of an object that may raise anything; None if there is none."""
    try:
        return getattr(user, name)
    except Exception:
        return None


# Code that changed since a state was saved.


def in_words(names: Sequence[str]) -> str:
    """A, B and C."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def named(function: Any) -> str:
    """What a function is called in states: it must not depend on the run, as a repr with an address would."""
    inner = getattr(function, "func", function)  # of a functools.partial
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return f"{getattr(inner, '__module__', None) or type(inner).__module__}.{name}"


def digest_with(known: str, keyword: str, *functions: Any) -> str:
    """A digest of fields and transforms in states, with the functions of a keyword in it."""
    text = f"{known}\0{keyword} {' '.join(map(named, functions))}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def code_of(user: Any, *functions: Any) -> dict[str, str]:
    """Digests of the compiled code that makes samples, by name: methods of the dataset's class and of the datasets in
    it, and functions. Code of libraries does not count."""
    found: dict[str, str] = {}
    for one in _inner(user, 0):
        of = type(one)
        for base in of.__mro__:
            for name in ("__getitem__", "__getitems__"):
                if name in vars(base) and not _library(base.__module__):
                    _add(found, f"{base.__module__}.{base.__qualname__}.{name}", vars(base)[name])
    for function in functions:
        inner = getattr(function, "func", function)
        if not _library(str(getattr(inner, "__module__", "") or type(inner).__module__)):
            call = inner if hasattr(inner, "__code__") else getattr(type(inner), "__call__", None)  # noqa: B004
            _add(found, named(function), call)
    return found


def _inner(user: Any, depth: int) -> Iterator[Any]:
    """A dataset, and those that it is made of."""
    yield user
    inner = _attribute(user, "__dict__")
    if depth < _DEEPEST and isinstance(inner, dict):
        parts = inner.get("datasets", [inner.get("dataset")])
        for part in parts.values() if isinstance(parts, dict) else parts if isinstance(parts, (list, tuple)) else []:
            if hasattr(type(part), "__getitem__") and not isinstance(part, (str, bytes, list, tuple, dict)):
                yield from _inner(part, depth + 1)


def _library(module: str) -> bool:
    return module.partition(".")[0] in ("torch", "torchvision", "datasets", "numpy", "builtins", "stoker", "functools")


def _add(found: dict[str, str], name: str, function: Any) -> None:
    code = getattr(inspect.unwrap(function) if callable(function) else function, "__code__", None)
    if isinstance(code, CodeType) and name not in found:
        found[name] = _digest(code)


def _digest(code: CodeType) -> str:
    """Of what the code does: not of its lines or of the file."""
    hashed = hashlib.blake2b(digest_size=8)

    def add(one: CodeType) -> None:
        hashed.update(repr((one.co_code, one.co_names, one.co_varnames, one.co_freevars, one.co_argcount)).encode())
        for value in one.co_consts:
            if isinstance(value, CodeType):
                add(value)
            else:
                # A frozenset has another order in another process.
                hashed.update(repr(sorted(map(repr, value)) if isinstance(value, frozenset) else value).encode())

    add(code)
    return hashed.hexdigest()


def facts(user: Any, *functions: Any) -> dict[str, Any]:
    """What a state says of the code: under "python", beside what must be equal."""
    told: dict[str, Any] = {
        "version": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "code": code_of(user, *functions),
    }
    stamp = _attribute(user, "_fingerprint")  # of datasets: it depends on paths and on times of files
    if isinstance(stamp, str):
        told["fingerprint"] = stamp
    return told


def warn_of_changes(theirs: Any, mine: Mapping[str, Any]) -> None:
    """Warnings for what differs from a state and is not an error: code, and the fingerprint of ``datasets``."""
    if not isinstance(theirs, Mapping):
        return
    if theirs.get("fingerprint") != mine.get("fingerprint") and "fingerprint" in theirs:
        _notice.warn(
            f"the dataset's _fingerprint is {mine.get('fingerprint')}, and was {theirs['fingerprint']} when the state "
            "was saved: it depends on paths and on times of files, so the data may be the same"
        )
    before, now = theirs.get("code"), mine["code"]
    if theirs.get("version") != mine["version"] or not isinstance(before, Mapping):
        return  # another Python compiles the same code differently
    for name in [name for name in now if name in before and before[name] != now[name]]:
        _notice.warn(f"the code of {name} has changed since the state was saved: its samples may differ")

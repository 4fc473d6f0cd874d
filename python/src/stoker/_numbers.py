"""One number per sample, sent to the engine: weights, lengths.

Short columns are sent in the Spec. Longer ones are in a memfd, as a .npy file that the engine opens through /proc:
frames are not suitable for millions of numbers, and nothing remains if either process dies.
"""

from __future__ import annotations

import math
import os
import weakref
from array import array
from collections.abc import Iterable
from functools import partial
from typing import Any

from ._errors import Problems

INLINE = 4096  # numbers


def scalar(value: Any) -> Any:
    """A NumPy, torch or JAX number as Python's; anything else unchanged."""
    if isinstance(value, (int, float, str)) and type(value).__module__ != "numpy":
        return value
    one = getattr(value, "shape", None) == () and callable(getattr(value, "item", None))
    return value.item() if one else value


def is_mask(values: Any) -> bool:
    """Whether values are bools: an array, a tensor, a list or a tuple of them."""
    kind = str(getattr(values, "dtype", "")).removeprefix("torch.")
    if kind:
        return kind in ("bool", "boolean")
    return isinstance(values, (list, tuple)) and bool(values) and is_flag(values[0])


def is_flag(value: Any) -> bool:
    """Whether a value is a bool, Python's or a scalar of an array library."""
    return isinstance(value, bool) or (getattr(value, "shape", None) == () and is_mask(value))


class NumberFile(str):
    """The path of a column in memory; the memory is freed with this object."""

    def __new__(cls, numbers: array[float]) -> NumberFile:
        fd = os.memfd_create("stoker-numbers", os.MFD_CLOEXEC)
        owner = os.getpid()
        with os.fdopen(os.dup(fd), "wb") as file:
            head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({len(numbers)},), }}"
            head += " " * (-(len(head) + 11) % 64) + "\n"
            file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode("ascii"))
            file.write(memoryview(numbers))
        path = super().__new__(cls, f"/proc/{owner}/fd/{fd}")
        weakref.finalize(path, _close, owner, fd).atexit = False
        return path


def _close(owner: int, fd: int) -> None:
    if os.getpid() == owner:  # in a forked child the number may belong to another file by now
        os.close(fd)


def column(numbers: array[float]) -> list[float] | NumberFile:
    """The numbers in the form of the Spec. JSON has no NaN, so columns with NaN are sent as files."""
    if len(numbers) <= INLINE and all(map(math.isfinite, numbers)):
        return numbers.tolist()
    known = _files.get(id(numbers))
    if known is None or known[0]() is not numbers:
        _files[id(numbers)] = known = weakref.ref(numbers, partial(_forget, id(numbers))), NumberFile(numbers)
    return known[1]


# Files of columns, by the identity of the numbers: the same numbers are the same Spec.
_files: dict[int, tuple[weakref.ref[array[float]], NumberFile]] = {}


def _forget(key: int, gone: object) -> None:
    _files.pop(key, None)


def read(name: str, values: Any, problems: Problems, one: str = "sample") -> array[float] | None:
    """Any list, array or tensor of numbers, one for each ``one``."""
    if hasattr(values, "tolist") and not isinstance(values, array):
        values = values.tolist()
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        problems.add(f"{name} is of type {type(values).__name__}", f"give a list of numbers, one for each {one}")
        return None
    try:
        return array("d", values)
    except (TypeError, ValueError, OverflowError) as error:
        problems.add(
            f"{name} contains an item that is not a number: {error}", f"give a list of numbers, one for each {one}"
        )
        return None

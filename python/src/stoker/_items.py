"""What a sampler gives when it is not a plain id: a key, ``(index, size)`` for several scales, a list of ids, or an
integer that is not Python's ``int``.

If it is not an integer, the engine counts places: the ids of batches and receipts are places then. An item goes to
the worker that makes its sample, and to ``__getitem__`` as it is: pickled, or only its type if the worker knows the
integer. A digest of the items given so far is part of the state, as that of ids is; it is of their values, not of their
pickles, which depend on which objects are the same.
"""

from __future__ import annotations

import pickle
import struct
import sys
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from ._errors import ConfigError

SHOWN = 80  # characters of an item in errors
# The first byte of an item: of a pickle, or of the name of a type. A plain int has none.
_PICKLE, _NUMPY = 0x80, ord("n")


def packed(item: Any, sampler: str, number: int) -> str:
    """An item for the engine. ConfigError if it cannot be pickled."""
    try:
        return b64encode(pickle.dumps(item, 5)).decode("ascii")
    except Exception as error:
        raise ConfigError(
            f"the sampler {sampler} gave {shown(item)} as item {number}, which cannot be pickled",
            cause=str(error),
            hint="give keys that can be: numbers, strings, tuples of them, objects of a class at the top of a module",
        ) from error


def typed(value: Any, number: int, sampler: str, item: int) -> str:
    """The same for an integer that is the id of a sample. NumPy's scalars and tensors are too many to pickle."""
    if number != value:  # it counts from the end
        return packed(value, sampler, item)
    if type(value) is int:
        return ""
    numpy: Any = sys.modules.get("numpy")
    torch: Any = sys.modules.get("torch")
    if numpy is not None and isinstance(value, numpy.generic):
        told = f"n{value.dtype.str}"
    elif torch is not None and type(value) is torch.Tensor and value.device.type == "cpu":
        told = "t" + str(value.dtype).removeprefix("torch.")
    else:
        return packed(value, sampler, item)
    return b64encode(told.encode()).decode("ascii")


def _integer(data: bytes, number: int) -> Any:
    """An integer of the type that ``typed`` described."""
    name = data[1:].decode()
    if data[0] == _NUMPY:
        import numpy

        return numpy.dtype(name).type(number)
    import torch

    return torch.tensor(number, dtype=getattr(torch, name))


def stamp(item: Any) -> bytes:
    """What the digest of a state knows an item by: its value, the same in every process."""
    kind = type(item)
    if kind in (int, float, complex, bool, str, bytes, type(None)):
        return repr(item).encode("utf-8", "surrogatepass")
    if isinstance(item, (list, tuple)):
        return b"(" + b",".join(map(stamp, item)) + b")"
    if isinstance(item, dict):
        return b"{" + b",".join(stamp(key) + b":" + stamp(value) for key, value in item.items()) + b"}"
    if isinstance(item, (set, frozenset)):
        return b"{" + b",".join(sorted(map(stamp, item))) + b"}"
    if callable(listed := getattr(item, "tolist", None)):
        return stamp(listed())
    if isinstance(inner := getattr(item, "__dict__", None), dict):
        return kind.__qualname__.encode() + stamp(inner)
    return kind.__qualname__.encode()


def shown(item: Any) -> str:
    """An item in an error."""
    try:
        text = repr(item)
    except Exception:
        text = f"an object of type {type(item).__name__}"
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


class Items:
    """In a worker: the items of the tasks that are in work, by the number of the sample."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._by: dict[int, bytes] = {}

    def arrive(self, body: bytes) -> None:
        """A frame with the items of the tasks that follow it."""
        (n,) = struct.unpack_from("<I", body)
        at = 4
        self._waiting = []
        for _ in range(n):
            (size,) = struct.unpack_from("<I", body, at)
            self._waiting.append(body[at + 4 : at + 4 + size])
            at += 4 + size

    def meet(self, tasks: Sequence[tuple[int, ...]]) -> None:
        """The tasks that the items are of have come."""
        if self._waiting or self._by:
            found, self._waiting = self._waiting, []
            self._by = dict(zip([task[2] for task in tasks], found, strict=False))

    def __bool__(self) -> bool:
        """Whether the tasks in work have items."""
        return bool(self._by)

    @property
    def named(self) -> bool:
        """Whether some of these are not integers that are the numbers of their samples."""
        return any(data[:1] == b"\x80" for data in self._by.values())

    def __getitem__(self, number: int) -> Any:
        """What to give to the dataset: a copy of the item, or the number itself."""
        data = self._by.get(number)
        if not data:
            return number
        return pickle.loads(data) if data[0] == _PICKLE else _integer(data, number)

    def name(self, number: int) -> str:
        """The sample in an error."""
        if self._by.get(number, b"")[:1] != b"\x80":
            return str(number)
        try:
            return shown(self[number])
        except Exception:
            return f"the sampler's item {number}"

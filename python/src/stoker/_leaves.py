"""The parts of a structure: leaves, which are the columns of batches, and the mappings and sequences that hold them.

What is here works on many samples at once, column by column, by functions in C, and raises Unlike where a check fails:
_describe.py, which knows the rules, then says what is wrong with which sample.
"""

from __future__ import annotations

import copy
import pickle
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any

LOOSE = -1  # the size of a leaf of any length

dtype_of = attrgetter("dtype")
_shape_of = attrgetter("shape")


class Unlike(Exception):
    """Something differs: the slow path says what."""


class Leaf:
    """One column. ``size`` is in bytes per row, LOOSE for any length."""

    size = LOOSE
    dtype = ""
    shape: tuple[int, ...] = ()

    def gather(self, column: Sequence[Any], found: list[Sequence[Any]]) -> None:
        found.append(column)

    def leaves(self) -> Iterator[Leaf]:
        yield self

    def rebuild(self, columns: Iterator[Any]) -> Any:
        return next(columns)

    def words(self) -> str:
        raise NotImplementedError


class Fixed(Leaf):
    """A leaf whose rows have one size. ``put`` writes consecutive rows, beginning at a byte of the slot."""

    def put(self, memory: memoryview, at: int, column: Sequence[Any]) -> None:
        raise NotImplementedError

    def same(self, other: Leaf) -> bool:
        return (self.dtype, self.shape) == (other.dtype, other.shape)

    def from_bytes(self, held: bytearray) -> Any:
        raise NotImplementedError


class Number(Fixed):
    """A Python number: int (as int64), float (as float64) or bool."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.code, self.dtype, self.size = {int: ("q", "int64", 8), float: ("d", "float64", 8), bool: ("?", "bool", 1)}[
            kind
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return Number, (self.kind,)

    def put(self, memory: memoryview, at: int, column: Sequence[Any]) -> None:
        if self.kind is bool:
            if set(map(type, column)) != {bool}:
                raise Unlike
            memory[at : at + len(column)] = bytes(column)
        else:
            memory[at : at + 8 * len(column)] = array(self.code, column).tobytes()

    def from_bytes(self, held: bytearray) -> Any:
        return struct.unpack(f"<{self.code}", held)[0]

    def words(self) -> str:
        return f"{'an' if self.kind is int else 'a'} {self.kind.__name__}"


class Tensor(Fixed):
    """A dense tensor on the CPU. ``derived`` if samples hold a subclass; ``wrap`` is the subclass that batches have,
    None for torch.Tensor."""

    def __init__(self, dtype: str, shape: tuple[int, ...], derived: bool = False, wrap: type | None = None) -> None:
        import torch

        self._torch = torch
        self.dtype = dtype
        self.shape = shape
        self.derived = derived
        self.wrap = wrap
        self._dtype = getattr(torch, dtype)
        self.count = count(shape)
        self.size = self.count * self._dtype.itemsize

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (self.dtype, self.shape, self.derived, self.wrap)

    def put(self, memory: memoryview, at: int, column: Sequence[Any]) -> None:
        torch = self._torch
        rows = len(column)
        if self.derived:
            column = [plain(value) for value in column]
        kinds = set(map(type, column))
        # stack() would convert another dtype, and would fit ``out`` to another shape.
        if len(kinds) != 1 or torch.Tensor not in kinds or column[0].shape != self.shape:
            raise Unlike
        dtypes = set(map(dtype_of, column))
        if len(dtypes) != 1 or self._dtype not in dtypes:
            raise Unlike
        if not self.size:
            if any(value.shape != self.shape for value in column):
                raise Unlike
            return
        out = torch.frombuffer(memory, dtype=self._dtype, count=rows * self.count, offset=at)
        if rows == 1:
            out.view(self.shape).copy_(column[0])
        else:
            torch.stack(column, out=out.view(rows, *self.shape))

    def from_bytes(self, held: bytearray) -> Any:
        if not self.size:
            return self._torch.empty(self.shape, dtype=self._dtype)
        return self._torch.frombuffer(held, dtype=self._dtype).view(self.shape)

    def words(self) -> str:
        return f"a {self.dtype} tensor of shape {self.shape}"


class Array(Fixed):
    """An ndarray, or with ``scalar`` a NumPy scalar."""

    def __init__(self, dtype: str, shape: tuple[int, ...], scalar: bool = False) -> None:
        import numpy

        self._np = numpy
        self.dtype = dtype
        self.shape = shape
        self.scalar = scalar
        self._dtype = numpy.dtype(dtype)
        self.count = count(shape)
        self.size = self.count * self._dtype.itemsize
        self._type = self._dtype.type if scalar else numpy.ndarray

    def __reduce__(self) -> tuple[Any, ...]:
        return Array, (self.dtype, self.shape, self.scalar)

    def put(self, memory: memoryview, at: int, column: Sequence[Any]) -> None:
        np = self._np
        rows = len(column)
        kinds = set(map(type, column))
        if len(kinds) != 1 or self._type not in kinds:
            if self.scalar or not all(isinstance(value, np.ndarray) for value in column):
                raise Unlike
            column = [np.asarray(value) for value in column]  # memmaps, masked arrays
        if not self.scalar:
            shapes = set(map(_shape_of, column))
            if len(shapes) != 1 or self.shape not in shapes:
                raise Unlike
        if not self.size:
            if any(value.dtype != self._dtype for value in column):
                raise Unlike
            return
        out = np.frombuffer(memory, self._dtype, rows * self.count, at)
        if self.scalar:
            out[:] = column
        elif rows == 1:
            np.copyto(out.reshape(self.shape), column[0], casting="no")
        elif self.shape:
            np.concatenate(column, out=out.reshape(rows * self.shape[0], *self.shape[1:]), casting="no")
        else:
            for row, value in enumerate(column):
                np.copyto(out[row : row + 1].reshape(()), value, casting="no")

    def from_bytes(self, held: bytearray) -> Any:
        value = self._np.frombuffer(held, self._dtype).reshape(self.shape)
        return value[()] if self.scalar else value

    def words(self) -> str:
        return f"a NumPy {self.dtype}" if self.scalar else f"a {self.dtype} array of shape {self.shape}"


class Loose(Leaf):
    """A str (as UTF-8), bytes, or an object of a class derived from them (pickled). In a batch they are a list, or a
    tuple where the samples have them in a sequence, as default_collate has it."""

    def __init__(self, kind: str, inside: bool) -> None:
        self.kind = kind
        self.inside = inside

    def __reduce__(self) -> tuple[Any, ...]:
        return Loose, (self.kind, self.inside)

    def encode(self, column: Sequence[Any]) -> list[bytes]:
        kinds = set(map(type, column))
        if self.kind == "str" and kinds == {str}:
            return [value.encode("utf-8", "surrogatepass") for value in column]
        if self.kind == "bytes" and kinds == {bytes}:
            return list(column)
        if self.kind == "object":
            return [pickle.dumps(value, 5) for value in column]
        raise Unlike

    def decode(self, values: list[bytes]) -> Any:
        found: list[Any] = values
        if self.kind == "str":
            found = [value.decode("utf-8", "surrogatepass") for value in values]
        elif self.kind == "object":
            found = [pickle.loads(value) for value in values]
        return tuple(found) if self.inside else found

    def words(self) -> str:
        return {"str": "a str", "bytes": "bytes"}.get(self.kind, "a str or bytes of a derived class")


# Containers.


class Mapped:
    """A mapping. ``how`` says what batches have: a dict, a copy of ``like`` ("mutable"), or the class ``like``
    ("other"); default_collate's own fallback is a dict."""

    def __init__(self, how: str, like: Any, kind: type, keys: tuple[Any, ...], parts: list[Any]) -> None:
        self.how = how
        self.like = like
        self.kind = kind
        self.keys = keys
        self.parts = parts
        self._get: Callable[[Any], Any] = itemgetter(*keys) if keys else len

    def __reduce__(self) -> tuple[Any, ...]:
        return _mapped, (self.how, self.like, self.kind is dict, self.keys, self.parts)

    def gather(self, column: Sequence[Any], found: list[Sequence[Any]]) -> None:
        kinds = set(map(type, column))
        if len(kinds) != 1 or self.kind not in kinds or set(map(len, column)) != {len(self.keys)}:
            raise Unlike
        if len(self.keys) == 1:
            self.parts[0].gather(list(map(self._get, column)), found)
        elif self.keys:
            for part, values in zip(self.parts, zip(*map(self._get, column), strict=True), strict=True):
                part.gather(values, found)

    def leaves(self) -> Iterator[Leaf]:
        for part in self.parts:
            yield from part.leaves()

    def rebuild(self, columns: Iterator[Any]) -> Any:
        found = {key: part.rebuild(columns) for key, part in zip(self.keys, self.parts, strict=True)}
        try:
            if self.how == "mutable":
                clone = copy.copy(self.like)
                clone.update(found)
                return clone
            if self.how == "other":
                return (MappingProxyType if self.like is None else self.like)(found)
        except TypeError:
            pass
        return found

    def words(self) -> str:
        return f"a mapping with the keys {', '.join(map(repr, self.keys))}" if self.keys else "an empty mapping"


def _mapped(how: str, like: Any, exact: bool, keys: tuple[Any, ...], parts: list[Any]) -> Mapped:
    kind = dict if exact else type(like) if how == "mutable" else like or MappingProxyType
    return Mapped(how, like, kind, keys, parts)


class Listed:
    """A sequence. ``how`` says what batches have: a list (for tuples too), a named tuple of the class ``like``, a copy
    of ``like`` ("mutable"), or the class ``like`` ("other"); default_collate's own fallback is a list."""

    def __init__(self, how: str, like: Any, kind: type | None, parts: list[Any]) -> None:
        self.how = how
        self.like = like
        self.kind = kind
        self.parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        return Listed, (self.how, self.like, self.kind, self.parts)

    def gather(self, column: Sequence[Any], found: list[Sequence[Any]]) -> None:
        kinds = set(map(type, column))
        if len(kinds) != 1 or self.kind not in kinds or set(map(len, column)) != {len(self.parts)}:
            raise Unlike
        for part, values in zip(self.parts, zip(*column, strict=True), strict=True):
            part.gather(values, found)

    leaves = Mapped.leaves

    def rebuild(self, columns: Iterator[Any]) -> Any:
        found = [part.rebuild(columns) for part in self.parts]
        if self.how == "named":
            return self.like(*found)
        try:
            if self.how == "mutable":
                clone = copy.copy(self.like)
                for i, value in enumerate(found):
                    clone[i] = value
                return clone
            if self.how == "other":
                return self.like(found)
        except TypeError:
            pass
        return found

    def words(self) -> str:
        return f"a sequence of {len(self.parts)} value" + "s" * (len(self.parts) != 1)


def count(shape: Sequence[int]) -> int:
    found = 1
    for size in shape:
        found *= size
    return found


def plain(value: Any) -> Any:
    """A tensor of a derived class as a torch.Tensor."""
    import torch

    if type(value) is torch.Tensor:
        return value
    with torch._C.DisableTorchFunctionSubclass():
        return value.detach().as_subclass(torch.Tensor)

"""Floats of pictures, made on the device of the bytes that crossed the bus.

If the last steps of a field only make floats of bytes (ToTensor, ToDtype, Normalize), a loader with a device asks the
engine for the bytes, a quarter of float32, and does those steps after the copy, on the stream of copies. The numbers
are the engine's to the bit: the same operations in the same order, each rounded by itself, and none fused.

Left     what the engine has left to do for a field
Raw      a field of a batch of which it has to be done
Floats   the memory there of one, and its making
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

Numbers = tuple[float, ...]  # float32, one for each channel
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


class Step(NamedTuple):
    """A conversion (``to`` is a dtype), which may divide by 255, or Normalize."""

    to: str = ""
    scale: bool = False
    mean: Numbers = ()
    std: Numbers = ()


class Left(NamedTuple):
    """How numbers of ``dtype`` are made of bytes: byte * scale + bias, product and sum rounded apart, or, if there are
    ``steps``, by these, each of the result of the one before."""

    dtype: str
    scale: Numbers
    bias: Numbers
    steps: tuple[Step, ...]

    @staticmethod
    def read(dtype: str, told: Mapping[str, Any]) -> Left:
        """Of the engine's message."""
        steps = [
            Step(one.get("to", ""), one.get("scale", False), tuple(one.get("mean", ())), tuple(one.get("std", ())))
            for one in told.get("steps") or ()
        ]
        return Left(dtype, tuple(told.get("scale") or ()), tuple(told.get("bias") or ()), tuple(steps))

    @property
    def wide(self) -> bool:
        """Whether float32 comes between the bytes and numbers of 16 bits."""
        return bool(self.steps) and self.steps[0].to == "float32" != self.dtype


def numbers(values: Numbers, dtype: str, shape: Sequence[int]) -> Any:
    """A tensor here of numbers, which are rounded to the type."""
    import torch

    return torch.tensor(values, dtype=getattr(torch, dtype)).view(tuple(shape))


class Constants:
    """The numbers of each Left on one device, made once. ``make(values, dtype, shape)`` makes some there."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._made: dict[Any, list[Any]] = {}

    def of(self, left: Left, planes: bool) -> list[Any]:
        """The tensors that ``fill`` takes, in its order, for channels that are planes or come last."""
        if (known := self._made.get((left, planes))) is not None:
            return known
        found, at = [], left.dtype
        if not left.steps:
            found = [self._one(left.scale, at, planes), self._one(left.bias, at, planes)]
        for step in left.steps:
            if step.to:
                at = step.to
            else:
                found += [self._one(step.mean, at, planes), self._one(step.std, at, planes)]
        self._made[left, planes] = found
        return found

    def _one(self, numbers: Numbers, dtype: str, planes: bool) -> Any:
        if len(set(numbers)) == 1:
            numbers = numbers[:1]
        return self._make(numbers, dtype, (len(numbers), 1, 1) if planes and len(numbers) > 1 else (len(numbers),))


def fill(out: Any, between: Any, given: Any, left: Left, constants: Sequence[Any]) -> None:
    """Makes the floats ``out`` of the bytes ``given``, of the same shape. ``between`` is memory like out, of float32,
    if ``left.wide``; otherwise None. Everything is on one device, where a quotient of two tensors is rounded once;
    by a number, torch may multiply by its reciprocal."""
    now = out if between is None else between
    now.copy_(given)
    rest = iter(constants)
    if not left.steps:
        now.mul_(next(rest)).add_(next(rest))
    for number, step in enumerate(left.steps):
        if not step.to:
            now.sub_(next(rest)).div_(next(rest))
            continue
        if number and now is not out:
            out.copy_(now)
            now = out
        if step.scale:
            now.mul_(1.0 / 255)


class Raw:
    """A field whose memory has bytes: ``tensor``, as the user sees it but for its type. ``planes``: the channels are
    its third axis from the end, otherwise the last; a picture of one channel may have no axis for it."""

    __slots__ = ("left", "planes", "tensor")

    def __init__(self, tensor: Any, left: Left, planes: bool) -> None:
        self.tensor, self.left, self.planes = tensor, left, planes

    def __getitem__(self, number: int) -> Raw:
        return Raw(self.tensor[number], self.left, self.planes)

    def here(self) -> Any:
        """The floats, in memory of this process."""
        import torch

        tensor, left = self.tensor, self.left
        out = torch.empty(tensor.shape, dtype=getattr(torch, left.dtype))
        between = torch.empty(tensor.shape, dtype=torch.float32) if left.wide else None
        constants = Constants(numbers)
        with torch.no_grad():
            fill(out, between, tensor, left, constants.of(left, self.planes))
        return out


class Floats:
    """The floats there of one Raw. ``memory`` is theirs, as ``port.empty`` gave it."""

    __slots__ = ("_between", "_floats", "_raw", "memory")

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self.memory: Any = None
        self._between: Any = None
        self._floats: Any = None

    def allocate(self, port: Any) -> None:
        """Takes memory there, or raises what ``port.full`` knows."""
        import torch

        left, shape = self._raw.left, self._raw.tensor.shape
        self.memory = port.empty(max(shape.numel() * BYTES[left.dtype], 1))
        if left.wide:
            memory = port.empty(max(shape.numel() * BYTES["float32"], 1))
            self._between = shaped(memory, torch.empty(shape, dtype=torch.float32, device="meta"))
        self._floats = shaped(self.memory, torch.empty(shape, dtype=getattr(torch, left.dtype), device="meta"))

    def start(self, port: Any, given: Any, constants: Constants) -> None:
        """Makes them on the stream of copies, of bytes there."""
        left = self._raw.left
        between, self._between = self._between, None  # free when it is done, as the bytes are
        port.compute(partial(fill, self._floats, between, given, left, constants.of(left, self._raw.planes)))

    def made(self) -> Any:
        """The floats."""
        return self._floats


def shaped(memory: Any, like: Any, begin: int = 0) -> Any:
    """Memory there, from a byte on, as a tensor with the dtype, shape and strides of ``like``. Not a view in torch's
    sense: for operations in place, views have rules of their own."""
    import torch

    found = torch.empty(0, dtype=like.dtype, device=memory.device)
    at = (memory.storage_offset() + begin) // found.element_size()
    return found.set_(memory.untyped_storage(), at, like.shape, like.stride())

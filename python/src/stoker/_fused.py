"""Floats of pictures, made on the device of the bytes that crossed the bus.

If the last steps of a field only make floats of bytes (ToTensor, ToDtype, Normalize), a loader with a device asks the
engine for the bytes, a quarter of float32, and does those steps after the copy, on the stream of copies. The numbers
are the engine's to the bit: the same operations in the same order, each rounded by itself, and none fused.

There are two ways to make them: torch's operators (``fill``), and one kernel of Triton's (_triton.py) where it runs.

With device_transform=, the steps before these are left too (_device_steps.py), and the field may stay bytes.

Left     how the floats of a field are made of bytes
Rest     what has to be done to the bytes before that
Floats   makes floats on one device, in either way
Raw      a field of a batch of which this has to be done, with the pictures of it that are decoded there
Result   the memory there of what it gives, and its making
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from . import _device_steps as steps
from . import _notice
from ._device_jpeg import Sent

Numbers = tuple[float, ...]  # float32, one for each channel
BYTES = {"uint8": 1, "float32": 4, "float16": 2, "bfloat16": 2}


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


class Rest(NamedTuple):
    """What has to be done to the bytes of pictures: the column of a batch that has the steps, and the rows, columns and
    channels of the pictures after them."""

    column: str
    becomes: tuple[int, ...]


def numbers(values: Numbers, dtype: str, shape: Sequence[int]) -> Any:
    """A tensor here of numbers, which are rounded to the type."""
    import torch

    return torch.tensor(values, dtype=getattr(torch, dtype), device="cpu").view(tuple(shape))


def alike(values: Numbers) -> Numbers:
    """One number, if those of all channels are the same."""
    return values[:1] if len(set(values)) == 1 else values


ROUND, MUL, ADD, SUB, DIV = range(5)
HALF = 8  # added to one of these: its result is rounded to the 16 bits of the field's type


def coded(left: Left) -> tuple[list[int], list[list[float]]]:
    """What ``fill`` does, one operation after another on float32, and the numbers of each: one for all channels, or
    one for each, rounded as ``fill`` has them."""
    codes: list[int] = []
    rows: list[list[float]] = []
    now = "float32" if left.wide else left.dtype  # of what is computed

    def put(code: int, values: Numbers, dtype: str) -> None:
        codes.append(code if now == "float32" else code + HALF)
        rows.append(numbers(alike(values), dtype, (len(alike(values)),)).double().tolist())

    if not left.steps:
        put(MUL, left.scale, now)
        put(ADD, left.bias, now)
    at = left.dtype  # of numbers
    for number, step in enumerate(left.steps):
        if not step.to:
            put(SUB, step.mean, at)
            put(DIV, step.std, at)
            continue
        at = step.to
        if number and now != left.dtype:
            now = left.dtype
            put(ROUND, (0.0,), at)
        if step.scale:
            put(MUL, (1.0 / 255,), "float32")
    columns = max(map(len, rows), default=1)
    return codes, [row * columns if len(row) == 1 else row for row in rows]


def lacking() -> str:
    """Why Triton's kernel cannot run in this process; "": it may."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if os.environ.get("TRITON_INTERPRET", "").lower() not in ("", "0", "false", "off", "no", "n"):
        return "TRITON_INTERPRET is set"
    cc = os.environ.get("CC")
    if cc is not None and shutil.which(cc) is None:
        return f"triton needs a C compiler, and there is none at {cc!r} (CC)"
    if cc is None and not any(map(shutil.which, ("gcc", "clang"))):
        return "triton needs a C compiler, and there is neither gcc nor clang nor CC"
    return ""


def failure(error: BaseException) -> str:
    """Why a kernel is not used again."""
    lines = str(error).strip().splitlines()
    return f"triton failed, with {type(error).__name__}" + (f" ({lines[-1].strip()})" if lines else "")


def kernel() -> Callable[..., bool]:
    """Triton's kernel, ``_triton.make``. An error says why there is none."""
    if why := lacking():
        raise RuntimeError(why)
    from . import _triton

    return _triton.make


class Floats:
    """Makes floats on one device. ``port.numbers(values, dtype, shape)`` makes constants there, once for each Left;
    ``port.kernel()`` gives a kernel, raises an error that says why there is none, or returns None if none is expected.
    """

    def __init__(self, port: Any) -> None:
        self._port = port
        self._made: dict[Any, Any] = {}
        self._asked = False
        self._kernel: Callable[..., bool] | None = None

    @property
    def fused(self) -> bool:
        """Whether one kernel makes them, as far as is known. It is loaded the first time."""
        if not self._asked:
            self._asked = True
            try:
                self._kernel = self._port.kernel()
            except Exception as error:
                self._refused(str(error) or type(error).__name__)
        return self._kernel is not None

    def _refused(self, why: str) -> None:
        self._kernel = None
        _notice.say(
            f"floats on {self._port.name} are made by several operators of torch's, and not by one kernel: {why}"
        )

    def make(self, out: Any, between: Any, given: Any, left: Left, planes: bool) -> None:
        """Makes the floats ``out`` of the bytes ``given``, of the same shape, on the current stream. ``between`` is
        memory for ``fill``; None: there is none, or it is taken if it is needed."""
        failed = ""
        if self.fused and self._kernel is not None:
            try:
                if self._kernel(out, given, *self._coded(left), planes):
                    return
            except Exception as error:
                failed = failure(error)
        if left.wide and between is None:
            import torch

            between = torch.empty(out.shape, dtype=torch.float32, device=out.device)
        fill(out, between, given, left, self._constants(left, planes))
        if failed:  # and the operators have not: the device is all right
            self._refused(failed)

    def _coded(self, left: Left) -> Any:
        if left not in self._made:
            self._made[left] = coded(left)
        return self._made[left]

    def _constants(self, left: Left, planes: bool) -> list[Any]:
        """The tensors that ``fill`` takes, in its order, for channels that are planes or come last."""
        if (known := self._made.get((left, planes))) is not None:
            return known  # type: ignore[no-any-return]
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
        numbers = alike(numbers)
        shape = (len(numbers), 1, 1) if planes and len(numbers) > 1 else (len(numbers),)
        return self._port.numbers(numbers, dtype, shape)


class _Here:
    """Stands for a port: this process."""

    numbers = staticmethod(numbers)

    @staticmethod
    def kernel() -> None:
        """None: batches that come here are few."""


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
    its third axis from the end, otherwise the last; a picture of one channel may have no axis for it.

    ``sent``: pictures of which rows are made first, before anything else is done. ``rest``: what has to be done to the
    bytes then, by ``numbers``, float64 (rows, steps, numbers). The tensor has an axis for channels then, which the user
    does not see if it is ``squeezed``. ``left`` is None if the field stays bytes. ``mixing``: how the result is mixed
    (_device_mix.py); None: not at all."""

    __slots__ = ("left", "mixing", "numbers", "planes", "rest", "sent", "squeezed", "tensor")

    def __init__(
        self,
        tensor: Any,
        left: Left | None,
        planes: bool,
        rest: Rest | None = None,
        numbers: Any = None,
        squeezed: bool = False,
        mixing: Any = None,
    ) -> None:
        self.tensor, self.left, self.planes = tensor, left, planes
        self.rest, self.numbers, self.squeezed, self.mixing = rest, numbers, squeezed, mixing
        self.sent: Sent | None = None

    def __getitem__(self, number: int) -> Raw:
        assert self.rest is None  # those are batches
        assert self.sent is None
        return Raw(self.tensor[number], self.left, self.planes)

    @property
    def dtype(self) -> str:
        """Of what is made."""
        return "uint8" if self.left is None else self.left.dtype

    @property
    def decoded(self) -> tuple[int, int, float]:
        """The pictures of it that were decoded, their compressed bytes, and the seconds that the decoder took."""
        return (0, 0, 0.0) if self.sent is None else (len(self.sent), self.sent.size, self.sent.host_seconds)

    def here(self) -> Any:
        """What is made, in memory of this process."""
        import torch

        work = Work(self)
        like = work.like()
        out = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device="cpu")
        between = torch.empty(out.shape, dtype=torch.float32, device="cpu") if work.wide else None
        given = self.tensor
        with torch.no_grad():
            if self.sent is not None:
                given = torch.empty_strided(given.shape, given.stride(), dtype=torch.uint8, device="cpu").copy_(given)
                self.sent.decode(given.device)
            work.fill(out, between, given, self.numbers, Floats(_Here))
            if self.mixing is not None:
                self.mixing.pictures(out, self.planes)
        return work.squeezed(out)


class Work:
    """What has to be done for one Raw, found out while its numbers are here. Tensors that it is given have an axis for
    channels wherever the Raw's has."""

    def __init__(self, raw: Raw) -> None:
        self._left, self._planes, self._rest, self._squeezed = raw.left, raw.planes, raw.rest, raw.squeezed
        self._sent = raw.sent
        self._dtype = raw.dtype
        self._shape = tuple(raw.tensor.shape)
        self.wide = raw.left is not None and raw.left.wide
        self._script: steps.Script | None = None
        if raw.rest is None:
            return
        rows, *size = raw.tensor.shape
        channels, height, width = size if raw.planes else (size[2], size[0], size[1])
        self._script = steps.script_of(raw.numbers, (height, width, channels))
        height, width, channels = raw.rest.becomes
        self._shape = (rows, channels, height, width) if raw.planes else (rows, height, width, channels)

    def like(self) -> Any:
        """A tensor without memory, like what is made. Bytes are as the engine has them, channels last."""
        import torch

        dtype = getattr(torch, self._dtype)
        if self._left is None and self._planes:
            rows, channels, height, width = self._shape
            return torch.empty((rows, height, width, channels), dtype=dtype, device="meta").permute(0, 3, 1, 2)
        return torch.empty(self._shape, dtype=dtype, device="meta")

    def squeezed(self, made: Any) -> Any:
        """What the user sees of it."""
        if not self._squeezed:
            return made
        return made[:, 0] if self._planes else made[..., 0]

    def fill(self, out: Any, between: Any, given: Any, numbers: Any, floats: Floats) -> None:
        """Makes ``out`` of the bytes ``given`` and the numbers of the steps, all on one device. Rows of pictures that
        were sent are made in ``given``."""
        if self._sent is not None:
            self._sent.fill(given.permute(0, 2, 3, 1) if self._planes else given)
        if self._script is not None:
            into = self._channels_first(out) if self._left is None else None
            made = steps.run(self._channels_first(given), numbers, self._script, self._rest.becomes, into)  # type: ignore[union-attr]
            if self._left is None:
                return
            given = made if self._planes else made.permute(0, 2, 3, 1)
        if self._left is None:
            out.copy_(given)
            return
        floats.make(out, between, given, self._left, self._planes)
        if self._script is not None:
            steps.erase(self._channels_first(out), self._script)

    def _channels_first(self, tensor: Any) -> Any:
        return tensor if self._planes else tensor.permute(0, 3, 1, 2)


class Result:
    """What is made there of one Raw. ``memory`` is its own, as ``port.empty`` gave it."""

    __slots__ = ("_between", "_made", "_raw", "_seen", "_work", "memory")

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._work = Work(raw)
        self.memory: Any = None
        self._between: Any = None
        self._made: Any = None
        self._seen: Any = None

    @property
    def sent(self) -> Sent | None:
        """The pictures that are decoded there."""
        return self._raw.sent

    @property
    def decoded(self) -> tuple[int, int, float]:
        """As that of its Raw."""
        return self._raw.decoded

    @property
    def numbers(self) -> Any:
        """The tensor here that has the numbers of the steps; None: there are none."""
        return self._raw.numbers

    def allocate(self, port: Any, floats: Floats) -> None:
        """Takes memory there, or raises what ``port.full`` knows."""
        import torch

        like = self._work.like()
        self.memory = port.empty(max(like.numel() * BYTES[self._raw.dtype], 1))
        if self._work.wide and not floats.fused:
            memory = port.empty(max(like.numel() * BYTES["float32"], 1))
            self._between = shaped(memory, torch.empty(like.shape, dtype=torch.float32, device="meta"))
        self._made = shaped(self.memory, like)
        self._seen = shaped(self.memory, self._work.squeezed(like)) if self._raw.squeezed else self._made

    def start(self, port: Any, given: Any, numbers: Any, floats: Floats) -> None:
        """Makes it on the stream of copies, of bytes there, and of the numbers of the steps there."""
        work, out = self._work, self._made
        between, self._between = self._between, None  # free when it is done, as the bytes are
        port.compute(lambda: work.fill(out, between, given, numbers, floats))
        if (mixing := self._raw.mixing) is not None:
            planes = self._raw.planes
            port.compute(lambda: mixing.pictures(out, planes))

    def made(self) -> Any:
        """What the user gets."""
        return self._seen


def shaped(memory: Any, like: Any, begin: int = 0) -> Any:
    """Memory there, from a byte on, as a tensor with the dtype, shape and strides of ``like``. Not a view in torch's
    sense: for operations in place, views have rules of their own."""
    found = memory.new_empty(0, dtype=like.dtype)
    at = (memory.storage_offset() + begin) // found.element_size()
    return found.set_(memory.untyped_storage(), at, like.shape, like.stride())

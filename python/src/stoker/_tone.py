"""Known steps after Python's: what makes float32 of the bytes of a picture, and only that.

ToImage, PILToTensor, ToTensor, ToDtype, ConvertImageDtype and Normalize at the end of a chain give byte * scale + bias
for each channel. A worker leaves such a picture in its row as bytes, and the engine makes the numbers, in place, with
the loop of the native path (internal/crew/picture.go). Where a worker or the trainer needs the numbers itself
(``collate_fn``, ``num_workers=0``, ``dataset[i]``), ``Toned.now`` makes the same ones, bit for bit.

tones()     the steps of a chain -> how many come before these, and the Tone of these
Tone        scale and bias
Toned       a picture that has a Tone and is bytes still
Picture     such a picture as a leaf of a structure
InSamples   such steps as a function of whole samples
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._compile import _one
from ._errors import Problems
from ._leaves import Fixed, Unlike, plain

_LAID = frozenset(("ToImage", "PILToTensor"))
_TO_FLOAT = frozenset(("ToDtype", "ConvertImageDtype"))
_KINDS = frozenset(("pil", "array", "tensor"))
_WIRE = struct.Struct("<IIIIB3f3f")  # column, width, height, channels, planes, scale, bias


class Tone:
    """``kinds`` are the values for which the steps do just this: "pil", "array" (H, W, C) or "tensor" (C, H, W)."""

    def __init__(self, kinds: frozenset[str], scale: Sequence[float], bias: Sequence[float], channels: int) -> None:
        self.kinds = kinds
        self.scale = tuple(scale)  # float32, of three channels; one channel has the first
        self.bias = tuple(bias)
        self._three = channels == 3  # mean or std has three numbers

    def of(self, value: Any) -> Toned | None:
        """The value with this tone; None if the steps have to run."""
        pixels, planes = self._pixels(value)
        if pixels is None or pixels.dtype != "uint8" or pixels.ndim != 3 or not pixels.size:
            return None
        if pixels.shape[2] not in ((3,) if self._three else (1, 3)):
            return None
        return Toned(pixels, planes, self)

    def _pixels(self, value: Any) -> tuple[Any, bool]:
        """The pixels of a value, (H, W, C), and whether their planes are apart; None for other values."""
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None and type(value) is numpy.ndarray:
            return (value, False) if "array" in self.kinds else (None, False)
        if torch is not None and isinstance(value, torch.Tensor):
            plainly = type(value) is torch.Tensor or _is_image(value)
            if "tensor" not in self.kinds or not plainly or value.ndim != 3 or value.dtype is not torch.uint8:
                return None, False
            if value.device.type != "cpu" or value.layout is not torch.strided:
                return None, False
            pixels = plain(value).numpy().transpose(1, 2, 0)
            return pixels, not pixels.flags.c_contiguous
        pil = sys.modules.get("PIL.Image")
        if pil is None or not isinstance(value, pil.Image) or "pil" not in self.kinds or value.mode not in ("RGB", "L"):
            return None, False
        import numpy as np

        pixels = np.asarray(value)
        return (pixels if pixels.ndim == 3 else pixels[:, :, None]), False


SMALL_BYTES = 1 << 12  # rows of smaller pictures are written several at a time (_work.py: APART_BYTES)


class Toned:
    """A picture that is bytes still. ``pixels`` are (H, W, C), with any strides. They may be an array of the user's
    that the next sample fills again; small ones are copies."""

    def __init__(self, pixels: Any, planes: bool, tone: Tone, image: bool = False) -> None:
        self.pixels = pixels.copy("K") if pixels.size <= SMALL_BYTES else pixels
        self.planes = planes
        self.tone = tone
        self.image = image  # the steps would leave a tv_tensor

    def own(self) -> Toned:
        """With pixels of its own."""
        return Toned(self.pixels.copy("K"), self.planes, self.tone, self.image)

    def now(self) -> Any:
        """The tensor, or an array if torch is not loaded. Product and sum are rounded apart, as the engine does it."""
        import numpy as np

        height, width, channels = self.pixels.shape
        made = np.empty((channels, height, width), np.float32)
        scale, bias = (np.array(one[:channels], np.float32)[:, None, None] for one in (self.tone.scale, self.tone.bias))
        np.multiply(self.pixels.transpose(2, 0, 1), scale, out=made)
        np.add(made, bias, out=made)
        torch = sys.modules.get("torch")
        found = made if torch is None else torch.from_numpy(made)
        return sys.modules["torchvision.tv_tensors"].Image(found) if self.image else found


class Picture(Fixed):
    """In a batch a float32 tensor. A row is that large, and begins with the bytes until the engine has made the
    numbers; a row that has the numbers already is marked (_frames.READY)."""

    dtype = "float32"

    def __init__(
        self, shape: tuple[int, int, int], planes: bool, scale: Sequence[float], bias: Sequence[float]
    ) -> None:
        self.shape = shape  # channels, height, width
        self.planes = planes
        self.scale = tuple(scale)
        self.bias = tuple(bias)
        self.count = math.prod(shape)
        self.size = 4 * self.count

    def __reduce__(self) -> tuple[Any, ...]:
        return Picture, (self.shape, self.planes, self.scale, self.bias)

    @classmethod
    def of(cls, value: Toned) -> Picture:
        height, width, channels = value.pixels.shape
        return cls((channels, height, width), value.planes, value.tone.scale, value.tone.bias)

    def put(self, memory: memoryview, at: int, column: Sequence[Any]) -> None:
        import numpy as np

        channels, height, width = self.shape
        for value in column:
            if type(value) is _Ready:
                memory[at : at + self.size] = value.numbers
            elif (
                type(value) is not Toned
                or value.pixels.shape != (height, width, channels)
                or (value.tone.scale, value.tone.bias) != (self.scale, self.bias)
            ):
                raise Unlike
            else:
                row = np.frombuffer(memory, np.uint8, self.count, at)
                if self.planes:
                    np.copyto(row.reshape(self.shape), value.pixels.transpose(2, 0, 1))
                else:
                    np.copyto(row.reshape(height, width, channels), value.pixels)
            at += self.size

    def from_bytes(self, held: bytearray) -> Any:
        return _Ready(held)

    def words(self) -> str:
        return f"a float32 tensor of shape {self.shape}"

    def wire(self, column: int) -> bytes:
        """What the engine is told of the column."""
        channels, height, width = self.shape
        return _WIRE.pack(column, width, height, channels, self.planes, *self.scale, *self.bias)


class _Ready:
    """The numbers of a picture, as bytes."""

    def __init__(self, numbers: bytearray) -> None:
        self.numbers = numbers


def wire(leaves: Sequence[Any]) -> bytes:
    """What SHAPE says of the columns that are pictures."""
    found = [leaf.wire(column) for column, leaf in enumerate(leaves) if isinstance(leaf, Picture)]
    return struct.pack("<I", len(found)) + b"".join(found)


def now(sample: Any) -> Any:
    """A sample whose pictures are tensors."""
    return _changed(sample, Toned.now)


def own(sample: Any) -> Any:
    """A sample whose pictures are its own."""
    return _changed(sample, Toned.own)


def _changed(sample: Any, change: Callable[[Toned], Any]) -> Any:
    """Pictures are the sample, or values of it: nothing else looks at it after the step that made them."""
    if type(sample) is Toned:
        return change(sample)
    if type(sample) is dict and any(type(value) is Toned for value in sample.values()):
        return {key: change(value) if type(value) is Toned else value for key, value in sample.items()}
    if type(sample) is tuple and any(type(value) is Toned for value in sample):
        return tuple(change(value) if type(value) is Toned else value for value in sample)
    return sample


class InSamples:
    """A function of samples that is such steps and nothing else, of torchvision's version 2, which look for the picture
    in a sample themselves."""

    def __init__(self, steps: Sequence[Any]) -> None:
        begin, self._tone = tones(steps)
        if begin or not all(type(step).__module__.startswith("torchvision.transforms.v2.") for step in steps):
            self._tone = None
        kinds = [type(step).__name__ for step in steps if type(step).__name__ in ("ToImage", "ToPureTensor")]
        self._image = None if not kinds else kinds[-1] == "ToImage"  # None: if it was one before
        self.steps = list(steps) if self._tone is not None else []

    def __call__(self, sample: Any) -> Any:
        """The sample with a Toned; None if the steps have to run: it has other arrays, say."""
        if self._tone is None:
            return None
        if type(sample) not in (tuple, dict):
            return self._of(sample)
        items = sample.items() if type(sample) is dict else enumerate(sample)
        others = [(at, value) for at, value in items if not isinstance(value, (str, bytes, int, float, type(None)))]
        if len(others) != 1 or (toned := self._of(others[0][1])) is None:
            return None
        at = others[0][0]
        return {**sample, at: toned} if type(sample) is dict else (*sample[:at], toned, *sample[at + 1 :])

    def _of(self, value: Any) -> Toned | None:
        toned = self._tone.of(value) if self._tone is not None else None
        if toned is not None:
            toned.image = _is_image(value) if self._image is None else self._image
        return toned


def tones(steps: Sequence[Any]) -> tuple[int, Tone | None]:
    """How many steps there are before the last ones that only make numbers of bytes, and the Tone of these; None: there
    are none."""
    first = len(steps)
    known: list[dict[str, Any]] = []
    while first and (op := _op(steps[first - 1])) is not None:
        known.insert(0, op)
        first -= 1
    while known:
        if (tone := _tone(known)) is not None:
            return first, tone
        del known[0]  # ToDtype(uint8), say: what follows it may still do
        first += 1
    return len(steps), None


def _op(step: Any) -> dict[str, Any] | None:
    """The operation of a step that may be one of the last; None: it is none."""
    if isinstance(getattr(step, "dtype", None), Mapping):
        return None  # which it is depends on the type of the value
    problems = Problems("")
    ops = _one(step, "", problems)
    if problems or len(ops) != 1 or ops[0]["op"] not in (*_LAID, *_TO_FLOAT, "ToTensor", "Normalize", "Identity"):
        return None
    return ops[0]


def _tone(ops: Sequence[Mapping[str, Any]]) -> Tone | None:
    """What operations do to a picture, if that is a Tone. The arithmetic is that of internal/stage/transform/tone.go,
    in float64 and rounded once."""
    kinds = set(_KINDS)
    laid = made = False  # a tensor; floats
    scale, bias, most = [1.0] * 3, [0.0] * 3, 1
    for op in ops:
        name = op["op"]
        if name in _LAID:
            if not laid and name == "PILToTensor":
                kinds &= {"pil"}
            elif laid and name == "PILToTensor":
                return None  # version 1 refuses tensors
            laid = True
        elif name == "ToTensor":
            if laid:
                return None
            kinds &= {"pil", "array"}
            scale, laid, made = [1.0 / 255] * 3, True, True
        elif name in _TO_FLOAT:
            if op.get("dtype", "float32") != "float32":
                return None
            if not laid:
                kinds &= {"tensor"}
                laid = True
            if not made and (name == "ConvertImageDtype" or op.get("scale", False)):
                scale = [1.0 / 255] * 3
            made = True
        elif name == "Normalize":
            if not made:
                return None
            mean, std = (_numbers(op[key]) for key in ("mean", "std"))
            most = max(most, len(mean), len(std))
            if len(mean) not in (1, 3) or len(std) not in (1, 3) or not all(std):
                return None
            for i in range(3):
                by = std[min(i, len(std) - 1)]
                scale[i] /= by
                bias[i] = (bias[i] - mean[min(i, len(mean) - 1)]) / by
    if not made or not kinds or not all(map(math.isfinite, (*scale, *bias))):
        return None
    return Tone(frozenset(kinds), _rounded(scale), _rounded(bias), most)


def _numbers(given: Any) -> list[float]:
    """Mean or std, rounded to float32 as torchvision does first."""
    return _rounded(given if isinstance(given, (list, tuple)) else [given])


def _rounded(numbers: Sequence[float]) -> list[float]:
    try:
        return list(struct.unpack(f"<{len(numbers)}f", struct.pack(f"<{len(numbers)}f", *numbers)))
    except OverflowError:
        return [math.inf] * len(numbers)


def _is_image(value: Any) -> bool:
    images: Any = sys.modules.get("torchvision.tv_tensors")
    return images is not None and type(value) is images.Image

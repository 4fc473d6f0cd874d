"""Transforms with the names, arguments and defaults of ``torchvision.transforms.v2``.

They describe what the engine does to pictures; they hold no pixels and need no torch::

    from stoker import transforms as T

    train = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(mean, std)])

Real torchvision transforms may be used instead, or mixed with these. Pictures are bytes (uint8) until ``ToTensor``,
``ToDtype`` or ``ConvertImageDtype`` make them floats. Bilinear is antialiased; ``nearest`` is the same as torchvision's
for tensors.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from . import _parameters as read
from ._errors import ConfigError

__all__ = [
    "CenterCrop",
    "Compose",
    "ConvertImageDtype",
    "Grayscale",
    "Identity",
    "InterpolationMode",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandomApply",
    "RandomCrop",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
    "ToImage",
    "ToTensor",
]


class InterpolationMode(enum.Enum):
    """The resampling filters that the engine has; strings and Pillow's integers work too."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"


class Transform:
    """Base of all. Arguments are attributes; nothing else is stored."""

    # Whether it gives different numbers for floats than for bytes.
    _on_bytes: ClassVar[bool] = False

    @staticmethod
    def _read(_: Any) -> read.Arguments:
        """The arguments of an operation of a Spec, from an object of this class or of torchvision's class of this
        name."""
        return {}

    def __call__(self, *inputs: Any) -> Any:
        raise ConfigError(
            f"{type(self).__name__} of stoker.transforms describes work for the engine and cannot be called",
            hint="give it to a stoker dataset, or take the class of the same name from torchvision.transforms.v2",
        )

    def __repr__(self) -> str:
        shown = (f"{name}={value}" for name, value in vars(self).items() if value is not None)
        return f"{type(self).__name__}({', '.join(shown)})"


class _Holder(Transform):
    """A transform of transforms."""

    transforms: Sequence[Any]

    def __init__(self, transforms: Sequence[Any]) -> None:
        # A torch.nn.ModuleList is not a Sequence, but has the methods needed here.
        if not (hasattr(transforms, "__iter__") and hasattr(transforms, "__len__")):
            raise ConfigError(f"{type(self).__name__}: transforms must be a list, not {transforms!r}")
        if len(transforms) == 0:
            raise ConfigError(f"{type(self).__name__}: transforms is empty", hint="pass at least one transform")
        self.transforms = transforms

    def __iter__(self) -> Iterator[Any]:
        return iter(self.transforms)

    def __repr__(self) -> str:
        lines = "\n".join(f"    {t}" for t in self.transforms).split("\n")
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)"


class _Chance(Transform):
    p: float

    def __init__(self, p: float = 0.5) -> None:
        self.p = _probability(self, p)

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"p": read.number("p", t.p)}


def _probability(owner: Transform, p: float) -> float:
    if not 0.0 <= p <= 1.0:
        raise ConfigError(f"{type(owner).__name__}: p must be a number from 0 to 1, not {p!r}")
    return p


def _pair(owner: Transform, size: int | Sequence[int]) -> Sequence[int]:
    if isinstance(size, Sequence):
        if len(size) == 1:
            return size[0], size[0]
        if len(size) == 2:
            return size
        raise ConfigError(f"{type(owner).__name__}: size must be a number or (height, width), not {size!r}")
    return int(size), int(size)


class Compose(_Holder):
    """Applies transforms one after another."""

    def __init__(self, transforms: Sequence[Any]) -> None:
        super().__init__(transforms)


class RandomApply(_Holder):
    """Applies all transforms with probability ``p``, else none."""

    def __init__(self, transforms: Sequence[Any], p: float = 0.5) -> None:
        super().__init__(transforms)
        self.p = _probability(self, p)


class Identity(Transform):
    """Nothing."""


class Resize(Transform):
    """Resizes to ``(height, width)``, or the shorter edge to a length (the longer edge then to at most ``max_size``).

    ``draft`` is as in ``RandomResizedCrop``.
    """

    draft = False
    _on_bytes = True

    def __init__(
        self,
        size: int | Sequence[int] | None,
        interpolation: str | int | enum.Enum = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
        *,
        draft: bool = False,
    ) -> None:
        if size is None:
            if max_size is None:
                raise ConfigError("Resize: size and max_size are both None", hint="give one")
            self.size = None
        elif isinstance(size, Sequence):
            if len(size) not in (1, 2):
                raise ConfigError(f"Resize: size must be a number or (height, width), not {size!r}")
            self.size = list(size)
        else:
            self.size = [int(size)]
        self.interpolation = interpolation
        self.max_size = max_size
        self.antialias = antialias
        if draft:
            self.draft = True

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        out = read.interpolation(t)
        if t.size is not None:
            out["size"] = read.wholes("size", t.size)
        if t.max_size is not None:
            out["max_size"] = read.whole("max_size", t.max_size)
        return out


class CenterCrop(Transform):
    """Crops the centre; missing pixels are padded with zeros."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = _pair(self, size)

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"size": read.wholes("size", t.size)}


class RandomResizedCrop(Transform):
    """Crops a random region, drawn by its share of the area and its aspect ratio, and resizes it to ``size``.

    With ``draft=True`` pixels may be approximate: if the region is at least 2, 4 or 8 times ``size`` both ways,
    a JPEG is decoded at a half, a quarter or an eighth of its size, as Pillow's ``draft`` does, and resampled from
    there; the region is not rounded. Photographs of 1500 to 3000 pixels take 0.43 to 0.67 of the time. The result
    differs from the exact one by 0.3 to 0.7 of 255 levels on average, and by up to 45 at fine edges. Smaller regions,
    other formats and ``nearest`` are not affected. torchvision's class has no such argument.
    """

    draft = False
    _on_bytes = True

    def __init__(
        self,
        size: int | Sequence[int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: str | int | enum.Enum = "bilinear",
        antialias: bool | None = True,
        *,
        draft: bool = False,
    ) -> None:
        self.size = _pair(self, size)
        self.scale = scale
        self.ratio = ratio
        self.interpolation = interpolation
        self.antialias = antialias
        if draft:
            self.draft = True

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {
            "size": read.wholes("size", t.size),
            "scale": read.two("scale", t.scale),
            "ratio": read.two("ratio", t.ratio),
            **read.interpolation(t),
        }


class RandomCrop(Transform):
    """Crops a region of ``size`` at a random position, after padding."""

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float | Sequence[float] | dict[Any, Any] | None = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.size = _pair(self, size)
        self.padding = padding
        self.pad_if_needed = pad_if_needed
        self.fill = fill
        self.padding_mode = padding_mode

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        out: read.Arguments = {"size": read.wholes("size", t.size), "pad_if_needed": bool(t.pad_if_needed)}
        padding = t.padding
        if padding is not None:
            out["padding"] = read.wholes("padding", padding)
            if type(t).__module__.startswith("torchvision.transforms.v2") and len(out["padding"]) == 4:
                left, right, top, bottom = out["padding"]  # the order in which v2's class stores them
                out["padding"] = [left, top, right, bottom]
        if padding is not None or t.pad_if_needed:
            out["fill"] = read.fill(t)
            out["padding_mode"] = str(t.padding_mode)
        return out


class Pad(Transform):
    """Adds pixels on each side: one number, (left and right, top and bottom), or (left, top, right, bottom)."""

    def __init__(
        self,
        padding: int | Sequence[int],
        fill: float | Sequence[float] | dict[Any, Any] | None = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.padding = padding if isinstance(padding, int) else list(padding)
        self.fill = fill
        self.padding_mode = padding_mode

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"padding": read.wholes("padding", t.padding), "fill": read.fill(t), "padding_mode": str(t.padding_mode)}


class RandomHorizontalFlip(_Chance):
    """Flips left to right with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)


class RandomVerticalFlip(_Chance):
    """Flips top to bottom with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)


class Grayscale(Transform):
    """Converts to luma, as Pillow computes it, in one channel or three."""

    _on_bytes = True

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = num_output_channels

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"num_output_channels": read.whole("num_output_channels", t.num_output_channels)}


class RandomGrayscale(_Chance):
    """Converts to luma in as many channels as before, with probability ``p``."""

    _on_bytes = True

    def __init__(self, p: float = 0.1) -> None:
        super().__init__(p)


class ToTensor(Transform):
    """Converts to float32; 255 becomes 1."""


class PILToTensor(Transform):
    """Has no effect: pictures stay bytes."""


class ToImage(Transform):
    """Has no effect: pictures stay bytes."""


class ToDtype(Transform):
    """Converts to ``float32`` or ``uint8``: a name, or the dtype of torch or NumPy. With ``scale``, 255 becomes 1."""

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        self.dtype = dtype
        self.scale = scale

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        if isinstance(t.dtype, Mapping) and read.for_images("dtype", t.dtype) is None:
            return {"dtype": "uint8"}  # for types other than images: nothing to do
        return {"dtype": read.dtype(t.dtype), "scale": bool(t.scale)}


class ConvertImageDtype(Transform):
    """Same as ``ToDtype`` with ``scale=True``."""

    def __init__(self, dtype: Any = "float32") -> None:
        self.dtype = dtype

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"dtype": read.dtype(t.dtype)}


class Normalize(Transform):
    """Computes ``(x - mean) / std`` for each channel; needs floats."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean = [float(v) for v in mean]
        self.std = [float(v) for v in std]
        self.inplace = inplace

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"mean": read.numbers("mean", t.mean), "std": read.numbers("std", t.std)}


if not TYPE_CHECKING:  # type checkers know every name

    def __getattr__(name: str) -> object:
        from ._elsewhere import missing

        raise missing(__name__, name, __all__)

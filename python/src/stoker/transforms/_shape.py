"""Transforms that crop, resize, pad and flip."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from .. import _parameters as read
from .._errors import ConfigError
from ._base import Chance, Transform, pair, real


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
        elif real(self, "size", size).is_integer():
            self.size = [int(size)]
        else:
            raise ConfigError(f"Resize: size must be a whole number or (height, width), not {size!r}")
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
        self.size = pair(self, size)

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"size": read.wholes("size", t.size)}


class RandomResizedCrop(Transform):
    """Crops a random region, drawn by its share of the area and its aspect ratio, and resizes it to ``size``.

    With ``draft=True`` pixels may be approximate: if the region is at least 2, 4 or 8 times ``size`` both ways,
    a JPEG is decoded at a half, a quarter or an eighth of its size, as Pillow's ``draft`` does, and resampled from
    there; the region is not rounded. Photographs of 1500 to 3000 pixels take 0.43 to 0.67 of the time. The result
    differs from the exact one by 0.3 to 0.7 of 255 levels on average, and by up to 45 at fine edges. Smaller regions,
    other formats are not affected. It needs ``bilinear``. torchvision's class has no such argument.
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
        self.size = pair(self, size)
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
        self.size = pair(self, size)
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
        if not isinstance(padding, (int, Sequence)):
            raise ConfigError(f"Pad: padding must be 1, 2 or 4 whole numbers, not {padding!r}")
        self.padding = padding if isinstance(padding, int) else list(padding)
        self.fill = fill
        self.padding_mode = padding_mode

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"padding": read.wholes("padding", t.padding), "fill": read.fill(t), "padding_mode": str(t.padding_mode)}


class RandomHorizontalFlip(Chance):
    """Flips left to right with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)


class RandomVerticalFlip(Chance):
    """Flips top to bottom with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p)

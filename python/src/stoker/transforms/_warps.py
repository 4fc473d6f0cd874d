"""Transforms that turn, shear and distort. Pixels are torchvision's for uint8 tensors, in all but one of a thousand:
equal for ``nearest``, within 1 for ``bilinear``."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _parameters as read
from .._errors import ConfigError
from ._base import Chance, Transform, real, reals

_Fill = float | Sequence[float] | dict[Any, Any] | None
_Mode = str | int | enum.Enum


class _Warp(Transform):
    _on_bytes = _takes_floats = True

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        out = read.interpolation(t)
        if out["interpolation"] not in ("nearest", "bilinear"):
            raise read.Wrong(
                f"interpolation cannot be {out['interpolation']!r}", "the engine has nearest and bilinear here"
            )
        fill = read.for_images("fill", t.fill) if isinstance(t.fill, Mapping) else t.fill
        out["fill"] = None if fill is None else read.fill(t)  # the engine knows None: it is blended otherwise than 0
        if (center := getattr(t, "center", None)) is not None:
            out["center"] = read.two("center", center)
        return out


class RandomRotation(_Warp):
    """Rotates by a random angle: from ``-degrees`` to ``degrees``, or between two. With ``expand``, the result has
    room for all of the picture."""

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: _Mode = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: _Fill = 0,
    ) -> None:
        self.degrees = _angles(self, "degrees", degrees, 2)
        self.interpolation = interpolation
        self.expand = expand
        self.fill = fill
        self.center = _center(self, center)

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"degrees": read.two("degrees", t.degrees), "expand": bool(t.expand), **_Warp._read(t)}


class RandomAffine(_Warp):
    """Rotates, shifts, scales and shears at random, around the middle or ``center``.

    ``translate`` is the largest shift, as shares of the width and the height. ``shear`` is degrees along x, or four
    numbers for x and y.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: _Mode = "nearest",
        fill: _Fill = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        self.degrees = _angles(self, "degrees", degrees, 2)
        if translate is not None and not all(0.0 <= part <= 1.0 for part in reals(self, "translate", translate, 2)):
            raise ConfigError(f"RandomAffine: translate must be two numbers from 0 to 1, not {translate!r}")
        self.translate = translate
        if scale is not None and not all(factor > 0 for factor in reals(self, "scale", scale, 2)):
            raise ConfigError(f"RandomAffine: scale must be two positive numbers, not {scale!r}")
        self.scale = scale
        self.shear = None if shear is None else _angles(self, "shear", shear, 2, 4)
        self.interpolation = interpolation
        self.fill = fill
        self.center = _center(self, center)

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        out = {"degrees": read.two("degrees", t.degrees), **_Warp._read(t)}
        for name in ("translate", "scale", "shear"):
            if (value := getattr(t, name)) is not None:
                out[name] = read.numbers(name, value)
        return out


class RandomPerspective(Chance, _Warp):
    """Moves the corners into the picture at random, with probability ``p``: each by up to ``distortion_scale`` of half
    the width and half the height."""

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: _Mode = "bilinear",
        fill: _Fill = 0,
    ) -> None:
        super().__init__(p)
        if not 0 <= real(self, "distortion_scale", distortion_scale) <= 1:
            raise ConfigError(
                f"RandomPerspective: distortion_scale must be a number from 0 to 1, not {distortion_scale!r}"
            )
        self.distortion_scale = distortion_scale
        self.interpolation = interpolation
        self.fill = fill

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        distortion = read.number("distortion_scale", t.distortion_scale)
        return {"distortion_scale": distortion, **Chance._read(t), **_Warp._read(t)}


def _angles(owner: Transform, name: str, value: float | Sequence[float], *lengths: int) -> list[float]:
    """Both ends of each range of degrees, as torchvision's classes keep them."""
    if isinstance(value, (int, float)):
        if value < 0:
            raise ConfigError(f"{type(owner).__name__}: {name} must not be negative, as one number, but is {value!r}")
        return [-float(value), float(value)]
    if not isinstance(value, Sequence) or len(value) not in lengths:
        wanted = " or ".join(map(str, lengths))
        raise ConfigError(f"{type(owner).__name__}: {name} must be one number or {wanted}, not {value!r}")
    return [real(owner, name, end) for end in value]


def _center(owner: Transform, center: Sequence[float] | None) -> Sequence[float] | None:
    if center is not None and not (isinstance(center, Sequence) and len(center) == 2):
        raise ConfigError(f"{type(owner).__name__}: center must be (x, y), not {center!r}")
    return center

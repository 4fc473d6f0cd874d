"""Transforms of colours. Pixels are within 1 of torchvision's for uint8 tensors, hues within 2."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _parameters as read
from .._errors import ConfigError
from ._base import Chance, Transform, real

_Range = float | Sequence[float] | None


class _OnBytes(Chance):
    _on_bytes = _takes_floats = True


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue by random amounts, in random order.

    A number ``d`` means factors from ``max(0, 1 - d)`` to ``1 + d``, for the hue ``-d`` to ``d`` turns; two numbers are
    both ends. None changes nothing.
    """

    _on_bytes = _takes_floats = True

    def __init__(
        self, brightness: _Range = None, contrast: _Range = None, saturation: _Range = None, hue: _Range = None
    ) -> None:
        self.brightness = _around(self, "brightness", brightness)
        self.contrast = _around(self, "contrast", contrast)
        self.saturation = _around(self, "saturation", saturation)
        self.hue = _around(self, "hue", hue)

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        named = {name: getattr(t, name) for name in ("brightness", "contrast", "saturation", "hue")}
        return {name: read.two(name, value) for name, value in named.items() if value is not None}


def _around(owner: Transform, name: str, value: _Range) -> tuple[float, float] | None:
    """Both ends of a range, as torchvision's ColorJitter keeps them; None if nothing changes."""
    centre, least, most = (0.0, -0.5, 0.5) if name == "hue" else (1.0, 0.0, float("inf"))
    if value is None:
        return None
    if isinstance(value, (int, float)):
        if value < 0:
            raise ConfigError(f"{type(owner).__name__}: {name} must not be negative, as one number, but is {value!r}")
        ends = (centre - value, centre + value)
        if name != "hue":
            ends = (max(ends[0], 0.0), ends[1])
    elif isinstance(value, Sequence) and len(value) == 2:
        ends = (real(owner, name, value[0]), real(owner, name, value[1]))
    else:
        raise ConfigError(f"{type(owner).__name__}: {name} must be a number or two, not {value!r}")
    if not least <= ends[0] <= ends[1] <= most:
        raise ConfigError(
            f"{type(owner).__name__}: {name} must be between {least} and {most}, the smaller first, not {ends}"
        )
    return None if ends == (centre, centre) else ends


class RandomPhotometricDistort(Transform):
    """Changes brightness, contrast, saturation and hue, and permutes the channels, each with probability ``p``.

    Contrast comes before saturation and hue or after them, each equally often.
    """

    _on_bytes = _takes_floats = True

    def __init__(
        self,
        brightness: tuple[float, float] = (0.875, 1.125),
        contrast: tuple[float, float] = (0.5, 1.5),
        saturation: tuple[float, float] = (0.5, 1.5),
        hue: tuple[float, float] = (-0.05, 0.05),
        p: float = 0.5,
    ) -> None:
        self.brightness = brightness
        self.contrast = contrast
        self.hue = hue
        self.saturation = saturation
        self.p = p

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        named = {name: read.two(name, getattr(t, name)) for name in ("brightness", "contrast", "saturation", "hue")}
        return {**named, "p": min(max(read.number("p", t.p), 0.0), 1.0)}  # torchvision takes any number


class RandomChannelPermutation(Transform):
    """Permutes the channels, each order equally often."""

    _on_bytes = _takes_floats = True


class RandomInvert(_OnBytes):
    """Inverts with probability ``p``: v becomes 255 - v."""


class RandomAutocontrast(_OnBytes):
    """With probability ``p``, stretches each channel so that its least value becomes 0 and its greatest 255."""


class RandomEqualize(_OnBytes):
    """Makes the histogram of each channel flat, with probability ``p``."""


class RandomPosterize(_OnBytes):
    """Keeps the ``bits`` highest bits of each value, with probability ``p``."""

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        self.bits = bits

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"bits": read.index("bits", t.bits), "p": read.number("p", t.p)}


class RandomSolarize(_OnBytes):
    """Inverts values of at least ``threshold``, with probability ``p``."""

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = threshold

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"threshold": read.number("threshold", t.threshold), "p": read.number("p", t.p)}

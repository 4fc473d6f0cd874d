"""Transforms that blur, sharpen and erase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _parameters as read
from .._errors import ConfigError
from ._base import Chance, Transform, real, reals


class GaussianBlur(Transform):
    """Blurs with a Gaussian over ``kernel_size`` pixels (one odd number, or two: columns and rows).

    ``sigma`` is drawn between its two ends; one number is both. Pixels are within 1 of torchvision's for uint8 tensors.
    Sides of at most half of ``kernel_size`` are refused, as torchvision does.
    """

    _on_bytes = _takes_floats = True

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        sizes = kernel_size
        if not isinstance(sizes, Sequence):
            sizes = (int(real(self, "kernel_size", kernel_size)),)
        if any(size <= 0 or size % 2 == 0 for size in reals(self, "kernel_size", sizes, 1, 2)):
            raise ConfigError(
                f"GaussianBlur: kernel_size must be an odd and positive number, or two, not {kernel_size!r}"
            )
        self.kernel_size = sizes if len(sizes) == 2 else (sizes[0], sizes[0])
        ends = reals(self, "sigma", sigma if isinstance(sigma, Sequence) else (sigma,), 1, 2)
        if not 0.0 < ends[0] <= ends[-1]:
            raise ConfigError(f"GaussianBlur: sigma must be a positive number, or (min, max), not {sigma!r}")
        self.sigma = [ends[0], ends[-1]]

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        sizes = [read.index("kernel_size", size) for size in t.kernel_size]
        return {"kernel_size": sizes, "sigma": read.two("sigma", t.sigma)}


class RandomAdjustSharpness(Chance):
    """Blends with the smoothed picture, with probability ``p``: 0 is smooth, 1 the picture, 2 twice as sharp."""

    _on_bytes = _takes_floats = True

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        if real(self, "sharpness_factor", sharpness_factor) < 0:
            raise ConfigError(
                f"RandomAdjustSharpness: sharpness_factor must not be negative, but is {sharpness_factor!r}"
            )
        self.sharpness_factor = sharpness_factor

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        factor = read.number("sharpness_factor", t.sharpness_factor)
        if factor > 1e30:
            raise read.Wrong(f"sharpness_factor cannot be {factor}", "give a number from 0 to 1e30")
        return {"sharpness_factor": factor, "p": read.number("p", t.p)}


class RandomErasing(Chance):
    """Erases a random box with probability ``p``.

    Its share of the picture's area is drawn from ``scale``, its height by its width from ``ratio``. ``value`` is one
    number, one for each channel, or ``"random"`` for normal numbers, which floats can have and bytes cannot. It is in
    the units that the numbers have at this place: after ``Normalize``, 0 is the mean. On floats, also of 16 bits, it
    must come after the transforms that move pixels.
    """

    value: list[float] | None

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | str | Sequence[float] = 0.0,
        inplace: bool = False,
    ) -> None:
        super().__init__(p)
        if isinstance(value, str) and value != "random":
            raise ConfigError(
                f"RandomErasing: value must be a number, one for each channel, or 'random', not {value!r}"
            )
        for name, ends in (("scale", scale), ("ratio", ratio)):
            low, high = reals(self, name, ends, 2)
            if low > high:
                raise ConfigError(f"RandomErasing: {name} must be two numbers, the smaller first, not {ends!r}")
        if scale[0] < 0 or scale[1] > 1:
            raise ConfigError(f"RandomErasing: scale must be between 0 and 1, not {scale!r}")
        self.scale = scale
        self.ratio = ratio
        self.value = None if isinstance(value, str) else self._each(value)  # as torchvision.transforms.v2's has it
        self.inplace = inplace

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        value = "random" if t.value is None or isinstance(t.value, str) else read.numbers("value", t.value)
        return {
            "p": read.number("p", t.p),
            "scale": read.two("scale", t.scale),
            "ratio": read.two("ratio", t.ratio),
            "value": value,
        }

    def _each(self, value: float | Sequence[float]) -> list[float]:
        return [real(self, "value", v) for v in (value if isinstance(value, Sequence) else (value,))]

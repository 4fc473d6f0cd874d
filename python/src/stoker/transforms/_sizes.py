"""Transforms whose result has a random size. A crop or a Resize after them makes the pictures of a batch equal; without
one, take samples (``batch_size=None``), or give a ``collate_fn``."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from .. import _parameters as read
from .._errors import ConfigError
from ._base import Chance, Transform, real, reals


class _Resized(Transform):
    """Resizes, by a size that is drawn."""

    _on_bytes = True

    def _keep(self, interpolation: str | int | enum.Enum, antialias: bool | None) -> None:
        self.interpolation = interpolation
        self.antialias = antialias


class RandomResize(_Resized):
    """Resizes the shorter edge to a length from ``min_size`` to ``max_size - 1``."""

    def __init__(
        self,
        min_size: int,
        max_size: int,
        interpolation: str | int | enum.Enum = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        if not 0 < real(self, "min_size", min_size) < real(self, "max_size", max_size):
            raise ConfigError(
                f"RandomResize: min_size {min_size!r} and max_size {max_size!r} leave no size",
                hint="sizes are drawn from min_size, which is above 0, to max_size - 1",
            )
        self.min_size = min_size
        self.max_size = max_size
        self._keep(interpolation, antialias)

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {
            "min_size": read.whole("min_size", t.min_size),
            "max_size": read.whole("max_size", t.max_size),
            **read.interpolation(t),
        }


class RandomShortestSize(_Resized):
    """Resizes the shorter edge to one of ``min_size``, and the longer one to at most ``max_size``."""

    def __init__(
        self,
        min_size: list[int] | tuple[int, ...] | int,
        max_size: int | None = None,
        interpolation: str | int | enum.Enum = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        if not isinstance(min_size, int) and not hasattr(min_size, "__iter__"):
            raise ConfigError(f"RandomShortestSize: min_size must be a whole number, or a list, not {min_size!r}")
        self.min_size = [min_size] if isinstance(min_size, int) else list(min_size)
        if not self.min_size:
            raise ConfigError("RandomShortestSize: min_size is empty", hint="give one size, or a list of them")
        self.max_size = max_size
        self._keep(interpolation, antialias)

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        out = {"min_size": read.wholes("min_size", t.min_size), **read.interpolation(t)}
        if t.max_size is not None:
            out["max_size"] = read.whole("max_size", t.max_size)
        return out


class ScaleJitter(_Resized):
    """Resizes to fit into ``target_size``, times a number from ``scale_range``. torchvision reads ``target_size`` as
    ``(width, height)``, and so does this class."""

    def __init__(
        self,
        target_size: tuple[int, int],
        scale_range: tuple[float, float] = (0.1, 2.0),
        interpolation: str | int | enum.Enum = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        self.target_size = target_size
        self.scale_range = scale_range
        self._keep(interpolation, antialias)

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        target = read.wholes("target_size", t.target_size)
        if len(target) > 2:  # torchvision takes the first two
            raise read.Wrong(f"target_size must be two numbers, not {t.target_size!r}")
        return {
            "target_size": target,
            "scale_range": sorted(read.two("scale_range", t.scale_range)),  # torchvision takes both orders
            **read.interpolation(t),
        }


class RandomZoomOut(Chance):
    """Puts the picture somewhere on a canvas of ``fill``, whose sides are a number from ``side_range`` times as long,
    with probability ``p``."""

    def __init__(
        self,
        fill: float | Sequence[float] | dict[Any, Any] | None = 0,
        side_range: Sequence[float] = (1.0, 4.0),
        p: float = 0.5,
    ) -> None:
        super().__init__(p)
        self.fill = fill
        low, high = reals(self, "side_range", side_range, 2)
        if not 1.0 <= low <= high:
            raise ConfigError(
                f"RandomZoomOut: side_range must be two numbers from 1 on, the smaller first, not {side_range!r}"
            )
        self.side_range = side_range

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {
            "fill": read.fill(t),
            "side_range": read.two("side_range", t.side_range),
            "p": read.number("p", t.p),
        }

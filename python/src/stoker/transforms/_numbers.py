"""Transforms of colours to grey, and of bytes to floats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import _parameters as read
from ._base import Chance, Transform


class Grayscale(Transform):
    """Converts to luma, as Pillow computes it, in one channel or three."""

    _on_bytes = True

    def __init__(self, num_output_channels: int = 1) -> None:
        self.num_output_channels = num_output_channels

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"num_output_channels": read.whole("num_output_channels", t.num_output_channels)}


class RGB(Transform):
    """Gives a grey picture three equal channels."""


class RandomGrayscale(Chance):
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
    """Converts to ``float32``, ``float16``, ``bfloat16`` or ``uint8``: a name, or the dtype of torch, NumPy or JAX.
    With ``scale``, 255 becomes 1. float16 and bfloat16 are those of torchvision v2, to the bit: what follows, such as
    ``Normalize``, computes in them."""

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
    """Computes ``(x - mean) / std`` for each channel, in the dtype of the floats that it is given."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean = [float(v) for v in mean]
        self.std = [float(v) for v in std]
        self.inplace = inplace

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"mean": read.numbers("mean", t.mean), "std": read.numbers("std", t.std)}

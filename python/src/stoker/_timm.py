"""timm's own transforms as operations of a Spec: those of its create_transform that the engine has.

timm is never imported: a class is recognised by its module and name. What is not here runs in Python workers: timm's
RandAugment, AutoAugment and AugMix work on PIL images, with magnitudes of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import _parameters as read
from ._parameters import Arguments, Wrong

_SMOOTH = ("bilinear", "bicubic")


def ops(transform: Any) -> list[Arguments] | None:
    """The operations of one of timm's transforms; None for everything else. Wrong if it has an argument that the
    engine does not have."""
    cls = type(transform)
    return _READERS[cls.__name__](transform) if known(cls) else None


def known(cls: type) -> bool:
    """Whether it is such a class."""
    module = "random_erasing" if cls.__name__ == "RandomErasing" else "transforms"
    return cls.__module__ == f"timm.data.{module}" and cls.__name__ in _READERS


def after(step: Any, state: str) -> str | None:
    """What a picture ("pil", "bytes", "floats" or "halves") is after a step, also "erased floats" and the like; None if
    timm does something to such a picture that the engine does not."""
    if type(step).__name__ == "RandomErasing":
        zeros = not (step.rand_color or step.per_pixel)
        after = {"floats": "erased floats", "halves": "erased halves", "bytes": "bytes" if zeros else None}
        return after.get(state)
    if state == "pil":
        return {"MaybeToTensor": "floats", "ToTensor": "floats", "MaybePILToTensor": "bytes", "ToNumpy": "bytes"}.get(
            type(step).__name__, "pil"
        )
    return state if type(step).__name__ == "MaybePILToTensor" else None


def _crop(t: Any) -> list[Arguments]:
    op: Arguments = {
        "op": "RandomResizedCrop",
        "size": read.wholes("size", t.size),
        "scale": read.two("scale", t.scale),
        "ratio": read.two("ratio", t.ratio),
    }
    modes = _modes(t)
    if len(modes) == 1:
        return [{**op, "interpolation": modes[0]}]
    if sorted(modes) != ["bicubic", "bilinear"]:
        raise Wrong(f"interpolation cannot be {modes} at random", "interpolation='random' is bilinear or bicubic")
    return [{**op, "op": "RandomResizedCropAndInterpolation"}]


def _keep(t: Any) -> list[Arguments]:
    if t.random_scale_prob or t.random_aspect_prob:
        raise Wrong("random_scale_prob and random_aspect_prob are not supported")
    modes = _modes(t)
    if len(modes) != 1:
        raise Wrong("interpolation cannot be 'random'", "give bilinear or bicubic")
    op: Arguments = {"op": "ResizeKeepRatio", "size": read.wholes("size", t.size), "interpolation": modes[0]}
    return [{**op, "longest": read.number("longest", t.longest)}]


def _centre(t: Any) -> list[Arguments]:
    return [
        {
            "op": "CenterCropOrPad",
            "size": read.wholes("size", t.size),
            "fill": read.fill(t),
            "padding_mode": str(t.padding_mode),
        }
    ]


def _unscaled(t: Any) -> list[Arguments]:
    return [{"op": "PILToTensor"}, {"op": "ToDtype", "dtype": read.dtype(t.dtype), "scale": False}]


def _erase(t: Any) -> list[Arguments]:
    """One box a picture is torchvision's law: "const" is its value 0, "pixel" its value "random"."""
    if t.min_count != 1 or t.max_count != 1:
        raise Wrong(f"it erases {t.min_count} to {t.max_count} boxes", "the engine erases one: re_count=1")
    if t.rand_color:
        raise Wrong("mode cannot be 'rand'", "the engine has 'const' and 'pixel'")
    return [
        {
            "op": "RandomErasing",
            "p": read.number("probability", t.probability),
            "scale": read.two("area", (t.min_area, t.max_area)),
            # timm keeps only the logarithms; an end is what was given, not the last bit of its exponential
            "ratio": [float(f"{math.exp(read.number('aspect', end)):.12g}") for end in t.log_aspect_ratio],
            "value": "random" if t.per_pixel else [0.0],
        }
    ]


def _modes(t: Any) -> list[str]:
    """Its interpolation, or those that it chooses from."""
    given = t.interpolation if isinstance(t.interpolation, (tuple, list)) else [t.interpolation]
    modes = [str(getattr(mode, "value", mode)) for mode in given]
    if wrong := [mode for mode in modes if mode not in _SMOOTH]:
        raise Wrong(f"interpolation cannot be {wrong[0]!r}", "the engine has bilinear and bicubic, as Pillow's")
    return modes


_READERS: dict[str, Callable[[Any], list[Arguments]]] = {
    "CenterCropOrPad": _centre,
    "MaybePILToTensor": lambda _: [{"op": "PILToTensor"}],
    "MaybeToTensor": lambda _: [{"op": "ToTensor"}],
    "RandomErasing": _erase,
    "RandomResizedCropAndInterpolation": _crop,
    "ResizeKeepRatio": _keep,
    "ToNumpy": lambda _: [{"op": "PILToTensor"}],
    "ToTensor": _unscaled,
}

"""Parameters of transforms, ours or torchvision's, in the form of a Spec. What the engine does not have is Wrong.

Each function reads a value, or an attribute with the same name in torchvision's classes and ours.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Mapping
from typing import Any

# Pillow's integers for resampling filters.
_PIL_MODES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}

Arguments = dict[str, Any]


def foreign(function: Any) -> bool:
    """Whether a function in the place of one of torchvision's is not torchvision's or torch's own."""
    module = getattr(getattr(function, "__func__", function), "__module__", None)
    return callable(function) and isinstance(module, str) and module.split(".")[0] not in ("torchvision", "torch")


class Wrong(Exception):
    """An argument that the engine does not have."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        pass
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise Wrong(f"{name} must be a whole number, not {value!r}")


def index(name: str, value: Any) -> int:
    """As whole, but not of floats, which torchvision refuses here."""
    try:
        return operator.index(value)
    except TypeError:
        raise Wrong(f"{name} must be a whole number, not {value!r}") from None


def number(name: str, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        raise Wrong(f"{name} must be a number, not {value!r}") from None
    if not math.isfinite(found):
        raise Wrong(f"{name} must be finite, not {value!r}")
    return found


def is_list(value: Any) -> bool:
    """Whether a value is a sequence, including arrays and tensors except those without dimensions."""
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        return False
    return getattr(value, "shape", None) != ()


def wholes(name: str, value: Any) -> list[int]:
    if is_list(value):
        return [whole(name, v) for v in value]
    return [whole(name, value)]


def numbers(name: str, value: Any) -> list[float]:
    if is_list(value):
        return [number(name, v) for v in value]
    return [number(name, value)]


def interpolation(transform: Any) -> Arguments:
    mode = transform.interpolation
    if isinstance(mode, enum.Enum):
        mode = mode.value
    if not isinstance(mode, str):
        mode = _PIL_MODES.get(whole("interpolation", mode), mode)
    if mode not in ("bilinear", "bicubic", "nearest", "nearest-exact"):
        has = "the engine has bilinear and bicubic (antialiased), nearest and nearest-exact"
        raise Wrong(f"interpolation cannot be {mode!r}", has)
    antialias = getattr(transform, "antialias", True)
    # Versions before 0.17 store "warn" for None, which means True for the PIL pictures of a dataset.
    if antialias is not None and antialias != "warn" and not antialias and mode in ("bilinear", "bicubic"):
        raise Wrong(f"{mode} with antialias=False is not supported", 'leave antialias out, or interpolation="nearest"')
    out: Arguments = {"interpolation": mode}
    if getattr(transform, "draft", False):  # only ours
        if mode != "bilinear":
            raise Wrong("draft needs bilinear", 'leave draft out, or interpolation="bilinear"')
        out["draft"] = True
    return out


def dtype(value: Any) -> str:
    if isinstance(value, Mapping):
        value = for_images("dtype", value)
    name = getattr(value, "__name__", None) or str(value)
    name = name.removeprefix("torch.").removeprefix("jnp.")
    name = {"float": "float32", "half": "float16"}.get(name, name) if not isinstance(value, type) else name
    if name not in ("uint8", "float32", "float16", "bfloat16"):
        known = "pictures are uint8, float32, float16 or bfloat16; convert further in the training loop"
        raise Wrong(f"dtype cannot be {name}", known)
    return name


def for_images(argument: str, by_type: Mapping[Any, Any]) -> Any:
    """The value for pictures of an argument that v2 allows to differ by type."""
    found = [v for key, v in by_type.items() if getattr(key, "__name__", None) == "Image"]
    found = found or [v for key, v in by_type.items() if getattr(key, "__name__", None) == "Tensor"]
    found = found or [v for key, v in by_type.items() if key == "others"]
    if not found:
        raise Wrong(f"{argument} has no value for images", 'give one for tv_tensors.Image or for "others"')
    return found[0]


def fill(transform: Any) -> float | list[float]:
    fill = transform.fill
    if isinstance(fill, Mapping):
        fill = for_images("fill", fill)
    if fill is None:
        return 0.0
    values = numbers("fill", fill)
    return values[0] if len(values) == 1 else values


def two(name: str, value: Any) -> list[float]:
    values = numbers(name, value)
    if len(values) != 2:
        raise Wrong(f"{name} must be two numbers, not {value!r}")
    return values

"""From transforms, ours or torchvision's, to the operations of a Spec.

torchvision is never imported: a class is known by the name of its module and its own, and an object by its
attributes. A subclass of a known transform is not that transform, whatever it inherits.
"""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ._errors import Problems

_HINT = "write it with stoker.transforms, or do it in the training loop"

# For transforms that neither torchvision's names nor ours have in the engine. Of a random one a batch must not be given
# whole to torchvision: it draws once for all of it.
_UNBUILT = "do it in the training loop: {each}; or load the pictures with torch's DataLoader and stoker's sampler"
_EACH = "images = torch.stack([t(image) for image in images]) draws for every image"
_WHOLE = "images = t(images)"
_MIXES = ("MixUp", "CutMix")  # of batches, by their nature
_FIXED = ("RGB", "LinearTransformation")  # draw nothing

# How deep lists, Compose and RandomApply may hold each other; the engine has the same bound.
_DEEPEST = 32

# Pillow's integers for the ways of resampling.
_PIL_MODES = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}

Arguments = dict[str, Any]


def to_ops(transform: Any, where: str) -> list[Arguments]:
    """The operations of ``transform`` in the form of a Spec; None gives none.

    ``where`` says for errors whose transform it is, as ``ImageFolder(transform=...)``. What can not run in the engine
    is a ConfigError that names every such transform and its place.
    """
    if transform is None:
        return []
    problems = Problems(where)
    held = _contents(transform)
    if held is None:
        ops = _one(transform, "transform", problems)
    else:
        ops = _many(held, "", problems)
    problems.raise_any()
    return ops


def _many(transforms: Iterable[Any], inside: str, problems: Problems) -> list[Arguments]:
    everything = list(transforms)
    if inside.count(" in transform") > _DEEPEST:
        problems.add(f"transforms in transforms, more than {_DEEPEST} deep", "write them in one list")
        return []
    ops: list[Arguments] = []
    for i, transform in enumerate(everything, start=1):
        ops += _one(transform, f"transform {i} of {len(everything)}{inside}", problems)
    return ops


def _one(transform: Any, place: str, problems: Problems) -> list[Arguments]:
    name = _name_of(type(transform))
    held = _contents(transform)
    try:
        if held is not None:  # leaves no trace of itself
            return _many(held, f" in {place} ({type(transform).__name__})", problems)
        if name == "RandomApply":
            chance = _number("p", transform.p)
            inner = _many(transform.transforms, f" in {place} (RandomApply)", problems)
            return [{"op": name, "transforms": inner, "p": chance}]
        if name == "ImageClassification":
            return _preset(transform)
        if name is not None:
            return [{"op": name, **_READERS[name](transform)}]
    except _Wrong as wrong:
        problems.add(f"{place}: {type(transform).__name__}: {wrong.what}", wrong.hint)
        return []
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        problems.add(f"{place}: {type(transform).__name__} has arguments that can not be read: {error}", _HINT)
        return []
    what, hint = _stranger(transform)
    problems.add(f"{place}: {what}", hint)
    return []


class _Wrong(Exception):
    """An argument that the engine does not have."""

    def __init__(self, what: str, hint: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def _is_ours(cls: type) -> bool:
    return cls.__module__ == "stoker.transforms"


def _is_torchvision(cls: type) -> bool:
    return cls.__module__ == "torchvision.transforms" or cls.__module__.startswith("torchvision.transforms.")


def _is_torch(cls: type) -> bool:
    return cls.__module__.startswith("torch.nn.modules.")


def _name_of(cls: type) -> str | None:
    """The operation that a class is, if the engine has it."""
    name = cls.__name__
    if (_is_ours(cls) or _is_torchvision(cls)) and (name in _READERS or name in ("RandomApply", "ImageClassification")):
        return name
    if _is_torch(cls) and name == "Identity":
        return name
    if _is_torchvision(cls) and name == "ToPureTensor":
        return "Identity"  # takes off a type that is never put on here
    return None


def _contents(transform: Any) -> Iterable[Any] | None:
    """What Compose, Sequential or a plain list holds; None for everything else."""
    cls = type(transform)
    if cls in (list, tuple):
        held: Iterable[Any] = transform
        return held
    if cls.__name__ == "Compose" and (_is_ours(cls) or _is_torchvision(cls)):
        held = transform.transforms
        return held
    if cls.__name__ in ("Sequential", "ModuleList") and _is_torch(cls):
        held = transform
        return held
    return None


def _stranger(transform: Any) -> tuple[str, str]:
    """What something is that the engine can not run, and what to try."""
    cls = type(transform)
    if isinstance(transform, type):
        return f"{transform.__name__} is a class, not a transform", f"write {transform.__name__}(...)"
    if cls.__name__ == "Lambda" and _is_torchvision(cls):
        return f"Lambda runs Python ({_function(transform.lambd)}), which the engine does not", _HINT
    if hasattr(transform, "__code__"):
        return f"{_function(transform)} is Python, which the engine does not run", _HINT
    if _is_torchvision(cls):
        return f"{cls.__name__} of torchvision is not built in the engine", unbuilt(cls.__name__)
    for base in cls.__mro__[1:]:
        if _name_of(base) or base.__name__ == "Compose" and (_is_ours(base) or _is_torchvision(base)):
            what = f"{cls.__qualname__} is a subclass of {base.__name__}: what it changes the engine can not know"
            return what, _HINT
    return f"{cls.__qualname__} ({cls.__module__}) is not a transform that the engine knows", _HINT


def unbuilt(name: str) -> str:
    """What to do about a transform of torchvision that the engine does not have."""
    if name in _MIXES:
        return "it is for batches: do it in the training loop: images, labels = t(images, labels)"
    if name in ("ToPILImage", "ToPureTensor"):
        return "leave it out: the other transforms already take pictures"
    return _UNBUILT.format(each=_WHOLE if name in _FIXED else _EACH)


def _function(function: Any) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    kind = "a lambda" if name.endswith("<lambda>") else f"the function {name}"
    if code is None:
        return kind
    return f"{kind} ({code.co_filename}, line {code.co_firstlineno})"


# Arguments, one function a kind. They read attributes, which torchvision's classes and ours name alike.


def _whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        pass
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise _Wrong(f"{name} must be a whole number, not {value!r}")


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise _Wrong(f"{name} must be a number, not {value!r}") from None
    if not math.isfinite(number):
        raise _Wrong(f"{name} must be finite, not {value!r}")
    return number


def _is_list(value: Any) -> bool:
    """Whether a value is several: also arrays and tensors, but those without dimensions."""
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        return False
    return getattr(value, "shape", None) != ()


def _wholes(name: str, value: Any) -> list[int]:
    if _is_list(value):
        return [_whole(name, v) for v in value]
    return [_whole(name, value)]


def _numbers(name: str, value: Any) -> list[float]:
    if _is_list(value):
        return [_number(name, v) for v in value]
    return [_number(name, value)]


def _interpolation(transform: Any) -> Arguments:
    mode = transform.interpolation
    if isinstance(mode, enum.Enum):
        mode = mode.value
    if not isinstance(mode, str):
        mode = _PIL_MODES.get(_whole("interpolation", mode), mode)
    if mode not in ("bilinear", "nearest"):
        raise _Wrong(f"interpolation can not be {mode!r}", "the engine has bilinear (antialiased) and nearest")
    antialias = getattr(transform, "antialias", True)
    # Versions before 0.17 write "warn" for None, which is True for the PIL pictures of a dataset.
    if antialias is not None and antialias != "warn" and not antialias and mode == "bilinear":
        raise _Wrong("bilinear with antialias=False is not built", 'leave antialias out, or interpolation="nearest"')
    out: Arguments = {"interpolation": mode}
    if getattr(transform, "draft", False):  # ours only
        if mode != "bilinear":
            raise _Wrong("draft is for bilinear only", 'leave draft out, or interpolation="nearest"')
        out["draft"] = True
    return out


def _dtype(value: Any) -> str:
    if isinstance(value, Mapping):
        value = _for_images("dtype", value)
    name = getattr(value, "__name__", None) or str(value)
    name = name.removeprefix("torch.").removeprefix("jnp.")
    name = {"float": "float32"}.get(name, name) if not isinstance(value, type) else name
    if name not in ("uint8", "float32"):
        raise _Wrong(f"dtype can not be {name}", "pictures are uint8 or float32; convert further in the training loop")
    return name


def _for_images(argument: str, by_type: Mapping[Any, Any]) -> Any:
    """The value for pictures of an argument that v2 lets differ from type to type."""
    found = [v for key, v in by_type.items() if getattr(key, "__name__", None) == "Image"]
    found = found or [v for key, v in by_type.items() if getattr(key, "__name__", None) == "Tensor"]
    found = found or [v for key, v in by_type.items() if key == "others"]
    if not found:
        raise _Wrong(f"{argument} has no value for images", 'give one for tv_tensors.Image or for "others"')
    return found[0]


def _fill(transform: Any) -> float | list[float]:
    fill = transform.fill
    if isinstance(fill, Mapping):
        fill = _for_images("fill", fill)
    if fill is None:
        return 0.0
    numbers = _numbers("fill", fill)
    return numbers[0] if len(numbers) == 1 else numbers


def _two(name: str, value: Any) -> list[float]:
    numbers = _numbers(name, value)
    if len(numbers) != 2:
        raise _Wrong(f"{name} must be two numbers, not {value!r}")
    return numbers


# One reader an operation.


def _nothing(_: Any) -> Arguments:
    return {}


def _chance(t: Any) -> Arguments:
    return {"p": _number("p", t.p)}


def _center_crop(t: Any) -> Arguments:
    return {"size": _wholes("size", t.size)}


def _convert(t: Any) -> Arguments:
    return {"dtype": _dtype(t.dtype)}


def _to_dtype(t: Any) -> Arguments:
    if isinstance(t.dtype, Mapping) and _for_images("dtype", t.dtype) is None:
        return {"dtype": "uint8"}  # for every other type than images: nothing to do
    return {"dtype": _dtype(t.dtype), "scale": bool(t.scale)}


def _grayscale(t: Any) -> Arguments:
    return {"num_output_channels": _whole("num_output_channels", t.num_output_channels)}


def _normalize(t: Any) -> Arguments:
    return {"mean": _numbers("mean", t.mean), "std": _numbers("std", t.std)}


def _pad(t: Any) -> Arguments:
    return {"padding": _wholes("padding", t.padding), "fill": _fill(t), "padding_mode": str(t.padding_mode)}


def _random_crop(t: Any) -> Arguments:
    out: Arguments = {"size": _wholes("size", t.size), "pad_if_needed": bool(t.pad_if_needed)}
    padding = t.padding
    if padding is not None:
        out["padding"] = _wholes("padding", padding)
        if type(t).__module__.startswith("torchvision.transforms.v2") and len(out["padding"]) == 4:
            left, right, top, bottom = out["padding"]  # the order in which v2's class keeps them
            out["padding"] = [left, top, right, bottom]
    if padding is not None or t.pad_if_needed:
        out["fill"] = _fill(t)
        out["padding_mode"] = str(t.padding_mode)
    return out


def _random_resized_crop(t: Any) -> Arguments:
    return {
        "size": _wholes("size", t.size),
        "scale": _two("scale", t.scale),
        "ratio": _two("ratio", t.ratio),
        **_interpolation(t),
    }


def _resize(t: Any) -> Arguments:
    out = _interpolation(t)
    if t.size is not None:
        out["size"] = _wholes("size", t.size)
    if t.max_size is not None:
        out["max_size"] = _whole("max_size", t.max_size)
    return out


def _preset(t: Any) -> list[Arguments]:
    """The preset that comes with torchvision's classification weights."""
    return [
        {"op": "Resize", "size": _wholes("resize_size", t.resize_size), **_interpolation(t)},
        {"op": "CenterCrop", "size": _wholes("crop_size", t.crop_size)},
        {"op": "ToDtype", "dtype": "float32", "scale": True},
        {"op": "Normalize", **_normalize(t)},
    ]


_READERS: dict[str, Callable[[Any], Arguments]] = {
    "CenterCrop": _center_crop,
    "ConvertImageDtype": _convert,
    "Grayscale": _grayscale,
    "Identity": _nothing,
    "Normalize": _normalize,
    "PILToTensor": _nothing,
    "Pad": _pad,
    "RandomCrop": _random_crop,
    "RandomGrayscale": _chance,
    "RandomHorizontalFlip": _chance,
    "RandomResizedCrop": _random_resized_crop,
    "RandomVerticalFlip": _chance,
    "Resize": _resize,
    "ToDtype": _to_dtype,
    "ToImage": _nothing,
    "ToTensor": _nothing,
}

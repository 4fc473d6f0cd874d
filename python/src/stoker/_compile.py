"""Turns transforms, ours or torchvision's, into the operations of a Spec.

torchvision is never imported: a class is recognised by the name of its module and its own name, an object by its
attributes. A subclass of a known transform is not treated as that transform, whatever it inherits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from . import _parameters as read
from . import transforms as _ours
from ._errors import Problems
from ._parameters import Arguments, Wrong

_HINT = "write it with stoker.transforms, or do it in the training loop"

# For transforms of torchvision that the engine does not have. A random one must not be given a whole batch:
# torchvision would draw once for all of it.
_UNBUILT = "do it in the training loop: {each}; or load the pictures with torch's DataLoader and stoker's sampler"
_EACH = "images = torch.stack([t(image) for image in images]) draws for every image"
_WHOLE = "images = t(images)"
_MIXES = ("MixUp", "CutMix")  # transforms that are meant for batches
_FIXED = ("RGB", "LinearTransformation")  # transforms that draw nothing

# How deep lists, Compose and RandomApply may be nested; the engine has the same limit.
_DEEPEST = 32


def to_ops(transform: Any, where: str) -> list[Arguments]:
    """The operations of ``transform`` in the form of a Spec; None gives none.

    ``where`` names the owner of the transform in errors, such as ``ImageFolder(transform=...)``. Raises a ConfigError
    that names every transform that cannot run in the engine, and its place.
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
        problems.add(f"transforms are nested more than {_DEEPEST} deep", "write them in one list")
        return []
    ops: list[Arguments] = []
    for i, transform in enumerate(everything, start=1):
        ops += _one(transform, f"transform {i} of {len(everything)}{inside}", problems)
    return ops


def _one(transform: Any, place: str, problems: Problems) -> list[Arguments]:
    name = _name_of(type(transform))
    held = _contents(transform)
    try:
        if held is not None:  # has no effect
            return _many(held, f" in {place} ({type(transform).__name__})", problems)
        if name == "RandomApply":
            chance = read.number("p", transform.p)
            inner = _many(transform.transforms, f" in {place} (RandomApply)", problems)
            return [{"op": name, "transforms": inner, "p": chance}]
        if name == "ImageClassification":
            return _preset(transform)
        if name is not None:
            return [{"op": name, **_KNOWN[name]._read(transform)}]
    except Wrong as wrong:
        problems.add(f"{place}: {type(transform).__name__}: {wrong.what}", wrong.hint)
        return []
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        problems.add(f"{place}: {type(transform).__name__} has arguments that cannot be read: {error}", _HINT)
        return []
    what, hint = _stranger(transform)
    problems.add(f"{place}: {what}", hint)
    return []


def _is_ours(cls: type) -> bool:
    return cls.__module__ == "stoker.transforms"


def _is_torchvision(cls: type) -> bool:
    return cls.__module__ == "torchvision.transforms" or cls.__module__.startswith("torchvision.transforms.")


def _is_torch(cls: type) -> bool:
    return cls.__module__.startswith("torch.nn.modules.")


def _name_of(cls: type) -> str | None:
    """The operation for a class, if the engine has it."""
    name = cls.__name__
    if (_is_ours(cls) or _is_torchvision(cls)) and (name in _KNOWN or name in ("RandomApply", "ImageClassification")):
        return name
    if _is_torch(cls) and name == "Identity":
        return name
    if _is_torchvision(cls) and name == "ToPureTensor":
        return "Identity"  # removes a type that stoker never adds
    return None


def _contents(transform: Any) -> Iterable[Any] | None:
    """The contents of a Compose, Sequential or plain list; None for everything else."""
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
    """Describes something that the engine cannot run, and what to try."""
    cls = type(transform)
    if isinstance(transform, type):
        return f"{transform.__name__} is a class, not a transform", f"write {transform.__name__}(...)"
    if cls.__name__ == "Lambda" and _is_torchvision(cls):
        return f"Lambda runs Python ({_function(transform.lambd)}), which the engine cannot run", _HINT
    if hasattr(transform, "__code__"):
        return f"{_function(transform)} is Python, which the engine cannot run", _HINT
    if _is_torchvision(cls):
        return f"{cls.__name__} of torchvision is not available in the engine", unbuilt(cls.__name__)
    for base in cls.__mro__[1:]:
        if _name_of(base) or base.__name__ == "Compose" and (_is_ours(base) or _is_torchvision(base)):
            what = f"{cls.__qualname__} is a subclass of {base.__name__}: the engine cannot know what it changes"
            return what, _HINT
    return f"{cls.__qualname__} ({cls.__module__}) is not a transform that the engine knows", _HINT


def unbuilt(name: str) -> str:
    """What to do about a transform of torchvision that the engine does not have."""
    if name in _MIXES:
        return "it is for batches; apply it in the training loop: images, labels = t(images, labels)"
    if name in ("ToPILImage", "ToPureTensor"):
        return "leave it out: the other transforms already accept pictures"
    return _UNBUILT.format(each=_WHOLE if name in _FIXED else _EACH)


def _function(function: Any) -> str:
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    kind = "a lambda" if name.endswith("<lambda>") else f"the function {name}"
    if code is None:
        return kind
    return f"{kind} ({code.co_filename}, line {code.co_firstlineno})"


def _preset(t: Any) -> list[Arguments]:
    """The preset that comes with torchvision's classification weights."""
    return [
        {"op": "Resize", "size": read.wholes("resize_size", t.resize_size), **read.interpolation(t)},
        {"op": "CenterCrop", "size": read.wholes("crop_size", t.crop_size)},
        {"op": "ToDtype", "dtype": "float32", "scale": True},
        {"op": "Normalize", **_ours.Normalize._read(t)},
    ]


# By name: each class reads its own objects and those of torchvision's class of that name.
_KNOWN: dict[str, type[_ours.Transform]] = {
    name: cls
    for name, cls in vars(_ours).items()
    if name in _ours.__all__ and issubclass(cls, _ours.Transform) and not issubclass(cls, _ours._Holder)
}


def on_bytes(name: str) -> bool:
    """Whether the operation gives different numbers for floats than for bytes."""
    return name in _KNOWN and _KNOWN[name]._on_bytes

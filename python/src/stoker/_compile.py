"""Turns transforms, ours or torchvision's, into the operations of a Spec.

torchvision is never imported: a class is recognised by the name of its module and its own name, an object by its
attributes. A subclass of a known transform is not treated as that transform, whatever it inherits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from . import _parameters as read
from . import _timm
from . import transforms as _ours
from ._errors import Problems
from ._parameters import Arguments, Wrong
from ._views import steps_of, views_of
from .transforms._base import Holder, Transform
from .transforms._batches import Mixing

_HINT = "write it with stoker.transforms, or do it in the training loop"

# For transforms of torchvision that the engine does not have. A random one must not be given a whole batch:
# torchvision would draw once for all of it.
_UNBUILT = "take torchvision.transforms.v2's, which runs in Python workers; or do it in the training loop: {each}"
_EACH = "images = torch.stack([t(image) for image in images]) draws for every image"
_WHOLE = "images = t(images)"
_CROPS = "it makes a tuple of {n} crops; crops = torch.stack(t(images), 1) has the shape (batch, {n}, channels, h, w)"
_BYTES = " (it is meant for uint8 images: convert and normalise them after it, in the loop, not in the dataset)"
_MIXES = ("MixUp", "CutMix")  # transforms that are meant for batches
_FIXED = ("LinearTransformation",)  # transforms that draw nothing
_BOXES = frozenset(  # transforms that need boxes
    "ClampBoundingBoxes ClampKeyPoints ConvertBoundingBoxFormat RandomIoUCrop SanitizeBoundingBoxes SanitizeKeyPoints "
    "SetClampingMode".split()
)
# Transforms that give other colours for floats, or refuse them, above all if they are normalised.
_COLOURS = frozenset(
    "AugMix AutoAugment ColorJitter JPEG RandAugment RandomAdjustSharpness RandomAutocontrast RandomEqualize "
    "RandomInvert RandomPhotometricDistort RandomPosterize RandomSolarize TrivialAugmentWide".split()
)

_VIEWS = "Views"  # the operation that makes several pictures of one
_SETTLED = frozenset(  # operations that draw nothing, and may come before it
    "CenterCrop CenterCropOrPad ConvertImageDtype Grayscale Identity Normalize PILToTensor Pad RGB Resize "
    "ResizeKeepRatio ToDtype ToImage ToTensor".split()
)

# Operations that move no pixels: the engine does them to floats of which some were erased.
_STILL = frozenset(
    "ToImage PILToTensor ToTensor ToPureTensor ToDtype ConvertImageDtype Normalize RandomErasing Identity".split()
)

# How deep lists, Compose and other holders may be nested; the engine has the same limit.
_DEEPEST = 32


def to_ops(transform: Any, where: str) -> list[Arguments]:
    """The operations of ``transform`` in the form of a Spec; None gives none.

    ``where`` names the owner of the transform in errors, such as ``ImageFolder(transform=...)``. Raises a ConfigError
    that names every transform that cannot run in the engine, and where it is.
    """
    if transform is None:
        return []
    problems = Problems(where)
    held = _contents(transform)
    if held is None or _changed(transform) is not None:
        ops = _one(transform, "transform", problems)
    else:
        ops = _many(held, "", problems)
    if not problems and (what := misplaced(ops)):
        problems.add(what, "put what follows into each view, and what draws too: every view draws for itself")
    problems.raise_any()
    return ops


def misplaced(ops: Sequence[Arguments]) -> str:
    """Why the views among operations cannot be made by the engine; "": they can, or there are none."""
    for at, op in enumerate(ops, start=1):
        if op["op"] == _VIEWS:
            if at < len(ops):
                return f"{ops[at]['op']} follows the views"
            if (drawn := next((one["op"] for one in ops[: at - 1] if one["op"] not in _SETTLED), "")) != "":
                return f"{drawn} comes before the views, where it may draw, once for all of them"
            if any(_holds_views(inner) for view in op["transforms"] for inner in view):
                return "there are views in views"
        elif _holds_views(op):
            return f"there are views in {op['op']}"
    return ""


def _holds_views(op: Arguments) -> bool:
    return op["op"] == _VIEWS or any(map(_holds_views, op.get("transforms", [])))


def _many(transforms: Iterable[Any], inside: str, problems: Problems) -> list[Arguments]:
    return [op for ops in _each(transforms, inside, problems) for op in ops]


def _parts(transforms: Iterable[Any], inside: str, problems: Problems) -> list[Arguments]:
    """One operation for each transform."""
    found = _each(transforms, inside, problems)
    return [ops[0] if len(ops) == 1 else {"op": "Compose", "transforms": ops} for ops in found]


def _each(transforms: Iterable[Any], inside: str, problems: Problems) -> list[list[Arguments]]:
    """The operations of each transform."""
    everything = list(transforms)
    if inside.count(" in transform") > _DEEPEST:
        problems.add(f"transforms are nested more than {_DEEPEST} deep", "write them in one list")
        return []
    return [
        _one(transform, f"transform {i} of {len(everything)}{inside}", problems)
        for i, transform in enumerate(everything, start=1)
    ]


def _one(transform: Any, where: str, problems: Problems) -> list[Arguments]:
    if (changed := _changed(transform)) is not None:
        problems.add(f"{where}: {changed}, which the engine cannot run", _HINT)
        return []
    name = _name_of(type(transform))
    held = _contents(transform)
    try:
        if held is not None:  # has no effect
            return _many(held, f" in {where} ({type(transform).__name__})", problems)
        if name in _HOLDERS:
            holder = _HOLDERS[name]
            inner = (_parts if holder._parts else _many)(transform.transforms, f" in {where} ({name})", problems)
            return [{"op": name, "transforms": inner, **holder._read(transform)}]
        if name == "ImageClassification":
            return _preset(transform)
        if name is not None:
            return [{"op": name, **_KNOWN[name]._read(transform)}]
        if (theirs := _timm.ops(transform)) is not None:
            return theirs
        if (views := views_of(transform)) is not None:
            kind = type(transform).__name__
            inside = [f" in view {i} of {where} ({kind})" for i in range(1, len(views) + 1)]
            return [{"op": _VIEWS, "transforms": [_view(*one, problems) for one in zip(views, inside, strict=True)]}]
    except Wrong as wrong:
        problems.add(f"{where}: {type(transform).__name__}: {wrong.what}", wrong.hint)
        return []
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        problems.add(f"{where}: {type(transform).__name__} has arguments that cannot be read: {error}", _HINT)
        return []
    what, hint = _stranger(transform)
    problems.add(f"{where}: {what}", hint)
    return []


def _view(view: Any, inside: str, problems: Problems) -> list[Arguments]:
    """The operations of one view."""
    held = None if _changed(view) is not None else _contents(view)
    return _many(steps_of(view) if held is None else held, inside, problems)


def _changed(transform: Any) -> str | None:
    """What was put into the place of an object's own methods, or is called beside them; None if nothing was."""
    if isinstance(transform, type):
        return None
    name = type(transform).__name__
    own = getattr(transform, "__dict__", {})
    for method in ("forward", "transform", "__call__", "_transform", "make_params", "get_params", "_call_impl"):
        if callable(own.get(method)) and hasattr(type(transform), method):
            return f"{method} of this {name} was replaced by Python code"
    for method in ("forward", "transform", "_transform", "make_params", "get_params", "_get_params"):
        if _is_torchvision(type(transform)) and read.foreign(getattr(type(transform), method, None)):
            return f"{method} of class {name} was replaced by Python code"
    if any(own.get(hooks) for hooks in ("_forward_hooks", "_forward_pre_hooks")):
        return f"this {name} has a hook in Python"
    return None


def _is_ours(cls: type) -> bool:
    return cls.__module__ == "stoker.transforms"


def _is_torchvision(cls: type) -> bool:
    return cls.__module__ == "torchvision.transforms" or cls.__module__.startswith("torchvision.transforms.")


def _is_torch(cls: type) -> bool:
    return cls.__module__.startswith("torch.nn.modules.")


def _name_of(cls: type) -> str | None:
    """The operation for a class, if the engine has it."""
    name = cls.__name__
    if (_is_ours(cls) or _is_torchvision(cls)) and (name in _KNOWN or name in (*_HOLDERS, "ImageClassification")):
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


def flat(transform: Any, depth: int = 0) -> list[Any]:
    """The steps of Compose, Sequential and lists in one another."""
    held = _contents(transform) if depth < 32 and _changed(transform) is None else None
    if held is None:
        return [transform]
    return [step for one in held for step in flat(one, depth + 1)]


def leaves(transform: Any, perhaps: str = "", depth: int = 0) -> Iterator[tuple[Any, str]]:
    """The steps of a transform, in order, and for each what it is in that may leave it out, or do it earlier or later:
    RandomApply, say."""
    held = None
    if depth <= _DEEPEST and _changed(transform) is None:
        held = _contents(transform)
        if held is None and (name := _name_of(type(transform))) in _HOLDERS:
            held, perhaps = transform.transforms, str(name)
    if held is None:
        yield transform, perhaps
        return
    for one in held:
        yield from leaves(one, perhaps, depth + 1)


def _stranger(transform: Any) -> tuple[str, str]:
    """Describes something that the engine cannot run, and what to try."""
    cls = type(transform)
    if isinstance(transform, type):
        return f"{transform.__name__} is a class, not a transform", f"write {transform.__name__}(...)"
    if cls.__name__ == "Lambda" and _is_torchvision(cls):
        return f"Lambda runs Python ({_function(transform.lambd)}), which the engine cannot run", _HINT
    if hasattr(transform, "__code__"):
        return f"{_function(transform)} is Python, which the engine cannot run", _HINT
    if _is_ours(cls) and cls.__name__ in _MIXES:
        return f"{cls.__name__} is not for single pictures", unbuilt(cls.__name__)
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
        return "it is for batches: give it to the loader, DataLoader(..., batch_transform=...)"
    if name in ("ToPILImage", "ToPureTensor"):
        return "leave it out: the other transforms already accept pictures"
    if name in _BOXES:
        return "it is for pictures with boxes; load those with torch's DataLoader and stoker's sampler"
    if name in ("FiveCrop", "TenCrop"):
        return _UNBUILT.format(each=_CROPS.format(n=5 if name == "FiveCrop" else 10))
    each = _WHOLE if name in _FIXED else _EACH
    return _UNBUILT.format(each=each + (_BYTES if name in _COLOURS else ""))


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
_KNOWN: dict[str, type[Transform]] = {
    name: cls
    for name, cls in vars(_ours).items()
    if name in _ours.__all__ and issubclass(cls, Transform) and not issubclass(cls, (Holder, Mixing)) and name != _VIEWS
}

# Those that are an operation with others in it.
_HOLDERS: dict[str, type[Holder]] = {
    cls.__name__: cls for cls in vars(_ours).values() if isinstance(cls, type) and issubclass(cls, Holder)
}
del _HOLDERS["Compose"]


def on_bytes(name: str) -> bool:
    """Whether the operation gives different numbers for floats than for bytes."""
    return name in _KNOWN and _KNOWN[name]._on_bytes


def takes_floats(name: str) -> bool:
    """Whether it is an operation on colours that torchvision does to floats too, with other numbers."""
    return name in _KNOWN and _KNOWN[name]._takes_floats

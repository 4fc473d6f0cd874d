"""Transforms of which the engine knows only the first steps: it does those, and Python does the others.

split()   a transform -> operations of a Spec, and the Tail for Python
Tail      the steps from the first unknown one on, run on one picture

Each step gets what it would have got without stoker: a PIL image; a tensor after ToImage, PILToTensor or ToTensor; an
(H, W, C) array where it is Albumentations'. Known steps after an unknown one run in Python too: torchvision's as they
are, ours as torchvision's of the same names. But the last ones, which only make numbers of bytes, are stoker's own
where nothing of Python follows: see _tone.py.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from . import _timm
from ._compile import (
    _BOXES,
    _HOLDERS,
    _MIXES,
    _STILL,
    _changed,
    _is_ours,
    _is_torchvision,
    _name_of,
    _one,
    flat,
    leaves,
    takes_floats,
    to_ops,
)
from ._errors import ConfigError, Problems
from ._keyed import generator, takes_rng
from ._order import below
from ._theirs import called, named
from ._tone import Tone, tones
from ._views import steps_of, views_of

Ops = list[dict[str, Any]]

# What has no meaning for one picture.
_NEVER = frozenset((*_MIXES, *_BOXES, "ToPILImage"))

# Operations after which torchvision has tensors, not PIL images.
_TENSORS = frozenset(("PILToTensor", "ToTensor", "ToDtype", "ConvertImageDtype", "Normalize"))


_CONVERT = ("ToDtype", "ConvertImageDtype")


class Tail:
    """Steps of Python on the picture that the engine delivers. Equal if the steps are the same objects."""

    def __init__(self, steps: Sequence[Any], first: str, late: bool = False) -> None:
        self.steps = tuple(steps)
        self._late = late  # the engine has the first step, but for bytes, not for floats
        # What the first step gets: "pil", "image" (a tv_tensor) or "tensor"; "": the value as it is, and it is left so.
        self.first = first
        self._calls = [_Call(step) for step in self.steps]
        # The steps before the last ones that only make numbers of bytes, and what these do.
        self.begin, self.tone = tones(self.steps)

    def __call__(self, picture: Any, key: int) -> Any:
        return self._run(picture, key, None)

    def end(self, picture: Any, key: int) -> Any:
        """The same if nothing of Python follows: it may be a Toned."""
        return self._run(picture, key, self.tone)

    def _run(self, picture: Any, key: int, tone: Tone | None) -> Any:
        value = shown(picture, self.first) if self.first else picture
        for number, call in enumerate(self._calls):
            if number == self.begin and tone is not None and (toned := tone.of(value)) is not None:
                return toned
            value = call(value, below(key, number))
        return delivered(value) if self.first else value

    def alone(self) -> None:
        """Something follows that looks at the picture: all steps have to run. Loads what runs those of ours, in the
        trainer, so that workers that are forked have it: torchvision takes seconds, and they start with every pass."""
        _need(self.steps[self.begin :], self.steps[0], "transform")

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Tail)
            and self.first == other.first
            and len(self.steps) == len(other.steps)
            and all(a is b for a, b in zip(self.steps, other.steps, strict=True))
        )

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.steps)))

    def __deepcopy__(self, memo: Any) -> Tail:
        return self  # the steps are the user's own objects

    def __repr__(self) -> str:
        return f"Tail({', '.join(map(named, self.steps))})"

    def why(self) -> str:
        """A clause after "because": the first step is why there is a tail."""
        first = self.steps[0]
        step = next((one for one, _ in leaves(first) if (_colours(one) if self._late else _strange(one))), first)
        if self._late:
            of = "a colour transform in " if views_of(step) is not None else "transform "
            return f"{of}{type(step).__name__} is given floats (before the conversion, the engine would do it)"
        if views_of(step) is not None:
            return self._why_views(step)
        problems = Problems("")
        known = _timm.known(type(step)) or _name_of(type(step)) is not None
        if known and not _one(step, "transform", problems) and problems:
            return f"transform {problems._found[0][0].removeprefix('transform: ')}"
        if type(step).__name__ == "Lambda" and hasattr(step, "lambd"):
            return f"transform Lambda of {called(step.lambd)} is not known"
        function = hasattr(step, "__code__") or isinstance(step, type)
        top = type(step).__module__.partition(".")[0]
        of = f" of {top}" if top == "timm" or albumentations(step) and top == "albumentations" else ""
        return f"transform {called(step if function else type(step))}{of} is not known"

    def _why_views(self, step: Any) -> str:
        """The same for views: what is in them, or around them."""
        kind = type(step).__name__
        for view in views_of(step) or ():
            _, tail = split(view, kind)
            if tail is not None:
                return f"{tail.why()}, in {kind}"
        if len(self.steps) > 1:
            return f"{called(self.steps[1])} follows {kind}"
        return f"what comes before {kind} may draw, once for all views"


class _Call:
    """One step, called as its library wants it."""

    def __init__(self, step: Any) -> None:
        self._arrays = albumentations(step)
        self._step = step
        self._call = None if _is_ours(type(step)) else step  # None: torchvision's, which is loaded when it is needed
        self._rng = takes_rng(getattr(step, "forward", step)) and not self._arrays
        self._views: list[Tail] = []  # of ours
        if self._call is None and (views := views_of(step)) is not None:
            self._views = [Tail(flat(steps_of(view)), "") for view in views]

    def __call__(self, value: Any, key: int) -> Any:
        if self._arrays:
            return self._step(image=array(value))["image"]
        if self._views:
            return [view(value, below(key, number)) for number, view in enumerate(self._views)]
        if self._call is None:
            self._call = _torchvisions(self._step)
        made = self._call(value, rng=generator(key)) if self._rng else self._call(value)
        if made is None:
            raise ValueError(f"transform {called(self._call)} returned None; it has to return the picture")
        return made


def split(transform: Any, where: str) -> tuple[Ops, Tail | None]:
    """The operations for the engine, and what is left for Python. ConfigError if a step is none: it cannot be called,
    or it is one that the engine has and that is wrong."""
    steps = flat(transform)
    try:
        if (late := _late(steps)) < len(steps):
            known = to_ops(steps[:late], where)
            return known, Tail(steps[late:], after(known, "pil"), late=True)
        return to_ops(transform, where), None
    except ConfigError as error:
        known = []
        for at, step in enumerate(steps):
            problems = Problems(where)
            ops = _one(step, "transform", problems)
            views = views_of(step)
            if problems or views is not None:
                held = views is not None or type(step).__name__ in _HOLDERS
                if _is_ours(type(step)) and not held and _changed(step) is None:
                    raise  # its arguments are wrong
                _check(steps[at:], error, where)
                return known, Tail(steps[at:], after(known, "pil"))
            known += ops
        raise


def _colours(step: Any) -> bool:
    """Whether it is one of torchvision's steps on colours that also take floats."""
    return _is_torchvision(type(step)) and takes_floats(type(step).__name__)


def _strange(step: Any) -> bool:
    """Whether it is a step that the engine does not have, or not like this."""
    problems = Problems("")
    _one(step, "transform", problems)
    return bool(problems)


def _late(steps: Sequence[Any]) -> int:
    """The number of the first step that is, or holds, one of torchvision's that the engine would do to bytes only, but
    is given floats: a colour, or one that moves pixels after some were erased. Floats of 16 bits it does not convert.
    The length if there is none."""
    floats = erased = halves = False
    for at, step in enumerate(steps):
        name = type(step).__name__
        inside = [one for one, _ in leaves(step)]
        if floats and any(map(_colours, inside)):
            return at
        if erased and any(_is_torchvision(type(one)) and type(one).__name__ not in _STILL for one in inside):
            return at
        theirs = {type(one).__name__ for one in inside if not _is_ours(type(one))}
        if halves and theirs & set(_CONVERT):
            return at
        halves = halves or any(map(_halves, inside))
        erased = erased or floats and any(type(one).__name__ == "RandomErasing" for one in inside)
        for view in views_of(step) or ():
            through = [*steps[:at], *flat(steps_of(view))]
            if _late(through) < len(through):
                return at
        if (
            name in ("ToTensor", "MaybeToTensor", "ConvertImageDtype")
            or name == "ToDtype"
            and ("float" in str(step.dtype) or _halves(step))
        ):
            floats = True
    return len(steps)


def _halves(step: Any) -> bool:
    """Whether it converts to floats of 16 bits."""
    if type(step).__name__ not in _CONVERT:
        return False
    dtype = str(step.dtype)
    return "float16" in dtype or dtype.rpartition(".")[2] == "half"


def in_python(transform: Any, where: str) -> Tail:
    """All steps of a transform, for Python, on a value as it is."""
    steps = flat(transform)
    problems = Problems(where)
    if any(isinstance(step, type) or not callable(step) for step in steps):
        problems.add("a transform is a class, or cannot be called", "give functions, or transforms that are made")
        problems.raise_any()
    _check(steps, ConfigError(f"{where}: it cannot be called"), where)
    return Tail(steps, "")


def said(transform: Any, where: str) -> dict[str, Any]:
    """The keys of a field: ``transform`` for the engine, and ``python``, a Tail, which no Spec has (``bare``)."""
    ops, tail = split(transform, where)
    return {"transform": ops} if tail is None else {"transform": ops, "python": tail}


def bare(fields: Any) -> Any:
    """Fields as the engine gets them."""
    return fields and [{key: value for key, value in field.items() if key != "python"} for field in fields]


def after(ops: Sequence[Mapping[str, Any]], first: str) -> str:
    """What Python would have after these operations: "pil", "image" or "tensor"."""
    for op in ops:
        if op["op"] in _TENSORS:
            first = "tensor" if first != "image" else first
        elif op["op"] == "ToImage":
            first = "image" if "torchvision" in sys.modules else "tensor"
        elif op["op"] == "Views":
            forms = {after(view, first) for view in op["transforms"]}
            first = forms.pop() if len(forms) == 1 else "tensor"
    return first


def _check(steps: Sequence[Any], error: ConfigError, where: str) -> None:
    """Raises for steps that Python cannot run either. The last ones may never have to be run."""
    begin, _ = tones(steps)
    for step in steps:
        if type(step).__name__ == "Views" and _is_ours(type(step)):
            for view in views_of(step) or ():
                _check(flat(steps_of(view)), error, where)
            continue
        if (
            isinstance(step, type)
            or not callable(step)
            or _is_torchvision(type(step))
            and type(step).__name__ in _NEVER
        ):
            raise error
    _need(steps[:begin], steps[0], where)


def _need(steps: Sequence[Any], first: Any, where: str) -> None:
    """Loads torchvision if one of these steps, of the chain that begins with ``first``, is ours: it has to run it."""
    for step in steps:
        if _is_ours(type(step)) and type(step).__name__ != "Views":  # _check has looked into it
            try:
                _torchvisions(step)
            except ImportError:
                raise ConfigError(
                    f"{where}: {type(step).__name__} of stoker.transforms comes after {called(first)}, which is "
                    "Python: from there on torchvision would have to run the steps, and it is not installed",
                    hint="move it before the first function of your own, or pip install torchvision",
                ) from None


def _torchvisions(step: Any) -> Any:
    """torchvision's transform for one of ours."""
    name = type(step).__name__
    try:
        from torchvision.transforms import v2
    except ImportError as error:
        raise ImportError(
            f"{name} of stoker.transforms comes after Python code that gave no uint8 picture: torchvision would have "
            "to run it, and it is not installed"
        ) from error
    if name == "Identity":
        return v2.Identity()
    if name == "Views":
        return step
    wanted = inspect.signature(getattr(v2, name).__init__).parameters
    given = {key: value for key, value in vars(step).items() if key in wanted}
    if "transforms" in given:
        given["transforms"] = [_torchvisions(one) if _is_ours(type(one)) else one for one in step.transforms]
    if name == "ToTensor":
        return v2.Compose([v2.ToImage(), v2.ToDtype(_dtype("float32"), scale=True)])
    if name == "RandomErasing" and given["value"] is None:
        given["value"] = "random"
    if "dtype" in given:
        given["dtype"] = _dtype(given["dtype"])
    if (how := given.get("interpolation")) is not None:
        given["interpolation"] = v2.InterpolationMode(getattr(how, "value", how))
    return getattr(v2, name)(**given)


def _dtype(dtype: Any) -> Any:
    import torch

    return getattr(torch, dtype) if isinstance(dtype, str) else dtype


# Pictures in the forms that functions expect.


def albumentations(step: Any) -> bool:
    """Whether it is a transform of Albumentations, or a Compose of them."""
    return any(base.__module__.partition(".")[0] == "albumentations" for base in type(step).__mro__)


def _is_pil(value: Any) -> bool:
    image = sys.modules.get("PIL.Image")
    return image is not None and isinstance(value, image.Image)


def shown(picture: Any, form: str) -> Any:
    """A picture of the engine's, (C, H, W), as "pil", "image" or "array"; otherwise as it is. Views, each."""
    if type(picture) is list:
        return [shown(view, form) for view in picture]
    if form == "pil":
        from PIL import Image

        pixels = array(picture)
        return Image.fromarray(pixels[:, :, 0].copy() if pixels.shape[2] == 1 else pixels)
    if form == "array":
        return array(picture)
    if hasattr(picture, "contiguous"):
        picture = picture.contiguous()  # the engine's bytes are channels_last, which .view refuses
    if form == "image":
        from torchvision import tv_tensors

        return tv_tensors.Image(picture)
    return picture


def array(value: Any) -> Any:
    """A picture as an (H, W, C) array, which may be written to."""
    import numpy

    if _is_pil(value):
        return numpy.array(value)
    if isinstance(value, numpy.ndarray) and not _planes(value):
        return value
    pixels = value.numpy() if hasattr(value, "numpy") else numpy.asarray(value)
    return numpy.ascontiguousarray(pixels.transpose(1, 2, 0)) if pixels.ndim == 3 else pixels


def _planes(value: Any) -> bool:
    """Whether an array is (C, H, W), as the engine delivers pictures with output="numpy"."""
    return value.ndim == 3 and value.shape[0] in (1, 3) and value.shape[2] not in (1, 3)


def delivered(picture: Any) -> Any:
    """What comes out at the end, as the engine delivers pictures: no PIL image, but uint8 (C, H, W), of torch if that
    is loaded; no tv_tensor, but a plain tensor."""
    if type(picture) in (tuple, list):  # of FiveCrop
        return type(picture)(map(delivered, picture))
    if type(picture).__module__.startswith("torchvision.tv_tensors"):
        import torch as plain

        return picture.as_subclass(plain.Tensor)
    if not _is_pil(picture):
        return picture
    import numpy

    pixels = numpy.array(picture.convert("RGB") if picture.mode not in ("RGB", "L") else picture)
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    torch: Any = sys.modules.get("torch")
    return planes if torch is None else torch.from_numpy(planes)

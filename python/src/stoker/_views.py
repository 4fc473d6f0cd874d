"""Which objects make several views of a picture, and batches that have them.

views_of()  the transforms of the views that a stoker.transforms.Views makes, or a class like MoCo's TwoCropsTransform
grouped()   fields and values of a batch, with the views of a picture as one list

Any other class is recognised by what its ``__call__`` does, not by its name. Its code may use nothing but the object's
own attributes and a few builtins, and may store only local variables. Then it always does the same, and is run once, on
a stand-in for the picture, with stand-ins for the transforms: if it returns a list of pictures that went through
transforms and nothing else, these are the views. Everything else runs in Python.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._client import Field

MOST = 256  # views of a picture, as in the engine
_DEEPEST = 8  # such objects in one another
_LONGEST = 4096  # calls of transforms
_BUILTINS = frozenset("append enumerate extend int len list range reversed tuple zip".split())
_STORES = ("STORE_ATTR", "STORE_GLOBAL", "STORE_SUBSCR", "STORE_SLICE", "DELETE_", "IMPORT_", "RAISE_VARARGS")
# Modules whose classes are known by name, or certainly make no views.
_KNOWN = ("stoker", "torchvision", "albumentations", "PIL", "numpy", "builtins")


class _Else(Exception):
    """The object does something other than make views."""


class _Seen:
    """Stands for the picture after some steps. Code that asks anything about it is not understood."""

    def __init__(self, steps: tuple[Any, ...]) -> None:
        self.steps = steps

    def _no(self, *_: Any) -> Any:
        raise _Else

    __bool__ = __eq__ = __ne__ = __lt__ = __gt__ = __le__ = __ge__ = __len__ = __iter__ = __getitem__ = _no
    __add__ = __radd__ = __mul__ = __rmul__ = __int__ = __index__ = __contains__ = __str__ = __repr__ = _no
    __hash__ = _no


class _Step:
    """Stands for one transform."""

    def __init__(self, transform: Any, calls: list[int], depth: int) -> None:
        self._transform, self._calls, self._depth = transform, calls, depth

    def __call__(self, *given: Any, **named: Any) -> Any:
        self._calls[0] += 1
        if named or len(given) != 1 or type(given[0]) is not _Seen or self._calls[0] > _LONGEST:
            raise _Else
        steps = given[0].steps
        inner = _views(self._transform, self._depth + 1)
        if inner is None:
            return _Seen((*steps, self._transform))
        return [_Seen((*steps, *steps_of(one))) for one in inner]


def views_of(transform: Any) -> list[Any] | None:
    """The transforms of the views that a transform makes, each an object, a list of steps, or None; None if it makes
    none."""
    return _views(transform, 0)


def steps_of(view: Any) -> list[Any]:
    """The steps of a view of views_of."""
    if view is None:
        return []
    return list(view) if isinstance(view, (list, tuple)) else [view]


def _views(transform: Any, depth: int) -> list[Any] | None:
    cls = type(transform)
    if cls.__module__ == "stoker.transforms":
        return list(transform.transforms) if cls.__name__ == "Views" else None
    top = cls.__module__.partition(".")[0]
    if depth > _DEEPEST or isinstance(transform, (type, FunctionType)) or top in _KNOWN:
        return None
    function = _function(cls)
    if function is None or not _plain(function, attributes := _attributes(transform)):
        return None
    clone = object.__new__(_Clone)
    calls = [0]
    for name, value in attributes.items():
        setattr(clone, name, _standing(value, calls, depth))
    try:
        made = function(clone, _Seen(()))
    except Exception:  # it asks for more than stand-ins have
        return None
    if type(made) not in (list, tuple) or not 1 <= len(made) <= MOST or any(type(one) is not _Seen for one in made):
        return None
    return [list(one.steps) for one in made]


class _Clone:
    """Stands for the object itself."""


def _function(cls: type) -> FunctionType | None:
    """What runs if an object of the class is called with a picture; None if that cannot be read."""
    called = inspect.getattr_static(cls, "__call__", None)
    if not isinstance(called, FunctionType):
        return None
    if called.__module__.startswith("torch.nn.modules."):  # it calls forward, and hooks: see _changed
        called = inspect.getattr_static(cls, "forward", None)
        return called if isinstance(called, FunctionType) else None
    if inspect.getattr_static(cls, "__getattr__", None) or "__getattribute__" in _written(cls):
        return None
    return called


def _written(cls: type) -> set[str]:
    """The names that a class and its bases define, except object's."""
    return {name for base in cls.__mro__[:-1] for name in vars(base)}


def _attributes(transform: Any) -> dict[str, Any]:
    own = dict(getattr(transform, "__dict__", {}))
    return {**own, **own.get("_modules", {})}


def _plain(function: FunctionType, attributes: dict[str, Any]) -> bool:
    """Whether a function of (self, picture) does the same every time, for all that its code can reach."""
    code = function.__code__
    if code.co_argcount != 2 or code.co_kwonlyargcount or code.co_freevars or code.co_flags & _STARS:
        return False
    own = {name for name, value in attributes.items() if _usable(value)}
    return code.co_flags & _LAZY == 0 and all(
        all(name in own or (name in _BUILTINS and name not in function.__globals__) for name in one.co_names)
        and not any(step.opname.startswith(_STORES) for step in dis.get_instructions(one))
        for one in _codes(code)
    )


_STARS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_LAZY = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def _codes(code: CodeType) -> Iterable[CodeType]:
    """A function's code, and that of the comprehensions in it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _held(value: Any) -> list[Any] | None:
    """The transforms in a list of them, which is not empty; None for everything else."""
    if type(value) in (list, tuple) or type(value).__name__ == "ModuleList":
        found = list(value)
        return found if found and all(map(callable, found)) else None
    return None


def _usable(value: Any) -> bool:
    if value is None or isinstance(value, (bool, str)) or callable(value):
        return True
    return abs(value) <= MOST if isinstance(value, int) else _held(value) is not None


def _standing(value: Any, calls: list[int], depth: int) -> Any:
    if (held := _held(value)) is not None:
        return tuple(_Step(one, calls, depth) for one in held)
    return _Step(value, calls, depth) if callable(value) else value


# Batches.


def name_of(field: Field) -> str:
    """The name of a field in a batch: that of the picture, for its views."""
    return field.view_of or field.name


class Groups:
    """How the columns of a loader become the fields of a batch."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self.names: list[str] = []
        self._ends: list[tuple[int, int]] | None = []  # columns of each name; no second: it is one field
        for at, field in enumerate(fields):
            if not field.view_of:
                self._ends.append((at, 0))
            elif self.names and self.names[-1] == field.view_of and self._ends[-1][1]:
                self._ends[-1] = (self._ends[-1][0], at + 1)
                continue
            else:
                self._ends.append((at, at + 1))
            self.names.append(name_of(field))
        if not any(end for _, end in self._ends):
            self._ends = None

    def __call__(self, values: Sequence[Any], make: Callable[[Sequence[Any]], Any] = list) -> Sequence[Any]:
        """One value for each name; ``make`` makes one of those of a picture's views."""
        if self._ends is None:
            return values
        return [make(values[at:end]) if end else values[at] for at, end in self._ends]

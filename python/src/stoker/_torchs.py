"""Objects that pass for torch's: ``isinstance(loader, torch.utils.data.DataLoader)`` is True where torch is loaded.

``__class__`` of such an object answers a class that derives from its own and from torch's. ``type()`` still gives its
own class: no method of torch's is inherited, and none of torch's modules is imported or changed. What else was
considered is in docs/decisions/torch-class.md.
"""

from __future__ import annotations

import copyreg
import functools
import sys
from typing import TYPE_CHECKING, Any

LOADER = ("torch.utils.data.dataloader", "DataLoader")
DISTRIBUTED = ("torch.utils.data.distributed", "DistributedSampler")
SEQUENTIAL = ("torch.utils.data.sampler", "SequentialSampler")


def torchs(module: str, name: str) -> type | None:
    """A class of torch's, if its module is loaded."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) else None


class Passing:
    """Base of classes whose objects pass for objects of torch's classes."""

    def _passes_for(self) -> tuple[tuple[str, str], ...]:
        """Modules and names of those classes."""
        raise NotImplementedError

    if not TYPE_CHECKING:  # checkers know it as type[Self]

        @property
        def __class__(self):
            real = type(self)
            found = (torchs(*one) for one in self._passes_for())
            theirs = tuple(one for one in found if one is not None and not issubclass(real, one))
            return _answer(real, theirs) if theirs else real

        @__class__.setter
        def __class__(self, kind):
            plain = vars(object)["__class__"]
            plain.__set__(self, kind._real if isinstance(kind, _Answer) else kind)

    def __reduce__(self) -> Any:  # Python's own compares __class__ with the type, and refuses
        state = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__
        given = self.__getnewargs__() if hasattr(self, "__getnewargs__") else ()
        return _blank, (type(self), *given), state


def _blank(kind: Any, *args: Any) -> Any:
    return kind.__new__(kind, *args)


class _Answer(type):
    """Metaclass of what ``__class__`` answers. In everything but ``issubclass(answer, theirs)`` such a class stands for
    the real one: what is made of it, derived from it, assigned to it and pickled is the real class's."""

    _real: type

    def __new__(meta: Any, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> Any:
        real = tuple(one._real if isinstance(one, _Answer) else one for one in bases)
        made: Any = type
        return made(name, real, namespace, **keywords)

    def __call__(cls, *args: Any, **keywords: Any) -> Any:
        return cls._real(*args, **keywords)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls._real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return type.__subclasscheck__(cls._real, subclass)  # ABCMeta's own asks the subclasses, of which this is one

    def __setattr__(cls, name: str, value: Any) -> None:
        setattr(cls._real, name, value)

    def __delattr__(cls, name: str) -> None:
        delattr(cls._real, name)


class _Quiet:
    """Comes first, so that no ``__init_subclass__`` of a user hears of an answer."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        pass


def _itself(kind: type) -> type:
    return kind


def _pickled(answer: _Answer) -> Any:
    return _itself, (answer._real,)


copyreg.pickle(_Answer, _pickled)


@functools.cache
def _answer(real: type, theirs: tuple[type, ...]) -> type:
    meta: type = _Answer
    if type(real) is not type:  # as with abc.ABC among the bases
        meta = type(_Answer.__name__, (_Answer, type(real)), {})
        copyreg.pickle(meta, _pickled)
    namespace = {"_real": real, "__doc__": real.__doc__, "__module__": real.__module__}
    return type.__new__(meta, real.__name__, (_Quiet, real, *theirs), {**namespace, "__qualname__": real.__qualname__})

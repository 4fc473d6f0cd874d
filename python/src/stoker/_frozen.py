"""Lists and dicts that datasets return. They describe the dataset, and changing them would not change it, so changes
are refused. Otherwise they are ordinary lists and dicts; copies are plain, and so are unpickled ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from ._errors import ConfigError

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class _Frozen:
    """What both refuse. ``frozen`` sets what their errors say."""

    __slots__ = ()

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        name, hint = getattr(self, "_name", type(self).__name__), getattr(self, "_hint", "")
        kind = "list" if isinstance(self, list) else "dict"
        copy = f"{kind}(dataset.{name.rpartition('.')[2]}) is a copy that can be changed"
        raise ConfigError(
            f"{name} cannot be changed in place: the dataset would stay what it is",
            hint=f"{hint}; {copy}" if hint else copy,
        )


class FrozenList(_Frozen, list[T]):
    """A list that cannot be changed."""

    __slots__ = ("_hint", "_name")

    append = clear = extend = insert = pop = remove = reverse = sort = _Frozen._refuse
    __delitem__ = __iadd__ = __imul__ = __setitem__ = _Frozen._refuse

    def __reduce__(self) -> tuple[Callable[..., list[T]], tuple[list[T]]]:
        return list, (list(self),)


class FrozenDict(_Frozen, dict[K, V]):
    """A dict that cannot be changed."""

    __slots__ = ("_hint", "_name")

    clear = pop = popitem = setdefault = update = _Frozen._refuse
    __delitem__ = __ior__ = __setitem__ = _Frozen._refuse

    def __reduce__(self) -> tuple[Callable[..., dict[K, V]], tuple[dict[K, V]]]:
        return dict, (dict(self),)


def frozen(value: Any, name: str, hint: str) -> Any:
    """A list or a dict as one that cannot be changed; ``name`` is what the user calls it, ``hint`` what to do instead.
    Anything else is returned unchanged."""
    kinds: dict[type, Any] = {list: FrozenList, dict: FrozenDict}
    if type(value) not in kinds:
        return value
    made = kinds[type(value)](value)
    made._name, made._hint = name, hint
    return made

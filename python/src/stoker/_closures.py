"""A digest of functions and of everything that they refer to: equal digests mean that they do the same.

closure()   the digest, or None where something cannot be hashed

Code counts without lines and file names; so do defaults, what a function closes over, the globals that it names, and
what it uses of modules that are the user's own. Of libraries, the names and versions count. Objects count by their
classes and attributes, arrays by their bytes.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

from ._theirs import _digest

_DEEPEST = 60
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis))
_METHODS = (types.FunctionType, staticmethod, classmethod, property, functools.cached_property)


class _Unknown(Exception):
    """It cannot be hashed."""


def closure(*values: Any) -> str | None:
    """The digest; None if it is not known what the values do."""
    hashed = hashlib.blake2b(f"{sys.version_info[0]}.{sys.version_info[1]}".encode(), digest_size=16)
    try:
        _add(hashed, values, {}, 0)
    except Exception:  # a user's __getstate__ may raise anything
        return None
    return hashed.hexdigest()


def _add(hashed: Any, value: Any, seen: dict[int, Any], depth: int) -> None:
    def add(*inner: Any) -> None:
        for one in inner:
            _add(hashed, one, seen, depth + 1)

    if depth > _DEEPEST:
        raise _Unknown
    kind = type(value)
    if kind in _PLAIN:
        hashed.update(f"{kind.__name__} {value!r};".encode("utf-8", "surrogatepass"))
        return
    if id(value) in seen:
        hashed.update(f"again {list(seen).index(id(value))};".encode())
        return
    seen[id(value)] = value  # held, so that no other object gets its id
    hashed.update(f"{kind.__module__}.{kind.__qualname__}(".encode())
    if kind in (list, tuple):
        add(*value)
    elif kind in (set, frozenset):
        for digest in sorted(closure(one) or _raise() for one in value):
            hashed.update(digest.encode())
    elif kind is dict:
        for key, one in value.items():
            add(key, one)
    elif isinstance(value, types.ModuleType):
        if not _library(value.__name__):
            raise _Unknown  # what of it is used?
        hashed.update(_version(value.__name__))
    elif isinstance(value, types.FunctionType):
        code, used = value.__code__, [cell.cell_contents for cell in value.__closure__ or ()]
        home = str(value.__globals__.get("__name__"))  # functools.wraps sets another __module__
        if _library(home):
            hashed.update(f"{value.__qualname__} {code.co_name} ".encode() + _version(home))
            add(*used)  # such as the function that it decorates
        else:
            hashed.update(_digest(code).encode())
            add(value.__defaults__, value.__kwdefaults__)
            names = sorted(set(_names(code)))
            used += [value.__globals__[name] for name in names if name in value.__globals__]
            for one in used + [_imported(name) for name in sorted(set(_imports(code)))]:
                add(*_of(one, names, set()))
    elif isinstance(value, types.MethodType):
        add(value.__func__, value.__self__)
    elif isinstance(value, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)):
        owner = getattr(value, "__self__", None)
        of = getattr(value, "__objclass__", owner if isinstance(owner, type) else type(owner))
        module = getattr(value, "__module__", None) or of.__module__
        if not _library(module):
            raise _Unknown  # of a compiled module of the user's own
        hashed.update(f"{value.__qualname__} ".encode() + _version(module))
        if owner is not None and not isinstance(owner, types.ModuleType):
            add(owner)
    elif isinstance(value, functools.partial):
        add(value.func, value.args, value.keywords)
    elif isinstance(value, type):
        hashed.update(f"{value.__qualname__} ".encode() + _version(value.__module__))
        if not _library(value.__module__):
            add(value.__bases__)
            for name, one in sorted(vars(value).items()):
                if isinstance(one, _METHODS) or not (name.startswith("__") or name == "_abc_impl" or _slot(one)):
                    hashed.update(name.encode())
                    add(*_functions(one))
    elif isinstance(value, re.Pattern):
        add(value.pattern, value.flags)
    elif kind.__name__ == "ndarray" and kind.__module__ == "numpy" and not value.dtype.hasobject:
        add(str(value.dtype), value.shape)
        hashed.update(value.tobytes())
    elif kind.__module__ in ("torch", "torch.nn.parameter") and hasattr(value, "untyped_storage"):
        add(str(value.dtype), tuple(value.shape))
        hashed.update(value.detach().cpu().contiguous().flatten().view(_bytes()).numpy().tobytes())
    else:
        add(kind)
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict) and not _own_state(kind):
            add(dict(held))
        else:
            made = value.__reduce_ex__(4)  # its parts, and not a pickle, in which functions are names
            if isinstance(made, str):
                add(made, getattr(value, "__wrapped__", None))
            else:
                add(*made[:3], *(list(items) for items in made[3:5] if items is not None))
    hashed.update(b")")


def _raise() -> str:
    raise _Unknown


def _bytes() -> Any:
    import torch

    return torch.uint8


def _slot(value: Any) -> bool:
    return isinstance(value, (types.MemberDescriptorType, types.GetSetDescriptorType))


def _functions(value: Any) -> list[Any]:
    if isinstance(value, property):
        return [value.fget, value.fset]
    if isinstance(value, functools.cached_property):
        return [value.func]
    return [getattr(value, "__func__", value)]


def _own_state(kind: type) -> bool:
    """Whether objects of a class are more than their attributes."""
    names = ("__reduce_ex__", "__reduce__", "__getstate__", "__slots__")
    return any(vars(base).get(name) for base in kind.__mro__[:-1] for name in names)


def _names(code: types.CodeType) -> Iterator[str]:
    """The globals and attributes that code names."""
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _names(one)


def _imports(code: types.CodeType) -> Iterator[str]:
    """The modules that code imports when it runs."""
    yield from (str(one.argval) for one in dis.get_instructions(code) if one.opname == "IMPORT_NAME")
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield from _imports(one)


def _imported(name: str) -> Any:
    if name in sys.modules:
        return sys.modules[name]
    if _library(name):
        return name
    raise _Unknown  # nobody has imported it yet


def _of(value: Any, names: list[str], seen: set[int]) -> Iterator[Any]:
    """The value itself; for a module of the user's own, what code that has these names may use of it."""
    if not isinstance(value, types.ModuleType) or _library(value.__name__):
        yield value
    elif id(value) not in seen:
        seen.add(id(value))
        yield value.__name__
        for name in names:
            if name in vars(value):
                yield name
                yield from _of(vars(value)[name], names, seen)


def _library(name: str | None) -> bool:
    top = str(name).partition(".")[0]
    if top in sys.stdlib_module_names:
        return top != "__main__"
    file = str(getattr(sys.modules.get(top), "__file__", "") or "")
    return top == "stoker" or "site-packages" in file or "dist-packages" in file


def _version(name: str | None) -> bytes:
    top = str(name).partition(".")[0]
    version = getattr(sys.modules.get(top), "__version__", "") if _library(name) else ""
    return f"{name} {version};".encode()

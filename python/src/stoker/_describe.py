"""The structure of one sample, and why another one does not have it, by the rules of torch's default_collate.

describe()   a value -> leaves in mappings and sequences
fit()        a value that should have a known structure -> the values of its leaves

Both look at one sample at a time, and name the field that is wrong. Many samples at once: _leaves.py.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from types import MappingProxyType
from typing import Any

from ._errors import many
from ._leaves import Array, Fixed, Listed, Loose, Mapped, Number, Tensor
from ._tone import Picture, Toned

FITTING = "return what default_collate accepts, or pass collate_fn="
NO_CUDA = "copy the batch to the device in the training loop, or pass num_workers=0"


class Misfit(ValueError):
    """A sample that cannot be a row of a batch. ``hint`` says what to try."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


_ONE_SHAPE = "return samples of the same keys, dtypes and shapes, or pass collate_fn="


def _field(path: str) -> str:
    return f"its field {path}" if path else "it"


def _differs(path: str, found: Any, expected: Any) -> Misfit:
    return Misfit(f"{_field(path)} is {found.words()}, and {expected.words()} in {{sample}}", _ONE_SHAPE)


def describe(value: Any, path: str, inside: bool = False) -> Any:
    """The structure of a value, by the rules of default_collate. ``inside``: in a sequence. Misfit with the reason of
    default_collate if it cannot be collated."""
    kind = type(value)
    torch = sys.modules.get("torch")
    np = sys.modules.get("numpy")
    if torch is not None and isinstance(value, torch.Tensor):
        return _describe_tensor(torch, value, path)
    if kind is Toned:
        return Picture.of(value)
    if np is not None and isinstance(value, np.ndarray):
        name = value.dtype.name
        if value.dtype.isnative and name in _ARRAYS and (torch is None or hasattr(torch, name)):
            return Array(name, value.shape)
        raise _reason(value, path)
    if np is not None and isinstance(value, (np.bool_, np.number)):
        name = value.dtype.name
        if name in _ARRAYS and (torch is None or _collated(value, path).dtype is getattr(torch, name, None)):
            return Array(name, (), True)  # torch takes an array of uint64, but not a scalar
        raise _reason(value, path)
    if isinstance(value, float):
        return Number(float)
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise _reason(value, path)
        return Number(bool if kind is bool else int)
    if isinstance(value, (str, bytes)):
        return Loose(kind.__name__ if kind in (str, bytes) else "object", inside)
    if isinstance(value, Mapping):
        return _describe_mapping(value, path)
    if isinstance(value, Sequence):
        return _describe_sequence(value, path)
    raise _reason(value, path)


_ARRAYS = frozenset(
    "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 complex128".split()
)


def _describe_tensor(torch: Any, value: Any, path: str) -> Tensor:
    if value.device.type != "cpu":
        raise Misfit(f"{_field(path)} is a tensor on {value.device}, which workers cannot pass on", NO_CUDA)
    name = str(value.dtype).removeprefix("torch.")
    dense = value.layout is torch.strided and not value.is_nested and not value.is_quantized
    if type(value) is torch.Tensor and dense:
        return Tensor(name, tuple(value.shape))
    found = _collated(value, path)
    if not isinstance(found, torch.Tensor) or found.layout is not torch.strided or found.is_quantized:
        raise Misfit(f"{_field(path)} is a {type(value).__name__} that cannot be stacked", "pass collate_fn=")
    wrap = None if type(found) is torch.Tensor else type(found)
    return Tensor(name, tuple(found.shape[1:]), type(value) is not torch.Tensor, wrap)


def _describe_mapping(value: Any, path: str) -> Mapped:
    kind = type(value)
    keys = tuple(value)
    parts = [describe(value[key], f"{path}[{key!r}]") for key in keys]
    if kind is dict:
        return Mapped("dict", None, dict, keys, parts)
    how = "other"
    like: Any = kind
    if kind is MappingProxyType:
        like = None  # has no name that pickle would find
    elif isinstance(value, MutableMapping):
        try:
            how, like = "mutable", copy.copy(value)
            like.update(dict.fromkeys(keys))  # its own attributes, not its values
        except TypeError:
            how, like = "dict", None
    return Mapped(how, like, kind, keys, parts)


def _describe_sequence(value: Any, path: str) -> Listed:
    kind = type(value)
    parts = [describe(inner, f"{path}[{number}]", True) for number, inner in enumerate(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return Listed("named", kind, kind, parts)
    if isinstance(value, tuple) or kind is list:
        return Listed("list", None, kind, parts)
    if not isinstance(value, MutableSequence):
        return Listed("other", kind, kind, parts)
    try:
        like: Any = copy.copy(value)
        for i in range(len(parts)):
            like[i] = None
    except TypeError:
        return Listed("list", None, kind, parts)
    return Listed("mutable", like, kind, parts)


def _collated(value: Any, path: str) -> Any:
    """What default_collate makes of a batch with this value alone; Misfit with its reason if it refuses."""
    if "torch" not in sys.modules:
        raise Misfit(
            f"{_field(path)}: batches are made of arrays, numbers, strings, dicts and lists, not of {type(value)}",
            "return one of these, or pass collate_fn=",
        )
    from torch.utils.data import default_collate

    try:
        return default_collate([value])
    except Exception as error:
        what = "None" if value is None else f"of type {type(value).__qualname__}"
        hint = FITTING
        if value is None:
            hint = 'return a value for each sample, pass on_bad="skip", or a collate_fn= that leaves None out'
        raise Misfit(f"{_field(path)} is {what}: {error}", hint) from error


def _reason(value: Any, path: str) -> Misfit:
    try:
        _collated(value, path)
    except Misfit as misfit:
        return misfit
    return Misfit(f"{_field(path)} is a {type(value).__name__}, which has no fixed size", "pass collate_fn=")


# Comparing.


def fit(part: Any, value: Any, path: str, found: list[Any]) -> None:
    """Appends the leaves of a value that has the structure ``part``, each as one that the fast path accepts, or raises
    Misfit."""
    if isinstance(part, Mapped):
        _fit_mapping(part, value, path, found)
    elif isinstance(part, Listed):
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise _differs(path, describe(value, path), part)
        if len(value) != len(part.parts):
            raise Misfit(
                f"{_field(path)} has {many(len(value), 'value')}, and {len(part.parts)} in {{sample}}", _ONE_SHAPE
            )
        for number, (inner, item) in enumerate(zip(part.parts, value, strict=True)):
            fit(inner, item, f"{path}[{number}]", found)
    elif isinstance(part, Loose):
        same = isinstance(value, (str, bytes)) if part.kind == "object" else type(value).__name__ == part.kind
        if not same:
            raise _differs(path, describe(value, path, part.inside), part)
        found.append(value)
    else:
        found.append(_converted(part, value, path))


def _fit_mapping(part: Mapped, value: Any, path: str, found: list[Any]) -> None:
    if not isinstance(value, Mapping):
        raise _differs(path, describe(value, path), part)
    theirs = set(value)
    if missing := [key for key in part.keys if key not in theirs]:
        raise Misfit(f"{_field(path)} lacks the key {missing[0]!r} that {{sample}} has", _ONE_SHAPE)
    if more := theirs.difference(part.keys):
        raise Misfit(f"{_field(path)} has the key {more.pop()!r} that {{sample}} lacks", _ONE_SHAPE)
    for key, inner in zip(part.keys, part.parts, strict=True):
        fit(inner, value[key], f"{path}[{key!r}]", found)


def _converted(part: Any, value: Any, path: str) -> Any:
    if isinstance(part, Number):
        # As torch.tensor(batch) does: an int column takes a bool, a float column takes an int.
        if type(value) is part.kind or isinstance(value, (bool, int) if part.kind is float else part.kind):
            if part.kind is int:
                describe(value, path)  # more than 64 bits
            return value
    other = describe(value, path)
    if not isinstance(other, Fixed) or not part.same(other):
        raise _differs(path, other, part)
    if type(other) is not type(part) or isinstance(other, Tensor):
        held = bytearray(other.size)
        other.put(memoryview(held), 0, [value])
        value = part.from_bytes(held)
    if isinstance(part, Tensor):
        # What stack(out=) refuses: conjugated or negated views, tensors that require gradients.
        return value.detach().resolve_conj().resolve_neg()
    return value

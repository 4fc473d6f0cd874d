"""Batches on their way to a device: what ``batch.to`` and ``batch.pin_memory`` do.

Lightning, Accelerate and fastai call ``to`` of anything that has it, and rebuild a tuple or a dict that has not: a
batch that was rebuilt has lost its ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

# Facts that a model reads; the others are for the loop, which would wait for the device to read them there.
_READ = ("cu_seqlens", "position_ids")


def moved(batch: Any, method: str, *args: Any, **kwargs: Any) -> Any:
    """A batch of the same class in which everything that has the method is what it returns. Tuples, lists and dicts are
    searched to any depth; arrays of NumPy and JAX, texts and numbers stay as they are. The facts are kept."""

    def one(value: Any) -> Any:
        move = getattr(value, method, None)
        return value if move is None else move(*args, **kwargs)

    found = type(batch)(_inside(batch, one))
    facts = dict(vars(batch))
    facts.update((name, one(facts[name])) for name in _READ if name in facts)
    vars(found).update(facts)
    return found


def _inside(value: Any, one: Callable[[Any], Any]) -> Any:
    """The fields of a batch."""
    if isinstance(value, Mapping):
        return {key: _any(inner, one) for key, inner in value.items()}
    return [_any(inner, one) for inner in value]


def _any(value: Any, one: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*_inside(value, one))
    if type(value) in (tuple, list, dict):
        return type(value)(_inside(value, one))
    return one(value)

"""Batches on their way to a device: what ``batch.to`` and ``batch.pin_memory`` do.

Lightning, Accelerate and fastai call ``to`` of anything that has it, and rebuild a tuple or a dict that has not: a
batch that was rebuilt has lost its ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Facts that a model reads; the others are for the loop, which would wait for the device to read them there.
_READ = ("cu_seqlens", "position_ids")


def moved(batch: Any, method: str, *args: Any, **kwargs: Any) -> Any:
    """A batch of the same class in which everything that has the method is what it returns. Tuples, lists and mappings
    are searched to any depth; arrays of NumPy and JAX, texts and numbers stay as they are. The facts are kept."""

    def one(value: Any) -> Any:
        if (move := getattr(value, method, None)) is not None:  # also of tuples and mappings that know how to move
            return move(*args, **kwargs)
        if isinstance(value, Mapping):
            inner = {key: one(field) for key, field in value.items()}
            return inner if type(value) is dict else like(value, inner)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(one, value))
        return type(value)(map(one, value)) if type(value) in (tuple, list) else value

    fields = {key: one(field) for key, field in batch.items()} if isinstance(batch, Mapping) else map(one, batch)
    found = type(batch)(fields)
    facts = dict(vars(batch))
    facts.update((name, one(facts[name])) for name in _READ if name in facts)
    vars(found).update(facts)
    return found


def like(value: Any, found: dict[Any, Any]) -> Any:
    """A mapping of the value's class, if that can be made of a dict."""
    try:
        return type(value)(found)
    except TypeError:  # a Mapping that is made in another way
        return found

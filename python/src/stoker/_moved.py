"""Batches on their way to a device: what ``batch.to`` and ``batch.pin_memory`` do.

Lightning, Accelerate and fastai call ``to`` of anything that has it, and rebuild a tuple or a dict that has not: a
batch that was rebuilt has lost its ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from operator import is_
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
            return like(value, {key: one(field) for key, field in value.items()})
        return like(value, list(map(one, value))) if isinstance(value, (tuple, list)) else value

    fields = {key: one(field) for key, field in batch.items()} if isinstance(batch, Mapping) else map(one, batch)
    found = type(batch)(fields)
    facts = dict(vars(batch))
    facts.update((name, one(facts[name])) for name in _READ if name in facts)
    vars(found).update(facts)
    return found


def searched(value: Any) -> bool:
    """Whether tensors are looked for in a value that is neither a batch of ours nor a tensor: in tuples, lists and
    mappings of any class, unless they know how to move."""
    if type(value) in (tuple, list, dict):
        return True
    return isinstance(value, (tuple, list, Mapping)) and not callable(getattr(value, "to", None))


def like(value: Any, inner: Any) -> Any:
    """A value like this one with other things in it: a dict of them for a mapping, a list for others. Lists and dicts
    keep their attributes. It is a plain one if its class cannot be made of these."""
    if type(value) is type(inner):
        return inner
    if type(value) is tuple:
        return tuple(inner)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*inner)
    for make in (_copied, _built):
        with suppress(Exception):  # of the class's own code
            if _holds(made := make(value, inner), inner):
                return made
    return tuple(inner) if isinstance(value, tuple) else inner


def _copied(value: Any, inner: Any) -> Any:
    """Not of other mappings, whose copy may share what holds their values."""
    if not isinstance(value, (dict, list)):
        return None
    made = copy(value)
    if isinstance(made, dict):
        made.update(inner)
    else:
        made[:] = inner
    return made


def _built(value: Any, inner: Any) -> Any:
    return type(value)(inner)


def _holds(made: Any, inner: Any) -> bool:
    if made is None or len(made) != len(inner):
        return False
    if isinstance(inner, dict):
        return all(made[key] is one for key, one in inner.items())
    return all(map(is_, made, inner))

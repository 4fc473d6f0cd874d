"""Checks arguments of samplers. Each function adds what is wrong to problems, and returns a value to continue with."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterable
from typing import Any

from . import _order, _ranks
from ._errors import MAX_COUNT, ConfigError, Problems, many, whole
from ._numbers import scalar


def length(name: str, data: Any, problems: Problems) -> int:
    """The length of data."""
    try:
        return len(data)
    except TypeError:
        problems.add(f"{name} is of type {type(data).__name__}, which has no length", "give one that has len()")
        return 1


def truth(name: str, value: Any, problems: Problems) -> bool:
    """True or False; anything else is a problem."""
    value = scalar(value)
    if not isinstance(value, bool):
        problems.add(f"{name} is {value!r}", "give True or False")
    return bool(value)


def count(name: str, value: Any, problems: Problems) -> int:
    """An integer from 1 to 2**53, as the engine requires; anything else is a problem."""
    value = scalar(value)
    if not whole(value) or not 1 <= value <= MAX_COUNT:
        problems.add(f"{name} is {value!r:.80}", "give an integer from 1 to 2**53")
        return 1
    return int(value)


def rank_and_world(rank: Any, world: Any, problems: Problems) -> tuple[int, int]:
    """Rank and world size as given, else those of this process."""
    known = _ranks._running() is not None or ("RANK" in os.environ and "WORLD_SIZE" in os.environ)
    if (rank is None) != (world is None) and not known:
        problems.add(
            "rank and num_replicas must be given together: the rank of this process is not known",
            "give both, or neither; or start the program with torchrun",
        )
        return 0, 1
    rank, world = scalar(rank), scalar(world)
    try:
        found = _ranks.of_process(rank, world)
    except ConfigError as error:
        problems.take(error)
        return 0, 1
    rank, world = found[0] if rank is None else rank, found[1] if world is None else world
    if not whole(world) or world < 1:
        problems.add(f"num_replicas is {world!r}", "give the number of ranks, at least 1")
    elif not whole(rank) or not 0 <= rank < world:
        problems.add(f"rank is {rank!r} in a world of {world}", f"ranks go from 0 to {world - 1}")
    return rank, world


def plain(items: Any) -> Any:
    """An array or a tensor as a list of numbers; anything else unchanged."""
    return items.tolist() if hasattr(items, "tolist") and not isinstance(items, array) else items


_ONE = array("d", [1.0])  # stands for weights that cannot be read


def read_weights(weights: Any, problems: Problems) -> array[float]:
    """The weights of a draw with replacement."""
    items = plain(weights)
    if not isinstance(items, Iterable) or isinstance(items, (str, bytes, bytearray)):
        problems.add(f"weights is of type {type(weights).__name__}", "give a list of numbers, one per sample")
        return _ONE
    items = list(items)
    try:
        read = array("d", items)
    except (TypeError, OverflowError):
        i, w = next((i, w) for i, w in enumerate(items) if not _real(w))
        problems.add(f"weight {i} is {w!r:.60}", "give a list of numbers, one per sample")
        return _ONE
    wrong = [(i, w) for i, w in enumerate(read) if not 0 <= w < math.inf]
    for i, w in wrong[:3]:
        problems.add(f"weight {i} is {w!r}", "weights must be finite and at least 0")
    if len(wrong) > 3:
        problems.add(f"{len(wrong) - 3} more weights are negative, NaN or infinite")
    if wrong:
        return read
    if not any(read):
        what = "the weights are all 0: nothing can be drawn" if read else "weights is empty"
        problems.add(what, "give at least one weight above 0")
    elif math.isinf(_order.cumulate(read)[-1]):
        problems.add("the sum of the weights overflows a float", "scale all of them down")
    return read


def _real(value: Any) -> bool:
    try:
        array("d", [value])
    except (TypeError, OverflowError):
        return False
    return True


def check_race(weights: array[float], num_samples: Any, problems: Problems) -> None:
    """Adds what is wrong with weights to be drawn from without replacement."""
    there = sum(w > 0 for w in weights)
    if whole(num_samples) and num_samples > there:
        problems.add(
            f"num_samples is {num_samples}, but only {there} of {many(len(weights), 'weight')} "
            f"{'is' if there == 1 else 'are'} above 0: "
            "without replacement no sample is drawn twice",
            f"give at most {there}, or replacement=True",
        )
    for i, w in enumerate(weights):
        if 0 < w < _order.LIGHTEST or _order.HEAVIEST < w < math.inf:
            problems.add(
                f"weight {i} is {w!r}: without replacement weights must be 0 or between {_order.LIGHTEST:g} and "
                f"{_order.HEAVIEST:g}",
                "scale all of them",
            )
            return

"""Turns what users say about the cache into its part of the Spec; and the cache folder of the machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ._errors import Problems, whole
from ._numbers import scalar

_UNITS = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_UNITS.update({"tb": 10**12, "b": 1, "": 1})  # the longer ones first

# What is kept: the sample before the first random transform, or right after decoding.
AFTER = ("random", "decode")


def folder(name: str) -> str:
    """A folder in the cache folder, made if it is missing."""
    cache = os.environ.get("STOKER_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "stoker"
    )
    path = os.path.join(os.path.abspath(cache), name)
    os.makedirs(path, exist_ok=True)
    return path


def read_cache(given: Any, problems: Problems) -> dict[str, Any] | None:
    """True, an amount of memory, or {"memory": ..., "after": ...}; None, False and 0 keep nothing."""
    if given is None or given is False:
        return None
    if given is True:
        given = {}
    elif not isinstance(given, Mapping):
        given = {"memory": given}
    for key in given:
        if key not in ("memory", "after"):
            problems.add(f"cache has a key {key!r}", "its keys are memory and after")
    memory, after = scalar(given.get("memory")), given.get("after")
    if after is not None and after not in AFTER:
        problems.add(f"cache is after {after!r}", "it can be 'random' or 'decode'")
    if memory is not None:
        size = amount(memory)
        if size is None:
            problems.add(f"cache has memory {memory!r}", "give an amount like '8GiB', a number of bytes, or True")
        elif size == 0:
            return None  # to the engine, 0 means not given
    if memory == "auto":
        memory = None
    cache: dict[str, Any] = {"after": after or "random"}  # never empty: that would mean no cache
    if memory is not None:
        cache["memory"] = memory
    return cache


def read_entries(given: Any, problems: Problems) -> str | dict[str, Any] | None:
    """``entries=`` of a loader, as the part of the Spec: "auto", "off" or False, or {"limit": an amount}."""
    if given is None or given is True or (isinstance(given, str) and given == "auto"):
        return None
    if given is False or (isinstance(given, str) and given == "off"):
        return "off"
    if not isinstance(given, Mapping) or set(given) != {"limit"}:
        problems.add(f"entries is {given!r}", "it can be 'auto', 'off' or {'limit': '4GiB'}")
        return None
    limit = scalar(given["limit"])
    if not amount(limit) or limit == "auto":
        problems.add(f"entries has limit {limit!r}", "give an amount like '4GiB' or a number of bytes, or 'off'")
    return {"limit": limit}


def amount(given: Any) -> float | None:
    """An amount of memory in bytes, as the engine reads it: a number, or text such as "8GiB". -1 for "auto", None if it
    is not an amount."""
    if not isinstance(given, str):
        return float(given) if whole(given) and given >= 0 else None
    text = given.strip().lower()
    if text == "auto":
        return -1
    unit = next(unit for unit in _UNITS if text.endswith(unit))
    try:
        size = float(text.removesuffix(unit)) * _UNITS[unit]
    except ValueError:
        return None
    return size if 0 <= size < 1 << 62 else None

"""The cache of the Spec, from what users say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._errors import Problems, whole

# Where it stands: in front of the first random transform, or right behind decoding.
AFTER = ("random", "decode")


def read_cache(given: Any, problems: Problems) -> dict[str, Any] | None:
    """True, an amount of memory, or {"memory": ..., "after": ...}; None and False: nothing is kept."""
    if given is None or given is False:
        return None
    if given is True:
        given = {}
    elif not isinstance(given, Mapping):
        given = {"memory": given}
    for key in given:
        if key not in ("memory", "after"):
            problems.add(f"cache has a key {key!r}", "it has memory and after")
    memory, after = given.get("memory"), given.get("after")
    if after is not None and after not in AFTER:
        problems.add(f"cache is after {after!r}", "it can be 'random' or 'decode'")
    if memory is not None and not isinstance(memory, str) and (not whole(memory) or memory < 1):
        problems.add(f"cache has memory {memory!r}", "give an amount like '8GiB', a number of bytes, or True")
    cache: dict[str, Any] = {"after": after or "random"}  # never empty: that would be no cache
    if memory is not None:
        cache["memory"] = memory
    return cache

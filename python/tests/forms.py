"""Short and long forms of tests: `make py-test` runs the short ones, `make py-test-long` (STOKER_ALL=long) the long
ones, and STOKER_ALL=1 selects both.

A case is long if short cases prove the same, or most of it, and cost less: another start method with the same unit of
work, another dataset under the same settings, a new process for what a test in this one shows. A case whose test reads
ALL does more in the long form, and is in both. Of a test marked `@thinned`, whose cases are a product of several lists,
the short form has as many as it takes to meet each value of each list. What is left out is deselected, not skipped.

STOKER_PART=1/3 selects about a third of either, by the names of the cases; 2/3 and 3/3 are the others.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from typing import Any

import pytest

ALL = os.environ.get("STOKER_ALL", "")
PART, PARTS = map(int, (os.environ.get("STOKER_PART") or "1/1").split("/"))
assert 1 <= PART <= PARTS, "STOKER_PART is not like 2/3"
long = pytest.mark.long
thinned = pytest.mark.thinned


def thin(cases: Iterable[pytest.Item]) -> None:
    """Marks those cases of a test, of which all are given, that meet no new value of a parameter as long."""
    met: set[tuple[str, int]] = set()
    for case in sorted(cases, key=lambda case: zlib.crc32(case.name.encode())):  # in some order that never changes
        if case.get_closest_marker("thinned") and not case.get_closest_marker("long"):
            values = {(name, id(value)) for name, value in case.callspec.params.items()}  # type: ignore[attr-defined]
            if values <= met:
                case.add_marker(long)
            met |= values


def chosen(case: pytest.Item) -> bool:
    """Whether it is run, in the form that is asked for."""
    long = case.get_closest_marker("long") is not None
    if ALL != "long":
        return bool(ALL) or not long
    return long or isinstance(case, pytest.Function) and "ALL" in case.function.__code__.co_names


def of_part(case: str) -> bool:
    """Whether a case, by its name, is of the part that is asked for."""
    return zlib.crc32(case.encode()) % PARTS == PART - 1


def mostly(values: Iterable[Any], *short: Any) -> list[Any]:
    """Values of a parameter, or tuples of several, of which only ``short`` are in the short form."""
    found = list(values)
    assert all(one in found for one in short), "there is no such case"
    return [one if one in short else param(one) for one in found]


def param(value: Any) -> Any:
    """A case of the long form."""
    return pytest.param(*value, marks=long) if isinstance(value, tuple) else pytest.param(value, marks=long)

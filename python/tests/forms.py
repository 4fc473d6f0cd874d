"""Short and long forms of tests: `make py-test` runs the short ones, `make py-test-long` (STOKER_ALL=long) the long
ones, and STOKER_ALL=1 selects both.

A case is long if others in the same test prove the same of it, and cost less: another start method with the same
unit of work, another dataset under the same settings. What is left out is deselected, not skipped.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

ALL = os.environ.get("STOKER_ALL", "")
long = pytest.mark.long
# thinned(n): of the cases of a test, every n-th is in the short form. Where the parameters are several lists whose
# lengths have no factor in common with n, each value of each list is met.
thinned = pytest.mark.thinned


def chosen(items: Iterable[pytest.Item]) -> Iterator[pytest.Item]:
    """The tests that are run."""
    seen: Counter[str] = Counter()
    for item in items:
        every = item.get_closest_marker("thinned")
        test = item.nodeid.partition("[")[0]
        long = item.get_closest_marker("long") is not None or bool(every and seen[test] % every.args[0])
        seen[test] += 1
        if long if ALL == "long" else ALL or not long:
            yield item


def mostly(values: Iterable[Any], *short: Any) -> list[Any]:
    """Values of a parameter, or tuples of several, of which only ``short`` are in the short form."""
    found = list(values)
    assert all(one in found for one in short), "there is no such case"
    return [one if one in short else param(one) for one in found]


def param(value: Any) -> Any:
    """A case of the long form."""
    return pytest.param(*value, marks=long) if isinstance(value, tuple) else pytest.param(value, marks=long)

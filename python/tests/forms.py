"""Short and long forms of tests: `make py-test` runs the short ones, `make py-test-long` (STOKER_ALL=long) the long
ones, and STOKER_ALL=1 selects both.

A case is long if others in the same test prove the same of it, and cost less: another start method with the same
unit of work, another dataset under the same settings. What is left out is deselected, not skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

ALL = os.environ.get("STOKER_ALL", "")
long = pytest.mark.long


def chosen(*, long: bool) -> bool:
    """Whether tests of this form are run."""
    return long if ALL == "long" else bool(ALL) or not long


def mostly(values: Iterable[Any], *short: Any) -> list[Any]:
    """Values of a parameter, or tuples of several, of which only ``short`` are in the short form."""
    found = list(values)
    assert all(one in found for one in short), "there is no such case"
    return [one if one in short else param(one) for one in found]


def param(value: Any) -> Any:
    """A case of the long form."""
    return pytest.param(*value, marks=long) if isinstance(value, tuple) else pytest.param(value, marks=long)

"""The engine and the client take the same fields of tar shards for the same kinds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stoker import _suffixes

GOLDEN = json.loads((Path(__file__).parents[2] / "testdata" / "suffixes.json").read_text())


@pytest.mark.parametrize("field", GOLDEN)
def test_golden(field: str) -> None:
    """The engine's side is TestSuffixes in internal/stage/format/tar."""
    assert _suffixes.read_as(field) == GOLDEN[field]["read"]
    assert (_suffixes.written_as(field) == "number") == GOLDEN[field]["written as a number"]


def test_every_suffix_is_in_the_golden() -> None:
    assert {*_suffixes._READ, *_suffixes._WRITTEN} <= set(GOLDEN)


def test_pictures_that_are_written_have_an_encoder() -> None:
    from stoker import _shards

    assert {name for name, kind in _suffixes._WRITTEN.items() if kind == "image"} == set(_shards._IMAGES)

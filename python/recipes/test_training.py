"""The recipes from shards to a whole training: their figures, and that their samples are the plain lines'."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from test_recipes import rates, run

__all__ = ["run"]  # a fixture
long = pytest.mark.long

Run = Callable[..., str]


def told(said: str, plain: int, stoker: int) -> dict[str, list[float]]:
    """The figures, so many of each."""
    found = rates(said)
    assert (len(found["plain"]), len(found["stoker"])) == (plain, stoker), said
    assert min(found["plain"] + found["stoker"]) > 0
    return found


def test_webdataset_lambda(run: Run) -> None:
    said = run("webdataset_lambda", "--samples", 100)
    told(said, 1, 2)
    assert said.count("same: labels, and pictures") == 2


@long
def test_webdataset_chain(run: Run) -> None:
    said = run("webdataset_chain", "--samples", 100, "--batch-size", 8)
    told(said, 2, 2)
    assert 'refused: "s3://' in said
    assert "copy or mount the data" in said
    assert said.count("same: the samples of the ") == 2


@long
def test_webdataset_stream(run: Run) -> None:
    said = run("webdataset_stream", "--samples", 100, "--batch-size", 8)
    told(said, 1, 1)
    assert "same: full batches" in said
    assert "to the pixel" in said
    assert "same: WebLoader" in said

"""Errors of the engine in Python's words: its own are those of a Spec."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker._errors import _words

TOKENS = str(Path(__file__).parents[2] / "testdata" / "tokens" / "train.bin")


def first(dataset: Any, **keywords: Any) -> Any:
    with stoker.DataLoader(dataset, **keywords) as loader:
        return next(iter(loader))


@pytest.fixture
def rows(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.zeros((4, 3), "f4"))
    np.savez(tmp_path / "uneven.npz", x=np.zeros((4, 3)), y=np.zeros(5))
    return str(tmp_path / "x.npy")


def mixture(path: str) -> stoker.Mixture:
    return stoker.Mixture([stoker.NpyDataset(path), stoker.NpyDataset(path)], weights=[1, 2])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (
            lambda x: first(stoker.NpyDataset(x, fields=[stoker.Field("x", to=2)])),
            "raise to=, cut longer samples with truncate=True",
        ),
        (lambda x: stoker.NpyDataset(x, fields=[stoker.Field("x", truncate=True)]), "what is longer than to"),
        (
            lambda x: stoker.NpyDataset(x, fields=[stoker.Field("x", view=(3, 3))]),
            "(begin, end) as of a slice, None for",
        ),
        (lambda x: stoker.NpyDataset(str(Path(x).parent / "uneven.npz")), 'NpyDataset(x="data.npz")'),
        (lambda x: first(stoker.NpyDataset(x), shuffle=True, block=3), "shuffle is 'full'"),
        (lambda x: first(mixture(x), shuffle=True, num_samples=3), "stop='first_exhausted'"),
        (lambda _: stoker.TokenDataset(TOKENS, 10**8), "take length=299"),
    ],
)
def test_hints_are_keywords(wrong: Callable[[str], Any], right: str, rows: str) -> None:
    with pytest.raises(stoker.StokerError) as caught:
        wrong(rows)
    text = str(caught.value)
    assert right in text
    assert not re.search(r"\b(dataset|pad|mix|batch|order|deliver|on_bad)\.[a-z_]+", text.replace(rows, ""))


def test_the_way_out_works(rows: str) -> None:
    assert stoker.NpyDataset(x=str(Path(rows).parent / "uneven.npz")).fields == ["x"]


def test_paths_stay_what_they_are() -> None:
    for path in ("/data/pad.to/x.tar", '"dataset.window"', "mix.stop.tar/mix.stop", "'order.seed'"):
        assert _words(f"there is no {path}") == f"there is no {path}"
    assert _words("pad.to is 3") == "to is 3"

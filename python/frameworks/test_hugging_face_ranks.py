"""stoker.hf on two processes under gloo: the example, killed in the middle of an epoch and continued, and what each
rank is given and counts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
import ranks
from safetensors.numpy import load_file

import stoker

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import forms

EXAMPLE = Path(__file__).parents[2] / "examples" / "frameworks" / "hf_trainer.py"

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four texts of lines of unequal lengths: 4 * 25 lines."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(4):
        words = ["word", "line", "text", "more"][number:] + ["again"]
        lines = [" ".join(words[i % len(words)] for i in range(1 + j % 9)) for j in range(25)]
        (folder / f"{number}.md").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize(
    ("more", "kill_at", "saved"),
    [
        ((), 11, 9),  # 7 batches in an epoch of 100 texts
        forms.param((("--accumulate", 3, "--by-length", "--workers", 1, "--max-steps", 5, "--save-steps", 1), 12, 10)),
    ],
    ids=["random", "by length"],
)
def test_a_killed_training_goes_on(
    texts: Path, tmp_path: Path, more: tuple[Any, ...], kill_at: int, saved: int
) -> None:
    args = ["--texts", texts, "--cpu", "--lines", 25, "--save-steps", 3, *more]
    whole = ranks.run(EXAMPLE, *args, out=tmp_path / "whole")
    cut = ranks.run(EXAMPLE, *args, out=tmp_path / "cut", kill_at=kill_at)
    rest = ranks.run(EXAMPLE, *args, "--resume", out=tmp_path / "cut")

    assert whole.epoch(0) == [*range(100)]
    assert whole.ranks[0][0].places == whole.ranks[1][0].places
    steps = {epoch for epoch, _ in whole.ranks[0][0].places}
    assert steps == {0, 1}
    if not more:
        assert whole.epoch(1) == [*range(100)]
    assert ranks.continues(whole, cut, rest) == {"epoch": 1, "step": saved - 7}

    if more:
        assert len(whole.ranks[0][0].steps) == 13  # 5 optimizer steps of 3, 3, 1, 3, 3 batches
    else:
        planned = stoker.DataLoader(datasets.Dataset.from_dict({"id": range(100)}), 8, shuffle=True, seed=7)
        found = stoker.verify_receipts(ranks.receipts(cut, rest), planned)
        assert found["ok"], found
        assert found["complete"], found

    last = load_file(tmp_path / "whole" / "last" / "model.safetensors")
    again = load_file(tmp_path / "cut" / "last" / "model.safetensors")
    assert last.keys() == again.keys()
    assert all((last[name] == again[name]).all() for name in last)
    said = [line for line in whole.text.splitlines() if line.startswith("steps ")]
    assert "samples 100," in said[0]
    assert said == [line for line in rest.text.splitlines() if line.startswith("steps ")]

"""stoker.hf on two processes under gloo: the example, killed in the middle of an epoch and continued, and what each
rank is given and counts."""

from __future__ import annotations

import json
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
from conftest import make_folder

EXAMPLE = Path(__file__).parents[2] / "examples" / "frameworks" / "hf_trainer.py"

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four texts of lines of unequal lengths: 4 * 25 lines."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(4):
        words = ["word", "line", "text", "more", "again"][number:]
        lines = [" ".join(words[i % len(words)] for i in range(1 + j % 9)) for j in range(25)]
        (folder / f"{number}.md").write_text("\n".join(lines))
    return folder


@forms.long  # test_trainers.py has what its Trainer does in one process, test_processes.py a kill of two ranks
@pytest.mark.parametrize(
    ("more", "kill_at", "saved"),
    [
        ((), 11, 9),  # 7 batches in an epoch of 100 texts
        (("--accumulate", 3, "--by-length", "--workers", 1, "--max-steps", 5, "--save-steps", 1), 12, 10),
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


@forms.long
def test_what_two_ranks_are_given_and_count(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", 11)
    ranks.run(Path(__file__).with_name("counted.py"), out=tmp_path)
    first, second = (json.loads((tmp_path / f"told-{rank}.json").read_text()) for rank in range(2))
    expected = first["expected"]
    loss = sum((one - i) ** 2 for i, one in enumerate(expected)) / 21
    for name in ("rows", "stream", "unsized"):
        for how in ("tensors", "objects"):
            for told in (first[f"{name} {how}"], second[f"{name} {how}"]):
                assert told["rows"] == 21
                assert told["labels"] == [*range(21)]
                assert told["predictions"] == pytest.approx(expected, rel=1e-4)
                assert told["loss"] == pytest.approx(loss, rel=1e-4), (name, how)

    def both(name: str) -> list[list[int]]:
        """The global batches."""
        pairs = zip(first[name], second[name], strict=True)
        assert all(len(a) == len(b) for a, b in zip(first[name], second[name], strict=True))
        return [sorted(a + b, reverse=name == "sampler") for a, b in pairs]

    assert both("sampler") == [[*range(21, 13, -1)], [*range(13, 5, -1)], [*range(5, -1, -1)]]
    assert [len(batch) for batch in both("split")] == [4] * 5 + [2]
    assert sorted(i for batch in both("split") for i in batch) == [*range(22)]
    assert both("stream") == [[*range(8)], [*range(8, 16)], [*range(16, 22)]]
    assert first["pictures"]["labels"] == second["pictures"]["labels"] == first["pictures"]["targets"]
    assert both("placed") == both("stream") * 2
    for step in (2, 4):
        assert both(f"again {step}") == both("placed")[step:]
        assert first[f"equal {step}"]
        assert second[f"equal {step}"]
    assert (tmp_path / "placed" / "checkpoint-2" / "stoker_state_1.json").exists()
    assert not (tmp_path / "split" / "checkpoint-2" / "stoker_state_1.json").exists()

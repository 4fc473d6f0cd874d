"""NumPy alone: a training that is killed in mid-epoch and continued."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import stoker
from stoker import transforms as T

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from conftest import make_folder
from ranks import continues, receipts, run

EXAMPLE = Path(__file__).parents[2] / "examples" / "frameworks" / "numpy_train.py"
N = 37


def test_killed_in_mid_epoch_and_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "STOKER_CACHE", str(tmp_path / "cache"))
    folder = make_folder(tmp_path / "folder", N)
    args = [folder, "--batch-size", 8, "--size", 16, "--save-every", 2]
    whole = run(EXAMPLE, *args, out=tmp_path / "whole", world=1)
    assert whole.ranks[0][0].places == [(epoch, step) for epoch in range(3) for step in range(5)]
    assert [whole.epoch(epoch) for epoch in range(3)] == [list(range(N))] * 3
    cut = run(EXAMPLE, *args, out=tmp_path / "cut", world=1, kill_at=8)
    rest = run(EXAMPLE, *args, "--resume", out=tmp_path / "cut", world=1)
    assert continues(whole, cut, rest) == {"epoch": 1, "step": 2}
    normal = T.Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])
    crops = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ToTensor(), normal])
    stream = stoker.DataLoader(stoker.ImageFolder(folder, crops), 8, shuffle=True, seed=0, output="numpy")
    assert stoker.verify_receipts(receipts(cut, rest), stream)["complete"]
    ends = [np.load(tmp_path / name / "checkpoint.npz")["weights"] for name in ("whole", "cut")]
    assert np.array_equal(*ends)

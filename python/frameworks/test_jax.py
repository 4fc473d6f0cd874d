"""JAX: two processes under gloo with four simulated devices each, killed in mid-epoch and continued."""

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

EXAMPLE = Path(__file__).parents[2] / "examples" / "frameworks" / "jax_train.py"
N, SIZE = 37, 8  # 37 pictures in global batches of 8: the last one is filled up


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    os.environ["STOKER_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    return make_folder(tmp_path_factory.mktemp("folder"), N)


def test_killed_in_mid_epoch_and_continued(folder: Path, tmp_path: Path) -> None:
    args = [folder, "--devices", 4, "--batch-size", SIZE, "--size", 16, "--save-every", 2]
    whole = run(EXAMPLE, *args, out=tmp_path / "whole")
    for rank in whole.ranks:
        assert rank[0].places == [(epoch, step) for epoch in range(3) for step in range(5)]
    for epoch in range(3):
        assert whole.epoch(epoch) == list(range(N))
    orders = [[one.ids for one in whole.ranks[0][0].steps if one.epoch == epoch] for epoch in range(3)]
    assert orders[0] != orders[1] != orders[2]

    cut = run(EXAMPLE, *args, out=tmp_path / "cut", kill_at=8)  # batch 2 of epoch 1 is the last that was saved
    rest = run(EXAMPLE, *args, "--resume", out=tmp_path / "cut")
    assert continues(whole, cut, rest) == {"epoch": 1, "step": 2}

    photos = stoker.ImageFolder(folder, T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()]))
    stream = stoker.DataLoader(photos, SIZE, shuffle=True, seed=0, tail="fill", output="numpy", rank=0, world_size=1)
    verdict = stoker.verify_receipts(receipts(cut, rest), stream)
    assert verdict["ok"], verdict
    assert verdict["complete"], verdict

    ends = [np.load(tmp_path / name / "checkpoint.npz") for name in ("whole", "cut")]
    assert ends[0].files == ends[1].files
    for name in ends[0].files:
        if name != "loader":
            assert np.allclose(ends[0][name], ends[1][name], rtol=1e-5, atol=1e-6), name

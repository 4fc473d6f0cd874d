"""A whole training on a real device: examples/recipes/train.py, killed and continued, compiled, and as a CUDA graph."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import PHOTOS, TOP
from PIL import Image

import stoker

sys.path.insert(0, str(TOP / "python" / "frameworks"))
import ranks  # type: ignore[import-not-found,unused-ignore]

pytestmark = pytest.mark.gpu

WHERE = "cuda"
SCRIPT = TOP / "examples" / "recipes" / "train.py"
SAMPLES, BATCH = 96, 8
ARGS = ("--device", WHERE, "--loader", "stoker", "--samples", SAMPLES, "--batch-size", BATCH, "--workers", 2)
TOLD = re.compile(
    r"samples ([\d,]+) in ([\d.]+) s, (\d+) steps, last loss (\S+)\n +waited for data ([\d.]+)% of the time"
)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs in four classes."""
    root = tmp_path_factory.mktemp("pictures")
    for number, path in enumerate(PHOTOS[:4]):
        (root / path.stem).mkdir()
        with Image.open(path) as photo:
            small = photo.convert("RGB").resize((240, 180))
        for i in range(SAMPLES // 4):
            small.rotate(3 * i + number).save(root / path.stem / f"{i:02d}.jpg")
    return root


def told(text: str) -> tuple[str, ...]:
    found = TOLD.search(text)
    assert found, text[-4000:]
    return found.groups()


@pytest.mark.parametrize("model", ["resnet50"])
def test_training_is_killed_and_continues(pictures: Path, tmp_path: Path, record_property: Any, model: str) -> None:
    """Three epochs, killed in the second: the ids of every step and the receipts are those of an undisturbed one."""
    args = ("--data", pictures, *ARGS, "--model", model, "--epochs", 3)
    whole = ranks.run(SCRIPT, *args, out=tmp_path / "whole", world=1, cuda=True)
    cut = ranks.run(SCRIPT, *args, out=tmp_path / "cut", world=1, kill_at=17, cuda=True)
    rest = ranks.run(SCRIPT, *args, "--resume", out=tmp_path / "cut", world=1, cuda=True)
    assert "resumed after step 15, in epoch 1" in rest.text
    assert ranks.continues(whole, cut, rest) == {"epoch": 1, "step": 3}
    assert whole.epoch(0) == whole.epoch(1) == whole.epoch(2) == list(range(SAMPLES))
    samples, seconds, steps, _, waited = told(whole.text)
    assert (samples, steps) == (str(3 * SAMPLES), "36")
    record_property("training: samples a second", float(samples) / float(seconds))
    record_property("training: percent of the time that it waited for data", float(waited))
    print(whole.text[-800:])
    dataset = stoker.ImageFolder(pictures)
    made: Any = stoker.DataLoader
    with made(dataset, BATCH, shuffle=True, drop_last=True, seed=0) as of:
        for pieces in ([whole.ranks[0][0].receipt], ranks.receipts(cut, rest)):
            verdict = stoker.verify_receipts(pieces, of)
            assert verdict["ok"], verdict
            assert verdict["complete"], verdict
            assert [epoch["covered"] for epoch in verdict["epochs"]] == [[[0, SAMPLES]]] * 3


@pytest.mark.parametrize("how", ["as it is", "compiled", "a graph"])
def test_training(pictures: Path, record_property: Any, how: str) -> None:
    """Some steps. Without a C compiler, the compiled one takes a backend that needs none, and the record says so."""
    more: list[str] = []
    if how == "compiled":
        backend = "inductor" if any(map(shutil.which, ("cc", "gcc", "clang"))) else "aot_eager"
        record_property("compiled by", backend)
        more = ["--compile", backend]
    if how == "a graph":
        more = ["--graph"]
    command = [sys.executable, SCRIPT, "--data", pictures, *ARGS, "--epochs", 2, *more]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    samples, _, steps, loss, _ = told(done.stdout)
    print(done.stdout[-800:])
    assert (samples, steps) == (str(2 * SAMPLES), str(2 * SAMPLES // BATCH))
    assert 0 < float(loss) < 10
    if WHERE == "cuda":
        assert "memory of the GPU" in done.stdout

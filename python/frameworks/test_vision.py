"""The examples for timm, fastai and torchvision's reference script, on two ranks: undisturbed, killed, continued."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
import torchvision
from PIL import Image
from torchvision import transforms as v1

import stoker

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import forms
from conftest import PHOTOS

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"
NAMES = ("astronaut.jpg", "chelsea.jpg", "coffee.jpg", "rocket.jpg")
N, EPOCHS = 28, 2
USUAL = ["--size", 32, "--epochs", EPOCHS, "--save-every", 2, "--workers", 1]
SMALL = ["--model", "shufflenet_v2_x0_5", *USUAL]  # no dropout: its numbers are the script's own
TIMM = ["--model", "test_resnet", *USUAL]


def of_timm(folder: Path) -> Any:
    from timm.data import create_dataset, create_transform

    dataset = create_dataset("", root=str(folder))
    dataset.transform = create_transform(32)
    return dataset


def of_torchvision(folder: Path) -> Any:
    return torchvision.datasets.ImageFolder(str(folder), v1.Compose([v1.CenterCrop(32), v1.ToTensor()]))


@dataclass
class Case:
    """``dataset`` is what receipts are verified with; None: a user's sampler decides the order."""

    script: str
    args: list[Any]
    dataset: Callable[[Path], Any] | None
    size: int = 3  # of a batch: there are four a rank and epoch, and four samples are left out
    kill_at: int = 7
    last: str = "last.pt"  # has the weights
    native: bool | None = None


CASES = {
    "timm": Case("timm_train.py", TIMM, of_timm, kill_at=8),
    "timm in Python": Case(
        "timm_train.py",
        [*TIMM, "--mixup", 0.8, "--auto-augment", "rand-m9-mstd0.5-inc1"],
        of_timm,
        size=2,
        kill_at=11,
        native=False,
    ),
    "timm, repeated": Case("timm_train.py", [*TIMM, "--aug-repeats", 3], None, kill_at=8),
    "fastai": Case("fastai_train.py", SMALL, stoker.ImageFolder, last="models/final.pth"),
    "fastai, accumulating": Case(
        "fastai_train.py",
        [*SMALL, "--accumulate", 6, "--save-every", 3],
        stoker.ImageFolder,
        last="models/final.pth",
    ),
    "torchvision": Case("torchvision_reference.py", [*SMALL, "--val-size", 32], of_torchvision),
    "torchvision, RASampler, version 1": Case(
        "torchvision_reference.py", [*SMALL, "--val-size", 32, "--ra-sampler", "--ra-unit", 8, "--v1"], None
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class a photograph, in small pieces."""
    root = tmp_path_factory.mktemp("classes")
    for photo in (photo for photo in PHOTOS if photo.name in NAMES):
        (root / photo.stem).mkdir()
        with Image.open(photo) as whole:
            picture = whole.convert("RGB").resize((96, 80))
        for i in range(N // len(NAMES)):
            picture.crop((i, i, 80 + i, 64 + i)).save(root / photo.stem / f"{i}.jpg")
    return root


def weights(path: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(path, weights_only=False)["model"]
    return found


@pytest.mark.parametrize("name", forms.mostly(CASES, "timm", "fastai", "torchvision, RASampler, version 1"))
def test_a_run_that_is_killed_goes_on(folder: Path, tmp_path: Path, name: str) -> None:
    """With the batches, the weights and the receipts of an undisturbed run."""
    case = CASES[name]
    given = EXAMPLES / case.script, "--data", folder, "--batch-size", case.size, *case.args
    whole = ranks.run(*given, out=tmp_path / "whole")
    cut = ranks.run(*given, out=tmp_path / "cut", kill_at=case.kill_at)
    rest = ranks.run(*given, "--resume", out=tmp_path / "cut")

    steps = N // (2 * case.size)
    for rank in whole.ranks:
        assert rank[0].places == [(epoch, step) for epoch in range(EPOCHS) for step in range(steps)]
        assert {len(one.ids) for one in rank[0].steps} == {case.size}
    ids = [Counter(whole.epoch(epoch)) for epoch in range(EPOCHS)]
    assert ids[0] != ids[1] or case.size == 2  # which samples are left out
    assert all(max(one.values()) == (1 if case.dataset else 3) for one in ids)
    assert whole.epoch(0, loader=1) == [*range(N)]  # validation has every picture, and padding is known

    at = ranks.continues(whole, cut, rest)
    assert at["epoch"] == 1
    assert at["step"] > 0
    expected, found = (weights(tmp_path / run / case.last) for run in ("whole", "cut"))
    assert all(torch.equal(found[key], expected[key]) for key in expected)
    if case.script == "fastai_train.py":  # of both ranks, in the order of the folder
        for run in ("whole", "cut"):
            gathered = torch.load(tmp_path / run / "predictions.pt")
            assert gathered["targets"].tolist() == [i for i in range(4) for _ in range(N // 4)]
            assert gathered["predictions"].shape == (N, 4)
    if case.dataset is not None:
        keywords: dict[str, Any] = {"shuffle": True, "drop_last": True, "seed": 0, "native": case.native}
        loader = stoker.DataLoader(case.dataset(folder), case.size, rank=0, world_size=2, **keywords)
        verdict = stoker.verify_receipts(ranks.receipts(cut, rest), loader)
        assert verdict["complete"], verdict


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_has_help(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), "--help"],
        env={**os.environ, "PYTHONPATH": str(Path(stoker.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert "--resume" in done.stdout

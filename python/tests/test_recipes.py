"""The training recipes of bench.recipes: both pipelines give the same kind of batches, and train; the rule by which
their curves are compared tells what differs from what does not. python/frameworks/test_presets.py has timm's."""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from conftest import PHOTOS, TOP
from forms import mostly
from torchvision.transforms import v2

import stoker
from stoker._split import split

sys.path.insert(0, str(TOP))
from bench.recipes import judge
from bench.recipes.__main__ import main, named
from bench.recipes.recipes import RECIPES
from bench.recipes.train import Options, open_loader, train, where

USUAL = ("resnet50", "vit", "simclr")
SMALL = [photo for photo in PHOTOS if photo.name in ("astronaut.jpg", "chelsea.jpg", "coffee.jpg", "rocket.jpg")]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class a photograph, each under sixteen names."""
    root = tmp_path_factory.mktemp("classes")
    for photo, i in itertools.product(SMALL, range(16)):
        path = root / photo.stem / f"{i}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(photo)
    return root


def opened(tree: Path, recipe: str, loader: str) -> tuple[Options, Any, int]:
    options = Options(recipe, loader, str(tree), seed=3, size=32, batch=8, workers=1)
    torch.manual_seed(options.seed)
    found, classes = open_loader(options)
    assert classes == len(SMALL)
    return options, found, classes


def kind(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    return [kind(one) for one in value]


@pytest.mark.parametrize("recipe", USUAL)
def test_both_pipelines_give_the_same_kind_of_batches(tree: Path, recipe: str) -> None:
    """And stoker's is native, mixing and all."""
    (images, labels), (want, wanted) = (next(iter(opened(tree, recipe, loader)[1])) for loader in ("stoker", "torch"))
    assert (kind(images), kind(labels)) == (kind(want), kind(wanted))
    if RECIPES[recipe].of_batch:
        assert torch.allclose(labels.sum(1), torch.ones(8))
    _, loader, _ = opened(tree, recipe, "stoker")
    assert where(loader) == "the engine"


@pytest.mark.parametrize(
    ("recipe", "loader"), mostly(itertools.product(USUAL, ["stoker", "torch"]), ("simclr", "stoker"))
)
def test_both_pipelines_train(tree: Path, recipe: str, loader: str) -> None:
    options, found, classes = opened(tree, recipe, loader)
    losses = [step.loss for step in itertools.islice(train(options, found, classes), 64)]
    assert all(map(math.isfinite, losses))
    first, last = sum(losses[:16]), sum(losses[-16:])
    assert last < 0.97 * first


def test_the_references_preset_is_native(tree: Path) -> None:
    """It ends with ToPureTensor, after erasing: from stoker's folder, and from torchvision's own."""
    steps = v2.Compose(
        [
            v2.RandomResizedCrop(32, antialias=True),
            v2.TrivialAugmentWide(interpolation=v2.InterpolationMode.BILINEAR),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2)),
            v2.RandomErasing(p=1.0),
            v2.ToPureTensor(),
        ]
    )
    for data in (stoker.ImageFolder(tree, steps), torchvision.datasets.ImageFolder(str(tree), steps)):
        loader = stoker.DataLoader(data, 8, seed=1)
        assert where(loader) == "the engine"
        images, _ = next(iter(loader))
        assert images.dtype == torch.float32
        assert ((images == 0).all(1).flatten(1).sum(1) > 0).all()  # each was erased


def test_what_a_policy_does_not_have_is_said() -> None:
    policy = v2.RandAugment(interpolation=v2.InterpolationMode.BICUBIC)
    _, tail = split(v2.Compose([v2.RandomResizedCrop(32), policy, v2.PILToTensor()]), "here")
    assert tail is not None
    assert tail.why() == "transform RandAugment: interpolation cannot be 'bicubic'"


def curves(draw: random.Random, shift: float) -> list[list[float]]:
    return [[draw.gauss(shift, 1) for _ in range(12)] for _ in range(4)]


def test_the_rule_tells_what_differs() -> None:
    """Of pipelines that are the same, one in a hundred fails; of those three deviations apart, one in twenty passes."""
    draw = random.Random(5)
    for shift, least, most in ((0.0, 0.97, 1.0), (3.0, 0.0, 0.05)):
        agreed = sum(judge.judge(curves(draw, shift), curves(draw, 0)).agree for _ in range(500))
        assert least <= agreed / 500 <= most, shift


def test_the_rule_looks_at_every_block() -> None:
    same = [[1.0, 0.8, 0.6, 0.5], [1.1, 0.7, 0.6, 0.5]]
    assert judge.judge(same, same).worst == 0
    late = [[1.0, 0.8, 0.6, 0.5 + more] for more in (0.3, 0.31)]
    found = judge.judge(late, same)
    assert not found.agree
    assert found.worst == pytest.approx(0.305 / 0.01)  # the two seeds of `same` are equal there and beside it
    with pytest.raises(ValueError, match="no spread"):
        judge.judge(same[:1], same)
    assert judge.smooth([1, 3, 5, 7, 9], 2) == [2, 6]


def test_classes_are_folders_or_fifths_by_warmth(tree: Path, tmp_path: Path) -> None:
    assert {name for name, _ in named(tree)} == {photo.stem for photo in SMALL}
    for photo in PHOTOS:
        (tmp_path / photo.name).symlink_to(photo)
    found = {path.stem: name for name, path in named(tmp_path)}
    assert set(found.values()) == {f"warmth_{i}" for i in range(5)}
    assert found["retina"] == "warmth_4"  # the reddest


@pytest.mark.long
def test_the_driver_compares(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "found.json"
    short = ["--steps", "16", "--block", "4", "--seeds", "2", "--size", "32", "--batch", "8", "--retries", "0"]
    main(["--data", str(tree), "--out", str(out), "--only", "simclr", *short])
    assert "simclr: stoker's samples are made by the engine" in capsys.readouterr().out
    found = json.loads(out.read_text())
    assert {(run["recipe"], run["pipeline"]) for run in found["runs"]} == {
        ("simclr", side) for side in ("stoker", "torch", "control")
    }
    for run in found["runs"]:
        assert [len(losses) for losses in run["losses"]] == [16, 16]
        assert all(rate > 0 for rate in run["per_wall"] + run["per_cpu"])
    verdict = found["verdicts"]["simclr"]["stoker"]
    worst = max(a / s for a, s in zip(verdict["apart"], verdict["spread"], strict=True))
    assert verdict["worst"] == pytest.approx(worst, rel=0.01)
    assert verdict["agree"] == (worst <= 1)
    assert found["figures"]["simclr over torch, images/CPU-s"] > 0

"""bench.recipes' recipes with timm's create_transform and Mixup: both pipelines give the same batches, and train."""

from __future__ import annotations

import itertools
import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from bench.recipes.recipes import RECIPES
from bench.recipes.train import Options, open_loader, train, where
from conftest import PHOTOS

TIMMS = ("deit", "timm")
SMALL = [photo for photo in PHOTOS if photo.name in ("astronaut.jpg", "chelsea.jpg", "coffee.jpg", "rocket.jpg")]
REASON = "transform RandAugment of timm is not known"


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
    random.seed(options.seed)
    found, classes = open_loader(options)
    return options, found, classes


@pytest.mark.parametrize("recipe", TIMMS)
def test_both_pipelines_give_the_same_kind_of_batches(tree: Path, recipe: str) -> None:
    _, loader, _ = opened(tree, recipe, "stoker")
    assert REASON in where(loader) if recipe == "deit" else where(loader) == "the engine"
    (images, labels), (want, wanted) = (next(iter(opened(tree, recipe, loader)[1])) for loader in ("stoker", "torch"))
    assert (images.shape, images.dtype) == (want.shape, want.dtype)
    assert (labels.shape, labels.dtype) == (wanted.shape, wanted.dtype)
    mixed, probabilities = RECIPES[recipe].in_loop(len(SMALL))(images, labels)  # timm writes into the batch
    assert mixed is images
    assert torch.allclose(probabilities.sum(1), torch.ones(8))


@pytest.mark.parametrize("loader", ["stoker", "torch"])
def test_both_pipelines_train(tree: Path, loader: str) -> None:
    """Not DeiT's own: its policy posterizes a picture in some hundreds to 0 bits, which Pillow 13 refuses."""
    options, found, classes = opened(tree, "timm", loader)
    losses = [step.loss for step in itertools.islice(train(options, found, classes), 64)]
    assert all(map(math.isfinite, losses))
    assert sum(losses[-16:]) < 0.97 * sum(losses[:16])

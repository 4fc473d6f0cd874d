"""timm's create_transform, natively: for evaluation the pixels that timm's own steps give, for training their
distribution of sizes and types; and what stays Python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from timm.data import create_transform

import stoker

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from conftest import PHOTOS

EVALUATION: dict[str, dict[str, Any]] = {
    "default": {},
    "bicubic": {"interpolation": "bicubic", "crop_pct": 0.95},
    "squash": {"crop_mode": "squash"},
    "border": {"crop_mode": "border", "interpolation": "bicubic"},
    "not square": {"input_size": (3, 96, 112)},
    "no augmentation": {"is_training": True, "no_aug": True, "interpolation": "bicubic"},
}
TRAINING: dict[str, dict[str, Any]] = {
    "random interpolation": {"interpolation": "random", "color_jitter": None},
    "jitter and grey": {"color_jitter": 0.3, "grayscale_prob": 0.2, "vflip": 0.5},
    "bytes": {"interpolation": "bicubic", "color_jitter": None, "use_prefetcher": True},
    "erasing with zeros": {"re_prob": 0.5},
    "erasing with noise": {"re_prob": 0.5, "re_mode": "pixel", "color_jitter_prob": 0.5, "gaussian_blur_prob": 0.5},
}
PYTHON: dict[str, dict[str, Any]] = {
    "transform RandAugment of timm is not known": {"auto_augment": "rand-m9-mstd0.5-inc1", "interpolation": "bicubic"},
    "transform AugMixAugment of timm is not known": {"auto_augment": "augmix-m5-w4-d2"},
    "transform AutoAugment of timm is not known": {"auto_augment": "3a"},
    "RandomErasing: it erases 1 to 3 boxes": {"re_prob": 0.25, "re_count": 3},
    "RandomErasing: mode cannot be 'rand'": {"re_prob": 0.25, "re_mode": "rand"},
    "random_scale_prob and random_aspect_prob": {"train_crop_mode": "rkrc", "color_jitter": None},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for i, photo in enumerate(PHOTOS):
        path = root / f"class{i % 2}" / photo.name
        path.parent.mkdir(exist_ok=True)
        path.symlink_to(photo)
    return root


def hands(loader: Any) -> Any:
    return loader._settings.hands


@pytest.mark.parametrize("name", EVALUATION)
def test_evaluation_gives_timms_pixels(folder: Path, name: str) -> None:
    given = {"input_size": 96, **EVALUATION[name]}
    theirs = torchvision.datasets.ImageFolder(str(folder), create_transform(**given))
    loader = stoker.DataLoader(theirs, len(theirs))
    assert hands(loader) is None
    ((images, labels),) = loader
    assert labels.tolist() == theirs.targets
    levels = (images - torch.stack([theirs[i][0] for i in range(len(theirs))])).abs() * 0.225 * 255
    print(f"{name}: up to {levels.max():.2f} of 255 levels, {levels.mean():.4f} in the mean")
    assert levels.max() < 1.01
    assert levels.mean() < 0.01


@pytest.mark.parametrize("name", TRAINING)
def test_training_is_native(folder: Path, name: str) -> None:
    theirs = torchvision.datasets.ImageFolder(str(folder), create_transform(96, is_training=True, **TRAINING[name]))
    loader = stoker.DataLoader(theirs, 4, seed=1)
    assert hands(loader) is None
    images, _ = next(iter(loader))
    assert images.shape == (4, 3, 96, 96)
    assert images.dtype == theirs[0][0].dtype


@pytest.mark.parametrize("why", PYTHON)
def test_what_differs_from_torchvision_is_python(folder: Path, why: str) -> None:
    transform = create_transform(96, is_training=True, **PYTHON[why])
    for data in (torchvision.datasets.ImageFolder(str(folder), transform), stoker.ImageFolder(folder, transform)):
        loader = stoker.DataLoader(data, 4, num_workers=1, seed=1)
        assert why in hands(loader).why
        images, _ = next(iter(loader))
        assert images.shape == (4, 3, 96, 96)

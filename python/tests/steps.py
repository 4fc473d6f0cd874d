"""Functions of a user's, for tests of steps of Python. Spawned workers import this module."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from PIL import Image


def small(sample: Any) -> Any:
    """A picture and its label, smaller."""
    return sample[0][:, :8, :8].float() / 255, sample[1]


def doubled(image: Any, label: Any) -> Any:
    return image, label * 2


def drawn(sample: Any, rng: Any) -> Any:
    """All generators."""
    return sample[1], rng.random(), random.random(), np.random.rand(), torch.rand(2)


def named(sample: Any) -> Any:
    return {"mean": sample[0].float().mean(), "label": sample[1], "text": f"class {sample[1]}"}


def second(sample: Any) -> Any:
    return sample[1] == 1


def same(sample: Any) -> Any:
    return sample


def nothing(sample: Any) -> Any:
    return None


def never(sample: Any) -> Any:
    return False


def several(sample: Any) -> Any:
    return np.array([True, False])


def failing(sample: Any) -> Any:
    if sample[1] == 2:
        raise KeyError("two")
    return sample[1]


def lengths(samples: Any) -> Any:
    return len(samples), [label for _, label in samples]


class Mirror:
    """A transform of pictures, as people write them."""

    def __call__(self, image: Any) -> Any:
        assert isinstance(image, Image.Image), type(image)
        return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


def bright(tensor: Any) -> Any:
    assert isinstance(tensor, torch.Tensor), type(tensor)
    return tensor * 0.5


def jitter(image: Any, rng: Any) -> Any:
    return image.point(lambda value: min(255, value + int(rng.integers(9))))


def pixels(image: Any) -> Any:
    """A PIL image as an (H, W, C) array."""
    found = np.array(image)
    return found if found.ndim == 3 else found[:, :, None]


def last(tensor: Any) -> Any:
    """A tensor whose channels are next to each other in memory."""
    return tensor.permute(1, 2, 0).contiguous().permute(2, 0, 1)


def opened(image: Any, label: Any) -> Any:
    """A picture as a PIL image."""
    return Image.fromarray(image.permute(1, 2, 0).numpy()), label


def plus_one(picture: Any) -> Any:
    return picture + 1

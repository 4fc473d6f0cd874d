"""Whole recipes of augmentations for the peers of bench.augment: the same names and numbers for all of them.

randaugment   RandomResizedCrop(224), flip, RandAugment(2, 9), RandomErasing
contrastive   two views of a picture, each cropped and flipped, with ColorJitter, grey, blur and, of the second,
              solarize: BYOL's, whose first view is SimCLR's with the blur always on

Batches are uint8. torchvision's v2 objects are what stoker and torch-tuned get; torch-pil gets those of v1.
"""

from __future__ import annotations

import sys
from typing import Any

from bench.consumer import SIZE

RECIPES = ("randaugment", "contrastive")


def chosen() -> str:
    """Takes --recipe NAME out of the command line, whose rest is the consumer's."""
    at = sys.argv.index("--recipe")
    name = sys.argv[at + 1]
    if name not in RECIPES:
        raise SystemExit(f"--recipe {name}: there are {', '.join(RECIPES)}")
    del sys.argv[at : at + 2]
    return name


def views_of(recipe: str) -> int:
    return 2 if recipe == "contrastive" else 1


def randaugment(t: Any) -> list[Any]:
    """t: torchvision's module of either version. Erasing, which v1 has for tensors only, comes after these."""
    return [t.RandomResizedCrop(SIZE, antialias=True), t.RandomHorizontalFlip(), t.RandAugment(2, 9)]


def contrastive(t: Any, second: bool) -> list[Any]:
    blur = t.GaussianBlur(23, (0.1, 2.0))
    return [
        t.RandomResizedCrop(SIZE, antialias=True),
        t.RandomHorizontalFlip(),
        t.RandomApply([t.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
        t.RandomGrayscale(0.2),
        *([t.RandomApply([blur], p=0.1), t.RandomSolarize(128, p=0.2)] if second else [blur]),
    ]


class TwoViews:
    """Two transforms of one decoded picture, as SimCLR's code has it."""

    def __init__(self, first: Any, second: Any) -> None:
        self.both = (first, second)

    def __call__(self, image: Any) -> list[Any]:
        return [transform(image) for transform in self.both]

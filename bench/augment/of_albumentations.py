"""Albumentations on uint8 arrays, rows of RGB pixels, which is what it takes; OpenCV in one thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # it asks the network for its newest version

import albumentations as A
import cv2
import numpy as np

from bench.augment.operations import SIDE, Operation
from bench.augment.serve import Opened, Pass

cv2.setNumThreads(0)

LINEAR, CUBIC = cv2.INTER_LINEAR, cv2.INTER_CUBIC


# torchvision's operation, from its arguments. What is left out has no counterpart in Albumentations. Its bicubic
# filter is not antialiased: less work than the others' where pictures become smaller.
HAS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "ColorJitter": lambda a: A.ColorJitter(
        **{key: (1 - a[key], 1 + a[key]) for key in ("brightness", "contrast", "saturation")},
        hue=(-a["hue"], a["hue"]),
        p=1,
    ),
    "GaussianBlur": lambda a: A.GaussianBlur(
        blur_limit=(a["kernel_size"], a["kernel_size"]), sigma_limit=tuple(a["sigma"]), p=1
    ),
    "RandomRotation": lambda a: A.Rotate(
        limit=(-a["degrees"], a["degrees"]), interpolation=LINEAR, border_mode=cv2.BORDER_CONSTANT, fill=0, p=1
    ),
    "RandomAffine": lambda a: A.Affine(
        scale=tuple(a["scale"]),
        translate_percent={"x": (-a["translate"][0], a["translate"][0]), "y": (-a["translate"][1], a["translate"][1])},
        rotate=(-a["degrees"], a["degrees"]),
        shear={"x": (-a["shear"], a["shear"]), "y": (0, 0)},
        interpolation=LINEAR,
        border_mode=cv2.BORDER_CONSTANT,
        fill=0,
        p=1,
    ),
    "RandomErasing": lambda _: A.Erasing(scale=(0.02, 0.33), ratio=(0.3, 3.3), fill=0, p=1),
    "RandomInvert": lambda _: A.InvertImg(p=1),
    "RandomPosterize": lambda a: A.Posterize(num_bits=(a["bits"], a["bits"]), p=1),
    "RandomSolarize": lambda a: A.Solarize(threshold_range=(a["threshold"] / 255, a["threshold"] / 255), p=1),
    "RandomAdjustSharpness": lambda _: A.Sharpen(alpha=(0.5, 0.5), lightness=(1, 1), method="kernel", p=1),
    "RandomAutocontrast": lambda _: A.AutoContrast(cutoff=0, method="pil", p=1),
    "RandomEqualize": lambda _: A.Equalize(mode="pil", p=1),
    "RandomChannelPermutation": lambda _: A.ChannelShuffle(p=1),
    "RandomPerspective": lambda a: A.Perspective(
        scale=(0, a["distortion_scale"] / 2), keep_size=True, fit_output=False, interpolation=LINEAR, p=1
    ),
    "Resize": lambda a: A.Resize(*a["size"], interpolation=CUBIC, p=1),
    "RandomResizedCrop": lambda a: A.RandomResizedCrop(size=tuple(a["size"]), interpolation=CUBIC, p=1),
    "RandomResize": lambda a: A.RandomScale(
        scale_limit=(a["min_size"] / SIDE - 1, a["max_size"] / SIDE - 1), interpolation=LINEAR, p=1
    ),
}


def open(pictures: np.ndarray) -> Opened:
    def make(operation: Operation | None, way: str) -> Pass:
        if operation is None:
            return lambda: (picture.copy() for picture in pictures)
        if operation.of not in HAS:
            raise LookupError(f"Albumentations {A.__version__} has no {operation.of}")
        transform = HAS[operation.of](operation.arguments)

        def work() -> Iterator[Any]:
            for picture in pictures:
                yield transform(image=picture.copy())["image"]

        return work

    def pixels(result: Any) -> Iterable[np.ndarray]:
        yield result

    return Opened(
        {"albumentations": A.__version__, "opencv": cv2.__version__}, ("rows",), make, pixels, {"cv2 threads": 0}
    )

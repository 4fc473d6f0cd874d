"""Kornia on float32 tensors, which is all that its augmentations take; making floats of bytes is not counted.

Ways: one picture, or 16 in a batch. Its policies choose once for a batch, so they get one picture at a time, as the
others' policies choose for each picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import kornia
import kornia.augmentation as K
import numpy as np
import torch
from kornia.augmentation import auto

from bench.augment.operations import Operation
from bench.augment.serve import THREADS, Opened, Pass

torch.set_num_threads(THREADS)

WAYS = {"one": 1, "sixteen": 16}
# Those whose choice is made for a batch.
ALONE = ("RandAugment", "TrivialAugmentWide", "AutoAugment", "RandomChannelPermutation")
SKIP = {"transformation_matrix_mode": "skip"}  # computes no matrix of the whole policy, which nobody reads

HAS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "ColorJitter": lambda a: K.ColorJitter(**a, p=1.0),
    "GaussianBlur": lambda a: K.RandomGaussianBlur((a["kernel_size"],) * 2, tuple(a["sigma"]), p=1.0),
    "RandomRotation": lambda a: K.RandomRotation(float(a["degrees"]), resample="bilinear", p=1.0),
    "RandomAffine": lambda a: K.RandomAffine(
        float(a["degrees"]), tuple(a["translate"]), tuple(a["scale"]), float(a["shear"]), resample="bilinear", p=1.0
    ),
    "RandAugment": lambda a: auto.RandAugment(n=a["num_ops"], m=a["magnitude"], **SKIP),
    "TrivialAugmentWide": lambda _: auto.TrivialAugment(**SKIP),
    "AutoAugment": lambda _: auto.AutoAugment("imagenet", **SKIP),
    "RandomErasing": lambda _: K.RandomErasing(scale=(0.02, 0.33), ratio=(0.3, 3.3), p=1.0),
    "RandomInvert": lambda _: K.RandomInvert(p=1.0),
    "RandomPosterize": lambda a: K.RandomPosterize(bits=(a["bits"], a["bits"]), p=1.0),
    "RandomSolarize": lambda _: K.RandomSolarize(thresholds=(0.5, 0.5), additions=(0.0, 0.0), p=1.0),
    "RandomAdjustSharpness": lambda _: K.RandomSharpness(sharpness=(1.0, 1.0), p=1.0),
    "RandomAutocontrast": lambda _: K.RandomAutoContrast(p=1.0),
    "RandomEqualize": lambda _: K.RandomEqualize(p=1.0),
    "RandomChannelPermutation": lambda _: K.RandomChannelShuffle(p=1.0),
    "RandomPerspective": lambda a: K.RandomPerspective(a["distortion_scale"], resample="bilinear", p=1.0),
    "Resize": lambda a: K.Resize(tuple(a["size"]), resample="bicubic", antialias=True),
    "RandomResizedCrop": lambda a: K.RandomResizedCrop(tuple(a["size"]), resample="bicubic", p=1.0),
}


def open(pictures: np.ndarray) -> Opened:
    whole = torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous().float() / 255
    inputs = {way: list(whole.split(count)) for way, count in WAYS.items()}

    def make(operation: Operation | None, way: str) -> Pass:
        batches = inputs[way]
        if operation is None:
            return lambda: (batch.clone() for batch in batches)
        if operation.of not in HAS:
            raise LookupError(f"Kornia {kornia.__version__} has no {operation.of}")
        if operation.of in ALONE and WAYS[way] > 1:
            raise LookupError("it chooses once for a batch")
        transform = HAS[operation.of](operation.arguments)

        def work() -> Iterator[Any]:
            with torch.inference_mode():
                for batch in batches:
                    yield transform(batch.clone())

        return work

    def pixels(result: Any) -> Iterable[np.ndarray]:
        return iter(result.numpy())

    versions = {"kornia": kornia.__version__, "torch": torch.__version__}
    return Opened(versions, tuple(WAYS), make, pixels, {"threads": torch.get_num_threads(), "type": "float32"})

"""DALI's operators for the CPU, in one thread: pipelines of batches that are fed from memory and run when asked.

Numbers are drawn in the pipeline, one for each picture. The policies are nvidia.dali.auto_aug's, and the operations
that DALI has no operator for are those policies' own augmentations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import nvidia.dali as dali
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.auto_aug import augmentations, auto_augment, rand_augment, trivial_augment

from bench.augment.operations import SIDE, Operation
from bench.augment.serve import THREADS, Opened, Pass

BATCH = 64
NEAREST, LINEAR, CUBIC = types.INTERP_NN, types.INTERP_LINEAR, types.INTERP_CUBIC


def uniform(low: float, high: float) -> Any:
    return fn.random.uniform(range=[low, high])


def own(name: str, **fixed: Any) -> Callable[[Any, dict[str, Any]], Any]:
    """An augmentation of auto_aug at one magnitude, which is its parameter."""
    whole = getattr(augmentations, name)
    if fixed:
        whole = whole.augmentation(mag_range=(fixed["at"], fixed["at"]), randomly_negate=False)
        return lambda images, _: whole(images, magnitude_bin=0, num_magnitude_bins=2)
    return lambda images, _: whole(images)


def affine(images: Any, a: dict[str, Any]) -> Any:
    turn, slant = uniform(-a["degrees"], a["degrees"]), uniform(-a["shear"], a["shear"])
    most = [share * SIDE for share in a["translate"]]
    matrix = fn.transforms.shear(angles=fn.stack(slant, slant * 0), center=[SIDE / 2, SIDE / 2])
    size = uniform(*a["scale"])
    matrix = fn.transforms.scale(matrix, scale=fn.stack(size, size), center=[SIDE / 2, SIDE / 2])
    matrix = fn.transforms.rotation(matrix, angle=turn, center=[SIDE / 2, SIDE / 2])
    offset = fn.stack(uniform(-most[0], most[0]), uniform(-most[1], most[1]))
    matrix = fn.transforms.translation(matrix, offset=offset)
    return fn.warp_affine(images, matrix=matrix, fill_value=0, interp_type=LINEAR, inverse_map=False)


def erase(images: Any, _: dict[str, Any]) -> Any:
    """torchvision's rule without its second attempts: a box that does not fit is cut."""
    area, ratio = uniform(0.02, 0.33), dali.math.exp(uniform(math.log(0.3), math.log(3.3)))
    shape = fn.stack(dali.math.sqrt(area * ratio), dali.math.sqrt(area / ratio))
    anchor = fn.random.uniform(range=[0.0, 1.0], shape=[2]) * dali.math.max(1 - shape, 0.0)
    return fn.erase(images, anchor=anchor, shape=shape, axis_names="HW", fill_value=0, normalized=True)


def jitter(images: Any, a: dict[str, Any]) -> Any:
    numbers = {key: uniform(1 - a[key], 1 + a[key]) for key in ("brightness", "contrast", "saturation")}
    return fn.color_twist(images, hue=uniform(-360 * a["hue"], 360 * a["hue"]), **numbers)


def crop(images: Any, a: dict[str, Any]) -> Any:
    box = {"random_area": [0.08, 1.0], "random_aspect_ratio": [3 / 4, 4 / 3], "num_attempts": 10}
    return fn.random_resized_crop(images, size=a["size"], interp_type=CUBIC, antialias=True, **box)


HAS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "ColorJitter": jitter,
    "GaussianBlur": lambda images, a: fn.gaussian_blur(
        images, window_size=a["kernel_size"], sigma=uniform(*a["sigma"])
    ),
    "RandomRotation": lambda images, a: fn.rotate(
        images, angle=uniform(-a["degrees"], a["degrees"]), keep_size=True, fill_value=0, interp_type=LINEAR
    ),
    "RandomAffine": affine,
    "RandAugment": lambda images, a: rand_augment.rand_augment(
        images, n=a["num_ops"], m=a["magnitude"], shape=[SIDE, SIDE], fill_value=0, interp_type=NEAREST
    ),
    "TrivialAugmentWide": lambda images, _: trivial_augment.trivial_augment_wide(
        images, shape=[SIDE, SIDE], fill_value=0, interp_type=NEAREST
    ),
    "AutoAugment": lambda images, _: auto_augment.auto_augment(
        images, "image_net", shape=[SIDE, SIDE], fill_value=0, interp_type=NEAREST
    ),
    "RandomErasing": erase,
    "RandomInvert": own("invert"),
    "RandomPosterize": lambda images, a: images & np.uint8(256 - 2 ** (8 - a["bits"])),
    "RandomSolarize": own("solarize", at=128),
    "RandomAdjustSharpness": own("sharpness", at=1),
    "RandomAutocontrast": own("auto_contrast"),
    "RandomEqualize": own("equalize"),
    "Resize": lambda images, a: fn.resize(images, size=a["size"], interp_type=CUBIC, antialias=True),
    "RandomResizedCrop": crop,
    "RandomResize": lambda images, a: fn.resize(
        images, resize_shorter=uniform(a["min_size"], a["max_size"]), interp_type=LINEAR, antialias=True
    ),
}


def open(pictures: np.ndarray) -> Opened:
    batches = [list(pictures[at : at + BATCH]) for at in range(0, len(pictures), BATCH)]

    def make(operation: Operation | None, way: str) -> Pass:
        if operation is not None and operation.of not in HAS:
            raise LookupError(f"DALI {dali.__version__} has no operator for it on the CPU")

        @pipeline_def(
            batch_size=BATCH,
            num_threads=THREADS,
            device_id=None,
            prefetch_queue_depth=1,
            exec_async=False,
            exec_pipelined=False,
            enable_conditionals=True,
        )
        def build() -> Any:
            images = fn.external_source(name="images", dtype=types.UINT8, ndim=3, layout="HWC")
            return images if operation is None else HAS[operation.of](images, operation.arguments)

        pipe = build()
        pipe.build()

        def work() -> Iterator[Any]:
            for batch in batches:
                pipe.feed_input("images", batch)
                (made,) = pipe.run()
                yield made

        return work

    def pixels(result: Any) -> Iterable[np.ndarray]:
        return (np.array(one) for one in result)

    return Opened({"nvidia-dali": dali.__version__}, ("64",), make, pixels, {"threads": THREADS, "batch": BATCH})

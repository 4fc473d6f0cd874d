"""timm's own transforms, by stand-ins for its classes: tests of every environment. frameworks/test_timm.py has timm."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torchvision import transforms as v1
from torchvision.transforms import InterpolationMode

import stoker
from stoker import _native
from stoker._compile import to_ops
from stoker._errors import ConfigError
from stoker._split import split

BOTH = (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)


def stand_in(name: str, module: str = "transforms", **attributes: Any) -> Any:
    """An object of a class with the name and the attributes of timm's, which does nothing."""
    body = {"__module__": f"timm.data.{module}", "__call__": lambda self, picture: picture}
    made = type(name, (), body)()
    vars(made).update(attributes)
    return made


def crop(interpolation: Any) -> Any:
    return stand_in(
        "RandomResizedCropAndInterpolation",
        size=(24, 30),
        scale=(0.3, 1.0),
        ratio=(0.75, 1.5),
        interpolation=interpolation,
    )


def keep(**changes: Any) -> Any:
    given = {
        "size": (24, 30),
        "longest": 0.0,
        "interpolation": BOTH[1],
        "random_scale_prob": 0.0,
        "random_aspect_prob": 0.0,
    }
    return stand_in("ResizeKeepRatio", **{**given, **changes})


def erasing(**changes: Any) -> Any:
    given = {
        "probability": 0.25,
        "min_area": 0.02,
        "max_area": 0.25,
        "log_aspect_ratio": (math.log(0.3), math.log(1 / 0.3)),
        "min_count": 1,
        "max_count": 1,
        "rand_color": False,
        "per_pixel": False,
    }
    return stand_in("RandomErasing", "random_erasing", **{**given, **changes})


ERASED = {"op": "RandomErasing", "p": 0.25, "scale": [0.02, 0.25], "ratio": [0.3, 3.33333333333]}
LAW = {"size": [24, 30], "scale": [0.3, 1.0], "ratio": [0.75, 1.5]}


@pytest.mark.parametrize(
    ("transform", "want"),
    [
        (crop(BOTH[0]), [{"op": "RandomResizedCrop", **LAW, "interpolation": "bilinear"}]),
        (crop(BOTH[1]), [{"op": "RandomResizedCrop", **LAW, "interpolation": "bicubic"}]),
        (crop(BOTH), [{"op": "RandomResizedCropAndInterpolation", **LAW}]),
        (keep(longest=1.0), [{"op": "ResizeKeepRatio", "size": [24, 30], "interpolation": "bicubic", "longest": 1.0}]),
        (
            stand_in("CenterCropOrPad", size=(24, 30), fill=[1, 2, 3], padding_mode="constant"),
            [{"op": "CenterCropOrPad", "size": [24, 30], "fill": [1.0, 2.0, 3.0], "padding_mode": "constant"}],
        ),
        (stand_in("MaybeToTensor"), [{"op": "ToTensor"}]),
        (stand_in("MaybePILToTensor"), [{"op": "PILToTensor"}]),
        (stand_in("ToNumpy"), [{"op": "PILToTensor"}]),
        (erasing(), [{**ERASED, "value": [0.0]}]),
        (
            stand_in("ToTensor", dtype=torch.float32),
            [{"op": "PILToTensor"}, {"op": "ToDtype", "dtype": "float32", "scale": False}],
        ),
    ],
    ids=lambda one: type(one).__name__ if not isinstance(one, list) else "",
)
def test_they_are_read(folder: Path, transform: Any, want: list[dict[str, Any]]) -> None:
    assert to_ops(transform, "here") == want
    data = stoker.ImageFolder(folder, [v1.Resize((40, 50)), transform])
    images, _ = next(iter(stoker.DataLoader(data, 2)))
    assert images.dtype == (
        torch.float32
        if "ToTensor" in type(transform).__name__ and "PIL" not in type(transform).__name__
        else torch.uint8
    )


@pytest.mark.parametrize(
    ("transform", "what"),
    [
        (crop(InterpolationMode.LANCZOS), "interpolation cannot be 'lanczos'"),
        (crop((InterpolationMode.BICUBIC, InterpolationMode.BICUBIC)), "at random"),
        (keep(random_scale_prob=0.5), "random_scale_prob and random_aspect_prob are not supported"),
        (keep(interpolation=BOTH), "interpolation cannot be 'random'"),
        (erasing(rand_color=True), "mode cannot be 'rand'"),
        (erasing(max_count=4), "it erases 1 to 4 boxes"),
    ],
)
def test_what_the_engine_does_not_have_is_python(transform: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        to_ops(transform, "here")
    ops, tail = split([v1.CenterCrop(50), transform], "here")
    assert [op["op"] for op in ops] == ["CenterCrop"]
    assert tail is not None
    assert what in tail.why()


def test_timms_own_policies_are_named() -> None:
    policy = type("RandAugment", (), {"__module__": "timm.data.auto_augment", "__call__": lambda self, x: x})()
    _, tail = split([crop(BOTH), policy, stand_in("MaybeToTensor")], "here")
    assert tail is not None
    assert tail.why() == "transform RandAugment of timm is not known"
    assert tail.tone is not None  # the engine makes the numbers


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([crop(BOTH), stand_in("MaybeToTensor"), v1.Normalize(0.5, 0.5)], None),
        ([crop(BOTH[0]), stand_in("MaybePILToTensor")], None),
        ([v1.PILToTensor(), stand_in("MaybeToTensor")], "MaybeToTensor is given a tensor of bytes"),
        ([v1.ToTensor(), crop(BOTH[0])], "RandomResizedCropAndInterpolation is given a tensor of floats"),
        ([crop(BOTH[0])], "gives PIL images"),
        ([crop(BOTH), stand_in("MaybeToTensor"), v1.Normalize(0.5, 0.5), erasing(per_pixel=True)], None),
        ([crop(BOTH), stand_in("MaybePILToTensor"), erasing()], None),
        ([crop(BOTH), stand_in("MaybePILToTensor"), erasing(per_pixel=True)], "RandomErasing is given a tensor of byt"),
        ([erasing(), stand_in("MaybeToTensor")], "RandomErasing is given a PIL image"),
        ([keep(random_scale_prob=0.5), v1.ToTensor()], "random_scale_prob"),
    ],
)
def test_torchvisions_datasets_with_them(folder: Path, steps: list[Any], why: str | None) -> None:
    found, reason = _native.find(
        torchvision.datasets.ImageFolder(str(folder), v1.Compose(steps)),
        {
            **dict.fromkeys(("native", "batch_sampler", "global_batch_size", "collate_fn", "worker_init_fn")),
            "batch_size": 4,
        },
        stoker._errors.Problems("here"),
    )
    assert (found is None) == (why is not None)
    assert why is None or why in reason

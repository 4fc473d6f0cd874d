"""The operations that are compared: torchvision's names and arguments, from which every peer makes its own.

Random ones act on every picture (p=1). Arguments are JSON; an interpolation is its name. HEAVY are those of the first
row of the issue's table, whose figures to reach are higher.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SIDE = 256  # pixels of a picture, both ways


@dataclass(frozen=True)
class Operation:
    name: str  # of its row
    of: str  # torchvision's class
    arguments: dict[str, Any]
    heavy: bool = False


def _sure(of: str, **arguments: Any) -> Operation:
    return Operation(of, of, {**arguments, "p": 1.0})


_BILINEAR = {"interpolation": "bilinear"}
_BICUBIC = {"size": [224, 224], "interpolation": "bicubic", "antialias": True}

OPERATIONS: dict[str, Operation] = {
    one.name: one
    for one in (
        Operation(
            "ColorJitter", "ColorJitter", {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}, True
        ),
        Operation("GaussianBlur 9", "GaussianBlur", {"kernel_size": 9, "sigma": [0.1, 2.0]}, True),
        Operation("GaussianBlur 23", "GaussianBlur", {"kernel_size": 23, "sigma": [0.1, 2.0]}, True),
        Operation("RandomRotation", "RandomRotation", {"degrees": 30, **_BILINEAR}, True),
        Operation(
            "RandomAffine",
            "RandomAffine",
            {"degrees": 15, "translate": [0.1, 0.1], "scale": [0.8, 1.2], "shear": 10, **_BILINEAR},
            True,
        ),
        Operation("RandAugment", "RandAugment", {"num_ops": 2, "magnitude": 9}, True),
        Operation("TrivialAugmentWide", "TrivialAugmentWide", {}, True),
        Operation("AutoAugment", "AutoAugment", {}, True),
        Operation("AugMix", "AugMix", {}),
        _sure("RandomErasing"),
        _sure("RandomInvert"),
        _sure("RandomPosterize", bits=4),
        _sure("RandomSolarize", threshold=128),
        _sure("RandomAdjustSharpness", sharpness_factor=2),
        _sure("RandomAutocontrast"),
        _sure("RandomEqualize"),
        Operation("RandomChannelPermutation", "RandomChannelPermutation", {}),
        _sure("RandomPhotometricDistort"),
        _sure("RandomPerspective", distortion_scale=0.5, **_BILINEAR),
        Operation("Resize bicubic", "Resize", _BICUBIC),
        Operation("RandomResizedCrop bicubic", "RandomResizedCrop", _BICUBIC),
        _sure("RandomZoomOut"),
        Operation("RandomResize", "RandomResize", {"min_size": 192, "max_size": 288}),
        Operation("RandomShortestSize", "RandomShortestSize", {"min_size": [192, 224, 256, 288]}),
        Operation("ScaleJitter", "ScaleJitter", {"target_size": [256, 256]}),
    )
}

# Times as fast as the peer that stoker must be: of heavy operations, and of the others.
REQUIRED: dict[str, tuple[float, float | None]] = {
    "torchvision": (5.0, 1.5),
    "albumentations": (1.3, 1.0),
    "dali": (1.0, None),
    "kornia": (5.0, None),
}


def torchvision_of(operation: Operation) -> Any:
    """torchvision's object (v2); only where torchvision is installed."""
    from torchvision.transforms import InterpolationMode, v2

    arguments = dict(operation.arguments)
    if "interpolation" in arguments:
        arguments["interpolation"] = InterpolationMode(arguments["interpolation"])
    return getattr(v2, operation.of)(**arguments)

"""Transforms with the names, arguments and defaults of ``torchvision.transforms.v2``.

They describe what the engine does to pictures; they hold no pixels and need no torch::

    from stoker import transforms as T

    train = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(mean, std)])

Real torchvision transforms may be used instead, or mixed with these. Pictures are bytes (uint8) until ``ToTensor``,
``ToDtype`` or ``ConvertImageDtype`` make them floats. Bilinear and bicubic are antialiased; ``nearest`` is the same as
torchvision's for tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._base import InterpolationMode
from ._batches import CutMix, MixUp
from ._colours import (
    ColorJitter,
    RandomAutocontrast,
    RandomChannelPermutation,
    RandomEqualize,
    RandomInvert,
    RandomPhotometricDistort,
    RandomPosterize,
    RandomSolarize,
)
from ._held import Compose, Identity, RandomApply, RandomChoice, RandomOrder
from ._numbers import (
    RGB,
    ConvertImageDtype,
    Grayscale,
    Normalize,
    PILToTensor,
    RandomGrayscale,
    ToDtype,
    ToImage,
    ToTensor,
)
from ._policies import AugMix, AutoAugment, AutoAugmentPolicy, RandAugment, TrivialAugmentWide
from ._shape import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from ._sizes import RandomResize, RandomShortestSize, RandomZoomOut, ScaleJitter
from ._smooth import GaussianBlur, RandomAdjustSharpness, RandomErasing
from ._views import Views
from ._warps import RandomAffine, RandomPerspective, RandomRotation

__all__ = [
    "RGB",
    "AugMix",
    "AutoAugment",
    "AutoAugmentPolicy",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "ConvertImageDtype",
    "CutMix",
    "GaussianBlur",
    "Grayscale",
    "Identity",
    "InterpolationMode",
    "MixUp",
    "Normalize",
    "PILToTensor",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomSolarize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "ScaleJitter",
    "ToDtype",
    "ToImage",
    "ToTensor",
    "TrivialAugmentWide",
    "Views",
]

for _name in __all__:
    globals()[_name].__module__ = __name__  # where users find it
del _name

if not TYPE_CHECKING:  # type checkers know every name

    def __getattr__(name: str) -> object:
        from .._elsewhere import missing

        raise missing(__name__, name, __all__)

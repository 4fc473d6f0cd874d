"""Automatic policies. Their operations are torchvision's tensor kernels; pixels are within 3 of theirs."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

from .. import _parameters as read
from .._errors import ConfigError
from ._base import Transform, real

_Fill = float | Sequence[float] | dict[Any, Any] | None
_Mode = str | int | enum.Enum

# What a policy is made of, in torchvision's objects: an object that has its own cannot be done by the engine.
_INSIDE = (
    "_AUGMENTATION_SPACE _PARTIAL_AUGMENTATION_SPACE _augmentation_space _get_random_item _get_policies "
    "_apply_image_or_video_transform _sample_dirichlet"
).split()


class AutoAugmentPolicy(enum.Enum):
    """The policies of ``AutoAugment``, by the data on which they were found."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


class _Policy(Transform):
    _on_bytes = _takes_floats = True

    def __init__(self, *, interpolation: _Mode, fill: _Fill) -> None:
        self.interpolation = interpolation
        self.fill = fill

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        for name in _INSIDE:
            if name in vars(t):
                raise read.Wrong(f"{name} of this object was replaced")
            of_class = getattr(type(t), name, None)
            inside = [make for make, _ in of_class.values()] if isinstance(of_class, dict) else [of_class]
            if not isinstance(t, _Policy) and any(map(read.foreign, inside)):
                raise read.Wrong(f"{name} of class {type(t).__name__} was replaced")
        out = read.interpolation(t)
        if out["interpolation"] not in ("nearest", "bilinear"):
            has = "the operations of policies have nearest and bilinear"
            raise read.Wrong(f"interpolation cannot be {out['interpolation']!r}", has)
        fill = read.for_images("fill", t.fill) if isinstance(t.fill, dict) else t.fill
        if fill is not None:  # which is not 0: pixels on the border are blended otherwise
            out["fill"] = read.fill(t)
        return out


class RandAugment(_Policy):
    """Applies ``num_ops`` random operations, each with the same ``magnitude`` of ``num_magnitude_bins``.

    ``fill`` is what comes in from outside the picture; None is black.
    """

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: _Mode = "nearest",
        fill: _Fill = None,
    ) -> None:
        super().__init__(interpolation=interpolation, fill=fill)
        if not isinstance(num_ops, int) or num_ops < 0:
            raise ConfigError(f"RandAugment: num_ops must be a whole number that is not negative, not {num_ops!r}")
        self.num_ops = num_ops
        self.magnitude = magnitude
        self.num_magnitude_bins = num_magnitude_bins

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {
            "num_ops": read.whole("num_ops", t.num_ops),
            "magnitude": read.index("magnitude", t.magnitude),
            "num_magnitude_bins": read.index("num_magnitude_bins", t.num_magnitude_bins),
            **_Policy._read(t),
        }


class TrivialAugmentWide(_Policy):
    """Applies one random operation, with a random magnitude of ``num_magnitude_bins``.

    ``fill`` is as in ``RandAugment``.
    """

    def __init__(self, num_magnitude_bins: int = 31, interpolation: _Mode = "nearest", fill: _Fill = None) -> None:
        super().__init__(interpolation=interpolation, fill=fill)
        self.num_magnitude_bins = num_magnitude_bins

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {
            "num_magnitude_bins": read.index("num_magnitude_bins", t.num_magnitude_bins),
            **_Policy._read(t),
        }


class AutoAugment(_Policy):
    """Applies a random one of 25 pairs of operations, each with its own probability and magnitude.

    ``policy`` is the list of pairs. ``fill`` as in ``RandAugment``.
    """

    def __init__(
        self,
        policy: str | enum.Enum = AutoAugmentPolicy.IMAGENET,
        interpolation: _Mode = "nearest",
        fill: _Fill = None,
    ) -> None:
        super().__init__(interpolation=interpolation, fill=fill)
        self.policy = policy

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        pairs = getattr(t, "_policies", None) or getattr(t, "policies", None)  # torchvision's, of v2 and v1
        if pairs is not None and pairs != t._get_policies(t.policy):
            raise read.Wrong("the list of operations of this object was changed")
        policy = t.policy.value if isinstance(t.policy, enum.Enum) else t.policy
        if policy not in [known.value for known in AutoAugmentPolicy]:
            raise read.Wrong(f"policy cannot be {policy!r}", "the policies are imagenet, cifar10 and svhn")
        return {"policy": policy, **_Policy._read(t)}


class AugMix(_Policy):
    """Blends the picture with what ``mixture_width`` chains of random operations make of it, in random shares.

    Chains have ``chain_depth`` operations, or 1 to 3 if that is not positive. ``severity``, 1 to 10, bounds the
    magnitudes, and ``alpha`` is the parameter of the distribution of the shares. Without ``all_ops``, brightness,
    contrast, colour and sharpness are left out. ``fill`` as in ``RandAugment``.
    """

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: _Mode = "bilinear",
        fill: _Fill = None,
    ) -> None:
        super().__init__(interpolation=interpolation, fill=fill)
        if not 1 <= real(self, "severity", severity) <= 10:
            raise ConfigError(f"AugMix: severity must be from 1 to 10, not {severity!r}")
        self.severity = severity
        self.mixture_width = mixture_width
        self.chain_depth = chain_depth
        self.alpha = alpha
        self.all_ops = all_ops

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        if getattr(t, "_PARAMETER_MAX", 10) != 10:
            raise read.Wrong("_PARAMETER_MAX of this object was changed")
        width, depth = read.index("mixture_width", t.mixture_width), read.index("chain_depth", t.chain_depth)
        if not 1 <= width * ((depth if depth > 0 else 3) + 1) < 30:
            raise read.Wrong(
                f"{width} chains of {depth if depth > 0 else 'up to 3'} operations are not what the engine has",
                "mixture_width is at least 1, and mixture_width * (chain_depth + 1) below 30",
            )
        return {
            "severity": read.index("severity", t.severity),
            "mixture_width": width,
            "chain_depth": depth,
            "alpha": read.number("alpha", t.alpha),
            "all_ops": bool(t.all_ops),
            **_Policy._read(t),
        }

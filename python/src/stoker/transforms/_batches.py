"""Transforms of whole batches, for ``DataLoader(batch_transform=...)``."""

from __future__ import annotations

from typing import Any

from .._errors import ConfigError
from ._base import Transform, real


class Mixing(Transform):
    def __init__(self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: Any = "default") -> None:
        name = type(self).__name__
        self.alpha = real(self, "alpha", alpha)
        if not 0 < self.alpha < float("inf"):
            raise ConfigError(f"{name}: alpha must be a positive number, not {alpha!r}")
        self.num_classes = num_classes
        if labels_getter != "default" and labels_getter is not None and not callable(labels_getter):
            raise ConfigError(f"{name}: labels_getter must be 'default', a callable, or None, not {labels_getter!r}")
        self.labels_getter = labels_getter

    def __call__(self, *inputs: Any) -> Any:
        raise ConfigError(
            f"{type(self).__name__} of stoker.transforms describes work for the engine and cannot be called",
            hint="pass it to DataLoader(batch_transform=...), or take torchvision.transforms.v2's",
        )


class MixUp(Mixing):
    """Blends each sample of a batch with the one before it; lambda is drawn from Beta(alpha, alpha).

    For ``DataLoader(batch_transform=...)``. Pictures have to be floats. Labels become probabilities of shape (batch,
    num_classes); ``num_classes`` may be None if they are probabilities already. ``labels_getter`` finds them in a
    batch: by default they are the second field, or the one called "labels" in a dict.
    """


class CutMix(Mixing):
    """Pastes a box of the sample before it into each sample of a batch. Pictures may be bytes; all else is as in
    ``MixUp``."""

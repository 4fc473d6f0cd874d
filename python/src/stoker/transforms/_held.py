"""Transforms that hold others, and the one that does nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _parameters as read
from .._errors import ConfigError
from ._base import Holder, Transform, probability, real


class Compose(Holder):
    """Applies transforms one after another."""

    def __init__(self, transforms: Sequence[Any]) -> None:
        super().__init__(transforms)


class RandomApply(Holder):
    """Applies all transforms with probability ``p``, else none."""

    def __init__(self, transforms: Sequence[Any], p: float = 0.5) -> None:
        super().__init__(transforms)
        self.p = probability(self, p)

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"p": read.number("p", t.p)}


class Identity(Transform):
    """Nothing."""


class RandomChoice(Holder):
    """Applies one of the transforms; ``p`` says how likely each is, and need not add up to 1."""

    _parts = True

    def __init__(self, transforms: Sequence[Any], p: list[float] | None = None) -> None:
        super().__init__(transforms)
        weights = [1.0] * len(transforms) if p is None else [real(self, "p", weight) for weight in p]
        if len(weights) != len(transforms):
            raise ConfigError(f"RandomChoice: p has {len(weights)} weights, and the list has {len(transforms)}")
        total = sum(weights)
        if not 0 < total < float("inf") or any(weight < 0 for weight in weights):
            raise ConfigError(f"RandomChoice: p must have no number below 0, and one above, not {p!r}")
        self.p = [weight / total for weight in weights]

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {} if t.p is None else {"p": read.numbers("p", t.p)}


class RandomOrder(Holder):
    """Applies all transforms, in random order."""

    _parts = True

    def __init__(self, transforms: Sequence[Any]) -> None:
        super().__init__(transforms)

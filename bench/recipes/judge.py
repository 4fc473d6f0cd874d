"""When two pipelines' loss curves agree within the spread of seeds. Standard library only.

Each run's losses are averaged over blocks of steps. At each block, the two pipelines' means over seeds are some
distance apart. The spread there is the largest difference between two seeds of the same pipeline, at that block or one
of its two neighbours. The curves agree if the distance is at most the spread at every block.

With four seeds and twelve blocks of normal numbers, one pair of pipelines in a hundred is said to differ that are the
same, and of those that are three standard deviations of a seed's block apart, nineteen in twenty do not pass.
test_recipes.py counts both.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Curves = Sequence[Sequence[float]]  # a run each: its losses, or their means over blocks

RULE = (
    "losses are averaged over blocks of {block} steps; at every block, the means over seeds of the two pipelines "
    "differ by no more than two seeds of one pipeline do there or in a neighbouring block"
)


def smooth(losses: Sequence[float], block: int) -> list[float]:
    """Means over blocks; what does not fill the last one is left out."""
    return [statistics.fmean(losses[at : at + block]) for at in range(0, len(losses) - block + 1, block)]


def mean(curves: Curves) -> list[float]:
    return [statistics.fmean(values) for values in zip(*curves, strict=True)]


@dataclass(frozen=True)
class Verdict:
    """At each block: how far the means are apart, and the spread of seeds."""

    apart: list[float]
    spread: list[float]

    @property
    def worst(self) -> float:
        """The largest distance over the spread; at most 1 if the curves agree."""
        return max(a / s if s else float("inf") if a else 0.0 for a, s in zip(self.apart, self.spread, strict=True))

    @property
    def agree(self) -> bool:
        return self.worst <= 1


def judge(one: Curves, other: Curves) -> Verdict:
    """Of curves over blocks: at least two seeds of each pipeline."""
    if min(len(one), len(other)) < 2:
        raise ValueError("there is no spread of less than two seeds")
    apart = [abs(a - b) for a, b in zip(mean(one), mean(other), strict=True)]
    here = [
        max(max(values) - min(values) for values in both)
        for both in zip(zip(*one, strict=True), zip(*other, strict=True), strict=True)
    ]
    spread = [max(here[max(0, at - 1) : at + 2]) for at in range(len(here))]
    return Verdict(apart, spread)

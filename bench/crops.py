"""Do all peers draw the same crops? Asked of the pixels they deliver, not of their settings.

Every peer loads ramps of the photographs' own sizes (bench.ramps) through its usual pipeline, the consumer reads area,
shape and flip of each crop off the slopes, and here they are held against torchvision's rule, drawn many times more.
A peer whose crops are smaller decodes less and looks faster.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import pictures, rig

SAMPLES = 4096
DRAWS = 200_000
KS_LIMIT = 2.2 / math.sqrt(SAMPLES)  # one chance in ten thousand for an honest peer
SLACK = 0.004  # of the distance: what reading slopes off eight-bit pixels may add


def make(data: Path, python: Path, batch: int) -> tuple[pictures.Tree, list[list[int]]]:
    """The tree of ramps for the pictures of DATA, and their widths and heights."""
    key = pictures.build(data, 1, batch).root.parent.name
    out = pictures.cache_dir() / f"ramps-{key}"
    if not (out / "sizes.json").exists():
        out.mkdir(exist_ok=True)
        subprocess.run([python, "-m", "bench.ramps", data, out], cwd=rig.ROOT, check=True)
    tree = pictures.build(out / "ramps", SAMPLES, batch)
    return tree, json.loads((out / "sizes.json").read_text())


def expected(sizes: Sequence[Sequence[int]]) -> tuple[list[float], list[float]]:
    """Area shares and log ratios (of the width share to the height share) by torchvision's get_params, sorted."""
    rng = random.Random(1)
    areas, ratios = [], []
    for i in range(DRAWS):
        width, height = sizes[i % len(sizes)]
        for _ in range(10):
            area = width * height * rng.uniform(0.08, 1.0)
            ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                break
        else:
            w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
        areas.append(w * h / width / height)
        ratios.append(math.log(w / width * height / h))
    return sorted(areas), sorted(ratios)


def distance(sample: Sequence[float], reference: Sequence[float]) -> float:
    """Kolmogorov and Smirnov's: the largest gap between the two distributions."""
    n, m = len(sample), len(reference)
    worst = 0.0
    for i, value in enumerate(sorted(sample)):
        share = bisect_right(reference, value) / m
        worst = max(worst, abs(share - i / n), abs(share - (i + 1) / n))
    return worst


def judge(mark: dict[str, Any], areas: Sequence[float], ratios: Sequence[float]) -> dict[str, Any]:
    n = len(mark["area"])
    flips = mark["flips"] / n
    by_area, by_ratio = distance(mark["area"], areas), distance(mark["ratio"], ratios)
    limit = KS_LIMIT + SLACK
    return {
        "samples": n,
        "mean_area": sum(mark["area"]) / n,
        "expected_mean_area": sum(areas) / len(areas),
        "flipped": flips,
        "ks_area": by_area,
        "ks_ratio": by_ratio,
        "limit": limit,
        "equal": by_area < limit and by_ratio < limit and abs(flips - 0.5) < 4 * math.sqrt(0.25 / n),
    }

"""What torchvision draws, for TestSizesAreTorchvisions and TestNumbersFollowTorchvision.

    PYTHONPATH=python/src .venv/bin/python internal/stage/transform/testdata/sizes.py   # from the repository root

writes sizes.json beside itself: the sizes and paddings that torchvision's make_params computes from given draws, and
histograms of the numbers that operations choose, over 100,000 draws each.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torchvision
from stoker._compile import to_ops
from torchvision.transforms import v2

HERE = Path(__file__).parent
PICTURES = [
    (120, 90),
    (61, 97),
    (500, 375),
    (333, 500),
    (640, 427),
    (1, 1),
    (3, 401),
    (2000, 1499),
]
DRAWS = 100_000


def op(transform: Any) -> dict[str, Any]:
    return to_ops(transform, "")[0]


def picture(w: int, h: int) -> list[Any]:
    return [torch.empty(1, 1, 1, dtype=torch.uint8).expand(3, h, w)]


@contextmanager
def given(draws: list[float]) -> Iterator[None]:
    """torch.rand and torch.randint give these numbers."""
    left = iter(draws)

    def rand(n: int) -> torch.Tensor:
        return torch.tensor([next(left) for _ in range(n)], dtype=torch.float32)

    def randint(*bounds: Any) -> torch.Tensor:
        return torch.tensor((bounds[0] if len(bounds) == 3 else 0) + int(next(left)))

    with mock.patch("torch.rand", rand), mock.patch("torch.randint", randint):
        yield


def sizes() -> list[dict[str, Any]]:
    some = torch.Generator().manual_seed(18)
    out: list[dict[str, Any]] = []

    def add(transform: Any, w: int, h: int, draws: list[float]) -> None:
        with given(draws):
            params = transform.make_params(picture(w, h))
        result = params.get("padding") or list(params["size"])
        if len(result) == 1:  # the length of the shorter edge
            short, long = min(w, h), max(w, h)
            longer = int(result[0] * long / short)
            result = [longer, result[0]] if w <= h else [result[0], longer]
        if min(result) > 0 or "padding" in params:
            out.append(
                {"op": op(transform), "w": w, "h": h, "draws": draws, "result": result}
            )

    def singles(n: int) -> list[float]:
        return [float(u) for u in torch.rand(n, generator=some)]

    def whole(most: int) -> float:
        return int(torch.randint(most, (), generator=some))

    for w, h in PICTURES:
        add(v2.RandomResize(224, 480), w, h, [whole(256)])
        add(v2.RandomResize(7, 8), w, h, [0])
        shorter = [480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800]
        for most in (None, 1333, 500):
            add(v2.RandomShortestSize(shorter, most), w, h, [whole(11)])
        add(v2.RandomShortestSize(33), w, h, [0])
        for scale in ((0.1, 2.0), (1.0, 1.0), (0.3, 0.8), (0.7, 0.7)):
            for target in ((1024, 1024), (224, 224), (300, 200)):
                for u in (*singles(3), 0.0, 1 - 2.0**-24):
                    add(v2.ScaleJitter(target, scale), w, h, [u])
        for side in ((1.0, 4.0), (1.3, 1.3), (1.0, 1.01)):
            for _ in range(4):
                add(v2.RandomZoomOut(0, side, 1.0), w, h, singles(3))
            add(v2.RandomZoomOut(0, side, 1.0), w, h, [1 - 2.0**-24] * 3)
    return out


def histogram(
    transform: Any, w: int, h: int, numbers: dict[str, list[int]]
) -> dict[str, Any]:
    """Counts of each number in 20 bins of its range, and of the first two together in 5 x 5."""
    ranges = {name: [min(values), max(values) + 1] for name, values in numbers.items()}

    def bins(name: str, n: int) -> list[int]:
        low, high = ranges[name]
        return [(value - low) * n // (high - low) for value in numbers[name]]

    counts = {}
    for name in numbers:
        counts[name] = torch.bincount(
            torch.tensor(bins(name, 20)), minlength=20
        ).tolist()
    two = list(numbers)[:2]
    if len(two) == 2:
        joint = torch.tensor(bins(two[0], 5)) * 5 + torch.tensor(bins(two[1], 5))
        counts["joint"] = torch.bincount(joint, minlength=25).tolist()
    return {
        "op": op(transform),
        "w": w,
        "h": h,
        "draws": DRAWS,
        "ranges": ranges,
        "numbers": two,
        "counts": counts,
    }


def histograms() -> list[dict[str, Any]]:
    torch.manual_seed(20261123)
    out = []

    def params(transform: Any, w: int, h: int, names: list[str]) -> None:
        one = picture(w, h)
        rows = []
        for _ in range(DRAWS):
            made = transform.make_params(one)
            row = made.get("padding") or list(made["size"])
            if len(row) == 1:
                row = [row[0] * h // min(w, h), row[0] * w // min(w, h)]
            rows.append(row)
        out.append(
            histogram(
                transform,
                w,
                h,
                {name: [row[i] for row in rows] for i, name in enumerate(names)},
            )
        )

    to, pad = (
        ["to_height", "to_width"],
        ["pad_left", "pad_top", "pad_right", "pad_bottom"],
    )
    params(v2.RandomResize(40, 90), 120, 90, to)
    params(v2.RandomShortestSize([40, 47, 50, 61, 62], 80), 120, 90, to)
    params(v2.ScaleJitter((300, 200)), 500, 375, to)
    params(v2.ScaleJitter((300, 300), (0.5, 0.9)), 333, 500, to)
    params(v2.RandomZoomOut(0, p=1.0), 120, 90, pad)
    params(v2.RandomZoomOut(0, (1.5, 2.0), 1.0), 61, 97, pad)

    def held(make: Callable[[list[Any]], Any], n: int, name: str) -> None:
        done: list[int] = []
        recording = make([v2.Lambda(lambda x, i=i: done.append(i)) for i in range(n)])
        orders = {order: i for i, order in enumerate(itertools.permutations(range(n)))}
        values = []
        for _ in range(DRAWS):
            done.clear()
            recording(None)
            values.append(done[0] if len(done) == 1 else orders[tuple(done)])
        out.append(
            histogram(
                make([v2.RandomVerticalFlip() for _ in range(n)]),
                10,
                10,
                {name: values},
            )
        )

    held(lambda some: v2.RandomChoice(some), 7, "chosen")
    held(lambda some: v2.RandomChoice(some, [3, 0, 1, 0.5]), 4, "chosen")
    held(lambda some: v2.RandomOrder(some), 3, "order")
    held(lambda some: v2.RandomOrder(some), 5, "order")
    return out


if __name__ == "__main__":
    made = {
        "torchvision": torchvision.__version__,
        "sizes": sizes(),
        "histograms": histograms(),
    }
    (HERE / "sizes.json").write_text(json.dumps(made) + "\n")

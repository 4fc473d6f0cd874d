"""Augmentations of the engine against torchvision's tensor kernels, by the choices that ``explain`` tells."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from forms import ALL, param, thinned
from needs import needs
from reads import PHOTOS

import stoker
from stoker import transforms as T

needs("torchvision")
from replay import OPERATIONS, of_one_law  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

SIZES = [(1, 1), (1, 7), (5, 2), (3, 3), (64, 49), (131, 200)]

# The operation, and how far values may be apart, in all but one of a thousand pixels and in any.
CASES: list[tuple[Any, int, int]] = [
    (v2.ColorJitter(0.4), 1, 1),
    (v2.ColorJitter(contrast=(0.2, 3)), 1, 1),
    (v2.ColorJitter(saturation=(0, 4)), 1, 1),
    (v2.ColorJitter(hue=0.5), 2, 2),
    (v2.RandomAdjustSharpness(0, p=1.0), 1, 1),
    (v2.RandomAdjustSharpness(3.3, p=0.5), 1, 1),
    (v2.RandomAutocontrast(1.0), 1, 1),
    (v2.RandomChannelPermutation(), 0, 0),
    (v2.RandomEqualize(1.0), 0, 0),
    (v2.RandomErasing(value=77), 0, 0),
    (v2.RandomInvert(), 0, 0),
    (v2.RandomPosterize(3, p=1.0), 0, 0),
    (v2.RandomSolarize(128, p=1.0), 0, 0),
]


def named(case: Any) -> str:
    return type(case).__name__ if isinstance(case, v2.Transform) else ""


def made(transform: list[Any], **settings: Any) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """The pictures of one batch, (N, C, H, W), and what was chosen for each."""
    data = stoker.files(PHOTOS * 4, transform=transform, **settings)
    loader = stoker.DataLoader(data, batch_size=len(PHOTOS) * 4, seed=11)
    (batch,) = loader
    rows = loader.explain(0)["rows"]
    return batch[0].numpy(), [{choice["op"]: choice for choice in row["choices"]["image"]} for row in rows]


def resized(size: tuple[int, int], gray: bool) -> list[Any]:
    return [T.Resize(size), T.Grayscale(1)] if gray else [T.Resize(size)]


@functools.cache
def plain(size: tuple[int, int], gray: bool) -> np.ndarray:
    """The pictures that ``made`` gives with nothing after ``resized``."""
    before: np.ndarray = made(resized(size, gray))[0].copy()
    return before


@thinned
@pytest.mark.parametrize("gray", [False, True])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("transform", "most", "worst"), CASES, ids=lambda case: named(case) or str(case))
def test_pixels_are_torchvisions(transform: Any, most: int, worst: int, size: tuple[int, int], gray: bool) -> None:
    torch = needs("torch")
    after, choices = made([*resized(size, gray), transform])
    name = type(transform).__name__
    for picture, got, chosen in zip(plain(size, gray), after, choices, strict=True):
        want = OPERATIONS[name](torch.from_numpy(picture.copy()), chosen[name], transform).numpy()
        apart = np.abs(got.astype(int) - want)
        assert np.quantile(apart, 0.999) <= most
        assert apart.max() <= worst, chosen[name]


# Draws.


def _jitter(params: dict[str, Any]) -> list[float]:
    order = [int(i) + 1 for i in params["fn_idx"]]
    named = (params[f"{name}_factor"] for name in ("brightness", "contrast", "saturation", "hue"))
    return [*named, float("".join(map(str, order)))]


def _distort(params: dict[str, Any]) -> list[float]:
    still = {"brightness": 1, "contrast": 1, "saturation": 1, "hue": 0}
    amounts = [still[name] if params[f"{name}_factor"] is None else params[f"{name}_factor"] for name in still]
    order = params["channel_permutation"]
    digits = 123 if order is None else int("".join(str(int(i) + 1) for i in order))
    before = params["contrast_before"]
    return [*amounts, float(before), float(digits)]


DRAWN: list[tuple[Any, Any]] = [
    (v2.ColorJitter(0.4, (0.2, 3), (0, 4), 0.5), _jitter),
    (v2.RandomChannelPermutation(), lambda p: [float("".join(str(int(i) + 1) for i in p["permutation"]))]),
    (v2.RandomPhotometricDistort(p=0.3), _distort),
]


@pytest.mark.parametrize(("transform", "numbers"), [DRAWN[0], *map(param, DRAWN[1:])], ids=named)
def test_draws_follow_torchvisions_law(transform: Any, numbers: Any) -> None:
    torch = needs("torch")
    draws = 100_000 if ALL else 2000
    picture = torch.zeros(3, 4, 4, dtype=torch.uint8)
    torch.manual_seed(5)
    theirs = np.array([numbers(transform.make_params([picture])) for _ in range(draws)])
    data = stoker.files([PHOTOS[0]] * draws, transform=[transform])
    loader = stoker.DataLoader(data, batch_size=draws, seed=3)
    rows = loader.explain(0)["rows"]
    ours = np.array([[float(v) for k, v in row["choices"]["image"][0].items() if k != "op"] for row in rows])
    of_one_law(ours, theirs)

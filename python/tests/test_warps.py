"""Rotations, affine maps and perspectives of the engine against torchvision's tensor kernels."""

from __future__ import annotations

import functools
import math
from itertools import combinations, cycle, product
from typing import Any

import numpy as np
import pytest
from forms import ALL, long, mostly, param
from needs import needs
from reads import PHOTOS

import stoker
from stoker import transforms as T

torch = needs("torch")
needs("torchvision")
import torchvision.transforms as v1  # noqa: E402
from replay import OPERATIONS, of_one_law, products_are_rounded  # noqa: E402
from test_augmentations import resized  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import _geometry  # noqa: E402

CORNERS = ("top_left", "top_right", "bottom_right", "bottom_left")
TINY = [(1, 1), (1, 7), (5, 2), (3, 3)]
SIZES = [(64, 49), (131, 200), (301, 300)]

CASES: list[Any] = [
    v2.RandomRotation(180),
    v2.RandomRotation(180, expand=True, fill=(3, 100, 250)),
    v2.RandomRotation((-30, 700), "bilinear", center=(3, 4.5), fill=77),
    v2.RandomRotation(45, "bilinear", expand=True, fill=None),
    v2.RandomRotation((90, 90), "bilinear", expand=True),
    v2.RandomRotation((180, 180), fill=3),
    v2.RandomRotation((270, 270), "bilinear", fill={"others": 3.5}),
    v2.RandomAffine(20, (0.1, 0.3), (0.5, 2), 30),
    v2.RandomAffine(180, shear=(-20, 20, 0, 40), interpolation="bilinear", fill=200),
    v2.RandomAffine(0, (0.5, 0.5), interpolation="bilinear", fill=None),
    v2.RandomAffine(0, (0.9, 1), fill=9, center=[0, 0]),
    v2.RandomAffine(0, shear=(89.99, 90), scale=(0.001, 0.01), interpolation="bilinear", fill=5),
    v2.RandomPerspective(0.5, 1.0),
    v2.RandomPerspective(0.95, 1.0, fill=None),
    v2.RandomPerspective(0.7, 0.5, "nearest", fill=(1, 2, 3)),
]


# Of these, whole rows come from halfway between two pixels, where torchvision's float32 decides for one of them.
HALFWAY: list[Any] = [
    v2.RandomRotation((90, 90)),
    v2.RandomRotation((270, 270), center=(20, 30), fill=5),
    v2.RandomRotation((30, 30), expand=True, fill=9),
    v2.RandomAffine(0, scale=(0.5, 0.5)),
    v2.RandomAffine(0, scale=(2, 2), fill=77),
    v2.RandomAffine(0, (0.2, 0.2), (1.5, 1.5)),
    v2.RandomAffine(0, scale=(0.75, 0.75), center=(3, 4.5)),
    v2.RandomAffine(0, shear=(45, 45)),
    v2.RandomAffine(0, shear=(0, 0, 45, 45), center=(0, 0), fill=3),
    v2.RandomAffine(0, shear=(SHEAR := math.degrees(math.atan(0.2)), SHEAR), center=(0, 0)),
]


def made(transform: list[Any]) -> tuple[list[np.ndarray], list[dict[str, Any]]]:
    """The pictures, (C, H, W), and what was chosen for each."""
    data = stoker.files(PHOTOS * 3, transform=transform)
    loader = stoker.DataLoader(data, batch_size=None, seed=11)
    pictures = [sample[0].numpy() for sample in loader]
    told = [loader.explain(at)["rows"][0] for at in range(len(PHOTOS) * 3)]
    return pictures, [{choice["op"]: choice for choice in row["choices"]["image"]} for row in told]


@functools.cache
def plain(size: tuple[int, int], gray: bool) -> list[np.ndarray]:
    """The pictures that ``compare`` transforms, before that."""
    return [picture.copy() for picture in made(resized(size, gray))[0]]


def has_area(choice: dict[str, Any]) -> bool:
    """Whether no three corners are on a line."""
    at = [complex(choice[f"{name}_x"], choice[f"{name}_y"]) for name in CORNERS]
    return all(((b - a) * (c - a).conjugate()).imag for a, b, c in combinations(at, 3))


def compare(transform: Any, size: tuple[int, int], gray: bool) -> tuple[int, int]:
    """How many pixels there are, and how many are further apart than allowed."""
    after, choices = made([*resized(size, gray), transform])
    name = type(transform).__name__
    most = 0 if transform.interpolation == "nearest" else 1
    pixels = off = 0
    for picture, got, chosen in zip(plain(size, gray), after, choices, strict=True):
        want = picture  # of corners that no perspective has: torchvision fails there, or makes anything
        if name != "RandomPerspective" or has_area(chosen[name]) and min(size) > 1:
            want = OPERATIONS[name](torch.from_numpy(picture.copy()), chosen[name], transform).numpy()
        assert got.shape == want.shape, chosen
        off += int((np.abs(got.astype(int) - want).max(0) > most).sum())
        pixels += got[0].size
    return pixels, off


# torchvision refuses a fill of three channels for one.
COLOURS = [(t, gray) for t in CASES for gray in (False, True) if not (gray and isinstance(t.fill, tuple))]


@pytest.mark.parametrize(
    ("transform", "gray", "size"),
    mostly(
        [(*each, size) for each in COLOURS for size in SIZES],
        *((*each, size) for each, size in zip(COLOURS[::3], cycle(SIZES), strict=False)),
    ),
    ids=str,
)
def test_pixels_are_torchvisions(transform: Any, gray: bool, size: tuple[int, int]) -> None:
    pixels, off = compare(transform, size, gray)
    equal = transform.interpolation == "nearest" and not isinstance(transform, v2.RandomPerspective)
    assert off <= (0 if equal and products_are_rounded() else pixels / 1000)


SQUARES = [(32, 32), (225, 225), *SIZES]


@pytest.mark.parametrize(
    ("transform", "size"), mostly(product(HALFWAY, SQUARES), *zip(HALFWAY[::2], SQUARES, strict=True)), ids=str
)
def test_of_two_nearest_pixels_torchvisions(transform: Any, size: tuple[int, int]) -> None:
    pixels, off = compare(transform, size, False)
    assert off <= (0 if products_are_rounded() else pixels / 20)


@pytest.mark.parametrize(
    ("transform", "size"), mostly(product(CASES, TINY), *zip(CASES[::3], cycle(TINY), strict=False)), ids=str
)
def test_tiny_pictures(transform: Any, size: tuple[int, int]) -> None:
    """A place halfway between two pixels has no nearest: torchvision's float32 falls on either side, and such places
    are many where corners are whole numbers and pictures tiny."""
    pixels, off = compare(transform, size, False)
    halfway = isinstance(transform, v2.RandomPerspective) and transform.interpolation == "nearest"
    assert off <= (pixels / 10 if halfway else 0)


@long
def test_objects_of_version_1() -> None:
    for old, new in [
        (v1.RandomRotation(30, fill=None), v2.RandomRotation(30, fill=0)),
        (v1.RandomAffine(3, (0.1, 0.1), (1, 2), 5, fill=4), v2.RandomAffine(3, (0.1, 0.1), (1, 2), 5, fill=4)),
        (v1.RandomPerspective(0.3, 0.9), v2.RandomPerspective(0.3, 0.9)),
    ]:
        assert made([T.Resize((20, 30)), old])[1] == made([T.Resize((20, 30)), new])[1]


def test_a_filter_of_pil_runs_in_python() -> None:
    data = stoker.files(PHOTOS[:2], transform=[T.Resize((20, 30)), v2.RandomRotation((90, 90), "bicubic")])
    (batch,) = stoker.DataLoader(data, batch_size=2, seed=1)
    assert batch[0].shape == (2, 3, 20, 30)
    with pytest.raises(stoker.ConfigError, match="interpolation cannot be 'bicubic'"):
        stoker.DataLoader(stoker.files(PHOTOS, transform=[T.RandomRotation(3, "bicubic")]), batch_size=2)


# Draws.

HEIGHT, WIDTH = 40, 61
DRAWN: list[tuple[Any, Any]] = [
    (v2.RandomRotation((-20, 50)), lambda p: [p["angle"]]),
    (
        v2.RandomAffine((-20, 50), (0.1, 0.3), (0.5, 2), (-3, 4, 5, 9)),
        lambda p: [p["angle"], *p["translate"], p["scale"], *p["shear"]],
    ),
    (v2.RandomPerspective(0.6, 1.0), lambda p: p["coefficients"]),
]


@pytest.mark.parametrize(
    ("transform", "numbers"), [param(DRAWN[0]), DRAWN[1], param(DRAWN[2])], ids=["rotation", "affine", "perspective"]
)
def test_draws_follow_torchvisions_law(transform: Any, numbers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_geometry, "_get_perspective_coeffs", lambda _, end: [v for corner in end for v in corner])
    draws = 100_000 if ALL else 2000
    picture = torch.zeros(3, HEIGHT, WIDTH, dtype=torch.uint8)
    torch.manual_seed(5)
    theirs = np.array([numbers(transform.make_params([picture])) for _ in range(draws)])
    data = stoker.files([PHOTOS[0]] * draws, transform=[T.Resize((HEIGHT, WIDTH)), transform])
    rows = stoker.DataLoader(data, batch_size=draws, seed=3).explain(0)["rows"]
    ours = [[float(v) for k, v in row["choices"]["image"][-1].items() if k != "op"] for row in rows]
    of_one_law(np.array(ours), theirs)


def test_a_perspective_acts_with_its_probability() -> None:
    draws = 10_000 if ALL else 3000
    data = stoker.files([PHOTOS[0]] * draws, transform=[v2.RandomPerspective(1.0, 0.3)])
    rows = stoker.DataLoader(data, batch_size=draws, seed=3).explain(0)["rows"]
    acted = sum(row["choices"]["image"][0]["top_left_x"] > 0 for row in rows)
    assert abs(acted / draws - 0.3) < 0.02

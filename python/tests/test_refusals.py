"""The same arguments, the same refusal: every class that is also torchvision's, with arguments that torchvision takes
and arguments that it refuses, when the object is made or when it gets a uint8 tensor. What stoker does otherwise is
listed, with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from augmented import pictures
from forms import mostly
from needs import needs

import stoker
from stoker import ConfigError
from stoker import transforms as T
from stoker._compile import to_ops

torch = needs("torch")
needs("torchvision")
from torchvision.transforms import v2  # noqa: E402

NAN, INF = math.nan, math.inf
MODES = ["nearest", "bilinear", "bicubic", "nearest-exact", "linear", 0, 2, 9, None]
FILLS: list[Any] = [0, 7, (1, 2, 3), [1, 2, 3], (1,), (1, 2), (1, 2, 3, 4), (), "a", None, 2.5]
CHANCES = [-0.1, 1.1, 0, 1, "half", None, True, (0.5,), NAN]
RANGES: list[Any] = [-0.1, 0, 3, (0.5, 0.2), (-0.5, 1), (0.5,), (1, 2, 3), (0, 0), "a", [0.5, 1.5], ("a", "b"), True]
COUNTS: list[Any] = [-1, 0, 1, 5, 1.5, 3.0, "a", None]

# Of each class: what else it is given, and the values of each argument.
CASES: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "ColorJitter": (
        {},
        {
            "brightness": RANGES,
            "contrast": RANGES,
            "saturation": RANGES,
            "hue": [-0.1, 0.6, 0.5, (0.2, -0.2), (-0.6, 0.2), (0.3, 0.6), (-0.5, 0.5), (0.1,), "a", (0.1, 0.1), NAN],
        },
    ),
    "RandomPhotometricDistort": (
        {},
        {
            "brightness": [(1.5, 0.5), (-1, 1), 0.5, (0.1,), None, (0.1, 0.1), (0, INF)],
            "saturation": [(1.5, 0.5), (-1, 1), 0.5, (0.1,), None],
            "hue": [(-0.6, 0.6), (0.3, 0.5), (0.2, -0.2)],
            "p": [-0.1, 1.1, 0.5, "half", None],
        },
    ),
    "RandomInvert": ({}, {"p": CHANCES}),
    "RandomAutocontrast": ({}, {"p": CHANCES}),
    "RandomEqualize": ({}, {"p": CHANCES}),
    "RandomHorizontalFlip": ({}, {"p": CHANCES}),
    "RandomVerticalFlip": ({}, {"p": CHANCES}),
    "RandomGrayscale": ({}, {"p": CHANCES}),
    "RandomPosterize": ({"p": 1.0}, {"bits": [-1, 0, 1, 8, 9, 100, 2.5, 3.0, "a", None, True]}),
    "RandomSolarize": ({"p": 1.0}, {"threshold": [-1, 0, 255, 256, 127.5, 300, "a", None, -300, INF]}),
    "RandomAdjustSharpness": ({"p": 1.0}, {"sharpness_factor": [-1, -0.1, 0, 1, 100, "a", None]}),
    "GaussianBlur": (
        {"kernel_size": 3},
        {
            "kernel_size": [
                *(0, -1, -3, 2, 4, 3, 3.0, 2.0, "3", None, True, [5, 3]),
                *((3, 4), (3, 5), (3,), (3, 5, 7), (), (3.0, 3.0)),
            ],
            "sigma": [0, -1, 1, (0, 1), (2, 1), (1, 1), (1,), (1, 2, 3), "a", None, [0.5, 1], ("a", "b")],
        },
    ),
    "RandomRotation": (
        {"degrees": 10},
        {
            "degrees": [-10, 10, 0, (20, 10), (10,), (1, 2, 3), (-10, 10), "a", None, 400],
            "interpolation": MODES,
            "fill": FILLS,
            "center": [None, (1, 2), (1,), (1, 2, 3), 3, "ab", (0.5, -90)],
            "expand": [True, False, 1],
        },
    ),
    "RandomAffine": (
        {"degrees": 5},
        {
            "degrees": [-10, 0, (20, 10), (10,), "a", None],
            "translate": [1.1, (1.1, 0), (-0.1, 0), (0.1,), (0.1, 0.2, 0.3), (1, 1), (0, 0), "ab", 0.5],
            "scale": [(0, 1), (-1, 1), (2, 1), (0.5,), (0.5, 1, 2), 0.5, (1, 1), "ab"],
            "shear": [-5, 5, 0, (5,), (1, 2), (2, 1), (1, 2, 3), (1, 2, 3, 4), (1, 2, 3, 4, 5), "ab"],
            "interpolation": MODES,
            "fill": FILLS,
            "center": [(1, 2), (1,), 3],
        },
    ),
    "RandomPerspective": (
        {"p": 1.0},
        {"distortion_scale": [-0.1, 0, 0.5, 1, 1.1, "a", None], "interpolation": MODES, "fill": FILLS},
    ),
    "RandomErasing": (
        {"p": 1.0},
        {
            "scale": [(0.5, 0.1), (-0.1, 0.3), (0.1, 1.1), 0.1, (0.1,), (0, 0), (1, 1), (0, 1), "ab", [0.1, 0.2], None],
            "ratio": [(3, 0.3), (-1, 1), (0, 1), 0.5, (1,), (1, 1), "ab", (-2, -1)],
            "value": [0, 7, 2.5, (1, 2, 3), [1, 2, 3], (1,), (1, 2), (1, 2, 3, 4), "a", None, (), ("a",), True],
        },
    ),
    "RandAugment": (
        {"num_ops": 6},
        {
            "num_ops": COUNTS,
            "magnitude": [-1, 0, 30, 31, 100, "a", None, 9.0, 2.5],
            "interpolation": MODES,
            "fill": FILLS,
        },
    ),
    "TrivialAugmentWide": (
        {},
        {"num_magnitude_bins": [0, 1, 2, -1, 1.5, "a", None, 31.0], "interpolation": MODES, "fill": FILLS},
    ),
    "AutoAugment": ({}, {"policy": ["other", None, 3], "interpolation": MODES, "fill": FILLS}),
    "AugMix": (
        {},
        {
            "severity": [0, 1, 10, 11, -1, 2.5, 3.0, "a", None],
            "mixture_width": [1, 5, 2.5, "a"],
            "chain_depth": [-1, 0, 1, 5, 2.5, -7],
            "alpha": [-1.0, 0.0, 1.0, 0.1, "a"],
            "interpolation": MODES,
        },
    ),
    "RandomResize": (
        {"min_size": 9, "max_size": 30},
        {"min_size": [30, 31, 0, -3, 20, 2.5, "a", 29], "max_size": [None, 9, 10], "interpolation": MODES},
    ),
    "RandomShortestSize": (
        {"min_size": 20},
        {"min_size": [20, [20, 30], [], 0, -3, 2.5, "a", None, (20, 30)], "max_size": [10, 20, 25, 0, -5]},
    ),
    "ScaleJitter": (
        {"target_size": (30, 30)},
        {
            "target_size": [(30, 30), (30,), 30, (0, 30), (-3, 30), [30, 40]],
            "scale_range": [(0.5, 1), [0.5, 1], (2, 1), (0, 1), (-1, 1), 0.5, (0.5,), (1, 1)],
        },
    ),
    "RandomZoomOut": (
        {"p": 1.0},
        {
            "fill": FILLS,
            "side_range": [(1, 4), (4, 1), (0.5, 2), (-1, 2), 2, (2,), (1, 2, 3), (1, 1), "ab"],
            "p": CHANCES,
        },
    ),
    "RandomResizedCrop": ({"size": 9}, {"size": [0, -1, 5, (5,), (5, 6), (5, 6, 7), "a", None]}),
    "Resize": ({"size": 5}, {"size": [0, -1, 5, (5,), (5, 6), (5, 6, 7), 2.5, "a", None, ()], "interpolation": MODES}),
}

# What torchvision takes, and the engine does not have: a canvas of parts of a byte, shares by a law that is none.
STRICTER: dict[tuple[str, str], list[Any]] = {
    ("RandomZoomOut", "fill"): [2.5],
    ("AugMix", "alpha"): [-1.0, 0.0],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures(tmp_path_factory.mktemp("refusals"))


def torchvisions(name: str, keywords: dict[str, Any]) -> Any:
    """The object; None if torchvision refuses to make it."""
    try:
        return getattr(v2, name)(**keywords)
    except Exception:  # some refusals are accidents of other code, and raise anything
        return None


def fails(made: Any) -> bool:
    """Whether it refuses a picture; what draws is called often."""
    for seed in range(40):
        torch.manual_seed(seed)
        picture = torch.randint(0, 256, (3, 29 + 3 * (seed % 3), 33 + 5 * (seed % 2)), dtype=torch.uint8)
        try:
            made(picture)
        except Exception:
            return True
    return False


def refusal(make: Callable[[], Any], root: Path) -> str | None:
    """What stoker says before the first batch; None if it loads every sample."""
    try:
        data = stoker.ImageFolder(root, make())
        loader = stoker.DataLoader(data, batch_size=None, seed=1)
    except ConfigError as error:
        return str(error)
    with loader:
        assert len(list(loader)) == len(data)
    return None


def native(made: Any) -> bool:
    """Whether the engine does what an object of torchvision's does; else Python does, on PIL's pictures."""
    try:
        to_ops(made, "here")
    except ConfigError:
        return False
    return True


# Together they have arguments of every kind: chances, ranges, counts, pairs, sizes, modes, fills.
FEW = ("RandomPosterize", "RandomZoomOut", "Resize")


@pytest.mark.parametrize("name", mostly(CASES, *FEW))
def test_the_same_arguments_the_same_refusal(name: str, root: Path) -> None:
    usual, arguments = CASES[name]
    wrong = []
    for argument, values in arguments.items():
        for value in values:
            keywords = {**usual, argument: value}
            theirs = torchvisions(name, keywords)
            refused = theirs is None or fails(theirs)
            refused = refused or any(value is one or value == one for one in STRICTER.get((name, argument), []))
            said = [refusal(lambda keywords=keywords: getattr(T, name)(**keywords), root)]  # type: ignore[misc]
            if theirs is not None and native(theirs):
                said.append(refusal(lambda theirs=theirs: theirs, root))  # type: ignore[misc]
            if not refused and any(said):
                wrong.append(f"{argument}={value!r} is refused: {said}")
            elif refused and not all(one and name in one and argument in one for one in said):
                wrong.append(f"{argument}={value!r} is not refused, or without a word about it: {said}")
    assert wrong == []


def test_what_is_stricter_is_taken_by_torchvision() -> None:
    for (name, argument), values in STRICTER.items():
        for value in values:
            assert not fails(getattr(v2, name)(**{**CASES[name][0], argument: value}))


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.RandomChoice([m.RandomInvert(), m.RGB()], [NAN, 1]),
        lambda m: m.RandomChoice([m.RandomInvert(), m.RGB()], [INF, 1]),
        lambda m: m.RandomChoice([m.RandomInvert(), m.RGB()], "ab"),
        lambda m: m.RandomChoice([m.RandomInvert(), m.RGB()], [-1, 2]),
        lambda m: m.RandomChoice([m.RandomInvert(), m.RGB()], [0, 0]),
        lambda m: m.RandomChoice([m.RandomInvert(), m.RGB()], [1]),
        lambda m: m.RandomApply([m.RGB()], -0.1),
        lambda m: m.RandomApply([m.RGB()], 1.1),
        lambda m: m.RandomApply([m.RGB()], "a"),
        lambda m: m.RandomApply([]),
    ],
)
def test_what_holds_others(make: Callable[[Any], Any], root: Path) -> None:
    try:
        assert fails(make(v2))
    except (TypeError, ValueError, ZeroDivisionError):
        pass
    said = refusal(lambda: make(T), root)
    assert said
    assert "Random" in said


@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
def test_what_mixes_batches(name: str, root: Path) -> None:
    numbers = [T.Resize((8, 8)), T.ToTensor()]
    cases: list[tuple[dict[str, Any], list[Any]]] = [
        ({"alpha": alpha, "num_classes": 2}, numbers) for alpha in (-1, 0, 0.0, "a", None, NAN, 1.0, 0.2, 7.0)
    ]
    cases += [({"num_classes": count}, numbers) for count in (None, 2, 3, 1)]
    cases += [({"num_classes": 2, "labels_getter": getter}, numbers) for getter in ("default", 3)]
    cases += [({"num_classes": 2}, [T.Resize((8, 8))])]  # bytes
    for keywords, transform in cases:
        try:
            batch = torch.zeros(6, 3, 8, 8, dtype=torch.float32 if transform is numbers else torch.uint8)
            getattr(v2, name)(**keywords)(batch, torch.tensor([0, 1] * 3))
            refused = False
        except Exception:
            refused = True
        said = None
        try:
            mix = getattr(T, name)(**keywords)
            with stoker.DataLoader(stoker.ImageFolder(root, transform), 3, batch_transform=mix) as loader:
                assert len(list(loader)) == 2
        except stoker.StokerError as error:
            said = str(error)
        assert (said is not None) == refused, (keywords, said)


@pytest.mark.parametrize(
    "theirs",
    [
        v2.AugMix(mixture_width=20),
        v2.AugMix(mixture_width=0),
        v2.AugMix(chain_depth=40),
        v2.RandomAdjustSharpness(1e31, p=1.0),
        v2.ScaleJitter((30, 30, 30)),
    ],
    ids=repr,
)
def test_more_than_the_engine_does_is_python(theirs: Any, root: Path) -> None:
    """torchvision takes it, so its objects run, in Python; ours are refused."""
    assert not native(theirs)
    with stoker.DataLoader(stoker.ImageFolder(root, theirs), batch_size=None, num_workers=0) as loader:
        assert len(list(loader)) == 6
    arguments: dict[str, dict[str, Any]] = {
        "AugMix": {"mixture_width": 20},
        "RandomAdjustSharpness": {"sharpness_factor": 1e31},
    }
    name = type(theirs).__name__
    made = getattr(T, name)(**arguments.get(name, {"target_size": (30, 30, 30)}))
    said = refusal(lambda: made, root)
    assert said
    assert name in said

"""Transforms with random sizes, and those that hold others, against torchvision, by the choices that ``explain``
tells."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import mostly
from needs import needs
from reads import PHOTOS

import stoker
from stoker import transforms as T
from stoker._compile import to_ops
from stoker._errors import ConfigError

needs("torchvision")
import torch  # noqa: E402
import torchvision  # noqa: E402
from replay import OPERATIONS  # noqa: E402
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as F  # noqa: E402

v1 = torchvision.transforms
CENTRE = T.CenterCrop((150, 200))


def cropped(picture: torch.Tensor, choice: Mapping[str, Any], _: Any) -> torch.Tensor:
    box: list[int] = [choice[name] for name in ("top", "left", "height", "width")]
    result: torch.Tensor = F.crop(picture, *box)
    return result


def resized(picture: torch.Tensor, choice: Mapping[str, Any], _: Any) -> torch.Tensor:
    assert list(picture.shape[1:]) == [choice["from_height"], choice["from_width"]]
    result: torch.Tensor = F.resize(picture, [choice["to_height"], choice["to_width"]], antialias=True)
    return result


def padded(picture: torch.Tensor, choice: Mapping[str, Any], _: Any) -> torch.Tensor:
    around = [choice[f"pad_{side}"] for side in ("left", "top", "right", "bottom")]
    result: torch.Tensor = F.pad(picture, around, fill=7)
    return result


REPLAY: dict[str, Callable[[torch.Tensor, Mapping[str, Any], Any], torch.Tensor]] = {
    **OPERATIONS,
    **dict.fromkeys(("RandomResize", "RandomShortestSize", "ScaleJitter", "Resize"), resized),
    **dict.fromkeys(("RandomApply", "RandomChoice", "RandomOrder"), lambda picture, *_: picture),
    "CenterCrop": cropped,
    "RandomZoomOut": padded,
    "RandomHorizontalFlip": lambda picture, choice, _: F.hflip(picture) if choice["flipped"] else picture,
    "RandomVerticalFlip": lambda picture, choice, _: F.vflip(picture) if choice["flipped"] else picture,
}

TRANSFORMS: list[list[Any]] = [
    [v2.RandomResize(40, 300)],
    [v2.RandomShortestSize([60, 90, 120], 140)],
    [v2.ScaleJitter((120, 90), (0.3, 1.5))],
    [v2.RandomZoomOut(7, (1.0, 2.0), 0.8)],
    [v2.RandomChoice([v2.RandomHorizontalFlip(), v2.Compose([v2.Resize(50), v2.RandomInvert()]), v2.RandomZoomOut(7)])],
    [v2.RandomChoice([v2.RandomInvert(), v2.RandomResize(40, 60)], p=[3, 1]), v2.RandomVerticalFlip()],
    [v2.RandomOrder([v2.RandomResize(40, 60), v2.RandomZoomOut(7), v2.RandomChannelPermutation(), v2.CenterCrop(45)])],
    [v1.RandomOrder([v1.RandomApply([v1.Resize(70)]), v1.RandomChoice([v1.CenterCrop(60), v1.RandomInvert(1.0)])])],
]


def samples(transform: list[Any], **settings: Any) -> tuple[list[torch.Tensor], list[list[dict[str, Any]]]]:
    """Pictures one by one, and what was chosen for each."""
    loader = stoker.DataLoader(stoker.files(PHOTOS * 5, transform=transform), batch_size=None, seed=4, **settings)
    pictures = [sample[0] for sample in loader]
    rows = [loader.explain(at)["rows"][0] for at in range(len(pictures))]
    return pictures, [row["choices"]["image"] for row in rows]


@functools.cache
def centred() -> list[torch.Tensor]:
    return [picture.clone() for picture in samples([CENTRE])[0]]


@pytest.mark.parametrize(
    "transform", mostly(TRANSFORMS, *TRANSFORMS[:5], TRANSFORMS[7]), ids=lambda made: type(made[0]).__name__
)
def test_pixels_are_torchvisions(transform: list[Any]) -> None:
    after, choices = samples([CENTRE, *transform])
    kinds = set()
    for picture, got, chosen in zip(centred(), after, choices, strict=True):
        want = picture.clone()
        for choice in chosen[1:]:
            want = REPLAY[choice["op"]](want, choice, None)
        assert got.shape == want.shape
        apart = np.abs(got.numpy().astype(int) - want.numpy())
        assert apart.max() <= 2  # a resample of a resample; each is within 1
        assert apart.mean() < 0.2
        kinds.add(str(chosen[1:]))
    assert len(kinds) > 2


def test_pictures_of_one_batch_differ(tmp_path: Path) -> None:
    data = stoker.files(PHOTOS, transform=[T.RandomResize(40, 300)])
    with pytest.raises(ConfigError, match=r"(?s)images of one batch differ in size.*CenterCrop.*batch_size=None"):
        next(iter(stoker.DataLoader(data, batch_size=len(PHOTOS))))
    (batch,) = stoker.DataLoader(data, batch_size=len(PHOTOS), collate_fn=list)
    assert len({sample[0].shape for sample in batch}) > 1
    data = stoker.files(PHOTOS, transform=[T.RandomResize(40, 300), T.CenterCrop(32)])
    (batch,) = stoker.DataLoader(data, batch_size=len(PHOTOS))
    assert batch[0].shape == (len(PHOTOS), 3, 32, 32)


def test_lanes_and_a_resume_do_not_change_what_is_chosen() -> None:
    either = v2.RandomChoice([v2.RandomInvert(), v2.RandomVerticalFlip()])
    transform = [v2.RandomOrder([either, v2.RandomResize(40, 50)])]
    one, _ = samples(transform, num_workers=1)
    two, _ = samples(transform, num_workers=3)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    loader = stoker.DataLoader(stoker.files(PHOTOS * 5, transform=transform), batch_size=None, seed=4)
    for number, _ in enumerate(loader):
        if number == 10:
            state = loader.state_dict()
            break
    other = stoker.DataLoader(stoker.files(PHOTOS * 5, transform=transform), batch_size=None, seed=4)
    other.load_state_dict(pickle.loads(pickle.dumps(state)))
    assert all(torch.equal(a[0], b) for a, b in zip(other, one[11:], strict=True))


def test_a_compose_in_a_choice_stays_one() -> None:
    turn = v2.RandomHorizontalFlip()
    held = [turn, [v2.Resize(8), v2.ToImage()], v2.Compose([turn]), torch.nn.Sequential(turn, turn)]
    (op,) = to_ops(v2.RandomChoice(held, p=[1, 1, 2, 0]), "")
    flip = {"op": "RandomHorizontalFlip", "p": 0.5}
    resize = {"op": "Resize", "size": [8], "interpolation": "bilinear"}
    assert op["p"] == [0.25, 0.25, 0.5, 0]
    assert op["transforms"] == [
        flip,
        {"op": "Compose", "transforms": [resize, {"op": "ToImage"}]},
        flip,
        {"op": "Compose", "transforms": [flip, flip]},
    ]
    assert to_ops(v1.RandomChoice([turn]), "") == [{"op": "RandomChoice", "transforms": [flip]}]
    (op,) = to_ops(T.RandomOrder([T.Compose([turn, turn]), turn]), "")
    assert op == {"op": "RandomOrder", "transforms": [{"op": "Compose", "transforms": [flip, flip]}, flip]}
    with pytest.raises(ConfigError, match=r"transform 2 of 2 in transform \(RandomOrder\): ElasticTransform"):
        to_ops(v2.RandomOrder([turn, v2.ElasticTransform()]), "")


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.RandomChoice([], None),
        lambda m: m.RandomChoice([m.ToImage()], [0.5, 0.5]),
        lambda m: m.RandomChoice([m.ToImage(), m.ToImage()], [0, 0]),
        lambda m: m.RandomOrder([]),
        lambda m: m.RandomOrder(m.ToImage()),
        lambda m: m.RandomZoomOut(0, (0.5, 2)),
        lambda m: m.RandomZoomOut(0, (3, 2)),
        lambda m: m.RandomZoomOut(0, (1, 2, 3)),
        lambda m: m.RandomZoomOut(p=1.5),
    ],
)
def test_what_torchvision_refuses(make: Callable[[Any], Any]) -> None:
    with pytest.raises((ValueError, TypeError, ZeroDivisionError)):
        make(v2)
    with pytest.raises(ConfigError):
        make(T)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda m: m.RandomResize(8, 8), "min_size"),
        (lambda m: m.RandomShortestSize([]), "min_size"),
        (lambda m: m.RandomChoice([m.ToImage(), m.ToImage()], [2, -1]), "p must"),
        (lambda m: m.ScaleJitter(5), "target_size"),
    ],
)
def test_what_torchvision_fails_on_when_it_is_called(make: Callable[[Any], Any], said: str) -> None:
    """An error before the first batch, whoever made the object."""
    with pytest.raises((RuntimeError, TypeError, IndexError)):
        make(v2)(torch.zeros(3, 9, 9, dtype=torch.uint8))
    for module in (T, v2):
        with pytest.raises(ConfigError, match=said):
            iter(stoker.DataLoader(stoker.files(PHOTOS, transform=make(module)), batch_size=None))


def test_folders_of_torchvision_are_read_natively(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    for photo in PHOTOS:
        (tmp_path / "a" / photo.name).symlink_to(photo)
    held = [v2.RandomHorizontalFlip(), v2.RandomZoomOut(3, (1.0, 1.5))]
    transform = v2.Compose([v2.RandomShortestSize(40), v2.RandomOrder(held), v2.RGB(), v2.CenterCrop(32), v2.ToImage()])
    loader: Any = stoker.DataLoader(
        torchvision.datasets.ImageFolder(tmp_path, transform), batch_size=len(PHOTOS), num_workers=2
    )
    (batch,) = loader
    assert batch[0].shape == (len(PHOTOS), 3, 32, 32)
    assert "native" in capfd.readouterr().err


def test_python_in_a_holder_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    floats = [v2.CenterCrop(8), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    for transform, said in (
        (
            [T.CenterCrop(8), T.RandomChoice([T.RandomVerticalFlip(), v2.JPEG(50)])],
            "JPEG is not known",
        ),
        ([T.CenterCrop(8), v2.RandomOrder([v2.Lambda(lambda x: x)])], "Lambda of test_python_in_a_holder"),
        ([*floats, v2.RandomApply([v2.ColorJitter(0.3)])], "ColorJitter is given floats"),
        ([*floats, v2.RandomChoice([v2.RandomVerticalFlip(), v2.RandomInvert()])], "RandomInvert is given floats"),
    ):
        (batch,) = stoker.DataLoader(stoker.files(PHOTOS, transform=transform), batch_size=len(PHOTOS), num_workers=1)
        assert batch[0].shape == (len(PHOTOS), 3, 8, 8)
        assert said in capfd.readouterr().err

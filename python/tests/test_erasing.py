"""GaussianBlur and RandomErasing against torchvision, where the cases of test_augmentations.py do not reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from forms import ALL, param, thinned
from needs import needs
from reads import PHOTOS

import stoker
from stoker import transforms as T

needs("torchvision")
from replay import OPERATIONS  # noqa: E402
from test_augmentations import made, plain, resized  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

torch = needs("torch")
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NUMBERS = [T.ToTensor(), T.Normalize(MEAN, STD)]


@thinned
@pytest.mark.parametrize("gray", [False, True])
@pytest.mark.parametrize(
    ("kernel", "sigma", "size"),
    [
        (1, 1.0, (5, 1)),
        (3, (0.01, 0.3), (2, 2)),
        param((9, (0.1, 2.0), (5, 40))),
        ((5, 21), (0.1, 9.0), (33, 70)),
        (23, (0.1, 2.0), (224, 224)),
        param((51, (2.0, 30.0), (120, 90))),
        param(((1, 141), 25.0, (90, 60))),
        ((99, 101), 100.0, (51, 50)),
        param(((299, 301), 300.0, (151, 150))),
    ],
)
def test_blurs_are_torchvisions(kernel: Any, sigma: Any, size: tuple[int, int], gray: bool) -> None:
    transform = v2.GaussianBlur(kernel, sigma)
    after, choices = made([*resized(size, gray), transform])
    apart = []
    for picture, got, chosen in zip(plain(size, gray), after, choices, strict=True):
        want = OPERATIONS["GaussianBlur"](torch.from_numpy(picture), chosen["GaussianBlur"], transform).numpy()
        apart.append(np.abs(got.astype(int) - want))
    assert np.max(apart) <= 1
    assert np.mean(apart) < 0.03


def test_a_picture_too_small_to_blur_is_refused_as_torchvision_does() -> None:
    with pytest.raises(RuntimeError, match="less than the corresponding input dimension"):
        v2.functional.gaussian_blur(torch.zeros(3, 4, 9, dtype=torch.uint8), [9, 9], [1.0, 1.0])
    with pytest.raises(stoker.ConfigError, match=r"needs pictures of at least 5 x 5, not 9 x 4"):
        list(stoker.DataLoader(stoker.files(PHOTOS, transform=[T.Resize((4, 9)), T.GaussianBlur(9)]), batch_size=2))
    data = stoker.files(PHOTOS, transform=[T.GaussianBlur(4001)])
    with pytest.raises(stoker.DataError, match=r"needs pictures of at least 2001 x 2001"):
        list(stoker.DataLoader(data, batch_size=2))


def boxes(choices: list[dict[str, Any]]) -> list[tuple[slice, slice]]:
    chosen = [c["RandomErasing"] for c in choices]
    return [(slice(c["top"], c["top"] + c["height"]), slice(c["left"], c["left"] + c["width"])) for c in chosen]


@pytest.mark.parametrize("value", [param(0), param(0.1), (1.5, -2.25, 1e-3)])
def test_floats_are_erased_in_their_own_units(value: Any) -> None:
    front = [T.Resize((40, 50)), *NUMBERS]
    before, _ = made(front)
    after, choices = made([*front, v2.RandomErasing(0.8, value=value)])
    assert len({str(c) for c in choices}) > 3
    for want, got, box in zip(before, after, boxes(choices), strict=True):
        want[:, box[0], box[1]] = np.float32(value) if np.ndim(value) == 0 else np.float32(value)[:, None, None]
        assert np.array_equal(want, got)


def test_what_converts_floats_later_converts_what_was_erased() -> None:
    erase = v2.RandomErasing(1.0, value=(0.25, 0, 1))
    front: list[Any] = [T.Resize((30, 31)), T.ToTensor()]
    before, _ = made(front)
    after, choices = made([*front, erase, T.Normalize(MEAN, STD)])
    for picture, got, chosen, box in zip(before, after, choices, boxes(choices), strict=True):
        erased = OPERATIONS["RandomErasing"](torch.from_numpy(picture), chosen["RandomErasing"], erase)
        want = v2.functional.normalize(erased, MEAN, STD).numpy()
        assert np.allclose(got, want, rtol=0, atol=1e-6)
        assert np.array_equal(got[:, box[0], box[1]], want[:, box[0], box[1]])


def test_bytes_that_are_erased_go_through_what_comes_after() -> None:
    erase = v2.RandomErasing(1.0, value=(10, 200.9, 30))
    front: list[Any] = [T.Resize((30, 31))]
    before, _ = made(front)
    after, choices = made([*front, erase, T.RandomHorizontalFlip(1.0), T.CenterCrop(24), T.ToTensor()])
    for picture, got, chosen in zip(before, after, choices, strict=True):
        erased = OPERATIONS["RandomErasing"](torch.from_numpy(picture), chosen["RandomErasing"], erase)
        later = v2.Compose([v2.RandomHorizontalFlip(1.0), v2.CenterCrop(24), v2.ToDtype(torch.float32, scale=True)])
        assert np.allclose(got, later(erased).numpy(), rtol=0, atol=1e-6)


def test_random_values_are_normal_and_keyed() -> None:
    front: list[Any] = [T.Resize((120, 100)), *NUMBERS]
    erase = v2.RandomErasing(1.0, value="random")
    before, _ = made(front)
    after, choices = made([*front, erase])
    again, _ = made([*front, erase])
    assert np.array_equal(after, again)
    inside = []
    for want, got, box in zip(before, after, boxes(choices), strict=True):
        inside.append(got[:, box[0], box[1]].ravel())
        want[:, box[0], box[1]] = got[:, box[0], box[1]]
        assert np.array_equal(want, got)
    numbers = np.concatenate(inside)
    assert abs(numbers.mean()) < 5 / len(numbers) ** 0.5
    assert abs(numbers.var() - 1) < 5 * (2 / len(numbers)) ** 0.5
    assert len(np.unique(numbers)) > 0.97 * len(numbers)  # no box repeats another


def test_boxes_follow_torchvisions_law() -> None:
    draws = 100_000 if ALL else 2000
    for h, w, scale, ratio in ((60, 80, (0.02, 0.33), (0.3, 3.3)), (9, 30, (0.0, 1.0), (0.1, 0.5))):
        transform = v2.RandomErasing(1.0, scale=scale, ratio=ratio)
        torch.manual_seed(6)
        picture = torch.zeros(3, h, w, dtype=torch.uint8)
        params = [transform.make_params([picture]) for _ in range(draws)]
        theirs = np.array([[p["i"], p["j"], p["h"], p["w"]] if p["v"] is not None else [0] * 4 for p in params])
        theirs[(theirs[:, 2] == 0) | (theirs[:, 3] == 0)] = 0  # nothing
        data = stoker.files([PHOTOS[0]] * draws, transform=[T.Resize((h, w)), transform])
        rows = stoker.DataLoader(data, batch_size=draws, seed=3).explain(0)["rows"]
        chosen = [row["choices"]["image"][1] for row in rows]
        ours = np.array([[c["top"], c["left"], c["height"], c["width"]] for c in chosen])
        columns = [(a, b) for a, b in zip(ours.T, theirs.T, strict=True)]
        columns += [(ours[:, i] * ours[:, j], theirs[:, i] * theirs[:, j]) for i in range(4) for j in range(i)]
        for number, (a, b) in enumerate(columns):
            at = np.unique(np.concatenate([a, b]))
            apart = np.abs(np.searchsorted(np.sort(a), at, "right") - np.searchsorted(np.sort(b), at, "right")) / draws
            assert apart.max() < 2.3 * (2 / draws) ** 0.5, number  # one of some 100,000 fails by chance


@pytest.mark.parametrize(
    ("steps", "what"),
    [
        ([T.RandomErasing(value="random")], r"draws normal numbers, about 0, but the picture is uint8"),
        ([T.RandomErasing(value=-1)], r"the picture is uint8, and value -1 is not a byte"),
        ([T.Grayscale(), T.RandomErasing(value=(1, 2, 3))], r"value is for 3 channels, but the picture has 1"),
        ([T.ToTensor(), T.RandomErasing(), T.RandomHorizontalFlip()], r"RandomHorizontalFlip after RandomErasing"),
        ([T.ToTensor(), T.RandomErasing(), T.ToDtype("uint8", scale=True)], r"float32 can become uint8 only"),
        ([T.ToTensor(), T.GaussianBlur(3)], r"GaussianBlur after ToTensor"),
        ([T.RandomErasing(ratio=(0, 2))], r"ratio must be two numbers, the smaller first, both positive"),
    ],
)
def test_what_gives_no_sense_is_refused(steps: list[Any], what: str) -> None:
    with pytest.raises(stoker.ConfigError, match=what):
        list(stoker.DataLoader(stoker.files(PHOTOS, transform=steps), batch_size=2))


@pytest.mark.parametrize(
    "make",
    [
        lambda m: m.GaussianBlur(4),
        lambda m: m.GaussianBlur((3, 5, 7)),
        lambda m: m.GaussianBlur(-3),
        lambda m: m.GaussianBlur(3, sigma=0),
        lambda m: m.GaussianBlur(3, sigma=(2, 1)),
        lambda m: m.RandomErasing(value="white"),
        lambda m: m.RandomErasing(scale=(0.5, 1.5)),
        lambda m: m.RandomErasing(p=2),
    ],
)
def test_arguments_that_torchvision_refuses_are_refused(make: Any) -> None:
    with pytest.raises(ValueError):
        make(v2)
    with pytest.raises(stoker.ConfigError):
        make(T)


def test_torchvisions_flip_of_erased_floats_runs_in_python() -> None:
    front: list[Any] = [T.Resize((20, 30)), T.ToTensor(), v2.RandomErasing(1.0, value=0.5)]
    before, _ = made(front)
    data = stoker.files(PHOTOS * 4, transform=[*front, v2.RandomHorizontalFlip(1.0)])
    (batch,) = stoker.DataLoader(data, batch_size=len(PHOTOS) * 4, seed=11, num_workers=1)
    assert np.array_equal(batch[0].numpy(), before[..., ::-1])


def test_ours_after_python_code_is_torchvisions() -> None:
    python = v2.Lambda(lambda image: image)
    steps: list[Any] = [
        T.Resize((20, 30)),
        python,
        T.ToTensor(),
        T.RandomErasing(1.0, value="random"),
        T.GaussianBlur(3),
    ]
    (batch,) = stoker.DataLoader(stoker.files(PHOTOS, transform=steps), batch_size=len(PHOTOS), num_workers=1)
    assert batch[0].shape == (len(PHOTOS), 3, 20, 30)
    assert batch[0].min() < 0

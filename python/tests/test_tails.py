"""Known steps after Python's: the engine makes numbers of the bytes that workers leave."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import steps
import torch
from conftest import make_folder
from forms import ALL, mostly
from needs import needs
from test_python_workers import children
from test_steps import MEAN, STD, copied, equal, loaded, rows
from torchvision import transforms as v1
from torchvision.transforms import v2

import stoker
from stoker import transforms as T
from stoker._leaves import Unlike
from stoker._split import Tail
from stoker._tone import Picture

END: list[Any] = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
CROP = v2.RandomResizedCrop(24)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fewer pictures than others have: samples come one by one here."""
    return make_folder(tmp_path_factory.mktemp("tails"), 26)


@pytest.fixture
def forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """torchvision's last steps fail, in forked workers too."""

    def fails(*args: Any) -> Any:
        raise AssertionError("torchvision ran")

    fails.__module__ = "torchvision.transforms"  # what others put into its classes is not native
    for kind in (v2.ToDtype, v2.Normalize):
        monkeypatch.setattr(kind, "transform", fails)
    monkeypatch.setattr(v1.ToTensor, "__call__", fails)
    monkeypatch.setattr(v1.Normalize, "forward", fails)


def native(folder: Path, *end: Any, seed: int = 4) -> list[Any]:
    """What the engine alone makes."""
    return rows(stoker.ImageFolder(folder, [CROP, *(end or END)]), shuffle=True, seed=seed, num_workers=1)


SPLIT: dict[str, list[Any]] = {
    "a PIL image": [CROP, steps.same, *END],
    "version 1": [CROP, steps.same, v1.ToTensor(), v1.Normalize(MEAN, STD)],
    "version 1, from a tensor": [
        CROP,
        v1.PILToTensor(),
        steps.same,
        v1.ConvertImageDtype(torch.float32),
        v1.Normalize(MEAN, STD),
    ],
    "ours": [CROP, steps.same, T.ToTensor(), T.Normalize(MEAN, STD)],
    "a tensor": [CROP, v2.ToImage(), steps.same, *END[1:]],
    "an array": [CROP, steps.pixels, v1.ToTensor(), v1.Normalize(MEAN, STD)],
    "an array, version 2": [CROP, steps.pixels, *END],
    "a lambda": [CROP, v2.Lambda(lambda image: image), *END],
    "an array with negative strides": [CROP, steps.pixels, lambda a: a[::-1], lambda a: a[::-1], *END],
    "a tensor, channels last": [CROP, v2.ToImage(), steps.same, lambda t: steps.last(t), *END[1:]],
}


@pytest.mark.parametrize(
    "name", mostly(SPLIT, "a PIL image", "an array with negative strides", "a tensor, channels last")
)
def test_the_engine_makes_what_it_makes_alone(folder: Path, name: str, forbidden: None) -> None:
    want = native(folder)
    train = stoker.ImageFolder(folder, SPLIT[name])
    for workers in (0, 1, 2, 5) if ALL else (0, 3):
        assert equal(rows(train, shuffle=True, seed=4, num_workers=workers), want), workers
    for batch, first in zip(loaded(train, shuffle=True, seed=4), range(0, 26, 8), strict=True):
        assert equal(list(batch[0]), [sample[0] for sample in want[first : first + 8]])
        assert batch[0].is_contiguous()
        assert type(batch[0]) is torch.Tensor
    plain = rows(stoker.ImageFolder(folder, [v2.Resize((16, 12)), *SPLIT[name][1:]]), num_workers=2)
    assert equal(plain[:5], [list(stoker.ImageFolder(folder, [v2.Resize((16, 12)), *END])[i]) for i in range(5)])
    assert equal(
        plain[:5], [list(stoker.ImageFolder(folder, [v2.Resize((16, 12)), *SPLIT[name][1:]])[i]) for i in range(5)]
    )


def test_albumentations(folder: Path, forbidden: None) -> None:
    A = needs("albumentations")
    chain = [CROP, A.Compose([A.HorizontalFlip(p=1)]), *END]
    want = [sample[0].flip(2) for sample in native(folder)]
    for workers in (0, 2):
        found = rows(stoker.ImageFolder(folder, chain), shuffle=True, seed=4, num_workers=workers)
        assert equal([sample[0] for sample in found], want)


@pytest.mark.parametrize("number", mostly(range(12), 0, 1))
def test_any_mean_and_std(folder: Path, number: int) -> None:
    """As the engine's own steps, bit for bit, and within 1e-6 of torchvision's, which divides twice."""
    draw = random.Random(number)
    count = 1 if number % 3 == 0 else 3
    mean = [draw.uniform(0, 1) for _ in range(count)]
    std = [draw.uniform(0.1, 2) for _ in range(count)]
    end = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(mean, std)]
    if number % 4 == 1:
        end.insert(2, v2.Normalize([0.5], [0.25]))
    want = native(folder, *end)
    for workers in (0, 1):
        split = stoker.ImageFolder(folder, [CROP, steps.same, *end])
        assert equal(rows(split, shuffle=True, seed=4, num_workers=workers), want), (mean, std)
    python = stoker.ImageFolder(folder, [CROP, steps.same, *end, steps.same])
    for (found, _), (theirs, _) in zip(want, rows(python, shuffle=True, seed=4, num_workers=1), strict=True):
        assert (found - theirs).abs().max() <= 1e-6 * max(1.0, float(theirs.abs().max()))


def test_unscaled_and_grey(folder: Path, forbidden: None) -> None:
    for end in ([v2.ToImage(), v2.ToDtype(torch.float32)], [v1.ToTensor()]):
        want = native(folder, *end)
        split = stoker.ImageFolder(folder, [CROP, steps.same, *end])
        assert equal(rows(split, shuffle=True, seed=4, num_workers=2), want)
    grey = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.4], [0.3])]
    want = native(folder, v2.Grayscale(), *grey)
    assert want[0][0].shape == (1, 24, 24)
    for between in (steps.same, steps.pixels):
        split = stoker.ImageFolder(folder, [CROP, v2.Grayscale(), between, *grey])
        for workers in (0, 2):
            assert equal(rows(split, shuffle=True, seed=4, num_workers=workers), want)


# What the engine cannot do runs in Python, as before.

OTHERS: dict[str, list[Any]] = {
    "a function after it": [CROP, steps.same, *END, steps.same],
    "a mean for three channels of one": [CROP, v2.Grayscale(), steps.same, *END],
    "floats": [CROP, v2.ToImage(), v2.ToDtype(torch.float32, scale=True), steps.same, v2.Normalize(MEAN, STD)],
    "a subclass": [CROP, steps.same, *END[:2], type("Mine", (v2.Normalize,), {})(MEAN, STD)],
    "another type": [CROP, steps.same, v2.ToImage(), v2.ToDtype(torch.float64, scale=True), v2.Normalize(MEAN, STD)],
    "four channels": [CROP, lambda image: image.convert("RGBA"), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)],
    "no conversion": [CROP, steps.same, v2.ToImage()],
    "another order": [CROP, steps.same, v2.ToDtype(torch.float32, scale=True), v2.ToImage()],
}


@pytest.mark.parametrize(
    "name", mostly(OTHERS, "a function after it", "a mean for three channels of one", "a subclass", "four channels")
)
def test_other_ends_run_in_python(folder: Path, name: str) -> None:
    chain = OTHERS[name]
    split = stoker.ImageFolder(folder, chain)
    try:
        want = rows(split, num_workers=0)
    except stoker.DataError:
        with pytest.raises(stoker.DataError):
            rows(split)
        return
    assert equal(rows(split), want)
    value: Any = stoker.ImageFolder(folder, [CROP])[3][0]
    resized = v2.functional.to_pil_image(value)
    for step in chain[1:]:
        resized = step(resized)
    assert equal(want[3][0], resized.as_subclass(torch.Tensor))


def test_a_function_that_returns_several_types(folder: Path) -> None:
    """A float tensor has its numbers; the engine leaves such rows alone, whichever sample came first."""

    def mixed(image: Any, rng: Any) -> Any:
        tensor = v2.functional.pil_to_tensor(image)
        return tensor if rng.random() < 0.5 else tensor.float() / 255

    end = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    split = stoker.ImageFolder(folder, [CROP, mixed, *end])
    for seed in range(4 if ALL else 2):
        want = native(folder, seed=seed)
        found = {n: rows(split, shuffle=True, seed=seed, num_workers=n) for n in (0, 1, 3)}
        assert equal(found[0], found[1])
        assert equal(found[0], found[3])
        bits = sum(equal(a[0], b[0]) for a, b in zip(found[0], want, strict=True))
        assert 5 < bits
        for (a, _), (b, _) in zip(found[0], want, strict=True):
            assert torch.allclose(a, b, atol=1e-6)


def test_batches_of_another_size(folder: Path) -> None:
    """They are made as wholes, with the same numbers."""

    def sized(image: Any) -> Any:
        return image.resize((12, 12)) if image.getpixel((0, 0))[0] % 2 else image

    split = stoker.ImageFolder(folder, [v2.Resize((16, 12)), sized, *END])
    want = rows(split, num_workers=0)
    assert len({tuple(sample[0].shape) for sample in want}) == 2
    assert equal(rows(split, num_workers=2), want)


@pytest.mark.parametrize("side", mostly([24, 96], 24))
def test_a_function_may_fill_the_same_array_again(folder: Path, side: int) -> None:
    held = np.zeros((side, side, 3), np.uint8)

    def filled(image: Any) -> Any:
        held[:] = np.asarray(image)
        return held

    known = [v2.Resize((side, side)), *END]
    want = rows(stoker.ImageFolder(folder, known), num_workers=1)
    split = stoker.ImageFolder(folder, [known[0], filled, *END])
    for workers in (0, 1, 2):
        assert equal(rows(split, num_workers=workers), want)
        with loaded(split, num_workers=workers) as loader:
            assert equal([image.clone() for batch in loader for image in batch[0]], [sample[0] for sample in want])


def test_fields_are_apart(folder: Path, forbidden: None) -> None:
    train = stoker.ImageFolder(folder, [v2.Resize((16, 12)), steps.same, *END])
    both = train.select(
        "label",
        "image",
        stoker.Field("other", source="image", transform=[v2.Resize((8, 8)), v2.ToImage(), steps.same, *END[1:]]),
    )
    want = rows(both, num_workers=0)
    assert want[0]["other"].shape == (3, 8, 8)
    assert equal(rows(both, num_workers=2), want)
    assert equal(rows(train.to_tuple("image"), num_workers=2), [[sample["image"]] for sample in want])


def test_collate_functions_and_steps_after_it(folder: Path) -> None:
    split = stoker.ImageFolder(folder, [CROP, steps.same, *END])
    want = native(folder)

    def stacked(samples: Any) -> Any:
        assert all(type(image) is torch.Tensor for image, _ in samples)
        return torch.stack([image for image, _ in samples])

    for workers in (0, 2):
        with loaded(split, shuffle=True, seed=4, num_workers=workers, collate_fn=stacked) as loader:
            found = [image.clone() for batch in loader for image in batch]
        assert equal(found, [sample[0] for sample in want])
    mapped = split.map(lambda image, label: (image * 2, label))
    for (found2, _), (image, _) in zip(rows(mapped, shuffle=True, seed=4), want, strict=True):
        assert torch.allclose(found2, image * 2, atol=2e-6)
    fixed = stoker.ImageFolder(folder, [v2.Resize((16, 12)), steps.same, *END])
    few = fixed.filter(lambda image, label: label != 1)
    assert equal(rows(few), [sample for sample in rows(fixed) if sample[1] != 1])


def test_maps_that_are_known(folder: Path, forbidden: None) -> None:
    """v2's steps look for the picture in a sample; the engine does so where there is one only."""
    want = native(folder)
    cut = stoker.ImageFolder(folder, [CROP]).map(steps.opened)
    numbers = v2.Compose(END)
    for dataset in (cut.map(numbers), cut.map(v2.ToImage()).map(v2.Compose(END[1:]))):
        for workers in (0, 2):
            assert equal(rows(dataset, shuffle=True, seed=4, num_workers=workers), want)
    named = cut.map(lambda image, label: {"image": image, "label": label}).map(numbers)
    found = rows(named, shuffle=True, seed=4)
    assert equal([[sample["image"], sample["label"]] for sample in found], want)
    (image, _) = cut.map(numbers)[0]
    assert type(image).__name__ == "Image"  # as v2 leaves it
    assert type(cut.map(v2.Compose([*END, v2.ToPureTensor()]))[0][0]) is torch.Tensor
    one = stoker.ImageFolder(folder, [CROP]).map(lambda image, label: image)
    assert equal(rows(one.map(numbers), shuffle=True, seed=4), [sample[0] for sample in want])
    two = cut.map(lambda image, label: (image, image)).map(numbers)
    with pytest.raises(stoker.DataError, match="torchvision ran"):
        rows(two)


ALONE = """
import sys
sys.modules["torchvision"] = None
if {torch}:
    sys.modules["torch"] = None
import numpy as np, stoker
from stoker import transforms as T
crop, end = T.RandomResizedCrop(24), [T.ToTensor(), T.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])]
def batches(chain):
    train = stoker.ImageFolder({folder!r}, chain)
    return [np.asarray(batch[0]).copy() for batch in stoker.DataLoader(train, 8, seed=1, num_workers=2)]
for a, b in zip(batches([crop, *end]), batches([crop, lambda image: image, *end]), strict=True):
    assert np.array_equal(a, b)
try:
    batches([crop, lambda image: image.convert("RGBA"), *end])
except stoker.DataError as error:
    assert "it is not installed" in str(error), error
else:
    raise AssertionError
"""


@pytest.mark.parametrize("torch", mostly([False, True], True))
def test_ours_need_neither_torchvision_nor_torch(folder: Path, torch: bool) -> None:
    run = [sys.executable, "-c", ALONE.format(folder=str(folder), torch=torch)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


FOLLOWED = """
import sys
import stoker
from stoker import transforms as T
if {absent}:
    sys.modules["torchvision"] = None
train = stoker.ImageFolder({folder!r}, [T.RandomResizedCrop(24), lambda image: image, T.ToTensor()])
assert {absent} or "torchvision" not in sys.modules
train = train.map(lambda image, label: (image, label))
assert "torchvision" in sys.modules
print("loaded")
"""


@pytest.mark.parametrize("absent", mostly([False, True], True))
def test_torchvision_is_loaded_before_workers_are_forked(folder: Path, absent: bool) -> None:
    """Where a function follows ours, torchvision has to run them: workers start with every pass, and it takes seconds
    to import. Where it is not installed, that is said at once."""
    run = [sys.executable, "-c", FOLLOWED.format(folder=str(folder), absent=absent)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout == "loaded\n") != absent, done.stderr
    assert not absent or "ConfigError: transform: ToTensor of stoker.transforms comes after" in done.stderr


OTHER: list[Any] = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.1], [0.9])]
ENDS = {
    "the same": [steps.same, *END],
    "other numbers": [steps.same, *OTHER],
    "floats": [steps.same, *OTHER, steps.same],
    "native": END,
}


@pytest.mark.parametrize("name", mostly(ENDS, "floats"))
def test_mixtures(folder: Path, name: str) -> None:
    """Members with ends of their own: one may have other numbers, or floats."""
    crop = v2.Resize((16, 12))
    members = [stoker.ImageFolder(folder, [crop, *end]) for end in (ENDS["the same"], ENDS[name])]
    mixture = stoker.Mixture(members, [0.5, 0.5])
    want = rows(mixture, shuffle=True, seed=6, num_workers=0)
    for workers in (1, 3):
        assert equal(rows(mixture, shuffle=True, seed=6, num_workers=workers), want)
    with loaded(mixture) as loader:
        says = "after it" in loader.explain(0)["python"]
    assert says == (name == "the same")
    mapped = mixture.map(lambda image, label: (image.mean(), label))
    assert equal(rows(mapped, shuffle=True, seed=6, num_workers=0), rows(mapped, shuffle=True, seed=6))


@pytest.mark.parametrize("workers", mostly([0, 2], 2))
def test_webdataset(shards: str, workers: int, forbidden: None) -> None:
    known = v2.Compose([v2.Resize((16, 12)), *END])
    split = v2.Compose([v2.Resize((16, 12)), steps.same, *END])
    chains: list[Callable[[Any], Any]] = [
        lambda t: stoker.WebDataset(shards).decode("pil").to_tuple("jpg", "cls").map_tuple(t, None),
        lambda t: stoker.WebDataset(shards).decode("pil").map_dict(jpg=t).to_tuple("jpg", "cls"),
        lambda t: (
            stoker.WebDataset(shards).decode("pil").rename(image="jpg").map_dict(image=t).to_tuple("image", "cls")
        ),
    ]
    for chain in chains:
        want = rows(chain(known), num_workers=1)
        assert equal(rows(chain(split), num_workers=workers), want)


@pytest.mark.parametrize("policy", mostly(["skip", "replace"], "replace"))
def test_bad_samples(folder: Path, policy: str) -> None:
    def fails(image: Any) -> Any:
        if image.getpixel((0, 0))[0] % 7 == 1:
            raise ValueError("seven")
        return image

    split = stoker.ImageFolder(folder, [v2.Resize((16, 12)), fails, *END])

    def run(workers: int) -> Any:
        with loaded(split, shuffle=True, seed=4, num_workers=workers, on_bad=policy) as loader:
            return [copied(batch) for batch in loader]

    want = run(0)
    for workers in (1, 3):
        assert equal(run(workers), want)
    with loaded(split) as loader, pytest.raises(stoker.DataError, match="seven"):
        list(loader)


@pytest.mark.parametrize(("step", "method"), mostly([(1, "fork"), (4, "spawn")], (1, "fork")))
def test_resume_and_start_methods(folder: Path, step: int, method: str) -> None:
    good = stoker.ImageFolder(folder, [CROP, steps.same, *END])
    with loaded(good, shuffle=True, seed=3) as loader:
        whole, states = [], [loader.state_dict()]
        for batch in loader:
            whole.append(copied(batch))
            states.append(loader.state_dict())
    with loaded(good, shuffle=True, num_workers=1, multiprocessing_context=method) as again:
        again.load_state_dict(states[step])
        assert equal([copied(batch) for batch in again], whole[step:])


def test_workers_are_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a dead worker are bytes, half a picture, or nothing: they are made again, and become numbers once."""
    monkeypatch.setenv("STOKER_POISON", "1")

    def slow(image: Any) -> Any:
        np.sort(np.random.default_rng(1).random(20_000))
        return image

    train = stoker.ImageFolder(folder, [CROP, slow, *END]).repeat(8)
    plain = stoker.ImageFolder(folder, [CROP, *END]).repeat(8)
    draw = random.Random(5)
    with loaded(plain, shuffle=True, seed=2) as loader:
        want = [copied(batch[0]) for batch in loader]
    with loaded(train, shuffle=True, seed=2, num_workers=3, on_bad="fail") as loader:
        for number, (batch, image) in enumerate(zip(loader, want, strict=True)):
            assert torch.equal(batch[0], image), number
            if number % 3 == 1 and (workers := children(os.getpid())):
                os.kill(draw.choice(workers), signal.SIGKILL)


def test_memory_is_that_of_the_numbers(folder: Path) -> None:
    """No column beside them, and none of bytes."""

    def used(*end: Any) -> int:
        with loaded(stoker.ImageFolder(folder, [CROP, steps.same, *END, *end]), persistent_workers=True) as loader:
            for _ in loader:
                pass
            stats = loader.stats()
            return int(stats["memory"] // stats["slots"])

    assert used() == used(steps.same)


def test_which_steps_the_engine_does_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    split = stoker.ImageFolder(folder, [CROP, steps.same, *END])
    with loaded(split) as loader:
        next(iter(loader))
        assert "is not known; the engine does ToImage, ToDtype and Normalize after it" in capsys.readouterr().err
        assert loader.explain(0)["python"].endswith("; the engine does ToImage, ToDtype and Normalize after it")
    for dataset, more in (
        (split, {"num_workers": 0}),
        (split, {"collate_fn": steps.lengths}),
        (split.map(steps.same), {}),
    ):
        with loaded(dataset, **more) as loader:
            next(iter(loader))
        assert "the engine does" not in capsys.readouterr().err


def test_pictures_know_what_fits() -> None:
    tail = Tail(END, "")
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    toned = tail.end(pixels, 0)
    leaf = Picture.of(toned)
    memory = memoryview(bytearray(2 * leaf.size))
    leaf.put(memory, leaf.size, [toned])
    assert bytes(memory[leaf.size : leaf.size + 24]) == pixels.tobytes()
    assert bytes(memory[: leaf.size]) == bytes(leaf.size)
    for other in (tail.end(pixels.copy()[:1], 0), Tail(END[:2], "").end(pixels, 0), toned.now()):
        with pytest.raises(Unlike):
            leaf.put(memory, 0, [other])
    assert leaf.same(type(leaf)((3, 2, 4), True, (1,) * 3, (0,) * 3))

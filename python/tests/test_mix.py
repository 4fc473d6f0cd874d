"""batch_transform=: MixUp and CutMix against torchvision's with the same lambda and box, and functions of batches."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forms import long, param
from needs import needs
from PIL import Image
from torch.utils.data import Dataset, IterableDataset
from torchvision import datasets
from torchvision.transforms import v2

import stoker
from stoker import _notice
from stoker import transforms as T
from stoker._device_mix import box

DRAWS = Path(__file__).parents[2] / "internal" / "stage" / "transform" / "testdata" / "mixes.json"
CLASSES = 3
FLOATS = [T.Resize((12, 10)), T.ToTensor(), T.Normalize([0.4] * 3, [0.2] * 3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mix")
    random = np.random.default_rng(0)
    for label in range(CLASSES):
        (root / f"c{label}").mkdir()
        for number in range(5):
            pixels = random.integers(0, 256, (14, 11, 3), np.uint8)
            Image.fromarray(pixels).save(root / f"c{label}" / f"{number}.png")
    return root


class Pairs(Dataset[Any]):
    """A dataset of the user's own."""

    def __init__(self, n: int = 15) -> None:
        self.images = torch.randn(n, 3, 6, 8, generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        return self.images[i].clone(), i % CLASSES


class Dicts(Pairs):
    def __getitem__(self, i: int) -> Any:
        return {"i": str(i), "image": self.images[i].clone(), "Label": i % CLASSES}


class Batches(IterableDataset[Any]):
    """Makes its batches itself."""

    def __iter__(self) -> Iterator[Any]:
        pairs = Pairs()
        for first in (0, 5, 10):
            yield pairs.images[first : first + 5].clone(), torch.arange(first, first + 5) % CLASSES


def joined(samples: list[Any]) -> Any:
    images, labels = zip(*samples, strict=True)
    return {"more": [torch.stack(images)], "labels": torch.tensor(labels)}


def small(folder: Path) -> Any:
    return stoker.ImageFolder(folder, FLOATS)


def theirs(folder: Path) -> Any:
    chain = [v2.Resize((12, 10)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    return datasets.ImageFolder(str(folder), v2.Compose(chain))


MIXES: dict[str, Callable[..., Any]] = {
    "MixUp": partial(v2.MixUp, alpha=0.4, num_classes=CLASSES),
    "CutMix": partial(v2.CutMix, num_classes=CLASSES),
}
PATHS: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "engine": (small, {}),
    "engine, one lane": (small, {"num_workers": 1}),
    "engine, numpy": (small, {"output": "numpy"}),
    "engine, dicts": (lambda root: small(root).select("image", "label"), {}),
    "torchvision's folder": (theirs, {}),
    "workers": (theirs, {"native": False, "num_workers": 2}),
    "workers, whole": (lambda root: Pairs(), {"num_workers": 2, "collate_fn": joined}),
    "no workers": (lambda root: Dicts(), {"num_workers": 0}),
    "no workers, collate": (lambda root: Pairs(), {"num_workers": 0, "collate_fn": joined}),
    "no workers, numpy": (lambda root: Pairs(), {"num_workers": 0, "output": "numpy"}),
    "looked up": (
        lambda root: torch.utils.data.TensorDataset(Pairs().images, torch.arange(15) % CLASSES),
        {"num_workers": 0},
    ),
}


def pair(batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The pictures and labels of a batch of any structure, as tensors of their own."""
    if isinstance(batch, dict):
        images = batch["more"][0] if "more" in batch else batch["image"]
        labels = next(value for key, value in batch.items() if "label" in key.lower())
    else:
        images, labels = batch
    return tuple(
        torch.as_tensor(x).clone() if isinstance(x, torch.Tensor) else torch.from_numpy(x.copy())
        for x in (images, labels)
    )  # type: ignore[return-value]


def torchvisions(choices: list[Mapping[str, Any]], images: torch.Tensor, labels: torch.Tensor) -> Any:
    """What torchvision makes of a batch, with the choices that explain() tells."""
    choice = choices[-1]
    mix: Any = MIXES[choice["op"]]()
    if choice["op"] == "MixUp":
        params: dict[str, Any] = {"lam": choice["lam"]}
    elif "lam" in choice:
        corners = tuple(choice[name] for name in ("left", "top", "right", "bottom"))
        params = {"box": corners, "lam_adjusted": choice["lam"]}
    else:  # the engine does not know the size of pictures that Python makes
        drawn = {"lambda": choice["drawn"], "x": choice["x"], "y": choice["y"]}
        *corner, share = box(drawn, images.shape[-1], images.shape[-2])
        params = {"box": corner, "lam_adjusted": share}
    mix.make_params = lambda _: params
    return mix(images, labels)


@pytest.mark.parametrize(
    "path", [param(path) if path in ("engine, one lane", "workers", "workers, whole") else path for path in PATHS]
)
def test_batches_are_torchvisions(folder: Path, path: str) -> None:
    make, keywords = PATHS[path]
    both = v2.RandomChoice([MIXES["MixUp"](), MIXES["CutMix"]()], p=[0.4, 0.6])
    seen = set()
    settings = {"batch_size": 4, "shuffle": True, "seed": 5, **keywords}
    with (
        stoker.DataLoader(make(folder), **settings) as plain,
        stoker.DataLoader(make(folder), batch_transform=both, **settings) as loader,
    ):
        for _ in range(2):
            loop = iter(loader)
            for step, (was, batch) in enumerate(zip(plain, loop, strict=True)):
                assert batch.step == step
                assert batch.ids.tolist() == was.ids.tolist()
                explained = loader.explain(step)
                assert explained["epoch"] == batch.epoch
                choices = explained["batch_transform"]
                seen.add(choices[-1]["op"])
                assert choices[0] == {"op": "RandomChoice", "chosen": 0 if choices[-1]["op"] == "MixUp" else 1}
                images, labels = pair(batch)
                want, soft = torchvisions(choices, *pair(was))
                assert labels.dtype == torch.float32
                assert torch.equal(labels, soft)
                if choices[-1]["op"] == "MixUp":
                    torch.testing.assert_close(images, want)
                else:
                    assert torch.equal(images, want)
    assert seen == {"MixUp", "CutMix"}


def everything(loader: Any) -> list[Any]:
    return [(batch.ids.tolist(), *(part.tolist() for part in pair(batch))) for batch in loader]


@pytest.mark.parametrize("make", [small, param(lambda root: Pairs())])
def test_resume_and_workers_change_nothing(folder: Path, make: Any) -> None:
    settings: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 8}
    mix = T.RandomChoice([T.MixUp(num_classes=CLASSES), T.CutMix(num_classes=CLASSES)])
    with stoker.DataLoader(make(folder), num_workers=1, batch_transform=mix, **settings) as loader:
        whole, states = [], []
        for batch in loader:
            states.append(loader.state_dict())
            whole += everything([batch])
    other = v2.RandomChoice([v2.MixUp(num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)])
    for after, state in enumerate(states[:-1], start=1):
        with stoker.DataLoader(make(folder), num_workers=2, batch_transform=other, **settings) as loader:
            loader.load_state_dict(state)
            assert everything(loader) == whole[after:]


@pytest.mark.parametrize("make", [small, lambda root: Pairs()])
def test_padding_is_left_out(folder: Path, make: Any) -> None:
    """The last row repeats a sample: it stays as it is, and no other row gets it."""
    settings: dict[str, Any] = {"batch_size": 4, "num_workers": 1, "tail": "fill", "world_size": 2, "rank": 1}
    with (
        stoker.DataLoader(make(folder), **settings) as plain,
        stoker.DataLoader(make(folder), batch_transform=T.MixUp(num_classes=CLASSES), **settings) as loader,
    ):
        *_, was = plain
        *_, batch = loader
        share = loader.explain(batch.step)["batch_transform"][0]["lam"]
    valid = batch.valid.numpy()
    assert valid.sum() == 3
    (images, labels), (pictures, numbers) = pair(batch), pair(was)
    rows = np.flatnonzero(valid).tolist()
    for row in range(4):
        before = rows[rows.index(row) - 1] if valid[row] else row
        want = pictures[before] * (1 - share) + pictures[row] * share if valid[row] else pictures[row]
        torch.testing.assert_close(images[row], want)
        assert labels[row, numbers[row]] >= (share if valid[row] else 1) - 1e-6


def test_a_dataset_that_makes_its_batches_is_mixed() -> None:
    with stoker.DataLoader(Batches(), None, batch_transform=v2.CutMix(num_classes=CLASSES), num_workers=1) as loader:
        found = list(loader)
    assert [tuple(part.shape for part in batch) for batch in found] == [((5, 3, 6, 8), (5, 3))] * 3
    assert all(torch.allclose(batch[1].sum(1), torch.ones(5)) for batch in found)


def test_what_the_user_holds_is_not_changed() -> None:
    pairs = Pairs()
    images, labels = pairs.images[:5], torch.arange(5) % CLASSES
    before = images.clone()
    mix = T.MixUp(num_classes=CLASSES)
    with stoker.DataLoader(
        pairs, 5, num_workers=0, collate_fn=lambda _: [images, labels], batch_transform=mix
    ) as loader:
        first = next(iter(loader))
    assert torch.equal(images, before)
    assert not torch.equal(first[0], before)


# What torchvision accepts, and refuses.


def test_labels_are_found() -> None:
    for getter in ("default", lambda batch: batch["Label"]):
        with stoker.DataLoader(
            Dicts(), 5, num_workers=0, batch_transform=v2.MixUp(num_classes=CLASSES, labels_getter=getter)
        ) as loader:
            assert next(iter(loader))["Label"].shape == (5, CLASSES)


def test_the_engine_asks_labels_getter_for_a_field(folder: Path) -> None:
    for getter in (lambda batch: batch["label"], lambda batch: batch.get("label")):
        data = small(folder).select("label", "image")
        with stoker.DataLoader(data, 5, batch_transform=v2.CutMix(num_classes=CLASSES, labels_getter=getter)) as loader:
            batch = next(iter(loader))
            assert batch["label"].shape == (5, CLASSES)
            assert list(batch) == ["label", "image"]


REFUSED: list[tuple[Any, str]] = [
    (lambda: v2.MixUp(), "num_classes must be passed"),
    (lambda: v2.MixUp(num_classes=CLASSES, labels_getter=lambda b: b[7]), "cannot find the labels.*'image', 'label'"),
    (lambda: v2.MixUp(num_classes=CLASSES, labels_getter=lambda b: b[1] == 3), "returned False"),
    (lambda: v2.MixUp(num_classes=CLASSES, labels_getter=None), "None"),
    (lambda: T.MixUp(num_classes=CLASSES, labels_getter=None), "nothing to mix without labels"),
    (lambda: T.CutMix(num_classes=CLASSES, labels_getter=lambda b: b[0]), "labels must be class numbers"),
    (lambda: T.MixUp(alpha=0), "alpha must be a positive number"),
    (lambda: T.MixUp(labels_getter="first"), "labels_getter must be"),
    (lambda: T.CutMix, "a class"),
    (lambda: T.Resize(3), "for pictures, not for batches"),
    (lambda: 3, "cannot be called"),
    (lambda: v2.RandomChoice([v2.MixUp(num_classes=3), v2.CutMix(num_classes=4)]), "must make the same labels"),
    (
        lambda: T.RandomChoice([T.MixUp(num_classes=3), T.CutMix(num_classes=3)], p=[1, -1]),
        "p must have no number below 0",
    ),
    (lambda: v2.RandomChoice([v2.MixUp(num_classes=3), v2.CutMix(num_classes=3)], p=[2, -1]), "none is negative"),
    (lambda: T.RandomChoice([T.MixUp(num_classes=3)], p=[1, 2]), "p has 2 weights"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refusals_come_before_the_first_batch(folder: Path, number: int) -> None:
    make, text = REFUSED[number]
    with pytest.raises(stoker.ConfigError, match=text):
        stoker.DataLoader(small(folder), 4, batch_transform=make())


def test_mixup_needs_floats_and_batches(folder: Path) -> None:
    with pytest.raises(stoker.ConfigError, match="MixUp needs floats"):
        stoker.DataLoader(stoker.ImageFolder(folder), 4, batch_transform=T.MixUp(num_classes=3))
    with pytest.raises(stoker.ConfigError, match="give a batch_size"):
        stoker.DataLoader(small(folder), None, batch_transform=T.MixUp(num_classes=3))
    with pytest.raises(stoker.ConfigError, match=r"for batches.*batch_transform"):
        stoker.ImageFolder(folder, [T.Resize((8, 8)), T.MixUp(num_classes=2)])
    with pytest.raises(stoker.ConfigError, match="batch_transform"):
        T.MixUp(num_classes=2)(torch.zeros(2, 3, 4, 4))


@pytest.mark.parametrize("make", [small, lambda root: Pairs()])
def test_a_label_beyond_num_classes_is_an_error(folder: Path, make: Any) -> None:
    with (
        stoker.DataLoader(make(folder), 4, num_workers=0, batch_transform=T.CutMix(num_classes=2)) as loader,
        pytest.raises(stoker.ConfigError, match="num_classes is 2"),
    ):
        list(loader)


# Functions.


def test_a_function_gets_every_batch_in_this_process(folder: Path) -> None:
    given: list[Any] = []

    def twice(batch: Any) -> Any:
        given.append((os.getpid(), batch.ids.tolist(), batch.valid.tolist(), batch.step))
        return batch[0] * 2, batch[1]

    settings: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 2}
    cases: list[tuple[Any, dict[str, Any]]] = [
        (small(folder), {}),
        (theirs(folder), {}),
        (Pairs(), {"num_workers": 2}),
        (Pairs(), {}),
    ]
    for data, more in cases:
        given.clear()
        with (
            stoker.DataLoader(data, **settings, **more) as plain,
            stoker.DataLoader(data, batch_transform=twice, **settings, **more) as loader,
        ):
            for was, batch in zip(plain, loader, strict=True):
                assert type(batch) is stoker.Batch
                assert torch.equal(batch[0], was[0] * 2)
                assert torch.equal(batch[1], was[1])
                assert given[-1] == (os.getpid(), was.ids.tolist(), was.valid.tolist(), was.step)
                facts: Any = loader.facts
                for found in (batch, facts):
                    assert (found.ids.tolist(), found.epoch, found.step, found.bad) == (
                        was.ids.tolist(),
                        0,
                        was.step,
                        [],
                    )


def test_what_is_known_of_a_batch_can_be_reached_whatever_a_function_returns(tmp_path: Path) -> None:
    """Small arrays come several batches in a message."""
    np.save(tmp_path / "x.npy", np.arange(4000).reshape(1000, 4))
    data = stoker.NpyDataset(tmp_path / "x.npy")
    with stoker.DataLoader(data, 8, shuffle=True, seed=1, batch_transform=lambda batch: 7) as loader:
        loop: Any = iter(loader)
        for step, batch in enumerate(loop):
            assert batch == 7
            assert (loop.facts.step, loop.facts.epoch, len(loop.facts.ids)) == (step, 0, 8)
            assert loader.state_dict()["position"] == 8 * (step + 1)


@pytest.mark.parametrize(
    "keywords",
    [
        {"batch_transform": lambda batch: next(iter(()))},
        {"batch_transform": lambda batch: next(iter(())), "device": "cpu"},
        {"device_transform": [lambda pictures: next(iter(()))], "device": "cpu"},
        {"batch_transform": T.CutMix(num_classes=9, labels_getter=lambda batch: next(iter(())))},
    ],
)
def test_a_function_cannot_end_the_loop(folder: Path, keywords: dict[str, Any]) -> None:
    """An iterator of its own that has run out must not look like the end of the epoch."""
    dataset: Any = small(folder)
    if isinstance(keywords.get("batch_transform"), T.CutMix):  # the engine needs no labels_getter
        dataset = [(torch.zeros(3, 4, 4), 1)] * 8
    make: Any = stoker.DataLoader
    with make(dataset, 4, **keywords) as loader, pytest.raises(RuntimeError, match="has run out"):
        list(loader)


def test_one_notice_says_that_a_function_is_called(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _notice._said.clear()
    for _ in range(2):
        with stoker.DataLoader(small(folder), 4, batch_transform=changed) as loader:
            list(loader)
    said = [line for line in capfd.readouterr().err.splitlines() if "training process" in line]
    assert len(said) == 1
    assert "changed" in said[0]


def changed(batch: Any) -> Any:
    return batch


def other(batch: Any) -> Any:
    return batch


def test_an_error_of_a_function_leaves_the_loop_where_it_was(folder: Path) -> None:
    calls = []

    def fails(batch: Any) -> Any:
        calls.append(batch.step)
        if len(calls) == 2:
            raise RuntimeError("mine")
        return batch

    with stoker.DataLoader(small(folder), 4, batch_transform=fails) as loader:
        loop = iter(loader)
        next(loop)
        with pytest.raises(RuntimeError, match="mine"):
            next(loop)
        assert loader.state_dict()["position"] == 4
        assert [batch.step for batch in loop] == [1, 2, 3]


def test_torchvisions_other_transforms_are_called(folder: Path) -> None:
    """They take batches apart with torch's pytree."""
    mix = v2.Compose([v2.CutMix(num_classes=CLASSES), v2.RandomErasing(p=1.0)])
    with stoker.DataLoader(small(folder), 4, batch_transform=mix) as loader:
        batch = next(iter(loader))
    assert batch[1].shape == (4, CLASSES)
    assert batch.ids.tolist() == [0, 1, 2, 3]


# States, copies, other processes.


def test_states_of_other_batch_transforms_do_not_fit(folder: Path) -> None:
    transforms = [
        None,
        T.MixUp(num_classes=3),
        T.MixUp(alpha=0.5, num_classes=3),
        T.CutMix(num_classes=3),
        changed,
        other,
    ]
    cases: list[tuple[Any, dict[str, Any]]] = [(small(folder), {}), (Pairs(), {"num_workers": 0})]
    for data, more in cases:
        states = []
        for transform in transforms:
            with stoker.DataLoader(data, 4, batch_transform=transform, seed=1, **more) as loader:
                states.append(loader.state_dict())
        assert len({state["pipeline"] for state in states}) == len(states)
        for number, transform in enumerate(transforms):
            with stoker.DataLoader(data, 4, batch_transform=transform, seed=1, **more) as loader:
                for state in states:
                    if state is states[number]:
                        loader.load_state_dict(state)
                        continue
                    with pytest.raises(stoker.StateError, match="transforms differ"):
                        loader.load_state_dict(state)


def test_a_pickled_loader_mixes(folder: Path) -> None:
    with stoker.DataLoader(small(folder), 4, seed=1, batch_transform=v2.MixUp(num_classes=CLASSES)) as loader:
        copy = pickle.loads(pickle.dumps(loader))
        want = everything(loader)
    with copy:
        assert everything(copy) == want


def test_boxes_are_the_engines() -> None:
    draws = [draw for draw in json.loads(DRAWS.read_text()) if draw["cut"]]
    assert len(draws) > 40
    for draw in draws:
        assert list(box(draw, *draw["size"])) == [*draw["box"], draw["left"]]


def test_it_needs_no_torch(folder: Path) -> None:
    script = """
import sys
sys.modules["torch"] = None
import numpy, stoker
from stoker import transforms as T
mix = T.RandomChoice([T.MixUp(num_classes=3), T.CutMix(num_classes=3)])
chain = [T.Resize((12, 10)), T.ToTensor()]
with stoker.DataLoader(stoker.ImageFolder(sys.argv[1], chain), 4, output="numpy", batch_transform=mix) as loader:
    for images, labels in loader:
        assert images.dtype == labels.dtype == "float32"
        assert numpy.allclose(labels.sum(1), 1)
pairs = [(numpy.ones((3, 4, 5), "float32"), i % 3) for i in range(8)]
with stoker.DataLoader(pairs, 4, output="numpy", batch_transform=mix, num_workers=0, collate_fn=lambda many: (
        numpy.stack([one for one, _ in many]), numpy.array([label for _, label in many]))) as loader:
    for images, labels in loader:
        assert numpy.allclose(images, 1) and numpy.allclose(labels.sum(1), 1)
"""
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True, timeout=300)


@long
def test_jax_gets_them_too(folder: Path) -> None:
    """In a process of its own: JAX's threads and forked workers do not go together."""
    needs("jax")
    script = """
import sys, numpy, stoker
from stoker import transforms as T
chain = T.Compose([T.Resize((12, 10)), T.ToTensor()])
pairs = [(numpy.full((3, 4, 5), i, "float32"), i % 3) for i in range(10)]
for data in (stoker.ImageFolder(sys.argv[1], chain), pairs):
    for mix in (T.MixUp(num_classes=3), T.CutMix(num_classes=3)):
        found = []
        for output in ("jax", "numpy"):
            with stoker.DataLoader(data, 5, output=output, batch_transform=mix, num_workers=0) as loader:
                batches = list(loader)
            assert type(batches[0][1]).__module__.startswith(output), type(batches[0][1])
            found.append([tuple(map(numpy.asarray, batch)) for batch in batches])
        for one, other in zip(*found, strict=True):
            assert all(numpy.array_equal(a, b) for a, b in zip(one, other, strict=True))
"""
    subprocess.run([sys.executable, "-c", script, str(folder)], check=True, timeout=300)

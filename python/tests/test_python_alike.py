"""Batches are what torch's default_collate makes, and samples with random numbers are the same, whoever makes them: any
number of workers, started in any way, kept or not, after a death, after a resume, at another world size."""

from __future__ import annotations

import itertools
import json
import os
import random
from typing import Any

import mine
import numpy as np
import pytest
import torch
from conftest import picture
from forms import ALL, long, mostly, thinned
from needs import needs
from PIL import ImageEnhance
from test_python_workers import children
from test_values import same, tree
from torch.utils import data
from torchvision.transforms import v2

import stoker

WORKERS = (0, 1, 2, 5)
STRUCTURES = 200


class Generated:
    """Samples of generated structures, ``EACH`` of one after the other; made where they are asked for, because some of
    them cannot be pickled."""

    EACH = 6

    def __init__(self, first: int, structures: int) -> None:
        self.first = first
        self.structures = structures
        self._made: dict[int, list[Any]] = {}

    def __len__(self) -> int:
        return self.EACH * self.structures

    def __getitem__(self, i: int) -> Any:
        return self.samples(i // self.EACH)[i % self.EACH]

    def samples(self, number: int) -> list[Any]:
        if number not in self._made:
            draw = random.Random(self.first + number)
            make = tree(draw, draw.randint(0, 3))
            self._made[number] = [{"x": make()} for _ in range(self.EACH)]
        return self._made[number]

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_made": {}}


@pytest.mark.parametrize("part", mostly(range(4), 0))
def test_each_structure_in_a_loader_of_its_own(part: int) -> None:
    """With every number of workers, kept between passes or not. STOKER_SOAK: all of them."""
    for number in range(part, STRUCTURES, 4 if "STOKER_SOAK" in os.environ else 20):
        made: Any = Generated(number, 1)
        workers = WORKERS[number // 4 % 4]
        expected = list(data.DataLoader(made, 4))
        persistent = workers > 0 and number // 16 % 2 == 1
        with stoker.DataLoader(made, 4, num_workers=workers, persistent_workers=persistent) as loader:
            for _ in range(1 + persistent):
                for found, theirs in zip(loader, expected, strict=True):
                    same(found["x"], theirs["x"], f"structure {number}")


@pytest.mark.parametrize(
    ("method", "workers", "persistent"),
    mostly(
        [("fork", 5, True), ("fork", 1, False), ("spawn", 1, False), ("forkserver", 1, True), (None, 0, False)],
        ("fork", 1, False),
        (None, 0, False),
    ),
)
def test_all_structures_in_one_loader(method: str | None, workers: int, persistent: bool) -> None:
    """A batch of each: those of another structure than the first are made as wholes."""
    made: Any = Generated(0, STRUCTURES)
    batches = [list(range(first, first + made.EACH)) for first in range(0, len(made), made.EACH)]
    with stoker.DataLoader(
        made,
        batch_sampler=batches,
        num_workers=workers,
        persistent_workers=persistent,
        multiprocessing_context=method,
    ) as loader:
        for _ in range(1 + persistent):
            for number, found in enumerate(loader):
                same(found["x"], data.default_collate(made.samples(number))["x"], f"structure {number}")
            assert number == STRUCTURES - 1


# Augmented samples.


class Augmented(mine.Squares):
    """A photograph that Pillow, NumPy, torch and torchvision change at random."""

    def __init__(self, n: int = 24) -> None:
        super().__init__(n)
        self.pictures = [picture(i) for i in range(6)]
        self.crop = v2.Compose([v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4), v2.ToImage()])

    def __getitem__(self, i: int) -> Any:
        image = ImageEnhance.Brightness(self.pictures[i % 6].rotate(random.uniform(-20, 20))).enhance(
            random.random() + 0.5
        )
        found = np.asarray(self.crop(image)).astype(np.float32)
        found += np.random.normal(0, 1, found.shape).astype(np.float32)
        mixed = torch.from_numpy(found) * torch.rand(()) + torch.randn(1)
        return {"image": mixed, "i": i}


def mixed(samples: list[Any]) -> Any:
    """MixUp in a collate function."""
    images = torch.stack([sample["image"] for sample in samples])
    share = np.random.beta(0.4, 0.4)
    order = torch.randperm(len(samples))
    return {
        "image": images * share + images[order] * (1 - share),
        "i": torch.tensor([sample["i"] for sample in samples]),
    }


def told(batch: Any) -> tuple[list[int], bytes]:
    return batch["i"].tolist(), batch["image"].numpy().tobytes()


def augmented(collate: Any = None, **keywords: Any) -> Any:
    return stoker.DataLoader(Augmented(), 4, shuffle=True, seed=9, collate_fn=collate, **keywords)


@pytest.mark.parametrize("collate", mostly([None, mixed], None))
def test_augmented_samples_are_the_same_whoever_makes_them(collate: Any) -> None:
    with augmented(collate, num_workers=0) as loader:
        states, expected = [], []
        for batch in itertools.chain(loader, loader):
            expected.append(told(batch))
            states.append(json.dumps(loader.state_dict()))
    assert len({image for _, image in expected}) == 12
    for workers in (1, 2, 5) if ALL else (3,):
        with augmented(collate, num_workers=workers) as loader:
            assert [told(batch) for batch in itertools.chain(loader, loader)] == expected
    with augmented(collate, num_workers=2) as loader:
        found = []
        for batch in itertools.chain(loader, loader):
            found.append(told(batch))
            if len(found) in (2, 9) and (alive := children()):
                os.kill(alive[len(found) % len(alive)], 9)
        assert found == expected
    with augmented(collate, num_workers=2, persistent_workers=True) as loader:
        for step in range(11):
            loader.load_state_dict(json.loads(states[step]))
            assert told(next(itertools.chain(loader, loader))) == expected[step + 1]


@pytest.mark.parametrize("world", mostly([2, 4], 2))
def test_augmented_samples_at_another_world_size(world: int) -> None:
    """A place of the epoch has the same sample whichever rank makes it, also where a state is resumed."""

    def samples(loader: Any) -> dict[int, bytes]:
        rows = [row for batch in loader for row in zip(batch["i"], batch["image"], strict=True)]
        return {int(i): image.numpy().tobytes() for i, image in rows}

    with augmented(num_workers=2) as loader:
        expected = samples(loader)
        loader.set_epoch(0)
        head: dict[int, bytes] = {}
        for batch in loader:
            head.update(samples([batch]))
            if len(head) == 8:
                break
        state = loader.state_dict()
    assert len(expected) == 24
    found: dict[int, bytes] = {}
    for rank in range(world):
        with augmented(num_workers=rank % 3, rank=rank, world_size=world) as loader:
            found.update(samples(loader))
    assert found == expected
    found = dict(head)
    for rank in range(2):
        with augmented(num_workers=1 + rank, rank=rank, world_size=2) as loader:
            loader.load_state_dict(state)
            found.update(samples(loader))
    assert found == expected


@long  # tests/test_steps.py has it over pictures that the engine reads
def test_albumentations() -> None:
    """tests/test_work.py has a Compose of its kind, where it is not installed."""
    albumentations = needs("albumentations")

    class Own(mine.Squares):
        def __init__(self) -> None:
            super().__init__()
            self.crop = albumentations.Compose([albumentations.RandomCrop(8, 8), albumentations.HorizontalFlip()])

        def __getitem__(self, i: int) -> Any:
            return self.crop(image=np.asarray(picture(i % 6)))["image"]

    found = []
    for workers in (0, 1, 3):
        with stoker.DataLoader(Own(), 4, seed=3, num_workers=workers) as loader:
            found.append([batch.numpy().tobytes() for batch in itertools.chain(loader, loader)])
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 10


class Labels(data.Dataset[Any]):
    """Labels that are tensors for some samples, and ints for others."""

    def __init__(self, tensors: int, dtype: Any = torch.int64) -> None:
        self.tensors = tensors
        self.dtype = dtype

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        return {"x": torch.zeros(2), "of": (i, torch.tensor(i, dtype=self.dtype) if i % 2 == self.tensors else i)}


class Listed(Labels):
    def __getitems__(self, ids: list[int]) -> list[Any]:
        return [self[i] for i in ids]


@thinned
@pytest.mark.parametrize("kind", [Labels, Listed])
@pytest.mark.parametrize("workers", [0, 2])
def test_labels_that_are_tensors_in_some_samples(kind: Any, workers: int) -> None:
    """Which sample comes first, and who makes the batch, does not matter: torch accepts one of the two orders."""
    for tensors in (0, 1):
        with stoker.DataLoader(kind(tensors), 4, num_workers=workers) as loader:
            found = [batch["of"][1] for batch in loader]
        assert [(one.tolist(), one.dtype) for one in found] == [
            (list(range(begin, begin + 4)), torch.int64) for begin in (0, 4, 8)
        ]
    mixture = stoker.Mixture([Labels(0), Labels(1)]).map(lambda sample: sample)
    with stoker.DataLoader(mixture, 8, shuffle=True, seed=3, num_workers=workers) as loader:
        assert sorted(i for batch in loader for i in batch["of"][1].tolist()) == sorted([*range(12)] * 2)
    with stoker.DataLoader(Labels(0, torch.float32), 4, num_workers=workers) as loader:
        with pytest.raises(
            stoker.DataError,
            match=r"sample 1 does not fit a batch: its field \['of'\]\[1\] is an int, and a float32 tensor of shape "
            r"\(\) in sample 0",
        ):
            list(loader)

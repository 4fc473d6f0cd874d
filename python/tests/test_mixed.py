"""Mixtures with datasets of the user's own, and batches by length over them."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forms import ALL, mostly
from PIL import Image

import stoker
from stoker import transforms as T


class Draws(torch.utils.data.Dataset[Any]):
    def __init__(self, count: int, first: int) -> None:
        self.count, self.first = count, first

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index + self.first]), random.random()


class Given(Draws):
    def __getitem__(self, index: int, rng: Any = None) -> Any:
        return torch.tensor([index + self.first]), rng.random()


def mixture(**keywords: Any) -> Any:
    return stoker.Mixture([Draws(20, 0), Given(30, 100)], weights=[1, 2], **keywords)


@pytest.mark.parametrize(
    ("stop", "batches"),
    mostly(
        product(["first_exhausted", "all_exhausted", "repeat"], ["mixed", "single"]),
        ("first_exhausted", "mixed"),
        ("all_exhausted", "single"),
        ("repeat", "mixed"),
    ),
)
def test_mixtures_of_python_datasets(stop: str, batches: str) -> None:
    """The same samples and draws with any number of workers, exact shares, and a resume."""
    data = mixture(stop=stop, batches=batches)
    keywords: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 3}
    found = []
    for workers in (0, 1, 2) if ALL else (0, 2):
        loader = stoker.DataLoader(data, num_workers=workers, **keywords)
        got = []
        for step, batch in enumerate(loader):
            got.append(batch)
            if step == 1:
                state, shares = loader.state_dict(), loader.shares()
        assert len(got) == len(loader)
        again = stoker.DataLoader(data, num_workers=workers, **keywords)
        again.load_state_dict(state)
        assert repr(list(again)) == repr(got[2:])
        found.append((repr(got), shares))
        members = [[int(value >= 100) for value in batch[0]] for batch in got]
        second = sum(members[0] + members[1])
        assert shares == [16 - second, second]
        if batches == "single":
            assert all(len(set(one)) == 1 for one in members)
    assert all(one == found[0] for one in found)


def test_the_order_is_that_of_stored_datasets(tmp_path: Path) -> None:
    """What is mixed does not depend on who makes the samples."""
    stored = []
    for count, first in ((20, 0), (30, 100)):
        (tmp_path / str(first)).mkdir()
        np.save(tmp_path / str(first) / "x.npy", np.arange(first, first + count).reshape(count, 1))
        stored.append(stoker.NpyDataset(str(tmp_path / str(first) / "x.npy")))
    keywords: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 3}
    want = [batch.ids.tolist() for batch in stoker.DataLoader(stoker.Mixture(stored, weights=[1, 2]), **keywords)]
    assert [batch.ids.tolist() for batch in stoker.DataLoader(mixture(), **keywords)] == want


def test_a_member_that_the_engine_reads(tmp_path: Path) -> None:
    """Its crops differ from epoch to epoch, and not with the number of workers."""
    (tmp_path / "a").mkdir()
    for i in range(12):
        Image.fromarray(np.random.default_rng(i).integers(0, 255, (30, 40, 3), np.uint8)).save(tmp_path / f"a/{i}.png")
    native = stoker.ImageFolder(str(tmp_path), T.RandomResizedCrop(8))

    class Grey(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            return torch.full((3, 8, 8), 200, dtype=torch.uint8), 7

    data: Any = stoker.Mixture([native, Grey()], stop="all_exhausted")
    epochs = []
    for epoch in range(2):
        found = []
        for workers in (0, 2):
            loader = stoker.DataLoader(data, batch_size=4, num_workers=workers, seed=1)
            loader.set_epoch(epoch)
            found.append(
                {i: row.sum().item() for batch in loader for i, row in zip(batch.ids.tolist(), batch[0], strict=True)}
            )
        assert found[0] == found[1]
        assert found[0].keys() == set(range(18))
        epochs.append(found[0])
    assert [i for i in range(18) if epochs[0][i] == epochs[1][i]] == [*range(12, 18)]


def test_members_that_do_not_fit() -> None:
    other = [torch.zeros(2)] * 5
    with pytest.raises(stoker.DataError, match="does not fit a batch"):
        list(stoker.DataLoader(stoker.Mixture([[torch.zeros(3)] * 5, other]), batch_size=4))
    with pytest.raises(stoker.ConfigError, match="dataset 1 is of type int"):
        stoker.Mixture([other, 3])


@pytest.mark.parametrize("keywords", [{"tokens": 200}, {"batch_size": 8, "bucket": 32}, {"batch_size": 8}])
def test_lengths_and_weights(tmp_path: Path, keywords: dict[str, Any]) -> None:
    """The batches are those of a stored dataset with the same numbers."""
    numbers = [random.Random(1).randrange(1, 50) for _ in range(200)]
    keywords = {**keywords, "weights" if keywords == {"batch_size": 8} else "lengths": numbers, "seed": 4}
    np.save(tmp_path / "x.npy", np.arange(200))
    want = [batch.ids.tolist() for batch in stoker.DataLoader(stoker.NpyDataset(str(tmp_path / "x.npy")), **keywords)]
    for workers in (0, 2):
        data = Draws(200, 0)
        got = [batch[0].flatten().tolist() for batch in stoker.DataLoader(data, num_workers=workers, **keywords)]
        assert got == want

"""Which worker makes a batch, and from which random numbers; batches of another structure than the first sample."""

from __future__ import annotations

import itertools
import os
import random
import signal
from typing import Any

import numpy as np
import pytest
import torch
from forms import ALL, mostly, thinned
from torch.utils.data import DataLoader, Dataset, get_worker_info

import stoker


class Draws(Dataset[Any]):
    """Samples that show who made them, and from which numbers."""

    def __init__(self, length: int = 48) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        number, seed = (-1, 0) if info is None else (info.id, info.seed)
        return index, number, seed, random.random(), float(np.random.rand()), torch.rand(2)


class Scales(Dataset[Any]):
    """Eight samples of one size, eight of the next, and so on; ``odd`` is one that is like no other."""

    def __init__(self, odd: int = -1, length: int = 43) -> None:
        self.odd = odd
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        size = 7 if index == self.odd else 2 + index // 8 % 3
        return {
            "x": torch.full((size, 40 * size), index),
            "id": index,
            "name": f"{index:0{size}}",
            "r": random.random(),
        }


class Ends(Scales):
    """A worker is killed at one sample, once: the file says whether it has been."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def __getitem__(self, index: int) -> Any:
        if index == 13 and not os.path.exists(self.path):
            with open(self.path, "w"):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def listed(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {key: listed(value) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return [listed(value) for value in batch]
    return batch.tolist() if hasattr(batch, "tolist") else batch


def epochs(dataset: Any, number: int = 2, **keywords: Any) -> list[Any]:
    with stoker.DataLoader(dataset, 8, num_workers=keywords.pop("num_workers", 2), **keywords) as loader:
        return [[listed(batch) for batch in loader] for _ in range(number)]


@pytest.mark.parametrize(
    ("collate", "persistent"), mostly(itertools.product([None, list], [False, True]), (None, False))
)
def test_batches_come_from_the_workers_in_turn(collate: Any, persistent: bool) -> None:
    keywords: dict[str, Any] = {"seeding": "worker", "collate_fn": collate, "persistent_workers": persistent, "seed": 5}
    found = epochs(Draws(), 3, **keywords)
    for epoch in found:
        for step, batch in enumerate(epoch):
            rows = batch if collate else list(zip(*batch, strict=True))
            assert {row[1] for row in rows} == {step % 2}
            assert [row[0] for row in rows] == list(range(8 * step, 8 * step + 8))
    bases = []
    for epoch in found:
        seeds = [batch[0][2] if collate else batch[2][0] for batch in epoch]
        assert seeds == [seeds[0] + step % 2 for step in range(6)]
        bases.append(seeds[0])
    assert len(set(bases)) == 3
    assert epochs(Draws(), 3, **{**keywords, "persistent_workers": not persistent}) == found


def test_workers_draw_what_those_of_torch_do_from_the_same_base() -> None:
    (found,) = epochs(Draws(), 1, seeding="worker", seed=5)
    base = found[0][2][0]

    def draws(seed: int) -> Any:
        loader = DataLoader(Draws(), 8, num_workers=2, generator=torch.Generator())
        iterator = loader._get_iterator  # torch draws the base seed from its generator: give it ours
        import torch.utils.data.dataloader as theirs

        init = theirs._BaseDataLoaderIter.__init__

        def seeded(self: Any, loader: Any) -> None:
            init(self, loader)
            self._base_seed = seed

        theirs._BaseDataLoaderIter.__init__ = seeded  # type: ignore[method-assign]
        try:
            return [listed(batch) for batch in iterator()]
        finally:
            theirs._BaseDataLoaderIter.__init__ = init  # type: ignore[method-assign]

    assert found == draws(base)


@pytest.mark.parametrize("persistent", mostly([False, True], True))
def test_seeds_of_worker_init_fn_last(persistent: bool, capsys: pytest.CaptureFixture[str]) -> None:
    def seeds(worker: int) -> None:
        random.seed(worker)

    def none(worker: int) -> None:
        pass

    keywords: dict[str, Any] = {"seeding": "worker", "seed": 5, "persistent_workers": persistent}
    found = epochs(Draws(), 2, worker_init_fn=seeds, **keywords)
    assert "worker_init_fn" not in capsys.readouterr().err
    for number in (0, 1):
        expected = random.Random(number)
        for step in (number, number + 2, number + 4):
            assert found[0][step][3] == [expected.random() for _ in range(8)]
        if persistent:
            assert found[1][number][3] == [expected.random() for _ in range(8)]
        else:
            assert found[1][number][3] == found[0][number][3]
    assert epochs(Draws(), 2, worker_init_fn=none, **keywords) == epochs(Draws(), 2, **keywords)
    capsys.readouterr()
    epochs(Draws(), 1, worker_init_fn=seeds)
    assert "seeding='worker'" in capsys.readouterr().err


def test_the_calling_thread_draws_from_the_trainer_s_generators() -> None:
    random.seed(3)
    (found,) = epochs(Draws(8), 1, num_workers=0, seeding="worker")
    after = random.random()
    expected = random.Random(3)
    assert found[0][3] == [expected.random() for _ in range(8)]
    assert after == expected.random()


def test_seeding_is_one_of_two() -> None:
    with pytest.raises(stoker.ConfigError, match="seeding is 'sample'"):
        stoker.DataLoader(Draws(), 8, num_workers=2, seeding="sample")


@pytest.mark.parametrize(
    ("seeding", "output"),
    mostly(itertools.product(["key", "worker"], ["torch", "numpy"]), ("key", "torch")),
)
def test_batches_of_several_scales(seeding: str, output: str) -> None:
    theirs = [listed({**batch, "r": 0}) for batch in DataLoader(Scales(), 8)]
    keywords: dict[str, Any] = {"seeding": seeding, "output": output}
    again = epochs(Scales(), 2, num_workers=3, **keywords)
    for workers in (1, 2, 5) if ALL else (2,):
        found = epochs(Scales(), 2, num_workers=workers, **keywords)
        for epoch in found:
            assert [{**batch, "r": 0} for batch in epoch] == theirs
        if seeding == "key":
            assert again == found
    with stoker.DataLoader(Scales(), 8, num_workers=2, **keywords) as loader:
        for batch in loader:
            assert type(batch["x"]) is (torch.Tensor if output == "torch" else np.ndarray)
            assert batch.valid.all()
            assert batch.ids.tolist() == batch["id"].tolist()


def test_a_worker_that_ends_at_another_scale(tmp_path: Any) -> None:
    expected = epochs(Scales(), 1)
    assert epochs(Ends(str(tmp_path / "ended")), 1) == expected


@thinned
@pytest.mark.parametrize("odd", [3, 19])
@pytest.mark.parametrize("seeding", ["key", "worker"])
def test_a_sample_like_no_other_of_its_batch(odd: int, seeding: str) -> None:
    with pytest.raises(stoker.DataError, match=rf"sample {odd} .*'x'.*\(7, 280\).*in sample \d+") as caught:
        epochs(Scales(odd), 1, seeding=seeding)
    assert caught.value.where["sample"] == odd
    own: Any = Scales(odd)
    with stoker.DataLoader(own, 8, num_workers=2, on_bad="skip", seeding=seeding) as loader:
        for step, batch in enumerate(loader):
            bad = step == odd // 8
            assert batch.valid.tolist() == [not bad or 8 * step + row != odd for row in range(len(batch["id"]))]
            assert [entry.sample for entry in batch.bad] == [odd] * bad
            if bad:
                assert batch["id"][odd % 8] == odd + 1

"""Samplers: passes, epochs, and going on from a state."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import stoker

WEIGHTS = [0.5, 0, 2, 1, 4, 0.25, 0, 3]


def all_kinds() -> list[Callable[[], Any]]:
    data = range(11)
    return [
        lambda: stoker.SequentialSampler(data),
        lambda: stoker.RandomSampler(data, seed=3),
        lambda: stoker.RandomSampler(data, num_samples=25),
        lambda: stoker.RandomSampler(data, True, 14),
        lambda: stoker.SubsetRandomSampler([5, 9, 2, 2]),
        lambda: stoker.WeightedRandomSampler(WEIGHTS, 13),
        lambda: stoker.WeightedRandomSampler(WEIGHTS, 6, False),
        lambda: stoker.DistributedSampler(data, 3, 1),
        lambda: stoker.DistributedSampler(data, 3, 2, drop_last=True),
        lambda: stoker.BatchSampler(stoker.RandomSampler(data), 3, False),
        lambda: stoker.BatchSampler(stoker.RandomSampler(data), 3, True),
        lambda: stoker.BatchSampler(range(11), 3, True),
    ]


def saved(state: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """Through JSON and torch.save."""
    assert json.loads(json.dumps(state)) == state
    assert len(json.dumps(state)) < 1024
    torch.save(state, tmp_path / "state")
    again: dict[str, Any] = torch.load(tmp_path / "state", weights_only=True)
    return again


@pytest.mark.parametrize("make", all_kinds())
def test_a_state_at_every_place(make: Callable[[], Any], tmp_path: Path) -> None:
    whole = make()
    undisturbed = [list(whole) for _ in range(4)]
    for epoch in range(2):
        for taken in range(len(undisturbed[epoch]) + 1):
            sampler = make()
            for _ in range(epoch):
                list(sampler)
            iterator = iter(sampler)
            head = list(itertools.islice(iterator, taken))
            if epoch and not taken:
                continue  # the pass has not begun: the state is of the one before
            state = saved(sampler.state_dict(), tmp_path)
            again = make()
            again.load_state_dict(state)
            assert again.state_dict() == state
            assert head + list(again) == undisturbed[epoch]
            assert list(again) == undisturbed[epoch + 1]
            assert head + list(iterator) == undisturbed[epoch]
            again.load_state_dict(state)
            again.set_epoch(epoch)
            assert list(again) == undisturbed[epoch][taken:]
            again.load_state_dict(state)
            if hasattr(getattr(again, "sampler", again), "set_epoch"):
                again.set_epoch(3)
                assert list(again) == undisturbed[3]


@pytest.mark.parametrize("make", all_kinds())
def test_iterators_that_are_never_used_count_for_nothing(make: Callable[[], Any]) -> None:
    alike = make()
    epochs = [list(alike) for _ in range(3)]
    sampler = make()
    iter(sampler)
    assert list(sampler) == epochs[0]
    given_up = iter(sampler)
    next(given_up)
    iter(sampler)
    state = sampler.state_dict()
    assert list(sampler) == epochs[2]
    for _ in range(2):
        sampler.load_state_dict(state)
        iter(sampler)
        assert list(sampler) == epochs[1][1:]


@pytest.mark.parametrize("make", all_kinds())
def test_a_state_of_a_finished_pass_gives_the_next_epoch_to_the_second_iterator(make: Callable[[], Any]) -> None:
    # So does StatefulDataLoader of torchdata: a state that says "finished" is loaded into an iterator that is dropped.
    alike = make()
    epochs = [list(alike) for _ in range(2)]
    sampler = make()
    list(sampler)
    state = sampler.state_dict()
    sampler = make()
    sampler.load_state_dict(state)
    dropped = iter(sampler)
    assert list(sampler) == epochs[1]
    assert list(dropped) == []


def test_passes_side_by_side_are_independent() -> None:
    alike = stoker.RandomSampler(range(10))
    first, second = list(alike), list(alike)
    sampler = stoker.RandomSampler(range(10))
    assert list(zip(sampler, sampler, strict=True)) == list(zip(first, second, strict=True))


def test_a_world_of_another_size_goes_on() -> None:
    n = 29
    order = list(stoker.RandomSampler(range(n), seed=6))
    for before, after, steps in itertools.product([1, 2, 3, 4, 7], [1, 2, 3, 5, 8], [1, 2, 3]):
        ranks = [stoker.DistributedSampler(range(n), before, r, seed=6) for r in range(before)]
        heads = [list(itertools.islice(s, steps)) for s in ranks]
        states = [s.state_dict() for s in ranks]
        assert all(state == states[0] for state in states)
        seen = [i for step in zip(*heads, strict=True) for i in step]
        tails = []
        for r in range(after):
            sampler = stoker.DistributedSampler(range(n), after, r, seed=6)
            sampler.load_state_dict(states[0])
            tails.append(list(sampler))
        seen += [i for step in zip(*tails, strict=True) for i in step]
        padding = len(seen) - n
        assert seen == (order + order)[: n + padding]
        assert 0 <= padding < after


def test_states_that_do_not_fit() -> None:
    sampler = stoker.RandomSampler(range(10), seed=1)
    state = sampler.state_dict()
    others: list[tuple[Any, Any, str]] = [
        (stoker.RandomSampler(range(10), seed=2), state, "seed is 1 in the state but 2 here"),
        (stoker.RandomSampler(range(11), seed=1), state, "samples is 10 in the state but 11 here"),
        (stoker.RandomSampler(range(10), True, seed=1), state, "replacement"),
        (stoker.SequentialSampler(range(10)), state, "of a RandomSampler"),
        (stoker.BatchSampler(sampler, 2, False), state, "lacks of"),
        (sampler, {**state, "version": 2}, "version 2"),
        (sampler, {**state, "position": 11}, "position 11"),
        (sampler, {**state, "position": -1}, "position -1"),
        (sampler, {**state, "epoch": 0.5}, "its epoch is 0.5"),
        (sampler, {**state, "order": None}, "order"),
        (sampler, {**state, "order": {**state["order"], "seed": "x"}}, "its seed is 'x', but a seed is an integer"),
        (sampler, {}, "lacks version, sampler, order, epoch, position"),
        (sampler, None, "NoneType"),
        (
            stoker.WeightedRandomSampler([1, 2], 3),
            stoker.WeightedRandomSampler([2, 1], 3).state_dict(),
            "weights",
        ),
        (stoker.SubsetRandomSampler([1, 2]), stoker.SubsetRandomSampler([2, 1]).state_dict(), "indices"),
        (
            stoker.BatchSampler(range(3), 2, False),
            {"version": 1, "sampler": "BatchSampler", "ids": -1, "ended": False},
            "-1 ids",
        ),
    ]
    for other, wrong, text in others:
        with pytest.raises(stoker.StateError, match=text):
            other.load_state_dict(wrong)
    assert list(sampler) == list(stoker.RandomSampler(range(10), seed=1))
    with pytest.raises(stoker.ConfigError, match="epoch is -1"):
        sampler.set_epoch(-1)


class OfRank:
    """As torch's DistributedSampler: each rank's share of an order that all know."""

    def __init__(self, samples: int, rank: int, repeated: int = 1) -> None:
        self.samples, self.rank, self.repeated, self.epoch = samples, rank, repeated, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        order = torch.randperm(self.samples, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        return iter([i for i in order for _ in range(self.repeated)][self.rank :: 2])

    def __len__(self) -> int:
        return -(-self.samples * self.repeated // 2)


def of_rank(folder: Path, rank: int, repeated: int, **more: Any) -> stoker.DataLoader:
    data = stoker.ImageFolder(folder, [stoker.transforms.RandomResizedCrop(8), stoker.transforms.ToTensor()])
    return stoker.DataLoader(
        data, 2, sampler=OfRank(len(data), rank, repeated), seed=1, rank=rank, world_size=2, num_workers=1, **more
    )


def test_the_state_of_one_rank_fits_all(folder: Path) -> None:
    """A checkpoint has the state of rank 0. That rank compares its ids, the others count."""
    whole = [of_rank(folder, rank, 1) for rank in range(2)]
    rest, states = [], []
    for loader in whole:
        loader.set_epoch(3)
        assert len([*itertools.islice(loader, 2)]) == 2
        states.append(loader.state_dict())
        loader.load_state_dict(states[-1])
        rest.append([batch.ids.tolist() for batch in loader])
    assert states[0]["order"]["rank"] == 0
    for rank, want in enumerate(rest):
        loader = of_rank(folder, rank, 1)
        loader.load_state_dict(states[0])
        assert [batch.ids.tolist() for batch in loader] == want
    other = of_rank(folder, 0, 2)
    other.load_state_dict(states[0])
    with pytest.raises(stoker.StateError, match="its first 4 items are not those of the saved run"):
        next(iter(other))


@pytest.mark.parametrize("how", ["native", "collate"])
def test_repeated_samples_are_other_pictures_on_each_rank(folder: Path, how: str) -> None:
    """Each sample comes to both ranks at the same place; rank 0 draws as a world of one does."""
    more = {"collate_fn": torch.utils.data.default_collate} if how == "collate" else {}
    found = []
    for rank in range(2):
        with of_rank(folder, rank, 2, **more) as loader:
            found.append(next(iter(loader))[0].clone())
            assert loader.state_dict()["order"]["rank"] == rank
    data = stoker.ImageFolder(folder, [stoker.transforms.RandomResizedCrop(8), stoker.transforms.ToTensor()])
    ids = list(OfRank(len(data), 0, 2))
    assert ids == list(OfRank(len(data), 1, 2))
    with stoker.DataLoader(data, 2, sampler=ids, seed=1, num_workers=1) as alone:
        assert torch.equal(next(iter(alone))[0], found[0])
    assert not any(torch.equal(a, b) for a, b in zip(*found, strict=True))

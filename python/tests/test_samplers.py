"""Samplers: torch's behaviour, stoker's order, and what is refused."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import steps
import torch
import torch.utils.data
from conftest import TOP, run_python
from forms import ALL, mostly

import stoker
from stoker import _order

NAMES = "BatchSampler RandomSampler SequentialSampler SubsetRandomSampler WeightedRandomSampler".split()


class Numbers(torch.utils.data.Dataset[int]):
    """Sample i is i."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        return index


@pytest.fixture
def pure(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where numpy is not installed."""
    monkeypatch.setattr(_order, "_numpy", lambda: None)


@pytest.mark.parametrize("name", [*NAMES, "DistributedSampler"])
def test_signatures_are_torchs(name: str) -> None:
    ours = dict(inspect.signature(getattr(stoker, name)).parameters)
    theirs = inspect.signature(getattr(torch.utils.data, name)).parameters
    added = {key: ours.pop(key) for key in [*ours] if key not in theirs}
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]
    assert set(added) == ({"seed"} if "Random" in name else set())
    assert all(p.kind == p.KEYWORD_ONLY for p in added.values())


# Orders.


def test_keys_are_the_engines() -> None:
    for value in json.loads((TOP / "testdata" / "rng.json").read_text())["values"]:
        key = _order.below(_order.epoch_key(value["seed"], value["epoch"]), value["place"])
        for word in value["words"]:
            key = _order.below(key, word)
        assert [_order.draw(key, 0), _order.draw(key, 1)] == value["draws"]
        assert _order.uniform(key, 2) == value["float"]
        assert _order.Uniform(1000, key).take(range(3, 4)) == [value["below1000"]]


WEIGHTS = [0.5, 0, 2, 1, 4, 0.25, 0, 3]

# First samples of epoch 3 with seed 7, as package order of the engine gives them. They may never change.
EPOCH_3_SEED_7: list[tuple[Callable[[], Any], list[int]]] = [
    (lambda: stoker.RandomSampler(range(10), seed=7), [7, 5, 3, 9, 0, 6, 1, 2, 4, 8]),
    (lambda: stoker.RandomSampler(range(5000), seed=7), [2183, 1715, 2559, 1254, 1606, 3280, 1473, 3298, 2695, 3140]),
    (lambda: stoker.RandomSampler(range(1000), True, seed=7), [624, 938, 723, 96, 995, 664, 450, 713, 548, 608]),
    (lambda: stoker.WeightedRandomSampler(WEIGHTS, 12, seed=7), [4, 7, 7, 2, 7, 4, 4, 5, 4, 4, 2, 3]),
    (lambda: stoker.WeightedRandomSampler(WEIGHTS, 6, False, seed=7), [4, 7, 2, 0, 5, 3]),
]


@pytest.mark.parametrize(("make", "ids"), EPOCH_3_SEED_7)
def test_orders_are_the_engines(make: Callable[[], Any], ids: list[int]) -> None:
    sampler = make()
    sampler.set_epoch(3)
    assert list(sampler)[: len(ids)] == ids


@pytest.mark.usefixtures("pure")
def test_without_numpy_orders_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(1)
    weights = [rng.random() * (i % 5) for i in range(3000)]
    makers: list[Callable[[], Any]] = [
        lambda: stoker.RandomSampler(range(5000), num_samples=12_345, seed=9),
        lambda: stoker.RandomSampler(range(100_003), num_samples=6000),
        lambda: stoker.RandomSampler(range(10), num_samples=95, seed=2**64 - 1),
        lambda: stoker.RandomSampler(range(7), True, 1000, seed=5),
        lambda: stoker.RandomSampler(range(2**62), True, 1000),
        lambda: stoker.SubsetRandomSampler(range(5, 50_000, 7), seed=4),
        lambda: stoker.WeightedRandomSampler(weights, 5000, seed=8),
        lambda: stoker.WeightedRandomSampler(weights, 2000, False, seed=8),
        lambda: stoker.DistributedSampler(range(9001), 4, 3),
    ]
    plain = [[list(s), list(s)] for s in (make() for make in makers)]
    monkeypatch.undo()
    assert _order._numpy() is numpy
    vectors = [[list(s), list(s)] for s in (make() for make in makers)]
    assert vectors == plain
    assert all(type(sample) is int for passes in vectors for ids in passes for sample in ids)


@pytest.mark.parametrize("n", [1, 2, 3, 4095, 4096, 4097, 8192, 8193, 20_000])
def test_a_pass_is_a_permutation(n: int) -> None:
    sampler = stoker.RandomSampler(range(n), seed=n)
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(n))
    assert n < 4 or first != second
    other = list(stoker.RandomSampler(range(n), seed=n + 1))
    assert n < 4 or other != first


def test_an_order_of_a_million_millions_costs_nothing() -> None:
    class Huge:
        def __len__(self) -> int:
            return 10**12

    ids = list(itertools.islice(stoker.RandomSampler(Huge()), 1000))
    assert len(set(ids)) == 1000
    assert max(ids) > 9 * 10**11
    assert list(itertools.islice(stoker.DistributedSampler(Huge(), 3, 1), 100)) == ids[1:300:3]


def test_the_engine_gives_the_same_sequence(folder: Path) -> None:
    data = stoker.ImageFolder(folder)
    sampler = stoker.RandomSampler(data, seed=11)
    with stoker.DataLoader(data, batch_size=7, shuffle=True, seed=11) as loader:
        for _ in range(3):
            assert [i for batch in loader for i in batch.ids.tolist()] == list(sampler)
        for rank in range(3):
            share = stoker.DistributedSampler(data, 3, rank, seed=11)
            with stoker.DataLoader(data, 7, True, seed=11, rank=rank, world_size=3) as mine:
                assert [i for batch in mine for i in batch.ids.tolist()] == list(share)


def test_more_than_there_are_is_whole_permutations() -> None:
    for n, count in [(7, 25), (5000, 12_000), (1, 4)]:
        sampler = stoker.RandomSampler(range(n), num_samples=count, seed=1)
        theirs = torch.utils.data.RandomSampler(range(n), num_samples=count)
        passes = [list(sampler) for _ in range(3)]
        for ids in passes:
            rounds = [ids[i : i + n] for i in range(0, count, n)]
            assert all(sorted(r) == list(range(n)) for r in rounds[:-1])
            assert len(set(rounds[-1])) == len(rounds[-1])
            assert sorted(Counter(ids).values()) == sorted(Counter(list(theirs)).values())
        if n == 5000:
            every = [tuple(ids[i : i + n]) for ids in passes for i in range(0, 10_000, n)]
            assert len(set(every)) == len(every)
        assert passes[0][:n] == list(stoker.RandomSampler(range(n), seed=1))


def test_a_subset_is_permuted() -> None:
    indices = [30, -1, 10, 10, 99]
    sampler = stoker.SubsetRandomSampler(indices, seed=3)
    order = list(stoker.RandomSampler(range(5), seed=3))
    assert list(sampler) == [indices[i] for i in order]
    assert len(sampler) == 5
    assert len({tuple(sampler) for _ in range(20)}) > 10
    for other in (tuple(indices), torch.tensor(indices), numpy.array(indices)):
        same = list(stoker.SubsetRandomSampler(other, seed=3))  # type: ignore[arg-type]
        assert same == [indices[i] for i in order]
        assert all(type(i) is int for i in same)
    assert list(stoker.SubsetRandomSampler([])) == []
    words: Any = ["a", "b", "c"]
    assert sorted(stoker.SubsetRandomSampler(words)) == words


# Weights.


def chi2(counts: list[float], expected: list[float]) -> float:
    """The statistic's distance from its mean in standard deviations (Wilson, Hilferty 1931)."""
    x = sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True) if e)
    k = sum(e > 0 for e in expected) - 1
    return float((x / k) ** (1 / 3) - (1 - 2 / (9 * k))) / math.sqrt(2 / (9 * k))


def test_draws_are_as_often_as_their_weights() -> None:
    count = 60_000
    sampler = stoker.WeightedRandomSampler(WEIGHTS, count, seed=5)
    for _ in range(3):
        seen = Counter(list(sampler))
        assert set(seen) == {i for i, w in enumerate(WEIGHTS) if w}
        expected = [count * w / sum(WEIGHTS) for w in WEIGHTS]
        assert chi2([seen[i] for i in range(len(WEIGHTS))], expected) < 5.2
    alike = Counter(list(stoker.RandomSampler(range(50), True, count)))
    assert chi2([alike[i] for i in range(50)], [count / 50] * 50) < 5.2


def test_draws_without_replacement_are_weighted_draws() -> None:
    # Of a, b and c the first is by weight, the second by weight among those left.
    weights = [1.0, 2.0, 5.0]
    sampler = stoker.WeightedRandomSampler(weights, 3, False, seed=2)
    epochs = 6000
    seen = Counter(tuple(sampler) for _ in range(epochs))
    orders = list(itertools.permutations(range(3)))
    expected = [epochs * weights[a] / 8 * weights[b] / (8 - weights[a]) for a, b, _ in orders]
    assert chi2([seen[o] for o in orders], expected) < 5.2


def test_draws_without_replacement_never_repeat() -> None:
    rng = random.Random(3)
    weights = [rng.choice([0, 1e-150, 1e-3, 1, 1e150]) for _ in range(500)]
    there = sum(w > 0 for w in weights)
    ids = list(stoker.WeightedRandomSampler(weights, there, False))
    assert sorted(ids) == [i for i, w in enumerate(weights) if w]
    heaviest = [i for i, w in enumerate(weights) if w == 1e150]
    assert sorted(ids[: len(heaviest)]) == heaviest
    assert list(stoker.WeightedRandomSampler(weights, 50, False)) == ids[:50]


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor, numpy.array])
def test_weights_may_be_any_list(kind: Callable[[Any], Any]) -> None:
    ids = list(stoker.WeightedRandomSampler(kind(WEIGHTS), 100))
    assert ids == list(stoker.WeightedRandomSampler(WEIGHTS, 100))
    weights = stoker.WeightedRandomSampler(kind(WEIGHTS), 100).weights
    assert list(weights) == WEIGHTS
    with pytest.raises(TypeError):
        weights[0] = 3  # type: ignore[index]


def test_the_logarithm_is_one() -> None:
    rng = random.Random(4)
    for x in [
        2.0**-53,
        1 - 2.0**-53,
        0.5,
        0.7071067811865475,
        0.7071067811865476,
        *(rng.random() for _ in range(5000)),
    ]:
        assert abs(_order.logarithm(x) - math.log(x)) <= 1.5 * math.ulp(math.log(x))


# As torch's.


def test_shares_are_torchs() -> None:
    for n, world, drop, shuffle in itertools.product(
        [0, 1, 2, 3, 5, 7, 8, 9, 16, 23, 100], [1, 2, 3, 4, 5, 8, 13], [False, True], [False, True]
    ):
        case = f"{n} samples, {world} ranks, drop_last={drop}, shuffle={shuffle}"
        data = Numbers(n)
        mine = [stoker.DistributedSampler(data, world, r, shuffle, 4, drop) for r in range(world)]
        torchs: list[Any] = [
            torch.utils.data.DistributedSampler(data, world, r, shuffle, 4, drop) for r in range(world)
        ]
        for ours, theirs in zip(mine, torchs, strict=True):
            for name in ("num_samples", "total_size", "num_replicas", "rank", "drop_last", "shuffle", "seed", "epoch"):
                assert getattr(ours, name) == getattr(theirs, name), case
            assert len(ours) == len(theirs), case
        got, expected = [list(s) for s in mine], [list(s) for s in torchs]
        assert [len(ids) for ids in got] == [len(ids) for ids in expected], case
        if not shuffle:
            assert got == expected, case
        together = [i for step in zip(*got, strict=True) for i in step]
        order = list(stoker.RandomSampler(data, seed=4)) if shuffle and n else list(range(n))
        padded = (order * (world + 1))[: len(together)]
        assert together == padded, case
        assert sorted(Counter(together).values()) == sorted(Counter(i for ids in expected for i in ids).values()), case


def test_rank_and_world_are_the_processs(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = stoker.DistributedSampler(range(10))
    assert (alone.rank, alone.num_replicas) == (0, 1)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    told = stoker.DistributedSampler(range(10))
    assert (told.rank, told.num_replicas) == (2, 4)
    fewer = stoker.DistributedSampler(range(10), num_replicas=3)
    assert (fewer.rank, fewer.num_replicas) == (2, 3)
    other = stoker.DistributedSampler(range(10), rank=1)
    assert (other.rank, other.num_replicas) == (1, 4)


@pytest.mark.parametrize("drop", [False, True])
def test_batches_are_torchs(drop: bool) -> None:
    for n, size in itertools.product([0, 1, 5, 6, 7, 100], [1, 2, 3, 7, 200]):
        for make in (lambda n=n: range(n), lambda n=n: stoker.SequentialSampler(range(n)), lambda n=n: iter(range(n))):
            theirs = torch.utils.data.BatchSampler(make(), size, drop)
            ours = stoker.BatchSampler(make(), size, drop)
            if hasattr(make(), "__len__"):
                assert len(ours) == len(theirs)
            assert list(ours) == list(theirs)


def loaders(workers: int, n: int = 23) -> Iterator[tuple[Any, Any, Any]]:
    """Samplers, and loaders of torch's that draw from them, in all the ways torch has."""
    data = Numbers(n)
    keep: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    for sampler in (
        stoker.SequentialSampler(data),
        stoker.RandomSampler(data, seed=1),
        stoker.RandomSampler(data, True, 30),
        stoker.SubsetRandomSampler([3, 1, 8]),
        stoker.WeightedRandomSampler([1.0, 2, 3] * 7, 9, False),
        stoker.DistributedSampler(data, 2, 1),
    ):
        alike = pickle.loads(pickle.dumps(sampler))
        yield sampler, alike, torch.utils.data.DataLoader(data, 4, sampler=sampler, **keep)
    sampler = stoker.RandomSampler(data, seed=2)
    batches = stoker.BatchSampler(sampler, 4, False)
    yield batches, stoker.RandomSampler(data, seed=2), torch.utils.data.DataLoader(data, batch_sampler=batches, **keep)
    sampler = stoker.RandomSampler(data, seed=3)
    single = torch.utils.data.DataLoader(data, batch_size=None, sampler=sampler, num_workers=workers)
    yield sampler, stoker.RandomSampler(data, seed=3), single


@pytest.mark.parametrize("workers", mostly([0, 2], 0))
def test_inside_torchs_dataloader(workers: int) -> None:
    def ids(loader: Any) -> list[int]:
        return [i for batch in loader for i in torch.as_tensor(batch).flatten().tolist()]

    for sampler, alike, loader in loaders(workers):
        single = loader.batch_size is None and loader.batch_sampler is None
        assert len(loader) == (len(alike) if single else -(-len(alike) // 4))
        for _ in range(2):
            assert ids(loader) == list(alike)
        sampler.set_epoch(9)
        alike.set_epoch(9)
        assert ids(loader) == list(alike)
        assert alike.epoch == 9


def test_a_seed_may_come_from_a_generator() -> None:
    generator = torch.Generator()
    generator.manual_seed(77)
    assert list(stoker.RandomSampler(range(50), generator=generator)) == list(stoker.RandomSampler(range(50), seed=77))


# What the loader asks.


def test_what_an_order_of_the_spec_says() -> None:
    data = range(10)
    said: list[tuple[Any, Any]] = [
        (stoker.SequentialSampler(data), {}),
        (stoker.RandomSampler(data), {"shuffle": "full"}),
        (stoker.RandomSampler(data, num_samples=4, seed=5), {"shuffle": "full", "num_samples": 4}),
        (stoker.RandomSampler(data, True, 40), {"replacement": True, "num_samples": 40}),
        (stoker.RandomSampler(data, num_samples=11), None),
        (stoker.SubsetRandomSampler([4, 2], seed=1), {"shuffle": "full", "subset": [4, 2]}),
        (stoker.SubsetRandomSampler([4, -2]), None),
        (stoker.SubsetRandomSampler([]), None),
        (stoker.WeightedRandomSampler([1, 2], 2), {"weights": [1.0, 2.0], "replacement": True}),
        (stoker.WeightedRandomSampler([1, 2], 1, False), {"weights": [1.0, 2.0], "num_samples": 1}),
        (stoker.DistributedSampler(data, 4, 1, seed=3), {"shuffle": "full"}),
        (stoker.DistributedSampler(data, 4, 1, False, seed=3), {}),
    ]
    for sampler, order in said:
        assert sampler._order() == order
    assert stoker.DistributedSampler(data, 4, 1, drop_last=True)._world() == (1, 4, True)
    assert stoker.RandomSampler(data)._world() is None
    assert stoker.RandomSampler(data, seed=5).seed == 5
    assert [s._samples() for s, _ in said] == [10, 10, 10, 10, 10, 5, 5, 0, 2, 2, 10, 10]
    inner = stoker.RandomSampler(data)
    assert stoker.BatchSampler(inner, 3, True)._batch() == (inner, 3, True)


@pytest.mark.parametrize("batched", [False, True])
def test_inside_stokers_dataloader(folder: Path, batched: bool) -> None:
    data = stoker.ImageFolder(folder)
    weights = [i * 37 % 11 / 3 for i in range(len(data))]
    samplers: list[Any] = [
        stoker.SequentialSampler(data),
        stoker.RandomSampler(data, seed=5),
        stoker.RandomSampler(data, num_samples=20),
        stoker.RandomSampler(data, num_samples=120, seed=2),
        stoker.RandomSampler(data, True, 77, seed=2),
        stoker.SubsetRandomSampler([5, 9, 11, 40, 2, 2], seed=2),
        stoker.WeightedRandomSampler(weights, 70, seed=2),
        stoker.WeightedRandomSampler(weights, 30, False, seed=2),
        stoker.DistributedSampler(data, 3, 1),
        stoker.DistributedSampler(data, 3, 2, drop_last=True),
        stoker.DistributedSampler(data, 3, 2, False),
    ]
    for sampler in samplers if ALL else samplers[batched::2]:
        alike = pickle.loads(pickle.dumps(sampler))
        given: dict[str, Any] = {"sampler": sampler, "batch_size": 4}
        if batched:
            given = {"batch_sampler": stoker.BatchSampler(sampler, 4, False)}
        with stoker.DataLoader(data, **given) as loader:
            for epoch in (0, 1, 7):
                sampler.set_epoch(epoch)
                alike.set_epoch(epoch)
                ids = [batch.ids.tolist() for batch in loader]
                assert ids == list(torch.utils.data.BatchSampler(alike, 4, False))
                assert len(loader) == len(ids)
                assert sampler.state_dict() == alike.state_dict()


def many(folder: Path, case: str) -> Any:
    """A dataset that the engine reads, in one way or another."""
    data = stoker.ImageFolder(folder)
    ways: dict[str, Callable[[], Any]] = {
        "engine": lambda: data,
        "steps of Python": lambda: data.map(steps.same),
        "chosen": lambda: data.skip(10).take(30),
        "mixture": lambda: stoker.Mixture([data, stoker.ImageFolder(folder)], weights=[1, 1]),
        "rows": lambda: torch.utils.data.TensorDataset(torch.arange(50)),
    }
    return ways[case]()


def delivered(data: Any, state: dict[str, Any] | None = None, **given: Any) -> tuple[list[list[int]], dict[str, Any]]:
    """The ids of all batches, and the state after the first."""
    states: list[dict[str, Any]] = []
    ids = []
    with stoker.DataLoader(data, **given) as loader:
        if state is not None:
            loader.load_state_dict(state)
        for batch in loader:
            source: Any = batch if isinstance(batch, stoker.Batch) else loader.facts
            ids.append(source.ids.tolist())
            states.append(loader.state_dict())
    return ids, states[0]


@pytest.mark.parametrize("case", mostly(["engine", "steps of Python", "chosen", "mixture", "rows"], "engine", "chosen"))
def test_ids_from_the_end(folder: Path, case: str) -> None:
    """As in torch, where a sampler's -1 is dataset[-1]: on every dataset the last sample."""
    data = many(folder, case)
    n = len(data)
    ids = [-1, 3, -n, n - 1, -2]
    want, _ = delivered(data, sampler=[i % n for i in ids], batch_size=2)
    assert [len(batch) for batch in want] == [2, 2, 1]
    assert case == "chosen" or want == [[n - 1, 3], [0, n - 1], [n - 2]]
    samplers: list[dict[str, Any]] = [
        {"sampler": ids, "batch_size": 2},
        {"sampler": torch.tensor(ids), "batch_size": 2},
        {"batch_sampler": [[-1, 3], numpy.array([-n, n - 1]), (-2,)]},
    ]
    for given in samplers:
        got, state = delivered(data, **given)
        assert got == want
        assert delivered(data, state, **given)[0] == want[1:]
    for wrong in (-n - 1, n):
        with pytest.raises(stoker.ConfigError, match=f"gave sample {wrong}.* but the dataset has {n} samples"):
            delivered(data, sampler=torch.tensor([0, wrong]))


def test_a_pass_that_the_loader_begins_counts() -> None:
    sampler = stoker.DistributedSampler(range(10), 2, 0)
    now = sampler._begin()
    now.position += 6
    assert (now.epoch, sampler.state_dict()["position"]) == (0, 6)
    again = stoker.DistributedSampler(range(10), 2, 0)
    again.load_state_dict(sampler.state_dict())
    assert (again._begin().position, again._begin().epoch) == (6, 1)


# What is refused.

untyped: Any = stoker  # these arguments are not what they have to be
WRONG: list[tuple[Callable[[], Any], list[str]]] = [
    (lambda: untyped.DistributedSampler(range(4), 2, 2), ["rank is 2 in a world of 2", "from 0 to 1"]),
    (lambda: untyped.DistributedSampler(range(4), 2, -1), ["rank is -1"]),
    (lambda: untyped.DistributedSampler(range(4), 0, 0), ["num_replicas is 0"]),
    (lambda: untyped.DistributedSampler(range(4), num_replicas=4), ["must be given together", "torchrun"]),
    (
        lambda: untyped.DistributedSampler(iter([]), 2, 5, 1, -1, 0),
        ["5 problems", "dataset is", "rank is 5", "shuffle is 1", "drop_last is 0", "seed is -1"],
    ),
    (lambda: untyped.RandomSampler(range(0)), ["data_source is empty"]),
    (lambda: untyped.RandomSampler(range(3), 1, 0, object()), ["3 problems", "replacement is 1", "num_samples is 0"]),
    (lambda: untyped.RandomSampler(range(3), generator=torch.Generator(), seed=1), ["seed and generator"]),
    (lambda: untyped.RandomSampler(range(3), seed=2**64), ["seed is 18446744073709551616"]),
    (lambda: untyped.RandomSampler(range(3), num_samples=True), ["num_samples is True"]),
    (lambda: untyped.SequentialSampler(3), ["data_source is of type int, which has no length"]),
    (lambda: untyped.SubsetRandomSampler({1, 2}, seed=0.5), ["2 problems", "indices is of type set", "seed"]),
    (lambda: untyped.WeightedRandomSampler([1, -1], 1), ["weight 1 is -1.0"]),
    (lambda: untyped.WeightedRandomSampler([math.nan, 1, math.inf], 0), ["3 problems", "0 is nan", "2 is inf"]),
    (lambda: untyped.WeightedRandomSampler([-1] * 9, 1), ["6 more weights"]),
    (lambda: untyped.WeightedRandomSampler([0, 0], 1), ["the weights are all 0"]),
    (lambda: untyped.WeightedRandomSampler([], 1), ["weights is empty"]),
    (lambda: untyped.WeightedRandomSampler([1e308] * 3, 1), ["overflows a float"]),
    (lambda: untyped.WeightedRandomSampler([1, None], 1), ["weight 1 is None"]),
    (lambda: untyped.WeightedRandomSampler([1, 10**400], 1), ["weight 1 is 1000"]),
    (lambda: untyped.WeightedRandomSampler(torch.ones(2, 3), 1), ["weight 0 is [1.0, 1.0, 1.0]"]),
    (lambda: untyped.WeightedRandomSampler(3, 1), ["weights is of type int"]),
    (lambda: untyped.WeightedRandomSampler(b"12345678", 1), ["weights is of type bytes"]),
    (lambda: untyped.WeightedRandomSampler([1, 0, 2], 3, False), ["num_samples is 3, but only 2 of 3", "at most 2"]),
    (lambda: untyped.WeightedRandomSampler([1e-200, 1], 1, False), ["weight 0 is 1e-200", "1e-150"]),
    (lambda: untyped.WeightedRandomSampler([1], 1, 1), ["replacement is 1"]),
    (lambda: untyped.BatchSampler(range(3), 0, False), ["batch_size is 0"]),
    (lambda: untyped.BatchSampler(range(3), True, 1), ["2 problems", "batch_size is True", "drop_last is 1"]),
    (lambda: untyped.BatchSampler(3, 1, False), ["sampler is of type int"]),
]


@pytest.mark.parametrize(("make", "texts"), WRONG)
def test_what_is_wrong_is_told_at_once(make: Callable[[], Any], texts: list[str]) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert isinstance(caught.value, stoker.ConfigError)
    for text in texts:
        assert text in str(caught.value)
    assert "try: " in str(caught.value)


def test_ranks_of_the_environment_that_can_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "4")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(stoker.ConfigError, match="rank is 4 in a world of 4"):
        stoker.DistributedSampler(range(10))


ALONE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {"stoker", *sys.stdlib_module_names}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Blocker())
sys.path.insert(0, %r)
import stoker
sampler = stoker.RandomSampler(range(6000), seed=1)
batches = stoker.BatchSampler(stoker.WeightedRandomSampler([1, 2, 3] * 40, 90, False), 7, True)
print([list(sampler), list(sampler), list(batches)])
"""


def test_the_standard_library_is_enough() -> None:
    done = run_python(ALONE % str(Path(stoker.__file__).parents[1]), "-S", "-I")
    assert done.returncode == 0, done.stderr
    sampler = stoker.RandomSampler(range(6000), seed=1)
    batches = stoker.BatchSampler(stoker.WeightedRandomSampler([1, 2, 3] * 40, 90, False), 7, True)
    assert json.loads(done.stdout) == [list(sampler), list(sampler), list(batches)]

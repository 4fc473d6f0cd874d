"""Samplers that give something else than ids: it goes to ``__getitem__`` as it is, wherever samples are made."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forms import mostly
from torch.utils.data import BatchSampler, SequentialSampler, SubsetRandomSampler, TensorDataset

import stoker

WORKERS = (0, 1, 3)


class Scaled(torch.utils.data.Dataset[Any]):
    """Samples by (index, size), or by a name."""

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            return torch.tensor(len(item)), item
        index, size = item
        return torch.full((size,), index), index, random.random()


class Pairs:
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return iter([(i * 7 % 50, 4) for i in range(self.count)])


class Scales:
    """Batches of several sizes, with one scale in each."""

    def __len__(self) -> int:
        return 30

    def __iter__(self) -> Iterator[Any]:
        for step in range(30):
            yield [(step * 3 + row, 2 + step % 4) for row in range(1 + step % 5)]


CASES: dict[str, dict[str, Any]] = {
    "pairs": {"sampler": Pairs(103), "batch_size": 8},
    "scales": {"batch_sampler": Scales()},
    "names": {"sampler": ["a", "bcd", "ef"] * 40, "batch_size": 7},
    "single": {"sampler": ["a", "bcd", "ef"] * 10, "batch_size": None},
    "collated": {"sampler": Pairs(103), "batch_size": 8, "collate_fn": list},
}


@pytest.mark.parametrize(
    ("case", "workers"), mostly(product(CASES, WORKERS), *product(CASES, [0]), ("pairs", 1), ("scales", 3))
)
def test_the_same_as_torch(case: str, workers: int) -> None:
    """And after a resume in the middle. Random numbers are stoker's."""
    want = list(torch.utils.data.DataLoader(Scaled(), num_workers=0, **CASES[case]))
    loader = stoker.DataLoader(Scaled(), num_workers=workers, **CASES[case])
    got = []
    for step, batch in enumerate(loader):
        got.append(batch)
        if step == 4:
            state = loader.state_dict()
    assert shown(got) == shown(want)
    assert loader.facts is not None
    assert loader.facts.ids.tolist()[-1] == sum(part["samples"] for part in loader.receipt()["parts"]) - 1  # places
    again = stoker.DataLoader(Scaled(), num_workers=workers, **CASES[case])
    again.load_state_dict(state)
    assert repr(list(again)) == repr(got[5:])


def shown(batches: list[Any]) -> str:
    """Without random numbers."""
    told: list[Any] = []
    for batch in batches:
        if isinstance(batch, list) and isinstance(batch[0], tuple):
            told.append([sample[:2] for sample in batch])
        else:
            told.append(batch[:2] if len(batch) == 3 else batch)
    return repr(told)


def test_lists_of_ids_as_items() -> None:
    """Whole batches by one look-up: torch's idiom of a BatchSampler as the sampler."""
    data = TensorDataset(torch.arange(100).view(50, 2))
    sampler = BatchSampler(SequentialSampler(data), 8, False)
    want = list(torch.utils.data.DataLoader(data, sampler=sampler, batch_size=None))
    for workers in (0, 2):
        got = list(stoker.DataLoader(data, sampler=sampler, batch_size=None, num_workers=workers))
        assert repr(got) == repr(want)


@pytest.mark.parametrize("workers", [0, 2])
def test_getitems(workers: int) -> None:
    class Lists(Scaled):
        def __getitems__(self, items: list[Any]) -> list[Any]:
            return [(index, size) for index, size in items]

    loader = stoker.DataLoader(Lists(), batch_size=4, sampler=Pairs(8), num_workers=workers)
    assert [[value.tolist() for value in batch] for batch in loader] == [
        [[0, 7, 14, 21], [4, 4, 4, 4]],
        [[28, 35, 42, 49], [4, 4, 4, 4]],
    ]


def test_killed_workers_make_them_again(tmp_path: Path) -> None:
    class Deadly(Scaled):
        def __getitem__(self, item: Any) -> Any:
            if item[0] % 20 == 14 and not (mark := tmp_path / str(item)).exists():
                mark.touch()
                os._exit(1)
            return super().__getitem__(item)

    want = list(stoker.DataLoader(Scaled(), batch_size=8, sampler=Pairs(103), num_workers=0))
    assert repr(list(stoker.DataLoader(Deadly(), batch_size=8, sampler=Pairs(103), num_workers=2))) == repr(want)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("policy", mostly(["skip", "replace"], "replace"))
def test_bad_items(policy: str) -> None:
    class Picky(Scaled):
        def __getitem__(self, item: Any) -> Any:
            if item[0] == 14:
                raise KeyError(item)
            return super().__getitem__(item)

    found = []
    for workers in (0, 2):
        loader = stoker.DataLoader(Picky(), batch_size=8, sampler=Pairs(40), num_workers=workers, on_bad=policy)
        found.append([repr(batch) for batch in loader])
    assert found[0] == found[1]
    with pytest.raises(stoker.DataError, match=r"dataset\[\(14, 4\)\] raised KeyError"):
        list(stoker.DataLoader(Picky(), batch_size=8, sampler=Pairs(40), num_workers=2))


def test_datasets_without_numbers_or_length() -> None:
    class Endless(torch.utils.data.Dataset[int]):
        def __getitem__(self, item: int) -> int:
            return item * 2

    named: Any = {"a": 1, "b": 2, "c": 3}
    for workers in (0, 2):
        loader = stoker.DataLoader(Endless(), batch_size=2, sampler=[1, 5, 10**9], num_workers=workers)
        assert [batch.tolist() for batch in loader] == [[2, 10], [2 * 10**9]]
        loader = stoker.DataLoader(named, batch_size=2, sampler=[*named], num_workers=workers)
        assert [batch.tolist() for batch in loader] == [[1, 2], [3]]
    with pytest.raises(stoker.ConfigError, match="no length"):
        stoker.DataLoader(Endless(), batch_size=2)


class Keyed(torch.utils.data.Dataset[str]):
    """No length: any key has a sample."""

    def __getitem__(self, key: Any) -> str:
        return repr(key)


@pytest.mark.parametrize("workers", mostly([0, 2], 0))
def test_integers_that_are_keys(workers: int) -> None:
    """Hashes are keys, wherever the first large one comes, and so are bools."""
    for keys in ([2**40, 2**63 - 1], [2**70, 3, -(2**63)], [3, 2**53, "x"], [-(2**53) - 1]):
        assert list(stoker.DataLoader(Keyed(), 2, sampler=keys, num_workers=workers)) == [
            list(map(repr, keys[at : at + 2])) for at in range(0, len(keys), 2)
        ]
    batches = [[1, 2**60], [4, 5]]
    loader = stoker.DataLoader(Keyed(), batch_sampler=batches, num_workers=workers)
    assert list(loader) == [["1", str(2**60)], ["4", "5"]]
    assert [list(batch) for batch in stoker.DataLoader(Keyed(), 2, sampler=iter([True, False]))] == [["True", "False"]]
    with pytest.raises(stoker.ConfigError, match="is a mask"):
        stoker.DataLoader(Keyed(), 2, sampler=[True, False])


def test_integers_that_are_keys_after_many_ids() -> None:
    with pytest.raises(stoker.ConfigError, match="its first items were ids: give ids throughout a pass"):
        list(stoker.DataLoader(Keyed(), 5000, sampler=[*range(5000), 2**60]))


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("not this one")


@pytest.mark.parametrize(
    ("items", "words"),
    [
        ([1, 5, "x"], "gave 'x' as item 2; it must give ids"),
        ([Unpicklable()], "cannot be pickled"),
        ([[], []], "an empty batch"),
    ],
)
def test_what_cannot_be_given(items: list[Any], words: str) -> None:
    data = list(range(10))
    keyword = "batch_sampler" if items == [[], []] else "sampler"
    with pytest.raises(stoker.ConfigError, match=words):
        list(stoker.DataLoader(data, **{keyword: items}))  # type: ignore[call-overload]


def test_another_order_after_a_restart() -> None:
    loader = stoker.DataLoader(Scaled(), batch_size=4, sampler=Pairs(40))
    for step, _ in enumerate(loader):
        if step == 2:
            state = loader.state_dict()
    other = stoker.DataLoader(Scaled(), batch_size=4, sampler=[(1, 4)] * 40)
    with pytest.raises(stoker.StateError):
        other.load_state_dict({**state, "order": {**state["order"], "sampler": "list"}})
        next(iter(other))


def test_long_samplers_in_pieces() -> None:
    """More than one message for the engine, with batches across its end."""
    items = [(i, 1) for i in range(10_000)]
    loader = stoker.DataLoader(Scaled(), batch_size=96, sampler=items, num_workers=2, seeding="worker")
    assert [i for batch in loader for i in batch[1].tolist()] == list(range(10_000))


class Told(torch.utils.data.Dataset[Any]):
    """Says what it was asked for."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, item: Any) -> Any:
        return f"{type(item).__name__} {item!r}"


def integers(case: str) -> tuple[list[int], dict[str, Any]]:
    """Samples, and a sampler of them whose ids are not Python's, or count from the end."""
    odd: Any = np.array([1, 3, 5])
    few = SubsetRandomSampler(odd, generator=torch.Generator().manual_seed(1))
    cases: dict[str, tuple[list[int], dict[str, Any]]] = {
        "array": ([5, 4, 3, 2, 1, 0], {"sampler": np.arange(6)[::-1], "batch_size": 4}),
        "int32": ([0, 1, 2, 3, 4], {"sampler": np.arange(5, dtype=np.int32), "batch_size": 4}),
        "tensor": ([0, 1, 2, 3, 4, 5], {"sampler": torch.arange(6), "batch_size": 4}),
        "several": ([0, 3, 2, 5, 4], {"sampler": [0, np.int64(3), torch.tensor(2), -1, np.int8(-2)], "batch_size": 4}),
        "from the end": ([5, 0, 0], {"sampler": [-1, 0, -6], "batch_size": 2}),
        "subset": ([3, 5, 1], {"sampler": few, "batch_size": 2}),
        "batches": ([0, 4, 1, 2, 5], {"batch_sampler": [np.array([0, 4]), [1, np.int16(2)], torch.tensor([5])]}),
        "rows": ([0, 1, 2, 3, 4, 5], {"batch_sampler": torch.arange(6).reshape(2, 3)}),
        "single": ([0, 1, 2], {"sampler": np.arange(3), "batch_size": None}),
    }
    return cases[case]


INTEGERS = ["array", "int32", "tensor", "several", "from the end", "subset", "batches", "rows", "single"]


@pytest.mark.parametrize(
    ("case", "workers"), mostly(product(INTEGERS, WORKERS), *product(INTEGERS, [0]), ("array", 1), ("batches", 3))
)
def test_integers_of_other_types_are_what_torch_gives(case: str, workers: int) -> None:
    """The dataset gets them as the sampler gives them; ids and receipts count samples."""
    samples, keywords = integers(case)
    want = list(torch.utils.data.DataLoader(Told(), **keywords))
    loader = stoker.DataLoader(Told(), num_workers=workers, **integers(case)[1])
    state: dict[str, Any] = {}
    ids: list[int] = []
    got = []
    for batch in loader:
        got.append(batch)
        assert loader.facts is not None
        ids += loader.facts.ids.tolist()
        state = state or loader.state_dict()
    assert got == want
    assert [part["samples"] for part in loader.receipt()["parts"]] == [len(ids)]
    assert ids == samples
    again = stoker.DataLoader(Told(), num_workers=workers, **integers(case)[1])
    again.load_state_dict(state)
    assert list(again) == want[1:]


def test_integers_beyond_the_dataset() -> None:
    for sampler in (np.array([0, 6]), [0, np.int64(-7)], [0, -7]):
        with pytest.raises(stoker.ConfigError, match="at place 1, but the dataset has 6 samples"):
            list(stoker.DataLoader(Told(), sampler=sampler))


@pytest.mark.parametrize("workers", [0, 2])
def test_integers_of_other_types_are_replaced(workers: int) -> None:
    class Bad(Told):
        def __getitem__(self, item: Any) -> Any:
            assert type(item) is np.int64
            if item == 2:
                raise ValueError("bad")
            return super().__getitem__(item)

    loader = stoker.DataLoader(Bad(), sampler=np.arange(6), batch_size=6, num_workers=workers, on_bad="replace")
    (batch,) = loader
    assert len(batch) == 6
    assert {name.split()[0] for name in batch} == {"int64"}
    assert loader.facts is not None
    assert [bad.sample for bad in loader.facts.bad] == [2]
    with pytest.raises(stoker.DataError, match=r"dataset\[2\] raised ValueError: bad \(sample 2"):
        list(stoker.DataLoader(Bad(), sampler=np.arange(6), batch_size=6, num_workers=workers))


def test_rows_are_looked_up_whatever_their_ids_are() -> None:
    """No code of the user's sees the ids."""
    data = TensorDataset(torch.arange(12).view(6, 2))
    for sampler in (np.arange(6), torch.arange(6), [-1, np.int64(2)]):
        for workers in (0, 2):
            want = list(torch.utils.data.DataLoader(data, sampler=sampler, batch_size=4))
            got = list(stoker.DataLoader(data, sampler=sampler, batch_size=4, num_workers=workers))
            assert repr(got) == repr(want)

"""stoker.StatefulDataLoader beside torchdata's own: the same calls, the same batches."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader as Torchdata

import stoker

warnings.filterwarnings("ignore")

N, SIZE = 10, 3
STREAMED = 12  # comes out even with two workers: torchdata restarts one that has ended with a batch that is not full

Batches = list[list[int]]
Make = Callable[[], Any]


class Counting(torch.utils.data.IterableDataset[Any]):
    """Every worker's share, with a state."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        rows = range(STREAMED)[info.id :: info.num_workers] if info else range(STREAMED)
        begin, self.at = self.at, 0
        for i in range(begin, len(rows)):
            self.at = i + 1
            yield rows[i]
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Plain(torch.utils.data.IterableDataset[Any]):
    """The same without a state: both loaders iterate it again."""

    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        yield from range(STREAMED)[info.id :: info.num_workers] if info else range(STREAMED)


class Used(torch.utils.data.Dataset[int]):
    """Samples by number, that say how often they were asked for."""

    def __init__(self) -> None:
        self.calls = 0

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> int:
        self.calls += 1
        return 100 * self.calls + i

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]


def rows(loader: Any) -> Batches:
    return [batch.tolist() for batch in loader]


def loaded(make: Make, state: dict[str, Any]) -> tuple[Batches, Batches]:
    """What a new loader gives after a state, and in the pass after that."""
    loader = make()
    loader.load_state_dict(state)
    return rows(loader), rows(loader)


def before_iter(make: Make, n: int) -> Any:
    return loaded(make, make().state_dict())


def in_the_middle(make: Make, n: int) -> Any:
    loader = make()
    batches = iter(loader)
    for _ in range(n):
        next(batches)
    return loaded(make, loader.state_dict()), rows(batches)


def after_break(make: Make, n: int) -> Any:
    loader = make()
    for i, _ in enumerate(loader, 1):
        if i == n:
            break
    return loaded(make, loader.state_dict())


def at_the_end(make: Make, n: int) -> Any:
    loader = make()
    rows(loader)
    return loaded(make, loader.state_dict()), rows(loader)


def of_a_loaded_state(make: Make, n: int) -> Any:
    loader = make()
    batches = iter(loader)
    for _ in range(n):
        next(batches)
    again = make()
    again.load_state_dict(loader.state_dict())
    return loaded(make, again.state_dict()), rows(again)


def into_a_loader_at_work(make: Make, n: int) -> Any:
    loader = make()
    batches = iter(loader)
    for _ in range(n):
        next(batches)
    state = loader.state_dict()
    next(batches)
    loader.load_state_dict(state)
    return rows(loader), rows(loader)


def an_empty_state(make: Make, n: int) -> Any:
    loader = make()
    loader.load_state_dict({})
    return rows(loader)


CALLS = [before_iter, in_the_middle, after_break, at_the_end, of_a_loaded_state, into_a_loader_at_work, an_empty_state]
DATA: dict[str, Callable[[], Any]] = {"rows": lambda: list(range(N)), "counting": Counting, "plain": Plain}


# Of a state that was loaded and saved again, torchdata counts twice what it iterated again.
CASES = [(call, data) for call in CALLS for data in DATA if (call, data) != (of_a_loaded_state, "plain")]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("call", "data"), CASES, ids=[f"{call.__name__}-{data}" for call, data in CASES])
def test_the_same_batches(call: Any, data: str, workers: int) -> None:
    for n in (1, 3):
        mine = call(lambda: stoker.StatefulDataLoader(DATA[data](), SIZE, num_workers=workers), n)
        theirs = call(lambda: Torchdata(DATA[data](), SIZE, num_workers=workers), n)
        assert mine == theirs, n


def test_a_state_of_a_dataset_with_samples_by_number() -> None:
    mine = in_the_middle(lambda: stoker.StatefulDataLoader(Used(), SIZE), 2)
    theirs = in_the_middle(lambda: Torchdata(Used(), SIZE), 2)
    assert mine == theirs
    assert mine[0][0][0] == [706, 807, 908]


def test_what_does_not_carry_over(caplog: pytest.LogCaptureFixture) -> None:
    stoker.StatefulDataLoader(Used(), SIZE, num_workers=1)
    assert "state_dict() of" in caplog.text
    with pytest.raises(stoker.StateError, match="torchdata"):
        stoker.StatefulDataLoader(list(range(N)), SIZE).load_state_dict(Torchdata(list(range(N)), SIZE).state_dict())
    theirs = Torchdata(list(range(N)), SIZE, num_workers=1)
    next(iter(theirs))
    with pytest.raises(stoker.StateError, match="torchdata"):
        stoker.StatefulDataLoader(list(range(N)), SIZE).load_state_dict(theirs.state_dict())


def test_keywords(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    theirs = inspect.signature(Torchdata).parameters
    mine = inspect.signature(stoker.StatefulDataLoader).parameters
    assert set(theirs) <= set(mine)
    assert all(mine[name].default == one.default for name, one in theirs.items() if name != "dataset")
    with caplog.at_level("INFO", "stoker"):
        loader = stoker.StatefulDataLoader(list(range(N)), SIZE, snapshot_every_n_steps=5)
    assert "snapshot_every_n_steps=5 has no effect" in caplog.text
    assert loader.snapshot_every_n_steps == 5
    with pytest.raises(stoker.ConfigError, match="snapshot_every_n_steps"):
        stoker.StatefulDataLoader(list(range(N)), SIZE, snapshot_every_n_steps=0)


@pytest.mark.parametrize("every", [1, 3, 7])
def test_snapshots_change_no_batch(every: int) -> None:
    """With torchdata too: a state between two snapshots goes on with its own next batch."""
    for n in (1, 2, 3):
        mine = in_the_middle(
            lambda: stoker.StatefulDataLoader(Counting(), SIZE, num_workers=1, snapshot_every_n_steps=every), n
        )
        theirs = in_the_middle(lambda: Torchdata(Counting(), SIZE, num_workers=1, snapshot_every_n_steps=every), n)
        assert mine == theirs


def test_shuffled_epochs_go_on() -> None:
    """Of stoker's own order: any number of workers, any rank's state."""
    whole = stoker.StatefulDataLoader(list(range(N)), SIZE, shuffle=True, seed=1)
    first, second, third = rows(whole), rows(whole), rows(whole)
    assert first != second != third
    loader = stoker.StatefulDataLoader(list(range(N)), SIZE, shuffle=True, seed=1)
    rows(loader)
    other = lambda: stoker.StatefulDataLoader(list(range(N)), SIZE, shuffle=True, num_workers=1)  # noqa: E731
    assert loaded(other, loader.state_dict()) == (second, third)
    next(iter(loader))
    state = loader.state_dict()
    assert loaded(lambda: stoker.StatefulDataLoader(list(range(N)), SIZE, shuffle=True), state) == (second[1:], third)

"""Which epoch a loop sees, by what trainers call: the order of their calls as it was traced (`make test-frameworks`
runs the trainers themselves), and iterators that are made and not used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from forms import mostly

import stoker
from stoker import _pass
from stoker import transforms as T

N, SIZE = 50, 8


def make(folder: Path, sampler: str = "") -> stoker.DataLoader:
    dataset = stoker.ImageFolder(folder, T.RandomResizedCrop(16))
    if sampler == "native":
        return stoker.DataLoader(dataset, SIZE, sampler=stoker.RandomSampler(dataset, seed=1), seed=1)
    if sampler == "walked":
        return stoker.DataLoader(dataset, SIZE, sampler=Mine(), seed=1)
    return stoker.DataLoader(dataset, SIZE, shuffle=True, seed=1)


class Mine:
    """A user's sampler, as torch's DistributedSampler counts epochs: by set_epoch alone."""

    def __init__(self) -> None:
        self.epoch = 0

    def __len__(self) -> int:
        return N

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        return iter([(i * 7 + self.epoch) % N for i in range(N)])


def facts(batch: Any) -> tuple[list[int], bytes]:
    return batch.ids.tolist(), bytes(batch[0].contiguous().numpy())


def plan(folder: Path, sampler: str, epochs: int) -> list[list[Any]]:
    """The batches of each epoch, told by set_epoch."""
    found = []
    with make(folder, sampler) as loader:
        for epoch in range(epochs):
            loader.set_epoch(epoch)
            found.append([facts(batch) for batch in loader])
    assert all(a != b for a, b in pairwise(found))
    return found


def lightning(loader: Any, epochs: int, first: int = 0, state: Any = None) -> list[list[Any]]:
    """Trainer.fit: an iterator that is not used, a state after it, another iterator, and only then set_epoch."""
    unused = iter(loader)
    len(loader)
    if state is not None:
        loader.load_state_dict(state)
    found = []
    iterator = None
    for epoch in range(first, epochs):
        if epoch == first:
            iterator = iter(loader)
            del unused
            left = len(loader)
            loader.sampler.set_epoch(epoch)
        else:
            loader.sampler.set_epoch(epoch)
            iterator = iter(loader)
        if state is not None and epoch == first:
            left -= -(-state["position"] // SIZE)
        else:
            left = len(loader)
        found.append([facts(batch) for batch in islice(iterator, left)])  # never asked for the end
    return found


def hugging_face(loader: Any, epochs: int) -> list[list[Any]]:
    """transformers.Trainer: set_epoch, then iter; the end is not asked for."""
    found = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        found.append([facts(batch) for batch in islice(iter(loader), len(loader))])
    return found


def plain(loader: Any, epochs: int) -> list[list[Any]]:
    """Fabric, Accelerate, and a loop of one's own."""
    return [[facts(batch) for batch in loader] for _ in range(epochs)]


TRAINERS = [(trainer, sampler) for trainer in (lightning, hugging_face) for sampler in ("", "native", "walked")]


@pytest.mark.parametrize(
    ("trainer", "sampler"),
    mostly(
        [*TRAINERS, (plain, ""), (plain, "native")],
        *((lightning, ""), (lightning, "walked"), (hugging_face, "native"), (plain, "")),
    ),
)
def test_trainers_see_every_epoch_once(trainer: Callable[..., Any], sampler: str, folder: Path) -> None:
    with make(folder, sampler) as loader:
        assert trainer(loader, 4) == plan(folder, sampler, 4)


@pytest.mark.parametrize("sampler", mostly(["", "native", "walked"], "", "walked"))
def test_a_trainer_goes_on_in_the_middle_of_an_epoch(sampler: str, folder: Path) -> None:
    expected = plan(folder, sampler, 3)
    with make(folder, sampler) as loader:
        loader.set_epoch(1)
        for batch in loader:
            if batch.step == 2:
                state = loader.state_dict()
                break
    assert (state["epoch"], state["position"]) == (1, 3 * SIZE)
    with make(folder, sampler) as loader:
        assert lightning(loader, 3, 1, state) == [expected[1][3:], expected[2]]


def test_a_check_before_training_takes_no_epoch_if_the_trainer_tells_it(folder: Path) -> None:
    """Lightning's sanity check: two batches of the validation loader, then set_epoch(0) before each validation."""
    expected = plan(folder, "", 2)
    with make(folder) as loader:
        loader.sampler.set_epoch(0)
        checked = [facts(batch) for batch in islice(iter(loader), 2)]
        assert checked == expected[0][:2]
        assert hugging_face(loader, 2) == expected


def test_iterators_that_are_not_used_count_for_nothing(folder: Path) -> None:
    expected = plan(folder, "", 3)
    with make(folder) as loader:
        unused = [iter(loader) for _ in range(3)]
        used = iter(loader)
        assert [facts(batch) for batch in used] == expected[0]
        assert facts(next(unused[0])) == expected[1][0]
        assert facts(next(unused[2])) == expected[2][0]
        assert facts(next(unused[0])) == expected[1][1]


def test_what_is_read_ahead_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int]] = []
    real = _pass.Pass.__init__

    def counted(self: Any, remote: Any, epoch: int, position: int, *more: Any, **others: Any) -> None:
        begun.append((epoch, position))
        real(self, remote, epoch, position, *more, **others)

    monkeypatch.setattr(_pass.Pass, "__init__", counted)
    with make(folder) as loader:
        iterators = [iter(loader), iter(loader)]
        assert begun == [(0, 0)], "reading begins at iter(), once"
        loader.set_epoch(0)
        next(iterators[1])
        assert begun == [(0, 0)]
        state = loader.state_dict()
    begun.clear()
    with make(folder) as loader:
        iter(loader)
        loader.load_state_dict(state)
        iterator = iter(loader)
        loader.set_epoch(0)
        next(iterator)
        assert begun == [(0, 0), (0, SIZE)]


def test_a_state_loaded_between_iter_and_the_first_batch(folder: Path) -> None:
    expected = plan(folder, "", 3)
    with make(folder) as loader:
        loader.set_epoch(1)
        next(iter(loader))
        state = loader.state_dict()
    with make(folder) as loader:
        iterator, other = iter(loader), iter(loader)
        loader.load_state_dict(state)
        assert [facts(batch) for batch in iterator] == expected[1][1:]
        assert [facts(batch) for batch in other] == expected[2]


def test_an_iterator_of_a_closed_loader_is_over_before_its_first_batch_too(folder: Path) -> None:
    with make(folder) as loader:
        iterator = iter(loader)
    with pytest.raises(stoker.ConfigError, match="closed"):
        next(iterator)


def test_threads_that_share_an_iterator_begin_one_pass(folder: Path) -> None:
    with make(folder) as loader:
        iterator = iter(loader)
        found: list[Any] = []
        threads = [threading.Thread(target=lambda: found.extend(iterator)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(batch.step for batch in found) == list(range(len(loader)))
        assert {batch.epoch for batch in found} == {0}
        assert loader.state_dict()["epoch"] == 0

"""stoker.profile and stoker.synthetic_like, over datasets whose cost is known."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import stoker
from stoker import transforms as T


class Slow(torch.utils.data.Dataset[Any]):
    """Sleeps 2 ms a sample, and 60 ms for sample 7."""

    def __init__(self, length: int = 100) -> None:
        self.length = length
        self.asked: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        time.sleep(0.06 if index == 7 else 0.002)
        return torch.full((4,), float(index)), index


def test_a_sample_is_timed() -> None:
    data = Slow()
    found = stoker.profile(data, 99)
    assert found.samples == 99
    assert len(set(data.asked)) == 100, "samples come twice"
    assert found.p50 >= 0.002
    assert found.max >= found.p99 >= found.p50
    assert found.cpu < found.mean / 2, "what was slept counts as the processor's"
    if data.asked[0] != 7:
        assert found.slowest[0][0] == 7
    again = Slow()
    stoker.profile(again, 20, seed=1)
    other = Slow()
    stoker.profile(other, 20, seed=1)
    assert again.asked == other.asked != data.asked[:21]
    assert "a sample" in repr(found)
    assert found.as_dict()["samples"] == 99


def test_an_iterable_is_timed() -> None:
    class Stream(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            yield from range(6)

    assert stoker.profile(Stream(), 3).samples == 3
    assert stoker.profile(Stream(), 100).samples == 5
    assert stoker.profile([1], 100).samples == 1


def test_time_ends_it() -> None:
    assert stoker.profile(Slow(10_000), 9_000, seconds=0.05).samples < 9_000


@pytest.mark.parametrize(
    ("dataset", "kwargs", "says"),
    [
        (5, {}, "dataset is of type int"),
        ([], {}, "empty"),
        (Slow(), {"samples": 0}, "samples is 0"),
        (Slow(), {"seconds": -1}, "seconds is -1"),
        (stoker.Synthetic(8, (3, 3, 3)), {}, "stats"),
    ],
)
def test_what_can_not_be_profiled(dataset: Any, kwargs: dict[str, Any], says: str) -> None:
    with pytest.raises(stoker.ConfigError, match=says):
        stoker.profile(dataset, **kwargs)


def test_what_the_dataset_raises_is_raised() -> None:
    class Broken(Slow):
        def __getitem__(self, index: int) -> Any:
            raise KeyError("no such file")

    with pytest.raises(KeyError, match="no such file"):
        stoker.profile(Broken())


def test_batches_that_cost_nothing(folder: Path) -> None:
    def loader() -> stoker.DataLoader:
        return stoker.DataLoader(stoker.ImageFolder(folder, T.Resize((32, 32))), 8, shuffle=True, seed=4)

    with loader() as plain, loader() as taken:
        want = [batch.ids.tolist() for batch in plain]
        stream = iter(taken)
        assert next(stream).ids.tolist() == want[0]
        state = taken.state_dict()
        fake = stoker.synthetic_like(taken)
        assert taken.state_dict() == state
        batches = list(fake)
        assert len(batches) == len(fake) == len(taken)
        assert all(batch is batches[0] for batch in batches)
        assert batches[0][0].shape == (8, 3, 32, 32)
        assert [batch.ids.tolist() for batch in stream] == want[1:]
        following = [batch.ids.tolist() for batch in plain]
        stoker.synthetic_like(taken)  # at the end of an epoch, of which nothing is left
        assert [batch.ids.tolist() for batch in taken] == following


@pytest.mark.parametrize("workers", [0, 1])
def test_torchs_loader_goes_on_as_if_nothing_was_taken(workers: int) -> None:
    def loader() -> Any:
        return torch.utils.data.DataLoader(Slow(12), batch_size=4, shuffle=True, num_workers=workers)

    torch.manual_seed(3)
    want = [batch[1].tolist() for batch in loader()]
    torch.manual_seed(3)
    one = loader()
    fake = stoker.synthetic_like(one)
    assert [batch[1].tolist() for batch in one] == want
    assert len(fake) == 3
    assert fake.batch[0].shape == (4, 4)


def test_loaders_without_a_length_or_a_batch() -> None:
    class Endless:
        def __iter__(self) -> Iterator[int]:
            yield 1

    stream = iter(stoker.synthetic_like(Endless()))
    assert [next(stream) for _ in range(50)] == [1] * 50
    with pytest.raises(stoker.ConfigError, match="empty"):
        stoker.synthetic_like([])
    with pytest.raises(stoker.ConfigError, match="iterated again"):
        stoker.synthetic_like(iter([1]))


def test_torch_has_one_thread_as_in_a_worker() -> None:
    seen = []

    class Threads:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, i: int) -> int:
            seen.append(torch.get_num_threads())
            return i

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        stoker.profile(Threads())
        assert (seen, torch.get_num_threads()) == ([1] * 3, 3)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("own", [False, True])
def test_torchs_profiler_names_what_the_loop_waits_for(folder: Path, own: bool) -> None:
    photos: Any = stoker.ImageFolder(folder, T.Resize((8, 8)))
    loader = stoker.DataLoader([1, 2, 3, 4] if own else photos, batch_size=2, num_workers=0)
    with torch.profiler.profile() as profiler:
        batches = sum(1 for _ in loader)
    marked = {one.key: one.count for one in profiler.key_averages()}
    assert marked["enumerate(DataLoader)#stoker.__next__"] == batches + 1  # the last call ends the pass

"""Datasets that are iterated, for tests. Spawned workers import this module."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import data


def part() -> tuple[int, int]:
    """Which of how many parts a worker iterates."""
    info = data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class Range(data.IterableDataset):  # type: ignore[type-arg]
    """The example of torch's documentation: each worker iterates a range of its own."""

    def __init__(self, end: int = 23) -> None:
        self.end = end

    def __iter__(self) -> Iterator[Any]:
        k, n = part()
        each = -(-self.end // n)
        for i in range(k * each, min((k + 1) * each, self.end)):
            yield self.sample(i)

    def sample(self, i: int) -> Any:
        return {"x": torch.full((3,), i), "i": i, "text": str(i)}


class Uneven(Range):
    """Worker k of n has k times as many samples, and the first has none."""

    def __iter__(self) -> Iterator[Any]:
        k, _ = part()
        for i in range(k * 7):
            yield self.sample(100 * k + i)


class Drawn(Range):
    """Samples drawn from all generators."""

    def sample(self, i: int) -> Any:
        return i, random.random(), np.random.rand(), torch.rand(2)


class Asked(Range):
    """A generator of the key."""

    def __iter__(self, rng: Any = None) -> Iterator[Any]:
        k, _ = part()
        for _ in range(5):
            yield k, rng.random()


class Saving(Range):
    """Says where it is, and can go on from there. It counts how often it was begun, and samples that were made."""

    def __init__(self, end: int = 40, log: Path | None = None) -> None:
        super().__init__(end)
        self.i = 0
        self.log = log

    def __iter__(self) -> Iterator[Any]:
        k, n = part()
        while self.i < self.end:
            self.i += 1
            if (self.i - 1) % n == k:
                if self.log is not None:
                    with self.log.open("a") as file:
                        file.write(f"{self.i - 1}\n")
                yield self.i - 1
        self.i = 0

    def state_dict(self) -> dict[str, int]:
        return {"i": self.i}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.i = state["i"]


class Large(Saving):
    """Its state is too large to come with every batch."""

    def state_dict(self) -> Any:
        return {"i": self.i, "buffer": bytes(2 << 20)}


class Sliced(data.IterableDataset):  # type: ignore[type-arg]
    """The other example of torch's documentation: ``sliced`` as worker_init_fn gives each worker its range."""

    def __init__(self) -> None:
        self.start, self.end = 3, 21

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end))


def sliced(worker: int) -> None:
    info = data.get_worker_info()
    assert info is not None
    mine: Any = info.dataset
    each = -(-(mine.end - mine.start) // info.num_workers)
    mine.start += worker * each
    mine.end = min(mine.start + each, mine.end)


class Plain:
    """A class with __iter__ only."""

    def __iter__(self) -> Iterator[Any]:
        k, n = part()
        return (np.full((2,), i, np.float32) for i in range(k, 11, n))


class Sized(Range):
    """Its length is right if every worker gives a part, and wrong if each gives all."""

    def __init__(self, splits: bool) -> None:
        super().__init__()
        self.splits = splits

    def __len__(self) -> int:
        return self.end

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__() if self.splits else map(self.sample, range(self.end))


class Broken(Range):
    """Sample 9 raises."""

    def sample(self, i: int) -> Any:
        if i == 9:
            raise ValueError("nine", 9)
        return i


class Deadly(Range):
    """A worker ends at sample 9, as often as there are files to remove."""

    def __init__(self, folder: Path, times: int, end: int = 40) -> None:
        super().__init__(end)
        self.folder = folder
        for i in range(times):
            (folder / f"{i}").touch()

    def sample(self, i: int) -> Any:
        if i == 9:
            for path in sorted(self.folder.iterdir()):
                path.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return i


class SavingDeadly(Saving):
    """The same, with states."""

    def __init__(self, folder: Path, times: int) -> None:
        super().__init__(40, folder / "log")
        for i in range(times):
            (folder / f"{i}.kill").touch()

    def __iter__(self) -> Iterator[Any]:
        for i in super().__iter__():
            if i == 25:
                assert self.log is not None
                for path in sorted(self.log.parent.glob("*.kill")):
                    path.unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
            yield i


class Growing(Range):
    """Every batch is larger than the one before."""

    def sample(self, i: int) -> Any:
        return np.full((i * i * 40,), i, np.int64)


class Stuck(Range):
    def sample(self, i: int) -> Any:
        if i == 5:
            time.sleep(60)
        return i


class Infinite(data.IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[int]:
        k, n = part()
        i = k
        while True:
            yield i
            i += n


def doubled(samples: list[Any]) -> Any:
    return [2 * sample["i"] for sample in samples]


def rolled(samples: list[Any], rng: Any = None) -> Any:
    return [sample["i"] for sample in samples], rng.random()


def started(worker: int) -> None:
    random.seed(worker)

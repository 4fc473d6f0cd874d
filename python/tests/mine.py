"""Datasets of a user's own, for tests of Python workers. Spawned workers import this module."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import data

Pair = namedtuple("Pair", "x y")


class Squares(data.Dataset):  # type: ignore[type-arg]
    """Samples of a tensor, a number and a text."""

    def __init__(self, n: int = 20) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        if not 0 <= i < self.n:
            raise IndexError(i)
        return torch.full((3, 4), i * i), i, str(i)


class Plain:
    """A class without a base class, whose samples are dicts."""

    def __len__(self) -> int:
        return 17

    def __getitem__(self, i: int) -> Any:
        return {
            "x": np.arange(i, i + 3, dtype=np.float32),
            "y": {"a": i, "b": [float(i), i % 2 == 0]},
            "n": Pair(i, "t"),
        }


class Large(Squares):
    """Batches of more than 256 KiB: views of a slot."""

    def __getitem__(self, i: int) -> Any:
        return torch.full((64, 1024), i, dtype=torch.int32), i


class Drawn(Squares):
    """Samples drawn from all generators."""

    def __getitem__(self, i: int) -> Any:
        return i, random.random(), np.random.rand(), torch.rand(2)


class Asked(Squares):
    """A function with a parameter rng."""

    def __getitem__(self, i: int, rng: Any = None) -> Any:
        return i, rng.random()


class Listed(Squares):
    """Makes a batch's samples in one call."""

    def __getitems__(self, ids: list[int]) -> Any:
        return [(i, len(ids)) for i in ids]


class Ragged(Squares):
    def __getitem__(self, i: int) -> Any:
        return torch.arange(i % 4 + 1)


class Broken(Squares):
    """Sample 5 raises."""

    def __init__(self, n: int = 20, error: Any = None) -> None:
        super().__init__(n)
        self.error = error or ValueError("five", 5)

    def __getitem__(self, i: int) -> Any:
        if i == 5:
            raise self.error
        return i


class Deadly(Squares):
    """Sample 5 ends its process, as often as there are files to remove."""

    def __init__(self, folder: Path, times: int) -> None:
        super().__init__()
        self.folder = folder
        for i in range(times):
            (folder / f"{i}").touch()

    def __getitem__(self, i: int) -> Any:
        if i == 5:
            for path in sorted(self.folder.iterdir()):
                path.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return i


class Slow(Squares):
    def __init__(self, n: int = 20, seconds: float = 0.01) -> None:
        super().__init__(n)
        self.seconds = seconds

    def __getitem__(self, i: int) -> Any:
        time.sleep(self.seconds)
        return i, os.getpid()


class Info(Squares):
    """What a worker sees of itself."""

    def __getitem__(self, i: int) -> Any:
        info = data.get_worker_info()
        assert info is not None
        return os.getpid(), info.id, info.num_workers, info.seed


def pad(samples: list[Any]) -> Any:
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)


def texts(samples: list[Any]) -> Any:
    return tuple(sample[2] for sample in samples)


def nothing(samples: list[Any]) -> None:
    return None


def generator(samples: list[Any]) -> Any:
    return (sample for sample in samples)


def failing(samples: list[Any]) -> Any:
    raise KeyError("collate")


def drawing(samples: list[Any]) -> Any:
    return [random.random(), float(torch.rand(())), *(sample[1] for sample in samples)]


def raising_init(worker: int) -> None:
    raise RuntimeError(f"no worker {worker}")


class Short(Squares):
    """Says that it has more samples than it has."""

    def __len__(self) -> int:
        return self.n + 10


class Unlisted(Squares):
    def __getitems__(self, ids: list[int]) -> Any:
        raise ZeroDivisionError


def ids(samples: list[Any]) -> Any:
    return torch.tensor(samples)


def pad_ids(samples: list[Any]) -> Any:
    return torch.tensor([sample[1] for sample in samples])


def stacked(samples: list[Any]) -> Any:
    return torch.stack([torch.as_tensor(sample[0]) for sample in samples]), torch.tensor([s[1] for s in samples])


class Threads(Squares):
    """In which thread a sample is made."""

    def __getitem__(self, i: int) -> Any:
        return i, threading.get_ident()


class Counting(Squares):
    """Shares a counter and a tensor with its workers."""

    def __init__(self, context: Any) -> None:
        super().__init__()
        self.count = context.Value("i", 0)
        seen: Any = torch.full((20,), -1)
        self.seen: Any = seen.share_memory_()

    def __getitem__(self, i: int) -> Any:
        with self.count.get_lock():
            self.count.value += 1
        self.seen[i] = i
        return i


class Nested:
    """Uses a loader to make a sample."""

    def __init__(self, workers: int = 0) -> None:
        self.workers = workers

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Any:
        import stoker

        return sum(int(batch.sum()) for batch in stoker.DataLoader([i, i, i], 2, num_workers=self.workers))


class Interrupting(Squares):
    """Ctrl-C in sample 6, once."""

    done = False

    def __getitem__(self, i: int) -> Any:
        if i == 6 and not self.done:
            self.done = True
            raise KeyboardInterrupt
        return i


class Recording(Squares):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def __getitem__(self, i: int) -> Any:
        self.asked.append(i)
        return i


class Woven(Squares):
    """Samples of 64 KiB from the sample's number and from draws of all generators, made in two halves some time apart,
    and a text: what a worker that dies in the middle has written in part."""

    def __init__(self, n: int = 96, seconds: float = 0.002) -> None:
        super().__init__(n)
        self.seconds = seconds

    def __getitem__(self, i: int) -> Any:
        drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        time.sleep(self.seconds)
        noise = np.random.randint(0, 1 << 30, 1 << 14, dtype=np.int32)
        noise[::7] = i
        return {"noise": noise, "drawn": torch.tensor(drawn), "text": f"{i}" * (i % 9), "i": i}


def woven(samples: list[Any]) -> Any:
    return {
        "noise": torch.stack([torch.from_numpy(sample["noise"]) for sample in samples]),
        "drawn": torch.stack([sample["drawn"] for sample in samples]),
        "text": [sample["text"] for sample in samples],
        "i": torch.tensor([sample["i"] for sample in samples]),
    }


class Refilled(data.Dataset):  # type: ignore[type-arg]
    """Every sample is the same tensor, with other values."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.value = torch.zeros(50_000)

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> torch.Tensor:
        return self.value.fill_(i)


BATCH = torch.zeros(50_000)


def refilled(samples: list[torch.Tensor]) -> torch.Tensor:
    """The same tensor for all batches; all samples hold the last one's values by then."""
    return BATCH.copy_(samples[0] - (len(samples) - 1))


class Torn(Squares):
    """Cannot be unpickled."""

    def __setstate__(self, state: Any) -> None:
        raise KeyError("rebuild")

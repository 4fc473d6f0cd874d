"""stoker.profile and stoker.synthetic_like: the two measurements that need no second loader.

They say what one sample costs, and how fast the loop would be if batches cost nothing.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ._errors import ConfigError, Problems
from ._kept import kept

SLOWEST = 5  # number of samples that are named


@dataclass(frozen=True)
class Profile:
    """The result of ``stoker.profile``: seconds per sample, in this process, one sample at a time."""

    samples: int
    mean: float
    p50: float
    p99: float
    max: float
    cpu: float  # processor seconds, mean; the rest of mean was waiting (for a disk, a network, a sleep)
    first: float  # the first sample, excluded from the others: it opens files and imports
    slowest: tuple[tuple[int, float], ...]  # index (or position, for an iterable dataset) and seconds

    def as_dict(self) -> dict[str, Any]:
        """The same as a dict of plain values."""
        return {**asdict(self), "slowest": [list(one) for one in self.slowest]}

    def __repr__(self) -> str:
        slow = ", ".join(f"{index} ({seconds * 1e3:.3g} ms)" for index, seconds in self.slowest)
        return (
            f"Profile\n  a sample   {self.mean * 1e3:.3g} ms, half within {self.p50 * 1e3:.3g} ms, 99 % within "
            f"{self.p99 * 1e3:.3g} ms\n  processor  {self.cpu * 1e3:.3g} ms of it; the rest was waiting\n"
            f"  the first  {self.first * 1e3:.3g} ms\n  slowest    {slow}\n"
            f"  measured   {self.samples:,} samples; one worker makes at most {1 / max(self.mean, 1e-9):,.0f} a second"
        )


def profile(dataset: Any, samples: int = 256, *, seed: int = 0, seconds: float = 10.0) -> Profile:
    """Times ``dataset[i]`` at random indices, or the first samples of an iterable dataset, in this process.

    dataset  as for torch: with ``__getitem__`` and ``__len__``, or iterable
    samples  the most samples to time, after the first
    seed     decides the indices: the same seed times the same samples
    seconds  the longest time to spend; at least one sample is measured

    torch computes with one thread meanwhile, as it does in the workers of a loader: with more, a small operation of
    ``dataset[i]`` waits for threads, and costs many times as much where other processes use the cores.

    Exceptions of ``dataset`` propagate. stoker's own datasets have no ``__getitem__``: the ``stats()`` of a loader over
    them say what a sample costs, stage by stage.

    Raises ConfigError if an argument is wrong or the dataset is empty.
    """
    problems = Problems("profile")
    if not isinstance(samples, int) or samples < 1:
        problems.add(f"samples is {samples!r}", "give a whole number, at least 1")
    if not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        problems.add(f"seconds is {seconds!r}", "give a number above 0")
    if type(dataset).__module__.partition(".")[0] == "stoker":
        problems.add(
            f"{type(dataset).__name__} has no __getitem__, because the engine reads it",
            "take some batches of a stoker.DataLoader over it, and look at its stats()",
        )
    elif isinstance(dataset, (str, bytes)):
        problems.add(
            f"dataset is of type {type(dataset).__name__}, which would be iterated letter by letter",
            f"give a dataset over it, such as torchvision.datasets.ImageFolder({dataset!r})",
        )
    elif not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")) and not isinstance(dataset, Iterable):
        problems.add(
            f"dataset is of type {type(dataset).__name__}", "give a dataset with [i] and len(), or an iterable one"
        )
    problems.raise_any()
    times: list[tuple[int, float]] = []
    used, first = 0.0, None
    alone = (0, 0.0, 0.0)
    end = time.perf_counter() + seconds
    with _one_thread(), contextlib.closing(_samples(dataset, samples + 1, seed)) as stream:
        while True:
            begin, cpu = time.perf_counter(), time.process_time()
            index = next(stream, None)
            took, busy = time.perf_counter() - begin, time.process_time() - cpu
            if index is None:
                break
            if first is None:
                first, alone = took, (index, took, busy)
                continue
            times.append((index, took))
            used += busy
            if time.perf_counter() > end:
                break
    if first is None:
        raise ConfigError("profile: the dataset is empty", hint="give a dataset with samples")
    if not times:  # there is only one sample
        times, used = [alone[:2]], alone[2]
    found = sorted(took for _, took in times)
    return Profile(
        samples=len(found),
        mean=statistics.fmean(found),
        p50=found[(len(found) - 1) // 2],
        p99=found[min(len(found) - 1, int(0.99 * len(found)))],
        max=found[-1],
        cpu=used / len(found),
        first=first,
        slowest=tuple(sorted(times, key=lambda one: -one[1])[:SLOWEST]),
    )


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """torch's operations run in the calling thread alone, if torch is loaded."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _samples(dataset: Any, most: int, seed: int) -> Generator[int, None, None]:
    """Makes a sample before each index that it gives."""
    if hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
        length = len(dataset)
        for index in random.Random(seed).sample(range(length), min(most, length)):
            dataset[index]
            yield index
        return
    stream = iter(dataset)
    for number in range(most):
        try:
            next(stream)
        except StopIteration:
            return
        yield number


class SyntheticLike:
    """One batch of a loader, as often as the loader has batches. See ``synthetic_like``."""

    def __init__(self, batch: Any, batches: int | None) -> None:
        self.batch = batch
        self.batches = batches

    def __len__(self) -> int:
        if self.batches is None:
            raise TypeError("the loader has no length, so its synthetic batches never end")
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        made = 0
        while self.batches is None or made < self.batches:
            yield self.batch
            made += 1


def synthetic_like(loader: Any) -> SyntheticLike:
    """The same loop with batches that cost nothing: the most there is to gain.

    Gives the loader's first batch again and again, as often as an epoch has batches (endlessly if ``len(loader)`` is
    unknown). Train some steps with it instead of the loader: if that is not faster, the data do not limit the training.
    The batch is always the same object, so a step that modifies it modifies all of them.

    loader is stoker's DataLoader, torch's, or anything that can be iterated more than once. Afterwards, the position of
    a stoker loader and the random number generators are restored; a torch loader is iterated as a copy.

    Raises ConfigError if the loader is empty or cannot be iterated again.
    """
    if not isinstance(loader, Iterable) or isinstance(loader, Iterator):
        raise ConfigError(
            f"synthetic_like: loader is of type {type(loader).__name__}",
            hint="give a loader that can be iterated again",
        )
    with kept(loader) as tried:
        stream = iter(tried)
        try:
            batch = next(stream)
        except StopIteration:
            raise ConfigError("synthetic_like: the loader is empty", hint="give one with batches") from None
        finally:
            del stream
    try:
        batches = len(loader)  # type: ignore[arg-type]
    except (TypeError, NotImplementedError):
        batches = None
    return SyntheticLike(batch, batches)

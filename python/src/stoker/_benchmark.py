"""stoker.benchmark: how fast a loader is once it is warm, and what it costs.

The first batches of an epoch include the start of workers and batches made ahead, so they are reported separately, as
is the time until caches are warm. The rest is split into windows and measured until the windows agree.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from ._datasets import Dataset
from ._errors import ConfigError, Problems, many

WINDOWS = 5  # number of windows that must agree
STEADY_SHARE = 0.3  # batches and seconds that must be in the middle of epochs for these to represent all of them
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Benchmark:
    """The result of ``stoker.benchmark``. Seconds are wall-clock seconds unless they are called processor seconds."""

    batches_per_second: float
    samples_per_second: float
    spread: float  # of the last windows: (largest - smallest) / median
    steady: bool  # whether the windows agreed before the time was up
    basis: str  # "steady": the middle of epochs; "epochs": whole epochs, if they are too short to have a middle
    first_batch: float  # median over the epochs, from iter() to the first batch
    first_batches: tuple[float, ...]
    wait_share: float  # share of the time that the loop spent in next()
    step: float  # mean seconds from a batch to the next call
    cores_busy: float  # processor seconds per second, of this process and its descendants
    cpu_per_1000_samples: float  # processor seconds
    batches: int  # all batches taken
    samples: int
    seconds: float  # all seconds spent

    def as_dict(self) -> dict[str, Any]:
        """The same as a dict of plain values."""
        return {**asdict(self), "first_batches": list(self.first_batches)}

    def __repr__(self) -> str:
        shown = {
            "throughput": f"{self.samples_per_second:,.1f} samples/s, {self.batches_per_second:,.2f} batches/s "
            + ("in the middle of epochs" if self.basis == "steady" else "over whole epochs"),
            "windows": f"differ by {self.spread:.1%}" + ("" if self.steady else " and did not converge"),
            "first batch": f"after {_time(self.first_batch)}"
            + (f" (median of {len(self.first_batches)} epochs)" if len(self.first_batches) > 1 else ""),
            "waiting": f"{self.wait_share:.1%} of the loop's time, with steps of {_time(self.step)}",
            "processors": f"{self.cores_busy:.2f} cores busy, {self.cpu_per_1000_samples:.3g} s per 1,000 samples",
            "measured": f"{many(self.batches, 'batch')}, {many(self.samples, 'sample')}, {_time(self.seconds)}",
        }
        return "Benchmark\n" + "\n".join(f"  {name:<12} {text}" for name, text in shown.items())


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s"


def benchmark(
    loader: Any,
    *,
    seconds: float = 10.0,
    step: float | Callable[[Any], Any] = 0.0,
    spread: float = 0.05,
) -> Benchmark:
    """Measures a loader: stoker's DataLoader, torch's, or any iterable of batches.

    loader   the loader, or a function without arguments that makes one. It is called once, and what it made is closed
    seconds  longest time to measure, from the first batch on. It ends earlier if the windows agree, and takes up to
             three times as long if batches are so slow that none has been measured yet
    step     stands for a training step: seconds to sleep after every batch (the accelerator works, the processors do
             not), or a function of the batch
    spread   windows agree if they differ by at most this share

    Warm-up and the first batches of epochs are excluded from the throughput and reported separately. Processor time is
    that of this process and all its descendants: workers, engines, and what they started.

    Raises ConfigError if an argument is wrong or the loader gives no batch.
    """
    problems = Problems("benchmark")
    for name, value in (("seconds", seconds), ("spread", spread)):
        if not isinstance(value, (int, float)) or not 0 < value < float("inf"):
            problems.add(f"{name} is {value!r}", "give a number above 0")
    if not callable(step) and (not isinstance(step, (int, float)) or not 0 <= step < float("inf")):
        problems.add(f"step is {step!r}", "give seconds or a function of the batch")
    if isinstance(loader, (str, bytes, os.PathLike)):
        problems.add(
            f"loader is of type {type(loader).__name__}, which would be iterated letter by letter"
            if isinstance(loader, (str, bytes))
            else f"loader is of type {type(loader).__name__}",
            f"give a loader over it: stoker.DataLoader(stoker.ImageFolder({os.fspath(loader)!r}), batch_size=64)",
        )
    elif isinstance(loader, Dataset):
        problems.add(
            f"loader is a dataset ({type(loader).__name__})",
            "give a loader over it: stoker.DataLoader(dataset, batch_size=64)",
        )
    elif not callable(loader) and not isinstance(loader, Iterable):
        problems.add(f"loader is of type {type(loader).__name__}", "give a loader, or a function that makes one")
    problems.raise_any()
    made = not isinstance(loader, Iterable)
    run = _Run(float(seconds), step, float(spread))
    if made:
        loader = loader()
    try:
        run.take(loader)
    finally:
        if made and callable(close := getattr(loader, "close", None)):
            close()
    return run.result()


class _Run:
    """The counts of one measurement."""

    def __init__(self, limit: float, step: float | Callable[[Any], Any], spread: float) -> None:
        self._limit, self._spread = limit, spread
        self._step = step
        self._begin = time.perf_counter()
        self._cold = cpu_seconds()
        self._lanes = 1  # whole batches come in bursts of this many
        self._came = 0.0  # when the first batch arrived
        self._warm = min(0.1 * limit, 2.0)
        self._window = max(limit / 40, 0.05)
        self.firsts: list[float] = []
        self.epochs: list[tuple[int, int, float]] = []  # batches, samples and seconds of whole epochs
        self.batches = self.samples = 0
        # In the middle of epochs, after the warm-up.
        self._count = self._samples = 0
        self._cycles = self._waits = 0.0
        self._windows: list[float] = []  # batches per second
        self._open = [0, 0.0]  # the window being filled: batches, seconds
        self._all_waits = self._all_steps = 0.0
        self._cpu: tuple[float, float, int] | None = None  # processor seconds, time and samples when warm-up ended

    def take(self, loader: Any) -> None:
        """Takes batches, epoch after epoch."""
        ahead = _ahead(loader)
        if ahead and not hasattr(loader, "_settings"):
            self._lanes = int(loader.num_workers)
        while True:
            began = time.perf_counter()
            iterator = iter(loader)
            more = self._epoch(iterator, began, ahead)
            if not self.batches:
                raise ConfigError("benchmark: the loader gave no batch", hint="check its dataset and drop_last")
            if not more or iterator is loader or not self.epochs[-1][0]:
                return

    def _epoch(self, iterator: Any, began: float, ahead: int) -> bool:
        """Runs one epoch; returns False when enough is known."""
        number, samples, asked = 0, 0, began
        while True:
            try:
                batch = next(iterator)
            except StopIteration:
                self.epochs.append((number, samples, time.perf_counter() - began))
                return not self._enough(time.perf_counter())
            got = time.perf_counter()
            if number == 0:
                self.firsts.append(got - began)
                self._came = self._came or got
            size = _size(batch)
            number, samples = number + 1, samples + size
            self.batches, self.samples = self.batches + 1, self.samples + size
            if callable(self._step):
                self._step(batch)
            elif self._step:
                time.sleep(self._step)
            done = time.perf_counter()
            if number > 1:
                self._all_waits += got - asked
                self._all_steps += done - got
            warm = self._cpu is not None
            if not warm and done - self._came >= self._warm and self.batches >= min(ahead, 50):
                self._cpu = (cpu_seconds(), time.perf_counter(), self.samples)
            if warm and number > ahead + 1:
                self._add(size, done - asked, got - asked)
            asked = time.perf_counter() if not warm else done
            if self._enough(done):
                return False

    def _add(self, samples: int, cycle: float, wait: float) -> None:
        self._count += 1
        self._samples += samples
        self._cycles += cycle
        self._waits += wait
        self._open[0] += 1
        self._open[1] += cycle
        if self._open[1] >= self._window and self._open[0] >= 2:
            self._windows.append(self._open[0] / self._open[1])
            self._open = [0, 0.0]

    def _agree(self) -> bool:
        return len(self._windows) >= WINDOWS and _differ(self._windows[-WINDOWS:]) <= self._spread

    def _enough(self, now: float) -> bool:
        spent = now - self._came
        if spent >= self._limit:
            return self._count >= 2 * self._lanes or len(self.epochs) >= 2 or spent >= 3 * self._limit
        return spent >= 0.3 * self._limit and self._speaks() and self._agree()

    def _speaks(self) -> bool:
        """Whether the middle of epochs represents them: it is most of what the loop went through after the very first
        batch."""
        spent = time.perf_counter() - self._came
        return self._count >= max(2 * self._lanes, STEADY_SHARE * self.batches) and self._cycles >= STEADY_SHARE * spent

    def result(self) -> Benchmark:
        seconds = time.perf_counter() - self._begin
        # If it never got warm, the processor time includes its start.
        cpu, since, before = self._cpu or (self._cold, self._begin, 0)
        busy = cpu_seconds() - cpu
        busy_time = max(time.perf_counter() - since, 1e-9)
        counted = max(self.samples - before, 1)
        spread = _differ(self._windows[-WINDOWS:])
        waited = self._all_waits / max(self._all_waits + self._all_steps, 1e-9)
        # A single epoch includes the start of everything; later ones are what a training run sees.
        whole = self.epochs[1:] or self.epochs
        basis = "steady"
        if self._speaks():
            rate, size = self._count / max(self._cycles, 1e-9), self._samples / self._count
            waited = self._waits / max(self._cycles, 1e-9)
        elif not whole:  # the first burst came with the first batch
            late = self.batches - self._lanes
            taken = seconds - self.firsts[0] if late > 0 else seconds
            rate, size = max(late, 1) / max(taken, 1e-9), self.samples / self.batches
        else:
            basis = "epochs"
            batches, samples, took = (sum(column) for column in zip(*whole, strict=True))
            rate, size = batches / max(took, 1e-9), samples / max(batches, 1)
            spread = _differ([n / max(t, 1e-9) for n, _, t in whole[-WINDOWS:]])
        return Benchmark(
            batches_per_second=rate,
            samples_per_second=rate * size,
            spread=spread,
            steady=basis == "steady" and self._agree(),
            basis=basis,
            first_batch=statistics.median(self.firsts),
            first_batches=tuple(self.firsts),
            wait_share=waited,
            step=self._all_steps / max(self.batches - len(self.firsts), 1),
            cores_busy=busy / busy_time,
            cpu_per_1000_samples=busy / counted * 1000,
            batches=self.batches,
            samples=self.samples,
            seconds=seconds,
        )


def _differ(rates: list[float]) -> float:
    """How much rates differ, as a share of their median."""
    if len(rates) < 2:
        return 0.0
    return (max(rates) - min(rates)) / max(statistics.median(rates), 1e-9)


def _ahead(loader: Any) -> int:
    """Number of batches that may have been made before they were asked for, so that their arrival says nothing about
    the rate."""
    settings = getattr(loader, "_settings", None)
    if settings is not None and hasattr(settings, "prefetch"):  # stoker's
        if settings.prefetch_factor:
            return int(settings.prefetch_factor) * max(int(loader.num_workers), 1)
        return int(settings.prefetch or 4)
    workers, factor = getattr(loader, "num_workers", 0), getattr(loader, "prefetch_factor", None)
    if not isinstance(workers, int) or workers <= 0:
        return 0
    return workers * (factor if isinstance(factor, int) else 2)


def _size(batch: Any) -> int:
    """Number of samples in a batch: the rows of the first thing in it that has rows."""
    ids = getattr(batch, "ids", None)
    if ids is not None:
        with suppress(TypeError):
            return len(ids)
    for _ in range(8):  # deepest nesting
        shape = getattr(batch, "shape", None)
        if shape is not None:
            return int(shape[0]) if len(shape) else 1
        if isinstance(batch, dict):
            batch = list(batch.values())
        if not isinstance(batch, (list, tuple)):
            break
        if not batch:
            return 0
        if not isinstance(batch[0], (list, tuple, dict)) and not hasattr(batch[0], "shape"):
            return len(batch)
        batch = batch[0]
    return 1


def cpu_seconds() -> float:
    """Processor time, including system time, of this process and its descendants, ended ones included."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
            stat = file.read().rpartition(b")")[2].split()
            parents[int(name)] = int(stat[1])
            used[int(name)] = sum(int(ticks) for ticks in stat[11:15])  # utime, stime, and those of ended children
    mine = os.getpid()
    total = 0
    for pid, ticks in used.items():
        above = pid
        while above not in (0, 1, mine):
            above = parents.get(above, 0)
        if above == mine:
            total += ticks
    return total / _TICKS

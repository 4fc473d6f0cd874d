"""A device that takes its time: it stands for stoker._cuda in scripts that the doctor watches, where there is no GPU.

A copy takes as long as its bytes over a bus of so many bytes per second, and what is made of it as long as it says.
Both are on one stream and the loop's steps on another, each with a clock of its own. What is copied is there at once,
and what would be made of it is not made: that would take the time of this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from stoker import _cuda, _device
from stoker._fused import numbers


class Device:
    """Has the methods of stoker._cuda.Port. An event is the moment at which it passes."""

    name = "cuda:0"

    def __init__(self, rate: float, compute: float = 0.0) -> None:
        self.device = torch.device("cpu")
        self._rate, self._compute = rate, compute
        self._copies = self._loop = 0.0  # when these streams have done what they were told
        self._there: set[int] = set()

    def step(self, seconds: float) -> None:
        """A step of the loop, which is waited for."""
        self._loop = max(self._loop, time.monotonic()) + seconds
        time.sleep(max(0.0, self._loop - time.monotonic()))

    def capturing(self) -> bool:
        return False

    @contextmanager
    def copying(self) -> Iterator[None]:
        with torch.no_grad():
            yield

    def empty(self, size: int) -> Any:
        found = torch.empty(size, dtype=torch.uint8)
        self._there.add(found.data_ptr())
        return found

    def pinned(self, size: int) -> Any:
        return torch.empty(size, dtype=torch.uint8)

    def copy(self, there: Any, here: Any) -> None:
        there.copy_(here)
        self._copies = max(self._copies, time.monotonic()) + here.numel() / self._rate

    def numbers(self, values: Any, dtype: str, shape: Any) -> Any:
        return numbers(tuple(values), dtype, shape)

    def compute(self, work: Callable[[], None]) -> None:
        self._copies = max(self._copies, time.monotonic()) + self._compute

    def is_pinned(self, tensor: Any) -> bool:
        return False

    def is_there(self, tensor: Any) -> bool:
        return tensor.data_ptr() in self._there

    def full(self, error: BaseException) -> bool:
        return False

    def mark(self) -> float:
        self._copies = max(self._copies, time.monotonic())
        return self._copies

    def mark_loop(self) -> float:
        self._loop = max(self._loop, time.monotonic())
        return self._loop

    def wait(self, event: float) -> None:
        self._loop = max(self._loop, event)

    def used(self, tensor: Any) -> None:
        """Memory is not used again here."""

    def done(self, event: float) -> bool:
        return time.monotonic() >= event

    def finish(self, event: float) -> None:
        time.sleep(max(0.0, event - time.monotonic()))

    def seconds(self, begin: float, end: float) -> float:
        return end - begin

    def register(self, address: int, size: int) -> bool:
        return True

    def unregister(self, address: int) -> None:
        """Nothing was pinned."""


def install(device: Device) -> None:
    """From now on, batches that go to "cuda" go to this device."""
    _cuda.lacking = lambda number: None
    _cuda.current = lambda: 0
    _cuda.another_ranks = lambda number: None
    _cuda.Port = lambda number: device  # type: ignore[assignment,misc,return-value]
    _device._devices.clear()

"""A device that can be wrong: it stands for stoker._cuda in tests, where there is no GPU.

Nothing happens on it before its clock is advanced: copies, events and what the loop's streams read are queued, and
``advance`` carries out one after the other, in any order that the events allow. Its allocator hands freed memory out
again at once, unless the memory was recorded on a stream that is still busy, and fills it with POISON first. A copy is
of addresses: it reads what is there when it is carried out. So a slot that is returned too early, a read before the
wait, or a missing record gives wrong bytes, every time. The device may fail to pin, have no memory, and be lost.
"""

from __future__ import annotations

import ctypes
import importlib.util
import random
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from stoker import _cuda, _device, _device_jpeg
from stoker._fused import numbers

POISON = 0x5A
UNIT = 512  # bytes that memory is handed out by


class Full(RuntimeError):
    """Stands for torch's OutOfMemoryError."""


class Lost(RuntimeError):
    """Stands for CUDA's error."""


class Event:
    def __init__(self) -> None:
        self.passed = False
        self.at = 0  # the clock, when it passed


class _Block:
    """Memory there: an address, and the streams on which it was recorded."""

    def __init__(self, address: int, size: int) -> None:
        self.address, self.size = address, size
        self.streams: set[str] = set()
        self.busy: list[Event] = []  # after which it is free


class Device:
    """Has the methods of stoker._cuda.Port."""

    name = "cuda:0"

    def __init__(self, memory: int = 1 << 26, seed: int = 0) -> None:
        self.device = torch.device("cpu")
        self.stream = "loop"  # the current one
        self.refuses = ""  # why it does not pin memory
        self.room = memory  # bytes that may be in use
        self.lost = self.records = False
        self.pins: dict[int, int] = {}
        self.unpinned = 0
        self.waits = 0  # of the host
        self.copied = 0  # bytes
        self.kernels: Callable[[], Any] | None = None  # makes what ``kernel`` gives, or raises
        self.now = 0  # the clock: operations that were carried out, of a millisecond each
        self.mistakes: list[str] = []  # what the clients of the device did wrong
        self._arena = (ctypes.c_ubyte * memory)()
        self._base = ctypes.addressof(self._arena)
        self._next = 0
        self._free: dict[int, list[_Block]] = {}
        self._later: list[_Block] = []  # freed, and still busy
        self._blocks: dict[int, _Block] = {}  # in use, by address
        self._used = 0
        self._queues: dict[str, deque[Any]] = {"copies": deque(), "loop": deque()}
        self._random = random.Random(seed)

    # The clock.

    def advance(self, steps: int = 1) -> int:
        """Carries out up to so many operations; returns how many there were."""
        for step in range(steps):
            able = [name for name, queue in self._queues.items() if queue and self._ready(queue[0])]
            if not able:
                return step
            queue = self._queues[self._random.choice(able)]
            self.now += 1
            queue.popleft()()
        return steps

    @property
    def pending(self) -> int:
        """Operations that were asked for and not carried out yet."""
        return sum(len(queue) for queue in self._queues.values())

    def drain(self) -> None:
        while self.advance():
            pass

    def _ready(self, operation: Any) -> bool:
        event = getattr(operation, "event", None)
        return event is None or bool(event.passed)

    def _put(self, stream: str, operation: Callable[[], Any]) -> None:
        self._alive()
        self._queues.setdefault(stream, deque()).append(operation)

    def _alive(self) -> None:
        if self.lost:
            raise Lost("CUDA error: the device fell off the bus")

    def read(self, tensor: Any, expected: bytes, what: str, stream: str = "") -> None:
        """The loop's current stream, or another, reads a tensor, and finds these bytes (in the order of its memory,
        without gaps) or notes a mistake."""
        found = _reader(tensor)
        self._put(stream or self.stream, lambda: self._compared(found(), expected, what))

    def clone(self, tensor: Any, stream: str = "") -> Callable[[bytes, str], None]:
        """The loop's current stream, or another, copies a tensor to memory that is not the allocator's. Call what is
        returned as often as wanted: the same stream reads the copy."""
        found, on = _reader(tensor), stream or self.stream
        copy: list[bytes] = []
        self._put(on, lambda: copy.append(found()))

        def read(expected: bytes, what: str) -> None:
            self._put(on, lambda: self._compared(copy[0], expected, what))

        return read

    def transfer(self, to: int, at: int, size: int) -> None:
        """The loop's current stream copies bytes from one address to another."""
        self._put(self.stream, lambda: ctypes.memmove(to, at, size))

    def _compared(self, found: bytes, expected: bytes, what: str) -> None:
        if found != expected:
            wrong = sum(a != b for a, b in zip(found, expected, strict=True))
            poison = found.count(POISON) + found.count(0xA5)
            self.mistakes.append(
                f"{what}: {wrong} of {len(expected)} bytes are wrong, {poison} of them look like poison"
            )

    # Memory.

    @contextmanager
    def copying(self) -> Iterator[None]:
        with torch.no_grad():
            yield

    def empty(self, size: int) -> Any:
        self._alive()
        size = -(-size // UNIT) * UNIT
        self._settle()
        if self._used + size > self.room:
            raise Full(f"tried to allocate {size} bytes")
        free = self._free.get(size)
        if free:
            block = free.pop()
        else:
            if self._next + size > len(self._arena):
                raise Full(f"tried to allocate {size} bytes of a new kind")
            block = _Block(self._base + self._next, size)
            self._next += size
        self._used += size
        self._blocks[block.address] = block
        ctypes.memset(block.address, POISON, size)
        root = (ctypes.c_ubyte * size).from_address(block.address)
        weakref.finalize(root, self._freed, block).atexit = False
        return torch.frombuffer(root, dtype=torch.uint8)

    def _freed(self, block: _Block) -> None:
        del self._blocks[block.address]
        for stream in block.streams:
            event = Event()
            block.busy.append(event)
            self._queues.setdefault(stream, deque()).append(lambda event=event: setattr(event, "passed", True))
        block.streams.clear()
        self._later.append(block)
        self._settle()

    def _settle(self) -> None:
        for block in list(self._later):
            if all(event.passed for event in block.busy):
                self._later.remove(block)
                block.busy.clear()
                self._used -= block.size
                self._free.setdefault(block.size, []).append(block)

    @property
    def in_use(self) -> int:
        """Bytes that are in use, or freed and still busy."""
        self._settle()
        return self._used

    def pinned(self, size: int) -> Any:
        return torch.empty(size, dtype=torch.uint8, device="cpu")

    def copy(self, there: Any, here: Any) -> None:
        to, at, size = there.data_ptr(), here.data_ptr(), here.numel()
        self.copied += size

        def copy() -> None:
            ctypes.memmove(to, at, size)

        self._put("copies", copy)

    def numbers(self, values: Any, dtype: str, shape: Any) -> Any:
        return numbers(tuple(values), dtype, shape)

    def compute(self, work: Callable[[], None]) -> None:
        """Operations on the stream of copies. What they use is free once they are carried out."""
        self._put("copies", work)

    def reads(self, tensors: Any) -> None:
        """The stream of copies reads these."""

    def kernel(self) -> Any:
        """What makes floats in one pass; None: torch's operators do, unless a test says otherwise."""
        return self.kernels() if self.kernels is not None else None

    def is_pinned(self, tensor: Any) -> bool:
        return False

    def is_there(self, tensor: Any) -> bool:
        at: int = tensor.data_ptr()
        return self._base <= at < self._base + len(self._arena)

    def move(self, value: Any) -> Any:
        return value.to(torch.float64) if isinstance(value, torch.Tensor) else value.to("cpu")

    def full(self, error: BaseException) -> bool:
        return isinstance(error, Full)

    # Order.

    def mark(self) -> Event:
        return self._mark("copies")

    def mark_loop(self) -> Event:
        return self._mark(self.stream)

    def _mark(self, stream: str) -> Event:
        event = Event()

        def passes() -> None:
            event.passed, event.at = True, self.now

        self._put(stream, passes)
        return event

    def wait(self, event: Event) -> None:
        def nothing() -> None:
            pass

        nothing.event = event  # type: ignore[attr-defined]
        self._put(self.stream, nothing)

    def used(self, tensor: Any) -> None:
        self._blocks[tensor.data_ptr()].streams.add(self.stream)

    def done(self, event: Event) -> bool:
        self._alive()
        self._recording()
        return event.passed

    def finish(self, event: Event) -> None:
        self._alive()
        self._recording()
        self.waits += 1
        while not event.passed:
            assert self.advance(), "an event that never passes is waited for"

    def seconds(self, begin: Event, end: Event) -> float:
        return (end.at - begin.at) * 0.001

    def capturing(self) -> bool:
        return self.records

    def _recording(self) -> None:
        if self.records:
            self.mistakes.append("an event was queried while a graph was recorded")

    # Pinning.

    def register(self, address: int, size: int) -> bool:
        self._recording()
        if self.refuses:
            raise _cuda.Refused(self.refuses)
        if address in self.pins:
            self.mistakes.append("memory was pinned twice")
        self.pins[address] = size
        ctypes.string_at(address + size - 1, 1)  # it is mapped
        return True

    def unregister(self, address: int) -> None:
        self._recording()
        size = self.pins.pop(address)
        ctypes.string_at(address, 1)  # it still is
        ctypes.string_at(address + size - 1, 1)
        self.unpinned += 1


def _reader(tensor: Any) -> Callable[[], bytes]:
    """Reads the bytes that a tensor has then, in the order of its memory. It does not keep the tensor."""
    address, size = tensor.data_ptr(), tensor.element_size()
    axes = sorted(zip(tensor.stride(), tensor.shape, strict=True), reverse=True)
    axes = [(stride * size, length) for stride, length in axes if length != 1]
    if not tensor.numel():
        return lambda: b""
    extent = sum(stride * (length - 1) for stride, length in axes) + size
    if extent == tensor.numel() * size:
        return lambda: ctypes.string_at(address, extent)

    def gather() -> bytes:
        memory = np.frombuffer(ctypes.string_at(address, extent), dtype=f"V{size}")
        strides, shape = [stride for stride, _ in axes], [length for _, length in axes]
        return np.lib.stride_tricks.as_strided(memory, shape, strides).tobytes()

    return gather


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """A device in the place of CUDA. At the end its clients have done nothing wrong, and hold nothing."""
    found = Device()
    install(monkeypatch, found)
    yield found
    found.records = False
    found.drain()
    assert found.mistakes == [], found.mistakes[:5]


def install(monkeypatch: pytest.MonkeyPatch, port: Any) -> None:
    """From now on, batches that go to "cuda" go to this device."""
    monkeypatch.setattr(_cuda, "lacking", lambda number: None)
    monkeypatch.setattr(_cuda, "current", lambda: 0)
    monkeypatch.setattr(_cuda, "another_ranks", lambda number: None)
    monkeypatch.setattr(_cuda, "Port", lambda number: port)
    monkeypatch.setattr(_device_jpeg, "_repeats", lambda decoder, target: False)
    monkeypatch.setattr(_device, "_devices", {})


def interpreted_again(module: Any) -> Any:
    """A module with one of Triton's kernels, as it is where TRITON_INTERPRET was set before it was imported."""
    spec = importlib.util.spec_from_file_location(f"{module.__name__.rpartition('.')[2]}_interpreted", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        spec.loader.exec_module(found)
    assert type(found.kernel).__name__ == "InterpretedFunction"
    return found

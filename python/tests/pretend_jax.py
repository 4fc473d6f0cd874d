"""A device of JAX that can be wrong: it stands for stoker._jax.Port in tests of when slots are returned.

Arrays arrive when its clock is advanced, one after the other. What is copied is what is at the source's address then,
and a source that has changed since it was put is a mistake. Unlike JAX, the device does not keep the source, unless
``holds`` is set: so a slot that is returned too early shows, every time, also in arrays that nobody has any more.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from stoker import _device, _jax

POISON = 0x5A


class Array:
    """An array there: it has what is asked of a jax.Array. ``memory`` is poison until it has arrived."""

    def __init__(self, device: Device, source: Any) -> None:
        self._device = device
        self.memory = np.full(source.nbytes, POISON, np.uint8).view(source.dtype).reshape(source.shape)
        self.shape, self.dtype = source.shape, source.dtype
        self.arrived = self._gone = False

    def is_deleted(self) -> bool:
        return self._gone

    def is_ready(self) -> bool:
        assert not self._gone  # JAX would end the process
        return self.arrived

    def block_until_ready(self) -> None:
        self._device.waits += 1
        if self._gone:
            raise RuntimeError("Array has been deleted")
        while not self.arrived:
            assert self._device.advance(), "an array that never arrives is waited for"

    def delete(self) -> None:
        """As if it was donated to a computation."""
        self._gone = True


class Device(_jax.Port):
    """Has the methods of stoker._jax.Port."""

    def __init__(self, room: int = 1 << 28) -> None:
        self.name = "pretend:0"
        self.facts = ("valid", "cu_seqlens", "position_ids")
        self.refers = self.holds = False
        self.room = room  # bytes that may be in use
        self.used = 0
        self.waits = 0  # of the host
        self.mistakes: list[str] = []
        self._queue: deque[Callable[[], None]] = deque()

    @property
    def pending(self) -> int:
        return len(self._queue)

    def advance(self, steps: int = 1) -> int:
        """So many arrays arrive; returns how many there were."""
        for step in range(steps):
            if not self._queue:
                return step
            self._queue.popleft()()
        return steps

    def drain(self) -> None:
        while self.advance():
            pass

    def put(self, arrays: Sequence[Any]) -> Iterator[Any]:
        return map(self._begun, arrays)

    def _begun(self, source: Any) -> Array:
        size = source.nbytes
        if self.used + size > self.room:
            raise RuntimeError(f"RESOURCE_EXHAUSTED: out of memory while trying to allocate {size} bytes")
        self.used += size
        array = Array(self, source)
        weakref.finalize(array, self._freed, size).atexit = False
        address, strides, before = source.ctypes.data, source.strides, source.tobytes()
        memory, arrives = array.memory, weakref.ref(array)
        held = source if self.holds else None

        def arrive() -> None:
            nonlocal held
            extent = sum((n - 1) * s for n, s in zip(memory.shape, strides, strict=True)) + memory.itemsize
            raw: Any = (ctypes.c_ubyte * max(extent if memory.size else 0, 1)).from_address(address)
            now = np.ndarray(memory.shape, memory.dtype, raw, 0, strides) if memory.size else memory
            if now.tobytes() != before:
                self.mistakes.append(f"an array of shape {memory.shape} changed before it arrived")
            memory[...] = now
            held = None
            if (array := arrives()) is not None:
                array.arrived = True

        self._queue.append(arrive)
        return array

    def _freed(self, size: int) -> None:
        self.used -= size

    def is_array(self, value: Any) -> bool:
        return isinstance(value, Array)


def install(monkeypatch: pytest.MonkeyPatch, device: Device) -> None:
    """From now on, batches that go to a device of JAX go to this one."""
    monkeypatch.setattr(_jax, "chosen", lambda name: device)
    monkeypatch.setattr(_jax, "Port", lambda where: where)
    monkeypatch.setattr(_device, "_devices", {})


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    """A device in the place of JAX's. At the end, its clients have done nothing wrong."""
    found = Device()
    install(monkeypatch, found)
    yield found
    found.drain()
    assert found.mistakes == [], found.mistakes[:5]

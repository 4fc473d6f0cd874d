"""Shared memory: the control page, the slots, and who holds them.

A batch lies in a slot, a memfd that the engine made and this process has mapped. While anybody can see an array over
it, the slot is leased: every array of a batch, and every view of such an array, hangs on one root object, and the
finaliser of that root gives the slot back. It stores one byte in the control page and kicks an eventfd; it takes no
lock and no socket, because it may run anywhere, inside the collector, in any thread, at the end of the interpreter.

Forks. A forked child has the same pages, so a slot that was leased at the moment of a fork must never be refilled.
The counter ``_forks`` is raised just before and just after every fork; a lease that began under another value than the
one it ends under may live on in a child, and is dropped instead of freed. The child's own finalisers do nothing: they
see another process id.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import time
import weakref
from contextlib import suppress
from typing import Any, NamedTuple

from ._errors import EngineError, ResourceError
from ._wire import PROTOCOL

PAGE_MAGIC = 0x314B5453  # "STK1"
PAGE_BYTES = 16384
PAGE_SLOTS = 64
PAGE_WORK = 8192
MAX_WORK = (PAGE_BYTES - PAGE_WORK) // 32
SLOT_FREE = 1
SLOT_DROP = 2
STAGES = ("idle", "read", "decode")

_HEAD = struct.Struct("<III")
_WORK = struct.Struct("<IIqqQ")

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(before=_count_fork, after_in_parent=_count_fork)


class Work(NamedTuple):
    """What one worker of the engine is at."""

    worker: int
    stage: str  # never "idle"
    loader: int
    sample: int
    seconds: float  # since it began


class ControlPage:
    """The page that both sides write, and the eventfd that wakes the engine; owns both descriptors.

    They stay open while anything refers to this object: a lease that ends late must never write to a descriptor whose
    number was given to another file.
    """

    def __init__(self, page_fd: int, event_fd: int) -> None:
        try:
            self._map = mmap.mmap(page_fd, PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(page_fd)
        self._event_fd = event_fd
        self._pid = os.getpid()
        weakref.finalize(self, os.close, event_fd).atexit = False
        magic, protocol, _ = _HEAD.unpack_from(self._map, 0)
        if magic != PAGE_MAGIC or protocol != PROTOCOL:
            raise EngineError(
                f"the engine's control page is of another kind (magic {magic:#x}, protocol {protocol})",
                code="incompatible",
                hint="install engine and package from the same release",
            )

    def give_back(self, slot: int, forks: int) -> None:
        """Ends the lease of a slot that began when the fork counter stood at ``forks``."""
        if os.getpid() != self._pid:
            return
        self._map[PAGE_SLOTS + slot] = SLOT_FREE if forks == _forks else SLOT_DROP
        with suppress(OSError):
            os.eventfd_write(self._event_fd, 1)

    def work(self) -> list[Work]:
        """What the engine's workers are at, the oldest first."""
        workers = min(_HEAD.unpack_from(self._map, 0)[2], MAX_WORK)
        now = time.monotonic_ns()
        found = []
        for worker in range(workers):
            stage, loader, sample, since, _ = _WORK.unpack_from(self._map, PAGE_WORK + worker * _WORK.size)
            if stage:
                name = STAGES[stage] if stage < len(STAGES) else f"stage {stage}"
                found.append(Work(worker, name, loader, sample, max(0.0, (now - since) / 1e9)))
        found.sort(key=lambda work: -work.seconds)
        return found


class Slots:
    """The slots of one engine, mapped as it announces them."""

    def __init__(self, page: ControlPage) -> None:
        self._page = page
        self._maps: dict[int, mmap.mmap] = {}

    def put(self, slot: int, fd: int, size: int) -> None:
        """Maps a new slot, or the new memory of a known one; takes fd over. Arrays over old memory keep it mapped."""
        try:
            flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
            self._maps[slot] = mmap.mmap(fd, size, flags, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as error:
            raise ResourceError(
                f"a batch of {size / (1 << 20):.1f} MiB could not be mapped",
                cause=str(error),
                hint="hold fewer batches, lower prefetch=, or raise the limit of open files (ulimit -n)",
            ) from error
        finally:
            os.close(fd)

    def drop(self, slot: int) -> None:
        """Forgets a slot that the engine has let go. Arrays over it keep it mapped."""
        self._maps.pop(slot, None)

    def lease(self, slot: int) -> Any:
        """The root of everything that will be seen of the slot: a writable buffer of all its bytes.

        It is a ctypes array, since that is what numpy and torch both take as a buffer and what can be watched by a
        weak reference; the slot goes back when it is collected.
        """
        memory = self._maps[slot]
        root = (ctypes.c_ubyte * len(memory)).from_buffer(memory)
        weakref.finalize(root, self._page.give_back, slot, _forks).atexit = False
        return root

    def release(self, slot: int) -> None:
        """Gives back a slot that nobody will look at."""
        self._page.give_back(slot, _forks)

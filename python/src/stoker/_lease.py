"""Shared memory: the control page, the slots, and who holds them.

A batch is stored in a slot, a memfd made by the engine and mapped by this process. While any array over it is alive,
the slot is leased: every array of a batch, and every view of such an array, keeps one root object alive, and the
finaliser of that root returns the slot. It stores one byte in the control page and signals an eventfd; it takes no lock
and uses no socket, because it may run anywhere, inside the collector, in any thread.

The finaliser consists of C functions only. A finaliser in Python loses Ctrl-C: an interrupt that arrives in it is
raised there, reported as ignored, and the loop goes on. In a fast loop that happened to every third interrupt.

Forks. A forked child shares these pages, so a slot that was leased at the moment of a fork must never be refilled: all
existing leases are set to end in SLOT_DROP just before and just after every fork. The child's leases have no effect.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import struct
import sys
import time
import weakref
from collections.abc import Callable
from functools import partial
from itertools import starmap
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
STAGES = ("idle", "read", "decode", "python")

_HEAD = struct.Struct("<III")
_WORK = struct.Struct("<IIqqQ")


class Work(NamedTuple):
    """What one worker of the engine is working on."""

    worker: int
    stage: str  # never "idle"
    loader: int
    sample: int
    seconds: float  # since it began, in seconds


class ControlPage:
    """The page that both sides write, and the eventfd that wakes the engine; owns both descriptors.

    They stay open while anything refers to this object: a late finaliser must never write to a descriptor whose number
    has been given to another file.
    """

    def __init__(self, page_fd: int, event_fd: int) -> None:
        try:
            self._map = mmap.mmap(page_fd, PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(page_fd)
        self._event_fd = event_fd
        weakref.finalize(self, os.close, event_fd).atexit = False
        magic, protocol, _ = _HEAD.unpack_from(self._map, 0)
        if magic != PAGE_MAGIC or protocol != PROTOCOL:
            raise EngineError(
                f"the engine's control page has an unknown format (magic {magic:#x}, protocol {protocol})",
                code="incompatible",
                hint="install the engine and the package from the same release",
            )

    def ending(self, fate: list[tuple[int, int]]) -> Callable[[Any], Any]:
        """A callable that stores the byte and the offset in ``fate`` and wakes the engine; it does nothing if ``fate``
        is empty.

        To be called once, as the callback of a weak reference. It runs no bytecode: next() draws one element from each
        of the two iterators, and takes the weak reference for its default.
        """
        store = starmap(self._map.__setitem__, fate)
        kick = starmap(os.eventfd_write, [(self._event_fd, 1)])
        return partial(next, zip(store, kick, strict=False))

    def work(self) -> list[Work]:
        """What the engine's workers are working on, the oldest first."""
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


class Memory:
    """The mapping of a slot. It lives while the engine may fill the slot again, or anything refers to it; a device that
    has pinned the mapping learns by a weak reference when it has ended, and keeps ``map`` until it is unpinned."""

    __slots__ = ("__weakref__", "address", "map", "size")

    def __init__(self, memory: mmap.mmap) -> None:
        self.map = memory
        self.size = len(memory)
        self.address = ctypes.addressof(ctypes.c_ubyte.from_buffer(memory))


# Called where there is no slot left for the next batch: copies to devices that may hold some.
relievers: list[Callable[[], None]] = []


class Slots:
    """The slots of one engine, mapped as it announces them.

    Once this is gone, and with it the engine, leases end without effect.
    """

    def __init__(self, page: ControlPage) -> None:
        self._page = page
        self._maps: dict[int, Memory] = {}
        # By slot, until its next lease: the weak reference with the finaliser, and what the finaliser will store.
        self._leases: dict[int, tuple[weakref.ref[Any], list[tuple[int, int]]]] = {}
        _all_slots.add(self)

    def put(self, slot: int, fd: int, size: int) -> None:
        """Maps a new slot, or the new memory of a known one; takes ownership of fd. Arrays over old memory keep it
        mapped."""
        try:
            flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
            self._maps[slot] = Memory(mmap.mmap(fd, size, flags, mmap.PROT_READ | mmap.PROT_WRITE))
        except OSError as error:
            raise ResourceError(
                f"cannot map a batch of {size / (1 << 20):.1f} MiB",
                cause=str(error),
                hint="hold fewer batches, lower prefetch=, or raise the limit of open files (ulimit -n)",
            ) from error
        finally:
            os.close(fd)

    def drop(self, slot: int) -> None:
        """Forgets a slot that the engine has released. Arrays over it keep it mapped."""
        self._maps.pop(slot, None)

    def end(self) -> None:
        """The engine has ended: nothing is leased any more. Arrays over slots keep them mapped."""
        self._maps.clear()

    def lease(self, slot: int) -> Any:
        """The root object of everything that refers to the slot: a writable buffer of all its bytes. LookupError after
        ``end``.

        It is a ctypes array, because NumPy and torch both accept that as a buffer and it can be the target of a weak
        reference; the slot is returned when it is collected. ``memory`` is its Memory.
        """
        memory = self._maps[slot]
        root: Any = (ctypes.c_ubyte * memory.size).from_buffer(memory.map)
        root.memory = memory
        fate = [(PAGE_SLOTS + slot, SLOT_FREE)]
        self._leases[slot] = weakref.ref(root, self._page.ending(fate)), fate
        return root

    def release(self, slot: int) -> None:
        """Returns a slot that nobody will read."""
        self._page.ending([(PAGE_SLOTS + slot, SLOT_FREE)])(None)

    def relieved(self) -> bool:
        """Whether slots came back that only garbage held, or computations of JAX or copies to a device that have ended
        by now. Asked when there is no slot left for the next batch."""
        before = self._held()
        for relieve in relievers:
            relieve()
        jax: Any = sys.modules.get("jax")
        for array in getattr(jax, "live_arrays", list)():
            if not array.is_deleted():
                array.block_until_ready()
        gc.collect()  # which tells JAX to let go of what its computations needed
        return self._held() < before

    def _held(self) -> int:
        return sum(held() is not None for held, _ in list(self._leases.values()))

    def before_and_after_fork(self) -> None:
        """Everything leased now may live on in the child."""
        for slot, (_, fate) in list(self._leases.items()):
            fate[:] = [(PAGE_SLOTS + slot, SLOT_DROP)]

    def in_child(self) -> None:
        """These slots belong to the parent."""
        for _, fate in list(self._leases.values()):
            fate.clear()


_all_slots: weakref.WeakSet[Slots] = weakref.WeakSet()


def _at_fork(tell: Callable[[Slots], None]) -> None:
    for slots in list(_all_slots):
        tell(slots)


os.register_at_fork(
    before=partial(_at_fork, Slots.before_and_after_fork),
    after_in_parent=partial(_at_fork, Slots.before_and_after_fork),
    after_in_child=partial(_at_fork, Slots.in_child),
)

"""Frames between the engine and whoever makes samples: a worker process (_work.py) or the trainer (_inline.py).

Frames, both ways, are a length (u32: the bytes that follow), a type (u8) and a payload, little endian;
internal/stage/worker has the other end.

    engine -> worker                                     worker -> engine
    1 SLOT     slot, bytes, with a descriptor            1 HELLO   pid
    2 FREE     slot                                      2 SHAPE   batch, row, sizes of the leaves, structure,
                                                                    pictures (_tone.py)
    3 LAYOUT   layout, (offset, size) per leaf,          3 DONE    batch, nanoseconds, rows: filled, bad, odd,
                                                                    or ready: filled, its pictures are numbers
               structure                                 4 NEED    batch, bytes of the blob
    4 TASKS    batch, slot, layout, how, rows            5 WROTE   batch, bytes, nanoseconds
    5 COLLATE  batch, sources of the rows, key           6 FAILED  why no sample can be made
    6 FITS     batch, slot, offset, room
    7 DROP     batch
    8 ITEMS    what a sampler gave, for each row of the next tasks (_items.py)
    9 PAGE     with a descriptor: where to say which row is in work. Comes first, and HELLO is its answer
    10 PASS    epoch: the tasks that follow are of a pass that begins
    11 FIELDS  JSON: what samples have that the engine begins (_inputs.py)
    12 INPUT   number, slot, rows, JSON: such samples
    13 SOURCES batch, (row, input, its row) per row of the next tasks
    14 USED    input, which no row needs any more
    15 WALK    pass, epoch, number, told: where an       7 MADE    batch, bytes, nanoseconds, samples, told
               iteration begins (_walks.py)              8 ENDED   batch: the iteration has none
    16 TURN    batch, pass, number of the batch
    17 OVER    pass, of which nothing is asked again
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from collections import deque

from ._wire import receive

SLOT, FREE, LAYOUT, TASKS, COLLATE, FITS, DROP, ITEMS, PAGE, PASS, FIELDS, INPUT, SOURCES, USED = range(1, 15)
WALK, TURN, OVER = range(15, 18)
HELLO, SHAPE, DONE, NEED, WROTE, FAILED, MADE, ENDED = range(1, 9)
ROWS, WHOLE, MORE, ALIKE = range(4)
FILLED, BAD, ODD, READY = range(4)
ALL_ROWS = 0xFFFFFFFF  # in DONE: the collate function failed
# The page: uint64 batch, uint32 row + 1 (0: none), uint32 what else the worker does. Python stacks follow in its file.
PAGE_BYTES = 16
IDLE, STARTING, COLLATING = range(3)

TASKS_HEAD = struct.Struct("<QIIBqqI")  # batch, slot, layout, how, epoch, step, count
TASK = struct.Struct("<IqqQI")  # row, place, sample, key, attempt
ROW = struct.Struct("<IBI")  # row, status, and the count of loose values or the length of the error
LOOSE = struct.Struct("<II")  # column, length
_FRAME = struct.Struct("<IB")
_DONE = struct.Struct("<QQI")


def send(sock: socket.socket, kind: int, *parts: bytes) -> None:
    size = 1 + sum(map(len, parts))
    sock.sendall(b"".join((_FRAME.pack(size, kind), *parts)))


def send_done(sock: socket.socket, batch: int, nanos: int, rows: int, *parts: bytes) -> None:
    """``rows`` of a batch are finished; ``parts`` is what is said of them."""
    send(sock, DONE, _DONE.pack(batch, nanos, rows), *parts)


def refused(row: int, body: bytes, status: int = BAD) -> bytes:
    """What DONE says of a row without a sample; ``body`` is the JSON of the reason."""
    return ROW.pack(row, status, len(body)) + body


class Frames:
    """Frames from the engine, and the descriptors that come with them."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._held = bytearray()
        self._descriptors: deque[int] = deque()
        self.whole: deque[tuple[int, bytes]] = deque()  # that have arrived: type, payload

    def next(self) -> tuple[int, bytes] | None:
        """Waits for a frame; None at the end."""
        while not self.whole:
            if not self._read(0):
                return None
        return self.whole.popleft()

    def look(self) -> bool:
        """Takes what has arrived, and never waits; False at the end."""
        while True:
            try:
                if not self._read(socket.MSG_DONTWAIT):
                    return False
            except BlockingIOError:
                return True

    def _read(self, flags: int) -> bool:
        data, descriptors = receive(self._sock, flags)
        self._descriptors.extend(descriptors)
        held = self._held
        held += data
        while len(held) >= 4 and len(held) >= (end := 4 + int.from_bytes(held[:4], "little")):
            self.whole.append((held[4], bytes(held[5:end])))
            del held[:end]
        return bool(data)

    def descriptor(self) -> int:
        """The descriptor that came with the oldest frame that brings one; now the caller's."""
        return self._descriptors.popleft()

    def mapped(self, size: int) -> mmap.mmap:
        """The memory that it stands for."""
        fd = self.descriptor()
        try:
            return mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        finally:
            os.close(fd)

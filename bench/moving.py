"""The client of bench.transport: takes ready batches of 38.5 MB, checks each, and says what that cost it.

Every sample holds the same bytes (byte i is 31 i modulo 256), so a batch is known. A check adds up one 64-bit word of
each cache line. Two windows: one for the rate, one for CPU, in which a buffer of the client's own, mapped long ago, is
read in turn with each batch. That is what reading costs under the same load on the memory; what the client's process
spent beyond it (all threads, page faults of new mappings included) is the price of the delivery.
"""

from __future__ import annotations

import argparse
import mmap
import os
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from bench.consumer import emit
from bench.meter import Clock

BATCH = 256
SHAPE = (224, 224, 3)
BYTES = BATCH * SHAPE[0] * SHAPE[1] * SHAPE[2]
WARM = 24
OWN = 4  # buffers of the client's own, so that each comes from memory as far away as a batch does


def sample() -> np.ndarray:
    return (np.arange(BYTES // BATCH, dtype=np.int64) * 31).astype(np.uint8).reshape(SHAPE)


def read(batch: np.ndarray) -> int:
    """The sum of one word of each cache line, modulo 2**64."""
    return int(np.add.reduce(batch.reshape(-1).view(np.uint64)[::8]))


def own_buffers() -> list[np.ndarray]:
    """Shared memory, as a batch is, so that its pages are of the same size; each page touched."""
    buffers = []
    for number in range(OWN):
        fd = os.memfd_create(f"bench-own-{number}")
        os.ftruncate(fd, BYTES)
        buffer = np.frombuffer(mmap.mmap(fd, BYTES), np.uint8).reshape(BATCH, *SHAPE)
        os.close(fd)
        buffer[:] = sample()
        buffers.append(buffer)
    return buffers


def run(open_batches: Callable[[], Iterator[np.ndarray]]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=200)
    batches = parser.parse_args().batches
    cpu = Clock.from_env()
    own = own_buffers()
    expected = read(own[0])
    stream = open_batches()

    def take() -> None:
        batch = next(stream)
        if batch.dtype != np.uint8 or batch.shape != (BATCH, *SHAPE):
            raise SystemExit(f"a batch of {batch.dtype}{list(batch.shape)}")
        if read(batch) != expected:
            raise SystemExit("a batch with other bytes than were put in")

    for number in range(WARM):
        take()
        read(own[number % OWN])
    emit("start", cpu=cpu.seconds(), wall=time.perf_counter())
    for _ in range(batches):
        take()
    emit("rate", cpu=cpu.seconds(), wall=time.perf_counter())
    spent, reading = time.process_time(), 0.0
    for number in range(batches):
        take()
        begin = time.thread_time()
        read(own[number % OWN])
        reading += time.thread_time() - begin
    spent = time.process_time() - spent - reading
    emit(
        "stop",
        cpu=cpu.seconds(),
        wall=time.perf_counter(),
        batches=batches,
        client_ms=1e3 * spent / batches,
        reading_ms=1e3 * reading / batches,
        wait=True,
    )
    sys.stdin.readline()

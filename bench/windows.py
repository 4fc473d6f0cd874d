"""The client of bench.tokens: takes batches of token windows, checks them, and says what they cost.

The tokens of the file are known by their place (token), so that a batch can be checked without reading the file. Every
batch is checked for its shapes, its type and one token of it, which costs about as much as a training loop's own
bookkeeping; batches of the warm-up are checked token by token. Two windows: one in which nothing else is done, and one
in which x is read, a word of each cache line, as a copy to a device would: bytes that another processor wrote cost more
to read than one's own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bench.consumer import emit
from bench.meter import Clock

BATCH, LENGTH = 16, 2048
TOKENS = 100_000_000
WARM = 200
PERIOD = 50_021  # a prime: no two windows that start within so many tokens of each other are alike


def token(place: np.ndarray) -> np.ndarray:
    """The token at a place of the file."""
    return (place % PERIOD * 7919 % PERIOD).astype(np.uint16)


def write(path: str) -> None:
    run = token(np.arange(PERIOD, dtype=np.int64))
    with open(path, "wb") as file:
        left = TOKENS
        while left > 0:
            file.write(run[: min(left, PERIOD)].tobytes())
            left -= PERIOD


def check(x: np.ndarray, y: np.ndarray) -> None:
    """x and y are windows of the file, y one token further."""
    place = np.zeros(PERIOD, np.int64)
    place[token(np.arange(PERIOD, dtype=np.int64))] = np.arange(PERIOD)
    begin = place[x[:, :1]]
    if not np.array_equal(x, token(begin + np.arange(LENGTH))):
        raise SystemExit("x is not a window of the file")
    if not np.array_equal(y, token(begin + 1 + np.arange(LENGTH))):
        raise SystemExit("y is not the window one token after x")


def run(open_batches: Callable[[str], Iterator[Any]]) -> None:
    """open_batches(path) gives pairs of torch tensors without end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--batches", type=int, default=2000)
    args = parser.parse_args()
    cpu = Clock.from_env()
    stream = open_batches(args.data)
    starts = set()
    for number in range(WARM):
        x, y = next(stream)
        if str(x.dtype) != "torch.int64" or str(y.dtype) != "torch.int64":
            raise SystemExit(f"a batch of {x.dtype} and {y.dtype}")
        if number < 8:
            check(x.numpy(), y.numpy())
            starts.update(x[:, 0].tolist())
    if len(starts) < 64:
        raise SystemExit("the windows are not random")

    def take() -> Any:
        x, y = next(stream)
        if x.shape != (BATCH, LENGTH) or y.shape != x.shape or int(x[0, 1]) != int(y[0, 0]):
            raise SystemExit("a batch of other windows")
        return x

    emit("start", cpu=cpu.seconds(), wall=time.perf_counter())
    for _ in range(args.batches):
        take()
    emit("plain", cpu=cpu.seconds(), wall=time.perf_counter())
    total = 0
    for _ in range(args.batches):
        total += int(np.add.reduce(take().numpy()[:, ::8], axis=None))
    emit("stop", cpu=cpu.seconds(), wall=time.perf_counter(), batches=args.batches, total=total, wait=True)
    sys.stdin.readline()

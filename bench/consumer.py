"""The training loop of every peer: the same few lines, whoever makes the batches.

A peer module calls run(open_peer). open_peer(Options) builds the loader and gives a Peer; the clock of the first batch
starts before it, after all imports (and after prepare(Options), where a peer is given something made ahead, which
open_peer then gets too). Then batches are discarded until the loader runs steadily, and a window of options.samples
samples is measured between two marks, each with the CPU time of the whole tree of processes. Every batch is checked for
its shape and type and read, one byte of each cache line; nothing is written into it. The marks are JSON lines on
standard output; after the last one the driver reads the memory of all processes, and answers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.meter import Clock

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SIZE = 224
LINE = 64


@dataclass(frozen=True)
class Options:
    data: str
    samples: int
    batch: int
    output: str
    threads: int
    workers: int
    seed: int

    @property
    def floats(self) -> bool:
        return self.output == "float32"


@dataclass
class Peer:
    """What a peer says of itself. in_flight: batches made ahead at most. batches gives numpy arrays, not copied; with
    several views of a picture, a list or tuple of as many arrays."""

    batches: Iterator[tuple[np.ndarray, Any]]
    in_flight: int
    resampling: str
    layout: str
    versions: dict[str, str]
    settings: dict[str, Any] = field(default_factory=dict)
    views: int = 1


def views(images: Any, count: int) -> list[np.ndarray]:
    """The arrays of a batch's pictures."""
    found = list(images) if count > 1 else [images]
    if len(found) != count:
        raise SystemExit(f"a batch of {len(found)} views, not {count}")
    return [np.asarray(view) for view in found]


def touch(images: np.ndarray) -> int:
    """Reads one byte of every cache line; the array must be contiguous."""
    flat = images.reshape(-1).view(np.uint8)
    if not np.may_share_memory(flat, images):
        raise SystemExit("the batch is not contiguous: its layout is not what the peer says")
    return int(np.bitwise_xor.reduce(flat[::LINE]))


def emit(event: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"event": event, **values}) + "\n")
    sys.stdout.flush()


def run(open_peer: Callable[..., Peer], prepare: Callable[[Options], Any] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--samples", type=int, default=20000, help="rounded up to whole batches")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--output", choices=("uint8", "float32"), default="uint8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ramps", action="store_true", help="DATA holds ramps: report the crops instead of the speed")
    args = parser.parse_args()
    if not os.environ.get("STOKER_BENCH_CPU"):
        os.environ["STOKER_BENCH_CPU"] = f"walk:{os.getppid()}"
    names = Options.__dataclass_fields__
    options = Options(**{k: v for k, v in vars(args).items() if k in names})
    given = () if prepare is None else (prepare(options),)
    (_crops if args.ramps else _measure)(lambda: open_peer(options, *given), options)


def _measure(open_peer: Callable[[], Peer], options: Options) -> None:
    cpu = Clock.from_env()
    cpu_begin = cpu.seconds()
    begin = time.perf_counter()
    peer = open_peer()
    stream = peer.batches
    images, labels = next(stream)
    first = views(images, peer.views)
    for view in first:
        touch(view)
    first_batch = time.perf_counter() - begin
    first_cpu = cpu.seconds() - cpu_begin
    shape, dtype = first[0].shape, first[0].dtype
    wanted = {"NHWC": (SIZE, SIZE, 3), "NCHW": (3, SIZE, SIZE)}[peer.layout]
    if shape != (options.batch, *wanted) or str(dtype) != options.output or len(labels) != options.batch:
        raise SystemExit(f"the peer delivers {dtype}{list(shape)}, not {options.output} {peer.layout}")
    del first, images, labels, view
    warm = max(2 * peer.in_flight, 16)
    for _ in range(warm):
        images, labels = next(stream)
        for view in views(images, peer.views):
            touch(view)
    del images, labels, view
    emit(
        "start",
        cpu=cpu.seconds(),
        wall=time.perf_counter(),
        first_batch=first_batch,
        first_cpu=first_cpu,
        warm_batches=warm + 1,
        in_flight=peer.in_flight,
        resampling=peer.resampling,
        layout=peer.layout,
        versions=peer.versions,
        settings=peer.settings,
    )
    seen = checksum = label_sum = 0
    for _ in range(-(-options.samples // options.batch)):
        images, labels = next(stream)
        for view in views(images, peer.views):
            if view.shape != shape or view.dtype != dtype:
                raise SystemExit(f"a batch of {view.dtype}{list(view.shape)} in mid-run")
            checksum ^= touch(view)
        label_sum += int(np.sum(labels))
        seen += len(labels)
    emit(
        "stop",
        cpu=cpu.seconds(),
        wall=time.perf_counter(),
        samples=seen,
        checksum=checksum,
        label_sum=label_sum,
        wait=True,
    )
    _wait(peer)


def _crops(open_peer: Callable[[], Peer], options: Options) -> None:
    """Each picture is a ramp, red from left to right, green from top to bottom: the slopes give box and flip."""
    peer = open_peer()
    area, flips, ratio = [], 0, []
    edge = slice(8, SIZE - 8)
    x = np.arange(SIZE, dtype=np.float64)[edge] - (SIZE - 1) / 2
    for _ in range(options.samples // options.batch):
        images, _labels = next(peer.batches)
        if peer.layout == "NCHW":
            images = images.transpose(0, 2, 3, 1)
        planes = images.astype(np.float64)
        red = planes[:, :, edge, 0].mean(axis=1) @ x / (x @ x) * SIZE / 255
        green = planes[:, edge, :, 1].mean(axis=2) @ x / (x @ x) * SIZE / 255
        flips += int((red < 0).sum())
        area += np.abs(red * green).tolist()
        ratio += np.log(np.abs(red / green)).tolist()
    emit("crops", area=[round(a, 5) for a in area], ratio=[round(r, 5) for r in ratio], flips=flips, wait=True)
    _wait(peer)


def _wait(peer: Peer) -> None:
    """Until the driver has read the memory of all processes; holding the peer is what keeps them alive meanwhile."""
    sys.stdin.readline()
    del peer

"""stoker's loader in turns: {"batches": N} on standard input asks for N batches; the answer has "cpu" and "wall".

Both are seconds from the request. CPU is that of the loader's processes until they rest again, so what they make ahead
counts for the turn that emptied its place. The wall clock ends with the last batch.
"""

from __future__ import annotations

import inspect
import json
import sys
import time

import stoker

from bench.consumer import Options, Peer, emit, touch, views
from bench.meter import Clock
from bench.peers.stoker_loader import open_peer

STILL = 0.02  # seconds with almost no CPU
NOISE = 0.0005  # CPU seconds of the looks themselves


def rest(clock: Clock) -> float:
    """Waits until nothing runs, and returns the CPU so far."""
    before = clock.seconds()
    while True:
        time.sleep(STILL)
        now = clock.seconds()
        if now - before < NOISE:
            return now
        before = now


def take(peer: Peer, count: int) -> None:
    for _ in range(count):
        images, _labels = next(peer.batches)
        for view in views(images, peer.views):
            touch(view)


def main() -> None:
    data, output, batch, seed, entries = sys.argv[1:]
    options = Options(data, samples=0, batch=int(batch), output=output, threads=2, workers=2, seed=int(seed))
    known = "entries" in inspect.signature(stoker.DataLoader).parameters  # older checkouts have none
    peer = open_peer(options, **({"entries": entries} if known else {}))
    clock = Clock.from_env()
    take(peer, 4 * peer.in_flight)
    before = rest(clock)
    emit("start", versions=peer.versions)
    for line in sys.stdin:
        asked = time.perf_counter()
        take(peer, json.loads(line)["batches"])
        wall = time.perf_counter() - asked
        now = rest(clock)
        emit("turn", cpu=now - before, wall=wall)
        before = now


if __name__ == "__main__":
    main()

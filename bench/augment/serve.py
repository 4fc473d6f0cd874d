"""An operation at a time for the driver: python -m bench.augment.serve PEER PLAN, under an environment that has it.

PEER is a module bench.augment.of_PEER, whose open(pictures) gives an Opened. The first line says versions, and which
operations the peer has. Then each line of standard input asks for a turn of one of them, and gets a line:

    {"op": NAME, "mode": "check"}                 {"changed", "shape", "way"}: how many pictures it changed
    {"op": NAME, "mode": "turn", "seconds": S}    {"with", "without", "pictures"}: CPU seconds of this process

An operation has ways: layouts or sizes of a batch that a user may choose; the check tries all of them, and the fastest
is the one that counts. A turn goes over all pictures with the operation, then without it, and so on: at least once,
and for about S seconds. Each picture of a pass is made anew, as a crop or a decoder makes it, which both passes pay. A
failure is {"failed": text}. native/main.go answers the same.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.augment.operations import OPERATIONS, SIDE, Operation

THREADS = 1

Pass = Callable[[], Iterable[Any]]  # over all pictures once; its results as they come


@dataclass
class Opened:
    """make: the pass of an operation in a way, or of none; LookupError says that the peer does not have it, and why.
    pixels: a result as pictures, uint8 or floats of up to 1, whatever their layout, each an array."""

    versions: dict[str, str]
    ways: tuple[str, ...]
    make: Callable[[Operation | None, str], Pass]
    pixels: Callable[[Any], Iterable[np.ndarray]]
    settings: dict[str, Any] = field(default_factory=dict)


def read_pictures(plan: dict[str, Any]) -> np.ndarray:
    """All pictures: (n, SIDE, SIDE, 3), uint8."""
    return np.fromfile(plan["pictures"], np.uint8).reshape(-1, SIDE, SIDE, 3)


def spent(work: Pass) -> float:
    begin = time.process_time()
    for _ in work():
        pass
    return time.process_time() - begin


class Bench:
    def __init__(self, opened: Opened, pictures: np.ndarray) -> None:
        self.opened, self.pictures = opened, pictures
        self.ready: dict[str, dict[str, Pass]] = {}
        self.missing: dict[str, str] = {}
        self.without = {way: opened.make(None, way) for way in opened.ways}
        self.chosen: dict[str, str] = {}
        for name, operation in OPERATIONS.items():
            found, why = {}, ""
            for way in opened.ways:
                try:
                    found[way] = opened.make(operation, way)
                except LookupError as error:
                    why = str(error.args[0]) if error.args else ""
            if found:
                self.ready[name] = found
            else:
                self.missing[name] = why

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        name = request["op"]
        if request["mode"] == "check":
            return self.check(name)
        way = self.chosen[name]
        work, without = self.ready[name][way], self.without[way]
        total, base, passes, begin = 0.0, 0.0, 0, time.process_time()
        while passes == 0 or time.process_time() - begin < request["seconds"]:
            total += spent(work)
            base += spent(without)
            passes += 1
        return {"with": total, "without": base, "pictures": passes * len(self.pictures)}

    def check(self, name: str) -> dict[str, Any]:
        """Does it act on the pictures? And which way is the fastest, of three passes each that begin warm."""
        cost = {}
        for way, work in self.ready[name].items():
            results = [array for result in work() for array in self.opened.pixels(result)]
            base = [array for result in self.without[way]() for array in self.opened.pixels(result)]
            if len(results) != len(self.pictures) or len(base) != len(results):
                return {"failed": f"{len(results)} results of {len(self.pictures)} pictures"}
            same = sum(a.shape == b.shape and np.array_equal(a, b) for a, b in zip(results, base, strict=True))
            shape, changed = list(results[0].shape), len(results) - same
            cost[way] = min(spent(work) - spent(self.without[way]) for _ in range(3))
        self.chosen[name] = min(cost, key=lambda way: cost[way])
        return {"changed": changed, "shape": shape, "way": self.chosen[name]}


def main() -> None:
    pictures = read_pictures(json.loads(Path(sys.argv[2]).read_text()))
    opened = importlib.import_module(f"bench.augment.of_{sys.argv[1]}").open(pictures)
    bench = Bench(opened, pictures)
    first = {"versions": opened.versions, "missing": bench.missing, "settings": opened.settings}
    print(json.dumps(first), flush=True)
    for line in sys.stdin:
        try:
            said = bench.answer(json.loads(line))
        except Exception as e:
            said = {"failed": f"{type(e).__name__}: {e}"}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()

"""What going on at place 100,000,000 costs, beside starting fresh: python -m bench.resume.

Both open a loader over 200 million samples out of nothing, in one engine that runs already, and take the first batch:
one at the beginning of an epoch, one from a state. The two take turns; figures are medians, and the ratio of medians is
the measure. The order is all that differs: no data is read.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import stoker

from bench import meter, rig

SAMPLES, PLACE, MAX_RATIO = 200_000_000, 100_000_000, 1.1
ORDERS: dict[str, dict[str, Any]] = {
    "none": {},
    "full": {"shuffle": "full"},
    "block": {"shuffle": "block", "block": 2000},
    "window": {"shuffle": "window", "window": 10_000},
}


def first_batch(order: dict[str, Any], batch: int, state: dict[str, Any] | None) -> float:
    """Seconds from nothing but an engine to the first batch."""
    begin = time.perf_counter()
    loader = stoker.DataLoader(stoker.Synthetic(SAMPLES, (64,)), batch, seed=3, **order)
    if state is not None:
        loader.load_state_dict(state)
    got = next(iter(loader))
    seconds = time.perf_counter() - begin
    assert got.step == (0 if state is None else PLACE // batch)
    loader.close()
    return seconds


def measure(order: dict[str, Any], batch: int, repeats: int) -> dict[str, Any]:
    loader = stoker.DataLoader(stoker.Synthetic(SAMPLES, (64,)), batch, seed=3, **order)
    state = {**loader.state_dict(), "position": PLACE}
    loader.close()
    runs: dict[str, list[float]] = {"fresh": [], "resumed": []}
    for number in range(repeats + 2):
        for name, given in (("fresh", None), ("resumed", state)):
            seconds = first_batch(order, batch, given)
            if number >= 2:
                runs[name].append(seconds)
    medians = {name: statistics.median(times) for name, times in runs.items()}
    return {**medians, "ratio": medians["resumed"] / medians["fresh"]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.resume", description=__doc__)
    parser.add_argument("--out", type=Path, default=rig.ROOT / "bench" / "results" / "resume.json")
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    rig.may_write(args.out)
    machine = rig.machine(rig.first_cpus(2))
    others = meter.Disturbance(os.sched_getaffinity(0), lambda: meter.descendants(os.getpid()))
    keeper = stoker.DataLoader(stoker.Synthetic(64, (64,)), args.batch)  # the engine stays
    next(iter(keeper))
    found = {}
    for name, order in ORDERS.items():
        found[name] = measure(order, args.batch, args.repeats)
        rig.say(
            f"{name:8} fresh {1000 * found[name]['fresh']:7.2f} ms   at place {PLACE:,} "
            f"{1000 * found[name]['resumed']:7.2f} ms   ratio {found[name]['ratio']:.2f}"
        )
    gates = [
        rig.Gate(f"resumed over fresh, {name}", one["ratio"], MAX_RATIO, "low", "x") for name, one in found.items()
    ]
    document = {
        "question": "going on at a place far into an epoch",
        "machine": machine,
        "samples": SAMPLES,
        "place": PLACE,
        "orders": found,
    }
    figures = {f"resumed over fresh, {name}": one["ratio"] for name, one in found.items()}
    return rig.finish(args.out, document, gates, [], figures, [sum(others.shares())])


if __name__ == "__main__":
    raise SystemExit(main())

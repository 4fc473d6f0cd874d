"""Whether tune chooses well: its choice against the best of an exhaustive search, both measured again in turn.

Every job is tuned twice: as stoker.tune does it, and with every combination measured. Then choice and best are measured
again, ten times in turn, and the median of the pairs' ratios counts: it must be 0.95 at least. The jobs are those that
pull the choice to different ends: a batch that costs processor time, one that waits, one that costs nothing, and
stoker's own loader over synthetic pictures.

    python -m bench.tuned [--job NAME] [--budget 120] [--pairs 10] [--seconds 4] [--out results.json]

The package and torch have to be importable, and STOKER_ENGINE or build/stoker has to be there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MUST = 0.95


class Burns:
    """Samples that cost a millisecond or two of processor time."""

    def __len__(self) -> int:
        return 20_000

    def __getitem__(self, index: int) -> float:
        total = 0.0
        for i in range(20_000):
            total += i * index
        return total


class Waits(Burns):
    """Samples that wait, as for a disk far away."""

    def __getitem__(self, index: int) -> float:
        time.sleep(0.002)
        return float(index)


class Nothing(Burns):
    """Samples that cost nothing: workers are only in the way."""

    def __getitem__(self, index: int) -> float:
        return float(index)


def torch_loader(dataset: Any) -> Callable[..., Any]:
    from torch.utils.data import DataLoader

    return lambda **settings: DataLoader(dataset, batch_size=32, shuffle=True, **settings)


def own_loader(**settings: Any) -> Any:
    import stoker

    return stoker.DataLoader(stoker.Synthetic(20_000, (224, 224, 3)), batch_size=64, shuffle=True, **settings)


JOBS: dict[str, Callable[[], Callable[..., Any]]] = {
    "burns": lambda: torch_loader(Burns()),
    "waits": lambda: torch_loader(Waits()),
    "nothing": lambda: torch_loader(Nothing()),
    "stoker": lambda: own_loader,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--job", choices=tuple(JOBS), action="append")
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    rows = [measure(job, arguments) for job in arguments.job or JOBS]
    if arguments.out:
        arguments.out.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(0 if all(row["ratio"] >= MUST for row in rows) else 4)


def measure(job: str, arguments: argparse.Namespace) -> dict[str, Any]:
    import stoker

    make = JOBS[job]()
    keep: dict[str, Any] = {"playbook": None, "plot": None, "quiet": True}
    some = stoker.tune(make, budget=arguments.budget, **keep)
    every = stoker.tune(make, budget=5 * arguments.budget, exhaustive=True, **keep)
    prefetch = "prefetch" if job == "stoker" else "prefetch_factor"
    best = {"num_workers": every.report["best"]["num_workers"]}
    if best["num_workers"]:
        best[prefetch] = every.report["best"]["prefetch"]
    pairs = []
    for turn in range(arguments.pairs):
        sides = [some.settings, best] if turn % 2 == 0 else [best, some.settings]
        rates = {str(side): rate(make, side, arguments.seconds) for side in sides}
        pairs.append((rates[str(some.settings)], rates[str(best)]))
    ratio = statistics.median(choice / best for choice, best in pairs)
    row = {
        "job": job,
        "choice": some.settings,
        "best": best,
        "ratio": ratio,
        "pairs": pairs,
        "measured": len(some.report["table"]),
        "exhaustive": len(every.report["table"]),
    }
    print(
        f"{job:8} {ratio:.3f} of the best: {some.settings} of {row['measured']} measured, {best} of {row['exhaustive']}"
    )
    return row


def rate(make: Callable[..., Any], settings: dict[str, Any], seconds: float) -> float:
    import stoker

    return stoker.benchmark(lambda: make(**settings), seconds=seconds).samples_per_second


if __name__ == "__main__":
    main()

"""This checkout beside an older one, over the same photographs: python -m bench.before --data F --other CHECKOUT.

Both must be built (make engine). It shows what a change costs those who do not use it. Two loaders, one of each
checkout, take turns (bench/turns.py), without entry points; what counts is the median of the turns' ratios of CPU.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Any

from bench import meter, pictures, rig, turns

NAMES = ("this", "other")


def commit(checkout: Path) -> str:
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True)
    return said.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.before", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs")
    parser.add_argument("--other", type=Path, required=True, help="a checkout of an older commit, built")
    parser.add_argument("--out", type=Path, default=rig.RESULTS / "before.json")
    parser.add_argument("--repeats", type=int, default=6, help="rounds, each with new processes")
    parser.add_argument("--turns", type=int, default=40, help="of each loader in a round")
    parser.add_argument("--batches", type=int, default=16, help=f"in a turn, {turns.BATCH} pictures each")
    parser.add_argument("--rows", nargs="+", default=["uint8", "float32"])
    args = parser.parse_args()
    rig.may_write(args.out)
    meter.become_subreaper()
    cpus = rig.first_cpus(2)
    document: dict[str, Any] = {
        "question": "what a change costs those who do not use it",
        "machine": rig.machine(cpus),
        "settings": rig.settings(args),
        "other": commit(args.other),
    }
    tree = pictures.build(args.data, turns.needed(args), turns.BATCH)
    sides = {
        name: turns.Side(checkout / "build" / "stoker", checkout / "python" / "src")
        for name, checkout in zip(NAMES, (rig.ROOT, args.other.resolve()), strict=True)
    }
    runs: list[dict[str, Any]] = []
    gates, figures, disturbed = [], {}, []
    for output in args.rows:
        one = turns.in_turns(sides, tree, output, args, cpus)
        runs += one.runs
        disturbed += one.disturbed
        gates.append(rig.Gate(f"{output}: CPU an image over the other checkout's", one.cpu, 1.01, "low", "x"))
        figures[f"{output}-cpu"] = one.cpu
    return rig.finish(args.out, document | {"runs": runs}, gates, [], figures, disturbed)


if __name__ == "__main__":
    raise SystemExit(main())

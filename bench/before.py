"""This checkout beside an older one, over the same photographs: python -m bench.before --data F --other CHECKOUT.

Both must be built (make engine). It shows what a change costs those who do not use it. Two loaders, one of each
checkout, are open at once and take turns of about half a second, over the same pictures: what a machine does slower
for some seconds, it does slower for both. What counts is the median of the turns' ratios of CPU. Which loader is
opened first turns from round to round, because a process keeps the memory that it got at its start.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import meter, pictures, rig, serving

NAMES = ("this", "other")
BATCH = 64
WARM = 64  # batches before the first turn, at most


def peer(engine: Path, client: Path, data: Path, output: str, seed: int) -> list[str | Path]:
    command = [
        "env",
        f"PYTHONPATH={client}:{rig.ROOT}",  # this client comes first
        f"STOKER_ENGINE={engine}",
        rig.python_of(".venv"),
        "-m",
        "bench.peers.turns",
        data,
        output,
        str(BATCH),
        str(seed),
    ]
    return [str(part) for part in command]


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
    parser.add_argument("--batches", type=int, default=16, help=f"in a turn, {BATCH} pictures each")
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
    tree = pictures.build(args.data, BATCH * (args.batches * args.turns + WARM), BATCH)  # a pass holds a round
    sides = {
        name: (checkout / "build" / "stoker", checkout / "python" / "src")
        for name, checkout in zip(NAMES, (rig.ROOT, args.other.resolve()), strict=True)
    }
    runs: list[dict[str, Any]] = []
    gates, figures, disturbed = [], {}, []
    for output in args.rows:
        one = in_turns(sides, tree, output, args, cpus)
        runs += one.runs
        disturbed += one.disturbed
        gates.append(rig.Gate(f"{output}: CPU an image over the other checkout's", one.cpu, 1.01, "low", "x"))
        figures[f"{output}-cpu"] = one.cpu
    return rig.finish(args.out, document | {"runs": runs}, gates, [], figures, disturbed)


@dataclass
class Turns:
    """What two loaders did in turns: this one over the other, and all rounds."""

    cpu: float  # CPU an image
    rate: float  # images a second
    runs: list[dict[str, Any]]
    disturbed: list[float]  # of the rounds that count


def in_turns(
    sides: dict[str, tuple[Path, Path]], tree: pictures.Tree, output: str, args: Any, cpus: Sequence[int]
) -> Turns:
    """sides: engine and client of each of NAMES. args: repeats, turns and batches, as the options say."""
    runs: list[dict[str, Any]] = []

    def both(number: int) -> tuple[dict[str, Any], float]:
        tree.warm()
        names = NAMES if number % 2 else NAMES[::-1]
        run: dict[str, Any] = {"output": output, "round": number}
        run |= {key: {name: [] for name in NAMES} for key in ("cpu", "wall")}
        with contextlib.ExitStack() as stack:
            loaders = {name: serving.Server(name) for name in names}
            for name, loader in loaders.items():
                loader.open(stack, peer(*sides[name], tree.root, output, number), cpus)
            mine = lambda: [os.getpid(), *(pid for one in loaders.values() for pid in one.pids())]  # noqa: E731
            others = meter.Disturbance(cpus, mine)
            for turn in range(args.turns):
                for name in names if turn % 2 else names[::-1]:
                    answer = loaders[name].ask(batches=args.batches)
                    if loaders[name].problem:
                        raise rig.PeerError(f"{name}: {loaders[name].problem}")
                    for key in ("cpu", "wall"):
                        run[key][name].append(answer[key])
            run["disturbed"] = sum(others.shares())
        runs.append(run)
        middle = {name: 1e6 * statistics.median(run["cpu"][name]) / (BATCH * args.batches) for name in NAMES}
        rig.say(
            f"round {number + 1} {output:8} {ratio(run['cpu']):.4f}  this {middle['this']:.1f} us, "
            f"other {middle['other']:.1f} us  others {100 * run['disturbed']:.1f} %"
        )
        return run, run["disturbed"]

    found = rig.rounds(args.repeats, both)
    return Turns(
        cpu=rig.middle(ratio(one["cpu"]) for one in found),
        rate=rig.middle(1 / ratio(one["wall"]) for one in found),
        runs=runs,
        disturbed=[one["disturbed"] for one in found],
    )


def ratio(spent: dict[str, list[float]]) -> float:
    return statistics.median(a / b for a, b in zip(spent["this"], spent["other"], strict=True))


if __name__ == "__main__":
    raise SystemExit(main())

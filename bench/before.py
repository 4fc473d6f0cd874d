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
from pathlib import Path
from typing import Any

from bench import meter, pictures, rig, serving

NAMES = ("this", "other")
BATCH = 64
WARM = 64  # batches before the first turn, at most


def peer(checkout: Path, data: Path, output: str, seed: int) -> list[str | Path]:
    path = f"PYTHONPATH={checkout / 'python' / 'src'}:{rig.ROOT}"  # the checkout's own client comes first
    engine = f"STOKER_ENGINE={checkout / 'build' / 'stoker'}"
    command = [
        "env",
        path,
        engine,
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
    checkouts = dict(zip(NAMES, (rig.ROOT, args.other.resolve()), strict=True))
    runs: list[dict[str, Any]] = []

    def both(output: str, number: int) -> tuple[dict[str, list[float]], float]:
        tree.warm()
        names = NAMES if number % 2 else NAMES[::-1]
        spent: dict[str, list[float]] = {name: [] for name in NAMES}
        with contextlib.ExitStack() as stack:
            loaders = {name: serving.Server(name) for name in names}
            for name, loader in loaders.items():
                loader.open(stack, peer(checkouts[name], tree.root, output, number), cpus)
            mine = lambda: [os.getpid(), *(pid for one in loaders.values() for pid in one.pids())]  # noqa: E731
            others = meter.Disturbance(cpus, mine)
            for turn in range(args.turns):
                for name in names if turn % 2 else names[::-1]:
                    answer = loaders[name].ask(batches=args.batches)
                    if loaders[name].problem:
                        raise rig.PeerError(f"{name}: {loaders[name].problem}")
                    spent[name].append(answer["cpu"])
            disturbed = sum(others.shares())
        runs.append({"output": output, "round": number, "cpu": spent, "disturbed": disturbed})
        middle = {name: 1e6 * statistics.median(spent[name]) / (BATCH * args.batches) for name in NAMES}
        rig.say(
            f"round {number + 1} {output:8} {ratio(spent):.4f}  this {middle['this']:.1f} us, "
            f"other {middle['other']:.1f} us  others {100 * disturbed:.1f} %"
        )
        return spent, disturbed

    gates, figures, disturbed = [], {}, []
    for output in args.rows:
        found = rig.rounds(args.repeats, lambda number, output=output: both(output, number))  # type: ignore[misc]
        middle = rig.middle(ratio(one) for one in found)
        disturbed += [run["disturbed"] for run in runs if run["output"] == output and run["cpu"] in found]
        gates.append(rig.Gate(f"{output}: CPU an image over the other checkout's", middle, 1.01, "low", "x"))
        figures[f"{output}-cpu"] = middle
    return rig.finish(args.out, document | {"runs": runs}, gates, [], figures, disturbed)


def ratio(spent: dict[str, list[float]]) -> float:
    return statistics.median(a / b for a, b in zip(spent["this"], spent["other"], strict=True))


if __name__ == "__main__":
    raise SystemExit(main())

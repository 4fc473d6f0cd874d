"""This checkout beside an older one, over the same photographs: python -m bench.before --data F --other CHECKOUT.

Both must be built (make engine). A round runs each once, in an order that turns; what counts is the median of the
rounds' ratios of CPU per image. It shows what a change costs those who do not use it.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Any

from bench import meter, pictures, rig

NAMES = ("this", "other")


def command(checkout: Path, data: Path, output: str, number: int, args: argparse.Namespace) -> list[str | Path]:
    path = f"{rig.ROOT}"  # of the peers; the checkout's own client comes first
    return [
        *("env", f"PYTHONPATH={checkout / 'python' / 'src'}:{path}", f"STOKER_ENGINE={checkout / 'build' / 'stoker'}"),
        *(rig.python_of(".venv"), "-m", "bench.peers.stoker_loader", "--data", data, "--output", output),
        *("--threads", "2", "--workers", "2", "--samples", str(args.samples), "--batch", "64", "--seed", str(number)),
    ]


def cpu(one: rig.Run) -> float:
    """CPU of all processes for an image, in us."""
    begin, end = one.marks["start"], one.marks["stop"]
    return 1e6 * float(end["cpu"] - begin["cpu"]) / float(end["samples"])


def commit(checkout: Path) -> str:
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=checkout, capture_output=True, text=True, check=True)
    return said.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.before", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs")
    parser.add_argument("--other", type=Path, required=True, help="a checkout of an older commit, built")
    parser.add_argument("--out", type=Path, default=rig.RESULTS / "before.json")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--samples", type=int, default=12000, help="measured images a run")
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
    tree = pictures.build(args.data, args.samples, 64)
    checkouts = dict(zip(NAMES, (rig.ROOT, args.other.resolve()), strict=True))
    runs: list[dict[str, Any]] = []

    def both(output: str, number: int) -> tuple[dict[str, float], float]:
        found: dict[str, float] = {}
        most = 0.0
        for name in NAMES if number % 2 else NAMES[::-1]:
            tree.warm()
            one = rig.run(command(checkouts[name], tree.root, output, number, args), cpus, name)
            found[name], most = cpu(one), max(most, one.disturbed)
            runs.append({"output": output, "checkout": name, "cpu": found[name], "disturbed": one.disturbed})
        rig.say(
            f"round {number + 1} {output:8} {found['this'] / found['other']:.4f}  {found}  others {100 * most:.1f} %"
        )
        return found | {"disturbed": most}, most

    gates, figures, disturbed = [], {}, []
    for output in args.rows:
        found = rig.rounds(args.repeats, lambda number, output=output: both(output, number))  # type: ignore[misc]
        ratio = rig.middle(one["this"] / one["other"] for one in found)
        disturbed += [one["disturbed"] for one in found]
        gates.append(rig.Gate(f"{output}: CPU an image over the other checkout's", ratio, 1.01, "low", "x"))
        figures[f"{output}-cpu"] = ratio
    return rig.finish(args.out, document | {"runs": runs}, gates, [], figures, disturbed)


if __name__ == "__main__":
    raise SystemExit(main())

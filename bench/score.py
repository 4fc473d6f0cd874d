"""The doctor's score as a result: python -m bench.score [--seeds N].

Runs build/score (harness/score: jobs of which it is known what is wrong) and puts machine, commit, what others
took of the processors, aims and figures into what it wrote. All processors are used, and none may be busy otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path

from bench import meter, rig

# name in "median", what it is, the aim, and on which side of it
AIMS = (
    ("right", "verdicts right of 44", 42, "high"),
    ("alarms", "healthy runs called ill, of 11", 0, "low"),
    ("near", "predictions within 25 %, of 44", 32, "high"),
    ("near_above_3x", "of these, gains above 3x", 10, "high"),
    ("found", "planted mistakes found, of 18", 18, "high"),
    ("loud", "healthy runs in which mistakes were found", 0, "low"),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.score", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=rig.RESULTS / "doctor-score.json")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1, help="the first of them (default: %(default)s)")
    parser.add_argument(
        "--keep", type=Path, default=rig.ROOT / "build" / "doctor-score", help="for the doctor's answers"
    )
    args = parser.parse_args()
    rig.may_write(args.out)
    meter.become_subreaper()
    cpus = sorted(os.sched_getaffinity(0))
    machine = rig.machine(cpus)
    raw = rig.ROOT / "build" / "doctor-score.raw.json"
    raw.parent.mkdir(exist_ok=True)
    raw.unlink(missing_ok=True)
    others = meter.Disturbance(cpus, lambda: meter.descendants(os.getpid()))
    command = [rig.ROOT / "build" / "score", "run", "--seeds", str(args.seeds), "--seed", str(args.seed)]
    subprocess.run([*command, "--keep", args.keep, "--out", raw], cwd=rig.ROOT, check=False)
    if not raw.exists():
        raise SystemExit("the score ended without a result")
    found = json.loads(raw.read_text())
    median = found["median"]
    gates = [rig.Gate(what, median[name], aim, better) for name, what, aim, better in AIMS]
    document = {"question": "stoker doctor on jobs of which it is known what is wrong", "machine": machine, **found}
    figures = {name: float(value) for name, value in median.items()}
    doubts = [f"{median[name]} scenarios {name}" for name in ("void", "failed") if median[name]]
    return rig.finish(args.out, document, gates, doubts, figures, [sum(others.shares())])


if __name__ == "__main__":
    raise SystemExit(main())

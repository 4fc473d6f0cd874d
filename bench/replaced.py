"""How often a JPEG that replaced another one, in a file of the same size and version, is decoded wrong by its entry
points, and nobody notices: python -m bench.replaced --data FOLDER.

internal/stage/entries/replaced_test.go makes the pairs: of unrelated photographs of one encoder, size and quality, and
of one photograph edited below its first rows. Counts are not rates, so it does not matter what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from bench import rig


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replaced", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=rig.ROOT / "bench" / "results" / "replaced.json")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="of each family")
    args = parser.parse_args()
    rig.may_write(args.out)
    machine = rig.machine(rig.first_cpus(2))
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        env = {
            **os.environ,
            "STOKER_REPLACED": str(args.pairs),
            "STOKER_REPLACED_OUT": str(counts),
            "STOKER_TEST_PHOTOS": str(args.data.resolve()),
        }
        test = ["go", "test", "-count=1", "-timeout", "6h", f"-tags={rig.go_tags()}", "-run", "^TestReplacedPictures$"]
        done = subprocess.run([*test, "./internal/stage/entries"], cwd=rig.ROOT, env=env, check=False)
        if not counts.exists():
            raise SystemExit(f"the test ended with status {done.returncode}, without counts")
        families = json.loads(counts.read_text())
    figures: dict[str, float] = {}
    gates = []
    for family, found in sorted(families.items()):
        figures.update({f"{family} {what}": value for what, value in found.items()})
        gates.append(rig.Gate(f"{family}, wrong pictures", found["wrong pictures"], 0, "low"))
    document = {
        "question": "replaced JPEGs that are decoded wrong by the entry points of the first one",
        "machine": machine,
        "settings": rig.settings(args),
        "counts": families,
    }
    return rig.finish(args.out, document, gates, [], figures, [])


if __name__ == "__main__":
    raise SystemExit(main())

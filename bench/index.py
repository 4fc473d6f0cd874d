"""Opening the index of a folder of 1.28 million samples in 1,000 classes: python -m bench.index --data FOLDER.

The folder is made once, of hard links to the pictures of DATA, in the cache folder of the benchmarks (about a minute).
A first process builds the index; then fresh processes open it: engine started, index mapped, its staleness judged,
len() known. Anonymous memory is the engine's total and the client's increase. torchvision's own scan is shown for
comparison.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import meter, pictures, rig

OPEN_S, ANONYMOUS_MIB = 0.5, 64.0


def build(data: Path, samples: int, classes: int) -> Path:
    """One folder a class, as many links in each."""
    found = [path for _, path in pictures.find(data.resolve())]
    root = pictures.cache_dir() / f"index-{samples}-{classes}"
    if (root / "complete").exists():
        return root / "train"
    rig.say(f"making {samples} links in {classes} folders ...")
    shutil.rmtree(root, ignore_errors=True)
    (root / "origins").mkdir(parents=True)
    origins = [root / "origins" / f"{i:05d}.jpg" for i in range(min(len(found), 1000))]
    for path, origin in zip(found, origins, strict=False):
        shutil.copyfile(path, origin)
    for number in range(classes):
        folder = root / "train" / f"n{number:08d}"
        folder.mkdir(parents=True)
        for i in range(samples // classes):
            os.link(origins[(number + i) % len(origins)], folder / f"n{number:08d}_{i}.JPEG")
    (root / "complete").touch()
    return root / "train"


def measure(root: Path, cpus: Sequence[int], torchvision: bool = False) -> dict[str, Any]:
    command = [rig.python_of(".venv"), "-m", "bench.peers.open_index", "--data", root]
    run = rig.run([*command, *(["--torchvision"] if torchvision else [])], cpus, "open-index")
    before, after = run.marks["before"], run.marks["stop"]
    return {
        "peer": "torchvision" if torchvision else "stoker",
        "seconds": after["seconds"],
        "samples": after["samples"],
        "classes": after["classes"],
        "anonymous": after["memory"]["anonymous"] - before["memory"]["anonymous"],
        "pss": after["memory"]["pss"] - before["memory"]["pss"],
        "disturbed": run.disturbed,
        "left_behind": run.left_behind,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.index", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=rig.ROOT / "bench" / "results" / "index.json")
    parser.add_argument("--samples", type=int, default=1_280_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-torchvision", action="store_true")
    args = parser.parse_args()
    rig.may_write(args.out)
    meter.become_subreaper()
    cpus = rig.first_cpus(2)
    machine = rig.machine(cpus)
    root = build(args.data, args.samples, args.classes)
    built = measure(root, cpus)
    runs = [measure(root, cpus) for _ in range(args.repeats)]
    rows = [_row("stoker, first time (or index there)", [built]), _row("stoker, index there", runs)]
    if not args.no_torchvision:
        runs.append(measure(root, cpus, torchvision=True))
        rows.append(_row("torchvision ImageFolder", runs[-1:]))
    print(rig.table(["", "samples", "classes", "seconds", "anonymous MiB", "PSS MiB"], rows))
    wrong = [one for one in [built, *runs] if (one["samples"], one["classes"]) != (args.samples, args.classes)]
    ours = [one for one in runs if one["peer"] == "stoker"]
    gates = [
        rig.Gate("opening the index", rig.middle(one["seconds"] for one in ours), OPEN_S, "low", " s"),
        rig.Gate("anonymous memory", rig.middle(one["anonymous"] for one in ours), ANONYMOUS_MIB, "low", " MiB"),
    ]
    document = {"question": "opening an index", "machine": machine, "first": built, "runs": runs}
    doubts = [f"{len(wrong)} runs saw another number of samples or classes than there are"] if wrong else []
    figures = {"opening s": gates[0].value, "anonymous MiB": gates[1].value}
    return rig.finish(args.out, document, gates, doubts, figures, (one["disturbed"] for one in runs))


def _row(name: str, runs: Sequence[dict[str, Any]]) -> list[str]:
    middle = {key: rig.middle(one[key] for one in runs) for key in ("seconds", "anonymous", "pss")}
    figures = [f"{middle['seconds']:.3f}", f"{middle['anonymous']:.1f}", f"{middle['pss']:.1f}"]
    return [name, str(runs[0]["samples"]), str(runs[0]["classes"]), *figures]


if __name__ == "__main__":
    raise SystemExit(main())

"""First batch of a cold engine whose index is there, and memory in steady state: python -m bench.startup --data F.

Every measurement is a fresh process. The clock of the figure starts when ImageFolder is made, after `import stoker`,
and ends when the first batch has been read; imports and the start of the interpreter are reported separately. The index
is built by a first process that does not count; the pictures are in the page cache.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench import meter, pictures, rig

FIRST_S, PSS_MIB = 0.3, 200.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=rig.ROOT / "bench" / "results" / "startup.json")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--samples", type=int, default=20000, help="samples in the dataset, at least")
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    rig.may_write(args.out)
    meter.become_subreaper()
    cpus = rig.first_cpus(2)
    machine = rig.machine(cpus)
    tree = pictures.build(args.data, args.samples, args.batch)
    tree.warm()
    command = [rig.python_of(".venv"), "-m", "bench.peers.first_batch", "--data", tree.root, "--batch", str(args.batch)]
    runs: list[dict[str, Any]] = []
    for number in range(args.repeats + 1):
        run = rig.run(command, cpus, "first-batch")
        mark = run.marks["start"]
        one = {key: mark[key] for key in ("import_numpy", "import_stoker", "make_loader", "first_batch")}
        one["from_spawn"] = mark["end"] - run.spawned
        one.update(
            run.memory,
            disturbed=run.disturbed,
            cpu_seconds=run.cpu_cgroup,
            left_behind=run.left_behind,
            counts=number > 0,
        )
        runs.append(one)
        rig.say(f"{'builds the index' if not number else f'process {number}':16}  {one['first_batch']:.3f} s")
    counted = [one for one in runs if one["counts"]]
    print(f"\n{tree.samples} samples, batch {args.batch}, numpy output; medians of {len(counted)} fresh processes")
    for key, text in (
        ("first_batch", "ImageFolder to first batch"),
        ("make_loader", "of it until the loader is made"),
        ("import_stoker", "import stoker"),
        ("import_numpy", "import numpy"),
        ("from_spawn", "start of the interpreter to first batch"),
    ):
        print(f"  {rig.middle(one[key] for one in counted):8.3f} s    {text}")
    memory = rig.middle(one["pss"] for one in counted)
    print(f"  {memory:8.1f} MiB  engine and client together (PSS), {int(counted[0]['processes'])} processes")
    first = rig.middle(one["first_batch"] for one in counted)
    gates = [
        rig.Gate("first batch, cold engine, index present", first, FIRST_S, "low", " s"),
        rig.Gate("memory of engine and client (PSS)", memory, PSS_MIB, "low", " MiB"),
    ]
    document = {"question": "first batch and memory", "machine": machine, "samples": tree.samples, "runs": runs}
    figures = {"first batch s": first, "PSS MiB": memory}
    return rig.finish(args.out, document, gates, [], figures, (one["disturbed"] for one in counted))


if __name__ == "__main__":
    raise SystemExit(main())

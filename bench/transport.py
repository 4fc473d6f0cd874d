"""Moving ready batches of 38.5 MB to the training loop: python -m bench.transport.

Each batch is copied whole from ready memory into the place where the client reads it, and checked there, one touch a
cache line (bench.moving). stoker and DataLoader take turns; what counts is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import meter, rig

GIB = 256 * 224 * 224 * 3 / 2**30
PEERS = {
    "stoker": ("moving_stoker",),
    "DataLoader, samples": ("moving_torch",),
    "DataLoader, whole": ("moving_torch", "--whole"),
}
RATE, CLIENT_MS = 5.0, 0.5


def measure(name: str, batches: int, cpus: Sequence[int], retries: int) -> dict[str, Any]:
    module, *extra = PEERS[name]
    command = [rig.python_of(".venv"), "-m", f"bench.peers.{module}", *extra, "--batches", str(batches)]
    run = rig.quietest(command, cpus, module, retries)
    start, rate, stop = (run.marks[mark] for mark in ("start", "rate", "stop"))
    wall = rate["wall"] - start["wall"]
    return {
        "peer": name,
        "batches_per_second": batches / wall,
        "all_cpu_ms": 1e3 * (rate["cpu"] - start["cpu"]) / batches,
        "client_ms": stop["client_ms"],
        "reading_ms": stop["reading_ms"],
        "beyond_ms": stop["client_ms"] - stop["reading_ms"],
        "pss": run.memory["pss"],
        "disturbed": run.disturbed,
        "left_behind": run.left_behind,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.transport", description=__doc__)
    parser.add_argument("--out", type=Path, default=rig.ROOT / "bench" / "results" / "transport.json")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--retries", type=int, default=2, help="of a run in which others used the processors")
    args = parser.parse_args()
    rig.may_write(args.out)
    meter.become_subreaper()
    cpus = rig.first_cpus(2)
    machine = rig.machine(cpus)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in PEERS}
    for number in range(args.repeats):
        for name in PEERS:
            one = measure(name, args.batches * (4 if name == "stoker" else 1), cpus, args.retries)
            runs[name].append(one)
            rig.say(
                f"round {number + 1}  {name:20} {one['batches_per_second']:7.1f} batches/s  "
                f"beyond reading {one['beyond_ms']:6.2f} ms  others {100 * one['disturbed']:.1f} %"
            )
    rows = []
    for name, own in runs.items():
        rate = rig.middle(one["batches_per_second"] for one in own)
        ours = zip(runs["stoker"], own, strict=True)
        ratio = rig.middle(a["batches_per_second"] / b["batches_per_second"] for a, b in ours)
        figures = [
            rig.middle(one[key] for one in own) for key in ("all_cpu_ms", "client_ms", "reading_ms", "beyond_ms")
        ]
        pss = rig.middle(one["pss"] for one in own)
        rows.append(
            [name, f"{rate:.1f}", f"{rate * GIB:.2f}", *(f"{f:.2f}" for f in figures), f"{pss:.0f}", f"{ratio:.2f}"]
        )
    head = ["peer", "batches/s", "GiB/s", "all CPU ms", "client ms", "of it reading", "beyond ms", "PSS MiB", "x rate"]
    print(rig.table(head, rows))
    best = min(float(row[-1]) for row in rows[1:])
    beyond = rig.middle(one["beyond_ms"] for one in runs["stoker"])
    gates = [
        rig.Gate("rate over the better DataLoader", best, RATE, "high", "x"),
        rig.Gate("client CPU beyond the reading, a batch", beyond, CLIENT_MS, "low", " ms"),
    ]
    document = {"question": "moving ready batches of 38.5 MB", "machine": machine, "runs": runs}
    figures = {"rate over the better DataLoader": best, "client ms beyond the reading": beyond}
    return rig.finish(
        args.out, document, gates, [], figures, (one["disturbed"] for own in runs.values() for one in own)
    )


if __name__ == "__main__":
    raise SystemExit(main())

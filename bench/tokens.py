"""Random windows of tokens, 16 x 2,048, uint16 -> int64: python -m bench.tokens.

x and y are torch tensors; a file of 200 MB, made here, in the page cache. What counts is CPU time over all processes, a
batch: peers take turns, the order moves by one each round, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from bench import meter, rig

TOKENS = 16 * 2048  # a batch
PEERS: dict[str, tuple[str, ...]] = {
    "stoker": ("windows_stoker",),
    "nanoGPT get_batch": ("windows_nanogpt",),
    "DataLoader, 0 workers": ("windows_torch", "--workers", "0"),
    "DataLoader, 2 workers": ("windows_torch", "--workers", "2"),
    "DataLoader, __getitems__, 0 workers": ("windows_torch", "--workers", "0", "--batched"),
    "DataLoader, __getitems__, 2 workers": ("windows_torch", "--workers", "2", "--batched"),
}
LIMITS = {"nanoGPT get_batch": 2.5, "DataLoader, 0 workers": 1.2, "DataLoader, 2 workers": 15.0}
SLOW = 8  # by so much fewer batches where workers send them one by one


def make(path: Path) -> None:
    """The file of tokens, by a Python that has numpy."""
    done = rig.run([rig.python_of(".venv"), "-c", _MAKE, str(path)], rig.first_cpus(2), "make")
    assert done.marks


_MAKE = "import sys; from bench import windows; windows.write(sys.argv[1]); windows.emit('made')"


def measure(name: str, data: Path, batches: int, retries: int) -> dict[str, Any]:
    module, *extra = PEERS[name]
    batches //= SLOW if "2 workers" in name else 1
    command = [rig.python_of(".venv"), "-m", f"bench.peers.{module}", *extra, "--data", data, "--batches", str(batches)]
    one = rig.quietest(command, rig.first_cpus(2), module, retries)
    start, plain, stop = (one.marks[mark] for mark in ("start", "plain", "stop"))
    return {
        "peer": name,
        "cpu_us": 1e6 * (plain["cpu"] - start["cpu"]) / batches,
        "read_us": 1e6 * (stop["cpu"] - plain["cpu"]) / batches,
        "wall_us": 1e6 * (plain["wall"] - start["wall"]) / batches,
        "batches": batches,
        "pss": one.memory["pss"],
        "disturbed": one.disturbed,
        "left_behind": one.left_behind,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tokens", description=__doc__)
    parser.add_argument("--out", type=Path, default=rig.ROOT / "bench" / "results" / "tokens.json")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batches", type=int, default=8000)
    parser.add_argument("--retries", type=int, default=2, help="of a run in which others used the processors")
    args = parser.parse_args()
    rig.may_write(args.out)
    machine = rig.machine(rig.first_cpus(2))
    meter.become_subreaper()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "train.bin"
        make(data)

        def turn(number: int) -> tuple[dict[str, dict[str, Any]], float]:
            names = list(PEERS)
            found = {}
            for name in names[number % len(names) :] + names[: number % len(names)]:
                one = found[name] = measure(name, data, args.batches, args.retries)
                rig.say(
                    f"round {number + 1}  {name:36} {one['cpu_us']:7.1f} us CPU a batch, {one['read_us']:7.1f} when it "
                    f"is read  others {100 * one['disturbed']:.1f} %"
                )
            return found, max(one["disturbed"] for one in found.values())

        kept = rig.rounds(args.repeats, turn)
    runs = {name: [found[name] for found in kept] for name in PEERS}
    rows, gates = [], []
    found: dict[str, float] = {}
    for name, own in runs.items():
        pairs = list(zip(runs["stoker"], own, strict=True))
        ratio, read = (rig.middle(b[key] / a[key] for a, b in pairs) for key in ("cpu_us", "read_us"))
        cost, reading, wall, pss = (
            rig.middle(one[key] for one in own) for key in ("cpu_us", "read_us", "wall_us", "pss")
        )
        figures = [f"{cost:.1f}", f"{TOKENS / cost:.0f}", f"{wall:.1f}", f"{reading:.1f}", f"{pss:.0f}"]
        rows.append([name, *figures, f"{ratio:.2f}", f"{read:.2f}"])
        if name in LIMITS:
            gates.append(rig.Gate(f"tokens per CPU-second over {name}", ratio, LIMITS[name], "high", "x"))
        found[f"{name}, us"], found[f"{name}, us read"] = cost, reading
        found[f"over {name}"], found[f"over {name}, read"] = ratio, read
    head = ["peer", "CPU us", "M tok/CPU-s", "wall us", "CPU us, read", "PSS MiB", "x", "x, read"]
    print(rig.table(head, rows))
    document = {
        "question": "random windows of tokens, 16 x 2,048, uint16 -> int64, CPU of all processes",
        "machine": machine,
        "runs": runs,
    }
    return rig.finish(args.out, document, gates, [], found, (one["disturbed"] for own in runs.values() for one in own))


if __name__ == "__main__":
    raise SystemExit(main())

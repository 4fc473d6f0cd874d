"""The figures of the guides: what packing, caching and chunks of HDF5 gain: python -m bench.guides --data FOLDER.

No peers: stoker against itself, medians of --repeats runs, CPU of all processes. packing is what `stoker pack
--dry-run` says of decoding; cache is an epoch of the photographs without a cache, the first with one, and a later one;
chunks is a thousand rows of a file with chunks of 32 rows, by how many of the unpacked chunks are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import meter, pictures, rig

PACKINGS = {
    "index": ("--jpeg", "index"),
    "256": ("--resize", "256", "--quality", "90"),
    "256 index": ("--resize", "256", "--quality", "90", "--jpeg", "index"),
    "512": ("--resize", "512", "--quality", "90"),
    "decoded 256": ("--decode", "--resize", "256", "--crop", "256"),
}
PEER = "bench.peers.guide"


class Guides:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.cpus = rig.first_cpus(2)
        self.figures: dict[str, float] = {}
        self.disturbed: list[float] = []
        self.runs: dict[str, Any] = {}
        self.tree = pictures.build(args.data, 1, 1)

    def packing(self) -> None:
        for name, flags in PACKINGS.items():
            command = ["taskset", "-c", ",".join(map(str, self.cpus)), str(rig.ROOT / "build" / "stoker"), "pack"]
            command += [str(self.tree.root), str(rig.ROOT / "build" / "never-written"), *flags, "--dry-run", "--json"]
            runs = []
            for _ in range(self.args.repeats):
                others = meter.Disturbance(self.cpus, lambda: meter.descendants(os.getpid()))
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
                self.disturbed.append(sum(others.shares()))
                runs.append(json.loads(done.stdout))
            self.runs[f"packing {name}"] = runs
            before, after = (rig.middle(one[f"decode_us_{key}"] for one in runs) for key in ("source", "packed"))
            self.figures[f"packing {name}, before us"] = before
            self.figures[f"packing {name}, packed us"] = after
            self.figures[f"packing {name}, x"] = rig.middle(
                one["decode_us_source"] / one["decode_us_packed"] for one in runs
            )
            self.figures[f"packing {name}, bytes %"] = 100 * runs[0]["bytes"] / runs[0]["source_bytes"]

    def peer(self, name: str, *options: str) -> None:
        """Each mark of the peer is a figure: its CPU a sample, in its own unit."""
        found: dict[str, list[float]] = {}
        for _ in range(self.args.repeats):
            command = [rig.python_of(".venv"), "-m", PEER, *options]
            one = rig.quietest(command, self.cpus, "guide", self.args.retries)
            self.disturbed.append(one.disturbed)
            for key, value in one.marks["stop"]["figures"].items():
                found.setdefault(key, []).append(value)
        self.runs[name] = found
        for key, values in found.items():
            self.figures[f"{name}, {key}"] = rig.middle(values)
            rig.say(f"{name}, {key}: {rig.middle(values):.3g}")

    def cache(self) -> None:
        for steps in ("resize-crop", "rrc", "resize-rrc"):
            self.peer(f"cache {steps}", "cache", "--data", str(self.tree.root), "--steps", steps)

    def chunks(self) -> None:
        path = self.tree.root.parent / "chunks.h5"
        writer = rig.python_of(".venv-bench/shards")
        subprocess.run([writer, "-m", "bench.peers.guide", "write", "--data", path], cwd=rig.ROOT, check=True)
        for kind in ("full-all", "full-third", "block", "contiguous"):
            self.peer(f"chunks {kind}", "chunks", "--data", str(path), "--steps", kind)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.guides", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs, with or without class folders")
    parser.add_argument("--out", type=Path, default=rig.RESULTS / "guides.json")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--retries", type=int, default=2)
    args = parser.parse_args()
    rig.may_write(args.out)
    meter.become_subreaper()
    guides = Guides(args)
    machine = rig.machine(guides.cpus)
    questions: tuple[Callable[[], None], ...] = (guides.packing, guides.cache, guides.chunks)
    for ask in questions:
        ask()
    document = {"question": "what packing, caching and chunks gain", "machine": machine, "runs": guides.runs}
    return rig.finish(args.out, document, [], [], guides.figures, guides.disturbed)


if __name__ == "__main__":
    raise SystemExit(main())

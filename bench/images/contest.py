"""The decoders side by side: their processes, their turns, and what came of them."""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import meter, rig, serving

STREAMS = ("idat", "tiff strips", "hdf5 chunks")
PNG = ("png rgb", "png grey", "png by fpng")
WEBP = ("webp", "webp lossless")
TIFF = ("tiff deflate", "tiff lzw", "tiff raw")
GROUPS = (*PNG, *WEBP, *TIFF, *STREAMS)
STOKER = "stoker"
NATIVE = (STOKER, "compress/flate", "klauspost")
VENV = ".venv-bench/images"

# What each decodes. A peer that is named here and cannot be run is a doubt about the result.
PEERS: dict[str, tuple[str, ...]] = {
    STOKER: GROUPS,
    "opencv": (*PNG, *WEBP, *TIFF),
    "torchvision": (*PNG, *WEBP),
    "pillow": (*PNG, *WEBP, *TIFF),
    "imagecodecs": (*PNG, *WEBP, *TIFF),
    "spng": PNG,
    "wuffs": PNG,
    "fpng": ("png by fpng",),
    "compress/flate": STREAMS,
    "klauspost": STREAMS,
    "zlib": STREAMS,
    "zlib-ng": STREAMS,
    "libdeflate": STREAMS,
    "isal": STREAMS,
}
REFERENCE = {**dict.fromkeys((*PNG, *WEBP, *TIFF), "pillow"), **dict.fromkeys(STREAMS, "zlib")}


class Peer(serving.Server):
    """One decoder: its process, and what it said."""

    def start(self, stack: contextlib.ExitStack, native: Path, plan: Path, cpu: int) -> None:
        venv = ".venv" if self.name in ("torchvision", "pillow") else VENV
        if self.name in NATIVE:
            self.open(stack, [native, self.name, plan], [cpu])
        else:
            self.open(stack, ["-m", "bench.images.serve", self.name, plan], [cpu], venv)


@dataclass
class Cell:
    """One decoder on one group. cost: microseconds of CPU an item, a value a round. same: the share of its results that
    are the reference's bytes."""

    cost: list[float] = field(default_factory=list)
    same: float = float("nan")


class Contest:
    def __init__(self, args: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.args = args
        self.cpu = int(args.cpu) if args.cpu else rig.first_cpus(1)[0]
        native = serving.build("images")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stoker-bench-images-")))
        self.groups = [group for group in GROUPS if not args.groups or group in args.groups.split(",")]
        self.plan = make(args, folder)
        self.cells: dict[tuple[str, str], Cell] = {}
        self.disturbed: list[float] = []
        wanted = [
            name for name in PEERS if not args.peers or name in (STOKER, *REFERENCE.values(), *args.peers.split(","))
        ]
        self.peers = [Peer(name) for name in wanted]
        for peer in self.peers:
            peer.start(stack, native, folder / "plan.json", self.cpu)
            rig.say(f"{peer.name:15} {peer.problem or ' '.join(f'{k} {v}' for k, v in peer.versions.items())}")

    def of(self, group: str) -> list[Peer]:
        return [peer for peer in self.peers if not peer.problem and group in PEERS[peer.name]]

    def warm(self) -> None:
        """Everybody decodes everything once, and the bytes are compared."""
        for group in self.groups:
            sums = {peer.name: peer.ask(Group=group, Check=True).get("sums", []) for peer in self.of(group)}
            right = sums.get(REFERENCE[group], [])
            for name, own in sums.items():
                cell = self.cells[group, name] = Cell()
                if own and right:
                    cell.same = sum(a == b for a, b in zip(own, right, strict=True)) / len(right)

    def rounds(self) -> None:
        """As many quiet rounds as were asked for, for every cell."""
        for costs, disturbed in rig.rounds(self.args.repeats, self._round):
            self.disturbed.append(disturbed)
            for key, cost in costs.items():
                self.cells[key].cost.append(cost)

    def _round(self, number: int) -> tuple[tuple[dict[tuple[str, str], float], float], float]:
        """Each cell's microseconds an item, and what others took."""
        costs = {}
        others = meter.Disturbance([self.cpu], lambda: (pid for peer in self.peers for pid in peer.pids()))
        for group in self.groups:
            ready = self.of(group)
            turn = number % len(ready)
            for peer in ready[turn:] + ready[:turn]:
                answer = peer.ask(Group=group, Check=False)
                if peer.problem:
                    rig.say(f"{peer.name}: {group}: {peer.problem}")
                    continue
                costs[group, peer.name] = 1e6 * answer["cpu"] / len(self.plan[group]["Items"])
        disturbed = sum(others.shares())
        rig.say(f"round {number + 1}: others had {100 * disturbed:.1f} % of the processor")
        return (costs, disturbed), disturbed

    def ratio(self, group: str, other: str) -> float:
        """How many times as fast stoker is as another."""
        theirs, own = self.cells[group, other].cost, self.cells[group, STOKER].cost
        return rig.middle(a / b for a, b in zip(theirs, own, strict=True))

    def megabytes(self, group: str, peer: str) -> float:
        """Unpacked bytes a second of streams, in units of 1e6."""
        sizes = [item["Size"] for item in self.plan[group]["Items"]]
        return sum(sizes) / len(sizes) / rig.middle(self.cells[group, peer].cost)


def make(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    if not rig.python_of(VENV).exists():
        raise SystemExit(f"no {VENV}; python3 bench/setup.py images makes it")
    found = sorted(str(path) for path in args.data.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    random.Random(args.seed).shuffle(found)
    rig.say(f"writing {min(args.pictures, len(found))} photographs as PNG, WebP and TIFF")
    names = [str(Path(path).resolve()) for path in found[: 2 * args.pictures]]
    command = [rig.python_of(VENV), "-m", "bench.images.make", folder, str(args.pictures), *names]
    subprocess.run(command, cwd=rig.ROOT, check=True)
    plan: dict[str, Any] = json.loads((folder / "plan.json").read_text())
    return plan

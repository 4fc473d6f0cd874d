"""The decoders side by side: their processes, their turns, and what came of them."""

from __future__ import annotations

import argparse
import contextlib
import math
import operator
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import meter, rig, serving
from bench.jpeg import plan

TURBO = "libjpeg-turbo"
NEWER = "libjpeg-turbo-3"  # the one in Pillow's wheel
TARGETS = ("avx512", "avx2", "base")
VENVS = {
    "torchvision": ".venv",
    "pillow": ".venv",
    "opencv": ".venv-bench/jpeg",
    "simplejpeg": ".venv-bench/jpeg",
    "tensorflow": ".venv-bench/tf",
    "dali": ".venv-bench/dali",
}
STOKER = tuple(f"stoker-{target}" for target in TARGETS)
KNOWN = "stoker-known"  # the best target, with all entry points
PEERS = (*STOKER, KNOWN, TURBO, NEWER, *VENVS)
ALL = "all"


def in_pillow() -> tuple[str, str]:
    """The path and the version of the libjpeg-turbo in the wheel of Pillow that .venv has."""
    ask = """
import pathlib, PIL
from PIL import features
found = pathlib.Path(PIL.__file__).resolve().parent.parent.glob("pillow.libs/libjpeg-*.so.62*")
print(next(iter(found), ""), features.version("libjpeg_turbo"))
"""
    answer = subprocess.run([rig.python_of(".venv"), "-c", ask], capture_output=True, text=True, check=True)
    path, _, version = answer.stdout.strip().rpartition(" ")
    return path, version


class Peer:
    """One decoder: its processes, one a processor, and what they said."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem = ""
        self.versions: dict[str, str] = {}
        self._servers: list[serving.Server] = []

    def pids(self) -> list[int]:
        return [pid for server in self._servers for pid in server.pids()]

    def command(self, native: Path, path: Path) -> list[str | Path]:
        if self.name == TURBO:
            return [native, TURBO, path]
        if self.name == NEWER:
            return [native, "libjpeg", in_pillow()[0], path]
        if self.name == KNOWN:
            return [native, "known", path]
        family, _, target = self.name.partition("-")
        if family == "stoker":
            return ["env", f"STOKER_KERNEL={target}", native, "kernel", path]
        return ["-m", "bench.jpeg.serve", self.name, path]

    def open(self, stack: contextlib.ExitStack, native: Path, path: Path, cpus: Sequence[int]) -> None:
        for cpu in cpus:
            server = serving.Server(f"{self.name}-{cpu}")
            self._servers.append(server)
            server.open(stack, self.command(native, path), [cpu], VENVS.get(self.name, ""))
        self._look()
        self.versions = self._servers[0].versions
        if self.name == NEWER:
            self.versions["libjpeg-turbo"] = in_pillow()[1]
        target = self.versions.get("target")
        if target and self.name in STOKER and not self.name.endswith(target):
            self.problem = f"this processor or build has only {target}"

    def ask(self, **request: Any) -> list[dict[str, Any]]:
        """All processes at once; the answers when all have theirs. What goes wrong is the end of this peer."""
        for server in self._servers:
            server.say(**request)
        answers = [server.hear() for server in self._servers]
        self._look()
        return answers

    def _look(self) -> None:
        self.problem = self.problem or next((one.problem for one in self._servers if one.problem), "")


@dataclass
class Cell:
    """One decoder on one group. cost: microseconds of CPU a picture, a value a round. same: the share of its results
    that are the bytes of libjpeg-turbo's whole picture, cropped."""

    cost: list[float] = field(default_factory=list)
    same: float = math.nan


class Contest:
    def __init__(self, args: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.args = args
        self.cpus = [int(c) for c in args.cpus.split(",")] if args.cpus else rig.first_cpus(2)
        native = serving.build("jpeg")
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stoker-bench-jpeg-")))
        self.plan = plan.build(args.data, folder, native, args.seed, args.pictures)
        named = args.groups.split(",") if args.groups else list(self.plan.groups)
        self.groups = [g for g in self.plan.groups if g in named or (ALL in named and g in self.plan.found)]
        if not self.groups:
            raise SystemExit(f"no such group; there are {ALL}, {', '.join(self.plan.groups)}")
        self.cells: dict[tuple[str, str, str], Cell] = {}
        self.disturbed: list[float] = []
        self.peers = [Peer(name) for name in PEERS if name == TURBO or not args.peers or name in args.peers.split(",")]
        for peer in self.peers:
            peer.open(stack, native, self.plan.path, self.cpus)
            rig.say(f"{peer.name:15} {peer.problem or ' '.join(f'{k} {v}' for k, v in peer.versions.items())}")

    @property
    def ready(self) -> list[Peer]:
        return [peer for peer in self.peers if not peer.problem]

    def warm(self) -> None:
        """Everybody decodes everything once, and the pixels are compared."""
        turbo = next(peer for peer in self.peers if peer.name == TURBO)
        for group in self.groups:
            for mode in self.args.modes.split(","):
                wanted = turbo.ask(group=group, mode="crop" if mode == "region" else mode, check=True)[0]
                if turbo.problem:
                    raise SystemExit(f"{TURBO}: {turbo.problem}")
                for peer in self.ready:
                    cell = self.cells[mode, group, peer.name] = Cell()
                    answers = peer.ask(group=group, mode=mode, check=True)
                    if peer.problem:
                        rig.say(f"{peer.name}: {group}, {mode}: {peer.problem}")
                        continue
                    pairs = list(zip(answers[0]["sums"], wanted["sums"], strict=True))
                    cell.same = sum(a == b for a, b in pairs) / len(pairs)

    def rounds(self, wanted: int) -> None:
        """So many quiet rounds, for every cell."""
        for costs, disturbed in rig.rounds(wanted, self.round):
            self.disturbed.append(disturbed)
            for key, cost in costs.items():
                self.cells[key].cost.append(cost)

    def round(self, number: int) -> tuple[tuple[dict[tuple[str, str, str], float], float], float]:
        """Each cell's microseconds a picture, and what others took."""
        costs = {}
        others = meter.Disturbance(self.cpus, lambda: (pid for peer in self.peers for pid in peer.pids()))
        for group in self.groups:
            for mode in self.args.modes.split(","):
                ready = self.ready
                turn = number % len(ready)
                for peer in ready[turn:] + ready[:turn]:
                    answers = peer.ask(group=group, mode=mode, check=False)
                    if peer.problem:
                        rig.say(f"{peer.name}: {group}, {mode}: {peer.problem}")
                        continue
                    cpu = sum(one["cpu"] for one in answers)
                    costs[mode, group, peer.name] = 1e6 * cpu / sum(one["pictures"] for one in answers)
        disturbed = sum(others.shares())
        rig.say(f"round {number + 1}: others had {100 * disturbed:.1f} % of the processors")
        return (costs, disturbed), disturbed

    def total(self) -> None:
        """What a picture of DATA costs, whatever its kind: its groups, each by its number of pictures."""
        kinds = self.plan.found
        if any(kind not in self.groups for kind in kinds):
            return
        shares = [len(self.plan.groups[kind]) / sum(len(self.plan.groups[k]) for k in kinds) for kind in kinds]
        for mode in self.args.modes.split(","):
            for peer in self.ready:
                cells = [self.cells[mode, kind, peer.name] for kind in kinds]
                rounds = zip(*(cell.cost for cell in cells), strict=True)
                self.cells[mode, ALL, peer.name] = Cell(
                    [sum(map(operator.mul, shares, costs)) for costs in rounds],
                    sum(map(operator.mul, shares, (cell.same for cell in cells))),
                )

    def ratio(self, mode: str, group: str, peer: str, over: str = TURBO) -> float:
        """How many times as fast as libjpeg-turbo."""
        theirs, own = self.cells[mode, group, over].cost, self.cells[mode, group, peer].cost
        return rig.middle(a / b for a, b in zip(theirs, own, strict=True))

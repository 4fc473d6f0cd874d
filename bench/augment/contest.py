"""The operations side by side, peer by peer: their processes, their turns, and what came of them."""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import meter, pictures, rig, serving
from bench.augment.operations import OPERATIONS

STOKER = "stoker"
VENVS = {
    "torchvision": ".venv",
    "albumentations": ".venv-bench/own",
    "dali": ".venv-bench/dali",
    "kornia": ".venv-bench/kornia",
}
USUAL = (STOKER, *VENVS)
TARGETS = ("avx512", "avx2", "base", "go")  # of stoker's kernel; rows that are asked for
PEERS = (*USUAL, *(f"{STOKER}-{target}" for target in TARGETS))
LEAST = 1.0  # microseconds: what costs less counts as this much, since it cannot be told from nothing


class Peer(serving.Server):
    """missing: the operations that it does not have, and why. settings: of its library."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.missing: dict[str, str] = {}
        self.settings: dict[str, Any] = {}

    def start(self, stack: contextlib.ExitStack, native: Path, plan: Path, cpu: int) -> None:
        family, _, target = self.name.partition("-")
        if family == STOKER:
            kernel = ["env", f"STOKER_KERNEL={target}"] if target else []
            first = self.open(stack, [*kernel, native, plan], [cpu])
            if target not in ("", self.versions.get("target")):
                self.problem = self.problem or f"this processor or build has only {self.versions.get('target')}"
        else:
            first = self.open(stack, ["-m", "bench.augment.serve", self.name, plan], [cpu], VENVS[self.name])
        self.missing, self.settings = first.get("missing", {}), first.get("settings", {})


@dataclass
class Cell:
    """One peer on one operation. cost: microseconds of CPU that the operation adds to a picture, a value a round;
    without: those of a picture without it. changed: of the pictures, in the check."""

    cost: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    changed: int = 0
    shape: list[int] = field(default_factory=list)
    way: str = ""
    allocations: float = 0.0  # of stoker, a picture


class Contest:
    def __init__(self, args: argparse.Namespace, stack: contextlib.ExitStack) -> None:
        self.args = args
        self.cpu = int(args.cpu) if args.cpu else rig.first_cpus(1)[0]
        native = serving.build("augment")
        self.operations = [name for name in OPERATIONS if not args.operations or name in args.operations.split(",")]
        self.cells: dict[tuple[str, str], Cell] = {}
        self.failed: dict[tuple[str, str], str] = {}
        self.disturbed: list[float] = []
        wanted = args.peers.split(",") if args.peers else USUAL
        self.peers = [Peer(name) for name in PEERS if name in wanted or name == STOKER]
        plan = self._plan(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stoker-bench-augment-"))))
        for peer in self.peers:
            peer.start(stack, native, plan, self.cpu)
            rig.say(f"{peer.name:15} {peer.problem or ' '.join(f'{k} {v}' for k, v in peer.versions.items())}")

    def _plan(self, folder: Path) -> Path:
        """Photographs at random, and programs; see make.py."""
        found = [str(path) for _, path in pictures.find(self.args.data.resolve())]
        random.Random(self.args.seed).shuffle(found)
        command = [rig.python_of(".venv"), "-m", "bench.augment.make", folder, str(self.args.pictures)]
        path = f"{rig.ROOT / 'python' / 'src'}"
        subprocess.run(
            ["env", f"PYTHONPATH={path}", *command, *found[: 4 * self.args.pictures]], cwd=rig.ROOT, check=True
        )
        return folder / "plan.json"

    def missing(self, name: str, peer: Peer) -> str:
        """Why there is no figure of a peer for an operation; "" if there is one."""
        return peer.missing.get(name) or self.failed.get((name, peer.name)) or peer.problem

    def of(self, name: str) -> list[Peer]:
        return [peer for peer in self.peers if not self.missing(name, peer)]

    def warm(self) -> None:
        """Everybody does everything, and chooses its best way."""
        for name in self.operations:
            for peer in self.of(name):
                answer = peer.ask(op=name, mode="check")
                if self._trouble(name, peer, answer):
                    continue
                if answer["changed"] == 0:
                    self.failed[name, peer.name] = "it changed no picture"
                    continue
                self.cells[name, peer.name] = Cell(changed=answer["changed"], shape=answer["shape"], way=answer["way"])

    def _trouble(self, name: str, peer: Peer, answer: dict[str, Any]) -> bool:
        said = answer.get("failed") or peer.problem
        if said:
            self.failed[name, peer.name] = said
            rig.say(f"{peer.name}: {name}: {said}")
        return bool(said)

    def rounds(self, wanted: int) -> None:
        """So many quiet rounds, for every cell."""
        for values, disturbed in rig.rounds(wanted, self._round):
            self.disturbed.append(disturbed)
            for key, answer in values.items():
                cell = self.cells[key]
                us = 1e6 / answer["pictures"]
                cell.cost.append(us * (answer["with"] - answer["without"]))
                cell.without.append(us * answer["without"])
                cell.allocations = max(cell.allocations, answer.get("allocations", 0.0))

    def _round(self, number: int) -> tuple[tuple[dict[tuple[str, str], Any], float], float]:
        values = {}
        others = meter.Disturbance([self.cpu], lambda: (pid for peer in self.peers for pid in peer.pids()))
        for name in self.operations:
            ready = self.of(name)
            turn = number % max(len(ready), 1)
            for peer in ready[turn:] + ready[:turn]:
                answer = peer.ask(op=name, mode="turn", seconds=self.args.seconds)
                if not self._trouble(name, peer, answer):
                    values[name, peer.name] = answer
        disturbed = sum(others.shares())
        rig.say(f"round {number + 1}: others had {100 * disturbed:.1f} % of the processor")
        return (values, disturbed), disturbed

    def cost(self, name: str, peer: str) -> float:
        return rig.middle(self.cells[name, peer].cost)

    def ratio(self, name: str, other: str) -> float | None:
        """How many times as fast stoker is as another; None if one of the two has no figure."""
        own, theirs = (self.cells.get((name, peer), Cell()).cost for peer in (STOKER, other))
        if not own or not theirs:
            return None
        found = rig.middle(max(b, LEAST) / max(a, LEAST) for a, b in zip(own, theirs, strict=False))
        return None if math.isnan(found) else found

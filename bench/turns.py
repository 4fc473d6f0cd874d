"""Two loaders, both open at once, load batches in turns of about half a second, from the same pictures.

If the machine is slow for some seconds, it is slow for both, so a difference of half a percent shows. The loader that
is opened first alternates from round to round: a process keeps the memory that it got at its start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import meter, pictures, rig, serving

BATCH = 64
WARM = 64  # batches before the first turn, at most

# Outputs of bench.peers.turns beside those of the other peers, "uint8" and "float32".
SMALL = "small"  # one view, 96 x 96, crop scale 0.05 to 0.4
VIEWS = "views"  # ten views: two of 224 x 224, crop scale 0.4 to 1, and eight like SMALL


@dataclass(frozen=True)
class Side:
    """One of the two loaders."""

    engine: Path = rig.ROOT / "build" / "stoker"
    client: Path = rig.ROOT / "python" / "src"
    entries: str = "off"  # DataLoader's, where the client has it
    cache: Path | None = None  # its cache folder; None: the usual one
    anew: bool = False  # the cache folder is removed before each round

    def command(self, data: Path, output: str, seed: int) -> list[str | Path]:
        # PYTHONPATH: its client comes before the one that is installed.
        python = ["env", f"PYTHONPATH={self.client}:{rig.ROOT}", f"STOKER_ENGINE={self.engine}"]
        if self.cache is not None:
            python.append(f"STOKER_CACHE={self.cache}")
        peer = ["-m", "bench.peers.turns", str(data), output, str(BATCH), str(seed), self.entries]
        return [*python, str(rig.python_of(".venv")), *peer]


@dataclass
class Turns:
    """Ratios of the first loader to the second, and all rounds."""

    cpu: float  # CPU an image: the median of the turns
    total: float  # the same over the sum of all turns, so that work done in only a few of them counts
    rate: float  # images a second
    runs: list[dict[str, Any]] = field(repr=False)
    disturbed: list[float] = field(repr=False)  # of the rounds that count


def needed(args: Any) -> int:
    """How many pictures a tree needs so that one pass lasts for a whole round. args: those of in_turns."""
    return BATCH * int(args.batches * args.turns + WARM)


def in_turns(sides: dict[str, Side], tree: pictures.Tree, output: str, args: Any, cpus: Sequence[int]) -> Turns:
    """Compares the first of sides with the second. args: repeats, turns and batches, as bench.before's options say."""
    runs: list[dict[str, Any]] = []
    first, second = sides

    def both(number: int) -> tuple[dict[str, Any], float]:
        tree.warm()
        names = [first, second] if number % 2 else [second, first]
        run: dict[str, Any] = {"output": output, "round": number, "batches": args.batches, "batch": BATCH}
        run |= {key: {name: [] for name in sides} for key in ("cpu", "wall")}
        with contextlib.ExitStack() as stack:
            loaders = {name: serving.Server(name) for name in names}
            for name, loader in loaders.items():
                if sides[name].anew:
                    shutil.rmtree(sides[name].cache or "", ignore_errors=True)
                loader.open(stack, sides[name].command(tree.root, output, number), cpus)
            mine = lambda: [os.getpid(), *(pid for one in loaders.values() for pid in one.pids())]  # noqa: E731
            others = meter.Disturbance(cpus, mine)
            for turn in range(args.turns):
                for name in names if turn % 2 else names[::-1]:
                    answer = loaders[name].ask(batches=args.batches)
                    if loaders[name].problem:
                        raise rig.PeerError(f"{name}: {loaders[name].problem}")
                    for key in ("cpu", "wall"):
                        run[key][name].append(answer[key])
            run["disturbed"] = sum(others.shares())
        runs.append(run)
        middle = {name: 1e6 * statistics.median(run["cpu"][name]) / (BATCH * args.batches) for name in sides}
        rig.say(
            f"round {number + 1} {output:8} {ratio(run, 'cpu'):.4f}  "
            + "  ".join(f"{name} {us:.1f} us" for name, us in middle.items())
            + f"  others {100 * run['disturbed']:.1f} %"
        )
        return run, run["disturbed"]

    def ratio(run: dict[str, Any], key: str) -> float:
        return statistics.median(a / b for a, b in zip(run[key][first], run[key][second], strict=True))

    found = rig.rounds(args.repeats, both)
    return Turns(
        cpu=rig.middle(ratio(one, "cpu") for one in found),
        total=rig.middle(sum(one["cpu"][first]) / sum(one["cpu"][second]) for one in found),
        rate=rig.middle(1 / ratio(one, "wall") for one in found),
        runs=runs,
        disturbed=[one["disturbed"] for one in found],
    )

"""Training recipes beside torchvision's own pipeline: python -m bench.recipes --data FOLDER-OF-JPEGS, under .venv.

Each recipe (recipes.py) trains a small model with stoker's loader and with torch's DataLoader over torchvision's
ImageFolder, with the same transform object, the same first weights and the same loop, from four seeds. Printed are
whether the loss curves agree within the spread of seeds (judge.py has the rule), and both rates: images per second of
the loop, and images per CPU-second of all that is not the loop's own step.

A third set of runs is the control: stoker's loader without the recipe's colours, warps and erasing. If the rule cannot
tell it from torchvision's pipeline, it says nothing about the recipe, and the figure is missed.

Classes are the folders of DATA, or, if it has none, fifths of the pictures by how much redder than blue they are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageStat

from bench import meter, pictures, rig
from bench.recipes import judge

RECIPES = ("resnet50", "vit", "deit", "timm", "simclr")
VENVS = {"deit": ".venv-bench/timm", "timm": ".venv-bench/timm"}
STOKER, TORCH, CONTROL = "stoker", "torch", "control"
CLASSES = 5
FALLEN = 0.97  # of the loss of the first block


def named(data: Path) -> list[tuple[str, Path]]:
    """(class, picture): folders, or fifths by mean red minus mean blue."""
    found = pictures.find(data)
    if any(path.parent != data for _, path in found):
        return found
    warmth = {}
    for _, path in found:
        with Image.open(path) as picture:
            picture.draft("RGB", (64, 64))
            red, _, blue = ImageStat.Stat(picture.convert("RGB")).mean
        warmth[path] = red - blue
    order = sorted(warmth, key=lambda path: (warmth[path], path))
    rank = {path: CLASSES * i // len(order) for i, path in enumerate(order)}
    return [(f"warmth_{rank[path]}", path) for _, path in found]


@dataclass
class Runs:
    """What one pipeline did with one recipe, a value a seed."""

    losses: list[list[float]] = field(default_factory=list)
    per_wall: list[float] = field(default_factory=list)
    per_cpu: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    pss: list[float] = field(default_factory=list)
    where: str = ""
    notices: list[str] = field(default_factory=list)
    problem: str = ""

    def add(self, run: rig.Run) -> None:
        begin, end = run.marks["start"], run.marks["stop"]
        wall = end["wall"] - begin["wall"]
        self.losses.append(end["losses"])
        self.per_wall.append(end["samples"] / wall)
        self.per_cpu.append(end["samples"] / (end["cpu"] - begin["cpu"] - end["steps_cpu"]))
        self.waited.append(end["waited"] / wall)
        self.pss.append(run.memory["pss"])
        self.where, self.notices = end["where"], end["notices"]

    def smooth(self, block: int) -> list[list[float]]:
        return [judge.smooth(losses, block) for losses in self.losses]


class Beside:
    """All recipes, each with its three pipelines."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.cpus = rig.first_cpus(2)
        self.sides = (STOKER, TORCH, *(() if args.no_control else (CONTROL,)))
        self.runs = {(recipe, side): Runs() for recipe in args.only for side in self.sides}
        self.disturbed: list[float] = []
        self.versions: dict[str, str] = {}
        self.left_behind: list[str] = []
        self.tree = pictures.build(args.data, args.steps * args.batch, args.batch, named(args.data.resolve()))

    def measure(self, recipe: str, side: str, seed: int) -> None:
        args, runs = self.args, self.runs[recipe, side]
        if runs.problem:
            return
        command: list[str | Path] = [
            *(rig.python_of(VENVS.get(recipe, ".venv")), "-m", "bench.recipes.train", recipe),
            *("--loader", TORCH if side == TORCH else STOKER, "--data", self.tree.root, "--seed", str(seed)),
            *("--steps", str(args.steps), "--batch", str(args.batch), "--size", str(args.size)),
            *("--workers", str(len(self.cpus)), *(["--plain"] if side == CONTROL else [])),
        ]
        self.tree.warm()
        try:
            run = rig.quietest(command, self.cpus, f"{recipe}-{side}", 0 if side == CONTROL else args.retries)
        except rig.PeerError as e:
            runs.problem = str(e)
            rig.say(f"{recipe} {side}: {e}")
            return
        runs.add(run)
        self.versions |= run.marks["start"]["versions"]
        self.left_behind += run.left_behind
        if side != CONTROL:  # whose rate is not used
            self.disturbed.append(run.disturbed)
        rig.say(
            f"seed {seed}  {recipe:9} {side:8} {runs.per_wall[-1]:6.0f} images/s {runs.per_cpu[-1]:6.0f}/CPU-s  "
            f"loss {runs.smooth(args.block)[-1][0]:.3f} to {runs.smooth(args.block)[-1][-1]:.3f}  "
            f"others {100 * run.disturbed:.1f} %"
        )

    def round(self, seed: int) -> None:
        """All pipelines with one seed; their order moves by one each time."""
        for recipe in self.args.only:
            at = seed % len(self.sides)
            for side in self.sides[at:] + self.sides[:at]:
                self.measure(recipe, side, seed)

    def verdict(self, recipe: str, side: str) -> judge.Verdict | None:
        """Of a pipeline against torchvision's; None if one of them failed."""
        runs = [self.runs[recipe, one] for one in (side, TORCH)]
        if any(one.problem or not one.losses for one in runs):
            return None
        return judge.judge(*(one.smooth(self.args.block) for one in runs))

    def verdicts(self) -> Iterator[tuple[str, str, judge.Verdict | None]]:
        for recipe in self.args.only:
            for side in self.sides:
                if side != TORCH:
                    yield recipe, side, self.verdict(recipe, side)

    def gates(self) -> list[rig.Gate]:
        found = []
        for recipe, side, verdict in self.verdicts():
            worst = verdict.worst if verdict else None
            if side == CONTROL:
                found.append(rig.Gate(f"{recipe}: control's distance over the spread of seeds", worst, 1, "high"))
            else:
                found.append(rig.Gate(f"{recipe}: distance of curves over the spread of seeds", worst, 1, "low"))
                what = f"{recipe}: stoker's last loss over its first"
                found.append(rig.Gate(what, self.fallen(recipe, side) if verdict else None, FALLEN, "low"))
        return found

    def fallen(self, recipe: str, side: str) -> float:
        curve = judge.mean(self.runs[recipe, side].smooth(self.args.block))
        return curve[-1] / curve[0]

    def ratio(self, recipe: str, what: str) -> float:
        """Of stoker's rate over torch's, the median over seeds."""
        ours, theirs = (getattr(self.runs[recipe, side], what) for side in (STOKER, TORCH))
        return rig.middle(a / b for a, b in zip(ours, theirs, strict=True))

    def figures(self) -> dict[str, float]:
        found = {}
        for recipe, side, verdict in self.verdicts():
            if verdict is None:
                continue
            of = f"{recipe} {side}" if side == CONTROL else recipe
            found[f"{of}, distance over spread"] = verdict.worst
            if side == STOKER:
                for what, unit in (("per_wall", "images/s"), ("per_cpu", "images/CPU-s")):
                    for one in (STOKER, TORCH):
                        found[f"{recipe} {one}, {unit}"] = rig.middle(getattr(self.runs[recipe, one], what))
                    found[f"{recipe} over torch, {unit}"] = self.ratio(recipe, what)
        return found

    def render(self) -> str:
        """A line a recipe and pipeline."""
        head = ["recipe", "pipeline", "", "images/s", "x", "images/CPU-s", "x", "waits", "loss", "", "apart", "verdict"]
        rows = []
        for recipe in self.args.only:
            for side in self.sides:
                runs = self.runs[recipe, side]
                if runs.problem:
                    rows.append([recipe, side, "failed", *[""] * 9])
                    continue
                curve = judge.mean(runs.smooth(self.args.block))
                verdict = None if side == TORCH else self.verdict(recipe, side)
                ratios = ["", ""]
                if side == STOKER and verdict:
                    ratios = [f"{self.ratio(recipe, what):.2f}" for what in ("per_wall", "per_cpu")]
                rows.append(
                    [
                        *(recipe, side, "", f"{rig.middle(runs.per_wall):.0f}", ratios[0]),
                        *(f"{rig.middle(runs.per_cpu):.0f}", ratios[1], f"{100 * rig.middle(runs.waited):.0f} %"),
                        *(f"{curve[0]:.3f}", f"{curve[-1]:.3f}", f"{verdict.worst:.2f}" if verdict else ""),
                        "" if verdict is None else "agree" if verdict.agree else "differ",
                    ]
                )
        return rig.table(head, rows)

    def curves(self) -> str:
        """The means over seeds, a line a pipeline, and the spread."""
        lines = []
        for recipe in self.args.only:
            verdict = self.verdict(recipe, STOKER)
            if verdict is None:
                continue
            shown = {side: judge.mean(self.runs[recipe, side].smooth(self.args.block)) for side in (STOKER, TORCH)}
            for name, values in {**shown, "spread": verdict.spread}.items():
                lines.append(f"{recipe:9} {name:7} " + " ".join(f"{value:6.3f}" for value in values))
        return "\n".join(lines)


def where(runs: Runs, recipe: str) -> Iterator[str]:
    """Who makes stoker's samples, and what the loader said."""
    if not runs.problem:
        yield f"{recipe}: stoker's samples are made by {runs.where}"
        yield from (f"    stoker: {line}" for line in runs.notices)


def document(beside: Beside, machine: dict[str, Any]) -> dict[str, Any]:
    args = beside.args
    verdicts: dict[str, dict[str, Any]] = {}
    for recipe, side, verdict in beside.verdicts():
        if verdict:
            verdicts.setdefault(recipe, {})[side] = {
                "agree": verdict.agree,
                "worst": round(verdict.worst, 4),
                "apart": [round(value, 5) for value in verdict.apart],
                "spread": [round(value, 5) for value in verdict.spread],
            }
    return {
        "question": "training recipes beside torchvision's own pipeline",
        "machine": machine,
        "settings": rig.settings(args),
        "versions": beside.versions,
        "data": {"pictures": beside.tree.pictures, "mean_bytes": beside.tree.mean_bytes},
        "rule": judge.RULE.format(block=args.block),
        "verdicts": verdicts,
        "runs": [{"recipe": recipe, "pipeline": side, **runs.__dict__} for (recipe, side), runs in beside.runs.items()],
    }


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.recipes", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs, with or without class folders")
    parser.add_argument("--out", type=Path, default=rig.ROOT / "build" / "bench-recipes.json")
    parser.add_argument("--only", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--seeds", type=int, default=4, help="runs of each pipeline (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=240, help="of a run (default: %(default)s)")
    parser.add_argument("--block", type=int, default=20, help="steps of a point of a curve (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=64, help="of a picture's side (default: %(default)s)")
    parser.add_argument("--retries", type=int, default=1, help="of a run in which others used the processors")
    parser.add_argument("--no-control", action="store_true", help="leave out the runs that the rule must tell apart")
    args = parser.parse_args(given)
    if args.seeds < 2 or args.steps < 2 * args.block:
        parser.error("--seeds must be 2 or more, and --steps two blocks or more")
    rig.may_write(args.out)
    meter.become_subreaper()
    beside = Beside(args)
    machine = rig.machine(beside.cpus)
    for seed in range(args.seeds):
        beside.round(seed)
    print(
        f"medians over {args.seeds} seeds, {args.steps} steps of {args.batch} pictures of {args.size} x {args.size}, "
        f"two processors; CPU is that of making batches\n"
        f"rule: {judge.RULE.format(block=args.block)}\n\n{beside.render()}\n\n"
        f"mean losses\n{beside.curves()}\n"
    )
    for recipe in args.only:
        print("\n".join(where(beside.runs[recipe, STOKER], recipe)))
    doubts = [f"{recipe} {side}: {runs.problem}" for (recipe, side), runs in beside.runs.items() if runs.problem]
    doubts += [f"processes were left behind: {beside.left_behind[0]}"] if beside.left_behind else []
    found = document(beside, machine)
    return rig.finish(args.out, found, beside.gates(), doubts, beside.figures(), beside.disturbed)


if __name__ == "__main__":
    sys.exit(main())

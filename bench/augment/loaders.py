"""Whole loaders with the recipes of bench/peers/recipes.py: bench.compare's rows and rounds, with other peers.

All read the same untouched files on two processors. torch's workers are the best of 1, 2 and 3, chosen in the run. The
crops are those of compare's peers, where their distribution is checked.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench import compare, rig
from bench.compare import KINDS, STOKER

USUAL = {
    "randaugment": (STOKER, "torch-tuned", "torch-pil", "dali"),
    "contrastive": (STOKER, "torch-tuned"),
}
MODULES: dict[str, tuple[str, ...]] = {
    STOKER: ("recipe_stoker",),
    "torch-tuned": ("recipe_torch",),
    "torch-pil": ("recipe_torch", "--pil"),
    "dali": ("recipe_dali",),
}
# (recipe, peer) -> images per CPU-second of stoker over the peer's
REQUIRED = {
    ("randaugment", "torch-tuned"): 3.2,
    ("randaugment", "dali"): 2.5,
    ("randaugment", "torch-pil"): 5.0,
    ("contrastive", "torch-tuned"): 5.0,
}


class Recipes(compare.Comparison):
    """A comparison whose outputs are recipes; all of them are uint8."""

    usual = USUAL
    trial = 256  # a sample costs ten times as much as compare's

    def command(self, peer: str, output: str, workers: int, data: Path, samples: int) -> list[str | Path]:
        module, *extra = MODULES[peer]
        return [
            *(rig.python_of(KINDS[peer].venv), "-m", f"bench.peers.{module}", *extra, "--recipe", output),
            *("--data", data, "--workers", str(workers), "--threads", str(len(self.cpus))),
            *("--samples", str(samples), "--batch", str(self.args.batch), "--seed", str(len(self.log))),
        ]

    def save(self) -> None:
        """The driver saves, when both parts have ended."""


def options(parser: argparse.ArgumentParser) -> None:
    part = parser.add_argument_group("loaders")
    part.add_argument("--recipes", default=",".join(USUAL), help="default: %(default)s")
    part.add_argument("--loaders", default="", help=f"of {', '.join(MODULES)}")
    part.add_argument("--samples", type=int, default=6400, help="measured a run (default: %(default)s)")
    part.add_argument("--batch", type=int, default=64)
    part.add_argument("--retries", type=int, default=2, help="of a run in which others used the processors")


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """The result of this part, with its conclusion."""
    asked = argparse.Namespace(**vars(args))
    asked.rows, asked.peers, asked.cpus, asked.no_crops = args.recipes, args.loaders, "", True
    unknown = [one for one in asked.rows.split(",") if one not in USUAL]
    unknown += [one for one in asked.peers.split(",") if one and one not in MODULES]
    if unknown:
        raise SystemExit(
            f"{', '.join(unknown)}: not known; recipes are {', '.join(USUAL)}; loaders {', '.join(MODULES)}"
        )
    recipes = Recipes(asked)
    rows = recipes.run()
    gates, doubts = compare.judge(rows, REQUIRED)
    recipes.record_rows(rows)
    for name in asked.rows.split(","):
        print(f"\n{name}: images per CPU-second, two processors\n{compare.render(rows, name, REQUIRED)}")
    recipes.document["question"] = "whole loaders with recipes of augmentations"
    recipes.document["where"] = {
        row.output: row.about["settings"]["where"] for row in rows if row.peer == STOKER and row.about
    }
    for name, where in recipes.document["where"].items():
        rig.say(f"{name}: stoker's samples are made by {where}")
    disturbed = (share for row in rows for share in row.disturbed)
    rig.conclude(recipes.document, gates, doubts, compare.figures(rows), disturbed)
    return recipes.document

"""What augmentations cost: python -m bench.augment --data FOLDER-OF-JPEGS.

Operations, one at a time: the CPU time that each adds to a photograph of 256 x 256 pixels, in one thread, for stoker's
engine, torchvision, Albumentations, DALI on the CPU and Kornia on the CPU. Every peer is a process that holds the same
pictures; they take turns operation by operation, and the order moves by one each round. Figures are medians over
rounds, and a ratio is the median of the rounds' own. An operation that stoker cannot do has no figure, and says why.

Loaders: images per CPU-second of whole recipes on two processors (bench/augment/loaders.py). bench/README.md has more.
The exit status is 1 if a figure is missed or missing, or the run is in doubt.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import Any

from bench import meter, rig
from bench.augment import loaders
from bench.augment.contest import PEERS, STOKER, USUAL, Contest
from bench.augment.operations import OPERATIONS, REQUIRED, SIDE

PARTS = ("operations", "loaders")


def gates(contest: Contest) -> list[rig.Gate]:
    """Of every operation that the peer has."""
    found = []
    for name in contest.operations:
        for peer in contest.peers:
            limit = REQUIRED.get(peer.name, (None, None))[0 if OPERATIONS[name].heavy else 1]
            if limit is not None and (name, peer.name) in contest.cells:
                what = f"{name}, times as fast as {peer.name}"
                found.append(rig.Gate(what, contest.ratio(name, peer.name), limit, "high", "x"))
    return found


def render(contest: Contest) -> str:
    """A line an operation: microseconds of each peer, and how many times as fast stoker is."""
    rows = []
    for name in contest.operations:
        cells = []
        for peer in contest.peers:
            cell = contest.cells.get((name, peer.name))
            if cell is None or not cell.cost:
                cells.append("missing" if peer.name == STOKER else "-")
                continue
            ratio = contest.ratio(name, peer.name)
            shown = f"  {ratio:.2f}x" if peer.name != STOKER and ratio is not None else ""
            cells.append(f"{contest.cost(name, peer.name):.0f}{shown}")
        rows.append([name, "", "", *cells])
    return rig.table(["operation", "", "", *(peer.name for peer in contest.peers)], rows)


def missing(contest: Contest) -> dict[str, dict[str, str]]:
    """By peer and operation: why there is no figure."""
    found = {}
    for peer in contest.peers:
        why = {name: contest.missing(name, peer) for name in contest.operations}
        found[peer.name] = {name: said for name, said in why.items() if said}
    return found


def operations(args: argparse.Namespace) -> dict[str, Any]:
    """The result of the first part, without its conclusion."""
    with contextlib.ExitStack() as stack:
        contest = Contest(args, stack)
        contest.warm()
        contest.rounds(args.repeats)
        print(
            f"microseconds of CPU that an operation adds to a picture of {SIDE} x {SIDE}, one thread, processor "
            f"{contest.cpu}, medians of {args.repeats}; 'x': stoker over the peer\n{render(contest)}"
        )
        absent = missing(contest)
        for name, why in absent[STOKER].items():
            rig.say(f"missing  {name}: {why}")
        document: dict[str, Any] = {
            "question": "what operations add to a picture",
            "machine": rig.machine([contest.cpu]),
            "settings": rig.settings(args),
            "peers": {
                peer.name: {"versions": peer.versions, "settings": peer.settings, "problem": peer.problem}
                for peer in contest.peers
            },
            "operations": {
                name: {"torchvision": OPERATIONS[name].of, **OPERATIONS[name].arguments} for name in contest.operations
            },
            "missing": absent,
            "rows": [
                {"operation": name, "peer": peer, **cell.__dict__} for (name, peer), cell in contest.cells.items()
            ],
        }
        figures = {}
        for (name, peer), cell in contest.cells.items():
            if cell.cost:
                figures[f"{name} {peer}, us"] = contest.cost(name, peer)
            ratio = contest.ratio(name, peer)
            if peer != STOKER and ratio is not None:
                figures[f"{name} over {peer}"] = ratio
        # A target that this processor lacks casts no doubt on the others.
        doubts = [f"{peer.name}: {peer.problem}" for peer in contest.peers if peer.problem and peer.name in USUAL]
        doubts += [f"{peer}: {name}: {why}" for (name, peer), why in contest.failed.items()]
        rig.conclude(document, gates(contest), doubts, figures, contest.disturbed)
    return document


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.augment", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs, with or without class folders")
    parser.add_argument("--out", type=Path, default=rig.RESULTS / "augment.json")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=5, help="rounds (default: %(default)s)")
    part = parser.add_argument_group("operations")
    part.add_argument("--operations", default="", help=f"of {', '.join(OPERATIONS)}")
    part.add_argument("--peers", default="", help=f"{STOKER} is always there; of {', '.join(PEERS)}")
    part.add_argument("--pictures", type=int, default=64, help="drawn from the folder (default: %(default)s)")
    part.add_argument("--seconds", type=float, default=0.2, help="a turn (default: %(default)s)")
    part.add_argument("--cpu", default="", help="processor (default: the first one allowed)")
    part.add_argument("--seed", type=int, default=1, help="of the choice of pictures (default: %(default)s)")
    loaders.options(parser)
    args = parser.parse_args()
    unknown = [name for name in args.peers.split(",") if name and name not in PEERS]
    unknown += [name for name in args.operations.split(",") if name and name not in OPERATIONS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not known; there are {', '.join([*USUAL, *OPERATIONS])}")
    rig.may_write(args.out)
    meter.become_subreaper()
    parts = {"operations": operations, "loaders": loaders.measure}
    # The other part of a file that is there stays what it is.
    documents = json.loads(args.out.read_text()) if args.out.exists() and len(args.only) < len(PARTS) else {}
    for name in args.only:
        documents[name] = parts[name](args)
        rig.save(args.out, documents)
    status = rig.report(*(documents[name] for name in args.only))
    print(f"\nraw runs: {args.out}")
    return status


if __name__ == "__main__":
    sys.exit(main())

"""JPEG decoding alone, without a loader: python -m bench.jpeg --data FOLDER.

Stoker's kernel, libjpeg-turbo and what Python users have decode whole pictures, and regions: RandomResizedCrop's boxes,
three a picture, the same for all. Every decoder is one process a processor, which holds the files in memory and decodes
one after the other; those of one decoder work at the same time, those of the others sleep meanwhile. A turn is all
pictures of one kind. Within a round the decoders take turns kind by kind, and the order moves by one each
round. Figures are CPU time, medians over rounds; a ratio is the median of the rounds' own. bench/README.md has more.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from bench import meter, rig
from bench.jpeg import plan
from bench.jpeg.contest import ALL, KNOWN, NEWER, PEERS, STOKER, TURBO, Contest

MODES = ("full", "region")
# (mode, group, peers of which the first that is there must reach it, times as fast as libjpeg-turbo)
REQUIRED = (
    *(("region", ALL, (peer,), limit) for peer, limit in zip(STOKER, (2.0, 2.0, 1.2), strict=True)),
    ("region", ALL, (KNOWN,), 2.5),
    ("full", ALL, STOKER, 1.7),
    ("region", plan.PACKED, STOKER, 2.5),
)


def gates(contest: Contest) -> list[rig.Gate]:
    found = []
    names = [peer.name for peer in contest.ready]
    for mode, group, peers, limit in REQUIRED:
        peer = next((name for name in peers if name in names), None)
        if peer and (mode, group, peer) in contest.cells:
            what = f"{mode} decode, {group}, {peer} over {TURBO}"
            found.append(rig.Gate(what, contest.ratio(mode, group, peer), limit, "high", "x"))
    return found


def render(contest: Contest, mode: str) -> str:
    """A line a decoder, a column a group: microseconds, and times as fast as libjpeg-turbo."""
    known = {group for _, group, _ in contest.cells}
    groups = [group for group in dict.fromkeys((ALL, plan.PACKED, *contest.groups)) if group in known]
    count = {name: len(group) for name, group in contest.plan.groups.items()}
    count[ALL] = sum(count[name] for name in contest.plan.found)
    rows = []
    for peer in contest.ready:
        cells = {group: contest.cells[mode, group, peer.name] for group in groups}
        figures = [
            f"{rig.middle(cell.cost):.0f}  {contest.ratio(mode, group, peer.name):.2f}x"
            for group, cell in cells.items()
        ]
        rows.append([mode, peer.name, f"{100 * cells[groups[0]].same:.0f} %", *figures])
    return rig.table(["decode", "by", "same", *(f"{group} ({count[group]})" for group in groups)], rows)


def document(contest: Contest) -> dict[str, Any]:
    areas, bottoms = zip(*contest.plan.boxes, strict=True)
    return {
        "question": "JPEG decoding alone, whole pictures and regions",
        "machine": rig.machine(contest.cpus),
        "settings": rig.settings(contest.args),
        "data": {
            "groups": {name: len(group) for name, group in contest.plan.groups.items()},
            "found": contest.plan.found,
            "left_out": contest.plan.left_out,
            "mean_box_area": sum(areas) / len(areas),
            "mean_box_bottom": sum(bottoms) / len(bottoms),
        },
        "peers": {peer.name: {"versions": peer.versions, "problem": peer.problem} for peer in contest.peers},
        "disturbed_rounds": contest.disturbed,
        "rows": [
            {"mode": mode, "group": group, "peer": peer, "us": cell.cost, "same_bytes": cell.same}
            for (mode, group, peer), cell in contest.cells.items()
        ],
    }


def figures(contest: Contest) -> dict[str, float]:
    """Of each decoder and group: microseconds, and how many times as fast as the two versions of libjpeg-turbo."""
    found = {}
    for (mode, group, peer), cell in contest.cells.items():
        if cell.cost:
            name = f"{mode} {group} {peer}"
            found[f"{name}, us"] = rig.middle(cell.cost)
            found[f"{name}, x"] = contest.ratio(mode, group, peer)
            if contest.cells.get((mode, group, NEWER), cell) is not cell:
                found[f"{name}, x of 3"] = contest.ratio(mode, group, peer, NEWER)
    return found


def doubts(contest: Contest) -> list[str]:
    # A target that this processor lacks casts no doubt on the others; "peers" of the result names it.
    found = [f"{peer.name}: {peer.problem}" for peer in contest.peers if peer.problem and peer.name not in STOKER]
    if contest.plan.left_out:
        path, why = next(iter(contest.plan.left_out.items()))
        found.append(f"{len(contest.plan.left_out)} files are left out, the first of them {path}: {why}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.jpeg", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs, with or without class folders")
    parser.add_argument("--out", type=Path, default=rig.ROOT / "bench" / "results" / "jpeg.json")
    parser.add_argument("--repeats", type=int, default=5, help="rounds (default: %(default)s)")
    parser.add_argument(
        "--pictures", type=int, default=1000, help="at most, drawn from the folder (default: %(default)s; 0: all)"
    )
    parser.add_argument("--modes", default=",".join(MODES), help="default: %(default)s")
    parser.add_argument("--groups", default="", help=f"kinds, as the table names them; {ALL}: those of the folder")
    parser.add_argument("--peers", default="", help=f"{TURBO} is always there; of {', '.join(PEERS)}")
    parser.add_argument("--cpus", default="", help="processors (default: the first two allowed)")
    parser.add_argument("--seed", type=int, default=1, help="of the boxes (default: %(default)s)")
    args = parser.parse_args()
    unknown = [name for name in args.peers.split(",") if name and name not in PEERS]
    unknown += [mode for mode in args.modes.split(",") if mode not in MODES]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not known; there are {', '.join([*PEERS, *MODES])}")
    rig.may_write(args.out)
    meter.become_subreaper()
    with contextlib.ExitStack() as stack:
        contest = Contest(args, stack)
        contest.warm()
        contest.rounds(args.repeats)
    contest.total()
    found = document(contest)
    data = found["data"]
    print(
        f"microseconds of CPU a picture, and times as fast as {TURBO}; processors {contest.cpus}, medians of "
        f"{args.repeats}\nboxes: mean area {data['mean_box_area']:.2f}, mean lower edge {data['mean_box_bottom']:.2f}\n"
        f"same: results that are the bytes of {TURBO}'s whole picture, cropped"
    )
    for mode in args.modes.split(","):
        print(f"\n{render(contest, mode)}")
    return rig.finish(args.out, found, gates(contest), doubts(contest), figures(contest), contest.disturbed)


if __name__ == "__main__":
    sys.exit(main())

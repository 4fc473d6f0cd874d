"""PNG, WebP and TIFF decoding, and inflating, without a loader: python -m bench.images --data FOLDER.

The photographs of FOLDER are written as PNG, WebP and TIFF into a temporary folder. Stoker's decoders and those that
Python users have then decode them on one processor: every decoder is a process that holds the files in memory, and they
take turns, group by group, one at a time. Figures are CPU time an item, medians over rounds; a ratio is the median of
the rounds' own. bench/README.md has more. The exit status is 1 if a figure is missed or the run is in doubt.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from bench import meter, rig
from bench.images.contest import GROUPS, PEERS, STOKER, STREAMS, Contest

# (group, peers; empty: all others), times as fast as they are. Lossless WebP is libwebp's here and there, theirs newer
# than the one that is linked: what it costs is shown, not required.
REQUIRED = (
    ("png rgb", ("opencv",), 1.5),
    ("png grey", ("opencv",), 1.5),
    ("webp", (), 1.0),
)


def gates(contest: Contest) -> list[rig.Gate]:
    found = []
    for group, peers, limit in REQUIRED:
        for name in peers or PEERS:
            if name != STOKER and (group, name) in contest.cells and contest.cells[group, name].cost:
                found.append(rig.Gate(f"{group}, {STOKER} over {name}", contest.ratio(group, name), limit, "high", "x"))
    return found


def render(contest: Contest, groups: list[str]) -> str:
    rows = []
    for group in groups:
        for peer in contest.of(group):
            cell = contest.cells[group, peer.name]
            unit = (
                f"{contest.megabytes(group, peer.name):.0f} MB/s"
                if group in STREAMS
                else f"{rig.middle(cell.cost):.0f} us"
            )
            times = "" if peer.name == STOKER else f"{contest.ratio(group, peer.name):.2f}x"
            rows.append([group, peer.name, f"{100 * cell.same:.0f} %", unit, times])
    return rig.table(["decode", "by", "same", "figure", f"{STOKER} is"], rows)


def doubts(contest: Contest) -> list[str]:
    found = [f"{peer.name}: {peer.problem}" for peer in contest.peers if peer.problem]
    found += [
        f"{group}: only {100 * contest.cells[group, STOKER].same:.1f} % of stoker's results are the reference's bytes"
        for group in contest.groups
        if contest.cells[group, STOKER].same != 1
    ]
    return found


def document(contest: Contest) -> dict[str, Any]:
    return {
        "question": "PNG, WebP and TIFF decoding, and inflating, without a loader",
        "machine": rig.machine([contest.cpu]),
        "settings": rig.settings(contest.args),
        "data": {group: len(contest.plan[group]["Items"]) for group in contest.groups},
        "peers": {peer.name: {"versions": peer.versions, "problem": peer.problem} for peer in contest.peers},
        "rows": [
            {"group": group, "peer": name, "us": cell.cost, "same_bytes": cell.same}
            | ({"mb_per_second": contest.megabytes(group, name)} if group in STREAMS else {})
            for (group, name), cell in contest.cells.items()
            if cell.cost
        ],
    }


def figures(contest: Contest) -> dict[str, float]:
    """Of each decoder and group: microseconds, and how many times as fast stoker is."""
    found = {}
    for (group, name), cell in contest.cells.items():
        if cell.cost:
            found[f"{group} {name}, us"] = rig.middle(cell.cost)
            if name != STOKER:
                found[f"{group} over {name}"] = contest.ratio(group, name)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.images", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs, with or without class folders")
    parser.add_argument("--out", type=Path, default=rig.ROOT / "bench" / "results" / "pictures.json")
    parser.add_argument("--repeats", type=int, default=7, help="rounds (default: %(default)s)")
    parser.add_argument("--pictures", type=int, default=80, help="of the folder (default: %(default)s)")
    parser.add_argument("--groups", default="", help=f"of {', '.join(GROUPS)}")
    parser.add_argument(
        "--peers", default="", help=f"{STOKER} and the references are always there; of {', '.join(PEERS)}"
    )
    parser.add_argument("--cpu", default="", help="processor (default: the first one allowed)")
    parser.add_argument("--seed", type=int, default=1, help="of the choice of pictures (default: %(default)s)")
    args = parser.parse_args()
    unknown = [name for name in args.peers.split(",") if name and name not in PEERS]
    unknown += [group for group in args.groups.split(",") if group and group not in GROUPS]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not known; there are {', '.join([*PEERS, *GROUPS])}")
    rig.may_write(args.out)
    meter.become_subreaper()
    with contextlib.ExitStack() as stack:
        contest = Contest(args, stack)
        contest.warm()
        contest.rounds()
        found = document(contest)
        print(f"CPU time an item, and bytes unpacked a second; processor {contest.cpu}, medians of {args.repeats}")
        print("same: results that are the bytes of Pillow, and of zlib\n")
        print(render(contest, contest.groups))
    return rig.finish(args.out, found, gates(contest), doubts(contest), figures(contest), contest.disturbed)


if __name__ == "__main__":
    sys.exit(main())

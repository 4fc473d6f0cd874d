"""What entry points of JPEGs save a loader, and cost: python -m bench.entries --data F [--copies N].

The folder's pictures are loaded by `stoker bench` (RandomResizedCrop(224), flip) from a folder and from tar shards, in
rounds of these ways, one after the other, each with a cache folder of its own:

    off       entries: off
    first     the first epoch: what it passes is recorded and written
    second    the epoch after it, in another process
    known     all entry points, by `stoker index --entries`
    packed    the same pictures, by `stoker pack --jpeg index`, in the same container, without entry points

Figures are CPU seconds of the whole process, as ratios within a round, then the median of the rounds.

Three figures need more precision than processes run one after the other give, which differ by 3 %. They compare two
loaders in turns (bench/turns.py), by the CPU of all turns of a round, from the folder: the cost of a first epoch, and
what known entry points save for small views (one, or ten of each picture).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import meter, pictures, rig, turns
from bench.turns import SMALL, VIEWS

ENGINE = rig.ROOT / "build" / "stoker"
SECOND, KNOWN, FIRST, STORE = 0.93, 0.96, 1.02, 0.01
ONE_VIEW, TEN_VIEWS = 1.5, 1.0
WAYS = ("off", "first", "second", "known", "packed")
SUFFIXES = (".jpg", ".jpeg")


def folder_of(data: Path, to: Path, copies: int) -> int:
    """A folder with a class, of so many copies of each picture; its bytes."""
    to.mkdir(parents=True)
    total = 0
    for path in sorted(data.iterdir()):
        if path.suffix.lower() in SUFFIXES:
            for copy in range(copies):
                shutil.copy(path, to / f"{copy}-{path.stem}.jpg")
                total += path.stat().st_size
    return total


def run(cache: Path, *words: str | Path) -> str:
    env = {**os.environ, "STOKER_CACHE": str(cache)}
    done = subprocess.run([ENGINE, *words], env=env, check=True, capture_output=True, text=True)
    return done.stdout


def epoch(cache: Path, data: Path, entries: str, samples: int, seed: int) -> float:
    """CPU seconds for a sample in one epoch."""
    said = run(
        cache, "bench", data, "--entries", entries, "--samples", str(samples), "--seed", str(seed), "--workers", "1",
        "--json",
    )  # fmt: skip
    found = json.loads(said)
    return float(found["cpu_s"]) / int(found["samples"])


def stored(cache: Path) -> int:
    return sum(path.stat().st_size for path in cache.glob("index/*.facts/*.facts"))


def made(top: Path) -> None:
    """The folder's pictures in the other containers."""
    run(top / "cache", "pack", top / "folder", top / "tar")
    run(top / "cache", "pack", top / "folder", top / "packed-tar", "--jpeg", "index")
    (top / "packed-folder" / "a").mkdir(parents=True)
    for shard in sorted((top / "packed-tar").glob("*.tar")):
        with tarfile.open(shard) as tar:
            for member in tar:
                file = tar.extractfile(member)
                if file is not None and member.name.endswith(SUFFIXES):
                    (top / "packed-folder" / "a" / Path(member.name).name).write_bytes(file.read())


def ready(top: Path, kind: str) -> None:
    """Each way's cache folder, with the index."""
    for way in WAYS:
        run(top / f"{kind}-{way}", "index", top / (f"packed-{kind}" if way == "packed" else kind))
    run(top / f"{kind}-known", "index", top / kind, "--entries")


def one_round(
    number: int, kind: str, ways: dict[str, tuple[Path, Path]], samples: int, cpus: Sequence[int]
) -> tuple[dict[str, Any], float]:
    """A round. ways: the cache folder and the dataset of each."""
    others = meter.Disturbance(cpus, lambda: [os.getpid()])
    found: dict[str, Any] = {"round": number, "kind": kind}
    for way, (cache, data) in ways.items():
        found[way] = epoch(cache, data, "off" if way in ("off", "packed") else "auto", samples, number + 100)
    found["disturbed"] = sum(others.shares())
    rig.say(f"round {number + 1} {kind}  " + "  ".join(f"{w} {1e6 * found[w]:.1f} us" for w in ways))
    return found, found["disturbed"]


def learning(data: Path, cache: Path, cpus: Sequence[int]) -> turns.Turns:
    """A first epoch that learns in turns with one that does not. What is written after the last turn is not counted: a
    tenth of a round at most."""
    args = argparse.Namespace(repeats=6, turns=30, batches=16)
    tree = pictures.build(data, turns.needed(args), turns.BATCH)
    sides = {"first": turns.Side(entries="auto", cache=cache, anew=True), "off": turns.Side()}
    return turns.in_turns(sides, tree, "uint8", args, cpus)


def all_known(data: Path, cache: Path, output: str, cpus: Sequence[int]) -> turns.Turns:
    """Loading with all entry points known, in turns with entries off."""
    args = argparse.Namespace(repeats=6, turns=24, batches=16 if output == SMALL else 4)
    tree = pictures.build(data, turns.needed(args), turns.BATCH)
    run(cache, "index", tree.root, "--entries")
    sides = {"known": turns.Side(entries="auto", cache=cache), "off": turns.Side()}
    return turns.in_turns(sides, tree, output, args, cpus)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.entries", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs")
    parser.add_argument("--copies", type=int, default=8, help="of each picture")
    parser.add_argument("--repeats", type=int, default=5, help="rounds of processes; of loaders in turns there are 6")
    parser.add_argument("--out", type=Path, default=rig.RESULTS / "entries.json")
    args = parser.parse_args()
    rig.may_write(args.out)
    meter.become_subreaper()
    cpus = rig.first_cpus(2)
    document: dict[str, Any] = {
        "question": "what entry points of JPEGs save, and cost",
        "machine": rig.machine(cpus),
        "settings": rig.settings(args),
        "rounds": [],
    }
    disturbed: list[float] = []
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as temporary:
        top = Path(temporary)
        size = folder_of(args.data, top / "folder" / "a", args.copies)
        made(top)
        samples = sum(1 for _ in (top / "folder" / "a").iterdir())
        for kind in ("folder", "tar"):
            ready(top, kind)
            figures[f"{kind}-store"] = stored(top / f"{kind}-known") / size

            def once(number: int, kind: str = kind) -> tuple[dict[str, Any], float]:
                for cache in (top / f"{kind}-first", top / f"{kind}-second"):
                    for path in cache.glob("index/*.facts"):
                        shutil.rmtree(path)
                epoch(top / f"{kind}-second", top / kind, "auto", samples, number)  # teaches it
                ways = {
                    way: (top / f"{kind}-{way}", top / (f"packed-{kind}" if way == "packed" else kind)) for way in WAYS
                }
                return one_round(number, kind, ways, samples, cpus)

            rounds = rig.rounds(args.repeats, once)
            document["rounds"] += rounds
            disturbed += [one["disturbed"] for one in rounds]
            for way in WAYS:
                figures[f"{kind}-{way}-us"] = 1e6 * rig.middle(one[way] for one in rounds)
            figures[f"{kind}-first-alone"] = rig.middle(one["first"] / one["off"] for one in rounds)
            for way in ("second", "known"):
                figures[f"{kind}-{way}-gain"] = rig.middle(one["off"] / one[way] for one in rounds)
                figures[f"{kind}-{way}-packed"] = rig.middle(one["packed"] / one[way] for one in rounds)
            figures[f"{kind}-packed-gain"] = rig.middle(one["off"] / one["packed"] for one in rounds)
        first = learning(args.data, top / "learning", cpus)
        small, views = (all_known(args.data, top / "views", output, cpus) for output in (SMALL, VIEWS))
        document["turns"] = first.runs + small.runs + views.runs
        disturbed += first.disturbed + small.disturbed + views.disturbed
        figures["first-cost"] = first.total
        figures["small-known-gain"] = 1 / small.total
        figures["multi-known-gain"] = 1 / views.total
    gates = [
        rig.Gate("the first epoch, against off", figures["first-cost"], FIRST, "low", "x"),
        rig.Gate("one view of 96: all known, against off", figures["small-known-gain"], ONE_VIEW, "high", "x"),
        rig.Gate("ten views: all known, against off", figures["multi-known-gain"], TEN_VIEWS, "high", "x"),
    ]
    for kind in ("folder", "tar"):
        gates += [
            rig.Gate(f"{kind}: second epoch, against packed", figures[f"{kind}-second-packed"], SECOND, "high", "x"),
            rig.Gate(f"{kind}: all known, against packed", figures[f"{kind}-known-packed"], KNOWN, "high", "x"),
            rig.Gate(f"{kind}: the store, against the data", figures[f"{kind}-store"], STORE, "low"),
        ]
    for name, value in figures.items():
        print(f"  {value:10.4f}  {name}")
    return rig.finish(args.out, document, gates, [], figures, disturbed)


if __name__ == "__main__":
    raise SystemExit(main())

"""stoker and its peers over the same photographs, side by side: python -m bench.compare --data FOLDER.

One round runs every peer once, in an order that turns from round to round; the figures are medians over rounds, and a
ratio is the median of the rounds' own ratios. See bench/README.md for what each row is and how CPU is counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import crops, meter, pictures, rig

STOKER, BOUND = "stoker", "kernel"
SECOND, KNOWN, INDEX = "stoker-second", "stoker-known", "stoker-index"


@dataclass(frozen=True)
class Kind:
    """How a peer is started. tries: the numbers of workers to choose from."""

    venv: str
    module: str
    extra: tuple[str, ...] = ()
    tries: tuple[int, ...] = ()


KINDS = {
    STOKER: Kind(".venv", "stoker_loader"),
    SECOND: Kind(".venv", "stoker_loader", extra=("--epoch", "second")),
    KNOWN: Kind(".venv", "stoker_loader", extra=("--epoch", "known")),
    "torch-tuned": Kind(".venv", "torch_tuned", tries=(1, 2, 3)),
    "torch-pil": Kind(".venv", "torch_pil", tries=(1, 2, 3)),
    "dali": Kind(".venv-bench/dali", "dali"),
    "dali-plain": Kind(".venv-bench/dali", "dali", extra=("--plain",)),
    "tf.data": Kind(".venv-bench/tf", "tfdata"),
    "webdataset": Kind(".venv-bench/shards", "webdataset", tries=(1, 2, 3)),
    "streaming": Kind(".venv-bench/shards", "mosaic", tries=(1, 2, 3)),
    "litdata": Kind(".venv-bench/shards", "litdata", tries=(1, 2, 3)),
    "spdl": Kind(".venv-bench/spdl", "spdl"),
    "ffcv": Kind(".venv-bench/ffcv", "ffcv"),
    "ffcv-512": Kind(".venv-bench/ffcv", "ffcv", extra=("--form", "512")),
    "ffcv-raw256": Kind(".venv-bench/ffcv", "ffcv", extra=("--form", "raw256")),
    INDEX: Kind(".venv", "stoker_packed", extra=("--form", "index")),
    "stoker-512": Kind(".venv", "stoker_packed", extra=("--form", "512")),
    "stoker-decoded256": Kind(".venv", "stoker_packed", extra=("--form", "decoded256")),
    BOUND: Kind("", "kernel"),
}
USUAL = {
    "uint8": (STOKER, SECOND, KNOWN, INDEX, "torch-tuned", "dali", "tf.data", BOUND),
    "float32": (STOKER, SECOND, "torch-tuned", "torch-pil", "dali", "tf.data", BOUND),
}
Required = Mapping[tuple[str, str], float]
# (output, peer) -> images per CPU-second of stoker over the peer's, and the same by wall clock
REQUIRED_CPU: Required = {
    ("uint8", "torch-tuned"): 2.7,
    ("uint8", "dali"): 2.6,
    ("uint8", "tf.data"): 1.75,
    ("float32", "torch-tuned"): 2.7,
    ("float32", "torch-pil"): 4.5,
    ("float32", "dali"): 2.6,
    ("float32", "tf.data"): 1.75,
}
# (output, row of stoker, peer) -> the same of that row
REQUIRED_LATER = {
    ("uint8", SECOND, INDEX): 0.9,
    ("uint8", KNOWN, "torch-tuned"): 3.9,
    ("uint8", KNOWN, "dali"): 3.9,
    ("uint8", KNOWN, "tf.data"): 2.4,
}
REQUIRED_WALL = {("uint8", "tf.data"): 1.0}
REQUIRED_PSS_MIB = 200.0


@dataclass
class Row:
    """One line of the table: a peer with its settings, and what its runs measured, a value a round."""

    output: str
    peer: str
    workers: int = 2
    per_cpu: list[float] = field(default_factory=list)
    per_wall: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    first_cpu: list[float] = field(default_factory=list)
    pss: list[float] = field(default_factory=list)
    disturbed: list[float] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def name(self) -> str:
        return f"{self.peer} ({self.workers} workers)" if KINDS[self.peer].tries else self.peer

    def add(self, run: rig.Run) -> None:
        begin, end = run.marks["start"], run.marks["stop"]
        self.per_cpu.append(end["samples"] / (end["cpu"] - begin["cpu"]))
        self.per_wall.append(end["samples"] / (end["wall"] - begin["wall"]))
        self.first.append(begin["first_batch"])
        self.first_cpu.append(begin["first_cpu"])
        self.pss.append(run.memory["pss"])
        self.disturbed.append(run.disturbed)
        self.about = {k: begin[k] for k in ("resampling", "layout", "versions", "settings", "in_flight")}


class Comparison:
    """Rows, and rounds in which they take turns. usual: the peers of each output. trial: samples, at least, of a run
    that chooses the number of workers. bench.augment has its own of both."""

    usual: Mapping[str, tuple[str, ...]] = USUAL
    trial = 1024

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.cpus = [int(c) for c in args.cpus.split(",")] if args.cpus else rig.first_cpus(2)
        self.tree = pictures.build(args.data, args.samples, args.batch)
        self.log: list[dict[str, Any]] = []
        self.document: dict[str, Any] = {
            "question": "the same photographs through stoker and its peers",
            "machine": rig.machine(self.cpus),
            "settings": rig.settings(args),
            "data": {
                "pictures": self.tree.pictures,
                "samples": self.tree.samples,
                "mean_bytes": self.tree.mean_bytes,
                "row_type": "P0, untouched files",
            },
        }

    def command(self, peer: str, output: str, workers: int, data: Path, samples: int) -> list[str | Path]:
        kind = KINDS[peer]
        python = rig.python_of(kind.venv) if kind.venv else Path(sys.executable)
        return [
            *(python, "-m", f"bench.peers.{kind.module}", *kind.extra),
            *("--data", data, "--output", output, "--workers", str(workers), "--threads", str(len(self.cpus))),
            *("--samples", str(samples), "--batch", str(self.args.batch), "--seed", str(len(self.log))),
        ]

    def measure(self, row: Row, samples: int, phase: str) -> rig.Run | None:
        """One run, again where others used the processors meanwhile; the least disturbed one counts."""
        best: rig.Run | None = None
        for _ in range(1 + self.args.retries):
            self.tree.warm()
            try:
                run = rig.run(
                    self.command(row.peer, row.output, row.workers, self.tree.root, samples), self.cpus, row.peer
                )
            except rig.PeerError as e:
                row.problem = str(e)
                rig.say(f"{row.name}: {e}")
                return None
            if "skip" in run.marks:
                row.problem = run.marks["skip"]["reason"]
                rig.say(f"{row.name}: skipped: {row.problem}")
                return None
            self.record(row, run, phase)
            if best is None or run.disturbed < best.disturbed:
                best = run
            if run.disturbed <= rig.QUIET:
                break
        return best

    def record(self, row: Row, run: rig.Run, phase: str) -> None:
        begin, end = run.marks["start"], run.marks["stop"]
        cpu, wall = end["cpu"] - begin["cpu"], end["wall"] - begin["wall"]
        self.log.append(
            {
                **{"phase": phase, "output": row.output, "peer": row.peer, "workers": row.workers},
                **{"marks": run.marks, "memory": run.memory, "foreign": run.foreign, "steal": run.steal},
                **{"cpu_cgroup": run.cpu_cgroup, "cpu_rusage": run.cpu_rusage, "left_behind": run.left_behind},
            }
        )
        rig.say(
            f"{phase:8} {row.output:8} {row.name:24} {end['samples'] / cpu:7.0f}/CPU-s {end['samples'] / wall:7.0f}/s"
            f"  {run.memory['pss']:6.0f} MiB  others {100 * run.foreign:.1f} %  steal {100 * run.steal:.1f} %"
        )
        if rig.books_differ(run):
            rig.say(f"  CPU outside the cgroup: {run.cpu_rusage:.2f} s ended, {run.cpu_cgroup:.2f} s counted")
        if run.left_behind:
            rig.say(f"  left behind and ended: {'; '.join(run.left_behind)}")

    def check_crops(self, peers: Sequence[str]) -> None:
        tree, sizes = crops.make(self.args.data.resolve(), rig.python_of(".venv"), self.args.batch)
        areas, ratios = crops.expected(sizes)
        self.document["crops"] = {}
        for peer in peers:
            if peer == BOUND:
                continue
            command = self.command(peer, "uint8", 2, tree.root, crops.SAMPLES)
            try:
                run = rig.run([*command, "--ramps"], self.cpus, peer)
            except rig.PeerError as e:
                rig.say(f"crops    {peer}: {e}")
                continue
            found = self.document["crops"][peer] = crops.judge(run.marks["crops"], areas, ratios)
            rig.say(
                f"crops    {peer:24} mean area {found['mean_area']:.4f} of {found['expected_mean_area']:.4f}, distance "
                f"{found['ks_area']:.3f} and {found['ks_ratio']:.3f} of {found['limit']:.3f}, flipped "
                f"{found['flipped']:.3f}: {'equal' if found['equal'] else 'DIFFERENT'}"
            )

    def choose_workers(self, row: Row) -> list[Row]:
        """The best of 1, 2, 3 by CPU and by wall clock: one row, or two where they differ by more than noise."""
        found: dict[int, tuple[float, float]] = {}
        for workers in KINDS[row.peer].tries:
            trial = Row(row.output, row.peer, workers)
            run = self.measure(trial, max(self.args.samples // 4, self.trial), "choose")
            if run is not None:
                trial.add(run)
                found[workers] = (trial.per_cpu[0], trial.per_wall[0])
            else:
                row.problem = trial.problem
        if not found:
            return [row]
        frugal = max(found, key=lambda w: (found[w][0] >= 0.98 * max(f[0] for f in found.values()), found[w][1]))
        fast = max(found, key=lambda w: found[w][1])
        if found[frugal][1] >= 0.97 * found[fast][1]:
            fast = frugal
        return [Row(row.output, row.peer, w) for w in sorted({frugal, fast})]

    def run(self) -> list[Row]:
        named = tuple(filter(None, self.args.peers.split(",")))
        wanted = [(output, peer) for output in self.args.rows.split(",") for peer in named or self.usual[output]]
        rows = []
        for output, peer in wanted:
            venv = KINDS[peer].venv
            if venv and not rig.python_of(venv).exists():
                rig.say(f"{peer}: skipped: no {venv}; bench/setup.py makes it")
            else:
                rows.append(Row(output, peer))
        if not self.args.no_crops:
            self.check_crops(list(dict.fromkeys(row.peer for row in rows)))
        ready = []
        for row in rows:
            ready += self.choose_workers(row) if KINDS[row.peer].tries else [row]
        self.rounds(ready, self.args.repeats)
        return ready

    def rounds(self, ready: Sequence[Row], wanted: int) -> None:
        """Rounds until so many were quiet in every row; rig.EXTRA more at most. A round that was not does not count."""
        for number in range(wanted + rig.EXTRA):
            going = [row for row in ready if not row.problem]
            if not going or quiet(going) >= wanted:
                break
            turn = number % len(going)
            for row in going[turn:] + going[:turn]:
                run = self.measure(row, self.args.samples, f"round {number + 1}")
                if run is not None:
                    row.add(run)
            self.record_rows(ready)
            self.save()
        drop_loud([row for row in ready if not row.problem], wanted)

    def save(self) -> None:
        rig.save(self.args.out, self.document)

    def more(self, found: dict[str, Any]) -> list[Row]:
        """The rows of an earlier run of the same code, with as many rounds more as it lacks."""
        then, now = found["machine"]["commit"], self.document["machine"]["commit"]
        if not rig.same_code(then, now):
            raise SystemExit(f"{self.args.more}: measured at {then[:9]}, and the code of {now[:9]} is not the same")
        names = Row.__dataclass_fields__
        ready = [Row(**{key: value for key, value in row.items() if key in names}) for row in found["rows"]]
        self.log, self.document["crops"] = found["runs"], found["crops"]
        self.document["machine"] = found["machine"]
        self.rounds(ready, self.args.repeats)
        return ready

    def record_rows(self, rows: Sequence[Row]) -> None:
        self.document["rows"] = [{**row.__dict__, "name": row.name} for row in rows]
        self.document["runs"] = self.log


def loud(rows: Sequence[Row]) -> list[int]:
    """The rounds in which others disturbed a row after all retries."""
    count = min((len(row.disturbed) for row in rows), default=0)
    return [i for i in range(count) if any(row.disturbed[i] > rig.QUIET for row in rows)]


def quiet(rows: Sequence[Row]) -> int:
    return min((len(row.disturbed) for row in rows), default=0) - len(loud(rows))


def drop_loud(rows: Sequence[Row], wanted: int) -> None:
    """Leaves out rounds that were disturbed, if enough are left without them. The log keeps every run."""
    if quiet(rows) < wanted:
        return
    for number in reversed(loud(rows)):
        for row in rows:
            for values in (row.per_cpu, row.per_wall, row.first, row.first_cpu, row.pss, row.disturbed):
                del values[number]


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return rig.middle(a / b for a, b in zip(ours, theirs, strict=False))


def over(rows: Sequence[Row], output: str, own: str) -> dict[str, float]:
    """Images per CPU-second of a row of stoker's over those of each other peer; the least, if a peer has two rows."""
    ready = [row for row in rows if row.output == output and row.per_cpu]
    ours = next((row for row in ready if row.peer == own), None)
    found: dict[str, float] = {}
    for row in ready if ours is not None else ():
        if row is not ours and ours is not None:
            found[row.peer] = min(ratio(ours.per_cpu, row.per_cpu), found.get(row.peer, float("inf")))
    return found


def judge(rows: Sequence[Row], required: Required = REQUIRED_CPU) -> tuple[list[rig.Gate], list[str]]:
    """The figures that must be reached, and what makes a figure of this run unsound."""
    gates, doubts = [], []
    for ours in (row for row in rows if row.peer == STOKER and row.per_cpu):
        peers = [row for row in rows if row.output == ours.output and row.peer != STOKER and row.per_cpu]
        for name in dict.fromkeys(row.peer for row in peers):
            same = [row for row in peers if row.peer == name]
            cpu = min(ratio(ours.per_cpu, row.per_cpu) for row in same)
            wall = min(ratio(ours.per_wall, row.per_wall) for row in same)
            if name == BOUND:
                if cpu > 1.0:
                    doubts.append(f"{ours.output}: stoker at {cpu:.2f} of its own kernel: the measurement is wrong")
                continue
            if (ours.output, name) in required:
                limit = required[ours.output, name]
                gates.append(rig.Gate(f"{ours.output}, images per CPU-second over {name}", cpu, limit, "high", "x"))
            if (ours.output, name) in REQUIRED_WALL:
                limit = REQUIRED_WALL[ours.output, name]
                gates.append(rig.Gate(f"{ours.output}, images per second over {name}", wall, limit, "high", "x"))
        if ours.output == "uint8":
            memory = rig.middle(ours.pss)
            gates.append(rig.Gate("memory of engine and client (PSS)", memory, REQUIRED_PSS_MIB, "low", " MiB"))
    for (output, later, name), limit in REQUIRED_LATER.items():
        found = over(rows, output, later)
        if name in found:
            gates.append(
                rig.Gate(f"{output}, {later}: images per CPU-second over {name}", found[name], limit, "high", "x")
            )
    for row in rows:
        if row.problem:
            doubts.append(f"{row.output} {row.name}: {row.problem.splitlines()[0]}")
    return gates, doubts


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """What the docs may cite: of each row its medians, and stoker over it."""
    found = {}
    for ours in (row for row in rows if row.peer == STOKER and row.per_cpu):
        for row in (row for row in rows if row.output == ours.output and row.per_cpu):
            name = f"{row.output} {row.name}"
            found[f"{name}, per CPU-second"] = rig.middle(row.per_cpu)
            found[f"{name}, per second"] = rig.middle(row.per_wall)
            found[f"{name}, first batch s"] = rig.middle(row.first)
            found[f"{name}, PSS MiB"] = rig.middle(row.pss)
            if row is not ours:
                found[f"{row.output} over {row.name}, CPU"] = ratio(ours.per_cpu, row.per_cpu)
                found[f"{row.output} over {row.name}, wall"] = ratio(ours.per_wall, row.per_wall)
    for output in dict.fromkeys(row.output for row in rows):
        for later in (SECOND, KNOWN):
            found |= {f"{output} {later} over {name}, CPU": value for name, value in over(rows, output, later).items()}
    return found


def render(rows: Sequence[Row], output: str, required: Required = REQUIRED_CPU) -> str:
    ours = next((row for row in rows if row.output == output and row.peer == STOKER and row.per_cpu), None)
    lines = []
    for row in rows:
        if row.output != output or not row.per_cpu:
            continue
        against = ["", "", "", ""]
        if ours is not None and row is not ours:
            against[0] = f"{ratio(ours.per_cpu, row.per_cpu):.2f}"
            against[1] = _needed(required.get((output, row.peer)))
            against[2] = f"{ratio(ours.per_wall, row.per_wall):.2f}"
            against[3] = _needed(REQUIRED_WALL.get((output, row.peer)))
        lines.append(
            [
                *(row.name, row.about["resampling"], f"{output} {row.about['layout']}"),
                *(f"{rig.middle(row.per_cpu):.0f}", f"{min(row.per_cpu):.0f}-{max(row.per_cpu):.0f}"),
                *(f"{rig.middle(row.per_wall):.0f}", f"{rig.middle(row.first):.2f}"),
                *(f"{rig.middle(row.first_cpu):.2f}", f"{rig.middle(row.pss):.0f}", *against),
            ]
        )
    head = ["peer", "resampling", "output", "img/CPU-s", "range", "img/s", "first s", "first CPU-s", "PSS MiB"]
    return rig.table([*head, "x CPU", "must", "x wall", "must"], lines)


def _needed(limit: float | None) -> str:
    return "" if limit is None else f">={limit:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs, with or without class folders")
    parser.add_argument("--out", type=Path, default=rig.ROOT / "bench" / "results" / "compare.json")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--samples", type=int, default=20000, help="measured samples a run (default 20000)")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rows", default="uint8,float32", help="outputs: uint8, float32 or both")
    parser.add_argument("--peers", default="", help="names, for every output: " + ", ".join(KINDS))
    parser.add_argument("--cpus", default="", help="processors everything runs on (default: the first two allowed)")
    parser.add_argument("--retries", type=int, default=2, help="of a run in which others used the processors")
    parser.add_argument("--more", type=Path, help="a result of the same code: measure only the rounds that it lacks")
    parser.add_argument("--no-crops", action="store_true", help="skip the check that all draw equal crops")
    args = parser.parse_args()
    unknown = [p for p in args.peers.split(",") if p and p not in KINDS]
    unknown += [o for o in args.rows.split(",") if o not in USUAL]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not known; peers are {', '.join(KINDS)}; rows are {', '.join(USUAL)}")
    rig.may_write(args.out)
    meter.become_subreaper()
    comparison = Comparison(args)
    rows = comparison.more(json.loads(args.more.read_text())) if args.more else comparison.run()
    gates, doubts = judge(rows)
    comparison.record_rows(rows)
    tree = comparison.tree
    print(
        f"{tree.pictures} photographs of {tree.mean_bytes / 1000:.0f} kB, RandomResizedCrop(224) and flip, "
        f"batch {args.batch}, processors {comparison.cpus}, {args.samples} samples, medians of {args.repeats}; "
        "'x': stoker over the peer"
    )
    for output in args.rows.split(","):
        print(f"\n{render(rows, output)}")
    disturbed = (share for row in rows for share in row.disturbed)
    return rig.finish(args.out, comparison.document, gates, doubts, figures(rows), disturbed)


if __name__ == "__main__":
    raise SystemExit(main())

"""Formats in place and packed, against the tools that they come from: python -m bench.formats --data FOLDER.

Several questions, one after the other: pictures (packed by stoker, against stoker untouched, tf.data, Streaming,
WebDataset and FFCV), records (TFRecord, HDF5, LMDB), windows of tokens (bench.tokens), packing against jpegtran, and
opening many shards. Within a question peers take turns, the order moves by one each round, and a ratio is the median of
the rounds' ratios; it is of samples per CPU-second over all processes, or of samples per second where a figure says so.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import compare, meter, pictures, rig

# (stoker's row, the peer's row, samples per CPU-second of the first over the second)
PICTURES = (
    ("stoker-index", "stoker", 1.2),
    ("stoker-index", "tf.data", 2.2),
    ("stoker-index", "streaming", 2.1),
    ("stoker-index", "webdataset", 2.1),
    ("stoker-512", "ffcv-512", 1.3),
    ("stoker-decoded256", "ffcv-raw256", 1.3),
)


@dataclass(frozen=True)
class Stored:
    """A format of bench.stored: whose environment writes it, who reads it, and what must be reached over the best of
    them. measure: "cpu" or "wall"."""

    venv: str
    peers: dict[str, tuple[str, ...]]
    measure: str
    limit: float


def _torch(name: str, over: str) -> dict[str, tuple[str, ...]]:
    """A DataLoader with each number of workers; stoker is held against the best of them."""
    return {
        f"DataLoader over {over}, {workers} workers": ("stored_torch", "--format", name, "--workers", str(workers))
        for workers in (0, 1, 2)
    }


STORED = {
    "tfrecord": Stored(".venv-bench/tf", {"tf.data": ("stored_tf",)}, "cpu", 1.0),
    "hdf5": Stored(".venv-bench/shards", _torch("hdf5", "h5py"), "wall", 2.0),
    "lmdb": Stored(".venv-bench/shards", _torch("lmdb", "lmdb"), "wall", 3.0),
}
PACK_RATE, PACK_MIB = 0.9, 256.0
SHARDS, SHARD_SAMPLES, OPEN_S = 1000, 1000, 0.3


class Formats:
    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.cpus = rig.first_cpus(2)
        # Of the question that is being asked:
        self.gates: list[rig.Gate] = []
        self.figures: dict[str, float] = {}
        self.disturbed: list[float] = []
        self.rows: list[list[str]] = []
        self.document: dict[str, Any] = {"question": "formats in place and packed, against the tools they come from"}
        if args.only and args.out.exists():
            self.document = json.loads(args.out.read_text())

    def ask(self, question: str, measure: Callable[[], Any]) -> None:
        """Answers to other questions that are in the file stay what they are."""
        self.gates, self.figures, self.disturbed = [], {}, []
        settings = rig.settings(self.args)
        answer: dict[str, Any] = {"machine": rig.machine(self.cpus), "settings": settings}
        doubts = []
        try:
            answer["runs"] = measure()
        except rig.PeerError as e:
            rig.say(f"{question}: not measured: {e}")
            doubts.append(f"{question}: not measured: {str(e).splitlines()[0]}")
        rig.conclude(answer, self.gates, doubts, self.figures, self.disturbed)
        self.document[question] = answer
        rig.save(self.args.out, self.document)

    def photographs(self) -> Any:
        names = list(dict.fromkeys(name for ours, peer, _ in PICTURES for name in (ours, peer)))
        options = argparse.Namespace(
            **{"data": self.args.data, "samples": self.args.samples, "batch": 64, "peers": ",".join(names)},
            **{"rows": "uint8", "repeats": self.args.repeats, "retries": self.args.retries, "cpus": ""},
            **{"no_crops": True, "out": self.args.out.with_suffix(".pictures")},
        )
        comparison = compare.Comparison(options)
        found = comparison.run()
        options.out.unlink()
        for ours, peer, limit in PICTURES:
            for own in (row for row in found if row.peer == ours and row.per_cpu):
                theirs = [row for row in found if row.peer == peer and row.per_cpu]
                if theirs:
                    ratio = min(compare.ratio(own.per_cpu, row.per_cpu) for row in theirs)
                    what = f"pictures, {ours} over {peer}, per CPU-second"
                    self.gates.append(rig.Gate(what, ratio, limit, "high", "x"))
                    self.figures[f"{ours} over {peer}, CPU"] = ratio
        for row in found:
            self.disturbed += row.disturbed
            if row.per_cpu:
                self.add("pictures", row.name, row.per_cpu, row.per_wall)
        return {"rows": [row.__dict__ for row in found], "all": comparison.log}

    def add(self, question: str, name: str, per_cpu: Sequence[float], per_wall: Sequence[float]) -> None:
        spread = f"{min(per_cpu):.0f}-{max(per_cpu):.0f}"
        self.rows.append([question, name, f"{rig.middle(per_cpu):.0f}", spread, f"{rig.middle(per_wall):.0f}"])

    def turns(self, question: str, commands: dict[str, list[str | Path]]) -> dict[str, list[dict[str, Any]]]:
        """Runs each command once a round; what each measured, a value a round."""

        def turn(number: int) -> tuple[dict[str, dict[str, Any]], float]:
            names = list(commands)
            at = number % len(names)
            round_of: dict[str, dict[str, Any]] = {}
            for name in names[at:] + names[:at]:
                one = rig.quietest(commands[name], self.cpus, question, self.args.retries)
                begin, end = one.marks["start"], one.marks["stop"]
                found = round_of[name] = {
                    **{"per_cpu": end["samples"] / (end["cpu"] - begin["cpu"]), "marks": one.marks},
                    **{"per_wall": end["samples"] / (end["wall"] - begin["wall"]), "pss": one.memory["pss"]},
                    **{"disturbed": one.disturbed, "left_behind": one.left_behind},
                }
                rig.say(
                    f"round {number + 1}  {question:9} {name:22} {found['per_cpu']:8.0f}/CPU-s"
                    f" {found['per_wall']:8.0f}/s  others {100 * one.disturbed:.0f} %"
                )
            return round_of, max(found["disturbed"] for found in round_of.values())

        kept = rig.rounds(self.args.repeats, turn)
        runs = {name: [round_of[name] for round_of in kept] for name in commands}
        self.disturbed += [one["disturbed"] for own in runs.values() for one in own]
        for name, own in runs.items():
            self.add(question, name, *([one[key] for one in own] for key in ("per_cpu", "per_wall")))
        return runs

    def stored(self, name: str) -> Any:
        one = STORED[name]
        writer, tree = rig.python_of(one.venv), self.tree()
        rig.run([writer, "-m", "bench.stored", name, "--data", tree.root], self.cpus, "make")
        folder = tree.root.parent / name
        subprocess.run(
            ["find", str(folder), "-type", "f", "-exec", "cat", "{}", "+"], stdout=subprocess.DEVNULL, check=True
        )
        tail = ["--data", folder, "--batches", str(self.args.batches)]
        ours = [rig.python_of(".venv"), "-m", "bench.peers.stored_stoker", "--format", name, *tail]
        peers = {
            peer: [writer, "-m", f"bench.peers.{module}", *extra, *tail] for peer, (module, *extra) in one.peers.items()
        }
        runs = self.turns(name, {"stoker": ours, **peers})
        best = min(one.peers, key=lambda peer: self.over(runs, "stoker", peer, one.measure))
        for measure in ("cpu", "wall"):
            self.figures[f"per second, {measure}"] = rig.middle(run[f"per_{measure}"] for run in runs["stoker"])
            self.figures[f"over the best, {measure}"] = min(self.over(runs, "stoker", p, measure) for p in one.peers)
        self.judge(name, runs, "stoker", best, one.measure, one.limit)
        for peer in one.peers:
            for measure in ("cpu", "wall"):
                self.figures[f"over {peer}, {measure}"] = self.over(runs, "stoker", peer, measure)
        return runs

    @staticmethod
    def over(runs: dict[str, Any], ours: str, peer: str, measure: str) -> float:
        return compare.ratio(*([one[f"per_{measure}"] for one in runs[name]] for name in (ours, peer)))

    def judge(self, question: str, runs: dict[str, Any], ours: str, peer: str, measure: str, limit: float) -> None:
        unit = "per CPU-second" if measure == "cpu" else "per second"
        ratio = self.over(runs, ours, peer, measure)
        self.gates.append(rig.Gate(f"{question}, {ours} over {peer}, {unit}", ratio, limit, "high", "x"))

    def tree(self) -> pictures.Tree:
        return pictures.build(self.args.data, self.args.samples, 64)

    def tokens(self) -> Any:
        """bench.tokens, which has its own table."""
        out = self.args.out.with_suffix(".tokens")
        command = [sys.executable, "-m", "bench.tokens", "--out", out, "--repeats", str(self.args.repeats)]
        # Its status says whether its own figures were reached, which is said here again.
        subprocess.run([*command, "--retries", str(self.args.retries)], cwd=rig.ROOT, check=False)
        found = json.loads(out.read_text())
        out.unlink()
        self.gates += map(rig.Gate.from_dict, found["gates"])
        self.figures = found["figures"]
        self.disturbed.append(found["disturbed"]["most"])
        return found["runs"]

    def pack(self) -> Any:
        command = [rig.python_of(".venv"), "-m", "bench.peers.transcode", "--data", self.tree().root]
        commands = {"stoker pack": command, "jpegtran": [*command, "--jpegtran"]}
        commands["jpegtran, start-up"] = [*command, "--jpegtran", "--start-up"]
        runs = self.turns("pack", commands)
        # What jpegtran's processes cost without a picture worth the name is not its work.
        for whole, start in zip(runs["jpegtran"], runs["jpegtran, start-up"], strict=True):
            whole["per_cpu_alone"] = 1 / (1 / whole["per_cpu"] - 1 / start["per_cpu"])
        ours = [one["per_cpu"] for one in runs["stoker pack"]]
        ratio = compare.ratio(ours, [one["per_cpu_alone"] for one in runs["jpegtran"]])
        what = "pack --jpeg index, stoker pack over jpegtran without its start-up, per CPU-second"
        self.gates.append(rig.Gate(what, ratio, PACK_RATE, "high", "x"))
        self.figures["over jpegtran without start-up, CPU"] = ratio
        self.figures["over jpegtran, CPU"] = self.over(runs, "stoker pack", "jpegtran", "cpu")
        self.figures["pictures per CPU-second"] = rig.middle(ours)
        marks = [one["marks"]["stop"] for one in runs["stoker pack"]]
        peak = max(mark["peak_mib"] for mark in marks)
        self.gates.append(rig.Gate("pack --jpeg index, peak memory", peak, PACK_MIB, "low", " MiB"))
        self.figures["peak MiB"] = peak
        growth = 100 * (marks[0]["written"] / marks[0]["bytes"] - 1)
        rig.say(f"packed bytes, tar and labels among them: {growth:+.2f} %")
        return runs

    def shards(self) -> Any:
        folder = _shards()
        command = [rig.python_of(".venv"), "-m", "bench.peers.open_shards", "--data", folder]
        runs = []
        for number in range(2 * self.args.repeats + 1):
            run = rig.run(command, self.cpus, "open-shards")
            mark = run.marks["stop"]
            if mark["samples"] != SHARDS * SHARD_SAMPLES:
                raise SystemExit(f"{mark['samples']} samples in {SHARDS} shards of {SHARD_SAMPLES}")
            # The first builds the index, or finds it stale.
            if number > 0:
                runs.append(mark)
                self.disturbed.append(run.disturbed)
            rig.say(f"opening {SHARDS} shards: {mark['seconds']:.3f} s, {mark['cpu_seconds']:.3f} s of CPU")
        seconds = rig.middle(mark["seconds"] for mark in runs)
        self.figures["opening, s"] = seconds
        self.gates.append(rig.Gate(f"opening {SHARDS} indexed shards of {SHARD_SAMPLES}", seconds, OPEN_S, "low", " s"))
        return runs


def _shards() -> Path:
    """Written once: one shard of small samples, under a thousand names."""
    folder = pictures.cache_dir() / f"shards-{SHARDS}-{SHARD_SAMPLES}"
    if (folder / "complete").exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with tarfile.open(folder / "000000.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(SHARD_SAMPLES):
            for extension, body in (("txt", b"a sample\n"), ("cls", b"%d" % (number % 10))):
                info = tarfile.TarInfo(f"{number:06d}.{extension}")
                info.size = len(body)
                tar.addfile(info, io.BytesIO(body))
    for number in range(1, SHARDS):
        os.link(folder / "000000.tar", folder / f"{number:06d}.tar")
    (folder / "complete").touch()
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.formats", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs, with or without class folders")
    parser.add_argument("--out", type=Path, default=rig.ROOT / "bench" / "results" / "formats.json")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--samples", type=int, default=20000, help="pictures a run (default 20000)")
    parser.add_argument("--batches", type=int, default=600, help="of 64 records a run (default 600)")
    parser.add_argument("--retries", type=int, default=2, help="of a run in which others used the processors")
    parser.add_argument(
        "--only", default="", help="these questions anew, of: pictures,tfrecord,hdf5,lmdb,tokens,pack,shards"
    )
    args = parser.parse_args()
    rig.may_write(args.out)
    meter.become_subreaper()
    formats = Formats(args)
    questions: dict[str, Callable[[], Any]] = {"pictures": formats.photographs}
    questions.update({name: lambda name=name: formats.stored(name) for name in STORED})  # type: ignore[misc]
    questions.update(tokens=formats.tokens, pack=formats.pack, shards=formats.shards)
    chosen = args.only.split(",") if args.only else list(questions)
    if unknown := [name for name in chosen if name not in questions]:
        parser.error(f"{', '.join(unknown)}: not known; the questions are {', '.join(questions)}")
    for name in chosen:
        formats.ask(name, questions[name])
    print(rig.table(["question", "peer", "per CPU-s", "range", "per s"], formats.rows))
    status = rig.report(*(formats.document[name] for name in chosen))
    print(f"\nraw runs: {args.out}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())

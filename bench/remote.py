"""Data in an object store, through a slow link: python -m bench.remote --data folder-of-jpegs (make bench-remote).

versitygw keeps the data, slownet before it is the link: 20 ms to the first byte, 90 MB/s a connection, 250 MB/s in all.
Both run on the processors that the loaders do not have (beside them on a machine of two: `servers_apart` says which),
and are not counted. Questions are asked one after the other; in each, peers take turns, and a ratio is the median of
the rounds' ratios. Peers run with the numbers of workers that were best in short trials, by what is asked: wall clock,
processor time, or both. Trials of more workers end where they are worse by both. A peer whose trial is far slower than
the best of its kind (SLOWER) is not the best, and takes no further part; one that does not run is listed with what it
said.

What is compared is like with like: passes after the first with passes after the first; for peers that keep files on a
disk, which have only a first pass over the link, whole first passes, from nothing to the last batch. A run ends after
some seconds, and what is measured ends with its last whole pass, if there were two after the first; where the first
pass takes most of these seconds, the last three quarters of the time are measured.

Hedging is asked with a training step of a fixed time: a loop that takes all that the link has waits for the link,
whether answers are late or not. STEP asks for a bit more than half of what the link has. What is read ahead is fixed,
too (AHEAD): with all the memory that stoker would take, hundreds of megabytes, even a second is bridged without a
second request, and there is nothing to compare. The waits with stoker's own choice are kept beside them.

The last question is of local storage, a folder shown by slowfs on which each read takes 10 ms: as many readers as pay,
against 16.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import far, link, meter, rig

KEEPS = ("streaming", "litdata")  # files on a disk: their second pass does not use the link
WORKERS = (1, 2, 4, 8)
PASSES = 8
SECONDS = {"tar": 14.0, "full": 14.0, "files": 14.0, "images": 20.0}  # that a run takes at most
TRIAL_S = {"tar": 7.0, "files": 9.0, "images": 10.0}
SLOWER = 0.7  # of the best trial of the same kind
BY = {"tar": ("rate", "cpu"), "files": ("rate",), "images": ("cpu_image",)}  # what the number of workers is chosen by
ALWAYS = {"tar": ("streaming", "s3torch")}  # peers that a figure names
STEP, AHEAD = 0.05, "32MB"
ROWS: dict[str, tuple[str, ...]] = {
    "tar": (
        *("webdataset-s5cmd", "streaming", "s3torch-sequential", "s3torch-range", "s3fs", "rclone", "mountpoint"),
        *("litdata", "webdataset-aws"),
    ),
    "files": ("s3torch-sequential", "s3torch-range", "s3fs"),
    "images": ("webdataset-s5cmd", "streaming", "s3torch-sequential", "s3torch-range", "s3fs", "litdata"),
}
# (the peers of which the best counts, stoker's wall clock over it at least)
WALL: tuple[tuple[str, tuple[str, ...], tuple[str, ...], float], ...] = (
    ("WebDataset, Streaming, LitData, s3fs", ("tar",), ("webdataset", "streaming", "litdata", "s3fs"), 1.5),
    ("s3torchconnector, rclone", ("tar",), ("s3torch", "rclone", "mountpoint"), 0.95),
    ("s3torchconnector (map), s3fs", ("files",), ("s3torch", "s3fs"), 2.0),
)
REQUESTS = 400  # a second, where they are limited
FREE_S, SETTLE_S, LIMITED_S, LIFTED_S = 9.0, 5.0, 15.0, 22.0
SLOW, SLOW_FILES, SLOW_BYTES = "10ms", 24_000, 4096


@dataclass
class Row:
    """A loader with its settings, and what its runs measured, a value a round."""

    row: str
    peer: str
    workers: int
    runs: list[dict[str, Any]] = field(default_factory=list)
    problem: str = ""
    trial: dict[str, Any] = field(default_factory=dict)
    slower: bool = False  # its trial was far from the best

    @property
    def name(self) -> str:
        return f"{self.peer}, {self.workers} workers" if self.peer != "stoker" else self.peer

    def values(self, key: str) -> list[float]:
        return [run[key] for run in self.runs]


def measured(run: rig.Run, counts: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Rates and costs of a run: of its first pass, and of the later ones, if there was time for them; if not, of the
    last three quarters of the time."""
    start, stop = run.marks["start"], run.marks["stop"]
    passes = stop["passes"]
    # A run ends in the middle of a pass. By then more was read than given, or less, than at the end of the first pass,
    # so whole passes are measured if there were two.
    first, last = passes[0], passes[-2 if len(passes) > 3 else -1]
    begun = first if last["wall"] - first["wall"] > seconds / 2 or not stop["settled"] else stop["settled"]
    out: dict[str, Any] = {
        "first_batch": start["first"],
        "first_cpu": start["cpu"] - stop["cpu_begin"],
        **_over({"wall": stop["begin"], "cpu": stop["cpu_begin"], "bytes": 0, "samples": 0}, first, "first_"),
        "disturbed": run.disturbed,
        "pss": run.memory.get("pss", 0.0),
        "left_behind": run.left_behind,
        "delivered": passes[-1]["bytes"],
        "counts": counts,
        "versions": stop["about"]["versions"],
        "twice": sum(one["bytes_twice"] for one in stop["about"].get("sources", {}).values()),
    }
    out |= _over(begun, last, "later_") if last["bytes"] > begun["bytes"] else {}
    waits = sorted(stop["waits"])
    if waits:
        out["wait_p50"], out["wait_p99"] = (waits[int(share * (len(waits) - 1))] for share in (0.5, 0.99))
    return out


def _over(begin: dict[str, float], end: dict[str, float], name: str) -> dict[str, float]:
    wall, cpu, size = (end[key] - begin[key] for key in ("wall", "cpu", "bytes"))
    return {
        f"{name}rate": size / wall,
        f"{name}cpu": 1e9 * cpu / max(size, 1),
        f"{name}cpu_image": 1e6 * cpu / max(end["samples"] - begin["samples"], 1),
    }


def common(ours: Row, theirs: Row, key: str) -> float:
    """The median ratio over rounds: of later passes if the peer has them, else of first passes."""
    when = "later_" if all(f"later_{key}" in run for run in theirs.runs) else "first_"
    pairs = zip(ours.values(when + key), theirs.values(when + key), strict=False)
    return rig.middle(a / b for a, b in pairs)


class Remote:
    def __init__(self, args: argparse.Namespace, folder: Path, stack: contextlib.ExitStack) -> None:
        self.args = args
        self.cpus = rig.first_cpus(2)
        self.scratch = folder
        home = far.store(args.data)
        objects = home / link.BUCKET
        self.shards = len(list((objects / "tar").glob("*.tar")))
        self.listing = folder / "listing"
        names = sorted(path.relative_to(objects).as_posix() for path in (objects / "files").rglob("*.jpg"))
        self.listing.write_text("\n".join(names))
        self.indexed = sum(p.stat().st_size for kind in ("tar", "more") for p in (objects / kind).glob("*.tar"))
        self.large = sum(path.stat().st_size for path in (objects / "large").glob("*.tar"))
        self.store = stack.enter_context(link.Store(home, link.spare_cpus(self.cpus)))
        self.plain = stack.enter_context(link.Link(self.store))
        self.tls = stack.enter_context(link.Link(self.store, link.certificate(folder)))
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        self.lines: list[list[str]] = []
        # Of the question that is being asked:
        self.gates: list[rig.Gate] = []
        self.figures: dict[str, float] = {}
        self.disturbed: list[float] = []
        self.doubts: list[str] = []
        self.answers: dict[str, Any] = {}
        self.document: dict[str, Any] = {"question": "data in an object store, through a slow link"}
        if args.only and args.out.exists():
            self.document = json.loads(args.out.read_text())

    def ask(self, question: str, measure: Callable[[Remote], None]) -> None:
        """Answers to other questions that are in the file stay what they are."""
        self.gates, self.figures, self.disturbed, self.doubts, self.answers = [], {}, [], [], {}
        answer: dict[str, Any] = {
            "machine": rig.machine(self.cpus),
            "settings": rig.settings(self.args),
            "link": {"latency": link.LATENCY, "connection": link.CONNECTION, "total": link.TOTAL},
            "servers_apart": not set(self.store.cpus) & set(self.cpus),
            "answers": self.answers,
        }
        try:
            measure(self)
        except rig.PeerError as e:
            rig.say(f"{question}: not measured: {e}")
            self.doubts.append(f"{question}: not measured: {str(e).splitlines()[0]}")
        rig.conclude(answer, self.gates, self.doubts, self.figures, self.disturbed)
        self.document[question] = answer
        rig.save(self.args.out, self.document)

    def gate(self, what: str, value: float | None, limit: float, better: str, unit: str = "") -> None:
        self.gates.append(rig.Gate(what, value, limit, better, unit))
        if value is not None:
            self.figures[what] = value

    def run(
        self,
        row: Row,
        *more: str,
        passes: int = PASSES,
        seconds: float = 0.0,
        on: link.Link | None = None,
        rules: Sequence[str] = (),
    ) -> dict[str, Any]:
        """The least disturbed of a few runs; the first one that is quiet ends the search."""
        on = on or self.plain
        best: dict[str, Any] = {}
        for _ in range(1 + self.args.retries):
            on.restore()
            on.rules(*rules)
            found = self._once(row, *more, passes=passes, seconds=seconds or SECONDS[row.row], on=on)
            if not best or found["disturbed"] < best["disturbed"]:
                best = found
            if best["disturbed"] <= rig.QUIET:
                break
        self.disturbed.append(best["disturbed"])
        return best

    def _once(self, row: Row, *more: str, passes: int, seconds: float, on: link.Link) -> dict[str, Any]:
        on.adopt()
        command: list[Any] = [rig.python_of(".venv" if row.peer == "stoker" else far.VENV), "-m"]
        if row.peer == "stoker":
            command += ["bench.peers.remote_stoker"]
        else:
            command += ["bench.peers.remote_torch", row.peer, "--listing", self.listing]
        passes, seconds = (1, 0.0) if row.peer in KEEPS or passes == 1 else (passes, seconds)
        command += ["--row", row.row, "--passes", passes, "--seconds", seconds, "--workers", row.workers]
        run = rig.run([*map(str, command), "--shards", str(self.shards), *more], self.cpus, row.peer, self._servers(on))
        found = measured(run, on.counts(), seconds)
        when = "later_" if "later_rate" in found else "first_"
        rig.say(
            f"{row.row:7} {row.name:28} {found[when + 'rate'] / 1e6:6.1f} MB/s {found[when + 'cpu']:6.2f} CPU-s/GB  "
            f"first {found['first_batch']:.2f} s  others {100 * run.disturbed:.1f} %"
        )
        return found

    def _servers(self, on: link.Link) -> tuple[int, ...]:
        return self.store.process.pid, on.process.pid

    def try_run(self, row: Row, *more: str, seconds: float = 0.0, on: link.Link | None = None) -> bool:
        try:
            row.runs.append(self.run(row, *more, seconds=seconds, on=on))
            return True
        except rig.PeerError as e:
            row.problem = "\n".join(str(e).strip().splitlines()[-6:])
            rig.say(f"{row.row} {row.name}: {row.problem}")
            return False

    def best(self, row: str, peer: str) -> list[Row]:
        """The numbers of workers that are best by what is asked, each with its trial."""
        tried: list[tuple[Row, dict[str, float]]] = []  # what is better is less
        for workers in (2,) if self.args.short else WORKERS:
            one = Row(row, peer, workers)
            if not self.try_run(one, seconds=TRIAL_S[row]):
                if not tried:
                    return [one]
                break
            run = one.trial = one.runs.pop()
            when = "later_" if "later_rate" in run else "first_"
            now = {"rate": -run[when + "rate"], **{key: run[when + key] for key in ("cpu", "cpu_image")}}
            both = ("rate", BY[row][-1])
            worse = bool(tried) and all(now[key] > min(values[key] for _, values in tried) for key in both)
            tried.append((one, now))
            if worse:
                break
        chosen = {min(tried, key=lambda t: t[1][key])[0].workers: key for key in BY[row]}
        return [one for one, _ in tried if one.workers in chosen]

    def kept(self, row: str, rows: list[Row]) -> list[Row]:
        """Those that may be the best. A first pass is compared with others only."""
        key = BY[row][0]

        def value(one: Row) -> float:
            when = "first_" if one.peer in KEEPS else "later_"
            found: float = one.trial[when + key]
            return found if key == "rate" else 1 / found

        for one in rows:
            like = [r for r in rows if r.trial and (r.peer in KEEPS) == (one.peer in KEEPS)]
            named = one.peer.startswith(ALWAYS.get(row, ()))
            one.slower = bool(one.trial) and not named and value(one) < SLOWER * max(map(value, like))
        return [one for one in rows if one.trial and not one.slower]

    def throughput(self, row: str) -> list[Row]:
        """stoker and its peers over one layout."""
        ours = Row(row, "stoker", 2)
        wanted = [p for p in ROWS.get(row, ()) if not self.args.peers or p in self.args.peers]
        missing = [peer for peer in wanted if peer == "mountpoint" and not shutil.which("mount-s3")]
        peers = [one for peer in wanted if peer not in missing for one in self.best(row, peer)]
        peers += [Row(row, peer, 0, problem="mount-s3 is not installed") for peer in missing]
        racing = self.kept(row, peers)
        self.run(ours, passes=1)  # which makes the index
        for number in range(self.args.repeats):
            going = [ours, *(peer for peer in racing if not peer.problem)]
            turn = number % len(going)
            for one in going[turn:] + going[:turn]:
                self.try_run(one)
        self.answers[row] = [one.__dict__ | {"name": one.name} for one in [ours, *peers]]
        for one in [ours, *peers]:
            self.line(one, ours)
        return [ours, *(peer for peer in peers if peer.runs)]

    def line(self, one: Row, ours: Row) -> None:
        if one.slower:
            when = "later_" if "later_rate" in one.trial else "first_"
            shown = [f"{one.trial[when + 'rate'] / 1e6:.0f}", "", f"{one.trial[when + 'cpu']:.2f}"]
            self.lines.append([one.row, one.name, "a trial", *shown, f"{one.trial['first_batch']:.2f}", "", ""])
            return
        if not one.runs:
            self.lines.append([one.row, one.name, "refused: " + one.problem.splitlines()[-1][:60], *[""] * 6])
            return
        when = "later_" if "later_rate" in one.runs[0] else "first_"
        rate, cpu = rig.middle(one.values(when + "rate")), rig.middle(one.values(when + "cpu"))
        ratios = ["", ""] if one is ours else [f"{common(ours, one, key):.2f}" for key in ("rate", "cpu")]
        passes = "later passes" if when == "later_" else "first pass"
        shown = [f"{rate / 1e6:.0f}", f"{rate / link.LINK_BYTES:.2f}", f"{cpu:.2f}"]
        self.lines.append([one.row, one.name, passes, *shown, f"{rig.middle(one.values('first_batch')):.2f}", *ratios])

    def share(self, what: str, row: Row, limit: float) -> None:
        value = rig.middle(row.values("later_rate")) / link.LINK_BYTES if row.runs else None
        self.gate(what, value, limit, "high", " of the link")
        if value is not None and value > 1.02:
            self.doubts.append(f"{what}: {value:.2f} of the link is more than there is")

    def walls(self, rows: Sequence[Row]) -> None:
        ours = rows[0]
        for what, of, begins, limit in WALL:
            if ours.row in of:
                found = [common(ours, row, "rate") for row in rows[1:] if row.peer.startswith(begins)]
                self.gate(f"{ours.row}: wall against the best of {what}", min(found, default=None), limit, "high", "x")

    def tar(self) -> None:
        rows = self.throughput("tar")
        ours = rows[0]
        self.share("tar, block of 1,000: plain", ours, 0.9)
        self.walls(rows)
        for name, begins, limit in (("Streaming", "streaming", 0.5), ("s3torchconnector", "s3torch", 1.3)):
            found = [common(ours, row, "cpu") for row in rows[1:] if row.peer.startswith(begins)]
            self.gate(f"tar: CPU per GB against {name}", max(found, default=None), limit, "low", "x")
        firsts = [
            rig.middle(a / b for a, b in zip(ours.values("first_batch"), row.values("first_batch"), strict=False))
            for row in rows[1:]
        ]
        self.gate("first batch against the best peer", max(firsts, default=None), 0.5, "low", "x")

    def over_tls(self) -> None:
        row = Row("tar", "stoker", 2)
        self.repeated(row, on=self.tls)
        self.answers["tls"] = [row.__dict__]
        self.share("tar, block of 1,000: TLS", row, 0.85)

    def repeated(self, row: Row, *more: str, on: link.Link | None = None) -> None:
        """The index is made first, by a run that does not count."""
        self.run(row, *more, passes=1, on=on)
        for _ in range(self.args.repeats):
            self.try_run(row, *more, on=on)

    def engines(self) -> None:
        """This engine and an older one, in turns."""
        engines = {"this": rig.ROOT / "build" / "stoker", "before": self.args.before.resolve()}
        rows = {name: Row("tar", "stoker", 2) for name in engines}
        for number in range(-1, self.args.repeats):
            for name, engine in engines.items():
                os.environ["STOKER_ENGINE"] = str(engine)
                run = self.run(rows[name], passes=PASSES if number >= 0 else 1)  # the first one makes the index
                rows[name].runs += [run] if number >= 0 else []
        del os.environ["STOKER_ENGINE"]
        self.answers["engines"] = {name: row.__dict__ for name, row in rows.items()}
        pairs = list(zip(*(row.runs for row in rows.values()), strict=True))

        def over(value: Callable[[dict[str, Any]], float]) -> float:
            return rig.middle(value(this) / value(before) for this, before in pairs)

        self.gate(
            "tar: rate of this engine over the one before", over(lambda run: run["later_rate"]), 0.99, "high", "x"
        )
        self.figures["tar: CPU per GB of this engine over the one before"] = over(lambda run: run["later_cpu"])
        self.figures["tar: requests per GB of this engine over the one before"] = over(
            lambda run: run["counts"]["requests"] / run["counts"]["bytes"]
        )

    def images(self) -> None:
        rows = self.throughput("images")
        found = [1 / common(rows[0], row, "cpu_image") for row in rows[1:]]
        self.gate("images per CPU-second against the best peer", min(found, default=None), 2.5, "high", "x")

    def full(self) -> None:
        row = Row("full", "stoker", 2)
        self.repeated(row)
        self.answers["full"] = [row.__dict__]
        self.line(row, row)
        self.share("full, ranges of 110 KB", row, 0.6)

    def files(self) -> None:
        self.walls(self.throughput("files"))

    def hedging(self) -> None:
        """One answer of a hundred comes a second late."""
        few, off = ("--ahead", AHEAD), ("--no-hedge",)
        hows = {"hedged": few, "not hedged": (*few, *off), "hedged, all ahead": (), "not hedged, all ahead": off}
        rows = {name: Row("tar", "stoker", 2) for name in hows}
        self.run(rows["hedged"], passes=1)  # which makes the index
        late = ["range *.tar p=0.01 delay=1s"]
        for _ in range(self.args.repeats):
            for name, more in hows.items():
                rows[name].runs.append(self.run(rows[name], *more, "--step", str(STEP), rules=late))
        self.answers["hedging"] = [row.__dict__ | {"name": name} for name, row in rows.items()]
        hedged, plain = rows["hedged"], rows["not hedged"]
        ratio = rig.middle(a / b for a, b in zip(hedged.values("wait_p99"), plain.values("wait_p99"), strict=True))
        self.gate("1 % of answers 1 s late: p99 of the wait, hedged against not", ratio, 0.3, "low", "x")
        for name, row in rows.items():
            what = f"1 % of answers 1 s late: p99 of the wait, {name}, ms"
            self.figures[what] = 1e3 * rig.middle(row.values("wait_p99"))
        twice = rig.middle(run["twice"] / run["counts"]["bytes"] for run in hedged.runs)
        self.gate("1 % of answers 1 s late: bytes read twice", 100 * twice, 5.0, "low", " %")

    def limited(self) -> None:
        """More than 400 requests a second are refused; then the limit is lifted."""
        for engines in (1, 4):
            found = [self._limited(engines) for _ in range(self.args.repeats)]
            self.answers[f"limit, {engines}"] = found
            name = f"{REQUESTS} requests/s, {engines} engine{'s' * (engines > 1)}"
            self.gate(f"{name}: delivered", rig.middle(f["delivered"] for f in found), 0.85, "high")
            self.gate(f"{name}: refused", 100 * rig.middle(f["refused"] for f in found), 10.0, "low", " %")
            self.gate(f"{name}: back after the limit", rig.middle(f["back"] for f in found), 20.0, "low", " s")

    def _limited(self, engines: int) -> dict[str, Any]:
        """free: bytes a second before the limit. delivered: of the requests that the limit allows, after the first
        five seconds; the limiter of slownet passes no more."""
        self.plain.restore()
        seconds = FREE_S + SETTLE_S + LIMITED_S + LIFTED_S + 4
        with concurrent.futures.ThreadPoolExecutor(engines) as pool:
            every = [pool.submit(self._client, f"limited{number}", seconds) for number in range(engines)]
            self._until(lambda: self.plain.counts()["bytes"] > 0)
            time.sleep(FREE_S / 2)
            free = self._rate(FREE_S / 2)
            self.plain.change(requests=REQUESTS)
            time.sleep(SETTLE_S)
            before, begin = self.plain.counts(), time.perf_counter()
            time.sleep(LIMITED_S)
            after, took = self.plain.counts(), time.perf_counter() - begin
            self.plain.change(requests=0)
            lifted, back = time.perf_counter(), float("inf")
            while (now := time.perf_counter() - lifted) < LIFTED_S:
                if self._rate(1.0) >= 0.9 * free:
                    back = now + 1.0
                    break
            for one in every:
                disturbed = one.result().disturbed
                if engines == 1:  # or else it is by the other engines
                    self.disturbed.append(disturbed)
        asked = after["requests"] - before["requests"]
        refused = after["excess"] - before["excess"]
        found = {
            **{"free": free, "delivered": (asked - refused) / took / REQUESTS},
            **{"refused": refused / max(asked, 1), "back": back},
        }
        rig.say(f"limit, {engines}: {found}")
        return found

    def _client(self, name: str, seconds: float) -> rig.Run:
        self.plain.adopt()
        command: list[Any] = [rig.python_of(".venv"), "-m", "bench.peers.remote_stoker", "--row", "full"]
        command += ["--passes", 10000, "--seconds", seconds, "--shards", self.shards]
        return rig.run(command, self.cpus, name, self._servers(self.plain))

    def _rate(self, seconds: float) -> float:
        before, begin = int(self.plain.counts()["bytes"]), time.perf_counter()
        time.sleep(seconds)
        return (int(self.plain.counts()["bytes"]) - before) / (time.perf_counter() - begin)

    @staticmethod
    def _until(true: Callable[[], bool]) -> None:
        until = time.monotonic() + 30
        while not true() and time.monotonic() < until:
            time.sleep(0.05)

    def index(self) -> None:
        """stoker index, into an empty cache folder."""
        kinds = {
            "photographs": (["s3://data/tar/*.tar", "s3://data/more/*.tar"], self.indexed),
            "members of 4 MiB": (["s3://data/large/*.tar"], self.large),
        }
        for name, (paths, size) in kinds.items():
            found = [self._indexed(paths) for _ in range(self.args.repeats)]
            self.answers[f"index, {name}"] = [{**f, "size": size} for f in found]
            if name == "photographs":
                share = rig.middle(f["bytes"] / f["seconds"] / link.LINK_BYTES for f in found)
                self.gate("indexing 1 GB of tar", share, 0.8, "high", " of the link")
                self.figures["indexing 1 GB of tar, s"] = rig.middle(f["seconds"] for f in found)
                self.figures["indexing 1 GB of tar, read %"] = 100 * rig.middle(f["bytes"] / size for f in found)
            else:
                read = 100 * rig.middle(f["bytes"] / size for f in found)
                self.gate("indexing members of 4 MiB: bytes read", read, 5.0, "low", " %")

    def _indexed(self, paths: Sequence[str]) -> dict[str, Any]:
        self.plain.restore()
        self.plain.adopt()
        with tempfile.TemporaryDirectory(dir=self.scratch) as cache:
            env = {**os.environ, "XDG_CACHE_HOME": cache}
            began = time.perf_counter()
            subprocess.run(
                [str(rig.ROOT / "build" / "stoker"), "index", *paths],
                env=env,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                preexec_fn=lambda: os.sched_setaffinity(0, self.cpus),
            )
            seconds = time.perf_counter() - began
        counts = self.plain.counts()
        rig.say(f"index {' '.join(paths)}: {seconds:.2f} s, {counts['bytes'] / 1e6:.0f} MB, {counts['requests']}")
        return {"seconds": seconds, "bytes": counts["bytes"], "counts": counts}

    def slow(self) -> None:
        """Readers of local storage: each read of a small file takes 10 ms."""
        small = self.scratch / "small"
        for number in range(SLOW_FILES):
            if number < 10:
                (small / str(number)).mkdir(parents=True)
            (small / str(number % 10) / f"{number:06d}.bin").write_bytes(os.urandom(SLOW_BYTES))
        with link.slow_folder(small, self.scratch, link.spare_cpus(self.cpus), SLOW) as at:
            self._bench(at, 64)  # builds the index
            pairs = [
                (self._bench(at, SLOW_FILES // 4, "--connections", "16"), self._bench(at, SLOW_FILES))
                for _ in range(self.args.repeats)
            ]
        rig.say(f"slow folder, samples/s by 16 readers and by as many as pay: {pairs}")
        self.answers["slow folder"] = [{"by 16": few, "adaptive": more} for few, more in pairs]
        self.gate("10 ms a read, adaptive readers against 16", rig.middle(b / a for a, b in pairs), 2.5, "high", "x")

    def _bench(self, at: Path, samples: int, *more: str) -> float:
        """Samples a second of stoker bench over a folder."""
        spec = self.scratch / "spec.yaml"
        text = f"dataset: {{path: {at}, format: folder, extensions: [.bin]}}\n"
        spec.write_text(text + "fields: [{name: image, decode: bytes}]\norder: {shuffle: full}\nbatch: {size: 64}\n")
        command = [rig.ROOT / "build" / "stoker", "bench", "--spec", spec, "--json", "--samples", samples, *more]
        done = subprocess.run(
            [str(part) for part in command],
            check=True,
            capture_output=True,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, self.cpus),
        )
        return float(json.loads(done.stdout)["samples_per_second"])


QUESTIONS: dict[str, Callable[[Remote], None]] = {
    "tar": Remote.tar,
    "tls": Remote.over_tls,
    "full": Remote.full,
    "files": Remote.files,
    "images": Remote.images,
    "hedging": Remote.hedging,
    "limit": Remote.limited,
    "index": Remote.index,
    "slow": Remote.slow,
    "engines": Remote.engines,
}


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder, which is left to a thread that may still write into it."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.remote", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs")
    parser.add_argument("--out", type=Path, default=rig.RESULTS / "remote.json")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--retries", type=int, default=1, help="of a run in which others used the processors")
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, help="these questions anew")
    parser.add_argument("--before", type=Path, help="an older engine, beside which this one is measured")
    parser.add_argument("--peers", nargs="+", default=[], help="only these")
    parser.add_argument("--short", action="store_true", help="once, with two workers")
    args = parser.parse_args()
    if "engines" in (args.only or ()) and args.before is None:
        parser.error("engines needs --before")
    if args.short:
        args.repeats, args.retries = 1, 0
    rig.may_write(args.out)
    meter.become_subreaper()
    link.build()
    with scratch() as folder, contextlib.ExitStack() as stack:
        remote = Remote(args, folder, stack)
        asked = args.only or [one for one in QUESTIONS if one != "engines" or args.before]
        for question in asked:
            remote.ask(question, QUESTIONS[question])
    head = ["data", "loader", "of", "MB/s", "of link", "CPU-s/GB", "first s", "x wall", "x CPU"]
    print(rig.table(head, remote.lines))
    status = rig.report(*(remote.document[question] for question in asked))
    print(f"\nraw runs: {args.out}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())

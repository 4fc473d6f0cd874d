"""The driver's side of every comparison: starting a process in its own Scope, what machine this is, tables, gates.

Standard library only: drivers run under any Python, peers under their own.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench import meter

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
TIME_LIMIT = 900.0
EXTRA = 3  # rounds at most, in the place of those that others disturbed
QUIET = 0.03  # the share of the processors that others may have during a window
ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


T = TypeVar("T")


class PeerError(Exception):
    """A peer ended without its marks; the text is the end of what it wrote to standard error."""


@dataclass
class Run:
    """What one process tree did: its marks by name, and what was seen from outside."""

    marks: dict[str, dict[str, Any]]
    memory: dict[str, float] = field(default_factory=dict)
    spawned: float = 0.0
    left_behind: list[str] = field(default_factory=list)
    cpu_cgroup: float = 0.0
    cpu_rusage: float = 0.0
    foreign: float = 0.0
    steal: float = 0.0

    @property
    def disturbed(self) -> float:
        """The share of the processors that others had during the window."""
        return self.foreign + self.steal


def go_tags() -> str:
    """The tags of what is built to be measured: bench, and those of the C libraries that are here."""
    found = subprocess.run([ROOT / "tools" / "tags.sh"], capture_output=True, text=True, check=True).stdout.strip()
    return f"bench,{found}" if found else "bench"


def python_of(venv: str) -> Path:
    return ROOT / venv / "bin" / "python"


def start(command: Sequence[str | Path], cpus: Sequence[int], scope: meter.Scope, errors: Any) -> subprocess.Popen[str]:
    def enter() -> None:
        scope.enter()
        os.sched_setaffinity(0, cpus)

    env = {**os.environ, meter.ENV: str(scope.clock)}
    env.update(dict.fromkeys(ONE_THREAD, "1"))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "python" / "src"), env.get("PYTHONPATH")]))
    return subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        preexec_fn=enter,
    )


def run(command: Sequence[str | Path], cpus: Sequence[int], name: str, servers: Iterable[int] = ()) -> Run:
    """One peer from birth to end. A mark that waits is answered after the memory of all its processes has been read.

    Servers are processes of the measurement: they do not disturb it where they share the processors.
    """
    known = set(servers)
    out = Run({})
    with tempfile.TemporaryFile("w+") as errors, meter.Scope(name) as scope:
        out.spawned = time.perf_counter()
        process = start(command, cpus, scope, errors)
        assert process.stdin and process.stdout
        timer = threading.Timer(TIME_LIMIT, process.kill)
        timer.start()
        others: meter.Disturbance | None = None
        for line in process.stdout:
            if not line.startswith("{"):
                continue
            mark = json.loads(line)
            out.marks[mark["event"]] = mark
            if mark["event"] == "start":
                others = meter.Disturbance(cpus, lambda: known.union(scope.pids()))
            if mark.get("wait"):
                if others is not None:
                    out.foreign, out.steal = others.shares()
                out.memory = mark["memory"] = scope.memory()
                _say_go(process)
        status = process.wait()
        timer.cancel()
        timer.join()
        process.stdin.close()
        process.stdout.close()
        out.left_behind = scope.end()
        out.cpu_cgroup, out.cpu_rusage = scope.books()
        if status != 0 or not out.marks:
            errors.seek(0)
            raise PeerError(f"{name} ended with status {status}\n" + "".join(errors.readlines()[-15:]))
    return out


def _say_go(process: subprocess.Popen[str]) -> None:
    assert process.stdin
    try:
        process.stdin.write("\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass


def quietest(command: Sequence[str | Path], cpus: Sequence[int], name: str, retries: int) -> Run:
    """The least disturbed of a few runs; the first one that is quiet ends the search."""
    best = run(command, cpus, name)
    for _ in range(retries):
        if best.disturbed <= QUIET:
            break
        best = min(best, run(command, cpus, name), key=lambda one: one.disturbed)
    return best


def rounds(wanted: int, measure: Callable[[int], tuple[T, float]]) -> list[T]:
    """What so many quiet rounds gave. measure(number) gives a round's values and what others took in it, at most.

    EXTRA rounds more are made in the place of those that were disturbed; if that is not enough, the least disturbed
    count, and conclude() finds them.
    """
    found: list[tuple[float, int, T]] = []
    while len([one for one in found if one[0] <= QUIET]) < wanted and len(found) < wanted + EXTRA:
        values, disturbed = measure(len(found))
        found.append((disturbed, len(found), values))
    best = sorted(sorted(found, key=lambda one: one[:2])[:wanted], key=lambda one: one[1])
    return [values for _, _, values in best]


def books_differ(one: Run) -> bool:
    """CPU that getrusage saw and the cgroup did not: something ran outside its scope."""
    return one.cpu_rusage > one.cpu_cgroup * 1.02 + 0.05


def first_cpus(count: int) -> list[int]:
    return sorted(os.sched_getaffinity(0))[:count]


def machine(cpus: Sequence[int]) -> dict[str, Any]:
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    memory = Path("/proc/meminfo").read_text().split(None, 2)[1]
    return {
        "cpu": model,
        "cpus_used": list(cpus),
        "cpus_of_machine": os.cpu_count(),
        "memory_gib": round(int(memory) / 2**20, 1),
        "kernel": platform.release(),
        "system": platform.platform(),
        "governor": _read(f"/sys/devices/system/cpu/cpu{cpus[0]}/cpufreq/scaling_governor"),
        "load_at_start": os.getloadavg()[0],
        "driver_python": platform.python_version(),
        "commit": _git("rev-parse", "HEAD"),
        "changed_files": len(_changed().splitlines()),
        "date": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return "unknown"


def _git(*args: str) -> str:
    try:
        return subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return "unknown"


def _changed() -> str:
    """Files that are not those of the commit. Other results do not matter: a benchmark of several questions writes one
    after the other."""
    return _git("status", "--porcelain", "-uno", "--", ".", ":!bench/results")


def settings(args: Any) -> dict[str, Any]:
    """A script's options as a result has them: of paths the last name, since where files are is nobody's business."""
    return {key: value.name if isinstance(value, Path) else value for key, value in vars(args).items()}


def same_code(one: str, other: str) -> bool:
    """Whether two commits have the same engine, client and peers."""
    paths = ["internal", "cmd", "*.go", "go.mod", "python/src", "bench/peers", "bench/kernel"]
    done = subprocess.run(["git", "diff", "--quiet", one, other, "--", *paths], cwd=ROOT, check=False)
    return done.returncode == 0


def middle(values: Iterable[float]) -> float:
    listed = list(values)
    return statistics.median(listed) if listed else float("nan")


@dataclass
class Gate:
    """One figure that must be reached. better: "high" or "low". value: None if there was nothing to measure."""

    what: str
    value: float | None
    limit: float
    better: str
    unit: str = ""

    @property
    def reached(self) -> bool:
        if self.value is None:
            return False
        return self.value >= self.limit if self.better == "high" else self.value <= self.limit

    def line(self) -> str:
        sign = ">=" if self.better == "high" else "<="
        word = "reached" if self.reached else "MISSED" if self.value is not None else "MISSING"
        value = f"{self.value:.3g}{self.unit}" if self.value is not None else "no figure"
        return f"  {word:8} {self.what}: {value}, must be {sign} {self.limit:.3g}{self.unit}"

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "reached": self.reached}

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Gate:
        return cls(**{key: value for key, value in found.items() if key != "reached"})


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two blanks apart; all but the first three to the right."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, *rows]:
        cells = [c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def may_write(path: Path) -> None:
    """Ends the program if a result would go to bench/results from a tree whose files are not those of its commit."""
    if path.resolve().is_relative_to(RESULTS) and (changed := _changed()):
        raise SystemExit(f"results name a commit, but the tree has changes; commit them, or give --out:\n{changed}")


def conclude(
    document: dict[str, Any],
    gates: Sequence[Gate],
    doubts: Sequence[str],
    figures: dict[str, float],
    disturbed: Iterable[float],
) -> None:
    """Puts into a result what every result has.

    figures: what the docs may cite, by name (bench/figures.py). disturbed: of each run that counts, the share of the
    processors that others had; more than QUIET is a doubt. doubts: what else makes a figure unsound.
    """
    most = max((share for share in disturbed if share == share), default=0.0)
    loud = [f"others had up to {100 * most:.1f} % of the processors in a run, over {100 * QUIET:.0f} %"]
    document["disturbed"] = {"most": round(most, 4), "limit": QUIET}
    document["doubts"] = [*doubts, *(loud if most > QUIET else [])]
    document["gates"] = [gate.as_dict() for gate in gates]
    document["figures"] = {name: round(value, 4) for name, value in figures.items()}


def report(*documents: dict[str, Any]) -> int:
    """Says what was reached and what is doubtful; the exit status: 1 if there is a doubt, or a gate was missed."""
    gates = [Gate.from_dict(gate) for document in documents for gate in document["gates"]]
    doubts = [doubt for document in documents for doubt in document["doubts"]]
    print("\nfigures to reach:" if gates else "")
    for gate in gates:
        print(gate.line())
    for doubt in doubts:
        print(f"  doubt    {doubt}")
    return 0 if not doubts and all(gate.reached for gate in gates) else 1


def finish(
    path: Path,
    document: dict[str, Any],
    gates: Sequence[Gate],
    doubts: Sequence[str],
    figures: dict[str, float],
    disturbed: Iterable[float],
) -> int:
    """conclude, save and report, where a result is one document."""
    conclude(document, gates, doubts, figures, disturbed)
    save(path, document)
    status = report(document)
    print(f"\nraw runs: {path}")
    return status


def save(path: Path, document: dict[str, Any]) -> None:
    may_write(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(path.suffix + ".tmp")
    part.write_text(json.dumps(document, indent=1) + "\n")
    part.replace(path)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

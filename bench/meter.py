"""CPU and memory of a whole tree of processes, read from outside and from inside it (standard library only).

A Scope is one such tree. The driver makes it, the process it starts enters it before exec, and every descendant is in
it by inheritance, whatever session or process group it moves to: stoker's engine, DataLoader's workers, a shell.

Two books are kept. The first is a fresh cgroup (version 2, else the cpuacct controller of version 1), which loses
nothing and counts in nanoseconds. The second is the sum of getrusage over all that ended below the driver, which is a
subreaper, so that orphans end below it too. They must agree (Scope.books); where no cgroup can be made, a walk over
/proc stands in for the first book, in ticks of 10 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36
PF_KTHREAD = 0x00200000
ENV = "STOKER_BENCH_CPU"


@dataclass(frozen=True)
class Clock:
    """Where the CPU time of a scope is read: kind "v2" or "v1" (a file) or "walk" (the process id of the driver, and
    those of its other children, with blanks between)."""

    kind: str
    where: str

    def seconds(self) -> float:
        if self.kind == "v2":
            with open(self.where) as f:
                return int(f.readline().split()[1]) / 1e6
        if self.kind == "v1":
            with open(self.where) as f:
                return int(f.read()) / 1e9
        root, *others = map(int, self.where.split())
        return sum(_cpu_of(pid) for pid in descendants(root) if pid not in others)

    def __str__(self) -> str:
        return f"{self.kind}:{self.where}"

    @staticmethod
    def from_env() -> Clock:
        kind, _, where = os.environ[ENV].partition(":")
        return Clock(kind, where)


def _cpu_of(pid: int) -> float:
    """Of one process, its threads, and its children that ended and were waited for."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(x) for x in fields[11:15]) / TICK


def descendants(root: int) -> list[int]:
    """All processes below root, root itself not among them."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as f:
                children.setdefault(int(f.read().rpartition(")")[2].split()[1]), []).append(int(name))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


class Scope:
    """One tree of processes. Use as a context; enter() is called in the child between fork and exec."""

    def __init__(self, name: str) -> None:
        self._dir: Path | None = None
        self._rusage = _children()
        self._others = descendants(os.getpid())  # such as servers of the driver
        for kind, base, file in _cgroups():
            path = base / f"stoker-bench-{os.getpid()}-{name}"
            try:
                path.mkdir()
            except OSError:
                continue
            self._dir, self.clock = path, Clock(kind, str(path / file))
            break
        else:
            self.clock = Clock("walk", " ".join(map(str, (os.getpid(), *self._others))))
            self._walk_base = self.clock.seconds()

    def __enter__(self) -> Scope:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()

    def enter(self) -> None:
        if self._dir is not None:
            (self._dir / "cgroup.procs").write_text(str(os.getpid()))

    def pids(self) -> list[int]:
        if self._dir is not None:
            return [int(x) for x in (self._dir / "cgroup.procs").read_text().split()]
        return [pid for pid in descendants(os.getpid()) if pid not in self._others]

    def memory(self, looks: int = 3) -> dict[str, float]:
        """MiB over all processes of the scope, and how many they are: the largest of a few looks 50 ms apart."""
        best = {"pss": 0.0, "anonymous": 0.0, "processes": 0}
        for look in range(looks):
            if look:
                time.sleep(0.05)
            found = [rollup for rollup in map(rollup_of, self.pids()) if rollup]
            pss = sum(rollup["Pss"] for rollup in found) / 1024
            if pss >= best["pss"]:
                anonymous = sum(rollup["Anonymous"] for rollup in found) / 1024
                best = {"pss": pss, "anonymous": anonymous, "processes": len(found)}
        return best

    def end(self, patience: float = 10.0) -> list[str]:
        """Waits for what is left in the scope, ends it by its id if it stays, and names what had to be ended."""
        killed: list[str] = []
        if self.clock.kind == "ended":
            return killed
        deadline = time.monotonic() + patience
        while True:
            _reap()
            left = self.pids()
            if not left:
                break
            if time.monotonic() > deadline:
                for pid in left:
                    killed.append(_name_of(pid))
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                deadline += patience
            time.sleep(0.01)
        if self._dir is not None:
            self._total = self.clock.seconds()
            with contextlib.suppress(OSError):
                self._dir.rmdir()
            self._dir = None
        self.clock = Clock("ended", "")
        return killed

    def books(self) -> tuple[float, float]:
        """CPU seconds from birth to end by the cgroup and by getrusage; the first is NaN without a cgroup."""
        return getattr(self, "_total", float("nan")), _children() - self._rusage


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _reap() -> None:
    """Orphans that were handed to this subreaper. Processes the caller started are waited for by the caller first."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _name_of(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        command = "?"
    return f"{pid} {command[:80]}"


def _cgroups() -> Iterator[tuple[str, Path, str]]:
    """Folders under which a cgroup may be made, best first."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    mounts = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        mounts.append((before.split()[4], after.split()[0], after.split()[2].split(",")))
    for mount, fs, _ in mounts:
        if fs == "cgroup2" and "" in own:
            yield "v2", Path(mount + own[""]), "cpu.stat"
    for mount, fs, options in mounts:
        if fs == "cgroup" and "cpuacct" in options and "cpuacct" in own:
            yield "v1", Path(mount + own["cpuacct"]), "cpuacct.usage"


def rollup_of(pid: int) -> dict[str, int]:
    """smaps_rollup in KiB; empty where the process is gone."""
    out = {}
    try:
        with open(f"/proc/{pid}/smaps_rollup") as f:
            for line in f.read().splitlines()[1:]:
                key, value = line.split(":")
                out[key] = int(value.split()[0])
    except OSError:
        return {}
    return out


def become_subreaper() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def others_cpu(cpus: Iterable[int], mine: Iterable[int]) -> float:
    """CPU seconds of all other processes that may run on these processors, with those of their children that ended.

    Left out are the caller, which is the driver, the processes in mine, and the kernel's own threads: they work for
    whoever uses the machine, most of all for what is being measured. A process that may run on some of the processors
    counts whole. The differences of two answers count; resolution is a tick a process.
    """
    wanted, left_out = set(cpus), {os.getpid(), *mine}
    total = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in left_out:
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat") as f:
                fields = f.read().rpartition(")")[2].split()
            if not int(fields[6]) & PF_KTHREAD and wanted & os.sched_getaffinity(int(name)):
                total += sum(int(ticks) for ticks in fields[11:15])
    return total / TICK


def stolen(cpus: Iterable[int]) -> float:
    """Seconds since boot that the host took these processors away from this machine."""
    names = {f"cpu{n}" for n in cpus}
    with open("/proc/stat") as f:
        return sum(int(fields[8]) for fields in map(str.split, f) if fields[0] in names) / TICK


class Disturbance:
    """What others took of some processors since it was made: foreign and steal, as shares of all their time."""

    def __init__(self, cpus: Iterable[int], mine: Callable[[], Iterable[int]]) -> None:
        self._cpus, self._mine = list(cpus), mine
        self._begin = self._now()

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), others_cpu(self._cpus, self._mine()), stolen(self._cpus)

    def shares(self) -> tuple[float, float]:
        took = [now - then for now, then in zip(self._now(), self._begin, strict=True)]
        wall = max(took[0], 1e-9) * len(self._cpus)
        return max(0.0, took[1]) / wall, took[2] / wall

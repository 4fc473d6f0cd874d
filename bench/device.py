"""What device= costs without a GPU, the training process and the engine: python -m bench.device --data FOLDER.

CUDA is replaced by a device that copies nothing and is always done, so that what is left is the client's own work: to
look at a batch, to plan its copy, to keep events, and to return slots. Batches of 64 x 224 x 224 x 3 uint8 and their
labels come from .npy files in memory; both loaders take turns in one process, whose CPU time is read. The engine's is
not counted: it does the same for both.

For decode_device=, the engine sends the strip of a packed picture that a crop needs. What that takes, and how large it
is, comes from the kernel's benchmark Strip, over 250 photographs of a folder and three boxes of RandomResizedCrop of
each. A box's time is its fastest of five passes.

With --client, the rounds of the training process are those of a result that there is, and only strips are measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import meter, rig

ROWS, SIDE, BATCH = 1024, 224, 64
LIMIT = 1.5
PASSES = 5  # over all boxes of strips
STRIPS = {"time/decoding": 0.15, "bytes/file": 0.65}  # metrics of the benchmark, and their limits
CPUS = rig.first_cpus(2)


class Port:
    """Has the methods of stoker._cuda.Port. Memory there is memory here, which nobody fills."""

    name = "cuda:0"

    def __init__(self, number: int) -> None:
        import torch

        self.device = torch.device("cpu")
        self._torch = torch
        self._there: set[int] = set()  # addresses

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        with self._torch.no_grad():
            yield

    def empty(self, size: int) -> Any:
        found = self._torch.empty(size, dtype=self._torch.uint8)
        self._there.add(found.data_ptr())
        return found

    pinned = empty

    def is_there(self, tensor: Any) -> bool:
        return tensor.data_ptr() in self._there

    def is_pinned(self, tensor: Any) -> bool:
        return False

    def register(self, address: int, size: int) -> bool:
        return True

    def capturing(self) -> bool:
        return False

    def full(self, error: BaseException) -> bool:
        return False

    def done(self, event: Any) -> bool:
        return True

    def numbers(self, values: Sequence[float], dtype: str, shape: Sequence[int]) -> Any:
        from stoker._fused import numbers

        return numbers(tuple(values), dtype, shape)

    def compute(self, work: Callable[[], None]) -> None:
        work()

    def reads(self, tensors: Sequence[Any]) -> None:
        """There is one stream."""

    def seconds(self, begin: Any, end: Any) -> float:
        return 0.001

    def copy(self, there: Any, here: Any) -> None:
        """Nothing is copied."""

    def mark(self) -> Any:
        return self

    mark_loop = mark

    def wait(self, event: Any) -> None:
        """Everything has arrived."""

    finish = used = unregister = wait


def install() -> None:
    """From now on, batches that go to "cuda" go to a Port."""
    from stoker import _cuda

    changed: Any = _cuda
    changed.lacking = lambda number: None
    changed.current = lambda: 0
    changed.another_ranks = lambda number: None
    changed.Port = Port


def spent(loader: Any, passes: int) -> tuple[float, float]:
    """CPU and wall of a batch, in milliseconds."""
    own, wall, count = time.process_time(), time.perf_counter(), 0
    for _ in range(passes):
        for _batch in loader:
            count += 1
    return 1e3 * (time.process_time() - own) / count, 1e3 * (time.perf_counter() - wall) / count


def measured(folder: Path, args: argparse.Namespace) -> list[dict[str, float]]:
    import numpy as np
    import stoker

    install()
    x, y = folder / "x.npy", folder / "y.npy"
    np.save(x, np.random.default_rng(0).integers(0, 256, (ROWS, SIDE, SIDE, 3), dtype=np.uint8))
    np.save(y, np.arange(ROWS))
    dataset = stoker.NpyDataset(x=str(x), y=str(y)).to_tuple("x", "y")
    with (
        stoker.DataLoader(dataset, BATCH, shuffle=True, device="cuda") as there,
        stoker.DataLoader(dataset, BATCH, shuffle=True) as here,
    ):
        for loader in (there, here):  # the engine has started, slots are mapped
            spent(loader, 2)

        def once(number: int) -> tuple[dict[str, float], float]:
            others = meter.Disturbance(CPUS, lambda: [os.getpid(), *meter.descendants(os.getpid())])
            found: dict[str, float] = {"round": number}
            for name, loader in (("device", there), ("host", here)):
                found[f"{name}_ms"], found[f"{name}_wall_ms"] = spent(loader, args.passes)
            rig.say(f"round {number + 1}  " + "  ".join(f"{name} {value:.3f}" for name, value in found.items()))
            found["disturbed"] = sum(others.shares())
            return found, found["disturbed"]

        return rig.rounds(args.repeats, once)


def taken(cpu: int) -> float:
    """Seconds since boot that a processor was not idle, or that the host had it."""
    lines = Path("/proc/stat").read_text().splitlines()
    fields = next(line.split() for line in lines if line.startswith(f"cpu{cpu} "))
    return sum(int(fields[i]) for i in (1, 2, 3, 6, 7, 8)) / meter.TICK


def children() -> float:
    """CPU seconds of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def strips(data: Path) -> dict[str, float]:
    """The metrics of the kernel's benchmark, which has one processor, and what others had of that meanwhile."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as name:
        program, package = Path(name) / "kernel.test", rig.ROOT / "internal" / "base" / "kernel"
        subprocess.run(
            ["go", "test", "-c", "-tags", rig.go_tags(), "-o", str(program), "."], cwd=package, check=True, text=True
        )
        wanted = ["-test.run", "^$", "-test.bench", "^BenchmarkStrip$", "-test.benchtime", f"{PASSES}x"]
        env = {**os.environ, "STOKER_BENCH_PHOTOS": str(data.resolve())}
        cpu = CPUS[-1]
        begin, own, before = time.perf_counter(), children(), taken(cpu)
        done = subprocess.run(
            ["taskset", "-c", str(cpu), str(program), *wanted],
            cwd=package,
            env=env,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        used = taken(cpu) - before - (children() - own)
        disturbed = max(0.0, used) / (time.perf_counter() - begin)
    line = next(line for line in done.stdout.splitlines() if line.startswith("BenchmarkStrip"))
    found = {unit: float(value) for value, unit in re.findall(r"([\d.e+-]+) ([a-z]\S*)", line.replace("\t", " "))}
    rig.say("strips  " + "  ".join(f"{unit} {value:g}" for unit, value in found.items()))
    return {**found, "disturbed": disturbed}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="a folder of JPEGs, for strips")
    parser.add_argument("--client", type=Path, help="a result whose rounds of the training process are kept")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--passes", type=int, default=20, help="of sixteen batches, a round")
    args = parser.parse_args()
    rig.may_write(args.out)
    if args.client:
        kept = json.loads(args.client.read_text())
        runs, document = kept["runs"], {key: kept[key] for key in ("question", "machine", "settings")}
    else:
        with tempfile.TemporaryDirectory(prefix="stoker-bench-") as name:
            runs = measured(Path(name), args)
        machine, settings = rig.machine(CPUS), rig.settings(args)
        document = {"question": "what device= costs the process", "machine": machine, "settings": settings}
    document["runs"] = runs
    of_strips = strips(args.data)
    document["strips"] = {"machine": rig.machine(CPUS[-1:]), "settings": {"passes": PASSES}, **of_strips}
    ratio = rig.middle(run["device_ms"] / run["host_ms"] for run in runs)
    figures = {
        "client CPU a batch, with device": rig.middle(run["device_ms"] for run in runs),
        "client CPU a batch, without": rig.middle(run["host_ms"] for run in runs),
        "ratio": ratio,
        "strip of a crop over decoding it": of_strips["time/decoding"],
        "bytes of a strip over the file": of_strips["bytes/file"],
        "bytes of a strip over the file, 4:4:4 alone": of_strips["bytes-444/file"],
        "strip of a crop, us": of_strips["us/strip"],
    }
    gates = [
        rig.Gate("client CPU a batch with device=, against without", ratio, LIMIT, "low", "x"),
        *(rig.Gate(f"strips, {unit}", of_strips[unit], limit, "low", "x") for unit, limit in STRIPS.items()),
    ]
    disturbed = [*(run["disturbed"] for run in runs), of_strips["disturbed"]]
    return rig.finish(args.out, document, gates, [], figures, disturbed)


if __name__ == "__main__":
    raise SystemExit(main())

"""What device= costs the training process, without a GPU: python -m bench.device (make bench-device).

CUDA is replaced by a device that copies nothing and is always done, so that what is left is the client's own work: to
look at a batch, to plan its copy, to keep events, and to return slots. Batches of 64 x 224 x 224 x 3 uint8 and their
labels come from .npy files in memory; both loaders take turns in one process, whose CPU time is read. The engine's is
not counted: it does the same for both.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import meter, rig

ROWS, SIDE, BATCH = 1024, 224, 64
LIMIT = 1.5
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--passes", type=int, default=20, help="of sixteen batches, a round")
    args = parser.parse_args()
    rig.may_write(args.out)
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as name:
        runs = measured(Path(name), args)
    ratio = rig.middle(run["device_ms"] / run["host_ms"] for run in runs)
    document = {
        "question": "what device= costs the process",
        "machine": rig.machine(CPUS),
        "settings": rig.settings(args),
        "runs": runs,
    }
    figures = {
        "client CPU a batch, with device": rig.middle(run["device_ms"] for run in runs),
        "client CPU a batch, without": rig.middle(run["host_ms"] for run in runs),
        "ratio": ratio,
    }
    gate = rig.Gate("client CPU a batch with device=, against without", ratio, LIMIT, "low", "x")
    return rig.finish(args.out, document, [gate], [], figures, [run["disturbed"] for run in runs])


if __name__ == "__main__":
    raise SystemExit(main())

"""What watching an unchanged script costs: the same loop with the doctor's hook and without it, turn and turn about.

Both sides run in one process and over one loader, so that import, page cache and the machine's mood are shared: for
the side without, torch's own methods are put back and the hook's thread is paused. Samples are fetched inline,
which is the path of a worker, too. What counts is CPU time, the hook's thread included: on a machine that does other
things wall time says more about those.

Jobs of about a millisecond a sample give the median over pairs of turns, and the middle half of them. As that is no
better than the machine is quiet, the parts are taken alone as well: what the doors add to a batch of samples that
cost nothing (the best of the turns of each side), and what the thread takes in a second.

    python -m bench.watch [--pairs 20] [--out results.json]
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOOK = ROOT / "internal" / "tool" / "doctor" / "hook"
SAMPLES = 256
BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--job", choices=("python", "pictures"), action="append")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if "STOKER_DOCTOR_DIR" not in os.environ:
        with tempfile.TemporaryDirectory() as out:
            environ = os.environ | {"STOKER_DOCTOR_DIR": out, "PYTHONPATH": f"{HOOK}{os.pathsep}{ROOT}"}
            sys.exit(subprocess.run([sys.executable, "-m", "bench.watch", *sys.argv[1:]], env=environ).returncode)
    rows = measure(arguments.pairs, arguments.job or ["python", "pictures"])
    for row in rows:
        print("{job:9}{sample_ms:.2f} ms a sample  {cost:+.2%}  ({low:+.2%} to {high:+.2%})".format(**row))
    alone = parts()
    print("doors: {batch_us:.1f} us a batch and {sample_us:.2f} us a sample; thread: {thread:.2%}".format(**alone))
    print("so at 1 ms a sample, 32 a batch: {:.2%}".format(alone["share"]))
    if arguments.out:
        arguments.out.write_text(json.dumps({"jobs": rows, "parts": alone}, indent=1) + "\n")


def measure(pairs: int, jobs: list[str]) -> list[dict[str, Any]]:
    from torch.utils.data import DataLoader

    rows = []
    for job in jobs:
        loader: Any = DataLoader(Pictures() if job == "pictures" else Python(), BATCH)

        def turn(loader: Any = loader) -> float:
            before = time.process_time()
            for _ in loader:
                pass
            return time.process_time() - before

        rows.append({"job": job} | compare(turn, pairs))
    return rows


def compare(turn: Callable[[], float], pairs: int) -> dict[str, float]:
    """The share that the watched turns take more; which of a pair comes first changes."""
    sides = {True: watched, False: plain}
    for side in sides.values():
        side()
        turn()
    costs, seconds = [], []
    for pair in range(pairs):
        took = {}
        for side in (True, False) if pair % 2 else (False, True):
            sides[side]()
            took[side] = turn()
        costs.append(took[True] / took[False] - 1)
        seconds.append(took[False])
    low, cost, high = statistics.quantiles(costs, n=4)
    return {"sample_ms": statistics.median(seconds) / SAMPLES * 1e3, "cost": cost, "low": low, "high": high}


def parts() -> dict[str, float]:
    """The doors by batches of 8 and of 64 samples; then the thread, beside a fetch that never ends."""
    from torch.utils.data import DataLoader

    fetch = sys.modules["stoker_watch_fetch"]
    process = sys.modules["stoker_watch_process"].process
    fetch.FINE = 0.0  # every sample timed, as those of a millisecond are
    added = {}
    for size in (8, 64):
        loader: Any = DataLoader(Nothing(200 * size), size, collate_fn=len)
        best = {watched: 1.0, plain: 1.0}
        for turn in range(20):
            side = (watched, plain)[turn % 2]
            side()
            before = time.thread_time()
            for _ in loader:
                pass
            best[side] = min(best[side], time.thread_time() - before)
        added[size] = (best[watched] - best[plain]) / 200
    sample = (added[64] - added[8]) / 56
    watched()
    process.pulse.start()
    stage = process.stages[-1]
    stage.started, stage.since = time.monotonic(), time.monotonic()
    before, own = time.process_time(), time.thread_time()
    while time.thread_time() < own + 5:
        pass
    thread = (time.process_time() - before) / (time.thread_time() - own) - 1
    stage.since = 0.0
    batch = added[8] - 8 * sample
    share = (batch + 32 * sample) / 32e-3 + thread + fetch.SHARE
    return {"batch_us": batch * 1e6, "sample_us": sample * 1e6, "thread": thread, "share": share}


_doors: list[tuple[type, str, Any]] = []


def plain() -> None:
    """torch as it is without the hook; workers forked now have none either."""
    process = sys.modules["stoker_watch_process"].process
    process.pulse.stop()
    data = sys.modules["torch.utils.data.dataloader"]
    fetch = data._utils.fetch
    iterators = data._BaseDataLoaderIter, data._MultiProcessingDataLoaderIter
    for kind in (data.DataLoader, *iterators, fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        for name, door in list(vars(kind).items()):
            if type(door).__name__ == "Door":
                _doors.append((kind, name, door))
                setattr(kind, name, door.original)


def watched() -> None:
    while _doors:
        kind, name, door = _doors.pop()
        setattr(kind, name, door)


class Nothing:
    """Samples that cost nothing."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


class Python:
    """Samples of Python code alone, the same work each."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> float:
        total = 0.0
        for i in range(22_000):
            total += i * index
        return total


class Pictures:
    """A small JPEG decoded, cropped, resized and normalised: some twenty calls that a timed batch looks at."""

    def __init__(self) -> None:
        import numpy as np
        from PIL import Image
        from torchvision import transforms

        pixels = np.random.default_rng(1).normal(128, 20, (240, 320, 3)).clip(0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "jpeg")
        self.file = file.getvalue()
        steps = [transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        self.transform = transforms.Compose([*steps, transforms.Normalize([0.5] * 3, [0.5] * 3)])

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        return self.transform(Image.open(io.BytesIO(self.file)).convert("RGB"))


if __name__ == "__main__":
    main()

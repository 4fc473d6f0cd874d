"""Throughput over the number of workers, drawn: for a fast storage, and for a slow one beside it.

Answers the third project of the third article, which has an SSD and a disk. Here the fast one is the folder as it is,
and the slow one is the same folder shown by harness/slowfs with a latency for each file and each read, and a bandwidth,
as of storage on a network; nothing that was read stays in memory. It needs Go and FUSE: where either is missing, the
recipe says so and draws one.

On the slow storage workers pay although the cores have nothing to do: each waits for a file of its own. torch needs
more of them for that than there are cores. stoker's num_workers are lanes, which decode; reading is ahead of them.

    python examples/recipes/scaling_plot.py --workers 8 --out scaling.png
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import demo, flags, photographs, rate, show
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

import stoker

HARNESS = Path(__file__).resolve().parents[2] / "harness"
SLOW = ["--open=5ms", "--read=5ms", "--rate=100000000"]


@contextmanager
def slowed(folder: Path) -> Iterator[Path | None]:
    """The folder on a slow file system; None, and a line that says why, if there can be none."""
    with tempfile.TemporaryDirectory(prefix="stoker-slow-") as name:
        command, at = Path(name) / "slowfs", Path(name) / "at"
        at.mkdir()
        if (go := shutil.which("go")) is None:
            print("only one storage is drawn: the slow one is mounted by a Go program, and go was not found")
            yield None
            return
        build = [go, "build", "-C", str(HARNESS), "-buildvcs=false", "-o", str(command), "./score/cmd"]
        built = subprocess.run(build, stderr=subprocess.PIPE, text=True, check=False)
        if built.returncode:
            print(f"only one storage is drawn: the slow one cannot be built: {built.stderr.strip()}")
            yield None
            return
        mount = [str(command), "mount", str(folder), str(at), *SLOW]
        child = subprocess.Popen(mount, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        while not os.path.ismount(at) and child.poll() is None:
            time.sleep(0.02)
        if child.poll() is not None:
            assert child.stderr is not None
            print(f"only one storage is drawn: the slow one cannot be mounted: {child.stderr.read().strip()}")
            yield None
            return
        try:
            yield at
        finally:
            child.send_signal(signal.SIGINT)  # it unmounts
            child.wait()


def scaling(args: argparse.Namespace, storage: str, workers: list[int]) -> dict[str, list[float]]:
    """Samples a second of both loaders for each number of workers."""
    found: dict[str, list[float]] = {"plain torch": [], "stoker": []}
    with photographs(args) as folder:
        chain = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
        dataset = datasets.ImageFolder(folder, chain)
        for name, kind in (("plain torch", DataLoader), ("stoker", stoker.DataLoader)):
            for count in workers:
                loader = kind(dataset, batch_size=args.batch_size, num_workers=count)
                found[name].append(rate(loader))
                show(f"{name}, {storage}, {count} worker{'s' * (count > 1)}", found[name][-1])
                if isinstance(loader, stoker.DataLoader):
                    loader.close()  # before the slow file system goes
    return found


def draw(found: dict[str, dict[str, list[float]]], workers: list[int], out: Path) -> None:
    """One panel for each storage."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(found), figsize=(5 * len(found), 4), squeeze=False)
    for panel, (storage, lines) in zip(panels[0], found.items(), strict=True):
        for name, rates in lines.items():
            panel.plot(workers, rates, marker="o", label=name)
        panel.set(title=f"{storage} storage", xlabel="workers", ylabel="samples/s", xticks=workers, ylim=(0, None))
        panel.legend()
    figure.tight_layout()
    figure.savefig(out)


def main() -> None:
    parser = flags(__doc__, samples=300, batch_size=16, workers=4)
    parser.add_argument("--out", type=Path, default=Path("scaling.png"), help="the picture; default: scaling.png")
    args = parser.parse_args()
    workers = [count for count in (1, 2, 4, 8, 16) if count <= max(1, args.workers)]
    args.data = args.data or demo()
    found = {"fast": scaling(args, "fast", workers)}
    with slowed(args.data) as slow:
        if slow is not None:
            args.data = slow
            found["slow"] = scaling(args, "slow", workers)
    draw(found, workers, args.out)
    print(f"drawn: {args.out}, {len(found)} storages")


if __name__ == "__main__":
    main()

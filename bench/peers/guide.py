"""stoker alone, for bench.guides: cache, or chunks of HDF5; write makes the file of chunks (with h5py)."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from bench.consumer import emit
from bench.meter import Clock

BATCH = 64
ROWS, SIDE, CHUNK = 2048, 64, 32
SCALE = {"cache": 1e3, "chunks": 1e6}  # milliseconds a picture; milliseconds a thousand rows
CHUNKS: dict[str, dict[str, Any]] = {
    "full-all": {"unpacked": "64MiB", "order": {"shuffle": True}},
    "full-third": {"unpacked": "8MiB", "order": {"shuffle": True}},
    "block": {"unpacked": "8MiB", "order": {"shuffle": "block", "block": 256, "window": 256, "streams": 2}},
    "contiguous": {"unpacked": "64MiB", "order": {"shuffle": True}},
}


def write(path: Path) -> None:
    """Photographs' worth of gzip: a random walk a row compresses about as they do."""
    import h5py
    import numpy as np

    if path.exists():
        return
    rng = np.random.default_rng(1)
    steps = rng.integers(-6, 7, (ROWS, SIDE * SIDE * 3), dtype=np.int16)
    rows = (128 + np.cumsum(steps, axis=1)).astype(np.uint8).reshape(ROWS, SIDE, SIDE, 3)
    part = path.with_suffix(".part")
    with h5py.File(part, "w") as file:
        file.create_dataset("images", data=rows, chunks=(CHUNK, SIDE, SIDE, 3), compression="gzip", shuffle=True)
        file.create_dataset("plain", data=rows)
    part.replace(path)


def loaders(args: argparse.Namespace) -> dict[str, Any]:
    """By the name of the figure: a loader, of which the second epoch counts, or the first and the fourth."""
    import stoker
    from stoker import transforms as T

    if args.what == "chunks":
        chosen = CHUNKS[args.steps]
        field = "plain" if args.steps == "contiguous" else "images"
        dataset = stoker.HDF5Dataset(args.data, fields=[field], unpacked=chosen["unpacked"])
        return {"ms": stoker.DataLoader(dataset, BATCH, num_workers=2, seed=0, **chosen["order"])}
    crop = T.RandomCrop(224) if args.steps == "resize-crop" else T.RandomResizedCrop(224)
    steps = [*([] if args.steps == "rrc" else [T.Resize(256)]), crop, T.RandomHorizontalFlip()]
    dataset = stoker.ImageFolder(args.data, transform=T.Compose(steps))
    usual: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "num_workers": 2, "seed": 0}
    return {
        "no cache ms": stoker.DataLoader(dataset, **usual),
        "cache ms": stoker.DataLoader(dataset, cache="2GiB", **usual),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("write", "cache", "chunks"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", default="")
    args = parser.parse_args()
    if args.what == "write":
        write(args.data)
        return
    cpu = Clock.from_env()
    epochs = 4
    figures: dict[str, float] = {}
    opened = loaders(args)
    emit("start", cpu=cpu.seconds(), wall=time.perf_counter())
    for name, loader in opened.items():
        costs = []
        for epoch in range(epochs):
            loader.set_epoch(epoch)
            begin, samples = cpu.seconds(), 0
            for batch in loader:
                samples += len(batch[next(iter(batch))]) if isinstance(batch, dict) else len(batch[0])
            costs.append(SCALE[args.what] * (cpu.seconds() - begin) / samples)
        kept = name.startswith("cache")
        figures[f"{name}, later epoch" if kept else name] = min(costs[2:]) if kept else sorted(costs[1:])[1]
        if kept:
            figures[f"{name}, first epoch"] = costs[0]
            figures["kept KB an image"] = loader.stats()["cache"]["bytes"] / 1e3 / len(loader.dataset)
        loader.close()
    emit("stop", cpu=cpu.seconds(), wall=time.perf_counter(), figures=figures, wait=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

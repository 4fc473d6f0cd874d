"""stoker, through its public Python API and nothing else.

--epoch first (the default): entry points of JPEGs are learned, and written; second: those that one epoch, by another
process and with another seed, has learned are known; known: all are, by `stoker index --entries`. Each has a cache
folder of its own beside the data, with the index in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import stoker
from stoker import transforms as T

from bench import rig
from bench.consumer import MEAN, SIZE, STD, Options, Peer, run
from bench.turns import SMALL, VIEWS

AHEAD = 4


def prepare(options: Options, epoch: str) -> None:
    """Makes what the epochs before have left."""
    cache = Path(options.data).parent / f"cache-{epoch}"
    os.environ["STOKER_CACHE"] = str(cache)
    if epoch != "known":
        for folder in cache.glob("index/*.facts"):
            shutil.rmtree(folder)
    engine(["index", options.data, *(["--entries"] if epoch == "known" else [])])
    if epoch == "second":
        engine(["bench", options.data, "--epochs", "1", "--seed", str(options.seed + 1000)])


def engine(words: list[str]) -> None:
    command = os.environ.get("STOKER_ENGINE") or str(rig.ROOT / "build" / "stoker")
    subprocess.run([command, *words], check=True, stdout=subprocess.DEVNULL)


def open_peer(options: Options, **more: Any) -> Peer:
    steps: list[Any] = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()]
    small = [T.RandomResizedCrop(96, scale=(0.05, 0.4)), T.RandomHorizontalFlip()]
    if options.output == SMALL:
        steps = small
    if options.output == VIEWS:
        large = T.Compose([T.RandomResizedCrop(SIZE, scale=(0.4, 1.0)), T.RandomHorizontalFlip()])
        steps = [T.Views(*[large] * 2, *[T.Compose(small)] * 8)]
    if options.floats:
        steps += [T.ToTensor(), T.Normalize(MEAN, STD)]
    loader = stoker.DataLoader(
        stoker.ImageFolder(options.data, transform=T.Compose(steps)),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.threads,
        output="numpy",
        seed=options.seed,
        **more,
    )
    return Peer(
        batches=passes(loader),
        in_flight=AHEAD,
        resampling="bilinear antialiased",
        layout="NCHW" if options.floats else "NHWC",
        versions={"stoker": stoker.__version__},
        settings={"num_workers": options.threads},
        views=10 if options.output == VIEWS else 1,
    )


def passes(loader: Any) -> Any:
    for images, labels in loader:
        yield ([stored(view) for view in images] if isinstance(images, (list, tuple)) else stored(images)), labels


def stored(images: Any) -> Any:
    """uint8 batches are stored as NHWC whichever way they are shown; they are read in that order."""
    if str(images.dtype) == "uint8" and images.shape[1] == 3:
        return images.transpose(0, 2, 3, 1)
    return images


def main() -> None:
    epoch = "first"
    if "--epoch" in sys.argv:
        at = sys.argv.index("--epoch")
        epoch = sys.argv[at + 1]
        del sys.argv[at : at + 2]
    run(lambda options, _: open_peer(options), prepare=lambda options: prepare(options, epoch))


if __name__ == "__main__":
    main()

"""stoker, through its public Python API and nothing else."""

from __future__ import annotations

from typing import Any

import stoker
from stoker import transforms as T

from bench.consumer import MEAN, SIZE, STD, Options, Peer, run

AHEAD = 4


def open_peer(options: Options) -> Peer:
    steps: list[Any] = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()]
    if options.floats:
        steps += [T.ToTensor(), T.Normalize(MEAN, STD)]
    loader = stoker.DataLoader(
        stoker.ImageFolder(options.data, transform=T.Compose(steps)),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.threads,
        output="numpy",
        seed=options.seed,
    )
    return Peer(
        batches=passes(loader),
        in_flight=AHEAD,
        resampling="bilinear antialiased",
        layout="NCHW" if options.floats else "NHWC",
        versions={"stoker": stoker.__version__},
        settings={"num_workers": options.threads},
    )


def passes(loader: Any) -> Any:
    """uint8 batches are stored as NHWC whichever way they are shown; they are read in that order."""
    for images, labels in loader:
        if str(images.dtype) == "uint8" and images.shape[1] == 3:
            images = images.transpose(0, 2, 3, 1)
        yield images, labels


if __name__ == "__main__":
    run(open_peer)

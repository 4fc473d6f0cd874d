"""A fresh process, a cold engine: how long to the first batch, and how much memory all of it takes in steady state.

Times are on the clock that all processes of the machine share, so that the driver can add the start of the interpreter.
"""

from __future__ import annotations

import time

BORN = time.perf_counter()

import argparse  # noqa: E402

import numpy  # noqa: E402, F401

NUMPY = time.perf_counter()

import stoker  # noqa: E402
from stoker import transforms as T  # noqa: E402

READY = time.perf_counter()

from bench.consumer import SIZE, emit, touch  # noqa: E402

BATCHES = 64


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch", type=int, default=64)
    args = parser.parse_args()
    begin = time.perf_counter()
    transform = T.Compose([T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()])
    train = stoker.ImageFolder(args.data, transform=transform)
    loader = stoker.DataLoader(train, batch_size=args.batch, shuffle=True, num_workers=2, output="numpy", seed=0)
    opened = time.perf_counter()
    stream = iter(loader)
    images, labels = next(stream)
    touch(images.transpose(0, 2, 3, 1) if images.shape[1] == 3 else images)
    first = time.perf_counter()
    emit(
        "start",
        born=BORN,
        import_numpy=NUMPY - BORN,
        import_stoker=READY - NUMPY,
        make_loader=opened - begin,
        first_batch=first - begin,
        end=first,
        cpu=0.0,
        wall=first,
    )
    for _ in range(BATCHES):
        images, labels = next(stream)
    del images, labels
    emit("stop", cpu=0.0, wall=time.perf_counter(), wait=True)
    input()


if __name__ == "__main__":
    main()

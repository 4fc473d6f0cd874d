"""DALI on the CPU: decoders.image_random_crop (only the crop is decoded), resize, mirror, in its own executor.

device_id=None: no GPU and no driver. The accurate DCT, as everybody else here. --plain leaves antialiasing out.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import nvidia.dali as dali
from nvidia.dali import fn, pipeline_def, types

from bench.consumer import MEAN, SIZE, STD, Options, Peer, run

AHEAD = 2


def shuffled(options: Options) -> tuple[list[str], list[int]]:
    """One epoch in full random order; the reader's own random_shuffle mixes a window only and holds it in memory."""
    found = []
    for label, folder in enumerate(sorted(entry.path for entry in os.scandir(options.data) if entry.is_dir())):
        found += [(os.path.join(folder, name), label) for name in sorted(os.listdir(folder))]
    random.Random(options.seed).shuffle(found)
    return [path for path, _ in found], [label for _, label in found]


def crops(paths: list[str], classes: list[int], antialias: bool = True) -> tuple[Any, Any]:
    """In a pipeline: the files as random crops of SIZE x SIZE pixels, and their labels."""
    encoded, labels = fn.readers.file(files=paths, labels=classes, prefetch_queue_depth=AHEAD)
    images = fn.decoders.image_random_crop(
        encoded,
        device="cpu",
        random_area=[0.08, 1.0],
        random_aspect_ratio=[3 / 4, 4 / 3],
        num_attempts=10,
        use_fast_idct=False,
    )
    return fn.resize(images, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=antialias), labels


def pipeline(options: Options, antialias: bool) -> Any:
    paths, classes = shuffled(options)

    @pipeline_def(
        batch_size=options.batch,
        num_threads=options.threads,
        device_id=None,
        seed=options.seed + 1,
        prefetch_queue_depth=AHEAD,
    )
    def build() -> Any:
        images, labels = crops(paths, classes, antialias)
        mirror = fn.random.coin_flip(probability=0.5)
        if options.floats:
            images = fn.crop_mirror_normalize(
                images,
                dtype=types.FLOAT,
                output_layout="CHW",
                mean=[255 * m for m in MEAN],
                std=[255 * s for s in STD],
                mirror=mirror,
            )
        else:
            images = fn.flip(images, horizontal=mirror)
        return images, labels

    return build()


def batches(pipe: Any) -> Iterator[tuple[np.ndarray, Any]]:
    """Views of DALI's own buffers: a batch is given back when the next one is asked for."""
    while True:
        images, labels = pipe.run()
        yield np.asarray(images.as_tensor()), np.asarray(labels.as_tensor()).reshape(-1)


def open_peer(options: Options, antialias: bool = True) -> Peer:
    pipe = pipeline(options, antialias)
    pipe.build()
    return Peer(
        batches=batches(pipe),
        in_flight=2 * AHEAD,
        resampling="bilinear antialiased" if antialias else "bilinear, not antialiased",
        layout="NCHW" if options.floats else "NHWC",
        versions={"nvidia-dali": dali.__version__},
        settings={"num_threads": options.threads, "prefetch_queue_depth": AHEAD, "device_id": None},
    )


if __name__ == "__main__":
    plain = "--plain" in sys.argv
    if plain:
        sys.argv.remove("--plain")
    run(lambda options: open_peer(options, antialias=not plain))

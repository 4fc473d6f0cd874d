"""SPDL over the untouched files: demuxed, decoded, cropped and resized by FFmpeg's filters in threads of one process.

The box is drawn when the header is known, by torchvision's rule; the decoder does not skip what is outside it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
import spdl.io
import spdl.pipeline

from bench.consumer import SIZE, Options, Peer, run
from bench.shards import photos

AHEAD = 4


def box(rng: random.Random, width: int, height: int) -> tuple[int, int, int, int]:
    """left, top, width, height, by torchvision's RandomResizedCrop.get_params."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width / (3 / 4)))
    return (width - w) // 2, (height - h) // 2, w, h


def endless(options: Options) -> Iterator[tuple[str, int]]:
    found = photos(options.data)
    files = found.files * found.copies
    rng = random.Random(options.seed)
    while True:
        rng.shuffle(files)
        yield from files


def open_peer(options: Options) -> Peer:
    rng = random.Random(options.seed + 1)

    def decode(item: tuple[str, int]) -> tuple[Any, int]:
        packets = spdl.io.demux_image(item[0])
        left, top, w, h = box(rng, packets.width, packets.height)
        flip = "hflip," if rng.random() < 0.5 else ""
        chain = f"crop={w}:{h}:{left}:{top}:exact=1,scale={SIZE}:{SIZE}:flags=bilinear,{flip}format=pix_fmts=rgb24"
        return spdl.io.decode_packets(packets, filter_desc=chain), item[1]

    def batch(items: list[tuple[Any, int]]) -> tuple[np.ndarray, np.ndarray]:
        images = spdl.io.to_numpy(spdl.io.convert_frames([frames for frames, _ in items]))
        return images, np.asarray([label for _, label in items], np.int64)

    decode(photos(options.data).files[0])  # what is wrong with all of them would only be logged in the pipeline
    pipeline = (
        spdl.pipeline.PipelineBuilder()
        .add_source(endless(options))
        .pipe(decode, concurrency=options.threads, output_order="completion")
        .aggregate(options.batch, drop_last=True)
        .pipe(batch)
        .add_sink(AHEAD)
        .build(num_threads=options.threads)
    )

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()

    return Peer(
        batches=batches(),
        in_flight=AHEAD + 2,
        resampling="bilinear antialiased",
        layout="NHWC",
        versions={"spdl": version("spdl")},
        settings={"num_threads": options.threads, "sink": AHEAD, "output_order": "completion"},
    )


if __name__ == "__main__":
    run(open_peer)

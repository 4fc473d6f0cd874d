"""bench.augment's randaugment by DALI on the CPU: its decoder of random crops, its own rand_augment, and its erase."""

from __future__ import annotations

import math
from typing import Any

import nvidia.dali as dali
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.auto_aug import rand_augment

from bench.consumer import SIZE, Options, Peer, run
from bench.peers import recipes
from bench.peers.dali import AHEAD, batches, crops, shuffled


def erased(images: Any) -> Any:
    """RandomErasing(): of half the pictures; torchvision's rule, without its second attempts."""
    area, ratio = fn.random.uniform(range=[0.02, 0.33]), fn.random.uniform(range=[math.log(0.3), math.log(3.3)])
    ratio = dali.math.exp(ratio)
    shape = fn.stack(dali.math.sqrt(area * ratio), dali.math.sqrt(area / ratio))
    anchor = fn.random.uniform(range=[0.0, 1.0], shape=[2]) * dali.math.max(1 - shape, 0.0)
    shape = shape * fn.random.coin_flip(probability=0.5)
    return fn.erase(images, anchor=anchor, shape=shape, axis_names="HW", fill_value=0, normalized=True)


def pipeline(options: Options) -> Any:
    paths, classes = shuffled(options)

    @pipeline_def(
        batch_size=options.batch,
        num_threads=options.threads,
        device_id=None,
        seed=options.seed + 1,
        prefetch_queue_depth=AHEAD,
        enable_conditionals=True,
    )
    def build() -> Any:
        images, labels = crops(paths, classes)
        images = fn.flip(images, horizontal=fn.random.coin_flip(probability=0.5))
        images = rand_augment.rand_augment(
            images, n=2, m=9, shape=[SIZE, SIZE], fill_value=0, interp_type=types.INTERP_NN
        )
        return erased(images), labels

    return build()


def open_peer(options: Options) -> Peer:
    pipe = pipeline(options)
    pipe.build()
    return Peer(
        batches=batches(pipe),
        in_flight=2 * AHEAD,
        resampling="bilinear antialiased",
        layout="NHWC",
        versions={"nvidia-dali": dali.__version__},
        settings={"num_threads": options.threads, "prefetch_queue_depth": AHEAD, "device_id": None},
    )


if __name__ == "__main__":
    if recipes.chosen() != "randaugment":
        raise SystemExit("DALI has randaugment only here")
    run(open_peer)

"""tf.data with tf.image.decode_and_crop_jpeg, tuned as its performance guide says.

Boxes and flips are drawn before the clock starts, by torchvision's rule (area uniform, ratio log-uniform, ten attempts,
else the central crop), and go through the pipeline beside the paths. sample_distorted_bounding_box draws other areas,
and the same rule as ops of the graph costs tf.data 7 % of its speed: this spares it both. Bilinear without
antialiasing, which is what its users run: with it tf.image.resize is several times slower. Floats are cut off, not
rounded, when they become uint8.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from bench.consumer import MEAN, SIZE, STD, Options, Peer, run

ATTEMPTS = 10


def sizes_of(paths: list[str]) -> np.ndarray:
    """[height, width] of each picture; links to one file are read once."""
    known: dict[int, np.ndarray] = {}
    out = np.empty((len(paths), 2), np.int64)
    for i, path in enumerate(paths):
        inode = os.stat(path).st_ino
        if inode not in known:
            known[inode] = tf.io.extract_jpeg_shape(tf.io.read_file(path)).numpy()[:2]
        out[i] = known[inode]
    return out


def draw_boxes(sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """[top, left, height, width] for each picture, by torchvision's RandomResizedCrop.get_params."""
    n = len(sizes)
    limit = sizes[:, None, :]
    area = limit.prod(axis=2) * rng.uniform(0.08, 1.0, (n, ATTEMPTS))
    ratio = np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3), (n, ATTEMPTS)))
    sides = np.rint(np.sqrt(np.stack([area / ratio, area * ratio], axis=2))).astype(np.int64)
    fits = ((sides > 0) & (sides <= limit)).all(axis=2)
    chosen = sides[np.arange(n), fits.argmax(axis=1)]
    corner = rng.integers(0, np.maximum(sizes - chosen, 0) + 1)
    height, width = sizes.T
    tallest, widest = np.rint(width / (3 / 4)), np.rint(height * (4 / 3))
    whole = np.stack([np.minimum(height, tallest), np.minimum(width, widest)], axis=1)
    central = ~fits.any(axis=1)
    chosen[central] = whole[central].astype(np.int64)
    corner[central] = (sizes[central] - chosen[central]) // 2
    return np.concatenate([corner, chosen], axis=1).astype(np.int32)


@dataclass(frozen=True)
class Plan:
    """One epoch, shuffled: what the pipeline reads."""

    paths: list[str]
    boxes: np.ndarray
    flips: np.ndarray
    labels: np.ndarray


def plan(options: Options) -> Plan:
    paths, labels = [], []
    for label, folder in enumerate(sorted(entry.path for entry in os.scandir(options.data) if entry.is_dir())):
        names = sorted(os.listdir(folder))
        paths += [os.path.join(folder, name) for name in names]
        labels += [label] * len(names)
    rng = np.random.default_rng(options.seed)
    order = rng.permutation(len(paths))
    paths = [paths[i] for i in order]
    boxes = draw_boxes(sizes_of(paths), rng)
    return Plan(paths, boxes, rng.random(len(paths)) < 0.5, np.asarray(labels, np.int64)[order])


def pipeline(options: Options, epoch: Plan) -> Any:
    def sample(path: Any, box: Any, flip: Any, label: Any) -> tuple[Any, Any]:
        encoded = tf.io.read_file(path)
        image = tf.image.decode_and_crop_jpeg(encoded, box, channels=3, dct_method="INTEGER_ACCURATE")
        image = tf.raw_ops.ResizeBilinear(images=image[None], size=[SIZE, SIZE], half_pixel_centers=True)[0]
        if options.floats:
            image = (image - [255 * m for m in MEAN]) * [1 / (255 * s) for s in STD]
        else:
            image = tf.cast(image, tf.uint8)
        return tf.cond(flip, lambda: tf.reverse(image, [1]), lambda: image), label

    dataset = tf.data.Dataset.from_tensor_slices((epoch.paths, epoch.boxes, epoch.flips, epoch.labels)).repeat()
    dataset = dataset.map(sample, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    dataset = dataset.batch(options.batch, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    settings = tf.data.Options()
    settings.threading.private_threadpool_size = options.threads
    settings.threading.max_intra_op_parallelism = 1
    settings.deterministic = False
    return dataset.with_options(settings)


def open_peer(options: Options, epoch: Plan) -> Peer:
    stream = pipeline(options, epoch).as_numpy_iterator()
    return Peer(
        batches=((np.asarray(images), labels) for images, labels in stream),
        in_flight=8,
        resampling="bilinear, not antialiased",
        layout="NHWC",
        versions={"tensorflow": tf.__version__},
        settings={
            "private_threadpool_size": options.threads,
            "max_intra_op_parallelism": 1,
            "num_parallel_calls": "AUTOTUNE",
            "prefetch": "AUTOTUNE",
            "deterministic": False,
            "dct_method": "INTEGER_ACCURATE",
            "boxes and flips": "drawn before the clock",
        },
    )


if __name__ == "__main__":
    run(open_peer, prepare=plan)

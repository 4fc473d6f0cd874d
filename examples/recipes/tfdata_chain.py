"""tf.data's chain: list_files, interleave, map, cache, shuffle, batch, prefetch, with AUTOTUNE.

Answers the second example and the second exercise of the third article, three times: in TensorFlow's own words; in
stoker's, where the methods have the same names and the engine does the reading, decoding and resizing; and as a
tf.data.Dataset over stoker's loader, stoker.to_tf(loader), for a loop of Keras or TensorFlow.

The first epoch decodes, and there the loaders differ. The later ones come from memory, and all three only copy: tf.data
has kept float32, stoker the uint8 before the last step, a quarter of the bytes, and makes floats of it in each epoch.
Through tf.data's generator stoker's batches take longer than on their own, and in those epochs than tf.data's.

    python examples/recipes/tfdata_chain.py --samples 600
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from common import beside, flags, photographs, same, show

import stoker
from stoker import transforms as T

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
SIZE = 224


def main() -> None:
    args = flags(__doc__).parse_args()
    import tensorflow as tf

    tune = tf.data.AUTOTUNE

    def measured(name: str, pipeline: Iterable[Any]) -> float:
        """Whole epochs: before tf.data's first batch it fills the buffer of its shuffle, here with all samples."""
        samples, seconds = 0, 0.0
        for epoch in ("first", "second", "third"):
            start = time.perf_counter()
            taken = sum(int(labels.shape[0]) for _, labels in pipeline)
            took = time.perf_counter() - start
            show(f"{name}, {epoch} epoch", taken / took)
            samples, seconds = samples + taken, seconds + took
        return samples / seconds

    with photographs(args) as folder:
        classes = tf.constant(sorted(path.name for path in folder.iterdir()))

        def load(path: Any) -> Any:
            image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
            image = tf.image.resize(image, (SIZE, SIZE), antialias=True) / 255.0
            return image, tf.argmax(classes == tf.strings.split(path, "/")[-2])

        pipeline = (
            tf.data.Dataset.list_files(f"{folder}/*/*.jpg", shuffle=True)
            .interleave(tf.data.Dataset.from_tensors, cycle_length=tune, num_parallel_calls=tune)
            .map(load, num_parallel_calls=tune)
            .cache()
            .shuffle(10_000)
            .batch(args.batch_size, drop_remainder=True)
            .prefetch(tune)
        )
        plain = measured("plain tf.data", pipeline)

        # The map is a transform here: the engine does it in its lanes, and the cache has what it made. In TensorFlow's
        # words it would be Python, .map(load), whose results are not kept.
        chain = T.Compose([T.Resize((SIZE, SIZE)), T.ToTensor()])
        photos = (
            stoker.list_files(f"{folder}/*/*.jpg", shuffle=True)
            .interleave(
                lambda paths: stoker.files(paths, transform=chain),
                cycle_length=stoker.AUTOTUNE,
                num_parallel_calls=stoker.AUTOTUNE,
            )
            .cache()
            .shuffle(10_000)
            .batch(args.batch_size, drop_remainder=True)
            .prefetch(stoker.AUTOTUNE)
        )
        as_tf = {"output": "numpy", "layout": "nhwc"}
        ours = measured("stoker, the same chain", stoker.DataLoader(photos, **as_tf))
        over = stoker.to_tf(stoker.DataLoader(photos, **as_tf))
        through = measured("stoker.to_tf(loader)", over)
        beside(plain, ours, "tf.data over the three epochs")
        beside(plain, through, "tf.data over the three epochs, as a tf.data.Dataset,")

        kinds = [
            {(tuple(images.shape[1:]), images.dtype, labels.dtype.is_integer) for images, labels in one.take(2)}
            for one in (pipeline, over)
        ]
        same("shapes and types of tf.data's batches and of stoker.to_tf's", kinds[0] == kinds[1])

        # Both shuffle, each its own way, so pictures are compared by their means, sorted.
        def means(batches: Iterable[Any]) -> Any:
            return np.sort(np.concatenate([np.asarray(images).mean((1, 2, 3)) for images, _ in batches]))

        whole = [means(pipeline.unbatch().batch(1)), means(over.unbatch().batch(1))]
        if len(list(folder.glob("*/*"))) % args.batch_size == 0:  # else each leaves out others
            same("the pictures of an epoch", bool(np.abs(whole[0] - whole[1]).max() < 2 / 255))
        same("the number of pictures of an epoch", len(whole[0]) == len(whole[1]))


if __name__ == "__main__":
    main()

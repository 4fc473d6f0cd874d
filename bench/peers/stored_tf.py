"""Records through tf.data: files interleaved, a shuffle buffer, batches of strings, AUTOTUNE, two threads of its own.

The one feature is parsed out of tf.train.Example a batch at a time, which is the fast way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf

from bench import stored

BUFFER = 1000
FEATURES = {"image": tf.io.FixedLenFeature([], tf.string)}


def open_batches(folder: Path) -> Iterator[list[bytes]]:
    names = tf.data.Dataset.from_tensor_slices(sorted(str(path) for path in folder.glob("*.tfrecord")))
    found = names.shuffle(64).interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
    )
    found = found.shuffle(BUFFER).repeat().batch(stored.BATCH)
    found = found.map(lambda batch: tf.io.parse_example(batch, FEATURES)["image"], num_parallel_calls=tf.data.AUTOTUNE)
    settings = tf.data.Options()
    settings.threading.private_threadpool_size = 2
    settings.threading.max_intra_op_parallelism = 1
    settings.deterministic = False
    for batch in found.prefetch(tf.data.AUTOTUNE).with_options(settings).as_numpy_iterator():
        yield batch.tolist()


if __name__ == "__main__":
    stored.run("tfrecord", open_batches, {"tensorflow": tf.__version__}, threads=2, shuffle_buffer=BUFFER)

"""A folder packed to TFRecord: is it faster than the folder? Both ways under tf.data and under stoker.

Answers the first project of the third article. stoker.pack writes the records, which TensorFlow reads as any others:
samples a second and the seconds of an epoch are printed for raw files and for records. Where files are in memory or on
a fast disk, records gain little, because decoding is what costs; they pay where opening a file does. stoker.pack can
make pictures cheaper to decode too, with jpeg="index" or resize=256: that gains under both loaders or under stoker.

    python examples/recipes/tfrecord_compare.py --samples 600
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common import beside, equal, flags, photographs, rate, same, show

import stoker
from stoker import transforms as T

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
SIZE = 224


def main() -> None:
    args = flags(__doc__).parse_args()
    import tensorflow as tf

    tune = tf.data.AUTOTUNE

    def decode(encoded: Any) -> Any:
        image = tf.io.decode_jpeg(encoded, channels=3)
        return tf.image.resize(image, (SIZE, SIZE), antialias=True) / 255.0

    def raw(path: Any, label: Any) -> Any:
        return decode(tf.io.read_file(path)), label

    def parse(record: Any) -> Any:
        features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
        one = tf.io.parse_single_example(record, features)
        return decode(one["image"]), one["label"]

    def measured(name: str, loader: Iterable[Any]) -> float:
        found = rate(loader, lambda batch: int(batch[1].shape[0]), passes=2)
        show(name, found)
        print(f"  an epoch of {args.samples:,} takes {args.samples / found:.2f} s")
        return found

    with photographs(args) as folder, tempfile.TemporaryDirectory() as name:
        chain = T.Compose([T.Resize((SIZE, SIZE)), T.ToTensor()])
        photos = stoker.ImageFolder(folder, transform=chain)
        packed = Path(name) / "packed"
        stoker.pack(folder, packed, output="tfrecord", shard_size="16MiB")
        shards = sorted(map(str, packed.glob("*.tfrecord")))

        paths = sorted(folder.glob("*/*"))
        labels = [photos.classes.index(path.parent.name) for path in paths]
        files = tf.data.Dataset.from_tensor_slices(([str(path) for path in paths], labels))
        files = files.map(raw, num_parallel_calls=tune).batch(args.batch_size).prefetch(tune)
        plain = measured("plain tf.data, raw files", files)
        records = tf.data.TFRecordDataset(shards)
        records = records.map(parse, num_parallel_calls=tune).batch(args.batch_size).prefetch(tune)
        plain_packed = measured("plain tf.data, TFRecord", records)

        ours = stoker.DataLoader(photos, batch_size=args.batch_size)
        folder_rate = measured("stoker, raw files", ours)
        fields = stoker.TFRecordDataset(shards).to_tuple(stoker.Field("image", transform=chain), "label")
        ours_packed = stoker.DataLoader(fields, batch_size=args.batch_size)
        packed_rate = measured("stoker, TFRecord", ours_packed)
        beside(plain, folder_rate, "tf.data with raw files")
        beside(plain_packed, packed_rate, "tf.data with TFRecord")

        same("stoker's batches of files and of records", equal(ours, ours_packed))
        close = True
        for a, b, c in zip(files, records, ours, strict=True):
            close &= bool((a[0].numpy() == b[0].numpy()).all()) and a[1].numpy().tolist() == c[1].tolist()
            close &= abs(a[0].numpy() - c[0].permute(0, 2, 3, 1).numpy()).mean() < 2 / 255
        same("tf.data's batches of both, and their pictures within 2 levels of 255 on average", close)


if __name__ == "__main__":
    main()

"""Writes the small datasets that the guides speak of, each with the tool that its users have: the same twelve
pictures, in three classes.

    python make.py hdf5 lmdb parquet      # needs: pillow numpy h5py lmdb pyarrow
    python make.py tfrecord               # needs: tensorflow; it and torch do not get on in one process
    python make.py mds                    # needs: mosaicml-streaming
    python make.py beton                  # needs: ffcv

Run it by hand, and keep the output. python/tests/test_docs.py unpacks what is gzipped.
"""

import gzip
import io
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).resolve().parent
PHOTOS = sorted((HERE.parent / "photos").glob("*.jpg"))
COUNT, SIZE = 12, (40, 32)  # width, height


def picture(i: int) -> Image.Image:
    with Image.open(PHOTOS[i % len(PHOTOS)]) as photo:
        photo.draft("RGB", (400, 400))
        side = 40 * (i // len(PHOTOS))
        return photo.convert("RGB").resize(SIZE, Image.Resampling.BILINEAR, (side, side, photo.width, photo.height))


def jpeg(i: int) -> bytes:
    out = io.BytesIO()
    picture(i).save(out, "JPEG", quality=80)
    return out.getvalue()


def hdf5() -> None:
    import h5py

    with h5py.File(HERE / "photos.h5", "w") as file:
        pixels = np.stack([np.asarray(picture(i)) for i in range(COUNT)])
        file.create_dataset("images", data=pixels, chunks=(4, 32, 40, 3), compression="gzip", shuffle=True)
        file["labels"] = np.arange(COUNT, dtype=np.int64) % 3
        encoded = file.create_dataset("encoded", (COUNT,), dtype=h5py.vlen_dtype(np.uint8))
        for i in range(COUNT):
            encoded[i] = np.frombuffer(jpeg(i), np.uint8)


def lmdb() -> None:
    import lmdb

    with tempfile.TemporaryDirectory() as folder:
        with lmdb.open(folder, map_size=1 << 24) as environment, environment.begin(write=True) as transaction:
            for i in range(COUNT):
                transaction.put(f"{i % 3}/{i:08d}".encode(), jpeg(i))
        (HERE / "data.mdb.gz").write_bytes(gzip.compress((Path(folder) / "data.mdb").read_bytes(), mtime=0))


def parquet() -> None:
    import pyarrow
    import pyarrow.parquet

    rows = {
        "image": [{"bytes": jpeg(i), "path": f"{i:04d}.jpg"} for i in range(COUNT)],
        "label": [i % 3 for i in range(COUNT)],
        "caption": [f"picture number {i}" for i in range(COUNT)],
        "boxes": [[float(i)] * (i % 4) for i in range(COUNT)],
    }
    pyarrow.parquet.write_table(pyarrow.table(rows), HERE / "photos.parquet", row_group_size=4)


def tfrecord() -> None:
    import tensorflow as tf

    for part in range(2):
        with tf.io.TFRecordWriter(str(HERE / f"photos-{part:05d}-of-00002")) as writer:
            for i in range(6 * part, 6 * part + 6):
                features = {
                    "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg(i)])),
                    "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[i % 3])),
                    "tokens": tf.train.Feature(int64_list=tf.train.Int64List(value=list(range(i % 4)))),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def mds() -> None:
    from streaming import MDSWriter

    shutil.rmtree(HERE / "mds", ignore_errors=True)
    columns = {"image": "jpeg", "label": "int", "caption": "str"}
    how = {"compression": "zstd", "hashes": ["xxh64"], "size_limit": 6000}
    with MDSWriter(out=str(HERE / "mds"), columns=columns, **how) as out:
        for i in range(COUNT):
            out.write({"image": Image.open(io.BytesIO(jpeg(i))), "label": i % 3, "caption": f"picture number {i}"})


def beton() -> None:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter

    class Samples:
        def __len__(self) -> int:
            return COUNT

        def __getitem__(self, i: int) -> tuple[Image.Image, int]:
            return picture(int(i)), int(i) % 3

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "photos.beton"
        fields = {"image": RGBImageField("raw"), "label": IntField()}
        DatasetWriter(str(path), fields, num_workers=1).from_indexed_dataset(Samples())
        (HERE / "photos.beton.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        {"hdf5": hdf5, "lmdb": lmdb, "parquet": parquet, "tfrecord": tfrecord, "mds": mds, "beton": beton}[name]()

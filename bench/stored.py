"""The data and the client of the rows of bench.formats that are not pictures: records, arrays, values of keys.

Every sample carries its own proof: its number and the CRC-32 of what follows, in its first eight bytes. So a client
checks any sample without reading the file, and no format has to be believed. The files are written by the formats' own
tools (python -m bench.stored FORMAT --data TREE, in the environment that has the tool) and kept beside the tree of
pictures.

tfrecord  JPEGs as they are, about 110 kB, tf.train.Example with one list of bytes; shards of 64 MiB
hdf5      uint8 (128, 128, 3) and an int64 label; a chunk a sample, gzip of level 4: what suits random reads best
lmdb      .npy files of uint8 (64, 64, 3), by their number in eight digits
"""

from __future__ import annotations

import argparse
import io
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench import shards
from bench.consumer import LINE, emit
from bench.meter import Clock

BATCH = 64
STAMP = 8
WARM, CHECKED = 24, 4  # batches
SIDES = {"hdf5": 128, "lmdb": 64}
SAMPLES = {"tfrecord": 4096, "hdf5": 12288, "lmdb": 49152}
RECORDS_A_SHARD = 512


def stamped(number: int, body: bytes) -> bytes:
    return number.to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little") + body


def number_of(sample: bytes) -> int:
    """The number of a sample, whose bytes are held against their proof."""
    if zlib.crc32(sample[STAMP:]) != int.from_bytes(sample[4:STAMP], "little"):
        raise SystemExit("a sample is not what was written")
    return int.from_bytes(sample[:4], "little")


def bodies(name: str, photos: shards.Photos) -> list[bytes]:
    """What samples hold, over and over."""
    if name == "tfrecord":
        return [Path(path).read_bytes() for path, _ in photos.files]
    from PIL import Image

    out, side = [], SIDES[name]
    for path, _ in photos.files:
        with Image.open(path) as image:
            out.append(np.asarray(image.convert("RGB").resize((side, side))).tobytes()[STAMP:])
    return out


def samples(name: str, photos: shards.Photos) -> Iterator[bytes]:
    found = bodies(name, photos)
    for number in range(SAMPLES[name]):
        yield stamped(number, found[number * 7919 % len(found)])


def write(name: str, folder: Path, photos: shards.Photos) -> None:
    {"tfrecord": _tfrecord, "hdf5": _hdf5, "lmdb": _lmdb}[name](folder, samples(name, photos))


def _tfrecord(folder: Path, found: Iterator[bytes]) -> None:
    import tensorflow as tf

    out = None
    for number, sample in enumerate(found):
        if number % RECORDS_A_SHARD == 0:
            if out is not None:
                out.close()
            out = tf.io.TFRecordWriter(str(folder / f"train-{number // RECORDS_A_SHARD:05d}.tfrecord"))
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[sample]))
        out.write(tf.train.Example(features=tf.train.Features(feature={"image": feature})).SerializeToString())
    out.close()


def _hdf5(folder: Path, found: Iterator[bytes]) -> None:
    import h5py

    count, side = SAMPLES["hdf5"], SIDES["hdf5"]
    with h5py.File(folder / "train.h5", "w") as file:
        shape = (side, side, 3)
        images = file.create_dataset(
            "images", (count, *shape), "uint8", chunks=(1, *shape), compression="gzip", compression_opts=4
        )
        for number, sample in enumerate(found):
            images[number] = np.frombuffer(sample, np.uint8).reshape(shape)
        file["labels"] = np.arange(count, dtype=np.int64)


def _lmdb(folder: Path, found: Iterator[bytes]) -> None:
    import lmdb

    with lmdb.open(str(folder / "train.lmdb"), map_size=4 << 30) as env, env.begin(write=True) as txn:
        for number, sample in enumerate(found):
            file = io.BytesIO()
            np.save(file, np.frombuffer(sample, np.uint8).reshape(SIDES["lmdb"], SIDES["lmdb"], 3))
            txn.put(f"{number:08d}".encode(), file.getvalue())


def flat(batch: Any) -> list[np.ndarray]:
    """The samples of a batch as flat arrays of bytes: of a list of bytes, or of one array."""
    if isinstance(batch, (list, tuple)):
        return [np.frombuffer(sample, np.uint8) for sample in batch]
    array = np.asarray(batch)
    return list(array.reshape(len(array), -1))


def touch(batch: Any) -> int:
    """Reads one byte of every cache line."""
    if isinstance(batch, (list, tuple)):
        return sum(int(np.bitwise_xor.reduce(sample[::LINE])) for sample in flat(batch))
    return int(np.bitwise_xor.reduce(np.asarray(batch).reshape(-1)[::LINE]))


def run(name: str, open_batches: Callable[[Path], Iterable[Any]], versions: dict[str, str], **settings: Any) -> None:
    """open_batches(folder) gives batches of BATCH samples in random order, without end."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True, help="the folder of the format's files")
    parser.add_argument("--batches", type=int, default=200)
    args = parser.parse_args()
    cpu = Clock.from_env()
    stream = iter(open_batches(args.data))
    seen: list[int] = []
    for batch_number in range(WARM):
        batch = next(stream)
        touch(batch)
        if batch_number < CHECKED:
            seen += [number_of(sample.tobytes()) for sample in flat(batch)]
    if len(seen) != CHECKED * BATCH or len(set(seen)) != len(seen) or seen == sorted(seen):
        raise SystemExit(f"{name}: samples come twice, in order, or in batches of another size")
    emit("start", cpu=cpu.seconds(), wall=time.perf_counter(), versions=versions, settings=settings)
    checksum = count = 0
    for _ in range(args.batches):
        batch = next(stream)
        checksum ^= touch(batch)
        count += len(batch)
    emit("stop", cpu=cpu.seconds(), wall=time.perf_counter(), samples=count, checksum=checksum, wait=True)
    sys.stdin.readline()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.stored", description=__doc__)
    parser.add_argument("format", choices=tuple(SAMPLES))
    parser.add_argument("--data", required=True, help="a tree that bench.pictures has made")
    args = parser.parse_args()
    shards.made(args.data, args.format, lambda folder, photos: write(args.format, folder, photos))
    emit("made")


if __name__ == "__main__":
    main()

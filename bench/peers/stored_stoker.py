"""Records, arrays and values through stoker, two lanes, fully shuffled. --format: tfrecord, hdf5 or lmdb."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import stoker

from bench import stored

LANES = 2


def dataset(name: str, folder: Path) -> Any:
    if name == "tfrecord":
        return stoker.TFRecordDataset(str(folder / "*.tfrecord"), fields=[stoker.Field("image", decode="bytes")])
    if name == "hdf5":
        return stoker.HDF5Dataset(folder / "train.h5", fields=["images", "labels"])
    return stoker.LMDBDataset(folder / "train.lmdb", fields=[stoker.Field("value", decode="npy")])


def open_batches(name: str, folder: Path) -> Iterator[Any]:
    loader = stoker.DataLoader(
        dataset(name, folder), batch_size=stored.BATCH, shuffle=True, num_workers=LANES, drop_last=True
    )
    first = {"tfrecord": "image", "hdf5": "images", "lmdb": "value"}[name]
    while True:
        for batch in loader:
            yield batch[first]


def main() -> None:
    at = sys.argv.index("--format")
    name = sys.argv[at + 1]
    del sys.argv[at : at + 2]
    stored.run(name, lambda folder: open_batches(name, folder), {"stoker": stoker.__version__}, lanes=LANES)


if __name__ == "__main__":
    main()

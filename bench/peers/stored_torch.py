"""HDF5 and LMDB through DataLoader over the Dataset class that everybody writes. --format: hdf5 or lmdb. --workers: how
many.

The file is opened at the first sample, so that each worker has a handle of its own (h5py's lock is one a process: with
workers each has its own). LMDB's values are .npy files: their header, which is known, is stepped over and not parsed,
the cheapest way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from bench import stored

HEADER = 128
AHEAD = 4


class Arrays(Dataset[Any]):
    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: Any = None
        with h5py.File(path) as file:
            self.length = len(file["labels"])

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self.file = h5py.File(self.path)
            self.images, self.labels = self.file["images"], self.file["labels"]
        return torch.from_numpy(self.images[index]), int(self.labels[index])


class Values(Dataset[Any]):
    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.env: Any = None
        with lmdb.open(self.path, readonly=True, lock=False) as env:
            self.length = env.stat()["entries"]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if self.env is None:
            self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False, meminit=False)
            self.txn = self.env.begin(buffers=True)
        value = self.txn.get(f"{index:08d}".encode())
        side = stored.SIDES["lmdb"]
        return torch.from_numpy(np.frombuffer(value, np.uint8, offset=HEADER).reshape(side, side, 3))


def open_batches(name: str, folder: Path, workers: int) -> Iterator[Any]:
    dataset = Arrays(folder / "train.h5") if name == "hdf5" else Values(folder / "train.lmdb")
    several: dict[str, Any] = {"prefetch_factor": AHEAD, "persistent_workers": True} if workers else {}
    loader = DataLoader(dataset, batch_size=stored.BATCH, shuffle=True, num_workers=workers, drop_last=True, **several)
    while True:
        for batch in loader:
            yield batch[0] if name == "hdf5" else batch


def main() -> None:
    import warnings

    warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--format", choices=("hdf5", "lmdb"), required=True)
    parser.add_argument("--workers", type=int, required=True)
    own, sys.argv[1:] = parser.parse_known_args()
    versions = {"torch": torch.__version__, "h5py": h5py.__version__, "lmdb": lmdb.__version__}
    stored.run(own.format, lambda folder: open_batches(own.format, folder, own.workers), versions, workers=own.workers)


if __name__ == "__main__":
    main()

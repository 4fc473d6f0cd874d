"""A mapped array that is opened at its first use, so that workers do not get a copy of it.

Answers the lazily opened dataset of the second article. What a dataset opens in __init__ is pickled for every worker
that is spawned, and a mapped array is pickled as all of its rows. Opened at first use, each worker maps it anew: what
is pickled stays small, and both loaders start workers by any method. Its length comes from the file's header, read
without keeping the map. stoker.NpyDataset has nothing to open in this process or a worker.

    python examples/recipes/lazy_memmap.py --method spawn
"""

from __future__ import annotations

import pickle
import tempfile
from pathlib import Path

import numpy as np
import torch
from common import beside, decoded, equal, flags, photographs, rate, same, show
from torch.utils.data import DataLoader, Dataset

import stoker


class LazyDataset(Dataset):
    """Rows of a mapped array, mapped by whoever asks first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.length = len(np.load(path, mmap_mode="r"))
        self._data: np.ndarray | None = None

    @property
    def data(self) -> np.ndarray:
        if self._data is None:
            self._data = np.load(self.path, mmap_mode="r")
        return self._data

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.from_numpy(self.data[i].copy())


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--method", choices=["fork", "forkserver", "spawn"], default="fork", help="default: fork")
    args = parser.parse_args()
    with photographs(args) as folder, tempfile.TemporaryDirectory() as name:
        path = Path(name) / "images.npy"
        np.save(path, decoded(folder, 64)[0])
        dataset = LazyDataset(path)
        print(f"a worker gets {len(pickle.dumps(dataset)):,} bytes of the {path.stat().st_size:,} of the file")

        workers = max(1, args.workers)
        settings = {"batch_size": args.batch_size, "num_workers": workers, "persistent_workers": True}
        plain = DataLoader(dataset, multiprocessing_context=args.method, **settings)
        before = rate(plain, len, passes=5)
        show("plain torch", before)
        swapped = stoker.DataLoader(dataset, multiprocessing_context=args.method, **settings)
        show("stoker, the same class", rate(swapped, len, passes=5))
        native = stoker.DataLoader(stoker.NpyDataset(path), batch_size=args.batch_size)
        ours = rate(native, len, passes=5)
        show("stoker.NpyDataset", ours)
        beside(before, ours)
        same("every batch of all three", equal(plain, swapped, native))
        same("the dataset was not opened in this process", dataset._data is None)


if __name__ == "__main__":
    main()

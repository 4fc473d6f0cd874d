"""A pair of .npy files, mapped: one of pictures, one of labels.

Answers the memory-mapped dataset of the first article. The class runs under stoker's loader as it is, in Python
workers. stoker.NpyDataset reads the same two files row by row in the engine, with the conversion to float32, and maps
nothing: mapped pages count as memory of every process that touches them.

    python examples/recipes/memmap.py --samples 600 --workers 2
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import torch
from common import beside, decoded, equal, flags, photographs, rate, same, show
from torch.utils.data import DataLoader, Dataset

import stoker


class MemmapDataset(Dataset):
    """Rows of two mapped arrays."""

    def __init__(self, data: Path, targets: Path) -> None:
        self.data = np.load(data, mmap_mode="r")
        self.targets = np.load(targets, mmap_mode="r")

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(self.data[i].copy()).float(), torch.tensor(self.targets[i])


def main() -> None:
    args = flags(__doc__).parse_args()
    with photographs(args) as folder, tempfile.TemporaryDirectory() as name:
        images, labels = decoded(folder, 64)
        data, targets = Path(name) / "images.npy", Path(name) / "labels.npy"
        np.save(data, images)
        np.save(targets, labels)

        settings = {"batch_size": args.batch_size, "num_workers": args.workers, "persistent_workers": args.workers > 0}
        plain = DataLoader(MemmapDataset(data, targets), **settings)
        before = rate(plain, passes=5)
        show("plain torch", before)
        swapped = stoker.DataLoader(MemmapDataset(data, targets), **settings)
        show("stoker, the same class", rate(swapped, passes=5))

        arrays = stoker.NpyDataset(
            images=data, labels=targets, fields=[stoker.Field("images", dtype="float32"), "labels"]
        )
        native = stoker.DataLoader(arrays, batch_size=args.batch_size)
        ours = rate(native, passes=5)
        show("stoker.NpyDataset", ours)
        beside(before, ours)
        same("every batch of all three", equal(plain, swapped, native))


if __name__ == "__main__":
    main()

"""An HDF5 file read through h5py, opened at first use, with workers.

Answers the HDF5 dataset of the first article, which opens its file when it is first asked for a sample or its length,
and therefore advises num_workers=0. The length must not leave a handle in this process: a worker that is forked would
share it, and one that is spawned cannot have it, since h5py's handles are not pickled. Then workers do no harm, under
either loader. stoker.HDF5Dataset reads the file in the engine, without h5py, with all its cores.

    python examples/recipes/hdf5.py --workers 2
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import h5py
import torch
from common import beside, decoded, equal, flags, photographs, rate, same, show
from torch.utils.data import DataLoader, Dataset

import stoker


class HDF5Dataset(Dataset):
    """Rows of two datasets of a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: h5py.File | None = None
        with h5py.File(path, "r") as file:
            self.length = len(file["images"])

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return torch.from_numpy(self.file["images"][i]).float(), torch.tensor(self.file["labels"][i])


def main() -> None:
    args = flags(__doc__).parse_args()
    with photographs(args) as folder, tempfile.TemporaryDirectory() as name:
        path = Path(name) / "photographs.h5"
        images, labels = decoded(folder, 64)
        with h5py.File(path, "w") as file:
            file.create_dataset("images", data=images, chunks=(1, *images.shape[1:]), compression="gzip")
            file.create_dataset("labels", data=labels)

        alone = rate(DataLoader(HDF5Dataset(path), batch_size=args.batch_size), passes=2)
        show("plain torch, num_workers=0 as advised", alone)
        settings = {"batch_size": args.batch_size, "num_workers": max(1, args.workers), "persistent_workers": True}
        plain = DataLoader(HDF5Dataset(path), **settings)
        before = rate(plain, passes=2)
        show(f"plain torch, {settings['num_workers']} workers", before)
        swapped = stoker.DataLoader(HDF5Dataset(path), **settings)
        show(f"stoker, the same class, {settings['num_workers']} workers", rate(swapped, passes=2))

        rows = stoker.HDF5Dataset(path).to_tuple(stoker.Field("images", dtype="float32"), "labels")
        native = stoker.DataLoader(rows, batch_size=args.batch_size)
        ours = rate(native, passes=2)
        show("stoker.HDF5Dataset", ours)
        beside(before, ours, "torch with workers")
        same("every batch of all three", equal(plain, swapped, native))


if __name__ == "__main__":
    main()

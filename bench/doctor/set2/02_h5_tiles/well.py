import argparse
import os
import time

import h5py
import torch
from torch.utils.data import DataLoader, Dataset


class TileDataset(Dataset):
    """96x96 tiles out of one HDF5 file. Opened lazily since h5py objects do not survive a fork."""

    def __init__(self, path):
        self.path = path
        self.h5 = None
        with h5py.File(path, "r") as f:
            self.n = f["images"].shape[0]

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if self.h5 is None:
            self.h5 = h5py.File(self.path, "r")
        tile = self.h5["images"][i]
        label = self.h5["labels"][i]
        tile = torch.from_numpy(tile).permute(2, 0, 1).float().div_(255)
        return tile, int(label)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data-dir", default=os.environ.get("DATA_DIR", "data"))
    p.add_argument("--file", default="tiles_single.h5")
    p.add_argument("-b", "--batch-size", type=int, default=32)
    p.add_argument("-j", "--workers", type=int, default=2)
    p.add_argument("--epochs", type=int, default=50)
    p.add_argument("--time-limit", type=float, default=50)
    return p.parse_args()


def main():
    args = parse_args()
    ds = TileDataset(os.path.join(args.data_dir, args.file))
    loader = DataLoader(
        ds, batch_size=args.batch_size, shuffle=True, num_workers=args.workers, persistent_workers=True, drop_last=True
    )
    t0 = time.time()
    n = 0
    for epoch in range(args.epochs):
        for it, (x, y) in enumerate(loader):
            time.sleep(0.07)  # stands in for the UNet on the GPU
            n += len(x)
            if it % 10 == 9:
                t = time.time()
                print(f"[{epoch}][{it + 1}/{len(loader)}] samples: {n} time: {t:.2f} speed: {n / (t - t0):.1f}/s")
            if time.time() - t0 > args.time_limit:
                return


if __name__ == "__main__":
    main()

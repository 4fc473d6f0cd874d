"""Train on feature shards written by extract_features.py."""
import glob
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class ShardedFeatures(Dataset):
    def __init__(self, pattern, per_shard=256):
        self.shards = sorted(glob.glob(pattern))
        self.per_shard = per_shard
        self.arrays = {}
        for path in self.shards:
            with np.load(path) as z:
                self.arrays[path] = z["x"], z["y"]

    def __len__(self):
        return len(self.shards) * self.per_shard

    def __getitem__(self, index):
        shard, row = divmod(index, self.per_shard)
        x, y = self.read(self.shards[shard], row)
        return torch.from_numpy(x), int(y)

    def read(self, path, row):
        x, y = self.arrays[path]
        return x[row], y[row]


class FeatureLoader(DataLoader):
    def __init__(self, pattern, **kwargs):
        super().__init__(ShardedFeatures(pattern), shuffle=True, drop_last=True, **kwargs)


def main():
    data = os.environ.get("DATA_DIR", "data")
    loader = FeatureLoader(f"{data}/shards/*.npz", batch_size=10, num_workers=2, prefetch_factor=4)
    samples = step = 0
    began = last = time.time()
    while last - began < 50:
        for x, y in loader:
            time.sleep(0.035)
            samples += len(y)
            step += 1
            last = time.time()
            if step % 10 == 0:
                print(f"{step:6d} samples: {samples} time: {last:.3f}")
            if last - began > 50:
                break


if __name__ == "__main__":
    main()

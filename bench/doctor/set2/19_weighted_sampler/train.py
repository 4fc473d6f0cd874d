import os
import time

import numpy as np
import torch
from balance import BalancedSampler
from torch.utils.data import DataLoader, Dataset

DATA = os.environ.get("DATA_DIR", "data")


class Table(Dataset):
    def __init__(self):
        self.rows = np.load(f"{DATA}/table.npy", mmap_mode="r")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return torch.tensor(row[1:]), torch.tensor(row[0])


table = Table()
sampler = BalancedSampler(f"{DATA}/weights.npy")
loader = DataLoader(table, batch_size=64, sampler=sampler, num_workers=2, persistent_workers=True)

if __name__ == "__main__":
    t = time.time()
    n = 0
    for epoch in range(3):
        for k, (x, y) in enumerate(loader):
            time.sleep(0.040)  # optimizer step on the GPU
            n += len(y)
            if k % 20 == 19:
                now = time.time()
                print(f"[epoch {epoch}] it {k + 1} samples {n} time {now:.3f}")
            if time.time() - t > 50:
                raise SystemExit

"""Click-through model on a table of 200 000 rows."""
import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path):
        self.table = np.load(path, mmap_mode="r")

    def __len__(self):
        return self.table.shape[0]

    def __getitem__(self, index):
        row = self.table[index]
        return {"x": torch.from_numpy(row[1:].copy()), "y": torch.tensor(row[0] > 0, dtype=torch.float32)}


class Mlp(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(39, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--table", default=os.path.join(os.environ.get("DATA_DIR", "data"), "table.npy"))
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(1)
    loader = DataLoader(
        Rows(args.table), args.batch_size, shuffle=True, num_workers=args.workers, persistent_workers=True, drop_last=True
    )
    model = Mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss_fn = nn.BCEWithLogitsLoss()
    start = time.time()
    samples = step = 0
    while time.time() - start < 50:
        for batch in loader:
            optimizer.zero_grad()
            loss = loss_fn(model(batch["x"]), batch["y"])
            loss.backward()
            optimizer.step()
            time.sleep(0.015)
            samples += len(batch["y"])
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f} samples={samples} time={time.time():.3f}")
            if time.time() - start > 50:
                break


if __name__ == "__main__":
    main()

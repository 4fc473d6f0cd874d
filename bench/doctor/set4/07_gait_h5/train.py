import os
import time

import h5py
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class GaitData(Dataset):
    def __init__(self, path):
        self.path = path
        self.file = None
        with h5py.File(path, "r") as f:
            self.ends = f["ends"][:]
            self.subject = f["subject"][:]

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, i):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        begin = self.ends[i - 1] if i else 0
        return self.file["values"][begin : self.ends[i]], self.subject[i]


def pad_batch(items):
    longest = max(len(walk) for walk, _ in items)
    rows = []
    for walk, _ in items:
        row = walk.tolist()
        row += [[0.0] * 6] * (longest - len(row))
        rows.append(row)
    lengths = torch.tensor([len(walk) for walk, _ in items])
    return torch.tensor(rows), lengths, torch.tensor(np.array([subject for _, subject in items]))


class GaitDataModule:
    def __init__(self, folder, batch_size=32):
        self.folder = folder
        self.batch_size = batch_size

    def setup(self):
        self.train_set = GaitData(os.path.join(self.folder, "gait.h5"))

    def train_dataloader(self):
        return DataLoader(
            self.train_set,
            batch_size=self.batch_size,
            shuffle=True,
            collate_fn=pad_batch,
            num_workers=2,
            persistent_workers=True,
        )


class GaitModule(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(6, width, 7, padding=3), nn.ReLU(), nn.Conv1d(width, width, 7, stride=2, padding=3), nn.ReLU()
        )
        self.head = nn.Linear(width, 20)

    def training_step(self, batch):
        walks, lengths, subjects = batch
        features = self.net(walks.transpose(1, 2)).sum(-1) / lengths[:, None]
        return nn.functional.cross_entropy(self.head(features), subjects)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Trainer:
    def __init__(self, max_seconds, log_every=1.0):
        self.max_seconds = max_seconds
        self.log_every = log_every

    def fit(self, module, data):
        data.setup()
        optimizer = module.configure_optimizers()
        loader = data.train_dataloader()
        begin = logged = time.monotonic()
        samples = 0
        while True:
            for batch in loader:
                loss = module.training_step(batch)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                samples += len(batch[1])
                now = time.monotonic()
                if now - logged >= self.log_every:
                    print(f"samples={samples} loss={loss.item():.3f} time={now - begin:.2f}", flush=True)
                    logged = now
                if now - begin > self.max_seconds:
                    return


if __name__ == "__main__":
    torch.set_num_threads(1)
    Trainer(max_seconds=60).fit(GaitModule(), GaitDataModule(os.environ.get("DATA_DIR", "data")))

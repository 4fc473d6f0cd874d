import os
import time

import h5py
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler


class CellDataset(Dataset):
    def __init__(self, path, first, last, size, train):
        self.path, self.first, self.last = path, first, last
        self.size = size
        self.train = train
        self.file = None

    def __len__(self):
        return self.last - self.first

    def __getitem__(self, index):
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        image = self.file["images"][self.first + index]
        label = self.file["labels"][self.first + index]
        room = image.shape[0] - self.size
        top, left = np.random.randint(0, room + 1, 2) if self.train else (room // 2, room // 2)
        image = image[top : top + self.size, left : left + self.size]
        image = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1).float() / 255
        return image, int(label)


class CellModule(nn.Module):
    def __init__(self, width=24, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, 4),
        )

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def validation_step(self, batch, batch_idx):
        x, y = batch
        return (self.net(x).argmax(1) == y).float().mean().item()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class CellData:
    batch_size = 16

    def __init__(self, root):
        self.path = os.path.join(root, "cells", "cells.h5")

    def setup(self):
        self.train_set = CellDataset(self.path, 0, 1040, size=64, train=True)
        self.val_set = CellDataset(self.path, 1040, 1200, size=112, train=False)

    def train_dataloader(self):
        sampler = RandomSampler(self.train_set, num_samples=10 * self.batch_size)
        return DataLoader(
            self.train_set, self.batch_size, sampler=sampler, num_workers=2, persistent_workers=True, drop_last=True
        )

    def val_dataloader(self):
        return DataLoader(self.val_set, self.batch_size)


class Fit:
    """As much of a Trainer as we need."""

    def __init__(self, max_time):
        self.max_time = max_time
        self.epoch = 0
        self.seen = 0

    def __call__(self, module, data):
        data.setup()
        train_loader, val_loader = data.train_dataloader(), data.val_dataloader()
        optimizer = module.configure_optimizers()
        self.began = time.time()
        while time.time() - self.began < self.max_time:
            loss = self.training_epoch(module, train_loader, optimizer)
            accuracy = self.validation_epoch(module, val_loader)
            self.log(loss, accuracy)
            self.epoch += 1

    def training_epoch(self, module, loader, optimizer):
        module.train()
        for batch_idx, batch in enumerate(loader):
            loss = module.training_step(batch, batch_idx)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.seen += len(batch[0])
        return loss.item()

    @torch.no_grad()
    def validation_epoch(self, module, loader):
        module.eval()
        return np.mean([module.validation_step(batch, i) for i, batch in enumerate(loader)])

    def log(self, loss, accuracy):
        now = time.time() - self.began
        print(f"{self.epoch} loss {loss:.3f} val_acc {accuracy:.3f} samples: {self.seen} time: {now:.2f}", flush=True)


def cli():
    torch.manual_seed(11)
    torch.set_num_threads(1)
    fit = Fit(max_time=60)
    fit(CellModule(), CellData(os.environ.get("DATA_DIR", "data")))


if __name__ == "__main__":
    cli()

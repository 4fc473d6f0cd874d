# Train a small CNN on image patches.
import glob
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class PatchDataset(Dataset):
    """Patches are stored in parts of 112, as they were exported."""

    def __init__(self, folder):
        parts = [np.load(part) for part in sorted(glob.glob(os.path.join(folder, "*.npz")))]
        self.images = np.concatenate([part["images"] for part in parts])
        self.labels = np.concatenate([part["labels"] for part in parts])

    def __len__(self):
        return len(self.labels) * 4  # four random flips of each

    def __getitem__(self, i):
        k = i % len(self.labels)
        image, label = self.images[k], self.labels[k]
        if np.random.rand() < 0.5:
            image = image[:, ::-1]
        image = torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 255
        return image, int(label)


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def train_one_batch(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def train(model, loader, seconds):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = time.time()
    shown = start
    samples = 0
    while True:
        for images, labels in loader:
            loss = train_one_batch(model, optimizer, images, labels)
            samples += images.size(0)
            now = time.time()
            if now - shown > 1:
                print(f"loss: {loss:.3f}, samples: {samples}, time: {now - start:.2f}", flush=True)
                shown = now
            if now - start > seconds:
                return


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = PatchDataset(os.path.join(os.environ.get("DATA_DIR", "data"), "patches"))
    loader = DataLoader(dataset, batch_size=24, shuffle=True, num_workers=2, persistent_workers=True)
    train(build_model(), loader, seconds=60)


if __name__ == "__main__":
    main()

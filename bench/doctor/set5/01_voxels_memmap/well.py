# %% [markdown]
# Shapes from point clouds: a 32^3 occupancy grid and a small 3D network.

# %%
import os
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

root = os.environ.get("DATA_DIR", "data")


# %%
class Rotate:
    def __call__(self, points):
        a = np.random.uniform(0, 2 * np.pi)
        turn = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]], dtype=np.float32)
        return points @ turn


class Unit:
    def __call__(self, points):
        points = points - points.mean(0)
        return points / np.abs(points).max()


class Voxels:
    def __init__(self, size=32):
        self.size = size

    def __call__(self, points):
        grid = np.zeros((self.size, self.size, self.size), dtype=np.float32)
        cells = ((points + 1) / 2 * (self.size - 1)).astype(int)
        flat = np.ravel_multi_index(cells.T, grid.shape)
        grid += np.bincount(flat, minlength=grid.size).reshape(grid.shape)
        return torch.from_numpy(np.log1p(grid))[None]


# %%
class Shapes(Dataset):
    def __init__(self, transform):
        self.points = np.load(os.path.join(root, "points.npy"), mmap_mode="r")
        self.labels = np.load(os.path.join(root, "points_label.npy"))
        self.transform = transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(np.array(self.points[i])), int(self.labels[i])


chain = transforms.Compose([Rotate(), Unit(), Voxels(32)])
loader = DataLoader(Shapes(chain), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)


# %%
def gpu_step(grids, labels):
    time.sleep(0.06)  # this rank's GPU


# %%
begin = shown = time.time()
samples, epoch = 0, 0
while time.time() - begin < 60:
    for grids, labels in loader:
        gpu_step(grids, labels)
        samples += len(labels)
        now = time.time()
        if now - shown > 1:
            print(f"epoch {epoch} samples={samples} time={now - begin:.2f}", flush=True)
            shown = now
        if now - begin > 60:
            break
    epoch += 1

import os
import time
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

PATCH = 16


class Whitened(Dataset):
    """Patches of a photo, whitened with the covariance of the training set (ZCA, in numpy)."""

    def __init__(self, root):
        self.files = sorted(Path(root).rglob("*.jpg")) * 10
        rng = np.random.default_rng(0)
        size = PATCH * PATCH * 3
        self.zca = (np.eye(size) + 0.01 * rng.normal(size=(size, size))).astype(np.float32)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        im = Image.open(self.files[i])
        im.draft("RGB", (250, 190))
        x = np.asarray(im.convert("RGB").resize((192, 192)), dtype=np.float32) / 255
        n = 192 // PATCH
        patches = x.reshape(n, PATCH, n, PATCH, 3).transpose(0, 2, 1, 3, 4).reshape(n * n, -1)
        white = (patches - patches.mean(0)) @ self.zca
        white = white @ self.zca.T
        return torch.from_numpy(white)


def main():
    root = os.path.join(os.environ.get("DATA_DIR", "data"), "photos")
    loader = DataLoader(
        Whitened(root),
        batch_size=8,
        shuffle=True,
        num_workers=4,
        persistent_workers=True,
    )
    t0 = time.time()
    total = 0
    step = 0
    for epoch in range(1000):
        for batch in loader:
            time.sleep(0.07)
            total += batch.size(0)
            step += 1
            if step % 10 == 0:
                print(f"ep {epoch} it {step} samples {total} time {time.time():.2f}")
            if time.time() - t0 > 50:
                return


if __name__ == "__main__":
    main()

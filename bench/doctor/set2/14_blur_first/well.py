"""SimCLR-like pretraining on product photos."""
import os
import time
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

BATCH = 8
WORKERS = 2


class TwoViews:
    def __init__(self, transform):
        self.transform = transform

    def __call__(self, image):
        return torch.stack([self.transform(image), self.transform(image)])


augment = TwoViews(
    v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(112, scale=(0.3, 1.0), antialias=True),
            v2.GaussianBlur(kernel_size=9, sigma=(0.1, 2.0)),
            v2.RandomHorizontalFlip(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
)


class Photos(Dataset):
    def __init__(self, root):
        self.paths = sorted(Path(root).glob("*/*.jpg")) * 10

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, k):
        return augment(Image.open(self.paths[k]).convert("RGB"))


def train():
    root = Path(os.environ.get("DATA_DIR", "data")) / "photos"
    loader = DataLoader(
        Photos(root), batch_size=BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True, pin_memory=False
    )
    t0 = time.time()
    images, step = 0, 0
    while time.time() - t0 < 50:
        for views in loader:
            time.sleep(0.06)
            images += len(views)
            step += 1
            if step % 10 == 0:
                took = time.time() - t0
                print(f"{step} steps, {images / took:.1f} images/s (samples={images}, time={time.time():.3f})")
            if time.time() - t0 > 50:
                break


if __name__ == "__main__":
    train()

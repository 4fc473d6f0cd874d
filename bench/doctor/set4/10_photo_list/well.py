import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


@dataclass
class Settings:
    root: Path = field(default_factory=lambda: Path(os.environ.get("DATA_DIR", "data")))
    size: int = 128
    batch: int = 24
    workers: int = 2
    limit: float = 60.0


class PhotoList(Dataset):
    def __init__(self, settings):
        lines = (settings.root / "small.txt").read_text().splitlines()
        self.items = [(settings.root / "small" / name, int(label)) for name, label in map(str.split, lines)]
        self.transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(settings.size, scale=(0.3, 1.0)),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, label = self.items[i]
        with Image.open(path) as image:
            return self.transform(image.convert("RGB")), label


def gpu_step(images, labels):
    time.sleep(0.16)  # ResNet-50, 24 images


def run(settings):
    loader = DataLoader(
        PhotoList(settings),
        batch_size=settings.batch,
        shuffle=True,
        num_workers=settings.workers,
        persistent_workers=True,
    )
    torch.set_num_threads(1)
    began, reported, samples, epoch = time.time(), 0.0, 0, 0
    while True:
        for images, labels in loader:
            gpu_step(images, labels)
            samples += len(images)
            passed = time.time() - began
            if passed - reported > 1:
                print(f"epoch {epoch}: samples {samples}, time {passed:.2f}", flush=True)
                reported = passed
            if passed > settings.limit:
                return
        epoch += 1


if __name__ == "__main__":
    run(Settings())

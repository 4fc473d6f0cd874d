"""CIFAR-size classifier on the CPU. Settings from the cluster, where a node has 64 cores."""
import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision.transforms import v2

parser = argparse.ArgumentParser()
parser.add_argument("--data", default=os.path.join(os.environ.get("DATA_DIR", "data"), "photos"))
parser.add_argument("--workers", type=int, default=14)
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--stop-after", type=float, default=50, help="seconds")


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(48 * 16, 10),
    )


def draft_loader(path):
    from PIL import Image

    with Image.open(path) as image:
        image.draft("RGB", (130, 100))
        return image.convert("RGB")


def main():
    args = parser.parse_args()
    tf = v2.Compose([v2.ToImage(), v2.Resize((64, 64)), v2.ToDtype(torch.float32, scale=True)])
    once = datasets.ImageFolder(Path(args.data), tf, loader=draft_loader)
    train = torch.utils.data.ConcatDataset([once] * 4)
    loader = DataLoader(train, args.batch_size, shuffle=True, num_workers=args.workers)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    begin, images_seen, running = time.time(), 0, 0.0
    while True:
        for i, (images, labels) in enumerate(loader, 1):
            for _ in range(3):  # three views, as in the paper
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(images + torch.randn_like(images) * 0.02), labels)
                loss.backward()
                optimizer.step()
            running += loss.item()
            images_seen += len(images)
            if i % 10 == 0:
                print(f"{i:4d} loss {running / 10:.3f} samples {images_seen} time {time.time():.3f}")
                running = 0.0
            if time.time() - begin > args.stop_after:
                return


if __name__ == "__main__":
    main()

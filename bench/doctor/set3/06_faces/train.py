#!/usr/bin/env python
"""Attribute classifier over an LMDB of aligned faces."""

import argparse
import io
import os
import time

import lmdb
import torch
import torch.nn as nn
import torchvision.transforms as transforms
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class FaceLMDB(Dataset):
    def __init__(self, path, transform):
        self.path = path
        self.transform = transform
        env = lmdb.open(path, readonly=True, lock=False)
        with env.begin() as txn:
            self.length = int(txn.get(b"__len__"))
        env.close()
        self.env = None

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.env is None:
            self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        with self.env.begin() as txn:
            value = txn.get(f"{index:08}".encode())
        image = Image.open(io.BytesIO(value[1:])).convert("RGB")
        return self.transform(image), value[0]


def get_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.path.join(os.environ.get("DATA_DIR", "."), "faces"))
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--crop", type=int, default=112)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--log-interval", type=int, default=3)
    return parser.parse_args()


def make_net():
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 8),
    )


def main():
    args = get_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    transform = transforms.Compose(
        [transforms.RandomCrop(224), transforms.Resize(args.crop), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    loader = DataLoader(
        FaceLMDB(args.data, transform),
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    net = make_net()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    start = time.time()
    samples = batches = epoch = 0
    while time.time() - start < args.seconds:
        epoch += 1
        for images, labels in loader:
            optimizer.zero_grad()
            loss = criterion(net(images), labels)
            loss.backward()
            optimizer.step()
            samples += images.shape[0]
            batches += 1
            if batches % args.log_interval == 0:
                print(f"epoch {epoch} loss {loss.item():.4f} samples {samples} time {time.time() - start:.2f}", flush=True)
            if time.time() - start > args.seconds:
                break


if __name__ == "__main__":
    main()

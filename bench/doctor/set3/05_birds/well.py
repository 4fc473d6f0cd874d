import os

import torch
from data import BirdDataset
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from trainer import Trainer


def build_model(num_classes):
    layers, width = [], 3
    for out in (20, 40, 56):
        layers += [nn.Conv2d(width, out, 3, stride=2, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        layers += [nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))


def build_transform(size):
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(size, scale=(0.3, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ColorJitter(0.3, 0.3, 0.3, 0.05),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )


if __name__ == "__main__":
    torch.manual_seed(42)
    torch.set_num_threads(1)
    root = os.path.join(os.environ.get("DATA_DIR", "/data"), "birds")
    dataset = BirdDataset(root, transform=build_transform(96))
    loader = DataLoader(
        dataset, batch_size=16, shuffle=True, num_workers=2, drop_last=True, persistent_workers=True
    )
    trainer = Trainer(build_model(dataset.num_classes), loader)
    trainer.fit(epochs=500)

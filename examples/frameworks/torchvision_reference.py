#!/usr/bin/env python3
"""What torchvision's reference script for classification does, with stoker's loader.

    torchrun --nproc-per-node 2 torchvision_reference.py --data folder-of-classes --out run --ra-sampler
    torchrun --nproc-per-node 2 torchvision_reference.py --data folder-of-classes --out run --ra-sampler --resume

Its presets (a policy, RandomErasing), its sampler of repeated augmentations, MixUp and CutMix, in both versions of
torchvision's transforms. All of it runs in the engine. Compared with torch's DataLoader, the import is another one, and
MixUp is given to the loader as ``batch_transform``. As part of a ``collate_fn`` it works too, in Python workers.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.models import get_model
from torchvision.transforms import v2

from stoker import DataLoader

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
POLICIES = {"ra": "RandAugment", "ta_wide": "TrivialAugmentWide", "augmix": "AugMix", "imagenet": "AutoAugment"}


def training_preset(size: int, policy: str | None, erase: float, use_v2: bool) -> Any:
    """Crop, flip, policy, floats, erasing."""
    T: Any = v2 if use_v2 else v1
    bilinear = v1.InterpolationMode.BILINEAR
    steps = [T.RandomResizedCrop(size, interpolation=bilinear, antialias=True), T.RandomHorizontalFlip(0.5)]
    if policy is not None:
        steps.append(getattr(T, POLICIES[policy])(interpolation=bilinear))
    steps += _to_numbers(use_v2)
    if erase:
        steps.append(T.RandomErasing(erase))
    return T.Compose([*steps, T.ToPureTensor()] if use_v2 else steps)


def evaluation_preset(size: int, resize: int, use_v2: bool) -> Any:
    """Resize, centre crop, floats."""
    T: Any = v2 if use_v2 else v1
    steps = [T.Resize(resize, antialias=True), T.CenterCrop(size), *_to_numbers(use_v2)]
    return T.Compose([*steps, T.ToPureTensor()] if use_v2 else steps)


def _to_numbers(use_v2: bool) -> list[Any]:
    if use_v2:
        return [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return [v1.PILToTensor(), v1.ConvertImageDtype(torch.float32), v1.Normalize(MEAN, STD)]


class RASampler(torch.utils.data.Sampler[int]):
    """Repeated augmentation: every picture comes several times in a row over the ranks, which get different crops of
    it; an epoch is as long as without. A sampler as users write them: stoker iterates it, and loads these ids."""

    def __init__(self, samples: int, rank: int, world: int, repetitions: int, unit: int) -> None:
        self.samples, self.rank, self.world, self.repetitions = samples, rank, world, repetitions
        self.chosen = samples // unit * unit // world  # ids of a rank in an epoch
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.chosen

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(self.samples, generator=torch.Generator().manual_seed(self.epoch)).tolist()
        for place in range(self.chosen):
            yield order[(place * self.world + self.rank) // self.repetitions % self.samples]


def mixup_or_cutmix(mixup: float, cutmix: float, classes: int) -> Any:
    """One of both for each batch; None if neither is wanted."""
    found: list[Any] = [v2.MixUp(alpha=mixup, num_classes=classes)] if mixup else []
    found += [v2.CutMix(alpha=cutmix, num_classes=classes)] if cutmix else []
    return v2.RandomChoice(found) if found else None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with a folder of pictures for each class")
    parser.add_argument("--val", type=Path, help="the same for validation; default: --data")
    parser.add_argument("--out", type=Path, required=True, help="where checkpoints go")
    parser.add_argument("--model", default="resnet18", help="any of torchvision.models.list_models()")
    parser.add_argument("--size", type=int, default=176, help="height and width in training (default 176)")
    parser.add_argument("--val-size", type=int, default=224, help="the same in validation (default 224)")
    parser.add_argument("--epochs", type=int, default=3, help="default 3")
    parser.add_argument("--batch-size", type=int, default=32, help="per rank (default 32)")
    parser.add_argument("--lr", type=float, default=0.1, help="default 0.1")
    parser.add_argument("--auto-augment", choices=POLICIES, default="ta_wide")
    parser.add_argument("--random-erase", type=float, default=0.1, help="probability (default 0.1)")
    parser.add_argument("--mixup-alpha", type=float, default=0.2, help="0 leaves it out (default 0.2)")
    parser.add_argument("--cutmix-alpha", type=float, default=1.0, help="0 leaves it out (default 1.0)")
    parser.add_argument("--ra-sampler", action="store_true", help="repeated augmentation")
    parser.add_argument("--ra-reps", type=int, default=3, help="repetitions (default 3)")
    parser.add_argument("--ra-unit", type=int, default=256, help="epochs are multiples of this many (default 256)")
    parser.add_argument("--v1", action="store_true", help="version 1 of torchvision's transforms")
    parser.add_argument("--workers", type=int, default=4, help="lanes of the engine (default 4)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=50, help="batches between checkpoints (default 50)")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = args.device == "cuda"
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(args.seed)

    train_set = ImageFolder(
        str(args.data), training_preset(args.size, args.auto_augment, args.random_erase, not args.v1)
    )
    val_set = ImageFolder(
        str(args.val or args.data), evaluation_preset(args.val_size, math.ceil(args.val_size * 8 / 7), not args.v1)
    )
    classes = len(train_set.classes)
    sampler = RASampler(len(train_set), rank, world, args.ra_reps, args.ra_unit) if args.ra_sampler else None
    train = DataLoader(
        train_set,
        batch_size=args.batch_size,
        shuffle=sampler is None,
        sampler=sampler,
        num_workers=args.workers,
        pin_memory=cuda,
        drop_last=True,
        batch_transform=mixup_or_cutmix(args.mixup_alpha, args.cutmix_alpha, classes),
    )
    val = DataLoader(val_set, batch_size=args.batch_size, num_workers=args.workers, pin_memory=cuda)

    model: Any = get_model(args.model, num_classes=classes).to(device)
    if world > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=2e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    args.out.mkdir(parents=True, exist_ok=True)
    last = args.out / "last.pt"
    kept: dict[str, Any] = {"model": model, "optimizer": optimizer, "schedule": schedule, "loader": train}
    updates = first = 0
    if args.resume:
        saved = torch.load(last, map_location=device, weights_only=True)
        for name, one in kept.items():
            one.load_state_dict(saved[name])
        updates, first = saved["updates"], saved["loader"]["epoch"]

    def save() -> None:
        found = {name: one.state_dict() for name, one in kept.items()}  # the loader's is the same on every rank
        if rank == 0:
            torch.save({**found, "updates": updates}, args.out / "part.pt")
            os.replace(args.out / "part.pt", last)

    for epoch in range(first, args.epochs):
        train.set_epoch(epoch)  # and the sampler's; right after load_state_dict, this keeps the place in the epoch
        model.train()
        for images, targets in train:
            images, targets = images.to(device, non_blocking=True), targets.to(device, non_blocking=True)
            loss = criterion(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            updates += 1
            if updates % args.save_every == 0:
                save()
        save()
        accuracy = evaluate(model, val, device, world)
        if rank == 0:
            print(f"epoch {epoch}: {updates} updates, accuracy {accuracy:.3f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


@torch.inference_mode()
def evaluate(model: Any, loader: Any, device: torch.device, world: int) -> float:
    """The share of pictures that are classified right. torch's script counts the padding of uneven ranks, and warns;
    ``valid`` leaves it out."""
    model.eval()
    right = torch.zeros(2, device=device)
    for batch in loader:
        images, targets = batch.to(device, non_blocking=True)
        valid = batch.valid.to(device)
        right[0] += ((model(images).argmax(1) == targets) & valid).sum()
        right[1] += valid.sum()
    if world > 1:
        dist.all_reduce(right)
    return float(right[0] / right[1])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Training with timm on a folder of pictures: its models, transforms, Mixup and optimisers, and stoker's loader.

    torchrun --nproc-per-node 2 timm_train.py --data folder-of-classes --out run
    torchrun --nproc-per-node 2 timm_train.py --data folder-of-classes --out run --resume

What differs from a script of timm's is one import: ``from stoker.timm import create_loader``. The loader has a state
then, and a run that was killed continues with the next batch.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import timm
import torch
import torch.distributed as dist
from timm.data import FastCollateMixup, create_dataset
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler

from stoker.timm import create_loader


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with a folder of pictures for each class")
    parser.add_argument("--val", type=Path, help="the same for validation; default: --data")
    parser.add_argument("--out", type=Path, required=True, help="where checkpoints go")
    parser.add_argument("--model", default="resnet18", help="any of timm.list_models() (default resnet18)")
    parser.add_argument("--size", type=int, default=224, help="height and width of pictures (default 224)")
    parser.add_argument("--epochs", type=int, default=3, help="default 3")
    parser.add_argument("--batch-size", type=int, default=32, help="per rank (default 32)")
    parser.add_argument("--lr", type=float, default=1e-3, help="default 0.001")
    parser.add_argument("--auto-augment", default=None, help="a policy of timm's, such as rand-m9-mstd0.5-inc1")
    parser.add_argument("--reprob", type=float, default=0.25, help="probability of RandomErasing (default 0.25)")
    parser.add_argument("--mixup", type=float, default=0.0, help="alpha of Mixup; 0, the default, leaves it out")
    parser.add_argument("--aug-repeats", type=int, default=0, help="repeated augmentation, on several ranks")
    parser.add_argument("--workers", type=int, default=4, help="lanes, or Python workers where they are needed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-every", type=int, default=50, help="batches between checkpoints (default 50)")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device(args.device)
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(args.seed)  # also the seed of the loaders

    train_set = create_dataset("", root=str(args.data))
    classes = len(train_set.reader.class_to_idx)
    mixup = FastCollateMixup(mixup_alpha=args.mixup, num_classes=classes) if args.mixup else None
    shared: dict[str, Any] = {"distributed": world > 1, "num_workers": args.workers, "device": device}
    train = create_loader(
        train_set,
        (3, args.size, args.size),
        args.batch_size,
        is_training=True,
        auto_augment=args.auto_augment,
        interpolation="random",
        re_prob=args.reprob,
        re_mode="pixel",
        num_aug_repeats=args.aug_repeats,
        collate_fn=mixup,
        pin_memory=device.type == "cuda",
        **shared,
    )
    val_set = create_dataset("", root=str(args.val or args.data))
    val = create_loader(val_set, (3, args.size, args.size), args.batch_size, interpolation="bicubic", **shared)

    model: Any = timm.create_model(args.model, num_classes=classes).to(device)
    if world > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=args.lr, weight_decay=0.05)
    schedule = CosineLRScheduler(optimizer, t_initial=args.epochs * len(train), warmup_t=2, t_in_epochs=False)
    criterion = SoftTargetCrossEntropy() if mixup else torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    args.out.mkdir(parents=True, exist_ok=True)
    last = args.out / "last.pt"
    updates = first = 0
    if args.resume:
        saved = torch.load(last, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        train.load_state_dict(saved["loader"])
        updates, first = saved["updates"], saved["loader"]["epoch"]

    def save() -> None:
        state = train.state_dict()  # the same on every rank
        if rank == 0:
            found = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**found, "loader": state, "updates": updates}, args.out / "part.pt")
            os.replace(args.out / "part.pt", last)

    for epoch in range(first, args.epochs):
        train.sampler.set_epoch(epoch)  # right after load_state_dict, this keeps the place in the epoch
        model.train()
        for images, targets in train:
            schedule.step_update(updates)
            loss = criterion(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
            if updates % args.save_every == 0:
                save()
        save()
        accuracy = validate(model, val, device, world)
        if rank == 0:
            print(f"epoch {epoch}: {updates} updates, accuracy {accuracy:.3f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


@torch.no_grad()
def validate(model: Any, loader: Any, device: torch.device, world: int) -> float:
    """The share of pictures that are classified right. Ranks have the same number of steps, so some have a picture
    that is padding: ``valid`` says which."""
    model.eval()
    right = torch.zeros(2, device=device)
    for batch in loader:
        images, targets = batch
        valid = batch.valid.to(device)
        right[0] += ((model(images).argmax(1) == targets) & valid).sum()
        right[1] += valid.sum()
    if world > 1:
        dist.all_reduce(right)
    return float(right[0] / right[1])


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Training with fastai's Learner on a folder of pictures, with stoker's loaders.

    torchrun --nproc-per-node 2 fastai_train.py --data folder-of-classes --out run
    torchrun --nproc-per-node 2 fastai_train.py --data folder-of-classes --out run --resume

The engine decodes, crops and flips; fastai's transforms of batches do the rest on the device. A run that was killed
continues with the next batch.
"""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from fastai.callback.training import GradientAccumulation
from fastai.distributed import distrib_ctx  # noqa: F401 - gives Learner this method
from fastai.vision.all import (
    CrossEntropyLossFlat,
    IntToFloatTensor,
    Learner,
    Normalize,
    accuracy,
    imagenet_stats,
)
from torchvision.models import get_model
from torchvision.transforms import v2

import stoker
from stoker.fastai import DataLoaders, StateCallback


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder with a folder of pictures for each class")
    parser.add_argument("--val", type=Path, help="the same for validation; default: --data")
    parser.add_argument("--out", type=Path, required=True, help="where checkpoints go")
    parser.add_argument("--model", default="resnet18", help="any of torchvision.models.list_models()")
    parser.add_argument("--size", type=int, default=224, help="height and width of pictures (default 224)")
    parser.add_argument("--epochs", type=int, default=3, help="default 3")
    parser.add_argument("--batch-size", type=int, default=32, help="per rank (default 32)")
    parser.add_argument("--lr", type=float, default=1e-3, help="default 0.001")
    parser.add_argument("--accumulate", type=int, default=0, help="samples of a rank for each step of the optimiser")
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

    crop = v2.Compose([v2.RandomResizedCrop(args.size, antialias=True), v2.RandomHorizontalFlip()])
    centre = v2.Compose([v2.Resize(args.size * 8 // 7, antialias=True), v2.CenterCrop(args.size)])
    shared = {"num_workers": args.workers, "seed": args.seed, "pin_memory": cuda}
    train = stoker.DataLoader(
        stoker.ImageFolder(args.data, crop), args.batch_size, shuffle=True, drop_last=True, **shared
    )
    val = stoker.DataLoader(stoker.ImageFolder(args.val or args.data, centre), args.batch_size, **shared)
    batches = [IntToFloatTensor(), Normalize.from_stats(*imagenet_stats, cuda=cuda)]
    dls = DataLoaders(train, val, path=args.out, device=device, after_batch=batches)

    state = StateCallback(every=args.save_every, resume=args.resume)
    model = get_model(args.model, num_classes=dls.c)
    learn = Learner(dls, model, CrossEntropyLossFlat(), lr=args.lr, metrics=accuracy, cbs=state)
    if args.accumulate:
        learn.add_cb(GradientAccumulation(args.accumulate))
    ranks = learn.distrib_ctx(sync_bn=False, cpu=not cuda) if world > 1 else nullcontext()
    with ranks, learn.no_bar():
        learn.fit_one_cycle(args.epochs)
        predictions, targets = learn.get_preds()  # of all ranks, in the order of the folder, without padding
    learn.save("final")
    if rank == 0:
        torch.save({"predictions": predictions, "targets": targets}, args.out / "predictions.pt")
        print(f"{len(predictions)} predictions for {len(val.dataset)} pictures", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

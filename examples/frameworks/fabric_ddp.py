"""Lightning's Fabric: ``setup_dataloaders`` takes stoker's loader, and moves its batches to the device.

    fabric run examples/frameworks/fabric_ddp.py --strategy=ddp --devices=2 -- data/train --out run
    torchrun --nproc-per-node=2 examples/frameworks/fabric_ddp.py data/train --out run --resume

The loader's state is saved and loaded with the model's: it is part of ``state``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch.nn.functional import cross_entropy

import stoker
from stoker import transforms as T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder of pictures, one folder a class")
    parser.add_argument("--out", type=Path, default=Path("run"), help="where the checkpoint is kept; default: run")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="of one rank; default: 32")
    parser.add_argument("--size", type=int, default=224, help="side of the pictures; default: 224")
    parser.add_argument("--accumulate", type=int, default=1, help="batches to an update; default: 1")
    parser.add_argument("--save-every", type=int, default=100, help="updates between checkpoints; default: 100")
    parser.add_argument("--max-updates", type=int, default=0, help="stop after so many; default: after --epochs")
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--strategy", default="auto")
    args = parser.parse_args()

    fabric = Fabric(accelerator=args.accelerator, devices=args.devices, strategy=args.strategy)
    fabric.launch()

    transform = T.Compose([T.RandomResizedCrop(args.size), T.RandomHorizontalFlip(), T.ToTensor()])
    dataset = stoker.ImageFolder(args.data, transform)
    train = fabric.setup_dataloaders(stoker.DataLoader(dataset, args.batch_size, shuffle=True, seed=0))

    fabric.seed_everything(0, verbose=False)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, len(dataset.classes)),
    )
    model, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=1e-3))
    state = {"model": model, "optimizer": optimizer, "train": train, "epoch": 0, "updates": 0}
    if args.resume:
        fabric.load(args.out / "checkpoint.ckpt", state)

    for epoch in range(state["epoch"], args.epochs):
        state["epoch"] = epoch
        for batch in train:
            images, labels = batch
            update = (batch.step + 1) % args.accumulate == 0 or batch.step + 1 == len(train)
            with fabric.no_backward_sync(model, enabled=not update):
                loss = cross_entropy(model(images), labels)
                fabric.backward(loss / args.accumulate)
            if not update:
                continue
            optimizer.step()
            optimizer.zero_grad()
            state["updates"] += 1
            if state["updates"] % args.save_every == 0:
                fabric.save(args.out / "checkpoint.ckpt", state)
            if state["updates"] == args.max_updates:
                break
        fabric.print(f"epoch {epoch}: {state['updates']} updates, loss {loss.item():.3f}", flush=True)
        if state["updates"] == args.max_updates:
            break


if __name__ == "__main__":
    main()

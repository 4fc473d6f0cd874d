"""Hugging Face Accelerate: ``prepare`` takes stoker's loaders as they are, since they deal samples to the ranks.

    accelerate launch --num_processes 2 examples/frameworks/accelerate_ddp.py data/train --valid data/valid --out run
    torchrun --nproc-per-node=2 examples/frameworks/accelerate_ddp.py data/train --out run --resume

``save_state`` and ``load_state`` keep the loaders' states too, so nothing has to be skipped after a resume.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy

import stoker
from stoker import transforms as T


class Counts:
    """What the loop counts; Accelerate keeps it with its state."""

    epoch = updates = 0

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self.epoch, "updates": self.updates}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.epoch, self.updates = state["epoch"], state["updates"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder of pictures, one folder a class")
    parser.add_argument("--valid", help="another folder, evaluated after every epoch")
    parser.add_argument("--out", type=Path, default=Path("run"), help="where the checkpoint is kept; default: run")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="of one rank; default: 32")
    parser.add_argument("--size", type=int, default=224, help="side of the pictures; default: 224")
    parser.add_argument("--accumulate", type=int, default=1, help="batches to an update; default: 1")
    parser.add_argument("--save-every", type=int, default=100, help="updates between checkpoints; default: 100")
    parser.add_argument("--max-updates", type=int, default=0, help="stop after so many; default: after --epochs")
    parser.add_argument("--cpu", action="store_true", help="on CPUs, whatever the machine has")
    args = parser.parse_args()

    accelerator = Accelerator(cpu=args.cpu, gradient_accumulation_steps=args.accumulate)
    transform = T.Compose([T.RandomResizedCrop(args.size), T.RandomHorizontalFlip(), T.ToTensor()])
    dataset = stoker.ImageFolder(args.data, transform)
    train = stoker.DataLoader(dataset, args.batch_size, shuffle=True, seed=0)
    crop = T.Compose([T.Resize(args.size), T.CenterCrop(args.size), T.ToTensor()])
    valid = stoker.DataLoader(stoker.ImageFolder(args.valid or args.data, crop), args.batch_size)

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, len(dataset.classes)),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, train, valid = accelerator.prepare(model, optimizer, train, valid)
    counts = Counts()
    accelerator.register_for_checkpointing(counts)
    if args.resume:
        accelerator.load_state(args.out / "checkpoint")

    for epoch in range(counts.epoch, args.epochs):
        counts.epoch = epoch
        for images, labels in train:
            with accelerator.accumulate(model):
                loss = cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if not accelerator.sync_gradients:
                continue
            counts.updates += 1
            if counts.updates % args.save_every == 0:
                accelerator.save_state(args.out / "checkpoint")
            if counts.updates == args.max_updates:
                break
        accelerator.print(f"epoch {epoch}: {counts.updates} updates, loss {loss.item():.3f}", flush=True)
        if counts.updates == args.max_updates:
            break
        if args.valid:
            accelerator.print(evaluate(accelerator, model, valid), flush=True)
    accelerator.end_training()


@torch.no_grad()
def evaluate(accelerator: Accelerator, model: torch.nn.Module, valid: stoker.DataLoader) -> str:
    """The share of pictures that are recognised, of every picture once."""
    model.eval()
    right = []
    for images, labels in valid:
        guesses = model(images).argmax(1)
        right.append(accelerator.gather_for_metrics(guesses == labels))
    model.train()
    found = torch.cat(right)
    return f"{int(found.sum())} of {len(found)} right"


if __name__ == "__main__":
    main()

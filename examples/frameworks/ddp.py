"""DistributedDataParallel in a loop of its own, one process a GPU (or a few on CPUs).

    torchrun --nproc-per-node=2 examples/frameworks/ddp.py data/train --out run
    torchrun --nproc-per-node=2 examples/frameworks/ddp.py data/train --out run --resume

stoker's loader deals samples to the ranks itself. There is no DistributedSampler, all ranks take the same number of
steps, and what fills up the last batches is marked in ``batch.valid``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

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
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")

    transform = T.Compose([T.RandomResizedCrop(args.size), T.RandomHorizontalFlip(), T.ToTensor()])
    dataset = stoker.ImageFolder(args.data, transform)
    train = stoker.DataLoader(dataset, args.batch_size, shuffle=True, seed=0, pin_memory=cuda)

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, len(dataset.classes)),
    )
    model = DistributedDataParallel(net.to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    updates, begin = 0, 0
    if args.resume:
        saved = torch.load(args.out / "checkpoint.pt", map_location=device, weights_only=True)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        train.load_state_dict(saved["train"])  # the loader goes on in the middle of its epoch
        updates, begin = saved["updates"], saved["train"]["epoch"]

    for epoch in range(begin, args.epochs):
        train.set_epoch(epoch)
        for batch in train:
            images, labels = batch.to(device, non_blocking=True)
            update = (batch.step + 1) % args.accumulate == 0 or batch.step + 1 == len(train)
            with contextlib.nullcontext() if update else model.no_sync():
                losses = cross_entropy(model(images), labels, reduction="none")
                loss = losses[batch.valid.to(device)].sum() / len(losses)  # without the rows that fill up
                (loss / args.accumulate).backward()
            if not update:
                continue
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
            if updates % args.save_every == 0:
                save(args.out, net, optimizer, train, updates)
            if updates == args.max_updates:
                break
        if rank == 0:
            print(f"epoch {epoch}: {updates} updates, loss {loss.item():.3f}", flush=True)
        if updates == args.max_updates:
            break
    train.close()
    dist.destroy_process_group()


def save(out: Path, net: torch.nn.Module, optimizer: torch.optim.Optimizer, train: stoker.DataLoader, n: int) -> None:
    """Writes the checkpoint on the first rank. The state of the loader is the same on all."""
    state = {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "train": train.state_dict(), "updates": n}
    if dist.get_rank() == 0:
        out.mkdir(parents=True, exist_ok=True)
        torch.save(state, out / "checkpoint.tmp")
        os.replace(out / "checkpoint.tmp", out / "checkpoint.pt")


if __name__ == "__main__":
    main()

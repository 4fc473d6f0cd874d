"""Training on pictures in an object store: the README's script with ``s3://`` in place of the folder, on any ranks.

    export AWS_ENDPOINT_URL_S3=http://127.0.0.1:9000     # of a store that is not AWS
    torchrun --nproc-per-node=2 examples/remote/train.py s3://bucket/train --out run
    torchrun --nproc-per-node=2 examples/remote/train.py s3://bucket/train --out run --resume

Keys are found where AWS's own tools find them. ``gs://``, ``az://``, ``https://``, ``hf://`` and a local folder work
the same way, and a checkpoint saved with one resumes with another. If the store does not answer, the loader waits,
and says so.
"""

from __future__ import annotations

import argparse
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
    parser.add_argument("data", help="pictures, one folder per class: s3://bucket/train")
    parser.add_argument("--out", type=Path, default=Path("run"), help="local folder of the checkpoint; default: run")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint in --out")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=256, help="per rank; default: 256")
    parser.add_argument("--size", type=int, default=224, help="side of the pictures; default: 224")
    parser.add_argument("--save-every", type=int, default=100, help="batches between checkpoints; default: 100")
    parser.add_argument("--deadline", default="10m", help="how long to wait for a silent store; default: 10m")
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")

    train = stoker.ImageFolder(
        args.data, transform=T.Compose([T.RandomResizedCrop(args.size), T.RandomHorizontalFlip()])
    )
    loader = stoker.DataLoader(
        train, batch_size=args.batch_size, shuffle=True, seed=0, pin_memory=cuda, fetch={"deadline": args.deadline}
    )

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(16, len(train.classes)),
    ).to(device)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    begin = 0
    if args.resume:
        saved = torch.load(args.out / "checkpoint.pt", map_location=device, weights_only=True)
        net.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])  # goes on in the middle of its epoch
        begin = saved["loader"]["epoch"]

    for epoch in range(begin, args.epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            images, labels = batch.to(device, non_blocking=True)
            losses = cross_entropy(model(images.float() / 255), labels, reduction="none")
            loss = losses[batch.valid.to(device)].sum() / len(losses)  # without the rows that fill up the last batch
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if (batch.step + 1) % args.save_every == 0:
                save(args.out, model=net.state_dict(), optimizer=optimizer.state_dict(), loader=loader.state_dict())
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}", flush=True)
    loader.close()
    dist.destroy_process_group()


def save(out: Path, **state: object) -> None:
    """Writes the checkpoint on the first rank. The state of the loader is the same on all."""
    if dist.get_rank() == 0:
        out.mkdir(parents=True, exist_ok=True)
        torch.save(state, out / "checkpoint.tmp")
        os.replace(out / "checkpoint.tmp", out / "checkpoint.pt")


if __name__ == "__main__":
    main()

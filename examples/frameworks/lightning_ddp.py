"""PyTorch Lightning, with a LightningDataModule. The defaults stay, ``use_distributed_sampler=True`` among them.

    python examples/frameworks/lightning_ddp.py data/train --valid data/valid --strategy ddp --devices 2 --out run
    torchrun --nproc-per-node=2 examples/frameworks/lightning_ddp.py data/train --out run --resume

The loader deals samples to the ranks, so Lightning puts no sampler in; its state is part of Lightning's checkpoints.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy

import stoker
from stoker import transforms as T


class Pictures(pl.LightningDataModule):
    """Two folders of pictures."""

    def __init__(self, train: str, valid: str | None, batch_size: int, size: int, shuffle: bool = True) -> None:
        super().__init__()
        self.train, self.valid, self.batch_size, self.shuffle = train, valid, batch_size, shuffle
        self.crops = T.Compose([T.RandomResizedCrop(size), T.RandomHorizontalFlip(), T.ToTensor()])
        self.centre = T.Compose([T.Resize(size), T.CenterCrop(size), T.ToTensor()])

    def train_dataloader(self) -> stoker.DataLoader:
        dataset = stoker.ImageFolder(self.train, self.crops)
        return stoker.DataLoader(dataset, self.batch_size, shuffle=self.shuffle, seed=0)

    def val_dataloader(self) -> Any:
        return stoker.DataLoader(stoker.ImageFolder(self.valid, self.centre), self.batch_size) if self.valid else []


class Net(pl.LightningModule):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, stride=2),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(16, classes),
        )

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        images, labels = batch
        return cross_entropy(self.net(images), labels)

    def validation_step(self, batch: Any, _: int) -> None:
        images, labels = batch
        rows = batch.valid  # without the rows that fill up
        self.log("right", (self.net(images).argmax(1) == labels)[rows].float().mean(), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def on_train_epoch_end(self) -> None:
        self.print(f"epoch {self.current_epoch}: {self.global_step} updates")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder of pictures, one folder a class")
    parser.add_argument("--valid", help="another folder, for validation")
    parser.add_argument("--out", type=Path, default=Path("run"), help="where the checkpoint is kept; default: run")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32, help="of one rank; default: 32")
    parser.add_argument("--size", type=int, default=224, help="side of the pictures; default: 224")
    parser.add_argument("--accumulate", type=int, default=1, help="batches to an update; default: 1")
    parser.add_argument("--save-every", type=int, default=100, help="updates between checkpoints; default: 100")
    parser.add_argument("--max-updates", type=int, default=-1, help="stop after so many; default: after --epochs")
    parser.add_argument("--limit-train-batches", type=int, help="batches of an epoch; default: all")
    parser.add_argument("--overfit-batches", type=int, default=0, help="train on the same few batches")
    parser.add_argument("--accelerator", default="auto")
    parser.add_argument("--devices", default="auto")
    parser.add_argument("--strategy", default="auto")
    args = parser.parse_args()

    pl.seed_everything(0, workers=True, verbose=False)
    keep = ModelCheckpoint(
        args.out, filename="checkpoint", every_n_train_steps=args.save_every, enable_version_counter=False
    )
    trainer = pl.Trainer(
        accelerator=args.accelerator,
        devices=args.devices,
        strategy=args.strategy,
        max_epochs=args.epochs,
        max_steps=args.max_updates,
        accumulate_grad_batches=args.accumulate,
        limit_train_batches=args.limit_train_batches,
        overfit_batches=args.overfit_batches,
        callbacks=[keep],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    shuffle = not args.overfit_batches  # Lightning wants the same batches in every epoch then
    pictures = Pictures(args.data, args.valid, args.batch_size, args.size, shuffle)
    net = Net(len(stoker.ImageFolder(args.data).classes))
    trainer.fit(net, datamodule=pictures, ckpt_path=args.out / "checkpoint.ckpt" if args.resume else None)


if __name__ == "__main__":
    main()

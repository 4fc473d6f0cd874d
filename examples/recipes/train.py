"""A complete training on one device or several, by torch's loader and by stoker's: what it fed, and what it waited.

Answers the complete loop of the first article, on photographs in place of random tensors, and with what the articles
ask for around it: AMP, channels_last, DistributedDataParallel, torch.compile, a CUDA graph, and a checkpoint. Both
loaders read the same ImageFolder as uint8, and the device makes floats of it. stoker's has ``device=``: its batches are
there before the loop asks for them. With --out, a checkpoint holds the loader's state, and --resume continues with the
next batch, in the middle of an epoch. (torch's loader has no state: its training begins anew.)

With --graph, steps of stoker's training are one CUDA graph: ``static_buffers=True`` gives the same tensors in every
step. It needs a GPU, and is for one rank.

On a CPU the model has one core, as if it were a device of its own. If it is what takes the time, the two rates are
equal: then look at the share of the time that was spent waiting for data.

    python examples/recipes/train.py
    torchrun --nproc-per-node=2 examples/recipes/train.py
    python examples/recipes/train.py --loader stoker --out checkpoints --resume
    python examples/recipes/train.py --device cuda --model resnet50 --batch-size 256 --compile
    python examples/recipes/train.py --device cuda --loader stoker --graph
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torchvision
from common import beside, flags, gathered, memory_mib, one_folder, show
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms

import stoker

TRANSFORM = transforms.Compose(
    [transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
)


def main() -> None:
    args = arguments()
    if "RANK" in os.environ:
        if args.device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl" if args.device == "cuda" else "gloo")
    if args.device == "cpu":
        torch.set_num_threads(1)
    rates = []
    with one_folder(args) as photos:
        dataset = datasets.ImageFolder(photos, TRANSFORM)
        for kind in ("plain torch", "stoker"):
            if kind.endswith(args.loader) or args.loader == "both":
                rates.append(Training(kind, dataset, args).run())
    if len(rates) == 2 and rank() == 0:
        beside(rates[0], rates[1], "torch")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def arguments() -> argparse.Namespace:
    parser = flags(__doc__, samples=600, workers=2)
    parser.add_argument("--loader", choices=("both", "torch", "stoker"), default="both", help="default: both in turn")
    parser.add_argument("--model", default="small", help="small (default), or a name of torchvision's, as resnet18")
    parser.add_argument("--epochs", type=int, default=2, help="default: 2")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--amp", action=argparse.BooleanOptionalAction, default=True, help="lower precision")
    parser.add_argument(
        "--half", choices=("bfloat16", "float16"), default="bfloat16", help="which; default: bfloat16, without a scaler"
    )
    parser.add_argument(
        "--compile", nargs="?", const="inductor", metavar="BACKEND", help="torch.compile; default: not; inductor"
    )
    parser.add_argument("--graph", action="store_true", help="a CUDA graph of stoker's steps")
    parser.add_argument("--out", type=Path, help="a folder for the checkpoint of stoker's training")
    parser.add_argument("--save-every", type=int, default=3, metavar="STEPS", help="default: 3")
    parser.add_argument("--resume", action="store_true", help="goes on from the checkpoint in --out, if there is one")
    args = parser.parse_args()
    if args.graph and (args.device != "cuda" or args.loader != "stoker" or args.compile or "RANK" in os.environ):
        parser.error("--graph needs --device cuda and --loader stoker, one rank, and no --compile")
    return args


def rank() -> int:
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def ranks() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def loader_of(kind: str, dataset: Any, args: argparse.Namespace, device: torch.device) -> Any:
    """The difference between the two trainings: stoker splits the samples over the ranks by itself, and its batches are
    on the device."""
    settings = {"batch_size": args.batch_size, "num_workers": args.workers, "drop_last": True}
    if kind == "stoker":
        there = {"device": device, "static_buffers": args.graph}
        return stoker.DataLoader(dataset, shuffle=True, seed=args.seed, **there, **settings)
    settings["pin_memory"] = device.type == "cuda"
    sampler = DistributedSampler(dataset, seed=args.seed, drop_last=True) if ranks() > 1 else None
    return DataLoader(
        dataset, sampler=sampler, shuffle=sampler is None, persistent_workers=args.workers > 0, **settings
    )


def small(classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


class Training:
    """A model with its optimiser and a loader, from the start or from a checkpoint."""

    def __init__(self, kind: str, dataset: Any, args: argparse.Namespace) -> None:
        torch.manual_seed(args.seed)
        self.before = memory_mib()
        self.kind, self.args = kind, args
        self.device = torch.device(
            args.device, int(os.environ.get("LOCAL_RANK", "0")) if args.device == "cuda" else None
        )
        self.loader = loader_of(kind, dataset, args, self.device)
        classes = len(dataset.classes)
        made = (
            small(classes) if args.model == "small" else torchvision.models.get_model(args.model, num_classes=classes)
        )
        self.model = made.to(self.device, memory_format=torch.channels_last)
        self.parallel = nn.parallel.DistributedDataParallel(self.model) if ranks() > 1 else self.model
        if args.compile:
            self.parallel = torch.compile(self.parallel, backend=args.compile)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, capturable=args.graph)
        self.lower = getattr(torch, args.half)
        self.scaler = scaler(args.amp and args.device == "cuda" and args.half == "float16" and not args.graph)
        self.graph: Any = None
        self.warm = 0  # steps that were done as they are captured
        self.epoch = self.step = self.samples = 0
        self.seconds = self.waited = 0.0
        self.loss = torch.zeros(())
        self.checkpoint = args.out / "checkpoint.pt" if args.out and kind == "stoker" else None
        if args.resume and self.checkpoint and self.checkpoint.exists():
            self.load(torch.load(self.checkpoint, map_location=self.device))

    def run(self) -> float:
        """Trains; returns the samples a second of all ranks."""
        self.parallel.train()
        with self.loader if self.kind == "stoker" else nullcontext():
            while self.epoch < self.args.epochs:
                if hasattr(self.loader.sampler, "set_epoch"):  # a DistributedSampler's, and stoker's
                    self.loader.sampler.set_epoch(self.epoch)
                for images, labels in self.timed():
                    self.train(images, labels)
                self.epoch += 1
            return self.report()

    def timed(self) -> Iterator[Any]:
        """The batches of an epoch. Adds up the seconds of the loop, and of those the ones spent waiting for a batch."""
        begun = time.perf_counter()
        batches = iter(self.loader)
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            self.waited += time.perf_counter() - asked
            self.seconds += time.perf_counter() - begun
            begun = time.perf_counter()
            if batch is None:
                return
            yield batch

    def train(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        images = images.to(self.device, non_blocking=True, memory_format=torch.channels_last)
        labels = labels.to(self.device, non_blocking=True)
        if not self.args.graph:
            self.loss = self.once(images, labels)
        elif self.graph is not None:
            self.graph.replay()  # which reads these tensors, and writes the loss
        else:
            self.warmed(images, labels)
        self.samples += len(labels)
        self.step += 1
        if self.checkpoint and self.step % self.args.save_every == 0:
            self.save()

    def once(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """A step; returns the loss."""
        with torch.autocast(self.device.type, self.lower, enabled=self.args.amp, cache_enabled=not self.args.graph):
            loss = nn.functional.cross_entropy(self.parallel(images.float().div_(127.5).sub_(1)), labels)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def warmed(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """A step on a stream of its own, as torch asks for before a capture; after three of them, the capture."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.loss = self.once(images, labels)
        torch.cuda.current_stream().wait_stream(side)
        self.warm += 1
        if self.warm == 3:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.loss = self.once(images, labels)  # it is recorded, not done

    def save(self) -> None:
        """Every rank asks its loader; the answer is the same on all, and rank 0 writes it. A name that is there is of a
        file that is complete."""
        state = {
            "loader": self.loader.state_dict(),
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "counts": (self.epoch, self.step),
        }
        if rank() == 0:
            assert self.checkpoint is not None
            self.checkpoint.parent.mkdir(parents=True, exist_ok=True)
            torch.save(state, part := self.checkpoint.with_suffix(".part"))
            part.replace(self.checkpoint)

    def load(self, state: dict[str, Any]) -> None:
        self.loader.load_state_dict(state["loader"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.epoch, self.step = state["counts"]
        if rank() == 0:
            print(f"resumed after step {self.step}, in epoch {self.epoch}")

    def report(self) -> float:
        """What the article's training tells at its end, of all ranks."""
        told = {
            "samples": self.samples,
            "seconds": self.seconds,
            "waited": self.waited,
            "memory": memory_mib() - self.before,
        }
        found = gathered(told) if ranks() > 1 else [told]
        samples = sum(one["samples"] for one in found)
        seconds = max(one["seconds"] for one in found)
        if rank() == 0:
            show(f"{self.kind}, {ranks()} rank{'s' * (ranks() > 1)}, training", samples / seconds if seconds else 0)
            print(f"    samples {samples:,} in {seconds:.2f} s, {self.step} steps, last loss {float(self.loss):.6f}")
            print(f"    waited for data {sum(one['waited'] for one in found) / len(found) / seconds:.1%} of the time")
            print(f"    memory {sum(one['memory'] for one in found):,.0f} MiB more than before, of all processes")
            if self.device.type == "cuda":
                print(f"    memory of the GPU {torch.cuda.max_memory_allocated() / 2**20:,.0f} MiB")
        return samples / seconds if seconds else 0.0


def scaler(enabled: bool) -> Any:
    """For float16; torch before 2.3 has it for CUDA only, under another name."""
    made = getattr(torch.amp, "GradScaler", None)
    return made("cuda", enabled=enabled) if made else torch.cuda.amp.GradScaler(enabled=enabled)


if __name__ == "__main__":
    main()

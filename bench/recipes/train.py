"""One run: a recipe, a loader, a seed: python -m bench.recipes.train RECIPE --loader stoker --data TREE.

The loop is the same for both loaders, and so are the transform, what mixes batches, and the model at its first step.
The marks are those of bench.consumer; CPU is that of all processes, and the loop's own (steps_cpu) is told apart.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import stoker
import torch
import torchvision
from torch.utils.data import default_collate
from torchvision.datasets import ImageFolder

from bench.consumer import emit
from bench.meter import Clock
from bench.recipes.recipes import RECIPES

LOADERS = ("stoker", "torch")
WARM = 20  # steps before the clock


@dataclass(frozen=True)
class Options:
    recipe: str
    loader: str
    data: str
    seed: int = 0
    plain: bool = False
    size: int = 64
    batch: int = 32
    workers: int = 2


class Mixing:
    """collate_fn of torchvision's references: torch's workers mix the batch that they have made."""

    def __init__(self, mix: Any) -> None:
        self.mix = mix

    def __call__(self, samples: list[Any]) -> Any:
        return self.mix(*default_collate(samples))


def open_loader(options: Options) -> tuple[Any, int]:
    """The loader, and how many classes its labels have."""
    recipe = RECIPES[options.recipe]
    transform = recipe.transform(options.size, options.plain)
    if options.loader == "torch":
        data = ImageFolder(options.data, transform)
        mix = recipe.of_batch(len(data.classes)) if recipe.of_batch else None
        loader = torch.utils.data.DataLoader(
            data,
            batch_size=options.batch,
            shuffle=True,
            drop_last=True,
            num_workers=options.workers,
            collate_fn=Mixing(mix) if mix is not None else None,
            persistent_workers=options.workers > 0,
        )
        return loader, len(data.classes)
    ours = stoker.ImageFolder(options.data, transform)
    mix = recipe.of_batch(len(ours.classes)) if recipe.of_batch else None
    return stoker.DataLoader(
        ours,
        batch_size=options.batch,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        batch_transform=mix,
    ), len(ours.classes)


def where(loader: Any) -> str:
    """Who makes the samples."""
    if type(loader) is torch.utils.data.DataLoader:
        return "torch's workers"
    return loader.explain(0).get("python") or "the engine"


@dataclass
class Step:
    loss: float
    samples: int
    waited: float  # seconds for the batch
    cpu: float  # seconds of this thread for the step


def forever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def train(options: Options, loader: Any, classes: int) -> Iterator[Step]:
    """Steps without end. The first weights and everything that this process draws follow from the seed."""
    recipe = RECIPES[options.recipe]
    torch.manual_seed(options.seed)
    np.random.seed(options.seed)
    random.seed(options.seed)
    model = recipe.model(classes, options.size).train()
    optimizer = recipe.optimizer(model.parameters())
    mix = recipe.in_loop(classes) if recipe.in_loop else None
    stream = forever(loader)
    while True:
        begin = time.perf_counter()
        images, labels = next(stream)
        waited, cpu = time.perf_counter() - begin, time.thread_time()
        if mix is not None:
            images, labels = mix(images, labels)
        loss = recipe.loss(model, images, labels)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield Step(loss.item(), len(labels), waited, time.thread_time() - cpu)


class Notices(logging.Handler):
    """Keeps what stoker says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.recipes.train", description=__doc__)
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--loader", choices=LOADERS, required=True)
    parser.add_argument("--data", required=True, help="a folder of classes")
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="without colours, warps and erasing")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    os.environ.setdefault("STOKER_BENCH_CPU", f"walk:{os.getppid()}")
    options = Options(**{name: value for name, value in vars(args).items() if name in Options.__dataclass_fields__})
    said = Notices()
    logging.getLogger("stoker").addHandler(said)
    logging.getLogger("stoker").setLevel(logging.INFO)
    torch.set_num_threads(1)
    cpu = Clock.from_env()
    torch.manual_seed(options.seed)  # of the loader's order and choices too, whichever loader it is
    loader, classes = open_loader(options)
    run = train(options, loader, classes)
    steps = [next(run) for _ in range(min(WARM, args.steps // 4))]
    begin = len(steps)
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__, "stoker": stoker.__version__}
    if "timm" in sys.modules:
        versions["timm"] = sys.modules["timm"].__version__
    emit("start", cpu=cpu.seconds(), wall=time.perf_counter(), versions=versions)
    steps += [next(run) for _ in range(args.steps - begin)]
    window = steps[begin:]
    emit(
        "stop",
        cpu=cpu.seconds(),
        wall=time.perf_counter(),
        samples=sum(step.samples for step in window),
        waited=sum(step.waited for step in window),
        steps_cpu=sum(step.cpu for step in window),
        losses=[round(step.loss, 5) for step in steps],
        where=where(loader),
        notices=said.lines,
        wait=True,
    )
    sys.stdin.readline()  # until the driver has read the memory of all processes
    del run, loader
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

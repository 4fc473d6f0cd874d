"""Are the data the bottleneck at all? The same steps over real batches and over synthetic ones, in ms a batch.

Answers the first test of the second article: a dataset of random tensors of the same shapes takes the place of the real
one, whose samples are dicts. stoker.synthetic_like(loader) needs no second dataset: it repeats a real batch of any
loader, torch's too, with its shapes, dtypes and names, and costs nothing at all, where random tensors must be drawn
and collated. What is left of a step over it is the model.

    python examples/recipes/synthetic.py --samples 400
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from common import flags, photographs, same, show_ms
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

import stoker

CHAIN = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])


class Photographs(Dataset):
    """The real ones."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*/*"))
        self.classes = sorted({path.parent.name for path in self.paths})

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> dict[str, Any]:
        path = self.paths[i]
        with Image.open(path) as picture:
            return {"image": CHAIN(picture.convert("RGB")), "label": self.classes.index(path.parent.name)}


class Synthetic(Dataset):
    """Random samples of the same shapes."""

    def __init__(self, length: int, shape: tuple[int, ...]) -> None:
        self.length, self.shape = length, shape

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"image": torch.rand(self.shape), "label": torch.randint(0, 6, (1,)).squeeze()}


def time_loader(loader: Iterable[Any], step: Callable[[Any], Any], steps: int) -> float:
    """Seconds a batch over so many steps, from the second batch on."""
    batches = itertools.islice(loader, steps)
    step(next(batches))
    start, done = time.perf_counter(), 0
    for batch in batches:
        step(batch)
        done += 1
    return (time.perf_counter() - start) / max(1, done)


def main() -> None:
    parser = flags(__doc__, samples=320)
    parser.add_argument("--steps", type=int, default=50, help="the most batches that are timed; default: 50")
    args = parser.parse_args()
    device = torch.device(args.device)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 8, stride=8), torch.nn.ReLU()).to(device)

    def step(batch: Any) -> None:
        model(batch["image"].to(device, non_blocking=True)).sum().item()  # .item() waits for the device

    with photographs(args) as folder:
        settings = {"batch_size": args.batch_size, "num_workers": args.workers}
        real = DataLoader(Photographs(folder), **settings)
        synthetic = DataLoader(Synthetic(len(real.dataset), (3, 224, 224)), **settings)
        show_ms("plain torch, real", time_loader(real, step, args.steps))
        show_ms("plain torch, synthetic", time_loader(synthetic, step, args.steps))
        show_ms("stoker.synthetic_like(torch's loader)", time_loader(stoker.synthetic_like(real), step, args.steps))

        photos = stoker.ImageFolder(folder, transform=CHAIN).select("image", "label")
        ours = stoker.DataLoader(photos, **settings)
        alike = stoker.synthetic_like(ours)
        took, least = time_loader(ours, step, args.steps), time_loader(alike, step, args.steps)
        show_ms("stoker, real", took)
        show_ms("stoker.synthetic_like(stoker's loader)", least)
        print(f"with stoker's loader, no faster loader could gain more than {max(1.0, took / least):.1f} x")

        one, other = next(iter(real)), next(iter(alike))
        kinds = [{name: (value.shape, value.dtype) for name, value in batch.items()} for batch in (one, other)]
        same("names, shapes and dtypes of real and synthetic batches", kinds[0] == kinds[1])
        same("as many batches", len(alike) == len(real))


if __name__ == "__main__":
    main()

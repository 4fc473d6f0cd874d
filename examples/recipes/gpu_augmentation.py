"""Augmentation on the device, over whole batches: Kornia's modules, and stoker's steps.

Answers the Kornia example of the first article. Its lines do not run: without a transform the dataset gives PIL images,
which no loader can put together, and Kornia wants floats between 0 and 1. Below they are mended: the workers resize and
convert, and the module augments the batch. With stoker:

- The same module is given to ``device_transform=`` as it is. It gets the batch on the device, and torch's generators
  are seeded for it, so a run can be repeated, and resumed.
- The same augmentations as steps that the engine knows: it makes the choices, by the key of each sample, and the device
  does them. The bytes are those that the engine would have made, so augmentation can go from one side to the other.

    python examples/recipes/gpu_augmentation.py --device cuda
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torchvision
from common import beside, equal, flags, photographs, rate, same, show
from torchvision.transforms import v2

import stoker
from stoker import transforms as T


def module(crop: int) -> Any:
    """The article's module; None without Kornia."""
    try:
        from kornia.augmentation import RandomAffine, RandomCrop, RandomHorizontalFlip, RandomRotation
    except ImportError:
        return None
    return torch.nn.Sequential(
        RandomHorizontalFlip(p=0.5),
        RandomRotation(degrees=15),
        RandomAffine(degrees=0, translate=(0.1, 0.1)),
        RandomCrop(size=(crop, crop)),
    )


def steps(crop: int) -> list[Any]:
    """The same, as the engine knows it."""
    bilinear = T.InterpolationMode.BILINEAR
    return [
        T.RandomHorizontalFlip(0.5),
        T.RandomRotation(15, bilinear),
        T.RandomAffine(0, (0.1, 0.1), interpolation=bilinear),
        T.RandomCrop(crop),
    ]


def train(batches: Any, device: torch.device, model: str, count: int) -> tuple[float, float]:
    """So many steps of training: seconds a step, the first left out, and the last loss."""
    torch.manual_seed(0)
    network = getattr(torchvision.models, model)(num_classes=1000).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    begin = loss = 0.0
    step = 0
    for images, labels in batches:
        found = torch.nn.functional.cross_entropy(network(images.to(device)), labels.to(device))
        found.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = found.item()
        step += 1
        if step == 1:
            begin = time.perf_counter()
        if step > count:
            break
    return (time.perf_counter() - begin) / max(step - 1, 1), loss


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--size", type=int, default=256, help="of the pictures that are augmented; default: 256")
    parser.add_argument("--crop", type=int, default=224, help="of the result; default: 224")
    parser.add_argument("--steps", type=int, default=3, help="of training; default: 3")
    parser.add_argument("--model", default="resnet50", help="of torchvision; default: resnet50")
    args = parser.parse_args()
    device = torch.device(args.device)
    size, tuned = (args.size, args.size), {"batch_size": args.batch_size, "num_workers": args.workers}
    floats = [T.ToDtype("float32", scale=True)]

    with photographs(args) as folder:
        kornia = module(args.crop)
        if kornia is None:
            print("Kornia is not installed: pip install kornia")
        else:
            usual = v2.Compose([v2.Resize(size), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
            plain = torch.utils.data.DataLoader(
                torchvision.datasets.ImageFolder(folder, usual), pin_memory=device.type == "cuda", **tuned
            )
            kornia = kornia.to(device)
            usual_rate = rate((kornia(images.to(device)), labels) for images, labels in plain)
            show("plain torch, Kornia on the batch", usual_rate)

            dataset = stoker.ImageFolder(folder, T.Resize(size))

            def loader(transform: list[Any]) -> Any:
                return stoker.DataLoader(dataset, device=device, device_transform=transform, **tuned)

            with loader([*floats, kornia]) as one, loader([*floats, kornia]) as two:
                same("Kornia draws the same in two runs", equal(one, two))
            with loader([*floats, kornia]) as one:
                ours = rate(one)
            show("stoker, Kornia on the batch", ours)
            beside(usual_rate, ours)

        here = stoker.ImageFolder(folder, T.Compose([T.Resize(size), *steps(args.crop), *floats]))
        there = stoker.ImageFolder(folder, T.Resize(size))
        on_device = [*steps(args.crop), *floats]
        with (
            stoker.DataLoader(here, device=device, **tuned) as engine,
            stoker.DataLoader(there, device=device, device_transform=on_device, **tuned) as ours,
        ):
            same("the device makes the engine's pictures", equal(engine, ours))
            show("stoker, augmented by the engine", rate(engine))
            show(f"stoker, augmented on {device.type}", rate(ours))
            seconds, loss = train(ours, device, args.model, args.steps)
            print(f"{args.model}: {args.batch_size / seconds:,.0f} samples/s in training, loss {loss:.2f}")


if __name__ == "__main__":
    main()

"""Classes of unequal size that come equally often: torch's WeightedRandomSampler, and stoker's balanced=True.

Answers the third worked example of the third article. The sampler of torch works in both loaders, with the same
samples. With several ranks, though, each draws for itself. balanced=True needs no weights, and is one draw that the
ranks share; like the sampler's, it makes classes equal on average.

    python examples/recipes/class_balance.py --samples 400
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import alike, beside, flags, photographs, rate, same, show
from torch.utils.data import DataLoader, WeightedRandomSampler
from torchvision import datasets, transforms

import stoker

TRANSFORM = transforms.Compose([transforms.Resize(128), transforms.CenterCrop(112), transforms.ToTensor()])


def sampler(train_ds: Any) -> WeightedRandomSampler:
    """The article's lines."""
    class_counts = np.bincount(train_ds.targets)
    class_weights = 1.0 / class_counts
    sample_weights = class_weights[train_ds.targets]
    return WeightedRandomSampler(
        weights=sample_weights,
        num_samples=len(train_ds),
        replacement=True,
        generator=torch.Generator().manual_seed(0),
    )


def main() -> None:
    args = flags(__doc__).parse_args()
    settings = {"batch_size": args.batch_size, "num_workers": args.workers}
    with photographs(args) as photos:
        unequal(photos)
        train_ds = datasets.ImageFolder(photos, TRANSFORM)
        print(f"{'stored':<44} {np.bincount(train_ds.targets)} of each class")

        tuned = {"prefetch_factor": 4, "persistent_workers": True}
        plain = measured(
            "plain torch, WeightedRandomSampler",
            args,
            DataLoader(train_ds, sampler=sampler(train_ds), **settings, **tuned),
        )
        ours = measured(
            "stoker, the same sampler",
            args,
            stoker.DataLoader(train_ds, sampler=sampler(train_ds), **settings, **tuned),
        )
        beside(plain, ours, "torch")
        exact = stoker.DataLoader(stoker.ImageFolder(photos, TRANSFORM), balanced=True, seed=0, **settings)
        beside(plain, measured("stoker, balanced=True", args, exact), "torch")

        theirs = DataLoader(train_ds, sampler=sampler(train_ds), **settings)
        mine = stoker.DataLoader(train_ds, sampler=sampler(train_ds), **settings)
        same("labels, and pictures but for the decoder", alike(equal, theirs, mine))
        whole = ids(exact)
        ranks = [
            ids(stoker.DataLoader(exact.dataset, balanced=True, seed=0, rank=rank, world_size=2, **settings))
            for rank in range(2)
        ]
        together = sorted(i for rank in ranks for i in rank)
        same("balanced=True draws the same samples for one rank and for two", together == sorted(whole))


def unequal(photos: Path) -> None:
    """Leaves half, a third, a quarter of the pictures of the second class, the third, the fourth."""
    for number, folder in enumerate(sorted(photos.iterdir())):
        for at, link in enumerate(sorted(folder.iterdir())):
            if at % (number + 1):
                link.unlink()


def measured(name: str, args: Any, loader: Any) -> float:
    """The rate of a pass; prints it, and how often each class came."""
    seen = []

    def moved() -> Any:
        for images, labels in loader:
            seen.append(labels.numpy().copy())
            yield images.to(args.device, non_blocking=True), labels.to(args.device, non_blocking=True)

    found = rate(moved())
    show(name, found)
    print(f"{'':<44} {np.bincount(np.concatenate(seen))} of each class")
    return found


def ids(loader: Any) -> list[int]:
    """The samples of the first epoch, without those that fill up its end."""
    loader.set_epoch(0)
    with loader:
        return [i for batch in loader for i in batch.ids[batch.valid].tolist()]


def equal(one: Any, other: Any) -> bool:
    """Batches of two decoders, which may differ by a few levels of 255."""
    return torch.equal(one[1], other[1]) and float((one[0] - other[0]).abs().max()) <= 5.01 / 255


if __name__ == "__main__":
    main()

"""A hundred batches without a model: the most that a loader can feed.

Answers the standalone measurement of the fourth article: batches are taken and thrown away. Where an epoch is shorter,
the next one follows. stoker's loader takes the same dataset and the same keywords; the engine reads it, because it
knows torchvision's ImageFolder and these transforms. stoker.benchmark measures the same with the start left out, until
its windows agree, and counts processor time.

    python examples/recipes/hundred_batches.py --batch-size 8

As one line of shell, for a folder of your own, with torch's loader and with stoker's:

    python -c "import itertools as i, time, torch; from torchvision import datasets as d, transforms as t; l = torch.utils.data.DataLoader(d.ImageFolder('data/train', t.Compose([t.RandomResizedCrop(224), t.ToTensor()])), batch_size=8); a = time.time(); s = sum(len(b[0]) for b in i.islice(i.chain.from_iterable(i.repeat(l)), 100)); print(f'plain torch {s / (time.time() - a):.0f} samples/s')"
    python -c "import itertools as i, time, stoker; from stoker import transforms as t; l = stoker.DataLoader(stoker.ImageFolder('data/train', t.Compose([t.RandomResizedCrop(224), t.ToTensor()])), batch_size=8); a = time.time(); s = sum(len(b[0]) for b in i.islice(i.chain.from_iterable(i.repeat(l)), 100)); print(f'stoker {s / (time.time() - a):.0f} samples/s')"

The command of stoker's that answers it too, with a table of what it costs: stoker bench data/train --batch-size 8
"""  # noqa: E501

from __future__ import annotations

import itertools
import time
from typing import Any

from common import beside, flags, photographs, show
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

import stoker


def hundred(loader: Any, batches: int) -> float:
    """Samples a second over so many batches, the start of the loader with them."""
    start = time.perf_counter()
    samples = 0
    for images, _ in itertools.islice(itertools.chain.from_iterable(itertools.repeat(loader)), batches):
        samples += len(images)
    return samples / (time.perf_counter() - start)


def main() -> None:
    parser = flags(__doc__, batch_size=16)
    parser.add_argument("--batches", type=int, default=100, help="how many are taken; default: 100")
    args = parser.parse_args()
    with photographs(args) as folder:
        chain = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])
        dataset = datasets.ImageFolder(folder, chain)
        settings = {"batch_size": args.batch_size, "num_workers": args.workers, "persistent_workers": args.workers > 0}
        plain = hundred(DataLoader(dataset, **settings), args.batches)
        show(f"plain torch, {args.batches} batches", plain)
        ours = hundred(stoker.DataLoader(dataset, **settings), args.batches)
        show(f"stoker, {args.batches} batches", ours)
        beside(plain, ours)
        print(stoker.benchmark(stoker.DataLoader(dataset, **settings), seconds=2))


if __name__ == "__main__":
    main()

"""Every number of workers, with and without pinned memory: which setting is the best on this machine?

Answers the benchmarking harness of the first article. The grid runs over torch's loader, then over stoker's, and names
the best of each. stoker.tune asks the same question of either loader: it leaves out what cannot be the best, measures
until the figures agree, takes the fewest workers within 5 % of the best, as the third article advises, and gives no
answer where the noise is larger than the differences.

    python examples/recipes/grid.py --workers 4
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, product
from typing import Any

import torch
from common import beside, flags, photographs, rate, show
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

import stoker


class Grid:
    """Samples a second of every setting, batches moved to the device."""

    def __init__(self, make: Callable[..., Any], device: torch.device, batches: int) -> None:
        self.make, self.device, self.batches = make, device, batches
        self.results: list[tuple[float, int, bool]] = []

    def measure(self, workers: int, pinned: bool) -> float:
        loader = self.make(num_workers=workers, pin_memory=pinned, persistent_workers=workers > 0)
        for _ in islice(loader, 2):  # warm
            pass
        return rate((self.moved(batch) for batch in islice(loader, self.batches)), lambda batch: len(batch[1]))

    def moved(self, batch: Any) -> list[torch.Tensor]:
        return [value.to(self.device, non_blocking=True) for value in batch]

    def run(self, name: str, workers: list[int]) -> tuple[float, int, bool]:
        for count, pinned in product(workers, [False, True]):
            found = self.measure(count, pinned)
            self.results.append((found, count, pinned))
            show(f"{name}, num_workers={count}, pin_memory={pinned}", found)
        return max(self.results)


def main() -> None:
    parser = flags(__doc__, workers=4)
    parser.add_argument("--batches", type=int, default=20, help="how many are timed for each setting; default: 20")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds for each stoker.tune; default: 5")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.set_num_threads(1)  # as in a worker; with more, a sample of num_workers=0 waits for threads on a busy machine
    workers = [count for count in (0, 1, 2, 4, 8, 12, 16) if count <= args.workers]
    with photographs(args) as folder:
        chain = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])
        dataset = datasets.ImageFolder(folder, chain)
        best = {}
        for name, kind in (("plain torch", DataLoader), ("stoker", stoker.DataLoader)):

            def make(kind: Any = kind, **settings: Any) -> Any:
                return kind(dataset, batch_size=args.batch_size, shuffle=True, **settings)

            best[name] = Grid(make, device, args.batches).run(name, workers)
            found, count, pinned = best[name]
            print(f"best of {name}: num_workers={count}, pin_memory={pinned}, {found:,.0f} samples/s")
            tuned = stoker.tune(make, workers=workers, budget=args.budget, playbook=None, plot=None, quiet=True)
            print(f"stoker.tune for {name}: {tuned.settings or tuned.report['doubt']}")
        beside(best["plain torch"][0], best["stoker"][0], "torch at its best")


if __name__ == "__main__":
    main()

"""Samples a second of four configurations of a loader, over tensors in memory.

Answers the quick throughput test of the first article. The configurations are torch's; swapping the class is all that
changes for stoker, which reads a TensorDataset in place, without workers.

    python examples/recipes/throughput.py --samples 2000
"""

from __future__ import annotations

import torch
from common import beside, flags, rate, same, show
from torch.utils.data import DataLoader, TensorDataset

import stoker

CONFIGURATIONS = [
    {"num_workers": 0, "pin_memory": False},
    {"num_workers": 2, "pin_memory": False},
    {"num_workers": 2, "pin_memory": True},
    {"num_workers": 4, "pin_memory": True},
]


def main() -> None:
    args = flags(__doc__).parse_args()
    dataset = TensorDataset(torch.randn(args.samples, 3, 64, 64), torch.randint(0, 10, (args.samples,)))
    best = {}
    for name, kind in (("plain torch", DataLoader), ("stoker", stoker.DataLoader)):
        found = []
        for configuration in CONFIGURATIONS:
            loader = kind(dataset, batch_size=args.batch_size, **configuration)
            found.append(rate(loader, passes=2))
            pinned = ", pinned" if configuration["pin_memory"] else ""
            show(f"{name}, {configuration['num_workers']} workers{pinned}", found[-1])
        best[name] = max(found)
    beside(best["plain torch"], best["stoker"], "torch at its best")
    plain = DataLoader(dataset, batch_size=args.batch_size)
    ours = stoker.DataLoader(dataset, batch_size=args.batch_size)
    same(
        "every batch",
        all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(plain, ours, strict=True)),
    )


if __name__ == "__main__":
    main()

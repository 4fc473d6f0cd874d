"""Every rank its own part of each epoch: DistributedSampler and set_epoch in torch's loader, and in stoker's.

Answers the first sample on distributed loading of the fourth article. The sampler works in both loaders, with the same
samples. stoker needs none: the ranks are torch.distributed's, and every iter() is the next epoch, so a set_epoch that
is forgotten does not repeat the first one.

    torchrun --nproc-per-node=2 examples/recipes/distributed_sampler.py
    python examples/recipes/distributed_sampler.py          # starts two ranks itself
"""

from __future__ import annotations

from typing import Any

import torch.distributed
from common import beside, flags, gathered, one_folder, same, show, under_torchrun
from common import rate as rate_of
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms

import stoker

TRANSFORM = transforms.Compose([transforms.Resize(128), transforms.CenterCrop(112), transforms.ToTensor()])
EPOCHS = 2


def main() -> None:
    args = flags(__doc__, workers=1).parse_args()
    under_torchrun()
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    settings = {"batch_size": args.batch_size, "num_workers": args.workers}
    with one_folder(args) as photos:
        dataset = datasets.ImageFolder(photos, TRANSFORM)

        def split() -> DistributedSampler:
            return DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True, seed=42)

        sampler = split()
        loader = DataLoader(dataset, sampler=sampler, persistent_workers=True, **settings)
        plain, labels = epochs(loader, sampler, args)
        told("plain torch, DistributedSampler", plain)

        sampler = split()
        with stoker.DataLoader(dataset, sampler=sampler, persistent_workers=True, **settings) as loader:
            ours, mine = epochs(loader, sampler, args)
        told("stoker, the same sampler", ours)

        with stoker.DataLoader(dataset, shuffle=True, seed=42, **settings) as loader:
            alone, _ = epochs(loader, loader, args)  # loader.set_epoch
            told("stoker, without a sampler", alone)
            orders = [[i for batch in loader for i in ids(loader, batch)] for _ in range(EPOCHS)]  # and without it
            verdict = stoker.verify_receipts(gathered(loader.receipt()), loader)
        rates = gathered((plain, ours, alone))
        if rank == 0:
            theirs, *others = (sum(one) for one in zip(*rates, strict=True))
            for other in others:
                beside(theirs, other, "torch")
        check(gathered((labels, mine, orders)), verdict, len(dataset))
    torch.distributed.destroy_process_group()


def epochs(loader: Any, sampler: Any, args: Any) -> tuple[float, list[list[int]]]:
    """The article's loop: samples a second of this rank, and the labels of every epoch."""
    labels: list[list[int]] = []

    def steps() -> Any:
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            labels.append([])
            for x, y in loader:
                labels[-1] += y.tolist()
                yield x.to(args.device, non_blocking=True), y.to(args.device, non_blocking=True)

    return rate_of(steps()), labels


def ids(loader: Any, batch: Any) -> list[int]:
    """The samples of a batch, without those that fill up the last one."""
    facts = batch if hasattr(batch, "ids") else loader.facts
    return facts.ids[facts.valid].tolist()


def told(name: str, rate: float) -> None:
    """The rate of all ranks together."""
    rates = gathered(rate)
    if torch.distributed.get_rank() == 0:
        show(f"{name}, {len(rates)} ranks", sum(rates))


def check(found: list[Any], verdict: Any, samples: int) -> None:
    """Rank 0 looks at what every rank had."""
    if torch.distributed.get_rank() != 0:
        return
    same("the samples of every rank and epoch with the sampler", all(theirs == mine for theirs, mine, _ in found))
    orders = [orders for _, _, orders in found]
    whole = [sorted(i for one in orders for i in one[epoch]) for epoch in range(EPOCHS)]
    same("without one, the ranks together have all samples once an epoch", whole == [[*range(samples)]] * EPOCHS)
    same("epochs have orders of their own", all(one[0] != one[1] for one in orders))
    same("the receipts of the ranks are complete", verdict["ok"] and verdict["complete"])


if __name__ == "__main__":
    main()

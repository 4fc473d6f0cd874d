"""Shards for every rank: sliced by hand as WebDataset needs it, refused on top of stoker's own split, and left out.

Answers the last sample of the fourth article, whose ranks take every world_size-th shard. Ranks then have unequal
numbers of samples, unless the shards happen to fit. stoker gives every rank the whole list and splits samples. If the
list is sliced as well, each rank would see a part of a part: the loader notices that the ranks' data differ.

    torchrun --nproc-per-node=2 examples/recipes/shards_by_rank.py
    python examples/recipes/shards_by_rank.py          # starts two ranks itself
    python examples/recipes/shards_by_rank.py --shards "s3://bucket/shards/photos-{000..002}.tar"
"""

from __future__ import annotations

import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch.distributed
import webdataset
from braceexpand import braceexpand
from common import beside, gathered, one_folder, rate, same, shard_flags, shards, show, under_torchrun
from torch.utils.data import DataLoader
from torchvision import transforms

import stoker

TRANSFORM = transforms.Compose([transforms.Resize(128), transforms.CenterCrop(112), transforms.ToTensor()])


def chain(wds: Any, urls: Any, **more: Any) -> Any:
    """The article's lines, for both libraries."""
    return (
        wds.WebDataset(urls, shardshuffle=False, **more)
        .shuffle(5000)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(TRANSFORM, None)
    )


def main() -> None:
    args = shard_flags(__doc__, workers=1).parse_args()
    under_torchrun()
    rank, world_size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    settings = {"batch_size": args.batch_size, "num_workers": args.workers}
    with one_folder(args) as photos, tempfile.TemporaryDirectory() if rank == 0 else nullcontext() as folder:
        pattern = gathered(shards(photos, Path(folder), count=3) if rank == 0 else None)[0]
        stored = args.shards or pattern
        stored_urls = list(braceexpand(stored))[rank::world_size]

        # By hand. webdataset 1.0 wants to be told that the list is of this rank alone: nodesplitter=None.
        urls = list(braceexpand(pattern))
        rank_urls = urls[rank::world_size]
        seen: list[int] = []
        loader = DataLoader(chain(webdataset, rank_urls, nodesplitter=None), **settings)
        plain = told("plain webdataset, sliced by hand", rate(moved(loader, args.device, seen)))
        counts = gathered(len(seen))
        if rank == 0:
            print(f"samples of the ranks, sliced by hand: {counts}")

        # By hand and by stoker: the rank that opens its loader second finds out, and its error ends the job.
        refused = ""
        try:
            with stoker.DataLoader(chain(stoker, stored_urls), **settings) as loader:
                next(iter(loader))
        except stoker.StokerError as error:
            refused = str(error)
        found = [one for one in gathered(refused) if one]
        same_on_all("slicing twice is refused", len(found) > 0)
        if rank == 0:
            print(f"refused: {found[0]}")

        # By stoker.
        seen = []
        with stoker.DataLoader(chain(stoker, stored), **settings) as loader:
            ours = told("stoker, all shards on every rank", rate(moved(loader, args.device, seen)))
            verdict = stoker.verify_receipts(gathered(loader.receipt()), loader)
        counts = gathered(len(seen))
        same_on_all(f"every rank has as many samples: {counts}", len(set(counts)) == 1)
        same_on_all("each sample came once, by the receipts", verdict["ok"] and verdict["complete"])
        if rank == 0:
            beside(plain, ours, "webdataset")

        # By hand, if it has to be: the loader is told that it is alone.
        with stoker.DataLoader(chain(stoker, stored_urls), rank=0, world_size=1, **settings) as loader:
            mine = sum(len(labels) for _, labels in loader)
        total = sum(gathered(mine))
        same_on_all(
            "sliced by hand with rank=0, world_size=1: all samples", total == sum(1 for _ in photos.glob("*/*"))
        )
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def moved(loader: Any, device: str, seen: list[int]) -> Any:
    for images, labels in loader:
        seen += labels.tolist()
        yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)


def told(name: str, found: float) -> float:
    """The rate of all ranks together."""
    rates = gathered(found)
    if torch.distributed.get_rank() == 0:
        show(f"{name}, {len(rates)} ranks", sum(rates))
    return sum(rates)


def same_on_all(what: str, equal: bool) -> None:
    if torch.distributed.get_rank() == 0 or not equal:
        same(what, equal)


if __name__ == "__main__":
    main()

"""A shuffled stream of full batches from tar shards, by WebDataset and by stoker: order, ends and going on.

Answers the WebDataset sample of the fourth article, whose shards are in an object store. Two things that it gives up
are kept here: the shuffle is of all samples, not of a buffer, and an epoch has exact ends and comes again with the same
seed, or goes on where it stopped. ``with_epoch`` cuts an endless stream into pieces where that is wanted.

    python examples/recipes/webdataset_stream.py --samples 400
    python examples/recipes/webdataset_stream.py --samples 400 --shards "s3://bucket/shards/photos-{000..003}.tar"
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import webdataset
from common import beside, photographs, rate, same, shard_flags, shards, show
from torch.utils.data import DataLoader
from torchvision import transforms

import stoker
import stoker.webdataset as wds

TRANSFORM = transforms.Compose(
    [transforms.RandomResizedCrop(112), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
)


def stream(wds: Any, urls: str, size: int) -> Any:
    """The article's lines, for both libraries."""
    return (
        wds.WebDataset(urls, shardshuffle=1000)  # the order of the shards
        .shuffle(10000)  # a buffer of samples
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(TRANSFORM, None)
        .batched(size, partial=False)
    )


def main() -> None:
    args = shard_flags(__doc__).parse_args()
    with photographs(args) as photos, tempfile.TemporaryDirectory() as folder:
        urls = shards(photos, Path(folder))
        stored = args.shards or urls
        settings = {"batch_size": None, "num_workers": args.workers}

        plain = rate(moved(DataLoader(stream(webdataset, urls, args.batch_size), **settings), args.device))
        show("plain webdataset", plain)
        with stoker.DataLoader(stream(stoker, stored, args.batch_size), **settings, seed=42) as loader:
            ours = rate(moved(loader, args.device))
            show("stoker", ours)
            beside(plain, ours, "webdataset")
            check(loader, args, stream(stoker, stored, args.batch_size))

        # What comes out of the workers is taken apart, shuffled once more and cut to epochs of 5 batches.
        loader = wds.WebLoader(stream(wds, stored, args.batch_size), **settings, seed=42)
        loader = loader.unbatched().shuffle(1000).batched(args.batch_size).with_epoch(5)
        with loader:
            epochs = [[len(labels) for _, labels in loader] for _ in range(2)]
        same("WebLoader: every epoch has 5 full batches", epochs == [[args.batch_size] * 5] * 2)


def check(loader: Any, args: Any, dataset: Any) -> None:
    """What the loader gives: full batches, each sample at most once, again with the same seed, and the rest after a
    stop in the middle of the epoch."""
    loader.set_epoch(1)
    seen = [(batch.ids.tolist(), batch[0].clone()) for batch in loader]
    ids = [i for one, _ in seen for i in one]
    full = all(len(one) == args.batch_size for one, _ in seen)
    same("full batches of samples that come once", full and len(set(ids)) == len(ids))

    again = stoker.DataLoader(dataset, batch_size=None, num_workers=args.workers, seed=42)
    again.set_epoch(1)
    half = len(seen) // 2
    for _, _batch in zip(range(half), again, strict=False):
        state = again.state_dict()
    rest = stoker.DataLoader(dataset, batch_size=None, num_workers=args.workers, seed=42)
    rest.load_state_dict(state)
    following = [(batch.ids.tolist(), batch[0].clone()) for batch in rest]
    equal = all(a[0] == b[0] and torch.equal(a[1], b[1]) for a, b in zip(seen[half:], following, strict=True))
    same("another loader goes on in the middle of the epoch, to the pixel", equal)
    again.close()
    rest.close()


def moved(loader: Any, device: str) -> Any:
    for images, labels in loader:
        yield images.to(device, non_blocking=True), torch.as_tensor(labels).to(device, non_blocking=True)


if __name__ == "__main__":
    main()

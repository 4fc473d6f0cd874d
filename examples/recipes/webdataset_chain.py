"""Tar shards with a transform and batches of the dataset's own, by WebDataset and by stoker; and as a pipeline.

Answers the WebDataset sample of the second article, whose shards are in an object store: stoker reads them there, by
the same URLs. A transform of torchvision runs in the engine, and ``lambda x: x`` leaves a field alone: no Python runs.
``stoker.webdataset`` has webdataset's other names: DataPipeline and its stages, SimpleShardList, WebLoader, handlers.

    python examples/recipes/webdataset_chain.py --samples 400
    python examples/recipes/webdataset_chain.py --samples 400 --shards "s3://bucket/shards/photos-{000..003}.tar"
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
import stoker.webdataset

TRANSFORM = transforms.Compose([transforms.Resize(128), transforms.CenterCrop(112), transforms.ToTensor()])


def chain(wds: Any, urls: str, size: int, buffer: int = 1000) -> Any:
    """The article's lines, for both libraries."""
    return (
        wds.WebDataset(urls, shardshuffle=False)
        .shuffle(buffer)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(TRANSFORM, lambda x: x)
        .batched(size)
    )


def pipeline(wds: Any, urls: str, size: int, buffer: int = 1000) -> Any:
    """The same as stages."""
    return wds.DataPipeline(
        wds.SimpleShardList(urls),
        wds.split_by_worker,
        wds.tarfile_to_samples(handler=wds.warn_and_continue),
        wds.shuffle(buffer) if buffer else None,
        wds.decode("pil", handler=wds.warn_and_continue),
        wds.to_tuple("jpg", "cls"),
        wds.map_tuple(TRANSFORM, lambda x: x),
        wds.batched(size),
    )


def main() -> None:
    args = shard_flags(__doc__).parse_args()
    with photographs(args) as photos, tempfile.TemporaryDirectory() as folder:
        urls = shards(photos, Path(folder))
        stored = args.shards or urls

        dataset = chain(webdataset, urls, args.batch_size)
        plain = rate(moved(DataLoader(dataset, num_workers=args.workers, batch_size=None), args.device))
        show("plain webdataset, chain", plain)
        dataset = chain(stoker, stored, args.batch_size)
        with stoker.DataLoader(dataset, num_workers=args.workers, batch_size=None) as loader:
            ours = rate(moved(loader, args.device))
        show("stoker, the same chain", ours)
        beside(plain, ours, "webdataset")

        wds = webdataset
        loader = wds.WebLoader(pipeline(wds, urls, args.batch_size), num_workers=args.workers, batch_size=None)
        plain = rate(moved(loader, args.device))
        show("plain webdataset, DataPipeline and WebLoader", plain)
        wds = stoker.webdataset
        loader = wds.WebLoader(pipeline(wds, stored, args.batch_size), num_workers=args.workers, batch_size=None)
        with loader:
            ours = rate(moved(loader, args.device))
        show("stoker, DataPipeline and WebLoader", ours)
        beside(plain, ours, "webdataset")

        for name, make in (("chain", chain), ("pipeline", pipeline)):
            theirs = DataLoader(make(webdataset, urls, args.batch_size, buffer=0), num_workers=1, batch_size=None)
            mine = make(stoker.webdataset, stored, args.batch_size, buffer=0)
            same(f"the samples of the {name}, but for the decoder", equal(theirs, mine))


def moved(loader: Any, device: str) -> Any:
    for images, labels in loader:
        yield images.to(device, non_blocking=True), torch.as_tensor(labels).to(device, non_blocking=True)


def equal(theirs: Any, ours: Any) -> bool:
    """One worker reads in the order in which samples are stored. Two decoders, and two programs that
    resize, may differ by a few levels of 255."""
    return all(
        a[0].shape == b[0].shape
        and torch.equal(torch.as_tensor(a[1]), torch.as_tensor(b[1]))
        and float((a[0] - b[0]).abs().max()) <= 5.01 / 255
        for a, b in zip(theirs, ours, strict=True)
    )


if __name__ == "__main__":
    main()

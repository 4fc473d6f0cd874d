"""stoker over a store, through its public Python API and nothing else."""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Iterator
from typing import Any

import stoker
from stoker import transforms as T

from bench import far

WINDOW = 1000


def opened(args: argparse.Namespace) -> Any:
    keywords: dict[str, Any] = {"batch_size": far.BATCH, "num_workers": args.workers, "drop_last": True, "seed": 0}
    if args.no_hedge or args.ahead:
        keywords["fetch"] = ({"hedge": False} if args.no_hedge else {}) | ({"ahead": args.ahead} if args.ahead else {})
    if args.row == "files":
        files = stoker.files("s3://data/files/**/*.jpg", fields=[stoker.Field("image", decode="bytes"), "label"])
        return stoker.DataLoader(files, shuffle=True, output="numpy", **keywords)
    dataset = stoker.WebDataset(f"s3://data/tar/{{000000..{args.shards - 1:06d}}}.tar")
    if args.row == "images":
        crop = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip()])
        dataset = dataset.decode("pil").to_tuple("jpg", "cls").map_tuple(crop, None)
    else:
        dataset = dataset.to_tuple("jpg", "cls")
    order = {"shuffle": True} if args.row == "full" else {"shuffle": "block", "window": WINDOW}
    return stoker.DataLoader(dataset, output="numpy", **order, **keywords)


def whole(images: Any) -> tuple[Any, int]:
    """A batch of pictures in the order in which it is stored: as NHWC, whichever way it is shown."""
    return images.transpose(0, 2, 3, 1) if images.shape[1] == 3 else images, len(images)


def main() -> None:
    parser = far.options()
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--no-hedge", action="store_true")
    parser.add_argument("--ahead", default="", help="fetch.ahead; stoker's own choice if empty")
    args = parser.parse_args()
    os.environ.setdefault("STOKER_LOG", "error")
    loaders: list[Any] = []

    def passes() -> Iterator[Iterator[Any]]:
        loaders.append(opened(args))
        for epoch in itertools.count():
            loaders[0].set_epoch(epoch)
            yield (whole(batch[0]) if args.row == "images" else batch[0] for batch in loaders[0])

    def about() -> dict[str, Any]:
        sources = loaders[0].stats()["sources"]
        return {"versions": {"stoker": stoker.__version__}, "workers": args.workers, "sources": sources}

    far.measure(args, passes, about)


if __name__ == "__main__":
    main()

"""Tar shards with a lambda that makes tensors, by WebDataset, by stoker with the same lambda, and without one.

Answers the WebDataset sample of the first article. Only the import is swapped. The article's decode("pillow") is an
error in webdataset 1.0, whose word is "pil"; stoker has both. A lambda runs in Python workers, after the engine has
decoded; what it does has a word in decode(), with which everything runs in the engine.

    python examples/recipes/webdataset_lambda.py --samples 400
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset
from common import beside, flags, photographs, rate, same, shards, show
from torch.utils.data import DataLoader

import stoker


def chain(wds: Any, urls: str, word: str) -> Any:
    """The article's lines, for both libraries."""
    return (
        wds.WebDataset(urls, shardshuffle=False)
        .decode(word)
        .rename(image="jpg", label="txt")
        .to_tuple("image", "label")
        .map(
            lambda x: (
                torch.from_numpy(np.array(x[0])).permute(2, 0, 1).float() / 255.0,
                torch.tensor(int(x[1])),
            )
        )
    )


def words(urls: str) -> Any:
    """The same without a function: torchrgb is float32 (3, height, width) from 0 to 1, cls is an integer."""
    return (
        stoker.WebDataset(urls, shardshuffle=False)
        .decode("torchrgb")
        .rename(image="jpg", label="cls")
        .to_tuple("image", "label")
    )


def main() -> None:
    args = flags(__doc__).parse_args()
    with photographs(args) as photos, tempfile.TemporaryDirectory() as folder:
        urls = shards(photos, Path(folder), side=224)
        settings = {"batch_size": args.batch_size, "num_workers": args.workers}

        plain = rate(moved(DataLoader(chain(webdataset, urls, "pil"), **settings), args.device))
        show("plain webdataset, with the lambda", plain)
        with stoker.DataLoader(chain(stoker, urls, "pillow"), **settings) as loader:
            lambdas = rate(moved(loader, args.device))
        show("stoker, with the same lambda", lambdas)
        with stoker.DataLoader(words(urls), **settings) as loader:
            native = rate(moved(loader, args.device))
        show("stoker, with words instead", native)
        beside(plain, lambdas, "webdataset")
        beside(plain, native, "webdataset")

        check(urls, args.batch_size)


def moved(loader: Any, device: str) -> Any:
    for batch_x, batch_y in loader:
        yield batch_x.to(device, non_blocking=True), batch_y.to(device, non_blocking=True)


def check(urls: str, batch_size: int) -> None:
    """One worker reads in the order in which samples are stored. Two decoders of JPEG may differ by three levels of
    255."""
    theirs = DataLoader(chain(webdataset, urls, "pil"), batch_size=batch_size, num_workers=1)
    for name, dataset in (("with the lambda", chain(stoker, urls, "pillow")), ("with words", words(urls))):
        with stoker.DataLoader(dataset, batch_size=batch_size, num_workers=1) as ours:
            equal = all(
                a[0].shape == b[0].shape and torch.equal(a[1], b[1]) and float((a[0] - b[0]).abs().max()) <= 3.01 / 255
                for a, b in zip(theirs, ours, strict=True)
            )
        same(f"labels, and pictures but for the decoder, {name}", equal)


if __name__ == "__main__":
    main()

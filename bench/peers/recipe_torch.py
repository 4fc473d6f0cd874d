"""bench.augment's recipes in torch's DataLoader: decode_jpeg and v2 on uint8 tensors, or with --pil PIL and v1."""

from __future__ import annotations

import sys
from typing import Any

import PIL
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from bench.consumer import Options, Peer, run
from bench.peers import recipes, torch_tuned


def tensors(recipe: str) -> Any:
    if recipe == "randaugment":
        return v2.Compose([*recipes.randaugment(v2), v2.RandomErasing()])
    return recipes.TwoViews(*(v2.Compose(recipes.contrastive(v2, second)) for second in (False, True)))


def pil(recipe: str) -> Any:
    if recipe == "randaugment":
        return v1.Compose([*recipes.randaugment(v1), v1.PILToTensor(), v1.RandomErasing()])
    both = (v1.Compose([*recipes.contrastive(v1, second), v1.PILToTensor()]) for second in (False, True))
    return recipes.TwoViews(*both)


def open_peer(options: Options, recipe: str, old: bool) -> Peer:
    dataset = (
        ImageFolder(options.data, transform=pil(recipe))
        if old
        else ImageFolder(options.data, transform=tensors(recipe), loader=torch_tuned.load)
    )
    peer = torch_tuned.from_dataset(dataset, options)
    peer.views = recipes.views_of(recipe)
    if old:
        peer.versions["pillow"] = PIL.__version__
    return peer


if __name__ == "__main__":
    recipe, old = recipes.chosen(), "--pil" in sys.argv
    if old:
        sys.argv.remove("--pil")
    run(lambda options: open_peer(options, recipe, old))

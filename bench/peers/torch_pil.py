"""torch DataLoader with PIL, as in torchvision's reference script and most code that is out there."""

from __future__ import annotations

from typing import Any

import PIL
from PIL import features
from torchvision import transforms
from torchvision.datasets import ImageFolder

from bench.consumer import MEAN, SIZE, STD, Options, Peer, run
from bench.peers.torch_tuned import from_dataset


def open_peer(options: Options) -> Peer:
    steps: list[Any] = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()]
    steps += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)] if options.floats else [transforms.PILToTensor()]
    peer = from_dataset(ImageFolder(options.data, transform=transforms.Compose(steps)), options)
    peer.versions["pillow"] = PIL.__version__
    peer.versions["libjpeg-turbo of pillow"] = str(features.version("libjpeg_turbo"))
    return peer


if __name__ == "__main__":
    run(open_peer)

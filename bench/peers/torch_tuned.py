"""torch DataLoader, well tuned: torchvision.io.decode_jpeg and transforms.v2 on uint8 tensors, as its guide advises.

Tensors instead of PIL, uint8 as long as possible, antialiased bilinear on uint8 (the AVX2 path of torch), one thread a
worker, persistent workers, four batches ahead a worker. float32 is made last, by v2.ToDtype and v2.Normalize.
"""

from __future__ import annotations

from typing import Any

import torch
import torchvision
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

from bench.consumer import MEAN, SIZE, STD, Options, Peer, run

AHEAD = 4


def load(path: str) -> torch.Tensor:
    return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)


def tuned(encoded: bytes) -> torch.Tensor:
    """The same of a file that somebody else has read."""
    return decode_jpeg(torch.frombuffer(bytearray(encoded), dtype=torch.uint8), mode=ImageReadMode.RGB)


def steps(options: Options) -> v2.Compose:
    out: list[Any] = [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()]
    if options.floats:
        out += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    return v2.Compose(out)


def open_peer(options: Options) -> Peer:
    return from_dataset(ImageFolder(options.data, transform=steps(options), loader=load), options)


def arrays(images: Any) -> Any:
    """Of a batch, or of several views of it."""
    return [view.numpy() for view in images] if isinstance(images, list) else images.numpy()


def from_dataset(dataset: ImageFolder, options: Options) -> Peer:
    """Shared with torch_pil and recipe_torch: the loader around the dataset is the same."""
    torch.manual_seed(options.seed)
    loader = DataLoader(
        dataset,
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.workers,
        prefetch_factor=AHEAD,
        persistent_workers=True,
        drop_last=True,
    )
    return Peer(
        batches=((arrays(images), labels.numpy()) for images, labels in loader),
        in_flight=AHEAD * options.workers,
        resampling="bilinear antialiased",
        layout="NCHW",
        versions={"torch": torch.__version__, "torchvision": torchvision.__version__},
        settings={"num_workers": options.workers, "prefetch_factor": AHEAD, "persistent_workers": True},
    )


if __name__ == "__main__":
    run(open_peer)

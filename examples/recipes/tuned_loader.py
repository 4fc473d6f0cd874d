"""The tuned loader: workers, pinned memory, prefetching, workers that stay; and moves that do not block.

Answers the settings of the first and second article. stoker's loader takes the same keywords. Its workers are lanes of
an engine, which stay anyway, so persistent_workers says nothing to it. A batch is moved as the articles have it, a
tuple tensor by tensor and a dict by name, or in one call: batch.to(device, non_blocking=True).

    python examples/recipes/tuned_loader.py --workers 2 --device cuda
"""

from __future__ import annotations

from typing import Any

import torch
from common import beside, flags, photographs, rate, same, show
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

import stoker


class Moved:
    """A loader whose batches are moved by a function, before the loop has them."""

    def __init__(self, loader: Any, move: Any) -> None:
        self.loader, self.move = loader, move

    def __iter__(self) -> Any:
        return map(self.move, self.loader)


def main() -> None:
    args = flags(__doc__).parse_args()
    device = torch.device(args.device)
    torch.set_num_threads(1)  # as in a worker; with more, a sample of num_workers=0 waits for threads on a busy machine

    def as_tuple(batch: Any) -> tuple[torch.Tensor, ...]:
        images, labels = batch
        return images.to(device, non_blocking=True), labels.to(device, non_blocking=True)

    def as_dict(batch: Any) -> dict[str, torch.Tensor]:
        return {name: value.to(device, non_blocking=True) for name, value in batch.items()}

    def in_one_call(batch: Any) -> Any:
        return batch.to(device, non_blocking=True)

    tuned = {
        "batch_size": args.batch_size,
        "num_workers": max(1, args.workers),
        "pin_memory": device.type == "cuda",  # it has no effect without one
        "prefetch_factor": 2,
        "persistent_workers": True,
    }
    with photographs(args) as folder:
        chain = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])
        dataset = datasets.ImageFolder(folder, chain)
        default = rate(Moved(DataLoader(dataset, batch_size=args.batch_size), as_tuple))
        show("plain torch, as it comes", default)
        plain = DataLoader(dataset, **tuned)
        settled = rate(Moved(plain, as_tuple), passes=2)
        show("plain torch, tuned", settled)

        loader = stoker.DataLoader(dataset, **tuned)
        ours = rate(Moved(loader, as_tuple), passes=2)
        show("stoker, the same keywords", ours)
        beside(settled, ours, "torch tuned")

        photos = stoker.ImageFolder(folder, transform=chain)
        dicts = stoker.DataLoader(photos.select("image", "label"), **tuned)
        show("stoker, dicts", rate(Moved(dicts, as_dict), lambda batch: len(batch["image"]), passes=2))
        show("stoker, batch.to", rate(Moved(stoker.DataLoader(photos, **tuned), in_one_call), passes=2))

        close = True
        for a, b, c in zip(Moved(plain, as_tuple), Moved(loader, as_tuple), Moved(dicts, as_dict), strict=True):
            close &= torch.equal(a[1], b[1]) and torch.equal(b[1], c["label"]) and torch.equal(b[0], c["image"])
            close &= (a[0] - b[0]).abs().max().item() < 2.01 / 255
        same("every batch, as a tuple and as a dict, within 2 levels of 255", close)


if __name__ == "__main__":
    main()

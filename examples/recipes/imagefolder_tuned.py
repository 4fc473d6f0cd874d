"""A folder of pictures, at first as anybody writes it, then tuned: is it twice as fast?

Answers the first example and the first exercise of the third article: Resize, CenterCrop and ToTensor over an
ImageFolder, read by the training process itself or by workers with pinned memory and prefetching. With stoker only
the loader's class changes. Its engine decodes and crops on all cores that this process may use, if num_workers is not
given, so the lines of the baseline are already tuned.

    python examples/recipes/imagefolder_tuned.py --workers 4
"""

from __future__ import annotations

import os

import torch
from common import flags, photographs, rate, same, show
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

import stoker


def main() -> None:
    args = flags(__doc__, batch_size=64, workers=min(8, os.cpu_count() or 1)).parse_args()
    device = torch.device(args.device)
    torch.set_num_threads(1)  # as in a worker; with more, a sample of num_workers=0 waits for threads on a busy machine
    with photographs(args) as folder:
        chain = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])
        train = datasets.ImageFolder(folder, transform=chain)

        def speed(loader: DataLoader | stoker.DataLoader, passes: int = 2) -> float:
            moved = (
                [value.to(device, non_blocking=True) for value in batch] for _ in range(passes) for batch in loader
            )
            return rate(moved)

        baseline = speed(DataLoader(train, batch_size=args.batch_size, shuffle=True, num_workers=0), passes=1)
        show("plain torch, baseline", baseline)
        tuned = DataLoader(
            train,
            batch_size=2 * args.batch_size,
            shuffle=True,
            num_workers=max(1, args.workers),
            pin_memory=device.type == "cuda",
            prefetch_factor=4,
            persistent_workers=True,
        )
        settled = speed(tuned)
        show("plain torch, tuned", settled)
        ours = speed(stoker.DataLoader(train, batch_size=args.batch_size, shuffle=True))
        show("stoker, the lines of the baseline", ours)
        for name, found in (("torch, tuned,", settled), ("stoker", ours)):
            reached = "" if found >= 2 * baseline else "not "
            print(f"{name} is {found / baseline:.1f} times as fast as the baseline: {reached}the factor of two")

        pairs = zip(DataLoader(train, batch_size=64), stoker.DataLoader(train, batch_size=64), strict=True)
        close = all(torch.equal(a[1], b[1]) and (a[0] - b[0]).abs().max().item() < 2.01 / 255 for a, b in pairs)
        same("labels of every batch, and pictures within 2 levels of 255", close)


if __name__ == "__main__":
    main()

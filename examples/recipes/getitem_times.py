"""What does one sample cost? Mean and 99th percentile of dataset[i].

Answers the second article's look into __getitem__, by hand and with stoker.profile, which also says how much of the
time was processor time and which samples were the slowest. A dataset that stoker's engine reads has no __getitem__ to
time: the stats() of a loader over it say what a sample cost in each stage.

    python examples/recipes/getitem_times.py --samples 1000
"""

from __future__ import annotations

import time

import numpy as np
import torch
from common import flags, photographs, show_ms
from torchvision import datasets, transforms

import stoker

CHAIN = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])


def main() -> None:
    args = flags(__doc__).parse_args()
    torch.set_num_threads(1)  # as in a loader's worker; stoker.profile sees to it itself
    with photographs(args) as folder:
        dataset = datasets.ImageFolder(folder, CHAIN)
        times = []
        for i in range(len(dataset)):
            start = time.perf_counter()
            dataset[i]
            times.append(time.perf_counter() - start)
        show_ms("plain, mean of dataset[i]", float(np.mean(times)), "a sample")
        show_ms("plain, 99 % within", float(np.percentile(times, 99)), "a sample")

        told = stoker.profile(dataset, samples=len(dataset))
        show_ms("stoker.profile(dataset), mean", told.mean, "a sample")
        show_ms("stoker.profile(dataset), 99 % within", told.p99, "a sample")
        print(told)

        loader = stoker.DataLoader(stoker.ImageFolder(folder, transform=CHAIN), batch_size=args.batch_size)
        samples = sum(len(labels) for _, labels in loader)
        stats = loader.stats()
        stages = {name: stats[name]["busy_s"] / samples for name in ("read", "decode", "batch")}
        show_ms("stoker's engine, mean of all stages", sum(stages.values()), "a sample")
        print("  " + ", ".join(f"{name} {seconds * 1e6:.0f} us" for name, seconds in stages.items()))


if __name__ == "__main__":
    main()

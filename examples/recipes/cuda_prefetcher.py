"""An iterator that preloads the next batch of dicts on a stream of its own: as it is usually written, and stoker's.

Answers the CUDAPrefetcher of the second article, for batches that are dicts. What its lines leave out:

- A batch is not recorded on the loop's stream, so its memory may be used again while the loop still reads it.
- It takes its first batch when it is made, and not when the loop begins.
- An exception of the loader comes a batch too early, and the batch before it is lost.
- Everything in a batch must be a tensor: ids and texts have no ``to``.

    python examples/recipes/cuda_prefetcher.py --device cuda
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from common import beside, flags, rate, same, show
from torch.utils.data import DataLoader, Dataset

import stoker


class Dicts(Dataset[dict[str, torch.Tensor]]):
    """Samples that are dicts; the last one of a batch may be one that cannot be read."""

    def __init__(self, samples: int, bad: int = -1) -> None:
        self.images, self.bad = torch.rand(samples, 3, 32, 32), bad

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        if number == self.bad:
            raise ValueError(f"sample {number} cannot be read")
        return {"image": self.images[number], "label": torch.tensor(number)}


class Usual:
    """The article's lines."""

    def __init__(self, loader: Any, device: torch.device) -> None:
        self.batches, self.device = iter(loader), device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.preload()

    def preload(self) -> None:
        try:
            batch = next(self.batches)
        except StopIteration:
            self.batch = None
            return
        with contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            self.batch = {name: value.to(self.device, non_blocking=True) for name, value in batch.items()}

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> dict[str, torch.Tensor]:
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.batch
        if batch is None:
            raise StopIteration
        self.preload()
        return batch


def before_the_error(batches: Any) -> int:
    """How many batches a loop gets until the loader raises."""
    count = 0
    with contextlib.suppress(ValueError):
        for _ in batches:
            count += 1
    return count


def size(batch: Any) -> int:
    return len(batch["label"])


def main() -> None:
    args = flags(__doc__).parse_args()
    device = torch.device(args.device)
    dataset = Dicts(args.samples)
    tuned = {"batch_size": args.batch_size, "pin_memory": device.type == "cuda"}
    loader = DataLoader(dataset, num_workers=args.workers, persistent_workers=args.workers > 0, **tuned)

    for _ in Usual(loader, device):  # workers start
        pass
    plain = rate(Usual(loader, device), size)
    show("plain torch, as usually written", plain)
    for _ in stoker.CUDAPrefetcher(loader, device):
        pass
    ours = rate(stoker.CUDAPrefetcher(loader, device), size)
    show("stoker.CUDAPrefetcher over torch's loader", ours)
    beside(plain, ours, "the usual lines")
    passes = [list(Usual(loader, device)), list(stoker.CUDAPrefetcher(loader, device))]  # one after the other
    pairs = zip(*passes, strict=True)
    same("every batch", all(torch.equal(a[name], b[name]) for a, b in pairs for name in ("image", "label")))

    broken = DataLoader(Dicts(args.samples, bad=args.samples - 1), **tuned)
    good = before_the_error(broken)
    usual, found = before_the_error(Usual(broken, device)), before_the_error(stoker.CUDAPrefetcher(broken, device))
    print(f"before an error the loader has {good} batches; as usually written the loop gets {usual}")
    same("with stoker.CUDAPrefetcher it gets all of them", found == good)


if __name__ == "__main__":
    main()

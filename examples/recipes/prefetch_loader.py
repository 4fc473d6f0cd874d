"""A wrapper that moves batches on a stream of its own: as it is usually written, written correctly, and stoker's.

Answers the PrefetchLoader of the first article. Its lines have three mistakes, which the recipe shows and counts:

- The first batch is handed out as it is, and then once more after its copy: a pass has a batch too many, and the model
  meets one that is not on the device.
- Every step waits for the copy that it has just started, and so for the batch after its own: nothing overlaps.
- Nobody records a batch on the loop's stream. Its memory was allocated on the other one, which may use it again
  while the loop still reads it.

``stoker.PrefetchLoader`` takes any loader of torch's; ``device=`` of stoker's loader is the same without a wrapper.
With --device cpu there are no streams, and only the first mistake shows.

    python examples/recipes/prefetch_loader.py --device cuda
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from common import beside, flags, rate, same, show
from torch.utils.data import DataLoader, TensorDataset

import stoker


def move(batch: Any, device: torch.device) -> Any:
    """Every tensor in tuples, lists and dicts, moved."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: move(value, device) for key, value in batch.items()}
    return type(batch)(move(value, device) for value in batch) if isinstance(batch, (tuple, list)) else batch


class Streams:
    """A stream beside the loop's, if the device has streams."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def side(self) -> Any:
        return contextlib.nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def wait(self) -> None:
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)


class Usual:
    """The article's lines."""

    def __init__(self, loader: Any, device: torch.device) -> None:
        self.loader, self.device, self.streams = loader, device, Streams(device)

    def __iter__(self) -> Iterator[Any]:
        held = None
        for batch in self.loader:
            if held is None:
                held = batch  # not moved, and below it is moved and comes again
            with self.streams.side():
                batch = move(batch, self.device)
            self.streams.wait()  # for the batch after the one that is handed out
            yield held
            held = batch
        if held is not None:
            yield held


class Mended:
    """The same without the mistakes. It still takes every batch of the loader in the loop's thread, and copies one
    tensor at a time."""

    def __init__(self, loader: Any, device: torch.device) -> None:
        self.loader, self.device, self.streams = loader, device, Streams(device)

    def __iter__(self) -> Iterator[Any]:
        held = event = None
        for batch in self.loader:
            with self.streams.side():
                batch = move(batch, self.device)
                after = torch.cuda.Event() if self.streams.stream else None
                if after is not None:
                    after.record()
            if held is not None:
                yield self.handed(held, event)
            held, event = batch, after
        if held is not None:
            yield self.handed(held, event)

    def handed(self, batch: Any, event: Any) -> Any:
        if event is not None:
            torch.cuda.current_stream().wait_event(event)  # its own copy, and no later one
            for tensor in batch:
                tensor.record_stream(torch.cuda.current_stream())
        return batch


def labels(batches: Any) -> list[int]:
    """The samples of a pass, by their labels."""
    return [label for batch in batches for label in batch[1].tolist()]


def main() -> None:
    args = flags(__doc__).parse_args()
    device = torch.device(args.device)
    dataset = TensorDataset(torch.rand(args.samples, 3, 64, 64), torch.arange(args.samples))
    tuned = {"batch_size": args.batch_size, "num_workers": args.workers, "pin_memory": device.type == "cuda"}
    loader = DataLoader(dataset, **tuned)
    every = list(range(args.samples))

    usual = labels(Usual(loader, device))
    print(f"as usually written: {len(usual)} samples of {len(every)}; the first batch came {usual.count(0)} times")
    moved = {str(batch[0].device).partition(":")[0] for batch in Usual(loader, device)}
    print(f"as usually written: its batches are on {', '.join(sorted(moved))}")
    same("mended, every sample once", labels(Mended(loader, device)) == every)
    plain = rate(Mended(loader, device), passes=3)
    show("plain torch, the wrapper mended", plain)

    wrapped = stoker.PrefetchLoader(loader, device)
    same("stoker.PrefetchLoader over torch's loader, every sample once", labels(wrapped) == every)
    show("stoker.PrefetchLoader over torch's loader", rate(wrapped, passes=3))
    with stoker.DataLoader(dataset, **tuned, device=device) as loader:
        same("stoker.DataLoader(device=), every sample once", labels(loader) == every)
        ours = rate(loader, passes=3)
    show("stoker, device= in place of the wrapper", ours)
    beside(plain, ours, "torch with the wrapper mended")


if __name__ == "__main__":
    main()

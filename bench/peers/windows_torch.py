"""Random windows through DataLoader: a sample is a window of the mapped file, and one token more. default_collate
stacks them, and x and y are views of the stack, which is half the work of a pair a sample. --workers: how many.
--batched: the dataset has __getitems__, which torch's fetcher calls once a batch, and fills the stack itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from bench.windows import BATCH, LENGTH, run

STEPS = 1_000_000


class Windows(Dataset[torch.Tensor]):
    def __init__(self, path: str) -> None:
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self) -> int:
        return len(self.tokens) - LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.tokens[index : index + LENGTH + 1].astype(np.int64))


class Batches(Windows):
    """All windows of a batch at once, into one array. collate_fn gets what __getitems__ returns."""

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        out = np.empty((len(indices), LENGTH + 1), np.int64)
        for row, index in enumerate(indices):
            out[row] = self.tokens[index : index + LENGTH + 1]
        return torch.from_numpy(out)


def as_is(stacked: torch.Tensor) -> torch.Tensor:
    return stacked


def open_batches(path: str, workers: int, batched: bool) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    dataset = Batches(path) if batched else Windows(path)
    # With replacement, so that no permutation of 100 million windows has to be made.
    sampler = RandomSampler(dataset, replacement=True, num_samples=STEPS * BATCH)
    collate = as_is if batched else None
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, num_workers=workers, collate_fn=collate)
    for stacked in loader:
        yield stacked[:, :-1], stacked[:, 1:]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batched", action="store_true")
    own, sys.argv[1:] = parser.parse_known_args()
    run(lambda path: open_batches(path, own.workers, own.batched))

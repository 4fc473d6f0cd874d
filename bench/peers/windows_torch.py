"""Random windows through DataLoader: a sample is x and y, cut out of one conversion of the mapped file; default_collate
stacks each, so that both are contiguous, as stoker's and nanoGPT's are. --workers: how many. --batched: the dataset has
__getitems__, which torch's fetcher calls once a batch, and fills x and y itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

from bench.windows import BATCH, LENGTH, run

STEPS = 1_000_000


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, path: str) -> None:
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self) -> int:
        return len(self.tokens) - LENGTH

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        window = torch.from_numpy(self.tokens[index : index + LENGTH + 1].astype(np.int64))
        return window[:-1], window[1:]


class Batches(Windows):
    """All windows of a batch at once, into two arrays. collate_fn gets what __getitems__ returns."""

    def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        x = np.empty((len(indices), LENGTH), np.int64)
        y = np.empty_like(x)
        for row, index in enumerate(indices):
            x[row] = self.tokens[index : index + LENGTH]
            y[row] = self.tokens[index + 1 : index + LENGTH + 1]
        return torch.from_numpy(x), torch.from_numpy(y)


def as_is(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return batch


def open_batches(path: str, workers: int, batched: bool) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    dataset = Batches(path) if batched else Windows(path)
    # With replacement, so that no permutation of 100 million windows has to be made.
    sampler = RandomSampler(dataset, replacement=True, num_samples=STEPS * BATCH)
    collate = as_is if batched else None
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, num_workers=workers, collate_fn=collate)
    yield from loader


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--batched", action="store_true")
    own, sys.argv[1:] = parser.parse_known_args()
    run(lambda path: open_batches(path, own.workers, own.batched))

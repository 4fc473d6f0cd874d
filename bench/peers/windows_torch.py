"""Random windows through DataLoader: a sample is a window of the mapped file, and one token more. default_collate
stacks them, and x and y are views of the stack, which is half the work of a pair a sample. --workers: how many."""

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


def open_batches(path: str, workers: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    dataset = Windows(path)
    # With replacement, so that no permutation of 100 million windows has to be made.
    sampler = RandomSampler(dataset, replacement=True, num_samples=STEPS * BATCH)
    loader = DataLoader(dataset, batch_size=BATCH, sampler=sampler, num_workers=workers)
    for stacked in loader:
        yield stacked[:, :-1], stacked[:, 1:]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--workers", type=int, default=0)
    own, sys.argv[1:] = parser.parse_known_args()
    run(lambda path: open_batches(path, own.workers))

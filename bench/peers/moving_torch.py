"""Ready batches through DataLoader with two workers, in two ways; the better one counts.

Plain: a ready sample an index, put together by default_collate (in shared memory, as it does in a worker). --whole: the
worker copies a ready batch into shared memory in one piece, and nothing is put together (batch_size=None).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from bench.moving import BATCH, BYTES, SHAPE, run, sample

STEPS = 100_000


class Samples(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.ready = torch.from_numpy(sample())

    def __len__(self) -> int:
        return STEPS * BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.ready


class Batches(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.ready = torch.from_numpy(np.broadcast_to(sample(), (BATCH, *SHAPE)).copy())

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        shared = torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared(BYTES))
        return shared.view(BATCH, *SHAPE).copy_(self.ready)


def open_batches(whole: bool) -> Iterator[np.ndarray]:
    dataset, size = (Batches(), None) if whole else (Samples(), BATCH)
    loader = DataLoader(dataset, batch_size=size, num_workers=2, persistent_workers=True)
    return (batch.numpy() for batch in loader)


if __name__ == "__main__":
    pieces = [arg for arg in sys.argv if arg != "--whole"]
    whole, sys.argv = len(pieces) < len(sys.argv), pieces
    run(lambda: open_batches(whole))

"""Random windows as nanoGPT's training script draws them: a new map of the file for every batch (an old one would count
all of its pages as the process's), random starts, one conversion a window, x and y stacked each for itself."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from bench.windows import BATCH, LENGTH, run


def open_batches(path: str) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    def stacked(tokens: np.ndarray, starts: torch.Tensor) -> torch.Tensor:
        return torch.stack([torch.from_numpy(tokens[i : i + LENGTH].astype(np.int64)) for i in starts])

    while True:
        tokens = np.memmap(path, dtype=np.uint16, mode="r")
        starts = torch.randint(len(tokens) - LENGTH, (BATCH,))
        yield stacked(tokens, starts), stacked(tokens, starts + 1)


if __name__ == "__main__":
    run(open_batches)

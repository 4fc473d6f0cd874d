"""Random windows through stoker: every start of a window comes once an epoch; two lanes; x and y are contiguous."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import stoker

from bench.windows import BATCH, LENGTH, run


def open_batches(path: str) -> Iterator[tuple[Any, Any]]:
    dataset = stoker.TokenDataset(path, LENGTH, stride=1)
    return iter(stoker.DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=2))


if __name__ == "__main__":
    run(open_batches)

"""Ready batches through stoker: the engine copies a ready sample into every row of a slot; the client maps it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import stoker

from bench.moving import BATCH, SHAPE, run


def open_batches() -> Iterator[np.ndarray]:
    loader = stoker.DataLoader(
        stoker.Synthetic(BATCH * 100_000, SHAPE), batch_size=BATCH, num_workers=2, output="numpy"
    )
    return (images for (images,) in loader)


if __name__ == "__main__":
    run(open_batches)

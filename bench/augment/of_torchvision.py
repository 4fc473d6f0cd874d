"""torchvision's v2 transforms on uint8 tensors, one picture at a time: planes, or channels last in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
import torchvision

from bench.augment.operations import Operation, torchvision_of
from bench.augment.serve import THREADS, Opened, Pass

torch.set_num_threads(THREADS)


def open(pictures: np.ndarray) -> Opened:
    last = [torch.from_numpy(picture).permute(2, 0, 1) for picture in pictures]
    inputs = {"planes": [picture.contiguous() for picture in last], "channels last": last}

    def make(operation: Operation | None, way: str) -> Pass:
        tensors = inputs[way]
        if operation is None:
            return lambda: (tensor.clone() for tensor in tensors)
        transform = torchvision_of(operation)

        def work() -> Iterator[Any]:
            with torch.inference_mode():
                for tensor in tensors:
                    yield transform(tensor.clone())

        return work

    def pixels(result: Any) -> Iterable[np.ndarray]:
        yield result.numpy()

    return Opened(
        {"torch": torch.__version__, "torchvision": torchvision.__version__},
        tuple(inputs),
        make,
        pixels,
        {"threads": torch.get_num_threads()},
    )

"""Batches of arrays of unequal shapes: the collate function of tf.data's ``padded_batch``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any


class Padded:
    """Stacks samples whose arrays are filled up at the end of each axis, with ``values``, to ``shapes`` or to the
    largest of the batch (None, or -1 for an axis). Both are one for all arrays, or structured as samples are."""

    def __init__(self, shapes: Any = None, values: Any = None) -> None:
        self._shapes = shapes
        self._values = values

    def why(self) -> str:
        return "padded_batch is Python"

    def __call__(self, samples: Sequence[Any]) -> Any:
        return _stacked(samples, self._shapes, self._values)


def _stacked(samples: Sequence[Any], shapes: Any, values: Any) -> Any:
    first = samples[0]
    if isinstance(first, Mapping):
        return {
            name: _stacked([one[name] for one in samples], _part(shapes, name), _part(values, name)) for name in first
        }
    if isinstance(first, (tuple, list)):
        if any(len(one) != len(first) for one in samples):
            raise ValueError("samples have different numbers of items")
        return [
            _stacked(list(column), _part(shapes, i, len(first)), _part(values, i, len(first)))
            for i, column in enumerate(zip(*samples, strict=True))
        ]
    if not hasattr(first, "shape"):
        from ._values import collated

        return collated(list(samples))
    return _padded(samples, shapes, 0 if values is None else values)


def _part(given: Any, at: Any, of: int = 0) -> Any:
    """What is said for one item of a sample. A tuple of as many parts as the sample has items is structured."""
    if isinstance(given, Mapping):
        return given.get(at)
    structured = isinstance(given, (tuple, list)) and of == len(given) > 0
    if structured and (of > 1 or isinstance(given[0], (tuple, list))):
        return given[at]
    return given


def _padded(samples: Sequence[Any], wanted: Any, value: Any) -> Any:
    dtypes = {str(one.dtype) for one in samples}
    if len(dtypes) > 1:
        raise ValueError(
            f"arrays of {' and '.join(sorted(dtypes))} cannot be one batch: the values of some would change"
        )
    ranks = {len(one.shape) for one in samples}
    if len(ranks) > 1:
        raise ValueError(f"arrays of {' and '.join(map(str, sorted(ranks)))} axes cannot be padded to one shape")
    shape = [max(sizes) for sizes in zip(*(one.shape for one in samples), strict=True)]
    if isinstance(wanted, (tuple, list)):
        if len(wanted) != len(shape):
            raise ValueError(f"padded_shapes has {tuple(wanted)} for arrays of {len(shape)} axes")
        for axis, size in enumerate(wanted):
            if size is not None and size != -1:
                if shape[axis] > size:
                    raise ValueError(
                        f"a sample has {shape[axis]} items along axis {axis}, and padded_shapes says {size}"
                    )
                shape[axis] = size
    torch: Any = sys.modules.get("torch")
    of_torch = torch is not None and isinstance(samples[0], torch.Tensor)
    full: Any
    if of_torch:
        full = torch.full((len(samples), *shape), value, dtype=samples[0].dtype)
    else:
        import numpy

        full = numpy.full((len(samples), *shape), value, dtype=samples[0].dtype)
    for row, one in enumerate(samples):
        at = row, *map(slice, one.shape)
        full[at] = one
    if of_torch or torch is None:
        return full
    return torch.from_numpy(full)

"""Datasets that only look up rows of arrays: TensorDataset, one tensor, one ndarray, and torch's Subset of these.

Their rows are copied from the arrays to the slot, many in one call, and no sample is made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from ._leaves import Array, Tensor
from ._values import Structure

_DEEPEST = 8  # subsets of subsets

Gather = Callable[[memoryview, Sequence[int], int, Sequence[int]], None]


def gatherer(dataset: Any, structure: Structure, depth: int = 0) -> Gather | None:
    """A function of (memory, offsets of the columns, first row, sample ids) that writes consecutive rows; after any
    exception they are to be written one by one. None if the dataset is another, or has rows of another structure."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    kind = type(dataset)
    data: Any = sys.modules.get("torch.utils.data")
    if torch is not None and data is not None and kind is data.Subset and depth < _DEEPEST:
        inner = gatherer(dataset.dataset, structure, depth + 1)
        indices = dataset.indices
        if inner is None:
            return None
        return lambda memory, offsets, row, ids: inner(memory, offsets, row, [int(indices[i]) for i in ids])
    leaves = structure.leaves
    if torch is not None and kind is torch.Tensor:
        return _tensors(torch, [dataset], leaves) if structure.tree is leaves[0] else None
    if torch is not None and data is not None and kind is data.TensorDataset:
        return _tensors(torch, dataset.tensors, leaves)
    if numpy is not None and kind is numpy.ndarray and structure.tree is leaves[0]:
        return _array(numpy, dataset, leaves[0])
    return None


def _tensors(torch: Any, tensors: Sequence[Any], leaves: Sequence[Any]) -> Gather | None:
    if len(tensors) != len(leaves):
        return None
    for tensor, leaf in zip(tensors, leaves, strict=True):
        plain = type(tensor) is torch.Tensor and tensor.layout is torch.strided and not tensor.requires_grad
        if not plain or type(leaf) is not Tensor or leaf.derived or not leaf.size:
            return None
        if str(tensor.dtype) != f"torch.{leaf.dtype}" or tuple(tensor.shape[1:]) != leaf.shape:
            return None

    def gather(memory: memoryview, offsets: Sequence[int], row: int, ids: Sequence[int]) -> None:
        rows = len(ids)
        wanted = torch.tensor(ids)
        for tensor, leaf, offset in zip(tensors, leaves, offsets, strict=True):
            out = torch.frombuffer(memory, dtype=tensor.dtype, count=rows * leaf.count, offset=offset + row * leaf.size)
            torch.index_select(tensor, 0, wanted, out=out.view(rows, *leaf.shape))

    return gather


def _array(np: Any, array: Any, leaf: Any) -> Gather | None:
    if type(leaf) is not Array or not leaf.size or array.dtype.name != leaf.dtype or array.shape[1:] != leaf.shape:
        return None

    def gather(memory: memoryview, offsets: Sequence[int], row: int, ids: Sequence[int]) -> None:
        rows = len(ids)
        if min(ids) < 0 or max(ids) >= len(array):
            raise IndexError
        out = np.frombuffer(memory, array.dtype, rows * leaf.count, offsets[0] + row * leaf.size)
        # mode="raise" would copy twice.
        np.take(array, ids, axis=0, out=out.reshape(rows, *leaf.shape), mode="clip")

    return gather

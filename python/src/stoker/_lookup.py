"""Datasets that only look up rows of arrays: the loop's thread takes the rows of a batch in one call.

find()     a dataset -> what takes its rows, or None: TensorDataset, a tensor, an ndarray, and Subset and StackDataset
           of these
Lookup     the crew of such a loader: there are no workers, and batches from the engine hold ids only, several in one
           message
Assembler  rows for ids

A batch of small rows costs less this way than being told that it is in a slot: small columns are copied out of the
slot in any case. If a column of a batch is so large that it would stay there (OWNED_BYTES), workers gather its rows
instead (_gather.py), ahead of the loop and beside it; but not with num_workers=0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._batch import IDS, OWNED_BYTES, VALID, Kind
from ._bundle import SMALL_BYTES, Bundle, Holds, Later, Plan
from ._errors import ConfigError
from ._leaves import Array, Tensor
from ._theirs import kind as kind_of
from ._values import Structure, named, register, split
from ._wire import Message

_DEEPEST = 8  # datasets in one another
# Batches with a column of so many bytes are taken when the loop asks for them, not all of a message at once: memory
# for many large batches would be fresh from the system, and only one is needed.
LATER_BYTES = 1 << 18

# (ids, steps) -> a batch for each step; ids are an array of the output, the steps' one after the other.
Rows = Callable[[Any, int], list[Any]]


class _Other(Exception):
    """It is not a dataset of this kind."""


def find(user: Any, kind: Kind) -> tuple[Rows, int] | None:
    """What takes the rows of a dataset, and the bytes of its largest column per sample; None if Python has to make its
    samples."""
    try:
        if not _promising(user, 0):
            return None
        return _rows(user, kind, lambda ids: ids, 0)
    except (_Other, AttributeError, TypeError, ValueError, IndexError):
        return None


def fits(user: Any, output: str, rows: int | None) -> bool:
    """Whether batches of so many samples are looked up; None: of any size."""
    from ._datasets import make_kind

    if not _promising(user, 0):
        return False
    found = find(user, make_kind(output))
    return found is not None and (rows is None or rows * found[1] < OWNED_BYTES)


def gives_ids(sampler: Any) -> bool:
    """Whether a sampler surely gives integers: one of torch's, a range, an array of integers."""
    theirs: Any = sys.modules.get("torch.utils.data")
    if theirs is not None and type(sampler) is theirs.BatchSampler:
        return gives_ids(sampler.sampler)
    if theirs is not None and type(sampler) in (
        theirs.SequentialSampler,
        theirs.RandomSampler,
        theirs.WeightedRandomSampler,
        theirs.DistributedSampler,
    ):
        return True
    if isinstance(sampler, range):
        return True
    kind = str(getattr(sampler, "dtype", "")).removeprefix("torch.")
    return kind in ("int64", "int32") and len(getattr(sampler, "shape", ())) == 1


def _promising(user: Any, depth: int) -> bool:
    """Whether it is of a class that is looked up, without a look at its arrays."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    data: Any = sys.modules.get("torch.utils.data")
    of = type(user)
    if torch is None or data is None or depth > _DEEPEST:
        return numpy is not None and of is numpy.ndarray
    if of in (torch.Tensor, data.TensorDataset) or (numpy is not None and of is numpy.ndarray):
        return True
    if of is data.Subset:
        return _promising(user.dataset, depth + 1)
    if of is getattr(data, "StackDataset", None):
        parts = user.datasets.values() if isinstance(user.datasets, dict) else user.datasets
        return all(_promising(part, depth + 1) for part in parts)
    return False


def _rows(user: Any, kind: Kind, through: Callable[[Any], Any], depth: int) -> tuple[Rows, int]:
    """``through`` gives the ids in ``user`` for those of the loader. _Other if Python has to make the samples."""
    torch, data = sys.modules.get("torch"), sys.modules.get("torch.utils.data")
    of = type(user)
    if depth > _DEEPEST:
        raise _Other
    if torch is not None and of is torch.Tensor:
        return _column(user, split(user[0])[0], kind, through)
    if torch is None or data is None or of.__module__ == "numpy":
        return _column(user, split(user[0])[0], kind, through)
    if of is data.TensorDataset:
        return _several([_rows(tensor, kind, through, depth + 1) for tensor in user.tensors], list)
    if of is data.Subset:
        return _rows(user.dataset, kind, _chosen(user, kind, through), depth + 1)
    if isinstance(user.datasets, dict):
        parts = [_rows(part, kind, through, depth + 1) for part in user.datasets.values()]
        names = tuple(user.datasets)
        return _several(parts, lambda values: dict(zip(names, values, strict=True)))
    return _several([_rows(part, kind, through, depth + 1) for part in user.datasets], list)


def _several(parts: list[tuple[Rows, int]], made: Callable[[Sequence[Any]], Any]) -> tuple[Rows, int]:
    takes = [take for take, _ in parts]

    def rows(ids: Any, steps: int) -> list[Any]:
        return list(map(made, zip(*[take(ids, steps) for take in takes], strict=True)))

    return rows, max([size for _, size in parts], default=0)


def _chosen(subset: Any, kind: Kind, through: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The ids in the dataset of a Subset."""
    count, indices = len(subset.dataset), subset.indices
    table: Any
    if kind.name == "torch":
        import torch

        table = torch.as_tensor(indices, dtype=torch.int64)
    else:
        import numpy

        table = numpy.asarray(indices, numpy.int64)
    if len(table.shape) != 1 or not len(table) or int(table.min()) < -count or int(table.max()) >= count:
        raise _Other
    if int(table.min()) < 0:
        table = table % count
    return lambda ids: table[through(ids)]


def _column(array: Any, structure: Structure, kind: Kind, through: Callable[[Any], Any]) -> tuple[Rows, int]:
    """The rows of one tensor or ndarray."""
    (leaf,) = structure.leaves
    dtype = str(array.dtype).removeprefix("torch.")
    if structure.tree is not leaf or leaf.size <= 0 or leaf.dtype != dtype or tuple(array.shape[1:]) != leaf.shape:
        raise _Other
    take = _taker(array, leaf, kind)
    large = leaf.size

    def rows(ids: Any, steps: int) -> list[Any]:
        at = through(ids)
        each = len(ids) // steps
        if steps > 1 and each * large >= SMALL_BYTES:
            return [kind.finish(take(at[step * each : (step + 1) * each])) for step in range(steps)]
        found = take(at)
        return [kind.finish(part) for part in ([found] if steps == 1 else kind.split(found, each, steps))]

    return rows, large


def _taker(array: Any, leaf: Any, kind: Kind) -> Callable[[Any], Any]:
    """What takes rows, as an array of the output before ``finish``."""
    if isinstance(leaf, Tensor):
        import torch

        plain = array.layout is torch.strided and array.device.type == "cpu" and not array.requires_grad
        if leaf.derived or not plain or array.is_conj() or array.is_neg():
            raise _Other
        if kind.name == "torch" and not (array.is_contiguous() and _numpys(array)):
            return lambda ids: torch.index_select(array, 0, ids)
        inside = array.numpy()
        if kind.name == "torch":  # in one thread: index_select takes all for large rows, and gains nothing by it
            return lambda ids: torch.from_numpy(inside.take(ids.numpy(), 0))
        return lambda ids: inside[ids]
    if not isinstance(leaf, Array):
        raise _Other
    if kind.name == "torch":
        import torch

        return lambda ids: torch.from_numpy(array[ids.numpy()])
    return lambda ids: array[ids]


def _numpys(tensor: Any) -> bool:
    """Whether NumPy is there, and has the tensor's dtype."""
    try:
        tensor[:0].numpy()
    except (RuntimeError, TypeError):
        return False
    return True


class Lookup:
    """The crew of a loader over ``user``."""

    timeout = 0.0
    bundles = True
    ahead = True

    def __init__(self, user: Any) -> None:
        self.user = user
        self.assembler: Assembler | None = None

    def told(self) -> dict[str, Any]:
        return {"workers": 0, "whole": False, "ids": True}

    def shift(self, epoch: int) -> None:
        """A pass begins: its rows are of the arrays that the dataset has now."""
        if self.assembler is not None:
            self.assembler.look(self.user)

    def aside(self) -> None:
        return None

    def nothing(self, *given: Any) -> None:
        """There are no workers to start, wait for or end."""

    staff = hire = shows = worked = leave = close = after_fork = nothing


class Assembler:
    """Makes batches of a loader whose samples are looked up: ``make(message, root of the slot)``."""

    def __init__(self, kind: Kind, user: Any) -> None:
        self._kind = kind
        self._plan: Plan | None = None
        self._holds = Holds()
        self._rows: Rows
        self._largest: int  # bytes of a column, per sample
        self.look(user)
        register()

    def look(self, user: Any) -> None:
        found = find(user, self._kind)
        if found is None:
            raise ConfigError(
                f"the dataset {kind_of(user)} was changed after its loader was made, which looks up its rows",
                hint="make a new loader after the change, or pass native=False",
            )
        self._rows, self._largest = found

    def make(self, message: Message, root: Any) -> Any:
        """A batch with its facts: ids, valid, epoch, step, bad. A bundle of them if the message holds several."""
        if message["type"] == "batches":
            return self._bundle(message, root)
        rows = message["rows"]
        columns = {column["name"]: column for column in message["data"]}
        ids, valid = (
            self._kind.own(self._kind.view(root, dtype, (rows,), columns[name]["off"]))
            for name, dtype in ((IDS, "int64"), (VALID, "bool"))
        )
        return self._batch(self._rows(ids, 1)[0], ids, valid, message, message["step"])

    def _bundle(self, message: Message, root: Any) -> Bundle | Later:
        plan = self._plan
        if plan is None or not plan.fits(message):
            self._plan = plan = Plan(self._kind, {}, {IDS: "int64", VALID: "bool"}, message)
        parts = message["parts"]
        steps, rows = len(parts), message["rows"]
        off = next(column["off"] for column in message["data"] if column["name"] == IDS)
        every = self._kind.own(self._kind.view(root, "int64", (steps * rows,), off))
        told = plan.cut(root, steps, True)
        taken = self._rows

        def batch(step: int, found: Any) -> Any:
            ids, valid = told[step]
            return self._batch(found, ids, valid, message, message["step"] + step)

        if rows * self._largest < LATER_BYTES:
            return Bundle([batch(step, found) for step, found in enumerate(taken(every, steps))], parts)
        return Later(lambda step: batch(step, taken(every[step * rows : (step + 1) * rows], 1)[0]), parts)

    def _batch(self, batch: Any, ids: Any, valid: Any, message: Message, step: int) -> tuple[Any, Mapping[str, Any]]:
        facts = {"ids": ids, "valid": valid, "epoch": message["epoch"], "step": step, "bad": []}
        return named(batch, facts), facts

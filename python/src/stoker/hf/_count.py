"""Evaluation of Hugging Face's Trainer over a loader of stoker's: every sample counts once, in the loader's order.

Counted   stands for the loader in Trainer.evaluation_loop, and gathers what the model made of its batches

Accelerate cuts what it gathered last to a length, which needs its own loaders, and is right only if padding comes last
of all. Here each batch says which of its rows are valid. The others are not given to the model, so that the loss is of
valid rows alone, and rows are put back in the order of the places of all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from accelerate.state import GradientState
from accelerate.utils import gather, gather_object, recursively_apply

from .._loader import DataLoader
from .._moved import like
from ._loaders import Share


class Counted:
    """A loader for one evaluation."""

    remainder = -1  # Accelerate's gather_for_metrics cuts nothing

    def __init__(self, loader: DataLoader[Any], trainer: Any, names: Callable[[Any, Any], Any]) -> None:
        self._loader = loader
        self._names = names
        self._world: int = trainer.args.world_size
        self._rank: int = trainer.args.process_index
        self._device = trainer.args.device
        self._repeated: int = trainer.args.eval_batch_size  # the Trainer repeats a loss this many times
        self._objects = bool(getattr(trainer.args, "eval_use_gather_object", False))
        self.end_of_dataloader = False
        self._rows: list[int] = []  # of the batch that was given last: those that are valid
        self._total = 0  # and how many it had
        self._given = 0  # and how many of them the model got
        self._places: Any = None  # and which rows of all ranks are valid, once that was asked for
        given = loader.dataset
        self.dataset = given.dataset if isinstance(given, Share) else given

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)

    def __iter__(self) -> Iterator[Any]:
        state = GradientState()
        state._add_dataloader(self)
        self.end_of_dataloader = False
        self._loader.set_epoch(0)  # every evaluation is of the same random transforms
        try:
            batches = iter(self._loader)
            following = self._next(batches)
            while following is not None:
                batch, rows, total = following
                following = self._next(batches)  # Accelerate's loaders know the last batch, and so must this
                self.end_of_dataloader = following is None
                self._rows, self._total, self._places = rows, total, None
                batch = self._names(self._loader, batch)
                if 0 < len(rows) < total:
                    batch = picked(batch, rows, total)
                self._given = _rows_of(batch)
                yield batch
        finally:
            state._remove_dataloader(self)

    def _next(self, batches: Iterator[Any]) -> tuple[Any, list[int], int] | None:
        """A batch, its valid rows, and how many rows it has."""
        batch = next(batches, None)
        if batch is None:
            return None
        facts = self._loader.facts
        valid = getattr(batch, "valid", None)
        if valid is None and facts is not None:
            valid = facts.valid
        total = _rows_of(batch)
        marks = [True] * total if valid is None else [bool(one) for one in valid]
        if len(marks) != total:  # of packed rows, which are never padding
            marks = [True] * total
        given = self._loader.dataset
        if isinstance(given, Share) and given.padded and marks:
            marks[-1] = False
        return batch, [row for row, one in enumerate(marks) if one], total

    # Gathering.

    def gather(self, data: Any, use_gather_object: bool = False) -> Any:
        """What the model made of this step's valid rows, of all ranks."""
        if self._objects or use_gather_object:
            return self._gather_objects(data)
        return recursively_apply(self._gather_one, data, error_on_other_type=True)

    def _gather_one(self, data: Any) -> Any:
        own = self._own(data)
        if own is None or self._world == 1:
            return gather(data) if own is None else own
        places = self._placed()
        size = len(places) // self._world
        spread = own.new_zeros((size, *own.shape[1:]))
        spread[torch.tensor(self._rows, dtype=torch.long, device=own.device)] = own
        found = gather(spread.contiguous())
        # Ranks take turns: row j of rank r is at place j * world + r of the step.
        found = found.view(self._world, size, *own.shape[1:]).transpose(0, 1).flatten(0, 1)
        return found[places.to(found.device)]

    def _own(self, data: Any) -> Any:
        """The valid rows of what this rank made; None if it has no rows."""
        if data.dim() == 0:
            return None
        count, valid = data.shape[0], len(self._rows)
        if count == self._total:
            return data if valid == count else data[self._rows]
        if count == valid:
            return data
        if count == self._repeated and data.dim() == 1:  # a loss, repeated
            return data[:1].expand(valid)
        return None

    def _placed(self) -> Any:
        """Which rows of this step are valid, in the order of their places."""
        if self._places is None:
            most = int(gather(torch.tensor([self._total], device=self._device)).max())
            marks = torch.zeros(most, dtype=torch.bool, device=self._device)
            marks[self._rows] = True
            self._places = gather(marks).view(self._world, most).transpose(0, 1).flatten()
        return self._places

    def _gather_objects(self, data: Any) -> Any:
        """The same for what is pickled: rows of arrays may have other shapes on each rank. An array stays one if all
        its rows have the same shape, and is a list of rows otherwise."""
        if isinstance(data, torch.Tensor):
            data = self._own(data)
        elif isinstance(data, (list, tuple)) and len(data) == self._total != len(self._rows):
            data = [data[row] for row in self._rows]
        if self._world == 1:
            return data
        if not isinstance(data, (list, tuple, torch.Tensor)) or len(data) != len(self._rows):
            return gather_object(data)
        placed = [(row * self._world + self._rank, one) for row, one in zip(self._rows, data, strict=True)]
        rows = [one for _, one in sorted(gather_object(placed), key=lambda pair: int(pair[0]))]
        same = isinstance(data, torch.Tensor) and len({tuple(row.shape) for row in rows}) == 1
        return torch.stack([row.to(self._device) for row in rows]) if same else rows


def _rows_of(batch: Any) -> int:
    """The rows of a batch: of the first array in it."""
    if isinstance(batch, Mapping):
        return next((rows for rows in map(_rows_of, batch.values()) if rows), 0)
    if isinstance(batch, (tuple, list)):
        inner = next((rows for rows in map(_rows_of, batch) if rows), 0)
        return inner or len(batch)
    shape: Any = getattr(batch, "shape", ())
    return int(shape[0]) if len(shape) else 0


def picked(batch: Any, rows: list[int], total: int) -> Any:
    """The batch with these rows only; what has no rows stays as it is."""
    if isinstance(batch, Mapping):
        return like(batch, {key: picked(value, rows, total) for key, value in batch.items()})
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(picked(value, rows, total) for value in batch))
    if isinstance(batch, (tuple, list)):
        if len(batch) == total and not any(hasattr(value, "shape") for value in batch):
            return type(batch)(batch[row] for row in rows)
        return type(batch)(picked(value, rows, total) for value in batch)
    shape: Any = getattr(batch, "shape", ())
    return batch[rows] if len(shape) and shape[0] == total else batch

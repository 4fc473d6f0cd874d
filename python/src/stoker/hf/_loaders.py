"""Loaders of what Hugging Face's Trainer would give to torch's DataLoader.

make()   the loader of a dataset, by TrainingArguments
Share    a dataset that is iterated, dealt to the ranks; Iterating, its loader
Dealt    batches of a user's sampler, dealt to the ranks
refuse() what TrainingArguments ask for that stoker's loaders do not have
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import transformers
from transformers import default_data_collator
from transformers.trainer_utils import has_length

from .. import _notice
from .._datasets import Dataset
from .._errors import ConfigError
from .._loader import DataLoader
from .._theirs import iterated, kind
from .._walks import saves

WINDOW = 50  # global batches whose samples are grouped by length together, as in LengthGroupedSampler


def make(trainer: Any, dataset: Any, description: str, size: int, training: bool) -> DataLoader[Any]:
    """The loader for a dataset, with batches of ``size`` on every rank."""
    args = trainer.args
    world: int = args.world_size
    collator = _collator(trainer, dataset, description)
    if isinstance(getattr(dataset, "column_names", None), list) and hasattr(dataset, "remove_columns"):
        dataset = trainer._remove_unused_columns(dataset, description=description) if _map_style(dataset) else dataset
    if trainer.accelerator.split_batches:
        if size % world:
            raise ConfigError(
                f"split_batches splits batches of {size} over {world} ranks, which does not come out even",
                hint=f"make per_device_train_batch_size and per_device_eval_batch_size multiples of {world}",
            )
        size //= world
    keywords: dict[str, Any] = {
        "batch_size": size,
        "collate_fn": collator,
        "pin_memory": args.dataloader_pin_memory and torch.cuda.is_available(),
        "persistent_workers": args.dataloader_persistent_workers,
        "prefetch_factor": args.dataloader_prefetch_factor,
        "drop_last": args.dataloader_drop_last,
        "seed": args.seed if args.data_seed is None else args.data_seed,
    }
    if not isinstance(dataset, Dataset):
        keywords["num_workers"] = 0  # Python's, as in torch: the training process
    if args.dataloader_num_workers:
        keywords["num_workers"] = args.dataloader_num_workers
        keywords["multiprocessing_context"] = getattr(args, "dataloader_multiprocessing_context", None)
    if not isinstance(dataset, Dataset) and iterated(dataset):
        _order_ignored(args, training)
        if world > 1 and getattr(dataset, "_distributed", None) is None:
            dataset = Share(dataset, args.process_index, world)
            if not training and args.dataloader_num_workers:  # only the thread of the loop learns what is padding
                keywords.update(
                    num_workers=0, multiprocessing_context=None, persistent_workers=False, prefetch_factor=None
                )
                _notice.say("an evaluation of a dataset that is iterated has no workers on several ranks")
        return Iterating(dataset, **keywords)
    order = _train_order(trainer, dataset, size) if training else _eval_order(trainer, dataset)
    if "batch_sampler" in order:
        for key in ("batch_size", "drop_last"):
            keywords.pop(key)
    return DataLoader(dataset, **keywords, **order)


def _map_style(dataset: Any) -> bool:
    """Whether it is a datasets.Dataset, not one that is iterated: the Trainer removes columns of those alone."""
    return hasattr(dataset, "__getitem__")


def _collator(trainer: Any, dataset: Any, description: str) -> Any:
    """The collate function; None for batches that stoker makes, of its own datasets."""
    collator = trainer.data_collator
    if isinstance(dataset, Dataset) and (
        collator is default_data_collator or type(collator) is transformers.DefaultDataCollator
    ):
        return None  # they are arrays already: _names.py does what is left of its work
    if hasattr(dataset, "column_names") and hasattr(dataset, "remove_columns") and _map_style(dataset):
        return collator
    return trainer._get_collator_with_removed_columns(collator, description=description)


# Orders.


def strategy(args: Any) -> str:
    """How training samples are ordered: the argument of transformers 5, or that of 4."""
    if getattr(args, "group_by_length", False):
        return "group_by_length"
    return str(getattr(args, "train_sampling_strategy", "random"))


def _order_ignored(args: Any, training: bool) -> None:
    if training and strategy(args) in ("group_by_length", "batch_rebalance"):
        _notice.say(f"{strategy(args)} is ignored: the dataset is iterated, and alone decides the order")


def _overridden(trainer: Any, name: str) -> Any:
    """A method, if a subclass has one of its own."""
    own = getattr(type(trainer), name) is not getattr(transformers.Trainer, name)
    return getattr(trainer, name) if own else None


def _train_order(trainer: Any, dataset: Any, size: int) -> dict[str, Any]:
    args = trainer.args
    if (sampler_of := _overridden(trainer, "_get_train_sampler")) is not None:
        sampler = sampler_of(dataset)
        if sampler is None:
            return {}
        if args.world_size == 1:
            return {"sampler": sampler}
        return {"batch_sampler": Dealt(sampler, size, args.dataloader_drop_last, args.process_index, args.world_size)}
    way = strategy(args)
    if way == "sequential":
        return {}
    if way == "random":
        return {"shuffle": True}
    if way == "group_by_length":
        group = size * args.world_size
        lengths = _lengths(trainer, dataset)
        return {"shuffle": True, "lengths": lengths, "bucket": group, "length_window": group * WINDOW}
    raise ConfigError(
        f"train_sampling_strategy={way!r} is not built",
        hint="train_sampling_strategy='group_by_length'; or let get_train_dataloader return a stoker.DataLoader with "
        "lengths= and tokens=, whose batches have equal numbers of tokens",
    )


def _eval_order(trainer: Any, dataset: Any) -> dict[str, Any]:
    if (sampler_of := _overridden(trainer, "_get_eval_sampler")) is None:
        return {}  # as stored, so that predictions are in the order of the dataset
    sampler = sampler_of(dataset)
    if sampler is not None and trainer.args.world_size > 1:
        raise ConfigError(
            "_get_eval_sampler is overridden, and stoker.hf does not split its order over several ranks",
            hint="evaluate a subset: dataset.select(ids), torch.utils.data.Subset(dataset, ids)",
        )
    return {} if sampler is None else {"sampler": sampler}


def _lengths(trainer: Any, dataset: Any) -> list[int]:
    """The length of every sample: of a column, or of what the model gets first."""
    args = trainer.args
    columns = getattr(dataset, "column_names", None) or []
    if args.length_column_name in columns:
        return [int(length) for length in dataset[args.length_column_name]]
    processing = getattr(trainer, "processing_class", None)
    name = "input_ids" if processing is None else processing.model_input_names[0]
    if name in columns and getattr(dataset, "format", {}).get("type") is None:
        return [len(value) for value in dataset[name]]
    first = dataset[0]
    if not isinstance(first, Mapping) or name not in first:
        raise ConfigError(
            f"group_by_length needs the lengths of samples, and those of {kind(dataset)} have no {name!r}",
            hint=f"a column {args.length_column_name!r} (length_column_name), or samples that are dicts with {name!r}; "
            "or let get_train_dataloader return a stoker.DataLoader with lengths= and bucket=",
        )
    return [len(dataset[i][name]) for i in range(len(dataset))]


class Dealt:
    """The lists of ids that this rank gets of a sampler: as the ranks of a stoker.DataLoader, they take turns. At the
    end, the last ids come again, so that all ranks have as many."""

    def __init__(self, sampler: Iterable[Any], size: int, drop: bool, rank: int, world: int) -> None:
        self.sampler = sampler
        self._size, self._drop = size, drop
        self._rank, self._world = rank, world

    def set_epoch(self, epoch: int) -> None:
        if callable(decide := getattr(self.sampler, "set_epoch", None)):
            decide(epoch)

    def __iter__(self) -> Iterator[list[Any]]:
        group: list[Any] = []
        for sample in self.sampler:
            group.append(sample)
            if len(group) == self._size * self._world:
                yield group[self._rank :: self._world]
                group = []
        if group and not self._drop:
            group += [group[-1]] * (-len(group) % self._world)
            yield group[self._rank :: self._world]

    def __len__(self) -> int:
        batch = self._size * self._world
        samples = len(self.sampler)  # type: ignore[arg-type]
        return samples // batch if self._drop else -(-samples // batch)


# A dataset that is iterated.


class Iterating(DataLoader[Any]):
    """A loader that tells its dataset the epoch: ``datasets`` shuffles by it, and Accelerate's loaders tell it."""

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        if callable(decide := getattr(self.dataset, "set_epoch", None)):
            decide(epoch)


class Share:
    """The samples of a dataset that this rank gets: every rank iterates all of them and takes turns with the others.
    Where they do not come out even, the last one comes again on the ranks that would have none: ``padded``.

    As Accelerate's IterableDatasetShard and DataLoaderDispatcher, but for which rank has which rows of a global batch.
    So the dataset must give the same samples on every rank; random generators are seeded alike.
    """

    def __init__(self, dataset: Any, rank: int, world: int) -> None:
        self.dataset = dataset
        self._rank, self._world = rank, world
        self.padded = False  # whether the sample that was given last is padding
        if saves(dataset):
            self.state_dict = dataset.state_dict
            self.load_state_dict = dataset.load_state_dict
        stamp = getattr(dataset, "fingerprint", None)
        self.fingerprint = f"{kind(dataset)} {stamp}" if isinstance(stamp, str) else kind(dataset)
        self._fingerprint = getattr(dataset, "_fingerprint", None)

    def __iter__(self) -> Iterator[Any]:
        # Whole turns of all ranks are taken before a sample is given, so the dataset's own state is always between two.
        self.padded = False
        turn: list[Any] = []
        for sample in self.dataset:
            turn.append(sample)
            if len(turn) == self._world:
                mine, turn = turn[self._rank], []
                yield mine
        if turn:
            self.padded = self._rank >= len(turn)
            yield turn[min(self._rank, len(turn) - 1)]

    def set_epoch(self, epoch: int) -> None:
        if callable(decide := getattr(self.dataset, "set_epoch", None)):
            decide(epoch)

    def __len__(self) -> int:
        if not has_length(self.dataset):
            raise TypeError(f"{kind(self.dataset)} has no len()")
        return -(-len(self.dataset) // self._world)


def refuse(trainer: Any) -> None:
    """ConfigError, or a notice, for arguments of the Trainer and of Accelerate that stoker's loaders do not follow."""
    args, accelerator = trainer.args, trainer.accelerator
    sizes = {"tensor": "get_tp_size", "context": "get_cp_size", "sequence": "get_sp_size"}
    several = [name for name, size in sizes.items() if hasattr(trainer, size) and getattr(trainer, size)() > 1]
    if several:
        raise ConfigError(
            f"{' and '.join(several)} parallelism: ranks that share a batch are not built",
            hint="let get_train_dataloader return a stoker.DataLoader with rank= and world_size= of the data parallel "
            "group",
        )
    if accelerator.dispatch_batches:
        _notice.say("dispatch_batches=True has no effect: every rank loads its own share")
    if accelerator.even_batches is False:
        _notice.say("even_batches=False has no effect: all ranks have as many batches")
    if accelerator.non_blocking:
        _notice.say("non_blocking=True has no effect: the Trainer copies batches to the device")
    if not getattr(args, "dataloader_in_order", True):
        _notice.say("dataloader_in_order=False is ignored: batches come in order")

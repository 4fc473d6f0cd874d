"""timm's ``create_loader``, with a stoker.DataLoader in it::

    from stoker.timm import create_loader  # was: from timm.data import create_loader

It takes the arguments of the timm that is installed, and does with them what timm's does. A choice that has no
counterpart here is a ConfigError.

What differs: ranks are split by stoker, so that the loader's state fits any number of ranks, also where timm takes
DistributedSampler and OrderedDistributedSampler. Random numbers are keyed: any number of workers, and a run that is
continued, give the same pictures. The loader has ``state_dict`` and ``load_state_dict``, and its batches have
``ids valid epoch step bad``.
"""

from __future__ import annotations

import inspect
import random
from collections import deque
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from timm.data import (  # type: ignore[import-not-found, unused-ignore]
    AugMixDataset,
    FastCollateMixup,
    IterableImageDataset,
    create_transform,
)
from timm.data import loader as _theirs
from timm.data.distributed_sampler import RepeatAugSampler  # type: ignore[import-not-found, unused-ignore]

from . import _keyed
from ._batch import Batch
from ._errors import ConfigError
from ._iterate import Facts
from ._loader import DataLoader
from ._order import below, epoch_key

__all__ = ["PrefetchLoader", "create_loader"]

_SIGNATURE = inspect.signature(_theirs.create_loader)
_OF_TRANSFORM = frozenset(inspect.signature(create_transform).parameters) - {"input_size"}
_OF_PREFETCHER = frozenset(inspect.signature(_theirs.PrefetchLoader.__init__).parameters) - {"self", "loader"}
# Arguments that are read here, besides those of create_transform and PrefetchLoader.
_READ = frozenset(
    "dataset input_size batch_size is_training re_split num_aug_repeats num_aug_splits num_workers distributed "
    "collate_fn pin_memory use_prefetcher persistent_workers".split()
)
_NO_EFFECT = frozenset(["use_multi_epochs_loader"])  # workers stay between epochs anyway


def create_loader(*args: Any, **keywords: Any) -> Any:
    """timm.data.create_loader's arguments -> a PrefetchLoader, or a stoker.DataLoader if use_prefetcher is False.

    The dataset may be timm's, torchvision's or stoker's: ``dataset.transform`` is assigned to, as timm does it.
    ``num_workers`` are Python workers, or lanes of the engine if it knows every step.
    """
    bound = _SIGNATURE.bind(*args, **keywords)
    bound.apply_defaults()
    given = bound.arguments
    _refuse(given)
    dataset, training, splits = given["dataset"], given["is_training"], given["num_aug_splits"]
    erasing = {"re_num_splits": (splits or 2) if given["re_split"] else 0}
    dataset.transform = create_transform(
        given["input_size"],
        **{name: value for name, value in given.items() if name in _OF_TRANSFORM},
        **erasing,
        separate=splits > 0,
    )
    one_by_one = isinstance(dataset, torch.utils.data.IterableDataset)
    if isinstance(dataset, IterableImageDataset):
        dataset.set_loader_cfg(num_workers=given["num_workers"])
    sampler = None
    if given["num_aug_repeats"]:
        if one_by_one or not training or not given["distributed"]:
            raise ConfigError("create_loader: num_aug_repeats needs training on several ranks, and a map-style dataset")
        sampler = RepeatAugSampler(dataset, num_repeats=given["num_aug_repeats"])
    collate = given["collate_fn"]
    if collate is None and given["use_prefetcher"] and isinstance(dataset, AugMixDataset):
        collate = _theirs.fast_collate  # it puts the splits one after the other
    workers = given["num_workers"]
    placed: dict[str, Any] = {} if given["distributed"] else {"rank": 0, "world_size": 1}
    loader: DataLoader[Any] = DataLoader(
        dataset,
        given["batch_size"],
        shuffle=None if one_by_one or sampler is not None else training,
        sampler=sampler,
        num_workers=workers,
        collate_fn=collate,
        pin_memory=given["pin_memory"],
        drop_last=training,
        persistent_workers=given["persistent_workers"] and workers > 0,
        **placed,
    )
    if not given["use_prefetcher"]:
        return loader
    options = {name: value for name, value in given.items() if name in _OF_PREFETCHER}
    size, mean = given["input_size"], given["mean"]
    options["channels"] = size[0] if isinstance(size, (tuple, list)) and len(size) == 3 else len(mean)
    if not training or given["no_aug"]:
        options["re_prob"] = 0.0
    return PrefetchLoader(loader, **{**options, **erasing})


def _refuse(given: dict[str, Any]) -> None:
    """ConfigError for arguments that are neither read here nor left at their defaults."""
    known = _READ | _OF_TRANSFORM | _OF_PREFETCHER | _NO_EFFECT
    for name, value in given.items():
        usual = _SIGNATURE.parameters[name].default
        if name in known or value is usual or value == usual:
            continue
        hint = "leave it out"
        if name == "worker_seeding":
            hint += ": random numbers are seeded before each sample, whatever the workers"
        elif name.startswith(("input_size_", "batch_", "num_batches")):
            hint += ", or take timm's own create_loader for batches of several sizes"
        raise ConfigError(f"create_loader: {name}={value!r:.80} is not supported over a stoker.DataLoader", hint=hint)


class _Note(NamedTuple):
    """What is known of a batch, and where the loader was after it."""

    facts: dict[str, Any]
    state: dict[str, Any]
    receipt: dict[str, Any]


class PrefetchLoader(_theirs.PrefetchLoader):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """timm's PrefetchLoader over a stoker.DataLoader.

    timm's takes one batch more than it has given to the loop, so the state of the loader below is one batch ahead.
    ``state_dict()`` and ``receipt()`` of this class are those of the batches that the loop was given. Random erasing on
    the device draws with the key of the batch.
    """

    random_erasing: Any

    def __init__(self, loader: Any, *args: Any, **keywords: Any) -> None:
        super().__init__(_Noted(loader), *args, **keywords)
        self._given: _Note | None = None  # of the batch that the loop was given last
        self._newest: _Note | None = None  # of the one that was taken last, then
        if self.random_erasing is not None:
            self.random_erasing = _KeyedErasing(self.random_erasing, self.loader)

    def __iter__(self) -> Iterator[Any]:
        batches = super().__iter__()
        self._given = self._newest = None
        notes: deque[_Note] = deque()
        self.loader.notes = notes
        for images, targets in batches:
            note = notes.popleft()
            self._given, self._newest = note, notes[-1] if notes else note
            batch = Batch((images, targets))
            vars(batch).update(note.facts)
            yield batch
        self._given = self._newest = None

    def state_dict(self) -> dict[str, Any]:
        """As stoker.DataLoader.state_dict: the position of the loop."""
        found: dict[str, Any] = self.loader.state_dict()
        # If the loader was moved since, by set_epoch or load_state_dict, the note is of another pass.
        if self._given is not None and self._newest is not None and found == self._newest.state:
            return self._given.state
        return found

    def load_state_dict(self, state_dict: Any) -> None:
        """As stoker.DataLoader.load_state_dict."""
        self.loader.load_state_dict(state_dict)

    @property
    def mixup_enabled(self) -> bool:
        """Whether the FastCollateMixup that was given as collate_fn mixes."""
        mixing = self.loader.collate_fn
        return bool(mixing.mixup_enabled) if isinstance(mixing, FastCollateMixup) else False

    @mixup_enabled.setter
    def mixup_enabled(self, mixes: bool) -> None:
        if self.mixup_enabled != mixes and isinstance(mixing := self.loader.collate_fn, FastCollateMixup):
            mixing.mixup_enabled = mixes
            self.loader.renew()  # workers have a copy, and have begun the next pass

    def set_epoch(self, epoch: int) -> None:
        """As stoker.DataLoader.set_epoch, and as ``loader.sampler.set_epoch``."""
        self.loader.set_epoch(epoch)

    def receipt(self) -> dict[str, Any]:
        """As stoker.DataLoader.receipt: of the batches that the loop was given."""
        found: dict[str, Any] = self.loader.receipt()
        if self._given is not None and self._newest is not None and found == self._newest.receipt:
            return self._given.receipt
        return found


class _Noted:
    """A loader that notes what it gave. Everything else is the loader's own."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self.notes: deque[_Note] = deque()
        self.key = 0  # of the newest batch

    def __iter__(self) -> Iterator[Any]:
        notes = self.notes
        for batch in self._loader:
            of = batch if hasattr(batch, "ids") else self._loader.facts
            note = _Note(
                {name: getattr(of, name) for name in Facts._fields}, self._loader.state_dict(), self._loader.receipt()
            )
            rank, _ = self._loader._rank
            self.key = below(below(epoch_key(note.state["seed"], of.epoch), of.step), rank)
            notes.append(note)
            yield batch

    def renew(self) -> None:
        """The next pass has new workers."""
        with self._loader._turns:
            if self._loader._remote is not None:
                self._loader._leave()

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_loader"], name)


class _KeyedErasing:
    """timm's RandomErasing, whose numbers are drawn by the batch's key. The script's own generators do not notice."""

    def __init__(self, erasing: Any, noted: _Noted) -> None:
        self._erasing = erasing
        self._noted = noted

    def __call__(self, images: Any) -> Any:
        draws = self._erasing.rand_color or self._erasing.per_pixel
        devices = [images.device] if draws and images.device.type == "cuda" else []
        with _keyed.put_back(), torch.random.fork_rng(devices) if devices else nullcontext():
            random.seed(self._noted.key)
            if draws:
                torch.manual_seed(self._noted.key >> 1)
            return self._erasing(images)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_erasing"], name)

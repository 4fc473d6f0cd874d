"""What fastai's Learner needs of loaders, and a callback that saves where they are::

    from stoker.fastai import DataLoaders, StateCallback

    learn = Learner(DataLoaders(train, valid), model, loss_func, cbs=StateCallback(every=100, resume=True))
    learn.fit_one_cycle(3)

``train`` and ``valid`` are stoker.DataLoaders. fastai's own DataLoaders(train, valid) takes them too, for ``fit`` and
``validate``; these here also answer ``get_preds``, ``show_batch``, ``dls.cuda()``, ``dls.vocab``, and
``learn.distrib_ctx()``, where fastai would split each rank's share once more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from typing import Any

import torch
from fastai.callback.core import (  # type: ignore[import-not-found, unused-ignore]
    Callback,
    CancelEpochException,
    CancelFitException,
)
from fastai.data import core as _core  # type: ignore[import-not-found, unused-ignore]
from fastai.data.transforms import Category  # type: ignore[import-not-found, unused-ignore]
from fastai.distributed import DistributedDL  # type: ignore[import-not-found, unused-ignore]
from fastai.torch_core import (  # type: ignore[import-not-found, unused-ignore]
    TensorCategory,
    TensorImage,
    TitledInt,
    default_device,
    num_distrib,
    rank_distrib,
    to_detach,
    to_device,
)

from . import _notice
from ._errors import ConfigError
from ._loader import DataLoader

__all__ = ["DataLoaders", "Loader", "StateCallback"]


class DataLoaders(_core.DataLoaders):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """fastai's DataLoaders of stoker.DataLoaders; others are taken as they are.

    after_batch   fastai's transforms of batches, which run on the device: IntToFloatTensor(), aug_transforms(),
                  Normalize.from_stats(...). What they draw is not keyed
    vocab         names of the classes; default: ``dataset.classes``
    n_inp         how many fields of a batch the model gets; default: 1
    """

    def __init__(
        self,
        *loaders: Any,
        path: Any = ".",
        device: Any = None,
        after_batch: Any = None,
        vocab: Any = None,
        n_inp: int = 1,
    ) -> None:
        made = [
            Loader(one, after_batch, vocab, n_inp, split_idx=number) if isinstance(one, DataLoader) else one
            for number, one in enumerate(loaders)
        ]
        super().__init__(*made, path=path, device=default_device() if device is None else device)

    def new_empty(self) -> DataLoaders:
        """Without loaders, as ``learn.export()`` wants it."""
        return type(self)(path=self.path, device=self.device if self.loaders else None)


class Loader(DistributedDL):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """A stoker.DataLoader as a loader of fastai's. It is a DistributedDL to fastai, because each rank gets its own
    share already: DistributedTrainer does not wrap those."""

    def __init__(self, loader: Any, after_batch: Any = None, vocab: Any = None, n_inp: int = 1, split_idx: int = 0):
        # Not DataLoader.__init__ of fastai's: what it makes is the machinery that stoker replaces.
        self.loader, self.split_idx = loader, split_idx
        self.dataset, self.bs, self.drop_last = loader.dataset, loader.batch_size, loader.drop_last
        self.after_item, self.before_batch, self.after_batch = (
            _core.Pipeline(),
            _core.Pipeline(),
            _pipeline(after_batch),
        )
        self.device, self.rank, self.world_size = None, rank_distrib(), max(1, num_distrib())
        self._n_inp, self._vocab = n_inp, vocab
        self.facts: Any = None  # ids valid epoch step bad of the last batch
        self._seen: list[int] | None = None  # where the ids of a pass are noted, in the order of gathered rows
        self._all: Any = None  # valid of all ranks in the last batch

    def __iter__(self) -> Iterator[Any]:
        self.after_batch.split_idx = self.split_idx
        for batch in self.loader:
            self.facts, self._all = batch if hasattr(batch, "ids") else self.loader.facts, None
            there = batch
            if self.device is not None:
                move = getattr(batch, "to", None)
                there = move(self.device) if move else to_device(batch, self.device)
            yield self.after_batch(_typed(there)) if self.after_batch.fs else there

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def n(self) -> int:
        """Samples of the dataset, over all ranks."""
        return len(self.dataset)

    @property
    def vocab(self) -> Any:
        """Names of the classes."""
        return self._vocab if self._vocab is not None else self.dataset.classes

    @property
    def c(self) -> int:
        """How many classes there are."""
        return len(self.vocab)

    @property
    def n_inp(self) -> int:
        """How many fields of a batch the model gets."""
        return int(self._n_inp)

    def one_batch(self) -> Any:
        """The first batch of the next pass, of a copy: the loader stays where it is."""
        aside = self._around(copy(self.loader))
        with aside.loader:
            return next(iter(aside))

    def new(self, dataset: Any = None, cls: Any = None, **changes: Any) -> Loader:
        """Another one over the same dataset, which begins at the loader's next pass. It takes shuffle, drop_last and
        bs."""
        if (dataset is not None and dataset is not self.dataset) or cls is not None:
            raise ConfigError(
                "stoker.fastai: a loader cannot be made anew over other items, as learn.predict and dls.test_dl do",
                hint="make a stoker.DataLoader over them, and pass it as dl= to learn.get_preds or learn.validate",
            )
        order, device = changes.pop("get_idxs", None), changes.pop("device", self.device)
        keywords = {"shuffle": "shuffle", "drop_last": "drop_last", "bs": "batch_size", "batch_size": "batch_size"}
        if strange := sorted(set(changes) - set(keywords)):
            raise ConfigError(f"stoker.fastai: a loader cannot be made anew with {', '.join(strange)}")
        made = self._around(self.loader._changed({keywords[key]: value for key, value in changes.items()}))
        made._seen = order() if order is not None else None
        made.device = device
        return made

    def _around(self, loader: Any) -> Loader:
        made = Loader(loader, self.after_batch, self._vocab, self._n_inp, self.split_idx)
        made.device = self.device
        return made

    @property
    def get_idxs(self) -> Any:
        """Gives an empty list: ``new(get_idxs=...)`` fills it with the ids as they come, for get_preds to sort by."""
        if self.loader._settings.iterates:
            raise AttributeError("get_idxs: samples that come one after another have no ids")
        return list

    def to_detach(self, b: Any, cpu: bool = True, gather: bool = True) -> Any:
        """As fastai's, for rows of all ranks: those that are padding are left out."""
        valid = self._valid(gather)

        def one(x: Any) -> Any:
            rows = valid is not None and isinstance(x, torch.Tensor) and x.ndim and len(x) == len(valid)
            return x[valid.to(x.device)] if rows else x

        found = to_detach(b, cpu, gather)
        return type(found)(map(one, found)) if isinstance(found, (list, tuple)) else one(found)

    def _valid(self, gather: bool) -> Any:
        """Which rows of the last batch are samples, on all ranks if they are gathered; None if that is not known."""
        if self.facts is None or self.facts.ids is None:
            return None
        if not gather:
            return torch.as_tensor(self.facts.valid)
        if self._all is None:
            ids, self._all = (self._gathered(torch.as_tensor(one)) for one in (self.facts.ids, self.facts.valid))
            if self._seen is not None:
                self._seen += ids[self._all].tolist()
        return self._all

    def _gathered(self, x: Any) -> Any:
        device = self.device if self.device is not None and self.device.type == "cuda" else None
        return to_detach(x if device is None else x.to(device))  # NCCL wants tensors of the device

    # What show_batch and show_results read.

    def _retain_dl(self, b: Any) -> Any:
        return _typed(b)

    def _decode_batch(self, b: Any, max_n: int = 9, full: bool = True) -> Any:
        return _core.L(tuple(self._shown(x[i]) for x in b) for i in range(min(max_n, len(b[0]))))

    def _shown(self, x: Any) -> Any:
        if isinstance(x, TensorCategory):
            with suppress(AttributeError):
                return Category(self.vocab[int(x)])
            return TitledInt(int(x))
        return x

    # The loader's own.

    def state_dict(self) -> dict[str, Any]:
        """As stoker.DataLoader.state_dict."""
        found: dict[str, Any] = self.loader.state_dict()
        return found

    def load_state_dict(self, state_dict: Any) -> None:
        """As stoker.DataLoader.load_state_dict."""
        self.loader.load_state_dict(state_dict)

    def set_epoch(self, epoch: int) -> None:
        """As stoker.DataLoader.set_epoch."""
        self.loader.set_epoch(epoch)

    def receipt(self) -> dict[str, Any]:
        """As stoker.DataLoader.receipt."""
        found: dict[str, Any] = self.loader.receipt()
        return found


def _pipeline(given: Any) -> Any:
    return given if isinstance(given, _core.Pipeline) else _core.Pipeline(given)


def _typed(batch: Any) -> Any:
    """The batch in fastai's types, by which its transforms know what to do: pictures, and numbers of classes."""

    def one(x: Any) -> Any:
        if type(x) is not torch.Tensor:
            return x
        if x.ndim == 4 and x.shape[1] in (1, 3):
            return TensorImage(x)
        return TensorCategory(x) if x.dtype is torch.int64 and x.ndim == 1 else x

    return tuple(map(one, batch)) if isinstance(batch, (tuple, list)) else batch


class StateCallback(Callback):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """Saves model, optimiser and the place of the training loader every so many batches, and continues there.

    every    batches between checkpoints; with GradientAccumulation, a checkpoint waits for the optimiser's step
    name     of the files in ``learn.path / learn.model_dir``
    resume   whether to continue from such files. Without them, training begins

    A script that is started again makes the same calls of ``fit``: those that were finished are passed over, and so are
    epochs; schedules continue where they were. What other callbacks remember, and the generators of the model
    (dropout), are not saved. lr_find leaves the training loader where it was.
    """

    order = 70  # after those that an epoch which is passed over needs, as SkipToEpoch

    def __init__(self, every: int = 100, name: str = "last", resume: bool = False) -> None:
        self.every, self.file_name, self.resume = every, name, resume
        self._fits = -1  # how many calls of fit were before this one
        self._found: dict[str, Any] | None = None  # the checkpoint, until training continues there
        self._aside: tuple[int, Any] | None = None  # the pass that lr_find took: its epoch, its state if in the middle
        self._due = False

    @property
    def _file(self) -> Any:
        return self.learn.path / self.learn.model_dir / f"{self.file_name}.json"

    def _fitting(self) -> bool:
        """Not validate, get_preds or lr_find, which have the same events; the first two hold the lock."""
        return not self.learn.lock.locked() and not hasattr(self.learn, "lr_finder")

    def before_fit(self) -> None:
        """Loads the checkpoint, if this is the call of fit that it was saved in."""
        if not self._fitting():
            if hasattr(self.learn, "lr_finder") and not self.learn.lock.locked():
                train = self.learn.dls.train
                epoch, position, _ = getattr(train, "loader", train)._next_pass()
                self._aside = epoch, train.state_dict() if position else None
            return
        self._fits += 1
        self._due = False
        if self._fits == 0 and self.resume:
            if self._file.exists():
                self._found = json.loads(self._file.read_text())
            else:
                _notice.say(f"StateCallback: there is no {self._file}, so training begins")
        if (found := self._found) is None:
            return
        if self._fits < found["fit"]:
            raise CancelFitException
        self.learn.load(found["weights"])
        self.learn.dls.train.load_state_dict(found["loader"])
        self.learn.train_iter = found["train_iter"]
        if hasattr(self.learn, "recorder"):
            smooth = self.learn.recorder.smooth_loss
            smooth.count, smooth.val = found["smooth_count"], torch.tensor(found["smooth_loss"])

    def after_fit(self) -> None:
        """Puts the loader back after lr_find."""
        if self._aside is not None and not self.learn.lock.locked():
            (epoch, state), self._aside = self._aside, None
            train = self.learn.dls.train
            train.set_epoch(epoch) if state is None else train.load_state_dict(state)

    def before_epoch(self) -> None:
        """Passes over epochs that were finished."""
        if self._found is not None and self._fitting() and self.learn.epoch < self._found["epoch"]:
            raise CancelEpochException

    def before_train(self) -> None:
        """Schedules continue in the middle of the epoch."""
        if self._found is not None and self._fitting():
            self.learn.pct_train, self._found = self._found["pct_train"], None

    def after_batch(self) -> None:
        """Saves, if it is time."""
        if not self.learn.training or not self._fitting():
            return
        self._due = self._due or self.learn.train_iter % self.every == 0
        accumulation = getattr(self.learn, "gradient_accumulation", None)
        if self._due and not getattr(accumulation, "count", 0):
            self._due = False
            self._save()

    def _save(self) -> None:
        """The weights under a name of their own, then the file that names them: a kill leaves one or the other."""
        loader = self.learn.dls.train.state_dict()  # on every rank
        if rank_distrib():
            return
        learn, weights = self.learn, f"{self.file_name}-{self.learn.train_iter}"
        file = learn.save(weights)
        found: dict[str, Any] = {
            "weights": weights,
            "loader": loader,
            "fit": self._fits,
            "epoch": learn.epoch,
            "train_iter": learn.train_iter,
            "pct_train": learn.pct_train,
        }
        if hasattr(learn, "recorder"):
            smooth = learn.recorder.smooth_loss
            found.update(smooth_count=smooth.count, smooth_loss=float(smooth.val))
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(found))
        os.replace(part, self._file)
        for old in file.parent.glob("*.pth"):
            begin, _, batches = old.stem.rpartition("-")
            if begin == self.file_name and batches.isdigit() and old != file:
                old.unlink()


# fastai's classes whose from_... methods read the data themselves.
_READERS = ("ImageDataLoaders", "TextDataLoaders", "TabularDataLoaders", "SegmentationDataLoaders", "DataBlock")


def __getattr__(name: str) -> Any:
    if name in _READERS:
        raise ImportError(
            f"stoker.fastai has no {name}: make two datasets of stoker's, such as stoker.ImageFolder('train') and "
            "stoker.ImageFolder('valid'), and DataLoaders(stoker.DataLoader(train, 64, shuffle=True, drop_last=True), "
            "stoker.DataLoader(valid, 64)) (docs/guides/frameworks.md)"
        )
    raise AttributeError(f"module 'stoker.fastai' has no attribute {name!r}")

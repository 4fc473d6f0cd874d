"""DataLoader: torch's surface over a loader in the engine.

DataLoader    keywords -> Spec; epochs, state, length
_Iterator     one pass
_Progress     how far the training loop has come in it: what state_dict speaks of
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from . import _client, _notice, _ranks
from ._batch import Batch, DictBatch, Maker
from ._datasets import Dataset, make_kind
from ._errors import ConfigError, Problems, StateError, whole
from ._spec import ALL_CORES, cores, read, spec

STATE_VERSION = 1


class DataLoader:
    """Batches of a dataset, with the keywords of torch.utils.data.DataLoader.

    Iterating gives ``Batch``es (tuples such as ``images, labels``) or, for datasets of dicts, dicts with the same
    attributes ``ids epoch step valid bad``. Arrays are torch tensors; images of uint8 are shown as (batch, channels,
    height, width) and lie in memory as channels_last, floats lie as they are shown. Every ``iter()`` is a new pass over
    the next epoch; passes side by side are independent.

    Keywords of torch's, where they mean something else or more here:

    batch_size        samples a batch on this rank; None gives single samples, without the batch dimension
    shuffle           full shuffle: a new permutation of all samples every epoch, a function of seed and epoch
    num_workers       lanes of the engine; left out: all cores that this process may use, 0: one lane
    drop_last         the same as tail="drop"
    timeout           seconds without a batch after which StallError is raised; 0: after 60 s
    generator         gives the seed, by its initial_seed()
    pin_memory        hands out copies in torch's pinned memory, where CUDA is there
    prefetch_factor   prefetch, a lane
    sampler, batch_sampler, collate_fn   have to stay None: they are Python code (a later release runs it)
    persistent_workers, multiprocessing_context, worker_init_fn, pin_memory_device, in_order   ignored with a notice

    Keywords of stoker's:

    seed              of shuffle and augmentation, 0 to 2**64 - 1; left out: 0
    rank, world_size  left out: torch.distributed's where it runs, else RANK and WORLD_SIZE, else 0 of 1
    tail              end of an epoch: "pad" (default) fills up to a multiple of world_size, "fill" to full batches,
                      "drop" leaves out what fills no batch on every rank. Padding is marked in ``valid``
    on_bad            a sample that can not be read: "fail" (default) raises DataError, "skip" puts a copy of another
                      row there and marks it in ``valid``, "replace" puts another sample there; ``bad`` lists them
    max_bad, max_bad_rate   bad samples in a pass, as a number and as a share, beyond which DataError is raised
    device            "cpu"
    output            "torch" (default where torch is installed), "numpy", "jax"
    layout            of images, "nchw" (default) or "nhwc"
    prefetch          batches made ahead; left out: 4
    memory            limit for batches: "2GiB", a number of bytes, or "auto", a quarter of what the machine has left

    Raises ConfigError at once for all that is wrong with the keywords, in one message; then ConfigError, DataError,
    SourceError and ResourceError for what is wrong with the dataset, its transforms or the memory for batches. While
    it is iterated DataError, StallError, ResourceError and EngineError may come.

    The loader holds an engine while it is open: from the first use to ``close()``, the end of a ``with`` block, or its
    collection. While it is not open it can be pickled. It may be used by several threads.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = ALL_CORES,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        tail: str | None = None,
        on_bad: str | None = None,
        max_bad: int | None = None,
        max_bad_rate: float | None = None,
        device: Any = None,
        output: str | None = None,
        layout: str | None = None,
        prefetch: int | None = None,
        memory: str | int | None = None,
    ) -> None:
        keywords = {key: value for key, value in locals().items() if key not in ("self", "dataset")}
        problems = Problems("DataLoader")
        recipe = None
        if isinstance(dataset, Dataset):
            recipe = dataset._recipe()
        else:
            problems.add(*_stranger(dataset))
        self._settings = read(keywords, recipe, problems)
        self._dataset: Dataset = dataset
        self._lock = threading.Lock()
        self._remote: _client.Remote | None = None
        self._maker: Maker | None = None
        self._compared = False
        self._next_epoch = 0
        self._restored: tuple[int, int] | None = None
        self._progress: _Progress | None = None
        fields = dataset._fields()
        _client.Remote(spec(self._settings, dataset._recipe(), fields), self._settings.deadline, keeps=False).check()

    # Passes.

    def __iter__(self) -> _Iterator:
        remote = self._opened()
        if self._restored is not None:
            epoch, position = self._restored
            nominal = self._nominal(epoch, position)
        else:
            nominal = self._next_epoch
            epoch, position = self._start(nominal)
        progress = _Progress(epoch, position)
        iterator = _Iterator(self, remote, progress, self._left(epoch, position))
        # Only a pass that has begun counts: what is interrupted above can be asked for again.
        self._restored = None
        self._next_epoch = nominal + 1
        self._progress = progress
        return iterator

    def set_epoch(self, epoch: int) -> None:
        """Decides the epoch of the next pass; the passes after it count on from there.

        Right after ``load_state_dict``, the epoch of the state keeps the state's position.
        """
        if not whole(epoch) or epoch < 0:
            raise ConfigError(f"DataLoader.set_epoch: the epoch is {epoch!r}", hint="epochs are integers from 0 on")
        if self._restored is not None:
            if self._nominal(*self._restored) == epoch:
                return
            self._restored = None
        self._next_epoch = epoch
        if self._progress is not None and self._progress.restored:
            self._progress = None

    def __len__(self) -> int:
        """Batches of a whole pass on this rank (samples, if they are not batched)."""
        if self._epoch_steps is not None:
            return self._epoch_steps
        return self._steps()

    def _steps(self) -> int:
        """Batches of an epoch of the dataset."""
        if self._remote is not None and self._remote.opened is not None:
            samples = self._remote.opened.samples
        else:
            samples = self._dataset._remote().info().samples
        _, world = self._rank
        step = world * self._size
        if self._settings.tail == "drop":
            return samples // step
        if self._settings.tail == "fill":
            return -(-samples // step)
        share = -(-samples // world)
        return -(-share // self._size)

    @property
    def _size(self) -> int:
        """Samples of one delivery."""
        return self._settings.batch_size or self._dataset._recipe().batch or 1

    # With .with_epoch(n), passes are pieces of n steps of the endless row of the dataset's own epochs; all batches are
    # full there, so that everything is counted in steps. Otherwise a pass is an epoch.

    @property
    def _epoch_steps(self) -> int | None:
        recipe = self._dataset._recipe()
        if recipe.epoch_items is None:
            return None
        if recipe.epoch_in_batches or self._settings.batch_size is None:
            return recipe.epoch_items
        if self._settings.tail == "drop":
            return recipe.epoch_items // self._size
        return -(-recipe.epoch_items // self._size)

    def _start(self, nominal: int) -> tuple[int, int]:
        """Epoch and position at which a pass begins."""
        steps = self._epoch_steps
        if steps is None:
            return nominal, 0
        whole_epoch = self._steps()
        if not whole_epoch:
            raise ConfigError(
                "DataLoader: the dataset does not fill one batch on every rank, and .with_epoch() needs full ones",
                hint="lower the batch size, or use tail='fill'",
            )
        epoch, step = divmod(nominal * steps, whole_epoch)
        return epoch, step * self._stride

    @property
    def _rank(self) -> tuple[int, int]:
        return _ranks.of_process(self._settings.rank, self._settings.world_size)

    @property
    def _stride(self) -> int:
        return self._rank[1] * self._size

    def _nominal(self, epoch: int, position: int) -> int:
        """The pass in which a place of the dataset's epochs lies."""
        steps = self._epoch_steps
        if steps is None:
            return epoch
        return (epoch * self._steps() - (-position // self._stride)) // steps

    def _left(self, epoch: int, position: int) -> int | None:
        """Steps from there to the end of the pass; None: to the end of the epoch."""
        steps = self._epoch_steps
        if steps is None:
            return None
        return steps - (epoch * self._steps() - (-position // self._stride)) % steps

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Where the training loop stands in the pass begun last: plain JSON types, equal on every rank.

        It counts the batches that the loop was given, not those made ahead. It may be loaded in a world of another
        size, with another batch size, on another machine.
        """
        info = self._info()
        if self._progress is not None:
            epoch, position = self._progress.epoch, self._progress.position
        else:
            epoch, position = self._start(self._next_epoch)
        return {
            "version": STATE_VERSION,
            "dataset": info.digest,
            "pipeline": info.pipeline,
            "seed": self._settings.seed,
            "epoch": epoch,
            "position": position,
            "order": {"shuffle": "full" if self._settings.shuffle else "none"},
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next pass goes on where the state was taken; if that was the end of an epoch it yields nothing, once.

        StateError if the state is of another dataset, of other fields or transforms, another seed or order.
        """
        info = self._info()
        mine = {**self.state_dict(), "epoch": None, "position": None}
        _compare(state_dict, mine, info.samples)
        self._restored = (state_dict["epoch"], state_dict["position"])
        self._next_epoch = self._nominal(*self._restored)
        self._progress = _Progress(*self._restored, restored=True)

    # The engine.

    def _opened(self) -> _client.Remote:
        with self._lock:
            if self._remote is None:
                fields = self._dataset._fields()
                recipe = self._dataset._recipe()
                self._remote = _client.Remote(spec(self._settings, recipe, fields), self._settings.deadline)
            remote = self._remote
            if not remote.open:
                info = remote.reopened()
                recipe = self._dataset._recipe()
                self._maker = Maker(
                    info.fields,
                    make_kind(self._settings.output, self._settings.pin),
                    as_dict=recipe.as_dict,
                    single=self._settings.batch_size is None and recipe.batch is None,
                    squeeze=recipe.squeeze,
                )
                self._announce(info)
                self._compare_ranks(info)
            return remote

    def _compare_ranks(self, info: _client.Opened) -> None:
        rank, world = self._rank
        if world > 1 and self._settings.rank is None and not self._compared:
            self._compared = True
            try:
                _ranks.compare(f"{info.pipeline}/{self._size}/{self._settings.shuffle}", info.digest, rank)
            except BaseException:
                self.close()
                self._compared = False
                raise

    def _info(self) -> _client.Opened:
        """What the engine says about this loader; opens it only if that is not known."""
        known = self._remote.opened if self._remote is not None else None
        return known or self._opened().info()

    def _announce(self, info: _client.Opened) -> None:
        rank, world = self._rank
        line = f"native, {info.lanes} lane{'s' if info.lanes != 1 else ''}"
        if world > 1:
            line += f", rank {rank} of {world}"
        _notice.say(line)

    def _make(self, message: Any, root: Any) -> Batch | DictBatch:
        assert self._maker is not None
        return self._maker.make(message, root)

    def close(self) -> None:
        """Ends this loader in the engine, and the engine with the last loader. Batches that are held stay valid.

        Iterators begun before are over; the loader opens again when it is used again.
        """
        if self._remote is not None:
            self._remote.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def stats(self) -> dict[str, Any]:
        """The engine's numbers about this loader, at this moment: samples delivered, seconds and bytes by stage."""
        return self._opened().stats()

    def __getstate__(self) -> dict[str, Any]:
        if self._remote is not None and self._remote.open:
            raise ConfigError(
                "DataLoader: a loader that is open can not be pickled", hint="call close() first, or pickle the dataset"
            )
        dropped = {"_lock": None, "_remote": None, "_maker": None, "_progress": None}
        if self._progress is not None and self._restored is None:
            dropped["_progress"] = self._progress.copy()  # type: ignore[assignment]
        return {**self.__dict__, **dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"DataLoader({self._dataset!r}, batch_size={self.batch_size})"

    # Attributes of torch's.

    @property
    def dataset(self) -> Any:
        """The dataset."""
        return self._dataset

    @property
    def batch_size(self) -> int | None:
        """Samples a batch on this rank, None where they are not batched here."""
        return self._settings.batch_size

    @property
    def num_workers(self) -> int:
        """Lanes asked for; the cores of this process where nothing was said."""
        return self._settings.workers or cores()

    @property
    def drop_last(self) -> bool:
        """Whether the end that fills no batch is left out."""
        return self._settings.tail == "drop"

    @property
    def sampler(self) -> _Sampler:
        """What loops call ``set_epoch`` on."""
        return _Sampler(self)

    @property
    def batch_sampler(self) -> None:
        """None: the engine makes the batches."""
        return None

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("_settings")
        if settings is not None and name in settings.torch:
            return settings.torch[name]
        raise AttributeError(f"'DataLoader' object has no attribute {name!r}")


class _Sampler:
    """Stands where torch's samplers stand, for loops that call ``loader.sampler.set_epoch(e)``."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)


class _Progress:
    """How far the training loop has come in a pass. The loader keeps this, not the iterator, so that an iterator that
    is given up is collected, and its prefetching ends."""

    def __init__(self, epoch: int, position: int, restored: bool = False) -> None:
        self.epoch = epoch
        self.position = position
        self.restored = restored  # and no pass was begun since

    def copy(self) -> _Progress:
        return _Progress(self.epoch, self.position, self.restored)


class _Iterator(Iterator[Any]):
    """One pass; holds its loader, so that it stays open."""

    def __init__(self, loader: DataLoader, remote: _client.Remote, progress: _Progress, left: int | None) -> None:
        self._loader = loader
        self._remote = remote
        self._progress = progress
        self._left = left
        step = -(-progress.position // loader._stride)
        self._walk = _client.Walk(remote, progress.epoch, progress.position, step)
        self._ended = False

    def __iter__(self) -> _Iterator:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        while not self._ended:
            batch = self._walk.next(self._loader._make) if self._left != 0 else None
            if batch is not None:
                self._progress.epoch, self._progress.position = self._walk.epoch, self._walk.position
                if self._left is not None:
                    self._left -= 1
                return batch
            if not self._left:
                self._ended = True
                self._walk.cancel()
            else:  # the dataset's epoch ended within the pass
                self._walk = _client.Walk(self._remote, self._walk.epoch + 1, 0)
        raise StopIteration


def _stranger(dataset: Any) -> tuple[str, str]:
    """What to say about a dataset that is none of ours."""
    kind = type(dataset)
    what = f"dataset is a {kind.__module__}.{kind.__qualname__}, and its samples would be made by Python code"
    if kind.__module__.startswith("torchvision.datasets.folder"):
        return what, f"stoker.ImageFolder({getattr(dataset, 'root', 'root')!r}, transform=...) reads the same files"
    if kind.__module__.startswith("webdataset"):
        return what, "stoker.WebDataset(urls) has the same chain of calls"
    if isinstance(dataset, str):
        return "dataset is a path", f"stoker.ImageFolder({dataset!r}) or stoker.WebDataset({dataset!r})"
    return what, (
        "use stoker.ImageFolder or stoker.WebDataset; Python workers for other datasets come in a later release"
    )


def _compare(state: Any, mine: dict[str, Any], samples: int) -> None:
    """StateError with every reason why a state does not fit."""
    if not isinstance(state, Mapping):
        raise StateError(f"a state is a dict, and this is a {type(state).__name__}")
    if missing := [key for key in mine if key not in state]:
        raise StateError(
            f"the state lacks {', '.join(missing)}", hint="pass what state_dict() of a stoker.DataLoader returned"
        )
    if state["version"] != STATE_VERSION:
        raise StateError(
            f"the state is of version {state['version']!r}, this release reads {STATE_VERSION}",
            hint="load it with the release that saved it",
        )
    words = {
        "dataset": ("the dataset", "its files, sizes or labels changed, or it is another one"),
        "pipeline": ("the fields or transforms", "build the dataset with those of the saved run"),
        "seed": ("the seed", f"pass seed={state['seed']!r}"),
        "order": ("the order", "pass the shuffle= of the saved run"),
    }
    wrong = [
        (f"{name} differs: {state[key]!r} in the state, {mine[key]!r} here", hint)
        for key, (name, hint) in words.items()
        if state[key] != mine[key]
    ]
    epoch, position = state["epoch"], state["position"]
    if not (whole(epoch) and whole(position) and epoch >= 0 and 0 <= position <= samples):
        wrong.append((f"there is no position {position!r} in epoch {epoch!r} of {samples} samples", "it is damaged"))
    if wrong:
        raise StateError(
            "the state does not fit this loader: " + "; ".join(what for what, _ in wrong),
            hint="; ".join(hint for _, hint in wrong),
        )

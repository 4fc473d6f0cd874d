"""DataLoader: torch's interface to a loader in the engine.

DataLoader    keywords -> Spec; epochs, state, length, receipts (passes are in _iterate.py)
"""

from __future__ import annotations

import inspect
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from . import _client, _notice, _ranks, _tune, _watch
from ._batch import Kind, Maker
from ._datasets import Dataset, check_subclass, make_kind
from ._errors import MAX_EPOCH, ConfigError, Problems, whole
from ._feed import Feed
from ._iterate import Early, Passage, Progress
from ._numbers import scalar
from ._position import Position
from ._receipt import VERSION, Part
from ._spec import ALL_CORES, Form, cores, read, spec
from ._state import STATE_VERSION, compare, skipped
from ._stats import Meter
from ._strangers import advise
from ._told import Contents
from ._types import TP, J, N, T

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._types import Keywords


class DataLoader(Generic[T]):
    """Batches of a dataset, with the keywords of torch.utils.data.DataLoader.

    Iterating gives ``Batch``es (tuples such as ``images, labels``) or, for datasets of dicts, dicts with the same
    attributes ``ids epoch step valid bad``. Arrays are torch tensors. Images have the shape (batch, channels, height,
    width); uint8 images are stored as channels_last, float images contiguously. Every ``iter()`` is a new pass over the
    next epoch, which it takes when its first batch is asked for. Concurrent passes are independent.

    Keywords of torch that mean something different or more here:

    batch_size        samples per batch on this rank; None gives single samples, without the batch dimension
    shuffle           True or "full": a new permutation of all samples every epoch, a function of seed and epoch;
                      "block": blocks (shards) are permuted, read as parallel streams, and shuffled within windows, for
                      data too large for random reads; "window": windows of samples are permuted
    num_workers       lanes of the engine; default: all cores that this process may use; 0: one lane
    drop_last         same as tail="drop"
    timeout           seconds without a batch after which StallError is raised; 0: 60 s
    generator         gives the seed, by its initial_seed()
    pin_memory        gives copies in torch's pinned memory, if CUDA is available
    prefetch_factor   batches made ahead, per lane
    sampler, batch_sampler   any iterable of ids, or of lists of ids. It alone decides the order, as if the world size
                      were one. stoker's own samplers are computed by the engine and cost nothing
    collate_fn        must be None: it is Python code (a later release will run it)
    persistent_workers, multiprocessing_context, worker_init_fn, pin_memory_device, in_order   ignored with a notice

    Keywords of stoker:

    seed              for shuffle and augmentation, 0 to 2**64 - 1. Default: what torch.manual_seed had set when the
                      loader was made (below 2**32). With several ranks, instead: PL_GLOBAL_SEED, which Lightning's
                      seed_everything sets. Otherwise 0. The line at start says which; a loaded state brings its own
    rank, world_size  default: torch.distributed's if it is running, else RANK and WORLD_SIZE, else 0 of 1
    global_batch_size samples per batch over all ranks, instead of batch_size; a multiple of the world size
    block, window, streams   for shuffle "block": samples in a block (default: a shard each), samples shuffled together
                      (10,000), blocks read in parallel (8). window also applies to shuffle "window"
    weights           one number per sample: a weighted draw instead of a shuffle
    balanced          weights by label: every class comes equally often
    replacement       whether a sample may come again within an epoch; default: yes with weights
    num_samples       samples in an epoch; default: as many as there are
    lengths           lengths of the samples: a list, or the name of a stored field whose bytes count. Needs one of
                      bucket (runs of this many samples have similar lengths), tokens (batches are padded to at most
                      this many; batch_size then limits the rows, if it is given) or pack (rows of this many tokens,
                      filled with whole samples; see Batch). long: what to do with samples longer than pack: "split"
                      (default), "truncate" or "refuse". length_window: samples considered together (10,000)
    tail              end of an epoch: "pad" (default) fills up to a multiple of world_size, "fill" fills up full
                      batches, "drop" drops what does not fill a batch on every rank. ``valid`` marks padding
    on_bad            for a sample that cannot be read: "fail" (default) raises DataError, "skip" delivers a copy of
                      another row and marks it in ``valid``, "replace" delivers another sample; ``bad`` lists them
    max_bad, max_bad_rate   the most bad samples in a pass, as a number and as a share; more raise DataError
    device            "cpu"
    output            "torch" (default if torch is installed), "numpy", "jax"
    layout            of images, "nchw" (default) or "nhwc"
    prefetch          batches made ahead; default: 4
    memory            limit for batches and for large pictures while they are decoded: "2GiB", a number of bytes, or
                      "auto" (default): a quarter of the machine's free memory, shared by all loaders of the process
                      that have no limit of their own. A picture that needs more is decoded alone
    max_pixels        pictures with more pixels are not decoded and are bad samples; default 178,956,970, as in Pillow
    cache             memory for samples that are the same in every epoch, decoded and transformed up to the first
                      random transform: "8GiB", a number of bytes, or True, a quarter of the machine's free memory; or
                      {"memory": "8GiB", "after": "decode"}, to keep them only decoded. Samples that do not fit are
                      decoded again in every epoch. Batches do not change. ``stats()["cache"]`` says what is kept
    tune              "playbook", or the path of one: uses the num_workers and prefetch that ``stoker.tune`` found for
                      this machine and dataset, unless they are given here. Without a matching entry, warns and uses the
                      defaults; without the file, ConfigError

    Raises ConfigError at once for everything that is wrong with the keywords, in one message. On first use, raises
    ConfigError, DataError, SourceError and ResourceError for what is wrong with the dataset, its transforms or the
    memory for batches. Iterating may raise DataError, StallError, ResourceError and EngineError.

    The loader uses an engine while it is open: from its first use to ``close()``, the end of a ``with`` block, or its
    collection. While it is not open, it can be pickled. Several threads may use it.
    """

    # Types of batches by dataset and output; samples that are not batched are Any. An argument for output must
    # be Any or a Literal: with an overload for str, pyright takes every output but torch's for Any.

    @overload
    def __init__(
        self: DataLoader[T],
        dataset: Dataset[T, N, J],
        batch_size: int = 1,
        shuffle: bool | str | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = ...,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        output: Literal["torch"] | None = None,
        **keywords: Unpack[Keywords],
    ) -> None: ...

    @overload
    def __init__(
        self: DataLoader[N],
        dataset: Dataset[TP, N, J],
        batch_size: int = 1,
        shuffle: bool | str | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = ...,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        output: Literal["numpy"],
        **keywords: Unpack[Keywords],
    ) -> None: ...

    @overload
    def __init__(
        self: DataLoader[J],
        dataset: Dataset[TP, N, J],
        batch_size: int = 1,
        shuffle: bool | str | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = ...,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        output: Literal["jax"],
        **keywords: Unpack[Keywords],
    ) -> None: ...

    @overload
    def __init__(
        self: DataLoader[Any],
        dataset: Dataset[Any, Any, Any],
        batch_size: None,
        shuffle: bool | str | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = ...,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        output: str | None = None,
        **keywords: Unpack[Keywords],
    ) -> None: ...

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | str | None = None,
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
        global_batch_size: int | None = None,
        block: int | None = None,
        window: int | None = None,
        streams: int | None = None,
        weights: Sequence[float] | None = None,
        balanced: bool | None = None,
        replacement: bool | None = None,
        num_samples: int | None = None,
        lengths: Sequence[int] | str | None = None,
        bucket: int | None = None,
        tokens: int | None = None,
        pack: int | None = None,
        long: str | None = None,
        length_window: int | None = None,
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
        max_pixels: int | None = None,
        cache: Any = None,
        tune: str | None = None,
    ) -> None:
        keywords = {key: scalar(value) for key, value in locals().items() if key not in ("self", "dataset")}
        problems = Problems("DataLoader")
        recipe = None
        if isinstance(dataset, Dataset):
            dataset._renew()
            check_subclass(dataset, problems)
            recipe = replace(dataset._recipe(), cache=dataset._cached)
        else:
            problems.add(*advise(dataset))
        self._settings = read(keywords, recipe, problems)
        self._dataset: Dataset = dataset
        if tune is not None:
            self._settings = _tune.of_playbook(tune, self._settings, dataset)
        self._lock = threading.Lock()
        self._turns = threading.RLock()  # one thread at a time begins a pass; acquired before _lock
        self._early: weakref.ref[Early] | None = None  # for the next pass; iterators hold it
        self._unused: weakref.ref[Passage] | None = None  # the newest iterator, if no pass has begun since
        self._remote: _client.Loader | None = None
        self._before: list[Contents] = []  # what earlier loaders in the engine found
        self._maker: Maker | None = None
        self._meter = Meter(self._asked_stats)
        self._made = _watch.place()
        self._name = _ranks.name()
        self._imported = (0, 0)  # from when to when opening it imported torch or JAX
        self._last: dict[str, Any] | None = None  # its numbers up to its close
        self._closing = False
        self._compared: list[int] = []  # the seeds with which it was opened and compared between ranks
        self._at = Position()
        self._check_sampler()
        fields = dataset._fields()
        made = spec(self._settings, dataset._recipe(), fields)
        _client.Loader(made, self._settings.deadline, keeps=False, members=dataset._members()).check()

    # Passes.

    def __iter__(self) -> Passage[T]:
        begun = monotonic_ns()  # the loop waits from here on
        if not self._settings.placed:
            _ranks.refuse_worker()
        with self._turns:
            self._renew()
            remote = self._opened()
            early = self._read_ahead(remote)
        now = monotonic_ns()
        imported = max(0, self._imported[1] - max(self._imported[0], begun))
        iterator = Passage(self, remote, early, now - begun, imported)
        self._unused = weakref.ref(iterator)
        return iterator

    def _read_ahead(self, remote: _client.Loader) -> Early | None:
        """Starts reading the next pass; a user's sampler is not iterated before a batch is asked for."""
        if self._settings.ordering.walked:
            return None
        epoch, position, _ = self._next_pass()
        early = self._early() if self._early is not None else None
        if early is None or not early.fits(remote, epoch, position):
            early = Early(remote, epoch, position, self._stride)
            self._early = weakref.ref(early)
        return early

    def _next_pass(self) -> tuple[int, int, int]:
        """Epoch, position and number of the next pass; it begins when its first batch is asked for."""
        if self._at.restored is not None:
            epoch, position = self._at.restored
            return epoch, position, epoch if self._native_sampler else self._nominal(epoch, position)
        if self._native_sampler:
            epoch, position = self._sampler._coming()
            return epoch, position, epoch
        return (*self._start(self._at.next_epoch), self._at.next_epoch)

    def _coming(self) -> tuple[Progress, int | None]:
        """The next pass, and the number of steps left in it, or None: to the end of the epoch."""
        epoch, position, nominal = self._next_pass()
        progress = Progress(epoch, position, nominal=nominal)
        if self._settings.ordering.walked:
            progress.feed = self._fed(epoch, position)
        return progress, self._left(epoch, position)

    def _took(self, progress: Progress) -> None:
        """A pass has begun; the one after it is the next."""
        if self._native_sampler:
            if self._at.restored is not None:
                self._sampler.set_epoch(progress.epoch)
            progress.follower = self._sampler._begin()
            progress.follower.position = progress.position
        self._part(progress, progress.epoch, progress.position)
        self._at.restored = None
        self._at.seen = None
        self._at.next_epoch = progress.nominal + 1
        self._at.progress = progress
        self._unused = None

    def _standing(self) -> Progress | None:
        """How far the loop is; None if the next pass counts: before any pass, and if the last one has ended or was
        abandoned and an iterator waits for its first batch."""
        at, unused = self._at.progress, self._unused
        if at is None or at.restored or unused is None or unused() is None:
            return at
        items = None if at.over else self._items(at.epoch)
        return None if at.over or (items is not None and at.position >= items) else at

    def _fed(self, epoch: int, position: int) -> Feed:
        """A pass over the user's sampler, from a position on."""
        ordering = self._settings.ordering
        if self._at.restored is not None and callable(decide := getattr(ordering.sampler, "set_epoch", None)):
            decide(epoch)
        feed = Feed(ordering.sampler, self._size, ordering.batched, self._settings.tail == "drop")
        if self._at.seen is not None:
            feed.skip(position, self._at.seen)
        return feed

    def _part(self, progress: Progress, epoch: int, position: int) -> None:
        """Starts a new part of the receipt."""
        progress.part = Part(epoch, position, *self._rank)
        self._at.parts.append(progress.part)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass; later passes count up from it.

        The next pass is the one whose first batch is asked for next, also with an iterator that already exists. Right
        after ``load_state_dict``, setting the epoch of the state keeps the state's position.

        Raises ConfigError unless epoch is an integer from 0 to 2**63 - 1.
        """
        epoch = scalar(epoch)
        if not whole(epoch) or not 0 <= epoch <= MAX_EPOCH:
            raise ConfigError(
                f"DataLoader.set_epoch: the epoch is {epoch!r:.80}", hint="epochs are integers from 0 to 2**63 - 1"
            )
        if callable(decide := getattr(self._settings.ordering.sampler, "set_epoch", None)):
            decide(epoch)
        if self._at.restored is not None:
            if self._nominal(*self._at.restored) == epoch:
                return
            self._at.restored = None
            self._at.seen = None
        self._at.next_epoch = epoch
        if self._at.progress is not None and self._at.progress.restored:
            self._at.progress = None

    def __len__(self) -> int:
        """Batches in a whole pass on this rank (samples, if they are not batched)."""
        if self._epoch_steps is not None:
            return self._epoch_steps
        return self._steps()

    def _steps(self) -> int:
        """Batches in an epoch of the dataset."""
        ordering = self._settings.ordering
        if ordering.walked:
            items = len(ordering.sampler)
            if ordering.batched:
                return items
            return items // self._size if self._settings.tail == "drop" else -(-items // self._size)
        if not ordering.plain or self._dataset._recipe().mix is not None:
            at = self._standing()
            epoch = self._at.next_epoch if at is None else at.epoch
            return int(self._asked().ask("steps", epoch=epoch))
        if self._remote is not None and self._remote.opened is not None:
            samples = self._remote.opened.samples
        else:
            samples = self._dataset._look().info().samples
        _, world = self._rank
        step = world * self._size
        if self._settings.tail == "drop":
            return samples // step
        if self._settings.tail == "fill":
            return -(-samples // step)
        share = -(-samples // world)
        return -(-share // self._size)

    def _asked(self) -> _client.Loader:
        """The loader in the engine, to answer a question; works without an iteration."""
        return self._opened()

    @property
    def _sampler(self) -> Any:
        return self._settings.ordering.sampler

    @property
    def _native_sampler(self) -> bool:
        return self._sampler is not None and not self._settings.ordering.walked

    def _check_sampler(self) -> None:
        """A sampler of ours over another number of samples says which ids it means, as torch's do, so it is iterated.
        So is one that has begun to count epochs: it continues counting."""
        if not self._native_sampler:
            return
        drawn, there = self._sampler._samples(), len(self._dataset)
        if drawn != there and not (drawn < there and "order.subset" in self._settings.ordering.numbers):
            self._settings = self._settings.walking()
        else:
            self._at.next_epoch = self._sampler.state_dict()["epoch"]

    @property
    def _size(self) -> int:
        """Samples in one delivery."""
        return self._settings.size or self._dataset._recipe().batch or 1

    # With .with_epoch(n), passes are pieces of n steps from the endless sequence of the dataset's own epochs. All
    # batches are full there, so everything is counted in steps. Otherwise a pass is an epoch.

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
                "DataLoader: the dataset does not fill one batch on every rank, but .with_epoch() needs full batches",
                hint="lower the batch size, or use tail='fill'",
            )
        epoch, step = divmod(nominal * steps, whole_epoch)
        return epoch, step * self._stride

    @property
    def _rank(self) -> tuple[int, int]:
        return self._settings.ranks

    @property
    def _stride(self) -> int:
        """Items per step over all ranks."""
        if self._settings.ordering.batched:
            return 1
        if self._settings.ordering.plain and self._dataset._recipe().mix is None:
            return self._rank[1] * self._size
        return self._info().stride

    def _nominal(self, epoch: int, position: int) -> int:
        """The pass that contains a place of the dataset's epochs."""
        steps = self._epoch_steps
        if steps is None:
            return epoch
        return (epoch * self._steps() - (-position // self._stride)) // steps

    def _left(self, epoch: int, position: int) -> int | None:
        """Steps from there to the end of the pass, or None: to the end of the epoch."""
        steps = self._epoch_steps
        if steps is None:
            return None
        return steps - (epoch * self._steps() - (-position // self._stride)) % steps

    # State.

    def state_dict(self) -> dict[str, Any]:
        """The position of the training loop in the newest pass: plain JSON types, equal on every rank.

        It counts the batches that the loop was given, not those made ahead. A pass begins with its first batch, or with
        ``iter()`` if the pass before it has ended or was abandoned. The state can be loaded with another world size or
        batch size, and on another machine.
        """
        info = self._info()
        seen = None
        at = self._standing()
        if at is not None:
            epoch, position, seen = at.epoch, at.position, at.seen
        else:
            epoch, position, _ = self._next_pass()
        state: dict[str, Any] = {
            "version": STATE_VERSION,
            "dataset": info.digest,
            "pipeline": info.pipeline,
            "seed": self._settings.seed.value,
            "epoch": epoch,
            "position": position,
            "order": self._order(seen),
            **info.beside,
        }
        if self._at.skipped:
            state["skipped"] = [list(run) for run in self._at.skipped]
        return state

    def _order(self, seen: str | None = None) -> dict[str, Any]:
        """What states and receipts say about the order."""
        if not self._settings.ordering.walked:
            return self._info().order
        order = {"sampler": type(self._sampler).__name__}
        return order if seen is None else {**order, "seen": seen}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next pass continues where the state was saved. If that was the end of an epoch, it yields nothing, once.

        StateError if the state is of another dataset, other fields or transforms, another order, or a seed other than
        ``seed=`` or ``generator=`` gave; a seed that was not given is replaced by the state's. A state of the dataset
        that this one was packed from fits too, with a notice. A user's sampler is iterated up to the position when the
        pass begins; StateError then if it gives other ids.
        """
        seed = state_dict.get("seed") if isinstance(state_dict, Mapping) else None
        with self._settings.seed.gives_way(seed):
            mine = {**self.state_dict(), "epoch": None, "position": None, "order": self._order()}
            mine.pop("skipped", None)
            compare(state_dict, mine, self._items, self._info())
        self._at.restored = (state_dict["epoch"], state_dict["position"])
        if self._settings.ordering.walked:
            self._at.seen = state_dict["order"].get("seen")
            if self._at.seen is None and state_dict["position"]:
                self._at.seen = ""
        self._at.next_epoch = self._nominal(*self._at.restored)
        self._at.progress = Progress(*self._at.restored, restored=True, seen=self._at.seen)
        self._at.skipped = [list(run) for run in state_dict.get("skipped", [])]

    def _items(self, epoch: int) -> int | None:
        """Items in an epoch: places, or batches if the order makes them; None if only its end tells."""
        ordering = self._settings.ordering
        if ordering.walked:
            return None
        if ordering.plain and self._dataset._recipe().mix is None:
            return self._info().samples
        return int(self._asked().ask("items", epoch=epoch))

    # What was delivered, and what is planned.

    def skip(self, steps: int) -> None:
        """Skips the next steps of the newest pass, as if they had been delivered; call it on every rank.

        Within a loop, the pass continues after them; at the end of a pass, or before any, the next one begins after
        them. The state records what was skipped.
        """
        steps = scalar(steps)
        if not whole(steps) or not 0 <= steps <= 1 << 32:
            raise ConfigError(f"DataLoader.skip: steps is {steps!r:.80}", hint="give a number of steps, 0 or more")
        if self._epoch_steps is not None:
            raise ConfigError("DataLoader.skip cannot be used with .with_epoch()", hint="leave .with_epoch() out")
        at = self._standing()
        items = None if at is None else self._items(at.epoch)
        if at is None or at.restored or (items is not None and at.position >= items):
            if self._at.restored is None:
                self._at.restored = self._next_pass()[:2]
            at = Progress(*self._at.restored, restored=True, seen=self._at.seen)
            items = self._items(at.epoch)
        end = at.position + steps * self._stride
        end = min(end, MAX_EPOCH if items is None else items)
        if end == at.position:
            return
        if at.restored and self._settings.ordering.walked:
            raise ConfigError(
                "DataLoader.skip: a sampler is iterated only after its pass has begun", hint="call skip() in the loop"
            )
        self._at.skipped = skipped(self._at.skipped, at.epoch, at.position, end)
        if at.restored:
            self._at.restored = (at.epoch, end)
            at.move(at.epoch, end)
            self._at.progress = at
            return
        at.jumped = at.position if at.jumped is None else at.jumped
        at.move(at.epoch, end)
        self._part(at, at.epoch, end)

    def receipt(self) -> dict[str, Any]:
        """What the loop on this rank has received in all passes since the loader was made, as plain JSON types: for
        every part of a pass its epoch, its range of places, and the sum of a hash of every (place, sample).

        Save it beside the state; ``verify_receipts`` adds up those of all ranks and resumed runs.
        """
        return {
            "version": VERSION,
            "dataset": self._info().digest,
            "seed": self._settings.seed.value,
            "order": self._order(),
            "parts": [part.told() for part in self._at.parts if not part.empty],
        }

    def explain(self, step: int) -> dict[str, Any]:
        """The contents of this rank's batch at a step of the current epoch (before any: of the next), and why.

        Returns {"epoch", "position", "rank", "world_size", "rows"}. A row has "place", "sample", "valid", "file" (and
        "member" in a shard), and "choices": what each transform chose for every image field, such as the crop box.
        Steps are counted as in ``batch.step``. Nothing is delivered.
        """
        step = scalar(step)
        if not whole(step) or not 0 <= step <= 1 << 32:
            raise ConfigError(f"DataLoader.explain: step is {step!r:.80}", hint="give the number of a step, 0 or more")
        if self._settings.ordering.walked:
            raise ConfigError(
                "DataLoader.explain: only the sampler knows the samples of a step", hint="use one of stoker's samplers"
            )
        at = self._standing() or Progress(*self._next_pass()[:2])
        first = -(-at.start // self._stride)  # the number of the pass's first step
        position = step * self._stride if step < first else at.start + (step - first) * self._stride
        found: dict[str, Any] = self._asked().ask("explain", epoch=at.epoch, **{"from": position})
        return {**found, "step": step}

    def shares(self) -> list[int] | None:
        """Samples taken from each dataset of a mixture so far in the current epoch, over all ranks; None if the dataset
        is not a mixture."""
        if self._dataset._recipe().mix is None:
            return None
        state = self.state_dict()
        found: list[int] = self._asked().ask("shares", epoch=state["epoch"], to=state["position"])
        return found

    # The engine.

    def _opened(self) -> _client.Loader:
        with self._lock:
            self._settings.seed.settle()
            if self._remote is not None and self._seed_of(self._remote) != self._settings.seed.value:
                self._leave()
            if self._remote is None:
                fields = self._dataset._fields()
                recipe = self._dataset._recipe()
                made = spec(self._settings, recipe, fields)
                members = self._dataset._members()
                self._remote = _client.Loader(made, self._settings.deadline, members=members, before=self._before)
            remote = self._remote
            if not remote.open:
                info = remote.reopened()
                recipe = self._dataset._recipe()
                self._maker = Maker(
                    info.fields,
                    self._kind(),
                    form=recipe.form,
                    single=self._settings.single,
                    squeeze=recipe.squeeze,
                )
                self._meter.opened(remote.number, info.lanes)
                self._last = None
                _watch.opened(remote.number, self._made)
                self._announce(info)
                self._compare_ranks(info)
            return remote

    def _renew(self) -> None:
        """Drops the loader in the engine if the dataset has changed because a transform was assigned to it. Passes that
        have begun continue with the old one."""
        if self._remote is None:
            return
        fields = self._dataset._fields()
        if spec(self._settings, self._dataset._recipe(), fields) != self._remote.spec:
            self._leave()

    def _leave(self) -> None:
        """Takes another loader in the engine, over the same data. Iterators that were begun hold the one before."""
        assert self._remote is not None
        if self._remote.opened is not None:
            self._before = self._remote.opened.contents
        self._remote = None

    def _kind(self) -> Kind:
        known, begin = self._settings.output in sys.modules, monotonic_ns()
        kind = make_kind(self._settings.output, self._settings.pin)
        if not known and self._settings.output in sys.modules:  # NumPy's path: stoker needs NumPy there
            self._imported = begin, monotonic_ns()
        return kind

    @staticmethod
    def _seed_of(remote: _client.Loader) -> int:
        return int(remote.spec.get("order", {}).get("seed", 0))

    def _compare_ranks(self, info: _client.Opened) -> None:
        rank, world = self._rank
        seed = self._settings.seed.value
        if world == 1 or seed in self._compared:
            return
        facts = {"dataset": info.digest, "order": info.order, "batch_size": self._size, "tail": self._settings.tail}
        if not self._settings.ordering.stored or self._dataset._recipe().mix is not None:
            facts["seed"] = seed
        self._compared.append(seed)
        try:
            _ranks.compare(f"{self._name}/{len(self._compared)}", facts, rank, world)
        except BaseException:
            self.close()
            self._compared.remove(seed)
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
        _notice.say(
            f"{line}, {self._settings.seed}{_bytes(info.fields, self._settings.output, self._dataset._recipe().form)}"
        )

    def close(self) -> None:
        """Closes this loader in the engine, and ends the engine with the last loader. Batches that are held stay valid.

        Existing iterators end; the loader opens again when it is used again.
        """
        if self._remote is not None and self._remote.open:
            self._closing = True
            try:
                told = self._meter.told()
            finally:
                self._closing = False
            self._last = told if "read" in told else None  # otherwise its engine is gone, and its numbers with it
        self._meter.close()
        if self._remote is not None:
            self._remote.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def stats(self) -> dict[str, Any]:
        """What this loader has done and waited for so far, as a plain dict; times are in seconds, sizes in bytes.

        By stage (``plan``, ``read``, ``decode``, each of ``transforms``, ``batch``, ``deliver``, ``wait``):
        ``busy_s``, ``blocked_in_s``, ``blocked_out_s``, ``cpu_s``, ``items``, ``bytes``, ``p50_s``, ``p99_s``,
        ``queue``, ``queue_mean``. ``rates`` has ``samples_per_s``, ``wait_share`` and ``limiting``, the stage that the
        loop waits for. ``client`` is the time spent here in and between calls of ``next``, ``gpu`` the utilisation of
        this process's device (None without one), ``cache`` what the cache holds, ``jpeg`` how many JPEGs each decoder
        handled: ``own``, ``libjpeg`` (progressive, CMYK, odd sampling, several scans), ``go``.
        docs/guides/statistics.md lists every key. After ``close()``, the numbers are those up to then.
        """
        if self._last is not None and not (self._remote is not None and self._remote.open):
            return deepcopy(self._last)
        return self._meter.told()

    def _asked_stats(self, before: dict[str, Any] | None, wait_share: float | None) -> dict[str, Any]:
        if self._closing and self._remote is not None:
            return self._remote.last_stats(wait_share)
        return self._opened().stats(before, wait_share)

    def __getstate__(self) -> dict[str, Any]:
        if self._remote is not None and self._remote.open:
            raise ConfigError(
                "DataLoader: an open loader cannot be pickled", hint="call close() first, or pickle the dataset"
            )
        dropped: dict[str, Any] = {
            "_early": None,
            "_imported": (0, 0),
            "_last": None,
            "_lock": None,
            "_turns": None,
            "_unused": None,
            "_meter": None,
            "_remote": None,
            "_maker": None,
            "_before": [],
        }
        return {**self.__dict__, **dropped}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _KEYWORDS and "_settings" in self.__dict__:
            raise ConfigError(
                f"DataLoader.{name} cannot be assigned to: it would have no effect",
                hint=f"make a new loader with {name}=",
            )
        super().__setattr__(name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._turns = threading.RLock()
        self._meter = Meter(self._asked_stats)

    def __repr__(self) -> str:
        return f"DataLoader({self._dataset!r}, batch_size={self.batch_size})"

    # Attributes of torch's DataLoader.

    @property
    def dataset(self) -> Any:
        """The dataset."""
        return self._dataset

    @property
    def batch_size(self) -> int | None:
        """Samples per batch on this rank, None if they are not batched here."""
        return self._settings.size

    @property
    def num_workers(self) -> int:
        """The requested number of lanes; by default the cores of this process."""
        return self._settings.workers or cores()

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is dropped."""
        return self._settings.tail == "drop"

    @property
    def sampler(self) -> Any:
        """The user's sampler; without one, an object for loops that call ``set_epoch`` on it."""
        return self._sampler if self._sampler is not None and not self._settings.ordering.batched else _Sampler(self)

    @property
    def batch_sampler(self) -> Any:
        """The user's batch sampler; None if the engine makes the batches."""
        return self._sampler if self._settings.ordering.batched else None

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("_settings")
        if settings is not None and name in settings.torch:
            return settings.torch[name]
        raise AttributeError(f"'DataLoader' object has no attribute {name!r}")


# What a loader is made of: none of it can be assigned to later.
_KEYWORDS = frozenset(inspect.signature(DataLoader.__init__).parameters) - {"self"}


class _Sampler:
    """Replaces torch's samplers, for loops that call ``loader.sampler.set_epoch(e)``."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)


def _bytes(fields: Sequence[_client.Field], output: str, form: Form) -> str:
    """What the line at start says if batches hold bytes, which layers of a model do not accept."""
    found = [
        (i, field) for i, field in enumerate(fields) if field.dtype == "uint8" and field.kind in ("image", "array")
    ]
    if not found:
        return ""
    at, field = found[0]
    item = {"dict": f"batch[{field.name!r}]", "one": "batch"}.get(form, "")
    if not item:  # the variable that the loop unpacks to has the field's name, if it is an identifier
        item = field.name if field.name.isidentifier() else f"batch[{at}]"
    floats = f"{item}.float()" if output == "torch" else f"{item}.astype('float32')"
    words = f"; {' and '.join(field.name for _, field in found)} {'is' if len(found) == 1 else 'are'} uint8: "
    if field.kind == "image":
        return words + f"to get floats, end the transforms with ToTensor(), or write {floats} / 255 in the loop"
    return words + f"to get floats, write {floats} in the loop"

"""DataLoader: torch's interface to a loader in the engine.

DataLoader    keywords -> Spec; its loader in the engine, opened at need; statistics. Passes are in _iterate.py; where
              the loop is in them, its state and receipts, in _loop.py
"""

from __future__ import annotations

import inspect
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import replace
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from . import _client, _device, _line, _mixing, _native, _notice, _ranks, _trainers, _tune, _values, _watch
from ._advice import no_attribute
from ._batch import Kind
from ._datasets import Dataset, make_kind
from ._errors import ConfigError, Problems
from ._iterable import IterablePassage
from ._iterate import Early, Facts, NativePassage, OwnPassage, Passage, Progress
from ._loop import Positioned
from ._mix import Changes
from ._numbers import scalar
from ._orders import given
from ._position import Batches, Position, Turns
from ._python import Own, adopt, check_native
from ._spec import ALL_CORES, cores, read, spec
from ._static import Buffers
from ._stats import Meter
from ._stores import fetching
from ._target import Target
from ._theirs import kind
from ._told import Contents
from ._torchs import LOADER, Passing
from ._types import TP, J, N, T

if TYPE_CHECKING:
    from torch.utils.data import DataLoader as TorchsLoader
    from typing_extensions import Unpack

    from ._types import Keywords, MapStyle

    class _Base(Positioned, TorchsLoader[T], Generic[T]):  # functions annotated with torch's class accept it
        pass

else:  # torch is not imported for this: isinstance() goes by Passing

    class _Base(Positioned, Generic[T]):
        pass


class DataLoader(Passing, _Base[T]):
    """Batches of a dataset, with the keywords of torch.utils.data.DataLoader.

    Iterating gives ``Batch``es (tuples such as ``images, labels``) or, for datasets of dicts, dicts with the same
    attributes ``ids epoch step valid bad``. Arrays are torch tensors. Images have the shape (batch, channels, height,
    width); uint8 images are stored as channels_last, float images contiguously. Every ``iter()`` is a new pass over the
    next epoch, which it takes when its first batch is asked for. Concurrent passes are independent. Where torch is
    loaded, a loader passes for torch's: ``isinstance(loader, torch.utils.data.DataLoader)``.

    Keywords of torch that mean something different or more here:

    batch_size        samples per batch on this rank; None gives single samples, without the batch dimension
    shuffle           True or "full": a new permutation of all samples every epoch, a function of seed and epoch;
                      "block": blocks (shards) are permuted, read as parallel streams, and shuffled within windows, for
                      data too large for random reads; "window": windows of samples are permuted
    num_workers       lanes of the engine; default: all cores that this process may use; 0: one lane. For a dataset of
                      your own that Python reads (see native): worker processes, as in torch; default: 0, the training
                      process
    drop_last         same as tail="drop"
    timeout           seconds without a batch after which StallError is raised; 0: 60 s, or never for your own dataset
    generator         gives the seed, by its initial_seed()
    pin_memory        gives copies in torch's pinned memory, if CUDA is available; see device
    prefetch_factor   batches made ahead, per lane or worker
    sampler, batch_sampler   any iterable of ids (of anything, for a dataset of your own), or of lists of them. It alone
                      decides the order, as if the world size were one. stoker's own samplers cost nothing
    collate_fn, worker_init_fn, multiprocessing_context, persistent_workers   as in torch, for a dataset of your own:
                      with __getitem__ and __len__, or __iter__ (docs/guides/any-python.md). Random numbers are seeded
                      before each sample. For stoker's datasets too, with a collate_fn or functions on their samples
    pin_memory_device, in_order   ignored with a notice

    Keywords of stoker:

    seeding           of a dataset of your own: "key" (default) seeds before each sample, from seed, epoch and place;
                      "worker" is torch's rule: whole batches to the workers in turn, whose generators are seeded once
                      a pass, so that the numbers drawn depend on num_workers. With num_workers=0 nothing is seeded
    seed              for shuffle and augmentation, 0 to 2**64 - 1. Default: what torch.manual_seed had set when the
                      loader was made (below 2**32). With several ranks, instead: PL_GLOBAL_SEED, which Lightning's
                      seed_everything sets. Otherwise 0. The line at start says which; a loaded state brings its own
    rank, world_size  default: what sharding says, else torch.distributed's or jax.distributed's if it is running, else
                      RANK and WORLD_SIZE, else 0 of 1
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
    device            "cuda", "cuda:1" or a torch.device: batches are on that GPU, copied before the loop asks for them.
                      "cuda" is torch's current device when the first batch of a pass is asked for. Tensors, ``valid``,
                      ``cu_seqlens`` and ``position_ids`` move, at any depth of tuples, lists and mappings; ``ids``,
                      texts, JSON and other objects stay. The loop's stream is the one that is current when it calls
                      next; a batch that another stream uses has to be recorded there (record_stream), as any tensor.
                      pin_memory has no effect then. "cpu": the same queue, and nothing is copied. Needs output="torch"
                      or "jax". With output="jax", a jax.Device or its name ("cpu", "gpu", "cuda:1"): arrays are put
                      there, and what is said of tensors holds for arrays of NumPy and JAX, except about streams
    device_prefetch   batches on the device, or the devices of sharding, besides the one that the loop has; default: 2
    static_buffers    True: the same tensors in every step and epoch, for CUDA graphs, ``valid`` among them (with pack,
                      ``position_ids``). Each batch is copied into them when the loop takes it, so the one before is
                      gone then. Needs device, dense fields and full batches (tail "fill" or "drop"); one pass at a time
    output            "torch" (default if torch is installed), "numpy", "jax"
    sharding          a jax.sharding.Sharding, such as NamedSharding(mesh, PartitionSpec("data")), with output="jax":
                      batches have global arrays, of the rows of all processes, put there ahead as with device.
                      batch_size counts the rows of this process, and is a multiple of its devices along the batch
                      axis. ``ids``, ``valid``, texts and bytes are those of this process. Fields with fewer axes than
                      the PartitionSpec take its first entries. The default of tail is "fill", so that all batches have
                      one shape
    layout            of images, "nchw" (default) or "nhwc"
    prefetch          batches made ahead; default: 4
    memory            limit for batches and for large pictures while they are decoded: "2GiB", a number of bytes, or
                      "auto" (default): a quarter of the machine's free memory, shared by all loaders of the process
                      that have no limit of their own. A picture that needs more is decoded alone
    max_pixels        pictures with more pixels are not decoded and are bad samples; default 178,956,970, as in Pillow
    fetch             for data in stores, a dict of what is asked for at once: ahead (bytes requested beyond the batches
                      made ahead; "auto"), connections (requests at once, at most; "auto"), bandwidth (bytes per
                      second, at most, such as "100MB"; "none"), hedge (send slow requests a second time; True),
                      deadline (how long one read is tried: seconds, or "90s"; "10m"). Batches do not change
    cache             memory for samples that are the same in every epoch, decoded and transformed up to the first
                      random transform: "8GiB", a number of bytes, or True, a quarter of the machine's free memory; or
                      {"memory": "8GiB", "after": "decode"}, to keep them only decoded. Samples that do not fit are
                      decoded again in every epoch. Batches do not change. ``stats()["cache"]`` says what is kept
    entries           places in JPEGs from which crops are decoded faster, learned in the first epoch and kept beside
                      the index, for every process: "auto" (default), "off", or {"limit": "4GiB"} of disk, besides 1 %
                      of the data. Batches do not change. ``stats()["entries"]`` says what is known
    native            for a dataset of your own: None (default), the engine reads torchvision's ImageFolder, ImageNet
                      and DatasetFolder of pictures, timm's ImageDataset of a folder, and a Subset or ConcatDataset of
                      them, if it knows every step of their transform; otherwise Python makes the samples. The line at
                      start says which and why. Batches are lists in both cases. False: always Python. True:
                      ConfigError if the engine cannot
    batch_transform   torchvision's MixUp, CutMix, or a RandomChoice of these, or those of stoker.transforms, for every
                      batch: labels become float32 probabilities of shape (batch, num_classes). Seed, epoch and the
                      batch's first place decide what they draw. Rows that are not ``valid`` are left out. With
                      device="cuda", batches are mixed there. Otherwise those that the engine makes are mixed there, and
                      others in the training process. Any other function is called with each batch in the training
                      process, and what it returns is the batch
    device_transform  a transform or a list of them, done to the pictures of whole batches on the device: needs device=,
                      and pictures of one size. Of the transforms that the engine knows, it makes the choices, by the
                      keys of the samples, as if they followed the dataset's transform=; torch's operators do them.
                      MixUp, CutMix, or a RandomChoice of these may be the last of them, instead of batch_transform.
                      From the first step that it does not know, each is called with the pictures of a batch, with
                      torch's generators seeded by seed, epoch, step and rank, and put back afterwards
    decode_device     the device= again, or a pair of it and a share of the rows, in sixteenths, such as ("cuda", 0.5):
                      JPEGs are decoded, cropped, resampled and mirrored there, by nvJPEG (of torchcodec, or of
                      torchvision) and one kernel. The engine draws the boxes and checks the files' structure. Which
                      rows go there follows from seed, epoch and place. What that decoder refuses, and other kinds of
                      pictures, the engine decodes. Pixels differ from the engine's as far as nvJPEG's do from
                      libjpeg's. With "cpu", libjpeg-turbo decodes in the training process, and they are equal
    tune              "playbook", or the path of one: uses the num_workers and prefetch that ``stoker.tune`` found for
                      this machine and dataset, unless they are given here; with ``decode_device="cuda"``, those that it
                      found with that, and the share of the rows. Without a matching entry, warns and uses the defaults;
                      without the file, ConfigError

    Raises ConfigError at once for everything that is wrong with the keywords, in one message. On first use, raises
    ConfigError, DataError, SourceError and ResourceError for what is wrong with the dataset, its transforms or the
    memory for batches. Iterating may raise DataError, StallError, ResourceError and EngineError.

    The loader uses an engine while it is open: from its first use to ``close()``, the end of a ``with`` block, or its
    collection. Several threads may use it. A copy, and a pickle, has its settings, dataset and state, without
    engine, workers and iterators: its first pass is the next epoch.
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

    @overload
    def __init__(
        self: DataLoader[Any],
        dataset: MapStyle,
        batch_size: int | None = 1,
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
        seeding: str | None = None,
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
        device_prefetch: int | None = None,
        static_buffers: bool | None = None,
        output: str | None = None,
        sharding: Any = None,
        layout: str | None = None,
        prefetch: int | None = None,
        memory: str | int | None = None,
        max_pixels: int | None = None,
        fetch: Mapping[str, Any] | None = None,
        cache: Any = None,
        entries: Any = None,
        tune: str | None = None,
        native: bool | None = None,
        batch_transform: Any = None,
        device_transform: Any = None,
        decode_device: Any = None,
    ) -> None:
        keywords = {key: scalar(value) for key, value in locals().items() if key not in ("self", "dataset")}
        if (same := _trainers.again(keywords, _DEFAULTS, dataset)) is not None:
            self.__setstate__(same.__getstate__())
            return
        problems = Problems("DataLoader")
        recipe = None
        self._given = dataset  # as the user gave it
        self._keywords = dict(keywords)
        self._native, self._why = _native.find(dataset, keywords, problems)
        dataset = adopt(dataset, keywords, problems) if self._native is None else self._native.dataset
        if isinstance(dataset, Dataset):
            dataset._renew()
            recipe = replace(dataset._recipe(), cache=dataset._cached, **dataset._reads())
        self._settings = read(keywords, recipe, problems, dataset.user if isinstance(dataset, Own) else None)
        if (target := self._settings.target) is not None and target.jax and device is not None:
            self._keywords["device"] = target.device  # a jax.Device cannot be pickled
        if self._why and self._settings.hands is not None:
            self._settings = replace(self._settings, hands=replace(self._settings.hands, why=self._why))
        self._dataset: Dataset = dataset
        if tune is not None:
            self._settings = _tune.of_playbook(tune, self._settings, dataset)
        self._lock = threading.Lock()
        self._turns = threading.RLock()  # one thread at a time begins a pass; acquired before _lock
        self._early: weakref.ref[Early] | None = None  # for the next pass; iterators hold it
        self._unused: weakref.ref[Passage] | None = None  # the newest iterator, if no pass has begun since
        self._remote: _client.Loader | None = None
        self._before: list[Contents] = []  # what earlier loaders in the engine found
        self._maker: Any = None
        self._facts: Facts | None = None
        self._meter = Meter(self._asked_stats)
        self._static = Buffers() if self._settings.static else None
        self._made = _watch.location()
        self._name = _ranks.name()
        self._starts = _ranks.Starts(self._name)
        self._imported = (0, 0)  # from when to when opening it imported torch or JAX
        self._last: dict[str, Any] | None = None  # its numbers up to its close
        self._closing = False
        self._compared: list[int] = []  # the seeds with which it was opened and compared between ranks
        self._at = Position()
        self._check_sampler()
        self._remote_loader(tried=False, keeps=False).check()
        _trainers.show(self)

    def _passes_for(self) -> tuple[tuple[str, str], ...]:
        return (LOADER,)

    # Passes.

    def __iter__(self) -> Passage[T]:  # type: ignore[override]
        return self._iterate(self._settings.target)

    def _iterate(self, target: Target | None) -> Passage[T]:
        """A pass whose batches go to a device."""
        begun = monotonic_ns()  # the loop waits from here on
        if not self._settings.placed:
            _ranks.refuse_worker()
        with self._turns:
            self._renew()
            remote = self._opened()
            crew: Any = remote.crew
            shift = None if crew is None else crew.shift(self._next_pass()[0])
            early = self._read_ahead(remote)
        now = monotonic_ns()
        imported = max(0, self._imported[1] - max(self._imported[0], begun))
        if crew is not None:
            of = IterablePassage if self._settings.iterates else OwnPassage
            iterator: Passage[T] = of(self, remote, early, now - begun, imported, shift=shift)
        elif isinstance(self._settings.mix, Changes):
            iterator = OwnPassage(self, remote, early, now - begun, imported, shift=None)
        elif self._native is not None:
            iterator = NativePassage(self, remote, early, now - begun, imported)
        else:
            iterator = Passage(self, remote, early, now - begun, imported)
        iterator.target = target
        self._unused = weakref.ref(iterator)
        return iterator

    def _read_ahead(self, remote: _client.Loader) -> Early | None:
        """Starts reading the next pass; a user's sampler is not iterated before a batch is asked for."""
        if self._settings.open_ended:
            return None
        epoch, position, _ = self._next_pass()
        early = self._early() if self._early is not None else None
        if early is None or not early.fits(remote, epoch, position):
            early = Early(remote, epoch, position, self._stride)
            self._early = weakref.ref(early)
        return early

    def _changed(self, keywords: Mapping[str, Any]) -> DataLoader[Any]:
        """A copy, which begins at the same epoch; with other keywords, a new loader."""
        if all(self._keywords[key] == value or value is self._keywords[key] for key, value in keywords.items()):
            return copy(self)
        made: DataLoader[Any] = DataLoader(self._given, **{**self._keywords, **keywords})
        made.set_epoch(self._next_pass()[0])
        return made

    # The engine.

    def _asked(self) -> _client.Loader:
        return self._opened()

    def _opened(self) -> _client.Loader:
        with self._lock:
            self._settings.seed.settle()
            if self._remote is not None and self._seed_of(self._remote) != self._settings.seed.value:
                self._leave()
            if self._remote is None:
                self._reread()
                self._remote = self._remote_loader(before=self._before)
            remote = self._remote
            if not remote.open:
                info = remote.reopened()
                if self._settings.placement is not None:
                    self._settings.placement.check(info, self._settings, remote.spec.get("fields", []))
                made = self._dataset._batches(info, self._kind(), self._settings, remote.crew)
                self._maker = _mixing.around(made, self._settings)
                self._meter.opened(remote.number, info.lanes)
                self._last = None
                _watch.opened(remote.number, self._made)
                self._announce(info)
                self._compare_ranks(info)
            return remote

    def _remote_loader(self, tried: bool = True, **more: Any) -> _client.Loader:
        made = self._spec(tried)
        crew = self._dataset._crew(self._settings)
        target = self._settings.target
        bare = target is not None and target.moves and not target.jax  # for JAX the engine makes the floats
        members = self._dataset._members()
        there = bare or "device_transform" in made or "decode_device" in made
        mixes = there and "batch_transform" in made
        return _client.Loader(made, self._settings.deadline, members=members, crew=crew, bare=bare, mixes=mixes, **more)

    def _renew(self) -> None:
        """Drops the loader in the engine if the dataset has changed because a transform was assigned to it. Passes that
        have begun continue with the old one."""
        if self._remote is None:
            return
        self._reread()
        if self._remote is None:
            return
        if self._spec() != self._remote.spec:
            self._leave()

    def _spec(self, tried: bool = True) -> dict[str, Any]:
        native = self._settings.hands is None
        with fetching(self._settings.fetch):
            recipe, fields = self._dataset._recipe(), self._dataset._fields()
            made = spec(self._settings, recipe, fields, self._dataset._names if native else None)
            if self._settings.decoding is not None:
                made["decode_device"] = self._settings.decoding.spec(tried)
            return made

    def _reread(self) -> None:
        """Takes what the user's dataset says now, where the engine reads it: Python would see such changes too."""
        found = self._dataset if self._native is None else self._native.renewed()
        check_native(found)
        if found is self._dataset:
            return
        self._dataset = found
        if self._remote is not None:
            self._leave()
        self._before = []  # other samples are meant, not a change of the data

    def _leave(self) -> None:
        """Takes another loader in the engine, over the same data. Iterators that were begun hold the one before."""
        assert self._remote is not None
        if self._remote.crew is not None:
            self._remote.crew.leave()
        elif self._remote.opened is not None:
            self._before = self._remote.opened.contents
        self._remote = None

    def _kind(self) -> Kind:
        known, begin = self._settings.output in sys.modules, monotonic_ns()
        target = self._settings.target
        staged = target is not None and target.moves
        kind = make_kind(self._settings.output, self._settings.pin, staged)
        kind.decoder = None if self._settings.decoding is None else self._settings.decoding.decoder
        kind.counts = self._meter.copied
        _values.register()
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
        if self._ordered:
            facts["seed"] = seed
        self._compared.append(seed)
        try:
            _ranks.compare(f"{self._name}/{len(self._compared)}", facts, rank, world)
        except BaseException:
            self.close()
            self._compared.remove(seed)
            raise

    @property
    def _ordered(self) -> bool:
        """Whether seed and epoch decide the order."""
        return not self._settings.ordering.stored or self._dataset._recipe().mix is not None

    def _start_of(self, progress: Progress) -> _ranks.Start | None:
        """The start of a pass, to compare with the other ranks'; None if there is nothing to compare it with."""
        epoch, seed = (progress.epoch, self._settings.seed.value) if self._ordered else (0, None)
        position = progress.position if progress.way is None else progress.way.step
        return self._starts.next((epoch, position), seed, *self._rank)

    def _info(self) -> _client.Opened:
        """What the engine says about this loader; opens it only if that is not known."""
        known = self._remote.opened if self._remote is not None else None
        return known or self._opened().info()

    def _announce(self, info: _client.Opened) -> None:
        recipe = self._dataset._recipe()
        _line.announce(info, self._settings, self._rank, recipe.form, None if self._why else self._given)
        steps, items, size = self._epoch_steps, recipe.epoch_items, self._size
        if steps is not None and items is not None and steps not in (items, items / size):
            _notice.say(
                f".with_epoch({items}) with batches of {size}: an epoch has {steps} batches, {steps * size} samples on "
                f"every rank, because all batches are full; give a multiple of {size} for epochs of exactly that length"
            )

    def close(self) -> None:
        """Closes this loader in the engine, and ends the engine with the last loader. Batches that are held stay valid.
        Waits for copies to a device that are in flight.

        Existing iterators end; the loader opens again when it is used again.
        """
        if self._remote is not None and self._remote.open:
            self._closing = True
            try:
                told = self._meter.told()
            finally:
                self._closing = False
            # Otherwise its engine is gone, and its numbers with it.
            self._last = {**told, "open": False} if "read" in told else None
        self._meter.close()
        if self._remote is not None:
            self._remote.close()
        if self._meter.copied.device:
            _device.settle()

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
        this process's device (None without one), ``device`` what was copied there (None without ``device=``),
        ``cache`` what the cache holds, ``entries`` what is known of entry points of JPEGs, ``jpeg`` how many JPEGs each
        decoder handled: ``own``, ``libjpeg`` (progressive, CMYK, odd sampling, several scans), ``go``.
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
        # The position travels; engine, workers and iterators are this process's.
        dropped: dict[str, Any] = {
            "_at": self._at.alone(),
            "_early": None,
            "_imported": (0, 0),
            "_last": None,
            "_lock": None,
            "_turns": None,
            "_unused": None,
            "_meter": None,
            "_static": None,
            "_remote": None,
            "_maker": None,
            "_facts": None,
            "_before": [],
        }
        return {**_trainers.hidden(self), **dropped}

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "worker_init_fn" and _trainers.seeds_workers(value):
            return
        if name in _DEFAULTS and "_settings" in self.__dict__:
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
        self._static = Buffers() if self._settings.static else None
        _trainers.show(self)

    def __repr__(self) -> str:
        shown = kind(self._given) if self._native is not None else repr(self._dataset)
        return f"DataLoader({shown}, batch_size={self.batch_size})"

    # Attributes of torch's DataLoader.

    @property
    def dataset(self) -> Any:  # type: ignore[override]
        """The dataset, as it was given."""
        return self._given

    @property
    def facts(self) -> Facts | None:
        """``ids valid epoch step bad`` of the newest pass's last batch, for a dataset of your own or with a function as
        batch_transform; None before it."""
        return self._facts

    @property
    def batch_size(self) -> int | None:  # type: ignore[override]
        """Samples per batch on this rank, None if they are not batched here."""
        return self._settings.size

    @property
    def num_workers(self) -> int:  # type: ignore[override]
        """The requested number of lanes, by default the cores of this process; or of Python workers."""
        hands = self._settings.hands
        return hands.workers if hands is not None else self._settings.workers or cores()

    @property
    def drop_last(self) -> bool:  # type: ignore[override]
        """Whether a last batch that is not full is dropped."""
        return self._settings.tail == "drop"

    @property
    def timeout(self) -> float:  # type: ignore[override]
        """The seconds that were given."""
        return float(self._settings.torch["timeout"])

    @property
    def collate_fn(self) -> Any:  # type: ignore[override]
        """The function that makes a batch of a list of samples: the one that was given, else torch's. None if batches
        are not torch's, or before torch is imported. For stoker's datasets the engine stacks batches itself."""
        given, data = self._settings.torch["collate_fn"], sys.modules.get("torch.utils.data._utils.collate")
        if given is not None or data is None or self._settings.output != "torch":
            return given
        return data.default_convert if self._settings.single else data.default_collate

    @property
    def sampler(self) -> Any:  # type: ignore[override]
        """The user's sampler; without one, an object for loops that call ``set_epoch`` on it."""
        return self._sampler_of(self)

    def _sampler_of(self, loader: Any) -> Any:
        sampler = given(self._sampler)
        return sampler if sampler is not None and not self._settings.ordering.batched else Turns(loader)

    @property
    def batch_sampler(self) -> Any:  # type: ignore[override]
        """The user's batch sampler; without one, an object that knows ``sampler``, ``batch_size``, ``drop_last`` and
        the number of batches, and cannot be iterated. None if samples are not batched here."""
        return self._batches_of(self)

    def _batches_of(self, loader: Any) -> Any:
        if self._settings.ordering.batched:
            return given(self._sampler)
        size = self._settings.size
        return None if size is None else Batches(self._sampler_of(loader), size, self.drop_last, loader)

    def __getattr__(self, name: str) -> Any:
        if "_settings" in self.__dict__:
            with suppress(AttributeError):
                return _trainers.answer(self, name)
        raise no_attribute(self, name)


# What a loader is made of: none of it can be assigned to later.
_DEFAULTS = {name: one.default for name, one in inspect.signature(DataLoader.__init__).parameters.items()}
del _DEFAULTS["self"]

"""What a worker makes: samples and batches of them, each with the random numbers that it should have.

Maker     the dataset and the collate function of a worker
Settings  what it is told when it is started
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

from . import _frames, _inside, _keyed
from ._errors import many
from ._items import Items
from ._reports import LISTS, Failed, alone, report
from ._values import collated, collates_otherwise


@dataclass
class Settings:
    """What a worker is told when it is started."""

    worker: int
    workers: int
    base_seed: int
    trainer: int  # its process
    engine: int  # its process
    seeding: str = "key"  # or "worker", torch's rule
    worker_init_fn: Any = None  # or a Carried
    collate_fn: Any = None  # or a Carried; None: default_collate. Of unit WHOLE only
    whole: bool = False
    single: bool = False  # batch_size=None: collate_fn gets the sample, not a list
    size: int | None = None  # of an iterated dataset: samples in a batch; None: they are not batched
    drop: bool = False  # likewise: leave out the last batch, if it is not full
    items: bool = False  # call __getitems__
    direct: bool = False  # started by the trainer's main thread
    seed: int | None = None  # of the loader: base_seed is of one pass, and this tells those of others


class Carried:
    """A value that a spawned worker unpickles inside ``main``, where an error can be reported. Pickled as an argument
    of a multiprocessing process, so that locks, queues and shared tensors in it are allowed."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._data: bytes | None = None

    def __getstate__(self) -> bytes:
        return bytes(ForkingPickler.dumps(self._value))

    def __setstate__(self, data: bytes) -> None:
        self._data = data

    def open(self) -> Any:
        if self._data is not None:
            self._value, self._data = pickle.loads(self._data), None
        return self._value


def opened(value: Any) -> Any:
    return value.open() if isinstance(value, Carried) else value


def unpickling(error: BaseException) -> str | None:
    """The method that raised while a Carried was opened: "Photos.__setstate__"; None if none of the user's did."""
    frames = error.__traceback__
    opening = False
    while frames is not None:
        code, values = frames.tb_frame.f_code, frames.tb_frame.f_locals
        if opening and code.co_argcount:
            owner = values.get(code.co_varnames[0])
            return f"{type(owner).__qualname__}.{code.co_name}" if code.co_name == "__setstate__" else code.co_name
        opening = opening or code is Carried.open.__code__
        frames = frames.tb_next
    return "unpickling the dataset" if opening else None


class Maker:
    """Makes samples of ``dataset``. ``at`` is told what is in work: the page that the engine reads when a worker has
    died or is stuck, of which item 2 is the row + 1, 0 if there is none, and item 3 what else is done."""

    def __init__(self, dataset: Any, settings: Settings, at: Any) -> None:
        self.dataset = dataset
        self.settings = settings
        self.at = at
        self._key = 0
        self._base = settings.base_seed
        self._libraries = _inside.Libraries(
            settings.worker, settings.workers, settings.base_seed + settings.worker, dataset
        )
        self._libraries.look()
        _keyed.seed_worker(settings.base_seed, settings.worker)
        self._fresh = True  # no pass has begun
        # Whether worker_init_fn has seeded a generator: that lasts for as long as the worker, as in torch.
        self._seeded = False
        init = opened(settings.worker_init_fn)
        if init is not None:
            before = _keyed.states()
            try:
                init(settings.worker)
            except BaseException as error:
                hint = (
                    f"call worker_init_fn({settings.worker}) in the training process to see whether it fails there too"
                )
                raise Failed(report(error, "worker_init_fn raised ", hint)) from error
            self._seeded = _keyed.states() != before
        self._libraries.look()
        self._seeder = _keyed.Seeder(dataset)
        # None: samples need no key.
        self._seed: Callable[[int], None] | None = None
        if settings.seeding == "key" and self._seeder.draws:
            self._seed = self._seeder.seed
        # What the engine has made of the sample of a row, if it begins them.
        self.begun: Callable[[int], Any] | None = None
        self.tones = False  # pictures may be a Toned
        self._get: Callable[[Any], Any] = _keyed.getter(dataset, lambda: self._key)
        if _keyed.wants_key(dataset):
            self._seed = self._seed or (lambda key: None)
        self.given = Items()
        collate = opened(settings.collate_fn)
        self._collate = _keyed.with_rng(collate or collated, lambda: self._key)
        self.stacks = collate is None and not collates_otherwise()  # as rows are, if the worker makes whole batches

    def look(self) -> None:
        """Before work: a sample may have imported a library."""
        self._libraries.look()

    def begins(self, epoch: int, batch: int = 0) -> int:
        """A pass over an epoch begins, or goes on at a batch. The first one has been seeded already, before
        worker_init_fn. Returns the worker's key."""
        settings = self.settings
        base = settings.base_seed if settings.seed is None else _keyed.base_seed(settings.seed, epoch)
        key = base + settings.worker
        if (self._base, self._fresh) == (base, True) and not batch:
            self._fresh = False
            return key
        self._base, self._fresh = base, False
        self._libraries.reseed(key)
        if settings.seeding == "worker" and not self._seeded:
            again = batch and settings.seed is not None
            _keyed.seed_worker(_keyed.base_seed(settings.seed or 0, epoch, batch) if again else base, settings.worker)
        return key

    def samples(self, tasks: Sequence[tuple[int, ...]]) -> list[Any]:
        """The samples of tasks; a Failed for each that raised."""
        if self.begun is not None:
            return self._finished(tasks, self.begun)
        found: list[Any] = []
        get, seed, at = self._get, self._seed, self.at
        if self.given:
            get = self._of_item
        while len(found) < len(tasks):
            try:
                if seed is None:
                    for row, _, number, _, _ in tasks[len(found) :]:
                        at[2] = row + 1
                        found.append(get(number))
                else:
                    for row, _, number, key, _ in tasks[len(found) :]:
                        at[2] = row + 1
                        self._key = key
                        seed(key)
                        found.append(get(number))
            except BaseException as error:
                name = self.given.name(tasks[len(found)][2])
                found.append(Failed(report(error, f"dataset[{name}] raised ", alone(error, name))))
        at[2] = 0
        return found

    def _finished(self, tasks: Sequence[tuple[int, ...]], begun: Callable[[int], Any]) -> list[Any]:
        """The same where the engine has begun the samples."""
        found: list[Any] = []
        made = self.dataset.maker(self.tones)
        for row, _, number, key, _ in tasks:
            self.at[2] = row + 1
            self._key = key
            try:
                if self._seed is not None:
                    self._seed(key)
                found.append(made(number, begun(row), lambda: self._key))
            except BaseException as error:
                found.append(Failed(report(error, f"sample {number}: ", alone(error, str(number)))))
        self.at[2] = 0
        return found

    def _of_item(self, number: int) -> Any:
        return self._get(self.given[number])

    def items(self, tasks: Sequence[tuple[int, ...]]) -> list[Any] | Failed:
        """The samples of tasks by one call of __getitems__."""
        numbers: list[Any] = [task[2] for task in tasks]
        try:
            if self.given:
                numbers = [self.given[number] for number in numbers]
            if self._seed is not None and tasks:
                self._seed(tasks[0][3])
            self.at[2] = tasks[0][0] + 1
            found = list(self.dataset.__getitems__(numbers))
            if len(found) != len(numbers):
                raise ValueError(f"it returned {many(len(found), 'sample')} for {many(len(numbers), 'id')}")
            return found
        except BaseException as error:
            return Failed(report(error, "__getitems__ raised ", LISTS))
        finally:
            self.at[2] = 0

    def collate(self, samples: list[Any], key: int) -> Any:
        """The batch of samples; ``key`` is that of the first row."""
        self._key = _keyed.collate_key(key)
        if self.settings.seeding == "key":
            self._seeder.seed(self._key)
        self.at[3] = _frames.COLLATING
        try:
            return self._collate(samples[0] if self.settings.single else samples)
        finally:
            self.at[3] = _frames.IDLE

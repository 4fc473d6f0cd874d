"""Datasets that are iterated: what one worker, or the trainer with num_workers=0, does with its own copy.

Walk    one pass over it: batches in their order, from wherever they are asked for
Walks   the passes that are under way

The engine asks for a batch by its number. One that comes next is made; to come to a later one, samples are taken and
dropped; an earlier one (batches that were made ahead may be given up) is reached from where the pass began. A dataset
with ``state_dict`` and ``load_state_dict`` says with each batch where it is, and begins there after a resume or a
death; any other begins at its beginning.
"""

from __future__ import annotations

import pickle
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any

from . import _keyed
from ._order import below
from ._reports import Failed, report

TURN = struct.Struct("<QQQ")  # batch, pass, number of the batch
MADE = struct.Struct("<QQQII")  # batch, bytes, nanoseconds, samples, bytes of what is told
_WALK = struct.Struct("<QQQI")  # pass, epoch, batches before, bytes of what was told
_OVER = struct.Struct("<Q")
MAX_STATE = 1 << 20  # bytes of a dataset's state, which comes with every batch


def saves(dataset: Any) -> bool:
    """Whether a dataset can say where it is, and go on from there."""
    return not unsaved(dataset)


def unsaved(dataset: Any) -> str:
    """Why it cannot, as a clause; empty if it can."""
    if not callable(getattr(dataset, "state_dict", None)) or not callable(getattr(dataset, "load_state_dict", None)):
        return "has no state_dict and load_state_dict"
    if _buffers(getattr(dataset, "_ex_iterable", None)):
        return "leaves its shuffle buffer out of its state_dict"
    return ""


def _buffers(source: Any, depth: int = 0) -> bool:
    """Whether a pipeline of Hugging Face's ``datasets`` has a shuffle buffer. After load_state_dict it would begin with
    an empty one: the samples in the old one would be lost, and others come twice."""
    if source is None or depth > 64:
        return False
    if type(source).__name__ == "BufferShuffledExamplesIterable":
        return True
    inner = [getattr(source, "ex_iterable", None), *getattr(source, "ex_iterables", ())]
    return any(_buffers(one, depth + 1) for one in inner)


def tell(**facts: Any) -> bytes:
    """What is said with a batch: the ``state`` of the dataset after it, or why it is ``unsaved``; whether the dataset
    ``ended`` with it; what was ``repeated`` to come to it, as a number of samples and seconds. Only told() reads it."""
    return pickle.dumps(facts, 5) if facts else b""


def told(data: bytes) -> dict[str, Any]:
    found: dict[str, Any] = pickle.loads(data) if data else {}
    return found


class Walk:
    """One pass. ``size`` is the number of samples in a batch, None for single ones. ``seed(number)`` seeds what the
    dataset may draw from before it is iterated from this batch on, and returns the key of a parameter ``rng``. ``load``
    puts the dataset where an iteration begins."""

    def __init__(
        self,
        dataset: Any,
        size: int | None,
        drop: bool,
        seed: Callable[[int], int],
        load: Callable[[dict[str, Any]], None],
        after: int,
        data: bytes,
    ) -> None:
        self._dataset = dataset
        self._size = size or 1
        self._drop = drop and size is not None
        self._seed = seed
        self._load = load
        self._from = told(data)
        self._after = after if self._from.keys() & {"state", "ended"} else 0
        self._samples: Iterator[Any] | None = None
        self._next = 0  # number of the batch that comes next
        self._ended = bool(self._from.get("ended"))
        self._failed: Failed | None = None
        self._told: dict[str, Any] = {}
        self._key = 0
        self.random: Any = None  # the states of the generators, while something else runs

    def batch(self, number: int) -> list[Any] | None:
        """The samples of a batch; None if there is no such batch. Failed if the user's code raises, now or for a batch
        before it: a generator that has raised seems to have come to its end."""
        self._told = {}
        if self._failed is not None:
            raise self._failed
        if self._ended:
            return None
        try:
            samples = self._samples
            if samples is None:
                samples = self._begin()
            self._skip(samples, number)
            found = self._take(samples)
        except Exception as error:
            self._failed = Failed(broken(error))
            raise self._failed from error
        self._next = number + 1
        return None if not found or (self._drop and len(found) < self._size) else found

    def _begin(self) -> Iterator[Any]:
        dataset = self._dataset
        if self.random is None:  # its generators go on otherwise
            self._key = self._seed(self._after)
        self._load(self._from)
        self._next = self._after
        asks = _keyed.takes_rng(dataset.__iter__)
        key = below(self._key, self._after) if self._after else self._key
        self._samples = samples = dataset.__iter__(rng=_keyed.generator(key)) if asks else iter(dataset)
        return samples  # type: ignore[no-any-return]

    @property
    def under_way(self) -> bool:
        return self._samples is not None and not self._ended

    def suspend(self) -> None:
        """Another pass takes over the dataset. If the dataset has a state, this pass goes on from it later; if not,
        both passes share the dataset."""
        if self.under_way and saves(self._dataset):
            with suppress(Exception):
                self._from = {"state": deepcopy(self._dataset.state_dict())}
                self._after, self._samples = self._next, None

    def _skip(self, samples: Iterator[Any], number: int) -> None:
        """Takes the samples of the batches before this one, and drops them."""
        if self._next >= number:
            return
        begin, n = time.monotonic(), 0
        while self._next < number and not self._ended:
            n += len(self._take(samples))
            self._next += 1
        if n:
            self._told["repeated"] = n, time.monotonic() - begin

    def _take(self, samples: Iterator[Any]) -> list[Any]:
        found: list[Any] = []
        while len(found) < self._size and not self._ended:
            try:
                found.append(next(samples))
            except StopIteration:  # it is not asked again: some begin anew
                self._ended = True
        return found

    def collate_key(self, number: int) -> int:
        """The key of the function that makes a batch of the samples of this one."""
        return below(self._key, number)

    def told(self) -> bytes:
        """What is said with the batch that was made last."""
        if self._ended:
            self._told["ended"] = True
        elif saves(self._dataset):
            try:
                data = tell(**self._told, state=self._dataset.state_dict())
                if len(data) <= MAX_STATE:
                    return data
                why = f"it takes {len(data) / (1 << 20):.1f} MiB, and {MAX_STATE >> 20} MiB can come with a batch"
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
            self._told["unsaved"] = why
        return tell(**self._told)


def broken(error: BaseException) -> bytes:
    """What the engine is told of an exception while a dataset was iterated."""
    hint = "a generator cannot go on after it has raised, so on_bad cannot skip this: catch it in __iter__ itself"
    return report(error, "iterating the dataset raised ", retry=False, hint=hint)


class Walks:
    """The passes of one worker. ``seed(epoch, number)`` as for Walk. Numbers that one pass draws do not depend on
    another: the generators are put back when the worker turns to another pass."""

    def __init__(self, dataset: Any, size: int | None, drop: bool, seed: Callable[[int, int], int]) -> None:
        self._dataset = dataset
        self._size, self._drop = size, drop
        self._seed = seed
        self._walks: dict[int, Walk] = {}
        self._last: Walk | None = None  # whose numbers the generators give now
        self._current: Walk | None = None  # the last that iterated the dataset
        # The dataset's state before any iteration, if it has one. A pass from the beginning gets it back after another
        # pass has changed it.
        self._first: list[Any] | None = None
        self._left = False

    def begin(self, body: bytes) -> None:
        number, epoch, after, _ = _WALK.unpack_from(body)
        self._forget(number)
        self._walks[number] = Walk(
            self._dataset,
            self._size,
            self._drop,
            lambda at: self._seed(epoch, at),
            self._load,
            after,
            body[_WALK.size :],
        )

    def _load(self, said: dict[str, Any]) -> None:
        if self._first is None:
            self._first = []
            if saves(self._dataset):
                with suppress(Exception):  # some have none before they are iterated
                    self._first.append(deepcopy(self._dataset.state_dict()))
        if "state" in said:
            self._dataset.load_state_dict(said["state"])
            self._left = True
        elif self._left and self._first:
            self._dataset.load_state_dict(deepcopy(self._first[0]))

    def over(self, body: bytes) -> None:
        self._forget(*_OVER.unpack(body))

    def _forget(self, number: int) -> None:
        walk = self._walks.pop(number, None)
        if walk is self._last:
            self._last = None
        if walk is not None and walk is self._current:
            self._left = self._left or walk.under_way
            self._current = None

    def turn(self, number: int) -> Walk:
        """The walk of a pass, whose generators go on where they were."""
        walk = self._walks[number]
        if walk is not self._current:
            if self._current is not None and self._current.under_way:
                self._current.suspend()
                self._left = True
            self._current = walk
        if walk is not self._last:
            self.rest()
            if walk.random is not None:
                _keyed.give(walk.random)
            self._last = walk
        return walk

    def rest(self) -> None:
        """Something else draws random numbers from now on."""
        if self._last is not None:
            self._last.random, self._last = _keyed.taken(), None

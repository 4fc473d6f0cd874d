"""An order that comes from a user's sampler, one piece at a time.

Feed takes ids from the sampler as they are needed, in pieces of whole batches, so that an endless sampler, or one over
a billion samples, costs only the current pieces. Places are numbered throughout, and so are batches if the sampler
gives lists. A running digest of the ids that were given is part of the state: without it, a sampler that gives other
ids after a restart would silently continue another run.

For a dataset of the user's own, a sampler may give anything (_items.py). What it gives first in a pass decides whether
it gives ids: ids and other things in one pass would make receipts count ids and places. Where the dataset has no
length, integers of more bits and bools are such things. Ids that are not plain ints (NumPy's, tensors), or that count
from the end, are ids to the engine and go to ``__getitem__`` as they are. Of every dataset, -1 is the last sample.
"""

from __future__ import annotations

import hashlib
import operator
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from ._advice import MASKED
from ._errors import MAX_COUNT, ConfigError, StateError, many
from ._items import packed, shown, stamp, typed
from ._numbers import is_flag, is_mask

PIECE = 65536  # ids
ANOTHER_RANKS = "another rank's"  # in place of a digest: this rank's sampler may give other ids, so they are not known
FEW = 4096  # things that are not ids
MOST_BYTES = 4 << 20  # of these


class Piece:
    """Consecutive ids of the order, and where they are split into batches. ``items`` is what the sampler gave, if that
    is not plain ints; ``marks`` what a digest knows it by, if it is not ids: the ids are places then."""

    def __init__(
        self,
        ids: array[int],
        items: list[str],
        marks: list[bytes],
        cuts: list[int] | None,
        place: int,
        item: int,
        rank: int = 0,
    ) -> None:
        self.ids = ids
        self.items = items
        self.marks = marks
        self.cuts = cuts
        self.place = place  # place of the first id
        self.item = item  # number of the first batch; without splits the same as place
        self.rank = rank  # of the process: its samples have keys of their own

    @property
    def end(self) -> int:
        """The item after the last."""
        return self.item + (len(self.ids) if self.cuts is None else len(self.cuts))

    def begin(self, item: int) -> int:
        """Index into ids at which an item begins."""
        return item - self.item if self.cuts is None else sum(self.cuts[: item - self.item])

    def left(self, item: int) -> dict[str, Any]:
        """The remainder from an item on, in wire form."""
        at = self.begin(item)
        left: dict[str, Any] = {"ids": self.ids[at:].tolist(), "place": self.place + at, "item": item}
        if self.rank:
            left["rank"] = self.rank
        if self.cuts is not None:
            left["cuts"] = self.cuts[item - self.item :]
        if self.items:
            left["items"] = self.items[at:]
        return left


def _items(sampler: Any, name: str, opaque: bool) -> Iterator[Any]:
    """The items of a sampler; unless they go to ``__getitem__`` as they are, arrays and tensors of integers become
    Python's, one part at a time."""
    kind = str(getattr(sampler, "dtype", "")).removeprefix("torch.")
    shape = getattr(sampler, "shape", ())
    if not kind or not hasattr(sampler, "tolist") or not shape or (opaque and (len(shape) > 1 or kind != "bool")):
        yield from sampler
        return
    if kind == "bool":
        raise ConfigError(f"the sampler is a {name} of bools; a sampler must give ids", hint=MASKED)
    for begin in range(0, len(sampler), PIECE):
        yield from sampler[begin : begin + PIECE].tolist()


def _is_id(value: Any) -> bool:
    try:
        operator.index(value)
    except TypeError:
        return False
    return getattr(value, "shape", ()) == ()


def _is_key(value: Any) -> bool:
    """Whether an integer can only be a key of a dataset without a length: a hash, a truth."""
    return is_flag(value) or not -MAX_COUNT <= operator.index(value) < MAX_COUNT


class Feed:
    """One pass over a sampler. ``size`` is the number of ids in a batch; ``batched``: the sampler gives lists.
    ``samples``: what it gives need not be ids, and goes as it is to a dataset of so many (MAX_COUNT: it has no length);
    None: it gives ids, of ``there`` samples. ``rank`` is that of the process."""

    def __init__(
        self, sampler: Any, size: int, batched: bool, drop: bool, samples: int | None, there: int, rank: int = 0
    ) -> None:
        opaque = samples is not None
        self._name = type(sampler).__name__
        self._items: Iterator[Any] = _items(sampler, self._name, opaque)
        self._samples = samples
        self._there = there if samples is None else samples
        self._ids: bool | None = None if opaque else True  # whether it gives ids; None: not known yet
        self._size = size
        self._batched = batched
        self._drop = drop
        self._rank = rank
        self._place = 0  # places and items taken from the sampler so far
        self._item = 0
        self._digest = hashlib.blake2b(digest_size=8)

    def skip(self, items: int, seen: str) -> None:
        """Skips what was given before; StateError if the sampler gives something else now than in the saved run."""
        for _ in range(items):
            found = self._next()
            if found is None:
                raise self._other(f"it ended after {many(self._item, 'item')}, but the state was saved after {items}")
            ids, given = found
            self._taken(ids)
            self._received(array("q", ids) if self._ids else [stamp(one) for one in given])
        if seen not in (self.seen, ANOTHER_RANKS):
            raise self._other(f"its first {items} items are not those of the saved run")

    def _taken(self, ids: list[Any]) -> None:
        self._place += len(ids)
        self._item += 1

    def _other(self, cause: str) -> StateError:
        return StateError(
            f"the sampler {self._name} does not give the ids of the saved run",
            cause=cause,
            hint="give it its own seed (a torch.Generator, seed=), and the epoch with set_epoch(); stoker's "
            "samplers do both",
        )

    @property
    def seen(self) -> str:
        """A digest of all ids that were given."""
        return self._digest.hexdigest()

    def received(self, piece: Piece, begin: int, end: int) -> None:
        """Counts items of a piece as given."""
        for item in range(begin, end) if self._batched else (begin,):
            stop = item + 1 if self._batched else end
            run = slice(piece.begin(item), piece.begin(stop))
            self._received(piece.marks[run] if piece.marks else piece.ids[run])

    def _received(self, ids: array[int] | list[bytes]) -> None:
        if self._batched:
            self._digest.update(len(ids).to_bytes(4, "little"))
        if isinstance(ids, array):
            self._digest.update(ids.tobytes())
        else:
            for mark in ids:
                self._digest.update(len(mark).to_bytes(4, "little") + mark)

    def _next(self) -> tuple[list[int], list[Any]] | None:
        """The ids of the next item, and what the sampler gave: other things than ids have places."""
        samples = self._samples
        if self._ids is None and samples == MAX_COUNT:
            self._look()
        for item in self._items:
            try:
                given = [*item] if self._batched else [item]
                if self._ids is None and given:
                    self._ids = _is_id(given[0])
                if self._ids is False:
                    return list(range(self._place, self._place + len(given))), given
                ids = [operator.index(i) for i in given]
            except TypeError as error:
                raise self._not_ids(item, str(error)) from error
            if ids and ids[0] in (0, 1) and is_flag(given[0]):  # to Python, True is an integer
                raise self._not_ids(item)
            for at, i in enumerate(ids):
                if -self._there <= i < 0:
                    ids[at] += self._there
                elif samples == MAX_COUNT and not 0 <= i < samples:
                    raise self._not_ids(item)
                elif not -(1 << 63) <= i < 1 << 63:
                    raise ConfigError(
                        f"the sampler {self._name} gave sample {i} as item {self._item}",
                        hint="ids are integers from 0 to len(dataset) - 1",
                    )
            return ids, given
        return None

    def _look(self) -> None:
        """Decides it for a dataset without a length, which has any integers for keys: the first piece are ids, or
        none is."""
        ahead: list[Any] = []
        left = FEW
        keys = False
        for item in self._items:
            given = item
            if self._batched and isinstance(item, Iterable):
                given = [*item]
            ahead.append(given)
            each = given if self._batched and isinstance(given, list) else [given]
            keys = keys or any(_is_id(one) and _is_key(one) for one in each)
            left -= len(each)
            if keys or left <= 0:
                break
        self._items = chain(ahead, self._items)
        if keys:
            self._ids = False

    def _not_ids(self, item: Any, cause: str | None = None) -> ConfigError:
        what = "lists of ids" if self._batched else "ids"
        masked = is_flag(item) or is_mask(item)
        hint = "ids are integers from 0 to len(dataset) - 1"
        if self._ids and self._item and self._samples is not None:
            hint = "its first items were ids: give ids throughout a pass, or no id, such as (index,)"
        elif not self._batched and isinstance(item, Iterable) and not isinstance(item, (str, bytes)):
            hint = "give the ids in one list: sampler=numpy.ravel(ids); lists of ids are for batch_sampler="
        return ConfigError(
            f"the sampler {self._name} gave {shown(item)} as item {self._item}; it must give {what}",
            cause=None if masked else cause,
            hint=MASKED if masked else hint,
        )

    def piece(self) -> Piece | None:
        """The next piece; None at the end."""
        ids = array("q")
        items: list[str] = []
        marks: list[bytes] = []
        cuts: list[int] = []
        place, item = self._place, self._item
        bytes_left = MOST_BYTES
        enough = max(self._size, PIECE - PIECE % self._size)
        while len(ids) < enough and (found := self._next()) is not None:
            numbers, given = found
            if not numbers:
                raise ConfigError(
                    f"the sampler {self._name} gave an empty batch as item {self._item}",
                    hint="leave out empty batches: a batch has at least one id",
                )
            if not self._ids:
                for one in given:
                    items.append(packed(one, self._name, self._item))
                    marks.append(stamp(one))
                    bytes_left -= len(items[-1])
                if bytes_left < 0 or len(items) >= FEW:
                    enough = -(-len(items) // self._size) * self._size  # whole batches
            elif self._samples is not None:
                self._as_given(numbers, given, items, len(ids))
            ids.extend(numbers)
            cuts.append(len(numbers))
            self._taken(numbers)
        if self._drop and not self._batched:
            del ids[len(ids) - len(ids) % self._size :]
            del items[len(ids) :]
            del marks[len(ids) :]
        return Piece(ids, items, marks, cuts if self._batched else None, place, item, self._rank) if ids else None

    def _as_given(self, numbers: list[int], given: list[Any], items: list[str], before: int) -> None:
        """Adds what the dataset is asked for where a sampler gave these ids, if not only plain ints came so far."""
        if not items and all(type(one) is int for one in given) and given == numbers:
            return
        samples = self._samples or 0
        items.extend([""] * (before - len(items)))
        for number, one in zip(numbers, given, strict=True):
            if not 0 <= number < samples:
                raise ConfigError(
                    f"the sampler gave sample {number} at place {self._place + len(items) - before}, but the dataset "
                    f"has {many(samples, 'sample')}",
                    hint="a sampler gives numbers from 0 to len(dataset) - 1",
                )
            items.append(typed(one, number, self._name, self._item))

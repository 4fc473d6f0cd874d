"""An order that comes from a user's sampler, one piece at a time.

Feed takes ids from the sampler as they are needed, in pieces of whole batches, so that an endless sampler, or one over
a billion samples, costs only the current pieces. Places are numbered throughout, and so are batches if the sampler
gives lists. A running digest of the ids that were given is part of the state: without it, a sampler that gives other
ids after a restart would silently continue another run.
"""

from __future__ import annotations

import hashlib
import operator
from array import array
from collections.abc import Iterator
from typing import Any

from ._errors import ConfigError, StateError

PIECE = 65536  # ids


class Piece:
    """Consecutive ids of the order, and where they are split into batches."""

    def __init__(self, ids: array[int], cuts: list[int] | None, place: int, item: int) -> None:
        self.ids = ids
        self.cuts = cuts
        self.place = place  # place of the first id
        self.item = item  # number of the first batch; without splits the same as place

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
        if self.cuts is not None:
            left["cuts"] = self.cuts[item - self.item :]
        return left


def _items(sampler: Any, name: str) -> Iterator[Any]:
    """The items of a sampler; arrays and tensors of integers become Python's, one part at a time."""
    kind = str(getattr(sampler, "dtype", "")).removeprefix("torch.")
    if not kind or not hasattr(sampler, "tolist") or not getattr(sampler, "shape", ()):
        yield from sampler
        return
    if kind == "bool":
        raise ConfigError(
            f"the sampler is a {name} of bools; a sampler must give ids",
            hint="give the ids of the samples for which it is true: mask.nonzero()[0], or torch.where(mask)[0]",
        )
    for begin in range(0, len(sampler), PIECE):
        yield from sampler[begin : begin + PIECE].tolist()


class Feed:
    """One pass over a sampler. ``size`` is the number of ids in a batch; ``batched``: the sampler gives lists."""

    def __init__(self, sampler: Any, size: int, batched: bool, drop: bool) -> None:
        self._name = type(sampler).__name__
        self._items: Iterator[Any] = _items(sampler, self._name)
        self._size = size
        self._batched = batched
        self._drop = drop
        self._place = 0  # places and items taken from the sampler so far
        self._item = 0
        self._digest = hashlib.blake2b(digest_size=8)

    def skip(self, items: int, seen: str) -> None:
        """Skips what was given before; StateError if the sampler gives something else now."""
        for _ in range(items):
            ids = self._next()
            if ids is None:
                raise self._other(f"it ended after {self._item} items, but the state was saved after {items}")
            self._taken(ids)
            self._received(array("q", ids))
        if self.seen != seen:
            raise self._other(f"its first {items} items are not those of the saved run")

    def _taken(self, ids: list[int]) -> None:
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
            self._received(piece.ids[piece.begin(item) : piece.begin(stop)])

    def _received(self, ids: array[int]) -> None:
        if self._batched:
            self._digest.update(len(ids).to_bytes(4, "little"))
        self._digest.update(ids.tobytes())

    def _next(self) -> list[int] | None:
        """The ids of the next item."""
        for item in self._items:
            try:
                ids = [operator.index(i) for i in item] if self._batched else [operator.index(item)]
            except TypeError as error:
                what = "lists of ids" if self._batched else "ids"
                raise ConfigError(
                    f"the sampler {self._name} gave {item!r:.80} as item {self._item}; it must give {what}",
                    cause=str(error),
                    hint="ids are integers from 0 to len(dataset) - 1",
                ) from error
            for i in ids:
                if not -(1 << 63) <= i < 1 << 63:
                    raise ConfigError(
                        f"the sampler {self._name} gave sample {i} as item {self._item}",
                        hint="ids are integers from 0 to len(dataset) - 1",
                    )
            return ids
        return None

    def piece(self) -> Piece | None:
        """The next piece; None at the end."""
        ids = array("q")
        cuts: list[int] = []
        place, item = self._place, self._item
        enough = max(self._size, PIECE - PIECE % self._size)
        while len(ids) < enough and (found := self._next()) is not None:
            if not found:
                raise ConfigError(
                    f"the sampler {self._name} gave an empty batch as item {self._item}",
                    hint="leave out empty batches: a batch has at least one id",
                )
            ids.extend(found)
            cuts.append(len(found))
            self._taken(found)
        if self._drop and not self._batched:
            del ids[len(ids) - len(ids) % self._size :]
        return Piece(ids, cuts if self._batched else None, place, item) if ids else None

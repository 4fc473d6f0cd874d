"""Small batches that come together: one message and one slot for several steps, so that each costs a few operations.

Plan    how the columns of such messages lie, worked out once and used as long as they say the same
Bundle  the batches of one message, one after the other

The rows of a bundle's steps lie one step behind the other in every column. Its arrays are views of the slot as long as
little is held: who keeps one batch keeps its bundle. Whoever keeps more gets copies, each of its own, so that memory
grows by what is kept and the slots stay with the engine.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ._client import Field
from ._wire import Message

# A column of less than this a step is copied at once for all steps: labels, ids.
SMALL_BYTES = 4096
# Bundles whose slots are held, from which on batches are copies: the loop has a batch of one, and takes the next.
HELD = 4

Put = Callable[[list[Any], Any, int, bool], None]


class Plan:
    """Cuts messages with these columns, of steps of so many rows.

    ``fields`` are what batches hold, in order; ``facts`` the columns behind them with their types, in order.
    """

    def __init__(self, kind: Any, fields: Mapping[str, Field], facts: Mapping[str, str], message: Message) -> None:
        self.rows: int = message["rows"]
        self.columns: list[dict[str, Any]] = message["data"]
        self._kind = kind
        self._small: list[tuple[int, str, tuple[int, ...], int]] = []  # place, dtype, shape of a row, offset
        self._large: list[Put] = []
        columns = {column["name"]: column for column in self.columns}
        dtypes = {**{name: field.dtype for name, field in fields.items()}, **facts}
        places = {name: at for at, name in enumerate(dtypes)}
        self.values = len(places)
        for group in groups(columns):
            self._add_views([(places[name], columns[name]) for name in group], dtypes[group[0]])
        for name, dtype in dtypes.items():
            column = columns[name]
            if "strides" not in column:
                self._add(places[name], dtype, tuple(column.get("shape") or ()), column["off"])

    def fits(self, message: Message) -> bool:
        return bool(self.rows == message["rows"] and self.columns == message["data"])

    def _add(self, place: int, dtype: str, shape: tuple[int, ...], off: int) -> None:
        kind, whole = self._kind, (self.rows, *shape)
        size = total(whole) * BYTES[dtype]
        if size < SMALL_BYTES:
            self._small.append((place, dtype, shape, off))
            return

        def put(values: list[Any], root: Any, step: int, own: bool) -> None:
            array = kind.view(root, dtype, whole, off + step * size)
            values[place] = kind.finish(kind.own(array) if own else array)

        self._large.append(put)

    def _add_views(self, group: Sequence[tuple[int, Mapping[str, Any]]], dtype: str) -> None:
        """Fields that show parts of the same rows: views of one array a step."""
        kind = self._kind
        begin, elements, shown = layout([column for _, column in group], self.rows, BYTES[dtype])
        places = [place for place, _ in group]
        size = self.rows * group[0][1]["strides"][0]

        def put(values: list[Any], root: Any, step: int, own: bool) -> None:
            base = kind.view(root, dtype, (elements,), begin + step * size)
            if own:
                base = kind.own(base)
            for place, (shape, strides, first) in zip(places, shown, strict=True):
                values[place] = kind.finish(kind.strided(base, shape, strides, first))

        self._large.append(put)

    def small(self, root: Any, steps: int) -> list[tuple[int, Sequence[Any]]]:
        """The small columns of all steps: the place of each among the values, and its arrays."""
        kind = self._kind
        found: list[tuple[int, Sequence[Any]]] = []
        for place, dtype, shape, off in self._small:
            array = kind.own(kind.view(root, dtype, (steps * self.rows, *shape), off))
            found.append((place, [kind.finish(piece) for piece in kind.split(array, self.rows, steps)]))
        return found

    def step(self, root: Any, small: list[tuple[int, Sequence[Any]]], step: int, own: bool) -> list[Any]:
        """What one step holds: fields, then facts."""
        values: list[Any] = [None] * self.values
        for place, arrays in small:
            values[place] = arrays[step]
        for put in self._large:
            put(values, root, step, own)
        return values


class Holds:
    """The slots of bundles that somebody can still see."""

    def __init__(self) -> None:
        self._roots: list[weakref.ref[Any]] = []

    def many(self, root: Any) -> bool:
        """Whether too many are held for one more, which is counted unless it is so."""
        self._roots = [held for held in self._roots if held() is not None]
        if len(self._roots) >= HELD:
            return True
        self._roots.append(weakref.ref(root))
        return False


class Bundle:
    """The batches of a message, as ``build(values, epoch, step)`` makes them."""

    def __init__(
        self, plan: Plan, holds: Holds, message: Message, root: Any, build: Callable[[list[Any], int, int], Any]
    ) -> None:
        self._build = build
        self._message = message
        self._parts: list[Message] = message["parts"]
        self._next = 0
        self._small = plan.small(root, len(self._parts))
        self._plan = plan
        self._root: Any = root
        self._copies: Iterator[list[Any]] | None = None
        if holds.many(root):
            self._copies = iter([plan.step(root, self._small, step, True) for step in range(len(self._parts))])
            self._root = None

    @property
    def spent(self) -> bool:
        return self._next == len(self._parts)

    def take(self) -> tuple[Any, Message]:
        """The next batch, and what the message says of it."""
        step = self._next
        values = (
            next(self._copies) if self._copies is not None else self._plan.step(self._root, self._small, step, False)
        )
        built = self._build(values, self._message["epoch"], self._message["step"] + step)
        self._next += 1
        return built, self._parts[step]


def groups(columns: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """The columns that show parts of rows, those of the same rows together: x and y of one window of tokens."""
    found: list[list[str]] = []
    for off, name in sorted((column["off"], name) for name, column in columns.items() if "strides" in column):
        steps = columns[name]["strides"]
        first = columns[found[-1][0]] if found else None
        if first is None or first["strides"] != steps or off - first["off"] >= steps[0]:
            found.append([])
        found[-1].append(name)
    return found


Shown = tuple[tuple[int, ...], list[int], int]  # shape; strides and the first element, in elements


def layout(group: Sequence[Mapping[str, Any]], rows: int, size: int) -> tuple[int, int, list[Shown]]:
    """One array that holds all that columns of the same rows show: where it begins, its elements (of so many bytes),
    and how each column lies in it."""
    begin, elements = group[0]["off"], 0
    shown: list[Shown] = []
    for column in group:
        shape, strides = (rows, *column["shape"]), [step // size for step in column["strides"]]
        first = (column["off"] - begin) // size
        shown.append((shape, strides, first))
        if total(shape):
            last = sum((length - 1) * step for length, step in zip(shape, strides, strict=True))
            elements = max(elements, first + last + 1)
    return begin, elements, shown


def total(shape: Sequence[int]) -> int:
    """Elements of an array."""
    found = 1
    for size in shape:
        found *= size
    return found


BYTES = {
    "uint8": 1,
    "int8": 1,
    "bool": 1,
    "uint16": 2,
    "int16": 2,
    "float16": 2,
    "uint32": 4,
    "int32": 4,
    "float32": 4,
    "uint64": 8,
    "int64": 8,
    "float64": 8,
}

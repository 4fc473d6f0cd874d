"""Small batches that arrive together: one message and one slot for several steps, so that each costs a few operations.

Plan    the layout of the columns of such messages, computed once and reused while the layout stays the same
Bundle  the batches of one message, one after another
Later   the same, each made when it is its turn

In every column, the rows of a step follow those of the step before. Arrays are views of the slot while few batches are
held: keeping one batch keeps its bundle. If more are kept, each batch gets its own copies, so that memory grows with
what is kept and the slots stay with the engine.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ._client import Field
from ._wire import Message

# A column with fewer bytes per step than this is copied at once for all steps: labels, ids.
SMALL_BYTES = 4096
# From this many bundles with held slots on, batches are copies: the loop holds one batch and takes the next.
HELD = 4

# A column of all steps: what to put into the batches, by number.
Cut = Callable[[Any, int, bool], Iterable[tuple[int, Sequence[Any]]]]


class Plan:
    """Splits messages with these columns, with this many rows per step.

    ``fields`` are what batches hold, in order; ``facts`` are the columns after them with their types, in order.
    """

    def __init__(self, kind: Any, fields: Mapping[str, Field], facts: Mapping[str, str], message: Message) -> None:
        self.rows: int = message["rows"]
        self.columns: list[dict[str, Any]] = message["data"]
        self._kind = kind
        self._cuts: list[Cut] = []
        columns = {column["name"]: column for column in self.columns}
        dtypes = {**{name: field.dtype for name, field in fields.items()}, **facts}
        numbers = {name: at for at, name in enumerate(dtypes)}
        self._width = len(numbers)
        for name, dtype in dtypes.items():
            column = columns[name]
            shown = kind.finish if name in fields else _same  # the facts are the loop's, and stay in its memory
            self._add(numbers[name], dtype, tuple(column.get("shape") or ()), column["off"], shown)

    def fits(self, message: Message) -> bool:
        return bool(self.rows == message["rows"] and self.columns == message["data"])

    def _add(self, number: int, dtype: str, shape: tuple[int, ...], off: int, shown: Callable[[Any], Any]) -> None:
        kind, rows, whole = self._kind, self.rows, (self.rows, *shape)
        size = total(whole) * BYTES[dtype]

        def small(root: Any, steps: int, own: bool) -> list[tuple[int, Sequence[Any]]]:
            array = kind.own(kind.view(root, dtype, (steps * rows, *shape), off))
            return [(number, [shown(piece) for piece in kind.split(array, rows, steps)])]

        def large(root: Any, steps: int, own: bool) -> list[tuple[int, Sequence[Any]]]:
            arrays = [kind.view(root, dtype, whole, off + step * size) for step in range(steps)]
            if own:
                arrays = [kind.own(array) for array in arrays]
            return [(number, [shown(array) for array in arrays])]

        self._cuts.append(small if size < SMALL_BYTES else large)

    def cut(self, root: Any, steps: int, own: bool) -> list[tuple[Any, ...]]:
        """What each step holds: fields, then facts."""
        columns: list[Sequence[Any]] = [()] * self._width
        for cut in self._cuts:
            for number, arrays in cut(root, steps, own):
                columns[number] = arrays
        return list(zip(*columns, strict=True))


def _same(array: Any) -> Any:
    return array


class Holds:
    """The slots of bundles that are still referred to."""

    def __init__(self) -> None:
        self._roots: list[weakref.ref[Any]] = []

    def many(self, root: Any) -> bool:
        """Whether too many are held to add another; if not, it is counted."""
        self._roots = [held for held in self._roots if held() is not None]
        if len(self._roots) >= HELD:
            return True
        self._roots.append(weakref.ref(root))
        return False


class Bundle:
    """The batches of one message that have not been given yet, and what the message says about each."""

    def __init__(self, batches: list[Any], parts: list[Message]) -> None:
        self._left = list(zip(batches, parts, strict=True))
        self._left.reverse()
        self.take: Callable[[], tuple[Any, Message]] = self._left.pop

    @property
    def spent(self) -> bool:
        return not self._left


class Later:
    """A Bundle whose batches are made when they are taken."""

    def __init__(self, make: Callable[[int], Any], parts: list[Message]) -> None:
        self._make, self._parts, self._step = make, parts, 0

    def take(self) -> tuple[Any, Message]:
        step = self._step
        batch = self._make(step)
        self._step = step + 1  # after it was made: what was interrupted can be taken again
        return batch, self._parts[step]

    @property
    def spent(self) -> bool:
        return self._step == len(self._parts)


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
    "bfloat16": 2,
    "uint32": 4,
    "int32": 4,
    "float32": 4,
    "uint64": 8,
    "int64": 8,
    "float64": 8,
}

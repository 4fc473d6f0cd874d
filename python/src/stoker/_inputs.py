"""Samples that the engine begins and Python code finishes: read, decoded and transformed as far as the engine can.

Begun   what workers get in place of a dataset: what to do with such samples
Fed     the same for one dataset
Inputs  where the engine has put them

A worker reads them in the slots of the engine's own, which nobody writes to until the worker has answered. Every
sample is copied out of the slot: the user's code may keep what it gets.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from . import _frames
from ._batch import Kind, objects
from ._bundle import BYTES
from ._client import Field
from ._datasets import make_kind
from ._keyed import Steps
from ._views import Groups, name_of

if TYPE_CHECKING:
    from ._spec import Form

_SOURCE = struct.Struct("<III")  # row of the batch, input, its row


# Makes the sample that the loop gets, of its number, of what gives what the engine has made of it (None: nothing), and
# of what gives its key.
Made = Callable[[int, "Callable[[], Any] | None", "Callable[[], int]"], Any]


class Begun(Steps):
    """What workers get of a dataset of which the engine begins samples."""

    kinds: Sequence[tuple[Form, frozenset[str]]]  # of such samples: their form, and which of their fields are squeezed
    output: str

    def maker(self, tones: bool) -> Made:
        """What makes samples. With ``tones``, the engine may make the numbers of their pictures (_tone.py)."""
        raise NotImplementedError

    def begins(self) -> list[dict[str, Any]]:
        """Datasets of a mixture, each with its Spec; none: all that the engine reads is begun."""
        return []


@dataclass(frozen=True)
class Fed(Begun):
    """What workers do with samples that the engine has begun. ``finish`` makes the sample that the loop gets: it is
    called with what ``dataset[i]`` gives, and with a function that returns the key of the sample."""

    finish: Callable[[Any, Callable[[], int]], Any]
    form: Form
    squeeze: frozenset[str]
    output: str

    @property
    def kinds(self) -> Sequence[tuple[Form, frozenset[str]]]:  # type: ignore[override]
        return [(self.form, self.squeeze)]

    def maker(self, tones: bool) -> Made:
        finish = self.finish
        if tones and getattr(finish, "toned", None):
            finish = finish.begun  # type: ignore[attr-defined]
        return lambda number, begun, key: finish(cast("Callable[[], Any]", begun)(), key)

    @property
    def functions(self) -> list[Any]:  # type: ignore[override]
        return list(getattr(self.finish, "functions", ()))

    def parts_named(self) -> list[tuple[Any, str]]:
        program = getattr(self.finish, "program", None)
        return [] if program is None else list(program.parts())

    def __getitem__(self, index: int) -> Any:
        raise TypeError("the engine begins the samples of this dataset")


def begins(user: Any) -> dict[str, Any]:
    """What the engine is told of the datasets of a mixture whose samples it begins."""
    found = user.begins() if isinstance(user, Begun) else []
    return {"begins": found} if found else {}


class Inputs:
    """What one worker knows of them."""

    def __init__(self, dataset: Begun) -> None:
        self._kinds = list(dataset.kinds)
        self._kind: Kind = make_kind(dataset.output)
        self._fields: list[list[Field]] = []  # of each kind
        self._kept: dict[int, Callable[[int], Any]] = {}  # by number: what makes the sample of a row
        self._from: dict[int, dict[int, tuple[int, int]]] = {}  # of the tasks that follow

    def acts(self, slots: Mapping[int, Any]) -> dict[int, Callable[[bytes], None]]:
        """What to do with each of the engine's frames about inputs; ``slots`` has the memory of all slots."""
        return {
            _frames.FIELDS: self._read_fields,
            _frames.INPUT: lambda body: self._take(body, slots),
            _frames.SOURCES: self._sources,
            _frames.USED: self._used,
        }

    def of(self, batch: int) -> Callable[[int], Callable[[], Any] | None]:
        """What makes samples, by row, of the tasks of a batch that have just come; None: the engine has made nothing of
        the row."""
        rows = self._from.pop(batch, {})

        def begun(row: int) -> Callable[[], Any] | None:
            given, at = rows.get(row, (0, 0))
            return partial(self._kept[given], at) if given else None

        return begun

    def _read_fields(self, body: bytes) -> None:
        self._fields.append([Field.read(field) for field in json.loads(body)])

    def _take(self, body: bytes, slots: Mapping[int, Any]) -> None:
        number, slot, rows = struct.unpack_from("<III", body)
        told = json.loads(body[12:])
        columns = {column["name"]: column for column in told}
        which = told[0].get("feed", 0)
        (form, squeeze), fields, root = self._kinds[which], self._fields[which], slots[slot]
        grouped = Groups(fields)
        values = grouped(
            [self._values(field, columns[field.name], rows, root, name_of(field) in squeeze) for field in fields],
            lambda views: lambda at: [value(at) for value in views],
        )
        names = grouped.names

        def sample(at: int) -> Any:
            if form == "dict":
                return {name: value(at) for name, value in zip(names, values, strict=True)}
            return tuple([value(at) for value in values]) if form == "tuple" else values[0](at)

        self._kept[number] = sample

    def _sources(self, body: bytes) -> None:
        batch, n = struct.unpack_from("<QI", body)
        self._from = {batch: {row: (given, at) for row, given, at in _SOURCE.iter_unpack(body[12 : 12 + 12 * n])}}

    def _used(self, body: bytes) -> None:
        self._kept.pop(struct.unpack_from("<I", body)[0], None)

    def _values(
        self, field: Field, column: Mapping[str, Any], rows: int, root: Any, squeezed: bool
    ) -> Callable[[int], Any]:
        """What gives a field of a row as a Maker shows it for a batch of one sample."""
        kind = self._kind
        if field.dtype == "object":
            return lambda at: objects(field, {**column, "off": column["off"] + 8 * at}, 1, root)[0]
        shape = tuple(column.get("shape") or ())
        show = self._shown(field, squeezed)
        if "shapes" in column or column.get("kind") == "ragged":
            memory, unit = memoryview(root).cast("B"), 1
            if "shapes" not in column:
                unit = BYTES[field.dtype] * math.prod(shape)

            def differs(at: int) -> Any:
                begin, end = struct.unpack_from("<2q", memory, column["off"] + 8 * at)
                found = column["shapes"][at] if "shapes" in column else (end - begin, *shape)
                return show(kind.own(kind.view(root, field.dtype, found, column["at"] + unit * begin)))

            return differs
        array = kind.view(root, field.dtype, (rows, *shape), column["off"])
        if field.kind == "number":
            numbers: Sequence[Any] = array.tolist()
            return numbers.__getitem__
        return lambda at: show(kind.own(array[at]))

    def _shown(self, field: Field, squeezed: bool) -> Callable[[Any], Any]:
        """From how an array is stored to how it is shown."""
        turned = field.axes == "hwc" and field.view == "chw"
        first = field.view != "hwc"

        def shown(array: Any) -> Any:
            if turned:
                array = self._kind.permute(array, (2, 0, 1))
            if squeezed:
                array = array[0] if first else array[..., 0]
            return array

        return shown if turned or squeezed else _same


def _same(array: Any) -> Any:
    return array

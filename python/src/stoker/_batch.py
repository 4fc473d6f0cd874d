"""Batches as users see them, and how they are made from a slot.

Large fields are views of the slot and keep it leased. Small ones (below OWNED_BYTES per batch: labels, ids) are
copies, so that keeping all labels does not keep all images; if all fields are small, the slot is returned at once.
Small batches that share a slot are split in _bundle.py.
"""

from __future__ import annotations

import ctypes
import functools
import json
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ._bundle import BYTES, Bundle, Holds, Plan, total
from ._client import Field
from ._counts import Counts
from ._device_jpeg import Decoder, Sent
from ._device_mix import Blend, Mixing
from ._errors import ConfigError, StokerError, from_wire
from ._fused import Raw
from ._moved import moved
from ._types import Fields
from ._views import Groups, name_of
from ._wire import Message

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._spec import Form
else:
    from ._types import Unpack

OWNED_BYTES = 1 << 18
IDS = "__ids__"
VALID = "__valid__"
POSITION_IDS = "__position_ids__"
SEQLENS = "__seqlens__"


class Bad(NamedTuple):
    """A sample that was not delivered as the order says. ``sample`` should have been at ``place``; ``put`` was
    delivered instead (-1: a copy of another row of the batch, marked as not valid)."""

    place: int
    sample: int
    put: int
    error: StokerError


class _Facts:
    ids: Any
    epoch: int
    step: int
    valid: Any
    bad: list[Bad]
    cu_seqlens: Any
    position_ids: Any

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """A batch whose tensors are ``tensor.to(*args, **kwargs)``, such as ``to("cuda", non_blocking=True)``, in
        nested fields too. What is not a tensor stays as it is. ``ids valid epoch step bad`` are kept, in the memory
        where they are; ``cu_seqlens`` and ``position_ids`` move."""
        return moved(self, "to", *args, **kwargs)  # type: ignore[no-any-return]

    def pin_memory(self, *args: Any) -> Self:
        """A batch whose tensors are copies in pinned memory, which needs a GPU; otherwise as ``to``. torch's DataLoader
        calls it where ``pin_memory=True``."""
        return moved(self, "pin_memory", *args)  # type: ignore[no-any-return]


class Batch(tuple[Unpack[Fields]], _Facts):
    """One batch, a tuple of its fields: ``images, labels = batch``.

    ids    int64 (rows,): sample ids; they do not depend on ranks, workers or restarts
    epoch  the epoch
    step   the number of the batch in the pass, from 0
    valid  bool (rows,): False for padding at the end of an epoch and for samples that were skipped
    bad    samples skipped or replaced under on_bad="skip" or "replace", by place; each has place, sample, put, error

    With pack=, columns of bytes are uint8 (batch, pack). ``ids`` and ``valid`` then describe runs of samples, row by
    row; the unused end of a row is a run with id -1:

    cu_seqlens    int32 (runs + 1,): where each run begins among all tokens of the batch, row after row, and where the
                  last one ends, as variable-length attention kernels expect
    position_ids  int32 (batch, pack): the position of every token in its sample

    ``ids`` and ``valid`` have the loader's output kind (NumPy arrays for "jax", with sharding= of the rows of this
    process; with device=, ``valid`` is an array there). Arrays of 256 KiB and more are in memory shared with the
    engine, which is used again once nothing refers to them. You may keep and modify them.
    """

    def __repr__(self) -> str:
        return f"Batch({super().__repr__()}, epoch={self.epoch}, step={self.step})"


class DictBatch(dict[str, Any], _Facts):
    """One batch of a dataset of dicts, with the attributes of ``Batch``."""


class Ragged(NamedTuple):
    """Samples of unequal length, concatenated.

    values   (sum of lengths, ...): the elements of all samples
    offsets  int64 (rows + 1,): where each sample begins in ``values``, and where the last one ends

    ``ragged.row(i)`` is the array of row i; with torch,
    ``torch.nested.nested_tensor_from_jagged(ragged.values, ragged.offsets)`` is the batch as a nested tensor.
    """

    values: Any
    offsets: Any

    def row(self, number: int) -> Any:
        """The array of one row, a view of ``values``."""
        rows = len(self.offsets) - 1
        if not -rows <= number < rows:
            raise IndexError(f"row {number} of a batch of {rows}")
        number %= rows
        return self.values[int(self.offsets[number]) : int(self.offsets[number + 1])]

    def rows(self) -> list[Any]:
        """The arrays of all rows, views of ``values``."""
        ends = self.offsets.tolist()
        return [self.values[begin:end] for begin, end in pairwise(ends)]


class Kind:
    """Makes arrays; one implementation each for NumPy, torch and JAX. Shapes are those in memory."""

    name = ""
    decoder: Decoder | None = None  # of the pictures that are sent
    counts: Counts | None = None  # of what is done here in a device's place

    def view(self, root: Any, dtype: str, shape: Sequence[int], offset: int) -> Any:
        """An array over the slot, without a copy."""
        raise NotImplementedError

    def own(self, array: Any) -> Any:
        """A copy."""
        raise NotImplementedError

    def crowded(self, message: Message, root: Any) -> bool:
        """Whether the arrays of a batch must not keep its slot."""
        return False

    def split(self, array: Any, rows: int, parts: int) -> Sequence[Any]:
        """Splits an array into this many views of this many rows each."""
        return [array[part * rows : (part + 1) * rows] for part in range(parts)]

    def permute(self, array: Any, axes: Sequence[int]) -> Any:
        raise NotImplementedError

    def ends(self, lengths: Any) -> Any:
        """0 and the running sums of int32 lengths, as int32."""
        raise NotImplementedError

    def finish(self, array: Any) -> Any:
        """What the user gets for a field."""
        return array

    def floats(self, raw: Raw) -> Any:
        """The same for a field of bytes with which something is left to be done."""
        begin = time.perf_counter()
        made = raw.here()
        if self.counts is not None:
            pictures, compressed, decoding = raw.decoded
            size = made.numel() * made.element_size()
            self.counts.worked_here(time.perf_counter() - begin, size, pictures, compressed, decoding)
        return self.finish(made)

    def mixed(self, blend: Blend) -> Any:
        """The same for a field that is mixed."""
        return self.finish(blend.here())

    def foreign(self, array: Any) -> Any:
        """The same for an array whose memory the user's code may have, and change."""
        return self.finish(array)

    def alone(self, value: Any, facts: Mapping[str, Any]) -> Any:
        """A batch that is one array, with the attributes of a Batch if the array type allows them."""
        return value


def numpy_dtype(name: str) -> Any:
    """NumPy's dtype of this name. Those that NumPy lacks (bfloat16, float8_*, complex32) are of ml_dtypes, which JAX
    and TensorFlow install. They must not depend on who has imported it, so it is imported here."""
    import numpy

    try:
        return numpy.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError) as error:
        hint = 'pass output="torch", or return another dtype'
        if isinstance(error, ImportError) and name.startswith(("bfloat", "float8", "complex32")):
            hint += ", or install ml_dtypes"
        raise ConfigError(f"NumPy has no {name}", hint=hint) from error


class NumpyKind(Kind):
    name = "numpy"

    def __init__(self) -> None:
        import numpy

        self._np = numpy

    def view(self, root: Any, dtype: str, shape: Sequence[int], offset: int) -> Any:
        kind = numpy_dtype(dtype)
        count = total(shape)
        if not count:
            return self._np.empty(shape, kind)
        return self._np.frombuffer(root, kind, count, offset).reshape(shape)

    def own(self, array: Any) -> Any:
        return array.copy()

    def permute(self, array: Any, axes: Sequence[int]) -> Any:
        return array.transpose(axes)

    def alone(self, value: Any, facts: Mapping[str, Any]) -> Any:
        if not isinstance(value, self._np.ndarray):
            return value  # a sample is a number, or ragged
        batch: Any = value.view(_array_batch())
        vars(batch).update(facts)
        return batch

    def ends(self, lengths: Any) -> Any:
        found = self._np.zeros(len(lengths) + 1, self._np.int32)
        self._np.cumsum(lengths, out=found[1:])
        return found


class JaxKind(NumpyKind):
    """Arrays on JAX's default device.

    On the CPU, JAX refers to the slot where it can, and keeps it as long as an array or a computation needs it. It
    never writes to memory that is not its own, even if the array was donated. Computations are queued, as many as 32,
    so the loop may be far ahead of them, and JAX lets go of memory only when it is called again. So only a few slots
    are kept in this way; with more, and where memory is short, batches are copies.
    """

    name = "jax"

    def __init__(self) -> None:
        super().__init__()
        import jax

        self._put = jax.device_put
        self._holds = Holds()

    def finish(self, array: Any) -> Any:
        try:
            return self._put(array)
        except TypeError as error:
            hint = 'convert the samples, or pass output="numpy"'
            raise ConfigError(f"JAX has no {array.dtype}", hint=hint) from error

    def crowded(self, message: Message, root: Any) -> bool:
        return bool(message.get("strained")) or self._holds.many(root)

    def foreign(self, array: Any) -> Any:
        return self.finish(self.own(array))

    def alone(self, value: Any, facts: Mapping[str, Any]) -> Any:
        if hasattr(value, "__dict__"):
            for name, fact in facts.items():
                setattr(value, name, fact)
        return value


class StagedJaxKind(NumpyKind):
    """Arrays of NumPy that are about to be put on devices of JAX: all are views of the slot, or of whatever memory
    there is, because what puts them copies what it must (_jax.py)."""

    name = "jax"

    def own(self, array: Any) -> Any:
        return array


class TorchKind(Kind):
    name = "torch"

    def __init__(self, pin: bool = False) -> None:
        import torch

        self._torch = torch
        self._pin = pin
        self._dtypes = {
            "uint8": torch.uint8,
            "bool": torch.bool,
            "int64": torch.int64,
            "int32": torch.int32,
            "float32": torch.float32,
            "float64": torch.float64,
            "float16": torch.float16,
            "bfloat16": torch.bfloat16,
            "int8": torch.int8,
            "int16": torch.int16,
        }
        # From torch 2.3 on; few operators take them.
        for name in ("uint16", "uint32", "uint64"):
            if hasattr(torch, name):
                self._dtypes[name] = getattr(torch, name)

    def view(self, root: Any, dtype: str, shape: Sequence[int], offset: int) -> Any:
        kind = self._dtypes.get(dtype)
        if kind is None:
            hint = 'pass output="numpy", or set another dtype for the field'
            raise ConfigError(f"torch {self._torch.__version__} has no {dtype}", hint=hint)
        count = total(shape)
        if not count:
            return self._torch.empty(tuple(shape), dtype=kind, device="cpu")
        flat = self._torch.frombuffer(root, dtype=kind, count=count, offset=offset)
        return flat if len(shape) == 1 else flat.view(tuple(shape))

    def own(self, array: Any) -> Any:
        # Not clone(): it may run OpenMP, which hangs in a forked child if the parent has used it.
        fresh = self._torch.empty(array.shape, dtype=array.dtype, device="cpu")
        ctypes.memmove(fresh.data_ptr(), array.data_ptr(), array.numel() * array.element_size())  # nbytes: torch 2.1
        return fresh

    def split(self, array: Any, rows: int, parts: int) -> Sequence[Any]:
        found: Sequence[Any] = array.split(rows)
        return found

    def permute(self, array: Any, axes: Sequence[int]) -> Any:
        return array.permute(tuple(axes))

    def ends(self, lengths: Any) -> Any:
        found = self._torch.zeros(len(lengths) + 1, dtype=self._torch.int32, device="cpu")
        self._torch.cumsum(lengths, 0, dtype=self._torch.int32, out=found[1:])
        return found

    def finish(self, array: Any) -> Any:
        return array.pin_memory() if self._pin else array

    def alone(self, value: Any, facts: Mapping[str, Any]) -> Any:
        if isinstance(value, self._torch.Tensor):
            vars(value).update(facts)
        return value


class StagedKind(TorchKind):
    """Tensors that are about to be copied to a device: all are views of the slot, also small ones, because the copy
    gives those memory of their own (_staging.py). What is left is done there."""

    def own(self, array: Any) -> Any:
        return array

    def floats(self, raw: Raw) -> Any:
        return raw

    def mixed(self, blend: Blend) -> Any:
        return blend

    def alone(self, value: Any, facts: Mapping[str, Any]) -> Any:
        if isinstance(value, Raw):
            vars(value.tensor).update(facts)
            return value
        return super().alone(value, facts)


@functools.cache
def _array_batch() -> type:
    """The class of a NumPy batch that is one array: an ndarray with the attributes of ``Batch``. Results computed from
    it do not have them."""
    import numpy

    class ArrayBatch(numpy.ndarray):
        def __reduce_ex__(self, protocol: Any) -> Any:
            return self.view(numpy.ndarray).__reduce_ex__(protocol)

    return ArrayBatch


_POSITIONS = Field(POSITION_IDS, "number", "int32", "", "")


class Maker:
    """Makes batches of one loader: ``make(message, root of the slot)``.

    ``form`` is the shape of a batch: a tuple of the fields, a dict, or the array of the only field. ``single`` gives
    one sample without the batch dimension, ``squeeze`` names grey images that are shown without a channel axis.
    """

    def __init__(
        self,
        fields: Iterable[Field],
        kind: Kind,
        *,
        form: Form = "tuple",
        single: bool = False,
        squeeze: frozenset[str] = frozenset(),
    ) -> None:
        self._fields = {field.name: field for field in fields if field.name not in (POSITION_IDS, SEQLENS)}
        self._kind = kind
        self._form = form
        self._single = single
        self._squeeze = squeeze
        self._mixed = next((field for field in self._fields.values() if field.mix and not field.mix.label), None)
        self._grouped = Groups(self._fields.values())
        self._plan: Plan | None = None
        self._holds = Holds()

    @property
    def pictures(self) -> list[Any]:
        """Where the pictures of a batch are: their numbers, their keys, or [None] if it is one picture."""
        images = {name_of(field) for field in self._fields.values() if field.kind == "image"}
        names = self._grouped.names
        if self._form == "one":
            return [None] if images else []
        return [name if self._form == "dict" else at for at, name in enumerate(names) if name in images]

    def make(self, message: Message, root: Any) -> Any:
        """A batch, or a Bundle if the message holds several."""
        if message["type"] == "batches":
            return self._bundle(message, root)
        rows = message["rows"]
        columns = {column["name"]: column for column in message["data"]}
        own = self._kind.crowded(message, root)
        mixing = self._mixing(message, columns, root)
        values = [self._field(field, columns, rows, root, own, mixing) for field in self._fields.values()]
        if self._single:
            values = [self._one(field, value) for field, value in zip(self._fields.values(), values, strict=True)]
        facts: dict[str, Any] = {
            "ids": self._fact(columns[IDS], "int64", rows, root),
            "valid": self._fact(columns[VALID], "bool", rows, root),
        }
        if SEQLENS in columns:
            lengths = self._kind.view(root, "int32", (rows,), columns[SEQLENS]["off"])
            facts["cu_seqlens"] = self._kind.ends(lengths)
            facts["position_ids"] = self._field(_POSITIONS, columns, rows, root, own)
        # Lanes report failures as they happen; for several tries at one place, the first comes first.
        bad = [
            Bad(bad["place"], bad["sample"], bad["put"], from_wire(bad.get("error") or {}))
            for bad in sorted(message.get("bad") or [], key=lambda bad: bad["place"])
        ]
        return self._batch(values, {**facts, "epoch": message["epoch"], "step": message["step"], "bad": bad})

    def _batch(self, values: Sequence[Any], facts: Mapping[str, Any]) -> Any:
        batch: Any
        values = self._grouped(values)
        if self._form == "dict":
            batch = DictBatch(zip(self._grouped.names, values, strict=True))
        elif self._form == "tuple":
            batch = Batch(values)
        else:
            return self._kind.alone(values[0], facts)
        vars(batch).update(facts)
        return batch

    def _bundle(self, message: Message, root: Any) -> Bundle:
        plan = self._plan
        if plan is None or not plan.fits(message):
            self._plan = plan = Plan(self._kind, self._fields, {IDS: "int64", VALID: "bool"}, message)
        epoch, step, parts = message["epoch"], message["step"], message["parts"]
        batches: list[Any] = []
        for values in plan.cut(root, len(parts), self._kind.crowded(message, root) or self._holds.many(root)):
            shown: Sequence[Any] = values[:-2]
            if self._single:
                shown = [self._one(field, value) for field, value in zip(self._fields.values(), shown, strict=True)]
            ids, valid = values[-2:]
            facts = {"ids": ids, "valid": valid, "epoch": epoch, "step": step, "bad": []}
            batches.append(self._batch(shown, facts))
            step += 1
        return Bundle(batches, parts)

    def _fact(self, column: Mapping[str, Any], dtype: str, rows: int, root: Any) -> Any:
        return self._kind.own(self._kind.view(root, dtype, (rows,), column["off"]))

    def _mixing(self, message: Message, columns: Mapping[str, Mapping[str, Any]], root: Any) -> Mixing | None:
        """How a batch is mixed here; None: it is not."""
        field = self._mixed
        if field is None:
            return None
        if field.rest is not None:
            height, width, _ = field.rest.becomes
        else:
            first, second, third = columns[field.name]["shape"]
            height, width = (first, second) if field.axes == "hwc" else (second, third)
        valid = self._kind.view(root, "bool", (message["rows"],), columns[VALID]["off"]).tolist()
        return Mixing.of(message.get("mixed"), valid, (height, width))

    def _field(
        self,
        field: Field,
        columns: Mapping[str, Mapping[str, Any]],
        rows: int,
        root: Any,
        own: bool,
        mixing: Mixing | None = None,
    ) -> Any:
        column = columns[field.name]
        if field.dtype == "object":
            return objects(field, column, rows, root)
        if column.get("kind") == "ragged":
            return self._ragged(field, column, rows, root, own)
        shape = (column.get("rows") or rows, *(column.get("shape") or ()))
        array = self._kind.view(root, field.stored, shape, column["off"])
        if own or total(shape) * BYTES[field.stored] < OWNED_BYTES:
            array = self._kind.own(array)
        if field.mix is None:
            mixing = None
        elif field.mix.label and mixing is not None:
            return self._kind.mixed(Blend.of_labels(array, mixing, field.mix.classes))
        if field.axes == "hwc" and field.view == "chw":
            array = self._kind.permute(array, (0, 3, 1, 2))
        squeezed = name_of(field) in self._squeeze
        if field.rest is not None or field.sent is not None:
            raw = Raw(array, field.left, field.view == "chw", field.rest, squeezed=squeezed, mixing=mixing)
            if field.rest is not None:
                numbers = columns[field.rest.column]
                of = self._kind.view(root, "float64", (rows, *numbers["shape"]), numbers["off"])
                raw.numbers = self._kind.own(of) if own else of
            if field.sent is not None:
                raw.sent = self._sent(field.sent, columns, rows, root)
            return self._kind.floats(raw)
        if squeezed:
            array = array[..., 0] if field.view == "hwc" else array[:, 0]
        if field.left is not None:
            return self._kind.floats(Raw(array, field.left, planes=field.view == "chw", mixing=mixing))
        if mixing is not None:
            return self._kind.mixed(Blend(array, mixing, planes=field.view != "hwc"))
        return self._kind.finish(array)

    def _sent(self, names: tuple[str, str], columns: Mapping[str, Mapping[str, Any]], rows: int, root: Any) -> Sent:
        windows, jpegs = (columns[name] for name in names)
        numbers = self._kind.view(root, "int32", (rows, *windows["shape"]), windows["off"])
        ends = self._kind.view(root, "int64", (rows + 1,), jpegs["off"]).tolist()
        every = [self._kind.view(root, "uint8", (end - begin,), jpegs["at"] + begin) for begin, end in pairwise(ends)]
        return Sent(self._kind.decoder, numbers, every)

    def _ragged(self, field: Field, column: Mapping[str, Any], rows: int, root: Any, own: bool) -> Ragged:
        offsets = self._kind.own(self._kind.view(root, "int64", (rows + 1,), column["off"]))
        shape = (int(offsets[-1]), *(column.get("shape") or ()))
        values = self._kind.view(root, field.dtype, shape, column["at"])
        if own or total(shape) * BYTES[field.dtype] < OWNED_BYTES:
            values = self._kind.own(values)
        return Ragged(self._kind.finish(values), self._kind.finish(offsets))

    def _one(self, field: Field, value: Any) -> Any:
        """What torch gives for one sample: numbers are Python numbers."""
        if field.kind == "number":
            return value[0].item()
        return value.values if isinstance(value, Ragged) else value[0]


def objects(field: Field, column: Mapping[str, Any], rows: int, root: Any) -> list[Any]:
    """Variable-length values: int64 offsets at ``off``, relative to ``at``."""
    memory = memoryview(root).cast("B")
    ends = struct.unpack_from(f"<{rows + 1}q", memory, column["off"])
    base = column.get("at", 0)
    found = [bytes(memory[base + ends[row] : base + ends[row + 1]]) for row in range(rows)]
    if field.kind == "text":
        return [value.decode("utf-8") for value in found]
    if field.kind == "json":
        return [json.loads(value) for value in found]
    return found

"""Samples of any structure, to the rows of a slot and back.

A sample is taken apart into a structure (a tree of mappings, sequences and leaves) and the values of its leaves. Leaf i
is column i of the batch. A fixed leaf (tensor, ndarray, number) takes the same number of bytes in every row, so that a
column is one array of shape (rows, *shape). A loose leaf (str, bytes) has any length; its values are passed on apart.

A batch is what torch's ``default_collate`` returns for its rows. default_collate itself decides what it accepts: it is
given every value that no fast path knows, and its error is the reason why the sample is bad. Two things are wider:
arrays may have negative strides, and a number may follow a tensor of its dtype (``collated``), which torch accepts in
the other order only. Two are narrower, because a column has one dtype in all batches: a dtype may not change between
samples, and no key may be added.

In a worker the work is done for many samples at once, column by column, by functions in C (``Structure.write``). If a
check fails there, the samples are written one by one (``Structure.write_one``), and the error names the field.

Batches of a user's own ``collate_fn`` are in _blob.py.
"""

from __future__ import annotations

import pickle
import struct
import sys
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _blob, _notice
from ._batch import IDS, OWNED_BYTES, VALID, Bad, Batch, DictBatch, Kind, _Facts, numpy_dtype
from ._describe import Misfit, describe, fit
from ._errors import from_wire
from ._leaves import LOOSE, Loose, count, dtype_of
from ._tone import Picture
from ._wire import Message

ENDED = "ended"  # the kind of the error of a sample at which workers ended

__all__ = ["Assembler", "ListBatch", "Misfit", "Structure", "collates_otherwise", "named", "register", "split"]


# Taking apart.


class Structure:
    """The structure of one sample, with which other samples are compared. ``sample`` is the one it was read from."""

    def __init__(self, tree: Any, sample: int) -> None:
        self.tree = tree
        self.sample = sample
        self.leaves: list[Any] = list(tree.leaves())
        self.sizes: list[int] = [leaf.size for leaf in self.leaves]
        self.row_bytes = sum(size for size in self.sizes if size > 0)
        self.loose = any(size == LOOSE for size in self.sizes)
        self.pictures = any(isinstance(leaf, Picture) for leaf in self.leaves)

    def encode(self) -> bytes:
        try:
            return pickle.dumps((self.tree, self.sample), 5)
        except Exception as error:
            raise Misfit(
                f"its types cannot be passed on: {error}", "define the class at the top of a module"
            ) from error

    @classmethod
    def decode(cls, data: bytes) -> Structure:
        return cls(*pickle.loads(data))

    def write(self, memory: memoryview, offsets: Sequence[int], row: int, samples: Sequence[Any]) -> list[Any]:
        """Writes samples to consecutive rows of a slot; column i begins at offsets[i]. Returns (column, values) for
        each loose leaf. Any exception: use write_one to know which sample it is and why."""
        columns: list[Sequence[Any]] = []
        self.tree.gather(samples, columns)
        return self._put(memory, offsets, row, columns)

    def write_one(self, memory: memoryview, offsets: Sequence[int], row: int, sample: Any) -> list[Any]:
        """Writes one sample. Misfit if it does not fit this structure."""
        found: list[Any] = []
        try:
            fit(self.tree, sample, "", found)
            return self._put(memory, offsets, row, [[value] for value in found])
        except Misfit as misfit:
            raise Misfit(str(misfit).replace("{sample}", f"sample {self.sample}"), misfit.hint) from None

    def like(self, sample: Any) -> Any:
        """The sample with leaves of the types of this structure; Misfit if it does not fit."""
        found: list[Any] = []
        fit(self.tree, sample, "", found)
        return self.tree.rebuild(iter(found))

    def alike(self, samples: Sequence[Any]) -> bool:
        """Whether samples surely fit this structure, except for the shapes of arrays; if not, ``check`` says."""
        columns: list[Sequence[Any]] = []
        try:
            self.tree.gather(samples, columns)
        except Exception:
            return False
        return all(
            len(set(map(type, column))) == 1
            and (not hasattr(column[0], "dtype") or len(set(map(dtype_of, column))) == 1)
            for column in columns
        )

    def check(self, sample: Any) -> None:
        """Misfit if a sample does not fit this structure."""
        try:
            fit(self.tree, sample, "", [])
        except Misfit as misfit:
            raise Misfit(str(misfit).replace("{sample}", f"sample {self.sample}"), misfit.hint) from None

    def _put(self, memory: memoryview, offsets: Sequence[int], row: int, columns: Sequence[Sequence[Any]]) -> list[Any]:
        loose = []
        for number, (leaf, size, column) in enumerate(zip(self.leaves, self.sizes, columns, strict=True)):
            if size < 0:
                loose.append((number, leaf.encode(column)))
            else:
                leaf.put(memory, offsets[number] + row * size, column)
        return loose


def split(sample: Any, number: int = 0) -> tuple[Structure, list[Any]]:
    """The structure of a sample, and the values of its leaves. Misfit if it cannot be collated."""
    structure = Structure(describe(sample, ""), number)
    columns: list[Sequence[Any]] = []
    if structure.leaves:
        structure.tree.gather([sample], columns)
    return structure, [column[0] for column in columns]


def collated(samples: Sequence[Any]) -> Any:
    """default_collate's batch of samples. Those that it refuses, but which fit the first one, are stacked as rows are,
    so that it does not matter who makes a batch, and which of its samples comes first."""
    from torch.utils.data import default_collate

    try:
        return default_collate(samples)  # type: ignore[arg-type]
    except Exception:
        try:
            first = split(samples[0])[0]
            alike = [first.like(sample) for sample in samples]
        except Exception:
            alike = []
        if not alike:
            raise
    return default_collate(alike)


def collates_otherwise() -> bool:
    """Whether somebody has added to torch's default_collate_fn_map, or changed it. The unit must be a whole batch then:
    rows that are written apart become what torch's own functions return."""
    theirs: Any = sys.modules.get("torch.utils.data._utils.collate")
    if theirs is None:
        return False
    return any(function.__module__ != theirs.__name__ for function in theirs.default_collate_fn_map.values())


class Stacked:
    """The rows of a whole batch, one column after the other: what the slot has where rows are written apart."""

    def __init__(self, structure: bytes, rows: int, offsets: list[int], memory: Any, loose: list[list[bytes]]) -> None:
        self.structure = structure
        self.rows = rows
        self.offsets = offsets
        self.memory = memory
        self.loose = loose  # values of the loose leaves, in their order

    def __reduce__(self) -> tuple[Any, ...]:
        return Stacked, (self.structure, self.rows, self.offsets, pickle.PickleBuffer(self.memory), self.loose)

    @classmethod
    def of(cls, structure: Structure, data: bytes, samples: Sequence[Any]) -> Stacked:
        """Samples that fit the structure, whose encoding is ``data``."""
        rows = len(samples)
        offsets = []
        size = 0
        for leaf in structure.sizes:
            offsets.append(size)
            size += -(-max(leaf, 0) * rows // _blob.ALIGN) * _blob.ALIGN
        memory = bytearray(max(size, 1))
        view = memoryview(memory)
        try:
            loose = [values for _, values in structure.write(view, offsets, 0, samples)]
        except Exception:
            parts = [structure.write_one(view, offsets, row, sample) for row, sample in enumerate(samples)]
            loose = [[values[0] for _, values in column] for column in zip(*parts, strict=True)]
        return cls(data, rows, offsets, memory, loose)


# Putting together.


class ListBatch(list[Any], _Facts):
    """One batch of samples that are tuples or lists: a list, as torch's default_collate returns, with the attributes
    of ``Batch``."""


class Assembler:
    """Makes batches of a loader whose samples come from workers: ``make(message, root of the slot)``.

    ``kind`` makes arrays. Large columns are views of the slot and keep it leased, small ones are copies, as in _batch.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._torch = sys.modules.get("torch") if kind.name == "torch" else None
        self._text = ""
        self._structure: Structure | None = None
        self.load: Callable[[Any, int, int], Any] = _blob.load  # of a whole batch
        self.numbered = True  # samples have numbers
        self.converts = False  # whole batches are torch's, and become those of the output
        register()

    def make(self, message: Message, root: Any) -> tuple[Any, dict[str, Any]]:
        """A batch, and its facts: ids, valid, epoch, step, bad."""
        columns = {column["name"]: column for column in message["data"]}
        rows = message["rows"]
        facts = {
            "ids": self._own("int64", rows, columns[IDS]["off"], root) if self.numbered else None,
            "valid": self._own("bool", rows, *((columns[VALID]["off"], root) if self.numbered else (0, _all(rows)))),
            "epoch": message["epoch"],
            "step": message["step"],
            "bad": [_bad(bad) for bad in sorted(message.get("bad") or [], key=lambda bad: bad["place"])],
        }
        own = self._kind.crowded(message, root)
        if (whole := columns.get("0")) is not None and whole.get("kind") == "placed":
            batch = self.load(root, whole["at"], whole["shape"][0])
            batch = self.stacked(batch, own) if type(batch) is Stacked else self.finish(batch)
        else:
            batch = self.rows(message["structure"], columns, rows, root, own)
        return named(batch, facts), facts

    def rows(self, text: str, columns: Mapping[str, Mapping[str, Any]], rows: int, root: Any, own: bool = False) -> Any:
        """The batch of rows that were written apart. ``text`` is the structure in base64."""
        structure = self._structure
        if structure is None or text != self._text:
            structure = Structure.decode(b64decode(text))
            self._structure, self._text = structure, text
        found = []
        for i, leaf in enumerate(structure.leaves):
            column = columns[str(i)]
            if isinstance(leaf, Loose):
                found.append(leaf.decode(_bytes(column, rows, root)))
            else:
                found.append(self._column(leaf, column["off"], rows, root, own))
        return structure.tree.rebuild(iter(found))

    def stacked(self, batch: Stacked, own: bool) -> Any:
        """The batch of rows that were written together."""
        structure = Structure.decode(batch.structure)
        loose = iter(batch.loose)
        found = [
            leaf.decode(next(loose))
            if isinstance(leaf, Loose)
            else self._column(leaf, at, batch.rows, batch.memory, own)
            for leaf, at in zip(structure.leaves, batch.offsets, strict=True)
        ]
        return structure.tree.rebuild(iter(found))

    def finish(self, batch: Any) -> Any:
        """A whole batch as the loop gets it: pinned, if the loader pins; with arrays of the output, unless a collate
        function of the user's made it."""
        if self.converts:
            return self._converted(batch)
        if self._torch is not None and getattr(self._kind, "_pin", False):
            from torch.utils.data._utils.pin_memory import pin_memory

            return pin_memory(batch)  # type: ignore[no-untyped-call]
        return batch

    def _converted(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            plain = value.detach().resolve_conj().resolve_neg()
            try:
                return self._kind.foreign(plain.numpy())
            except TypeError:
                kind = numpy_dtype(str(value.dtype).removeprefix("torch."))
                flat = plain.contiguous().view(-1).view(torch.uint8).numpy()
                return self._kind.foreign(flat.view(kind).reshape(plain.shape))
        if isinstance(value, dict):
            return type(value)({key: self._converted(inner) for key, inner in value.items()})
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self._converted, value))
        return type(value)(map(self._converted, value)) if type(value) in (list, tuple) else value

    def _column(self, leaf: Any, at: int, rows: int, root: Any, own: bool) -> Any:
        array = self._view(leaf.dtype, (rows, *leaf.shape), at, root)
        if own or rows * leaf.size < OWNED_BYTES:
            array = self._kind.own(array)
        array = self._kind.finish(array)
        wrap = getattr(leaf, "wrap", None)
        return array if wrap is None else array.as_subclass(wrap)

    def _view(self, dtype: str, shape: tuple[int, ...], at: int, root: Any) -> Any:
        torch = self._torch
        if torch is None:
            return self._kind.view(root, dtype, shape, at)
        kind = getattr(torch, dtype)
        number = count(shape)
        if not number:
            return torch.empty(shape, dtype=kind)
        return torch.frombuffer(root, dtype=kind, count=number, offset=at).view(shape)

    def _own(self, dtype: str, rows: int, at: int, root: Any) -> Any:
        return self._kind.own(self._view(dtype, (rows,), at, root))


def _all(rows: int) -> bytearray:
    """The marks of rows that are all valid."""
    return bytearray(b"\1" * rows)


def _bytes(column: Mapping[str, Any], rows: int, root: Any) -> list[bytes]:
    """Values of any length: int64 offsets at ``off``, relative to ``at``."""
    memory = memoryview(root).cast("B")
    ends = struct.unpack_from(f"<{rows + 1}q", memory, column["off"])
    base = column.get("at", 0)
    return [bytes(memory[base + ends[row] : base + ends[row + 1]]) for row in range(rows)]


def _bad(told: Mapping[str, Any]) -> Bad:
    """A bad sample of a batch. Who lost workers to it is told what became of it: each death has a notice."""
    error = from_wire(told.get("error") or {})
    sample, put = told["sample"], told["put"]
    if (told.get("error") or {}).get("kind") == ENDED:
        instead = f"sample {put} comes in its place" if put >= 0 else "is left out"
        _notice.warn(f"sample {sample} is a bad sample, and {instead}: {error.what}; {error.hint}")
    return Bad(told["place"], sample, put, error)


def named(batch: Any, facts: Mapping[str, Any]) -> Any:
    """A plain tuple, list or dict with the facts as attributes; any other batch as it is."""
    kind = _NAMED.get(type(batch))
    if kind is None:
        return batch
    found = kind(batch)
    vars(found).update(facts)
    return found


_NAMED: dict[type, Any] = {tuple: Batch, list: ListBatch, dict: DictBatch}
_registered: set[str] = set()


def register() -> None:
    """Tells the pytrees of torch and JAX, where they are loaded, that batches are tuples, lists and dicts. The
    attributes are lost on the way, as with any function of the batch."""
    pytree: Any = sys.modules.get("torch.utils._pytree")
    if pytree is not None and "torch" not in _registered:
        _registered.add("torch")
        node = getattr(pytree, "register_pytree_node", None) or pytree._register_pytree_node  # before torch 2.2
        for kind in (Batch, ListBatch):
            node(kind, lambda batch: (list(batch), None), _from(kind))
        node(
            DictBatch,
            lambda batch: (list(batch.values()), list(batch)),
            lambda values, keys: DictBatch(zip(keys, values, strict=True)),
        )
    jax: Any = sys.modules.get("jax")
    if jax is not None and "jax" not in _registered and hasattr(jax, "tree_util"):
        _registered.add("jax")
        for kind in (Batch, ListBatch):
            jax.tree_util.register_pytree_node(
                kind, lambda batch: (tuple(batch), None), lambda _, values, kind=kind: kind(values)
            )
        jax.tree_util.register_pytree_node(
            DictBatch,
            lambda batch: (tuple(batch.values()), tuple(batch)),
            lambda keys, values: DictBatch(zip(keys, values, strict=True)),
        )


def _from(kind: Any) -> Callable[[Any, Any], Any]:
    return lambda values, _: kind(values)

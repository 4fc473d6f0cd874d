"""Datasets stored in files of other formats. The classes say where the files are and which fields to take; the engine
reads them.

 NpyDataset      .npy and .npz files          TokenDataset    token files of language models
 HDF5Dataset     .h5 files                    LinesDataset    JSONL and other text
 LMDBDataset     LMDB environments            MDSDataset      MosaicML Streaming's shards
 TFRecordDataset TFRecord files               BetonDataset    FFCV's files
 ParquetDataset  Parquet files                (Table and files: _files.py)
"""

from __future__ import annotations

import copy
import difflib
import glob
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from ._advice import check_keywords
from ._arguments import truth
from ._errors import ConfigError, Problems, whole
from ._fields import SAID, Field, dtype_name, read_names
from ._numbers import scalar
from ._shown import shown, shown_all
from ._split import bare
from ._stored import Stored, not_a_path, paths
from ._types import JP, NP, TP, J, N, T

if TYPE_CHECKING:
    from ._batch import Batch
    from ._types import AnyTuple, Array, Dict, Documents, Numpy, Tensor  # noqa: F401 in bases


class NpyDataset(Stored[T, N, J], Generic[T, N, J]):
    """Arrays in ``.npy`` or ``.npz`` files; row i of each array is a field of sample i.

    ``NpyDataset("images.npy", "labels.npy")`` and ``NpyDataset(images="images.npy", labels="labels.npy")`` are pairs
    of files; samples are tuples in that order. With one array, samples are its rows, and batches are one array with the
    attributes of ``Batch``; ``to_tuple()`` makes 1-tuples of them. A field may span several files, in order: give a
    list or a pattern. In a single folder, pattern or list, files whose names differ only in a number (x-0, x-1) are one
    field, and the others are fields named after their files, in the order of the files. The arrays of a ``.npz`` are
    fields, and samples are dicts; ``NpyDataset("data.npz", fields=["x", "y"])`` chooses. Nothing is loaded up front:
    rows are read in place, and other arrays are not touched. Fortran order, objects and structured arrays are errors
    that say what to do.

    unpacked  memory for data decompressed from a compressed ``.npz`` ("1GiB", or bytes); None: the engine's choice
    """

    _format = "npy"

    @overload
    def __init__(
        self: NpyDataset[Batch[Tensor, Tensor], Batch[Numpy, Numpy], Batch[Array, Array]],
        first: Any,
        second: Any,
        /,
        *,
        unpacked: str | int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: NpyDataset[Any, Any, Any],
        *path: Any,
        fields: Sequence[str | Field] | None = None,
        unpacked: str | int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
        **named: Any,
    ) -> None: ...

    def __init__(
        self,
        *path: Any,
        fields: Sequence[str | Field] | None = None,
        unpacked: str | int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
        **named: Any,
    ) -> None:
        problems = Problems("NpyDataset")
        if path:
            check_keywords("NpyDataset", (name for name in named if _near(name)), _KEYWORDS)
        if bool(path) == bool(named):
            problems.add(
                f"got {len(path)} paths and {len(named)} named paths",
                "give at least one path, either all named or none",
            )
            problems.raise_any()
        columns = None
        for one in (*path, *named.values()):
            if not isinstance(one, (str, bytes, os.PathLike, Sequence)):
                problems.add(*not_a_path("a path", one))
        problems.raise_any()
        if len(path) > 1:
            columns = [{"name": _stem(one), "path": paths(one, problems)} for one in path]
        elif named:
            columns = [{"name": name, "path": paths(one, problems, name)} for name, one in named.items()]
        problems.raise_any()
        first = path[0] if path else next(iter(named.values()))
        self._form = "tuple"  # decided below, from what there is
        super().__init__(
            first, fields, columns=columns, unpacked=unpacked, storage_options=storage_options, origins=origins
        )
        if columns is None and self._zipped():
            self._form = "dict"
        elif self._count(columns) == 1:
            self._form = "one"

    def _zipped(self) -> bool:
        """Whether the files are .npz, whose arrays have names. Only the engine knows what a folder or a pattern of a
        store has: it says in which file the first sample is."""
        first = _listed(self.path)[0]
        if "://" in first and not shown(first).lower().endswith((".npy", ".npz")):
            try:
                first = self._remote().ask("explain", epoch=0, **{"from": 0})["rows"][0]["file"]
            except ConfigError:  # none can be delivered as stored, or there are none: the first use says which
                return False
        return _zipped(first)

    def _count(self, columns: Sequence[Any] | None) -> int:
        """The number of fields of a sample. Only the engine knows it for a folder or a pattern."""
        if self._given is not None:
            return len(self._given)
        if columns is not None:
            return len(columns)
        try:
            return len(self._remote().info().names)
        except ConfigError:  # none can be delivered as stored: select() and to_tuple() say how
            return len(self._probe(None))

    def _where(self) -> dict[str, Any]:
        where = super()._where()
        wanted = {field.get("from", field["name"]) for field in self._given or []}
        if any(";" in name or name.startswith("__") for name in wanted):
            wanted = set()
        if "columns" in where:  # each has its own files
            del where["path"]
            asked = [column for column in where["columns"] if column["name"] in wanted]
            if len(asked) == len(wanted) > 0:  # otherwise the error says which there are
                where["columns"] = asked
        elif wanted and all(shown(path).lower().endswith(".npz") for path in _listed(where["path"])):
            where["columns"] = sorted(wanted)  # the others are not touched
        return where

    def __repr__(self) -> str:
        columns = self._keys.get("columns")
        if columns is None:
            return super().__repr__()
        return "NpyDataset(" + ", ".join(f"{one['name']}={shown_all(one['path'])!r}" for one in columns) + ")"


def _zipped(first: str) -> bool:
    """Whether a path is of .npz files: by its name, or by the names of what it is a folder or a pattern of."""
    if not shown(first).lower().endswith((".npy", ".npz")):
        below = os.path.join(glob.escape(first), "*") if os.path.isdir(first) else first
        found = sorted(glob.glob(below))
        first = next((one for one in found if one.lower().endswith((".npy", ".npz"))), first)
    return shown(first).lower().endswith(".npz")


def _listed(path: str | list[str]) -> list[str]:
    return [path] if isinstance(path, str) else path


_KEYWORDS = ["fields", "unpacked", "storage_options", "origins"]


def _near(name: str) -> bool:
    """Whether a file name looks like a misspelt keyword."""
    return bool(difflib.get_close_matches(name, _KEYWORDS, 1))


def _stem(path: Any) -> str:
    one = path if isinstance(path, (str, bytes, os.PathLike)) else path[0]
    return os.path.splitext(os.path.basename(os.fsdecode(one)))[0].rstrip("*?0123456789-_.{}") or "data"


class HDF5Dataset(Stored["Dict", "Dict", "Dict"]):
    """Datasets in HDF5 files with a common first axis; row i of each is a field of sample i.

    columns   the paths of datasets within the file ("train/images"); None: all whose first axis has the most common
              length. ``stoker inspect FILE`` lists them
    group     the group that contains them; columns are then paths below it
    unpacked  memory for decompressed data ("1GiB", or bytes); None: the engine's choice

    Any number of lanes reads the chunks, without the HDF5 library: there is no handle to share, to pickle or to reopen
    after a fork. Several files are concatenated.
    """

    _format = "hdf5"

    def __init__(
        self,
        path: Any,
        columns: str | Sequence[str] | None = None,
        fields: Sequence[str | Field] | None = None,
        *,
        group: str | None = None,
        unpacked: str | int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        problems = Problems("HDF5Dataset")
        names = read_names("columns", columns, problems)
        problems.raise_any()
        super().__init__(
            path,
            fields,
            columns=names,
            group=group,
            unpacked=unpacked,
            storage_options=storage_options,
            origins=origins,
        )


class LMDBDataset(Stored["Dict", "Dict", "Dict"]):
    """Values of an LMDB environment, in the order of their keys (compared as bytes).

    database  a named database of the environment; None: the unnamed one
    values    "bytes": samples are ``{"value": bytes}``; "datum": values are Caffe's Datum, and samples have ``image``
              and ``label``; None: determined from the first value
    """

    _format = "lmdb"

    def __init__(
        self,
        path: Any,
        fields: Sequence[str | Field] | None = None,
        *,
        database: str | None = None,
        values: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            path, fields, database=database, values=values, storage_options=storage_options, origins=origins
        )


class TFRecordDataset(Stored["Dict", "Dict", "Dict"]):
    """Records of TFRecord files, plain or gzip; the features of tf.train.Example are fields.

    Lists of bytes with one value become bytes, lists of numbers become arrays (scalars if all have one value). The
    field ``data`` has the bytes of the whole record. Checksums are verified.
    """

    _format = "tfrecord"

    def __init__(
        self,
        path: Any,
        fields: Sequence[str | Field] | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        super().__init__(path, fields, storage_options=storage_options, origins=origins)


class ParquetDataset(Stored["Dict", "Dict", "Dict"]):
    """Rows of Parquet files; columns are fields, and only the wanted ones are read.

    columns   the names of the wanted columns; same as fields
    label     a column of whole numbers from 0 on, or of texts, whose values are the classes; None: the column that
              Hugging Face's datasets recorded as such
    unpacked  memory for decompressed data ("1GiB", or bytes); None: the engine's choice

    A column of images as Hugging Face's datasets write it (a struct of bytes and path) is an image; lists are ragged
    arrays; the fields of a struct are named ``box.x``. A column of text or bytes that is null in some rows is left out
    unless you name it.
    """

    _format = "parquet"

    def __init__(
        self,
        path: Any,
        fields: Sequence[str | Field] | None = None,
        *,
        columns: Sequence[str] | None = None,
        label: str | None = None,
        unpacked: str | int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        problems = Problems("ParquetDataset")
        if fields is not None and columns is not None:
            problems.add("fields and columns mean the same", "give only one")
        problems.raise_any()
        chosen, by = (fields, "fields") if columns is None else (columns, "columns")
        super().__init__(
            path,
            chosen,
            chosen_by=by,
            label=label,
            unpacked=unpacked,
            storage_options=storage_options,
            origins=origins,
        )


class LinesDataset(Stored["Dict", "Dict", "Dict"]):
    """Text files: every line of a JSONL file is a sample, and every other text file is one sample.

    For a line, the field ``json`` is its object. The keys of the object are fields too: texts unchanged, all other
    values as JSON, unless a ``Field("label", decode="int")`` says what they are. Other files have the field ``text``.
    In a folder, the ``.jsonl`` (``.ndjson``) and ``.txt`` (``.text``, ``.md``) files are read. Lines are indexed once,
    so that each can be read directly, and nothing is kept in memory.
    """

    _format = "lines"

    def __init__(
        self,
        path: Any,
        fields: Sequence[str | Field] | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        super().__init__(path, fields, storage_options=storage_options, origins=origins)

    def _fields(self) -> list[dict[str, Any]] | None:
        return self._given and [
            field
            if SAID & field.keys()
            else {**field, "decode": "json" if field.get("from", field["name"]) == "json" else "text"}
            for field in copy.deepcopy(bare(self._given))
        ]


class MDSDataset(Stored["Dict", "Dict", "Dict"]):
    """Shards of MosaicML Streaming: the folder with ``index.json``.

    unpacked  memory for decompressed shards ("1GiB", or bytes); None: the engine's choice
    """

    _format = "mds"

    def __init__(
        self,
        path: Any,
        fields: Sequence[str | Field] | None = None,
        *,
        unpacked: str | int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        super().__init__(path, fields, unpacked=unpacked, storage_options=storage_options, origins=origins)


class BetonDataset(Stored["Dict", "Dict", "Dict"]):
    """An FFCV file. Its fields have names; ``to_tuple()`` gives them as FFCV's own loader does. Pictures may be raw or
    JPEG.

    pictures  treat raw pictures of one size as pictures too, for transforms; None: they are arrays (height, width, 3)
    """

    _format = "beton"

    def __init__(
        self,
        path: Any,
        fields: Sequence[str | Field] | None = None,
        *,
        pictures: bool | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        problems = Problems("BetonDataset")
        if pictures is not None:
            pictures = truth("pictures", pictures, problems)
        problems.raise_any()
        super().__init__(path, fields, pictures=pictures, storage_options=storage_options, origins=origins)


class TokenDataset(Stored[TP, NP, JP], Generic[TP, NP, JP]):
    """Token files of language models: flat files of numbers (nanoGPT, GPT-NeoX) or Megatron's .bin and .idx.

    length     tokens in a window; samples are ``(x, y)``, with y shifted by one token
    stride     tokens from one window to the next; None: length, so that windows do not overlap
    random     instead, this many windows at random positions, drawn by ``seed`` as nanoGPT draws its batches; the same
               windows in every epoch. With stride=1 and shuffle, every position comes once per epoch
    documents  samples are whole documents instead: ``(tokens,)``, ragged
    dtype      for a flat file: "uint16", "uint32", "int32", ...; None: what the file says, else uint16
    eos, bos   the token that ends, or begins, a document in a flat file, for ``documents``
    next       False: samples are ``(tokens,)`` without the shifted y
    out        type of the delivered tokens; "int64" is what embeddings expect, None keeps the stored type
    fields     instead of all that: your own fields over the stored field "tokens"
    """

    _form = "tuple"
    _format = "tokens"

    @overload
    def __init__(
        self: TokenDataset[Documents, Documents, Documents],
        path: Any,
        length: int | None = None,
        *,
        documents: Literal[True],
        stride: int | None = None,
        random: int | None = None,
        seed: int | None = None,
        dtype: Any = None,
        eos: int | None = None,
        bos: int | None = None,
        out: Any = "int64",
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: TokenDataset[Batch[Tensor], Batch[Numpy], Batch[Array]],
        path: Any,
        length: int | None = None,
        *,
        next: Literal[False],
        stride: int | None = None,
        random: int | None = None,
        seed: int | None = None,
        dtype: Any = None,
        eos: int | None = None,
        bos: int | None = None,
        out: Any = "int64",
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: TokenDataset[AnyTuple, AnyTuple, AnyTuple],
        path: Any,
        length: int | None = None,
        *,
        fields: Sequence[str | Field],
        stride: int | None = None,
        random: int | None = None,
        seed: int | None = None,
        dtype: Any = None,
        eos: int | None = None,
        bos: int | None = None,
        out: Any = "int64",
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        path: Any,
        length: int | None = None,
        *,
        documents: bool = False,
        next: bool = True,
        fields: Sequence[str | Field] | None = None,
        stride: int | None = None,
        random: int | None = None,
        seed: int | None = None,
        dtype: Any = None,
        eos: int | None = None,
        bos: int | None = None,
        out: Any = "int64",
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None: ...

    def __init__(
        self,
        path: Any,
        length: int | None = None,
        *,
        stride: int | None = None,
        random: int | None = None,
        seed: int | None = None,
        documents: bool = False,
        dtype: Any = None,
        eos: int | None = None,
        bos: int | None = None,
        next: bool = True,  # the stored word
        out: Any = "int64",
        fields: Sequence[str | Field] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        problems = Problems("TokenDataset")
        length, stride, random, seed = scalar(length), scalar(stride), scalar(random), scalar(seed)
        eos, bos = scalar(eos), scalar(bos)
        if documents == (length is not None):
            problems.add(f"length={length!r} and documents={documents!r}", "give a window length, or documents=True")
        documents = truth("documents", documents, problems)
        next = truth("next", next, problems)
        for key, given in (("eos", eos), ("bos", bos)):
            if given is not None and not whole(given):
                problems.add(f"{key} is {given!r}", "give a token id")
        for key, given in (("length", length), ("stride", stride), ("random", random)):
            if given is not None and (not whole(given) or given < 1):
                problems.add(f"{key} is {given!r}", f"give a number of {'windows' if key == 'random' else 'tokens'}")
        if documents and (stride is not None or random is not None):
            problems.add(
                "stride and random cannot be used with documents", "leave them out: documents are delivered whole"
            )
        if stride is not None and random is not None:
            problems.add("stride and random exclude each other: both decide where windows begin", "give only one")
        if seed is not None and (random is None or not whole(seed) or not 0 <= seed < 1 << 64):
            problems.add(f"seed is {seed!r}", "give an integer from 0 to 2**64 - 1, and random=")
        problems.raise_any()
        window: dict[str, Any] = {"length": length, "stride": stride, "random": random, "seed": seed}
        window.update(eos=eos, bos=bos, documents=documents or None, next=next and not documents or None)
        window = {key: value for key, value in window.items() if value is not None}
        if fields is None:
            views = [("x", (None, -1)), ("y", (1, None))] if next and not documents else [("tokens", None)]
            fields = [Field(name, source="tokens", dtype=out, view=view) for name, view in views]
        super().__init__(
            path, fields, window=window, dtype=dtype_name(dtype), storage_options=storage_options, origins=origins
        )

"""Datasets that lie as files of other formats: what is given here is where, and which fields; the engine reads them.

Stored           fields of samples that some format stores; samples are dicts, or tuples after to_tuple()
 ├── NpyDataset      .npy and .npz files          ├── TokenDataset    token files of language models
 ├── HDF5Dataset     .h5 files                    ├── Table, files    manifests, and files by a pattern
 ├── LMDBDataset     LMDB environments            ├── MDSDataset      MosaicML Streaming's shards
 ├── TFRecordDataset TFRecord files               └── BetonDataset    FFCV's files
 ├── ParquetDataset  Parquet files
 └── LinesDataset    JSONL and other text
"""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _client
from ._cache import amount
from ._compile import to_ops
from ._datasets import Dataset, _path, absolute, check_keywords
from ._errors import ConfigError, Problems, StokerError, whole
from ._spec import Recipe

_BATCHES = ("dense", "padded", "ragged")
_DECODES = ("rgb", "gray", "text", "json", "int", "float", "bytes", "npy", "array")

# What says how a field is delivered; where none is said, the format decides.
_SAID = {"decode", "transform", "dtype", "batch", "view"}


class Field:
    """How one stored field is delivered. What is left out is decided by what the format knows of it.

    name       as it is stored, or as it is to be called where ``source`` gives its stored name
    source     its stored name; "jpg;png" takes the first that a sample has, unless that is the name of a field
    decode     "rgb", "gray", "text", "json", "int", "float", "bytes", "npy" (bytes that are a .npy file), or "array"
    transform  transforms of images
    dtype      what numbers become: "int64", "float32", ...; checked before anything is read
    batch      "dense" (all samples have one shape), "padded" or "ragged" (see ``Ragged``)
    to         of padded: the length that all batches get; None: that of the longest sample of the batch
    multiple   of padded: the length is rounded up to a multiple of it
    value      of padded: what stands behind the end of a sample
    truncate   of padded with ``to``: cut longer samples, which are errors otherwise
    view       (begin, end) of the first axis of a sample, as a slice: views of one stored field share one buffer
    """

    def __init__(
        self,
        name: str,
        *,
        source: str | None = None,
        decode: str | None = None,
        transform: Any = None,
        dtype: Any = None,
        batch: str | None = None,
        to: int | None = None,
        multiple: int | None = None,
        value: float | None = None,
        truncate: bool = False,
        view: tuple[int | None, int | None] | None = None,
    ) -> None:
        problems = Problems(f"Field {name!r}")
        if batch is not None and batch not in _BATCHES:
            problems.add(f"batch is {batch!r}", "it can be " + ", ".join(map(repr, _BATCHES)))
        if decode is not None and decode not in _DECODES:
            near = difflib.get_close_matches(str(decode), _DECODES, 1)
            hint = f"did you mean {near[0]!r}?" if near else "it can be " + ", ".join(map(repr, _DECODES))
            problems.add(f"decode is {decode!r}", hint)
        pad: dict[str, Any] = {}
        for key, given in (("to", to), ("multiple", multiple)):
            if given is not None and (not whole(given) or given < 1):
                problems.add(f"{key} is {given!r}", "give a number of elements")
            elif given is not None:
                pad[key] = int(given)
        if value is not None:
            pad["value"] = value
        if truncate:
            pad["truncate"] = True
        if pad and batch is None:
            batch = "padded"
        if pad and batch != "padded":
            problems.add(f"{', '.join(pad)} with batch={batch!r}", "padding is of batch='padded'")
        problems.raise_any()
        self.name = name
        self.spec: dict[str, Any] = {"name": name}
        said = {"from": source, "decode": decode, "dtype": _dtype(dtype), "batch": batch, "pad": pad or None}
        self.spec.update({key: word for key, word in said.items() if word is not None})
        if transform is not None:
            self.spec["decode"] = decode or "rgb"
            self.spec["transform"] = to_ops(transform, f"Field({name!r}, transform=...)")
        if view is not None:
            self.spec["view"] = list(view)

    def __repr__(self) -> str:
        return f"Field({self.spec!r})"


def _dtype(dtype: Any) -> str | None:
    """The engine's name of a dtype: NumPy's, of a name, a NumPy dtype or scalar type, or a torch dtype."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    text = getattr(dtype, "__name__", None) or str(dtype)
    return text.removeprefix("torch.")


class Stored(Dataset):
    """What datasets of stored fields share. Samples are dicts by the names of their fields.

    fields     what is delivered, in order: names, or ``Field``; None: all that the format has

    A name that was declared before, by ``fields`` or an earlier call, keeps what was said of it: ``select("image")``
    of a dataset with a transform has that transform.
    """

    _as_tuple = False
    _format = ""
    _known: list[dict[str, Any]] | None = None
    _declared: dict[str, dict[str, Any]]  # by name: the last that was said of every field, delivered now or not

    def __init__(self, path: Any, fields: Sequence[str | Field] | None = None, **keys: Any) -> None:
        problems = Problems(type(self).__name__)
        self.path = paths(path, problems)
        self._given = _fields(fields, {}, problems)
        self._declared = {field["name"]: field for field in self._given or []}
        problems.raise_any()
        self._keys = {key: value for key, value in keys.items() if value is not None}
        if "unpacked" in self._keys and amount(unpacked := self._keys["unpacked"]) is None:
            problems.add(f"unpacked is {unpacked!r}", "give an amount like '1GiB', or a number of bytes")
        problems.raise_any()
        self._opened()

    def _opened(self) -> None:
        """Raises what is wrong with the dataset. That its own fields can not be delivered is no error before they are
        asked for: select() and to_tuple() may name others."""
        try:
            self._remote().info()
        except ConfigError as error:
            self._peek = None
            if self._given is not None:
                raise
            try:
                self._probe(None)
            except StokerError:
                raise error from None

    def _where(self) -> dict[str, Any]:
        """The dataset of the Spec."""
        return {"path": self.path, "format": self._format, **self._keys}

    def _recipe(self) -> Recipe:
        return Recipe(self._where(), copy.deepcopy(self._given), as_dict=not self._as_tuple)

    def _fields(self) -> list[dict[str, Any]] | None:
        """The fields as they were given; of those of which only the name was, what the format says of them."""
        if self._known is None and self._given is not None:
            own = self._own() if any(not _SAID & field.keys() for field in self._given) else {}
            self._known = [
                {**field, "decode": own[stored]}
                if not _SAID & field.keys() and (stored := field.get("from", field["name"])) in own
                else field
                for field in self._given
            ]
        return copy.deepcopy(self._known)

    def _own(self) -> dict[str, str]:
        """How the format decodes those of its fields that are bytes to it."""
        words = {"image": "rgb", "text": "text", "json": "json"}
        try:
            found = self._probe(None)
        except StokerError:  # it will be said again
            found = []
        own = {field.name: words[field.kind] for field in found if field.kind in words}
        return {"__key__": "text", "__url__": "text", **own}

    def _probe(self, fields: list[dict[str, Any]] | None) -> list[_client.Field]:
        """What the engine says of fields; None: of those of its own that it can deliver."""
        spec: dict[str, Any] = {"dataset": self._where(), "batch": {"size": 1}, "deliver": {"prefetch": 1}}
        spec = {**spec, "workers": 1, **({"fields": fields} if fields else {})}
        probe = _client.Remote(spec, keeps=False, stored=fields is None)
        try:
            return probe.info().fields
        finally:
            probe.close()

    @property
    def fields(self) -> list[str]:
        """The names of the fields of a sample, in order."""
        return [field.name for field in self._remote().info().fields]

    @property
    def classes(self) -> list[str]:
        """The names of the classes, where labels have names."""
        return list(self._remote().info().classes)

    def select(self, *fields: str | Field) -> Any:
        """The same dataset with these fields only, in this order, as dicts. See the class for what they keep."""
        return self._with(fields, as_tuple=False)

    def to_tuple(self, *fields: str | Field) -> Any:
        """The same dataset with these fields, in this order, as tuples; without fields, all it has."""
        return self._with(fields or None, as_tuple=True)

    def _with(self, fields: Sequence[str | Field] | None, as_tuple: bool) -> Any:
        other = copy.copy(self)
        other.__dict__ = self.__getstate__()
        problems = Problems(type(self).__name__)
        if fields is not None:
            other._given = _fields(fields, self._declared, problems)
            other._declared = {**self._declared, **{field["name"]: field for field in other._given or []}}
            other._known = None
        problems.raise_any()
        other._as_tuple = as_tuple
        other._remote().info()
        return other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"


def paths(path: Any, problems: Problems, name: str = "path") -> str | list[str]:
    """One path or several, absolute; globs and braces stay what they are."""
    if isinstance(path, (str, bytes, os.PathLike)):
        return absolute(_path(path, name, problems))
    if isinstance(path, Sequence) and path:
        return [absolute(_path(one, f"{name}[{i}]", problems)) for i, one in enumerate(path)]
    problems.add(f"{name} is {path!r}", "give a path, a pattern such as 'data-*.h5', or a list of them")
    return []


def _fields(
    fields: Sequence[str | Field] | None, declared: Mapping[str, dict[str, Any]], problems: Problems
) -> list[dict[str, Any]] | None:
    if fields is None:
        return None
    if isinstance(fields, (str, Field)):
        fields = [fields]
    found = []
    for field in fields:
        if isinstance(field, Field):
            found.append(_kept(field.spec, declared))
        elif isinstance(field, str):
            found.append(_kept({"name": field}, declared))
        else:
            problems.add(f"fields has {field!r}", "give names of fields, or stoker.Field")
    if not found:
        problems.add("fields is empty", "leave it out to have all fields")
    return found


def _kept(spec: dict[str, Any], declared: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The Spec of a field: what is left out is what was declared under its name, or of the one field that has the same
    source and so gets another name. A transform belongs to the decoding it was declared with."""
    name = spec["name"]
    before = declared.get(name)
    if "from" in spec and (before is None or before.get("from", name) != spec["from"]):
        same = [field for field in declared.values() if field.get("from", field["name"]) == spec["from"]]
        before = same[0] if len(same) == 1 else None
    if before is None:
        return dict(spec)
    kept = {"from": before["name"], **copy.deepcopy(before)}
    if "decode" in spec:
        kept.pop("transform", None)
    if "batch" in spec:
        kept.pop("pad", None)
    kept.update(spec)
    if kept["from"] == name:
        del kept["from"]
    return kept


class NpyDataset(Stored):
    """Arrays of ``.npy`` or ``.npz`` files; row i of each is a field of sample i.

    ``NpyDataset("images.npy", "labels.npy")`` and ``NpyDataset(images="images.npy", labels="labels.npy")`` are pairs
    of files; samples are tuples in that order. A field may be several files, one behind the other: a list, or a
    pattern. One ``.npz`` has its arrays as fields, and ``NpyDataset("data.npz", fields=["x", "y"])`` chooses. Nothing
    is loaded: rows are read where they lie, and arrays that are not chosen are not looked at. Fortran order, objects
    and structures are errors that say what to do.

    unpacked  memory for what was decompressed of a compressed ``.npz`` ("1GiB", or bytes); None: the engine's choice
    """

    _as_tuple = True
    _format = "npy"

    def __init__(
        self,
        *path: Any,
        fields: Sequence[str | Field] | None = None,
        unpacked: str | int | None = None,
        **named: Any,
    ) -> None:
        problems = Problems("NpyDataset")
        if path:
            check_keywords("NpyDataset", (name for name in named if _near(name)), ["fields", "unpacked"])
        if bool(path) == bool(named):
            problems.add(f"{len(path)} paths and {len(named)} named ones", "give either, and one at least")
            problems.raise_any()
        columns = None
        if len(path) > 1:
            columns = [{"name": _stem(one), "path": paths(one, problems)} for one in path]
        elif named:
            columns = [{"name": name, "path": paths(one, problems, name)} for name, one in named.items()]
        problems.raise_any()
        first = path[0] if path else next(iter(named.values()))
        super().__init__(first, fields, columns=columns, unpacked=unpacked)

    def _where(self) -> dict[str, Any]:
        where = super()._where()
        wanted = {field.get("from", field["name"]) for field in self._given or []}
        if any(";" in name or name.startswith("__") for name in wanted):
            wanted = set()
        if "columns" in where:  # each has files of its own
            del where["path"]
            asked = [column for column in where["columns"] if column["name"] in wanted]
            if len(asked) == len(wanted) > 0:  # else the error says which there are
                where["columns"] = asked
        elif wanted and all(path.lower().endswith(".npz") for path in _listed(where["path"])):
            where["columns"] = sorted(wanted)  # the others are not looked at
        return where

    def __repr__(self) -> str:
        columns = self._keys.get("columns")
        if columns is None:
            return super().__repr__()
        return "NpyDataset(" + ", ".join(f"{column['name']}={column['path']!r}" for column in columns) + ")"


def _listed(path: str | list[str]) -> list[str]:
    return [path] if isinstance(path, str) else path


def _near(name: str) -> bool:
    """Whether a name of a file is rather a keyword that is spelt wrong."""
    return bool(difflib.get_close_matches(name, ["fields", "unpacked"], 1))


def _stem(path: Any) -> str:
    one = path if isinstance(path, (str, bytes, os.PathLike)) else path[0]
    return os.path.splitext(os.path.basename(os.fsdecode(one)))[0].rstrip("*?0123456789-_.{}") or "data"


class HDF5Dataset(Stored):
    """Datasets of HDF5 files with one first axis; row i of each is a field of sample i.

    columns   the paths of datasets within the file ("train/images"); None: all whose first axis has the most common
              length. ``stoker inspect FILE`` lists what there is.
    group     the group that they lie in; columns are then paths below it
    unpacked  memory for what was decompressed ("1GiB", or bytes); None: the engine's choice

    The chunks are read beside the HDF5 library, by any number of lanes: there is no handle to share, to pickle or to
    open again after a fork. Several files are one behind the other.
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
    ) -> None:
        names = None if columns is None else [columns] if isinstance(columns, str) else list(columns)
        super().__init__(path, fields, columns=names, group=group, unpacked=unpacked)


class LMDBDataset(Stored):
    """Values of an LMDB environment, in the order of their keys (by their bytes).

    database  a named database of the environment; None: the unnamed one
    values    "bytes": samples are ``{"value": bytes}``; "datum": values are Caffe's Datum, samples have ``image`` and
              ``label``; None: found out from the first value
    """

    _format = "lmdb"

    def __init__(
        self,
        path: Any,
        fields: Sequence[str | Field] | None = None,
        *,
        database: str | None = None,
        values: str | None = None,
    ) -> None:
        super().__init__(path, fields, database=database, values=values)


class TFRecordDataset(Stored):
    """Records of TFRecord files, plain or gzip; the features of tf.train.Example are fields.

    Lists of bytes with one value are bytes, lists of numbers arrays (scalars where all have one value). The bytes of
    the whole record are the field ``data``. Checksums are compared.
    """

    _format = "tfrecord"

    def __init__(self, path: Any, fields: Sequence[str | Field] | None = None) -> None:
        super().__init__(path, fields)


class ParquetDataset(Stored):
    """Rows of Parquet files; columns are fields, and only those that are wanted are read.

    columns   the names of the wanted columns; the same as fields
    label     a column of whole numbers from 0 on, or of texts, whose values are the classes; None: what Hugging Face's
              datasets wrote down as such
    unpacked  memory for what was decompressed ("1GiB", or bytes); None: the engine's choice

    A column of images as Hugging Face's datasets write them (a struct of bytes and path) is an image; lists are
    ragged arrays; fields of a struct are called ``box.x``. A column of text or bytes that is null in some rows is left
    out unless it is named.
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
    ) -> None:
        problems = Problems("ParquetDataset")
        if fields is not None and columns is not None:
            problems.add("fields and columns both name what is wanted", "give one of them")
        problems.raise_any()
        super().__init__(path, fields if fields is not None else columns, label=label, unpacked=unpacked)


class LinesDataset(Stored):
    """Text files: every line of a JSONL file is a sample, and every other text file is one, whole.

    Of a line, the field ``json`` is its object; the keys of the object are fields too: texts as they are, all other
    values as JSON, unless ``Field("label", decode="int")`` says what they are. Of other files the field is ``text``.
    A folder stands for the ``.jsonl`` (``.ndjson``) and ``.txt`` (``.text``, ``.md``) files in it. Lines are indexed
    once, so that any of them is reached directly, and nothing is kept in memory.
    """

    _format = "lines"

    def __init__(self, path: Any, fields: Sequence[str | Field] | None = None) -> None:
        super().__init__(path, fields)

    def _fields(self) -> list[dict[str, Any]] | None:
        return self._given and [
            field
            if _SAID & field.keys()
            else {**field, "decode": "json" if field.get("from", field["name"]) == "json" else "text"}
            for field in copy.deepcopy(self._given)
        ]


class MDSDataset(Stored):
    """Shards of MosaicML Streaming: the folder with ``index.json``.

    unpacked  memory for shards that were decompressed ("1GiB", or bytes); None: the engine's choice
    """

    _format = "mds"

    def __init__(
        self, path: Any, fields: Sequence[str | Field] | None = None, *, unpacked: str | int | None = None
    ) -> None:
        super().__init__(path, fields, unpacked=unpacked)


class BetonDataset(Stored):
    """A file of FFCV; samples are tuples of its fields. Pictures may be raw or JPEG.

    pictures  raw pictures of one size are pictures too, for transforms; None: they are arrays (height, width, 3)
    """

    _as_tuple = True
    _format = "beton"

    def __init__(self, path: Any, fields: Sequence[str | Field] | None = None, *, pictures: bool | None = None) -> None:
        super().__init__(path, fields, pictures=pictures)


class TokenDataset(Stored):
    """Token files of language models: flat files of numbers (nanoGPT, GPT-NeoX) or Megatron's .bin and .idx.

    length     tokens of a window; samples are ``(x, y)``, y one token further than x: views of one buffer
    stride     tokens from one window to the next; None: length, so that windows do not overlap
    random     so many windows instead that begin anywhere, drawn by ``seed``, as nanoGPT draws its batches; the same
               ones in every epoch. stride=1 with shuffle has every start once in an epoch
    documents  samples are whole documents instead: ``(tokens,)``, ragged
    dtype      of a flat file: "uint16", "uint32", "int32", ...; None: what the file says, else uint16
    eos, bos   the token that ends, or begins, a document in a flat file, for ``documents``
    next       False: samples are ``(tokens,)`` without the shifted y
    out        what tokens become; "int64" is what embeddings take, None leaves them as they are stored
    fields     instead of all that: fields of your own over the stored field "tokens"
    """

    _as_tuple = True
    _format = "tokens"

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
    ) -> None:
        problems = Problems("TokenDataset")
        if documents == (length is not None):
            problems.add(
                f"length={length!r} and documents={documents!r}", "give a length of windows, or documents=True"
            )
        for key, given in (("length", length), ("stride", stride), ("random", random)):
            if given is not None and (not whole(given) or given < 1):
                problems.add(f"{key} is {given!r}", f"give a number of {'windows' if key == 'random' else 'tokens'}")
        if documents and (stride is not None or random is not None):
            problems.add("stride and random with documents", "documents are delivered whole: leave them out")
        if stride is not None and random is not None:
            problems.add("stride and random both say where windows begin", "give one of them")
        if seed is not None and (random is None or not whole(seed) or not 0 <= seed < 1 << 64):
            problems.add(f"seed is {seed!r}", "give an integer from 0 to 2**64 - 1, together with random=")
        problems.raise_any()
        window: dict[str, Any] = {"length": length, "stride": stride, "random": random, "seed": seed}
        window.update(eos=eos, bos=bos, documents=documents or None, next=next and not documents or None)
        window = {key: value for key, value in window.items() if value is not None}
        if fields is None:
            views = [("x", (None, -1)), ("y", (1, None))] if next and not documents else [("tokens", None)]
            fields = [Field(name, source="tokens", dtype=out, view=view) for name, view in views]
        super().__init__(path, fields, window=window, dtype=_dtype(dtype))


class Table(Stored):
    """A table of samples: CSV, TSV, JSONL or Parquet with a column of paths, one of labels, and any others.

    manifest  the table
    path      the column of paths, relative to ``root``; None: there are no files, the columns are all there is
    label     the column of labels: whole numbers from 0 on, or names of classes, which are numbered in sorted order
              ("none": none is; left out without ``path``: one that is called label or class)
    root      the folder that paths are relative to and may not leave; None: that of the table
    transform transforms of the images; with ``fields``, of those that have none of their own

    With ``path``, samples are ``(image, label)``, or ``(image,)`` without a label; without it, tuples of the columns.
    ``table.select("image", "score")`` are dicts of any columns.
    """

    _as_tuple = True

    def __init__(
        self,
        manifest: Any,
        path: str | None = None,
        label: str | None = None,
        *,
        root: Any = None,
        transform: Any = None,
        fields: Sequence[str | Field] | None = None,
    ) -> None:
        problems = Problems("Table")
        for key, given in (("root", root), ("transform", transform)):
            if given is not None and path is None:
                problems.add(
                    f"{key} is for files, and no column of paths is given", "give path='...', the column's name"
                )
        problems.raise_any()
        if path is None:
            self._format = "table"
            super().__init__(manifest, fields, label=label)
            return
        self._format = "files"
        root = None if root is None else absolute(_path(root, "root", problems))
        if not isinstance(manifest, (str, bytes, os.PathLike)):
            problems.add(f"manifest is {manifest!r}", "give the path of one table")
        fields = _images(fields, transform, label is not None, problems)
        problems.raise_any()
        super().__init__(manifest, fields, path_column=path, label=label or "none", root=root)

    def _where(self) -> dict[str, Any]:
        where = super()._where()
        if self._format == "files":
            where["manifest"] = where.pop("path")
        return where

    def _own(self) -> dict[str, str]:
        # Columns that some rows lack are not the format's own; all that are no numbers are text.
        own = super()._own()
        names = {field.get("from", field["name"]) for field in self._given or [] if not _SAID & field.keys()}
        try:
            more = self._probe([{"name": name} for name in sorted(names - own.keys())]) if names - own.keys() else []
        except StokerError:  # it will be said again
            more = []
        return {**own, **{field.name: "text" for field in more if field.kind == "bytes"}}


def _images(
    fields: Sequence[str | Field] | None, transform: Any, labels: bool, problems: Problems
) -> Sequence[str | Field]:
    """The fields of files. A transform is of the pictures that have none of their own."""
    if fields is None:
        found = [Field("image", decode="rgb", transform=transform)]
        return [*found, Field("label")] if labels else found
    if transform is None:
        return fields
    given: list[str | Field] = [fields] if isinstance(fields, (str, Field)) else list(fields)
    plain = [i for i, field in enumerate(given) if _plain(field.spec if isinstance(field, Field) else {"name": field})]
    for i in plain:
        field = given[i]
        before = field.spec if isinstance(field, Field) else {"name": field}
        given[i] = full = Field(before["name"], decode=before.get("decode"), transform=transform)
        full.spec = {**before, **full.spec}
    if not plain:
        problems.add(
            "transform is given, and fields have no picture without a transform of its own",
            "name 'image' among the fields, or give transforms to fields alone: Field('image', transform=...)",
        )
    return given


def _plain(spec: Mapping[str, Any]) -> bool:
    """Whether a field of files is a picture without a transform."""
    picture = spec.get("from", spec["name"]) == "image" and spec.get("decode", "rgb") in ("rgb", "gray")
    return picture and "transform" not in spec


class files(Stored):
    """Files that match a pattern, or are listed: each is a sample.

    pattern    "data/*/*.jpg", "data/**/*.png", or a list of paths and patterns
    labels     "folder": the label is the name of the folder of a file, numbered in sorted order; None: no labels
    transform  transforms of the images; with ``fields``, of those that have none of their own

    Samples are ``(image, label)``, or ``(image,)`` without labels.
    """

    _as_tuple = True
    _format = "files"

    def __init__(
        self,
        pattern: Any,
        labels: str | None = "folder",
        *,
        transform: Any = None,
        fields: Sequence[str | Field] | None = None,
    ) -> None:
        problems = Problems("files")
        if labels not in (None, "folder"):
            problems.add(f"labels is {labels!r}", "it can be 'folder' or None; stoker.Table reads labels from a table")
        fields = _images(fields, transform, labels is not None, problems)
        problems.raise_any()
        super().__init__(pattern, fields, label=labels or "none")

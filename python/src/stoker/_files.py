"""Files, each a sample: those of a table, and those that a pattern finds.

Table    CSV, TSV, JSONL or Parquet with a column of paths; or only its columns, without files
files    a pattern, or a list of paths
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, overload

from ._datasets import _path, absolute
from ._errors import Problems, StokerError
from ._fields import FIELDS, SAID, Field, read_list
from ._split import said
from ._stored import Pictures, not_a_path, picture
from ._types import JP, NP, TP

if TYPE_CHECKING:
    from ._batch import Batch
    from ._types import AnyTuple, Array, Dict, Documents, Numpy, Tensor  # noqa: F401 in bases


class Table(Pictures[TP, NP, JP], Generic[TP, NP, JP]):
    """A table of samples: CSV, TSV, JSONL or Parquet with a column of paths, one of labels, and any others.

    manifest  the table
    path      the column of paths, relative to ``root``; None: there are no files, only the columns
    label     the column of labels: whole numbers from 0 on, or names of classes, which are numbered in sorted order.
              Other numbers are delivered as int64, or as float64 if one has a decimal point, and a notice says so.
              "none": there are no labels. Without ``path``, the default is a column called label or class
    root      the folder that paths are relative to and must not leave; None: that of the table
    origins   prefixes of what the table may name outside its folder, such as "s3://bucket/pictures/"; None: nowhere
    transform transforms of the images; with ``fields``, of those without their own

    With ``path``, samples are ``(image, label)``, or ``(image,)`` without labels; otherwise tuples of the columns.
    ``table.select("image", "score")`` gives dicts of any columns.
    """

    _form = "tuple"

    @overload
    def __init__(
        self,
        manifest: Any,
        path: str,
        label: str,
        *,
        root: Any = None,
        transform: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: Table[AnyTuple, AnyTuple, AnyTuple],
        manifest: Any,
        path: str | None = None,
        label: str | None = None,
        *,
        root: Any = None,
        transform: Any = None,
        fields: Sequence[str | Field] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None: ...

    def __init__(
        self,
        manifest: Any,
        path: str | None = None,
        label: str | None = None,
        *,
        root: Any = None,
        transform: Any = None,
        fields: Sequence[str | Field] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        problems = Problems("Table")
        for key, given in (("root", root), ("transform", transform)):
            if given is not None and path is None:
                problems.add(
                    f"{key} needs files, but no column of paths is given", "give path='...', the column's name"
                )
        problems.raise_any()
        if path is None:
            self._format = "table"
            super().__init__(manifest, fields, label=label, storage_options=storage_options, origins=origins)
            return
        self._format = "files"
        root = None if root is None else absolute(_path(root, "root", problems))
        if not isinstance(manifest, (str, bytes, os.PathLike)):
            what, hint = not_a_path("manifest", manifest)
            problems.add(what, "give the path of one table" if isinstance(manifest, (list, tuple)) else hint)
        fields, self._pictures = _images("Table", fields, transform, label is not None, problems)
        problems.raise_any()
        self._transform = transform
        super().__init__(
            manifest,
            fields,
            path_column=path,
            label=label or "none",
            root=root,
            storage_options=storage_options,
            origins=origins,
        )

    def _where(self) -> dict[str, Any]:
        where = super()._where()
        if self._format == "files":
            where["manifest"] = where.pop("path")
        return where

    def _own(self) -> dict[str, str]:
        # The format does not offer columns that some rows lack; everything that is not a number is text.
        own = super()._own()
        names = {field.get("from", field["name"]) for field in self._given or [] if not SAID & field.keys()}
        try:
            more = self._probe([{"name": name} for name in sorted(names - own.keys())]) if names - own.keys() else []
        except StokerError:  # the error will be raised again
            more = []
        return {**own, **{field.name: "text" for field in more if field.kind == "bytes"}}


def _images(
    kind: str, fields: Sequence[str | Field] | None, transform: Any, labels: bool, problems: Problems
) -> tuple[Sequence[str | Field], tuple[str, ...]]:
    """The fields of files, and the names of the pictures without their own transform, which this one applies to."""
    where = f"{kind}(transform=...)"
    if fields is None:
        found = [picture(transform, where)]
        return [*found, Field("label")] if labels else found, ("image",)
    given: list[str | Field] = read_list("fields", fields, FIELDS, problems) or []
    if not given:  # reported when they are read
        return fields, ()
    specs = [field.spec if isinstance(field, Field) else {"name": field} for field in given]
    plain = [i for i, spec in enumerate(specs) if _plain(spec)]
    names = tuple(specs[i]["name"] for i in plain)
    if transform is None:
        return given, names
    told = said(transform, where)
    for i in plain:
        given[i] = full = Field(specs[i]["name"])
        full.spec = {"decode": "rgb", **specs[i], **told}
    if not plain:
        problems.add(
            "transform is given, but fields have no picture without its own transform",
            "add 'image' to the fields, or give transforms only to fields: Field('image', transform=...)",
        )
    return given, names


def _plain(spec: Mapping[str, Any]) -> bool:
    """Whether a field of files is a picture without a transform."""
    picture = spec.get("from", spec["name"]) == "image" and spec.get("decode", "rgb") in ("rgb", "gray")
    return picture and "transform" not in spec


class files(Pictures[TP, NP, JP], Generic[TP, NP, JP]):
    """Files that match a pattern or are listed: each is a sample.

    pattern    "data/*/*.jpg", "data/**/*.png", or a list of paths and patterns
    labels     "folder": the label is the name of the file's folder, numbered in sorted order; None: no labels
    transform  transforms of the images; with ``fields``, of those without their own

    Samples are ``(image, label)``, or ``(image,)`` without labels.
    """

    _form = "tuple"
    _format = "files"

    @overload
    def __init__(
        self: files[Batch[Tensor], Batch[Numpy], Batch[Array]],
        pattern: Any,
        labels: None,
        *,
        transform: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        pattern: Any,
        labels: str = "folder",
        *,
        transform: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: files[AnyTuple, AnyTuple, AnyTuple],
        pattern: Any,
        labels: str | None = "folder",
        *,
        transform: Any = None,
        fields: Sequence[str | Field],
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None: ...

    def __init__(
        self,
        pattern: Any,
        labels: str | None = "folder",
        *,
        transform: Any = None,
        fields: Sequence[str | Field] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
    ) -> None:
        problems = Problems("files")
        if labels not in (None, "folder"):
            problems.add(
                f"labels is {labels!r}", "it can be 'folder' or None; use stoker.Table to read labels from a table"
            )
        fields, self._pictures = _images("files", fields, transform, labels is not None, problems)
        problems.raise_any()
        self._transform = transform
        super().__init__(pattern, fields, label=labels or "none", storage_options=storage_options, origins=origins)

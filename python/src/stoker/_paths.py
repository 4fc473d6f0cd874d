"""Advice for a path that was given instead of a dataset: the class that reads what is there. Folders are listed, files
are not read."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from itertools import islice

from ._folder import EXTENSIONS
from ._shown import shown as bare

# The call that reads a file, by the end of its name.
_ENDINGS = {
    (".h5", ".hdf5"): "stoker.HDF5Dataset({})",
    (".npy", ".npz"): "stoker.NpyDataset({})",
    (".parquet",): "stoker.ParquetDataset({})",
    (".lmdb", ".mdb"): "stoker.LMDBDataset({})",
    (".jsonl", ".ndjson"): "stoker.LinesDataset({})",
    (".csv", ".tsv"): "stoker.Table({}, path='the column of files', label='the column of labels')",
    (".tfrecord", ".tfrecords"): "stoker.TFRecordDataset({})",
    (".tar", ".tar.gz", ".tgz", ".tar.zst"): "stoker.WebDataset({})",
    (".beton",): "stoker.BetonDataset({})",
}
# Only for a path that the user gave: the files of somebody else's dataset may hold anything under these names.
_GIVEN = {".txt": "stoker.LinesDataset({})", ".bin": "stoker.TokenDataset({}, length, dtype='uint16')"}
_FORMATS = "docs/guides/formats.md lists the classes for stored data"
_MOST = 1000  # how many names of a folder are looked at
_PATTERN = re.compile(r"[*?\[{]")


def ending(path: str) -> str | None:
    """The call that reads a file, by the end of its name."""
    for endings, text in _ENDINGS.items():
        if path.lower().endswith(endings):
            return text.format(repr(path))
    return None


def of_path(path: str) -> tuple[str, str]:
    """What to say about a path that was given as a dataset, and what to try."""
    path = path.removeprefix("file://")
    if "://" in path:
        call = ending(bare(path)) or f"give it to a class, such as stoker.WebDataset({bare(path)!r})"
        return "dataset is a URL", f"{call}; {_FORMATS}"
    if _PATTERN.search(path) and not os.path.exists(path):
        found = ending(path)
        if found is None and path.lower().endswith(EXTENSIONS):
            found = f"stoker.files({path!r})"
        return "dataset is a pattern of paths", f"{found}; {_FORMATS}" if found else _FORMATS
    shown = f"`stoker inspect {path}` shows what it is"
    if os.path.isdir(path):
        found = _of_folder(path)
        return "dataset is a path", f"{found}; {shown}" if found else f"{shown}; {_FORMATS}"
    if os.path.exists(path):
        found = _of_file(path)
        return "dataset is a path", f"{found}; {shown}" if found else f"{shown}; {_FORMATS}"
    near = _near(path)
    call = _of_file(near or path) or f"give it to a class, such as stoker.ImageFolder({near or path!r}); {_FORMATS}"
    hint = f"there is {near!r}: {call}" if near else f"check the path; then {call}"
    return f"dataset is a path, and there is nothing at {path!r}", hint


def _of_file(path: str) -> str | None:
    if path.lower().endswith(EXTENSIONS):
        return f"stoker.files([{path!r}], labels=None)"
    given = _GIVEN.get(os.path.splitext(path)[1].lower())
    return given.format(repr(path)) if given else ending(path)


def _of_folder(path: str) -> str | None:
    """The call that reads a folder, by the names in it."""
    names = _names(path)
    if {"state.json", "dataset_info.json"} <= names or "dataset_dict.json" in names:
        load = f"datasets.load_from_disk({path!r})"
        if "dataset_dict.json" in names:
            splits = sorted(name for name in names if os.path.isdir(os.path.join(path, name)))
            split = "train" if "train" in splits or not splits else splits[0]
            load += f"[{split!r}]"
        return (
            f"it is a dataset of Hugging Face's datasets; write it as Parquet once, {load}.to_parquet('data.parquet'), "
            "and load stoker.ParquetDataset('data.parquet')"
        )
    if "index.json" in names and any(name.endswith((".mds", ".mds.zstd", ".mds.zst", ".mds.gz")) for name in names):
        return f"stoker.MDSDataset({path!r})"
    if "data.mdb" in names:
        return f"stoker.LMDBDataset({path!r})"
    for end, call in (
        (".tar", "stoker.WebDataset"),
        (".parquet", "stoker.ParquetDataset"),
        (".tfrecord", "stoker.TFRecordDataset"),
        (".h5", "stoker.HDF5Dataset"),
        (".jsonl", "stoker.LinesDataset"),
        (".npy", "stoker.NpyDataset"),
    ):
        if any(name.endswith(end) for name in names):
            return f"{call}({os.path.join(path, '*' + end)!r})"
    folders = sorted(name for name in names if os.path.isdir(os.path.join(path, name)))
    splits = [name for name in folders if any(os.path.isdir(one) for one in _below(os.path.join(path, name)))]
    if "train" in splits:
        return f"stoker.ImageFolder({os.path.join(path, 'train')!r})"
    pictures = sorted({os.path.splitext(name)[1] for name in names if name.lower().endswith(EXTENSIONS)})
    if pictures:
        patterns = [os.path.join(path, "*" + one) for one in pictures]
        return f"stoker.files({(patterns[0] if len(patterns) == 1 else patterns)!r}, labels=None)"
    if folders and any(
        one.lower().endswith(EXTENSIONS) for name in folders[:8] for one in _below(os.path.join(path, name))
    ):
        return f"stoker.ImageFolder({path!r})"
    return None


def _names(path: str) -> set[str]:
    try:
        with os.scandir(path) as entries:
            return {entry.name for entry in islice(entries, _MOST)}
    except OSError:
        return set()


def _below(path: str) -> Iterable[str]:
    return [os.path.join(path, name) for name in _names(path)]


def _near(path: str) -> str | None:
    """The path in the same folder whose name is most similar."""
    head, tail = os.path.split(path.rstrip("/"))
    near = difflib.get_close_matches(tail, _names(head or "."), 1)
    return os.path.join(head, near[0]) if near else None

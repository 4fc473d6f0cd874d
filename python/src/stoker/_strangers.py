"""Datasets that are not this package's: names our class that reads the same data.

Nothing is imported, opened or called: a library is recognised by the names of its classes, and the contents of a
dataset by its attributes.
"""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

from ._datasets import Dataset
from ._folder import EXTENSIONS
from ._paths import ending, of_path
from ._theirs import iterated

_SAVEZ = "numpy.savez('data.npz', ...) writes the arrays once, under names; load stoker.NpyDataset('data.npz')"

# How many attributes are looked at, and how deep in them a dataset is searched for.
_MOST, _DEEPEST = 64, 2


def map_style(dataset: Any, sampled: bool = False) -> bool:
    """Whether it has numbered samples and a length, as torch's DataLoader wants them: Python code makes them here.
    ``sampled``: a sampler says which samples there are, so that they need neither numbers nor a length."""
    kind = type(dataset)
    if isinstance(dataset, (str, bytes, os.PathLike, type)) or iterated(dataset) or _holds(dataset):
        return False
    if isinstance(dataset, Mapping):  # torch takes a dict whose keys are the ids
        return isinstance(dataset, dict) and (sampled or (len(dataset) - 1 in dataset and 0 in dataset))
    return hasattr(kind, "__getitem__") and (sampled or hasattr(kind, "__len__")) and not _loads(dataset)


def iterable(dataset: Any) -> bool:
    """Whether it gives its samples one after another, and each worker may iterate a copy of its own."""
    other = isinstance(dataset, (type, Mapping)) or _loads(dataset) or _holds(dataset) or _open(dataset)
    return iterated(dataset) and not other


def advise(dataset: Any) -> tuple[str, str]:
    """What to say about what is not a dataset here, and what to try."""
    kind = type(dataset)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(dataset, (str, bytes, os.PathLike)):
        return of_path(os.fsdecode(dataset))
    if isinstance(dataset, type):
        return f"dataset is the class {dataset.__qualname__}", f"create an instance: {dataset.__qualname__}(...)"
    if _loads(dataset):
        return f"dataset is a loader ({name})", "give its dataset, loader.dataset"
    fits = fitting(dataset) or "docs/guides/formats.md lists the classes for stored data"
    if _holds(dataset) or isinstance(dataset, Mapping) or _open(dataset):
        return f"dataset is of type {name}, which is not a dataset", fits
    if hasattr(kind, "__next__"):
        return (
            f"dataset is of type {name}, which can be iterated only once",
            "make a class whose __iter__ returns a new one: every pass iterates it again, and every worker its own",
        )
    if hasattr(kind, "__iter__"):
        return f"dataset is of type {name}, which gives its samples one after another", fits
    if hasattr(kind, "__getitem__"):
        return (
            f"dataset is of type {name}, which has no length",
            "give the class a method __len__ that returns the number of its samples",
        )
    return f"dataset is of type {name}, which is not a dataset", fits


def _holds(value: Any) -> bool:
    """Whether it holds data by names, or is a table whose items are columns: these are not samples."""
    return _is(value, "h5py", "File", "Group") or _is_table(value)


def fitting(value: Any) -> str | None:
    """Our class for data that Python holds, or that a dataset of somebody else keeps."""
    try:
        return _fitting(value, 0)
    except Exception:  # a user's attributes may raise anything
        return None


def _is_table(value: Any) -> bool:
    """Whether it is a table in memory, whose items are columns."""
    return (
        _is(value, "pandas", "DataFrame")
        or _is(value, "polars", "DataFrame")
        or _is(value, "pyarrow", "Table", "RecordBatch")
    )


def _loads(value: Any) -> bool:
    return _is(value, "torch", "DataLoader") or _is(value, "stoker", "DataLoader")


def _open(value: Any) -> bool:
    """Whether it is an open file, an archive or a picture."""
    return isinstance(value, (zipfile.ZipFile, tarfile.TarFile, zipfile.Path, io.IOBase)) or _is(value, "PIL")


def _attribute(value: Any, name: str) -> Any:
    """An attribute of a value that may raise anything; None if there is none."""
    try:
        return getattr(value, name)
    except Exception:
        return None


def _name(value: Any, *attributes: str) -> str | None:
    """The file name of an open file, archive or picture, if one of these attributes has it."""
    for attribute in attributes:
        name = _attribute(value, attribute)
        if isinstance(name, (str, bytes, os.PathLike)) and os.fspath(name):
            return os.fsdecode(name)
    return None


def _is(value: Any, module: str, *names: str) -> bool:
    """Whether a value is of a class of a library, or of a subclass."""
    return any(
        base.__module__.partition(".")[0] == module and (not names or base.__name__ in names)
        for base in type(value).__mro__
    )


def _fitting(value: Any, depth: int) -> str | None:
    """Our class for a dataset, or for the dataset inside one."""
    if _is(value, "torchvision", "ImageFolder"):
        return f"stoker.ImageFolder({getattr(value, 'root', 'root')!r}, transform=...) reads the same files"
    if _is(value, "webdataset"):
        return "stoker.WebDataset(urls) has the same chain of calls"
    if _is(value, "streaming", "StreamingDataset"):
        return "stoker.MDSDataset(local) reads the same shards"
    if _is(value, "torch", "Subset"):
        if isinstance(value.dataset, Dataset):
            return (
                "stoker.DataLoader(dataset.dataset, sampler=stoker.SubsetRandomSampler(dataset.indices)) loads the "
                "same samples, shuffled; sampler=dataset.indices loads them in their order"
            )
        whole = _fitting(value.dataset, depth)
        return whole and f"{whole}, and sampler=stoker.SubsetRandomSampler(dataset.indices) the same samples of it"
    if _is(value, "torch", "ConcatDataset") and all(isinstance(one, Dataset) for one in value.datasets):
        return (
            "stoker.Mixture(dataset.datasets, weights=[len(d) for d in dataset.datasets], stop='all_exhausted') loads "
            "all of them in an epoch, each as often as it is large; a sample or two may come twice"
        )
    if _is(value, "torch", "TensorDataset"):
        return _saved(len(value.tensors))
    return _held(value) or _listed(value) or (_inside(value, depth) if depth < _DEEPEST else None)


def _listed(value: Any) -> str | None:
    """Our class for a list or a dict of paths or arrays."""
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, (list, tuple)) or not items:
        return None
    first = items[0]
    if isinstance(first, (str, os.PathLike)) and os.fspath(first).lower().endswith(EXTENSIONS):
        return "stoker.files(paths, transform=...) loads the same files, stoker.Table a table of files and labels"
    if all(_is(one, "numpy", "ndarray") or _is(one, "torch", "Tensor") for one in items[:_MOST]):
        return _saved(len(items)) if len(items) <= 3 else _SAVEZ
    return None


def _held(value: Any) -> str | None:
    """Our class for the object in which a dataset keeps its data."""
    if _is(value, "h5py", "File", "Group", "Dataset"):
        return _of_h5py(value)
    if _is(value, "numpy", "NpzFile"):
        name = _name(_attribute(value, "fid"), "name") or "data.npz"
        return f"stoker.NpyDataset({name!r}) reads the same arrays, as dicts"
    if _open(value):
        return _of_file(value)
    if _is(value, "numpy", "memmap"):
        name = str(getattr(value, "filename", None) or "data.npy")
        if name.endswith(".npy"):
            return f"stoker.NpyDataset({name!r}) reads the same rows"
        if value.ndim == 1 and value.dtype.kind in "iu":
            return f"stoker.TokenDataset({name!r}, length=..., dtype={value.dtype.name!r}) reads windows of them"
        return "numpy.save('data.npy', array) writes the array once with its shape; load stoker.NpyDataset('data.npy')"
    if _is(value, "datasets", "Dataset"):
        return (
            "dataset.to_parquet('data.parquet') writes it as Parquet once; load stoker.ParquetDataset('data.parquet')"
        )
    if _is(value, "datasets", "DatasetDict", "IterableDataset", "IterableDatasetDict"):
        return "write a split as Parquet files once, and load stoker.ParquetDataset('data-*.parquet')"
    if _is(value, "pyarrow", "Table", "ParquetFile", "ParquetDataset", "RecordBatch", "ChunkedArray"):
        return "stoker.ParquetDataset('data.parquet') reads Parquet files; pyarrow.parquet.write_table writes one"
    if _is(value, "pandas", "DataFrame") or _is(value, "polars", "DataFrame"):
        return _of_frame(value)
    if _is(value, "lmdb", "Environment"):
        return "stoker.LMDBDataset(path) reads the same environment"
    if _is(value, "numpy", "ndarray") and getattr(value, "ndim", None) or _is(value, "torch", "Tensor"):
        return _saved(1)
    return None


def _of_h5py(value: Any) -> str:
    """A file, or something in one."""
    path = _name(value, "filename") or _name(_attribute(value, "file"), "filename") or "data.h5"
    inside = _name(value, "name") or "/"
    more = ""
    if inside != "/":
        more = f", group={inside!r}" if _is(value, "h5py", "Group") else f", columns=[{inside.lstrip('/')!r}]"
    return f"stoker.HDF5Dataset({path!r}{more}) reads the same file, in any number of lanes"


def _of_file(value: Any) -> str:
    """An open file, archive or picture."""
    path = _name(value, "filename", "name")
    if isinstance(value, tarfile.TarFile):
        return f"stoker.WebDataset({path or 'data.tar'!r}) reads the same data"
    known = ending(path) if path else None
    if known is not None:
        return f"{known} reads the same data"
    if isinstance(value, (zipfile.ZipFile, zipfile.Path)):
        return "zip archives cannot be read: unpack it once, and load stoker.ImageFolder(folder)"
    if _is(value, "PIL"):
        return f"stoker.files([{path or 'data/*.jpg'!r}], labels=None) loads pictures by their paths"
    return f"load the path with one of stoker's classes, such as stoker.files([{path or 'path'!r}])"


def _saved(arrays: int) -> str:
    names = ["x.npy", "y.npy", "z.npy"][:arrays]
    calls = "; ".join(f"numpy.save({name!r}, {name[0]})" for name in names)
    return f"save the arrays once, {calls}, and load stoker.NpyDataset({', '.join(map(repr, names))})"


def _of_frame(frame: Any) -> str:
    """A table with a column of files, or a table of values."""
    path = ""
    for column in list(frame.columns)[:_MOST]:
        try:
            first = next(iter(frame[column]), None)
        except Exception:  # a user's data frame
            continue
        if isinstance(first, str) and first.lower().endswith(EXTENSIONS):
            path = f", path={column!r}, label=..."
            break
    write = "frame.to_csv('table.csv', index=False)" if _is(frame, "pandas") else "frame.write_csv('table.csv')"
    return f"write the table once, {write}, and load stoker.Table('table.csv'{path})"


def _inside(dataset: Any, depth: int) -> str | None:
    """Our class for the first attribute that says what the data are; open files before their names."""
    values = list(_attributes(dataset))
    for value in values:
        if (found := _held(value)) is not None and not (
            _is(value, "torch", "Tensor") or type(value).__name__ == "ndarray"
        ):
            return found
    for value in values:
        if isinstance(value, (str, os.PathLike)) and (found := ending(str(value))) is not None:
            return f"{found} reads the same data"
        if isinstance(value, (list, tuple)) and value:
            first = value[0][0] if isinstance(value[0], (list, tuple)) and value[0] else value[0]
            if isinstance(first, (str, os.PathLike)) and str(first).lower().endswith(EXTENSIONS):
                return (
                    "stoker.files(paths, transform=...) loads the same files, stoker.Table a table of files and labels"
                )
    several = [value for value in values if _held(value) is not None]
    if several:
        return _saved(min(len(several), 3))
    for value in values:
        if (
            hasattr(type(value), "__getitem__")
            and _attribute(value, "__dict__")
            and (found := _fitting(value, depth + 1))
        ):
            return found
    return None


def _attributes(dataset: Any) -> Iterator[Any]:
    held: Any = _attribute(dataset, "__dict__")
    if isinstance(held, Mapping):
        yield from list(held.values())[:_MOST]

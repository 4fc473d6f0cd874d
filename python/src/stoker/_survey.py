"""stoker.stats: the command of the same name, as a function over paths and datasets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _command
from ._datasets import Dataset, _path, absolute
from ._errors import Problems
from ._process import find
from ._stores import read_storage

_RUN = _command.Verb("stats", "reading", "it starts again from the beginning")


def stats(
    dataset: Any,
    *,
    sample: str | float | None = None,
    headers: bool = False,
    on_bad: str = "fail",
    format: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> dict[str, Any]:
    """What to know about a dataset before training on it: mean and standard deviation of every channel, counts and
    weights of the classes, sizes of the pictures, lengths of sequences. Same as the command ``stoker stats``.

    dataset   a dataset of this package, whose samples are read as they are stored, without its transforms; or a path,
              a pattern, a list of them
    sample    "5%" or 0.05: reads this share of it, the same samples every time
    headers   reads only the headers of pictures: sizes and classes, no mean and deviation
    on_bad    for a sample that cannot be read: "fail" raises DataError after reading all others, "skip" leaves it out
    format    of a path; default: detected
    storage_options   how the store of a path is reached, as for the datasets
    progress  called with (samples done, total samples), at most ten times a second

    Returns a dict of plain values. ``fields`` is a list, pictures first. A field has name, kind, and, if they apply,
    channels (mean, std, values, scale: the divisor of stored numbers, 255 for pixels), width, height, bytes, length
    (each with min, median, p99, max, mean). ``classes`` is a list of name, samples, weight. ``normalize`` is the
    transform as code. Mean and deviation are over all pixels of all pictures; they do not depend on the number of
    threads, down to the last bit.
    """
    problems = Problems("stats")
    flags = ["--json", "--progress"]
    if isinstance(sample, (str, int, float)) and not isinstance(sample, bool):
        flags.append(f"--sample={sample}")
    elif sample is not None:
        problems.add(f"sample is {sample!r}", 'give a share such as "5%" or 0.05')
    if on_bad not in ("fail", "skip"):
        problems.add(f"on_bad is {on_bad!r}", 'give "fail" or "skip"')
    if progress is not None and not callable(progress):
        problems.add(f"progress is of type {type(progress).__name__}", "give a function of (done, total)")
    flags.append(f"--on-bad={on_bad}")
    if headers:
        flags.append("--headers")
    where = _source(dataset, format, problems)
    where.update(reached(dataset, storage_options, problems))
    problems.raise_any()
    told = None if progress is None else (lambda done, total, _bytes: progress(done, total))
    return _command.run([find(), "stats", *flags], _RUN, told, where)


def reached(dataset: Any, storage_options: Any, problems: Problems) -> dict[str, Any]:
    """How the store of a path is reached, in the form of the Spec."""
    if storage_options is not None and isinstance(dataset, Dataset):
        problems.add("storage_options is for a path, and the dataset has its own", "leave it out")
    storage = read_storage(storage_options, problems, dataset)
    return {} if storage is None else {"storage": storage}


def _source(dataset: Any, format: str | None, problems: Problems) -> dict[str, Any]:
    """The dataset in the form of the Spec."""
    if isinstance(dataset, Dataset):
        where = dataset._recipe().dataset
        if not isinstance(where, Mapping) or where.get("format") == "synthetic":
            problems.add(f"a {type(dataset).__name__} has no samples of its own", "call it for each of its datasets")
            return {}
        if format not in (None, where["format"]):
            problems.add(f"format is {format!r}, but the dataset is {where['format']}", "leave format out")
        return dict(where)
    given = {} if format is None else {"format": format}
    if isinstance(dataset, (str, bytes, os.PathLike)):
        return {"path": [absolute(_path(dataset, "dataset", problems))], **given}
    if isinstance(dataset, Sequence) and dataset:
        return {"path": [absolute(_path(one, f"dataset[{i}]", problems)) for i, one in enumerate(dataset)], **given}
    problems.add(f"dataset is {dataset!r:.80}", "give a path, a list of paths, or a dataset of stoker's")
    return {}

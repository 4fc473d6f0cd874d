"""stoker.stats: the command of that name, as a function over paths and datasets."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _command
from ._datasets import Dataset, _path, absolute
from ._errors import Problems
from ._process import find

_RUN = _command.Verb("stats", "reading", "it begins anew")


def stats(
    dataset: Any,
    *,
    sample: str | float | None = None,
    headers: bool = False,
    on_bad: str = "fail",
    format: str | None = None,
    progress: Callable[[int, int], Any] | None = None,
) -> dict[str, Any]:
    """What one has to know of a dataset before training on it: mean and standard deviation of every channel, counts and
    weights of the classes, sizes of the pictures, lengths of sequences. The command ``stoker stats``.

    dataset   a dataset of this package, whose samples are looked at as they are stored, without its transforms; or a
              path, a pattern, a list of them
    sample    "5%" or 0.05: reads so much of it, the same choice every time
    headers   reads only the headers of pictures: sizes and classes, no mean and deviation
    on_bad    a sample that cannot be read: "fail" raises DataError when all others were read, "skip" leaves it out
    format    of a path; left out: found out
    progress  called with (samples done, samples in all), ten times a second at most

    Returns a dict of plain values. ``fields`` is a list, pictures first; a field has name, kind, and where they mean
    something channels (mean, std, values, scale: what stored numbers were divided by, 255 for pixels), width, height,
    bytes, length (each with min, median, p99, max, mean). ``classes`` is a list of name, samples, weight. ``normalize``
    is the transform as code. Mean and deviation are those of all pixels of all pictures; they do not depend on the
    number of threads, down to the last bit.
    """
    problems = Problems("stats")
    flags = ["--json", "--progress"]
    if isinstance(sample, (str, int, float)) and not isinstance(sample, bool):
        flags.append(f"--sample={sample}")
    elif sample is not None:
        problems.add(f"sample is {sample!r}", 'give a share such as "5%" or 0.05')
    if on_bad not in ("fail", "skip"):
        problems.add(f"on_bad is {on_bad!r}", '"fail" or "skip"')
    if progress is not None and not callable(progress):
        problems.add(f"progress is of type {type(progress).__name__}", "give a function of (done, total)")
    flags.append(f"--on-bad={on_bad}")
    if headers:
        flags.append("--headers")
    flags += _source(dataset, format, problems)
    problems.raise_any()
    told = None if progress is None else (lambda done, total, _bytes: progress(done, total))
    return _command.run([find(), "stats", *flags], _RUN, told)


def _source(dataset: Any, format: str | None, problems: Problems) -> list[str]:
    """The dataset as the command is told it."""
    if isinstance(dataset, Dataset):
        where = dataset._recipe().dataset
        if not isinstance(where, Mapping) or where.get("format") == "synthetic":
            problems.add(
                f"a {type(dataset).__name__} has no samples of its own", "ask for the datasets that it is made of"
            )
            return []
        if format not in (None, where["format"]):
            problems.add(f"format is {format!r}, and the dataset is {where['format']}", "leave format out")
        return [f"--dataset={json.dumps(where)}"]
    given = [] if format is None else [f"--format={format}"]
    if isinstance(dataset, (str, bytes, os.PathLike)):
        return [*given, "--", absolute(_path(dataset, "dataset", problems))]
    if isinstance(dataset, Sequence) and dataset:
        paths = [absolute(_path(one, f"dataset[{i}]", problems)) for i, one in enumerate(dataset)]
        return [*given, "--", *paths]
    problems.add(f"dataset is {dataset!r:.80}", "give a path, a list of paths, or a dataset of stoker's")
    return []

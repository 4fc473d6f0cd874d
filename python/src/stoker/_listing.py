"""tf.data's ``list_files``: names of files as samples, which ``interleave`` makes a dataset of."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _notice
from ._datasets import Dataset
from ._errors import ConfigError
from ._files import files
from ._steps import Stepped


def list_files(
    file_pattern: Any,
    shuffle: bool | None = None,
    seed: int | None = None,
    name: Any = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Stepped:
    """The paths of the files that match a pattern, or one of several, sorted: a dataset of ``str``.

    ``interleave(stoker.TFRecordDataset)`` gives one dataset of all of them, read in parallel; ``map(function)`` calls a
    function of each path. ``shuffle`` shuffles the files in every epoch, unlike tf.data not by default. Patterns may
    name stores, such as ``"s3://bucket/train-*.tfrecord"``; ``storage_options`` says how they are reached.
    """
    given = [file_pattern] if isinstance(file_pattern, (str, os.PathLike)) else list(file_pattern)
    patterns = [os.fspath(pattern) for pattern in given]
    remote = [pattern for pattern in patterns if "://" in pattern]
    paths = {path for pattern in patterns if pattern not in remote for path in glob.glob(pattern)}
    if remote:  # the engine lists stores
        paths.update(files(remote, storage_options=storage_options)._look().table(["path"])["path"])
    found = sorted(paths)
    if not found:
        raise ConfigError(
            f"list_files: no file matches {', '.join(map(repr, patterns))}",
            hint=f"the current folder is {os.getcwd()}",
        )
    if shuffle is None:
        _notice.say("list_files gives files in sorted order; .shuffle(n), or shuffle= of the loader, shuffles")
    asked: dict[str, Any] = {"shuffle": True} if shuffle else {}
    return Files(Paths(found), asked={**asked, **({} if seed is None else {"seed": seed})})


class Paths(list[str]):
    """Paths, which states know by their names."""

    @property
    def fingerprint(self) -> str:
        return "\0".join(self)


class Files(Stepped):
    """Names of files."""

    def interleave(self, function: Any, *args: Any, **keywords: Any) -> Any:
        """The dataset that ``function`` makes of the list of all files; the other arguments are tf.data's, and have no
        effect: the engine reads files in parallel."""
        if not callable(function):
            raise ConfigError(
                f"interleave: {function!r:.60} cannot be called",
                hint="give a class: interleave(stoker.TFRecordDataset)",
            )
        paths: Sequence[str] = self.base
        try:
            made = function(list(paths))
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"interleave: the function raised {type(error).__name__}: {error}",
                hint="it is called once, with the list of all files: interleave(stoker.TFRecordDataset)",
            ) from error
        if not isinstance(made, Dataset):
            raise ConfigError(
                f"interleave: the function gave a {type(made).__name__}",
                hint="it is called once, with the list of all files, and has to give a dataset of stoker's: "
                "interleave(stoker.TFRecordDataset)",
            )
        _notice.say(
            ".interleave(...) makes one dataset of all files: they are read in parallel, and shuffle='block' mixes them"
        )
        return made._asking(**self._asked) if self._asked else made

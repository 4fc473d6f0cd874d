"""WebDataset's names: ``import stoker.webdataset as wds`` replaces ``import webdataset as wds``.

DataPipeline   a pipeline of stages; the same dataset as the chain of calls of WebDataset
WebLoader      a loader with the chain of calls
stages         shuffle detshuffle decode map map_dict map_tuple to_tuple rename select slice associate batched unbatched
of shards      SimpleShardList, tarfile_to_samples; split_by_node, split_by_worker and single_node_only have no effect
handlers       reraise_exception warn_and_continue ignore_and_continue warn_and_stop ignore_and_stop

Names that stoker does not have are an AttributeError that says what to use instead.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from . import _notice, _webstages
from ._errors import ConfigError
from ._loader import DataLoader
from ._mixture import Mixture
from ._shards import ShardWriter
from ._webdataset import WebDataset
from ._webpython import Continue
from ._webstages import READ, Shards, Stage, split

__all__ = [
    "Continue",
    "DataPipeline",
    "FluidInterface",
    "RandomMix",
    "ResampledShards",
    "RoundRobin",
    "ShardWriter",
    "SimpleShardList",
    "WebDataset",
    "WebLoader",
    "associate",
    "batched",
    "decode",
    "detshuffle",
    "getfirst",
    "handle_extension",
    "ignore_and_continue",
    "ignore_and_stop",
    "map",
    "map_dict",
    "map_tuple",
    "rename",
    "reraise_exception",
    "select",
    "shardspec",
    "shuffle",
    "single_node_only",
    "slice",
    "split_by_node",
    "split_by_worker",
    "tarfile_samples",
    "tarfile_to_samples",
    "to_tuple",
    "unbatched",
    "warn_and_continue",
    "warn_and_stop",
    "with_epoch",
    "with_length",
]


class FluidInterface:
    """For ``class Mine(DataPipeline, FluidInterface)``. It has no method: DataPipeline has the chain of calls."""


class DataPipeline(WebDataset[Any, Any, Any]):
    """The dataset that the stages describe, in order; lists of stages are taken apart, None is left out.

        wds.DataPipeline(
            wds.SimpleShardList(urls), wds.shuffle(100), wds.split_by_worker, wds.tarfile_to_samples(),
            wds.shuffle(1000), wds.decode("pil"), wds.to_tuple("jpg", "cls"), wds.batched(32),
        )

    Every stage is the call of WebDataset with its name, and ``pipeline.map_tuple(...)`` adds one to what is there. The
    first stage says where the shards are, or is a dataset. A function of an iterator of samples has to give one sample
    for each, as for ``compose``. Shuffling before ``tarfile_to_samples`` shuffles all samples, as ``shardshuffle``
    does. Raises ConfigError for a stage that has no counterpart.
    """

    def __init__(self, *stages: Any) -> None:
        self.__dict__.update(_webstages.chain(stages).__dict__)

    def append(self, stage: Any) -> None:
        """Adds a stage to this pipeline itself."""
        self.__dict__.update(_webstages.after(self, [stage]).__dict__)


class SimpleShardList(Shards):
    """The shards of a pipeline: a path with ``{000..099}`` braces, wildcards or ``::`` between several, or a list of
    paths. With ``seed`` (a number, or True) they are shuffled, which is a full shuffle of samples."""


def shardspec(spec: str) -> SimpleShardList:
    """The shards that a path names."""
    return SimpleShardList(spec)


class ResampledShards(Shards):
    """Refused: shards are not drawn with replacement."""

    def __init__(self, urls: Any, *args: Any, **keywords: Any) -> None:
        raise ConfigError(
            "ResampledShards draws shards with replacement",
            hint="SimpleShardList(urls), shuffle(1000), and .with_epoch(n) of the pipeline: epochs of n items from an "
            "endless stream, where no sample comes twice before all have come",
        )


# Stages of shards.


@split
def split_by_node(src: Any = None, group: Any = None) -> NoReturn:
    """For DataPipeline, without effect: samples are split over the ranks one by one."""
    _called("split_by_node")


@split
def split_by_worker(src: Any = None) -> NoReturn:
    """For DataPipeline, without effect: the workers share the samples of every batch."""
    _called("split_by_worker")


@split
def single_node_only(src: Any = None, group: Any = None) -> NoReturn:
    """For DataPipeline, without effect: several ranks share the samples."""
    _called("single_node_only")


def _called(name: str) -> NoReturn:
    raise ConfigError(
        f"{name} was called",
        hint=f"give it to DataPipeline as it is, {name} without parentheses, or leave it out: a loader splits samples",
    )


def tarfile_to_samples(handler: Any = None, select_files: Any = None, rename_files: Any = None) -> Stage:
    """Reads the samples of the shards."""
    return _stage(READ, handler=handler, select_files=select_files, rename_files=rename_files)


tarfile_samples = tarfile_to_samples


# Stages of samples.


def _stage(name: str, *args: Any, **keywords: Any) -> Stage:
    return Stage(name, *args, **{key: value for key, value in keywords.items() if value is not None})


def shuffle(bufsize: int = 1000, initial: int = 100, rng: Any = None, seed: Any = None, handler: Any = None) -> Stage:
    """``.shuffle``: a full shuffle of all samples; ``initial`` and ``rng`` have no effect."""
    return _stage("shuffle", bufsize, seed=seed)


def detshuffle(bufsize: int = 1000, initial: int = 100, seed: int = 0, epoch: int = -1) -> Stage:
    """``.shuffle`` with a seed: seed and epoch decide the order in any case."""
    return _stage("detshuffle", bufsize, seed=seed)


def decode(*args: Any, **keywords: Any) -> Stage:
    """``.decode``."""
    return _stage("decode", *args, **keywords)


def map(f: Any, handler: Any = None) -> Stage:
    """``.map``."""
    return _stage("map", f, handler=handler)


def map_dict(handler: Any = None, **functions: Any) -> Stage:
    """``.map_dict``."""
    return _stage("map_dict", handler=handler, **functions)


def map_tuple(*functions: Any, handler: Any = None) -> Stage:
    """``.map_tuple``."""
    return _stage("map_tuple", *functions, handler=handler)


def to_tuple(*names: Any, **keywords: Any) -> Stage:
    """``.to_tuple``."""
    return _stage("to_tuple", *names, **keywords)


def rename(handler: Any = None, keep: bool = True, **names: Any) -> Stage:
    """``.rename``."""
    return _stage("rename", handler=handler, keep=keep, **names)


def select(predicate: Any) -> Stage:
    """``.select``: the samples for which the function is true."""
    return _stage("select", predicate)


def slice(*numbers: Any) -> Stage:
    """``.slice``."""
    return _stage("slice", *numbers)


def associate(associator: Any, **keywords: Any) -> Stage:
    """Adds to each sample what a function of its key, or a dict, has for it."""
    if not callable(associator) and not isinstance(associator, Mapping):
        raise ConfigError(
            f"associate: {associator!r:.60} is of type {type(associator).__name__}",
            hint="give a dict of keys, or a function of a key, with the fields to add",
        )
    return _stage("map", _Associated(associator))


class _Associated:
    def __init__(self, associator: Any) -> None:
        self.associator = associator

    def __call__(self, sample: Any) -> Any:
        key = sample["__key__"]
        more = self.associator(key) if callable(self.associator) else self.associator.get(key, {})
        return {**sample, **more}


def batched(batchsize: int = 20, collation_fn: Any = ..., partial: bool = True) -> Stage:
    """``.batched``."""
    given = {} if collation_fn is ... else {"collation_fn": collation_fn}
    return Stage("batched", batchsize, partial=partial, **given)


def unbatched() -> Stage:
    """``.unbatched``."""
    return _stage("unbatched")


def with_epoch(dataset: Any, length: int) -> Any:
    """``dataset.with_epoch(length)``."""
    return dataset.with_epoch(length)


def with_length(dataset: Any, length: int) -> Any:
    """``dataset.with_length(length)``."""
    return dataset.with_length(length)


# Handlers: stoker goes by the names of these. Called by others they do what webdataset's do.


def reraise_exception(exn: BaseException) -> bool:
    """A bad sample is an error: ``on_bad="fail"``."""
    raise exn


def ignore_and_continue(exn: BaseException) -> bool:
    """A bad sample is replaced by another one, and listed in ``batch.bad``: ``on_bad="replace"``."""
    return True


def warn_and_continue(exn: BaseException) -> bool:
    """The same as ignore_and_continue: bad samples are listed and reported in any case."""
    warnings.warn(repr(exn), stacklevel=2)
    return True


def ignore_and_stop(exn: BaseException) -> bool:
    """A bad sample is an error, because an epoch that ends early would be one without a word."""
    return False


def warn_and_stop(exn: BaseException) -> bool:
    """A bad sample is an error, because an epoch that ends early would be one without a word."""
    warnings.warn(repr(exn), stacklevel=2)
    return False


# The loader.


class WebLoader(DataLoader[Any]):
    """``stoker.DataLoader`` with the chain of calls: each returns a new loader.

        wds.WebLoader(dataset, batch_size=None, num_workers=4).unbatched().shuffle(1000).batched(64).with_epoch(n)

    In webdataset these calls work on what comes out of the workers: shuffling once more mixes what they read. Here they
    are calls of the dataset, and the shuffle is full already. Functions run in the workers. After ``batched``, and with
    a batch_size, ``with_epoch`` counts batches on every rank, as in webdataset.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        bound = inspect.signature(DataLoader.__init__).bind(self, *args, **keywords).arguments
        super().__init__(*args, **keywords)
        self._called = {key: value for key, value in bound.items() if key not in ("self", "dataset")}

    def unbatched(self) -> WebLoader:
        """Samples: takes the batches of the dataset or of the loader back."""
        if self.batch_size is not None and self._called.get("batch_size", 1) is not None:
            return self._with(self._dataset_of("unbatched"), batch_size=None, drop_last=False)
        return self._with(self._dataset_of("unbatched").unbatched())

    def shuffle(self, size: int = 1000, **keywords: Any) -> WebLoader:
        """A full shuffle of all samples, also where they are batched."""
        dataset = self._dataset_of("shuffle")
        if (batch := dataset._batch) is not None:
            _notice.say("WebLoader.shuffle shuffles samples, also after batched: batches are made of them")
        return self._with(dataset._with(_batch=None).shuffle(size, **keywords)._with(_batch=batch))

    def batched(self, batchsize: int, collation_fn: Any = ..., partial: bool = True) -> WebLoader:
        """Batches of ``batchsize`` samples."""
        if self._called.get("batch_size", 1) is not None:
            raise ConfigError(
                f"WebLoader.batched: the samples are batched already, by batch_size={self.batch_size}",
                hint="make the loader with batch_size=None, or call unbatched() before",
            )
        return self._compose(batched(batchsize, collation_fn, partial))

    def map(self, f: Any, handler: Any = None) -> WebLoader:
        """Batches become what ``f(batch)`` returns; samples, if they are not batched."""
        return self._compose(map(f, handler))

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> WebLoader:
        """Epochs of so many batches on every rank (samples, if they are not batched), from an endless stream."""
        return self._compose(Stage("with_epoch", nsamples, nbatches))

    def with_length(self, n: int, silent: bool = False) -> WebLoader:
        """Sets what len() returns."""
        return self._compose(Stage("with_length", n, silent))

    def ddp_equalize(self, length: int, with_length: bool = True) -> WebLoader:
        """The same number of batches on every rank, of ``length`` over all. (Of older versions of webdataset; stoker's
        ranks have the same number of steps in any case.)"""
        return self.with_epoch(max(1, length // self._rank[1]))

    def repeat(self, nepochs: int = -1, nbatches: int = -1) -> WebLoader:
        """Only with ``nbatches``, which is ``with_epoch(nbatches)``."""
        if nbatches > 0 and nepochs < 1:
            return self.with_epoch(nbatches)
        raise ConfigError(
            "WebLoader.repeat: a loader gives one epoch at a time",
            hint="loop over epochs: every iter(loader) is the next one; with_epoch(n) makes epochs of any length",
        )

    def compose(self, *stages: Any) -> WebLoader:
        """Stages of a pipeline."""
        found = self
        for stage in _webstages._flat(stages):
            mine = _webstages.own(stage)
            call = getattr(found, mine.name, None) if isinstance(mine, Stage) else None
            found = found._compose(mine) if call is None else call(*mine.args, **mine.keywords)
        return found

    def __len__(self) -> int:
        known = getattr(self._dataset, "_length", None)
        return super().__len__() if known is None else int(known)

    def _compose(self, stage: Any) -> WebLoader:
        """With a batch_size, the dataset makes the same batches."""
        size = self._called.get("batch_size", 1)
        dataset = self._dataset_of(stage.name if isinstance(stage, Stage) else "compose")
        if size is None:
            return self._with(_webstages.after(dataset, [stage]))
        collate = self._called.get("collate_fn") or ...
        dataset = dataset.batched(size, collate, not self.drop_last)
        none = {"batch_size": None, "drop_last": False, "collate_fn": None}
        return self._with(_webstages.after(dataset, [stage]), **none)

    def _dataset_of(self, call: str) -> WebDataset[Any, Any, Any]:
        given = self.dataset
        if isinstance(given, WebDataset):
            return given
        raise ConfigError(
            f"WebLoader.{call}: the dataset is of type {type(given).__name__}",
            hint="the chain is of stoker's WebDataset and DataPipeline; for others use batch_size=, shuffle= and seed=",
        )

    def _with(self, dataset: Any, **changes: Any) -> WebLoader:
        return type(self)(dataset, **{**self._called, **changes})


# Mixtures.


def RandomMix(
    datasets: Iterable[Any], probs: Sequence[float] | None = None, longest: bool = False
) -> Mixture[Any, Any, Any]:
    """``stoker.Mixture``: shares are exact, not by chance. ``longest`` ends an epoch when all datasets were seen
    completely; smaller ones start again meanwhile."""
    return Mixture([*datasets], probs, stop="all_exhausted" if longest else "first_exhausted")


def RoundRobin(datasets: Iterable[Any], longest: bool = False) -> Mixture[Any, Any, Any]:
    """``stoker.Mixture`` in equal shares."""
    return RandomMix(datasets, None, longest)


# What functions of the user's need.


def getfirst(
    a: Mapping[str, Any], keys: str | Sequence[str], default: Any = None, missing_is_error: bool = True
) -> Any:
    """The first of several fields that a sample has: ``getfirst(sample, "jpg;png")``."""
    names = keys.split(";") if isinstance(keys, str) else keys
    for name in names:
        if name in a:
            return a[name]
    if missing_is_error:
        raise ValueError(f"none of {list(names)} is in the sample: it has {list(a)}")
    return default


def handle_extension(extensions: str, f: Callable[[bytes], Any]) -> Callable[[str, bytes], Any]:
    """A decoder for ``decode``: ``f(data)`` of the fields with one of these extensions, such as "png" or "left.png"."""
    return _Extension(extensions, f)


class _Extension:
    def __init__(self, extensions: str, f: Callable[[bytes], Any]) -> None:
        self.extensions = [extension.lower().split(".") for extension in extensions.split()]
        self.f = f

    def __call__(self, key: str, data: bytes) -> Any:
        parts = key.lower().lstrip(".").split(".")
        if any(parts[-len(one) :] == one for one in self.extensions):
            return self.f(data)
        return None


# What else webdataset has.
_AS_IT_IS = "it works with stoker as it is: from webdataset import {name}"
_NAMES = {
    "Cached": "call .cache() on the dataset, or use DataLoader(cache=True)",
    "LMDBCached": "call .cache() on the dataset; stoker.pack(dataset, folder) stores what it makes",
    "LRUCleanup": "leave it out: shards are read in place",
    "pipe_cleaner": "leave it out: shards are read in place",
    "FluidWrapper": "DataPipeline(dataset) has the chain of calls; stoker.DataLoader takes other datasets as they are",
    "MockDataset": "stoker.Synthetic(n, shape)",
    "MultiShardSample": "stoker.Mixture([a, b], weights=[...])",
    "PipelineStage": "give DataPipeline a function of an iterator of samples, which gives one for each",
    "pipelinefilter": "give DataPipeline a function of an iterator of samples, which gives one for each",
    "TarWriter": "stoker.ShardWriter(pattern)",
    "extract_keys": "to_tuple('jpg;png', 'cls') takes the first that a sample has",
    "rename_keys": "rename(image='jpg;png') takes the first that a sample has",
    "xdecode": "decode(function, 'pil'), with a function of (key, bytes)",
    "info": "take a sample: next(iter(dataset)); stoker inspect PATH shows what is stored",
    "log_keys": "batch.ids, and __key__ of samples that are dicts, say which sample comes when",
    "rsample": "select(function), or num_samples=n of the loader for n samples of every epoch's shuffle",
    "non_empty": "leave it out: a dataset without a sample is always an error",
    "resampled": "SimpleShardList(urls), and .with_epoch(n) for the length of an epoch",
    "repeatedly": "loop over epochs: every iter(loader) is the next one; .with_epoch(n) sets their length",
    "imagehandler": "decode takes its words: decode('pil')",
    "gopen": "give the URL to WebDataset: stores are read in place",
    "gopen_schemes": "give the URL to WebDataset: stores are read in place",
    "torch_audio": "leave it out: audio is delivered as bytes, and decode takes functions",
    "torch_video": "leave it out: videos are delivered as bytes, and decode takes functions",
    "Decoder": "decode takes functions of (key, bytes), and words",
    "DecodingError": "stoker.DataError says which field of which sample, and why",
    "gzfilter": "leave it out: fields that end in .gz are unpacked",
    "transform_with": "map_tuple(transform, None)",
    "torch_loads": _AS_IT_IS,
    "pytorch_weights_only": _AS_IT_IS,
    "numpy_dumps": "leave it out: stoker.ShardWriter encodes arrays of fields that are called npy",
    "torch_dumps": _AS_IT_IS,
    "tenbin": _AS_IT_IS,
    "utils": _AS_IT_IS,
}


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        raise AttributeError(f"stoker.webdataset has no {name}: {_NAMES[name].format(name=name)}")
    raise AttributeError(f"stoker.webdataset has no {name!r}: stoker.webdataset.__all__ has the names")

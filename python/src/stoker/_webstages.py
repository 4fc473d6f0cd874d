"""The stages of WebDataset's pipelines: each is a call of the chain, kept until the pipeline is made.

Stage     a call of WebDataset's chain, by name
Shards    where the shards are: SimpleShardList
split     a function that WebDataset needs to share shards, and stoker does not
chain     stages -> the dataset: those before ``tarfile_to_samples`` are of shards, those after it of samples
own       webdataset's own objects as these

No stage is left out silently: what has no counterpart is a ConfigError that says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import _webwords
from ._errors import ConfigError, Problems
from ._loader import DataLoader
from ._shown import shown_all
from ._webdataset import WebDataset

READ = "tarfile_to_samples"
_OF_SHARDS = ("shuffle", "detshuffle")  # before READ


class Stage:
    """A call of the chain, for DataPipeline and ``compose``."""

    def __init__(self, name: str, *args: Any, **keywords: Any) -> None:
        self.name = name
        self.args = args
        self.keywords = keywords

    def on(self, dataset: WebDataset[Any, Any, Any]) -> WebDataset[Any, Any, Any]:
        """The dataset with this call."""
        if self.name == READ:
            raise ConfigError(f"DataPipeline: {READ} comes twice", hint="the samples are read already: call it once")
        name = "shuffle" if self.name == "detshuffle" else self.name
        made: WebDataset[Any, Any, Any] = getattr(dataset, name)(*self.args, **self.keywords)
        return made

    def __call__(self, *data: Any) -> Any:
        raise ConfigError(
            f"{self.name}(...) is a stage of a pipeline, and was called",
            hint="give it to stoker.webdataset.DataPipeline, or to compose; it does not run on iterators",
        )

    def __repr__(self) -> str:
        given = [*map(repr, self.args), *(f"{key}={value!r}" for key, value in self.keywords.items())]
        return f"{self.name}({', '.join(given)})"


class Shards:
    """The first stage of a pipeline. See SimpleShardList."""

    def __init__(self, urls: Any, seed: Any = None) -> None:
        problems = Problems("SimpleShardList")
        self.urls = _webwords.shards(urls, problems)
        problems.raise_any()
        self.seed = seed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_all(self.urls)!r})"


def split(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks what shares shards: a loader does it, sample by sample."""
    function.__dict__["_shares_shards"] = True
    return function


def chain(stages: Iterable[Any]) -> WebDataset[Any, Any, Any]:
    """The dataset that the stages describe."""
    found = [own(stage) for stage in _flat(stages)]
    if not found:
        raise ConfigError("DataPipeline: there are no stages", hint="begin with SimpleShardList(urls)")
    first, rest = found[0], found[1:]
    if isinstance(first, WebDataset):
        return after(first, rest)
    if isinstance(first, DataLoader):
        raise ConfigError(
            "DataPipeline: its first stage is a loader",
            hint="use stoker.webdataset.WebLoader and call the stages on it: "
            "WebLoader(dataset, batch_size=None).unbatched().shuffle(1000).batched(64)",
        )
    if isinstance(first, str):
        first = Shards(first)
    if not isinstance(first, Shards):
        raise ConfigError(
            f"DataPipeline: the first stage is {_told(first)}",
            hint="begin with SimpleShardList(urls), or with a dataset; stoker.DataLoader(dataset) accepts a dataset of "
            "your own, and its map and filter",
        )
    at = next((i for i, stage in enumerate(rest) if isinstance(stage, Stage) and stage.name == READ), None)
    if at is None:
        raise ConfigError(
            f"DataPipeline: no stage reads the shards: {READ} is missing",
            hint=f"add {READ}() after the stages of shards, before decode",
        )
    keywords: dict[str, Any] = {}
    if first.seed is not None and first.seed is not False:
        keywords.update(shardshuffle=True, seed=None if first.seed is True else first.seed)
    for stage in rest[:at]:
        keywords.update(_of_shards(stage))
    return after(WebDataset(first.urls, **keywords, **_reading(rest[at])), rest[at + 1 :])


def after(dataset: WebDataset[Any, Any, Any], stages: Sequence[Any]) -> WebDataset[Any, Any, Any]:
    """The dataset with stages of samples."""
    for stage in map(own, stages):
        if getattr(stage, "_shares_shards", False):
            raise ConfigError(
                f"DataPipeline: {_told(stage)} comes after {READ}",
                hint="leave it out: samples are split over ranks and workers one by one",
            )
        if isinstance(stage, (Shards, WebDataset, DataLoader)) or not (isinstance(stage, Stage) or callable(stage)):
            raise ConfigError(
                f"DataPipeline: {_told(stage)} is not a stage of samples",
                hint="give stages such as decode('pil'), or functions of an iterator of samples",
            )
        dataset = stage.on(dataset) if isinstance(stage, Stage) else dataset.compose(stage)
    return dataset


def _of_shards(stage: Any) -> dict[str, Any]:
    """What a stage before READ is in the constructor of WebDataset."""
    if getattr(stage, "_shares_shards", False):
        return {}
    if not isinstance(stage, Stage) or stage.name not in _OF_SHARDS:
        raise ConfigError(
            f"DataPipeline: {_told(stage)} is a stage of shards that stoker does not have",
            hint=f"choose the shards before: SimpleShardList(list of paths); stages of samples come after {READ}",
        )
    if stage.args and not stage.args[0]:
        return {}
    seed = stage.keywords.get("seed")
    return {"shardshuffle": True, **({} if seed is None else {"seed": seed})}


def _reading(stage: Stage) -> Mapping[str, Any]:
    names = ("handler", "select_files", "rename_files")
    given = {**dict(zip(names, stage.args, strict=False)), **stage.keywords}
    if len(stage.args) > len(names) or given.keys() - {*names}:
        raise ConfigError(f"DataPipeline: {stage!r} has unknown arguments", hint="it has " + ", ".join(names))
    return given


def _flat(stages: Iterable[Any]) -> Iterable[Any]:
    for stage in stages:
        if isinstance(stage, list):
            yield from _flat(stage)
        elif stage is not None:
            yield stage


def own(stage: Any) -> Any:
    """A stage as this package's, if it is an object of webdataset. As a mere function of an iterator it would run on
    one sample at a time: its shuffle would not shuffle, and its batches would have one sample."""
    if isinstance(stage, (type, Stage, Shards, WebDataset, DataLoader, str)):
        return stage
    if not _theirs(stage):
        return getattr(stage, "run", stage)  # of a PipelineStage
    from . import webdataset as names

    function = getattr(stage, "f", None)  # a FilterFunction
    name = str(getattr(function or stage, "__name__", type(stage).__name__)).lstrip("_")
    if name not in names.__all__:
        try:
            return getattr(names, name)
        except AttributeError as error:
            raise ConfigError(f"DataPipeline: {error}") from None
    if function is not None:
        return getattr(names, name)(*stage.args, **stage.kw)
    if name == "SimpleShardList":
        return Shards(stage.urls, stage.seed)
    if name == "detshuffle":
        return names.detshuffle(stage.bufsize, stage.initial, stage.seed)
    found = getattr(names, name)
    if not callable(stage) or isinstance(found, type):
        raise ConfigError(f"DataPipeline: {_told(stage)} of webdataset", hint=f"make it of stoker.webdataset.{name}")
    return found


def _theirs(stage: Any) -> bool:
    module = getattr(stage, "__module__", None) or type(stage).__module__
    return str(module).partition(".")[0] == "webdataset"


def _told(stage: Any) -> str:
    if isinstance(stage, (Stage, Shards, str)):
        return repr(stage)
    name = getattr(stage, "__name__", None)
    return f"{name}" if name else f"an object of type {type(stage).__name__}"

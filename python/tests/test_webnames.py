"""WebDataset's names in stoker.webdataset: equal to what the real webdataset does with the same pipeline."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset as real
from conftest import make_tar, run_python
from forms import mostly
from test_webpython import same
from torchvision import transforms as TV

import stoker
import stoker.webdataset as mine


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> str:
    """12 samples in 2 shards."""
    root = tmp_path_factory.mktemp("tars")
    make_tar(root / "x-000.tar", 0, 7)
    make_tar(root / "x-001.tar", 7, 5)
    return str(root / "x-{000..001}.tar")


SMALL = TV.Compose([TV.CenterCrop(16), TV.ToTensor()])


def small(wds: Any, tars: str, *stages: Any) -> Any:
    """A pipeline of one of the two modules."""
    return wds.DataPipeline(wds.SimpleShardList(tars), wds.split_by_worker, wds.tarfile_to_samples(), *stages)


def halves(samples: Any) -> Any:
    for sample in samples:
        yield {"half": sample["cls"] / 2}


def odd(sample: Any) -> bool:
    return bool(sample["json"]["odd"])


def width(sample: Any) -> Any:
    return {"width": sample["jpg"].size[0], "cls": sample["cls"]}


def more(key: str) -> Any:
    return {"length": len(key.rpartition("/")[2])}


def shout(data: bytes) -> str:
    return data.decode().upper()


def twice(batch: Any) -> Any:
    return [2 * value for value in batch[1]]


def unpacked(wds: Any) -> Callable[..., Any]:
    def decoder(key: str, data: bytes) -> Any:
        return wds.Continue(".json", b'"continued"') if key == ".txt" else None

    return decoder


PIPELINES: dict[str, Callable[[Any, str], Any]] = {
    "the usual one": lambda wds, tars: small(
        wds, tars, wds.decode("pil"), wds.to_tuple("jpg", "cls"), wds.map_tuple(SMALL, lambda x: x), wds.batched(5)
    ),
    "partial": lambda wds, tars: small(
        wds, tars, wds.decode("rgb8"), wds.to_tuple("jpg;png cls"), wds.batched(5, partial=False)
    ),
    "lists": lambda wds, tars: small(wds, tars, wds.decode(), wds.to_tuple("cls", "txt"), wds.batched(5, None)),
    "of dicts": lambda wds, tars: small(
        wds, tars, wds.decode("pil"), wds.select(odd), wds.rename(image="jpg"), wds.map_dict(image=SMALL)
    ),
    "functions": lambda wds, tars: small(wds, tars, wds.decode("pil"), wds.map(width)),
    "a function of iterators": lambda wds, tars: small(wds, tars, wds.decode("pil"), None, [halves]),
    "slice": lambda wds, tars: small(wds, tars, wds.slice(1, 9, 2), wds.decode(), wds.to_tuple("cls")),
    "associate": lambda wds, tars: small(
        wds, tars, wds.decode(only="cls"), wds.associate(more), wds.associate({"dir/s0001": {"first": 1}}), wds.slice(1)
    ),
    "handle_extension": lambda wds, tars: small(
        wds, tars, wds.decode(wds.handle_extension("txt", shout)), wds.to_tuple("txt", "json")
    ),
    "continue": lambda wds, tars: small(wds, tars, wds.decode(unpacked(wds)), wds.to_tuple("txt", "cls")),
    "a dataset": lambda wds, tars: wds.DataPipeline(
        wds.WebDataset(tars, shardshuffle=False).decode().to_tuple("cls", "txt"), wds.batched(4)
    ),
    "stages on a dataset": lambda wds, tars: wds.WebDataset(tars, shardshuffle=False).compose(
        wds.decode(), wds.to_tuple("cls", "txt"), wds.batched(4)
    ),
    "handlers": lambda wds, tars: wds.DataPipeline(
        wds.SimpleShardList(tars),
        wds.tarfile_to_samples(handler=wds.warn_and_continue),
        wds.decode("pil", handler=wds.ignore_and_continue),
        wds.to_tuple("jpg", "cls", handler=wds.reraise_exception),
        wds.map_tuple(SMALL, None),
    ),
}


@pytest.mark.parametrize(
    "name",
    mostly(PIPELINES, "the usual one", "of dicts", "a function of iterators", "associate", "continue", "handlers"),
)
def test_the_same_samples(name: str, tars: str) -> None:
    theirs, ours = [list(PIPELINES[name](wds, tars)) for wds in (real, mine)]
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        same(one, other)


LOADERS: dict[str, Callable[[Any, Any], Any]] = {
    "batched": lambda wds, data: wds.WebLoader(data.batched(4), batch_size=None, num_workers=2),
    "batched after": lambda wds, data: wds.WebLoader(data, batch_size=None).batched(4),
    "batched anew": lambda wds, data: wds.WebLoader(data.batched(3), batch_size=None).unbatched().batched(4),
    "its own batches": lambda wds, data: wds.WebLoader(data, batch_size=3).unbatched().batched(5),
    "map": lambda wds, data: wds.WebLoader(data.batched(4), batch_size=None).map(twice),
    "map of its own": lambda wds, data: wds.WebLoader(data, batch_size=4).map(twice),
}


@pytest.mark.parametrize("name", LOADERS)
def test_the_same_batches_of_a_loader(name: str, tars: str) -> None:
    theirs, ours = [
        LOADERS[name](wds, wds.WebDataset(tars, shardshuffle=False).decode().to_tuple("txt", "cls"))
        for wds in (real, mine)
    ]
    with ours:
        found, expected = (
            [sorted(map(str, np.asarray(batch[-1]).flat)) for batch in loader] for loader in (ours, theirs)
        )
    # Workers of webdataset read a shard each: its batches are others, but of the same samples.
    assert sorted(chain.from_iterable(found)) == sorted(chain.from_iterable(expected))
    if name != "batched":
        assert found == expected


def test_the_usual_loader_of_a_training(tars: str) -> None:
    """Shuffled again after the workers, in batches, for a number of batches."""
    stages = mine.shuffle(100), mine.decode("pil"), mine.to_tuple("jpg", "cls"), mine.map_tuple(SMALL)
    dataset = small(mine, tars, *stages)
    loader = mine.WebLoader(dataset.batched(2), batch_size=None, num_workers=2, seed=3)
    loader = loader.unbatched().shuffle(1000).batched(4).with_epoch(7)
    assert isinstance(loader, stoker.DataLoader)
    assert len(loader) == 7
    with loader:
        ids = [batch.ids.tolist() for batch in loader]
    assert len(ids) == 7
    assert all(len(one) == 4 for one in ids)
    seen = [i for one in ids for i in one]
    assert sorted(seen[:12]) == sorted(seen[12:24]) == list(range(12))  # no sample again before all others
    assert seen[:12] != list(range(12))
    assert len(loader.with_length(99)) == 99
    assert len(loader.repeat(nbatches=5)) == 5
    with mine.WebLoader(dataset, batch_size=4, world_size=2, rank=0).ddp_equalize(6) as equal:
        assert [len(batch.ids) for batch in equal] == [4, 4, 4]
        state = equal.state_dict()
    assert state["epoch"] == 1


def test_stages_of_webdataset_itself_are_stokers(tars: str) -> None:
    """As functions of an iterator they would get one sample at a time: batches of one, and no shuffle."""
    stages = real.shuffle(100), real.decode("rgb8"), real.to_tuple("jpg", "cls"), real.batched(5)
    mixed = mine.DataPipeline(real.SimpleShardList(tars), real.split_by_node, real.tarfile_to_samples(), *stages)
    batches = list(mixed)
    assert [len(batch.ids) for batch in batches] == [5, 5, 2]
    assert np.concatenate([batch.ids for batch in batches]).tolist() != list(range(12))
    stages = real.detshuffle(10), real.decode(), real.to_tuple("cls"), real.batched(6)
    composed = stoker.WebDataset(tars).compose(*stages)
    assert [len(batch.ids) for batch in composed] == [6, 6]
    with pytest.raises(stoker.ConfigError, match=r"stoker\.webdataset has no rsample: select"):
        stoker.WebDataset(tars).compose(real.rsample(0.5))


def test_identities_leave_the_chain_native(tars: str) -> None:
    def unchanged(value: Any) -> Any:
        return value

    for leave in (lambda x: x, unchanged, None):
        dataset = stoker.WebDataset(tars).decode("pil").to_tuple("jpg", "cls").map_tuple(SMALL, leave)
        assert not dataset._after
        assert not stoker.WebDataset(tars).decode("pil").map_dict(cls=leave)._after
    for change in (lambda x: (x,), lambda *x: x, lambda x: -x, lambda x, y=1: x):
        assert stoker.WebDataset(tars).decode("pil").to_tuple("jpg", "cls").map_tuple(SMALL, change)._after


def test_a_pipeline_is_a_dataset(tars: str) -> None:
    pipeline = small(mine, tars, mine.decode("rgb8"))
    assert isinstance(pipeline, stoker.WebDataset)
    again = pickle.loads(pickle.dumps(pipeline))
    assert isinstance(again, mine.DataPipeline)
    again.append(mine.to_tuple("cls"))
    assert len(again) == 12
    assert [int(one) for (one,) in again] == [i % 5 for i in range(12)]
    assert not isinstance(next(iter(pipeline)), tuple)

    assert len(mine.WebDataset(mine.SimpleShardList(tars))) == 12

    class Mine(mine.DataPipeline, mine.FluidInterface):
        def __init__(self, urls: str) -> None:
            super().__init__(mine.SimpleShardList(urls), mine.tarfile_to_samples(), mine.decode())

    assert len(list(Mine(tars).to_tuple("cls").batched(5))) == 3


def test_shards_are_shuffled_as_samples(tars: str) -> None:
    def order(*stages: Any, seed: Any = None) -> Any:
        shards, read = mine.SimpleShardList(tars, seed), mine.tarfile_to_samples()
        pipeline = mine.DataPipeline(shards, *stages, read, mine.to_tuple("cls"))
        with stoker.DataLoader(pipeline, 12) as loader:
            (batch,) = loader
        return batch.ids.tolist()

    assert order(mine.split_by_node, mine.single_node_only) == list(range(12))
    assert order(mine.shuffle(0)) == list(range(12))
    shuffled = [order(mine.detshuffle(10, seed=5)), order(mine.shuffle(10, seed=5)), order(seed=5)]
    assert shuffled[0] == shuffled[1] == shuffled[2] != list(range(12))
    assert order(mine.shuffle(10, seed=6)) not in (shuffled[0], list(range(12)))


def test_mixtures_and_getfirst(tars: str) -> None:
    data = mine.WebDataset(tars).decode().to_tuple("cls")
    with stoker.DataLoader(mine.RandomMix([data, data.slice(6)], [3, 1]), 4) as loader:
        ids = [i for batch in loader for i in batch.ids.tolist()]
    assert abs(sum(i < 12 for i in ids[:16]) - 12) <= 1
    assert len(mine.RoundRobin([data, data], longest=True)) == 24
    sample = {"png": 1, "cls": 2}
    for wds in (mine, real):
        assert wds.getfirst(sample, "jpg;png") == 1
        assert wds.getfirst(sample, ["jpg"], default=3, missing_is_error=False) == 3
        with pytest.raises(ValueError, match="jpg"):
            wds.getfirst(sample, "jpg")


def test_handlers_do_what_webdatasets_do() -> None:
    error = KeyError("x")
    for name in "ignore_and_continue ignore_and_stop warn_and_continue warn_and_stop".split():
        for wds in (mine, real):
            if name.startswith("warn"):
                with pytest.warns(UserWarning, match="KeyError"):
                    assert getattr(wds, name)(error) == name.endswith("continue")
            else:
                assert getattr(wds, name)(error) == name.endswith("continue")
    with pytest.raises(KeyError):
        mine.reraise_exception(error)


def test_damage_is_handled(tars: str, tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    data = Path(tars.replace("{000..001}", "000")).read_bytes()
    at = data.index(b"\xff\xd8")
    path.write_bytes(data[:at] + b"no picture" + data[at + 10 :])

    def pipeline(handler: Any) -> Any:
        stages = mine.decode("pil", handler=handler), mine.to_tuple("jpg", "cls"), mine.map_tuple(SMALL, None)
        return mine.DataPipeline(mine.SimpleShardList(str(path)), mine.tarfile_to_samples(), *stages)

    with mine.WebLoader(pipeline(mine.warn_and_continue), batch_size=7) as loader:
        (batch,) = loader
        assert [bad.sample for bad in batch.bad] == [0]
    for handler in (mine.reraise_exception, mine.warn_and_stop):
        with mine.WebLoader(pipeline(handler), batch_size=7) as loader, pytest.raises(stoker.DataError):
            list(loader)


def of_shards(tars: str, stage: Any) -> Any:
    return mine.DataPipeline(mine.SimpleShardList(tars), stage, mine.tarfile_to_samples())


WRONG: list[tuple[Callable[[str], Any], str]] = [
    (lambda tars: mine.DataPipeline(), "no stages.*SimpleShardList"),
    (lambda tars: mine.DataPipeline(mine.SimpleShardList(tars), mine.decode("pil")), "tarfile_to_samples is missing"),
    (lambda tars: small(mine, tars, mine.tarfile_to_samples()), "comes twice"),
    (lambda tars: small(mine, tars, mine.split_by_worker), "split_by_worker comes after tarfile_to_samples.*leave it"),
    (lambda tars: small(mine, tars, 5), "type int is not a stage of samples"),
    (lambda tars: mine.DataPipeline(iter, mine.decode("pil")), "first stage is iter.*SimpleShardList"),
    (
        lambda tars: mine.DataPipeline(mine.WebLoader(mine.WebDataset(tars), None)),
        "WebLoader.*unbatched",
    ),
    (
        lambda tars: of_shards(tars, mine.slice(1)),
        r"slice\(1\)",
    ),
    (
        lambda tars: of_shards(tars, sorted),
        "sorted.*stage of shards",
    ),
    (lambda tars: mine.ResampledShards(tars), "with replacement.*with_epoch"),
    (lambda tars: mine.split_by_node([1]), "without parentheses"),
    (lambda tars: mine.shuffle(100)([1]), "is a stage.*DataPipeline"),
    (lambda tars: small(mine, tars, mine.decode("pill0w")), "did you mean 'pillow'"),
    (lambda tars: small(mine, tars, mine.batched(4), mine.shuffle(4)), "shuffle: called after batched"),
    (lambda tars: mine.WebLoader(mine.WebDataset(tars), batch_size=2).batched(3), "batched already.*batch_size=None"),
    (lambda tars: mine.WebLoader([1, 2, 3], batch_size=2).shuffle(3), "type list.*WebDataset"),
    (lambda tars: mine.WebLoader(mine.WebDataset(tars), None).repeat(3), "one epoch at a time"),
    (lambda tars: mine.associate(3), "give a dict"),
    (lambda tars: mine.SimpleShardList([]), "give a path"),
    (lambda tars: mine.WebDataset(mine.SimpleShardList(tars, 3)), "with a seed.*shardshuffle"),
    (lambda tars: list(mine.WebDataset("s3://bucket/x-{000..009}.tar")), "s3"),
]


@pytest.mark.parametrize(("wrong", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_has_no_counterpart_says_what_to_do(wrong: Callable[[str], Any], says: str, tars: str) -> None:
    with pytest.raises(stoker.StokerError, match=f"(?s){says}"):
        wrong(tars)


def test_every_name_of_webdataset_is_there_or_answered() -> None:
    modules = "autodecode cache compat extradatasets filters gopen handlers mix multi pipeline pytorch shardlists "
    modules += "tariterators tenbin utils writer"
    for name in vars(real):
        if name.startswith("_") or name in modules.split():
            continue
        if name not in mine.__all__:
            with pytest.raises(AttributeError, match=rf"has no {name}: "):
                getattr(mine, name)
        else:
            assert getattr(mine, name).__doc__, name
    assert all(hasattr(real, name) for name in mine.__all__)
    with pytest.raises(AttributeError, match="WebDatasset"):
        mine.WebDatasset  # noqa: B018


def test_the_module_is_imported_when_it_is_needed() -> None:
    code = """
import sys, stoker
print("stoker.webdataset" in sys.modules, "webdataset" in sys.modules)
print(stoker.webdataset.WebLoader.__name__)
import stoker.webdataset as wds
from stoker.webdataset import DataPipeline
print("torch" in sys.modules, "numpy" in sys.modules, "webdataset" in sys.modules)
"""
    done = run_python(code)
    assert done.stdout.split("\n")[:3] == ["False False", "WebLoader", "False False False"], done.stderr

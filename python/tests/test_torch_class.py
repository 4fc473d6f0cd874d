"""A loader passes for torch's where torch is loaded, and stays what it is; nobody makes another one of it."""

from __future__ import annotations

import abc
import copy
import functools
import gc
import multiprocessing
import pickle
import subprocess
import sys
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

import pytest
from conftest import make_folder
from forms import long
from needs import needs

import stoker
from stoker import transforms as T

needs("torch")
import torch  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, SequentialSampler  # noqa: E402


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> stoker.ImageFolder:
    root = make_folder(tmp_path_factory.mktemp("folder"), 21)
    return stoker.ImageFolder(root, T.Compose([T.CenterCrop(8), T.ToTensor()]))


@pytest.fixture
def loader(data: stoker.ImageFolder) -> Iterator[stoker.DataLoader]:
    with stoker.DataLoader(data, 4, shuffle=True, seed=1) as made:
        yield made


class Mine(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 21

    def __getitem__(self, i: int) -> int:
        return i


class Own(stoker.DataLoader):
    """A user's, with what users do in theirs."""

    made = 0
    kinds: list[str] = []  # noqa: RUF012

    def __init__(self, *args: Any, more: str = "", **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.more = more
        self.__class__.made += 1

    def __init_subclass__(cls, **keywords: Any) -> None:
        cls.kinds.append(cls.__name__)

    def again(self) -> Any:
        return self.__class__(self.dataset, 4, more="again")


class Counted(Own, abc.ABC):
    """One whose class has a metaclass."""

    def __reduce__(self) -> Any:
        return self.__class__, (self.dataset, self.batch_size)


class New(stoker.DataLoader):
    """One whose ``__new__`` needs an argument."""

    def __new__(cls, dataset: Any, *args: Any, **keywords: Any) -> Any:
        return super().__new__(cls, dataset, *args, **keywords)  # type: ignore[call-arg]

    def __getnewargs__(self) -> Any:
        return (self.dataset,)


def test_a_loader_is_torchs_and_stokers(loader: stoker.DataLoader, data: stoker.ImageFolder) -> None:
    for one in (loader, Own(data), Counted(data), stoker.DataLoader([1, 2, 3])):
        assert isinstance(one, DataLoader)
        assert isinstance(one, stoker.DataLoader)
        assert issubclass(one.__class__, DataLoader)
        assert issubclass(one.__class__, stoker.DataLoader)
        assert not isinstance(one, torch.nn.Module)
        assert (one.__class__.__name__, one.__class__.__module__) == (type(one).__name__, type(one).__module__)
    assert type(loader) is stoker.DataLoader
    assert loader.__class__ is loader.__class__
    assert not isinstance(loader, Own)
    assert isinstance(Own(data), loader.__class__)
    assert not isinstance(loader, Own(data).__class__)


def test_a_loader_made_before_torch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
            patch.delitem(sys.modules, name)
        made = stoker.DataLoader(stoker.Synthetic(8), 4, output="numpy", seed=0)
        sampler = made.sampler
        assert made.__class__ is stoker.DataLoader
        assert made.collate_fn is None
        assert "torch" not in sys.modules
    assert isinstance(made, DataLoader)
    assert isinstance(made, stoker.DataLoader)
    assert isinstance(sampler, DistributedSampler)


@long  # the test before does it in this process, with torch hidden
def test_a_loader_made_before_torch_is_imported() -> None:
    script = """
import sys
import stoker
loader = stoker.DataLoader(stoker.Synthetic(8), 4, output="numpy", seed=0)
sampler = loader.sampler
assert loader.__class__ is stoker.DataLoader and not any(name.partition(".")[0] == "torch" for name in sys.modules)
assert loader.collate_fn is None
import torch.utils.data as data
assert isinstance(loader, data.DataLoader) and isinstance(loader, stoker.DataLoader)
assert isinstance(sampler, data.DistributedSampler)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_what_stands_in_for_torch_is_not_torch(loader: stoker.DataLoader) -> None:
    name = "torch.utils.data.dataloader"
    with mock.patch.dict(sys.modules, {name: mock.MagicMock()}):
        assert loader.__class__ is stoker.DataLoader
    with mock.patch.dict(sys.modules, {name: mock.MagicMock(DataLoader=stoker.DataLoader)}):
        assert loader.__class__ is stoker.DataLoader


def test_copies_and_pickles_are_of_the_same_class(data: stoker.ImageFolder) -> None:
    made = Own(data, 4, more="kept", shuffle=True, seed=5)
    want = [batch.ids.tolist() for batch in made]
    made.set_epoch(0)
    pickles = [pickle.dumps(made, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    copies = [copy.copy(made), copy.deepcopy(made), *map(pickle.loads, pickles), pickle._loads(pickle._dumps(made))]  # type: ignore[attr-defined]
    for one in copies:
        assert type(one) is Own
        assert isinstance(one, DataLoader)
        assert (one.more, vars(one)["dataset"]) == ("kept", one.dataset)
    assert [batch.ids.tolist() for batch in copies[2]] == want
    counted = pickle.loads(pickle.dumps(Counted(data, 4)))  # __reduce__ of a user, with __class__
    assert type(counted) is Counted
    assert type(pickle.loads(pickle.dumps(New(data, 4)))) is New
    for kind in (Own, Counted, stoker.DataLoader):
        assert pickle.loads(pickle.dumps(kind(data).__class__)) is kind
        assert copy.deepcopy(kind(data).__class__) is kind(data).__class__
    for sampler in (stoker.SequentialSampler(data), stoker.DistributedSampler(data), made.sampler):
        assert type(pickle.loads(pickle.dumps(sampler))) is type(sampler)
        assert type(copy.copy(sampler)) is type(sampler)


def spawned(loader: Any, queue: Any) -> None:
    queue.put([batch.ids.tolist() for batch in loader])
    loader.close()


@long  # the tests of pickles have its way, without an interpreter that imports torch again
def test_a_loader_goes_to_another_process(loader: stoker.DataLoader) -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=spawned, args=(loader, queue))
    process.start()
    assert queue.get(timeout=120) == [batch.ids.tolist() for batch in loader]
    process.join()


def test_the_class_that_it_answers_stands_for_its_own(data: stoker.ImageFolder) -> None:
    made, before = Own(data, 4), Own.made
    other = made.again()
    assert (type(other), other.more, Own.made) == (Own, "again", before + 1)
    assert Own.kinds == ["Counted"]  # __init_subclass__ heard of no answer

    class Derived(made.__class__):  # type: ignore[misc,name-defined]
        pass

    assert Derived.__mro__[1] is Own
    assert isinstance(Derived(data), Derived)
    other.__class__ = stoker.DataLoader(data).__class__
    assert type(other) is stoker.DataLoader


def test_dispatch_and_mocks(loader: stoker.DataLoader) -> None:
    @functools.singledispatch
    def kind(value: Any) -> str:
        return "any"

    kind.register(DataLoader, lambda value: "torch's")
    assert kind(loader) == "torch's"
    kind.register(stoker.DataLoader, lambda value: "stoker's")
    assert kind(loader) == "stoker's"
    assert isinstance(mock.Mock(spec=loader), stoker.DataLoader)
    assert mock.create_autospec(loader, instance=True).state_dict() is not None


def test_a_loader_is_collected_at_once(data: stoker.ImageFolder) -> None:
    made = stoker.DataLoader(data, 4)
    seen = weakref.ref(made)
    sampler = vars(made)["sampler"]
    gc.disable()
    try:
        del made
        assert seen() is None, "a cycle of references"
    finally:
        gc.enable()
    assert not isinstance(sampler, DistributedSampler)
    with pytest.raises(ReferenceError):
        sampler.set_epoch(1)


def test_samplers_pass_for_torchs(loader: stoker.DataLoader, data: stoker.ImageFolder) -> None:
    stored = stoker.DataLoader(data, 4)
    assert isinstance(loader.sampler, DistributedSampler)
    assert not isinstance(loader.sampler, (SequentialSampler, RandomSampler))
    assert isinstance(stored.sampler, DistributedSampler)
    assert isinstance(stored.sampler, SequentialSampler)
    assert isinstance(loader.batch_sampler.sampler, DistributedSampler)
    assert isinstance(stoker.DistributedSampler(data), DistributedSampler)
    assert isinstance(stoker.DistributedSampler(data, shuffle=False), SequentialSampler)
    assert isinstance(stoker.SequentialSampler(data), SequentialSampler)
    assert not isinstance(stoker.RandomSampler(data), (DistributedSampler, RandomSampler))
    mixed = stoker.DataLoader(stoker.Mixture([data, data]), 4, seed=0)
    assert not isinstance(mixed.sampler, SequentialSampler)
    with pytest.raises(stoker.ConfigError, match="makes its batches itself"):
        iter(loader.sampler)


def test_a_sampler_of_a_stream_has_no_length_and_is_there() -> None:
    class Stream(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            return iter(range(5))

    made = stoker.DataLoader(Stream(), 2, num_workers=0)
    assert made.sampler
    with pytest.raises(TypeError):
        len(made.sampler)
    twin = from_attributes(made, sampler=None, batch_sampler=None)  # as Lightning does it for predictions
    assert [batch.tolist() for batch in twin] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(("tail", "given"), [("pad", 11), ("fill", 12), ("drop", 8)])
def test_the_length_of_a_sampler_is_that_of_the_ranks_share(data: stoker.ImageFolder, tail: str, given: int) -> None:
    """As torch counts it, whose samplers know nothing of batches."""
    samples: Any = data
    share = len(DistributedSampler(samples, num_replicas=2, rank=0))
    for rank in range(2):
        with stoker.DataLoader(data, 4, rank=rank, world_size=2, tail=tail) as made:
            assert (len(made.sampler), made.sampler.num_replicas, made.sampler.rank) == (share, 2, rank)
            assert sum(len(batch.ids) for batch in made) == given


def test_wrappers_that_copy_vars_show_torchs_attributes(loader: stoker.DataLoader, data: stoker.ImageFolder) -> None:
    theirs: Any = DataLoader(Mine())
    names = {name for name in vars(theirs) if not name.startswith("_")}
    assert names <= set(vars(loader))
    shown = vars(loader)
    assert (shown["dataset"], shown["batch_size"], shown["timeout"]) == (data, 4, 0)
    shown["sampler"].set_epoch(3)
    assert next(iter(loader)).epoch == 3


def test_collate_fn_is_torchs(loader: stoker.DataLoader, data: stoker.ImageFolder) -> None:
    assert loader.collate_fn is torch.utils.data.default_collate
    images, labels = loader.collate_fn([data[i] for i in range(3)])
    assert (images.shape, labels.shape) == ((3, 3, 8, 8), (3,))
    assert stoker.DataLoader(data, None).collate_fn is torch.utils.data.default_convert
    assert stoker.DataLoader(data, output="numpy").collate_fn is None
    assert stoker.DataLoader([1, 2], collate_fn=list).collate_fn is list


def test_attributes_of_one_loader_are_keywords_of_another(loader: stoker.DataLoader, data: stoker.ImageFolder) -> None:
    names = ("batch_size", "timeout", "collate_fn", "drop_last", "pin_memory", "worker_init_fn", "generator")
    keywords = {name: getattr(loader, name) for name in names}
    other: Any = stoker.DataLoader(data, **keywords, num_workers=loader.num_workers)
    assert next(iter(other)).ids.tolist() == [0, 1, 2, 3]
    assert type(next(iter(other))) is type(next(iter(loader)))
    assert not multiprocessing.active_children()


def from_attributes(loader: Any, **changed: Any) -> Any:
    """A loader made as libraries do it: of all public attributes that the constructor knows."""
    public = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
    return type(loader)(**{**public, **changed})


def test_a_loader_made_from_its_attributes_is_the_same(loader: stoker.DataLoader) -> None:
    iterator = iter(loader)
    first = next(iterator).ids.tolist()
    with from_attributes(loader) as twin:
        assert twin.state_dict() == loader.state_dict()
        twin.load_state_dict(loader.state_dict())
        assert [batch.ids.tolist() for batch in twin] == [batch.ids.tolist() for batch in iterator]
        again = [batch.ids.tolist() for batch in from_attributes(twin)]
    assert first not in again
    assert again == [batch.ids.tolist() for batch in loader]


class Weighted(stoker.DataLoader):
    """One that decides keywords itself, of which torch's loader has no attributes."""

    def __init__(self, dataset: Any, **keywords: Any) -> None:
        own: dict[str, Any] = {"seed": 7, "weights": torch.ones(21).numpy(), "num_samples": 10}
        super().__init__(dataset, **keywords, **own)


def test_keywords_that_a_subclass_always_passes_are_no_change(data: stoker.ImageFolder) -> None:
    with Weighted(data, batch_size=4) as made:
        want = [batch.ids.tolist() for batch in made]
        made.set_epoch(0)
        with from_attributes(made) as twin:
            assert [batch.ids.tolist() for batch in twin] == want
        with pytest.raises(stoker.ConfigError, match="another max_bad: 1"):
            from_attributes(made, max_bad=1)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"sampler": SequentialSampler(range(21)), "batch_sampler": None}, "SequentialSampler.*\n.*shuffle=False"),
        ({"sampler": DistributedSampler(range(21), 2, 0)}, "another sampler, a DistributedSampler"),  # type: ignore[arg-type]
        ({"sampler": None, "batch_sampler": None}, "another sampler"),
        ({"sampler": None, "batch_sampler": torch.utils.data.BatchSampler(range(21), 4, False)}, "another sampler"),
        ({"batch_size": 8}, "another batch_size: 8"),
        ({"shuffle": True}, "another shuffle: True"),
        ({"seed": 3}, "another seed: 3"),
        ({"dataset": [1, 2]}, "another dataset"),
    ],
)
def test_nobody_makes_another_loader_of_its_attributes(
    loader: stoker.DataLoader, changed: dict[str, Any], match: str
) -> None:
    with pytest.raises(stoker.ConfigError, match=match):
        from_attributes(loader, **changed)


def test_a_batch_sampler_with_another_sampler_is_refused(loader: stoker.DataLoader, data: stoker.ImageFolder) -> None:
    """As Lightning makes one: of the class of ours."""
    batches = type(loader.batch_sampler)(SequentialSampler(data), batch_size=4, drop_last=False)
    for made in (stoker.DataLoader, Own):
        with pytest.raises(stoker.ConfigError, match="another sampler, a SequentialSampler"):
            made(data, batch_sampler=batches)
    with pytest.raises(stoker.ConfigError, match=r"loader\.skip"):
        list(DataLoader(Mine(), batch_sampler=batches))


def pl_worker_init_function(worker: int, rank: int | None = None) -> None:
    pass


def test_lightnings_worker_init_fn_is_not_needed(loader: stoker.DataLoader) -> None:
    loader.worker_init_fn = partial(pl_worker_init_function, rank=0)
    assert loader.worker_init_fn is None
    with pytest.raises(stoker.ConfigError, match="worker_init_fn cannot be assigned"):
        loader.worker_init_fn = partial(mock.MagicMock(spec=[]), rank=0)
    with pytest.raises(stoker.ConfigError, match="worker_init_fn cannot be assigned"):
        loader.worker_init_fn = print

"""Datasets that are iterated: order and batches are those of torch's DataLoader, states and deaths are stoker's."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import pickle
import tarfile
import time
import warnings
from itertools import product
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import forms
import pytest
import streams
import torch
from conftest import engine, kill
from forms import mostly
from needs import needs
from torch.utils import data

import stoker
from stoker._reports import Failed
from stoker._walks import Walk

PLAIN: Any = streams.Plain  # type checkers are not told of classes with __iter__ only


def shown(loader: Any) -> list[str]:
    """Batches in words: types, dtypes and values."""
    found = []
    for batch in loader:
        kind = next(base for base in type(batch).__mro__ if not base.__module__.startswith("stoker"))
        found.append(f"{kind.__name__} {batch}")
    return found


def compared(make: Any, **keywords: Any) -> list[str]:
    """What both loaders give, if it is the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = shown(data.DataLoader(make(), **keywords))
    ours = shown(stoker.DataLoader(make(), **keywords))
    assert ours == theirs
    return ours


# What torch gives.


@pytest.mark.parametrize(
    ("kind", "workers"),
    mostly(
        product([streams.Range, streams.Uneven], [0, 1, 2, 5]),
        (streams.Range, 0), (streams.Uneven, 0), (streams.Uneven, 2),
    ),
)  # fmt: skip
def test_batches_are_those_of_torch(kind: Any, workers: int) -> None:
    for batching in ({"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}, {"batch_size": 30}):
        compared(kind, num_workers=workers, **batching)


def test_uneven_workers_take_turns_as_in_torch() -> None:
    found = [batch["i"].tolist() for batch in stoker.DataLoader(streams.Uneven(), 3, num_workers=4)]
    assert [batch[0] for batch in found] == [100, 200, 300, 103, 203, 303, 106, 206, 306, 209, 309, 212, 312, 315, 318]


@pytest.mark.parametrize("method", mostly(["fork", "spawn", "forkserver"], "fork", "forkserver"))
def test_start_methods_and_two_passes(method: str) -> None:
    for persistent in (False, True) if method == "fork" else (True,):  # they start slowly
        workers = 2 if method == "fork" else 1  # which imports torch
        keywords: Any = {"num_workers": workers, "multiprocessing_context": method, "persistent_workers": persistent}
        loader = stoker.DataLoader(streams.Range(), 4, prefetch_factor=3, **keywords)
        first, second = shown(loader), shown(loader)
        assert first == second
        assert len(first) == 6
        loader.close()


def test_collate_functions() -> None:
    for workers in (0, 2):
        compared(streams.Range, batch_size=4, num_workers=workers, collate_fn=streams.doubled)
        loader = stoker.DataLoader(streams.Range(), 4, num_workers=workers, collate_fn=streams.rolled)
        first = [batch[1] for batch in loader]
        assert len(set(first)) == 6
        assert [batch[1] for batch in loader] != first
        loader.set_epoch(0)
        assert [batch[1] for batch in loader] == first


def test_a_class_with_iter_only_and_chains() -> None:
    chain = data.ChainDataset([streams.Range(), streams.Range(5)])
    for workers in (0, 2):
        compared(lambda: chain, batch_size=4, num_workers=workers)
        found = [batch.tolist() for batch in stoker.DataLoader(PLAIN(), 4, num_workers=workers)]
        assert sorted(int(row[0]) for batch in found for row in batch) == list(range(11))


def test_worker_init_fn_may_change_the_dataset_of_its_worker() -> None:
    found = compared(streams.Sliced, batch_size=4, num_workers=2, worker_init_fn=streams.sliced)
    assert found[:2] == ["Tensor tensor([3, 4, 5, 6])", "Tensor tensor([12, 13, 14, 15])"]


def test_outputs() -> None:
    import numpy as np

    loader = stoker.DataLoader(PLAIN(), 4, num_workers=2, output="numpy")
    (batch, *_) = loader
    assert isinstance(batch, np.ndarray)
    assert batch.dtype == np.float32
    assert batch.shape == (4, 2)


def test_an_infinite_one_begins_at_once_and_can_be_left() -> None:
    for workers in (0, 2):
        loader = stoker.DataLoader(streams.Infinite(), 2, num_workers=workers, persistent_workers=workers > 0)
        for _ in range(2):
            iterator = iter(loader)
            assert [next(iterator).tolist() for _ in range(3)] == (
                [[0, 1], [2, 3], [4, 5]] if not workers else [[0, 2], [1, 3], [4, 6]]
            )
            del iterator
        loader.close()


def test_concurrent_passes_do_not_meet() -> None:
    for workers in (0, 2):
        loader = stoker.DataLoader(streams.Drawn(), 4, num_workers=workers)
        alone = shown(loader)
        both = stoker.DataLoader(streams.Drawn(), 4, num_workers=workers)
        first, second = iter(both), iter(both)
        found = [(shown([next(first)]), shown([next(second)])) for _ in range(6)]
        assert [one for (one,), _ in found] == alone
        assert [two for _, (two,) in found] == shown(loader)


def test_a_pass_is_left_for_another_one() -> None:
    for workers in (0, 2):
        loader = stoker.DataLoader(streams.Saving(), 4, num_workers=workers)
        whole = shown(loader)
        first = iter(loader)
        begun = shown(next(first) for _ in range(3))
        second = iter(loader)
        assert shown([next(second)]) == whole[:1]
        assert begun + shown(first) == whole
        assert shown(second) == whole[1:]
        for _ in range(2):
            first = iter(loader)
            assert shown(next(first) for _ in range(3)) == whole[:3]


# Lengths and keywords.


def test_length_is_that_of_the_dataset() -> None:
    assert len(stoker.DataLoader(streams.Sized(True), 4, num_workers=2)) == 6
    assert len(stoker.DataLoader(streams.Sized(True), 4, drop_last=True)) == 5
    assert len(stoker.DataLoader(streams.Sized(True), None)) == 23
    with pytest.raises(TypeError, match="has no len"):
        len(stoker.DataLoader(streams.Range(), 4))


def test_a_wrong_length_is_a_warning() -> None:
    for splits in (True, False):
        loader = stoker.DataLoader(streams.Sized(splits), 4, num_workers=2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in loader:  # list(loader) would ask for its length
                pass
            before = [str(each.message) for each in caught]
            assert len(loader) == 6
            for _ in loader:
                pass
        said = [str(each.message) for each in caught if "was 23" in str(each.message)]
        assert not any("was 23" in text for text in before)
        assert len(said) == (not splits)
        assert splits or "get_worker_info" in said[0]


@pytest.mark.parametrize(
    "keywords",
    [
        {"shuffle": True},
        {"sampler": [1]},
        {"batch_sampler": [[1]]},
        {"weights": [1.0]},
        {"lengths": [1], "tokens": 9},
        {"tail": "pad"},
        {"global_batch_size": 8},
        {"batch_size": None, "drop_last": True},
    ],
)
def test_keywords_that_need_numbers(keywords: Any) -> None:
    with pytest.raises(stoker.ConfigError, match=next(reversed(keywords))) as caught:
        stoker.DataLoader(streams.Range(), **keywords)
    assert "try:" in str(caught.value)


def test_what_can_be_iterated_once_is_no_dataset() -> None:
    value: Any
    for value in ((i for i in range(3)), zip([1], [2], strict=True), io.StringIO("a")):
        with pytest.raises(stoker.ConfigError):
            stoker.DataLoader(value)
    with pytest.raises(stoker.ConfigError, match=r"only once(?s:.*)__iter__"):
        value = (i for i in range(3))
        stoker.DataLoader(value)


def test_calls_that_need_numbers() -> None:
    loader = stoker.DataLoader(streams.Range(), 4, num_workers=1)
    for call in (lambda: loader.skip(1), lambda: loader.explain(0), lambda: stoker.verify_receipts([], loader)):
        with pytest.raises(stoker.ConfigError, match=r"(?s)nobody knows.*try:"):
            call()
    for i, batch in enumerate(loader):
        assert batch.step == i
        assert batch.ids is None
        assert batch.bad == []
        assert batch.valid.tolist() == [True] * len(batch["i"])
    assert loader.facts is not None
    assert loader.facts.step == 5
    (part,) = loader.receipt()["parts"]
    assert part["samples"] == 23
    assert int(part["sum"], 16) == 0
    stoker.DataLoader(streams.Range(), 4, on_bad="skip")


# Random numbers.


def test_seeds_are_of_the_epoch_and_the_worker() -> None:
    for workers in (0, 2):
        loaders = [
            stoker.DataLoader(streams.Drawn(), 4, num_workers=workers, persistent_workers=kept, seed=7)
            for kept in (False, workers > 0)
        ]
        state = torch.get_rng_state()
        passes = [[shown(loader) for _ in range(2)] for loader in loaders]
        assert torch.equal(torch.get_rng_state(), state)
        assert passes[0] == passes[1]
        assert passes[0][0] != passes[0][1]
        (again,) = {str(shown(stoker.DataLoader(streams.Drawn(), 4, num_workers=workers, seed=7)))}
        assert again == str(passes[0][0])
    found = list(stoker.DataLoader(streams.Asked(), 5, num_workers=2))
    assert len({value for _, values in found for value in values.tolist()}) == 10
    torch.manual_seed(3)
    drawn = shown(stoker.DataLoader(streams.Drawn(), 4, seeding="worker"))
    torch.manual_seed(3)
    assert (
        shown(stoker.DataLoader(streams.Drawn(), 4, seeding="worker"))[0].split("tensor")[4:]
        == drawn[0].split("tensor")[4:]
    )


def test_seeds_of_worker_init_fn_last(caplog: pytest.LogCaptureFixture) -> None:
    def first() -> list[float]:
        loader = stoker.DataLoader(streams.Drawn(), 4, num_workers=2, worker_init_fn=streams.started)
        return [float(batch[1][0]) for batch in loader][:2]

    import random

    assert first() == [random.Random(0).random(), random.Random(1).random()]
    assert "have no effect" not in caplog.text


# States.


def resumed(make: Any, cut: int, **keywords: Any) -> list[str]:
    """All batches, with a resume after some of them, through JSON."""
    loader = stoker.DataLoader(make(), 4, **keywords)
    iterator = iter(loader)
    found = [*shown(next(iterator) for _ in range(cut))]
    state = json.loads(json.dumps(loader.state_dict()))
    loader.close()
    with contextlib.closing(stoker.DataLoader(make(), 4, **keywords)) as loader:
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        found += shown(loader)
        assert loader.state_dict()["iterable"]["step"] == len(found)
        return [*found, *shown(loader)]


KINDS = [streams.Range, streams.Uneven, streams.Saving]


@pytest.mark.parametrize(("kind", "workers"), mostly(product(KINDS, [0, 3]), *product(KINDS, [0]), (streams.Uneven, 3)))
def test_resume_at_every_step(kind: Any, workers: int) -> None:
    keywords: Any = {"num_workers": workers}
    loader = stoker.DataLoader(kind(), 4, **keywords)
    both = shown(loader) + shown(loader)
    cuts = range(len(both) // 2 + 1)
    for cut in cuts if forms.ALL or not workers else (1, len(cuts) // 2):
        assert resumed(kind, cut, persistent_workers=workers > 0 and cut % 2 == 0, **keywords) == both


def test_a_resume_draws_the_same_numbers() -> None:
    for workers in (0, 2):
        loader = stoker.DataLoader(streams.Drawn(), 4, num_workers=workers)
        assert resumed(streams.Drawn, 3, num_workers=workers) == shown(loader) + shown(loader)


def test_a_state_saves_what_was_iterated(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    resumed(lambda: streams.Saving(40, tmp_path / "log"), 6, num_workers=2)
    made = [int(line) for line in (tmp_path / "log").read_text().split()]
    assert made.count(0) == 2  # at first, and in the second pass
    assert "iterated again" not in caplog.text
    with caplog.at_level(logging.INFO):
        resumed(streams.Range, 4, num_workers=2)
    (notice,) = [record.getMessage() for record in caplog.records if "iterated again" in record.getMessage()]
    assert "no state_dict" in notice
    assert "took 8 samples and dropped them, in 0." in notice


def test_a_state_that_is_too_large_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    loader = stoker.DataLoader(streams.Large(), 4, num_workers=1)
    both = shown(loader) + shown(loader)
    assert resumed(streams.Large, 4, num_workers=1) == both
    assert "left out of states, and a resume iterates it again: it takes 2.0 MiB" in caplog.text


def test_a_state_at_the_end_gives_nothing_once() -> None:
    for workers in (0, 2):
        loader = stoker.DataLoader(streams.Range(), 4, num_workers=workers)
        all_of_it = shown(loader)
        state = loader.state_dict()
        other = pickle.loads(pickle.dumps(stoker.DataLoader(streams.Range(), 4, num_workers=workers)))
        other.load_state_dict(state)
        assert shown(other) == []
        assert shown(other) == all_of_it


def test_states_that_do_not_fit() -> None:
    loader = stoker.DataLoader(streams.Range(), 4, num_workers=2)
    next(iter(loader))
    state = loader.state_dict()
    other: Any
    for other in ({"num_workers": 3}, {"batch_size": 5}, {"rank": 1, "world_size": 2}):
        keywords: Any = {"batch_size": 4, "num_workers": 2, **other}
        with pytest.raises(stoker.StateError, match=r"(?s)its own copy.*try:") as caught:
            stoker.DataLoader(streams.Range(), **keywords).load_state_dict(state)
        assert next(iter(other)) in str(caught.value)
    for damaged in (None, {}, {**state["iterable"], "workers": [1]}):
        with pytest.raises(stoker.StateError, match="'iterable' is"):
            loader.load_state_dict({**state, "iterable": damaged})


# Errors, deaths, stalls.


def test_an_exception_ends_the_pass() -> None:
    for workers in (0, 2):
        for policy in ("fail", "skip"):
            loader = stoker.DataLoader(streams.Broken(20), 4, num_workers=workers, on_bad=policy)
            for _ in range(2):
                with pytest.raises(stoker.DataError, match=r"(?s)ValueError.*on_bad cannot skip") as caught:
                    list(loader)
                assert isinstance(caught.value.__cause__, ValueError)
                assert caught.value.__cause__.args == ("nine", 9)
                assert caught.value.where["step"] == (2 if not workers else 4)
                assert "sample" not in caught.value.where
                assert caught.value.where["epoch"] in (0, 1)
                assert not workers or "raise ValueError" in str(caught.value)
                assert caught.value.where.get("worker") == (0 if workers else None)


def test_a_generator_that_has_raised_has_no_end() -> None:
    """Otherwise the engine would take later batches, which it asks for ahead, for the end of the dataset."""

    def samples() -> Any:
        yield from range(3)
        raise ConnectionError("later")

    class Some:
        def __iter__(self) -> Any:
            return samples()

    walk = Walk(Some(), 2, False, lambda number: 0, lambda said: None, 0, b"")
    assert walk.batch(0) == [0, 1]
    for number in (1, 2, 3):
        with pytest.raises(Failed) as caught:
            walk.batch(number)
        assert b"later" in caught.value.body


def test_samples_that_do_not_fit_each_other() -> None:
    with pytest.raises(stoker.DataError, match="sample 1 of the batch does not fit"):
        list(stoker.DataLoader(streams.Growing(), 4, num_workers=1))
    with pytest.raises(stoker.DataError):
        list(stoker.DataLoader(streams.Growing(), 4))


@pytest.mark.parametrize("kind", mostly([streams.Deadly, streams.SavingDeadly], streams.SavingDeadly))
def test_a_worker_that_dies_is_replaced(kind: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = shown(stoker.DataLoader(kind(tmp_path, 0), 4, num_workers=2))
    (tmp_path / "log").unlink(missing_ok=True)
    loader = stoker.DataLoader(kind(tmp_path, 1), 4, num_workers=2)
    assert shown(loader) == whole
    assert "while it iterated the dataset, at batch" in caplog.text
    if kind is streams.SavingDeadly:
        made = [int(line) for line in (tmp_path / "log").read_text().split()]
        assert made.count(1) == 1
        assert made.count(25) == 2


def test_a_worker_that_dies_while_nothing_is_asked_of_it_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """Its turns wait for it: another worker with the number of one that lives would not make them."""
    whole = shown(stoker.DataLoader(streams.Range(200), 4, num_workers=2))
    loader = stoker.DataLoader(streams.Range(200), 4, num_workers=2, timeout=60)
    iterator = iter(loader)
    found = shown([next(iterator)])
    for number in (1, 0):
        time.sleep(0.3)  # all that is made ahead is there
        (worker,) = (child for child in active_children() if child.name == f"stoker worker {number}")
        kill(int(worker.pid or 0))
        worker.join()
        time.sleep(0.3)  # the engine has noticed
        found += shown([next(iterator), next(iterator)])
    assert found + shown(iterator) == whole
    assert caplog.text.count("died") == 2


def test_two_deaths_at_one_place_end_the_pass(tmp_path: Path) -> None:
    loader = stoker.DataLoader(streams.Deadly(tmp_path, 2), 4, num_workers=2, on_bad="skip")
    with pytest.raises(stoker.DataError, match=r"2 Python workers ended, each as number 0") as caught:
        list(loader)
    assert caught.value.where["step"] == 4
    assert caught.value.where["worker"] == 0


@pytest.mark.parametrize("kind", mostly([streams.Range, streams.Saving], streams.Saving))
def test_the_engine_may_die(kind: Any) -> None:
    whole = shown(stoker.DataLoader(kind(), 4, num_workers=2))
    loader = stoker.DataLoader(kind(), 4, num_workers=2)
    found = []
    for i, batch in enumerate(loader):
        found += shown([batch])
        if i == 3:
            kill(engine())
    assert found == whole
    loader.close()


def test_a_worker_that_is_stuck_is_named() -> None:
    loader = stoker.DataLoader(streams.Stuck(), 4, num_workers=2, timeout=0.5)
    iterator = iter(loader)
    next(iterator), next(iterator)
    with pytest.raises(stoker.StallError, match=r"(?s)worker 0 .*iterating the dataset.*in sample \(.*streams.py:"):
        next(iterator)
    loader.close()


def test_batches_that_outgrow_their_slots() -> None:
    loader = stoker.DataLoader(streams.Growing(40), None, num_workers=2, memory="2MiB", prefetch_factor=8)
    found = [(int(array[0]) if len(array) else 0, len(array)) for array in loader]
    assert sorted(found) == [(i, i * i * 40) for i in range(40)]
    compared(lambda: streams.Growing(30), batch_size=None, num_workers=3)


# Datasets of others.


@pytest.mark.parametrize(("workers", "kept"), mostly([(0, False), (2, True), (2, False)], (0, False), (2, True)))
def test_datasets_of_hugging_face(workers: int, kept: bool) -> None:
    hf = needs("datasets")

    def samples(shards: list[int]) -> Any:
        for shard in shards:
            yield from ({"x": shard * 10 + i, "text": f"{shard}-{i}"} for i in range(10))

    def make() -> Any:
        return hf.IterableDataset.from_generator(samples, gen_kwargs={"shards": list(range(6))})

    whole = compared(make, batch_size=4, num_workers=workers)
    assert resumed(make, 5, num_workers=workers, persistent_workers=kept) == 2 * whole


@pytest.mark.parametrize("stop", mostly([1, 5], 5))
def test_a_shuffle_buffer_of_hugging_face(stop: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Its state_dict leaves the buffer out, so such a dataset is iterated again."""
    data = needs("datasets").Dataset.from_dict({"x": list(range(60))})

    def make() -> Any:
        return data.to_iterable_dataset(num_shards=4).shuffle(seed=3, buffer_size=6).map(dict).take(50)

    for workers in (0, 2):
        whole = compared(make, batch_size=4, num_workers=workers)
        assert resumed(make, stop, num_workers=workers) == 2 * whole
    assert "leaves its shuffle buffer out of its state_dict, so it was iterated again" in capfd.readouterr().err


def test_pipelines_of_webdataset(tmp_path: Path) -> None:
    wds = needs("webdataset")
    for shard in range(4):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as tar:
            for i in range(7):
                for ending, content in (("txt", f"text {shard} {i}"), ("cls", str(i))):
                    member = tarfile.TarInfo(f"{shard}{i:03}.{ending}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content.encode()))
    urls = sorted(map(str, tmp_path.glob("*.tar")))

    def fluid() -> Any:
        return wds.WebDataset(urls, shardshuffle=False).decode().to_tuple("txt", "cls")

    def pipeline() -> Any:
        parts = wds.split_by_worker, wds.tarfile_to_samples(), wds.decode(), wds.to_tuple("txt", "cls"), wds.batched(3)
        return wds.DataPipeline(wds.SimpleShardList(urls), *parts)

    for workers in (0, 2):
        compared(fluid, batch_size=4, num_workers=workers)
        compared(pipeline, batch_size=None, num_workers=workers)
    assert resumed(fluid, 3, num_workers=2) == 2 * shown(stoker.DataLoader(fluid(), 4, num_workers=2))

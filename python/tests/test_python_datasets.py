"""A user's own datasets: the same batches as torch's DataLoader for every number of workers, states, facts, errors."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import mine
import numpy as np
import pytest
import torch
from forms import ALL, mostly, thinned
from needs import needs
from torch.utils import data

import stoker
from stoker import _python, _theirs

WORKERS = [0, 1, 2, 5]


def equal(ours: Any, theirs: Any) -> bool:
    """Same values, dtypes, keys and types; ours may be a subclass with attributes."""
    if isinstance(theirs, torch.Tensor):
        return type(ours) is type(theirs) and ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and list(ours) == list(theirs) and all(equal(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, (list, tuple)):
        plain = type(theirs) in (list, tuple)
        right = isinstance(ours, type(theirs)) if plain else type(ours) is type(theirs)
        return right and len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return bool(ours == theirs)


def hugging(formatted: bool) -> Any:
    made = needs("datasets").Dataset.from_dict({"a": list(range(10)), "b": [str(i) for i in range(10)]})
    return made.with_format("torch") if formatted else made


def stacked(**parts: Any) -> Any:
    return data.StackDataset(**parts)


DATASETS: dict[str, Any] = {
    "of torch's class": lambda: mine.Squares(),
    "without a base class": lambda: mine.Plain(),
    "list": lambda: [(i, str(i)) for i in range(9)],
    "range": lambda: range(10),
    "dict of ids": lambda: {i: 2 * i for i in range(10)},
    "array": lambda: np.arange(30.0).reshape(10, 3),
    "tensor": lambda: torch.arange(30.0).reshape(10, 3),
    "TensorDataset": lambda: data.TensorDataset(torch.arange(20), torch.rand(20, 3)),
    "Subset": lambda: data.Subset(mine.Squares(), [3, 1, 4, 1, 5]),
    "ConcatDataset": lambda: data.ConcatDataset([mine.Squares(), mine.Squares(7)]),
    "StackDataset": lambda: data.StackDataset(mine.Squares(), mine.Squares()),
    "StackDataset of names": lambda: stacked(a=mine.Squares(), b=mine.Squares()),
    "random_split": lambda: data.random_split(mine.Squares(), [12, 8])[0],
    "one call for a batch": lambda: mine.Listed(),
    "batches of 1 MiB": lambda: mine.Large(),
    "datasets": lambda: hugging(False),
    "datasets, as tensors": lambda: hugging(True),
}


@pytest.mark.parametrize(
    ("name", "workers"),
    mostly(
        product(DATASETS, WORKERS),
        *product(DATASETS, [0]),
        *product(["of torch's class", "without a base class", "list", "datasets"], [2]),
        ("list", 1), ("batches of 1 MiB", 5),
    ),
)  # fmt: skip
def test_batches_are_torchs(name: str, workers: int) -> None:
    made = DATASETS[name]()
    theirs = list(data.DataLoader(made, batch_size=4))
    with stoker.DataLoader(made, batch_size=4, num_workers=workers) as loader:
        assert loader.dataset is made
        assert loader.num_workers == workers
        assert len(loader) == len(theirs)
        ours = list(loader)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert equal(one, other), (one, other)


KEYWORDS: dict[str, Any] = {
    "pad": (mine.Ragged, {"batch_size": 8, "collate_fn": mine.pad}),
    "texts": (mine.Squares, {"batch_size": 8, "collate_fn": mine.texts}),
    "list": (mine.Squares, {"batch_size": 8, "collate_fn": list}),
    "lambda": (mine.Squares, {"batch_size": 8, "collate_fn": lambda samples: {"n": len(samples)}}),
    "nothing": (mine.Squares, {"batch_size": 8, "collate_fn": mine.nothing}),
    "torch's": (mine.Squares, {"batch_size": 8, "collate_fn": data.default_collate}),
    "single": (mine.Squares, {"batch_size": None}),
    "single, collated": (mine.Squares, {"batch_size": None, "collate_fn": lambda sample: sample[2]}),
    "drop_last": (mine.Squares, {"batch_size": 8, "drop_last": True}),
    "sampler": (mine.Squares, {"batch_size": 4, "sampler": [3, 1, 2, 9, 9, 0, 4, 5, 6]}),
    "batch_sampler": (mine.Squares, {"batch_sampler": [[3, 1], [2], [9, 9, 0, 4]]}),
}


@pytest.mark.parametrize(
    ("name", "workers"),
    mostly(
        product(KEYWORDS, [0, 2]),
        *product(KEYWORDS, [0]), *product(["pad", "nothing", "single, collated", "batch_sampler"], [2]),
    ),
)  # fmt: skip
def test_keywords_are_torchs(name: str, workers: int) -> None:
    kind, keywords = KEYWORDS[name]
    theirs = list(data.DataLoader(kind(), **keywords))
    with stoker.DataLoader(kind(), num_workers=workers, **keywords) as loader:
        ours = list(loader)
    assert len(ours) == len(theirs)
    assert all(map(equal, ours, theirs)), (ours[0], theirs[0])


@pytest.mark.parametrize("method", mostly(["fork", "spawn", "forkserver"], "fork", "forkserver"))
def test_start_methods(method: str, capfd: pytest.CaptureFixture[str]) -> None:
    made: Any = mine.Plain()
    theirs = list(data.DataLoader(made, batch_size=4))
    workers = 2 if method == "fork" else 1  # which imports torch
    keywords: Any = {"num_workers": workers, "multiprocessing_context": method, "persistent_workers": True}
    with stoker.DataLoader(made, 4, **keywords) as loader:
        for _ in range(2):
            ours = list(loader)
            assert all(map(equal, ours, theirs))
    assert f"{workers} Python worker{'s'[: workers - 1]} ({method}), because mine.Plain" in capfd.readouterr().err


@pytest.mark.parametrize("persistent", mostly([False, True], True))
def test_a_sampler_of_torch_decides(persistent: bool) -> None:
    made = mine.Squares(30)
    sampler = data.RandomSampler(made, generator=torch.Generator().manual_seed(3))
    theirs = [batch[1].tolist() for _ in range(2) for batch in data.DataLoader(made, 4, sampler=sampler)]
    sampler = data.RandomSampler(made, generator=torch.Generator().manual_seed(3))
    loader = stoker.DataLoader(made, 4, sampler=sampler, num_workers=2, persistent_workers=persistent)
    with loader:
        assert [batch[1].tolist() for _ in range(2) for batch in loader] == theirs


# Random numbers.


def flat(batch: Any) -> str:
    return json.dumps([x.tolist() if isinstance(x, torch.Tensor) else x for x in batch])


@pytest.mark.parametrize(
    ("kind", "collate"),
    mostly(
        [(mine.Drawn, None), (mine.Asked, None), (mine.Asked, mine.drawing)],
        (mine.Drawn, None), (mine.Asked, mine.drawing),
    ),
)  # fmt: skip
def test_draws_do_not_depend_on_workers(kind: Any, collate: Any) -> None:
    found = []
    for workers in WORKERS if ALL else (0, 1, 3):
        with stoker.DataLoader(
            kind(), 4, shuffle=True, seed=5, num_workers=workers, collate_fn=collate, tail="fill"
        ) as loader:
            found.append([flat(batch) for _ in range(2) for batch in loader])
    assert all(one == found[0] for one in found[1:])
    assert len(set(found[0])) == len(found[0])


def test_the_trainers_generators_are_put_back() -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[index]
    for _ in stoker.DataLoader(mine.Drawn(), 4):
        pass
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tolist() == before[1]  # type: ignore[index]
    assert torch.equal(torch.get_rng_state(), before[2])


# States.


@pytest.mark.parametrize(
    ("saved", "loaded", "collate"),
    mostly(
        [(a, b, collate) for a, b in [(0, 2), (2, 0), (2, 3)] for collate in (None, mine.drawing)],
        (0, 2, None), (2, 0, mine.drawing),
    ),
)  # fmt: skip
def test_resume_at_every_step(saved: int, loaded: int, collate: Any) -> None:
    kind = mine.Drawn if collate is None else mine.Asked
    with stoker.DataLoader(kind(), 4, shuffle=True, seed=5, num_workers=saved, collate_fn=collate) as loader:
        steps = len(loader)
        states, batches = [], []
        for _ in range(2):
            for batch in loader:
                batches.append(flat(batch))
                states.append(json.loads(json.dumps(loader.state_dict())))
    for at in range(0, len(states), 2):
        with stoker.DataLoader(kind(), 4, shuffle=True, num_workers=loaded, collate_fn=collate) as loader:
            loader.load_state_dict(states[at])
            end = steps if at < steps else 2 * steps
            assert [flat(batch) for batch in loader] == batches[at + 1 : end]


def test_elastic_resume_and_receipts() -> None:
    with stoker.DataLoader(mine.Squares(24), 4, shuffle=True, seed=1, num_workers=2) as loader:
        head = []
        for batch in loader:
            head += batch[1].tolist()
            if len(head) == 8:
                break
        state, receipts = loader.state_dict(), [loader.receipt()]
        whole = [
            i for batch in stoker.DataLoader(mine.Squares(24), 24, shuffle=True, seed=1) for i in batch[1].tolist()
        ]
    tails = []
    for rank in range(2):
        with stoker.DataLoader(mine.Squares(24), 4, shuffle=True, num_workers=1, rank=rank, world_size=2) as loader:
            loader.load_state_dict(state)
            tails.append([i for batch in loader for i in batch[1].tolist()])
            receipts.append(loader.receipt())
            verdict = stoker.verify_receipts(receipts, loader)
    assert head == whole[:8]
    assert sorted(tails[0] + tails[1]) == sorted(whole[8:])
    assert verdict["ok"], verdict


def test_a_state_of_another_dataset_or_function_does_not_fit() -> None:
    with stoker.DataLoader(mine.Squares(), 4, collate_fn=mine.texts) as loader:
        state = loader.state_dict()
    for kind, collate in ((mine.Drawn(), mine.texts), (mine.Squares(21), mine.texts)):
        with pytest.raises(stoker.StateError, match="the dataset differs"):
            stoker.DataLoader(kind, 4, collate_fn=collate).load_state_dict(state)
    with pytest.raises(stoker.StateError, match="transforms differ"):
        stoker.DataLoader(mine.Squares(), 4).load_state_dict(state)


class Stamped(mine.Squares):
    fingerprint = "one"


class Moving(mine.Squares):
    _fingerprint = "here"


def test_fingerprints(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    state = stoker.DataLoader(Stamped(), 4).state_dict()
    monkeypatch.setattr(Stamped, "fingerprint", "two")
    with pytest.raises(stoker.StateError, match="the dataset differs"):
        stoker.DataLoader(Stamped(), 4).load_state_dict(state)
    state = stoker.DataLoader(Moving(), 4).state_dict()
    monkeypatch.setattr(Moving, "_fingerprint", "there")
    stoker.DataLoader(Moving(), 4).load_state_dict(state)
    assert "_fingerprint is there, and was here" in caplog.text


def test_code_that_changed_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    state = json.loads(json.dumps(stoker.DataLoader(mine.Slow(), 4).state_dict()))
    stoker.DataLoader(mine.Slow(), 4).load_state_dict(state)
    assert "has changed" not in caplog.text
    monkeypatch.setattr(mine.Slow, "__getitem__", lambda self, i: i + 1)
    stoker.DataLoader(mine.Slow(), 4).load_state_dict(state)
    assert "the code of mine.Slow.__getitem__ has changed" in caplog.text
    caplog.clear()
    other = {**state, "python": {**state["python"], "version": "3.0"}}
    stoker.DataLoader(mine.Slow(), 4).load_state_dict(other)
    assert "has changed" not in caplog.text


def test_the_digest_of_code_does_not_depend_on_the_process() -> None:
    def function(x: Any) -> Any:
        return x in {"a", "b", "c"} and list(x)

    (digest,) = _theirs.code_of([], function).values()
    assert len(digest) == 16
    assert _theirs.named(function).endswith("function")
    assert "0x" not in _theirs.named(mine.Plain())


def test_explain_and_shares() -> None:
    with stoker.DataLoader(mine.Squares(), 4, shuffle=True, seed=1, num_workers=1) as loader:
        rows = loader.explain(1)["rows"]
        batches = [batch[1].tolist() for batch in loader]
        assert [row["sample"] for row in rows] == batches[1]
        assert loader.shares() is None


# Facts.


@pytest.mark.parametrize("workers", [0, 2])
def test_facts(workers: int) -> None:
    loader: Any
    with stoker.DataLoader(mine.Squares(10), 4, num_workers=workers, collate_fn=mine.pad_ids) as loader:
        assert loader.facts is None
        iterator: Any = iter(loader)
        for step, batch in enumerate(iterator):
            assert type(batch) is torch.Tensor
            assert iterator.facts is loader.facts
            facts: Any = iterator.facts
            assert facts.ids.tolist() == batch.tolist()
            assert (facts.epoch, facts.step, facts.bad) == (0, step, [])
            assert facts.valid.all()
        assert step == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_plain_types_have_the_facts_as_attributes(workers: int) -> None:
    for collate, kind in ((None, list), (mine.texts, tuple), (lambda samples: {"a": 1}, dict)):
        with stoker.DataLoader(mine.Squares(), 4, num_workers=workers, collate_fn=collate) as loader:
            batch: Any = next(iter(loader))
            assert kind in type(batch).__mro__
            assert batch.ids.tolist() == [0, 1, 2, 3]
            assert (batch.epoch, batch.step, batch.bad) == (0, 0, [])
    rebuilt = type(batch)(batch)
    assert rebuilt == batch


# Bad samples.


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_is_the_cause_of_a_data_error(workers: int) -> None:
    with stoker.DataLoader(mine.Broken(), 4, num_workers=workers) as loader, pytest.raises(stoker.DataError) as caught:
        list(loader)
    error = caught.value
    assert type(error.__cause__) is ValueError
    assert error.__cause__.args == ("five", 5)
    by = {"worker": error.where.get("worker")} if workers else {}
    assert error.where == {"sample": 5, **by, "epoch": 0, "step": 1, "rank": 0}
    assert not workers or error.where["worker"] in (0, 1)
    assert "dataset[5] raised ValueError" in str(error)
    if workers:
        assert "raise self.error" in str(error)
        assert "mine.py" in str(error)
    else:
        assert error.__cause__.__traceback__ is not None


@thinned
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("collate", [None, mine.ids])
def test_policies(workers: int, collate: Any) -> None:
    keywords = {"num_workers": workers, "collate_fn": collate}
    with stoker.DataLoader(mine.Broken(), 4, on_bad="skip", **keywords) as loader:
        iterator = iter(loader)
        batches = [batch.tolist() for batch in iterator]
        assert (batches[1][0], 5 in batches[1], len(batches[1])) == (4, False, 4)
    with stoker.DataLoader(mine.Broken(), 4, on_bad="replace", **keywords) as loader:
        for batch in loader:
            if loader.facts is not None and loader.facts.bad:
                (bad,) = loader.facts.bad
                assert (bad.place, bad.sample) == (5, 5)
                assert batch.tolist()[1] == bad.put
                assert isinstance(bad.error.__cause__, ValueError)
    assert stoker.verify_receipts([loader.receipt()], loader)["ok"]


@thinned
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("error", [ConnectionError("x"), TimeoutError("x"), MemoryError("x")])
def test_a_failing_source_is_never_skipped(workers: int, error: Exception) -> None:
    with stoker.DataLoader(mine.Broken(error=error), 4, num_workers=workers, on_bad="skip") as loader:
        with pytest.raises(stoker.StokerError) as caught:
            list(loader)
        assert type(caught.value.__cause__) is type(error)


@thinned
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("kind", "collate", "words"),
    [
        (mine.Ragged, None, r"sample 1 does not fit a batch.*shape \(2,\).*shape \(1,\) in sample 0"),
        (lambda: [1, None, 3], None, "sample 1 does not fit a batch: it is None.*NoneType"),
        (lambda: [{"a": 1}, {"a": 1, "b": 2}], None, "sample 1 does not fit a batch.*'b'"),
        (mine.Squares, mine.failing, "collate_fn raised KeyError: 'collate'"),
        (lambda: mine.Short(), None, r"dataset\[20\] raised IndexError"),
        (lambda: mine.Unlisted(), None, "__getitems__ raised ZeroDivisionError"),
        (lambda: mine.Broken(error=StopIteration()), None, "raised StopIteration"),
    ],
)
def test_what_does_not_fit_is_named(workers: int, kind: Any, collate: Any, words: str) -> None:
    with stoker.DataLoader(kind(), 4, num_workers=workers, collate_fn=collate) as loader:
        with pytest.raises(stoker.DataError, match=words):
            list(loader)


@thinned
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_collating_that_fails_is_no_sample_s_fault(workers: int, policy: str) -> None:
    loader = stoker.DataLoader(mine.Squares(), 4, num_workers=workers, collate_fn=mine.failing, on_bad=policy)
    with loader, pytest.raises(stoker.DataError, match="collate_fn raised KeyError") as caught:
        list(loader)
    assert "sample" not in caught.value.where
    assert ("worker" in caught.value.where) == (workers > 0)
    assert caught.value.where["step"] == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_unequal_samples_are_bad_samples(workers: int) -> None:
    with stoker.DataLoader([1, 2, "x", 4], 4, num_workers=workers, on_bad="skip") as loader:
        (batch,) = loader
        assert loader.facts is not None
        assert loader.facts.valid.tolist() == [True, True, False, True]
    assert batch.tolist()[:2] == [1, 2]


def test_a_generator_cannot_be_a_batch() -> None:
    with stoker.DataLoader(mine.Squares(), 4, num_workers=1, collate_fn=mine.generator) as loader:
        with pytest.raises(stoker.DataError, match="generator"):
            list(loader)


def test_a_sampler_beyond_the_dataset() -> None:
    with pytest.raises(stoker.ConfigError, match="gave sample 77"):
        list(stoker.DataLoader(mine.Squares(), 4, num_workers=1, sampler=[1, 2, 77]))


# Keywords.


def test_all_that_is_wrong_is_in_one_error() -> None:
    with pytest.raises(stoker.ConfigError) as caught:
        stoker.DataLoader(mine.Squares(), num_workers=-1, layout="nchw", multiprocessing_context="no", collate_fn=3)
    for word in ("num_workers is -1", "layout is for datasets that the engine reads", "collate_fn is of type int"):
        assert word in str(caught.value)
    with pytest.raises(stoker.ConfigError, match="multiprocessing_context is 'no'"):
        stoker.DataLoader(mine.Squares(), num_workers=1, multiprocessing_context="no")
    keywords: Any
    for keywords in ({"prefetch_factor": 2}, {"persistent_workers": True}, {"multiprocessing_context": "fork"}):
        with pytest.raises(stoker.ConfigError, match="needs num_workers > 0"):
            stoker.DataLoader(mine.Squares(), **keywords)
    for key in ("pack", "cache"):
        with pytest.raises(stoker.ConfigError, match=f"{key} is for datasets"):
            keywords = {key: 4}
            stoker.DataLoader(mine.Squares(), num_workers=1, **keywords)


class Unmeasured(data.Dataset):  # type: ignore[type-arg]
    def __getitem__(self, i: int) -> Any:
        return i


class Refusing(mine.Squares):
    def __len__(self) -> int:
        raise NotImplementedError


def test_datasets_without_a_length() -> None:
    kind: Any
    for kind in (Unmeasured, Refusing):
        with pytest.raises(stoker.ConfigError, match=r"(?s)has no length.*__len__"):
            stoker.DataLoader(kind())


@pytest.mark.parametrize("workers", mostly([0, 2], 0))
def test_empty_datasets_have_no_batches(workers: int) -> None:
    """As in torch: unless they are shuffled, which is an error there too."""
    kind: Any
    subset: data.Dataset[Any] = data.Subset(mine.Squares(), [])
    cases: list[dict[str, Any]] = [
        {}, {"drop_last": True}, {"collate_fn": list}, {"sampler": []}, {"world_size": 2, "rank": 1}
    ]  # fmt: skip
    for kind in ([], subset, data.TensorDataset(torch.zeros(0, 3)), torch.zeros(0, 3)):
        for keywords in cases:
            loader = stoker.DataLoader(kind, batch_size=2, num_workers=workers, **keywords)
            assert (len(loader), list(loader), list(loader)) == (0, [], [])
            again = stoker.DataLoader(kind, batch_size=2, num_workers=workers, **keywords)
            again.load_state_dict(loader.state_dict())
            assert list(again) == []
        with pytest.raises(ValueError, match="num_samples"):
            torch.utils.data.DataLoader(kind, shuffle=True)
        with pytest.raises(stoker.ConfigError, match=r"(?s)is empty.*shuffle=True.*without shuffle"):
            stoker.DataLoader(kind, shuffle=True, num_workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataset_that_is_empty_now_and_then(workers: int) -> None:
    growing: list[int] = []
    loader = stoker.DataLoader(growing, num_workers=workers)
    assert list(loader) == []
    growing.append(7)
    assert [batch.tolist() for batch in loader] == [[7]]
    growing.clear()
    assert list(loader) == []
    with pytest.raises(stoker.ConfigError, match="list is empty"):
        stoker.DataLoader(stoker.Mixture([[], [1]]), num_workers=workers)


def test_num_workers_left_out_is_torchs_default(capfd: pytest.CaptureFixture[str]) -> None:
    with stoker.DataLoader(mine.Squares(), 4) as loader:
        list(loader)
        assert loader.num_workers == 0
    said = capfd.readouterr().err
    assert "num_workers is 0, as in torch, because it was left out" in said
    assert "Python in the training process (num_workers=0), because mine.Squares" in said


def test_arrays_need_no_workers(capfd: pytest.CaptureFixture[str]) -> None:
    with stoker.DataLoader(data.TensorDataset(torch.arange(4)), 2, num_workers=1) as loader:
        list(loader)
    said = capfd.readouterr().err
    assert "native, without workers: the rows of torch.utils.data.dataset.TensorDataset are looked up" in said
    assert "without Python code it would be faster" not in said


def test_native_loaders_have_no_facts_and_no_crew(folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder, stoker.transforms.Resize((8, 8))), 4) as loader:
        next(iter(loader))
        assert loader.facts is None
        assert loader._remote is not None
        assert loader._remote.crew is None


def test_an_own_dataset_is_not_handed_out() -> None:
    made = mine.Squares()
    loader = stoker.DataLoader(made, 4)
    assert loader.dataset is made
    assert isinstance(loader._dataset, _python.Own)
    assert "mine.Squares" in repr(loader)

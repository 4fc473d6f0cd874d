"""Filters and views: which samples there are is decided once, for all ranks, and the engine loads these."""

from __future__ import annotations

import cmath
import contextlib
import functools
import io
import math
import multiprocessing
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import steps
import torch
from conftest import make_folder, run_python
from forms import mostly
from test_steps import SMALL, copied, equal, loaded, rows

import stoker
from stoker._closures import closure


@pytest.fixture
def train(folder: Path) -> Any:
    return stoker.ImageFolder(folder, SMALL)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "filters"


def ids(loader: Any) -> list[int]:
    return [i for batch in loader for i in batch.ids.tolist()]


def test_len_and_samples_are_exact(train: Any) -> None:
    kept = [i for i, label in enumerate(train.targets) if label == 1]
    some = train.filter(steps.second)
    assert len(some) == len(kept)
    assert some.indices == kept
    assert equal(some[3], train[kept[3]])
    with loaded(some) as loader:
        assert len(loader) == -(-len(kept) // 8)
        assert ids(loader) == kept
    with loaded(some, shuffle=True) as loader:
        first, second = ids(loader), ids(loader)
    assert sorted(first) == sorted(second) == kept
    assert first != second


def test_without_a_function_on_every_sample_it_is_native(train: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(next(iter(loaded(train.filter(steps.second)))), stoker.Batch)
    assert "Python worker" not in capsys.readouterr().err


def test_filters_after_functions_and_of_filters(train: Any) -> None:
    chain = train.map(steps.named).filter(lambda s: s["label"] != 1).map(lambda s: s["label"]).filter(lambda y: y == 2)
    want = [i for i, label in enumerate(train.targets) if label == 2]
    assert chain.indices == want
    assert rows(chain) == [2] * len(want)


def test_every_filter_after_a_view_counts(train: Any) -> None:
    def under_two(sample: Any) -> bool:
        return bool(sample[1] < 2)

    def over_zero(sample: Any) -> bool:
        return bool(sample[1] > 0)

    ones = [i for i, label in enumerate(train.targets) if label == 1]
    assert train.skip(2).filter(under_two).filter(over_zero).indices == ones
    some = train.filter(over_zero).skip(0).take(30).map(steps.same).filter(under_two).filter(over_zero)
    assert some.indices == ones


def test_views_count_what_is_left(train: Any) -> None:
    ones = [i for i, label in enumerate(train.targets) if label == 1]
    assert train.filter(steps.second).skip(2).take(3).indices == ones[2:5]
    assert train.take(30).filter(steps.second).indices == [i for i in ones if i < 30]
    assert train.shard(3, 1).indices == list(range(1, 50, 3))
    assert train.take(2).repeat(3).indices == [0, 1] * 3
    assert train.take(-1) is train
    assert len(train.take(80)) == 50
    with pytest.raises(stoker.ConfigError, match="no sample"):
        len(train.skip(50))
    with loaded(train.take(2).repeat(3), 4) as loader:
        assert [batch.ids.tolist() for batch in loader] == [[0, 1, 0, 1], [0, 1]]


def test_samplers_weights_and_lengths_count_the_samples_that_are_left(train: Any) -> None:
    some = train.filter(steps.second)
    kept = some.indices
    for sampler in ([3, 0, 1], np.array([3, 0, 1]), stoker.SubsetRandomSampler([3, 0, 1], seed=1)):
        with loaded(some, 2, sampler=sampler) as loader:
            assert sorted(ids(loader)) == sorted(kept[i] for i in (3, 0, 1))
    with loaded(some, 2, sampler=stoker.RandomSampler(some, seed=2)) as loader:
        assert sorted(ids(loader)) == kept
    beyond = f"gave sample {len(kept)}, but the dataset has {len(kept)} samples\n.*a filter chose samples"
    with loaded(some, sampler=[len(kept)]) as loader, pytest.raises(stoker.ConfigError, match=beyond):
        ids(loader)
    with pytest.raises(stoker.ConfigError, match=r" weights for \d+ samples\n.*one for each sample that is left"):
        loaded(some, weights=[1.0] * len(train))
    weights = [float(i == 4) for i in range(len(kept))]
    with loaded(some, weights=weights) as loader:
        assert set(ids(loader)) == {kept[4]}
    with loaded(some, batch_size=2, lengths=list(range(1, len(kept) + 1)), bucket=4) as loader:
        assert sorted(ids(loader)) == kept
    with pytest.raises(stoker.ConfigError, match="whole shards"):
        loaded(some, shuffle="block")


def test_resume_over_a_filter(train: Any) -> None:
    some = train.filter(steps.second).map(steps.drawn)
    with loaded(some, 4, shuffle=True) as loader:
        batches = iter(loader)
        next(batches)
        state, want = loader.state_dict(), [copied(batch) for batch in batches]
    with loaded(some, 4, shuffle=True, num_workers=1) as loader:
        loader.load_state_dict(state)
        assert equal([copied(batch) for batch in loader], want)
    with loaded(train.map(steps.drawn), 4, shuffle=True) as other, pytest.raises(stoker.StateError):
        other.load_state_dict(state)


def test_a_filter_that_keeps_nothing_is_an_error_at_once(train: Any) -> None:
    with pytest.raises(stoker.ConfigError, match="keeps none of the 50 samples"):
        loaded(train.filter(steps.never))


def test_what_a_predicate_may_return(train: Any) -> None:
    assert len(train.filter(lambda s: torch.tensor(s[1] == 1))) == len(train.filter(lambda s: np.bool_(s[1] == 1)))
    with pytest.raises(stoker.DataError, match=r"array of shape \(2,\)"):
        len(train.filter(steps.several))
    with pytest.raises(stoker.DataError, match="returned None"):
        len(train.filter(steps.nothing))
    with pytest.raises(stoker.DataError, match="two") as caught:
        len(train.filter(steps.failing))
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.where == {"sample": 34}
    with pytest.raises(stoker.ConfigError, match="cannot be called"):
        train.filter([True])


def test_samples_that_cannot_be_read_are_left_to_on_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = make_folder(tmp_path / "data", 12)
    (root / "class0" / "0003.jpg").write_bytes(b"no picture")
    some = stoker.ImageFolder(root, SMALL).filter(lambda s: s[1] == 1)
    assert some.indices == [1, 4, 5, 6, 7]
    assert "1 sample cannot be read and is kept" in capsys.readouterr().err
    twice = stoker.ImageFolder(root, SMALL).repeat(2).filter(lambda s: s[1] == 1)
    assert twice.indices == [1, 4, 5, 6, 7] * 2
    with loaded(some, 5, on_bad="skip") as loader:
        assert [one.sample for batch in loader for one in batch.bad] == [1]


# The cache folder.


def test_the_result_is_kept_under_code_and_what_it_closes_over(train: Any, cache: Path) -> None:
    def least(n: int) -> Any:
        return lambda sample: sample[1] >= n

    assert len(train.filter(least(1))) == 33
    assert len(list(cache.glob("*.ids"))) == 1
    (kept,) = cache.glob("*.ids")
    os.utime(kept, (1, 1))
    assert len(train.filter(least(1))) == 33  # the same code and the same 1
    assert len(list(cache.glob("*.ids"))) == 1
    assert kept.stat().st_mtime == 1
    assert len(train.filter(least(2))) == 16
    assert len(list(cache.glob("*.ids"))) == 2
    other = stoker.ImageFolder(train.root, [*SMALL, steps.Mirror()])
    assert len(other.filter(least(2))) == 16
    assert len(list(cache.glob("*.ids"))) == 3


def test_a_damaged_result_is_made_again(train: Any, cache: Path) -> None:
    """A machine that stopped may leave a file of the right length without its contents, or a shorter one."""
    want = train.filter(steps.second).indices
    (kept,) = cache.glob("*.ids")
    data = kept.read_bytes()
    for damaged in (bytes(len(data)), data[:-8], data[:-3], data[:5], b"", data[8:]):
        kept.write_bytes(damaged)
        assert train.filter(steps.second).indices == want
        assert kept.read_bytes() == data


def test_what_cannot_be_hashed_is_not_kept(train: Any, cache: Path) -> None:
    given = (label for label in range(9))
    assert len(train.filter(lambda sample: given is not None and sample[1] == 1)) == 17
    assert not list(cache.glob("*.ids"))


def test_digests_of_functions() -> None:
    table = {"a": [1, 2], "b": {3, 4}}
    values = np.arange(4)

    def make(n: int, extra: Any = None) -> Any:
        def inner(x: Any) -> Any:
            return helper(x) + n + len(table) + values[0]

        return (inner, extra)

    def helper(x: Any) -> Any:
        return x

    assert closure(make(1)) == closure(make(1)) is not None
    assert closure(make(1)) != closure(make(2))
    assert closure(make(1, torch.ones(2))) != closure(make(1, torch.zeros(2)))
    before = closure(make(1))
    table["b"].add(5)  # type: ignore[attr-defined]
    assert closure(make(1)) != before
    assert closure(steps.Mirror()) == closure(steps.Mirror())
    assert closure(open) is not None
    assert closure(iter([1])) is None or closure(iter([1])) == closure(iter([1]))
    assert closure(x for x in [1]) is None


def test_a_digest_is_of_everything_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the choice that was kept for older code would be taken."""
    module = types.ModuleType("helpers_of_filters")
    monkeypatch.setitem(sys.modules, module.__name__, module)

    class Kept:
        numbers = [1, 2]  # noqa: RUF012

        def __call__(self, x: Any) -> bool:
            return x in self.numbers

        def __getstate__(self) -> Any:
            return module.keep

    def later(x: Any) -> Any:
        import helpers_of_filters  # type: ignore[import-not-found]

        return helpers_of_filters.keep(x)

    def unknown(x: Any) -> Any:
        import nobody_has_this  # type: ignore[import-not-found]

        return nobody_has_this.keep(x)

    def digests() -> list[str | None]:
        return [closure(lambda x: module.keep(x)), closure(later), closure(Kept()), closure(module.again)]

    code = "import functools\ndef keep(x): return x > {}\nagain = functools.lru_cache(keep)"
    exec(code.format(1), module.__dict__)
    before = digests()
    assert None not in before
    assert digests() == before
    exec(code.format(2), module.__dict__)
    assert all(a != b for a, b in zip(before, digests(), strict=True))
    before = digests()
    Kept.numbers = [3]
    assert [a != b for a, b in zip(before, digests(), strict=True)] == [False, False, True, False]
    assert closure(unknown) is None
    assert closure(lambda: getattr(module, "ke" + "ep")) is not None


def test_functions_of_one_name_have_digests_of_their_own() -> None:
    def made(n: int) -> list[Any]:
        @contextlib.contextmanager
        def decorated() -> Any:
            yield n

        @functools.wraps(torch.nn.functional.relu)
        def renamed(x: Any) -> Any:
            return x > n

        return [decorated, renamed]

    assert all(closure(a) != closure(b) for a, b in zip(made(1), made(2), strict=True))
    assert all(closure(a) == closure(b) is not None for a, b in zip(made(1), made(1), strict=True))
    assert closure(math.sqrt) != closure(cmath.sqrt)
    known = [math.sqrt, "a".lower, str.lower, int.__add__, [].append, dict.fromkeys, np.array, np.add, torch.add]
    assert None not in map(closure, known)


@pytest.mark.parametrize(
    ("module", "used"),
    mostly(
        [("plain", "plain.Numbers.__getitem__, plain.Numbers(4)"), ("steps", "steps.second, steps.Mirror()")],
        ("plain", "plain.Numbers.__getitem__, plain.Numbers(4)"),
    ),
)
def test_a_digest_is_the_same_in_another_process(module: str, used: str) -> None:
    code = f"import {module}; from stoker._closures import closure; print(closure({used}, {{'a', 'b', 'c'}}))"
    found = {run_python(code, env={"PYTHONHASHSEED": seed}).stdout for seed in "123"}
    here = io.StringIO()
    with contextlib.redirect_stdout(here):
        exec(code, {})
    assert found == {here.getvalue()}
    assert here.getvalue() != "None\n"


def test_one_process_tries_for_all(folder: Path, tmp_path: Path) -> None:
    """Several at once: one runs the function, the others wait and read."""
    log = tmp_path / "log"

    def noted(sample: Any) -> Any:
        with open(log, "a") as file:
            file.write("x\n")
        return sample[1] == 1

    def rank() -> None:
        assert len(stoker.ImageFolder(folder, [stoker.transforms.Resize((8, 8))]).filter(noted)) == 17

    ranks = [multiprocessing.get_context("fork").Process(target=rank) for _ in range(3)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(120)
    ended = [one.exitcode for one in ranks]
    for one in ranks:
        one.kill()
    assert ended == [0] * 3
    assert len(log.read_text().splitlines()) == 50


def test_every_filter_counts_after_two_choices_by_number(train: Any) -> None:
    """The filters between the last choice by number and the end are all tried."""
    chain = train.filter(lambda s: s[1] != 0).take(40).skip(1)
    want = [i for i in chain.indices if train.targets[i] == 1 and i % 2]
    tried = chain.filter(lambda s: s[1] == 1).filter(odd_of(train))
    assert tried.indices == want


def odd_of(train: Any) -> Any:
    odd = {train[i][0].sum().item() for i in range(1, 50, 2)}
    return lambda s: s[0].sum().item() in odd

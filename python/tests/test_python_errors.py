"""What errors of the user's own code say: what, where, and what to try."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from forms import mostly, thinned

import stoker


class Numbers(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 300

    def __getitem__(self, i: int) -> Any:
        return i


class Failing(Numbers):
    def __getitem__(self, i: int) -> Any:
        raise KeyError(i)


class Refusing(Numbers):
    def __getitem__(self, i: int) -> Any:
        raise ConnectionError("nobody there")


class Short(Numbers):
    def __getitem__(self, i: int) -> Any:
        raise IndexError(i)


class Lists(Numbers):
    def __getitems__(self, ids: list[int]) -> Any:
        raise RuntimeError("no lists")


class Few(Numbers):
    def __getitems__(self, ids: list[int]) -> Any:
        return ids[1:]


def collate(samples: Any) -> Any:
    raise RuntimeError("no batch")


CASES: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "sample": (Failing(), {}, r"dataset\[0\] raised KeyError", r"call dataset\[0\] by itself.*on_bad='skip'"),
    "source": (Refusing(), {"on_bad": "skip"}, "raised ConnectionError", "on_bad never skips it.*try again"),
    "length": (Short(), {}, "raised IndexError", r"check that len\(\)"),
    "collate_fn": (
        Numbers(),
        {"collate_fn": collate},
        "collate_fn raised RuntimeError",
        "collate_fn by itself.*a list",
    ),
    "single": (Numbers(), {"collate_fn": collate, "batch_size": None}, "collate_fn raised", "by itself with a sample"),
    "lists": (Lists(), {}, "__getitems__ raised RuntimeError", "__getitems__ by itself with a list"),
    "few": (Few(), {}, "it returned 3 samples for 4 ids", "a sample for each, in their order"),
}


@pytest.mark.parametrize(
    ("case", "workers"), mostly(product(CASES, [0, 2]), *product(CASES, [0]), ("sample", 2), ("collate_fn", 2))
)
def test_each_says_what_to_try(case: str, workers: int) -> None:
    dataset, keywords, what, hint = CASES[case]
    loader = stoker.DataLoader(dataset, **{"batch_size": 4, "num_workers": workers, **keywords})
    with pytest.raises(stoker.StokerError, match=f"(?s){what}.*\n  try: .*{hint}") as caught:
        next(iter(loader))
    assert caught.value.__cause__ is not None
    assert ("num_workers=0 runs it" in str(caught.value)) == (keywords.get("collate_fn") is not None and workers > 0)


@pytest.mark.parametrize("workers", mostly([0, 2], 0))
def test_too_many_bad_samples_are_the_datasets_code(workers: int, folder: Path) -> None:
    """`stoker inspect` reads files, and there are none."""
    for on_bad in ("skip", "replace"):
        with pytest.raises(stoker.DataError, match=r"(?s)16 samples in a row.*try: .*call dataset\[\d+\] by") as caught:
            list(stoker.DataLoader(Failing(), 4, num_workers=workers, on_bad=on_bad))
        assert "inspect" not in str(caught.value)
    every = [*range(300)]
    loader = stoker.DataLoader(Tenth(), 4, num_workers=workers, on_bad="skip", max_bad=3, sampler=every)
    with pytest.raises(stoker.DataError, match=r"(?s)more than on_bad allows.*try: .*dataset\[\d+\] by.*max_bad"):
        list(loader)


class Tenth(Numbers):
    def __getitem__(self, i: int) -> Any:
        return i if i % 10 else self.fail(i)

    def fail(self, i: int) -> None:
        raise ValueError(i)


def generated(sample: Any) -> Iterator[Any]:
    yield sample


async def awaited(sample: Any) -> Any:
    return sample


@thinned
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("function", "word"), [(generated, "generator"), (awaited, "coroutine")])
def test_a_function_that_returns_no_sample_is_named(
    function: Callable[[Any], Any], word: str, workers: int, folder: Path
) -> None:
    train = stoker.ImageFolder(folder)
    said = rf"{function.__name__} \(.*test_python_errors\.py:\d+\) returned a {word}"
    with pytest.raises(stoker.DataError, match=said):
        next(iter(stoker.DataLoader(train.map(function), num_workers=workers)))
    with pytest.raises(stoker.DataError, match=said):
        stoker.DataLoader(train.filter(function), num_workers=workers)
    with pytest.raises(TypeError, match=said):
        train.map(function)[0]


class Deadly(Numbers):
    def __getitem__(self, i: int) -> Any:
        if i == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return i


ANNOUNCED = [("skip", "is left out"), ("replace", r"sample \d+ comes in its place")]


@pytest.mark.parametrize(("on_bad", "became"), mostly(ANNOUNCED, ANNOUNCED[1]))
def test_a_sample_that_workers_die_of_is_announced(on_bad: str, became: str, caplog: pytest.LogCaptureFixture) -> None:
    loader = stoker.DataLoader(Deadly(), 4, num_workers=2, on_bad=on_bad)
    assert sum(len(loader.facts.bad) for _ in loader if loader.facts is not None) == 1
    (line,) = [line for line in caplog.messages if "bad sample" in line]
    assert re.search(f"sample 5 is a bad sample, and {became}: 2 Python workers ended while they made this", line)
    assert "run dataset[5] by itself" in line

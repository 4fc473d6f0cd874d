"""Numbers and arrays of NumPy's and torch's are taken wherever integers and lists of them are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forms import mostly

import stoker
from stoker import transforms as T

N = 50
KINDS: list[Any] = [np.int64, np.int32, np.uint8, np.array, torch.tensor]


@pytest.fixture
def dataset(folder: Path) -> stoker.ImageFolder:
    return stoker.ImageFolder(folder, T.RandomResizedCrop(16))


def ids(loader: Any) -> list[int]:
    with loader:
        return [int(i) for batch in loader for i in batch.ids]


@pytest.mark.parametrize("of", mostly(KINDS, np.uint8, torch.tensor))
def test_integers_of_the_loader(dataset: stoker.ImageFolder, of: Any) -> None:
    keywords: dict[str, Any] = {
        "batch_size": 4, "num_workers": 2, "prefetch": 3, "seed": 5, "rank": 1, "world_size": 3, "num_samples": 40,
        "timeout": 30, "memory": 1 << 28,
    }  # fmt: skip
    taken = {key: np.int64(n) if key == "memory" and of is np.uint8 else of(n) for key, n in keywords.items()}
    if of is np.int32 or of is np.int64 or of is np.array or of is torch.tensor:
        taken |= {"shuffle": np.True_, "drop_last": np.True_}
        keywords |= {"shuffle": True, "drop_last": True}
    own, plain = stoker.DataLoader(dataset, **taken), stoker.DataLoader(dataset, **keywords)
    assert ids(own) == ids(plain)
    own.set_epoch(of(3))
    own.skip(of(1))
    plain.set_epoch(3)
    plain.skip(1)
    assert own.explain(of(1)) == plain.explain(1)
    assert own.state_dict() == plain.state_dict()
    assert ids(own) == ids(plain)
    for one in (own, plain):
        one.close()


@pytest.mark.parametrize("of", mostly(KINDS, np.int64, np.array))
def test_integers_elsewhere(dataset: stoker.ImageFolder, shards: str, of: Any) -> None:
    assert torch.equal(dataset[of(3)][0], dataset[3][0])
    for make in (
        lambda n: stoker.RandomSampler(range(30), num_samples=n(7), seed=n(5)),
        lambda n: stoker.SubsetRandomSampler(range(30), seed=n(5)),
        lambda n: stoker.WeightedRandomSampler([1.0] * 30, n(7), seed=n(5)),
        lambda n: stoker.DistributedSampler(range(30), n(3), n(1), seed=n(5)),
        lambda n: stoker.BatchSampler(range(30), n(4), False),
    ):
        own, plain = make(of), make(int)
        own.set_epoch(of(2))
        plain.set_epoch(2)
        assert list(own) == list(plain)
        assert repr(own.state_dict()) == repr(plain.state_dict())
    assert len(stoker.Synthetic(of(9), (of(4), of(4), of(3)))) == 9
    chain = stoker.WebDataset(shards, seed=of(3)).shuffle(of(5)).decode("pil").to_tuple("cls").batched(of(4))
    assert len(list(chain.with_epoch(of(3)).with_length(of(3)))) == 3
    stoker.Field("x", to=of(3), multiple=of(2), value=of(1))
    stoker.DataLoader(dataset, 4, global_batch_size=None, cache={"memory": np.int64(1 << 20)})


@pytest.mark.parametrize(
    "make",
    [
        np.arange,
        torch.arange,
        lambda n: list(np.arange(n)),
        lambda n: list(torch.arange(n)),
        lambda n: np.arange(n)[:0],
    ],
)
def test_arrays_are_samplers(dataset: stoker.ImageFolder, make: Any) -> None:
    order = make(N)
    loader = stoker.DataLoader(dataset, 8, sampler=order)
    assert len(loader) == -(-len(order) // 8)
    assert ids(loader) == list(range(len(order)))
    assert loader.state_dict()["order"]["sampler"] == type(order).__name__


def test_arrays_are_samplers_of_batches(dataset: stoker.ImageFolder) -> None:
    orders: list[Any] = [
        np.arange(48).reshape(6, 8),
        torch.arange(48).reshape(6, 8),
        [np.arange(8), torch.arange(8, 20)],
    ]
    for order in orders:
        with stoker.DataLoader(dataset, batch_sampler=order) as loader:
            assert [batch.ids.tolist() for batch in loader] == [[int(i) for i in row] for row in order]


def test_arrays_are_indices_and_weights(dataset: stoker.ImageFolder) -> None:
    makers: list[Any] = [np.array, torch.tensor]
    for make in makers:
        chosen, weights = make([3, 1, 4]), make([1.0] * N)
        assert sorted(ids(stoker.DataLoader(dataset, 2, sampler=stoker.SubsetRandomSampler(chosen, seed=1)))) == [
            1,
            3,
            4,
        ]
        assert ids(stoker.DataLoader(dataset, 5, weights=weights, seed=1)) == ids(
            stoker.DataLoader(dataset, 5, weights=[1.0] * N, seed=1)
        )


REFUSED: list[tuple[Any, str]] = [
    ([2**63], "gave sample 9223372036854775808"),
    ([-(2**63) - 1], "gave sample -9223372036854775809"),
    (np.array([2**63], np.uint64), "gave sample 9223372036854775808"),
    (np.array([1.5]), "it must give ids"),
    (np.arange(N) % 2 == 0, "bools"),
    (torch.arange(N) % 2 == 0, "bools"),
    ([N], f"gave sample {N}"),
]


@pytest.mark.parametrize(("sampler", "words"), REFUSED)
def test_what_is_no_id_is_told(dataset: stoker.ImageFolder, sampler: Any, words: str) -> None:
    with pytest.raises(stoker.ConfigError, match=words), stoker.DataLoader(dataset, 4, sampler=sampler) as loader:
        next(iter(loader))


@pytest.mark.parametrize("timeout", [1e10, 1e300, np.float32(1e12)])
def test_a_timeout_may_be_long(dataset: stoker.ImageFolder, timeout: float) -> None:
    assert len(ids(stoker.DataLoader(dataset, 8, timeout=timeout))) == N


@pytest.mark.parametrize("value", [np.float64(1.5), np.array([4, 4]), torch.tensor(True), np.True_, np.array("4")])
def test_what_is_no_integer_is_refused(dataset: stoker.ImageFolder, value: Any) -> None:
    for keyword in ("batch_size", "seed", "num_workers", "prefetch"):
        with pytest.raises(stoker.ConfigError, match=keyword):
            stoker.DataLoader(dataset, **{keyword: value})
    with pytest.raises(stoker.ConfigError, match="epoch"):
        stoker.DataLoader(dataset).set_epoch(value)

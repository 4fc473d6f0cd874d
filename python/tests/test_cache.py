"""The cache in memory: what it keeps, that it changes no batch, and how it is asked for."""

from __future__ import annotations

import logging
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_tar
from forms import thinned

import stoker
from stoker import transforms as T

RANDOM = T.Compose([T.Resize(48), T.RandomCrop(40), T.RandomHorizontalFlip(), T.ToTensor()])
STEADY = T.Compose([T.Resize(48), T.CenterCrop(40), T.ToTensor()])


def epochs(loader: Any, count: int) -> list[list[tuple[Any, ...]]]:
    found = []
    for _ in range(count):
        found.append([(batch.ids.tolist(), *(np.asarray(value).tobytes() for value in batch)) for batch in loader])
    return found


@thinned
@pytest.mark.parametrize(
    "cache", [True, "64MiB", 64 << 20, {"memory": "64MiB", "after": "decode"}, {"after": "random"}]
)
@pytest.mark.parametrize("transform", [RANDOM, STEADY])
def test_no_batch_changes_and_later_epochs_read_nothing(own_folder: Path, transform: Any, cache: Any) -> None:
    data = stoker.ImageFolder(own_folder, transform)
    with stoker.DataLoader(data, 8, shuffle=True, seed=2, output="numpy") as loader:
        want = epochs(loader, 3)
    assert want[0] != want[1]
    with stoker.DataLoader(data, 8, shuffle=True, seed=2, output="numpy", cache=cache) as loader:
        assert epochs(loader, 1) == want[:1]
        kept = loader.stats()["cache"]
        assert kept["samples"] == 50
        assert 0 < kept["bytes"] <= kept["limit"]
        assert not kept["full"]
        shutil.rmtree(own_folder)
        assert epochs(loader, 2) == want[1:]


def test_without_a_cache_the_files_are_needed(own_folder: Path) -> None:
    data = stoker.ImageFolder(own_folder, STEADY)
    with stoker.DataLoader(data, 8) as loader:
        epochs(loader, 1)
        assert "cache" not in loader.stats()
        shutil.rmtree(own_folder)
        with pytest.raises(stoker.StokerError):
            epochs(loader, 1)


def test_what_does_not_fit_is_made_anew(folder: Path) -> None:
    data = stoker.ImageFolder(folder, STEADY)
    with stoker.DataLoader(data, 8, output="numpy") as loader:
        want = epochs(loader, 2)
    with stoker.DataLoader(data, 8, output="numpy", cache=100_000) as loader:
        assert epochs(loader, 2) == want
        kept = loader.stats()["cache"]
    assert kept["full"]
    assert kept["limit"] == 100_000
    assert 0 < kept["samples"] < 50
    assert kept["bytes"] <= 100_000


def test_a_cached_dataset_is_another_one(own_folder: Path) -> None:
    data = stoker.ImageFolder(own_folder, STEADY)
    cached = data.cache("32MiB")
    assert isinstance(cached, stoker.ImageFolder)
    assert cached.classes == data.classes
    assert (cached[3][0] == data[3][0]).all()
    with stoker.DataLoader(data, 8) as loader:
        epochs(loader, 1)
        assert "cache" not in loader.stats()
    for one in (cached, pickle.loads(pickle.dumps(cached)), cached.cache(after="decode")):
        with stoker.DataLoader(one, 8) as loader:
            epochs(loader, 1)
            assert loader.stats()["cache"]["samples"] == 50
            if one is cached:
                assert loader.stats()["cache"]["limit"] == 32 << 20
    with stoker.DataLoader(cached, 8, cache="32MiB") as loader:
        assert next(iter(loader)).step == 0
    with pytest.raises(stoker.ConfigError, match=r"\.cache\(\) differ"):
        stoker.DataLoader(cached, 8, cache="16MiB")


def test_arrays_and_mixtures_are_kept_too(own_folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(400, dtype=np.float32).reshape(100, 4))
    data = stoker.NpyDataset(tmp_path / "x.npy")
    with stoker.DataLoader(data.cache("1MiB"), 10, shuffle=True) as loader:
        epochs(loader, 1)
        assert loader.stats()["cache"]["samples"] == 100
    pictures = stoker.ImageFolder(own_folder, STEADY)
    mixture = stoker.Mixture([pictures, pictures], [1, 1]).cache("64MiB")
    with stoker.DataLoader(mixture, 8) as loader:
        epochs(loader, 2)
        assert loader.stats()["cache"]["samples"] > 50
    with pytest.raises(stoker.ConfigError, match="cache the mixture"):
        stoker.Mixture([pictures.cache(), pictures])


def test_it_goes_on_from_states_of_loaders_without_it(folder: Path) -> None:
    data = stoker.ImageFolder(folder, RANDOM)
    with stoker.DataLoader(data, 8, shuffle=True, output="numpy") as loader:
        walk = iter(loader)
        next(walk)
        state = loader.state_dict()
        want = [(batch.ids.tolist(), batch[0].tobytes()) for batch in walk]
    with stoker.DataLoader(data, 8, shuffle=True, output="numpy", cache="64MiB") as loader:
        loader.load_state_dict(state)
        assert [(batch.ids.tolist(), batch[0].tobytes()) for batch in loader] == want


def test_shards_in_a_chain(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = make_tar(tmp_path / "train.tar", 0, 20)
    plain = stoker.WebDataset(path).decode("pil").to_tuple("jpg", "cls", "txt").map_tuple(STEADY)
    with caplog.at_level(logging.INFO, "stoker"), stoker.DataLoader(plain.cache("32MiB"), 4) as loader:
        first = epochs(loader, 1)
        path.unlink()
        assert epochs(loader, 1) == first
        assert loader.stats()["cache"]["samples"] == 20
    assert "cache()" not in caplog.text


@pytest.mark.parametrize(
    ("chain", "words"),
    [
        (lambda d: d.shuffle(100).cache("1MiB"), ".cache() after .shuffle()"),
        (lambda d: d.batched(4).cache("1MiB"), ".cache() after .batched()"),
        (lambda d: d.map_tuple(RANDOM).cache("1MiB"), ".cache() after RandomCrop, RandomHorizontalFlip"),
    ],
)
def test_a_cache_that_stands_behind_what_it_does_not_keep_is_said(
    chain: Any, words: str, shards: str, caplog: pytest.LogCaptureFixture
) -> None:
    data = stoker.WebDataset(shards).decode("pil").to_tuple("jpg", "cls")
    with caplog.at_level(logging.INFO, "stoker"):
        cached = chain(data)
    assert words in caplog.text
    assert cached._cached == {"after": "random", "memory": "1MiB"}


def test_an_order_of_transforms_that_wastes_the_cache_is_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    wasteful = T.Compose([T.RandomHorizontalFlip(), T.Resize((40, 40)), T.ToTensor()])
    with caplog.at_level(logging.INFO, "stoker"):
        stoker.DataLoader(stoker.ImageFolder(folder, wasteful), 8, cache="1MiB")
    assert "Resize comes after RandomHorizontalFlip" in caplog.text


@pytest.mark.parametrize(
    ("cache", "words"),
    [
        ("lots", "lots"),
        (1.5, "memory 1.5"),
        ({"memory": "1GiB", "before": "decode"}, "'before'"),
        ({"after": "shuffle"}, "'shuffle'"),
        ("100TiB", "cache may use"),
    ],
)
def test_what_makes_no_cache_is_said(cache: Any, words: str, folder: Path) -> None:
    with pytest.raises(stoker.StokerError) as caught:
        stoker.DataLoader(stoker.ImageFolder(folder), 8, cache=cache)
    assert words in str(caught.value)
    assert caught.value.hint or "lots" in words


@pytest.mark.parametrize("cache", [False, 0, "0", "0 GiB", {"memory": "0"}])
def test_false_and_nothing_are_no_cache(cache: Any, folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder, STEADY), 8, cache=cache) as loader:
        epochs(loader, 1)
        assert "cache" not in loader.stats()

"""Which seed a loader has where none was given, and that a loaded state brings its own."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import run_python
from forms import mostly

import stoker
from stoker import transforms as T

SAMPLERS = [
    lambda data: stoker.RandomSampler(data),
    lambda data: stoker.SubsetRandomSampler(range(len(data))),
    lambda data: stoker.WeightedRandomSampler([1.0] * len(data), len(data)),
]


@pytest.fixture
def dataset(folder: Path) -> stoker.ImageFolder:
    return stoker.ImageFolder(folder, T.RandomResizedCrop(16))


def seed_of(loader: Any) -> int:
    return int(loader.state_dict()["seed"])


def ids(loader: Any) -> list[int]:
    return [int(i) for batch in loader for i in batch.ids]


@pytest.mark.parametrize("first", mostly(["", "import torch"], ""))
def test_nobody_set_a_seed(first: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Torch may be imported or not; here it is, and has no seed."""
    code = """
        import sys
        {0}
        import stoker
        data = stoker.Synthetic(20, (4, 4, 3))
        loader = stoker.DataLoader(data, 4, shuffle=True, output="numpy")
        print(loader.state_dict()["seed"], stoker.RandomSampler(range(9)).seed, "torch" in sys.modules)
        for batch in loader: print(batch.ids.tolist())
    """.replace("\n        ", "\n")
    done = run_python(code.format(first))
    told, *batches = done.stdout.splitlines()
    assert told == f"0 0 {bool(first)}", done.stderr
    with stoker.DataLoader(stoker.Synthetic(20, (4, 4, 3)), 4, shuffle=True, output="numpy") as loader:
        assert [str(batch.ids.tolist()) for batch in loader] == batches
        assert seed_of(loader) == 0
    for said in (capfd.readouterr().err, *([done.stderr] if first else [])):
        assert "seed 0 (the default" in said
        assert "seed=" in said


def test_three_seeds_are_three_orders(dataset: stoker.ImageFolder, capfd: pytest.CaptureFixture[str]) -> None:
    orders = []
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        with stoker.DataLoader(dataset, 8, shuffle=True) as loader:
            torch.manual_seed(99)  # the loader is made
            orders.append(ids(loader))
            assert seed_of(loader) == seed
        with stoker.DataLoader(dataset, 8, shuffle=True, seed=seed) as loader:
            assert ids(loader) == orders[-1]
        assert f"seed {seed} (torch.manual_seed)" in capfd.readouterr().err
    assert len({tuple(order) for order in orders}) == 3


def test_what_is_given_comes_first(
    dataset: stoker.ImageFolder, shards: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    monkeypatch.setenv("PL_GLOBAL_SEED", "2")
    drawn = stoker.WebDataset(shards, seed=5).decode("pil").to_tuple("jpg", "cls")
    for loader, words in (
        (stoker.DataLoader(dataset, 8, shuffle=True, seed=3), "seed 3 (seed=)"),
        (stoker.DataLoader(dataset, 8, True, generator=torch.Generator().manual_seed(4)), "seed 4 (generator=)"),
        (stoker.DataLoader(drawn, 1), "seed 5 (seed= of the dataset)"),
        (stoker.DataLoader(dataset, 8, sampler=stoker.RandomSampler(dataset, seed=6)), "seed 6 (seed=)"),
        (stoker.DataLoader(dataset, 8, sampler=stoker.RandomSampler(dataset), seed=7), "seed 7 (seed= of the loader)"),
        (stoker.DataLoader(dataset, 8, sampler=stoker.SequentialSampler(dataset), seed=8), "seed 8 (seed=)"),
        (stoker.DataLoader(dataset, 8, sampler=[1, 2], seed=9), "seed 9 (seed=)"),
        (stoker.DataLoader(dataset, 8, sampler=stoker.DistributedSampler(dataset, 2, 0)), "seed 0 (seed=)"),
        (stoker.DataLoader(dataset, 8, True), "seed 1 (torch.manual_seed)"),
    ):
        with loader:
            iter(loader)
            assert f", {words}" in capfd.readouterr().err
            assert seed_of(loader) == int(words.split()[1])


def test_a_seed_that_the_sampler_overrules_is_told(
    dataset: stoker.ImageFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    stoker.DataLoader(dataset, 8, sampler=stoker.RandomSampler(dataset, seed=6), seed=7)
    assert "seed 7 (seed=) is ignored: the sampler has seed 6" in capfd.readouterr().err


def test_ranks_share_a_seed_whatever_torch_has(
    dataset: stoker.ImageFolder, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(3)
    with stoker.DataLoader(dataset, 8, True, rank=1, world_size=2) as loader:
        iter(loader)
        assert seed_of(loader) == 0
    assert "pass seed= for another" in capfd.readouterr().err
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with stoker.DataLoader(dataset, 8, True) as loader:
        assert seed_of(loader) == 0
    assert stoker.RandomSampler(range(9)).seed == 0
    monkeypatch.setenv("PL_GLOBAL_SEED", "42")
    with stoker.DataLoader(dataset, 8, True) as loader:
        iter(loader)
        assert seed_of(loader) == 42
    assert "seed 42 (PL_GLOBAL_SEED; pass seed=" in capfd.readouterr().err
    assert stoker.RandomSampler(range(9)).seed == 42
    assert stoker.DistributedSampler(range(9)).seed == 0
    monkeypatch.setenv("PL_GLOBAL_SEED", "what")
    assert stoker.RandomSampler(range(9)).seed == 0


def test_the_world_may_be_made_after_the_loader(dataset: stoker.ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    with stoker.DataLoader(dataset, 8, True) as loader:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert seed_of(loader) == 0
        monkeypatch.delenv("RANK")
        assert seed_of(loader) == 0, "it stays what it was"


@pytest.mark.parametrize("make", SAMPLERS)
def test_samplers_have_the_same_rule(make: Any, capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(11)
    sampler = make(range(30))
    torch.manual_seed(12)
    assert sampler.seed == 11
    first = list(sampler)
    assert f"{type(sampler).__name__}: seed 11 (torch.manual_seed)" in capfd.readouterr().err
    other = make(range(30))
    assert other.seed == 12
    other.load_state_dict({**sampler.state_dict(), "epoch": 0, "position": 0})
    assert (other.seed, list(other)) == (11, first)


def state(dataset: stoker.ImageFolder, seed: int, **more: Any) -> tuple[Any, list[int]]:
    """A state of a run, and what came after it."""
    with stoker.DataLoader(dataset, 8, True, seed=seed, **more) as loader:
        iterator = iter(loader)
        next(iterator)
        saved = json.loads(json.dumps(loader.state_dict()))
        return saved, ids(iterator)


def test_a_seed_that_was_not_given_gives_way_to_the_states(
    dataset: stoker.ImageFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    for before, restart in ((0, 5), (5, 1 << 40), (5, 6)):
        saved, rest = state(dataset, before)
        stoker._notice._said.clear()
        torch.manual_seed(restart)
        with stoker.DataLoader(dataset, 8, True) as loader:
            running = iter(loader)
            seen = [next(running)]
            loader.load_state_dict(saved)
            assert seed_of(loader) == before
            assert ids(loader) == rest
            assert f"seed {before} (of the loaded state)" in capfd.readouterr().err
            assert len(seen + list(running)) == 7, "a pass that was begun goes on with its own seed"
        assert seed_of(pickle.loads(pickle.dumps(loader))) == before, "closed and pickled"


def test_only_a_seed_that_was_given_is_a_state_error(dataset: stoker.ImageFolder) -> None:
    saved, rest = state(dataset, 5)
    for loader in (
        stoker.DataLoader(dataset, 8, True, seed=6),
        stoker.DataLoader(dataset, 8, True, generator=torch.Generator().manual_seed(6)),
        stoker.DataLoader(dataset, 8, sampler=stoker.RandomSampler(dataset, seed=6)),
    ):
        with loader, pytest.raises(stoker.StateError, match="seed differs: 5 in the state but 6 here"):
            loader.load_state_dict(saved)
    with stoker.DataLoader(dataset, 8, True, seed=5) as loader:
        loader.load_state_dict(saved)
        assert ids(loader) == rest
    sampler = stoker.RandomSampler(range(30), seed=6)
    with pytest.raises(stoker.StateError, match="seed is 5 in the state but 6 here"):
        sampler.load_state_dict(stoker.RandomSampler(range(30), seed=5).state_dict())


def test_a_state_that_does_not_fit_leaves_the_seed(dataset: stoker.ImageFolder) -> None:
    saved, _ = state(dataset, 5)
    torch.manual_seed(7)
    with stoker.DataLoader(dataset, 8, True) as loader:
        for change in ({"dataset": "x"}, {"epoch": -1}, {"seed": "5"}, {"seed": -1}, {"seed": 1 << 64}):
            with pytest.raises(stoker.StateError):
                loader.load_state_dict({**saved, **change})
            assert seed_of(loader) == 7


def test_the_seed_of_a_sampler_in_the_loader_gives_way_too(dataset: stoker.ImageFolder) -> None:
    saved, rest = state(dataset, 5)
    torch.manual_seed(6)
    sampler = stoker.RandomSampler(dataset)
    with stoker.DataLoader(dataset, 8, sampler=sampler) as loader:
        next(iter(loader))
        loader.load_state_dict(saved)
        assert ids(loader) == rest
        assert sampler.seed == 5
        sampler.load_state_dict({**sampler.state_dict(), "order": {**sampler.state_dict()["order"], "seed": 9}})
        assert seed_of(loader) == 9, "the engine follows"


def test_bytes_are_told_at_start(folder: Path, shards: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.zeros((8, 3), np.uint8))
    crops = stoker.WebDataset(shards).decode("pil").map_dict(jpg=T.CenterCrop(8))
    cases: tuple[tuple[Any, Any, str], ...] = (
        (
            stoker.ImageFolder(folder, T.CenterCrop(8)),
            "torch",
            "image is uint8: to get floats, end the transforms with ToT",
        ),
        (stoker.ImageFolder(folder, T.CenterCrop(8)), "torch", "image.float() / 255"),
        (stoker.ImageFolder(folder, T.CenterCrop(8)), "numpy", "image.astype('float32') / 255"),
        (stoker.ImageFolder(folder, T.CenterCrop(8)).select("image"), "torch", "write batch['image'].float() / 255"),
        (crops.to_tuple("cls", "jpg;png"), "torch", "write batch[1].float() / 255"),
        (crops.to_tuple("cls", "jpg;png"), "numpy", "write batch[1].astype('float32') / 255"),
        (stoker.NpyDataset(tmp_path / "x.npy"), "torch", "to get floats, write batch.float() in the loop"),
        (stoker.ImageFolder(folder, T.Compose([T.CenterCrop(8), T.ToTensor()])), "torch", ""),
    )
    for dataset, output, words in cases:
        capfd.readouterr()
        stoker._notice._said.clear()
        with stoker.DataLoader(dataset, 4, output=output) as loader:
            next(iter(loader))
        (line,) = [line for line in capfd.readouterr().err.splitlines() if "native" in line]
        assert words in line
        assert bool(words) == ("uint8" in line)

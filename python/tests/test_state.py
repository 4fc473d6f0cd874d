"""States: taken at every step, loaded into other worlds, refused where they do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forms import mostly

import stoker
from stoker import _pass
from stoker import transforms as T

CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


def rows(batches: Any) -> list[tuple[int, int, int]]:
    """Epoch, id and a sum of the pixels of every row."""
    return [
        (batch.epoch, int(i), int(image.long().sum()))
        for batch in batches
        for i, image in zip(batch.ids, batch[0], strict=True)
    ]


@pytest.fixture(scope="module")
def dataset(folder: Path) -> stoker.ImageFolder:
    return stoker.ImageFolder(folder, CROP)


def test_the_state_of_every_step(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8, True, seed=1) as loader:
        everything: list[Any] = []
        states = [(0, loader.state_dict())]
        for _ in range(2):
            for batch in loader:
                everything += rows([batch])
                states.append((len(everything), json.loads(json.dumps(loader.state_dict()))))
    assert len(states) == 15
    with stoker.DataLoader(dataset, 8, True, seed=1) as other:
        for done, state in states:
            other.load_state_dict(state)
            assert other.state_dict() == state
            rest = rows(other)
            assert rest == [row for row in everything[done:] if row[0] == state["epoch"]]
            assert (
                rows(other)[: len(everything)] == [row for row in everything if row[0] == state["epoch"] + 1]
                or state["epoch"]
            )


def test_what_a_state_is(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8, True, seed=11) as loader:
        fresh = loader.state_dict()
        assert set(fresh) == {"version", "dataset", "pipeline", "seed", "epoch", "position", "order", "processing"}
        assert (fresh["version"], fresh["seed"], fresh["epoch"], fresh["position"]) == (1, 11, 0, 0)
        assert len(json.dumps(fresh)) < 1024
        iterator = iter(loader)
        assert loader.state_dict() == fresh
        next(iterator)
        assert loader.state_dict()["position"] == 8
        loader.set_epoch(5)
        assert loader.state_dict()["position"] == 8
        following = iter(loader)
        assert loader.state_dict()["position"] == 8, "the loop is still in the first pass"
        del iterator
        assert (loader.state_dict()["epoch"], loader.state_dict()["position"]) == (5, 0)
        del following
        assert loader.state_dict()["position"] == 8, "an iterator that is not used counts for nothing"
    with stoker.DataLoader(dataset, 8, True, seed=11) as loader:
        loader.set_epoch(4)
        assert loader.state_dict()["epoch"] == 4


def test_a_pass_restored_at_its_end_yields_nothing_once(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8, True) as loader:
        list(loader)
        state = loader.state_dict()
        following = rows(loader)
    assert (state["epoch"], state["position"]) == (0, 50)
    with stoker.DataLoader(dataset, 8, True) as loader:
        loader.load_state_dict(state)
        assert list(loader) == []
        assert rows(loader) == following


def test_set_epoch_after_a_state(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8, True) as loader:
        loader.set_epoch(2)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        rest = rows(iterator)
        third = rows(loader)
        loader.load_state_dict(state)
        loader.set_epoch(2)  # what usual loops do: the position stays
        assert rows(loader) == rest
        loader.load_state_dict(state)
        loader.set_epoch(3)
        assert rows(loader) == third
        loader.load_state_dict(state)
        loader.sampler.set_epoch(2)
        assert rows(loader) == rest


@pytest.mark.parametrize(("world", "size"), mostly([(1, 8), (2, 4), (3, 5), (7, 1)], (1, 8), (3, 5)))
def test_another_world_goes_on(dataset: stoker.ImageFolder, world: int, size: int) -> None:
    with stoker.DataLoader(dataset, 1, True) as loader:
        plan = [row[1:] for row in rows(loader)]
    with stoker.DataLoader(dataset, 6, True, rank=0, world_size=2) as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        state = loader.state_dict()
    assert state["position"] == 24
    parts = []
    for rank in range(world):
        with stoker.DataLoader(dataset, size, True, rank=rank, world_size=world) as loader:
            loader.load_state_dict(state)
            valid = [ok for batch in loader for ok in batch.valid.tolist()]
            loader.load_state_dict(state)
            parts.append([row[1:] for row, ok in zip(rows(loader), valid, strict=True) if ok])
            assert loader.state_dict()["position"] == 50
    together = [part[i] for i in range(len(parts[0])) for part in parts if i < len(part)]
    assert together == plan[24:]


def test_the_state_is_equal_on_every_rank(dataset: stoker.ImageFolder) -> None:
    states = []
    for rank in range(3):
        with stoker.DataLoader(dataset, 4, True, rank=rank, world_size=3) as loader:
            iterator = iter(loader)
            next(iterator)
            states.append(loader.state_dict())
    assert states[0] == states[1] == states[2]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"version": 2}, "version 2"),
    ({"dataset": "0" * 32}, "dataset differs"),
    ({"pipeline": "0" * 16}, "transforms"),
    ({"seed": 5}, "seed=5"),
    (
        {"seed": "x"},
        "its seed is 'x'\n  try: a seed is an integer from 0 to 2**64 - 1; pass what state_dict() returned",
    ),
    ({"seed": -1}, "its seed is -1"),
    ({"seed": True}, "its seed is True"),
    ({"order": {"shuffle": "none"}}, "order differs"),
    ({"epoch": -1}, "its epoch is -1"),
    ({"epoch": "x"}, "its epoch is 'x'"),
    ({"epoch": 1 << 63}, "its epoch is 9223372036854775808"),
    ({"epoch": None}, "state_dict() returned, unchanged"),
    ({"position": 51}, "its position is 51, but epoch 0 ends at 50"),
    ({"position": "x"}, "and its position 'x'"),
    ({"skipped": "x"}, "the state's 'skipped' is 'x'"),
    ({"pipeline": "0" * 16}, "the fields or transforms differ:"),
]


@pytest.mark.parametrize(("change", "text"), mostly(REFUSED, *REFUSED[::2], REFUSED[1], REFUSED[3]))
def test_a_state_that_does_not_fit(dataset: stoker.ImageFolder, change: dict[str, Any], text: str) -> None:
    with stoker.DataLoader(dataset, 8, True, seed=0) as loader:
        state = {**loader.state_dict(), **change}
        with pytest.raises(stoker.StateError) as caught:
            loader.load_state_dict(state)
        assert text in str(caught.value)
        assert rows(loader)[0][0] == 0


def test_explain_names_the_last_step(dataset: stoker.ImageFolder) -> None:
    for tail, last in (("pad", 6), ("drop", 5)):
        with stoker.DataLoader(dataset, 8, True, seed=0, tail=tail) as loader:
            assert len(loader.explain(last)["rows"]) in (2, 8)
            for step in (last + 1, 999, 1 << 32):
                with pytest.raises(stoker.ConfigError) as caught:
                    loader.explain(step)
                assert f"epoch 0 has no step {step}" in str(caught.value)
                assert f"give a number from 0 to {last}" in str(caught.value)
    with stoker.DataLoader(dataset, 8, True, seed=0) as loader:
        loader.load_state_dict({**loader.state_dict(), "position": 16})
        assert loader.explain(5)["rows"][0]["place"] == 40
        with pytest.raises(stoker.ConfigError, match="give a number from 0 to 6"):
            loader.explain(7)


def test_all_reasons_at_once(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8, True, seed=0) as loader:
        state = {**loader.state_dict(), "dataset": "x", "seed": 9}
        with pytest.raises(stoker.StateError, match=r"dataset differs.*seed differs"):
            loader.load_state_dict(state)
        del state["order"]
        with pytest.raises(stoker.StateError, match="lacks order"):
            loader.load_state_dict(state)
        bad: Any = [1]
        with pytest.raises(stoker.StateError, match="list"):
            loader.load_state_dict(bad)


def test_states_of_other_transforms_and_data(folder: Path, own_folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder, CROP), 8) as loader:
        state = loader.state_dict()
    with (
        stoker.DataLoader(stoker.ImageFolder(folder, T.CenterCrop(24)), 8) as loader,
        pytest.raises(stoker.StateError, match="transforms"),
    ):
        loader.load_state_dict(state)
    with stoker.DataLoader(stoker.ImageFolder(own_folder, CROP), 8) as loader:
        loader.load_state_dict(state)  # the same data in another place
    next(own_folder.rglob("*.jpg")).unlink()
    with (
        stoker.DataLoader(stoker.ImageFolder(own_folder, CROP), 8) as loader,
        pytest.raises(stoker.StateError, match="dataset"),
    ):
        loader.load_state_dict(state)


def test_steps_count_on_in_a_resumed_pass(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 4, shuffle=True) as loader:
        iterator = iter(loader)
        seen = [next(iterator).step for _ in range(3)]
        state = loader.state_dict()
    with stoker.DataLoader(dataset, 4, shuffle=True) as loader:
        loader.load_state_dict(state)
        seen += [batch.step for batch in loader]
    assert seen == list(range(len(loader)))


def test_an_interrupt_while_a_pass_begins_skips_nothing(
    dataset: stoker.ImageFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stoker.DataLoader(dataset, 4, shuffle=True) as loader:
        expected = [rows(loader), rows(loader)]
        loader.set_epoch(0)
        real = _pass.Pass._begin

        def interrupted(*_: Any) -> int:
            raise KeyboardInterrupt

        for epoch in (0, 1):
            monkeypatch.setattr(_pass.Pass, "_begin", interrupted)
            with pytest.raises(KeyboardInterrupt):
                iter(loader)
            monkeypatch.setattr(_pass.Pass, "_begin", real)
            assert rows(loader) == expected[epoch]


def test_relative_paths_mean_what_they_meant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    dataset = stoker.ImageFolder(folder.name, T.RandomResizedCrop(32))
    with stoker.DataLoader(dataset, 4) as other:  # its engine starts here
        count = len(rows(other))
        (folder.parent / "elsewhere").mkdir()
        monkeypatch.chdir(folder.parent / "elsewhere")
        with stoker.DataLoader(dataset, 4) as loader:
            assert len(rows(loader)) == count
    assert dataset.root == folder.name

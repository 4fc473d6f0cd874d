"""Mixtures of everything: stoker's datasets, functions on them, filtered ones, the user's own. What comes is written
down in a few lines of Python (``twin``), which takes from the engine only whose turn it is."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import steps
import torch
from conftest import engine, kill
from forms import ALL, long, mostly
from test_steps import SMALL, copied, equal, loaded

import stoker
from stoker import transforms as T


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "filters"


class Mine(torch.utils.data.Dataset[Any]):
    """The user's own; its samples depend on nothing but their number."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> Any:
        return torch.full((3, 16, 12), index, dtype=torch.uint8), torch.tensor(1000 + index)


def mine_odd(sample: Any) -> Any:
    return int(sample[1]) % 2 == 1


def dark(image: Any, label: Any) -> Any:
    return image // 2, torch.tensor(label + 10)


def tensor(image: Any, label: Any) -> Any:
    return image, torch.as_tensor(label)


def members(folder: Path) -> list[tuple[Any, Callable[[int], Any], list[int]]]:
    """Each with its samples by the number of those that are stored, and which of these there are."""
    train = stoker.ImageFolder(folder, SMALL)
    pixels = torch.arange(31 * 3 * 16 * 12).reshape(31, 3, 16, 12).to(torch.uint8)
    theirs = torch.utils.data.TensorDataset(pixels, torch.arange(31))
    seconds = [i for i, label in enumerate(train.targets) if label == 1]
    mapped = [i for i, label in enumerate(train.targets) if label != 0]
    return [
        (train.map(tensor), lambda i: tensor(*train[i]), [*range(50)]),
        (train.map(dark), lambda i: dark(*train[i]), [*range(50)]),
        (train.filter(steps.second).map(tensor), lambda i: tensor(*train[i]), seconds),
        (train.map(dark).filter(lambda s: s[1] != 10), lambda i: dark(*train[i]), mapped),
        (Mine(), Mine().__getitem__, [*range(23)]),
        (theirs, theirs.__getitem__, [*range(31)]),
    ]


WEIGHTS = [1, 2, 1, 3, 2, 1]


def order(
    tmp_path: Path, counts: list[int], weights: Any = WEIGHTS, epoch: int = 0, **keywords: Any
) -> list[tuple[int, int]]:
    """Whose turn it is, and which of its samples: from a mixture of arrays of these lengths."""
    stored = []
    for d, count in enumerate(counts):
        folder = tmp_path / f"{d}-{count}"
        folder.mkdir(exist_ok=True)
        np.save(folder / "x.npy", np.stack([np.full(count, d), np.arange(count)], axis=1))
        stored.append(stoker.NpyDataset(folder / "x.npy"))
    with loaded(stoker.Mixture(stored, weights), None, output="numpy", **keywords) as loader:
        loader.set_epoch(epoch)
        return [tuple(row.tolist()) for row in loader]


def twin(folder: Path, tmp_path: Path, **keywords: Any) -> tuple[list[Any], list[int]]:
    """The samples of an epoch, and their ids."""
    all_members = members(folder)
    firsts = np.cumsum([0, 50, 50, 50, 50, 23]).tolist()
    samples, ids = [], []
    for d, place in order(tmp_path, [len(there) for _, _, there in all_members], **keywords):
        _, get, there = all_members[d]
        samples.append(list(get(there[place])))
        ids.append(firsts[d] + there[place])
    return samples, ids


def mixture(folder: Path) -> Any:
    return stoker.Mixture([member for member, _, _ in members(folder)], WEIGHTS)


def everything(loader: Any) -> tuple[list[Any], list[int]]:
    samples, ids = [], []
    for batch in loader:
        samples += [list(row) for row in zip(*copied(batch), strict=True)]
        ids += batch.ids.tolist()
    return samples, ids


KEYWORDS: dict[str, Any] = {"shuffle": True, "seed": 5}


@pytest.mark.parametrize("workers", mostly([0, 1, 2, 5], 0))
def test_the_stream_is_as_defined(folder: Path, tmp_path: Path, workers: int) -> None:
    samples, ids = twin(folder, tmp_path, **KEYWORDS)
    data = mixture(folder)
    assert len(data) == sum(len(there) for _, _, there in members(folder))
    with loaded(data, num_workers=workers, **KEYWORDS) as loader:
        found = everything(loader)
        assert found[1] == ids
        assert equal(found[0], samples)
        assert sum(loader.shares()) == len(ids)
        second = everything(loader)[1]
    assert second == twin(folder, tmp_path, epoch=1, **KEYWORDS)[1] != ids
    at = random.Random(1).sample(range(len(data)), 20)
    numbers = data.indices
    assert all(equal(list(data[i]), samples[ids.index(numbers[i])]) for i in at if numbers[i] in ids)


def test_resume_at_any_step_and_two_ranks(folder: Path, tmp_path: Path) -> None:
    samples, ids = twin(folder, tmp_path, **KEYWORDS)
    data = mixture(folder)
    with loaded(data, 4, **KEYWORDS) as loader:
        states = [loader.state_dict()]
        for _ in loader:
            states.append(loader.state_dict())
    for step in (1, 4, len(states) - 2) if ALL else (4,):
        for workers, world in ((0, 1), (2, 2)) if ALL else ((0, 2),):
            parts, receipts = [], []
            for rank in range(world):
                with loaded(data, 2, rank=rank, world_size=world, num_workers=workers, tail="drop", **KEYWORDS) as part:
                    part.load_state_dict(states[step])
                    assert [row["sample"] for row in part.explain(0)["rows"]] == ids[rank : 2 * world : world]
                    parts.append(everything(part))
                    receipts.append(part.receipt())
            left = len(ids) - 4 * step
            left -= left % (2 * world)
            found: list[Any] = [None] * left
            for rank, (rows, numbers) in enumerate(parts):
                for i, row in enumerate(zip(rows, numbers, strict=True)):
                    found[i * world + rank] = row
            assert [number for _, number in found] == ids[4 * step : 4 * step + left]
            assert equal([row for row, _ in found], samples[4 * step : 4 * step + left])


def test_kills_do_not_change_it(folder: Path, tmp_path: Path) -> None:
    samples, ids = twin(folder, tmp_path, **KEYWORDS)
    with loaded(mixture(folder), 4, num_workers=3, **KEYWORDS) as loader:
        found: tuple[list[Any], list[int]] = [], []
        for step, batch in enumerate(loader):
            found[0].extend(list(row) for row in zip(*copied(batch), strict=True))
            found[1].extend(batch.ids.tolist())
            if step in (2, 9):
                kill(random.choice([one.pid for one in multiprocessing.active_children() if one.pid]))
            if step == 5:
                kill(engine())
    assert found[1] == ids
    assert equal(found[0], samples)


@long
def test_filtered_members_alone_are_native(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = stoker.ImageFolder(folder, SMALL)
    kept = [i for i, label in enumerate(train.targets) if label == 1]
    data = stoker.Mixture([train.filter(steps.second), train.take(20), train], [1, 1, 1], stop="all_exhausted")
    capsys.readouterr()
    with loaded(data, **KEYWORDS) as loader:
        samples, ids = everything(loader)
    assert "stoker: native" in capsys.readouterr().err
    assert set(ids) == {*kept, *range(50, 70), *range(100, 150)}
    assert data.indices == [*kept, *range(50, 70), *range(100, 150)]
    assert all(equal(row, list(train[i % 50])) for row, i in zip(samples, ids, strict=True))


@pytest.mark.parametrize("own", mostly([False, True], True))
def test_a_filtered_mixture(folder: Path, tmp_path: Path, own: bool, cache: Path) -> None:
    """Each member is filtered: shares are those of what is left."""
    train = stoker.ImageFolder(folder, SMALL)
    parts: list[Any] = [train.map(dark) if own else train, train.take(40), Mine() if own else train.skip(10)]
    data = stoker.Mixture(parts, [1, 2, 1])
    some = data.filter(mine_odd)
    there = [[i for i in range(len(part)) if mine_odd(part[i])] for part in parts]
    firsts = [0, 50, 100]
    stored = [there[0], there[1], there[2] if own else [10 + i for i in there[2]]]
    want = [firsts[d] + i for d, ids in enumerate(stored) for i in ids]
    assert len(some) == len(want) == sum(map(len, there))
    assert some.indices == want
    assert all(equal(list(some[i]), list(parts[0][there[0][i]])) for i in range(3))
    turns = order(tmp_path, [len(ids) for ids in there], [1, 2, 1], **KEYWORDS)
    for workers in (0, 2) if ALL else (2,):
        with loaded(some.map(tensor) if own else some, num_workers=workers, **KEYWORDS) as loader:
            samples, ids = everything(loader)
        assert ids == [firsts[d] + stored[d][place] for d, place in turns]
        assert all(equal(row, list(parts[d][there[d][at]])) for row, (d, at) in zip(samples, turns, strict=True))
    assert len(list(cache.glob("*.ids"))) >= 2  # nobody tries them again
    few = some.take(len(some)).map(lambda s: s[1])
    assert few.indices == want


def test_a_filter_that_leaves_a_member_without_samples(folder: Path) -> None:
    train = stoker.ImageFolder(folder, SMALL)
    with pytest.raises(stoker.ConfigError, match=r"dataset 1 of the mixture: .filter keeps none of the 23 samples"):
        len(stoker.Mixture([train, Mine()]).filter(lambda s: isinstance(s[1], int)))
    with pytest.raises(stoker.ConfigError, match="none of the 50 samples of dataset 1 of the mixture"):
        stoker.DataLoader(stoker.Mixture([train, train]).take(3))


def test_functions_of_members_and_of_the_mixture(folder: Path) -> None:
    """All native: the members' functions first, then the mixture's, with numbers of their own."""
    train = stoker.ImageFolder(folder, SMALL)

    def noisy(image: Any, label: Any, rng: Any) -> Any:
        return image.float().mean(), label, rng.random(), random.random()

    def after(sample: Any, rng: Any) -> Any:
        return (*sample, rng.random())

    data = stoker.Mixture([train.map(noisy), train.map(noisy)]).map(after)
    epochs = []
    for workers in (0, 1, 3) if ALL else (0, 3):
        with loaded(data, num_workers=workers, **KEYWORDS) as loader:
            epochs.append([copied(batch) for batch in loader])
    assert all(equal(epochs[0], epoch) for epoch in epochs[1:])
    rows = [row for batch in epochs[0] for row in zip(*batch, strict=True)]
    assert len({float(row[2]) for row in rows} | {float(row[4]) for row in rows}) == 2 * len(rows)
    with loaded(stoker.Mixture([train, train.map(lambda s: s)]), None, **KEYWORDS) as loader:
        assert len(loader) == 100


@long
def test_members_whose_functions_make_them_alike(folder: Path, tmp_path: Path) -> None:
    """Their fields differ, and what the functions return does not. A lambda in a transform is such a function."""
    np.save(tmp_path / "x.npy", np.arange(40).reshape(20, 2))
    numbers = stoker.NpyDataset(tmp_path / "x.npy").map(lambda s: {"x": s[0].sum(), "y": 0})
    photos = stoker.ImageFolder(folder, SMALL).map(lambda s: {"x": s[0].long().sum(), "y": s[1]})
    shown = stoker.ImageFolder(folder, [*SMALL, T.PILToTensor(), lambda x: x.long().sum()]).map(
        lambda x, y: {"x": x, "y": y}
    )
    data = stoker.Mixture([numbers, photos, shown])
    for workers in (0, 2) if ALL else (2,):
        with loaded(data, None, num_workers=workers) as loader:
            for sample in loader:
                number = int(loader.facts.ids[0])
                d, i = (0, number) if number < 20 else (1 + (number - 20) // 50, (number - 20) % 50)
                assert equal(copied(dict(sample)), (numbers, photos, shown)[d][i])


def test_bad_samples_of_members(folder: Path) -> None:
    """A function's error is a bad sample, whichever member it is in, and the error names it in the mixture."""
    train = stoker.ImageFolder(folder, SMALL)
    data = stoker.Mixture([train.map(lambda s: s[1]), train.map(steps.failing)])
    twos = [50 + i for i, label in enumerate(train.targets) if label == 2]
    for workers in (0, 2) if ALL else (2,):
        with loaded(data, num_workers=workers, on_bad="skip", max_bad=100) as loader:
            bad = [one.sample for batch in loader for one in loader.facts.bad]
        assert sorted(bad) == twos
        with loaded(data, num_workers=workers) as loader:
            with pytest.raises(stoker.DataError, match="KeyError") as raised:
                list(loader)
        assert raised.value.where["sample"] in twos
        assert isinstance(raised.value.__cause__, KeyError)


def test_states_know_members_functions(folder: Path) -> None:
    train = stoker.ImageFolder(folder, SMALL)
    loader = stoker.DataLoader(stoker.Mixture([train.map(dark), Mine()]), 4)
    state = loader.state_dict()
    with pytest.raises(stoker.StateError, match="fields or transforms differ"):
        stoker.DataLoader(stoker.Mixture([train.map(tensor), Mine()]), 4).load_state_dict(state)
    with pytest.raises(stoker.StateError):
        stoker.DataLoader(stoker.Mixture([train.take(9).map(dark), Mine()]), 4).load_state_dict(state)


def test_what_is_refused(folder: Path) -> None:
    train = stoker.ImageFolder(folder, SMALL)
    with pytest.raises(stoker.ConfigError, match="dataset 0 was batched"):
        stoker.Mixture([train.batch(4), train])
    with pytest.raises(stoker.ConfigError, match="Python makes samples of this mixture"):
        stoker.Mixture([train.map(dark), train]).cache()
    assert os.path.isdir(folder)


def test_damage_in_a_member_and_what_explain_says(folder: Path, tmp_path: Path) -> None:
    """Samples that the engine begins are explained, and bad, as those of a native mixture: by file and choices."""
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    names = sorted(path for path in broken.rglob("*") if path.is_file())
    names[7].write_bytes(b"no picture")
    train = stoker.ImageFolder(broken, [T.RandomResizedCrop(16)])
    at = next(row["sample"] for row in stoker.DataLoader(train, 50).explain(0)["rows"] if row["file"] == str(names[7]))
    cropped = train.map(lambda image, label: (image[:, :16, :12], torch.tensor(label)))
    data = stoker.Mixture([Mine(), cropped], stop="all_exhausted")
    for workers in (0, 2) if ALL else (2,):
        with loaded(data, num_workers=workers, on_bad="skip", **KEYWORDS) as loader:
            rows = loader.explain(0)["rows"]
            bad = [(one.sample, one.error.where["file"]) for _ in loader for one in loader.facts.bad]
        found = [row for row in rows if row["sample"] >= 23]
        assert found
        assert all(Path(row["file"]).parent.parent == broken for row in found)
        assert all("choices" in row or row["sample"] == 23 + at for row in found)
        assert all("file" not in row for row in rows if row["sample"] < 23)
        with loaded(data, num_workers=workers, **KEYWORDS) as loader:
            with pytest.raises(stoker.DataError) as raised:
                list(loader)
        assert raised.value.where["sample"] == 23 + at
        assert raised.value.where["file"] == str(names[7])
        assert bad == [(23 + at, str(names[7]))]


def engines_of_this_worker(image: Any, label: Any) -> Any:
    return len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()), label, os.getpid()


@pytest.mark.parametrize("method", mostly(["fork", "spawn"], "fork"))
def test_workers_need_no_engine(folder: Path, method: str) -> None:
    """The engine begins the samples; before, each worker had one of its own."""
    train = stoker.ImageFolder(folder, SMALL)
    data = stoker.Mixture([train.map(engines_of_this_worker), [(0, 7, 0)] * 50])
    with loaded(data, None, multiprocessing_context=method) as loader:
        rows = [copied(row) for row in loader]
    assert {row[0] for row in rows} == {0}
    assert {row[2] for row in rows} > {0}
    assert os.getpid() not in {row[2] for row in rows}


def test_a_transform_that_becomes_python_is_told(folder: Path) -> None:
    train = stoker.ImageFolder(folder, SMALL)
    for data in (stoker.Mixture([train, train]), stoker.Mixture([train, train]).map(tensor)):
        with loaded(data) as loader:
            next(iter(loader))
            train.transform = [*SMALL, lambda picture: picture]
            with pytest.raises(stoker.ConfigError, match=r"step of Python"):
                iter(loader)
        train.transform = SMALL


@long
def test_chosen_parts_schedules_samplers_and_collate(folder: Path) -> None:
    """What else a loader may be asked for, over a mixture of which samples were chosen."""
    train = stoker.ImageFolder(folder, SMALL)
    data = stoker.Mixture(
        [train.map(dark).shard(2, 1), train.map(tensor).repeat(2), Mine()],
        schedule=[(0, [1, 1, 1]), (1000, [1, 2, 1])],
        stop="repeat",
        batches="single",
    ).skip(5)
    ids = [*range(11, 50, 2), *range(50, 100), *range(50, 100), *range(100, 123)]
    assert data.indices == ids
    assert len(data) == len(ids)
    with loaded(data, shuffle=True, collate_fn=lambda rows: [int(label) for _, label in rows]) as loader:
        batches = [(list(batch), loader.facts.ids.tolist()) for batch in loader]
    assert sum(len(numbers) for _, numbers in batches) == len(ids)
    wanted = {**{i: train.targets[i] + 10 for i in range(50)}, **{50 + i: train.targets[i] for i in range(50)}}
    wanted |= {100 + i: 1000 + i for i in range(23)}
    for labels, numbers in batches:
        assert labels == [wanted[i] for i in numbers]
        assert len({sum(number >= first for first in (50, 100)) for number in numbers}) == 1
    with loaded(data, sampler=[3, 0, len(ids) - 1]) as loader:
        assert [batch.ids.tolist() for batch in loader] == [[ids[3], ids[0], ids[-1]]]
    lengths = [i % 17 + 1 for i in range(len(ids))]
    with loaded(stoker.Mixture([train.map(tensor), Mine()]).skip(5), lengths=lengths[:68], tokens=60) as loader:
        assert sum(len(batch.ids) for batch in loader) > 0


def test_a_member_that_asks_for_a_shuffle(shards: str, folder: Path) -> None:
    web = stoker.WebDataset(shards).decode("rgb").to_tuple("cls")
    for member in (web.shuffle(100), web.map(lambda s: s).shuffle(100)):
        data = stoker.Mixture([member, [(i,) for i in range(30)]])
        with loaded(data, None, num_workers=0) as loader:
            ids = [int(loader.facts.ids[0]) for _ in loader]
        assert [i for i in ids if i >= 30] == [*range(30, 60)]
        assert sorted(i for i in ids if i < 30) == [*range(30)] != [i for i in ids if i < 30]


@long
def test_features_of_a_mixture_are_packed(folder: Path, tmp_path: Path) -> None:
    train = stoker.ImageFolder(folder, SMALL)
    data = stoker.Mixture([train.map(dark), Mine()], stop="all_exhausted").map(lambda s: {"y": int(s[1])})
    stoker.pack(data, tmp_path / "features", jobs=2)
    packed = stoker.WebDataset(str(tmp_path / "features"))
    with loaded(data, None, num_workers=0) as loader:
        want = [int(sample["y"]) for sample in loader]
    assert [int(packed[i]["y.cls"]) for i in range(len(packed))] == want

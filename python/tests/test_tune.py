"""stoker.benchmark and stoker.tune: figures of loaders whose cost is known, choices, the playbook."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import engines, wait_until

import stoker
from stoker._benchmark import cpu_seconds


class Slow:
    """A loader whose batches take so many seconds each, the first of an epoch more."""

    def __init__(self, seconds: float, length: int, first: float = 0.0, size: int = 4) -> None:
        self.seconds, self.length, self.first, self.size = seconds, length, first, size

    def __iter__(self) -> Iterator[tuple[np.ndarray[Any, Any], list[int]]]:
        time.sleep(self.first)
        for i in range(self.length):
            time.sleep(self.seconds)
            yield np.zeros((self.size, 3)), [i] * self.size


class Samples(torch.utils.data.Dataset[Any]):
    """A map-style dataset of torch's; its samples take no time."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), i), i


def test_a_known_cost_is_measured() -> None:
    found = stoker.benchmark(Slow(0.01, 10**6, first=0.2), seconds=1.0)
    # Sleeping takes at least as long as it is told; on a busy machine longer.
    assert 10 < found.batches_per_second <= 100.5
    assert found.samples_per_second == pytest.approx(4 * found.batches_per_second)
    assert found.first_batch >= 0.21
    assert found.wait_share > 0.8
    assert found.basis == "steady"
    assert found.samples == 4 * found.batches
    assert found.as_dict()["first_batches"] == [found.first_batch]
    for text in ("samples/s", "first batch", "cores busy"):
        assert text in repr(found)


def test_a_step_is_no_waiting() -> None:
    found = stoker.benchmark(Slow(0.002, 10**6), seconds=0.6, step=0.02)
    assert found.wait_share < 0.5
    assert found.step >= 0.02
    assert found.batches_per_second <= 1 / 0.022 + 1
    seen: list[Any] = []
    stoker.benchmark(Slow(0.002, 10**6), seconds=0.1, step=seen.append)
    assert seen[0][0].shape == (4, 3)


def test_short_epochs_count_whole() -> None:
    found = stoker.benchmark(Slow(0.001, 2, first=0.05), seconds=0.5)
    assert found.basis == "epochs"
    assert found.batches_per_second <= 2 / 0.052 + 1  # the start of an epoch is most of it
    assert len(found.first_batches) > 2
    assert "over whole epochs" in repr(found)


def test_what_can_be_taken_once_is_taken_once() -> None:
    found = stoker.benchmark(iter(Slow(0.001, 20)), seconds=30)
    assert found.batches == 20
    with pytest.raises(stoker.ConfigError, match="gave no batch"):
        stoker.benchmark([])
    with pytest.raises(stoker.ConfigError, match="3 problems"):
        stoker.benchmark(5, seconds=0, step=-1)


@pytest.mark.parametrize("path", ["photos", b"photos", Path("photos")])
def test_a_path_is_no_loader(path: Any) -> None:
    with pytest.raises(stoker.ConfigError, match=f"loader is of type {type(path).__name__}") as caught:
        stoker.benchmark(path)
    assert "stoker.DataLoader(stoker.ImageFolder(" in str(caught.value)
    with pytest.raises(stoker.ConfigError, match=f"dataset is of type {type(path).__name__}") as caught:
        stoker.profile(path)
    assert "give a dataset" in str(caught.value)


def test_processor_time_is_that_of_children_too(folder: Path) -> None:
    before = cpu_seconds()
    pid = os.fork()
    if pid == 0:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        os._exit(0)
    os.waitpid(pid, 0)
    assert cpu_seconds() - before >= 0.25
    closed = []

    def make() -> stoker.DataLoader:
        loader = stoker.DataLoader(stoker.ImageFolder(folder), batch_size=5, shuffle=True, output="numpy")
        closed.append(loader)
        return loader

    found = stoker.benchmark(make, seconds=0.5)
    assert found.cores_busy > 0
    assert found.samples_per_second > 0
    wait_until(lambda: not engines(), "what the function made was not closed")


def test_of_torchs_loader() -> None:
    found = stoker.benchmark(torch.utils.data.DataLoader(Samples(), batch_size=10, num_workers=2), seconds=0.5)
    assert found.samples_per_second == pytest.approx(10 * found.batches_per_second)


def test_tune_of_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = []

    def make(**settings: Any) -> torch.utils.data.DataLoader[Any]:
        made.append(settings)
        return torch.utils.data.DataLoader(Samples(), batch_size=10, **settings)

    book = tmp_path / "book.yaml"
    keywords: dict[str, Any] = {"workers": [1], "prefetch": [2, 4], "budget": 2, "playbook": str(book)}
    tuned = stoker.tune(make, plot=str(tmp_path / "plot"), **keywords)
    assert tuned.settings in ({"num_workers": 1, "prefetch_factor": 2}, {"num_workers": 1, "prefetch_factor": 4})
    assert set(map(str, made)) >= {str({"num_workers": 1, "prefetch_factor": 2})}
    said = capsys.readouterr().out
    assert said == str(tuned)
    assert "use num_workers=" in said
    assert repr(tuned).startswith("Tuning(num_workers=")
    assert tuned.report["loader"] == "torch"
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert "samples_per_second" in book.read_text()
    assert "before" not in tuned.report
    again = stoker.tune(make, plot=None, quiet=True, name=tuned.report["name"], **keywords)
    assert again.report["before"]
    assert all(change["term"] in ("settings", "figures") for change in again.report.get("changes", []))
    assert capsys.readouterr().out == ""


def test_tune_of_stoker_and_its_playbook(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    data = stoker.ImageFolder(folder)
    book = str(tmp_path / "book.yaml")
    with pytest.raises(stoker.ConfigError, match="does not exist") as caught:
        stoker.DataLoader(data, tune=book)
    assert "stoker tune" in str(caught.value)
    tuned = stoker.tune(
        lambda num_workers, prefetch: stoker.DataLoader(data, 5, num_workers=num_workers, prefetch=prefetch),
        workers=[2],  # of several, none may be recommended beside other work
        prefetch=[2, 3],
        budget=4,
        playbook=book,
        plot=None,
        quiet=True,
    )
    assert set(tuned.settings) == {"num_workers", "prefetch"}
    loader = stoker.DataLoader(data, 5, tune=book)
    assert loader.num_workers == tuned.settings["num_workers"]
    assert loader._settings.prefetch == tuned.settings["prefetch"]
    assert sum(len(labels) for _, labels in loader) == 50
    assert "as measured on" in capfd.readouterr().err
    workers, prefetch = tuned.settings["num_workers"], tuned.settings["prefetch"]
    mine = stoker.DataLoader(data, 5, num_workers=3, prefetch=7, tune=book)
    assert (mine.num_workers, mine._settings.prefetch) == (3, 7)  # what is said here wins
    said = capfd.readouterr().err
    assert "nothing is taken" in said
    assert "num_workers=3, prefetch=7 are your own" in said
    half = stoker.DataLoader(data, 5, num_workers=3, tune=book)
    assert (half.num_workers, half._settings.prefetch) == (3, prefetch)
    said = capfd.readouterr().err
    assert f"prefetch={prefetch} is taken from what was measured on" in said
    assert f"with num_workers={workers}, prefetch={prefetch} and batches of 5; num_workers=3 is your own" in said
    np.save(tmp_path / "other.npy", np.zeros((9, 2), np.float32))
    other = stoker.DataLoader(stoker.NpyDataset(tmp_path / "other.npy"), 5, tune=book)
    assert other._settings.workers is None
    assert f"no entry for this dataset, only for {folder}: the defaults" in caplog.text
    text = Path(book).read_text()
    machine = text.split('machine: "')[1].split('"')[0]
    Path(book).write_text(text.replace(machine, "0123").replace("memory_gib: ", "memory_gib: 9"))
    stoker.DataLoader(data, 5, tune=book)
    assert "has an entry for another machine (memory in GiB 9" in caplog.text
    caplog.clear()
    Path(book).write_text(text.replace(machine, "0123"))
    stoker.DataLoader(data, 5, tune=book)
    assert "has an entry for another machine: the defaults are used" in caplog.text
    Path(book).write_text(text.replace("prefetch:", "prefetchh:"))
    with pytest.raises(stoker.ConfigError, match=r"is (no|not a) playbook") as caught:
        stoker.DataLoader(data, tune=book)
    assert "prefetchh" in str(caught.value)
    with pytest.raises(stoker.ConfigError, match="tune is"):
        stoker.DataLoader(data, tune="fast")


def test_beside_other_work_nothing_is_recommended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever goes on beside: settings and playbook, or a doubt and neither. Rates that are chance are the latter."""
    rates = iter(np.random.default_rng(1).uniform(300, 400, 10**6).tolist())

    def measured(*_: Any, **__: Any) -> dict[str, float]:
        rate = next(rates)
        figures = dict.fromkeys(("samples_per_second", "batches_per_second"), rate)
        return {**figures, "cores_busy": 1.0, "first_batch_s": 0.1, "spread": 0.5}

    monkeypatch.setattr(stoker._tune._Maker, "measure", measured)
    book = tmp_path / "book.yaml"
    tuned = stoker.tune(
        lambda **settings: torch.utils.data.DataLoader(Samples(), batch_size=10, **settings),
        workers=[1, 2, 3, 4],
        prefetch=[2],
        budget=60,
        playbook=str(book),
        plot=None,
    )
    assert tuned.report["doubt"]
    assert tuned.settings == {}
    assert not book.exists()
    said = capsys.readouterr().out
    assert f"no recommendation: {tuned.report['doubt']}" in said
    assert "use num_workers" not in said
    torch.utils.data.DataLoader(Samples(), batch_size=10, **tuned.settings)


def test_what_changed_since_the_playbook(folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copy = tmp_path / "photos"
    shutil.copytree(folder, copy)
    book = tmp_path / "book.yaml"

    def said(root: Path) -> str:
        caplog.clear()
        assert stoker.DataLoader(stoker.ImageFolder(root), 5, tune=str(book))._settings.workers is None
        return caplog.text

    stoker.tune(
        lambda num_workers, prefetch: stoker.DataLoader(
            stoker.ImageFolder(copy), 5, num_workers=num_workers, prefetch=prefetch
        ),
        workers=[1],
        prefetch=[2],
        budget=1,
        playbook=str(book),
        plot=None,
        quiet=True,
    )
    text = book.read_text()
    assert "samples: 50\n" in text
    digest = text.split('dataset: "')[1][:8]
    one = next(copy.rglob("*.jpg"))
    shutil.copy(one, one.with_name("another.jpg"))
    found = said(copy)
    assert f"no entry for this dataset as it is now, only for {copy} as it was on" in found
    assert f"(digest {digest} -> " in found
    assert ", samples 50 -> 51): the defaults" in found
    book.write_text(text.replace("    samples: 50\n", ""))  # as written before samples were
    assert "samples" not in said(copy)
    book.write_text(text)
    moved = tmp_path / "elsewhere" / "photos"
    shutil.copytree(copy, moved)
    found = said(moved)
    assert "no entry for this dataset; the nearest (digest" in found
    assert f"name {copy} -> {moved}" in found


def test_tune_says_what_is_wrong(tmp_path: Path) -> None:
    keep: dict[str, Any] = {"playbook": None, "plot": None, "quiet": True}
    for wrong, text in (
        ({"make_loader": 5}, "give a function"),
        ({"make_loader": lambda: 5}, "num_workers"),
        ({"make_loader": lambda **s: [s], "workers": "12"}, "workers is"),
        ({"make_loader": lambda **s: [s], "budget": 0}, "budget is"),
        ({"make_loader": lambda **s: [s], "workers": [-1]}, "workers to try is -1"),
    ):
        with pytest.raises(stoker.ConfigError, match=text):
            stoker.tune(**{**keep, **wrong})

    def fails(num_workers: int) -> Any:
        raise RuntimeError("my bug")

    with pytest.raises(RuntimeError, match="my bug"):
        stoker.tune(fails, **keep)

    def fails_with_two(num_workers: int) -> Slow:
        if num_workers == 2:
            raise MemoryError("/dev/shm is full")
        return Slow(0.002, 50)

    tuned = stoker.tune(fails_with_two, workers=[1, 2], budget=3, **keep)
    assert tuned.settings == {"num_workers": 1}
    assert "MemoryError: /dev/shm is full" in str(tuned)

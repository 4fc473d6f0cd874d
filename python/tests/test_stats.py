"""What ``loader.stats()`` tells, and the lines of logging."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import TOP, engine, wait_until
from PIL import Image

import stoker
from stoker import _gpu, _iterate, _loader, _stats
from stoker import transforms as T
from stoker._datasets import make_kind

CHAIN = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)])
STAGE_KEYS = "name busy_s blocked_in_s blocked_out_s cpu_s items bytes p50_s p99_s queue queue_mean queues".split()
GUIDE = (TOP / "docs" / "guides" / "statistics.md").read_text()


def loader_of(folder: Path, **keywords: Any) -> stoker.DataLoader:
    return stoker.DataLoader(stoker.ImageFolder(folder, CHAIN), 8, True, num_workers=2, **keywords)


def keys(told: dict[str, Any]) -> set[str]:
    """Every key there is, at any depth."""
    found = set(told)
    for value in told.values():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                found |= keys(each)
    return found


def test_a_closed_loader_tells_what_it_counted(folder: Path) -> None:
    loader = loader_of(folder)
    for _batch in loader:
        pass
    # Four batches of the next epoch are made ahead.
    wait_until(lambda: loader.stats()["decode"]["items"] == 50 + 4 * 8, "what is made ahead is not made")
    open_ = loader.stats()
    loader.close()
    loader.close()
    told = loader.stats()
    assert loader._remote is not None
    assert not loader._remote.open  # asking does not begin another engine
    assert (open_["open"], told["open"]) == (True, False)
    for where in (told, told["client"]):
        assert (where["samples"], where["batches"], where["passes"]) == (50, 7, 1)
    assert {name: told[name]["items"] for name in ("read", "decode", "wait")} == {
        name: open_[name]["items"] for name in ("read", "decode", "wait")
    }
    assert told["client"]["p99_s"] > 0
    told["read"]["items"] = -1
    assert loader.stats()["read"]["items"] > 0
    for _batch in loader:
        pass
    assert loader.stats()["client"]["batches"] == 14
    loader.close()


def test_everything_is_told(folder: Path) -> None:
    with loader_of(folder, cache="1MiB") as loader:
        for _ in range(2):
            for _batch in loader:
                pass
        told = loader.stats()
    for name in ("plan", "read", "decode", "batch", "deliver", "wait"):
        assert list(told[name]) == STAGE_KEYS
        assert told[name]["name"] == name
    names = "RandomResizedCrop RandomHorizontalFlip ToTensor Normalize"
    assert [stage["name"] for stage in told["transforms"]] == names.split()
    assert told["samples"] == told["client"]["samples"] == 100
    assert told["batches"] == told["client"]["batches"] == told["wait"]["items"] == 14
    assert told["passes"] == told["client"]["passes"] == 2
    assert told["decode"]["items"] >= 100
    assert all(stage["items"] == told["decode"]["items"] for stage in told["transforms"])
    assert told["decode"]["busy_s"] > 0
    assert told["decode"]["cpu_s"] > 0
    assert 0 <= told["client"]["wait_share"] <= 1
    assert told["rates"]["wait_share"] == pytest.approx(told["client"]["wait_share"])
    assert told["rates"]["samples_per_s"] > 0
    assert told["rates"]["limiting"] in ["training loop", "plan", "read", "decode", "batch", "deliver", *names.split()]
    assert told["client"]["first_batch_s"] > 0
    assert told["client"]["p99_s"] >= told["client"]["p50_s"] > 0
    assert told["client"]["blocked_in_s"] + told["client"]["busy_s"] > 0


def test_the_guide_lists_every_key(folder: Path) -> None:
    with loader_of(folder, cache="1MiB") as loader:
        list(loader)
        told = loader.stats()
    told["gpu"] = {"utilization": 0.5, "utilization_mean": 0.5}
    missing = {key for key in keys(told) if f"`{key}`" not in GUIDE}
    assert not missing


def test_the_time_between_batches_is_the_loops(folder: Path) -> None:
    with loader_of(folder) as loader:
        for _batch in loader:
            time.sleep(0.02)
        client = loader.stats()["client"]
    assert client["blocked_out_s"] >= 6 * 0.02  # between seven batches, whatever else the machine does


def test_the_first_batch_counts_from_the_call_of_iter(
    folder: Path, listening: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening the loader and importing torch are waited for, though no ``next`` is called yet."""
    torch = sys.modules["torch"]

    def importing(*said: Any) -> Any:
        time.sleep(0.3)
        sys.modules["torch"] = torch
        return make_kind(*said)

    with loader_of(folder, output="torch") as loader:
        with monkeypatch.context() as script:
            script.delitem(sys.modules, "torch")
            script.setattr(_loader, "make_kind", importing)
            begin = time.monotonic()
            stream = iter(loader)
            entered = time.monotonic()
            next(stream)
            over = time.monotonic()
            time.sleep(0.1)
            list(stream)
        first = loader.stats()["client"]
        list(loader)
        second = loader.stats()["client"]
    assert 0.3 <= first["import_s"] <= entered - begin
    assert first["import_s"] < first["first_batch_s"] <= over - begin
    assert first["busy_s"] > first["import_s"]
    waited = first["busy_s"] + first["blocked_in_s"]
    assert waited > 0.3
    assert first["wait_share"] == pytest.approx(waited / (waited + first["blocked_out_s"]))
    assert second["import_s"] == first["import_s"]
    assert second["first_batch_mean_s"] == pytest.approx((first["first_batch_s"] + second["first_batch_s"]) / 2)
    one, two = lines(listening)
    assert f"first batch after {first['first_batch_s']:.2f} s ({first['import_s']:.2f} s of it an import)" in one
    assert "import" not in two


def test_what_was_read_is_what_the_files_have(folder: Path) -> None:
    stored = sum(path.stat().st_size for path in folder.rglob("*.jpg"))

    def read_by_engine() -> int:
        lines = Path(f"/proc/{engine()}/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["rchar"])

    # A sampler is iterated, and nothing is read after its end.
    with stoker.DataLoader(stoker.ImageFolder(folder, CHAIN), 10, sampler=[i % 50 for i in range(1000)]) as loader:
        loader.stats()
        before = read_by_engine()
        assert sum(1 for _ in loader) == 100
        after = read_by_engine()
        told = loader.stats()
    assert told["read"]["bytes"] == 20 * stored
    assert told["read"]["items"] == 1000
    # The kernel counts what an engine reads of /proc and of its eventfd besides.
    assert 20 * stored <= after - before <= 20 * stored + (2 << 20)


def test_stats_survive_the_engines_death(folder: Path) -> None:
    with loader_of(folder) as loader:
        iterator = iter(loader)
        next(iterator)
        os.kill(engine(), 9)
        left = sum(1 for _ in iterator)
        told = loader.stats()
    assert left == 6
    assert told["client"]["batches"] == 7
    assert told["batches"] == 6  # the engine's numbers are those of the one that runs


# Lines.


@pytest.fixture
def listening(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="stoker")
    return caplog


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "samples/s" in record.getMessage()]


LINE = re.compile(
    r"epoch (\d+)( ended)?: [\d,]+ samples/s, wait \d+ %, limited by [\w ]+, queue \d+\.\d, "
    r"first batch after \d+\.\d\d s(, GPU \d+ %)?"
)


def test_a_line_at_the_end_of_each_epoch(folder: Path, listening: pytest.LogCaptureFixture) -> None:
    with loader_of(folder) as loader:
        for _ in range(2):
            list(loader)
        iterator = iter(loader)
        next(iterator)
    found = [LINE.fullmatch(line) for line in lines(listening)]
    assert [line and line.groups()[:2] for line in found] == [("0", " ended"), ("1", " ended")]


def test_jpegs_of_other_decoders(tmp_path: Path, listening: pytest.LogCaptureFixture) -> None:
    """They are counted, and the line speaks of them where they are more than a few."""
    picture = Image.radial_gradient("L").convert("RGB")
    for progressive in (False, True):
        root = tmp_path / str(progressive)
        (root / "a").mkdir(parents=True)
        for number in range(100):  # a lane keeps 16 for itself at most
            picture.save(root / "a" / f"{number:02}.jpg", progressive=progressive and number % 2 == 0)
        listening.clear()
        with stoker.DataLoader(stoker.ImageFolder(root, CHAIN), 5, num_workers=2) as loader:
            list(loader)
            jpeg = loader.stats()["jpeg"]
        assert jpeg["own"] > 0
        assert (jpeg["libjpeg"] + jpeg["go"] > 0) == progressive
        [line] = lines(listening)
        assert (" % of JPEGs by " in line) == progressive, line


def test_a_line_a_minute(folder: Path, listening: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stats, "LINE_NS", 0)
    monkeypatch.setattr(_iterate, "FLUSH_NS", 0)
    with loader_of(folder) as loader:
        list(loader)
    found = [LINE.fullmatch(line) for line in lines(listening)]
    assert all(found)
    assert [line[2] for line in found if line] == [None] * 7 + [" ended"]


def test_nobody_listens_and_nothing_is_asked(
    folder: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, logger="stoker")
    monkeypatch.setattr(stoker._client.Loader, "stats", lambda *_: pytest.fail("the engine was asked"))
    with loader_of(folder) as loader:
        list(loader)
    assert "samples/s" not in caplog.text + capsys.readouterr().err


# The GPU.

FAKE = """
#include <string.h>
static int sought = -1;
int nvmlInit_v2(void) { return INIT; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { sought = (int)i; *d = &sought; return i < 4 ? 0 : 2; }
int nvmlDeviceGetHandleByUUID(const char *u, void **d) { sought = 50; *d = &sought; return strcmp(u, "GPU-a"); }
int nvmlDeviceGetUtilizationRates(void *d, unsigned *u) { u[0] = 40 + *(int *)d; u[1] = 7; return RATES; }
"""


def fake(path: Path, init: int = 0, rates: int = 0) -> str:
    source, library = path / "nvml.c", path / f"libnvml{init}{rates}.so"
    source.write_text(FAKE)
    flags = [f"-DINIT={init}", f"-DRATES={rates}", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(["gcc", *flags], check=True)
    return str(library)


@pytest.mark.parametrize(
    ("shown", "rank", "want"),
    [
        ("", "", 0.40),
        ("", "3", 0.43),
        ("2,1", "1", 0.41),
        ("GPU-a", "", 0.90),
        ("1", "7", 0.41),  # fewer are shown than there are ranks: the last
        ("", "9", None),  # no such device
        ("GPU-b", "", None),
    ],
)
def test_the_utilisation_of_this_processs_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str, rank: str, want: float | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    monkeypatch.setenv("LOCAL_RANK", rank)
    found = _gpu.find(fake(tmp_path))
    assert (found.utilization() if found is not None else None) == want


def test_drivers_that_do_not_say(tmp_path: Path) -> None:
    assert _gpu.find(fake(tmp_path, init=1)) is None
    assert _gpu.find(str(tmp_path / "none.so")) is None
    assert _gpu.find("libc.so.6") is None  # a library without these functions
    silent = _gpu.find(fake(tmp_path, rates=3))
    assert silent is not None
    assert silent.utilization() is None


def test_the_gpu_in_stats_and_lines(
    folder: Path, tmp_path: Path, listening: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    monkeypatch.setattr(_stats, "_gpu_watch", _gpu.Watch(fake(tmp_path)))
    with loader_of(folder) as loader:
        list(loader)
        assert loader.stats()["gpu"] == {"utilization": 0.42, "utilization_mean": pytest.approx(0.42)}
        assert lines(listening)[0].endswith(", GPU 42 %")
        monkeypatch.setattr(_stats, "_gpu_watch", _gpu.Watch(str(tmp_path / "none.so")))
        assert loader.stats()["gpu"] is None

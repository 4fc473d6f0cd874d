"""How much of a step the loader's own work takes on the device: in ``stats()``, in the log, on the page, and as a
verdict of the doctor."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slow_device
from forms import long

import stoker
from stoker import _cuda, _device, _page, _process
from stoker import transforms as T

ROWS, SIDE, BATCH = 96, 128, 8
SIZE = BATCH * SIDE * SIDE * 3  # bytes of a batch of pictures
TRIES = 10  # where a share depends on how busy the machine is
Give = Callable[..., slow_device.Device]


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Puts a slow device in the place of CUDA."""

    def given(rate: float, compute: float = 0.0) -> slow_device.Device:
        for owner, name in ((_cuda, "lacking"), (_cuda, "current"), (_cuda, "another_ranks"), (_cuda, "Port")):
            monkeypatch.setattr(owner, name, getattr(owner, name))
        monkeypatch.setattr(_device, "_devices", {})
        device = slow_device.Device(rate, compute)
        slow_device.install(device)
        return device

    return given


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("slow")
    np.save(
        root / "x.npy", np.arange(ROWS * SIDE * SIDE * 3, dtype=np.uint32).astype(np.uint8).reshape(ROWS, SIDE, SIDE, 3)
    )
    return root


def loader_of(root: Path, *transform: Any) -> stoker.DataLoader[Any]:
    field = stoker.Field("x", transform=list(transform)) if transform else "x"
    dataset = stoker.NpyDataset(x=str(root / "x.npy"), fields=[field]).to_tuple("x")
    return stoker.DataLoader(dataset, BATCH, device="cuda", seed=1)


def stages(told: Any) -> dict[str, Any]:
    return {one["name"]: one for one in told["stages"]}


def of_page() -> dict[str, Any]:
    """The stages of the device of the loader that was opened last, as another process reads them."""
    page = _page.current()
    assert page is not None
    loaders = [x for x in _page.read(page.words, time.monotonic_ns())["loaders"] if "device" in x]
    last = max(loaders, key=lambda x: x["opened_s"])
    return {**{one["name"]: one for one in last["device"]}, "wait": last["wait"]}


def test_a_device_that_copies_for_longer_than_a_step(
    give: Give, arrays: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = give(SIZE / 0.030)
    caplog.set_level(logging.INFO, logger="stoker")
    for _ in range(TRIES):
        caplog.clear()
        with loader_of(arrays) as loader:
            for _ in range(2):
                for _ in loader:
                    device.step(0.010)
            _device.settle()
            told = loader.stats()
            there, page = told["device"], of_page()
        copies = stages(there)["copies"]
        if copies["queue_mean"] > 0.5:
            break
    assert there["copies"] == copies["items"] >= 12  # some are of two batches
    assert 24 * SIZE <= copies["bytes"] == there["bytes"] < 24 * (SIZE + 1000)  # with "valid"
    assert copies["busy_s"] == there["busy_s"] == pytest.approx(24 * 0.030, rel=0.3)
    assert 0.5 < there["busy_share"] < 1.2
    assert 0.1 < there["waited_share"] < 0.9
    assert copies["queue_mean"] > 0.5
    assert (there["transforms"], there["decoded"], there["decode_busy_s"]) == (0, 0, 0)
    assert told["rates"]["limiting"] in ("device", "plan", "read", "decode", "batch", "deliver")
    if told["client"]["wait_share"] < 0.05:
        assert told["rates"]["limiting"] == "device"
    # The page has what had ended by the last batch.
    assert there["copies"] - 3 <= page["copies"]["items"] <= there["copies"]
    assert page["copies"]["busy_s"] == pytest.approx(page["copies"]["bytes"] * 0.030 / SIZE, rel=0.3)
    assert page["copies"]["waited_s"] > 0
    assert page["copies"]["p50_s"] > 0.025
    assert page["wait"]["queues"] >= 24
    [line, _] = [r.getMessage() for r in caplog.records if "samples/s" in r.getMessage()]
    found = re.search(
        r", (\d+) MB to cuda:0 at 0\.0 GB/s, \d\.\d batches ahead there, loading took (\d+) % of its time, "
        r"for which the loop waited (\d+) %",
        line,
    )
    assert found, line
    assert int(found[2]) > 50


def test_a_device_that_is_done_in_time(give: Give, arrays: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = give(SIZE / 0.001)
    caplog.set_level(logging.INFO, logger="stoker")
    with loader_of(arrays) as loader:
        for _ in loader:
            device.step(0.020)
        told = loader.stats()
    assert told["device"]["busy_share"] < 0.2
    assert told["device"]["waited_share"] < 0.1
    assert told["device"]["ahead_mean"] > 1
    assert told["rates"]["limiting"] != "device"
    [line] = [r.getMessage() for r in caplog.records if "samples/s" in r.getMessage()]
    assert "limited by device" not in line


def test_what_is_made_there_is_told_from_copies(give: Give, arrays: Path) -> None:
    device = give(SIZE / 0.002, compute=0.020)
    with loader_of(arrays, T.ToTensor(), T.Normalize([0.5] * 3, [0.25] * 3)) as loader:
        for _ in loader:
            device.step(0.005)
        there, page = loader.stats()["device"], of_page()
    found = stages(there)
    assert found["transforms"]["items"] == there["transforms"] >= 4
    assert 4 * SIZE * there["transforms"] <= found["transforms"]["bytes"] <= 12 * 4 * SIZE  # float32
    assert found["transforms"]["busy_s"] > 3 * found["copies"]["busy_s"]
    assert found["transforms"]["waited_s"] > found["copies"]["waited_s"]
    assert there["busy_share"] > 0.5
    assert page["transforms"]["busy_s"] > 3 * page["copies"]["busy_s"]


def test_functions_of_the_batch_are_the_loaders_work(give: Give, arrays: Path) -> None:
    """They run on the loop's stream, which is kept from the model for as long."""
    device = give(SIZE / 0.001)

    def slowly(batch: Any) -> Any:
        device.step(0.010)
        return batch

    dataset = stoker.NpyDataset(x=str(arrays / "x.npy")).to_tuple("x")
    for _ in range(TRIES):
        with stoker.DataLoader(dataset, BATCH, device="cuda", seed=1, batch_transform=slowly) as loader:
            for _ in loader:
                device.step(0.002)
            _device.settle()
            told = loader.stats()
            found = stages(told["device"])["transforms"]
        if told["device"]["waited_share"] > 0.4:
            break
    assert found["items"] == 12
    assert found["busy_s"] == found["waited_s"] == pytest.approx(12 * 0.010, rel=0.5)
    assert told["device"]["waited_share"] > 0.4


def test_the_doctor_that_is_called_says_so(give: Give, arrays: Path) -> None:
    device = give(SIZE / 0.060)
    dataset = stoker.NpyDataset(x=str(arrays / "x.npy")).to_tuple("x")
    order = [i % ROWS for i in range(9999)]
    for _ in range(TRIES):
        with stoker.DataLoader(dataset, BATCH, device="cuda", seed=1, sampler=order) as loader:
            found = stoker.doctor(loader, lambda batch: device.step(0.030), seconds=4)
        if found.verdict == "copies to the device" and 1.4 < (found.speedup or 0) < 2.6:
            break
    assert found.verdict == "copies to the device"
    assert found.speedup is not None
    assert 1.4 < found.speedup < 2.6  # a step is half of what the device needs


SCRIPT = """
    import sys
    sys.path.insert(0, {tests!r})
    import numpy, stoker, slow_device
    from stoker import transforms as T
    device = slow_device.Device({rate}, {compute})
    slow_device.install(device)
    dataset = stoker.NpyDataset(x={array!r}, fields=[stoker.Field("x", transform={transform})]).to_tuple("x")
    loader = stoker.DataLoader(dataset, {batch}, device="cuda", seed=1, sampler=[i % {rows} for i in range(99999)])
    for batch in loader:
        device.step({step})
"""


@long
@pytest.mark.parametrize(
    ("rate", "compute", "step", "transform", "change"),
    [
        (SIZE / 0.060, 0.0, 0.030, "[]", "T.ToDtype(torch.bfloat16"),
        (SIZE / 0.004, 0.060, 0.030, "[T.ToTensor()]", "stoker.ImageFolder(root, transform=[...])"),
    ],
)
def test_the_doctor_says_so(
    tmp_path: Path, arrays: Path, rate: float, compute: float, step: float, transform: str, change: str
) -> None:
    text = SCRIPT.format(
        tests=str(Path(__file__).parent),
        rate=rate,
        compute=compute,
        step=step,
        batch=BATCH,
        rows=ROWS,
        transform=transform,
        array=str(arrays / "x.npy"),
    )
    (tmp_path / "train.py").write_text(textwrap.dedent(text))
    command = [str(_process.find()), "doctor", "--json", "--stop", "--", sys.executable, "train.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    report = json.loads(done.stdout)
    verdict, (loop,) = report["verdict"], report["evidence"]["loops"]
    assert verdict["name"] == "copies to the device", done.stdout[:3000]
    assert verdict["loader"] == "train.py:9"
    assert verdict["changes"][0]["code"].find(change) >= 0
    busy = loop["device"]["copies_s"]["value"] + loop["device"]["transforms_s"]["value"]
    assert busy == pytest.approx(0.060, rel=0.4)
    assert 1.4 < verdict["speedup"] < 2.6  # a step is half of what the device needs

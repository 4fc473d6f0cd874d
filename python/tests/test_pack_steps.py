"""stoker.pack of what functions return: the same order, resumed after a stop, the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import steps
import torch
import webdataset as wds
from forms import mostly
from PIL import Image
from test_steps import SMALL

import stoker
from stoker._packsteps import Encode


@pytest.fixture
def train(folder: Path) -> Any:
    return stoker.ImageFolder(folder, SMALL)


def features(sample: Any, rng: Any) -> Any:
    return {
        "x": sample[0].float().mean((1, 2)),
        "label": sample[1],
        "text": f"class {sample[1]}",
        "noise": rng.random(3),
        "told": {"a": [1, 2.5]},
        "thumb": Image.fromarray(sample[0].permute(1, 2, 0).numpy()),
        "raw.bin": b"abc",
    }


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.tar"))}


def test_it_is_read_back(train: Any, tmp_path: Path) -> None:
    mapped = train.map(features)
    manifest = stoker.pack(mapped, tmp_path / "p", jobs=2)
    assert manifest["samples"] == 50
    assert json.loads((tmp_path / "p" / "manifest.json").read_text()) == manifest
    back = stoker.WebDataset(str(tmp_path / "p" / "*.tar")).decode("pil")
    assert len(back) == 50
    theirs = list(wds.WebDataset(str(tmp_path / "p" / "shard-000000.tar"), shardshuffle=False).decode("pil"))
    for i in (0, 17, 49):
        want, found = mapped[i], back[i]
        assert torch.allclose(found["x.npy"], want["x"])
        assert torch.allclose(torch.from_numpy(theirs[i]["x.npy"]), want["x"])
        assert np.array_equal(found["noise.npy"], want["noise"])
        assert (found["label.cls"], found["text"], found["told.json"]) == (
            want["label"],
            want["text"],
            want["told"],
        )
        assert found["raw.bin"] == b"abc"
        assert torch.equal(found["thumb.png"], train[i][0])
        assert found["__key__"] == f"{i:09d}"


def test_the_same_bytes_for_any_workers_and_after_a_stop(train: Any, tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    size = 8 << 10

    def slow(sample: Any, rng: Any) -> Any:
        if stop.exists() and sample[1] == 2:
            raise RuntimeError("stopped")
        return {"x": sample[0], "noise": rng.random(3)}

    big = train.map(slow)
    stoker.pack(big, tmp_path / "one", shard_size=size, jobs=1)
    want = digests(tmp_path / "one")
    assert len(want) > 3
    stop.touch()
    with pytest.raises(stoker.DataError, match="stopped"):
        stoker.pack(big, tmp_path / "two", shard_size=size, jobs=2)
    begun = digests(tmp_path / "two")
    assert begun.items() < want.items()
    assert begun
    assert not (tmp_path / "two" / "manifest.json").exists()
    first = (tmp_path / "two" / "shard-000000.tar").stat().st_mtime_ns
    stop.unlink()
    manifest = stoker.pack(big, tmp_path / "two", shard_size=size, jobs=2)
    assert digests(tmp_path / "two") == want
    assert (tmp_path / "two" / "shard-000000.tar").stat().st_mtime_ns == first
    assert not (tmp_path / "two" / "packing.json").exists()
    assert stoker.pack(big, tmp_path / "two", shard_size=size) == manifest  # nothing is left to do


def test_orders_filters_and_collections(train: Any, tmp_path: Path, shards: str) -> None:
    ones = train.filter(steps.second).map(steps.named).batch(4).shuffle(10)
    assert stoker.pack(ones, tmp_path / "ones", jobs=1)["samples"] == 17
    keys = [sample["label.cls"] for sample in stoker.WebDataset(str(tmp_path / "ones" / "*.tar")).decode()]
    assert keys == [1] * 17
    stoker.pack(train.map(steps.named), tmp_path / "a", jobs=0, shuffle=True, seed=4)
    stoker.pack(train.map(steps.named), tmp_path / "b", jobs=2, shuffle=True, seed=4)
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    tar = stoker.WebDataset(shards).shuffle(10).decode("pil").map(lambda s: {"n": s["json"]["number"]}).batched(4)
    stoker.pack(tar, tmp_path / "tar", jobs=1)
    back = stoker.WebDataset(str(tmp_path / "tar" / "*.tar")).decode()
    assert [back[i]["n.cls"] for i in range(30)] == list(range(30))
    split = stoker.ImageFolder(train.root, [*SMALL, steps.Mirror()])
    stoker.pack(split, tmp_path / "split", jobs=1)
    assert set(stoker.WebDataset(str(tmp_path / "split" / "*.tar")).decode()[3]) >= {"image.npy", "label.cls"}

    class Mine:
        def __len__(self) -> int:
            return 5

        def __getitem__(self, i: int) -> Any:
            return np.full(3, i), i

    assert stoker.pack(Mine(), tmp_path / "mine", jobs=1)["samples"] == 5


def test_fields_that_would_have_one_name() -> None:
    with pytest.raises(ValueError, match=r"two fields would both be stored as 'a\.cls'"):
        Encode(())([{"a": 1, "a.cls": 2}])


def test_bad_samples_and_mistakes(train: Any, tmp_path: Path) -> None:
    with pytest.raises(stoker.DataError, match="two"):
        stoker.pack(train.map(steps.failing), tmp_path / "fail", jobs=1)
    left = stoker.pack(train.map(steps.failing), tmp_path / "skip", jobs=1, on_bad="skip")
    assert left["samples"] == 34
    with pytest.raises(stoker.ConfigError, match="something else: fields or functions"):
        stoker.pack(train.map(steps.named), tmp_path / "skip", jobs=1, on_bad="skip")
    stoker.pack(train.map(steps.named), tmp_path / "skip", jobs=1, overwrite=True)
    with pytest.raises(stoker.ConfigError, match="resize"):
        stoker.pack(train.map(steps.named), tmp_path / "x", resize=8, output="npy")
    with pytest.raises(stoker.StokerError, match="a shard cannot hold"):
        stoker.pack(train.map(lambda s: {"x": object()}), tmp_path / "y", jobs=1)


def test_what_only_stored_samples_have_is_refused(train: Any, tmp_path: Path) -> None:
    """And each says what to do; the advice works."""
    mapped = train.map(lambda sample: {"x": np.full(3, sample[1])})
    for keywords, advice in (
        ({"output": "tfrecord"}, r"stoker.pack\('DST/\*.tar', other, output="),
        ({"task": (0, 2)}, r"dataset.shard\(n, i\).map"),
        ({"compress": "gzip"}, r"stoker.pack\('DST/\*.tar', other, compress="),
    ):
        with pytest.raises(stoker.ConfigError, match=advice):
            stoker.pack(mapped, tmp_path / "no", **keywords)
    stoker.pack(mapped, tmp_path / "tar", jobs=0)
    stoker.pack(str(tmp_path / "tar" / "*.tar"), tmp_path / "tfrecord", output="tfrecord")
    assert len(stoker.TFRecordDataset(str(tmp_path / "tfrecord" / "*.tfrecord"))) == 50
    for i in range(2):
        stoker.pack(train.shard(2, i).map(lambda sample: {"y": sample[1]}), tmp_path / f"part{i}", jobs=0)
    parts = stoker.WebDataset(str(tmp_path / "part{0..1}" / "*.tar")).decode()
    assert sorted(sample["y.cls"] for sample in parts) == sorted(sample[1] for sample in train)


def test_a_packing_that_wrote_nothing_is_forgotten(train: Any, tmp_path: Path) -> None:
    with pytest.raises(stoker.DataError, match="two"):
        stoker.pack(train.map(steps.failing), tmp_path / "x", jobs=0)
    assert stoker.pack(train.map(steps.named), tmp_path / "x", jobs=0)["samples"] == 50


PACKS = """
import sys, time, stoker
class Numbers:
    def __len__(self):
        return 120
    def __getitem__(self, i, rng):
        time.sleep(float(sys.argv[2]))
        return {"x": rng.random(50), "i": i}
stoker.pack(Numbers(), sys.argv[1], shard_size=8192, jobs=2)
sys.exit("torch was imported" if "torch" in sys.modules else 0)
"""


@pytest.mark.parametrize("kills", mostly([[4], [1, 2, 4, 7]], [4]))
def test_the_same_bytes_after_kills(tmp_path: Path, kills: list[int]) -> None:
    """Killed after so many shards."""

    def begin(folder: Path, pause: float) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", PACKS, str(folder), str(pause)], stderr=subprocess.DEVNULL)

    assert begin(tmp_path / "one", 0).wait(60) == 0
    want = digests(tmp_path / "one")
    assert len(want) == 8
    two = tmp_path / "two"
    for shards in kills:
        with begin(two, 0.02) as process:
            while process.poll() is None and len(list(two.glob("*.tar"))) < shards:
                time.sleep(0.001)
            process.kill()
        assert digests(two).items() <= want.items()
        assert not (two / "manifest.json").exists()
    first = (two / "shard-000000.tar").stat().st_mtime_ns
    assert begin(two, 0).wait(60) == 0
    assert digests(two) == want
    assert (two / "shard-000000.tar").stat().st_mtime_ns == first
    assert sorted(os.listdir(two)) == sorted(os.listdir(tmp_path / "one"))

"""stoker.pack: the command as a function, over paths and datasets; its errors, its progress, and how it is stopped."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PHOTOS, TOP, make_folder, run_python, wait_until

import stoker
from stoker import transforms as T


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_folder_becomes_shards(folder: Path, tmp_path: Path) -> None:
    manifest = stoker.pack(folder, tmp_path / "packed", shard_size="20KiB")
    assert manifest == json.loads((tmp_path / "packed/manifest.json").read_text())
    assert manifest["samples"] == 50
    assert len(manifest["shards"]) > 2
    packed = stoker.WebDataset(str(tmp_path / "packed/shard-*.tar")).decode("pil").to_tuple("jpg", "cls")
    data = stoker.ImageFolder(folder)
    for i in (0, 24, 49):
        assert (packed[i][0] == data[i][0]).all()
        assert packed[i][1] == data[i][1]
    assert stoker.pack(str(folder), str(tmp_path / "packed"), shard_size="20KiB") == manifest
    stoker.pack(data, tmp_path / "again", shard_size=20 << 10)
    assert digests(tmp_path / "again") == digests(tmp_path / "packed")


def test_options_are_the_flags(folder: Path, tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "shuffle": True,
        "seed": 7,
        "compress": "zstd",
        "name": "train",
        "keys": "number",
        "resize": 32,
        "quality": 80,
        "augment": 2,
        "transform": T.Compose([T.RandomCrop(24), T.RandomHorizontalFlip()]),
        "fields": ["image", "label"],
        "jobs": 2,
    }
    manifest = stoker.pack(folder, tmp_path / "packed", **told)
    assert manifest["samples"] == 100
    (name,) = [path.name for path in (tmp_path / "packed").glob("*.tar*")]
    assert name == "train-000000.tar.zst"
    packed = stoker.WebDataset(tmp_path / "packed" / name).decode("pil").to_tuple("jpg", "cls", "__key__")
    assert tuple(packed[3][0].shape) == (3, 24, 24)
    assert packed[0][2][:9].isdigit()
    indexed = stoker.pack(folder, tmp_path / "indexed", jpeg="index")
    assert indexed["samples"] == 50


def test_arrays(tmp_path: Path, folder: Path) -> None:
    x, y = np.arange(600, dtype=np.float32).reshape(100, 6), np.arange(100)
    np.save(tmp_path / "a.npy", x)
    np.save(tmp_path / "b.npy", y)
    data = stoker.NpyDataset(x=tmp_path / "a.npy", y=tmp_path / "b.npy")
    stoker.pack(data, tmp_path / "packed", output="npy")
    found = {path.stem.partition("-")[0]: np.load(path) for path in (tmp_path / "packed").rglob("*.npy")}
    assert any((array == x).all() for array in found.values() if array.shape == x.shape)
    stoker.pack(stoker.ImageFolder(folder), tmp_path / "pixels", output="npy", decode=True, resize=16, crop=16)
    (pixels,) = [a for a in map(np.load, (tmp_path / "pixels").rglob("*.npy")) if a.ndim == 4]
    assert pixels.shape == (50, 16, 16, 3)


DATA = TOP / "testdata"
STREAMS = TOP / "internal/stage/format/mds/testdata"


@pytest.mark.parametrize(
    ("make", "samples"),
    [
        (lambda: stoker.MDSDataset((STREAMS if STREAMS.exists() else DATA / "mds") / "plain", ["text"]), 20),
        (lambda: stoker.ParquetDataset(DATA / "parquet/rows-zstd.parquet", ["text", "i64"]), 36),
        (lambda: stoker.TFRecordDataset(DATA / "tfrecord/pictures.tfrecord", ["text", "image/encoded"]), 12),
        (lambda: stoker.TokenDataset(DATA / "tokens/train.bin", documents=True, eos=50256), 5),
        (lambda: stoker.files(PHOTOS), 6),
    ],
)
def test_datasets_of_every_kind(make: Any, samples: int, tmp_path: Path) -> None:
    manifest = stoker.pack(make(), tmp_path / "packed")
    assert manifest["samples"] == samples
    with tarfile.open(next((tmp_path / "packed").glob("*.tar"))) as tar:
        names = tar.getnames()
    fields = {name.partition(".")[2] for name in names}
    assert len({name.partition(".")[0] for name in names}) == samples
    assert len(fields) == len(make().to_tuple().fields) or isinstance(make(), stoker.TokenDataset)


def test_tables_and_tokens(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("file,class\n" + "".join(f"{p.name},{'ab'[i % 2]}\n" for i, p in enumerate(PHOTOS)))
    data = stoker.Table(table, "file", "class", root=PHOTOS[0].parent)
    manifest = stoker.pack(data, tmp_path / "packed", resize=64)
    assert manifest["samples"] == len(PHOTOS)
    packed = stoker.WebDataset(str(tmp_path / "packed/*.tar")).decode("pil").to_tuple("jpg", "cls")
    assert [packed[i][1] for i in range(len(PHOTOS))] == [i % 2 for i in range(len(PHOTOS))]
    text = tmp_path / "corpus.jsonl"
    text.write_text("".join(json.dumps({"text": f"sample {i} of many"}) + "\n" for i in range(20)))
    stoker.pack(text, tmp_path / "tokens", tokenize="gpt2")
    found = stoker.TokenDataset(tmp_path / "tokens", documents=True)
    assert len(found) == 20


def test_an_estimate_writes_nothing(folder: Path, tmp_path: Path) -> None:
    found = stoker.pack(folder, tmp_path / "packed", dry_run=True, jpeg="index")
    assert found["samples"] == 50
    assert found["bytes"] > 10_000
    assert not (tmp_path / "packed").exists()


def test_tasks_are_joined(folder: Path, tmp_path: Path) -> None:
    whole = stoker.pack(folder, tmp_path / "whole", shard_size="20KiB")
    made = 0
    for task in ((0, 2), "1/2"):
        report = stoker.pack(folder, tmp_path / "parts", shard_size="20KiB", task=task)
        assert set(report) == {"shards", "made"}
        made += report["made"]
    assert made == len(whole["shards"])
    assert stoker.pack(None, tmp_path / "parts", finish=True) == whole
    assert digests(tmp_path / "parts") == digests(tmp_path / "whole")


def test_progress_is_told(folder: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int, int]] = []
    manifest = stoker.pack(folder, tmp_path / "packed", progress=lambda *at: told.append(at))
    assert told[-1][:2] == (50, 50)
    assert told == sorted(told)
    assert 0 < told[-1][2] <= manifest["bytes"] + 1 << 20


@pytest.mark.parametrize(
    ("keywords", "kind", "words"),
    [
        ({"output": "zip"}, stoker.ConfigError, "zip"),
        ({"shard_size": "big"}, stoker.ConfigError, "big"),
        ({"shard_size": 1.5}, stoker.ConfigError, "shard_size is 1.5"),
        ({"seed": True}, stoker.ConfigError, "seed is True"),
        ({"task": (3, 2)}, stoker.ConfigError, "3/2"),
        ({"fields": ["imag"]}, stoker.StokerError, "imag"),
        ({"progress": 5}, stoker.ConfigError, "progress is of type int"),
        ({"finish": True}, stoker.ConfigError, "None"),
        ({"transform": lambda x: x}, stoker.ConfigError, "transform"),
    ],
)
def test_errors_are_those_of_the_engine(keywords: Any, kind: Any, words: str, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(kind) as caught:
        stoker.pack(folder, tmp_path / "packed", **keywords)
    assert words in str(caught.value)
    assert not list(tmp_path.glob("packed/*.tar"))


def test_sources_that_can_not_be_packed_are_said(folder: Path, tmp_path: Path) -> None:
    dst = tmp_path / "packed"
    with pytest.raises(stoker.ConfigError, match="nothing"):
        stoker.pack(folder / "nothing", dst)
    sources: list[Any] = [5, [], stoker.Synthetic(5), stoker.Mixture([stoker.ImageFolder(folder)])]
    for src in sources:
        with pytest.raises(stoker.ConfigError, match="pack:"):
            stoker.pack(src, dst)
    with pytest.raises(stoker.ConfigError, match="leave format out"):
        stoker.pack(stoker.ImageFolder(folder), dst, format="tar")
    stoker.pack(folder, dst)
    with pytest.raises(stoker.ConfigError, match="resize"):
        stoker.pack(folder, dst, resize=20)
    assert stoker.pack(folder, dst, resize=20, overwrite=True)["samples"] == 50


def test_damage_names_its_place(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "train", 9)
    cut = root / "class1" / "0004.jpg"
    cut.write_bytes(cut.read_bytes()[:300])
    with pytest.raises(stoker.DataError, match=r"0004\.jpg"):
        stoker.pack(root, tmp_path / "packed", resize=20)


def children() -> list[int]:
    """Processes of this one that pack."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(stat[1]) == os.getpid() and b"pack" in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_what_interrupts_it_ends_the_child_and_it_goes_on(folder: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"shard_size": "8KiB", "resize": 48, "augment": 3}
    whole = stoker.pack(folder, tmp_path / "whole", **options)
    for error in (KeyboardInterrupt, ZeroDivisionError):

        def stop(done: int, total: int, size: int, error: type[BaseException] = error) -> None:
            raise error

        with pytest.raises(error) as caught:
            stoker.pack(folder, tmp_path / "packed", **options, progress=stop)
        notes = getattr(caught.value, "__notes__", [])
        assert len(notes) == (error is KeyboardInterrupt and sys.version_info >= (3, 11))
        assert all(
            re.fullmatch(r"stoker.pack was stopped: .*the same call (continues|starts again).*", n) for n in notes
        )
        assert not children()
    assert stoker.pack(folder, tmp_path / "packed", **options) == whole
    assert digests(tmp_path / "packed") == digests(tmp_path / "whole")


def test_a_child_that_is_killed_is_said(folder: Path, tmp_path: Path) -> None:
    def kill(*at: int) -> None:
        for child in children():
            os.kill(child, signal.SIGKILL)

    with pytest.raises(stoker.EngineError, match="SIGKILL") as caught:
        stoker.pack(folder, tmp_path / "packed", resize=48, augment=50, progress=kill)
    assert "continues" in str(caught.value)
    assert stoker.pack(folder, tmp_path / "packed", resize=48, augment=50)["samples"] == 2500


def test_ctrl_c_at_the_terminal(folder: Path, tmp_path: Path) -> None:
    code = (
        "import stoker, sys\n"
        "try:\n"
        f"    stoker.pack({str(folder)!r}, {str(tmp_path / 'packed')!r}, augment=4000, resize=64,\n"
        "        progress=lambda *at: print('at', flush=True))\n"
        "except KeyboardInterrupt as error:\n"
        "    print(error, error.__notes__ if hasattr(error, '__notes__') else '', flush=True)\n"
        "    sys.exit(17)\n"
    )
    path = os.pathsep.join([str(Path(stoker.__file__).parents[1])])
    child = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"at\n"
        child.send_signal(signal.SIGINT)
        rest: list[bytes] = []
        read = child.stdout.read
        drain = threading.Thread(target=lambda: rest.append(read()))
        drain.start()
        begin = time.monotonic()
        assert child.wait(60) == 17
        drain.join()
        assert sys.version_info < (3, 11) or b"the same call " in rest[0].splitlines()[-1]
    assert time.monotonic() - begin < 30
    work = str(tmp_path / "packed").encode()
    wait_until(lambda: not packing(work), "it packs on")


def packing(work: bytes) -> bool:
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and work in (entry / "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def test_it_needs_the_standard_library_only(folder: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(Path(stoker.__file__).parents[1])!r}); import stoker\n"
        f"print(stoker.pack({str(folder)!r}, {str(tmp_path / 'packed')!r})['samples'])\n"
        "print(any(m in sys.modules for m in ('numpy', 'torch')))\n"
    )
    done = run_python(code, "-S", "-I")
    assert done.stdout.split() == ["50", "False"], done.stderr


def test_a_picture_that_cannot_be_read(own_folder: Path, tmp_path: Path) -> None:
    bad = own_folder / "class1" / "0004.jpg"
    bad.write_bytes(bad.read_bytes()[:900])
    with pytest.raises(stoker.DataError) as caught:
        stoker.pack(own_folder, tmp_path / "packed", resize=500)
    assert caught.value.where["file"] == str(bad)
    made = stoker.pack(own_folder, tmp_path / "packed", resize=500, on_bad="skip")
    assert made["samples"] == 49
    (left,) = [one for shard in made["shards"] for one in shard.get("bad", [])]
    assert left["file"] == "class1/0004.jpg"
    assert left["sample"] == caught.value.where["sample"]
    assert len(stoker.WebDataset(str(tmp_path / "packed"))) == 49

"""The lines that ``stoker inspect`` prints to paste: they run, and load every sample."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import PHOTOS, TOP
from forms import mostly

from stoker._process import find

DATA = TOP / "testdata"
FORMATS = TOP / "internal" / "stage" / "format"

CASES: dict[str, tuple[str, list[str]]] = {
    "npy": ("npy/images.npy npy/labels.npy", []),
    "npz": ("npy/packed.npz", []),
    "hdf5": ("hdf5/filters.h5.gz", ["--columns", "gzip,lzf_rows"]),
    "lmdb": ("lmdb/datum_raw.mdb.gz", ["--values", "datum"]),
    "tfrecord": ("tfrecord/pictures-00000-of-00002 tfrecord/pictures-00001-of-00002", []),
    "parquet": ("parquet/rows-zstd.parquet", []),
    "mds": ("mds/zstd", []),
    "beton": ("beton/raw.beton.gz", []),
    "beton pictures": ("beton/raw.beton.gz", ["--pictures"]),
    "tokens": ("tokens/train.bin", ["--window", "16", "--stride", "5", "--dtype", "uint16"]),
    "documents": ("tokens/train.bin", ["--documents", "--eos", "50256"]),
}


def stored(name: str, tmp: Path) -> str:
    """The path of a fixture, unpacked if it is kept as .gz."""
    kind, _, file = name.partition("/")
    path = next(p for p in (DATA / kind / file, FORMATS / kind / "testdata" / file) if p.exists())
    if path.suffix != ".gz":
        return str(path)
    out = tmp / path.stem
    out.write_bytes(gzip.decompress(path.read_bytes()))
    return str(out)


def inspected(*args: str) -> dict[str, Any]:
    done = subprocess.run([find(), "inspect", *args, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def pasted(report: dict[str, Any]) -> None:
    """Runs the lines, with a loop that counts."""
    lines = report["python"].replace("    ...\n", "    batches += 1\n")
    space: dict[str, Any] = {"batches": 0}
    exec(lines, space)  # they are what is tested
    with space["loader"] as loader:
        assert len(loader) == space["batches"]
        assert len(loader.dataset) == report["samples"]


@pytest.mark.parametrize("name", mostly(CASES, *list(CASES)[::2]))
def test_the_lines_run(name: str, tmp_path: Path) -> None:
    files, flags = CASES[name]
    report = inspected(*(stored(file, tmp_path) for file in files.split()), *flags)
    assert report["format"] in (name.split()[0], "npy", "tokens")
    pasted(report)


def test_the_lines_of_files_and_tables_run(tmp_path: Path) -> None:
    table = tmp_path / "train.csv"
    table.write_text("file,class,score\n" + "".join(f"{p.name},{i % 2},{i}.5\n" for i, p in enumerate(PHOTOS)))
    pasted(inspected(*map(str, PHOTOS), "--format", "files"))
    pasted(inspected(*map(str, PHOTOS), "--format", "files", "--label", "folder"))
    pasted(inspected(str(table), "--path-column", "file", "--root", str(PHOTOS[0].parent)))
    pasted(inspected(str(table)))


def test_data_after_the_last_block_are_not_damage(tmp_path: Path) -> None:
    """Training passes over them, and so do the figures; --all and verify count them apart."""
    (tmp_path / "data" / "a").mkdir(parents=True)
    whole = PHOTOS[0].read_bytes()
    (tmp_path / "data" / "a" / "whole.jpg").write_bytes(whole)
    (tmp_path / "data" / "a" / "longer.jpg").write_bytes(whole[:-2] + bytes(20) + whole[-2:])
    report = inspected(str(tmp_path / "data"), "--all")
    assert (report["checked"], report["damaged"], report["trailing"]) == (2, 0, 1)
    (said,) = report["trailing_samples"]
    assert said["where"]["file"].endswith("longer.jpg")
    assert "complete" in said["what"]
    for verb in ("inspect", "verify"):
        flags = ["--all"] if verb == "inspect" else []
        done = subprocess.run(
            [find(), verb, str(tmp_path / "data"), *flags], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "no damage found" in done.stdout
        assert "1 sample is complete, with data after the last block" in done.stdout
    (tmp_path / "data" / "a" / "cut.jpg").write_bytes(whole[: len(whole) // 2] + whole[-2:])
    done = subprocess.run(
        [find(), "inspect", str(tmp_path / "data"), "--all", "--json"], capture_output=True, text=True, check=False
    )
    report = json.loads(done.stdout)
    assert (done.returncode, report["damaged"], report["trailing"]) == (3, 1, 1)


def test_what_is_in_an_hdf5_file(tmp_path: Path) -> None:
    report = inspected(stored("hdf5/plain.h5.gz", tmp_path))
    objects = {one["path"]: one for one in report["objects"]}
    assert objects["/"]["kind"] == "group"
    assert {one["name"]: one["value"] for one in objects["/"]["attributes"]}["count"] == "24"
    assert objects["/images"]["shape"] == [24, 4, 5, 3]
    assert objects["/images"]["type"] == "uint8"
    assert "stoker.HDF5Dataset(" in report["python"]

"""The lines that ``stoker inspect`` prints to paste: they run, and load every sample."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import PHOTOS, TOP

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


@pytest.mark.parametrize("name", list(CASES))
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


def test_what_is_in_an_hdf5_file(tmp_path: Path) -> None:
    report = inspected(stored("hdf5/plain.h5.gz", tmp_path))
    objects = {one["path"]: one for one in report["objects"]}
    assert objects["/"]["kind"] == "group"
    assert {one["name"]: one["value"] for one in objects["/"]["attributes"]}["count"] == "24"
    assert objects["/images"]["shape"] == [24, 4, 5, 3]
    assert objects["/images"]["type"] == "uint8"
    assert "stoker.HDF5Dataset(" in report["python"]

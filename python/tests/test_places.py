"""Where damage is: tools, loaders and datasets name the same place."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, PHOTOS, jpeg, make_folder
from needs import needs

import stoker
from stoker import _process


def _stoker(*args: str) -> tuple[int, Any]:
    """Exit status of the command line, and its report."""
    done = subprocess.run([_process.find(), *args], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else json.loads(done.stderr)


def _where(dataset: Any) -> dict[str, Any]:
    """The place of the first error of a loader."""
    with stoker.DataLoader(dataset, batch_size=1) as loader, pytest.raises(stoker.DataError) as caught:
        list(loader)
    return {
        key: caught.value.where[key]
        for key in ("file", "shard", "field", "offset", "sample")
        if key in caught.value.where
    }


def _verified(path: Path) -> list[dict[str, Any]]:
    status, report = _stoker("verify", "--json", str(path))
    assert status == 3
    return [one["where"] for one in report["damage"]]


def _parquet(path: Path, pictures: list[bytes | None], paths: list[str]) -> Path:
    pa = needs("pyarrow")
    pq = needs("pyarrow.parquet")

    rows = [{"bytes": body, "path": name} for body, name in zip(pictures, paths, strict=True)]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"image": pa.array(rows, kind), "label": list(range(len(rows)))})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    return path


def test_verify_names_the_place_that_the_loader_names(tmp_path: Path) -> None:
    bodies: list[bytes | None] = [jpeg(i) for i in range(6)]
    bodies[4] = b"no picture at all"
    file = _parquet(tmp_path / "a.parquet", bodies, [f"{i}.jpg" for i in range(6)])
    (found,) = _verified(file)
    assert found == _where(stoker.ParquetDataset(file).select("image"))
    assert found["shard"] == str(file)
    assert found["sample"] == 4
    assert 0 < found["offset"] < file.read_bytes().index(b"no picture at all")  # its page

    root = make_folder(tmp_path / "d", 6)
    bad = root / "class1" / "0004.jpg"
    bad.write_bytes(b"no picture at all")
    (found,) = _verified(root)
    assert found == _where(stoker.ImageFolder(root).select("image"))
    assert found == {"file": str(bad), "field": "image", "offset": 0, "sample": 3}


def test_order_explain_names_sample_and_place(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "d", 6)
    bad = root / "class1" / "0004.jpg"
    spec = tmp_path / "s.json"
    image = {"name": "image", "decode": "rgb", "transform": [{"op": "RandomResizedCrop", "size": 8}]}
    spec.write_text(json.dumps({"dataset": {"path": str(root)}, "fields": [image], "batch": {"size": 6}}))
    _stoker("inspect", "--json", str(root))  # indexes it: what is read later is another file
    bad.write_bytes(b"no picture at all")
    done = subprocess.run(
        [_process.find(), "order", str(spec), "--explain", "--step", "0", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    (row,) = [row for row in json.loads(done.stdout)["rows"] if "error" in row]
    assert row["file"] == str(bad)
    assert str(bad) in row["error"]
    assert f"sample {row['sample']})" in row["error"]
    error = json.loads(done.stderr)["error"]
    assert error["where"]["file"] == str(bad)
    assert error["where"]["sample"] == row["sample"]


def test_a_sample_of_a_mixture_has_the_mixtures_number(tmp_path: Path) -> None:
    a, b = (make_folder(tmp_path / name, 6) for name in "ab")
    bad = b / "class1" / "0004.jpg"
    bad.write_bytes(b"no picture at all")
    mixture = stoker.Mixture([stoker.ImageFolder(a), stoker.ImageFolder(b)])
    for index in (9, -3):
        with pytest.raises(stoker.DataError) as caught:
            mixture[index]
        assert caught.value.where["sample"] == 9
        assert caught.value.where["file"] == str(bad)
        assert "it is sample 3 of dataset 1 of the mixture" in str(caught.value)


def test_parquet_of_paths_says_what_loads_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "img").mkdir()
    for photo in PHOTOS[:3]:
        shutil.copy(photo, tmp_path / "img")
    names = [f"img/{photo.name}" for photo in PHOTOS[:3]]
    file = _parquet(tmp_path / "hf.parquet", [None, None, None], names)
    line = f'stoker.Table("{file}", path="image.path")'
    dataset = stoker.ParquetDataset(file)
    assert dataset.fields == ["label"]
    with stoker.DataLoader(dataset) as loader:
        next(iter(loader))
    notice = capsys.readouterr().err
    assert "paths and no bytes" in notice
    assert line in notice
    with stoker.DataLoader(dataset.select("image")) as loader, pytest.raises(stoker.DataError) as caught:
        next(iter(loader))
    assert 'column "image" has a path and no bytes' in str(caught.value)
    assert line in str(caught.value.hint)
    assert "null" not in str(caught.value)
    assert len(eval(line)) == 3
    assert eval(line)[0][0].shape[0] == 3


def test_another_class_is_named(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "d", 6)
    with pytest.raises(stoker.ConfigError) as caught:
        len(stoker.WebDataset(str(root)))
    assert f'stoker.ImageFolder("{root}")' in str(caught.value.hint)
    shutil.copy(DATA / "guides/photos.parquet", tmp_path / "a.parquet")
    with pytest.raises(stoker.StokerError) as other:
        stoker.HDF5Dataset(tmp_path / "a.parquet")
    assert f'stoker.ParquetDataset("{tmp_path / "a.parquet"}")' in str(other.value.hint)

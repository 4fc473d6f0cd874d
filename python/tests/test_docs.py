"""Every Python sample of the README and the guides runs unchanged; samples of other tools run if those are
installed. Those of the guide to frameworks run where the frameworks are: frameworks/test_guide.py."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import stores
from conftest import TOP, jpeg, make_folder
from forms import long
from needs import needs

PAGES = [
    TOP / "README.md",
    *(page for page in sorted((TOP / "docs" / "guides").rglob("*.md")) if page.name != "frameworks.md"),
]
# Samples of the long form: those that import JAX, measure, start workers, or draw thousands.
DEAR = re.compile(r"\b(?:import jax|(?:seconds|budget)=|num_workers=[2-9]|num_samples=\d{4})")
SAMPLES = [
    pytest.param(
        match[1],
        id=f"{page.stem}-line{text.count(chr(10), 0, match.start()) + 1}",
        marks=[long] if page.stem != "README" and DEAR.search(match[1]) else [],
    )
    for page in PAGES
    for text in [page.read_text(encoding="utf-8")]
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
]
STORED = TOP / "testdata" / "guides"  # what other tools wrote
OTHERS = {"h5py", "lmdb", "pyarrow", "tensorflow", "webdataset", "streaming", "ffcv"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data that the samples speak of: 36 pictures in three classes, as many in three shards, and a bad one; twelve
    pictures in the formats of other tools; arrays; a file of tokens."""
    root = tmp_path_factory.mktemp("guides")
    make_folder(root / "data/train", 36)
    cut = sorted(make_folder(root / "data/bad", 8).rglob("*.jpg"))[3]
    cut.write_bytes(cut.read_bytes()[:-200])
    (root / "shards").mkdir()
    for number in range(3):
        with tarfile.open(root / f"shards/train-{number:03d}.tar", "w") as shard:
            for i in range(12 * number, 12 * number + 12):
                fields = {"jpg": jpeg(i), "cls": b"%d" % (i % 5), "txt": b"hello", "json": b'{"a": 1}'}
                for name, body in fields.items():
                    info = tarfile.TarInfo(f"{i:04d}.{name}")
                    info.size = len(body)
                    shard.addfile(info, io.BytesIO(body))
    for name in ("photos.h5", "photos.parquet", "photos-00000-of-00002", "photos-00001-of-00002"):
        shutil.copy(STORED / name, root / "data" / name)
    shutil.copytree(STORED / "mds", root / "data/mds")
    (root / "data/photos.lmdb").mkdir()
    for name in ("photos.lmdb/data.mdb", "photos.beton"):
        stored = (STORED / (Path(name).name + ".gz")).read_bytes()
        (root / "data" / name).write_bytes(gzip.decompress(stored))
    np.save(root / "data/images.npy", np.arange(36 * 8 * 8 * 3, dtype=np.uint8).reshape(36, 8, 8, 3))
    np.save(root / "data/labels.npy", np.arange(36) % 3)
    photos = sorted((root / "data/train").rglob("*.jpg"))
    rows = [f"{path.relative_to(root / 'data')},{path.parent.name},0.5\n" for path in photos]
    (root / "data/list.csv").write_text("path,label,score\n" + "".join(rows))  # as a sample of the guide writes it
    lines = [{"text": f"sentence {i}", "label": i % 3, "tags": ["a"] * (i % 4)} for i in range(12)]
    (root / "data/text").mkdir()
    (root / "data/text/reviews.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (np.arange(100_000, dtype=np.uint32) * 7919 % 50257).astype(np.uint16).tofile(root / "data/train.bin")
    return root


@pytest.fixture(scope="module")
def bucket(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[stores.Bucket]:
    """s3://bucket/train and s3://bucket/shards, the pictures and the shards."""
    with stores.s3(tmp_path_factory.mktemp("s3") / "objects") as store:
        store.put_folder(place / "data/train", "train")
        store.put_folder(place / "shards", "shards")
        yield store


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_sample_runs(
    sample: str, place: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if "s3://" in sample:
        for key, value in request.getfixturevalue("bucket").env.items():
            monkeypatch.setenv(key, value)
    for name in OTHERS & set(re.findall(r"^\s*(?:import|from) (\w+)", sample, re.MULTILINE)):
        needs(name)
    monkeypatch.chdir(place)
    if "import jax" in sample:  # a process in which JAX has started forks no workers for those after it
        subprocess.run([sys.executable, "-c", sample], check=True, timeout=120)
        return
    exec(compile(sample, "sample", "exec"), {"__name__": "__main__"})

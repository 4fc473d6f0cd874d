"""Every Python sample of the README and the guides runs as it stands there."""

from __future__ import annotations

import io
import re
import tarfile
from pathlib import Path

import pytest
from conftest import TOP, jpeg, make_folder

PAGES = [TOP / "README.md", *sorted((TOP / "docs" / "guides").glob("*.md"))]
SAMPLES = [
    pytest.param(match[1], id=f"{page.stem}-line{text.count(chr(10), 0, match.start()) + 1}")
    for page in PAGES
    for text in [page.read_text(encoding="utf-8")]
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data that the samples speak of: 36 pictures in three classes, as many in three shards, and a bad one."""
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
    return root


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_sample_runs(sample: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    exec(compile(sample, "sample", "exec"), {"__name__": "__main__"})

"""What checkers of types say of the code that users write: batches have the types of the dataset and the output."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TOP
from needs import needs

import stoker
from stoker._types import Keywords

needs("torch")

SCRIPT = """
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

import stoker
from stoker import transforms as T

train = stoker.ImageFolder("data/train", transform=T.RandomResizedCrop(224))
loader = stoker.DataLoader(train, batch_size=32, shuffle=True, seed=0)
for batch in loader:
    images, labels = batch
    reveal_type(images)  # Tensor
    reveal_type(labels)  # Tensor
    reveal_type(batch.epoch)  # int
for pixels, numbers in stoker.DataLoader(train, 32, output="numpy", memory="2GiB"):
    reveal_type(pixels)  # ndarray[
for x, y in stoker.DataLoader(stoker.TokenDataset("train.bin", 256), 12):
    reveal_type(y)  # Tensor
for tokens, in stoker.DataLoader(stoker.TokenDataset("train.bin", documents=True), 12):
    reveal_type(tokens.offsets)  # Any
    reveal_type(tokens)  # Ragged
for rows in stoker.DataLoader(stoker.HDF5Dataset("a.h5")):
    reveal_type(rows)  # DictBatch
    reveal_type(rows.step)  # int
for x, y in stoker.DataLoader(stoker.HDF5Dataset("a.h5").to_tuple("x", "y")):
    pass
for named in stoker.DataLoader(train.select("image")):
    reveal_type(named)  # DictBatch
for left, right in stoker.DataLoader(stoker.NpyDataset("x.npy", "y.npy"), output="numpy"):
    reveal_type(left)  # ndarray[
for only, in stoker.DataLoader(stoker.files("*.jpg", None)):
    reveal_type(only)  # Tensor
for pair in stoker.DataLoader(stoker.WebDataset("a.tar").shuffle(1000).decode("pil").to_tuple("jpg", "cls")):
    reveal_type(pair)  # Batch[
for sample in stoker.DataLoader(stoker.WebDataset("a.tar").decode("pil")):
    reveal_type(sample)  # DictBatch
for images, labels in stoker.DataLoader(stoker.Mixture([train, train])):
    reveal_type(labels)  # Tensor
def fit(batches: DataLoader[Any], pairs: "DataLoader[stoker.Batch[Tensor, Tensor]] | None" = None) -> None:
    pass

fit(loader)
fit(stoker.DataLoader(train, 32, output="numpy"))
fit(loader, loader)
reveal_type(len(loader))  # int
reveal_type(loader.state_dict())  # dict[str, Any]
reveal_type(loader.batch_size)  # int | None
train.transform = T.Resize(8)
train.cache("1GiB").targets
"""
WRONG = """
import stoker

train = stoker.ImageFolder("data/train")
for images, labels, more in stoker.DataLoader(train):  # a pair
    pass
stoker.DataLoader(train, batchsize=3)  # no such keyword
stoker.DataLoadr  # no such name
"""


def mypy(folder: Path) -> list[str]:
    """All of torch is read, for half a minute, unless `make check` has done so with the same options."""
    needs("mypy")
    if (known := TOP / ".mypy_cache").is_dir():
        shutil.copytree(known, folder / "cache")
    options = [
        "--no-error-summary",
        f"--config-file={TOP / 'python' / 'pyproject.toml'}",
        f"--cache-dir={folder}/cache",
    ]
    command = [sys.executable, "-m", "mypy", *options, str(folder / "train.py"), str(folder / "wrong.py")]
    source = str(Path(stoker.__file__).parents[1])
    told = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "MYPYPATH": source}, check=False)
    assert told.returncode in (0, 1), told.stdout + told.stderr
    return [line for line in told.stdout.splitlines() if line.startswith(str(folder))]


def pyright(folder: Path) -> list[str]:
    found = shutil.which("pyright") or shutil.which("pyright", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("pyright is not installed")
    (folder / "pyrightconfig.json").write_text(f'{{"extraPaths": ["{Path(stoker.__file__).parents[1]}"]}}')
    command = [found, f"--pythonpath={sys.executable}", "train.py", "wrong.py"]
    told = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    return [line.strip() for line in told.stdout.splitlines() if re.search(r"\w+\.py:\d", line)]


@pytest.fixture(scope="module", params=[mypy, pyright])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What a checker says of both scripts."""
    folder = tmp_path_factory.mktemp("scripts")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "wrong.py").write_text(WRONG)
    found: list[str] = request.param(folder)
    return found


def test_batches_have_types(told: list[str]) -> None:
    told = [line for line in told if "train.py" in line]
    assert not [line for line in told if "error" in line]
    for number, line in enumerate(SCRIPT.splitlines(), start=1):
        if "reveal_type" not in line:
            continue
        want = line.rpartition("# ")[2]
        (said,) = [one for one in told if re.search(rf"train\.py:{number}(:|\b.*-)", one)]
        assert want in said, line


def test_mistakes_are_found(told: list[str]) -> None:
    wrong = {int(match[1]) for line in told if (match := re.search(r"wrong\.py:(\d+).*error", line))}
    assert wrong == {5, 7, 8}


def test_the_keywords_for_checkers_are_those_of_the_loader() -> None:
    parameters = inspect.signature(stoker.DataLoader).parameters.values()
    assert {one.name for one in parameters if one.kind is one.KEYWORD_ONLY} - {"output"} == set(
        Keywords.__annotations__
    )

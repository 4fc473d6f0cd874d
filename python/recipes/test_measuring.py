"""The recipes that measure and tune a loader, or read arrays, tables and records: run on few photographs."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from PIL import Image
from test_recipes import RECIPES, rates, run, told

__all__ = ["run"]  # a fixture

PHOTOS = Path(__file__).parents[2] / "testdata" / "photos"
FEW = ("--samples", 48, "--batch-size", 8)
LEVELS = "within 2 levels of 255"

# A recipe, its flags, how many figures it prints of the plain lines and of stoker's, and what it says is the same.
CASES = {
    "profile_schedule": (("--samples", 64), 2, 2, ["the labels", f"the pictures, {LEVELS}"]),
    "tuned_loader": ((), 2, 3, [f"every batch, as a tuple and as a dict, {LEVELS}"]),
    "synthetic": ((), 2, 3, ["names, shapes and dtypes of real and synthetic batches", "as many batches"]),
    "getitem_times": ((), 2, 3, []),
    "memmap": ((), 1, 2, ["every batch of all three"]),
    "lazy_memmap": ((), 1, 2, ["every batch of all three", "the dataset was not opened in this process"]),
    "hdf5": ((), 2, 2, ["every batch of all three"]),
    "imagefolder_tuned": (("--workers", 2), 2, 1, [f"labels of every batch, and pictures {LEVELS}"]),
    "parquet_manifest": (
        (),
        1,
        2,
        ["every batch of the class, and the labels of the table", f"the pictures of the table, {LEVELS}"],
    ),
    "tfrecord_compare": (
        (),
        2,
        2,
        [
            "stoker's batches of files and of records",
            f"tf.data's batches of both, and their pictures {LEVELS} on average",
        ],
    ),
    "tfdata_chain": (
        (),
        3,
        6,
        [
            "shapes and types of tf.data's batches and of stoker.to_tf's",
            "the pictures of an epoch",
            "the number of pictures of an epoch",
        ],
    ),
}
Run = Callable[..., str]


@pytest.mark.parametrize(
    "name", [name if name == "hdf5" else pytest.param(name, marks=pytest.mark.long) for name in CASES]
)
def test_runs(name: str, run: Run) -> None:
    flags, plain, stoker, same = CASES[name]
    said = run(name, *FEW, *flags)
    checked(said, plain, stoker, same)


def checked(said: str, plain: int, stoker: int, same: Sequence[str] = ()) -> None:
    """What told() asserts, and that the recipe found these things the same."""
    told(said, plain, stoker)
    assert [line[6:] for line in said.splitlines() if line.startswith("same: ")] == list(same), said


@pytest.mark.long
def test_the_profile_names_both_loaders(run: Run) -> None:
    said = run("profile_loop", *FEW)
    checked(said, 3, 3, ["the model's outputs"])
    for name in ("enumerate(DataLoader)#_Single", "enumerate(DataLoader)#stoker.__next__"):
        assert name in said, said
    assert said.count("H2D_transfer  ") == said.count("model_forward  ") == 4  # in its table and after it, twice


@pytest.mark.long
def test_a_lazy_map_is_pickled_small(run: Run) -> None:
    said = run("lazy_memmap", *FEW, "--method", "spawn")
    checked(said, 1, 2, CASES["lazy_memmap"][3])
    (line,) = [line for line in said.splitlines() if line.startswith("a worker gets")]
    assert int(line.split()[3].replace(",", "")) < 1000


@pytest.mark.long
def test_doctor_beside_the_trace(run: Run) -> None:
    said = run("profile_schedule", "--samples", 64, "--batch-size", 8, "--doctor")
    assert "stoker doctor: torch.DataLoader over Photographs" in said
    assert "stoker doctor: stoker.DataLoader over ImageFolder" in said


@pytest.mark.long
def test_hundred_batches(run: Run) -> None:
    said = run("hundred_batches", "--samples", 20, "--batch-size", 4)
    checked(said, 1, 1)
    assert "100 batches" in said


def lines_of_shell(name: str) -> list[str]:
    """The commands in a recipe's docstring that need no recipe."""
    text = ast.get_docstring(ast.parse((RECIPES / f"{name}.py").read_text())) or ""
    return [line.strip() for line in text.splitlines() if line.strip().startswith("python -c ")]


@pytest.mark.long
@pytest.mark.parametrize("number", [0, 1])
def test_hundred_batches_as_one_line_of_shell(number: int, tmp_path: Path) -> None:
    for photo in sorted(PHOTOS.glob("*.jpg"))[:4]:
        folder = tmp_path / "data" / "train" / photo.stem
        folder.mkdir(parents=True)
        with Image.open(photo) as picture:
            picture.convert("RGB").resize((120, 90)).save(folder / "0.jpg")
    line = lines_of_shell("hundred_batches")[number].replace("python", sys.executable, 1)
    paths = [os.path.abspath(path) for path in filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "STOKER_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(line, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = rates(done.stdout)
    assert len(found["plain" if number == 0 else "stoker"]) == 1, done.stdout


@pytest.mark.long
def test_grid_names_the_best(run: Run) -> None:
    said = run("grid", *FEW, "--workers", 1, "--batches", 4, "--budget", 2)
    checked(said, 4, 4)
    found = rates(said)
    for name, rate in (("plain torch", max(found["plain"])), ("stoker", max(found["stoker"]))):
        (best,) = [line for line in said.splitlines() if line.startswith(f"best of {name}: ")]
        assert best.endswith(f" {rate:,.0f} samples/s")
        setting = best.split(": ")[1].rsplit(", ", 1)[0]
        assert any(line.startswith(f"{name}, {setting}") and f" {rate:,.0f} " in line for line in said.splitlines())
        assert f"stoker.tune for {name}: " in said


@pytest.mark.long
def test_scaling_is_drawn_for_two_storages(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "scaling.png"
    said = run("scaling_plot", "--samples", 24, "--batch-size", 4, "--workers", 2, "--out", out)
    storages = 1 if "only one storage is drawn" in said else 2
    checked(said, 2 * storages, 2 * storages)
    assert f"{storages} storages" in said
    with Image.open(out) as picture:
        assert picture.size == (500 * storages, 400)
    if storages == 2:  # its latencies are in the figures: two of 5 ms for each of torch's samples
        found = dict(line.rsplit(maxsplit=2)[:2] for line in said.splitlines() if "samples/s" in line)
        assert float(found["plain torch, slow, 1 worker"].replace(",", "")) < 100


@pytest.mark.long
def test_scaling_without_go_draws_one(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "scaling.png"
    flags = ("--samples", 12, "--batch-size", 4, "--workers", 1, "--out", out)
    said = run("scaling_plot", *flags, PATH=str(tmp_path))
    assert "only one storage is drawn: the slow one is mounted by a Go program, and go was not found" in said
    checked(said, 1, 1)
    with Image.open(out) as picture:
        assert picture.size == (500, 400)

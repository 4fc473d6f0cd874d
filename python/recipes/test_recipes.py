"""Every recipe runs as its own docstring says, on few photographs, and prints its rate beside the plain lines'."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import stoker

RECIPES = Path(__file__).parents[2] / "examples" / "recipes"
NAMES = sorted(path.stem for path in RECIPES.glob("*.py") if path.stem != "common")
RATE = re.compile(r"^(plain|stoker)\b.*?([\d,.]+) (?:samples/s|ms)", re.MULTILINE)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs a recipe, and gives what it printed."""
    paths = [str(Path(stoker.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    cache = os.environ.get("STOKER_RECIPES_CACHE") or str(tmp_path_factory.mktemp("cache"))
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "STOKER_CACHE": cache,
        "OMP_NUM_THREADS": "1",
    }

    def run(name: str, *args: object, ends: int = 0, **more: str) -> str:
        command = [sys.executable, str(RECIPES / f"{name}.py"), *map(str, args)]
        done = subprocess.run(command, env={**env, **more}, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == ends, done.stdout + done.stderr
        return done.stdout + done.stderr if ends else done.stdout

    return run


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_help(name: str, run: Callable[..., str]) -> None:
    said = run(name, "--help")
    assert "--samples" in said
    assert "--device" in said


def rates(said: str) -> dict[str, list[float]]:
    """The figures of the plain lines and of stoker's."""
    found: dict[str, list[float]] = {"plain": [], "stoker": []}
    for which, figure in RATE.findall(said):
        found[which].append(float(figure.replace(",", "")))
    return found


def told(said: str, plain: int, stoker: int) -> None:
    """The recipe printed so many figures of each, all above 0."""
    found = rates(said)
    assert (len(found["plain"]), len(found["stoker"])) == (plain, stoker), said
    assert min(found["plain"] + found["stoker"]) > 0, said


def test_throughput(run: Callable[..., str]) -> None:
    said = run("throughput", "--samples", 200)
    told(said, 4, 4)
    assert "same: every batch" in said


@pytest.mark.long
def test_prefetch_loader(run: Callable[..., str]) -> None:
    said = run("prefetch_loader", "--samples", 100, "--batch-size", 8)
    told(said, 1, 2)
    assert "as usually written: 108 samples of 100; the first batch came 2 times" in said
    assert said.count("every sample once") == 3


def test_cuda_prefetcher(run: Callable[..., str]) -> None:
    said = run("cuda_prefetcher", "--samples", 100, "--batch-size", 8)
    told(said, 1, 1)
    assert "the loader has 12 batches; as usually written the loop gets 11" in said
    assert "same: with stoker.CUDAPrefetcher it gets all of them" in said


SMALL = ("--samples", 60, "--batch-size", 8, "--crop", 48)


@pytest.mark.long
def test_gpu_augmentation(run: Callable[..., str]) -> None:
    said = run("gpu_augmentation", *SMALL, "--size", 64, "--steps", 1, "--model", "resnet18")
    told(said, 1, 3)
    assert "same: Kornia draws the same in two runs" in said
    assert "same: the device makes the engine's pictures" in said
    assert "resnet18: " in said


def test_full_pipeline(run: Callable[..., str]) -> None:
    said = run("full_pipeline", *SMALL, "--size", 64)
    told(said, 1, 2)
    assert "same: the same batches as with all of it in the engine" in said
    assert "a batch: (8, 3, 48, 48) torch.float32 on cpu, labels torch.int64" in said


@pytest.mark.long
def test_cpu_gpu_augmentation(run: Callable[..., str]) -> None:
    said = run("cpu_gpu_augmentation", *SMALL, "--epochs", 1)
    told(said, 1, 1)
    assert "same: every loss, wherever it is cut" in said


def test_the_guide_names_every_recipe() -> None:
    guide = (RECIPES.parents[1] / "docs" / "guides" / "recipes.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\(../../examples/recipes/(\w+)\.py\)", guide)) == NAMES

"""The recipes from shards to a whole training: their figures, and that their samples are the plain lines'."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import stores
from conftest import make_folder
from PIL import Image
from test_recipes import RECIPES, run, told

import stoker

sys.path.insert(0, str(Path(__file__).parents[1] / "frameworks"))
sys.path.insert(0, str(RECIPES))
import common
import ranks

__all__ = ["run"]  # a fixture
long = pytest.mark.long

Run = Callable[..., str]


@long
def test_webdataset_lambda(run: Run) -> None:
    said = run("webdataset_lambda", "--samples", 100)
    told(said, 1, 2)
    assert said.count("same: labels, and pictures") == 2


@long
def test_webdataset_chain(run: Run) -> None:
    said = run("webdataset_chain", "--samples", 100, "--batch-size", 8)
    told(said, 2, 2)
    assert said.count("same: the samples of the ") == 2


@long
@pytest.mark.parametrize(
    ("recipe", "count"), [("webdataset_chain", 4), ("webdataset_stream", 4), ("shards_by_rank", 3)]
)
def test_shards_in_a_bucket(recipe: str, count: int, run: Run, tmp_path: Path) -> None:
    """The articles' shards are in an object store: what each recipe says of local ones holds of those, too."""
    samples = 60
    folder = make_folder(tmp_path / "photos", samples)
    with stores.s3(tmp_path / "s3") as store, stores.proxy(store) as net:
        (tmp_path / "shards").mkdir()
        with common.photographs(argparse.Namespace(data=folder, samples=samples)) as photos:
            urls = common.shards(photos, tmp_path / "shards", count=count)
        store.put_folder(tmp_path / "shards", "shards")
        where = net.name("shards/") + Path(urls).name
        said = run(recipe, "--data", folder, "--samples", samples, "--batch-size", 4, "--shards", where, **net.env)
        read = net.counts()["kinds"]["range"]["bytes"]
    told(said, 2 if recipe == "webdataset_chain" else 1, 2 if recipe == "webdataset_chain" else 1)
    assert said.count("same: ") >= 2
    assert read > sum(path.stat().st_size for path in folder.glob("*/*"))


@long
def test_webdataset_stream(run: Run) -> None:
    said = run("webdataset_stream", "--samples", 100, "--batch-size", 8)
    told(said, 1, 1)
    assert "same: full batches" in said
    assert "to the pixel" in said
    assert "same: WebLoader" in said


@long
def test_albumentations_cv2(run: Run) -> None:
    said = run("albumentations_cv2", "--samples", 60, "--batch-size", 4)
    told(said, 2, 3)
    assert said.count("of fixed transforms") == said.count("with 1 and with 3 workers") == 2
    assert "same: images and boxes of fixed transforms" in said


@long
def test_class_balance(run: Run) -> None:
    said = run("class_balance", "--samples", 120, "--batch-size", 8)
    told(said, 1, 2)
    counts = [[*map(int, found.split())] for found in re.findall(r"\[([\d ]+)\] of each class", said)]
    stored, theirs, same, balanced = counts
    assert theirs == same
    assert max(stored) > 4 * min(stored)
    assert sum(stored) == sum(theirs) == sum(balanced)
    for drawn in theirs, balanced:
        assert max(drawn) < 4 * min(drawn)
    assert "same: labels, and pictures" in said
    assert "the same samples for one rank and for two" in said


@long
def test_distributed_sampler(run: Run) -> None:
    said = run("distributed_sampler", "--samples", 60, "--batch-size", 4)
    told(said, 1, 2)
    assert said.count("2 ranks ") == 3
    assert "same: the samples of every rank and epoch with the sampler" in said
    assert "all samples once an epoch" in said
    assert "same: epochs have orders of their own" in said
    assert "same: the receipts of the ranks are complete" in said


@long
def test_shards_by_rank(run: Run) -> None:
    said = run("shards_by_rank", "--samples", 60, "--batch-size", 4)
    told(said, 1, 1)
    assert "sliced by hand: [40, 20]" in said
    assert re.search(r"refused: rank \d does not read the same dataset as rank \d", said)
    assert "give every rank the whole dataset" in said
    assert "every rank has as many samples: [30, 30]" in said
    assert "each sample came once" in said
    assert "with rank=0, world_size=1: all samples" in said


@long
def test_padding_collate(run: Run) -> None:
    said = run("padding_collate", "--samples", 1000)
    told(said, 2, 5)
    alone, ours, plain, same, *by_length = [int(share) for share in re.findall(r"(\d+)% padding", said)]
    assert max(alone, ours, plain, same) - min(alone, ours, plain, same) < 10
    assert max(by_length) < plain / 2
    assert "same: every batch of the function" in said
    assert "same: every stored sequence" in said


# The training.

SMALL = ("--samples", 64, "--batch-size", 4, "--workers", 1)
FIGURES = re.compile(
    r"samples ([\d,]+) in [\d.]+ s, (\d+) steps, last loss ([\d.]+)\n"
    r" +waited for data [\d.]+% of the time\n +memory -?[\d,]+ MiB"
)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """64 small ones, in four classes."""
    root = tmp_path_factory.mktemp("pictures")
    for number, path in enumerate(sorted((RECIPES.parents[1] / "testdata" / "photos").glob("*.jpg"))[:4]):
        (root / path.stem).mkdir()
        with Image.open(path) as photo:
            small = photo.convert("RGB").resize((160, 120))
        for i in range(16):
            small.rotate(3 * i + number).save(root / path.stem / f"{i:02d}.jpg")
    return root


def test_train(run: Run, pictures: Path) -> None:
    said = run("train", "--data", pictures, *SMALL)
    told(said, 1, 1)
    assert [(found[0], found[1]) for found in FIGURES.findall(said)] == [("128", "32")] * 2


@long
def test_train_compiled(run: Run, pictures: Path) -> None:
    args = ("train", "--data", pictures, "--loader", "stoker", *SMALL)
    plain, compiled = (FIGURES.findall(run(*args, *more)) for more in ((), ("--compile", "eager")))
    assert plain == compiled
    assert "--graph needs --device cuda" in run(*args, "--graph", ends=2)


@long
def test_train_is_killed_and_continues_on_two_ranks(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of every step, the last loss and the receipts are those of an undisturbed training."""
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script, args = RECIPES / "train.py", ("--data", pictures, "--loader", "stoker", *SMALL)
    whole = ranks.run(script, *args, out=tmp_path / "whole", torchrun=True)
    cut = ranks.run(script, *args, out=tmp_path / "cut", kill_at=13)
    rest = ranks.run(script, *args, "--resume", out=tmp_path / "cut")
    assert "resumed after step 12, in epoch 1" in rest.text
    assert ranks.continues(whole, cut, rest) == {"epoch": 1, "step": 4}
    assert whole.epoch(0) == whole.epoch(1) == list(range(64))
    (expected,), (found,) = (FIGURES.findall(one.text) for one in (whole, rest))
    assert found[1:] == expected[1:] == ("16", expected[2])

    with stoker.DataLoader(
        stoker.ImageFolder(pictures), 4, shuffle=True, drop_last=True, seed=0, world_size=2, rank=0
    ) as of:
        for pieces in ([rank[0].receipt for rank in whole.ranks], ranks.receipts(cut, rest)):
            verdict = stoker.verify_receipts(pieces, of)
            assert verdict["ok"], verdict
            assert verdict["complete"], verdict
            assert [epoch["covered"] for epoch in verdict["epochs"]] == [[[0, 64]]] * 2

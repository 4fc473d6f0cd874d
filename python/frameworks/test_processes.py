"""examples/frameworks on two processes: the epochs and samples of every rank, also killed and continued in the middle
of an epoch, and the ends that are not whole: of updates, of epochs, of what the world divides."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import make_folder
from forms import long, mostly
from ranks import Run, Seen, Step, continues, receipts, run

import stoker

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"
N, SIZE, EPOCHS, STEPS = 21, 2, 3, 6  # the last step has a sample on the first rank, and padding on the second
ACCUMULATE = 4  # updates after 4 and 6 batches of an epoch


@dataclass
class Library:
    script: str
    flags: list[str] = field(default_factory=list)
    validates: bool = True
    sanity: int = 0  # the number of its training loader in a run that validates first
    torchrun: bool = False


TWO = ["--accelerator", "cpu", "--devices", "2", "--strategy", "ddp"]
LIBRARIES = {
    "ddp": Library("ddp.py", validates=False, torchrun=True),
    "fabric": Library("fabric_ddp.py", TWO, validates=False),
    "accelerate": Library("accelerate_ddp.py", ["--cpu"]),
    "lightning": Library("lightning_ddp.py", TWO, sanity=1),
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("pictures"), N)


@pytest.fixture(params=mostly(LIBRARIES, "ddp"))
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]


Start = Callable[..., Run]


@pytest.fixture
def start(library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Start:
    """Runs the library's script on two ranks; of its training loader."""
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))

    def started(*flags: object, out: Path, loader: int = library.sanity, kill_at: int = 0) -> Run:
        usual = ["--size", 16, "--batch-size", SIZE, "--accumulate", ACCUMULATE, "--save-every", 1]
        valid = ["--valid", folder] if library.validates else []
        script = EXAMPLES / library.script
        more = {"torchrun": library.torchrun, "kill_at": kill_at, "loader": loader}
        return run(script, folder, *usual, *library.flags, *valid, *flags, out=out, **more)

    return started


def train(found: Run, loader: int) -> Run:
    return Run([[rank[loader]] for rank in found.ranks], found.text)


@pytest.fixture
def whole(folder: Path) -> Run:
    """What the loaders of both ranks give by themselves."""
    ranks = []
    for rank in range(2):
        dataset = stoker.ImageFolder(folder, stoker.transforms.Resize(8))
        with stoker.DataLoader(dataset, SIZE, shuffle=True, seed=0, rank=rank, world_size=2) as loader:
            given = [batch for _ in range(EPOCHS) for batch in loader]
            steps = [Step(one.epoch, one.step, one.ids[one.valid].tolist()) for one in given]
            ranks.append([Seen(steps, receipt=loader.receipt())])
    return Run(ranks, "")


def updates(text: str) -> list[str]:
    """The lines about epochs, of the rank that prints."""
    return [line for line in text.splitlines() if line.startswith("epoch ")]


def test_killed_in_the_middle_of_an_epoch(
    library: Library, start: Start, whole: Run, folder: Path, tmp_path: Path
) -> None:
    """Killed when both ranks hold batch 12, the last of epoch 1, with a checkpoint after batch 10."""
    cut = train(start(out=tmp_path, kill_at=12), library.sanity)
    rest = train(start("--resume", out=tmp_path), 0)
    assert continues(whole, cut, rest) == {"epoch": 1, "step": 4}
    assert [line.partition(",")[0] for line in updates(rest.text)] == ["epoch 1: 4 updates", "epoch 2: 6 updates"]
    with stoker.DataLoader(stoker.ImageFolder(folder), SIZE, shuffle=True, seed=0) as loader:
        verdict = stoker.verify_receipts(receipts(cut, rest), loader)
    assert verdict["ok"], verdict
    assert verdict["complete"], verdict


@long
@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda script: script.stem)
def test_the_script_says_how_it_is_used(script: Path) -> None:
    told = subprocess.run([sys.executable, str(script), "--help"], capture_output=True, text=True, check=True)
    assert "--out" in told.stdout


@long
def test_undisturbed(library: Library, start: Start, whole: Run, tmp_path: Path) -> None:
    found = start(out=tmp_path)
    alone = train(found, library.sanity)
    for rank in range(2):
        assert alone.ranks[rank][0].steps == whole.ranks[rank][0].steps
        assert alone.ranks[rank][0].receipt == whole.ranks[rank][0].receipt
    for epoch in range(EPOCHS):
        assert alone.epoch(epoch) == [*range(N)]
    expected = ["epoch 0: 2 updates", "epoch 1: 4 updates", "epoch 2: 6 updates"]
    assert [line.partition(",")[0] for line in updates(found.text)] == expected
    if library.validates:
        held = 1 - library.sanity
        sanity = library.sanity * 2 * SIZE * 2  # Lightning tries two batches of both ranks before it trains
        seen = [i for rank in found.ranks for one in rank[held].steps for i in one.ids]
        assert sorted(seen) == sorted([*range(N)] * EPOCHS + [*range(sanity)])
    if library.script.startswith("accelerate"):
        assert found.text.count(f" of {N} right") == EPOCHS  # gather_for_metrics leaves the padding out


@long
def test_updates_that_end_in_the_middle_of_an_epoch(library: Library, start: Start, whole: Run, tmp_path: Path) -> None:
    first = train(start("--max-updates", 3, out=tmp_path), library.sanity)
    rest = train(start("--resume", out=tmp_path), 0)
    for rank in range(2):
        assert first.ranks[rank][0].steps == whole.ranks[rank][0].steps[:10]
        assert rest.ranks[rank][0].steps == whole.ranks[rank][0].steps[10:]
    assert updates(rest.text)[-1].partition(",")[0] == "epoch 2: 6 updates"


@long
@pytest.mark.parametrize("library", [LIBRARIES["lightning"]], indirect=False, ids=["lightning"])
def test_lightning_with_fewer_batches(start: Start, whole: Run, tmp_path: Path) -> None:
    """limit_train_batches: an epoch is the first of the loader's batches, and the next epoch is the next."""
    found = train(start("--limit-train-batches", 4, out=tmp_path), 1)
    for rank in range(2):
        expected = [one for one in whole.ranks[rank][0].steps if one.step < 4]
        assert found.ranks[rank][0].steps == expected


@long
@pytest.mark.parametrize("library", [LIBRARIES["lightning"]], indirect=False, ids=["lightning"])
def test_lightning_that_overfits(start: Start, tmp_path: Path) -> None:
    """overfit_batches, over a loader in the order of its storage: the same batches in every epoch."""
    found = start("--overfit-batches", 2, out=tmp_path)
    for number in range(2):  # validation too
        for rank in range(2):
            ids = [[rank + 4 * step, rank + 4 * step + 2] for step in range(2)]
            steps = found.ranks[rank][number].steps
            assert {one.step: one.ids for one in steps} == dict(enumerate(ids))
            assert {one.epoch for one in steps} == {0, 1, 2}

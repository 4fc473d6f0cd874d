"""stoker's loader in the worker processes of torch's DataLoader, in an interpreter of its own, which forks them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_python
from forms import long

import stoker

N = 50
PROGRAM = """
import os, sys
import torch.utils.data as data
import stoker
from stoker import transforms as T

class Wrapped(data.IterableDataset):
    "What people write: a dataset that iterates a loader."
    def __init__(self, how):
        self.dataset = stoker.ImageFolder({folder!r}, T.CenterCrop(8))
        self.how = how
        self.loader = stoker.DataLoader(self.dataset, 5, shuffle=True)

    def __iter__(self):
        info = data.get_worker_info()
        loader, dataset = self.loader, self.dataset
        if self.how == "ranks":
            loader = stoker.DataLoader(dataset, 5, shuffle=True, rank=info.id, world_size=info.num_workers)
        elif self.how == "sampler":
            sampler = stoker.DistributedSampler(dataset, info.num_workers, info.id)
            loader = stoker.DataLoader(dataset, 5, sampler=sampler)
        elif self.how == "own sampler":
            loader = stoker.DataLoader(dataset, 5, sampler=range(50))
        elif self.how == "random sampler":
            loader = stoker.DataLoader(dataset, 5, sampler=stoker.RandomSampler(dataset))
        try:
            for batch in loader:
                yield " ".join(map(str, batch.ids.tolist()))
        except stoker.ConfigError as error:
            yield "refused: " + str(error).replace("\\n", " ")
        loader.close()

class Single(data.Dataset):
    def __init__(self):
        self.dataset = stoker.ImageFolder({folder!r}, T.CenterCrop(8))
    def __len__(self):
        return len(self.dataset)
    def __getitem__(self, index):
        return self.dataset[index]

def run(how, context):
    if how == "single":
        loader = data.DataLoader(Single(), 10, shuffle=True, num_workers=2, multiprocessing_context=context)
        print("single:", *(int(label) for _, labels in loader for label in labels))
    else:
        loader = data.DataLoader(Wrapped(how), batch_size=None, num_workers=2, multiprocessing_context=context)
        for line in loader:
            print(f"{{how}}: {{line}}")

if __name__ == "__main__":
    context, *hows = sys.argv[1:]
    for how in hows:
        if how == "world":
            os.environ.update(RANK="1", WORLD_SIZE="3")
        run(how, context)
        os.environ.pop("RANK", None), os.environ.pop("WORLD_SIZE", None)
"""
HOWS = ("", "own sampler", "random sampler", "ranks", "sampler", "world", "single")


def started(folder: Path, tmp_path: Path, context: str, *hows: str) -> dict[str, list[str]]:
    """What was printed for each way to make the loader."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(folder=str(folder)))
    code = f"import runpy, sys; sys.argv = {[str(script), context, *hows]!r}"
    done = run_python(f"{code}; runpy.run_path(sys.argv[0], run_name='__main__')")
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        how, _, words = line.partition(": ")
        found.setdefault(how, []).append(words)
    return found


@pytest.fixture(scope="module")
def forked(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return started(folder, tmp_path_factory.mktemp("forked"), "fork", *HOWS)


def refused(lines: list[str]) -> None:
    assert len(lines) == 2, "no worker gives a sample"
    for number, words in enumerate(sorted(lines)):
        assert words.startswith(f"refused: DataLoader: iterated in a worker ({number} of 2) of a torch DataLoader;")
        assert "rank=rank * info.num_workers + info.id" in words
        assert "world_size=world_size * info.num_workers" in words
        assert f"rank={number}, world_size=2 here" in words


@pytest.mark.parametrize("how", ["", "own sampler", "random sampler"])
def test_a_loader_in_workers_is_refused(forked: dict[str, list[str]], how: str) -> None:
    refused(forked[how])


@long
def test_a_loader_in_spawned_workers_is_refused(folder: Path, tmp_path: Path) -> None:
    refused(started(folder, tmp_path, "spawn", "")[""])


def test_the_rank_that_a_worker_is_counts_those_of_the_world(forked: dict[str, list[str]]) -> None:
    for rank, line in zip((2, 3), sorted(forked["world"]), strict=True):
        assert f"rank={rank}, world_size=6 here" in line


@pytest.mark.parametrize("how", ["ranks", "sampler"])
def test_workers_that_say_who_they_are_share_the_samples(forked: dict[str, list[str]], how: str) -> None:
    assert sorted(int(word) for line in forked[how] for word in line.split()) == list(range(N))


def test_single_samples_are_read_in_workers(forked: dict[str, list[str]], folder: Path) -> None:
    (line,) = forked["single"]
    assert sorted(map(int, line.split())) == sorted(stoker.ImageFolder(folder).targets)

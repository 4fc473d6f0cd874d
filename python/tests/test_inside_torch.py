"""stoker's loader in the worker processes of torch's DataLoader. Each in an interpreter of its own: they fork."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import run_python

import stoker

N = 50
PROGRAM = """
import sys
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

if __name__ == "__main__":
    how, context = sys.argv[1:]
    if how == "single":
        loader = data.DataLoader(Single(), 10, shuffle=True, num_workers=2, multiprocessing_context=context)
        print(*(int(label) for _, labels in loader for label in labels))
    else:
        loader = data.DataLoader(Wrapped(how), batch_size=None, num_workers=2, multiprocessing_context=context)
        for line in loader:
            print(line)
"""


def run(folder: Path, tmp_path: Path, how: str, context: str = "fork", env: dict[str, str] | None = None) -> list[str]:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(folder=str(folder)))
    code = f"import runpy, sys; sys.argv = [{str(script)!r}, {how!r}, {context!r}]"
    done = run_python(f"{code}; runpy.run_path(sys.argv[0], run_name='__main__')", env=env)
    assert done.returncode == 0, done.stderr
    return [str(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    ("how", "context"), [("", "fork"), ("", "spawn"), ("own sampler", "fork"), ("random sampler", "fork")]
)
def test_a_loader_in_workers_is_refused(folder: Path, tmp_path: Path, how: str, context: str) -> None:
    lines = sorted(run(folder, tmp_path, how, context))
    assert len(lines) == 2, "no worker gives a sample"
    for number, words in enumerate(lines):
        assert words.startswith(
            f"refused: DataLoader: iterated in worker {number} of the 2 workers of a torch DataLoader;"
        )
        assert "rank=rank * info.num_workers + info.id" in words
        assert "world_size=world_size * info.num_workers" in words
        assert f"rank={number}, world_size=2 here" in words


def test_the_rank_that_a_worker_is_counts_those_of_the_world(folder: Path, tmp_path: Path) -> None:
    lines = run(folder, tmp_path, "", env={"RANK": "1", "WORLD_SIZE": "3"})
    for rank, line in zip((2, 3), sorted(lines), strict=True):
        assert f"rank={rank}, world_size=6 here" in line


@pytest.mark.parametrize("how", ["ranks", "sampler"])
def test_workers_that_say_who_they_are_share_the_samples(folder: Path, tmp_path: Path, how: str) -> None:
    lines = run(folder, tmp_path, how)
    assert sorted(int(word) for line in lines for word in line.split()) == list(range(N))


def test_single_samples_are_read_in_workers(folder: Path, tmp_path: Path) -> None:
    (line,) = run(folder, tmp_path, "single")
    assert sorted(map(int, line.split())) == sorted(stoker.ImageFolder(folder).targets)

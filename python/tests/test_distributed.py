"""Two processes under torchrun, with gloo: training and evaluation on real pictures, and ranks that do not agree.

One run of torchrun for all of it: torch is imported three times in each.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from forms import mostly

import stoker

SCRIPT = """
import json, os, sys
import torch
import torch.distributed as dist
import stoker
from stoker import transforms as T

folder, other, out, parallel = sys.argv[1:]
ops = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor()])
train = stoker.ImageFolder(folder, ops)
test = stoker.ImageFolder(folder, T.Compose([T.CenterCrop(32), T.ToTensor()]))
train_loader = stoker.DataLoader(train, batch_size=4, shuffle=True)
test_loader = stoker.DataLoader(test, batch_size=4)
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 3))
if parallel == "DDP":  # DDP and an optimizer import many more modules of torch
    model = torch.nn.parallel.DistributedDataParallel(model)
    step = torch.optim.SGD(model.parameters(), 0.01)
log = {"train": [], "test": [], "steps": len(train_loader)}
for epoch in range(2):
    train_loader.set_epoch(epoch)
    for batch in train_loader:
        images, labels = batch
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        if parallel == "DDP":
            step.step()
        else:
            for weights in model.parameters():
                dist.all_reduce(weights.grad)
                weights.data -= 0.005 * weights.grad
        log["train"].append(batch.ids.tolist())
    right = torch.zeros(2)
    with torch.no_grad():
        for batch in test_loader:
            images, labels = batch
            hits = (model(images).argmax(1) == labels) & batch.valid
            right += torch.stack([hits.sum(), batch.valid.sum()])
            log["test"].append([batch.ids.tolist(), batch.valid.tolist()])
    dist.all_reduce(right)
    assert right[1] == len(test), right
log["state"] = train_loader.state_dict()
with open(f"{out}/{dist.get_rank()}.json", "w") as file:
    json.dump(log, file)
dist.barrier()
"""


BY_HAND = """
rank = dist.get_rank()
same = stoker.DataLoader(stoker.ImageFolder(folder), batch_size=4)
next(iter(same))
only = stoker.DataLoader(stoker.ImageFolder(other), batch_size=5)
if rank == 0:
    next(iter(only))
dist.barrier()
sliced = stoker.DataLoader(stoker.ImageFolder((folder, other)[rank]), batch_size=4)
try:
    next(iter(sliced))
    said = "no error"
except stoker.DataError as error:
    said = f"error {error.code} {error.hint}"
os.write(1, (said + "\\n").encode())  # one write: lines of two ranks do not mix
dist.barrier()
"""


DIFFERENT = """
world = dist.get_world_size()
data = stoker.ImageFolder(folder)

def tried(name, make):
    try:
        next(iter(make()))
        os.write(1, f"{name} of {rank}: fine\\n".encode())  # one write: lines of two ranks do not mix
    except stoker.ConfigError as error:
        os.write(1, f"{name} of {rank}: {str(error)!r}\\n".encode())
    dist.barrier()

torch.manual_seed(7 + rank)  # as many scripts do: it is not for the order
tried("torchs", lambda: stoker.DataLoader(data, 4, shuffle=True))
tried("seed", lambda: stoker.DataLoader(data, 4, shuffle=True, seed=7 + rank))
tried("placed", lambda: stoker.DataLoader(data, 4, shuffle=True, seed=7 + rank, rank=rank, world_size=world))
tried("sampler", lambda: stoker.DataLoader(data, 4, sampler=stoker.DistributedSampler(data, seed=7 + rank)))
tried("order", lambda: stoker.DataLoader(data, 4, shuffle=rank == 0))
tried("weights", lambda: stoker.DataLoader(data, 4, weights=[1 + rank] + [1] * 49))
tried("batch", lambda: stoker.DataLoader(data, 4 + rank, shuffle=True))
tried("stored", lambda: stoker.DataLoader(data, 4, seed=7 + rank))
tried("alone", lambda: stoker.DataLoader(data, 4, shuffle=True, seed=7 + rank, rank=0, world_size=1))
for shuffle in (True, False):
    loader = stoker.DataLoader(data, 4, shuffle=shuffle)
    if shuffle or rank == 1:
        next(iter(loader))
state = stoker.DataLoader(data, 4, shuffle=True, seed=41, rank=0, world_size=1).state_dict()
resumed = stoker.DataLoader(data, 4, shuffle=True)
iter(resumed)
resumed.load_state_dict(state)
print("resumed", rank, resumed.state_dict()["seed"], next(iter(resumed)).ids.tolist(), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def torchrun(script: Path, *arguments: str, ranks: int = 2, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    options = ["--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(script)]
    source = str(Path(stoker.__file__).parents[1])
    return subprocess.run(
        [*command, *arguments],
        env={**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@dataclass
class Ran:
    """What two ranks said, on both streams, and what they wrote."""

    stdout: str
    stderr: str
    out: Path


@pytest.mark.parametrize("parallel", mostly(["by hand", "DDP"], "by hand"))
def test_two_processes_under_torchrun(folder: Path, tmp_path: Path, parallel: str) -> None:
    out = tmp_path
    other = Path(shutil.copytree(folder, out / "other"))
    next(other.rglob("*.jpg")).unlink()
    script = out / "train.py"
    script.write_text(SCRIPT + BY_HAND + DIFFERENT)
    done = torchrun(script, str(folder), str(other), str(out), parallel)
    assert done.returncode == 0, done.stderr
    ran = Ran(done.stdout, done.stderr, out)
    one_plan(folder, ran)
    other_data_are_told(ran)
    other_seeds_and_orders_are_told(folder, ran)


def other_data_are_told(ran: Ran) -> None:
    assert ran.stdout.count("no error") == 1
    assert ran.stdout.count("error differs") == 1
    assert "by hand" in ran.stdout


def other_seeds_and_orders_are_told(folder: Path, ran: Ran) -> None:
    lines = ran.stdout.splitlines()

    def told(name: str) -> list[str]:
        found = [line.partition(": ")[2] for line in lines if line.startswith(f"{name} of ")]
        assert len(found) == 2, ran.stdout
        return sorted(found, key=len)

    for name in ("torchs", "stored", "alone"):
        assert told(name) == ["fine", "fine"], name
    for name, first, second in (
        ("seed", "seed 7", "seed 8"),
        ("placed", "seed 7", "seed 8"),
        ("sampler", "seed 7", "seed 8"),
        ("order", "full", "none"),
        ("weights", "weights", "weights"),
        ("batch", "4 on rank 0", "5 on rank 1"),
    ):
        fine, error = told(name)
        assert fine == "fine"
        assert first in error
        assert second in error
        assert "some samples come twice" in error
        assert "rank 0" in error
        assert "rank 1" in error
    resumed = sorted(line for line in lines if line.startswith("resumed"))
    assert [line.split()[1:3] for line in resumed] == [["0", "41"], ["1", "41"]]
    with stoker.DataLoader(stoker.ImageFolder(folder), 8, shuffle=True, seed=41) as loader:
        assert next(iter(loader)).ids.tolist() == [
            i for pair in zip(*(json.loads(line.split(maxsplit=3)[3]) for line in resumed), strict=True) for i in pair
        ]


def one_plan(folder: Path, ran: Ran) -> None:
    logs = [json.loads((ran.out / f"{rank}.json").read_text()) for rank in range(2)]
    with stoker.DataLoader(stoker.ImageFolder(folder), 1, True) as loader:
        plan = [int(batch.ids[0]) for _ in range(2) for batch in loader]
    together = []
    for a, b in zip(logs[0]["train"], logs[1]["train"], strict=True):
        together += [i for pair in zip(a, b, strict=True) for i in pair]
    assert together == plan
    assert len(logs[0]["train"]) == 2 * logs[0]["steps"]
    assert logs[0]["state"] == logs[1]["state"]
    for rank in range(2):
        assert f"rank {rank} of 2" in ran.stderr

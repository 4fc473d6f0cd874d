"""A real run under torchrun that is killed in mid-epoch, and goes on as one process and as three."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import stoker
from stoker import transforms as T

SCRIPT = """
import json, os, sys, time
import torch
import torch.distributed as dist
import stoker
from stoker import transforms as T

folder, out, goes_on = sys.argv[1:]
dist.init_process_group("gloo")
rank = dist.get_rank()
train = stoker.ImageFolder(folder, T.Compose([T.RandomResizedCrop(16), T.ToTensor()]))
loader = stoker.DataLoader(train, batch_size=2, shuffle=True, seed=3, num_workers=1)
if goes_on != "-":
    loader.load_state_dict(json.load(open(goes_on)))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 3)))
step = torch.optim.SGD(model.parameters(), 0.01)

def save(name, value):
    with open(f"{out}/{name}.part", "w") as file:
        json.dump(value, file)
    os.rename(f"{out}/{name}.part", f"{out}/{name}")

for batch in loader:
    images, labels = batch
    step.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    step.step()
    state = loader.state_dict()
    ids = [i for i, valid in zip(batch.ids.tolist(), batch.valid.tolist()) if valid]
    save(f"{rank}-{state['position']}.json", {"state": state, "ids": ids, "receipt": loader.receipt()})
    if goes_on == "-":
        time.sleep(0.05)  # so that a kill finds it in the middle
save(f"{rank}-end.json", loader.receipt())
dist.destroy_process_group()
"""


def torchrun(script: Path, world: int, *args: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}", str(script)]
    return subprocess.Popen(
        [*command, *map(str, args)], env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True
    )


def kill_group(group: int) -> None:
    """SIGKILL to torchrun and to all of its ranks, which have sessions of their own."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == group:
            os.kill(int(entry.name), signal.SIGKILL)
    os.kill(group, signal.SIGKILL)


def saved(out: Path, world: int) -> list[int]:
    """Positions at which all ranks have saved."""
    found = [
        {int(p.stem.split("-")[1]) for p in out.glob(f"{rank}-*.json") if not p.stem.endswith("end")}
        for rank in range(world)
    ]
    return sorted(set.intersection(*found))


def told(out: Path, rank: int, position: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"{rank}-{position}.json").read_text())
    return found


@pytest.mark.parametrize("then", [1, 3])
def test_killed_as_two_and_continued(folder: Path, tmp_path: Path, then: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    process = torchrun(script, 2, folder, first, "-")
    try:
        deadline = time.monotonic() + 120
        while len(saved(first, 2)) < 3:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        kill_group(process.pid)
    finally:
        process.wait(60)
    cut = saved(first, 2)[2]
    state = told(first, 0, cut)["state"]
    assert state == told(first, 1, cut)["state"], "states are equal on every rank"
    assert 0 < cut < len(stoker.ImageFolder(folder))
    seen = [i for rank in range(2) for p in saved(first, 2) if p <= cut for i in told(first, rank, p)["ids"]]
    receipts = [told(first, rank, cut)["receipt"] for rank in range(2)]
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert torchrun(script, then, folder, second, tmp_path / "state.json").wait(120) == 0
    for rank in range(then):
        seen += [i for p in saved(second, then) for i in told(second, rank, p)["ids"]]
        receipts.append(json.loads((second / f"{rank}-end.json").read_text()))
    data = stoker.ImageFolder(folder, T.Compose([T.RandomResizedCrop(16), T.ToTensor()]))
    assert sorted(seen) == list(range(len(data))), "every sample once over both runs"
    with stoker.DataLoader(data, 2, True, seed=3, rank=0, world_size=1) as loader:
        verdict = stoker.verify_receipts(receipts, loader)
        assert verdict["ok"], verdict
        assert verdict["complete"], verdict
        assert verdict["epochs"][0]["covered"] == [[0, len(data)]]
        missing = stoker.verify_receipts(receipts[1:], loader)
        assert not missing["ok"]
        assert "rank" in missing["problems"][0]

"""A real run under torchrun that is killed in mid-epoch, and goes on as one process and as three."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import wait_until
from forms import long

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
weights = torch.zeros(768, 3, requires_grad=True)  # an optimizer would import half of torch again

def save(name, value):
    with open(f"{out}/{name}.part", "w") as file:
        json.dump(value, file)
    os.rename(f"{out}/{name}.part", f"{out}/{name}")

for batch in loader:
    images, labels = batch
    torch.nn.functional.cross_entropy(images.flatten(1) @ weights, labels).backward()
    dist.all_reduce(weights.grad)
    with torch.no_grad():
        weights -= 0.01 * weights.grad
    weights.grad = None
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


@dataclass
class Killed:
    """What two ranks had saved when they were killed."""

    script: Path
    state: dict[str, Any]
    cut: int  # its position
    ids: list[int]  # of the batches before that
    receipts: list[dict[str, Any]]


@pytest.fixture(scope="module")
def killed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    root = tmp_path_factory.mktemp("killed")
    script, out = root / "train.py", root / "out"
    script.write_text(SCRIPT)
    out.mkdir()
    process = torchrun(script, 2, folder, out, "-")
    try:
        wait_until(lambda: len(saved(out, 2)) >= 3 or process.poll() is not None, "three steps were not saved", 300)
        assert process.poll() is None
        kill_group(process.pid)
    finally:
        process.wait(60)
    cut = saved(out, 2)[2]
    state = told(out, 0, cut)["state"]
    assert state == told(out, 1, cut)["state"], "states are equal on every rank"
    assert 0 < cut < len(stoker.ImageFolder(folder))
    ids = [i for rank in range(2) for p in saved(out, 2) if p <= cut for i in told(out, rank, p)["ids"]]
    return Killed(script, state, cut, ids, [told(out, rank, cut)["receipt"] for rank in range(2)])


@long  # tests/test_state.py continues in other worlds in one process, tests/test_swap.py kills a trainer
@pytest.mark.parametrize("then", [1, 3])
def test_killed_as_two_and_continued(killed: Killed, folder: Path, tmp_path: Path, then: int) -> None:
    seen, receipts = list(killed.ids), list(killed.receipts)
    (tmp_path / "state.json").write_text(json.dumps(killed.state))
    out = tmp_path / "out"
    out.mkdir()
    assert torchrun(killed.script, then, folder, out, tmp_path / "state.json").wait(300) == 0
    for rank in range(then):
        seen += [i for p in saved(out, then) for i in told(out, rank, p)["ids"]]
        receipts.append(json.loads((out / f"{rank}-end.json").read_text()))
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

"""A training script as people write it, with its import swapped: Pillow and Albumentations in a Dataset of its own.

It learns what it learns under torch's DataLoader, and a run that is killed with its workers goes on where it was.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forms
import pytest
from conftest import gone
from PIL import Image

import stoker

PHOTOS = Path(__file__).parents[2] / "testdata" / "photos"
STEPS = 12  # an epoch: 192 samples in batches of 16
EPOCHS = 3
TORCH = "from torch.utils.data import DataLoader"
STOKER = "from stoker import DataLoader"
SCRIPT = (
    TORCH
    + """
import json, os, sys, time
from pathlib import Path
import albumentations as A
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

class Photos(Dataset):
    def __init__(self, root):
        self.files = sorted(Path(root).glob("*/*.jpg"))
        self.transform = A.Compose([
            A.RandomResizedCrop((32, 32), scale=(0.5, 1.0)), A.HorizontalFlip(), A.RandomBrightnessContrast(p=0.5),
            A.Normalize(),
        ])
    def __len__(self):
        return len(self.files)
    def __getitem__(self, index):
        path = self.files[index]
        picture = np.asarray(Image.open(path).convert("RGB"))
        return torch.from_numpy(self.transform(image=picture)["image"].transpose(2, 0, 1).copy()), int(path.parent.name)

def main(root, out, seed, pause):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 6))
    torch.nn.init.zeros_(model[1].weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.002)
    loader = DataLoader(Photos(root), batch_size=16, shuffle=True, num_workers=2, drop_last=True)
    at, losses = 0, []
    if os.path.exists(f"{out}/state.pt"):
        saved = torch.load(f"{out}/state.pt", weights_only=False)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
        at, losses = saved["epoch"], saved["losses"]
    for epoch in range(at, EPOCHS):
        for pictures, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if hasattr(loader, "state_dict"):
                saved = {"model": model.state_dict(), "loader": loader.state_dict(), "receipt": loader.receipt()}
                torch.save({**saved, "losses": losses, "epoch": epoch}, f"{out}/state.tmp")
                os.replace(f"{out}/state.tmp", f"{out}/state.pt")
            time.sleep(pause)
    Path(f"{out}/losses.json").write_text(json.dumps(losses))

if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
""".replace("EPOCHS", str(EPOCHS))
)
# Runs in peace, one after the other in one interpreter: torch and Albumentations take longer to import than to train.
IN_TURN = """
import runpy, sys
for out, seed in zip(sys.argv[2::2], sys.argv[3::2]):
    sys.argv[2:] = [out, seed, "0"]
    runpy.run_path(f"{out}/train.py", run_name="__main__")
"""
SWAPPED = SCRIPT.replace(TORCH, STOKER)


@pytest.fixture(scope="module")
def crops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parts of the six photographs; which one is the class."""
    root = tmp_path_factory.mktemp("crops")
    for label, path in enumerate(sorted(PHOTOS.glob("*.jpg"))):
        (root / str(label)).mkdir()
        with Image.open(path) as photo:
            picture = photo.convert("RGB").resize((480, 360))
        for i in range(STEPS * 16 // 6):
            x, y = i % 8 * 32, i // 8 * 40
            picture.crop((x, y, x + 200, y + 160)).save(root / str(label) / f"{i:03}.jpg")
    return root


ENV = {"STOKER_LOG": "error", "OMP_NUM_THREADS": "1"}


# Runs in processes of their own, forked by an interpreter that has imported what they import.
FORKS = """
import os, runpy, sys
import albumentations, stoker, torch
import torch._dynamo  # optimizers do
for line in sys.stdin:
    if not (run := os.fork()):
        os.setsid()
        os.dup2(2, 1)  # what is read from here is this script's own
        sys.argv = line.split()
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
    print(run, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(run, 0)[1]), flush=True)
"""


class Starter:
    run = 0  # the process that was started last

    def __init__(self) -> None:
        command = [sys.executable, "-c", FORKS]
        self.process = subprocess.Popen(
            command, env={**os.environ, **ENV}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, crops: Path, out: Path, pause: float = 0.0) -> int:
        """The process of a run."""
        assert self.process.stdin is not None
        print(out / "train.py", crops, out, 1, pause, file=self.process.stdin, flush=True)
        self.run = self.read()
        return self.run

    def read(self) -> int:
        """What comes next: the process of a run, or how it ended."""
        assert self.process.stdout is not None
        limit = threading.Timer(300, self.process.kill)
        limit.start()
        try:
            return int(self.process.stdout.readline())
        finally:
            limit.cancel()


@pytest.fixture
def starter() -> Iterator[Starter]:
    made = Starter()
    yield made
    made.process.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(made.run or made.process.pid, signal.SIGKILL)
    made.process.communicate()


def runs(crops: Path, root: Path, *names: str) -> Path:
    """Runs in peace, by loader and seed."""
    arguments = []
    for name in names:
        text, seed = SCRIPT if name.startswith("torch") else SWAPPED, int(name[-1])
        (root / name).mkdir()
        (root / name / "train.py").write_text(text)
        arguments += [str(root / name), str(seed)]
    subprocess.run(
        [sys.executable, "-c", IN_TURN, str(crops), *arguments], env={**os.environ, **ENV}, check=True, timeout=600
    )
    return root


def losses(out: Path) -> list[float]:
    """The mean loss of each epoch."""
    found: list[float] = json.loads((out / "losses.json").read_text())
    assert len(found) == EPOCHS * STEPS
    return [sum(found[i : i + STEPS]) / STEPS for i in range(0, len(found), STEPS)]


@forms.long  # tests/test_python_datasets.py compares batches with torch's, tests/test_recipes.py trains
def test_the_loss_curve_is_that_of_torch(crops: Path, tmp_path: Path) -> None:
    root = runs(crops, tmp_path, "torch1", "torch2", "stoker1")
    theirs = [losses(root / "torch1"), losses(root / "torch2")]
    ours = [losses(root / "stoker1")]
    for epoch, values in enumerate(zip(*theirs, strict=True)):
        middle, spread = sum(values) / len(values), max(values) - min(values)
        for one in ours:
            assert abs(one[epoch] - middle) <= 3 * spread + 0.1 * middle, (epoch, theirs, ours)
    assert ours[0][-1] < 0.7 * ours[0][0], ours


@pytest.mark.parametrize("kills", forms.mostly([[STEPS + 7], [5, STEPS + 7]], [STEPS + 7]))
def test_a_run_that_is_killed_with_its_workers_goes_on(
    kills: list[int], crops: Path, starter: Starter, tmp_path: Path
) -> None:
    """The model ends with the weights of an undisturbed run, to the last bit, and the receipts agree."""
    import torch

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for out in (whole, cut):
        out.mkdir()
        (out / "train.py").write_text(SWAPPED.replace(f"range(at, {EPOCHS})", "range(at, 2)"))
    starter.start(crops, whole)
    assert starter.read() == 0
    receipts: list[dict[str, Any]] = []
    for steps in kills:
        run = starter.start(crops, cut, pause=0.05)
        until = time.monotonic() + 120
        while not (cut / "state.pt").exists() or len(torch.load(cut / "state.pt")["losses"]) < steps:
            assert not gone(run)
            assert time.monotonic() < until
            time.sleep(0.02)
        os.killpg(run, signal.SIGKILL)  # the trainer and its workers; the engine follows
        assert starter.read() == -signal.SIGKILL
        receipts.append(torch.load(cut / "state.pt", weights_only=False)["receipt"])
    starter.start(crops, cut)
    assert starter.read() == 0
    expected, found = (torch.load(out / "state.pt", weights_only=False) for out in (whole, cut))
    receipts.append(found["receipt"])
    assert found["losses"] == expected["losses"]
    for name, weights in expected["model"].items():
        assert torch.equal(weights, found["model"][name]), name
    namespace: dict[str, Any] = {"__name__": "script"}
    exec(compile(SWAPPED, "train.py", "exec"), namespace)
    namespace["Photos"].__module__ = "__main__"  # as in the script
    loader = stoker.DataLoader(
        namespace["Photos"](crops), batch_size=16, shuffle=True, drop_last=True, seed=receipts[0]["seed"], num_workers=1
    )
    verdict = stoker.verify_receipts(receipts, loader)
    assert verdict["complete"], verdict

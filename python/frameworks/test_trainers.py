"""Which batches of which epochs real trainers give to a training step. Every batch is known by its pixels, so that what
is compared is order and crops, whatever the trainer does to the object. Prints what each of them saw."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import accelerate
import lightning
import pytest
import torch
import transformers

import stoker
from stoker import transforms as T

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from conftest import make_folder
from forms import long

N, SIZE, STEPS = 20, 4, 5
Place = tuple[int, int]  # epoch and step

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    os.environ["STOKER_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    return make_folder(tmp_path_factory.mktemp("folder"), N)


def loader_of(folder: Path) -> stoker.DataLoader:
    dataset = stoker.ImageFolder(folder, T.Compose([T.RandomResizedCrop(8), T.ToTensor()]))
    return stoker.DataLoader(dataset, SIZE, shuffle=True, seed=1)


class Log:
    """What a training step saw."""

    def __init__(self, folder: Path) -> None:
        self.make: Callable[[], stoker.DataLoader] = lambda: loader_of(folder)
        self._known: dict[bytes, Place] = {}
        self.seen: list[Place] = []
        with self.make() as loader:
            for epoch in range(4):
                loader.set_epoch(epoch)
                for batch in loader:
                    self._known[self._key(batch[0])] = (epoch, batch.step)
        assert len(self._known) == 4 * STEPS

    def _key(self, images: Any) -> bytes:
        return bytes(images.detach().contiguous().numpy())

    def __call__(self, images: Any) -> None:
        self.seen.append(self._known[self._key(images)])

    def take(self, what: str) -> list[Place]:
        seen, self.seen = self.seen, []
        epochs: dict[int, list[int]] = {}
        for epoch, step in seen:
            epochs.setdefault(epoch, []).append(step)
        words = ", ".join(f"epoch {epoch}: steps {' '.join(map(str, steps))}" for epoch, steps in epochs.items())
        print(f"\n{what}: {words}")
        return seen


@pytest.fixture
def log(folder: Path) -> Log:
    return Log(folder)


def places(*epochs: int, first: int = 0) -> list[Place]:
    return [(epoch, step) for i, epoch in enumerate(epochs) for step in range(first if i == 0 else 0, STEPS)]


# Lightning.


class Module(lightning.LightningModule):
    def __init__(self, train: Log, validation: Log | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(192, 1)
        self.logs = train, validation

    def training_step(self, batch: Any, _: int) -> Any:
        self.logs[0](batch[0])
        return self.layer(batch[0].flatten(1)).mean()

    def validation_step(self, batch: Any, _: int) -> None:
        assert self.logs[1] is not None
        self.logs[1](batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)


class Data(lightning.LightningDataModule):
    """Makes the loaders when Lightning asks for them; ``reload_dataloaders_every_n_epochs`` makes them anew."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self.log = log

    def train_dataloader(self) -> Any:
        return self.log.make()


def trainer(**settings: Any) -> Any:
    usual = {"max_epochs": 3, "num_sanity_val_steps": 0, "enable_checkpointing": False, "logger": False}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return lightning.Trainer(**{**usual, **quiet, **settings})


def test_lightning(log: Log) -> None:
    with log.make() as loader:
        trainer().fit(Module(log), loader)
    assert log.take("Lightning") == places(0, 1, 2)


def test_lightning_with_sanity_steps(log: Log, folder: Path) -> None:
    validation = Log(folder)
    with log.make() as train, validation.make() as held:
        trainer(num_sanity_val_steps=2).fit(Module(log, validation), train, held)
    assert log.take("Lightning, num_sanity_val_steps=2, training") == places(0, 1, 2)
    assert validation.take("Lightning, num_sanity_val_steps=2, validation") == [(0, 0), (0, 1), *places(0, 1, 2)]


@pytest.mark.parametrize("every", [1, 2])
def test_lightning_that_reloads(log: Log, every: int) -> None:
    trainer(reload_dataloaders_every_n_epochs=every, max_epochs=4).fit(Module(log), datamodule=Data(log))
    assert log.take(f"Lightning, reload_dataloaders_every_n_epochs={every}") == places(0, 1, 2, 3)


def test_lightning_that_stops_and_goes_on(log: Log, tmp_path: Path) -> None:
    class Save(lightning.Callback):
        def on_train_batch_end(self, running: Any, *_: Any) -> None:
            if running.global_step == STEPS + 2:
                running.save_checkpoint(tmp_path / "middle.ckpt")

        def on_train_epoch_end(self, running: Any, *_: Any) -> None:
            running.save_checkpoint(tmp_path / f"end{running.current_epoch}.ckpt")

    with log.make() as loader:
        trainer(callbacks=[Save()]).fit(Module(log), loader)
    log.seen = []
    for name, expected in (
        ("middle", places(1, 2, first=2)),
        ("end0", places(1, 2)),
        ("end1", places(2)),
    ):
        with log.make() as loader:
            trainer().fit(Module(log), loader, ckpt_path=tmp_path / f"{name}.ckpt")
        assert log.take(f"Lightning, resumed from {name}.ckpt") == expected


class Scheduled(Module):
    """Asks for the number of steps, as schedules do: Lightning makes its iterators before it reads a checkpoint."""

    def configure_optimizers(self) -> Any:
        assert self.trainer.estimated_stepping_batches == 3 * STEPS
        return super().configure_optimizers()


def test_lightning_that_goes_on_with_a_schedule(log: Log, tmp_path: Path) -> None:
    class Save(lightning.Callback):
        def on_train_batch_end(self, running: Any, *_: Any) -> None:
            if running.global_step == STEPS + 2:
                running.save_checkpoint(tmp_path / "middle.ckpt")

    with log.make() as loader:
        trainer(callbacks=[Save()]).fit(Scheduled(log), loader)
    log.seen = []
    with log.make() as loader:
        trainer().fit(Scheduled(log), loader, ckpt_path=tmp_path / "middle.ckpt")
    assert log.take("Lightning, resumed with a schedule") == places(1, 2, first=2)


def test_fabric(log: Log) -> None:
    fabric = lightning.Fabric(accelerator="cpu")
    fabric.launch()
    layer = torch.nn.Linear(192, 1)
    model, optimizer = fabric.setup(layer, torch.optim.SGD(layer.parameters(), 0.01))
    with log.make() as loader:
        for _ in range(3):
            for images, _labels in loader:
                log(images)
                optimizer.zero_grad()
                fabric.backward(model(images.flatten(1)).mean())
                optimizer.step()
    assert log.take("Fabric") == places(0, 1, 2)


# Hugging Face.


class Net(torch.nn.Module):
    def __init__(self, log: Log) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(192, 1)
        self.log = log

    def forward(self, images: Any = None, labels: Any = None) -> Any:
        self.log(images)
        return {"loss": self.layer(images.flatten(1)).mean()}


class Dicts:
    """transformers wants dicts; this gives the loader's batches as such, and is the loader besides."""

    def __init__(self, loader: stoker.DataLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return ({"images": images, "labels": labels} for images, labels in self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


class HuggingFace(transformers.Trainer):
    loader: Any = None

    def get_train_dataloader(self) -> Any:
        return self.loader


def hugging_face(log: Log, loader: Any, out: Path, **more: Any) -> HuggingFace:
    usual: dict[str, Any] = {"num_train_epochs": 3, "save_strategy": "steps", "save_steps": STEPS + 2, "report_to": []}
    quiet: dict[str, Any] = {"use_cpu": True, "disable_tqdm": True, "logging_strategy": "no"}
    made = HuggingFace(Net(log), transformers.TrainingArguments(str(out), **{**usual, **quiet, **more}))
    made.loader = loader
    return made


def test_hugging_face(log: Log, tmp_path: Path) -> None:
    with log.make() as loader:
        hugging_face(log, Dicts(loader), tmp_path).train()
    assert log.take("transformers.Trainer") == places(0, 1, 2)


def test_hugging_face_that_goes_on(log: Log, tmp_path: Path) -> None:
    """Its own skipping makes a DataLoader of torch's; ignore_data_skip leaves the place to the loader's state."""
    states = {}

    class Save(transformers.TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            states[state.global_step] = loader.state_dict()

    with log.make() as loader:
        first = hugging_face(log, Dicts(loader), tmp_path)
        first.add_callback(Save())
        first.train()
    log.seen = []
    with log.make() as loader:
        loader.load_state_dict(states[STEPS + 2])
        second = hugging_face(log, Dicts(loader), tmp_path, ignore_data_skip=True, max_steps=2 * STEPS)
        second.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{STEPS + 2}"))
    assert log.take("transformers.Trainer, resumed with ignore_data_skip")[: STEPS - 2] == places(1, first=2)


def test_accelerate(log: Log) -> None:
    accelerator = accelerate.Accelerator(cpu=True)
    layer = torch.nn.Linear(192, 1)
    with log.make() as loader:
        model, optimizer, data = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), 0.01), loader)
        for _ in range(3):
            for images, _labels in data:
                log(images)
                optimizer.zero_grad()
                accelerator.backward(model(images.flatten(1)).mean())
                optimizer.step()
    assert log.take("Accelerate") == places(0, 1, 2)


def test_a_plain_loop(log: Log) -> None:
    with log.make() as loader:
        for epoch in range(3):
            loader.set_epoch(epoch)
            for images, _labels in loader:
                log(images)
        for images, _labels in loader:
            log(images)
    assert log.take("a plain loop") == places(0, 1, 2, 3)


DDP = """
import logging, os, sys, warnings
warnings.filterwarnings("ignore")
import lightning, torch, stoker
from stoker import transforms as T
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(192, 1)

    def on_before_batch_transfer(self, batch, _):
        if self.trainer.training:
            os.write(1, f"train {self.current_epoch} {batch.epoch} {batch.ids.tolist()}\\n".encode())
        return batch

    def training_step(self, batch, _):
        return self.layer(batch[0].flatten(1)).mean()

    def validation_step(self, batch, _):
        self.log("loss", self.layer(batch[0].flatten(1)).mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

def make(shuffle):
    data = stoker.ImageFolder(sys.argv[1], T.Compose([T.CenterCrop(8), T.ToTensor()]))
    return stoker.DataLoader(data, 2, shuffle=shuffle, seed=1)

def fit(epochs, path=None):
    settings = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = lightning.Trainer(
        strategy="ddp", devices=2, max_epochs=epochs, num_sanity_val_steps=2, enable_checkpointing=False, **settings
    )
    trainer.fit(Module(), make(True), make(False), ckpt_path=path)
    trainer.save_checkpoint(sys.argv[2])

fit(2)
fit(3, sys.argv[2])
"""


@long  # test_processes.py has the short form
def test_lightning_with_two_processes(folder: Path, tmp_path: Path) -> None:
    """Ranks compare where they begin: nothing is refused, and each epoch has every sample once."""
    script = tmp_path / "ddp.py"
    script.write_text(DDP)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    paths = [str(Path(stoker.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [*command, str(folder), str(tmp_path / "last.ckpt")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[tuple[int, int], list[int]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("train "):
            _, trainers, ours, ids = line.split(maxsplit=3)
            seen.setdefault((int(trainers), int(ours)), []).extend(json.loads(ids))
    assert {epochs: sorted(ids) for epochs, ids in seen.items()} == {(e, e): [*range(N)] for e in range(3)}


def test_moves_keep_what_is_known_of_a_batch(folder: Path) -> None:
    from accelerate.utils import send_to_device
    from lightning.fabric.utilities.apply_func import move_data_to_device

    for move in (move_data_to_device, send_to_device):
        for batch in loader_of(folder):
            there = move(batch, torch.device("meta"))
            assert there[0].device.type == "meta"
            assert type(there) is type(batch)
            assert torch.equal(there.ids, batch.ids)
            assert torch.equal(there.valid, batch.valid)
            assert (there.epoch, there.step, there.bad) == (batch.epoch, batch.step, [])

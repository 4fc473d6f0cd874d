"""Libraries that take a torch loader apart, to put another sampler in or to wrap it: stoker's stays as it is, or the
error says what to do. In one process; the strategies are those of several."""

from __future__ import annotations

import itertools
import logging
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import accelerate
import lightning_fabric
import pytest
import pytorch_lightning as pl
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from conftest import make_folder
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, WeightedRandomSampler

import stoker
from stoker import transforms as T

N, SIZE = 20, 4
QUIET = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> stoker.ImageFolder:
    root = make_folder(tmp_path_factory.mktemp("folder"), N)
    return stoker.ImageFolder(root, T.Compose([T.CenterCrop(8), T.ToTensor()]))


class Mine(Dataset[Any]):
    """A dataset that Python reads."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> Any:
        return torch.full((3, 8, 8), float(i)), i


def flat(lists: Any) -> list[int]:
    return [*itertools.chain.from_iterable(lists)]


def ids(loader: Any) -> list[list[int]]:
    return [batch.ids.tolist() for batch in loader]


# Lightning.


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(192, 1)
        self.seen: list[list[int]] = []

    def training_step(self, batch: Any, _: int) -> Any:
        self.seen.append(batch.ids.tolist())
        return self.layer(batch[0].flatten(1)).mean()

    def validation_step(self, batch: Any, _: int) -> None:
        pass

    def predict_step(self, batch: Any, _: int) -> Any:
        return batch.ids.tolist() if hasattr(batch, "ids") else batch[1].tolist()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.01)


def trainer(**settings: Any) -> pl.Trainer:
    usual = {"max_epochs": 2, "num_sanity_val_steps": 0, "enable_checkpointing": False}
    return pl.Trainer(**{**QUIET, **usual, **settings})


@pytest.fixture(autouse=True)
def no_group() -> Iterator[None]:
    """Lightning leaves its process group of one open, and what it tells its processes in os.environ."""
    with mock.patch.dict(os.environ):
        yield
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


class Own(stoker.DataLoader):
    """A user's, without a constructor."""


@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_lightning_predicts_with_the_loader(data: stoker.ImageFolder, strategy: str) -> None:
    """Lightning makes every loader anew for predictions."""
    batches = BatchSampler(range(N), SIZE, drop_last=False)
    backwards = range(N - 1, -1, -1)
    cases: list[tuple[Any, Any]] = [
        (lambda: stoker.DataLoader(data, SIZE), range(N)),
        (lambda: Own(data, SIZE), range(N)),
        (lambda: stoker.DataLoader(data, SIZE, shuffle=True, seed=3), None),
        (lambda: stoker.DataLoader(Mine(), SIZE, num_workers=0), range(N)),
    ]
    if strategy == "auto":  # with ranks, Lightning deals out the samples of a user's sampler: an error
        cases.append((lambda: stoker.DataLoader(data, batch_sampler=batches), range(N)))
        cases.append((lambda: stoker.DataLoader(data, SIZE, sampler=backwards), backwards))
    for make, order in cases:
        found = trainer(strategy=strategy, devices=1).predict(Module(), make())
        with make() as same:
            want = [batch[1].tolist() if isinstance(batch, list) else batch.ids.tolist() for batch in same]
        assert found == want
        assert order is None or flat(found) == [*order]
    single = trainer(strategy=strategy, devices=1).predict(Module(), stoker.DataLoader(data, None))
    assert single is not None
    assert len(single) == N


def test_lightning_overfits_a_stored_order_only(data: stoker.ImageFolder) -> None:
    module = Module()
    trainer(overfit_batches=2).fit(module, stoker.DataLoader(data, SIZE))
    assert module.seen == [[0, 1, 2, 3], [4, 5, 6, 7]] * 2
    with pytest.raises(stoker.ConfigError, match=r"SequentialSampler.*\n.*overfit_batches.*shuffle=False"):
        trainer(overfit_batches=2).fit(module, stoker.DataLoader(data, SIZE, shuffle=True, seed=0))


def test_lightning_puts_no_sampler_in(data: stoker.ImageFolder) -> None:
    loader = stoker.DataLoader(data, SIZE, shuffle=True, seed=0)
    for one in (loader, stoker.DataLoader(data, SIZE, sampler=stoker.DistributedSampler(data, seed=4))):
        running = trainer(strategy="ddp", devices=1, max_epochs=1)
        assert running._accelerator_connector.is_distributed
        running.fit(Module(), one)
        assert running.train_dataloader is one
    theirs = DataLoader(Mine(), SIZE, sampler=stoker.DistributedSampler(Mine()))
    assert isinstance(theirs.sampler, stoker.DistributedSampler)


@pytest.mark.parametrize(
    ("sampler", "advice"),
    [
        (RandomSampler(range(N)), "shuffle=True"),
        (WeightedRandomSampler([1.0] * N, N, replacement=False), "weights="),
        (range(N), "use_distributed_sampler=False"),
    ],
    ids=["random", "weighted", "range"],
)
def test_lightning_cannot_deal_out_a_users_sampler(data: stoker.ImageFolder, sampler: Any, advice: str) -> None:
    loader = stoker.DataLoader(data, SIZE, sampler=sampler)
    with pytest.raises(stoker.ConfigError, match=rf"another sampler.*\n.*{advice}"):
        trainer(strategy="ddp", devices=1).fit(Module(), loader)
    module = Module()
    trainer(strategy="ddp", devices=1, use_distributed_sampler=False, max_epochs=1).fit(module, loader)
    assert sorted(flat(module.seen)) == [*range(N)]


def test_lightning_with_a_batch_sampler_of_the_user(data: stoker.ImageFolder) -> None:
    loader = stoker.DataLoader(data, batch_sampler=BatchSampler(range(N), SIZE, drop_last=False))
    with pytest.raises(stoker.ConfigError, match="use_distributed_sampler=False"):
        trainer(strategy="ddp", devices=1).fit(Module(), loader)
    dealt = stoker.BatchSampler(stoker.DistributedSampler(data), SIZE, drop_last=False)
    loader = stoker.DataLoader(data, batch_sampler=dealt)
    module = Module()
    trainer(strategy="ddp", devices=1, max_epochs=1).fit(module, loader)
    assert sorted(flat(module.seen)) == [*range(N)]


def test_lightning_that_seeds_workers(data: stoker.ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):
        monkeypatch.setenv(name, "")
    pl.seed_everything(3, workers=True, verbose=False)
    loader = stoker.DataLoader(data, SIZE, shuffle=True)
    want = ids(loader)
    loader.set_epoch(0)
    module = Module()
    trainer(max_epochs=1).fit(module, loader)
    assert module.seen == want
    fabric = lightning_fabric.Fabric(accelerator="cpu")
    fabric.launch()
    assert [batch.ids.tolist() for batch in fabric.setup_dataloaders(stoker.DataLoader(data, SIZE, seed=1))]


# Fabric.


def fabric_of_one(**settings: Any) -> Any:
    fabric = lightning_fabric.Fabric(accelerator="cpu", **settings)
    fabric.launch()
    return fabric


def test_fabric_shows_the_loaders_attributes(data: stoker.ImageFolder) -> None:
    loader = stoker.DataLoader(data, SIZE, shuffle=True, seed=0, num_workers=2, drop_last=True)
    wrapped = fabric_of_one().setup_dataloaders(loader)
    theirs = fabric_of_one().setup_dataloaders(DataLoader(Mine(), SIZE))
    for name in [name for name in vars(theirs) if not name.startswith("_")]:
        assert hasattr(wrapped, name)
    assert (wrapped.dataset, wrapped.batch_size, wrapped.num_workers, wrapped.drop_last) == (data, SIZE, 2, True)
    assert (len(wrapped), len(wrapped.sampler), len(wrapped.batch_sampler)) == (5, N, 5)


@pytest.mark.parametrize("sampled", [False, True])
def test_fabric_counts_from_0_after_a_resume_and_the_loader_does_not(
    data: stoker.ImageFolder, sampled: bool, tmp_path: Path
) -> None:
    def make() -> Any:
        order = {"sampler": stoker.RandomSampler(data, seed=1)} if sampled else {"shuffle": True, "seed": 1}
        return stoker.DataLoader(data, SIZE, **order)

    whole = [ids(loader) for loader in [make()] for _ in range(4)]
    fabric = fabric_of_one()
    wrapped = fabric.setup_dataloaders(make())
    assert [ids(wrapped), ids(wrapped)] == whole[:2]
    begun = iter(wrapped)
    assert [next(begun).ids.tolist(), next(begun).ids.tolist()] == whole[2][:2]
    fabric.save(tmp_path / "state.ckpt", {"train": wrapped})
    wrapped = fabric.setup_dataloaders(make())
    fabric.load(tmp_path / "state.ckpt", {"train": wrapped})
    assert [ids(wrapped), ids(wrapped)] == [whole[2][2:], whole[3]]


def test_fabric_puts_no_sampler_in(data: stoker.ImageFolder) -> None:
    fabric = fabric_of_one(strategy="ddp", devices=1)
    loader = stoker.DataLoader(data, SIZE, shuffle=True, seed=0)
    assert fabric.setup_dataloaders(loader)._dataloader is loader
    mine = stoker.DataLoader(data, SIZE, sampler=range(N))
    with pytest.raises(stoker.ConfigError, match="use_distributed_sampler=False"):
        fabric.setup_dataloaders(mine)
    assert fabric.setup_dataloaders(mine, use_distributed_sampler=False)._dataloader is mine


# Accelerate.


@pytest.fixture
def accelerator() -> Iterator[accelerate.Accelerator]:
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    made = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    yield made
    made.free_memory()
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.mark.parametrize("own", [False, True])
def test_accelerate_passes_the_loader_on(data: stoker.ImageFolder, own: bool, accelerator: Any) -> None:
    made = stoker.DataLoader(Mine() if own else data, SIZE, shuffle=True, seed=0, num_workers=0 if own else 1)
    loader = accelerator.prepare(made)
    assert loader is made
    assert accelerator._dataloaders == [made]
    assert accelerator.prepare(made) is made
    assert accelerator._dataloaders == [made]


@pytest.mark.parametrize("tail", ["pad", "drop"])
def test_accelerates_accumulation_ends_with_the_epoch(data: stoker.ImageFolder, tail: str, accelerator: Any) -> None:
    """Five batches, two to an update: the last one is an update of its own. The loader of a validation in between is in
    use for as long as it is iterated."""
    size = 4 if tail == "pad" else 3
    model, train, held = accelerator.prepare(
        torch.nn.Linear(192, 1), stoker.DataLoader(data, size, tail=tail), stoker.DataLoader(data, 10)
    )
    state = accelerator.gradient_state
    steps = len(train)
    for epoch in range(2):
        updates = []
        for batch in train:
            with accelerator.accumulate(model):
                updates.append(accelerator.sync_gradients)
            assert (state.active_dataloader, batch.epoch) == (train, epoch)
            if batch.step == 1:
                assert [state.end_of_dataloader for _ in held] == [False, True]
                assert state.active_dataloader is train
        assert updates == [i % 2 == 1 or i == steps - 1 for i in range(steps)]
        assert not state.in_dataloader
    for _ in train:
        break
    assert not state.end_of_dataloader
    assert [state.end_of_dataloader for _ in train] == [False] * (steps - 1) + [True]


def test_a_loader_that_was_not_prepared_is_not_in_use(data: stoker.ImageFolder, accelerator: Any) -> None:
    for _ in stoker.DataLoader(data, SIZE):
        assert not accelerator.gradient_state.in_dataloader


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("tail", ["pad", "fill", "drop"])
def test_what_gather_for_metrics_drops_is_padding(data: stoker.ImageFolder, world: int, tail: str) -> None:
    """It concatenates the ranks' rows of the last step, and keeps as many as ``remainder`` says; -1: all."""
    for size in (1, 2, 3, 5):
        ranks = [stoker.DataLoader(data, size, rank=rank, world_size=world, tail=tail) for rank in range(world)]
        last = [[*loader][-1] for loader in ranks]
        kept = {loader.remainder for loader in ranks}
        assert len(kept) == 1
        valid = [one for batch in last for one in batch.valid.tolist()]
        (rows,) = kept
        if rows == -1:
            assert valid != sorted(valid, reverse=True), (size, "the padding is at the end")
        elif rows == 0:
            assert all(valid)
        else:
            assert valid == [True] * rows + [False] * (len(valid) - rows)


@pytest.mark.parametrize("ended", [False, True])
def test_accelerate_saves_and_loads_the_loader(
    data: stoker.ImageFolder, ended: bool, accelerator: Any, tmp_path: Path
) -> None:
    """A loader that was iterated to its end, as that of a validation, begins the next pass; one in use goes on."""
    loader = accelerator.prepare(stoker.DataLoader(data, SIZE, shuffle=True, seed=2))
    whole = [ids(loader), ids(loader)]
    loader.set_epoch(0)
    iterator = iter(loader)
    taken = [batch.ids.tolist() for batch in (iterator if ended else [next(iterator), next(iterator)])]
    accelerator.save_state(tmp_path / "state")
    loader.set_epoch(7)
    accelerator.load_state(tmp_path / "state")
    assert ids(loader) == (whole[1] if ended else whole[0][len(taken) :])


theirs = accelerate.skip_first_batches  # as a script has it that imported it by name, before anything was prepared


def test_accelerates_skipping_by_a_name_imported_before_is_an_error(data: stoker.ImageFolder, accelerator: Any) -> None:
    for loader in (stoker.DataLoader(data, SIZE), accelerator.prepare(stoker.DataLoader(data, SIZE))):
        with pytest.raises(stoker.ConfigError, match="continues by itself"):
            next(iter(theirs(loader, 2)))
        loader.skip(2)
        assert ids(loader)[0] == [8, 9, 10, 11]


def test_accelerate_skips(data: stoker.ImageFolder, accelerator: Any, tmp_path: Path) -> None:
    """As complete_cv_example does: load_state, then skip_first_batches; and skipping alone."""
    loader = accelerator.prepare(stoker.DataLoader(data, SIZE, shuffle=True, seed=2))
    whole = [ids(loader), ids(loader)]
    for count in range(len(whole[0])):
        loader.set_epoch(0)
        assert ids(accelerator.skip_first_batches(loader, count)) == whole[0][count:]
        assert ids(loader) == whole[1]
        loader.set_epoch(0)
        iterator = iter(loader)
        for _ in range(count):
            next(iterator)
        accelerator.save_state(tmp_path / "state")
        loader.set_epoch(7)
        accelerator.load_state(tmp_path / "state")
        assert ids(accelerator.skip_first_batches(loader, count)) == whole[0][count:]
    accelerator.load_state(tmp_path / "state")
    with pytest.raises(stoker.ConfigError, match="load_state has put the loader where it was"):
        accelerator.skip_first_batches(loader, 1)
    torchs = torch.utils.data.DataLoader(list(range(6)), 2)
    assert [batch.tolist() for batch in accelerator.skip_first_batches(torchs, 1)] == [[2, 3], [4, 5]]


def test_a_checkpoint_at_the_last_batch_begins_the_next_epoch(
    data: stoker.ImageFolder, accelerator: Any, tmp_path: Path
) -> None:
    loader = accelerator.prepare(stoker.DataLoader(data, SIZE, shuffle=True, seed=2))
    whole = [ids(loader), ids(loader)]
    loader.set_epoch(0)
    for batch in loader:
        if batch.step + 1 == len(loader):
            accelerator.save_state(tmp_path / "state")
    loader.set_epoch(7)
    accelerator.load_state(tmp_path / "state")
    assert loader.state_dict()["epoch"] == 1
    assert ids(loader) == whole[1]


@pytest.mark.parametrize("own", [False, True])
def test_accelerate_gets_batches_on_its_device(
    data: stoker.ImageFolder, own: bool, accelerator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = accelerator.prepare(stoker.DataLoader(Mine() if own else data, SIZE, num_workers=0 if own else 1))
    monkeypatch.setitem(PartialState._shared_state, "device", torch.device("meta"))
    for step, batch in enumerate(loader):
        assert [value.device.type for value in batch] == ["meta", "meta"]
        facts = loader.facts if own else batch
        assert (facts.step, facts.ids.tolist()) == (step, [*range(4 * step, 4 * step + 4)])
    assert [batch[0].device.type for batch in stoker.DataLoader(data, N)] == ["cpu"]

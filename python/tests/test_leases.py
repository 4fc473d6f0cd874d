"""Slots and who holds them. Freed slots are poisoned here, so that every array over one that was freed shows it."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from conftest import engine, engines, gone, wait_until

import stoker
from stoker import _lease
from stoker import transforms as T
from stoker._batch import OWNED_BYTES

BIG = T.Resize((256, 256))  # a batch of 8 is 1.5 MiB: a view


@pytest.fixture(autouse=True)
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_POISON", "1")


@pytest.fixture
def dataset(folder: Path) -> stoker.ImageFolder:
    return stoker.ImageFolder(folder, BIG)


def sums(loader: Any) -> list[int]:
    return [int(batch[0].long().sum()) for batch in loader]


def leased(loader: stoker.DataLoader) -> int:
    return int(loader.stats()["leased"])


def test_a_slot_comes_back_when_its_batch_is_gone(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8) as loader:
        iterator = iter(loader)
        batch = next(iterator)
        assert leased(loader) == 1
        del batch
        wait_until(lambda: leased(loader) == 0, "the slot did not come back")
        slots = set()
        for batch in iterator:
            slots.add(batch[0].data_ptr())
        assert len(slots) <= 6


def test_everything_derived_keeps_it(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8) as loader:
        iterator = iter(loader)
        batch = next(iterator)
        expected = batch[0][2].clone()
        derived: list[Any] = [
            batch[0][2:3],
            batch[0].numpy()[2],
            batch[0].detach().permute(0, 2, 3, 1)[2].numpy().transpose(2, 0, 1),
            memoryview(batch[0].permute(0, 2, 3, 1).numpy())[2:3],
        ]
        del batch
        for batch in iterator:
            del batch
        while derived:
            one = torch.as_tensor(np.asarray(derived.pop()))
            one = one.reshape(one.shape[-3:])
            assert torch.equal(one if one.shape[0] == 3 else one.permute(2, 0, 1), expected)
            del one
            if derived:
                wait_until(lambda: leased(loader) == 1, "a view does not keep the slot, or another is kept")
        wait_until(lambda: leased(loader) == 0, "the slot did not come back")


def test_all_batches_may_be_kept(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8) as loader:
        expected = sums(loader)
        loader.set_epoch(0)
        kept = list(loader)
        views = sum(batch[0].nbytes >= OWNED_BYTES for batch in kept)
        wait_until(lambda: leased(loader) == views, "the copies keep their slots")
        assert sums(kept) == expected


def test_labels_do_not_keep_images(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8) as loader:
        labels = [(batch[1], batch.ids, batch.valid) for batch in loader]
        wait_until(lambda: leased(loader) == 0, "labels keep slots")
        assert torch.cat([ids for _, ids, _ in labels]).tolist() == list(range(50))
        assert torch.cat([label for label, _, _ in labels]).tolist() == dataset.targets
        assert all(bool(valid.all()) for _, _, valid in labels)


def test_small_batches_are_copies(folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder, T.Resize((16, 16))), 8) as loader:
        expected = sums(loader)
        loader.set_epoch(0)
        kept = list(loader)
        wait_until(lambda: leased(loader) == 0, "copies keep slots")
        assert sums(kept) == expected


def test_batches_may_be_written(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8) as loader:
        expected = sums(loader)
        loader.set_epoch(0)
        for batch, total in zip(loader, expected, strict=True):
            assert int(batch[0].long().sum()) == total
            batch[0].fill_(7)


def test_batches_outlive_loader_and_engine(dataset: stoker.ImageFolder) -> None:
    loader = stoker.DataLoader(dataset, 8)
    expected = sums(loader)
    loader.set_epoch(0)
    kept = list(loader)
    pid = engine()
    loader.close()
    assert gone(pid)
    assert sums(kept) == expected
    descriptors = len(os.listdir("/proc/self/fd"))
    del kept
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_a_late_lease_writes_to_nobodys_descriptor(dataset: stoker.ImageFolder, tmp_path: Path) -> None:
    """The eventfd's number must not be given to a file while a lease may still kick it."""
    loader = stoker.DataLoader(dataset, 8)
    batch = next(iter(loader))
    loader.close()
    files = [open(tmp_path / f"{i}", "w+b") for i in range(20)]
    del batch
    gc.collect()
    for file in files:
        file.close()
        assert os.path.getsize(file.name) == 0


# In children NumPy does the sums: torch's threads do not survive a fork.


def total(batch: Any) -> int:
    return int(batch[0].sum(dtype=np.int64))


def totals(loader: Any) -> list[int]:
    return [total(batch) for batch in loader]


def in_child(work: Any) -> int:
    """Runs work in a forked child; its exit status: 0 if work was fine."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_in_mid_run(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8, output="numpy") as loader:
        expected = totals(loader)
        loader.set_epoch(0)
        iterator = iter(loader)
        batch = next(iterator)
        ready, go = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            # The child's arrays must stay what they are, whatever the parent does meanwhile.
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            os._exit(0 if total(batch) == expected[0] else 3)
        try:
            os.read(ready[0], 1)
            got = [total(batch)]
            del batch
            got += [total(b) for b in iterator]
            got2 = totals(loader)
            os.write(go[1], b"x")
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            child = 0
        finally:
            if child:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            for fd in (*ready, *go):
                os.close(fd)
        assert got == expected
        assert len(got2) == len(expected)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_that_ends_disturbs_nobody(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8, output="numpy") as loader:
        expected = totals(loader)
        loader.set_epoch(0)
        got = []
        for batch in loader:
            held: Any = [batch]

            def drop() -> None:
                held.clear()  # noqa: B023
                gc.collect()

            del batch
            assert in_child(drop) == 0
            got.append(total(held[0]))
        assert got == expected


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_has_an_engine_of_its_own(dataset: stoker.ImageFolder) -> None:
    with stoker.DataLoader(dataset, 8, output="numpy") as loader:
        expected = totals(loader)
        loader.set_epoch(0)
        iterator = iter(loader)
        next(iterator)
        mine = engine()

        def child() -> None:
            assert engines() == []
            assert [total(b) for b in iterator] == expected[1:]
            loader.set_epoch(0)
            assert totals(loader) == expected
            assert engine() != mine
            loader.close()
            assert engines() == []

        assert in_child(child) == 0
        assert not gone(mine)
        assert [total(b) for b in iterator] == expected[1:]


def test_the_work_table_is_read() -> None:
    assert _lease.MAX_WORK == 256
    assert _lease.PAGE_WORK + _lease.MAX_WORK * 32 == _lease.PAGE_BYTES


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_child_may_load_tensors_after_its_parent_did(folder: Path) -> None:
    """torch's own copies may run OpenMP, which hangs in the child of a process that has used it."""
    torch.ones(1 << 20).clone().sum()
    dataset = stoker.ImageFolder(folder, T.RandomResizedCrop(96))
    batches = iter(stoker.DataLoader(dataset, 16))
    next(batches)

    def child() -> None:
        signal.alarm(60)
        assert sum(len(b[0]) for b in stoker.DataLoader(dataset, 16)) == len(dataset)

    assert in_child(child) == 0
    assert 16 + sum(len(b[0]) for b in batches) == len(dataset)


def test_paths_stand_below_the_root_as_it_was_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for root in (folder.name, f"./{folder.name}/", str(folder)):
        theirs = torchvision.datasets.ImageFolder(root)
        assert stoker.ImageFolder(root).samples == theirs.samples

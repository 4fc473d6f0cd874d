"""Small batches that come several in a message: nothing of it shows, whatever the loop does between two of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import needs

import stoker

COUNT, LENGTH, SIZE = 2000, 256, 4
STEPS = COUNT // SIZE


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    path = tmp_path_factory.mktemp("windows") / "x.npy"
    rows = np.random.default_rng(1).integers(0, 1 << 16, (COUNT, LENGTH + 1)).astype(np.uint16)
    np.save(path, rows)
    return path, rows


def open_loader(path: Path, **keywords: Any) -> stoker.DataLoader:
    fields = [
        stoker.Field("x", dtype="int64", view=(None, -1)),
        stoker.Field("y", source="x", dtype="int64", view=(1, None)),
    ]
    data = stoker.NpyDataset(path, fields=fields)
    return stoker.DataLoader(data, batch_size=SIZE, shuffle=True, seed=3, output="numpy", **keywords)


def check(batch: Any, rows: np.ndarray) -> list[int]:
    ids: list[int] = batch.ids.tolist()
    assert np.array_equal(batch[0], rows[ids, :-1])
    assert np.array_equal(batch[1], rows[ids, 1:])
    assert batch[0].flags["C_CONTIGUOUS"]
    assert batch[1].flags["C_CONTIGUOUS"]
    assert batch.valid.all()
    assert batch.bad == []
    return ids


def bundled(iterator: Any) -> bool:
    return iterator._pass._bundle is not None


def test_every_step_has_a_state_and_counts(windows: tuple[Path, np.ndarray]) -> None:
    path, rows = windows
    with open_loader(path) as loader:
        iterator, seen, among = iter(loader), [], 0
        for step, batch in enumerate(iterator):
            seen.append(check(batch, rows))
            assert batch.step == step
            assert loader.state_dict()["position"] == (step + 1) * SIZE
            assert loader.receipt()["parts"][-1]["to"] == (step + 1) * SIZE
            among += bundled(iterator)
        assert among > STEPS // 2
        assert sorted(sample for ids in seen for sample in ids) == list(range(COUNT))
        assert stoker.verify_receipts([loader.receipt()], loader)["complete"]
        again = open_loader(path)
        for at in (1, 37, 38, 39, 40, STEPS - 1):
            again.load_state_dict({**loader.state_dict(), "epoch": 0, "position": at * SIZE})
            assert [batch.ids.tolist() for batch in again] == seen[at:]


def test_what_is_kept_stays_as_it_was(windows: tuple[Path, np.ndarray]) -> None:
    path, rows = windows
    with open_loader(path) as loader:
        kept = list(loader)
        assert len(kept) == STEPS
        first = [batch[0].copy() for batch in kept]
        for batch in loader:
            check(batch, rows)
        for batch, before in zip(kept, first, strict=True):
            check(batch, rows)
            assert np.array_equal(batch[0], before)
        # Who keeps many gets each by itself, and not the bundle that it came in.
        owner = kept[-1][0]
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        assert owner.nbytes == SIZE * LENGTH * 8
        assert loader.stats()["leased"] < 8
        kept[-1][0][:] = 0
        assert kept[-1][1].any()
        check(kept[-2], rows)


def test_what_the_loop_does_amid_a_bundle(windows: tuple[Path, np.ndarray]) -> None:
    path, rows = windows
    with open_loader(path) as loader:
        whole = [batch.ids.tolist() for batch in loader]
        loader.set_epoch(0)
        iterator = iter(loader)
        seen = [next(iterator).ids.tolist() for _ in range(60)]
        while not bundled(iterator):
            seen.append(next(iterator).ids.tolist())
        loader.skip(3)
        assert next(iterator).ids.tolist() == whole[len(seen) + 3]
        while not bundled(iterator):
            next(iterator)
        engine: Any = iterator._pass._at.engine
        os.kill(engine.pid, signal.SIGKILL)
        left = [batch.ids.tolist() for batch in iterator]
        assert left == whole[STEPS - len(left) :]
        assert len(left) > STEPS // 2
        iterator = iter(loader)
        batch = next(iterator)
        while not bundled(iterator):
            batch = next(iterator)
        loader.close()
        with pytest.raises(stoker.ConfigError, match="closed"):
            next(iterator)
        check(batch, rows)


def test_an_interrupt_loses_nothing(windows: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = windows
    with open_loader(path) as loader:
        whole = [batch.ids.tolist() for batch in loader]
        loader.set_epoch(0)
        iterator = iter(loader)
        seen: list[list[int]] = []
        make, calls = iterator._make, iter(range(10**6))

        def interrupted(message: Any, root: Any) -> Any:
            made = make(message, root)
            if next(calls) % 3 == 2:
                raise KeyboardInterrupt
            return made

        monkeypatch.setattr(iterator, "_make", interrupted)
        while len(seen) < STEPS:
            try:
                seen.append(next(iterator).ids.tolist())
            except KeyboardInterrupt:
                assert loader.state_dict()["position"] == len(seen) * SIZE
        assert seen == whole


@pytest.mark.parametrize("single", [False, True])
def test_torch(windows: tuple[Path, np.ndarray], single: bool) -> None:
    torch = needs("torch")
    path, rows = windows
    data = stoker.NpyDataset(path, fields=[stoker.Field("x", dtype="int64")])
    with stoker.DataLoader(data, batch_size=None if single else 8) as loader:
        iterator, among, at = iter(loader), 0, 0
        for batch in iterator:
            among += bundled(iterator)
            values = batch[None] if single else batch
            assert values.dtype == torch.int64
            assert torch.equal(values, torch.from_numpy(rows[at : at + len(values)].astype(np.int64)))
            assert batch.ids.tolist() == list(range(at, at + len(values)))
            at += len(values)
        assert at == COUNT
        assert among

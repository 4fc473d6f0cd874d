"""output="jax" with device=: which bytes arrive, and when slots are returned.

On a device that can be wrong (pretend_jax.py), and, in a process of their own, on eight of JAX's (placed.py).
Slots are poisoned when they are returned.
"""

from __future__ import annotations

import gc
import json
import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import engine, fill_up, kill, wait_until
from forms import mostly
from pretend_jax import Array, Device, device, install
from test_sharding import told

import stoker
from stoker import _copies, _device, _jax
from stoker import transforms as T

__all__ = ["device"]

BIG = T.Resize((256, 256))  # a batch of 8 is 1.5 MiB
Make = Callable[..., "stoker.DataLoader[Any]"]


@pytest.fixture(autouse=True)
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_POISON", "1")


class Rows(torch.utils.data.Dataset[Any]):
    """Samples of Python: a picture of 64 KiB, a number and a text."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> Any:
        picture = np.arange(65536, dtype=np.int64) * (number + 3) + number
        return {"x": picture.astype(np.uint8).reshape(256, 256), "y": number * 7, "name": f"s{number}"}


KINDS = ["pictures", "nhwc", "floats", "workers", "inline"]


def of_kinds(*short: str) -> pytest.MarkDecorator:
    """A test whose short form has samples of these kinds; others have pictures."""
    return pytest.mark.parametrize("make", mostly(KINDS, *short), indirect=True)


@pytest.fixture(params=mostly(KINDS, "pictures"))
def make(request: pytest.FixtureRequest, folder: Path) -> Make:
    """Makes a loader over samples of some kind."""
    return maker(request.param, folder)


def maker(kind: str, folder: Path) -> Make:
    def made(**keywords: Any) -> Any:
        keywords = {"batch_size": 8, "shuffle": True, "seed": 5, "output": "jax", **keywords}
        if kind in ("pictures", "nhwc"):
            layout = "nchw" if kind == "pictures" else kind
            return stoker.DataLoader(stoker.ImageFolder(folder, BIG), layout=layout, **keywords)
        if kind == "floats":
            steps = T.Compose([BIG, T.ToDtype(torch.float32, scale=True), T.Normalize([0.5] * 3, [0.25] * 3)])
            return stoker.DataLoader(stoker.ImageFolder(folder, steps), layout="nhwc", **keywords)
        workers = 2 if kind == "workers" else 0
        return stoker.DataLoader(Rows(), num_workers=workers, **keywords)

    return made


def parts(batch: Any) -> tuple[Any, Any]:
    """Pictures and labels."""
    return (batch["x"], batch["y"]) if isinstance(batch, dict) else (batch[0], batch[1])


def known(make: Make) -> dict[int, tuple[bytes, bytes]]:
    """What every sample is: the bytes of its picture and of its label."""
    found = {}
    with make(output="numpy") as loader:
        for batch in loader:
            for number, x, y in zip(batch.ids.tolist(), *parts(batch), strict=True):
                found[number] = x.tobytes(), y.tobytes()
    return found


def right(batch: Any, samples: dict[int, tuple[bytes, bytes]]) -> None:
    """Asserts that a batch has arrived."""
    x, y = parts(batch)
    assert x.arrived
    assert y.arrived
    assert batch.valid.memory.all()
    for number, picture, label in zip(batch.ids.tolist(), x.memory, y.memory, strict=True):
        assert (picture.tobytes(), label.tobytes()) == samples[number]


def leased(loader: Any) -> int:
    return int(loader.stats()["leased"])


def returned(loader: Any) -> None:
    gc.collect()
    _device.settle()
    wait_until(lambda: leased(loader) == 0, "slots are not returned")


def run(device: Device, make: Make, samples: Any, seed: int, passes: int, pause: float = 0.0, most: int = 8) -> None:
    """Takes batches in passes that end, break or raise; keeps some and drops others, while arrays arrive at random."""
    chance = random.Random(seed)
    with make(device="cpu") as loader:
        waits = device.waits
        kept: list[Any] = []
        for _ in range(passes):
            seen: list[int] = []
            end = chance.random()
            batches = iter(loader)
            try:
                for batch in batches:
                    seen += batch.ids.tolist()
                    if chance.random() < 0.3:
                        kept.append(batch)
                    del batch
                    time.sleep(pause)
                    device.advance(chance.randrange(most))
                    if end < 0.3 and chance.random() < 0.3:
                        break
                    if end > 0.8 and chance.random() < 0.3:
                        raise ZeroDivisionError
                else:
                    assert sorted(seen) == sorted(samples)
            except ZeroDivisionError:
                pass
            assert len(set(seen)) == len(seen)
            del batches
        assert device.waits == waits  # next() does not
        device.drain()
        if not device.mistakes:
            for batch in kept:
                right(batch, samples)
            returned(loader)  # with batches that are kept


@of_kinds("pictures", "nhwc", "workers", "inline")
def test_every_byte_arrives(device: Device, make: Make) -> None:
    run(device, make, known(make), seed=0, passes=6)


def _early(device: Device, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(device, "done", lambda arrays: True)


def _never(device: Device, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_copies.Copies, "_flies", lambda copies, flight: None)


@pytest.mark.parametrize("plant", [_early, _never])
def test_a_slot_that_is_returned_too_early_is_found(plant: Any, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """So that the test above means something."""
    make = maker("nhwc", folder)
    samples = known(make)
    found = Device()
    install(monkeypatch, found)
    plant(found, monkeypatch)
    run(found, make, samples, seed=0, passes=2, pause=0.03, most=2)
    assert found.mistakes


def test_slots_are_returned_when_arrays_have_arrived(device: Device, folder: Path) -> None:
    with maker("pictures", folder)(device="cpu") as loader:
        batches = iter(loader)
        next(batches)  # and dropped
        flights = len(_device._devices[device]._flights)
        assert flights >= 1
        del batches  # abandoned
        gc.collect()
        time.sleep(0.05)
        assert leased(loader) >= flights
        assert device.waits == 0
        device.drain()
        returned(loader)
        assert device.used == 0  # what was ahead is gone


def test_close_waits_for_what_is_on_its_way(device: Device, make: Make) -> None:
    with make(device="cpu") as loader:
        batch = next(iter(loader))
        assert device.pending
    assert device.pending == 0
    assert device.waits
    assert parts(batch)[0].arrived


def test_next_does_not_wait(device: Device, make: Make) -> None:
    """Nothing arrives, and the loop gets every batch that slots allow."""
    with make(device="cpu", batch_size=4, memory="256MiB") as loader:
        assert sum(len(batch.ids) for batch in loader) == len(loader.dataset)
        assert device.waits == 0


def test_batches_are_ahead(device: Device, folder: Path) -> None:
    for ahead in (1, 2, 3):
        with maker("pictures", folder)(device="cpu", device_prefetch=ahead, batch_size=4) as loader:
            fill_up(loader, ahead, device.drain)


def test_donated_arrays(device: Device, folder: Path) -> None:
    """JAX does not say of a deleted array whether it had arrived: what it copies from, it keeps itself."""
    device.holds = True
    make = maker("pictures", folder)
    with make(device="cpu") as loader:
        for batch in loader:
            parts(batch)[0].delete()
            device.advance(2)
        device.drain()
        returned(loader)


@of_kinds("floats", "inline")
def test_batches_are_as_without_a_device(device: Device, make: Make) -> None:
    with make(output="numpy") as plain, make(device="cpu") as loader:
        for here, there in zip(plain, loader, strict=True):
            device.drain()
            assert type(there) is type(here)
            assert type(there.ids) is np.ndarray
            assert there.ids.tolist() == here.ids.tolist()
            assert isinstance(there.valid, Array)
            assert (there.epoch, there.step, there.bad) == (here.epoch, here.step, here.bad)
            for a, b in zip(parts(here), parts(there), strict=True):
                assert isinstance(b, Array)
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                assert np.array_equal(a, b.memory)
            if isinstance(here, dict):
                assert there["name"] == here["name"]
            assert loader.state_dict() == plain.state_dict()
            assert loader.receipt() == plain.receipt()
            if here.step == 2:
                state = loader.state_dict()
        plain.load_state_dict(state)
        loader.load_state_dict(state)
        assert [batch.ids.tolist() for batch in loader] == [batch.ids.tolist() for batch in plain]
        told = loader.stats()["device"]
        assert told["device"] == "pretend:0"
        assert told["copies"] >= 3
        assert told["bytes"] > 8 * 65536
        assert plain.stats()["device"] is None


@of_kinds("inline")
def test_skip_in_the_loop(device: Device, make: Make) -> None:
    def ids(loader: Any) -> list[list[int]]:
        found = []
        for batch in loader:
            found.append(batch.ids.tolist())
            if batch.step == 1:
                loader.skip(2)
            device.advance(2)
        return found

    with make(output="numpy") as plain, make(device="cpu") as loader:
        assert ids(loader) == ids(plain)


def test_what_a_collate_function_returns(device: Device) -> None:
    """Arrays at any depth; the user's code may change them afterwards. Other dtypes and torch's tensors stay."""
    own: list[Any] = []

    def collate(samples: list[Any]) -> Any:
        x = np.stack([one["x"] for one in samples])
        own.append(x)
        return {"x": x, "deep": [(x[:, 0], "text")], "names": np.array(["a", "b"]), "t": torch.ones(2), "n": 3}

    with stoker.DataLoader(Rows(), 8, num_workers=0, collate_fn=collate, output="jax", device="cpu") as loader:
        for step, batch in enumerate(loader):
            expected = own[-1].copy()
            own[-1][:] = 0
            device.drain()
            assert np.array_equal(batch["x"].memory, expected), step
            assert np.array_equal(batch["deep"][0][0].memory, expected[:, 0])
            assert batch["names"].tolist() == ["a", "b"]
            assert isinstance(batch["t"], torch.Tensor)
            assert (batch["n"], batch["deep"][0][1]) == (3, "text")


def test_a_batch_of_one_array_and_single_samples(device: Device, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4000, dtype=np.int32).reshape(40, 100))
    dataset = stoker.NpyDataset(tmp_path / "x.npy")
    with stoker.DataLoader(dataset, 4, output="jax", device="cpu") as loader:  # in bundles
        for step, batch in enumerate(loader):
            device.drain()
            assert batch.memory[:, 0].tolist() == [i * 100 for i in range(4 * step, 4 * step + 4)]
            assert batch.ids.tolist() == list(range(4 * step, 4 * step + 4))
            assert batch.valid.memory.all()
        assert step == 9
        assert loader.stats()["device"]["copies"] < 10
    with stoker.DataLoader(dataset, None, output="jax", device="cpu") as loader:
        for number, sample in enumerate(loader):
            device.drain()
            assert sample.memory.tolist() == list(range(100 * number, 100 * number + 100))


def test_packed_and_ragged_tokens(device: Device, tmp_path: Path) -> None:
    lengths = [1 + i % 7 for i in range(40)]
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(f'{{"text": "{"a" * length}"}}\n' for length in lengths))
    data = stoker.LinesDataset(lines, fields=[stoker.Field("text", decode="bytes")])
    keywords: Any = {"batch_size": 2, "pack": 16, "lengths": lengths}
    with (
        stoker.DataLoader(data, output="numpy", **keywords) as plain,
        stoker.DataLoader(data, output="jax", device="cpu", **keywords) as loader,
    ):
        for here, there in zip(plain, loader, strict=True):
            device.drain()
            assert there.ids.tolist() == here.ids.tolist()
            for name in ("cu_seqlens", "position_ids", "valid"):
                assert np.array_equal(getattr(there, name).memory, getattr(here, name))
    np.arange(1, 101, dtype=np.uint8).tofile(tmp_path / "a.bin")
    tokens = stoker.TokenDataset(tmp_path / "a.bin", documents=True, dtype="uint8", eos=50, out=None)
    with stoker.DataLoader(tokens, 2, output="jax", device="cpu") as ragged_loader:
        for (ragged,) in ragged_loader:
            device.drain()
            assert isinstance(ragged, stoker.Ragged)
            assert ragged.offsets.memory[-1] == len(ragged.values.memory)


def test_a_function_of_batches_gets_them_on_the_device(device: Device, make: Make) -> None:
    with make(device="cpu", batch_transform=lambda batch: parts(batch)[0]) as loader:
        for batch in loader:
            assert isinstance(batch, Array)
        assert loader.facts is not None
        assert isinstance(loader.facts.valid, Array)


# Failures.


@of_kinds("pictures", "workers")
def test_the_engine_is_killed(device: Device, make: Make) -> None:
    samples = known(make)
    with make(device="cpu", batch_size=4) as loader:
        kept = []
        for step, batch in enumerate(loader):
            kept.append(batch)
            device.advance(3)
            if step == 4:
                kill(engine())  # with arrays on their way
        device.drain()
        assert sorted(number for batch in kept for number in batch.ids.tolist()) == sorted(samples)
        for batch in kept:
            right(batch, samples)


def test_no_memory_on_the_device(device: Device, make: Make) -> None:
    samples = known(make)
    with make(device="cpu") as loader:
        batches = iter(loader)
        got = next(batches).ids.tolist()
        device.room = 0
        with pytest.raises(stoker.ResourceError, match=r"no memory on pretend:0.*RESOURCE_EXHAUSTED"):
            while True:
                got += next(batches).ids.tolist()
        device.drain()
        returned(loader)
        device.room = 1 << 28
        for batch in batches:
            got += batch.ids.tolist()
            device.drain()
        assert sorted(got) == sorted(samples)
        assert len(got) == len(samples)


def test_an_error_comes_where_its_batch_would_have_come(device: Device, own_folder: Path) -> None:
    damaged = stoker.ImageFolder(own_folder).samples[30][0]
    Path(damaged).write_bytes(b"\xff\xd8 no picture")
    with stoker.DataLoader(stoker.ImageFolder(own_folder, BIG), 8, output="jax", device="cpu") as loader:
        batches, given = iter(loader), 0
        with pytest.raises(stoker.DataError):
            while True:
                next(batches)
                given += 1
                device.advance(3)
        assert given == 3


def test_wrappers_and_static_buffers(device: Device, folder: Path) -> None:
    photos = stoker.ImageFolder(folder)
    with pytest.raises(stoker.ConfigError, match="JAX's devices"):
        stoker.PrefetchLoader(stoker.DataLoader(photos, 8, output="jax", device="cpu"), "cpu")
    with pytest.raises(stoker.ConfigError, match="static_buffers is for torch's tensors"):
        stoker.DataLoader(photos, 8, output="jax", device="cpu", static_buffers=True, drop_last=True)


def test_jax_that_cannot_start_has_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(backend: str | None = None) -> Any:
        raise RuntimeError(f"Unable to initialize backend {backend}")

    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(local_devices=fails))
    with pytest.raises(stoker.ConfigError, match=r"does not have in this process\n.*these are here: none"):
        _jax.chosen("cuda")


# JAX itself.


@pytest.fixture(scope="module")
def said(folder: Path, shards: str) -> dict[str, str]:
    """The pass that is open when the process ends is the first that begins: it starts JAX."""
    return told("placed", ("ends", folder), ("devices", folder, shards), ("shardings", folder), ("refused", folder))


def test_eight_devices(said: dict[str, str]) -> None:
    assert said["devices"] == "devices\n"


def test_shardings_are_ahead_too(said: dict[str, str]) -> None:
    assert said["shardings"] == "shardings\n"


def test_the_process_ends_in_the_middle_of_a_pass(said: dict[str, str]) -> None:
    assert said["ends"] == "ends\n"


REFUSED = [
    r"device is 'cuda', which JAX does not have in this process\n.*cpu:0, cpu:1, .*cpu:7",
    r"device is 'cpu:9', which JAX does not have",
    r"device is 'vulkan', which",
    r"device is 0, and output is 'jax'\n.*a jax.Device, or its name",
    r"device is device\(type='cpu'\), and output is 'jax'",
    r"device and sharding exclude each other",
    r"device is JAX's 'cpu:1', and output is 'torch'\n.*output='jax'",
    r"device is JAX's 'cpu:1', and output is 'numpy'",
    r"device_prefetch needs device=, or sharding=",
    r"device_prefetch is 0",
    r"static_buffers is for torch's tensors, and output is 'jax'",
    r"static_buffers is for torch's tensors, and output is 'jax'",
    r"the loader puts its batches on JAX's devices",
]


def test_what_jax_does_not_have_is_an_error_that_names_what_it_has(said: dict[str, str]) -> None:
    for text, expected in zip(map(json.loads, said["refused"].splitlines()), REFUSED, strict=True):
        assert re.search(expected, text), text

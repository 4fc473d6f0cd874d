"""Batches on a device, on one that can be wrong (pretend.py): which bytes arrive, and when slots are returned.

Slots are poisoned when they are returned, and the device fills memory with poison before it hands it out again.
"""

from __future__ import annotations

import gc
import random
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forms
import numpy as np
import pytest
import torch
from conftest import engine, engines, fill_up, kill, wait_until
from pretend import Device, Full, Lost, device, install

import stoker
from stoker import _device, _process, _queue
from stoker import transforms as T

__all__ = ["device"]

BIG = T.Resize((256, 256))  # a batch of 8 is 1.5 MiB
LAG = 100  # operations that the device may have left to do after a step: its memory is not without end


@pytest.fixture(autouse=True)
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_POISON", "1")


class Rows(torch.utils.data.Dataset[Any]):
    """Samples of Python: a picture of 64 KiB, a number and a text."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> Any:
        return {"x": row(number), "y": number * 7, "name": f"s{number}"}


class Stream(torch.utils.data.IterableDataset[Any]):
    """The same, iterated by the workers in turn."""

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, 40, step):
            yield {"x": row(number), "y": number * 7, "name": f"s{number}"}


def row(number: int) -> torch.Tensor:
    return torch.arange(65536, dtype=torch.int64).mul_(number + 3).add_(number).to(torch.uint8).view(256, 256)


@pytest.fixture(scope="session")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("arrays")
    np.save(root / "x.npy", np.stack([row(number).numpy() for number in range(40)]))
    np.save(root / "y.npy", np.arange(40, dtype=np.int64) * 7)
    np.save(root / "t.npy", np.arange(40 * 64, dtype=np.int32).reshape(40, 64))
    return root


Make = Callable[..., "stoker.DataLoader[Any]"]


KINDS = ["pictures", "floats", "arrays", "workers", "inline"]


def of_kinds(*short: str) -> pytest.MarkDecorator:
    """A test whose short form has samples of these kinds; others have pictures."""
    return pytest.mark.parametrize("make", forms.mostly(KINDS, *short), indirect=True)


@pytest.fixture(params=forms.mostly(KINDS, "pictures"))
def make(request: pytest.FixtureRequest, folder: Path, arrays: Path) -> Make:
    """Makes a loader over samples of some kind."""
    return maker(request.param, folder, arrays)


def maker(kind: str, folder: Path, arrays: Path) -> Make:
    def made(**keywords: Any) -> Any:
        keywords = {"batch_size": 8, "shuffle": True, "seed": 5, **keywords}
        if kind == "pictures":
            return stoker.DataLoader(stoker.ImageFolder(folder, BIG), **keywords)
        if kind == "floats":  # which the device makes
            normal = T.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])
            floats = [T.Resize((128, 128)), T.ToTensor(), normal, T.ToDtype("bfloat16")]
            return stoker.DataLoader(stoker.ImageFolder(folder, floats), **keywords)
        if kind == "arrays":
            found = stoker.NpyDataset(x=str(arrays / "x.npy"), y=str(arrays / "y.npy")).to_tuple("x", "y")
            return stoker.DataLoader(found, **keywords)
        workers = 2 if kind == "workers" else 0
        return stoker.DataLoader(Rows(), num_workers=workers, **keywords)

    return made


# A loop, and what it reads on the device.


def parts(batch: Any) -> tuple[Any, Any]:
    """Pictures and labels."""
    return (batch["x"], batch["y"]) if isinstance(batch, dict) else (batch[0], batch[1])


def raw(tensor: Any) -> bytes:
    """The bytes of a tensor, in the order of its memory."""
    order = sorted(range(tensor.ndim), key=lambda axis: -tensor.stride(axis) if tensor.shape[axis] > 1 else 1)
    laid = tensor.permute(order).contiguous()
    return bytes((laid.view(torch.int16) if laid.dtype == torch.bfloat16 else laid).numpy().tobytes())


def known(make: Make) -> dict[int, tuple[bytes, bytes]]:
    """What every sample is: the bytes of its picture and of its label."""
    found = {}
    with make() as loader:
        for batch in loader:
            x, y = parts(batch)
            for number, one, label in zip(batch.ids.tolist(), x, y, strict=True):
                found[number] = raw(one), raw(label.reshape(1))
    return found


class Loop:
    """Takes batches, has the device read them, and keeps some."""

    def __init__(self, device: Device, samples: dict[int, tuple[bytes, bytes]], seed: int = 0) -> None:
        self.device, self.samples = device, samples
        self.random = random.Random(seed)
        self.kept: list[tuple[Any, bytes, str, str]] = []
        self.taken = 0

    def take(self, batch: Any, pause: float = 0.0, most: int = 24) -> list[int]:
        """Returns the ids of a batch. At random, the device does up to ``most`` operations before the next is taken."""
        device, chance = self.device, self.random.random
        ids: list[int] = batch.ids.tolist()
        x, y = parts(batch)
        what = f"batch {self.taken} of samples {ids}"
        self.taken += 1
        pictures = b"".join(self.samples[number][0] for number in ids)
        device.read(x, pictures, what)
        device.read(y, b"".join(self.samples[number][1] for number in ids), f"labels of {what}")
        device.read(batch.valid, b"\1" * len(ids), f"valid of {what}")
        if chance() < 0.2:
            self.kept.append((x, pictures, what, device.stream))
        if chance() < 0.2 and len(ids) > 3:  # a view
            size = len(pictures) // len(ids)
            self.kept.append((x[2:3], pictures[2 * size : 3 * size], f"a view of {what}", device.stream))
        if chance() < 0.2:
            labels = b"".join(self.samples[number][1] for number in ids)
            self.kept.append((y, labels, f"kept labels of {what}", device.stream))
        while len(self.kept) > 4 or (self.kept and chance() < 0.2):
            device.read(*self.kept.pop(self.random.randrange(len(self.kept))))  # on the stream that took it
        del batch, x, y
        if pause:
            time.sleep(pause)
        device.advance(max(self.random.randrange(most), device.pending - LAG))
        return ids


@pytest.fixture
def samples(make: Make) -> dict[int, tuple[bytes, bytes]]:
    return known(make)


def soak(device: Device, make: Make, loop: Loop, steps: int, pause: float = 0.0) -> None:
    """Takes so many batches, in passes that end, break or raise, on streams that change."""
    with make(device="cuda") as loader:
        begun, waits = loop.taken, device.waits
        while loop.taken - begun < steps:
            device.stream = loop.random.choice(["loop", "loop", "other"])
            seen: list[int] = []
            batches = iter(loader)
            end = loop.random.random()
            try:
                for batch in batches:
                    seen += loop.take(batch, pause)
                    del batch
                    if end < 0.3 and loop.random.random() < 0.3:
                        break
                    if end > 0.8 and loop.random.random() < 0.3:
                        raise ZeroDivisionError
                else:
                    assert sorted(seen) == sorted(loop.samples)
            except ZeroDivisionError:
                pass
            assert len(set(seen)) == len(seen)
            del batches
        assert device.waits == waits  # next() does not
    loop.kept.clear()
    device.drain()


@of_kinds("pictures", "workers", "inline")
def test_every_byte_arrives(device: Device, make: Make, samples: Any) -> None:
    soak(device, make, Loop(device, samples), 40)


@forms.long
def test_every_byte_arrives_for_long(device: Device, make: Make, samples: Any) -> None:
    loop = Loop(device, samples, seed=1)  # test_device_soak.py has more kinds of everything
    for _ in range(5):
        soak(device, make, loop, 1250)


class Mistake:
    """What a client of the device may do wrong."""

    def __init__(self, name: str, plant: Callable[[Device, pytest.MonkeyPatch], None]) -> None:
        self.name, self.plant = name, plant


def _twice(device: Device, patch: pytest.MonkeyPatch) -> None:
    given = _queue.Queue._given

    def once_more(queue: Any, entry: Any) -> None:
        if queue.step != 1:
            given(queue, entry)
        else:
            queue.step += 1

    patch.setattr(_queue.Queue, "_given", once_more)


MISTAKES = [
    Mistake("a slot is returned too early", lambda device, patch: patch.setattr(device, "done", lambda event: True)),
    Mistake("a read before the wait", lambda device, patch: patch.setattr(device, "wait", lambda event: None)),
    Mistake("a missing record", lambda device, patch: patch.setattr(device, "used", lambda tensor: None)),
    Mistake("a batch is handed out twice", _twice),
]


@forms.thinned
@pytest.mark.parametrize("kind", ["pictures", "floats"])
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistakes_are_found(
    mistake: Mistake, kind: str, monkeypatch: pytest.MonkeyPatch, folder: Path, arrays: Path
) -> None:
    """The device shows each of them, so that the tests above mean something."""
    make = maker(kind, folder, arrays)
    samples = known(make)
    found = Device()
    install(monkeypatch, found)
    loop = Loop(found, samples)
    mistake.plant(found, monkeypatch)
    twice = False
    with make(device="cuda") as loader:
        for _ in range(2):
            seen: list[int] = []
            for batch in loader:
                seen += loop.take(batch, pause=0.03, most=2)
                del batch
            twice = twice or len(set(seen)) < len(seen)
        loop.kept.clear()
        found.drain()
    assert twice == (mistake.name == "a batch is handed out twice")
    assert found.mistakes or twice


# When things happen.


def leased(loader: Any) -> int:
    return int(loader.stats()["leased"])


def test_a_slot_is_returned_after_its_copy(device: Device, folder: Path, arrays: Path) -> None:
    with maker("pictures", folder, arrays)(device="cuda") as loader:
        batches = iter(loader)
        next(batches)  # and dropped
        flights = len(_device._devices[0]._flights)
        assert flights >= 1
        del batches  # the copies are in flight
        gc.collect()
        time.sleep(0.05)
        assert leased(loader) >= flights
        assert device.waits == 0
        device.drain()
        next(iter(loader))
        device.drain()
        _device.settle()
        wait_until(lambda: leased(loader) == 0, "slots are not returned")


def test_close_waits_for_copies_and_unpins(device: Device, make: Make) -> None:
    with make(device="cuda") as loader:
        batch = next(iter(loader))
        pinned = len(device.pins)
    assert device.waits >= (1 if pinned else 0)
    assert device.is_there(parts(batch)[0])
    gc.collect()
    _device.settle()
    assert device.pins == {}


def test_next_does_not_wait(device: Device, make: Make) -> None:
    """The device does nothing at all, and the loop gets every batch that slots and memory allow."""
    with make(device="cuda", batch_size=4, memory="256MiB") as loader:
        assert sum(len(batch.ids) for batch in loader) == len(loader.dataset)
        assert device.waits == 0


def test_batches_are_ahead(device: Device, folder: Path, arrays: Path) -> None:
    for ahead in (1, 2, 3):
        with maker("pictures", folder, arrays)(device="cuda", device_prefetch=ahead, batch_size=4) as loader:
            fill_up(loader, ahead, device.drain)


def test_labels_do_not_keep_pictures(device: Device, folder: Path, arrays: Path) -> None:
    with maker("pictures", folder, arrays)(device="cuda") as loader:
        labels = []
        for batch in loader:
            labels.append(parts(batch)[1])
            del batch
            device.drain()
        gc.collect()
        _device.settle()
        assert device.in_use < 64 << 10
        assert len(labels) == 7


def test_memory_is_flat(device: Device, make: Make) -> None:
    with make(device="cuda") as loader:
        used, pins = [], []
        for _ in range(6):
            for batch in loader:
                del batch
                device.drain()
            gc.collect()
            used.append(device.in_use)
            pins.append(len(device.pins))
        assert max(used[2:]) <= max(used[:2])
        assert max(pins) <= 16


def test_a_bundle_is_one_copy(device: Device, arrays: Path) -> None:
    dataset = stoker.NpyDataset(str(arrays / "t.npy"))
    with stoker.DataLoader(dataset, 2, seed=1, output="torch") as plain:
        expected = [raw(batch) for batch in plain]
    with stoker.DataLoader(dataset, 2, seed=1, device="cuda") as loader:
        step = 0
        for step, batch in enumerate(loader):
            device.read(batch, expected[step], f"batch {step}")
            device.advance(3)
        assert step == 19
        device.drain()
        _device.settle()
        told = loader.stats()["device"]
    assert told["copies"] < 20
    assert told["bytes"] >= sum(map(len, expected))


# What batches are.


@of_kinds(*KINDS)
def test_batches_are_as_without_a_device(device: Device, make: Make) -> None:
    with make() as plain, make(device="cuda") as loader:
        for here, there in zip(plain, loader, strict=True):
            device.drain()
            assert type(there) is type(here)
            assert there.ids.tolist() == here.ids.tolist()
            assert not device.is_there(there.ids)
            assert device.is_there(there.valid)
            assert (there.epoch, there.step, there.bad) == (here.epoch, here.step, here.bad)
            for a, b in zip(parts(here), parts(there), strict=True):
                assert device.is_there(b)
                assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
                assert torch.equal(a, b)
            if isinstance(here, dict):
                assert there["name"] == here["name"]
            moved = there.to("cpu")
            assert parts(moved)[0] is parts(there)[0]
        assert plain.state_dict() == loader.state_dict()
        assert plain.receipt() == loader.receipt()


class Deep(Rows):
    """Samples of a deep structure."""

    def __getitem__(self, number: int) -> Any:
        return [torch.full((3,), number), {"a": (torch.tensor(number), "text"), "b": np.float32(number)}]


@pytest.mark.parametrize("workers", [0, 1])
def test_whatever_python_returns_moves(device: Device, workers: int) -> None:
    with stoker.DataLoader(Deep(), 4, num_workers=workers, device="cuda") as loader:
        for batch in loader:
            device.drain()
            first = batch.ids.tolist()
            assert issubclass(type(batch), list)
            assert device.is_there(batch[0])
            assert batch[0][:, 0].tolist() == first
            assert device.is_there(batch[1]["a"][0])
            assert batch[1]["a"][0].tolist() == first
            assert list(batch[1]["a"][1]) == ["text"] * len(first)
            assert batch[1]["b"].tolist() == first


def test_one_batch_of_a_collate_function(device: Device) -> None:
    packed = torch.nn.utils.rnn.pack_sequence

    def collate(samples: list[Any]) -> Any:
        both = torch.stack([one["x"] for one in samples])
        return {"x": both, "flipped": both.flip(2)[:, ::2], "packed": packed([both[0, 0], both[0, 1]]), "n": None}

    with stoker.DataLoader(Rows(), 8, num_workers=1, collate_fn=collate, device="cuda") as loader:
        for batch in loader:
            device.drain()
            assert device.is_there(batch["x"])
            assert device.is_there(batch["flipped"])
            assert torch.equal(batch["flipped"], batch["x"].flip(2)[:, ::2])
            assert isinstance(batch["packed"], torch.nn.utils.rnn.PackedSequence)
            assert batch["n"] is None


def test_ragged_fields_move(device: Device, tmp_path: Path) -> None:
    np.arange(1, 101, dtype=np.uint8).tofile(tmp_path / "a.bin")
    data = stoker.TokenDataset(tmp_path / "a.bin", documents=True, dtype="uint8", eos=50, out=None)
    with stoker.DataLoader(data, 2) as plain, stoker.DataLoader(data, 2, device="cuda") as loader:
        for (here,), (there,) in zip(plain, loader, strict=True):
            device.drain()
            assert isinstance(there, stoker.Ragged)
            assert device.is_there(there.values)
            assert device.is_there(there.offsets)
            assert torch.equal(there.values, here.values)
            assert torch.equal(there.offsets, here.offsets)


def test_packed_tokens_move(device: Device, tmp_path: Path) -> None:
    lengths = [1 + i % 7 for i in range(40)]
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(f'{{"text": "{"a" * length}"}}\n' for length in lengths))
    data = stoker.LinesDataset(lines, fields=[stoker.Field("text", decode="bytes")])
    keywords: Any = {"batch_size": 2, "pack": 16, "lengths": lengths}
    with stoker.DataLoader(data, **keywords) as plain, stoker.DataLoader(data, device="cuda", **keywords) as loader:
        for here, there in zip(plain, loader, strict=True):
            device.drain()
            assert there.ids.tolist() == here.ids.tolist()
            for name in ("cu_seqlens", "position_ids", "valid"):
                assert device.is_there(getattr(there, name))
                assert torch.equal(getattr(there, name), getattr(here, name))


@of_kinds("floats")
def test_a_function_of_batches_gets_them_on_the_device(device: Device, make: Make) -> None:
    seen = []

    def change(batch: Any) -> Any:
        seen.append(device.is_there(parts(batch)[0]))
        return parts(batch)[0]

    with make(device="cuda", batch_transform=change) as loader:
        for batch in loader:
            assert device.is_there(batch)
        assert loader.facts is not None
        assert device.is_there(loader.facts.valid)
    assert seen
    assert all(seen)


def test_single_samples(device: Device, folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder), None, device="cuda") as loader:
        for image, label in loader:
            assert device.is_there(image)
            assert type(label) is int
            device.drain()


# Positions.


@of_kinds("pictures", "inline")
def test_states_count_what_the_loop_got(device: Device, make: Make) -> None:
    with make() as plain, make(device="cuda") as loader:
        for here, there in zip(plain, loader, strict=True):
            assert there.ids.tolist() == here.ids.tolist()
            assert loader.state_dict() == plain.state_dict()
            assert loader.receipt() == plain.receipt()
            assert loader.stats()["client"]["batches"] == plain.stats()["client"]["batches"]
            device.advance(3)
            if here.step == 2:
                state = loader.state_dict()
        device.drain()
        plain.load_state_dict(state)
        loader.load_state_dict(state)
        assert [batch.ids.tolist() for batch in loader] == [batch.ids.tolist() for batch in plain]
        device.drain()


@of_kinds("arrays")
def test_skip_in_the_loop(device: Device, make: Make) -> None:
    def ids(loader: Any) -> list[list[int]]:
        found = []
        for batch in loader:
            found.append(batch.ids.tolist())
            if batch.step == 1:
                loader.skip(2)
            device.advance(2)
        return found

    with make() as plain, make(device="cuda") as loader:
        assert ids(loader) == ids(plain)
        device.drain()


def test_samplers_in_pieces(device: Device, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A sampler's order comes in pieces, each a pass of its own."""
    monkeypatch.setattr("stoker._feed.PIECE", 16)
    order = [number % 50 for number in range(0, 700, 7)]
    with stoker.DataLoader(stoker.ImageFolder(folder), 8, sampler=order, device="cuda") as loader:
        found = []
        for batch in loader:
            found += batch.ids.tolist()
            device.advance(4)
        assert found == order
        device.drain()


def test_with_epoch(device: Device, shards: str) -> None:
    """Passes that are pieces of an endless sequence of epochs."""

    def loader(**keywords: Any) -> Any:
        return stoker.DataLoader(stoker.WebDataset(shards).to_tuple("cls").with_epoch(44), 4, **keywords)

    with loader() as plain, loader(device="cuda") as moved:
        for _ in range(3):
            expected = [(batch.epoch, batch.step, batch.ids.tolist()) for batch in plain]
            assert [(batch.epoch, batch.step, batch.ids.tolist()) for batch in moved] == expected
            device.drain()


def test_an_iterated_dataset(device: Device) -> None:
    with stoker.DataLoader(Stream(), 4, num_workers=2, device="cuda") as loader:
        for killed in (False, True):
            seen = []
            for step, batch in enumerate(loader):
                seen += [int(name[1:]) for name in batch["name"]]
                device.advance(2)
                if killed and step == 3:
                    kill(engine())
            assert sorted(seen) == list(range(40))
        device.drain()


@of_kinds("pictures", "workers")
def test_the_engine_is_killed(device: Device, make: Make, samples: Any) -> None:
    loop = Loop(device, samples)
    with make(device="cuda", batch_size=4) as loader:
        for _ in range(2):
            seen = []
            for step, batch in enumerate(loader):
                seen += loop.take(batch)
                del batch
                if step == 4:
                    kill(engine())  # with copies in flight
            assert sorted(seen) == sorted(samples)
        loop.kept.clear()
        device.drain()


def test_an_error_comes_where_its_batch_would_have_come(device: Device, own_folder: Path) -> None:
    damaged = stoker.ImageFolder(own_folder).samples[30][0]
    Path(damaged).write_bytes(b"\xff\xd8 no picture")
    cases: tuple[dict[str, Any], ...] = ({}, {"device": "cuda"})
    for keywords in cases:
        with stoker.DataLoader(stoker.ImageFolder(own_folder, BIG), 8, **keywords) as loader:
            batches, given = iter(loader), 0
            with pytest.raises(stoker.DataError):
                while True:
                    next(batches)
                    given += 1
                    device.advance(3)
            assert given == 3
            with pytest.raises(stoker.DataError):  # again
                next(batches)
            device.drain()


# Failures of the device.


@of_kinds("floats")
def test_no_memory_on_the_device(device: Device, make: Make, samples: Any) -> None:
    with make(device="cuda") as loader:
        batches = iter(loader)
        got = next(batches).ids.tolist()
        device.drain()
        device.room = 0
        with pytest.raises(stoker.ResourceError, match="no memory on cuda:0") as caught:
            while True:
                got += next(batches).ids.tolist()
        assert isinstance(caught.value.__cause__, Full)
        device.drain()
        _device.settle()
        wait_until(lambda: leased(loader) == 0, "slots are not returned")
        device.room = 1 << 26
        for batch in batches:
            got += batch.ids.tolist()
            device.drain()
        assert sorted(got) == sorted(samples)
        assert len(got) == len(samples)


def test_an_error_keeps_no_pass(device: Device, folder: Path, arrays: Path) -> None:
    """Who catches the error and begins again finds the pass gone, with its slots and its use of static buffers."""

    def fails(batches: Any) -> None:
        try:
            for _ in range(10):
                next(batches)
        except stoker.ResourceError:
            return
        raise AssertionError

    gc.collect()
    gc.disable()
    try:
        with maker("pictures", folder, arrays)(device="cuda", static_buffers=True, drop_last=True) as loader:
            device.room = 0
            batches = iter(loader)
            fails(batches)
            gone = weakref.ref(batches)
            del batches
            assert gone() is None
            device.room = 1 << 26
            next(iter(loader))
            device.drain()
        device.room = 0
        wrapped = iter(stoker.PrefetchLoader([torch.full((70000,), i) for i in range(3)], "cuda"))
        fails(wrapped)
        gone = weakref.ref(wrapped)
        del wrapped
        assert gone() is None
    finally:
        gc.enable()


def test_less_memory_means_fewer_batches_ahead(device: Device, folder: Path, arrays: Path) -> None:
    with maker("pictures", folder, arrays)(device="cuda") as loader:
        size = 8 * 256 * 256 * 3
        device.room = 2 * size + (64 << 10)
        rows = 0
        for batch in loader:
            rows += len(batch.ids)
            del batch
            device.drain()
        assert rows == 50


def test_memory_that_cannot_be_pinned(
    device: Device, make: Make, samples: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    device.refuses = "cuMemHostRegister: CUDA_ERROR_NOT_SUPPORTED"
    capsys.readouterr()
    loop = Loop(device, samples)
    soak(device, make, loop, 20)
    assert device.pins == {}
    said = capsys.readouterr().err
    assert said.count("CUDA_ERROR_NOT_SUPPORTED") == (1 if "torch's pinned memory" in said else 0)
    with make(device="cuda") as loader:
        next(iter(loader))
        assert loader.stats()["device"]["pinned_slots"] is False or not said


def test_a_lost_device(device: Device, make: Make) -> None:
    with make(device="cuda") as loader:
        batches = iter(loader)
        next(batches)
        device.lost = True
        with pytest.raises(Lost):
            for _ in range(10):
                next(batches)
    device.lost = False


def test_nothing_is_called_while_a_graph_is_recorded(device: Device, make: Make) -> None:
    with make(device="cuda") as loader:
        batches = iter(loader)
        next(batches)
        abandoned = iter(loader)
        next(abandoned)
        device.records = True
        del abandoned
        gc.collect()
        with pytest.raises(stoker.ConfigError, match="captured"):
            next(batches)
        loader.close()
        device.records = False
        device.drain()
        rows = sum(len(batch.ids) for batch in loader)
        assert rows == len(loader.dataset)


# Bad input.


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"device": "cuda"}, "CUDA"),
        ({"device": torch.device("cuda", 1)}, "CUDA"),
        ({"device": "mps"}, r"batch\.to\(device\)"),
        ({"device": "cuda:x"}, "it can be 'cpu', 'cuda'"),
        ({"device": 0}, "device is 0"),
        ({"device": "cuda", "output": "numpy"}, "output is 'numpy'"),
        ({"device": "cpu", "output": "numpy"}, "output is 'numpy'"),
        ({"device_prefetch": 2}, "needs device="),
        ({"device": "cpu", "device_prefetch": 0}, "device_prefetch is 0"),
        ({"device": "cpu", "device_prefetch": True}, "device_prefetch is True"),
    ],
    ids=str,
)
def test_bad_devices_are_refused_at_once(folder: Path, keywords: dict[str, Any], text: str) -> None:
    if torch.cuda.is_available() and text == "CUDA":
        keywords, text = {"device": "cuda:77"}, "cuda:0"
    with pytest.raises(stoker.ConfigError, match=text):
        stoker.DataLoader(stoker.ImageFolder(folder), 8, **keywords)


def test_a_number_that_does_not_exist_names_those_that_do(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"GPU {number}")
    with pytest.raises(stoker.ConfigError, match=r"cuda:0 \(GPU 0\), cuda:1 \(GPU 1\)"):
        stoker.DataLoader(stoker.ImageFolder(folder), 8, device="cuda:2")


# The same queue without a device.


@of_kinds("pictures", "inline")
def test_the_cpu_has_the_same_queue(make: Make) -> None:
    with make() as plain, make(device="cpu", device_prefetch=3) as loader:
        for _ in range(2):
            for here, there in zip(plain, loader, strict=True):
                assert there.ids.tolist() == here.ids.tolist()
                assert torch.equal(parts(here)[0], parts(there)[0])
                assert loader.state_dict() == plain.state_dict()
        assert loader.stats()["device"] is None
    assert engines() == []


def test_a_loop_that_waits_seldom_looks_at_the_socket(
    device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look is a system call: a request that was sent just now has no answer yet."""
    looks = [0]
    poll = _process.Engine._poll

    def counted(self: Any, event: int, seconds: float) -> bool:
        looks[0] += 1
        return poll(self, event, seconds)

    slow = T.Compose([T.RandomResizedCrop(512), T.RandAugment(8)])
    with stoker.DataLoader(stoker.ImageFolder(folder, slow), 10, True, device="cuda", num_workers=1) as loader:
        list(loader)
        device.drain()
        monkeypatch.setattr(_process.Engine, "_poll", counted)
        batches = 0
        for _ in range(2):
            for _batch in loader:
                batches += 1
                device.drain()
    assert looks[0] <= 2 * batches + 4

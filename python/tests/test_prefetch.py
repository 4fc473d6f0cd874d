"""PrefetchLoader and CUDAPrefetcher: batches of any loader on a device, on one that can be wrong (pretend.py)."""

from __future__ import annotations

import gc
import weakref
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from pretend import Device, device
from test_device import BIG, Make, Rows, arrays, make, parts, raw, row

import stoker
from stoker import _device

__all__ = ["arrays", "device", "make"]


def batches_of(number: int) -> list[Any]:
    return [{"x": torch.full((70000,), i), "pair": (torch.tensor([i]), f"t{i}"), "none": None} for i in range(number)]


@pytest.mark.parametrize("number", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("kind", [stoker.PrefetchLoader, stoker.CUDAPrefetcher])
def test_wrappers_give_every_batch_once(device: Device, number: int, kind: Any) -> None:
    source = batches_of(number)
    wrapped = kind(source, "cuda")
    assert len(wrapped) == number
    seen = []
    for batch in wrapped:
        device.drain()
        assert device.is_there(batch["x"])
        assert device.is_there(batch["pair"][0])
        seen.append(int(batch["pair"][0]))
        assert batch["x"].unique().tolist() == [seen[-1]]
        assert batch["pair"][1] == f"t{seen[-1]}"
    assert seen == list(range(number))
    assert len(list(wrapped)) == (number if kind is stoker.PrefetchLoader else 0)
    device.drain()


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_wrappers_raise_in_place(device: Device, where: str) -> None:
    def source() -> Iterator[Any]:
        yield from batches_of(4)
        raise ValueError("the fifth")

    batches = iter(stoker.PrefetchLoader(source(), where))
    for number in range(4):
        batch = next(batches)
        device.drain()
        assert int(batch["pair"][0]) == number
    with pytest.raises(ValueError, match="the fifth"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)


def test_the_source_is_kept_until_the_copy_has_ended(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "is_pinned", lambda tensor: True)
    refs = []

    def source() -> Iterator[Any]:
        for number in range(5):
            made = torch.full((100000,), number)
            refs.append(weakref.ref(made))
            yield made

    batches = iter(stoker.PrefetchLoader(source(), "cuda"))
    got = next(batches)
    del batches
    gc.collect()
    assert refs[0]() is not None  # an early exit, with the copy in flight
    device.drain()
    assert got.unique().tolist() == [0]
    _device.settle()
    gc.collect()
    assert all(ref() is None for ref in refs)


def test_wrappers_of_our_loader_are_device(device: Device, make: Make) -> None:
    with make() as plain:
        expected = [(batch.ids.tolist(), raw(parts(batch)[0])) for batch in plain]
        plain.set_epoch(0)
        wrapped: Any = stoker.PrefetchLoader(plain, "cuda")
        assert wrapped.batch_size == 8
        for (ids, pictures), batch in zip(expected, wrapped, strict=True):
            assert batch.ids.tolist() == ids
            device.read(parts(batch)[0], pictures, "a batch")
            device.drain()
            assert plain.state_dict() == wrapped.state_dict()
            assert plain.stats()["client"]["batches"] == len(expected) + batch.step + 1


def test_wrappers_refuse_what_cannot_be(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder)
    with pytest.raises(stoker.ConfigError, match="mps"):
        stoker.PrefetchLoader([], "mps")
    with pytest.raises(stoker.ConfigError, match="of type int"):
        stoker.CUDAPrefetcher(3, "cpu")
    with pytest.raises(stoker.ConfigError, match="device is None"):
        stoker.PrefetchLoader([], None)
    loader = stoker.DataLoader(dataset, 8, output="numpy")
    assert len(list(stoker.PrefetchLoader(loader, "cpu"))) == 7


def test_a_loader_of_torchs(device: Device) -> None:
    theirs = torch.utils.data.DataLoader(Rows(), batch_size=8, num_workers=2)
    seen = []
    for batch in stoker.PrefetchLoader(theirs, "cuda"):
        device.drain()
        assert device.is_there(batch["x"])
        for number, picture in zip(batch["y"].tolist(), batch["x"], strict=True):
            assert torch.equal(picture, row(number // 7))
            seen.append(number // 7)
    assert seen == list(range(40))


@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_a_loader_may_use_its_memory_again(device: Device, where: str) -> None:
    def source() -> Iterator[Any]:
        memory = torch.empty(70_000, dtype=torch.int64)
        for number in range(6):
            yield memory.fill_(number)

    for number, batch in enumerate(stoker.PrefetchLoader(source(), where)):
        device.drain()
        assert batch.unique().tolist() == [number]


class Kept(list[Any]):
    """A list of some library's."""


class Couple(tuple[Any, ...]):
    """A tuple of another one's."""


class Named(list[Any]):
    """A list with something else to say."""

    def __init__(self, name: str = "") -> None:
        super().__init__()
        self.name = name


class Attributes(dict[str, Any]):
    """A dict whose keys are attributes, also those that it does not have."""

    __getattr__ = dict.get


class Several(tuple[Any, ...]):
    """One that is made of several arguments."""

    def __new__(cls, *found: Any) -> Several:
        return super().__new__(cls, found)


class Groups(defaultdict[str, Any]):
    """One with a constructor of its own."""

    def __init__(self, label: str) -> None:
        super().__init__(list)
        self.label = label


class Wanting(tuple[Any, ...]):
    """One that is not made of an iterable."""

    def __new__(cls, one: Any, two: Any) -> Wanting:
        return super().__new__(cls, (one, two))


def test_classes_of_containers(device: Device) -> None:
    one = torch.ones(3)
    made: list[Any] = [
        Kept([one]),
        Couple((one, "t")),
        Wanting(one, one),
        torch.ones(2, 3).max(1),
        defaultdict(list, x=one),
        OrderedDict(x=one),
        UserDict(x=one),
    ]
    named, groups = Named("left"), Groups("right")
    named.append(one)
    groups["x"] = one
    made += [named, Attributes(x=one, to_be=one), Several(one, one), groups]
    (batch,) = stoker.PrefetchLoader([made], "cuda")
    device.drain()
    kinds = [type(value) for value in batch]
    plain = [Kept, Couple, tuple, torch.return_types.max, defaultdict, OrderedDict, UserDict]
    assert kinds == [*plain, Named, Attributes, tuple, dict]
    assert batch[4].default_factory is list
    assert [len(value) for value in batch] == [len(value) for value in made]
    assert batch[7].name == "left"
    for value in batch:
        tensors = value.values() if isinstance(value, Mapping) else value
        assert all(device.is_there(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor))
    moved: Any = stoker.Batch(made).to(torch.float64)
    assert [type(value) for value in moved] == kinds
    assert moved[0][0].dtype == moved[4]["x"].dtype == torch.float64


class Own(stoker.DataLoader[Any]):
    """A subclass whose batches are its own."""

    def __iter__(self) -> Any:
        yield from super().__iter__()


def test_a_subclass_with_an_iter_of_its_own(folder: Path) -> None:
    with Own(stoker.ImageFolder(folder, BIG), 8, seed=1) as loader:
        wrapped: Any = stoker.PrefetchLoader(loader, "cpu")
        places = []
        for _ in wrapped:
            places.append(wrapped.state_dict()["position"])
    assert places[:3] == [8, 16, 24]

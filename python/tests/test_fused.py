"""Floats that a device makes of bytes: the same batches as without one, to the bit, and the same states."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from forms import mostly, param, thinned
from needs import needs
from pretend import Device, device

import stoker
from stoker import transforms as T

__all__ = ["device"]

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CROP = [T.RandomResizedCrop(40), T.RandomHorizontalFlip()]
NORMAL = T.Normalize(MEAN, STD)
DataLoader: Any = stoker.DataLoader  # of keywords in a dict

ENDS: dict[str, list[Any]] = {
    "ToTensor": [T.ToTensor()],
    "float32": [T.ToDtype("float32"), T.Normalize([123.7, 116.3, 103.5], [58.4, 57.1, 57.4])],
    "normalised": [T.ToTensor(), NORMAL],
    "normalised twice": [T.ToTensor(), NORMAL, T.Normalize([0.1], [-2.0])],
    "moved later": [T.ToTensor(), T.Pad(2, fill=1.0), NORMAL, T.RandomVerticalFlip()],
    "bfloat16": [T.ToDtype("bfloat16", scale=True), NORMAL],
    "bfloat16, whole": [T.ToDtype("bfloat16")],
    "bfloat16 of normalised": [T.ToTensor(), NORMAL, T.ToDtype("bfloat16")],
    "float16": [T.ToDtype("float16", scale=True), NORMAL, T.Normalize([0.1], [2.0])],
    "float16 of float32": [T.ToDtype("float32", scale=True), T.ConvertImageDtype("float16")],
}


def left(loader: Any) -> list[bool]:
    """Of each field: whether its floats are made here."""
    return [field.left is not None for field in loader._opened().info().fields]


def same(one: Any, other: Any) -> None:
    """The same structures, types, strides and bits."""
    if isinstance(one, torch.Tensor):
        assert type(one) is type(other)
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        strides = [[stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1] for x in (one, other)]
        assert strides[0] == strides[1]
        assert torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
    elif isinstance(one, (list, tuple)):
        assert type(one) is type(other)
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        same(list(one.values()), list(other.values()))
    else:
        assert one == other


def where_apart(told: Any) -> tuple[Any, set[str]]:
    """What ``explain`` says, without where it is done; and the transforms that the device does."""
    away = set()
    for row in told["rows"]:
        for choices in row.get("choices", {}).values():
            away |= {one["op"] for one in choices if one.pop("device", False)}
    return told, away


def compared(device: Device, dataset: Any, bare: Sequence[bool], **more: Any) -> None:
    """All batches of two epochs, and the states, with the device and without."""
    more = {"batch_size": 8, "shuffle": True, "seed": 5, **more}
    with DataLoader(dataset, **more) as here, DataLoader(dataset, device="cuda", **more) as there:
        assert left(there) == list(bare)
        assert not any(left(here))
        for _ in range(2):
            for one, other in zip(here, there, strict=True):
                device.drain()
                same(one, other)
                if more["batch_size"] is not None:
                    assert torch.equal(one.ids, other.ids)
                    assert torch.equal(one.valid, other.valid)
        assert here.state_dict() == there.state_dict()
        assert here.receipt() == there.receipt()


@thinned
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize(
    "end", mostly(ENDS, "normalised twice", "moved later", "bfloat16, whole", "float16", "bfloat16 of normalised")
)
def test_the_floats_are_the_engines(device: Device, folder: Path, end: str, layout: str) -> None:
    compared(device, stoker.ImageFolder(folder, [*CROP, *ENDS[end]]), [True, False], layout=layout)


@pytest.mark.parametrize("end", mostly(["normalised", "bfloat16", "float16 of float32"], "bfloat16"))
def test_single_samples(device: Device, folder: Path, end: str) -> None:
    compared(device, stoker.ImageFolder(folder, [*CROP, *ENDS[end]]), [True, False], batch_size=None)


@pytest.mark.parametrize("layout", mostly(["nchw", "nhwc"], "nhwc"))
def test_views(device: Device, folder: Path, layout: str) -> None:
    """Each view has an end of its own; bytes stay what they are."""
    chain = [T.Views([*CROP, *ENDS["normalised"]], [*CROP, *ENDS["bfloat16"]], CROP)]
    compared(device, stoker.ImageFolder(folder, chain), [True, True, False, False], layout=layout)


@pytest.mark.parametrize("normal", [param(T.Normalize([0.1307], [0.3081])), T.Normalize([0.5], [-0.25])])
def test_grey(device: Device, folder: Path, normal: Any) -> None:
    grey = [*CROP, T.Grayscale(), T.ToDtype("bfloat16", scale=True), normal]
    compared(device, stoker.ImageFolder(folder, grey), [True, False])


def test_large_batches(device: Device, folder: Path) -> None:
    """Fields of their own memory in the slot."""
    chain = [T.Resize((128, 160)), T.ToTensor(), NORMAL]
    compared(device, stoker.ImageFolder(folder, chain), [True, False])


def test_fewer_bytes_cross(device: Device, folder: Path) -> None:
    with DataLoader(stoker.ImageFolder(folder, [*CROP, T.ToTensor(), NORMAL]), 10, device="cuda") as loader:
        batches = list(loader)
        device.drain()
        stats = loader.stats()["device"]
    pictures = 50 * 3 * 40 * 40
    assert pictures <= device.copied < pictures + 5 * 4096  # not 4 times as many
    assert stats["bytes"] <= device.copied
    assert batches[0][0].dtype == torch.float32


def test_a_state_goes_on_without_a_device_and_back(device: Device, folder: Path) -> None:
    train = stoker.ImageFolder(folder, [*CROP, *ENDS["bfloat16"]])
    more: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 5}
    want = [batch[0].clone() for batch in DataLoader(train, **more)]
    for first, second in (({"device": "cuda"}, {}), ({}, {"device": "cuda"})):
        loader = DataLoader(train, **more, **first)
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
        del batches
        loader.close()
        resumed = DataLoader(train, **more, **second)
        resumed.load_state_dict(state)
        got = list(resumed)
        device.drain()
        same([batch[0] for batch in got], want[2:])


def test_what_depends_on_the_sample_stays_in_the_engine(device: Device, folder: Path) -> None:
    for end in (
        [T.ToTensor(), T.RandomApply([NORMAL])],
        [T.ToTensor(), T.RandomErasing(0.5, value="random")],
        [T.ToDtype("float16", scale=True), T.RandomErasing(0.5, value="random")],
        [T.RandomChoice([T.ToTensor(), T.ToDtype("float32")])],
    ):
        compared(device, stoker.ImageFolder(folder, [*CROP, *end]), [False, False])


def test_mixtures(device: Device, folder: Path) -> None:
    """Datasets with one end, and with two."""
    normal, other = ([*CROP, T.ToTensor(), T.Normalize([mean], [0.5])] for mean in (0.4, 0.6))
    for ends, bare in (((normal, normal), True), ((normal, other), False)):
        members = [stoker.ImageFolder(folder, end) for end in ends]
        compared(device, stoker.Mixture(members, weights=[1, 2]), [bare, False])


def test_the_cache_changes_nothing(device: Device, folder: Path) -> None:
    chain = [T.Resize((40, 48)), *ENDS["moved later"]]
    compared(device, stoker.ImageFolder(folder, chain), [True, False], cache="1GiB")


def test_functions_and_buffers(device: Device, folder: Path) -> None:
    """A function of batches gets floats; static buffers have them."""
    train = stoker.ImageFolder(folder, [*CROP, *ENDS["normalised"]])
    seen = []

    def kinds(batch: Any) -> Any:
        seen.append(batch[0].dtype)
        return batch

    with DataLoader(train, 8, device="cuda", batch_transform=kinds) as loader:
        for _ in loader:
            device.drain()
    assert set(seen) == {torch.float32}
    with DataLoader(train, 8, device="cuda", drop_last=True, static_buffers=True) as loader:
        found = {(batch[0].dtype, batch[0].data_ptr()) for _ in range(2) for batch in loader}
        device.drain()
    assert len(found) == 1
    assert found.pop()[0] == torch.float32


def test_python_gets_floats(device: Device, folder: Path) -> None:
    """Samples that Python finishes are the engine's, whole."""
    needs("torchvision")
    train = stoker.ImageFolder(folder, [*CROP, *ENDS["bfloat16"]]).map(lambda sample: (sample[0] + 1, sample[1]))
    more: dict[str, Any] = {"batch_size": 8, "num_workers": 1}
    with DataLoader(train, **more) as here, DataLoader(train, device="cuda", **more) as there:
        for one, other in zip(here, there, strict=True):
            device.drain()
            same(one, other)


def test_no_memory_for_the_floats(device: Device, folder: Path) -> None:
    """It is an error, and the batch comes once there is some."""
    train = stoker.ImageFolder(folder, [T.Resize((64, 64)), *ENDS["bfloat16 of normalised"]])
    want = [batch[0].clone() for batch in DataLoader(train, 10)]
    with DataLoader(train, 10, device="cuda", device_prefetch=1) as loader:
        batches, got = iter(loader), []
        device.room = 1 << 17
        with pytest.raises(stoker.ResourceError, match="no memory"):
            next(batches)
        device.room = 1 << 26
        for batch in batches:
            device.drain()
            got.append(batch[0])
    same(got, want)

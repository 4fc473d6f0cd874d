"""MixUp and CutMix on a device: batches of the engine's numbers, to the bit, whatever their structure, and its states.

On torch's CPU, and on a device that can be wrong (pretend.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forms import mostly, thinned
from pretend import Device, Full, device
from test_fused import CROP, ENDS, left, same, where_apart
from torchvision.transforms import v2

import stoker
from stoker import transforms as T
from stoker._device_mix import Blend, Mixing

__all__ = ["device"]

DataLoader: Any = stoker.DataLoader  # of keywords in a dict
CLASSES = 3
UP, CUT = T.MixUp(alpha=0.4, num_classes=CLASSES), T.CutMix(num_classes=CLASSES)
BOTH = T.RandomChoice([UP, CUT], p=[0.4, 0.6])
FRONT = T.Resize((36, 44))
KEYWORDS: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 5}


def copied(value: Any) -> Any:
    """What a batch has, in memory of its own, with its types and strides."""
    if isinstance(value, torch.Tensor):
        return value.clone(memory_format=torch.preserve_format)
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    return [copied(one) for one in value] if isinstance(value, (list, tuple)) else value


def found(made: Any, device: Device | None = None, epochs: int = 1) -> list[Any]:
    """Batches of a loader, copied when they have arrived, and whether their rows are valid."""
    every = []
    with made:
        for _ in range(epochs):
            for batch in made:
                if device is not None:
                    device.drain()
                every.append((copied(batch), batch.ids.tolist(), batch.valid.tolist()))
                del batch
    return every


def compared(device: Device, dataset: Any, mix: Any = BOTH, epochs: int = 1, **more: Any) -> list[Any]:
    """All batches of some epochs, and the states, with the device and without. Returns the batches."""
    more = {**KEYWORDS, "batch_transform": mix, **more}
    here, there = DataLoader(dataset, **more), DataLoader(dataset, device="cuda", **more)
    plain, moved = found(here, epochs=epochs), found(there, device, epochs)
    same(plain, moved)
    assert here.state_dict() == there.state_dict()
    assert here.receipt() == there.receipt()
    assert here.explain(1) == there.explain(1)
    return plain


@pytest.fixture
def arrays(tmp_path: Path) -> Callable[..., Any]:
    """Makes datasets of pictures and labels as arrays."""
    rng = np.random.default_rng(1)

    def made(pictures: Any, labels: Any, shape: tuple[int, ...] = (2, 9, 11)) -> Any:
        kind = np.dtype(pictures)
        x = rng.standard_normal((21, *shape)).astype(kind) if kind.kind == "f" else rng.integers(0, 200, (21, *shape))
        y = np.arange(21) % CLASSES if np.ndim(labels) == 0 and not isinstance(labels, np.ndarray) else labels
        np.save(tmp_path / "x.npy", x.astype(kind))
        np.save(tmp_path / "y.npy", y if isinstance(labels, np.ndarray) else y.astype(labels))
        return stoker.NpyDataset(x=str(tmp_path / "x.npy"), y=str(tmp_path / "y.npy")).to_tuple("x", "y")

    return made


# batch_transform=.


@thinned
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("end", ["ToTensor", "normalised", "moved later"])
def test_floats(device: Device, folder: Path, end: str, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_POISON", "1")
    train = stoker.ImageFolder(folder, [*CROP, *ENDS[end]])
    batches = compared(device, train, epochs=2, layout=layout)
    assert {labels.dtype for (_, labels), _, _ in batches} == {torch.float32}
    with DataLoader(train, device="cuda", batch_transform=BOTH, **KEYWORDS) as loader:
        assert left(loader) == [True, False]


@thinned
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("end", [[], *(ENDS[name] for name in ("bfloat16", "float16 of float32", "float32"))])
def test_any_type(device: Device, folder: Path, end: Any, layout: str) -> None:
    mix = BOTH if end else CUT
    compared(device, stoker.ImageFolder(folder, [*CROP, *end]), mix, layout=layout)
    gray = [*CROP, T.Grayscale(), *end[:1]]  # without Normalize
    compared(device, stoker.ImageFolder(folder, gray), mix, layout=layout)


def test_what_the_engine_makes_is_mixed_there_too(device: Device, folder: Path) -> None:
    for end in (
        [T.ToTensor(), T.RandomApply([ENDS["normalised"][1]])],
        [T.ToTensor(), T.RandomErasing(value="random")],
    ):
        compared(device, stoker.ImageFolder(folder, [*CROP, *end]))


def test_large_and_single_batches(device: Device, folder: Path) -> None:
    """Fields of their own memory in the slot; a batch that is mixed with itself."""
    train = stoker.ImageFolder(folder, [T.Resize((128, 160)), *ENDS["normalised"]])
    compared(device, train)
    compared(device, train, batch_size=1)
    compared(device, stoker.ImageFolder(folder, T.Resize((128, 160))), CUT)


@pytest.mark.parametrize("rank", mostly([0, 1], 1))
def test_rows_that_are_not_valid_stay_as_they_are(device: Device, folder: Path, rank: int) -> None:
    padded = 0
    for mix in (UP, CUT):
        more: dict[str, Any] = {"batch_size": 8, "tail": "fill", "rank": rank, "world_size": 2, "on_bad": "skip"}
        chain = [*CROP, *ENDS["normalised"]]
        for _, _, valid in compared(device, stoker.ImageFolder(folder, chain), mix, **more):
            padded += not all(valid)
    assert padded


def test_skipped_samples(device: Device, own_folder: Path) -> None:
    victim = sorted(own_folder.rglob("*.jpg"))[3]
    victim.write_bytes(victim.read_bytes()[:300])
    for policy in ("skip", "replace"):
        train = stoker.ImageFolder(own_folder, [*CROP, *ENDS["ToTensor"]])
        batches = compared(device, train, on_bad=policy)
        assert all(all(valid) for _, _, valid in batches) == (policy == "replace")


def test_dicts_and_views(device: Device, folder: Path, shards: str) -> None:
    chain = T.Compose([*CROP, *ENDS["normalised"]])
    mix = T.RandomChoice(
        [T.MixUp(num_classes=50, labels_getter=lambda batch: batch["cls"]), T.CutMix(num_classes=50)][:1]
    )
    named = stoker.WebDataset(shards).decode("pil").map_dict(jpg=chain)
    batches = compared(device, named, mix, batch_size=4)
    assert isinstance(batches[0][0], dict)
    views = T.Views([*CROP, *ENDS["normalised"]], [*CROP, *ENDS["bfloat16"]], CROP)
    for (several, _), _, _ in compared(device, stoker.ImageFolder(folder, views)):
        assert [one.dtype for one in several] == [torch.float32, torch.bfloat16, torch.uint8]


def test_grey_pictures(device: Device, shards: str) -> None:
    """Shown without an axis for channels."""
    floats = [T.ToDtype("float32", scale=True)]
    for end, mix in ((floats, T.MixUp(num_classes=50)), ([], T.CutMix(num_classes=50))):
        for layout in ("nchw", "nhwc"):
            grey = stoker.WebDataset(shards).decode("l8").to_tuple("jpg", "cls")
            compared(device, grey.map_tuple(T.Compose([*CROP, *end]), None), mix, batch_size=4, layout=layout)


@pytest.mark.parametrize(
    "pictures", mostly(["float32", "float64", "float16", "uint16", "int64", "uint8"], "float16", "float64", "uint8")
)
def test_arrays(device: Device, arrays: Callable[..., Any], pictures: str) -> None:
    data = arrays(pictures, "int32")
    compared(device, data, BOTH if "float" in pictures else CUT, batch_size=6)


@pytest.mark.parametrize("labels", mostly(["uint8", "int16", "uint16", "int64"], "uint8", "int64"))
def test_class_numbers_of_any_type(device: Device, arrays: Callable[..., Any], labels: str) -> None:
    compared(device, arrays("float32", labels), batch_size=6)


@pytest.mark.parametrize("labels", mostly(["float32", "float64", "int64", "uint8"], "float64", "uint8"))
def test_probabilities(device: Device, arrays: Callable[..., Any], labels: str) -> None:
    soft = np.random.default_rng(2).uniform(0, 9, (21, 4)).astype(labels)
    batches = compared(device, arrays("float32", soft), T.RandomChoice([T.MixUp(), T.CutMix()]), batch_size=6)
    assert batches[0][0][1].dtype == (torch.float64 if labels == "float64" else torch.float32)


def test_bytes_cross_the_bus(device: Device, folder: Path) -> None:
    train = stoker.ImageFolder(folder, [*CROP, *ENDS["normalised"]])
    with DataLoader(train, 10, device="cuda", batch_transform=T.MixUp(num_classes=CLASSES)) as loader:
        for _ in loader:
            device.drain()
        assert loader.stats()["device"]["transforms_busy_s"] > 0
    pictures = 50 * 3 * 40 * 40
    assert pictures <= device.copied < pictures + 5 * 4096


def test_a_label_beyond_num_classes_is_an_error(device: Device, folder: Path) -> None:
    train = stoker.ImageFolder(folder, [*CROP, *ENDS["ToTensor"]])
    with (
        DataLoader(train, 50, device="cuda", batch_transform=T.MixUp(num_classes=2)) as loader,
        pytest.raises(stoker.ConfigError, match="num_classes is 2"),
    ):
        list(loader)


PLACES = [("cuda", ""), ("", "cuda"), ("cuda", "cuda"), ("last", ""), ("", "last")]


@pytest.mark.parametrize(("first", "second"), mostly(PLACES, ("cuda", ""), ("", "last")))
def test_states_fit_with_a_device_and_without(device: Device, folder: Path, first: str, second: str) -> None:
    train = stoker.ImageFolder(folder, [*CROP, *ENDS["normalised"]])

    def made(where: str) -> Any:
        if where == "last":
            return DataLoader(train, device="cuda", device_transform=[BOTH], **KEYWORDS)
        more = {"device": "cuda"} if where == "cuda" else {}
        return DataLoader(train, batch_transform=BOTH, **more, **KEYWORDS)

    want = [batch for batch, _, _ in found(made(""))]
    for stop in range(1, len(want)):
        with made(first) as one:
            for _, _ in zip(range(stop), one, strict=False):
                device.drain()
            state = json.loads(json.dumps(one.state_dict()))
        with made(second) as two:
            two.load_state_dict(state)
            same([batch for batch, _, _ in found(two, device)], want[stop:])


def test_static_buffers(device: Device, folder: Path) -> None:
    train = stoker.ImageFolder(folder, [*CROP, *ENDS["normalised"]])
    more = {**KEYWORDS, "drop_last": True}
    want = found(DataLoader(train, batch_transform=BOTH, **more), epochs=2)
    addresses, got = set(), []
    with DataLoader(train, device="cuda", static_buffers=True, batch_transform=BOTH, **more) as loader:
        for _ in range(2):
            for batch in loader:
                device.drain()
                addresses.add(tuple(part.data_ptr() for part in batch))
                got.append(batch.ids.tolist())
    assert len(addresses) == 1
    assert got == [ids for _, ids, _ in want]
    with DataLoader(train, device="cpu", static_buffers=True, batch_transform=BOTH, **more) as loader:
        same([copied(batch) for _ in range(2) for batch in loader], [batch for batch, _, _ in want])


def test_no_memory(device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For what is mixed, and for the operators: the batch comes once there is some."""
    train = stoker.ImageFolder(folder, [T.Resize((64, 64)), *ENDS["normalised"]])
    want = [batch for batch, _, _ in found(DataLoader(train, batch_transform=BOTH, **KEYWORDS))]
    calls: list[int] = []

    def compute(work: Any, of: Any = Device.compute) -> None:
        calls.append(1)
        if len(calls) in (2, 3, 8):
            raise Full("tried to allocate for an operator")
        of(device, work)

    monkeypatch.setattr(device, "compute", compute)
    got: list[Any] = []
    refused = 0
    with DataLoader(train, device="cuda", batch_transform=BOTH, **KEYWORDS) as loader:
        batches = iter(loader)
        while len(got) < len(want):
            device.room = 1 << (17 if len(got) == 1 and not refused else 26)
            try:
                batch = next(batches)
            except stoker.ResourceError:
                refused += 1
                continue
            device.drain()
            got.append(copied(batch))
            del batch
    assert refused
    same(got, want)


def test_a_pickled_loader_and_threads_of_lanes(device: Device, folder: Path) -> None:
    train = stoker.ImageFolder(folder, [*CROP, *ENDS["normalised"]])
    want = compared(device, train)
    for more in ({"num_workers": 1}, {"cache": "1GiB"}, {"prefetch": 9}):
        same(want, found(DataLoader(train, device="cuda", batch_transform=BOTH, **KEYWORDS, **more), device))


# device_transform=.

STEPS: dict[str, tuple[list[Any], Any]] = {
    "MixUp": ([T.RandomCrop(30), T.ColorJitter(0.4), T.ToTensor(), *ENDS["normalised"][1:]], UP),
    "both": ([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor()], BOTH),
    "erased": ([T.RandomCrop(30), T.ToTensor(), T.RandomErasing(0.8, value="random")], BOTH),
    "only floats": (ENDS["normalised"], BOTH),
    "bytes": ([T.RandAugment()], CUT),
    "no steps": ([], CUT),
    "halves": ([T.RandomCrop(30), *ENDS["bfloat16"]], BOTH),
    "grey": ([T.Grayscale(), T.RandomCrop(30), T.ToTensor()], BOTH),
}


@thinned
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("name", mostly(STEPS, "both", "no steps", "halves", "grey"))
def test_after_steps_of_pictures(device: Device, folder: Path, name: str, layout: str) -> None:
    """As if all were in transform=, and the mixing in batch_transform=."""
    steps, mix = STEPS[name]
    more = {**KEYWORDS, "layout": layout, "tail": "fill"}
    want = found(DataLoader(stoker.ImageFolder(folder, [FRONT, *steps]), batch_transform=mix, **more))
    front = stoker.ImageFolder(folder, FRONT)
    for where in ("cpu", "cuda"):
        for given in (
            {"device_transform": [*steps, mix]},
            {"device_transform": steps, "batch_transform": mix},
        ):
            made = DataLoader(front, device=where, **given, **more)
            same(want, found(made, device if where == "cuda" else None))


def test_states_and_explanations(folder: Path) -> None:
    steps, mix = STEPS["MixUp"]
    front = stoker.ImageFolder(folder, FRONT)
    with (
        DataLoader(stoker.ImageFolder(folder, [FRONT, *steps]), batch_transform=CUT, **KEYWORDS) as here,
        DataLoader(front, device="cpu", device_transform=[*steps, CUT], **KEYWORDS) as there,
    ):
        told, away = where_apart(there.explain(2))
        assert here.explain(2) == told
        assert away <= {type(step).__name__ for step in steps}
        assert {"left", "top"} < set(there.explain(2)["batch_transform"][0])
    whole = found(DataLoader(front, device="cpu", device_transform=[*steps, mix], **KEYWORDS))
    for stop in range(1, 7):
        with DataLoader(front, device="cpu", device_transform=[*steps, mix], **KEYWORDS) as one:
            for _, _ in zip(range(stop), one, strict=False):
                pass
            state = json.loads(json.dumps(one.state_dict()))
        with DataLoader(front, device="cpu", device_transform=steps, batch_transform=mix, **KEYWORDS) as two:
            two.load_state_dict(state)
            same(found(two), whole[stop:])
    with (
        DataLoader(front, device="cpu", device_transform=[*steps, CUT], **KEYWORDS) as other,
        pytest.raises(stoker.StateError, match="transforms differ"),
    ):
        other.load_state_dict(state)


def test_functions_follow(device: Device, folder: Path) -> None:
    steps, mix = STEPS["MixUp"]
    front = stoker.ImageFolder(folder, FRONT)
    want = found(DataLoader(front, device="cpu", device_transform=[*steps, mix], **KEYWORDS))

    def halves(pictures: torch.Tensor) -> torch.Tensor:
        return pictures.bfloat16()

    with DataLoader(front, device="cpu", device_transform=[*steps, mix, halves], **KEYWORDS) as loader:
        for ((pictures, labels), _, _), batch in zip(want, loader, strict=True):
            assert torch.equal(batch[0], pictures.bfloat16())
            assert torch.equal(batch[1], labels)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"device_transform": [T.ToTensor(), UP, T.RandomCrop(9)]}, "RandomCrop comes after MixUp, which is done to whole"),
    ({"device_transform": [T.ToTensor(), UP, v2.RandomCrop(9)]}, "RandomCrop comes after MixUp"),
    ({"device_transform": [CUT, T.ToTensor()]}, "ToTensor comes after CutMix"),
    ({"device_transform": [T.ToTensor(), BOTH, CUT]}, "CutMix comes after MixUp or CutMix, and batches are mixed once"),
    ({"device_transform": [T.ToTensor(), UP, v2.CutMix(num_classes=3)]}, "to do both, do it in the loop"),
    ({"device_transform": [T.ToTensor(), CUT, BOTH]}, "RandomChoice comes after CutMix, and batches are mixed once"),
    (
        {"device_transform": [T.ToTensor(), T.RandomChoice([UP, T.RandomHorizontalFlip()])]},
        "RandomChoice holds MixUp, which mixes whole batches",
    ),
    (
        {"device_transform": [T.ToTensor(), v2.RandomChoice([v2.RandomHorizontalFlip(), v2.MixUp(num_classes=3)])]},
        "end with one of MixUp",
    ),
    ({"device_transform": [len, CUT]}, "CutMix comes after len, which is Python"),
    ({"device_transform": [len, v2.CutMix(num_classes=3)]}, "CutMix comes after len, which is Python"),
    ({"device_transform": [T.RandomApply([CUT])]}, "RandomApply holds CutMix"),
    ({"device_transform": [CUT, 3]}, "cannot be called"),
    ({"device_transform": [UP]}, 'MixUp needs floats, and field "image" is uint8'),
    ({"device_transform": [T.CutMix()]}, "num_classes must be passed"),
    ({"device_transform": [T.CutMix(num_classes=3, labels_getter=None)]}, "labels_getter is None"),
    ({"device_transform": [CUT], "batch_transform": UP}, "both mix"),
    ({"device_transform": [len], "batch_transform": CUT}, "put CutMix into device_transform, before the functions"),
    ({"device_transform": [CUT, len], "static_buffers": True, "drop_last": True}, "static_buffers needs the same"),
    ({"device_transform": [CUT], "batch_size": None}, "is for batches"),
    ({"device_transform": [CUT], "device": None}, "needs device="),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refusals(folder: Path, number: int) -> None:
    keywords, said = REFUSED[number]
    with pytest.raises(stoker.ConfigError, match=said):
        DataLoader(stoker.ImageFolder(folder, FRONT), **{"device": "cpu", **keywords})


# Batches that Python makes.


class Pairs(torch.utils.data.Dataset[Any]):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.images = torch.randn(21, 3, 6, 8, generator=torch.Generator().manual_seed(1)).to(dtype)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        return self.images[i].clone(), i % CLASSES


def joined(samples: list[Any]) -> Any:
    from torchvision.tv_tensors import Image

    images, labels = zip(*samples, strict=True)
    return {"more": [Image(torch.stack(images))], "labels": torch.tensor(labels)}


@pytest.mark.parametrize(
    "keywords",
    [{"num_workers": 2}, {"num_workers": 0}, {"num_workers": 0, "collate_fn": joined}, {"native": False}],
)
@pytest.mark.parametrize("mix", mostly([UP, CUT, BOTH], BOTH))
def test_batches_of_python(device: Device, keywords: dict[str, Any], mix: Any) -> None:
    more = {**KEYWORDS, "batch_size": 6, "tail": "fill", "batch_transform": mix, **keywords}
    same(found(DataLoader(Pairs(), **more)), found(DataLoader(Pairs(), device="cuda", **more), device))


@pytest.mark.parametrize("dtype", mostly([torch.float16, torch.bfloat16], torch.bfloat16), ids=str)
def test_batches_of_python_in_halves(device: Device, dtype: torch.dtype) -> None:
    more = {**KEYWORDS, "batch_size": 6, "tail": "fill", "batch_transform": BOTH, "num_workers": 0}
    same(found(DataLoader(Pairs(dtype), **more)), found(DataLoader(Pairs(dtype), device="cuda", **more), device))


def test_pictures_that_torch_would_move_otherwise(device: Device) -> None:
    """They are mixed here."""

    def learned(samples: list[Any]) -> Any:
        images, labels = zip(*samples, strict=True)
        return torch.stack(images).requires_grad_(), torch.tensor(labels)

    more = {"batch_size": 7, "num_workers": 0, "collate_fn": learned, "batch_transform": UP}
    same(found(DataLoader(Pairs(), **more)), found(DataLoader(Pairs(), device="cuda", **more), device))


# The parts.


def test_rows_that_are_left_out() -> None:
    x = torch.arange(24.0).view(4, 1, 2, 3)
    for rows in ([], [2], [0, 3], [1, 2, 3]):
        y = x.clone()
        Mixing(0.25, None, rows).pictures(y, planes=True)
        for row in range(4):
            before = rows[rows.index(row) - 1] if row in rows else row
            assert torch.equal(y[row], x[before] * 0.75 + x[row] * 0.25)
        y = x.clone()
        Mixing(0.5, (1, 0, 3, 1), rows).pictures(y, planes=True)
        for row in range(4):
            before = rows[rows.index(row) - 1] if row in rows else row
            assert torch.equal(y[row, 0, 0, 1:], x[before, 0, 0, 1:])
            assert torch.equal(y[row, 0, 1], x[row, 0, 1])
    inside = Mixing(0.0, (1, 1, 1, 2), None)
    y = x.clone()
    inside.pictures(y, planes=True)
    assert torch.equal(x, y)


def test_a_blend_changes_nothing_that_it_was_given() -> None:
    x, labels = torch.arange(6.0).view(2, 1, 1, 3), torch.tensor([1, 0])
    mixing = Mixing(0.25, None, None)
    assert Blend(x, mixing, planes=True).here().tolist() == [[[[2.25, 3.25, 4.25]]], [[[0.75, 1.75, 2.75]]]]
    assert Blend.of_labels(labels, mixing, 2).here().tolist() == [[0.75, 0.25], [0.25, 0.75]]
    assert x.flatten().tolist() == [0, 1, 2, 3, 4, 5]
    assert labels.tolist() == [1, 0]

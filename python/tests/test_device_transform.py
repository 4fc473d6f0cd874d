"""device_transform=: what the engine leaves of pictures is done where the batch is, and gives the engine's own bytes.

On torch's CPU, and on a device that can be wrong (pretend.py).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from augmented import CHAINS
from conftest import run_python
from forms import long, mostly, thinned
from pretend import Device, Full, device
from test_fused import same, where_apart

import stoker
from stoker import _device_ops as ops
from stoker import _device_steps as steps
from stoker import transforms as T
from stoker._errors import ConfigError

__all__ = ["device"]

DataLoader: Any = stoker.DataLoader  # of keywords in a dict
SIZE = (36, 44)
NOISE = Path(__file__).parents[2] / "internal" / "base" / "kernel" / "testdata" / "noise.json"
FRONT = T.Resize(SIZE)
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
NEAREST, BILINEAR = T.InterpolationMode.NEAREST, T.InterpolationMode.BILINEAR
BICUBIC, EXACT = T.InterpolationMode.BICUBIC, T.InterpolationMode.NEAREST_EXACT

LEFT: dict[str, list[Any]] = {
    "nothing": [],
    "CenterCrop": [T.CenterCrop(30)],
    "CenterCrop that pads": [T.CenterCrop((50, 20))],
    "RandomCrop": [T.RandomCrop(32, padding=6)],
    "RandomCrop, reflected": [T.RandomCrop(40, padding=8, padding_mode="reflect")],
    "RandomCrop, symmetric": [T.RandomCrop(40, padding=8, padding_mode="symmetric", pad_if_needed=True)],
    "Pad": [T.Pad((3, 1, 4, 2), fill=(9, 8, 7)), T.Pad(2, padding_mode="edge")],
    "RandomHorizontalFlip": [T.RandomHorizontalFlip(), T.RandomVerticalFlip(0.4)],
    "RandomResizedCrop": [T.RandomResizedCrop(24), T.RandomHorizontalFlip()],
    "RandomResizedCrop, after a flip": [
        T.RandomHorizontalFlip(),
        T.RandomVerticalFlip(),
        T.RandomResizedCrop((20, 33)),
    ],
    "RandomResizedCrop, larger": [T.RandomResizedCrop(70, (0.05, 0.4))],
    "RandomResizedCrop, bicubic": [T.RandomResizedCrop(24, interpolation=BICUBIC)],
    "RandomResizedCrop, nearest": [T.RandomResizedCrop(25, interpolation=NEAREST)],
    "RandomResizedCrop, nearest-exact": [T.RandomVerticalFlip(), T.RandomResizedCrop(31, interpolation=EXACT)],
    "Resize": [T.Resize((17, 90)), T.Resize((40, 11), BICUBIC)],
    "Grayscale": [T.Grayscale()],
    "Grayscale, of three": [T.Grayscale(3), T.RandomInvert(0.5)],
    "RandomGrayscale": [T.RandomGrayscale(0.5)],
    "ColorJitter": [T.ColorJitter(0.4, 0.4, 0.4, 0.2)],
    "ColorJitter, strong": [T.ColorJitter((0, 3), (0, 3), (0, 5), 0.5)],
    "GaussianBlur": [T.GaussianBlur((5, 9), (0.3, 2.0))],
    "GaussianBlur, wide": [T.GaussianBlur(35, (0.01, 60.0))],
    "RandomErasing": [T.RandomErasing(0.9, value=(9, 99, 200))],
    "RandomRotation": [T.RandomRotation(40, fill=7)],
    "RandomRotation, bilinear": [T.RandomRotation(180, BILINEAR, fill=(1, 2, 3))],
    "quarters": [T.CenterCrop(36), T.RandomChoice([T.RandomRotation((90 * k, 90 * k)) for k in range(4)])],
    "RandomAffine": [T.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), (-9, 9, -4, 4))],
    "RandomAffine, bilinear": [T.RandomAffine(90, (0.3, 0.3), (0.5, 2), 30, BILINEAR, fill=100)],
    "RandomPerspective": [T.RandomPerspective(0.6, 0.8)],
    "RandomPerspective, nearest": [T.RandomPerspective(0.6, 0.8, NEAREST, fill=(200, 0, 50))],
    "RandomApply": [T.RandomApply([T.RandomResizedCrop(SIZE), T.RandomInvert(0.5)], p=0.5)],
    "RandomChoice": [T.RandomChoice([T.RandomCrop(30), T.Resize((30, 30)), T.CenterCrop(30)])],
    "RandomOrder": [
        T.RandomOrder([T.ColorJitter(0.3), T.RandomHorizontalFlip(), T.RandomPosterize(4), T.RandomCrop(30)])
    ],
    "policies": [T.RandAugment(3, 11), T.TrivialAugmentWide(interpolation=BILINEAR), T.AutoAugment()],
    "sizes between": [
        T.RandomZoomOut(5, (1.0, 2.0), 0.8),
        T.RandomResize(20, 60),
        T.CenterCrop(28),
        T.RandomEqualize(),
    ],
}
LEFT.update(
    {
        f"augmented: {name}": chain[1:]
        for name, (chain, mix) in CHAINS.items()
        if mix is None and chain[0] is CHAINS["ColorJitter"][0][0] and name != "AugMix"
    }
)

ENDS: dict[str, list[Any]] = {
    "bytes": [],
    "float32": [T.ToTensor(), T.Normalize(MEAN, STD)],
    "bfloat16": [T.ToDtype("bfloat16", scale=True), T.Normalize(MEAN, STD)],
    "float16": [T.ToDtype("float16", scale=True)],
    "erased": [
        T.ToTensor(),
        T.RandomErasing(0.7, value=(0.5, -1.0, 2.0)),
        T.Normalize(MEAN, STD),
        T.RandomErasing(0.5),
    ],
    "erased by noise": [
        T.ToTensor(),
        T.RandomErasing(0.7, value="random"),
        T.Normalize(MEAN, STD),
        T.RandomErasing(0.5, value="random"),
        T.RandomErasing(0.3, value=0.25),
    ],
    "erased float16": [
        T.ToDtype("float16", scale=True),
        T.RandomErasing(0.7, value=(0.1, -1.3, 2.7)),
        T.Normalize(MEAN, STD),
        T.RandomErasing(0.5, value="random"),
    ],
    "erased, then bfloat16": [
        T.ToTensor(),
        T.RandomErasing(0.7, value="random"),
        T.Normalize(MEAN, STD),
        T.RandomErasing(0.5, value=0.1),
        T.ToDtype("bfloat16"),
        T.RandomErasing(0.3, value="random"),
        T.Normalize([0.1], [3.0]),
    ],
}


def loader(folder: Path, front: Sequence[Any], left: Sequence[Any], **keywords: Any) -> Any:
    """One whose pictures go through ``front`` in the engine and ``left`` on the device, or, without a device, in the
    engine too."""
    keywords = {"batch_size": 8, "shuffle": True, "seed": 3, **keywords}
    if "device" in keywords:
        return DataLoader(stoker.ImageFolder(folder, T.Compose(list(front))), device_transform=list(left), **keywords)
    return DataLoader(stoker.ImageFolder(folder, T.Compose([*front, *left])), **keywords)


def epochs(made: Any, count: int = 1) -> list[Any]:
    with made:
        return [batch for _ in range(count) for batch in made]


# Together they have every kind of step.
FEW = (
    *("CenterCrop that pads", "RandomCrop, reflected", "Pad", "RandomResizedCrop, after a flip"),
    *("RandomResizedCrop, bicubic", "RandomResizedCrop, nearest-exact", "Grayscale, of three", "ColorJitter"),
    *("GaussianBlur", "RandomErasing", "RandomAffine, bilinear", "RandomPerspective", "RandomApply", "RandomChoice"),
    *("RandomOrder", "policies", "sizes between"),
)


@pytest.mark.parametrize("name", mostly(LEFT, *FEW))
def test_each_step(folder: Path, name: str) -> None:
    here = epochs(loader(folder, [FRONT], LEFT[name]))
    there = epochs(loader(folder, [FRONT], LEFT[name], device="cpu"))
    same(here, there)
    assert len({batch[0].numpy().tobytes() for batch in there}) == len(there)


@thinned
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("end", mostly(ENDS, "bytes", "float32", "erased float16", "erased, then bfloat16"))
def test_each_end(folder: Path, end: str, layout: str) -> None:
    for left in ([T.RandomResizedCrop(24), T.ColorJitter(0.4, 0.4, 0.4, 0.1)], []):
        here = epochs(loader(folder, [FRONT], [*left, *ENDS[end]], layout=layout), 2)
        same(here, epochs(loader(folder, [FRONT], [*left, *ENDS[end]], layout=layout, device="cpu"), 2))
        if not end.startswith("erased") and not left:  # the engine converts, and the device does nothing
            same(here, epochs(loader(folder, [FRONT, *ENDS[end]], [], layout=layout, device="cpu"), 2))


def test_gray_pictures(folder: Path, shards: str) -> None:
    left = [T.RandomResizedCrop(24), T.ColorJitter(0.4, 0.4), T.RandomRotation(20)]
    for floats in ([], [T.ToDtype("float32", scale=True)]):
        here = epochs(loader(folder, [FRONT, T.Grayscale()], [*left, *floats]))
        same(here, epochs(loader(folder, [FRONT, T.Grayscale()], [*left, *floats], device="cpu")))

        def squeezed(more: Sequence[Any]) -> Any:
            return (
                stoker.WebDataset(shards).decode("l8").to_tuple("jpg", "cls").map_tuple(T.Compose([FRONT, *more]), None)
            )

        here = epochs(DataLoader(squeezed([*left, *floats]), batch_size=4))
        same(here, epochs(DataLoader(squeezed([]), batch_size=4, device="cpu", device_transform=[*left, *floats])))


def test_forms_of_batches(folder: Path, shards: str) -> None:
    """Dicts, single fields, views, several pictures."""
    views = T.Views(T.RandomResizedCrop(20), [T.RandomResizedCrop(20), T.RandomSolarize(100)])
    left = [T.ColorJitter(0.4, 0.4), T.RandomHorizontalFlip()]
    whole = T.Views([T.RandomResizedCrop(20), *left], [T.RandomResizedCrop(20), T.RandomSolarize(100), *left])
    here = epochs(DataLoader(stoker.ImageFolder(folder, whole), batch_size=8, shuffle=True))
    there = epochs(
        DataLoader(stoker.ImageFolder(folder, views), batch_size=8, shuffle=True, device="cpu", device_transform=left)
    )
    same(here, there)
    for names in (("jpg",), ("jpg", "cls")):
        for form in (tuple, dict):

            def of(steps: Sequence[Any], names: Any = names, form: Any = form) -> Any:
                dataset = stoker.WebDataset(shards).decode("pil")
                if form is dict:
                    return dataset.map_dict(jpg=T.Compose(list(steps)))
                rest = [None] * (len(names) - 1)
                return dataset.to_tuple(*names).map_tuple(T.Compose(list(steps)), *rest)

            here = epochs(DataLoader(of([FRONT, *left]), batch_size=4))
            same(here, epochs(DataLoader(of([FRONT]), batch_size=4, device="cpu", device_transform=left)))


def test_a_cache_and_bad_samples(own_folder: Path) -> None:
    left = [T.RandomCrop(30), T.RandomErasing(0.8)]
    here = epochs(loader(own_folder, [FRONT], left))
    same(here, epochs(loader(own_folder, [FRONT], left, device="cpu", cache=True)))
    victim = sorted(own_folder.rglob("*.jpg"))[3]
    victim.write_bytes(victim.read_bytes()[:300])
    for policy in ("skip", "replace"):
        here = epochs(loader(own_folder, [FRONT], left, on_bad=policy))
        there = epochs(loader(own_folder, [FRONT], left, on_bad=policy, device="cpu"))
        same(here, there)
        assert [len(batch.bad) for batch in here] == [len(batch.bad) for batch in there]


def test_states_and_explanations(folder: Path) -> None:
    left = [T.RandomResizedCrop(24), T.RandAugment()]
    with loader(folder, [FRONT], left) as here, loader(folder, [FRONT], left, device="cpu") as there:
        for batch in zip(here, there, strict=True):
            same(*batch)
            told, away = where_apart(there.explain(3))
            assert here.explain(3) == told
            assert away == {"RandomResizedCrop", "RandAugment"}
        assert here.state_dict()["pipeline"] == there.state_dict()["pipeline"]
    want = epochs(loader(folder, [FRONT], left))
    for stop in range(1, 7):
        with loader(folder, [FRONT], left, device="cpu") as one:
            given = [batch for _, batch in zip(range(stop), one, strict=False)]
            state = one.state_dict()
        with loader(folder, [FRONT], left, device="cpu") as two:
            two.load_state_dict(json.loads(json.dumps(state)))
            same(want, [*given, *two])


def test_a_step_may_be_moved_in_the_middle_of_a_run(folder: Path) -> None:
    """Its choices and its bytes are the same on either side, and so are states."""
    front = T.Resize(SIZE, draft=True)  # where it is decoded
    crop = T.RandomResizedCrop(24, interpolation=BICUBIC)
    steps = [front, T.ColorJitter(0.4), crop, T.ToDtype(torch.bfloat16, scale=True)]
    with loader(folder, steps, []) as plain:
        want = list(plain)
    got: list[Any] = []
    state = None
    while len(got) < len(want):
        here = 1 + len(got) % len(steps)
        with loader(folder, steps[:here], steps[here:], device="cpu") as one:
            if state is not None:
                one.load_state_dict(json.loads(json.dumps(state)))
            got.append(next(iter(one)))
            state = one.state_dict()
    same(want, got)


def test_a_draft_is_for_decoding(folder: Path) -> None:
    """The device resamples whole pictures, so states do not fit, and decode_device refuses it."""
    drafted = T.Resize((24, 24), draft=True)
    with (
        loader(folder, [FRONT, drafted], []) as here,
        loader(folder, [FRONT], [drafted], device="cpu") as there,
        pytest.raises(stoker.StateError, match="transforms differ"),
    ):
        there.load_state_dict(here.state_dict())
    with (
        pytest.raises(stoker.ConfigError, match="decode_device decodes whole ones"),
        stoker.DataLoader(stoker.ImageFolder(folder, drafted), device="cpu", decode_device="cpu") as made,
    ):
        next(iter(made))


def test_stored_pictures(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    np.save(tmp_path / "x.npy", rng.integers(0, 256, (20, 12, 16, 3), dtype=np.uint8))
    np.save(tmp_path / "y.npy", np.arange(20))

    def of(*transform: Any) -> Any:
        fields: list[Any] = [stoker.Field("x", decode="rgb", transform=list(transform)), "y"]
        return stoker.NpyDataset(x=str(tmp_path / "x.npy"), y=str(tmp_path / "y.npy"), fields=fields).to_tuple("x", "y")

    for front, left in (
        ([], [T.ColorJitter(0.4)]),
        ([T.RandomHorizontalFlip()], [T.RandomEqualize(), T.RandomCrop(9)]),
        ([T.ToTensor()], [T.Normalize(MEAN, STD)]),
        ([], [T.Identity(), T.CenterCrop((12, 16))]),
        ([T.ToTensor(), T.RandomErasing(0.9, value=0.25)], [T.Normalize(MEAN, STD), T.RandomVerticalFlip()][:1]),
    ):
        keywords: dict[str, Any] = {"batch_size": 6, "shuffle": True, "seed": 2}
        here = epochs(DataLoader(of(*front, *left), **keywords))
        same(here, epochs(DataLoader(of(*front), device="cpu", device_transform=left, **keywords)))


def test_pictures_of_one_pixel(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(15, dtype=np.uint8).reshape(5, 1, 1, 3))
    left = [T.ColorJitter(0.4, 0.4), T.RandomEqualize(), T.RandomAutocontrast(), T.Resize((3, 2)), T.RandomRotation(9)]
    for steps_left in (left, left[3:]):

        def of(*transform: Any) -> Any:
            return stoker.NpyDataset(
                str(tmp_path / "x.npy"), fields=[stoker.Field("x", decode="rgb", transform=list(transform))]
            )

        here = epochs(DataLoader(of(*steps_left), batch_size=2))
        same(here, epochs(DataLoader(of(), batch_size=2, device="cpu", device_transform=steps_left)))


def test_mixtures(folder: Path) -> None:
    left = [T.RandomCrop(24), T.RandomInvert(0.5), T.ToTensor()]

    def mixed(more: Sequence[Any]) -> Any:
        fronts = ([T.Resize((30, 30))], [T.RandomResizedCrop(30)])
        return stoker.Mixture([stoker.ImageFolder(folder, T.Compose([*front, *more])) for front in fronts], [1, 2])

    here = epochs(DataLoader(mixed(left), batch_size=8, shuffle=True))
    same(here, epochs(DataLoader(mixed([]), batch_size=8, shuffle=True, device="cpu", device_transform=left)))


# On a device that can be wrong.


def copies_of(device: Device, made: Any) -> list[Any]:
    """Two epochs of batches, copied when they have arrived."""

    def copied(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.clone(memory_format=torch.preserve_format)
        if isinstance(value, dict):
            return {key: copied(one) for key, one in value.items()}
        return [copied(one) for one in value] if isinstance(value, (list, tuple)) else value

    found = []
    with made:
        for _ in range(2):
            for batch in made:
                device.drain()
                found.append(copied(batch))
                del batch
    return found


@pytest.mark.parametrize(
    "end",
    mostly(["bytes", "float32", "bfloat16", "erased by noise", "erased, then bfloat16"], "erased, then bfloat16"),
)
def test_on_the_device(device: Device, folder: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_POISON", "1")
    left = [T.RandomResizedCrop(96), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomAffine(20), *ENDS[end]]
    for layout in ("nchw", "nhwc"):
        here = epochs(loader(folder, [T.Resize((128, 128))], left, layout=layout), 2)
        found = copies_of(device, loader(folder, [T.Resize((128, 128))], left, layout=layout, device="cuda"))
        for one, other in zip(here, found, strict=True):
            same(list(one), other)


def test_structures_on_the_device(device: Device, folder: Path, shards: str) -> None:
    left: list[Any] = [T.ColorJitter(0.4, 0.4), T.RandomHorizontalFlip()]
    views = T.Views([T.RandomResizedCrop(80)], [T.RandomResizedCrop(80), T.RandomSolarize(100)])

    def of(where: str) -> Any:
        return DataLoader(stoker.ImageFolder(folder, views), batch_size=8, device=where, device_transform=[*left])

    with of("cpu") as made:
        here = [list(batch) for _ in range(2) for batch in made]
    for one, other in zip(here, copies_of(device, of("cuda")), strict=True):
        same(one, other)

    def dicts(where: str) -> Any:
        dataset = stoker.WebDataset(shards).decode("pil").map_dict(jpg=T.Resize((90, 90)))
        return DataLoader(dataset, batch_size=4, device=where, device_transform=[*left, T.ToTensor()])

    with dicts("cpu") as made:
        plain: list[dict[str, Any]] = [dict(batch) for _ in range(2) for batch in made]
    assert "jpg" in plain[0]
    for whole, other in zip(plain, copies_of(device, dicts("cuda")), strict=True):
        same([whole[key] for key in ("jpg", "cls")], [other[key] for key in ("jpg", "cls")])


def test_memory_there_that_is_short(device: Device, folder: Path) -> None:
    left = [T.RandomResizedCrop(96), T.ColorJitter(0.4)]
    with loader(folder, [T.Resize((128, 128))], left, device="cuda") as made:
        batches = iter(made)
        got = next(batches).ids.tolist()
        device.drain()
        device.room = 0
        with pytest.raises(stoker.ResourceError, match="no memory on cuda:0") as caught:
            for _ in range(9):
                got += next(batches).ids.tolist()
        assert caught.value.__cause__ is not None
        device.room = 1 << 26
        for batch in batches:
            got += batch.ids.tolist()
        assert sorted(got) == list(range(50))


def test_no_memory_for_what_is_made(device: Device, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies have begun, and the operators find no memory: the batch is copied again."""
    left = [T.RandomResizedCrop(96), T.ColorJitter(0.4)]
    here = epochs(loader(folder, [T.Resize((128, 128))], left))
    refused: list[int] = []

    def compute(work: Any, of: Any = Device.compute) -> None:
        if len(refused) in (0, 3, 4):
            refused.append(1)
            raise Full("tried to allocate for an operator")
        refused.append(0)
        of(device, work)

    monkeypatch.setattr(device, "compute", compute)
    found: list[Any] = []
    with loader(folder, [T.Resize((128, 128))], left, device="cuda") as made:
        batches = iter(made)
        while len(found) < len(here):
            try:
                batch = next(batches)
            except stoker.ResourceError:
                continue
            device.drain()
            found.append([batch[0].clone(memory_format=torch.preserve_format), batch[1].clone()])
            del batch
    assert sum(refused) == 3
    for one, other in zip(here, found, strict=True):
        same(list(one), other)


# Functions.


class Noise:
    """Adds what it draws."""

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return images.float() + torch.rand(images.shape)


def test_functions(folder: Path) -> None:
    torch.manual_seed(8)
    before = torch.random.get_rng_state()
    left = [T.RandomCrop(30), lambda images: images.float(), Noise()]
    one = epochs(loader(folder, [FRONT], left, device="cpu"))
    assert torch.equal(before, torch.random.get_rng_state())
    plain = epochs(loader(folder, [FRONT], [T.RandomCrop(30)]))
    for batch, bytes_ in zip(one, plain, strict=True):
        assert batch.ids.tolist() == bytes_.ids.tolist()
        assert isinstance(batch, stoker.Batch)
        drawn = batch[0] - bytes_[0]
        assert float(drawn.min()) >= 0
        assert float(drawn.max()) < 1.001
    assert not torch.equal(one[0][0] - plain[0][0], one[1][0] - plain[1][0])
    same(one, epochs(loader(folder, [FRONT], left, device="cpu")))
    with loader(folder, [FRONT], left, device="cpu") as made:
        given = [batch for _, batch in zip(range(3), made, strict=False)]
        state = made.state_dict()
    with loader(folder, [FRONT], left, device="cpu") as made:
        made.load_state_dict(state)
        same([*given, *made], one[:7])
    with (
        loader(folder, [FRONT], left[:2], device="cpu") as made,
        pytest.raises(stoker.StateError, match="transforms differ"),
    ):
        made.load_state_dict(state)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: x[1:], r"returned a Tensor of shape \(\d, 3, 40, 40\) for a batch of \d pictures"),
        (lambda x: x.sum(), r"returned a Tensor of shape \(\) for a batch"),
        (lambda x: None, "returned None for a batch"),
    ],
)
@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_a_function_that_returns_no_pictures(
    device: Device, folder: Path, function: Any, said: str, where: str
) -> None:
    """The error names the function, also if another one comes after it, and comes again: no batch is lost."""
    with loader(folder, [T.RandomResizedCrop(40)], [function, torch.Tensor.float], device=where) as made:
        iterator = iter(made)
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"<lambda> \(.*test_device_transform.py:\d+\) " + said):
                next(iterator)
        assert made.state_dict()["position"] == 0


def test_explain_says_what_the_device_does(folder: Path) -> None:
    def ops(made: Any) -> dict[str, bool]:
        with made:
            return {one["op"]: one.get("device", False) for one in made.explain(0)["rows"][0]["choices"]["image"]}

    crop, jitter, flip = T.RandomResizedCrop(40), T.ColorJitter(0.4), T.RandomHorizontalFlip()
    given = [("RandomResizedCrop", False), ("RandomHorizontalFlip", False), ("ColorJitter", True)]
    assert ops(loader(folder, [crop, flip], [jitter], device="cpu")) == dict(given)
    assert ops(loader(folder, [crop], [flip, jitter], device="cpu")) == {**dict(given), "RandomHorizontalFlip": True}
    whole = stoker.ImageFolder(folder, [crop, flip, jitter])
    assert ops(DataLoader(whole, device="cpu", decode_device="cpu")) == dict.fromkeys(dict(given), True)
    assert not any(ops(DataLoader(stoker.ImageFolder(folder, [crop, flip, jitter]), device="cpu")).values())


@pytest.mark.parametrize(
    ("decode", "layout"), mostly(itertools.product(["rgb", "gray"], ["nchw", "nhwc"]), ("gray", "nhwc"))
)
def test_shapes_and_strides_are_those_without_a_device(device: Device, folder: Path, layout: str, decode: str) -> None:
    """Also where an axis has one element, whose stride says nothing."""

    def laid(steps: Any, size: int, **keywords: Any) -> Any:
        front = stoker.Field("image", decode=decode, transform=steps)
        with DataLoader(stoker.ImageFolder(folder).select(front, "label"), size, layout=layout, **keywords) as made:
            picture: Any = next(iter(made))["image"]
            device.drain()
            return picture.shape, picture.stride(), picture.dtype

    crop, floats = T.RandomResizedCrop(24), T.ToDtype("float32", scale=True)
    for left in ([T.Grayscale()], [T.RandomHorizontalFlip()], [T.Grayscale(), floats], [floats]):
        for size in (1, 4):
            want = laid([crop, *left], size)
            for where in ("cpu", "cuda"):
                assert laid([crop], size, device=where, device_transform=left) == want
                if decode == "rgb":
                    assert laid([crop, *left], size, device=where, decode_device=where) == want


def test_batches_that_python_makes() -> None:
    rows = [(torch.zeros(2), number) for number in range(4)]
    with pytest.raises(ConfigError, match="is for pictures that the engine makes"):
        DataLoader(rows, batch_size=2, device="cpu", device_transform=[T.RandomCrop(20)])


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"device_transform": [T.RandomCrop(20)]}, "device_transform needs device="),
        ({"device": "cpu", "device_transform": [T.RandomCrop(20)], "batch_size": None}, "is for batches"),
        ({"device": "cpu", "output": "numpy", "device_transform": [len]}, "tensors of torch, and output is 'numpy'"),
        (
            {"device": "cpu", "device_transform": [len], "batch_transform": T.CutMix(num_classes=3)},
            "cannot be combined",
        ),
        (
            {"device": "cpu", "device_transform": [T.Views(T.RandomCrop(20), T.RandomCrop(20))]},
            "cannot make views",
        ),
        ({"device": "cpu", "device_transform": [T.AugMix()]}, "AugMix cannot be in device_transform"),
        ({"device": "cpu", "device_transform": [T.RandomResize(20, 30)]}, "gives pictures of many sizes"),
        ({"device": "cpu", "device_transform": [T.ToTensor(), T.ColorJitter(0.4)]}, "move ColorJitter before ToTensor"),
        ({"device": "cpu", "device_transform": [T.RandomApply([T.ToTensor()])]}, "RandomApply"),
        ({"device": "cpu", "device_transform": [len, T.RandomCrop(20)]}, "comes after"),
        ({"device": "cpu", "device_transform": [3]}, "cannot be called"),
        (
            {
                "device": "cpu",
                "device_transform": [len],
                "static_buffers": True,
                "drop_last": True,
            },
            "static_buffers needs the same tensors",
        ),
        ({"device": "cpu", "device_transform": [len], "batch_transform": print}, "cannot be combined with functions"),
    ],
)
def test_refusals(folder: Path, keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        DataLoader(stoker.ImageFolder(folder, FRONT), **keywords)


def test_pictures_of_many_sizes_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is given pictures of many sizes"):
        DataLoader(stoker.ImageFolder(folder), device="cpu", device_transform=[T.RandomResizedCrop(20)])


# The parts.


def test_groups_and_places() -> None:
    """Samples with other steps at the same place, sizes that part and meet again, and chunks."""
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.integers(0, 256, (7, 3, 12, 16), dtype=np.uint8))

    def row(*numbers: float) -> list[float]:
        return [*numbers, *[0.0] * (ops.NUMBERS - len(numbers))]

    rows = [
        [row(ops.FLIP_H), row(ops.CROP, 2, 1, 8, 6), row(ops.RESIZE, 16, 12, ops.NEAREST)],
        [row(ops.CROP, 2, 1, 8, 6), row(ops.RESIZE, 16, 12, ops.NEAREST), row(ops.INVERT, 0)],
        [row(ops.INVERT, 0)],
        [],
        [row(ops.RESIZE, 8, 6, ops.BILINEAR), row(ops.INVERT, 0), row(ops.RESIZE, 16, 12, ops.NEAREST)],
        [row(ops.INVERT, 0), row(ops.FLIP_V), row(ops.INVERT, 0)],
        [row(ops.CROP, 0, 0, 8, 6), row(ops.RESIZE, 16, 12, ops.NEAREST), row(ops.INVERT, 0)],
    ]
    numbers = torch.zeros((7, 4, ops.NUMBERS), dtype=torch.float64)
    for sample, given in enumerate(rows):
        for number, one in enumerate(given):
            numbers[sample, number] = torch.tensor(one)
    before = x.clone()
    script = steps.script_of(numbers, (12, 16, 3))
    found = steps.run(x, numbers, script, (12, 16, 3))
    assert torch.equal(x, before)

    def twice(y: torch.Tensor) -> torch.Tensor:
        return y.repeat_interleave(2, 1).repeat_interleave(2, 2)

    assert torch.equal(found[0], twice(x[0].flip(2)[:, 1:7, 2:10]))
    assert torch.equal(found[1], 255 - twice(x[1][:, 1:7, 2:10]))
    assert torch.equal(found[2], 255 - x[2])
    assert torch.equal(found[3], x[3])
    assert torch.equal(found[5], x[5].flip(1))
    assert torch.equal(found[6], 255 - twice(x[6][:, :6, :8]))
    whole = steps.AT_ONCE
    try:
        steps.AT_ONCE = 1
        assert torch.equal(found, steps.run(x, numbers, script, (12, 16, 3)))
    finally:
        steps.AT_ONCE = whole


def test_normal_numbers_never_change() -> None:
    """They are the kernel's, also of boxes of several sizes together."""
    goldens = json.loads(NOISE.read_text())
    numbers = [golden for golden in goldens if golden["Key"] < 1 << 53]  # others name no box
    assert len(numbers) > 1
    p = torch.zeros((len(numbers), ops.NUMBERS), dtype=torch.float64)
    for row, golden in enumerate(numbers):
        p[row, 4], p[row, 9] = golden["H"], golden["Key"]
    high, wide = (max(golden[side] for golden in numbers) for side in "HW")
    half = (wide + 1) // 2
    every = ops.normals(p, 3, high, half)
    for found, golden in zip(every, numbers, strict=True):
        channels, height, width = golden["C"], golden["H"], golden["W"]
        first = (width + 1) // 2
        rows = found[:channels, :height]
        line = torch.cat([rows[..., :first], rows[..., half : half + width - first]], -1).contiguous()
        bits = torch.tensor(golden["Bits"], dtype=torch.int64)
        assert torch.equal(line.view(torch.int32).flatten().to(torch.int64) & 0xFFFFFFFF, bits)


@long  # test_device_jpeg.py imports stoker, and then there is no torch
def test_it_loads_without_torch() -> None:
    done = run_python("import sys, stoker; assert 'torch' not in sys.modules; print(stoker.DataLoader)")
    assert done.returncode == 0, done.stderr

"""decode_device=: JPEGs that are decoded where the batch is, whole or as strips.

The decoder is libjpeg-turbo, which decodes as the engine does. So rows are equal to the bit. The device is torch's CPU,
or one that can be wrong (pretend.py).
"""

from __future__ import annotations

import ctypes
import io
import itertools
import pickle
import random
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import engine as engine_of
from conftest import kill, run_python
from forms import long, mostly, param, thinned
from PIL import Image
from pretend import Device, Full, device, interpreted_again
from test_fused import same

import stoker
from stoker import _device, _device_jpeg, _triton_rows
from stoker import transforms as T
from stoker._errors import ConfigError
from stoker._target import Target

__all__ = ["device"]

DataLoader: Any = stoker.DataLoader
CROP = [T.RandomResizedCrop(32), T.RandomHorizontalFlip()]
FLOATS = [T.ToTensor(), T.Normalize([0.4, 0.5, 0.6], [0.2, 0.25, 0.3])]
BICUBIC, NEAREST = T.InterpolationMode.BICUBIC, T.InterpolationMode.NEAREST


def jpeg(number: int, size: tuple[int, int], **more: Any) -> bytes:
    """A picture that looks like a photograph, more than its neighbours' flat ones do."""
    rng = np.random.default_rng(number)
    rough = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)
    out = io.BytesIO()
    rough.save(out, "JPEG", **{"quality": 88, "subsampling": 0, **more})
    return out.getvalue()


def sizes(number: int) -> tuple[int, int]:
    return 90 + 17 * (number % 7), 70 + 23 * (number % 5)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fifty pictures of many sizes: subsampled or not, with restart markers, with Exif's orientations."""
    root = tmp_path_factory.mktemp("photos")
    for number in range(50):
        folder = root / f"class_{number % 3}"
        folder.mkdir(exist_ok=True)
        more: dict[str, Any] = {"subsampling": number % 3}
        if number % 4 == 1:
            more["restart_marker_blocks"] = 3 + number % 5
        if number % 4 == 2:
            exif = Image.Exif()
            exif[0x0112] = 1 + number % 8
            more["exif"] = exif
        (folder / f"{number:03}.jpg").write_bytes(jpeg(number, sizes(number), **more))
    return root


@pytest.fixture(scope="module")
def packed(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same, with a restart marker every few blocks."""
    to = tmp_path_factory.mktemp("packed") / "all"
    stoker.pack(str(photos), str(to), jpeg="index")
    return str(to / "shard-*.tar")


def loader(data: Any, transform: Sequence[Any], where: str = "", share: float = 1.0, **keywords: Any) -> Any:
    keywords = {"batch_size": 8, "shuffle": True, "seed": 3, **keywords}
    if isinstance(data, Path):
        data = stoker.ImageFolder(data, T.Compose(list(transform)))
    elif isinstance(data, str):
        data = stoker.WebDataset(data).decode("pil").to_tuple("jpg", "cls").map_tuple(T.Compose(list(transform)))
    if where:
        keywords.update(device=where, decode_device=(where, share) if share < 1 else where)
    return DataLoader(data, **keywords)


def epochs(made: Any, count: int = 2) -> list[Any]:
    with made:
        return [batch for _ in range(count) for batch in made]


class Counted:
    """The decoders that loaders find from now on count what they get."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[list[bytes]] = []
        self.found = _device_jpeg._decoder(False)[0]
        assert self.found is not None
        monkeypatch.setattr(_device_jpeg, "_decoder", lambda moves: (self.found._replace(decode=self), ""))

    def __call__(self, given: list[Any], where: Any) -> Sequence[Any]:
        self.calls.append([bytes(one.numpy()) for one in given])
        assert self.found is not None
        return self.found.decode(given, where)

    @property
    def all(self) -> list[bytes]:
        return [one for call in self.calls for one in call]


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


HEADS: dict[str, list[Any]] = {
    "crop and flip": CROP,
    "resize and crop": [T.Resize(48), T.CenterCrop(40)],
    "resize to a size": [T.Resize((33, 50), BICUBIC), T.RandomVerticalFlip()],
    "crop alone": [T.RandomCrop((40, 56)), T.RandomHorizontalFlip(), T.RandomVerticalFlip()],
    "flips before": [T.RandomHorizontalFlip(), T.RandomVerticalFlip(), T.RandomResizedCrop((20, 36))],
    "larger": [T.RandomResizedCrop(90, (0.05, 0.3)), T.RandomCrop(80)],
    "nearest": [T.RandomResizedCrop(24, interpolation=NEAREST)],
    "tiny": [T.RandomResizedCrop(3, (0.5, 1.0), interpolation=BICUBIC)],
    "with colours": [*CROP, T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.RandomGrayscale(0.3)],
    "with floats": [*CROP, *FLOATS],
    "with all": [*CROP, T.RandAugment(), *FLOATS, T.RandomErasing(0.5)],
    "with halves": [*CROP, T.ToDtype("bfloat16", scale=True)],
}


@thinned
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("name", mostly(HEADS, "crop and flip", "resize to a size", "flips before", "with all"))
def test_each_transform(photos: Path, decoder: Counted, name: str, layout: str) -> None:
    here = epochs(loader(photos, HEADS[name], layout=layout))
    same(here, epochs(loader(photos, HEADS[name], "cpu", layout=layout)))
    assert len(decoder.all) == 100  # two epochs of 50 rows, in one call a batch
    assert len(decoder.calls) == 14


@long  # test_each_transform moves all steps, and this one half
def test_half_the_steps_are_left_to_the_device_anyway(photos: Path) -> None:
    whole = [*CROP, T.ColorJitter(0.4), *FLOATS]
    here = epochs(loader(photos, whole))
    there = loader(photos, CROP, "cpu", device_transform=whole[2:])
    same(here, epochs(there))


def test_what_needs_padding_stays_with_the_engine(photos: Path, decoder: Counted) -> None:
    transform = [T.CenterCrop((120, 120))]  # some pictures are smaller
    same(epochs(loader(photos, transform)), epochs(loader(photos, transform, "cpu")))
    assert 0 < len(decoder.all) < 100


def test_strips(packed: str, decoder: Counted) -> None:
    """Of packed pictures without subsampled chroma, only what a crop needs is sent."""
    there = epochs(loader(packed, CROP, "cpu"))
    same(epochs(loader(packed, CROP)), there)
    strips = [one for one in decoder.all if Image.open(io.BytesIO(one)).width < 90]
    assert 20 < len(strips) < 60  # a third of the pictures has one sample of chroma for each pixel
    for one in decoder.all:
        Image.open(io.BytesIO(one)).load()


def test_strips_for_a_decoder_that_repeats_chroma(
    packed: str, decoder: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then all packed pictures are divided. This decoder interpolates, so that subsampled pixels near the edges of
    segments differ, and all others are the same."""
    monkeypatch.setattr(_device_jpeg, "_repeats", lambda *_: True)
    here, there = epochs(loader(packed, CROP)), epochs(loader(packed, CROP, "cpu"))
    strips = [one for one in decoder.all if Image.open(io.BytesIO(one)).width <= 96]
    assert len(strips) > 70
    equal = [
        torch.equal(a, b) for one, other in zip(here, there, strict=True) for a, b in zip(one[0], other[0], strict=True)
    ]
    assert 20 < sum(equal) < 90
    off = torch.cat([one[0].float() - other[0].float() for one, other in zip(here, there, strict=True)]).abs()
    assert float(off.mean()) < 2
    assert float((off > 8).float().mean()) < 0.06


def test_a_decoder_that_repeats_is_known_by_a_picture() -> None:
    target = Target("cuda:0", 2)
    edge = np.zeros((16, 32, 3), np.uint8)
    edge[:, :16], edge[:, 16:] = (200, 30, 30), (30, 30, 200)
    repeats = _device_jpeg.Decoder("repeats", lambda given, where: [torch.from_numpy(edge).permute(2, 0, 1)])
    smooth = _device_jpeg.Decoder(
        "smooth", lambda given, where: _device_jpeg._torchvision(False).decode(given, torch.device("cpu"))
    )
    broken = _device_jpeg.Decoder("broken", lambda given, where: [][0])
    assert [_device_jpeg._repeats(one, target) for one in (repeats, smooth)] == [True, False]
    with pytest.raises(ConfigError, match="broken cannot decode on cuda:0"):
        _device_jpeg._repeats(broken, target)
    decoded = smooth.decode([torch.frombuffer(bytearray(_device_jpeg._EDGE), dtype=torch.uint8)], None)[0]
    assert tuple(decoded.shape) == (3, 16, 32)


def test_other_kinds_stay_with_the_engine(tmp_path: Path, decoder: Counted) -> None:
    root = tmp_path / "all" / "one"
    root.mkdir(parents=True)
    for number in range(10):
        image = Image.open(io.BytesIO(jpeg(number, sizes(number))))
        image.save(root / f"{number}.png")
        image.save(root / f"{number}p.jpg", progressive=True)
        image.convert("CMYK").save(root / f"{number}c.jpg")
        image.convert("L").save(root / f"{number}g.jpg")
        image.save(root / f"{number}.bmp")
    same(epochs(loader(root.parent, CROP)), epochs(loader(root.parent, CROP, "cpu")))
    shades = {Image.open(io.BytesIO(one)).mode for one in decoder.all}
    assert shades == {"L"}
    assert len(decoder.all) >= 20


def test_views_and_dicts(photos: Path, decoder: Counted) -> None:
    views = [T.Views(T.Compose(CROP), T.Compose([T.Resize(40), T.CenterCrop(32)]))]
    here, there = epochs(loader(photos, views)), epochs(loader(photos, views, "cpu"))
    assert isinstance(there[0][0], list)
    for one, other in zip(here, there, strict=True):
        same([[*one[0], one[1]]], [[*other[0], other[1]]])
    assert len(decoder.all) == 200


def test_a_share_of_the_rows(photos: Path, decoder: Counted) -> None:
    here = epochs(loader(photos, CROP, seed=5), 4)
    there = epochs(loader(photos, CROP, "cpu", 0.25, seed=5), 4)
    same(here, there)
    assert 200 / 8 < len(decoder.all) < 200 * 3 / 8
    # The same rows when it resumes, and in two ranks together.
    with loader(photos, CROP, "cpu", 0.25, seed=5) as made:
        given = [batch for _, batch in zip(range(5), made, strict=False)]
        state = made.state_dict()
    with loader(photos, CROP, "cpu", 0.25, seed=5) as made:
        made.load_state_dict(state)
        same([*given, *made], there[:7])
    decoder.calls.clear()
    for rank in range(2):
        with loader(photos, CROP, "cpu", 0.25, seed=5, rank=rank, world_size=2, batch_size=4) as made:
            list(made)
    ranks = decoder.all
    decoder.calls.clear()
    epochs(loader(photos, CROP, "cpu", 0.25, seed=5), 1)
    assert sorted(set(ranks)) == sorted(set(decoder.all))


def test_it_is_told_which_rows_are_decoded_there(tmp_path: Path, photos: Path, decoder: Counted) -> None:
    """Not those of progressive pictures, which the engine decodes."""
    shutil.copytree(photos, tmp_path / "all")
    for number in range(50, 60):
        (tmp_path / f"all/class_0/{number}.jpg").write_bytes(jpeg(number, sizes(number), progressive=True))
    for share in (0.25, 1.0):
        decoder.calls.clear()
        with loader(tmp_path / "all", CROP, "cpu", share, seed=5) as made:
            told = [row for step in range(len(made)) for row in made.explain(step)["rows"]]
            list(made)
        (field,) = told[0]["choices"]
        where = [{choice.get("device", False) for choice in row["choices"][field]} for row in told if row["valid"]]
        assert all(len(one) == 1 for one in where)
        assert where.count({True}) == len(decoder.all) > 0
        assert where.count({False}) == 60 - len(decoder.all)
    assert len(decoder.all) == 50


def test_states_know_the_decoder(photos: Path) -> None:
    def state_of(made: Any) -> Any:
        with made:
            next(iter(made))
            return made.state_dict()

    plain, whole, half = (loader(photos, CROP, *given) for given in ((), ("cpu",), ("cpu", 0.5)))
    state = state_of(whole)
    found = _device_jpeg._decoder(False)[0]
    assert found is not None
    shares = [f"'{share}/16 of the JPEGs by {found.name}'" for share in (16, 8)]
    for other, here in ((plain, "None"), (half, shares[1])):
        with other, pytest.raises(stoker.StateError) as caught:
            other.load_state_dict(state)
        assert f"decode_device differs, and pixels depend on the decoder: {shares[0]} in the state but {here} here" in (
            caught.value.what
        )
        assert "transforms" not in str(caught.value)
    with loader(photos, CROP, "cpu") as again, loader(photos, CROP[:1], "cpu") as others:
        for made, kept in ((again, state_of(plain)), (others, state)):
            with pytest.raises(stoker.StateError, match="decode_device differs" if made is again else "transforms"):
                made.load_state_dict(kept)
    with loader(photos, CROP, "cpu") as again:
        again.load_state_dict(state)
        assert len(list(again)) == 6


# What cannot be decoded.


@pytest.fixture
def damaged(photos: Path, tmp_path: Path) -> Path:
    """Four of the pictures have no scan that can be read, so libjpeg refuses them too."""
    root = tmp_path / "damaged"
    shutil.copytree(photos, root)
    for number in (3, 11, 12, 40):
        path = root / f"class_{number % 3}" / f"{number:03}.jpg"
        whole = path.read_bytes()
        at = whole.index(b"\xff\xc4") + 5  # the first Huffman table has more codes than there are
        path.write_bytes(whole[:at] + bytes([255] * 4) + whole[at + 4 :])
    return root


@pytest.mark.parametrize("policy", mostly(["skip", "replace"], "skip"))
def test_damaged_pictures(damaged: Path, decoder: Counted, policy: str) -> None:
    keywords: dict[str, Any] = {"on_bad": policy, "max_bad": 10}
    here = epochs(loader(damaged, CROP, **keywords))
    there = epochs(loader(damaged, CROP, "cpu", **keywords))
    same(here, there)
    assert [[bad.sample for bad in batch.bad] for batch in here] == [
        [bad.sample for bad in batch.bad] for batch in there
    ]
    assert sum(len(batch.bad) for batch in there) >= 8


def test_a_damaged_picture_is_an_error(damaged: Path) -> None:
    with loader(damaged, CROP) as made, pytest.raises(stoker.DataError) as here:
        list(made)
    with loader(damaged, CROP, "cpu") as made, pytest.raises(stoker.DataError) as there:
        list(made)
    assert str(here.value) == str(there.value)


def test_what_only_the_device_refuses(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with such a picture fails as a whole; then they are tried one by one, and the engine decodes the rest."""
    found = _device_jpeg._decoder(False)[0]
    assert found is not None
    calls: list[int] = []

    def picky(given: list[Any], where: Any) -> Sequence[Any]:
        calls.append(len(given))
        if any(one.numel() % 5 == 0 for one in given):
            raise RuntimeError("nvJPEG does not like it")
        return found.decode(given, where)

    monkeypatch.setattr(_device_jpeg, "_decoder", lambda moves: (found._replace(decode=picky), ""))
    here = epochs(loader(photos, CROP), 3)
    there = epochs(loader(photos, CROP, "cpu"), 3)
    same(here, there)
    assert 1 in calls
    assert max(calls) == 8
    assert calls[-1] > 1  # what was refused once is not sent again


@pytest.mark.parametrize("stored", mostly(["files", "shards"], "files"))
def test_refusals_are_told_seldom(
    photos: Path, packed: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], stored: str
) -> None:
    """The first one is named, with its file, whatever the decoder says of each."""
    found = _device_jpeg._decoder(False)[0]
    assert found is not None

    def picky(given: list[Any], where: Any) -> Sequence[Any]:
        for one in given:
            if one.numel() % 3:
                raise RuntimeError(f"nvJPEG does not like {one.numel()} bytes at {one.data_ptr()}")
        return found.decode(given, where)

    monkeypatch.setattr(_device_jpeg, "_decoder", lambda moves: (found._replace(decode=picky), ""))
    with loader(photos if stored == "files" else packed, CROP, "cpu") as made:
        for _ in range(2):
            list(made)
        assert made._remote is not None
        refused = made._remote.undecodable
    told = [line for line in capfd.readouterr().err.splitlines() if "refuse" in line]
    assert len(refused) > 10
    assert len(told) == 2
    first = re.search(r"refuses a picture \((.*), sample (\d+)\)", told[0])
    assert first is not None
    assert int(first[2]) in refused
    if stored == "files":
        assert first[1] == stoker.ImageFolder(photos).samples[int(first[2])][0]
    else:
        assert re.fullmatch(r"shard .*\.tar, offset \d+", first[1])
    assert re.search(r"has refused \d\d pictures so far", told[1])


def refuse_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that refuses every third picture or so, by its length."""
    found = _device_jpeg._decoder(False)[0]
    assert found is not None

    def picky(given: list[Any], where: Any) -> Sequence[Any]:
        if any(one.numel() % 3 == 0 for one in given):
            raise RuntimeError("nvJPEG does not like it")
        return found.decode(given, where)

    monkeypatch.setattr(_device_jpeg, "_decoder", lambda moves: (found._replace(decode=picky), ""))


def test_refusals_return_their_slots(device: Device, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device too, and nothing is kept of what was refused."""
    refuse_some(monkeypatch)
    with loader(photos, CROP, "cuda") as made:
        for _ in range(3):
            for batch in made:
                device.drain()
                del batch
        device.drain()
        _device.settle()
        assert [copies._lost for copies in _device._devices.values()] == [[]]
        assert [copies._flights for copies in _device._devices.values()] == [[]]


def test_a_decoder_that_returns_another_size(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the header has been read differently, and the engine decides."""
    found = _device_jpeg._decoder(False)[0]
    assert found is not None

    def turned(given: list[Any], where: Any) -> Sequence[Any]:
        return [one.transpose(1, 2) if one.shape[2] % 3 else one for one in found.decode(given, where)]

    monkeypatch.setattr(_device_jpeg, "_decoder", lambda moves: (found._replace(decode=turned), ""))
    same(epochs(loader(photos, CROP)), epochs(loader(photos, CROP, "cpu")))


# On a device.


class Late:
    """A decoder whose pictures appear only when the device's clock is advanced, which is when it reads the bytes."""

    def __init__(self, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device = device
        found = _device_jpeg._decoder(False)[0]
        assert found is not None
        self.found = found
        monkeypatch.setattr(_device_jpeg, "_decoder", lambda moves: (found._replace(decode=self), ""))

    def __call__(self, given: list[Any], where: Any) -> Sequence[Any]:
        if where.type == "cuda":
            raise RuntimeError("there is none: the picture that shows how chroma is made is not decoded")
        made = []
        for one in given:
            width, height = Image.open(io.BytesIO(bytes(one.numpy()))).size
            out = torch.empty((3, height, width), dtype=torch.uint8)
            address, size = one.data_ptr(), one.numel()

            def decode(out: Any = out, address: int = address, size: int = size) -> None:
                read = torch.empty(size, dtype=torch.uint8)
                ctypes.memmove(read.data_ptr(), address, size)
                out.copy_(self.found.decode([read], torch.device("cpu"))[0])

            self.device.compute(decode)
            made.append(out)
        return made


@pytest.mark.parametrize("transform", [param(CROP), param([*CROP, *FLOATS]), [*CROP, T.ColorJitter(0.4), *FLOATS]])
def test_bytes_are_read_late(
    device: Device, packed: str, monkeypatch: pytest.MonkeyPatch, transform: list[Any]
) -> None:
    """A slot is not returned before the bytes in it are decoded. The engine poisons those that are."""
    monkeypatch.setenv("STOKER_POISON", "1")
    here = epochs(loader(packed, transform))
    Late(device, monkeypatch)
    rng = random.Random(4)
    with loader(packed, transform, "cuda") as made:
        at = 0
        for _ in range(2):
            for batch in made:
                device.advance(rng.randrange(8))
                pixels, labels = here[at][0], here[at][1]
                device.read(batch[0], _bytes_of(pixels), f"batch {at}")
                assert tuple(batch[0].shape) == tuple(pixels.shape)
                assert batch[0].stride() == pixels.stride()
                device.read(batch[1], labels.numpy().tobytes(), f"labels {at}")
                at += 1
                del batch
        device.drain()
        _device.settle()
        told = made.stats()["device"]
        assert told["decoded"] == 100
        assert told["decode_busy_s"] > 0
        assert told["decode_host_s"] > 0
    assert at == len(here)


def _bytes_of(tensor: Any) -> bytes:
    flat = torch.empty(0, dtype=tensor.dtype)
    flat.set_(tensor.untyped_storage(), tensor.storage_offset(), (tensor.numel(),), (1,))
    return flat.view(torch.uint8).numpy().tobytes()


def test_an_engine_that_dies(packed: str) -> None:
    here = epochs(loader(packed, CROP))
    found: list[Any] = []
    with loader(packed, CROP, "cpu") as made:
        for _ in range(2):
            for batch in made:
                found.append(batch)
                if len(found) in (2, 9):
                    kill(engine_of())
    same(here, found)


# Keywords.


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"decode_device": "cuda"}, "needs device="),
        ({"device": "cpu", "decode_device": "cuda"}, "decode_device is 'cuda', and device is 'cpu'"),
        ({"device": "cpu", "decode_device": ("cpu", 0)}, "the share of decode_device is 0"),
        ({"device": "cpu", "decode_device": ("cpu", 1.5)}, "the share of decode_device is 1.5"),
        ({"device": "cpu", "decode_device": ("cpu", True)}, "the share of decode_device is True"),
        ({"device": "cpu", "decode_device": ("cpu", "half")}, "the share of decode_device is 'half'"),
        ({"device": "cpu", "decode_device": ("cpu", float("nan"))}, "the share of decode_device is nan"),
        ({"device": "cpu", "decode_device": 3}, "decode_device is 3"),
        ({"device": "cpu", "decode_device": "cpu", "batch_size": None}, "is for batches"),
        ({"output": "numpy", "decode_device": "cpu"}, "gives tensors of torch, and output is 'numpy'"),
        (
            {"device": "cpu", "decode_device": "cpu", "cache": "1GiB"},
            "cache keeps pictures that the engine has decoded",
        ),
        ({"device": "cpu", "decode_device": ["cpu", 2]}, "the share of decode_device is 2"),
        ({"device": "cpu", "decode_device": "cpu", "transform": [T.ColorJitter(0.4), *CROP]}, "before ColorJitter"),
        ({"device": "cpu", "decode_device": "cpu", "transform": [T.RandomHorizontalFlip()]}, "in many sizes"),
        ({"device": "cpu", "decode_device": "cpu", "transform": [T.Resize(20)]}, "Resize to two numbers"),
        ({"device": "cpu", "decode_device": "cpu", "decode": "gray"}, "this field is decoded as gray"),
        (
            {"device": "cpu", "decode_device": "cpu", "transform": [*CROP, T.AugMix()]},
            "decode_device has all steps after the crop done on the device, and AugMix",
        ),
        (
            {"device": "cpu", "decode_device": "cpu", "memory": 1000},
            "with the compressed pictures that decode_device gets, and two must fit",
        ),
    ],
)
def test_keywords(photos: Path, keywords: dict[str, Any], said: str) -> None:
    keywords = dict(keywords)
    dataset: Any = stoker.ImageFolder(photos, T.Compose(keywords.pop("transform", [*CROP, *FLOATS])))
    if decode := keywords.pop("decode", ""):
        dataset = dataset.select(stoker.Field("image", decode=decode, transform=CROP), "label")
    with (
        pytest.raises((ConfigError, stoker.ResourceError)) as caught,
        DataLoader(dataset, **{"batch_size": 4, **keywords}) as made,
    ):
        made.state_dict()
    assert said in str(caught.value)


def test_a_share_in_a_list(photos: Path) -> None:
    dataset = stoker.ImageFolder(photos, T.Compose(CROP))
    with DataLoader(dataset, 8, device="cpu", decode_device=["cpu", 0.5]) as made:
        assert "8/16" in made.state_dict()["decode_device"]


def test_fields_that_are_no_pictures(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((9, 4)))
    dataset = stoker.NpyDataset(x=str(tmp_path / "x.npy"))
    with pytest.raises(ConfigError, match="decode_device is for pictures that the engine makes, and no field is one"):
        DataLoader(dataset, batch_size=3, device="cpu", decode_device="cpu")
    with pytest.raises(ConfigError, match="Python makes these batches"):
        DataLoader([1, 2, 3], batch_size=3, device="cpu", decode_device="cpu")


def test_without_a_decoder(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(moves: bool) -> Any:
        raise ImportError("no module named x")

    monkeypatch.setattr(_device_jpeg, "_torchcodec", missing)
    monkeypatch.setattr(_device_jpeg, "_torchvision", missing)
    with pytest.raises(ConfigError, match="no decoder: no module named x; no module named x"):
        loader(photos, CROP, "cpu")


def test_stoker_does_not_import_a_decoder() -> None:
    code = "import stoker, sys; print([m for m in ('torch', 'torchvision', 'torchcodec') if m in sys.modules])"
    assert run_python(code).stdout.strip() == "[]"


@pytest.mark.parametrize("mix", [param(T.MixUp(num_classes=3)), T.CutMix(num_classes=3)])
def test_mixed(photos: Path, decoder: Counted, mix: Any) -> None:
    """Batches are mixed after their pictures are decoded."""
    for transform in ([*CROP, *FLOATS], [*CROP, T.ColorJitter(0.4), *FLOATS]):
        here = epochs(loader(photos, transform, batch_transform=mix))
        same(here, epochs(loader(photos, transform, "cpu", batch_transform=mix)))
    assert len(decoder.all) == 200


@pytest.mark.parametrize(("share", "sixteenths"), mostly([(1.0, 16), (0.5, 8), (0.3, 5)], (0.3, 5)))
def test_the_line_says_where_pictures_are_decoded(
    photos: Path, share: float, sixteenths: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with loader(photos, CROP, "cpu", share, num_workers=2) as made:
        next(iter(made))
    found = _device_jpeg._decoder(False)[0]
    assert found is not None
    assert f"native, 2 lanes, cpu decodes {sixteenths}/16 of the JPEGs ({found.name}), seed 3" in capfd.readouterr().err
    with loader(photos, CROP) as made:
        next(iter(made))
    assert "decodes" not in capfd.readouterr().err


# The kernel.


@pytest.fixture(scope="module")
def interpreted() -> Any:
    return interpreted_again(_triton_rows)


SMALL: dict[str, list[Any]] = {
    "crop": [T.RandomHorizontalFlip(), T.RandomResizedCrop((14, 18), (0.05, 0.2)), T.RandomVerticalFlip()],
    "bicubic": [T.RandomResizedCrop(40, (0.02, 0.05), interpolation=BICUBIC), T.RandomCrop((10, 15))],
    "nearest": [T.RandomResizedCrop(24, interpolation=NEAREST)],
}


@pytest.mark.parametrize(("name", "repeats"), mostly(itertools.product(SMALL, [False, True]), ("bicubic", True)))
def test_the_kernel(packed: str, interpreted: Any, monkeypatch: pytest.MonkeyPatch, name: str, repeats: bool) -> None:
    """It gives the operators' bytes, of strips and of whole pictures, whatever the decoder's strides are."""
    monkeypatch.setattr(_device_jpeg, "_repeats", lambda *_: repeats)
    calls: list[int] = []

    def rows(
        out: Any, numbers: Sequence[int], pictures: Sequence[Any], sent: Any, of: Any = _device_jpeg.make_rows
    ) -> None:
        want, got = out.clone(), out.clone()
        of(want, numbers, pictures, sent)
        mixed = [one.contiguous() if at % 2 else one for at, one in enumerate(pictures)]
        monkeypatch.setattr(_device_jpeg, "_KERNEL", [interpreted])
        with monkeypatch.context() as patch:
            patch.setattr(_device_jpeg, "make_rows", of)
            _device_jpeg._by_kernel(got, numbers, mixed, sent)
        assert _device_jpeg._KERNEL == [interpreted]
        assert torch.equal(want, got)
        calls.append(len(numbers))
        out.copy_(got)

    monkeypatch.setattr(_device_jpeg, "make_rows", rows)
    with loader(packed, SMALL[name], "cpu", batch_size=6, device_prefetch=1) as made:
        next(iter(made))
    assert calls[0] == 6


def test_without_the_kernel(photos: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A notice says why, once, and the operators make the rows."""

    class Broken:
        facts = staticmethod(lambda numbers, taps: [[0] for _ in taps])

        @staticmethod
        def make(*_: Any) -> None:
            raise OSError("no compiler")

    monkeypatch.setattr(_device_jpeg, "_KERNEL", [Broken])
    plain = _device_jpeg.make_rows
    calls: list[int] = []

    def rows(out: Any, numbers: Sequence[int], pictures: Sequence[Any], sent: Any) -> None:
        calls.append(len(numbers))
        monkeypatch.setattr(_device_jpeg, "make_rows", plain)
        if _device_jpeg._kernels():
            _device_jpeg._by_kernel(out, numbers, pictures, sent)
        else:
            plain(out, numbers, pictures, sent)
        monkeypatch.setattr(_device_jpeg, "make_rows", rows)

    monkeypatch.setattr(_device_jpeg, "make_rows", rows)
    here = epochs(loader(photos, CROP), 1)
    capsys.readouterr()
    same(here, epochs(loader(photos, CROP, "cpu"), 1))
    assert len(calls) == 7
    assert capsys.readouterr().err.count("not all in one kernel: triton failed, with OSError") == 1
    monkeypatch.setattr(_device_jpeg, "_KERNEL", [])
    monkeypatch.setenv("CC", "no-such-compiler")
    assert not _device_jpeg._kernels()
    assert "triton needs a C compiler" in capsys.readouterr().err


def test_copies_and_pickles(photos: Path) -> None:
    made = loader(photos, CROP, "cpu", 0.5)
    again = pickle.loads(pickle.dumps(made))
    same(epochs(made, 1), epochs(again, 1))


def test_no_memory_for_pictures(device: Device, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder finds no memory: that says nothing about the pictures, and the batch is decoded again."""
    found = _device_jpeg._decoder(False)[0]
    assert found is not None
    calls: list[int] = []

    def decode(given: list[Any], where: Any) -> Sequence[Any]:
        if where.type == "cuda":
            raise RuntimeError("there is none")
        calls.append(len(given))
        if len(calls) in (1, 4, 5):
            raise Full("tried to allocate for pictures")
        return found.decode(given, where)

    monkeypatch.setattr(_device_jpeg, "_decoder", lambda moves: (found._replace(decode=decode), ""))
    got: list[Any] = []
    with loader(photos, CROP, "cuda") as made:
        batches = iter(made)
        while len(got) < 7:
            try:
                batch = next(batches)
            except stoker.ResourceError:
                continue
            device.drain()
            got.append([batch[0].clone(memory_format=torch.preserve_format), batch[1].clone()])
            del batch
    assert 1 not in calls
    for one, other in zip(epochs(loader(photos, CROP), 1), got, strict=True):
        same(list(one), other)


@pytest.mark.parametrize("limit", mostly([{"max_bad": 2}, {"max_bad_rate": 0.01}], {"max_bad": 2}))
def test_limits_count_the_whole_pass(damaged: Path, limit: dict[str, Any]) -> None:
    """Although a pass begins again where the decoder has refused a picture."""

    def said(made: Any) -> str:
        with made, pytest.raises(stoker.DataError) as caught:
            list(made)
        return caught.value.what

    keywords: dict[str, Any] = {"on_bad": "skip", "prefetch": 1, **limit}
    here, there = (said(loader(damaged, CROP, where, **keywords)) for where in ("", "cpu"))
    assert here == there
    assert "samples of this pass are bad" in here


@pytest.mark.parametrize("where", mostly(["cpu", "cuda"], "cuda"))
def test_what_is_made_again_counts_once(
    device: Device, damaged: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    refuse_some(monkeypatch)
    with loader(damaged, CROP, where, on_bad="skip") as made:
        rows = batches = bad = 0
        for _ in range(2):
            for batch in made:
                rows, batches, bad = rows + len(batch.ids), batches + 1, bad + len(batch.bad)
                device.drain()
        told = made.stats()
    assert bad == 8
    assert [told[key] for key in ("samples", "batches", "bad", "passes")] == [rows, batches, bad, 2]


def test_the_training_process_as_the_device_is_counted(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it is said to be the limit, and not one of the engine's stages, which wait for it."""
    found = _device_jpeg._decoder(False)[0]
    assert found is not None

    def slowly(given: list[Any], where: Any) -> Sequence[Any]:
        time.sleep(0.03)
        return found.decode(given, where)

    with loader(photos, [*CROP, *FLOATS], num_workers=1) as made:
        list(made)
        assert made.stats()["device"] is None
    monkeypatch.setattr(_device_jpeg, "_decoder", lambda moves: (found._replace(decode=slowly), ""))
    with loader(photos, [*CROP, *FLOATS], "cpu") as made:
        batches = [batch for _ in range(3) for batch in made]
        told = made.stats()
    there = told["device"]
    assert (there["device"], there["copies"], there["decoded"]) == ("cpu", 0, 150)
    assert 0.03 * len(batches) <= there["decode_busy_s"] == there["decode_host_s"]
    assert there["transforms"] == len(batches)
    assert told["rates"]["limiting"] == "device"
    stages = {one["name"]: one for one in there["stages"]}
    assert stages["transforms"]["bytes"] == sum(batch[0].numel() * 4 for batch in batches)
    assert stages["decoding"]["items"] == 150


@pytest.mark.parametrize("default", ["meta"])
def test_another_default_device(photos: Path, default: str) -> None:
    """Batches that nobody asked to be elsewhere are here."""
    torch.set_default_device(default)
    try:
        found = [epochs(loader(photos, CROP, *where), 1) for where in ((), ("cpu",))]
    finally:
        torch.set_default_device(None)
    same(*found)

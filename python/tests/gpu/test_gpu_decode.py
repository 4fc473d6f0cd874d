"""decode_device="cuda" on a real device: JPEGs that nvJPEG decodes, whole and as strips.

Its pixels are not libjpeg's. How far they are apart is recorded for each kind of picture, and must not be much.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import PHOTOS
from PIL import Image
from test_gpu import _nothing_is_left, _poison

import stoker
from stoker import _device, _device_jpeg
from stoker import transforms as T
from stoker._target import Target

__all__ = ["_nothing_is_left", "_poison"]

pytestmark = pytest.mark.gpu

WHERE = "cuda"
BATCH = 8
MEAN = 2.0  # levels by which pixels may differ, on average
CROP: list[Any] = [T.RandomResizedCrop(64), T.RandomHorizontalFlip()]
FLOATS: list[Any] = [T.ToTensor(), T.Normalize([0.4, 0.5, 0.6], [0.2, 0.25, 0.3])]
HOW: dict[str, list[Any]] = {"pixel by pixel": [T.RandomCrop(96)], "resized": CROP}


def smooth(number: int, size: tuple[int, int] = (211, 157)) -> Image.Image:
    """A picture with soft colours of all kinds, another one for every number."""
    rough = np.random.default_rng(number).integers(64, 192, (9, 12, 3), dtype=np.uint8)
    return Image.fromarray(rough).resize(size, Image.Resampling.BICUBIC)


def jpeg(picture: Image.Image, **more: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", **{"quality": 90, "subsampling": 0, **more})
    return out.getvalue()


def turned(number: int) -> dict[str, Any]:
    exif = Image.Exif()
    exif[0x0112] = 1 + number % 8
    return {"exif": exif}


KINDS: dict[str, Any] = {
    "photographs": lambda i: PHOTOS[i % len(PHOTOS)].read_bytes(),
    "4:4:4": lambda i: jpeg(smooth(i)),
    "4:2:2": lambda i: jpeg(smooth(i), subsampling=1),
    "4:2:0": lambda i: jpeg(smooth(i), subsampling=2),
    "grey": lambda i: jpeg(smooth(i).convert("L")),
    "orientations of Exif": lambda i: jpeg(smooth(i), subsampling=i // 8 % 3, **turned(i)),
    "restart markers": lambda i: jpeg(smooth(i), subsampling=i % 3, restart_marker_blocks=2 + i % 7),
}


def folder(root: Path, kind: str, count: int = 48) -> Path:
    """So many pictures of a kind, in three classes."""
    for i in range(count):
        path = root / f"class{i % 3}" / f"{i:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(KINDS[kind](i))
    return root


def packed(photos: Path, to: Path) -> str:
    """The same pictures with a restart marker every few blocks."""
    stoker.pack(str(photos), str(to), jpeg="index")
    return str(to / "shard-*.tar")


def loader(data: Path | str, transform: Sequence[Any], where: str = "", share: float = 1.0, **keywords: Any) -> Any:
    steps = T.Compose(list(transform))
    dataset: Any
    if isinstance(data, Path):
        dataset = stoker.ImageFolder(data, steps)
    else:
        dataset = stoker.WebDataset(data).decode("pil").to_tuple("jpg", "cls").map_tuple(steps)
    keywords = {"batch_size": BATCH, "shuffle": True, "seed": 3, **keywords}
    if where:
        keywords.update(device=where, decode_device=(where, share) if share < 1 else where)
    made: Any = stoker.DataLoader
    return made(dataset, **keywords)


class Sent:
    """What is sent from now on: ``batches``, for each the numbers of its rows, and ``given``, what the decoder got."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[list[int]]] = []
        begun = _device_jpeg.Sent.__init__

        def begin(one: Any, decoder: Any, numbers: Any, jpegs: Any) -> None:
            self.batches.append(numbers.tolist())
            begun(one, decoder, numbers, jpegs)

        monkeypatch.setattr(_device_jpeg.Sent, "__init__", begin)

    @property
    def rows(self) -> list[list[int]]:
        """Those that were sent."""
        return [row for batch in self.batches for row in batch if row[0]]

    @property
    def strips(self) -> int:
        return sum(row[13] > 0 for row in self.rows)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    return Sent(monkeypatch)


def pairs(here: Any, there: Any) -> Iterator[tuple[Any, Any]]:
    """The batches of both, of which all but the pixels are equal."""
    with here, there:
        for one, other in zip(here, there, strict=True):
            assert other[0].device.type == torch.device(WHERE).type
            assert (one[0].dtype, one[0].shape, one[0].stride()) == (other[0].dtype, other[0].shape, other[0].stride())
            assert torch.equal(one[1], other[1].cpu())
            assert torch.equal(one.ids, other.ids)
            yield one, other


def apart(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one.to(torch.int16) - other.cpu().to(torch.int16)).abs()


def test_the_decoder_of_this_machine(record_property: Any) -> None:
    """torchcodec's or torchvision's, and how it makes pixels of subsampled chroma."""
    decoder, why = _device_jpeg._decoder(WHERE == "cuda")
    assert decoder is not None, why
    repeats = _device_jpeg._repeats(decoder, Target("cuda:0", 2))
    print(json.dumps({"decoder": decoder.name, "repeats": repeats}))
    record_property("decoder", decoder.name)
    record_property("repeats chroma", repeats)


@pytest.mark.parametrize("stored", ["files", "packed"])
@pytest.mark.parametrize("kind", KINDS)
def test_decoded_there(tmp_path: Path, sent: Sent, record_property: Any, kind: str, stored: str) -> None:
    """The rows are the engine's, as far as decoders agree; labels, ids and order are the same."""
    data: Any = folder(tmp_path / "photos", kind)
    if stored == "packed":
        data = packed(data, tmp_path / "packed")
    for how, transform in HOW.items():
        there = loader(data, transform, WHERE)
        found = [apart(one[0], other[0]) for one, other in pairs(loader(data, transform), there)]
        mean = float(torch.cat([one.flatten() for one in found]).double().mean())
        most = max(int(one.max()) for one in found)
        name = f"{kind}, {stored}, {how}"
        print(name, mean, most, "strips:", sent.strips)
        record_property(f"{name}: mean difference", mean)
        record_property(f"{name}: largest difference", float(most))
        assert mean <= MEAN
        told = there.stats()["device"]
        assert told["decoded"] == 48
        assert told["decode_host_s"] > 0
    assert len(sent.rows) == 96
    if stored == "packed" and kind == "4:4:4":
        assert sent.strips > 0


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("end", ["floats", "colours and floats"])
def test_steps_after_decoding(tmp_path: Path, end: str, layout: str) -> None:
    """What follows the decoder is that of other batches."""
    photos = folder(tmp_path, "photographs")
    transform = [*CROP, *([T.ColorJitter(0.2)] if end != "floats" else []), *FLOATS]
    made = pairs(loader(photos, transform, layout=layout), loader(photos, transform, WHERE, layout=layout))
    for one, other in made:
        assert float((one[0] - other[0].cpu()).abs().mean()) < 0.05


def test_a_share_is_decoded_there(tmp_path: Path, sent: Sent) -> None:
    """The rows that stay are the engine's, to the bit."""
    photos = folder(tmp_path, "photographs", 96)
    made = list(pairs(loader(photos, CROP), loader(photos, CROP, WHERE, 0.5)))
    assert len(made) == len(sent.batches) == 96 // BATCH
    for (one, other), rows in zip(made, sent.batches, strict=True):
        stay = torch.tensor([row[0] == 0 for row in rows])
        assert torch.equal(one[0][stay], other[0].cpu()[stay])
    assert 96 * 3 // 8 <= len(sent.rows) <= 96 * 5 // 8


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_state_of_decoding(tmp_path: Path, share: float) -> None:
    photos = folder(tmp_path, "photographs")
    with loader(photos, CROP, WHERE, share) as made:
        whole = []
        for batch in made:
            whole.append(batch)
            if batch.step == 2:
                state = made.state_dict()
    with loader(photos, CROP, WHERE, share) as made:
        made.load_state_dict(state)
        rest = list(made)
    assert [batch.ids.tolist() for batch in rest] == [batch.ids.tolist() for batch in whole[3:]]
    for one, other in zip(whole[3:], rest, strict=True):
        assert torch.equal(one[1], other[1])
        assert int(apart(one[0].cpu(), other[0]).max()) <= 1


def striped(subsampling: int, number: int) -> bytes:
    """Blocks of strong colours, none like its neighbour, so that chroma has an edge wherever segments can end."""
    colours = np.array([[255, 0, 0], [0, 0, 255], [0, 255, 0], [255, 255, 0], [255, 0, 255]], np.uint8)
    y, x = np.mgrid[0:20, 0:30]
    blocks = colours[(x + 2 * y + number) % 5]
    return jpeg(Image.fromarray(blocks.repeat(8, 0).repeat(8, 1)), subsampling=subsampling, quality=95)


@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
def test_strips_are_parts_of_the_whole(tmp_path: Path, sent: Sent, record_property: Any, subsampling: str) -> None:
    """Where the decoder repeats chroma, a strip of a picture with edges at the borders of segments has the pixels that
    the whole picture has there; where it does not, subsampled pictures are sent as a whole."""
    root = tmp_path / "photos" / "one"
    root.mkdir(parents=True)
    for number in range(16):
        (root / f"{number:02}.jpg").write_bytes(striped(["4:4:4", "4:2:2", "4:2:0"].index(subsampling), number))
    of_strips = packed(root.parent, tmp_path / "packed")
    decoder = _device_jpeg._decoder(WHERE == "cuda")[0]
    assert decoder is not None
    repeats = _device_jpeg._repeats(decoder, Target("cuda:0", 2))
    most = strips = 0
    for size in ((64, 64), (33, 90), (7, 11)):
        transform = [T.CenterCrop(size)]
        with loader(root.parent, transform, WHERE, shuffle=False) as whole:
            expected = [batch[0].cpu() for batch in whole]
        assert sent.strips == strips
        with loader(of_strips, transform, WHERE, shuffle=False) as divided:
            found = [batch[0].cpu() for batch in divided]
        strips = sent.strips
        most = max([most, *(int(apart(one, other).max()) for one, other in zip(expected, found, strict=True))])
    print("repeats:", repeats, "strips:", strips, "largest difference:", most)
    record_property(f"strips of {subsampling}: largest difference from the whole", float(most))
    assert (strips > 0) == (repeats or subsampling == "4:4:4")
    assert most == 0


def test_memory_of_decoding_is_flat(tmp_path: Path) -> None:
    photos = folder(tmp_path, "photographs", 24)
    with loader(photos, [*CROP, *FLOATS], WHERE) as made:
        seen, pinned = [], []
        for epoch in range(50):
            for batch in made:
                del batch
            torch.cuda.synchronize()
            if epoch >= 10:
                free, total = torch.cuda.mem_get_info()
                seen.append((torch.cuda.memory_reserved(), total - free))
                pinned.append(len(_device._devices[0].pins._pins))
        print("reserved, used:", seen[0], seen[-1], "pinned slots:", pinned[0], pinned[-1])
        assert seen[-1][0] <= seen[0][0] + (64 << 20)
        assert seen[-1][1] <= seen[0][1] + (256 << 20)  # with nvJPEG's own
        assert max(pinned) <= 32


def test_decoding_beside_a_busy_stream(tmp_path: Path) -> None:
    """Batches that the loop drops at once, while its stream is busy: no memory is used twice."""
    photos = folder(tmp_path, "photographs")
    with loader(photos, CROP, WHERE) as made:
        expected = [int(batch[0].to(torch.int64).sum()) for batch in made]
    with loader(photos, CROP, WHERE) as made:
        sums = []
        for batch in made:
            torch.cuda._sleep(int(5e6))  # type: ignore[no-untyped-call]
            sums.append(batch[0].to(torch.int64).sum())
            del batch
        found = [int(one) for one in sums]
    for one, other in zip(expected, found, strict=True):
        assert abs(one - other) <= BATCH * 3 * 64 * 64


@pytest.mark.parametrize("damage", ["a table", "the scan"])
def test_damaged_pictures(tmp_path: Path, record_property: Any, damage: str) -> None:
    """Nothing ends, and the other rows are right."""
    photos = folder(tmp_path, "4:2:0")
    wrong = (3, 11, 12, 40)
    for number in wrong:
        path = photos / f"class{number % 3}" / f"{number:03}.jpg"
        whole = bytearray(path.read_bytes())
        if damage == "a table":
            at = whole.index(b"\xff\xc4") + 5  # the first Huffman table has more codes than there are
            whole[at : at + 4] = bytes([255] * 4)
        else:
            at = len(whole) // 2
            whole[at : at + 200] = np.random.default_rng(number).integers(0, 255, 200, dtype=np.uint8).tobytes()
        path.write_bytes(whole)
    keywords: dict[str, Any] = {"on_bad": "skip", "max_bad": 10, "shuffle": False, "batch_size": 16}
    seen: dict[int, list[Any]] = {}
    bad: list[list[int]] = []
    for where in ("", WHERE):
        with loader(photos, HOW["resized"], where, **keywords) as made:
            bad.append([])
            for batch in made:
                bad[-1] += [one.sample for one in batch.bad]
                for number, row in zip(batch.ids.tolist(), batch[0].cpu(), strict=False):
                    seen.setdefault(number, []).append(row)
    names = stoker.ImageFolder(photos).samples
    places = {at for at, (path, _) in enumerate(names) if int(Path(path).stem) in wrong}
    off = {at: float(apart(*rows).double().mean()) for at, rows in seen.items() if len(rows) == 2 and at not in places}
    assert len(off) == 48 - len(wrong)
    assert max(off.values()) <= MEAN
    assert set(bad[0]) <= places
    assert set(bad[1]) <= places
    if damage == "a table":
        assert bad[0] == bad[1] != []

    # What the decoder itself says of them.
    decoder = _device_jpeg._decoder(WHERE == "cuda")[0]
    assert decoder is not None
    said = []
    for at in sorted(places):
        given = torch.frombuffer(bytearray(Path(names[at][0]).read_bytes()), dtype=torch.uint8)
        try:
            (picture,) = decoder.decode([given], torch.device(WHERE))
            said.append(f"a picture of {tuple(picture.shape)}")
        except Exception as error:
            said.append(f"{type(error).__name__}: {str(error).strip().splitlines()[0]:.120}")
    assert int(torch.ones(3, device=WHERE).sum()) == 3  # no error is pending
    print("the decoder:", json.dumps(said), "bad:", bad)
    record_property(f"the decoder, of {damage} that is damaged", said)
    record_property(f"bad samples, of {damage}", [len(one) for one in bad])

"""What hostile pictures cost: the figures of SECURITY.md, measured at the engine while it reads them."""

from __future__ import annotations

import struct
import subprocess
import textwrap
import zlib
from pathlib import Path
from typing import Any

import pytest
from conftest import run_python
from forms import long, mostly, param

import stoker
from stoker import transforms as T
from stoker._process import find

MIB = 1 << 20
SIDE = 10_000  # pixels: 286 MiB as they are decoded
PIXELS = 3 * SIDE * SIDE


def png(side: int, rows: int | None = None) -> bytes:
    """Nearly nothing, that is side x side pixels of black, or says that it is."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pack, row = zlib.compressobj(9), bytes(3 * side + 1)
    data = b"".join([pack.compress(row) for _ in range(side if rows is None else rows)] + [pack.flush()])
    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def gif(side: int) -> bytes:
    """A screen of side x side pixels, with one pixel on it."""
    screen = b"GIF89a" + struct.pack("<HHBBB", side, side, 0, 0, 0)
    return screen + b"," + struct.pack("<HHHHB", 0, 0, 1, 1, 0) + b"\x02\x02\x44\x01\x00;"


def jpeg(side: int) -> bytes:
    """A progressive JPEG without a difference in it: runs of blocks that end at once.

    One grey component: its coefficients take 2 bytes a pixel, and its blocks a bit or less.
    """
    blocks = ((side + 7) // 8) ** 2

    def segment(marker: int, data: bytes) -> bytes:
        return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data

    table = segment(0xC4, bytes((0x00, 1, *[0] * 15, 0)))  # one code of one bit: a difference of 0
    frame = segment(0xC2, struct.pack(">BHHBBBB", 8, side, side, 1, 1, 0x11, 0))
    scan = segment(0xDA, bytes((1, 1, 0, 0, 0, 0)))
    data = bytes(blocks // 8) + (bytes([0xFF >> blocks % 8]) if blocks % 8 else b"")
    return b"\xff\xd8" + segment(0xDB, bytes((0, *[1] * 64))) + frame + table + scan + data + b"\xff\xd9"


def progressive() -> int:
    """Bytes that decoding takes for a pixel of ``jpeg``: its coefficients with libjpeg-turbo; without it, Go's decoder
    keeps larger ones, and the picture."""
    version = subprocess.run([find(), "version"], capture_output=True, text=True, check=True)
    return 2 if "libjpeg-turbo" in version.stdout else 5


def peak(folder: Path, keywords: str, transform: str = "None") -> tuple[int, str]:
    """The most bytes that an engine had while it delivered the folder with four lanes, and what became of it."""
    done = run_python(
        textwrap.dedent(
            f"""
            import stoker
            from stoker import transforms as T
            from conftest import engine
            data = stoker.ImageFolder({str(folder)!r}, {transform})
            loader = stoker.DataLoader(data, {keywords}, num_workers=4, output="numpy")
            end = "delivered"
            try:
                for batch in loader:
                    pass
            except stoker.StokerError as error:
                end = str(error).replace(chr(10), " ")
            for line in open(f"/proc/{{engine()}}/status"):
                if line.startswith("VmHWM"):
                    print(int(line.split()[1]) * 1024)
            print(end)
            """
        ),
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    size, end = done.stdout.strip().splitlines()[-2:]
    return int(size), end


def store(folder: Path, name: str, data: bytes, copies: int) -> Path:
    (folder / "a").mkdir(parents=True)
    for i in range(copies):
        (folder / "a" / f"{i}{name}").write_bytes(data)
    return folder


IDLE = 96 * MIB  # what an engine with four lanes takes beside them, with a wide margin


@pytest.mark.parametrize("kind", mostly(["png", "gif", "jpeg"], "jpeg"))
def test_large_pictures_wait_for_one_another(tmp_path: Path, kind: str) -> None:
    """With less memory= than one of them takes, each is decoded alone; with room for two, two at once."""
    data = {"png": png, "gif": gif, "jpeg": jpeg}[kind](SIDE)
    assert len(data) < 400_000
    one = progressive() * SIDE * SIDE if kind == "jpeg" else PIXELS
    folder = store(tmp_path / "all", {"jpeg": ".jpg"}.get(kind, ".png"), data, 4)
    crop = "T.Compose([T.RandomResizedCrop(32)])"
    got, end = peak(folder, "4, memory='64MiB'", crop)
    assert end == "delivered"
    assert got < 1.25 * one + IDLE
    got, end = peak(folder, f"4, memory={int(2.6 * one) + 64 * MIB}", crop)
    assert end == "delivered"
    assert got < 2.6 * one + 64 * MIB + IDLE


@pytest.mark.parametrize(
    ("name", "data"),
    [
        param((".ppm", b"P6 13000 13000 255\n" + bytes(2000))),
        param((".ppm", b"P3 13000 13000 255\n" + b"1 " * 1000)),
        (".png", png(13_000, rows=60)),
        (
            ".png",
            b"GIF89a"
            + struct.pack("<HHBBB", 13000, 13000, 0, 0, 0)
            + b","
            + struct.pack("<HHHHB", 0, 0, 13000, 13000, 0)
            + b"\x02\x02\x44\x01\x00;",
        ),
        (
            ".bmp",
            b"BM"
            + struct.pack("<IHHI", 0, 0, 0, 54)
            + struct.pack("<IiiHHIIiiII", 40, 13000, 13000, 1, 24, 0, 0, 0, 0, 0, 0)
            + bytes(2000),
        ),
    ],
    ids=["raw", "plain", "png", "gif", "bmp"],
)
def test_a_size_that_is_a_lie_takes_no_memory(tmp_path: Path, name: str, data: bytes) -> None:
    """Whole pictures are asked for, so that the rows of the batch would be as large as the false size."""
    folder = store(tmp_path / "all", name, data, 4)
    got, end = peak(folder, "None")
    assert "cannot hold" in end or "take" in end
    assert got < IDLE


def test_max_pixels(folder: Path, tmp_path: Path) -> None:
    data = store(tmp_path / "all", ".png", png(100), 3)
    images = T.Compose([T.Resize((8, 8))])
    with stoker.DataLoader(stoker.ImageFolder(data, images), 3, max_pixels=10_000) as loader:
        assert len(list(loader)) == 1
    with stoker.DataLoader(stoker.ImageFolder(data, images), 3, max_pixels=9_999) as loader:
        with pytest.raises(stoker.DataError, match="more than the limit of 9999") as raised:
            list(loader)
        assert "max_pixels=10000" in str(raised.value)
    both = stoker.Mixture([stoker.ImageFolder(data, images), stoker.ImageFolder(data, images)])
    with stoker.DataLoader(both, 3, max_pixels=9_999) as loader, pytest.raises(stoker.DataError, match="limit of 9999"):
        list(loader)
    wrongs: tuple[Any, ...] = (0, -1, 1.5, "many", 1 << 40)
    for wrong in wrongs:
        with pytest.raises(stoker.ConfigError, match="max_pixels"):
            stoker.DataLoader(stoker.ImageFolder(data), max_pixels=wrong)
    with pytest.raises(stoker.DataError, match="limit of 9999"):
        stoker.pack(data, tmp_path / "packed", resize=8, max_pixels=9_999)
    stoker.pack(data, tmp_path / "packed", resize=8, max_pixels=10_000)


def test_more_than_pillow_takes_is_refused(tmp_path: Path) -> None:
    data = store(tmp_path / "all", ".png", png(13_500, rows=60) + bytes(MIB), 1)
    images = T.Compose([T.Resize((8, 8))])
    with (
        stoker.DataLoader(stoker.ImageFolder(data, images), 1) as loader,
        pytest.raises(stoker.DataError, match="178956970"),
    ):
        list(loader)


@long  # test_max_pixels asks for more and for less
def test_more_than_pillow_takes_can_be_asked_for(tmp_path: Path) -> None:
    data = store(tmp_path / "all", ".png", png(13_500), 1)
    images = T.Compose([T.Resize((8, 8))])
    with stoker.DataLoader(stoker.ImageFolder(data, images), 1, max_pixels=200_000_000) as loader:
        assert len(list(loader)) == 1

"""Writes the files that are decoded: python -m bench.images.make OUT PICTURES FILE..., under .venv-bench/images.

FILEs are photographs of any kind that Pillow reads. Each is written as PNG, WebP and TIFF; the deflate streams of the
PNGs and TIFFs are written by themselves, and those of chunks of HDF5, which h5py writes. OUT/plan.json names them all:
{group: {"Kind": "picture" | "grey" | "stream", "Items": [{"Path", "Size"}]}}.
"""

from __future__ import annotations

import io
import json
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import fpng_py
import h5py
import numpy as np
from PIL import Image

LOSSLESS = 30  # lossless WebP takes a second to write
CHUNK = 128  # pixels a side
LONGEST = 1500  # larger photographs are made smaller: they would be most of the time

# group: kind, suffix, and how Pillow writes it
WRITTEN: dict[str, tuple[str, str, dict[str, Any]]] = {
    "png rgb": ("picture", "png", {"format": "PNG"}),
    "png grey": ("grey", "png", {"format": "PNG"}),
    "webp": ("picture", "webp", {"format": "WEBP", "quality": 80}),
    "webp lossless": ("picture", "webp", {"format": "WEBP", "lossless": True}),
    "tiff deflate": ("picture", "tif", {"format": "TIFF", "compression": "tiff_adobe_deflate", "tiffinfo": {317: 2}}),
    "tiff lzw": ("picture", "tif", {"format": "TIFF", "compression": "tiff_lzw", "tiffinfo": {317: 2}}),
    "tiff raw": ("picture", "tif", {"format": "TIFF"}),
}


def idat(png: bytes) -> bytes:
    """The deflate stream of a PNG."""
    at, stream = 8, b""
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            stream += png[at + 8 : at + 8 + size]
        at += 12 + size
    return stream


def strips(tiff: bytes) -> list[bytes]:
    picture = Image.open(io.BytesIO(tiff))
    tags = picture.tag_v2  # type: ignore[attr-defined]
    return [tiff[at : at + size] for at, size in zip(tags[273], tags[279], strict=True)]


class Plan:
    def __init__(self, out: Path) -> None:
        self.out = out
        self.groups: dict[str, dict[str, Any]] = {}

    def add(self, group: str, kind: str, suffix: str, data: bytes, size: int = 0) -> None:
        items = self.groups.setdefault(group, {"Kind": kind, "Items": []})["Items"]
        path = self.out / f"{group.replace(' ', '-')}-{len(items):05d}.{suffix}"
        path.write_bytes(data)
        items.append({"Path": str(path), "Size": size})

    def stream(self, group: str, data: bytes) -> None:
        self.add(group, "stream", "z", data, len(zlib.decompress(data)))


def main() -> None:
    out, most, *paths = sys.argv[1:]
    plan = Plan(Path(out))
    used = 0
    chunks = h5py.File(Path(out, "chunks.h5"), "w")
    for path in paths:
        if used == int(most):
            break
        try:
            picture = Image.open(path).convert("RGB")
        except OSError:
            continue
        picture.thumbnail((LONGEST, LONGEST))
        picture.info.clear()  # colour profiles are nobody's question here
        used += 1
        for group, (kind, suffix, options) in WRITTEN.items():
            if group == "webp lossless" and used > LOSSLESS:
                continue
            with io.BytesIO() as file:
                (picture.convert("L") if kind == "grey" else picture).save(file, **options)
                data = file.getvalue()
            plan.add(group, kind, suffix, data)
            if group == "png rgb":
                plan.stream("idat", idat(data))
            if group == "tiff deflate":
                for strip in strips(data)[:8]:
                    plan.stream("tiff strips", strip)
        rows = np.asarray(picture)
        written = fpng_py.fpng_encode_image_to_memory(rows.tobytes(), picture.width, picture.height, 3)
        plan.add("png by fpng", "picture", "png", bytes(written))
        middle = rows[: rows.shape[0] // CHUNK * CHUNK, : rows.shape[1] // CHUNK * CHUNK]
        if middle.size:
            each = chunks.create_dataset(
                str(used), data=middle, chunks=(CHUNK, CHUNK, 3), compression="gzip", compression_opts=4
            )
            for number in range(min(8, each.id.get_num_chunks())):
                _, stored = each.id.read_direct_chunk(each.id.get_chunk_info(number).chunk_offset)
                plan.stream("hdf5 chunks", bytes(stored))
    chunks.close()
    if not used:
        raise SystemExit("no photograph among the files")
    Path(out, "plan.json").write_text(json.dumps(plan.groups))


if __name__ == "__main__":
    main()

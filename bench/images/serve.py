"""The decoders that Python users have: python -m bench.images.serve NAME PLAN, under an environment that has it.

It reads the plan's files and says its versions. Then each line of standard input asks for a turn over one group, and
gets a line: {"Group", "Check"}. A turn decodes every item once. The answer is the CPU time of all threads of this
process, or, for a check, a CRC-32 of each result's bytes. native/main.go answers the same.

Each is called as its users do, to RGB or grey in memory, with one thread, and with what makes it fast.
"""

from __future__ import annotations

import io
import json
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Decoder:
    """prepare: a file's bytes as the library wants them, made before any clock. decode: of (kind, prepared, size).
    pixels: a result as an array or bytes, for checks."""

    versions: dict[str, str]
    decode: Callable[[str, Any, int], Any]
    prepare: Callable[[bytes], Any] = lambda data: data
    pixels: Callable[[Any], Any] = np.ascontiguousarray


def torchvision() -> Decoder:
    import torch
    import torchvision
    from torchvision.io import ImageReadMode, decode_png, decode_webp

    torch.set_num_threads(1)

    def decode(kind: str, data: Any, size: int) -> Any:
        if data[0] == 0x89:
            return decode_png(data, ImageReadMode.GRAY if kind == "grey" else ImageReadMode.RGB)
        return decode_webp(data, ImageReadMode.RGB)

    return Decoder(
        {"torch": torch.__version__, "torchvision": torchvision.__version__},
        decode,
        lambda data: torch.frombuffer(bytearray(data), dtype=torch.uint8),
        lambda picture: np.ascontiguousarray(picture.permute(1, 2, 0).numpy()),
    )


def pillow() -> Decoder:
    import PIL
    from PIL import Image, features

    libraries = {name: features.version(name) or "?" for name in ("zlib", "webp", "libtiff")}
    return Decoder(
        {"pillow": PIL.__version__, **libraries},
        # convert of what is so already is what loads it.
        lambda kind, data, size: Image.open(io.BytesIO(data)).convert("L" if kind == "grey" else "RGB"),
    )


def opencv() -> Decoder:
    import cv2

    cv2.setNumThreads(1)
    rgb, grey = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION, cv2.IMREAD_GRAYSCALE
    build = [line.split(":", 1) for line in cv2.getBuildInformation().splitlines() if ":" in line]
    found = {key.strip(): value.strip() for key, value in build}
    return Decoder(
        {"opencv": cv2.__version__, **{key: found.get(key, "?") for key in ("PNG", "ZLib", "WEBP", "TIFF")}},
        lambda kind, data, size: cv2.imdecode(data, grey if kind == "grey" else rgb),
        lambda data: np.frombuffer(data, np.uint8),
    )


def imagecodecs() -> Decoder:
    """libpng, libwebp and libtiff as imagecodecs' wheel has them."""
    import imagecodecs as codecs

    def decode(kind: str, data: bytes, size: int) -> Any:
        if data[:4] == b"\x89PNG":
            return codecs.png_decode(data)
        if data[:4] == b"RIFF":
            return codecs.webp_decode(data)
        return codecs.tiff_decode(data)

    versions = (codecs.png_version(), codecs.zlib_version(), codecs.webp_version(), codecs.tiff_version())
    return Decoder({"imagecodecs": codecs.__version__, "libraries": ", ".join(versions)}, decode)


def spng() -> Decoder:
    import imagecodecs as codecs

    return Decoder(
        {"imagecodecs": codecs.__version__, "libraries": f"{codecs.spng_version()}, {codecs.zlib_version()}"},
        lambda kind, data, size: codecs.spng_decode(data),
    )


def wuffs() -> Decoder:
    import importlib.metadata

    from pywuffs import PixelFormat
    from pywuffs.aux import ImageDecoder, ImageDecoderConfig

    made = {}
    for kind, pixels in (("picture", PixelFormat.RGB), ("grey", PixelFormat.Y)):
        config = ImageDecoderConfig()
        config.pixel_format = pixels
        made[kind] = ImageDecoder(config)

    def decode(kind: str, data: bytes, size: int) -> Any:
        got = made[kind].decode(data)
        if got.error_message:
            raise ValueError(got.error_message)
        return got.pixbuf

    return Decoder({"pywuffs": importlib.metadata.version("pywuffs")}, decode)


def fpng() -> Decoder:
    import importlib.metadata

    import fpng_py

    return Decoder(
        {"fpng-py": importlib.metadata.version("fpng-py")},
        lambda kind, data, size: fpng_py.fpng_decode_from_memory(data, 3),
        pixels=lambda got: bytes(got[0]),
    )


def stdlib() -> Decoder:
    return Decoder(
        {"python": sys.version.split()[0], "zlib": zlib.ZLIB_RUNTIME_VERSION},
        lambda kind, data, size: zlib.decompress(data, bufsize=size),
        pixels=bytes,
    )


def zlib_ng() -> Decoder:
    from zlib_ng import __version__, zlib_ng

    return Decoder(
        {"zlib-ng (Python)": __version__, "zlib-ng": zlib_ng.ZLIBNG_VERSION},
        lambda kind, data, size: zlib_ng.decompress(data, bufsize=size),
        pixels=bytes,
    )


def isal() -> Decoder:
    from isal import __version__, isal_zlib

    return Decoder(
        {"isal (Python)": __version__}, lambda kind, data, size: isal_zlib.decompress(data, bufsize=size), pixels=bytes
    )


def libdeflate() -> Decoder:
    import importlib.metadata

    import deflate

    return Decoder(
        {"deflate (Python)": importlib.metadata.version("deflate")},
        lambda kind, data, size: deflate.zlib_decompress(data, size),
        pixels=bytes,
    )


DECODERS = {
    "torchvision": torchvision,
    "pillow": pillow,
    "opencv": opencv,
    "imagecodecs": imagecodecs,
    "spng": spng,
    "wuffs": wuffs,
    "fpng": fpng,
    "zlib": stdlib,
    "zlib-ng": zlib_ng,
    "isal": isal,
    "libdeflate": libdeflate,
}


def turn(decoder: Decoder, group: dict[str, Any], prepared: list[Any], check: bool) -> dict[str, Any]:
    kind = group["Kind"]
    work = [(data, item["Size"]) for data, item in zip(prepared, group["Items"], strict=True)]
    if check:
        return {"sums": [zlib.crc32(decoder.pixels(decoder.decode(kind, *one))) for one in work]}
    cpu, wall = time.process_time(), time.perf_counter()
    for data, size in work:
        decoder.decode(kind, data, size)
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}


def main() -> None:
    name, path = sys.argv[1:]
    decoder = DECODERS[name]()
    groups = json.loads(Path(path).read_text())
    held: dict[str, list[Any]] = {}
    print(json.dumps({"versions": decoder.versions}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        group = groups[asked["Group"]]
        if asked["Group"] not in held:
            held[asked["Group"]] = [decoder.prepare(Path(item["Path"]).read_bytes()) for item in group["Items"]]
        try:
            answer = turn(decoder, group, held[asked["Group"]], asked["Check"])
        except Exception as error:  # the driver names it
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

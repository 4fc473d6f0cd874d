"""The decoders that Python users have: python -m bench.jpeg.serve NAME PLAN, under an environment that has it.

It reads the plan's files and says its versions. Then each line of standard input asks for a turn over one group, and
gets a line: {"group", "mode", "check"}, mode "full" or "region". A turn decodes every picture once, or the first box of
each, then the second of each: no picture follows itself. The answer is the CPU time of all threads of this
process, or, for a check, a CRC-32 of each result's pixels. native/main.go answers the same.

Each decoder is called as its users do, to RGB in memory, accurate DCT and fancy upsampling. One that has no call for a
region decodes the picture and takes a view of the box, which costs nothing.
"""

from __future__ import annotations

import io
import json
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

THREADS = 1
DALI_BATCH = 64


@dataclass(frozen=True)
class Box:
    x: int
    y: int
    w: int
    h: int


@dataclass(frozen=True)
class Decoder:
    """prepare: a file's bytes as the library wants them, made before any clock. decode: results, one a picture, as they
    come; without boxes whole pictures. pixels: a result as an array of rows, columns and RGB, for checks."""

    versions: dict[str, str]
    prepare: Callable[[bytes], Any]
    decode: Callable[[Sequence[Any], Sequence[Box] | None], Iterable[Any]]
    pixels: Callable[[Any], np.ndarray]


def whole(decode: Callable[[Any], Any], cut: Callable[[Any, Box], Any]) -> Callable[..., Iterator[Any]]:
    """decode and cut of one picture, as Decoder wants them."""

    def run(inputs: Sequence[Any], boxes: Sequence[Box] | None) -> Iterator[Any]:
        if boxes is None:
            for data in inputs:
                yield decode(data)
        else:
            for data, box in zip(inputs, boxes, strict=True):
                yield cut(decode(data), box)

    return run


def cut_rows(picture: np.ndarray, box: Box) -> np.ndarray:
    return picture[box.y : box.y + box.h, box.x : box.x + box.w]


def torchvision() -> Decoder:
    import torch
    import torchvision
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.set_num_threads(THREADS)
    return Decoder(
        {"torch": torch.__version__, "torchvision": torchvision.__version__},
        lambda data: torch.frombuffer(bytearray(data), dtype=torch.uint8),
        whole(
            lambda data: decode_jpeg(data, mode=ImageReadMode.RGB),
            lambda picture, box: picture[:, box.y : box.y + box.h, box.x : box.x + box.w],
        ),
        lambda picture: picture.permute(1, 2, 0).numpy(),
    )


def pillow() -> Decoder:
    import PIL
    from PIL import Image, features

    return Decoder(
        {"pillow": PIL.__version__, "libjpeg-turbo": features.version("libjpeg_turbo") or "?"},
        lambda data: data,
        # crop copies the box, as it does for every user of Pillow.
        whole(
            lambda data: Image.open(io.BytesIO(data)).convert("RGB"),
            lambda picture, box: picture.crop((box.x, box.y, box.x + box.w, box.y + box.h)),
        ),
        np.asarray,
    )


def opencv() -> Decoder:
    import cv2

    cv2.setNumThreads(THREADS)
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    return Decoder(
        {"opencv": cv2.__version__},
        lambda data: np.frombuffer(data, np.uint8),
        whole(lambda data: cv2.imdecode(data, flags), cut_rows),
        np.asarray,
    )


def simplejpeg() -> Decoder:
    import importlib.metadata

    import simplejpeg

    return Decoder(
        {"simplejpeg": importlib.metadata.version("simplejpeg")},
        lambda data: data,
        whole(lambda data: simplejpeg.decode_jpeg(data, "RGB", fastdct=False, fastupsample=False), cut_rows),
        np.asarray,
    )


def tensorflow() -> Decoder:
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)

    def decode(inputs: Sequence[Any], boxes: Sequence[Box] | None) -> Iterator[Any]:
        exact = {"channels": 3, "dct_method": "INTEGER_ACCURATE"}
        if boxes is None:
            for data in inputs:
                yield tf.io.decode_jpeg(data, **exact)
        else:
            for data, box in zip(inputs, boxes, strict=True):
                window = np.array((box.y, box.x, box.h, box.w), np.int32)
                yield tf.image.decode_and_crop_jpeg(data, window, **exact)

    return Decoder({"tensorflow": tf.__version__}, tf.constant, decode, lambda picture: picture.numpy())


def dali() -> Decoder:
    import nvidia.dali as dali
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(
        batch_size=DALI_BATCH,
        num_threads=THREADS,
        device_id=None,
        prefetch_queue_depth=1,
        exec_async=False,
        exec_pipelined=False,
    )
    def build(region: bool) -> Any:
        encoded = fn.external_source(name="encoded", dtype=types.UINT8, ndim=1, no_copy=True)
        if not region:
            return fn.decoders.image(encoded, device="cpu", output_type=types.RGB, use_fast_idct=False)
        start = fn.external_source(name="start", dtype=types.INT32, ndim=1)
        shape = fn.external_source(name="shape", dtype=types.INT32, ndim=1)
        return fn.decoders.image_slice(
            encoded,
            device="cpu",
            output_type=types.RGB,
            use_fast_idct=False,
            start=start,
            shape=shape,
            axis_names="HW",
        )

    pipes = {region: build(region) for region in (False, True)}
    for pipe in pipes.values():
        pipe.build()

    def decode(inputs: Sequence[Any], boxes: Sequence[Box] | None) -> Iterator[Any]:
        pipe = pipes[boxes is not None]
        for at in range(0, len(inputs), DALI_BATCH):
            pipe.feed_input("encoded", list(inputs[at : at + DALI_BATCH]))
            if boxes is not None:
                some = boxes[at : at + DALI_BATCH]
                pipe.feed_input("start", [np.array((box.y, box.x), np.int32) for box in some])
                pipe.feed_input("shape", [np.array((box.h, box.w), np.int32) for box in some])
            (pictures,) = pipe.run()
            yield from pictures

    return Decoder({"nvidia-dali": dali.__version__}, lambda data: np.frombuffer(data, np.uint8), decode, np.asarray)


DECODERS = {
    "torchvision": torchvision,
    "pillow": pillow,
    "opencv": opencv,
    "simplejpeg": simplejpeg,
    "tensorflow": tensorflow,
    "dali": dali,
}


@dataclass(frozen=True)
class Group:
    """One group in the order of a turn: of whole pictures, and of boxes."""

    pictures: list[Any]
    repeated: list[Any]
    boxes: list[Box]


def load(plan: Path, decoder: Decoder) -> dict[str, Group]:
    groups = {}
    for name, pictures in json.loads(plan.read_text()).items():
        inputs = [decoder.prepare(Path(one["path"]).read_bytes()) for one in pictures]
        count = len(pictures[0]["boxes"])
        boxes = [Box(**one["boxes"][turn]) for turn in range(count) for one in pictures]
        groups[name] = Group(inputs, inputs * count, boxes)
    return groups


def answer(decoder: Decoder, group: Group, request: dict[str, Any]) -> dict[str, Any]:
    inputs, boxes = (group.pictures, None) if request["mode"] == "full" else (group.repeated, group.boxes)
    if request["check"]:
        found = decoder.decode(inputs, boxes)
        return {"sums": [zlib.crc32(np.ascontiguousarray(decoder.pixels(one))) for one in found]}
    cpu, wall = time.process_time(), time.perf_counter()
    count = 0
    for _ in decoder.decode(inputs, boxes):
        count += 1
    return {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "pictures": count}


def main() -> None:
    decoder = DECODERS[sys.argv[1]]()
    groups = load(Path(sys.argv[2]), decoder)
    print(json.dumps({"versions": decoder.versions}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            said = answer(decoder, groups[request["group"]], request)
        except Exception as e:
            said = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()

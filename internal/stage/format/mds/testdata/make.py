"""Writes the datasets of this folder with Streaming's own MDSWriter, and
expected.json with what its reader makes of them.

    pip install mosaicml-streaming && python make.py
"""

import base64
import io
import json
import os
import shutil
from decimal import Decimal

import numpy as np
from PIL import Image
from streaming import MDSWriter
from streaming.base.format import reader_from_json

HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.default_rng(7)


def picture(w, h, mode="RGB"):
    shape = (h, w) if mode == "L" else (h, w, {"RGB": 3, "RGBA": 4}[mode])
    return Image.fromarray(rng.integers(0, 256, shape, np.uint8))


def encoded(image, kind):
    out = io.BytesIO()
    image.save(out, format=kind)
    return out.getvalue()


SCALARS = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


def scalar(name, i):
    if name.startswith("float"):
        return getattr(np, name)(i * 1.5 - 2)
    info = np.iinfo(name)
    return getattr(np, name)([info.min, info.max, i, 1][i % 4])


def everything(i):
    out = {
        "raw": bytes([i] * i), "text": "sample é " + str(i), "n": 10**12 * i - 5,
        "image": picture(5 + i, 4), "mask": picture(3, 4 + i, "L"),
        "meta": {"id": i, "tags": ["a", "ü"]}, "si": 10**30 + i, "sf": i / 7, "sd": Decimal("1.10") + i,
        "box": rng.standard_normal((2, 4)).astype(np.float32), "words": np.arange(3 * i + 1, dtype=np.uint16),
        "crop": rng.integers(0, 256, (2 + i, 3, 3), np.uint8), "odd": np.arange(i + 1, dtype=[np.int32, np.float64][i % 2]),
        "same": np.full((2, 300), i, np.int16),
        "pixels": picture(2 + i, 3, ["RGB", "L"][i % 2]),
    }
    return out | {name: scalar(name, i) for name in SCALARS}


EVERYTHING = {
    "raw": "bytes", "text": "str", "n": "int", "image": "jpeg", "mask": "png", "meta": "json",
    "si": "str_int", "sf": "str_float", "sd": "str_decimal", "box": "ndarray:float32:2,4", "words": "ndarray:uint16",
    "crop": "ndarray", "odd": "ndarray", "same": "ndarray", "pixels": "pil",
} | {name: name for name in SCALARS}


def small(i):
    return {"label": i % 3, "text": "x" * (7 * i) + str(i)}


SMALL = {"label": "int", "text": "str"}

DATASETS = {
    "everything": (EVERYTHING, [everything(i) for i in range(6)], {"size_limit": 8000, "hashes": ["sha1", "xxh64"]}),
    "plain": (SMALL, [small(i) for i in range(20)], {"size_limit": 700}),
    "one": ({"label": "int32"}, [{"label": i} for i in range(3)], {}),
    "refused": (
        {"code": "pkl", "label": "int", "many": "jpeg_array", "list": "list[png]"},
        [{"code": {"i": i}, "label": i, "many": [encoded(picture(2, 2), "JPEG")], "list": [picture(2, 2)]} for i in range(2)],
        {},
    ),
    "rgba": ({"pixels": "pil"}, [{"pixels": picture(2, 2, "RGBA")}], {}),
} | {
    pack.replace(":", "-"): (SMALL | {"ids": "ndarray:uint32"}, [small(i) | {"ids": np.arange(i + 1, dtype=np.uint32)} for i in range(20)],
                             {"size_limit": 1200, "compression": pack, "hashes": ["sha1", "xxh64"]})
    for pack in ["zstd", "zstd:19", "gz", "bz2", "snappy", "br"]
}


def plain(value):
    """What a field holds, as JSON: arrays and numbers by their bytes."""
    if isinstance(value, (int, np.generic)) and not isinstance(value, bool):
        value = np.asarray(value, np.int64 if isinstance(value, int) else None)
    if isinstance(value, np.ndarray):
        return {"dtype": value.dtype.name, "shape": list(value.shape), "data": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return {"text": str(value)}


def read(name):
    folder = os.path.join(HERE, name)
    with open(os.path.join(folder, "index.json")) as f:
        shards = json.load(f)["shards"]
    out = []
    for shard in shards:
        shard = dict(shard)
        reader = reader_from_json(folder, None, shard)
        for i in range(shard["samples"]):
            sizes, at = [], 0
            data = reader.get_sample_data(i)
            for size in reader.column_sizes:
                if not size:
                    size = int(np.frombuffer(data[at:at + 4], np.uint32)[0])
                    at += 4
                sizes.append(size)
            decoded = reader.decode_sample(data)
            sample = {}
            for column, encoding, size in zip(reader.column_names, reader.column_encodings, sizes):
                value = decoded[column]
                if encoding in ("int", *SCALARS) or encoding.startswith("ndarray"):
                    sample[column] = plain(value)
                elif encoding == "pil":
                    sample[column] = plain(np.asarray(value))
                else:
                    sample[column] = plain(data[at:at + size])
                at += size
            out.append(sample)
    return out


def main():
    expected = {}
    for name, (columns, samples, options) in DATASETS.items():
        folder = os.path.join(HERE, name)
        shutil.rmtree(folder, ignore_errors=True)
        with MDSWriter(out=folder, columns=columns, **options) as out:
            for sample in samples:
                out.write(sample)
        if "compression" not in options and name not in ("refused", "rgba"):
            expected[name] = read(name)
    # The same samples without compression say what the compressed ones hold.
    folder = os.path.join(HERE, "tmp")
    columns, samples, _ = DATASETS["zstd"]
    with MDSWriter(out=folder, columns=columns, size_limit=1200) as out:
        for sample in samples:
            out.write(sample)
    expected["packed"] = read("tmp")
    shutil.rmtree(folder)
    with open(os.path.join(HERE, "expected.json"), "w") as f:
        json.dump(expected, f, indent=0, sort_keys=True)
        f.write("\n")


main()

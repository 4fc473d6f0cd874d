"""Writes the .beton files of this folder with FFCV's own DatasetWriter, compressed
with gzip (a page of FFCV has 2 MiB), and expected.json with what was written.

    pip install ffcv && python make.py     # needs libopencv-dev, libturbojpeg0-dev
"""

import base64
import gzip
import json
import os

import numpy as np
import torch
from ffcv.fields import (BytesField, FloatField, IntField, JSONField, NDArrayField, RGBImageField,
                         TorchTensorField)
from ffcv.reader import Reader
from ffcv.writer import DatasetWriter

HERE = os.path.dirname(os.path.abspath(__file__))


def pixels(i, w, h):
    return np.random.default_rng(i).integers(0, 256, (h, w, 3), np.uint8)


class Samples:
    def __init__(self, n, make):
        self.n, self.make = n, make

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.make(int(i))


def everything(i):
    return (
        i - 2, pixels(i, 5 + i, 4), np.frombuffer(b"bytes of " + b"%d " % i * i, np.uint8), i / 3, {"id": i, "name": "ü" * i},
        np.arange(6, dtype=np.int16).reshape(2, 3) * i, torch.full((2, 1, 2), i, dtype=torch.float16),
        np.array(i % 2 == 0)[None], np.arange(3, dtype=">f4"),
    )


EVERYTHING = {
    "label": IntField(), "image": RGBImageField("raw"), "raw": BytesField(), "score": FloatField(), "meta": JSONField(),
    "grid": NDArrayField(np.dtype(np.int16), (2, 3)), "tensor": TorchTensorField(torch.float16, (2, 1, 2)),
    "flag": NDArrayField(np.dtype(bool), (1,)), "big-endian": NDArrayField(np.dtype(">f4"), (3,)),
}

DATASETS = {
    "everything": (EVERYTHING, Samples(7, everything), 1),
    "jpg": ({"image": RGBImageField("jpg", jpeg_quality=80), "label": IntField()}, Samples(9, lambda i: (pixels(i, 8, 8 + i), i)), 2),
    "raw": ({"image": RGBImageField("raw"), "label": IntField()}, Samples(9, lambda i: (pixels(i, 8, 6), i)), 1),
    # smart writes those of more than 700 bytes as JPEG
    "mixed": ({"image": RGBImageField("smart", smart_threshold=700)}, Samples(8, lambda i: (pixels(i, 10, 20 + i),)), 1),
    "resized": ({"image": RGBImageField("raw", max_resolution=16)}, Samples(4, lambda i: (pixels(i, 40 + i, 30),)), 1),
    "numbers": ({"label": IntField(), "score": FloatField()}, Samples(5, lambda i: (i * 10**15, -i / 7)), 1),
    "empty": ({"raw": BytesField()}, Samples(4, lambda i: (np.zeros(i % 2 * 3, np.uint8),)), 1),
}


def value(array):
    array = np.asarray(array)
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode()}


def read(path, fields):
    """Every sample by FFCV's own Reader and its allocations."""
    reader = Reader(path)
    with open(path, "rb") as f:
        data = f.read()
    sizes = {int(a["ptr"]): int(a["size"]) for a in reader.alloc_table}
    out = []
    for row in reader.metadata:
        sample = {}
        for (name, field), meta in zip(fields.items(), row):
            if isinstance(field, (IntField, FloatField)):
                sample[name] = value(meta)
            elif isinstance(field, RGBImageField):
                at = int(meta["data_ptr"])
                stored = data[at:at + sizes[at]]
                if meta["mode"] == 1:
                    sample[name] = value(np.frombuffer(stored, np.uint8).reshape(meta["height"], meta["width"], 3))
                else:
                    sample[name] = {"bytes": base64.b64encode(stored).decode()}
            elif isinstance(field, BytesField):
                at, size = int(meta["ptr"]), int(meta["size"])
                stored = data[at:at + size] if size else b""
                if isinstance(field, JSONField):
                    stored = json.dumps(JSONField.unpack(np.frombuffer(stored, np.uint8))).encode()
                sample[name] = {"bytes": base64.b64encode(stored).decode()}
            else:
                at = int(meta)
                n = field.dtype.itemsize * int(np.prod(field.shape))
                sample[name] = value(np.frombuffer(data[at:at + n], field.dtype).reshape(field.shape))
        out.append(sample)
    return out


def main():
    expected = {}
    for name, (fields, samples, workers) in DATASETS.items():
        path = os.path.join(HERE, name + ".beton")
        writer = DatasetWriter(path, fields, page_size=1 << 21, num_workers=workers)
        writer.from_indexed_dataset(samples, chunksize=3)
        expected[name] = read(path, fields)
        with open(path, "rb") as f, open(path + ".gz", "wb") as raw, gzip.GzipFile("", "wb", 9, raw, 0) as out:
            out.write(f.read())
        os.remove(path)
    with open(os.path.join(HERE, "expected.json"), "w") as f:
        json.dump(expected, f, indent=0, sort_keys=True)
        f.write("\n")


main()

"""FFCV over a .beton of its own DatasetWriter: RandomResizedCropRGBImageDecoder and RandomHorizontalFlip, two threads.

--form original: the pictures as they are, written again at quality 95 (FFCV keeps no file as it was); 512: at most 512
pixels and quality 90; raw256: at most 256 pixels, not compressed. It decodes the whole picture, then crops.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import RandomHorizontalFlip
from ffcv.writer import DatasetWriter
from PIL import Image

from bench import shards
from bench.consumer import SIZE, Options, Peer, run

AHEAD = 3
FORMS: dict[str, dict[str, Any]] = {
    "original": {"write_mode": "jpg", "jpeg_quality": 95},
    "512": {"write_mode": "jpg", "max_resolution": 512, "jpeg_quality": 90},
    "raw256": {"write_mode": "raw", "max_resolution": 256},
}


class Pictures:
    def __init__(self, files: list[tuple[str, int]]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        path, label = self.files[index]
        with Image.open(path) as image:
            return np.asarray(image.convert("RGB")), label


def writer(form: str) -> Any:
    def write(folder: Path, photos: shards.Photos) -> None:
        fields = {"image": RGBImageField(**FORMS[form]), "label": IntField()}
        DatasetWriter(str(folder / "train.beton"), fields, num_workers=2).from_indexed_dataset(Pictures(photos.files))

    return write


def open_peer(options: Options, form: str, folder: Path) -> Peer:
    found = shards.photos(options.data)
    loader = Loader(
        str(folder / "train.beton"),
        batch_size=options.batch,
        num_workers=options.threads,
        os_cache=True,
        order=OrderOption.RANDOM,
        seed=options.seed,
        indices=np.tile(np.arange(len(found.files)), found.copies),
        drop_last=True,
        batches_ahead=AHEAD,
        pipelines={
            "image": [RandomResizedCropRGBImageDecoder((SIZE, SIZE)), RandomHorizontalFlip()],
            "label": [IntDecoder()],
        },
    )

    def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        while True:
            for images, labels in loader:
                yield np.asarray(images), np.asarray(labels).reshape(-1)

    return Peer(
        batches=batches(),
        in_flight=AHEAD + 1,
        resampling="area (OpenCV)",
        layout="NHWC",
        versions={"ffcv": version("ffcv"), "numpy": np.__version__},
        settings={"num_workers": options.threads, "batches_ahead": AHEAD, "os_cache": True, "form": form},
    )


def main() -> None:
    form = "original"
    if "--form" in sys.argv:
        at = sys.argv.index("--form")
        form = sys.argv[at + 1]
        del sys.argv[at : at + 2]
    run(
        lambda options, folder: open_peer(options, form, folder),
        prepare=lambda options: shards.made(options.data, f"ffcv-{form}", writer(form)),
    )


if __name__ == "__main__":
    main()

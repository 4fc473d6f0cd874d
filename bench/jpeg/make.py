"""Writes pictures again as JPEGs of one kind: python -m bench.jpeg.make KIND OUT FILE..."""

from __future__ import annotations

import sys
from pathlib import Path

import cv2

OPTIONS = {
    "4:2:2": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422),
    "4:4:0": (cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440),
    "progressive": (cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "grey": (),
}


def main() -> None:
    kind, out, *paths = sys.argv[1:]
    usual = (cv2.IMWRITE_JPEG_QUALITY, 90, cv2.IMWRITE_JPEG_OPTIMIZE, 1)
    for number, path in enumerate(paths):
        picture = cv2.imread(path, cv2.IMREAD_GRAYSCALE if kind == "grey" else cv2.IMREAD_COLOR)
        to = Path(out, f"{number:05d}.jpg")
        if picture is None or not cv2.imwrite(str(to), picture, [*usual, *OPTIONS[kind]]):
            raise SystemExit(f"{path}: OpenCV does not write it again")


if __name__ == "__main__":
    main()

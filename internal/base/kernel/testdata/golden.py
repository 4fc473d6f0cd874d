"""Makes golden.json and golden.bin: what torchvision v2 and Pillow give.

Run from this folder, with torch, torchvision, numpy and pillow installed:

    python golden.py

golden.json lists cases; "at" and "n" say where a case's bytes (uint8, HWC) lie
in golden.bin. A case with "photo" starts from testdata/photos, one with "file"
from this folder, one with "raw" from the pixels that raw() below makes.
"""

import io
import json
import pathlib

import numpy as np
import PIL.Image
import torch
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as F

HERE = pathlib.Path(__file__).parent
PHOTOS = HERE.parents[3] / "testdata" / "photos"


def raw(width: int, height: int, channels: int) -> np.ndarray:
    """The same pixels as rawPixels in golden_test.go."""
    i = np.arange(width * height * channels, dtype=np.uint64)
    mixed = (i * np.uint64(2654435761)) % np.uint64(1 << 32)
    return ((mixed >> np.uint64(13)) & np.uint64(255)).astype(np.uint8).reshape(height, width, channels)


def resize(pixels: np.ndarray, width: int, height: int, nearest: bool) -> np.ndarray:
    chw = torch.from_numpy(pixels).permute(2, 0, 1)
    mode = InterpolationMode.NEAREST if nearest else InterpolationMode.BILINEAR
    out = F.resize(chw, [height, width], interpolation=mode, antialias=True)
    return out.permute(1, 2, 0).contiguous().numpy()


def main() -> None:
    cases: list[dict] = []
    data = io.BytesIO()

    def add(pixels: np.ndarray, **case: object) -> None:
        blob = np.ascontiguousarray(pixels).tobytes()
        cases.append({**case, "at": data.tell(), "n": len(blob)})
        data.write(blob)

    rng = np.random.default_rng(7)
    for photo in sorted(PHOTOS.glob("*.jpg")):
        rgb = np.asarray(PIL.Image.open(photo).convert("RGB"))
        height, width = rgb.shape[:2]
        for size in ((56, 56), (40, 61), (17, 9)):
            w, h = int(rng.integers(20, width + 1)), int(rng.integers(20, height + 1))
            x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
            box = rgb[y : y + h, x : x + w]
            add(resize(box, *size, False), photo=photo.name, box=[x, y, w, h], size=size)
    shapes = [
        ((290, 31), (224, 29)), ((31, 290), (30, 224)), ((7, 5), (40, 50)), ((1, 1), (9, 4)), ((1, 40), (3, 12)),
        ((400, 3), (1, 3)), ((3, 900), (5, 2)), ((1000, 2), (7, 1)), ((64, 64), (32, 32)), ((33, 65), (33, 20)),
        ((65, 33), (20, 33)), ((150, 20), (149, 21)), ((5, 5), (10, 10)), ((223, 17), (224, 17)), ((97, 3), (13, 2)),
    ]  # fmt: skip
    for source, size in shapes:
        for channels in (1, 3):
            pixels = raw(*source, channels)
            add(resize(pixels, *size, False), raw=[*source, channels], size=size)
            add(resize(pixels, *size, True), raw=[*source, channels], size=size, nearest=True)
    for _ in range(40):
        source = [int(v) for v in rng.integers(1, 120, 2)]
        size = [int(v) for v in rng.integers(1, 40, 2)]
        add(resize(raw(*source, 3), *size, False), raw=[*source, 3], size=size)
        add(resize(raw(*source, 1), *size, True), raw=[*source, 1], size=size, nearest=True)
    for file in sorted(HERE.glob("*.jpg")):
        image = PIL.Image.open(file)
        add(np.asarray(image.convert("RGB")), file=file.name)
        add(np.asarray(image.convert("RGB").convert("L"))[..., None], file=file.name, gray=True)

    (HERE / "golden.bin").write_bytes(data.getvalue())
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (HERE / "golden.json").write_text("[\n" + lines + "\n]\n")


if __name__ == "__main__":
    main()

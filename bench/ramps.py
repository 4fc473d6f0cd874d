"""Pictures that tell which part of them was cropped: python -m bench.ramps PHOTOS OUT (needs Pillow and numpy).

Red rises from left to right and green from top to bottom over the whole range, so the slope of either over a finished
224 x 224 picture is the share of the width or height that the crop had; a flipped picture has red falling.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from PIL import Image


def main(photos: str, out: str) -> None:
    folder = Path(out)
    sizes = []
    for i, path in enumerate(sorted(p for p in Path(photos).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))):
        with Image.open(path) as photo:
            width, height = photo.size
        ramp = np.full((height, width, 3), 128.0)
        ramp[:, :, 0] = np.linspace(0, 255, width)
        ramp[:, :, 1] = np.linspace(0, 255, height)[:, None]
        to = folder / "ramps" / f"{i:06d}.jpg"
        to.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(ramp.round().astype(np.uint8)).save(to, quality=95, subsampling=0)
        sizes.append([width, height])
    (folder / "sizes.json").write_text(json.dumps(sizes))


if __name__ == "__main__":
    main(*sys.argv[1:])

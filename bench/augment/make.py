"""What all peers get: python -m bench.augment.make OUT PICTURES FILE..., under .venv.

OUT/pictures: so many photographs, made SIDE x SIDE once: the middle square, resampled by Pillow; raw RGB.
OUT/plan.json: where they are, and stoker's program for each operation, as its client reads it from torchvision's own
object; or why it cannot.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps
from stoker._compile import to_ops
from stoker._errors import StokerError

from bench.augment.operations import OPERATIONS, SIDE, Operation, torchvision_of


def square(path: str) -> bytes | None:
    """None of what is not an RGB photograph of at least SIDE pixels."""
    with Image.open(path) as photo:
        if photo.mode != "RGB" or min(photo.size) < SIDE:
            return None
        return ImageOps.fit(photo, (SIDE, SIDE), Image.Resampling.BICUBIC).tobytes()


def program(operation: Operation) -> dict[str, Any]:
    try:
        return {"ops": to_ops(torchvision_of(operation), "stoker")}
    except StokerError as error:
        return {"missing": str(error).splitlines()[0].removeprefix("stoker: transform: ")}


def main() -> None:
    out, most, *paths = sys.argv[1:]
    pictures = Path(out, "pictures")
    count = 0
    with pictures.open("wb") as f:
        for path in paths:
            if count < int(most) and (pixels := square(path)) is not None:
                f.write(pixels)
                count += 1
    if count == 0:
        raise SystemExit(f"no RGB photograph of {SIDE} x {SIDE} pixels or more")
    plan = {
        "pictures": str(pictures),
        "count": count,
        "side": SIDE,
        "programs": {name: program(operation) for name, operation in OPERATIONS.items()},
    }
    Path(out, "plan.json").write_text(json.dumps(plan))


if __name__ == "__main__":
    main()

"""What timm gives, for the Go tests of this package.

    PYTHONPATH=python/src .venv-frameworks/bin/python internal/stage/transform/testdata/make_timm.py  # from the repository root

writes timm.json beside itself: results of timm's own transforms on PIL images, and sizes that its ResizeKeepRatio
chooses.
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import zlib
from pathlib import Path

import numpy as np
import timm
from PIL import Image
from stoker._compile import to_ops
from timm.data import transforms as theirs

HERE = Path(__file__).parent


def case(source: str, transform: object) -> dict[str, object]:
    made = np.asarray(transform(Image.open(HERE / source).convert("RGB")))
    found = {"source": source, "ops": to_ops(transform, "here"), "shape": made.shape}
    if type(transform).__name__ == "CenterCropOrPad":  # equal
        return {**found, "digest": hashlib.sha256(made.tobytes()).hexdigest()}
    return {**found, "pixels": base64.b64encode(zlib.compress(made.tobytes(), 9)).decode()}


def cases() -> list[dict[str, object]]:
    found = []
    for source in ("wide.png", "tall.png"):
        for mode in ("bilinear", "bicubic"):
            for longest in (0, 0.4, 1):
                found.append(case(source, theirs.ResizeKeepRatio((17, 20), longest, mode)))
        for size in ((20, 30), (100, 30), (30, 130), (101, 127)):
            found.append(case(source, theirs.CenterCropOrPad(size)))
        found.append(case(source, theirs.CenterCropOrPad((93, 125), fill=(10, 20, 200))))
        for mode in ("reflect", "edge", "symmetric"):
            found.append(case(source, theirs.CenterCropOrPad((100, 126), padding_mode=mode)))
    return found


def sizes() -> list[dict[str, object]]:
    """Those that are halves before they are rounded are among them."""
    random.seed(20261123)
    found = []
    for _ in range(200):
        w, h = random.choice([(random.randint(1, 3000), random.randint(1, 3000)), (500, 375), (75, 50)])
        to = random.choice([[224, 224], [32, 48], [20, 100], [random.randint(1, 600), random.randint(1, 600)]])
        longest = random.choice([0.0, 1.0, 0.5, random.random()])
        made = theirs.ResizeKeepRatio.get_params(Image.new("L", (w, h)), to, longest)
        found.append({"w": w, "h": h, "to": to, "longest": longest, "made": made})
    return found


if __name__ == "__main__":
    out = {"timm": timm.__version__, "cases": cases(), "sizes": sizes()}
    text = json.dumps(out).replace('}, {"', '},\n{"')
    (HERE / "timm.json").write_text(text + "\n")

"""How far torchvision's PIL pixels are from its uint8 tensor pixels, which are stoker's: python -m bench.pil --out F.

For each operation with fixed parameters, over the six photographs of testdata at 256 x 256: the mean difference and the
largest, of 255. It takes torchvision and Pillow alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torchvision
from PIL import Image
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as F

from bench import rig

LINEAR = InterpolationMode.BILINEAR
AFFINE: dict[str, Any] = {"angle": 10.0, "translate": [3, 5], "scale": 0.9, "shear": [5.0, 0.0]}
CORNERS = [[0, 0], [255, 0], [255, 255], [0, 255]], [[10, 5], [240, 12], [250, 244], [6, 230]]
CASES: dict[str, Any] = {
    "brightness 1.4": lambda p: F.adjust_brightness(p, 1.4),
    "contrast 1.4": lambda p: F.adjust_contrast(p, 1.4),
    "saturation 1.4": lambda p: F.adjust_saturation(p, 1.4),
    "hue 0.1": lambda p: F.adjust_hue(p, 0.1),
    "sharpness 2": lambda p: F.adjust_sharpness(p, 2.0),
    "autocontrast": F.autocontrast,
    "equalize": F.equalize,
    "invert": F.invert,
    "posterize 4": lambda p: F.posterize(p, 4),
    "solarize 128": lambda p: F.solarize(p, 128),
    "blur 9, sigma 1.5": lambda p: F.gaussian_blur(p, [9, 9], [1.5, 1.5]),
    "rotate 30, nearest": lambda p: F.rotate(p, 30.0),
    "rotate 30, bilinear": lambda p: F.rotate(p, 30.0, interpolation=LINEAR),
    "affine, nearest": lambda p: F.affine(p, **AFFINE),
    "affine, bilinear": lambda p: F.affine(p, **AFFINE, interpolation=LINEAR),
    "perspective, bilinear": lambda p: F.perspective(p, *CORNERS, interpolation=LINEAR),
}


def apart(operation: Any) -> dict[str, float]:
    """The differences of one operation over all photographs."""
    found = []
    for path in sorted((rig.ROOT / "testdata" / "photos").glob("*.jpg")):
        picture = F.center_crop(F.resize(Image.open(path).convert("RGB"), 256), [256, 256])
        of_pil = F.pil_to_tensor(operation(picture)).numpy().astype(int)
        found.append(np.abs(of_pil - operation(F.pil_to_tensor(picture)).numpy()))
    every = np.stack(found)
    return {"mean": round(float(every.mean()), 3), "most": int(every.max())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rig.may_write(args.out)
    document: dict[str, Any] = {
        "question": "torchvision's pixels for PIL images beside those for uint8 tensors",
        "machine": rig.machine(rig.first_cpus(2)),
        "settings": rig.settings(args),
        "versions": {"torchvision": torchvision.__version__.partition("+")[0], "Pillow": PIL.__version__},
    }
    rows, figures = [], {}
    for name, operation in CASES.items():
        numbers = apart(operation)
        rows.append([name, f"{numbers['mean']:.3f}", f"{numbers['most']:.0f}"])
        figures |= {f"{name}-{key}": value for key, value in numbers.items()}
    print(rig.table(["operation", "mean", "most"], rows))
    return rig.finish(args.out, document, [], [], figures, [0.0])


if __name__ == "__main__":
    raise SystemExit(main())

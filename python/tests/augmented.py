"""Chains with every augmentation of the engine, and the pixels that they give. ``testdata/augment.json`` has both: the
operations as a Spec has them, and a digest of two epochs. The tests of the package make the chains of its objects,
those of the Go API and of the command read the operations; all must come to these pixels.

    PYTHONPATH=python/src:python/tests python -m augmented

adds what is new to ``testdata/augment.json``. What is written there already may not change: runs depend on it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import stoker
from stoker import transforms as T

FILE = Path(__file__).parents[2] / "testdata" / "augment.json"
PICTURES = 6

FRONT = T.Resize((36, 40), T.InterpolationMode.BICUBIC)
MIXED = [FRONT, T.ToTensor()]
HALF = [0.5, 0.5, 0.5]

# By name: the transform, and the batch transform.
CHAINS: dict[str, tuple[list[Any], Any]] = {
    "ColorJitter": ([FRONT, T.ColorJitter(0.4, 0.4, 0.4, 0.1)], None),
    "the colours": (
        [
            FRONT,
            T.RandomPhotometricDistort(),
            T.RandomInvert(),
            T.RandomPosterize(3),
            T.RandomSolarize(128),
            T.RandomAdjustSharpness(2.5),
            T.RandomAutocontrast(),
            T.RandomEqualize(),
            T.RandomChannelPermutation(),
        ],
        None,
    ),
    "RandAugment": ([FRONT, T.RandAugment(3, 11)], None),
    "TrivialAugmentWide": ([FRONT, T.TrivialAugmentWide(interpolation=T.InterpolationMode.BILINEAR)], None),
    "AutoAugment": ([FRONT, T.AutoAugment(T.AutoAugmentPolicy.IMAGENET)], None),
    "AugMix": ([FRONT, T.AugMix(alpha=0.7)], None),
    "RandomErasing": ([FRONT, T.RandomErasing(0.9, value=(9, 99, 200))], None),
    "RandomErasing of floats": (
        [FRONT, T.ToTensor(), T.RandomErasing(0.9, value="random"), T.Normalize(HALF, HALF)],
        None,
    ),
    "GaussianBlur": ([FRONT, T.GaussianBlur((5, 9), (0.3, 2.0))], None),
    "RandomRotation": ([FRONT, T.RandomRotation(40, T.InterpolationMode.BILINEAR, fill=7)], None),
    "RandomAffine": ([FRONT, T.RandomAffine(20, (0.1, 0.2), (0.8, 1.2), (-9, 9, -4, 4))], None),
    "RandomPerspective": ([FRONT, T.RandomPerspective(0.4, 0.8)], None),
    "RandomChoice": ([FRONT, T.RandomChoice([T.RandomInvert(0.5), T.RandomRotation(9)], p=[0.25, 0.75])], None),
    "RandomOrder": ([FRONT, T.RandomOrder([T.ColorJitter(0.3), T.RandomHorizontalFlip(), T.RandomPosterize(4)])], None),
    "RandomZoomOut": ([T.RandomZoomOut(5, (1.0, 2.0), 0.8), FRONT], None),
    "the sizes": (
        [T.RandomResize(20, 60), T.RandomShortestSize([24, 30, 40]), T.ScaleJitter((32, 32)), T.CenterCrop(28)],
        None,
    ),
    "bicubic": ([T.RandomResizedCrop(24, interpolation=T.InterpolationMode.BICUBIC), T.RandomHorizontalFlip()], None),
    "Views": (
        [
            T.Views(
                [T.RandomResizedCrop(20), T.ColorJitter(0.8, 0.8, 0.8, 0.2), T.RandomGrayscale(0.2), T.GaussianBlur(3)],
                [T.RandomResizedCrop(12, (0.05, 0.3)), T.RandomSolarize(128, 0.5)],
            )
        ],
        None,
    ),
    "MixUp": (MIXED, T.MixUp(alpha=0.4, num_classes=2)),
    "CutMix": ([FRONT], T.CutMix(num_classes=2)),
    "MixUp or CutMix": (MIXED, T.RandomChoice([T.MixUp(num_classes=2), T.CutMix(num_classes=2)])),
}


def pictures(root: Path) -> Path:
    """A folder of pictures that every language makes alike; see augment_test.go."""
    for i in range(PICTURES):
        width, height = 33 + 5 * i, 29 + 3 * (i * 2 % 5)
        k = np.arange(3 * width * height, dtype=np.int64)
        body = ((k * k * (i + 3) + k * 17 + i * 61) >> 4 & 255).astype(np.uint8).tobytes()
        path = root / "ab"[i % 2] / f"{i}.ppm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"P6 %d %d 255\n" % (width, height) + body)
    return root


def loaded(root: Path, name: str, **keywords: Any) -> stoker.DataLoader[Any]:
    transform, mix = CHAINS[name]
    data = stoker.ImageFolder(root, transform)
    return stoker.DataLoader(data, 3, shuffle=True, seed=7, output="numpy", batch_transform=mix, **keywords)


def digest(loader: stoker.DataLoader[Any]) -> str:
    """Of two epochs: the pictures as they are stored, and labels that were mixed."""
    found = hashlib.sha256()
    for _ in range(2):
        for batch in loader:
            views = batch[0] if isinstance(batch[0], (list, tuple)) else [batch[0]]
            for view in views:
                rows = view.transpose(0, 2, 3, 1) if view.dtype == np.uint8 else view
                found.update(np.ascontiguousarray(rows).tobytes())
            if batch[1].dtype == np.float32:
                found.update(np.ascontiguousarray(batch[1]).tobytes())
    return found.hexdigest()


def golden() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(FILE.read_text())
    return cases


if __name__ == "__main__":
    kept = golden() if FILE.exists() else []
    with tempfile.TemporaryDirectory() as folder:
        root = pictures(Path(folder))
        for name in [name for name in CHAINS if name not in {case["name"] for case in kept}]:
            with loaded(root, name) as loader:
                spec = loader._spec()
                (image, _) = spec["fields"]
                case = {"name": name, "transform": image["transform"]}
                if "batch_transform" in spec:
                    case["batch_transform"] = spec["batch_transform"]
                kept.append(case | {"sha256": digest(loader)})
    FILE.write_text("[\n" + ",\n".join(" " + json.dumps(case) for case in kept) + "\n]\n")

"""Writes mixes_torchvision.json: counts of what torchvision's MixUp and CutMix draw. torchvision 0.29.

    python mix.py
"""

import json
import os

import torch
import torchvision
from torchvision.transforms import v2

HERE = os.path.dirname(os.path.abspath(__file__))
DRAWS = 100_000


def counted(values: list[float], bins: int) -> list[int]:
    counts = [0] * bins
    for x in values:
        counts[min(max(int(x * bins // 1), 0), bins - 1)] += 1
    return counts


def main() -> None:
    assert torchvision.__version__.startswith("0.29"), torchvision.__version__
    torch.manual_seed(18)
    torch.set_num_threads(1)
    found = []
    for alpha in (0.1, 0.2, 0.4, 0.8, 1.0, 2.0, 8.0):
        mix = v2.MixUp(alpha=alpha, num_classes=10)
        lam = [mix.make_params([])["lam"] for _ in range(DRAWS)]
        found.append({"op": "MixUp", "alpha": alpha, "draws": DRAWS, "counts": {"lam": counted(lam, 20)}})
    for alpha, w, h in ((1.0, 224, 224), (0.2, 61, 97), (2.0, 32, 32)):
        cut = v2.CutMix(alpha=alpha, num_classes=10)
        pictures = [torch.zeros(1, 3, h, w)]
        drawn = [cut.make_params(pictures) for _ in range(DRAWS)]
        boxes = [one["box"] for one in drawn]
        counts = {
            "lam": counted([one["lam_adjusted"] for one in drawn], 20),
            "x1": counted([box[0] / w for box in boxes], 16),
            "y1": counted([box[1] / h for box in boxes], 16),
            "x2": counted([(box[2] - 0.5) / w for box in boxes], 16),
            "y2": counted([(box[3] - 0.5) / h for box in boxes], 16),
        }
        found.append({"op": "CutMix", "alpha": alpha, "w": w, "h": h, "draws": DRAWS, "counts": counts})
    with open(os.path.join(HERE, "mixes_torchvision.json"), "w") as file:
        json.dump(found, file, indent=1)
        file.write("\n")


main()

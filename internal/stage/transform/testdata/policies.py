"""What torchvision's automatic policies draw, for policies_test.go.

    .venv/bin/python internal/stage/transform/testdata/policies.py    # from the repository root

writes policies.json beside itself: all magnitudes of all operations, and how often each choice comes in 100,000 draws
(25,000 of AugMix) of pictures of 40 x 30 pixels. No pixels are computed.
"""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import torch
from torchvision.transforms import v2

HERE = Path(__file__).parent
DRAWS = 100_000
torch.manual_seed(18)


def magnitudes() -> list[dict[str, Any]]:
    out = []
    for height, width in ((1, 1), (30, 40), (224, 224), (333, 500), (4000, 6016)):
        for name, bins in (
            ("RandAugment", 31),
            ("RandAugment", 2),
            ("RandAugment", 10),
            ("RandAugment", 77),
            ("TrivialAugmentWide", 31),
            ("TrivialAugmentWide", 16),
            ("AugMix", 10),
        ):
            space = getattr(v2, name)._AUGMENTATION_SPACE
            for op, (law, signed) in space.items():
                values = law(bins, height, width)
                out.append({
                    "policy": name, "op": op, "bins": bins, "height": height, "width": width, "signed": signed,
                    "values": None if values is None else [float(v) for v in values],
                })  # fmt: skip
    return out


def recorded(policy: Any) -> list[str]:
    """The operations of each draw, as one text."""
    done: list[str] = []
    current: list[str] = []

    def record(image: Any, op: str, magnitude: float, **_: Any) -> Any:
        current.append(f"{op} {magnitude + 0.0:.5g}")
        return image

    policy._apply_image_or_video_transform = record
    picture = torch.zeros(3, 30, 40, dtype=torch.uint8)
    for _ in range(DRAWS):
        current.clear()
        policy(picture)
        done.append(", ".join(current))
    return done


def counted(texts: Any) -> dict[str, int]:
    return dict(sorted(collections.Counter(texts).items()))


def binned(values: list[float]) -> list[int]:
    counts = [0] * 20
    for v in values:
        counts[min(19, int(v * 20))] += 1
    return counts


def mixed(alpha: float, **arguments: Any) -> dict[str, Any]:
    """AugMix: weights, depths, and operations with their magnitudes."""
    policy = v2.AugMix(alpha=alpha, **arguments)
    inner = torch._sample_dirichlet
    weights: dict[str, list[float]] = {"picture": [], "first": [], "largest": []}

    def record(image: Any, op: str, magnitude: float, **_: Any) -> Any:
        ops.append(f"{op} {magnitude + 0.0:.5g}")
        return image

    def dirichlet(params: Any) -> Any:
        out = inner(params)
        if out.shape[1] == 2 and not given:
            weights["picture"].append(float(out[0, 0]))
            given.append(1)
        else:
            weights["first"].append(float(out[0, 0]))
            weights["largest"].append(float(out[0].max()))
        return out

    policy._apply_image_or_video_transform = record
    policy._sample_dirichlet = dirichlet
    picture = torch.zeros(3, 30, 40, dtype=torch.uint8)
    lengths, single = [], []
    for _ in range(DRAWS // 4):  # of 2 to 10 operations each
        ops: list[str] = []
        given: list[int] = []
        policy(picture)
        lengths.append(str(len(ops)))
        single += ops
    return {
        "policy": "AugMix",
        "arguments": {"alpha": alpha, **arguments},
        "draws": DRAWS // 4,
        "lengths": counted(lengths),
        "ops": counted(single),
        "weights": {name: binned(values) for name, values in weights.items()},
    }


def main() -> None:
    draws = []
    for name, arguments in (
        ("RandAugment", {}),
        ("TrivialAugmentWide", {}),
        ("AutoAugment", {"policy": v2.AutoAugmentPolicy.IMAGENET}),
        ("AutoAugment", {"policy": v2.AutoAugmentPolicy.CIFAR10}),
        ("AutoAugment", {"policy": v2.AutoAugmentPolicy.SVHN}),
    ):
        shown = {k: v.value for k, v in arguments.items()}
        texts = recorded(getattr(v2, name)(**arguments))
        draws.append({"policy": name, "arguments": shown, "draws": DRAWS, "ops": counted(texts)})
    draws.append(mixed(1.0))
    draws.append(mixed(0.2, severity=10, all_ops=False))
    draws.append(mixed(3.5, mixture_width=5, chain_depth=2))
    with (HERE / "policies.json").open("w") as f:
        lines = (",\n".join(json.dumps(one) for one in part) for part in (magnitudes(), draws))
        f.write('{"magnitudes": [\n' + next(lines) + '\n],\n"draws": [\n' + next(lines) + "\n]}\n")


if __name__ == "__main__":
    main()

"""What is decoded: groups of pictures by kind, each picture with the boxes that are cut out of it.

Pictures of DATA are taken as they are; kinds that it has too few of are one group, "others". So that there is a figure
of them, a group of each is made (its name ends in "made"): pictures of DATA, written again in that kind at quality 90
with Huffman tables of their own. "packed" is all of DATA rewritten with restart markers by stoker's own packing.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import pictures, rig

KINDS: dict[tuple[tuple[int, int], ...], str] = {
    ((1, 1), (1, 1), (1, 1)): "4:4:4",
    ((2, 2), (1, 1), (1, 1)): "4:2:0",
    ((2, 1), (1, 1), (1, 1)): "4:2:2",
    ((1, 2), (1, 1), (1, 1)): "4:4:0",
}
MADE = ("4:2:2", "4:4:0", "grey", "progressive")
ENOUGH = 20  # pictures of a kind, for a figure of it
OTHERS = "others"
PACKED = "packed"
BOXES = 3


@dataclass(frozen=True)
class Frame:
    """What the first frame header of a JPEG says."""

    width: int
    height: int
    kind: str


def frame(data: bytes) -> Frame | None:
    """None if the bytes are not a JPEG, or not one of grey or three colours."""
    at = 2
    while data[:2] == b"\xff\xd8" and at + 4 <= len(data) and data[at] == 0xFF:
        marker, size = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == 0xFF:  # a fill byte
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            segment = data[at + 4 : at + 2 + size]
            height, width, components = (
                int.from_bytes(segment[1:3], "big"),
                int.from_bytes(segment[3:5], "big"),
                segment[5],
            )
            factors = tuple((segment[7 + 3 * i] >> 4, segment[7 + 3 * i] & 15) for i in range(components))
            if components not in (1, 3) or not width or not height:
                return None
            kind = "grey" if components == 1 else KINDS.get(factors, "other")
            return Frame(width, height, kind if marker in (0xC0, 0xC1) else "progressive")
        else:
            at += 2 + size
    return None


def draw(rng: random.Random, width: int, height: int) -> list[int]:
    """[x, y, w, h] by torchvision's RandomResizedCrop.get_params with its own scale and ratio."""
    for _ in range(10):
        area = width * height * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return [rng.randint(0, width - w), rng.randint(0, height - h), w, h]
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return [(width - w) // 2, (height - h) // 2, w, h]


@dataclass
class Plan:
    """groups: by name, as JSON has them. found: the groups that are DATA itself, and together "all". left_out: files
    that are not decoded, and why."""

    path: Path
    groups: dict[str, list[dict[str, Any]]]
    found: list[str]
    left_out: dict[str, str]

    @property
    def boxes(self) -> list[tuple[float, float]]:
        """Of all boxes of DATA: the share of the area, and how far down the lower edge is."""
        return [
            (box["w"] * box["h"] / (one["w"] * one["h"]), (box["y"] + box["h"]) / one["h"])
            for name in self.found
            for one in self.groups[name]
            for box in one["boxes"]
        ]


def build(data: Path, folder: Path, native: Path, seed: int, most: int) -> Plan:
    paths = [path for _, path in pictures.find(data.resolve())]
    if most:
        paths = sorted(random.Random(seed).sample(paths, min(most, len(paths))))
    kinds: dict[str, list[Path]] = {}
    left_out = {}
    for path, why in zip(paths, _native(native, ["check"], paths).split("\n"), strict=False):
        seen = frame(path.read_bytes())
        if why or seen is None:
            left_out[str(path)] = why or "not grey and not of three colours"
        else:
            kinds.setdefault(seen.kind, []).append(path)
    if not kinds:
        raise SystemExit(f"{data}: no JPEG in it that is grey or of three colours")
    groups = {name: kinds[name] for name in sorted(kinds, key=lambda name: -len(kinds[name]))}
    few = [name for name, group in groups.items() if len(group) < ENOUGH]
    if few:
        groups[OTHERS] = [path for name in few for path in groups.pop(name)]
    found = list(groups)
    ready = [path for group in groups.values() for path in group]
    groups |= _make(ready, [kind for kind in MADE if kind not in groups], folder / "made")
    rng = random.Random(seed)
    boxed = {name: [_boxed(path, rng) for path in group] for name, group in groups.items()}
    untouched = [one for name in found for one in boxed[name]]
    packed = _pack(ready, native, folder / PACKED)
    boxed[PACKED] = [{**one, "path": str(path)} for one, path in zip(untouched, packed, strict=True)]
    plan = Plan(folder / "plan.json", boxed, found, left_out)
    plan.path.write_text(json.dumps(boxed))
    return plan


def _boxed(path: Path, rng: random.Random) -> dict[str, Any]:
    seen = frame(path.read_bytes())
    assert seen
    boxes = [dict(zip("xywh", draw(rng, seen.width, seen.height), strict=True)) for _ in range(BOXES)]
    return {"path": str(path), "w": seen.width, "h": seen.height, "boxes": boxes}


def _make(paths: Sequence[Path], kinds: Sequence[str], folder: Path) -> dict[str, list[Path]]:
    """Of an even choice of the pictures, three times as many as are enough."""
    python = rig.python_of(".venv-bench/jpeg")
    if not python.exists():
        rig.say(f"{', '.join(kinds)}: not made: no .venv-bench/jpeg; bench/setup.py makes it")
        return {}
    step = max(1, len(paths) // (3 * ENOUGH))
    chosen = list(paths[::step])[: 3 * ENOUGH]
    made = {}
    for kind in kinds:
        out = folder / kind.replace(":", "")
        out.mkdir(parents=True)
        subprocess.run([python, "-m", "bench.jpeg.make", kind, out, *chosen], cwd=rig.ROOT, check=True)
        made[f"{kind} made"] = sorted(out.iterdir())
    return made


def _pack(paths: Sequence[Path], native: Path, folder: Path) -> list[Path]:
    folder.mkdir()
    _native(native, ["pack", str(folder)], paths)
    return sorted(folder.iterdir())


def _native(native: Path, arguments: Sequence[str], paths: Sequence[Path]) -> str:
    names = "".join(f"{path}\n" for path in paths)
    return subprocess.run([native, *arguments], input=names, stdout=subprocess.PIPE, text=True, check=True).stdout

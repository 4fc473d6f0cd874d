"""Each operation beside torchvision's, with the same choices: python -m bench.sheet [--out FILE].jpg, under .venv.

A row is an operation of bench.augment on the six photographs of testdata, 256 x 256: what stoker makes, what
torchvision's uint8 kernels make of the choices that `explain` tells, and how far values are apart, 16 times as bright,
the most of each block of pixels. How choices are done by torchvision is what the tests use: python/tests/replay.py.
An operation that is not there yet keeps its row, which says what is missing. The numbers are printed, too.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import stoker
import torch
from PIL import Image, ImageDraw, ImageFont
from stoker import transforms as T
from torchvision.transforms.v2 import functional as F

from bench import rig
from bench.augment.make import program
from bench.augment.operations import OPERATIONS, SIDE, Operation, torchvision_of

PHOTOS = sorted((rig.ROOT / "testdata" / "photos").glob("*.jpg"))
FRONT = [T.Resize(SIDE), T.CenterCrop(SIDE)]  # what comes before every operation
SEED = 11
THUMB, GAP, LABEL, BRIGHTER = 56, 4, 168, 16
MOST = 300_000  # bytes of the sheet

Replay = Callable[[torch.Tensor, dict[str, Any], Any], torch.Tensor]


def _resized(picture: torch.Tensor, choice: dict[str, Any], t: Any) -> torch.Tensor:
    size = [choice["to_height"], choice["to_width"]]
    if "stored_top" in choice:
        box = [choice[key] for key in ("top", "left", "height", "width")]
        return F.resized_crop(picture, *box, size, t.interpolation, True)
    return F.resize(picture, size, t.interpolation, antialias=True)


def _zoomed_out(picture: torch.Tensor, choice: dict[str, Any], _: Any) -> torch.Tensor:
    return F.pad(picture, [choice[f"pad_{side}"] for side in ("left", "top", "right", "bottom")], fill=0)


def replays() -> dict[str, Replay]:
    """Those of the tests, and of operations that have goldens instead."""
    resizes = ("Resize", "RandomResizedCrop", "RandomResize", "RandomShortestSize", "ScaleJitter")
    found: dict[str, Replay] = {**dict.fromkeys(resizes, _resized), "RandomZoomOut": _zoomed_out}
    tests = rig.ROOT / "python" / "tests"
    if (tests / "replay.py").exists():
        sys.path.insert(0, str(tests))
        from replay import OPERATIONS as of_tests

        found |= of_tests
    return found


def made(transform: list[Any]) -> Iterator[tuple[np.ndarray, list[dict[str, Any]]]]:
    """Of each photograph: what the engine makes of it, (C, H, W), and what was chosen."""
    loader = stoker.DataLoader(stoker.files(PHOTOS, transform=transform), batch_size=1, seed=SEED, output="numpy")
    for step, batch in enumerate(loader):
        (row,) = loader.explain(step)["rows"]
        yield np.array(batch[0][0]), row["choices"]["image"]


@dataclass
class Row:
    name: str
    problem: str = ""
    pairs: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # stoker's and torchvision's

    def apart(self) -> np.ndarray:
        return np.concatenate([np.abs(a.astype(int) - b).ravel() for a, b in self.pairs])


def compared(operation: Operation, known: dict[str, Replay], before: list[np.ndarray]) -> Row:
    row = Row(operation.name)
    if "missing" in program(operation):
        row.problem = "stoker: not yet"
        return row
    transform = torchvision_of(operation)
    for picture, (got, choices) in zip(before, made([*FRONT, transform]), strict=True):
        want = torch.from_numpy(picture)
        for choice in choices[1:]:  # Resize is FRONT's; cutting the middle has none that explain tells twice
            if choice["op"] == "CenterCrop":
                continue
            if choice["op"] not in known:
                row.problem = f"replay: no {choice['op']}"
                return row
            want = known[choice["op"]](want, choice, transform)
        if tuple(want.shape) != got.shape:
            row.problem = f"{list(got.shape)}, not {list(want.shape)}"
            return row
        row.pairs.append((got, want.numpy()))
    return row


def thumb(picture: np.ndarray) -> Image.Image:
    return Image.fromarray(picture.transpose(1, 2, 0)).resize((THUMB, THUMB), Image.Resampling.BOX)


def difference(a: np.ndarray, b: np.ndarray) -> Image.Image:
    """The most of each block, so that a thumbnail hides nothing."""
    apart = np.abs(a.astype(int) - b).max(axis=0)
    high, wide = (-(-n // THUMB) for n in apart.shape)
    padded = np.zeros((high * THUMB, wide * THUMB), int)
    padded[: apart.shape[0], : apart.shape[1]] = apart
    blocks = padded.reshape(THUMB, high, THUMB, wide).max(axis=(1, 3))
    return Image.fromarray(np.minimum(blocks * BRIGHTER, 255).astype(np.uint8))


def said(row: Row) -> str:
    if row.problem:
        return row.problem
    apart = row.apart()
    return f"equal {100 * np.mean(apart == 0):.2f} %\nmost {apart.max()}, 99.9 %: {int(np.quantile(apart, 0.999))}"


def draw(rows: list[Row]) -> Image.Image:
    font = ImageFont.load_default(11)
    width = LABEL + len(PHOTOS) * (3 * THUMB + GAP)
    sheet = Image.new("RGB", (width, 20 + len(rows) * (THUMB + GAP)), "white")
    pen = ImageDraw.Draw(sheet)
    for i in range(len(PHOTOS)):
        for j, title in enumerate(("stoker", "torchv.", f"apart x{BRIGHTER}")):
            pen.text((LABEL + i * (3 * THUMB + GAP) + j * THUMB + 2, 3), title, "black", font)
    for number, row in enumerate(rows):
        y = 20 + number * (THUMB + GAP)
        pen.text((4, y + 6), f"{row.name}\n{said(row)}", "black" if not row.problem else "firebrick", font)
        for i, (a, b) in enumerate(row.pairs):
            x = LABEL + i * (3 * THUMB + GAP)
            for j, image in enumerate((thumb(a), thumb(b), difference(a, b))):
                sheet.paste(image, (x + j * THUMB, y))
    return sheet


def small(sheet: Image.Image) -> bytes:
    """As a JPEG of the best quality that is not larger than MOST."""
    for quality in range(90, 20, -5):
        out = io.BytesIO()
        sheet.save(out, "JPEG", quality=quality, optimize=True, progressive=True)
        if len(out.getvalue()) <= MOST:
            break
    return out.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sheet", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=rig.ROOT / "build" / "augmentations.jpg")
    parser.add_argument("--operations", default="", help=f"of {', '.join(OPERATIONS)}")
    args = parser.parse_args()
    chosen = [one for one in OPERATIONS.values() if not args.operations or one.name in args.operations.split(",")]
    known = replays()
    before = [picture for picture, _ in made(FRONT)]
    rows = [compared(operation, known, before) for operation in chosen]
    for row in rows:
        print(f"{row.name:28} {said(row)}".replace("\n", ", "))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_bytes(small(draw(rows)))
    print(f"{args.out}: {args.out.stat().st_size} bytes")
    return 0 if not any(row.problem for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())

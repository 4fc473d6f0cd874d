"""What torchvision gives, for the Go tests of this package.

    PYTHONPATH=python/src .venv/bin/python internal/stage/transform/testdata/make.py    # from the repository root

writes beside itself: the sources (regions of testdata/photos as PNG), cases.json and expected.bin.gz (results of
torchvision v2 on the same pictures; random regions are those of draws.json), and histograms.json (regions drawn by
torchvision's RandomResizedCrop).
"""

from __future__ import annotations

import gzip
import json
import math
import warnings
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from stoker._compile import to_ops
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
PHOTOS = ROOT / "testdata" / "photos"
warnings.simplefilter("ignore")


def sources() -> None:
    Image.open(PHOTOS / "chelsea.jpg").convert("RGB").crop((110, 70, 230, 160)).save(HERE / "wide.png", optimize=True)
    Image.open(PHOTOS / "coffee.jpg").convert("RGB").resize((300, 200)).crop((100, 20, 161, 117)).save(
        HERE / "tall.png", optimize=True
    )
    Image.open(PHOTOS / "astronaut.jpg").convert("L").resize((128, 128)).crop((20, 10, 100, 70)).save(
        HERE / "gray.png", optimize=True
    )


    # Every byte once in every channel, each channel in an order of its own.
    levels = np.stack([np.arange(256) * by % 256 for by in (1, 3, 77)], axis=-1).astype(np.uint8)
    Image.fromarray(levels.reshape(16, 16, 3)).save(HERE / "levels.png", optimize=True)


class Set:
    def __init__(self) -> None:
        self.cases: list[dict[str, object]] = []
        self.blob = bytearray()

    def add(self, name, source, transforms, *, codec="rgb", layout="", pil=False, draw=None, place=None, expect=None):
        """One case: what ``transforms`` (or ``expect``, where something is drawn) make of a picture."""
        path = HERE / source if (HERE / source).exists() else PHOTOS / source
        picture = Image.open(path).convert("RGB" if codec == "rgb" else "L")
        if not pil:
            picture = F.pil_to_tensor(picture)
        result = v2.Compose(expect or transforms)(picture)
        if isinstance(result, Image.Image):
            result = F.pil_to_tensor(result)
        dtype = str(result.dtype).removeprefix("torch.")
        array = result.view(torch.int16).numpy() if dtype == "bfloat16" else result.numpy()
        if array.dtype == np.uint8 or layout == "nhwc":
            array = array.transpose(1, 2, 0)
        data = np.ascontiguousarray(array).tobytes()
        case = {
            "name": name,
            "source": source,
            "codec": codec,
            "layout": layout,
            "ops": to_ops(transforms, name),
            "draw": draw,
            "place": place,
            "dtype": dtype,
            "shape": list(array.shape),
            "offset": len(self.blob),
        }
        self.cases.append(case)
        self.blob += data

    def write(self) -> None:
        (HERE / "cases.json").write_text(json.dumps(self.cases, indent=1) + "\n")
        (HERE / "expected.bin.gz").write_bytes(gzip.compress(bytes(self.blob), 9, mtime=0))


def halves(s: Set) -> None:
    """Every byte as float16 and bfloat16, in channels with different numbers."""
    norms = [
        ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
        ((0.1307,), (0.3081,)),
        ((0.5,), (0.5,)),
        ((0.0, 0.5, 1.0), (1.0, 0.0039, 7.0)),
        ((-0.25, 1e-5, 0.9999), (-0.3, 1e-3, 60.0)),
    ]
    for dtype in (torch.float16, torch.bfloat16):
        scaled, whole = v2.ToDtype(dtype, scale=True), v2.ToDtype(dtype)
        name = str(dtype).removeprefix("torch.")
        s.add(f"{name}, scaled", "levels.png", [scaled])
        s.add(f"{name}, whole", "levels.png", [whole])
        s.add(f"{name}, converted", "levels.png", [v2.ConvertImageDtype(dtype)], layout="nhwc")
        for mean, std in norms:
            normal = v2.Normalize(mean, std)
            first = v2.ToDtype(torch.float32, scale=True)
            s.add(f"{name}, normalised", "levels.png", [scaled, normal])
            s.add(f"{name} of normalised", "levels.png", [first, normal, whole])
            s.add(f"{name}, normalised twice", "levels.png", [scaled, normal, v2.Normalize([0.1], [2.0])], layout="nhwc")
            times255 = v2.Normalize([255 * v for v in mean], [255 * v for v in std])
            s.add(f"{name}, whole and normalised", "levels.png", [whole, times255])
            s.add(f"{name} of whole and normalised", "levels.png", [v2.ToDtype(torch.float32), times255, scaled])
            if len(mean) == 1:
                s.add(f"grey {name}", "gray.png", [scaled, normal], codec="gray")
                s.add(f"grey {name} of normalised", "gray.png", [first, normal, whole], codec="gray", layout="nhwc")
        moved = [scaled, v2.Pad(2, fill=1.0), v2.Normalize([0.4], [0.3]), v2.RandomHorizontalFlip(1.0), v2.CenterCrop(15)]
        s.add(f"{name}, moved", "levels.png", moved)
        nearest = v2.Resize((9, 14), interpolation="nearest")
        s.add(f"{name}, normalised before geometry", "tall.png", [scaled, nearest, v2.Normalize([0.4], [0.3])])


def region(box, size, mode="bilinear"):
    x, y, w, h = box
    return v2.Lambda(lambda p: F.resized_crop(p, y, x, h, w, size, interpolation=v2.InterpolationMode(mode)))


def chosen(op: str, place: int) -> list[dict[str, object]]:
    """What the example of an operation chooses for wide.png at this place: choices.json never changes."""
    return json.loads(json.loads((HERE / "choices.json").read_text())[op][place])


def sizes(s: Set) -> None:
    """Random sizes, as chosen, and as torchvision draws them where there is one possibility."""
    cubic = v2.InterpolationMode.BICUBIC
    for make in (
        lambda **how: v2.RandomResize(40, 80, **how),
        lambda **how: v2.RandomShortestSize([40, 50, 60], 70, **how),
        lambda **how: v2.ScaleJitter((70, 60), (0.5, 1.5), **how),
    ):
        op = type(make()).__name__
        for place, how in enumerate(({}, {"interpolation": cubic}, {"interpolation": "nearest"})):
            (choice,) = chosen(op, place)
            expect = [v2.Resize((choice["to_height"], choice["to_width"]), **how)]
            s.add(op, "wide.png", [make(**how)], place=place, expect=expect, codec="gray" if place else "rgb")
    for place in (1, 3):
        (choice,) = chosen("RandomZoomOut", place)
        padding = [choice[f"pad_{side}"] for side in ("left", "top", "right", "bottom")]
        expect = [v2.Pad(padding, fill=(9, 200, 77))]
        s.add("RandomZoomOut", "wide.png", [v2.RandomZoomOut((9, 200, 77))], place=place, expect=expect)
    for source in ("wide.png", "tall.png"):
        small = v2.Resize(20)
        s.add("one size", source, [small, v2.RandomResize(40, 41)])
        s.add("one shortest size", source, [small, v2.RandomShortestSize(40, 50)])
        s.add("one scale", source, [small, v2.ScaleJitter((70, 60), (0.7, 0.7))])
        s.add("zoom by one", source, [small, v2.RandomZoomOut(3, (1, 1), 1.0), v2.RGB()])
    s.add("grey to colours", "gray.png", [v2.CenterCrop(20), v2.RGB()], codec="gray")
    s.add("grey to colours late", "gray.png", [v2.ToDtype(torch.float32, scale=True), v2.RGB()], codec="gray")


def holders(s: Set) -> None:
    def did(choice):
        if "flipped" in choice:
            return v2.RandomVerticalFlip(float(choice["flipped"]))
        return v2.Pad(8) if choice["op"] == "Pad" else v2.CenterCrop(64)

    held = [v2.CenterCrop(64), v2.RandomVerticalFlip(), v2.Identity()]
    ordered = [v2.CenterCrop(64), v2.Pad(8), v2.RandomVerticalFlip()]
    for transform in (v2.RandomChoice(held, p=[1, 2, 1]), v2.RandomOrder(ordered)):
        op = type(transform).__name__
        for place in range(3):
            expect = [v2.Identity(), *map(did, chosen(op, place)[1:])]
            s.add(op, "wide.png", [transform], place=place, expect=expect, codec="gray")
    s.add("one choice", "tall.png", [v2.RandomChoice([v2.Resize(30), v2.CenterCrop(20)], p=[0, 3])])
    s.add("one order", "tall.png", [v2.RandomOrder([v2.Compose([v2.Resize(30), v2.CenterCrop(20)])])])


def cases() -> None:
    s = Set()
    for source in ("wide.png", "tall.png"):
        s.add("shorter edge", source, [v2.Resize(40)])
        s.add("shorter edge, at most", source, [v2.Resize(40, max_size=50)])
        s.add("longer edge", source, [v2.Resize(None, max_size=45)])
        s.add("shrunk", source, [v2.Resize((17, 33))])
        s.add("nearest", source, [v2.Resize((31, 47), interpolation="nearest")])
        exact = v2.InterpolationMode.NEAREST_EXACT
        s.add("nearest-exact", source, [v2.Resize((31, 47), interpolation=exact)])
        cubic = v2.InterpolationMode.BICUBIC
        s.add("bicubic", source, [v2.Resize((31, 47), interpolation=cubic)])
        s.add("bicubic, shrunk much", source, [v2.Resize((9, 11), interpolation=cubic)])
        s.add("bicubic, enlarged", source, [v2.CenterCrop((20, 15)), v2.Resize((73, 41), interpolation=cubic)])
        s.add("evaluation", source, [v2.Resize(36), v2.CenterCrop(32)])
        s.add("odd centre", source, [v2.CenterCrop((31, 44))])
        s.add("flip and shrink", source, [v2.RandomHorizontalFlip(1.0), v2.Resize((21, 24))])
    s.add("enlarged", "tall.png", [v2.CenterCrop((20, 15)), v2.Resize((41, 38))])
    s.add("one way enlarged", "wide.png", [v2.CenterCrop((16, 60)), v2.Resize((45, 19))])
    s.add("as it is", "tall.png", [v2.CenterCrop(24), v2.Resize(24)])
    s.add("centre of less", "tall.png", [v2.CenterCrop((30, 76))])
    s.add("centre of much less", "tall.png", [v2.Resize((15, 12)), v2.CenterCrop((20, 19))])
    small = v2.CenterCrop((18, 22))
    s.add("pad", "wide.png", [small, v2.Pad(3)])
    s.add("pad coloured", "wide.png", [small, v2.Pad((1, 2), fill=(9, 200, 77))])
    s.add("pad edge", "wide.png", [small, v2.Pad((1, 2, 3, 4), padding_mode="edge")])
    s.add("pad reflect", "wide.png", [small, v2.Pad((5, 2, 3, 7), padding_mode="reflect")])
    s.add("pad symmetric", "wide.png", [small, v2.Pad((5, 2, 3, 7), padding_mode="symmetric")])
    s.add("pad far", "wide.png", [v2.CenterCrop((5, 4)), v2.Pad(11, padding_mode="reflect")], pil=True)
    s.add("pad and centre", "wide.png", [small, v2.Pad(6, fill=50), v2.CenterCrop((26, 12))])
    s.add(
        "pad, flip, centre",
        "tall.png",
        [small, v2.Pad((2, 9), padding_mode="edge"), v2.RandomVerticalFlip(1.0), v2.CenterCrop((33, 24))],
    )
    s.add("crop of all", "wide.png", [small, v2.RandomCrop((26, 30), padding=4, fill=3)])
    s.add("flips", "wide.png", [small, v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(1.0)])
    s.add("no flips", "wide.png", [small, v2.RandomHorizontalFlip(0.0), v2.RandomApply([v2.Resize(3)], p=0.0)])
    s.add("apply", "wide.png", [small, v2.RandomApply([v2.Resize(9), v2.RandomVerticalFlip(1.0)], p=1.0)])
    s.add("grey", "wide.png", [small, v2.Grayscale()], pil=True)
    s.add("grey in three", "wide.png", [v2.Grayscale(3), v2.Resize((24, 26))], pil=True)
    s.add("grey always", "wide.png", [v2.Resize((24, 26)), v2.RandomGrayscale(1.0)], pil=True)
    s.add("grey codec", "wide.png", [v2.Resize((24, 26))], codec="gray")
    s.add("grey source", "gray.png", [v2.Resize((24, 26))])
    s.add("grey source and codec", "gray.png", [v2.Resize((24, 26)), v2.Grayscale(3)], codec="gray", pil=True)

    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    normal = v2.Normalize(mean, std)
    scaled = v2.ToDtype(torch.float32, scale=True)
    tiny = v2.CenterCrop((12, 16))
    s.add("floats", "wide.png", [tiny, v2.ToTensor()], pil=True)
    s.add("floats unscaled", "wide.png", [tiny, v2.ToImage(), v2.ToDtype(torch.float32)], pil=True)
    s.add("normalised", "wide.png", [tiny, v2.ToTensor(), normal], pil=True)
    s.add(
        "normalised nhwc", "wide.png", [tiny, v2.PILToTensor(), v2.ConvertImageDtype(), normal], pil=True, layout="nhwc"
    )
    s.add("normalised twice", "wide.png", [tiny, scaled, normal, v2.Normalize([0.1], [2.0])])
    s.add("normalised before geometry", "tall.png", [scaled, normal, v2.RandomHorizontalFlip(1.0), tiny])
    s.add("padded as floats", "tall.png", [tiny, scaled, v2.Pad(2, fill=1.0), normal, v2.Pad(3, padding_mode="edge")])
    s.add("nearest of floats", "tall.png", [scaled, v2.Resize((9, 14), interpolation="nearest"), normal])
    s.add("grey floats", "gray.png", [tiny, scaled, v2.Normalize([0.5], [0.5])], codec="gray")
    s.add("bytes again", "gray.png", [tiny, scaled, v2.ToDtype(torch.uint8, scale=True)])

    for n, d in enumerate(json.loads((HERE / "draws.json").read_text())):
        source = {(120, 90): "wide.png", (61, 97): "tall.png"}.get((d["w"], d["h"]))
        if source is None:
            continue
        law = {"scale": tuple(d["scale"]), "ratio": tuple(d["ratio"])}
        flip = d["acts"][1]  # operation 1
        ours = [v2.RandomResizedCrop((24, 28), **law), v2.RandomHorizontalFlip()]
        s.add("region", source, ours, draw=n, expect=[region(d["box"], (24, 28)), v2.RandomHorizontalFlip(float(flip))])
    nearest = [v2.RandomResizedCrop((24, 28), interpolation="nearest")]
    box = json.loads((HERE / "draws.json").read_text())[2]["box"]
    cubic = [v2.RandomResizedCrop((24, 28), interpolation=v2.InterpolationMode.BICUBIC)]
    s.add("bicubic region", "wide.png", cubic, draw=2, expect=[region(box, (24, 28), "bicubic")])
    s.add("nearest region", "wide.png", nearest, draw=2, expect=[region(box, (24, 28), "nearest")])

    for photo in sorted(p.name for p in PHOTOS.glob("*.jpg")):
        s.add("photo", photo, [v2.Resize(40), v2.CenterCrop((32, 36))])
        s.add("region of a photo", photo, [v2.CenterCrop((61, 73)), v2.Resize((23, 30))])
        s.add("bicubic photo", photo, [v2.Resize(40, interpolation=v2.InterpolationMode.BICUBIC)])
    s.add("grey photo", "chelsea.jpg", [v2.CenterCrop(40)], codec="gray", pil=True)
    sizes(s)
    holders(s)
    halves(s)
    s.write()


def histograms() -> None:
    out = []
    torch.manual_seed(20240229)
    laws = [
        ((500, 375), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((1000, 240), (0.08, 1.0), (3 / 4, 4 / 3)),
        ((40, 64), (0.25, 1.0), (0.5, 2.0)),
        ((300, 300), (0.5, 0.9), (1.0, 1.0)),
    ]
    for (w, h), scale, ratio in laws:
        draw = v2.RandomResizedCrop(8, scale=scale, ratio=ratio).make_params
        picture = [torch.empty(3, h, w, dtype=torch.uint8)]
        counts = {"area": [0] * 20, "aspect": [0] * 20, "x": [0] * 10, "y": [0] * 10, "joint": [0] * 25}

        def place(x: float, n: int) -> int:
            return min(max(math.floor(x * n), 0), n - 1)

        for _ in range(100_000):
            p = draw(picture)
            bw, bh = p["width"], p["height"]
            area = bw * bh / (w * h)
            aspect = 0.5
            if ratio[0] < ratio[1]:
                aspect = (math.log(bw / bh) - math.log(ratio[0])) / (math.log(ratio[1]) - math.log(ratio[0]))
            counts["area"][place(area, 20)] += 1
            counts["aspect"][place(aspect, 20)] += 1
            counts["x"][place((p["left"] + 0.5) / (w - bw + 1), 10)] += 1
            counts["y"][place((p["top"] + 0.5) / (h - bh + 1), 10)] += 1
            counts["joint"][place(area, 5) * 5 + place(aspect, 5)] += 1
        out.append({"w": w, "h": h, "scale": scale, "ratio": ratio, "draws": 100_000, **counts})
    (HERE / "histograms.json").write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    sources()
    cases()
    histograms()

"""Batches on a GPU: python -m bench.gpu [--data F].

Each part is a process of its own with a limit, and the file is written after each, so that a part that fails or hangs
costs only itself. Nothing but Python, torch, torchvision and an engine is needed; without --data, the photographs that
come with the sources are read, each under many names.

    bus        bytes per second of the loader's copies (by events of the device), against one large pinned copy
    cpu        CPU of the training process a batch, against torch's DataLoader with pin_memory and .to
    train      ResNet-50, bfloat16, channels_last, batch 256, against the same loop over one batch that stays there
    first      time to the first batch on the device, against torch's DataLoader with as many workers
    two_cores  the loop of train, all of it on two cores, against torch's DataLoader and a prefetcher on a side stream
    augment    ColorJitter and RandAugment of a batch of 256 on the device, against Kornia's modules, where it is
               installed, and against torchvision's v2, picture by picture
    floats     cast, normalise and layout of a batch of 256 by one kernel, against four of torch's operators, and its
               bytes per second, read and written, against the device's own copy; where Triton can run
    decode     photographs of 2,000 pixels, on two cores: decode_device="cuda", against the engine's decoder, and
               against decode_jpeg on lists and a resized_crop of each picture; DALI's pipeline, where it is installed
    strips     packed photographs, on two cores: strips against whole files, decoded on the device, and the best share
    graph      a small network as a CUDA graph over static_buffers, against that graph over one batch

Ratios are of one run on one machine. A figure that is not reached stays in the file, with what was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SIDE, BATCH, NAMES = 224, 256, 12_288
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# figure: part, key, limit, which way
FIGURES = {
    "copies against the bus": ("bus", "ratio", 0.9, "high"),
    "CPU of the process a batch against DataLoader": ("cpu", "ratio", 0.3, "low"),
    "images/s of photographs against a batch that stays": ("train", "ratio", 0.97, "high"),
    "share of the device's time that waits for data": ("train", "device_waits", 0.01, "low"),
    "first batch against DataLoader": ("first", "ratio", 1.0, "low"),
    "two cores, images/s against DataLoader": ("two_cores", "ratio", 2.0, "high"),
    "augmenting a batch there against Kornia": ("augment", "kornia", 1.5, "high"),
    "augmenting a batch there against torchvision, picture by picture": ("augment", "torchvision", 5.0, "high"),
    "floats by one kernel against four operators": ("floats", "against_operators", 2.5, "high"),
    "floats by one kernel against the device's own copy": ("floats", "against_copy", 0.6, "high"),
    "photographs of 2,000 pixels, two cores: decoding there against the engine": ("decode", "cpu", 2.0, "high"),
    "photographs of 2,000 pixels, two cores: against decode_jpeg and resized_crop": ("decode", "lists", 1.2, "high"),
    "packed photographs, two cores: strips against whole files": ("strips", "whole", 1.0, "high"),
    "packed photographs, two cores: the best share against the better side": ("strips", "share", 1.0, "high"),
    "a CUDA graph over static_buffers against one batch": ("graph", "ratio", 0.97, "high"),
}
LARGE, LARGE_SIDE = 2048, 2000  # names of large photographs, and their longer side
PACKED = 1536  # photographs that are packed
SHARES = (4, 8, 10, 12, 14)  # sixteenths that are tried


@contextlib.contextmanager
def photographs(data: Path | None) -> Iterator[Path]:
    """A folder of pictures in classes: the given one, or the six of testdata under many names."""
    if data is not None:
        yield data
        return
    photos = sorted((ROOT / "testdata" / "photos").glob("*.jpg"))
    with tempfile.TemporaryDirectory(prefix="stoker-gpu-") as name:
        for number in range(NAMES):
            link = Path(name) / f"class{number % 10}" / f"{number:06d}.jpg"
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(photos[number % len(photos)])
        yield Path(name)


def stoker_photographs(folder: Path, **keywords: Any) -> Any:
    import stoker

    T = stoker.transforms
    steps = T.Compose([T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip()])
    dataset = stoker.ImageFolder(folder, steps)
    return stoker.DataLoader(dataset, BATCH, shuffle=True, drop_last=True, device="cuda", **keywords)


def torch_photographs(folder: Path, workers: int) -> Any:
    import torch
    from torchvision.datasets import ImageFolder
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    steps = v2.Compose([v2.RandomResizedCrop(SIDE, antialias=True), v2.RandomHorizontalFlip()])
    dataset = ImageFolder(str(folder), steps, loader=lambda path: decode_jpeg(read_file(path), mode=ImageReadMode.RGB))
    return torch.utils.data.DataLoader(
        dataset,
        BATCH,
        shuffle=True,
        num_workers=workers,
        pin_memory=True,
        drop_last=True,
        persistent_workers=True,
        prefetch_factor=4,
    )


def side_stream(loader: Any) -> Iterator[Any]:
    """The usual prefetcher, written correctly: one batch ahead on a stream of its own."""
    import torch

    stream, ahead = torch.cuda.Stream(), None
    for batch in itertools.chain(loader, [None]):
        there = None
        if batch is not None:
            with torch.cuda.stream(stream):
                there = [one.to("cuda", non_blocking=True) for one in batch]
        if ahead is not None:
            yield ahead
        if there is not None:
            torch.cuda.current_stream().wait_stream(stream)
            for one in there:
                one.record_stream(torch.cuda.current_stream())
        ahead = there


# Parts.


def bus(_: argparse.Namespace) -> dict[str, Any]:
    import stoker
    import torch

    def rate(size: int, times: int) -> float:
        here = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        there = torch.empty(size, dtype=torch.uint8, device="cuda")
        found = []
        for _ in range(times):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            there.copy_(here, non_blocking=True)
            end.record()
            torch.cuda.synchronize()
            found.append(size / (begin.elapsed_time(end) / 1e3))
        return statistics.median(found[2:])

    limit = rate(1 << 30, 8)
    size = BATCH * SIDE * SIDE * 3
    found: dict[str, Any] = {"limit": limit, "limit_of_a_batch": rate(size, 30)}
    with stoker.DataLoader(stoker.Synthetic(BATCH * 300, (SIDE, SIDE, 3)), BATCH, device="cuda") as loader:
        begin = time.perf_counter()
        for step, _ in enumerate(loader):
            if step == 20:
                torch.cuda.synchronize()
                begin = time.perf_counter()
        torch.cuda.synchronize()
        wall = time.perf_counter() - begin
        loader.close()
        told = loader.stats()
    found |= {"device": told["device"], "copies": told["device"]["bytes_per_s"], "loop": 279 * size / wall}
    return found | {"ratio": found["copies"] / limit, "wait_share": told["client"]["wait_share"]}


def cpu(_: argparse.Namespace) -> dict[str, Any]:
    import numpy as np
    import stoker
    import torch

    rows, size, workers = 2048, 64, 4
    with tempfile.TemporaryDirectory(prefix="stoker-gpu-") as name:
        x, y = Path(name) / "x.npy", Path(name) / "y.npy"
        np.save(x, np.random.default_rng(0).integers(0, 256, (rows, SIDE, SIDE, 3), dtype=np.uint8))
        np.save(y, np.arange(rows))

        class Rows(torch.utils.data.Dataset[Any]):
            def __init__(self) -> None:
                self.x, self.y = np.load(x, mmap_mode="r"), np.load(y)

            def __len__(self) -> int:
                return rows

            def __getitem__(self, number: int) -> Any:
                return torch.from_numpy(self.x[number].copy()), int(self.y[number])

        def spent(epochs: Callable[[], Iterator[Any]], number: int) -> tuple[float, float]:
            """CPU and wall of a batch, in milliseconds."""
            for _ in epochs():
                pass
            torch.cuda.synchronize()
            wall, own, count = time.perf_counter(), time.process_time(), 0
            for _ in range(number):
                for _batch in epochs():
                    count += 1
            own, wall = time.process_time() - own, time.perf_counter() - wall
            torch.cuda.synchronize()
            return 1e3 * own / count, 1e3 * wall / count

        dataset = stoker.NpyDataset(x=str(x), y=str(y)).to_tuple("x", "y")
        with stoker.DataLoader(dataset, size, shuffle=True, num_workers=workers, device="cuda") as loader:
            ours = spent(lambda: iter(loader), 12)
        with stoker.DataLoader(dataset, size, shuffle=True, num_workers=workers) as loader:
            here = spent(lambda: iter(loader), 12)
        theirs = torch.utils.data.DataLoader(
            Rows(), size, shuffle=True, num_workers=workers, pin_memory=True, persistent_workers=True
        )

        def moved() -> Iterator[Any]:
            for batch in theirs:
                yield [one.to("cuda", non_blocking=True) for one in batch]

        torchs = spent(moved, 6)
    return {
        "batch": size,
        "stoker_ms": ours[0],
        "stoker_wall_ms": ours[1],
        "stoker_without_device_ms": here[0],
        "torch_ms": torchs[0],
        "torch_wall_ms": torchs[1],
        "ratio": ours[0] / torchs[0],
        "against_without_device": ours[0] / here[0],
    }


class Model:
    """ResNet-50 in bfloat16, channels_last."""

    def __init__(self) -> None:
        import torch
        import torchvision

        torch.backends.cudnn.benchmark = True
        self.torch = torch
        self.net = torchvision.models.resnet50().to("cuda", torch.bfloat16, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        shape = (1, 3, 1, 1)
        self.mean = torch.tensor(MEAN, device="cuda", dtype=torch.bfloat16).mul_(255).view(shape)
        self.std = torch.tensor(STD, device="cuda", dtype=torch.bfloat16).mul_(255).view(shape)

    def step(self, images: Any, labels: Any) -> None:
        torch = self.torch
        x = images.to(torch.bfloat16, memory_format=torch.channels_last).sub_(self.mean).div_(self.std)
        loss = torch.nn.functional.cross_entropy(self.net(x).float(), labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def run(self, batches: Iterator[Any], seconds: float, warm: int = 3) -> dict[str, float]:
        """Images per second, and the share of the device's time between the end of a step and its next batch."""
        torch, marks, count = self.torch, [], 0
        begin = time.perf_counter()
        for number, (images, labels) in enumerate(batches):
            if number == warm:
                torch.cuda.synchronize()
                marks, count, begin = [], 0, time.perf_counter()
            ready, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            ready.record()
            self.step(images, labels)
            end.record()
            marks.append((ready, end))
            count += len(images)
            if number > warm + 4 and time.perf_counter() - begin > seconds:
                break
        torch.cuda.synchronize()
        wall = time.perf_counter() - begin
        gaps = sum(a[1].elapsed_time(b[0]) for a, b in itertools.pairwise(marks)) / 1e3
        return {"rate": count / wall, "device_waits": gaps / wall, "batches": len(marks)}


def staying() -> Iterator[Any]:
    import torch

    images = torch.randint(0, 256, (BATCH, SIDE, SIDE, 3), dtype=torch.uint8, device="cuda").permute(0, 3, 1, 2)
    labels = torch.randint(0, 1000, (BATCH,), device="cuda")
    return itertools.repeat((images, labels))


def train(args: argparse.Namespace) -> dict[str, Any]:
    import stoker
    import torch

    model = Model()
    model.run(staying(), 1.0)
    rounds = []
    with photographs(args.data) as folder, stoker_photographs(folder) as loader:
        made = stoker.DataLoader(stoker.Synthetic(BATCH * 1000, (SIDE, SIDE, 3)), BATCH, device="cuda")
        zeros = torch.zeros(BATCH, dtype=torch.int64, device="cuda")

        def synthetic() -> Iterator[Any]:
            for (images,) in made:
                yield (images if images.shape[1] == 3 else images.permute(0, 3, 1, 2)), zeros

        def endless() -> Iterator[Any]:
            while True:
                yield from loader

        photos = endless()
        for number in range(args.rounds):
            still = model.run(staying(), 3.0)
            before = loader.stats()["client"]
            ours = model.run(photos, 5.0)
            after = loader.stats()["client"]
            waits = sum(after[key] - before[key] for key in ("busy_s", "blocked_in_s"))
            share = waits / max(waits + after["blocked_out_s"] - before["blocked_out_s"], 1e-9)
            rounds.append({"staying": still, "photographs": ours, "client_wait_share": share})
            if number == 0:
                rounds[-1]["synthetic"] = model.run(synthetic(), 3.0)
        told = loader.stats()
        made.close()
    ratio = statistics.median(one["photographs"]["rate"] / one["staying"]["rate"] for one in rounds)
    waits = statistics.median(one["photographs"]["device_waits"] - one["staying"]["device_waits"] for one in rounds)
    return {
        "rounds": rounds,
        "ratio": ratio,
        "device_waits": waits,
        "synthetic_ratio": rounds[0]["synthetic"]["rate"] / rounds[0]["staying"]["rate"],
        "limiting": told["rates"].get("limiting"),
        "device": told["device"],
        "memory": torch.cuda.max_memory_reserved(),
    }


def first(args: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.zeros(1, device="cuda")
    workers = min(8, len(os.sched_getaffinity(0)))
    found: dict[str, list[float]] = {"stoker": [], "torch": []}
    with photographs(args.data) as folder:
        for number in range(4):
            begin = time.perf_counter()
            with stoker_photographs(folder, num_workers=workers) as loader:
                images, _ = next(iter(loader))
                torch.cuda.synchronize()
                found["stoker"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            theirs = iter(torch_photographs(folder, workers))
            images = next(theirs)[0].to("cuda", non_blocking=True)
            torch.cuda.synchronize()
            found["torch"].append(time.perf_counter() - begin)
            del theirs
            assert images.is_cuda, number
    ours, torchs = (statistics.median(one[1:]) for one in found.values())
    return {"workers": workers, "seconds": found, "stoker_s": ours, "torch_s": torchs, "ratio": ours / torchs}


def two_cores(args: argparse.Namespace) -> dict[str, Any]:
    cores = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, cores)
    model = Model()
    model.run(staying(), 0.5)
    found: dict[str, Any] = {}
    with photographs(args.data) as folder:
        with stoker_photographs(folder) as loader:
            found["stoker"] = model.run(iter(loader), 8.0)
        for workers in (2, 1):
            theirs = torch_photographs(folder, workers)
            batches = side_stream(theirs)
            found[f"torch, {workers} workers"] = model.run(batches, 8.0)
            del batches, theirs
    best = max(one["rate"] for name, one in found.items() if name != "stoker")
    return {"cores": cores, **found, "ratio": found["stoker"]["rate"] / best}


def augment(args: argparse.Namespace) -> dict[str, Any]:
    """Seconds for a batch: the device's, and of torchvision those of the loop, which starts its kernels one by one."""
    import stoker
    import torch
    from torchvision.transforms import v2

    T = stoker.transforms
    try:
        kornia: Any = importlib.import_module("kornia.augmentation")
    except ImportError:
        kornia = None
    jitter = (0.4, 0.4, 0.4, 0.1)
    found: dict[str, Any] = {}
    with photographs(args.data) as folder:
        dataset = stoker.ImageFolder(folder, T.RandomResizedCrop(SIDE))
        for name, ours in (("ColorJitter", T.ColorJitter(*jitter)), ("RandAugment", T.RandAugment())):
            one: dict[str, float] = {}
            with stoker.DataLoader(dataset, BATCH, drop_last=True, device="cuda", device_transform=[ours]) as loader:
                batches, before = iter(loader), {}
                for number in range(12):
                    images, _ = next(batches)
                    torch.cuda.synchronize()
                    if number == 2:  # the kernels are loaded
                        before = loader.stats()["device"]
                next(batches)
                told = loader.stats()["device"]
                counted = told["transforms"] - before["transforms"]
                one["stoker"] = (told["transforms_busy_s"] - before["transforms_busy_s"]) / counted
                images = images.contiguous()
            theirs = getattr(v2, name)(*jitter) if name == "ColorJitter" else v2.RandAugment()
            one["torchvision"] = timed(partial(_each, theirs, images), 2)
            if kornia is not None:
                module = kornia.ColorJitter(*jitter) if name == "ColorJitter" else kornia.auto.RandAugment(2, 9)
                module, floats = module.to("cuda"), images.float() / 255
                one["kornia"] = timed(partial(module, floats), 8)
            found[name] = one
    parts = list(found.values())
    for peer in ("torchvision", "kornia"):
        if all(peer in one for one in parts):
            found[peer] = min(one[peer] / one["stoker"] for one in parts)
    return found


# Decoding.


@contextlib.contextmanager
def on_two_cores() -> Iterator[list[int]]:
    """What starts from now on, the engine among it, has two cores."""
    before = os.sched_getaffinity(0)
    cores = sorted(before)[:2]
    os.sched_setaffinity(0, cores)
    try:
        yield cores
    finally:
        os.sched_setaffinity(0, before)


def large(folder: Path) -> Path:
    """The photographs of testdata with 2,000 pixels on the longer side, under many names."""
    from PIL import Image

    (folder / "files").mkdir()
    found = []
    for path in sorted((ROOT / "testdata" / "photos").glob("*.jpg")):
        with Image.open(path) as opened:
            photo = opened.convert("RGB")
        scale = LARGE_SIDE / max(photo.size)
        size = (round(photo.width * scale), round(photo.height * scale))
        found.append(folder / "files" / path.name)
        photo.resize(size, Image.Resampling.BICUBIC).save(found[-1], quality=90)
    return many(found, folder / "photos", LARGE)


def many(files: list[Path], folder: Path, count: int) -> Path:
    """So many names of these files, in ten classes."""
    for number in range(count):
        link = folder / f"class{number % 10}" / f"{number:06d}.jpg"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(files[number % len(files)])
    return folder


def loaded(loader: Any, seconds: float, warm: int = 3) -> dict[str, float]:
    """Images per second of a loader alone, and what decoding takes of the training process and of the device."""
    import torch

    def told() -> dict[str, float]:
        return loader.stats()["device"] if hasattr(loader, "stats") else {}

    count, batches, begin, before = 0, 0, time.perf_counter(), {}
    for number, batch in enumerate(itertools.chain.from_iterable(itertools.repeat(loader))):
        if number == warm:
            torch.cuda.synchronize()
            count, batches, begin, before = 0, 0, time.perf_counter(), told()
        count, batches = count + len(batch[0]), batches + 1
        if number > warm and time.perf_counter() - begin > seconds:
            break
    torch.cuda.synchronize()
    found = {"rate": count / (time.perf_counter() - begin), "batches": batches}
    if after := told():
        each = {"decode_host_s": "host_ms", "decode_busy_s": "decode_ms", "transforms_busy_s": "transforms_ms"}
        for key, name in each.items():  # a batch
            found[name] = 1e3 * (after[key] - before.get(key, 0.0)) / batches
        found["decoded"] = after["decoded"] - before.get("decoded", 0)
    return found


def decoding(dataset: Any, size: int, where: Any = None) -> Any:
    import stoker

    keywords = {} if where is None else {"decode_device": where}
    return stoker.DataLoader(dataset, size, shuffle=True, drop_last=True, seed=1, device="cuda", **keywords)


def chosen_decoder() -> dict[str, Any]:
    """The decoder of this machine, as a loader finds it."""
    from stoker import _device_jpeg
    from stoker._target import Target

    decoder, why = _device_jpeg._decoder(True)
    if decoder is None:
        raise RuntimeError(why)
    return {"decoder": decoder.name, "repeats": _device_jpeg._repeats(decoder, Target("cuda:0", 2))}


class Lists:
    """The loop that one would write: files are read, decode_jpeg makes a list of pictures of a list of bytes, and each
    is cropped and resized by itself."""

    def __init__(self, folder: Path, size: int, decode: Callable[[list[Any]], Any]) -> None:
        self.paths, self.size, self.decode = sorted(folder.glob("*/*.jpg")), size, decode

    def __iter__(self) -> Iterator[Any]:
        import torch
        from torchvision.transforms import v2
        from torchvision.transforms.v2 import functional as F

        boxes = v2.RandomResizedCrop(SIDE, antialias=True)
        order = torch.randperm(len(self.paths)).tolist()
        for at in range(0, len(order) - self.size + 1, self.size):
            paths = [self.paths[i] for i in order[at : at + self.size]]
            pictures = self.decode(
                [torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8) for path in paths]
            )
            made = []
            for picture in pictures:
                box = boxes.make_params([picture])
                one = F.resized_crop(picture, box["top"], box["left"], box["height"], box["width"], [SIDE, SIDE])
                made.append(F.horizontal_flip(one) if torch.rand(1).item() < 0.5 else one)
            labels = torch.tensor([int(path.parent.name.removeprefix("class")) for path in paths])
            yield torch.stack(made), labels.to("cuda", non_blocking=True)


def decoders() -> dict[str, Callable[[list[Any]], Any]]:
    """decode_jpeg of each package that is installed, on the device."""
    found: dict[str, Callable[[list[Any]], Any]] = {}
    with contextlib.suppress(ImportError, RuntimeError):
        theirs: Any = importlib.import_module("torchcodec.decoders")
        found["torchcodec"] = partial(theirs.decode_jpeg, mode="RGB", device="cuda")
    with contextlib.suppress(ImportError, RuntimeError):
        vision: Any = importlib.import_module("torchvision.io")
        found["torchvision"] = partial(vision.decode_jpeg, mode=vision.ImageReadMode.RGB, device="cuda")
    return found


def dali(folder: Path, size: int, seconds: float) -> Any:
    """DALI's pipeline for the same, where it is installed."""
    try:
        dali: Any = importlib.import_module("nvidia.dali")
        fn: Any = importlib.import_module("nvidia.dali.fn")
        plugin: Any = importlib.import_module("nvidia.dali.plugin.pytorch")
    except ImportError:
        return "not installed"

    def pipeline() -> Any:
        files, labels = fn.readers.file(file_root=str(folder), random_shuffle=True, name="files")
        area = {"random_area": [0.08, 1.0], "random_aspect_ratio": [3 / 4, 4 / 3]}
        images = fn.decoders.image_random_crop(files, device="mixed", output_type=dali.types.RGB, **area)
        images = fn.resize(images, resize_x=SIDE, resize_y=SIDE)
        images = fn.crop_mirror_normalize(
            images, dtype=dali.types.UINT8, output_layout="CHW", mirror=fn.random.coin_flip(), mean=[0.0], std=[1.0]
        )
        return images, labels.gpu()

    made = dali.pipeline_def(batch_size=size, num_threads=2, device_id=0)(pipeline)()
    made.build()
    batches = plugin.DALIGenericIterator([made], ["images", "labels"], reader_name="files", auto_reset=True)

    class Batches:
        def __iter__(self) -> Iterator[Any]:
            for (one,) in batches:
                yield one["images"], one["labels"]

    return loaded(Batches(), seconds)


def decode(_: argparse.Namespace) -> dict[str, Any]:
    import stoker

    T = stoker.transforms
    size = 64
    found: dict[str, Any] = {**chosen_decoder(), "batch": size}
    with tempfile.TemporaryDirectory(prefix="stoker-gpu-") as name:
        folder = large(Path(name))
        with on_two_cores() as cores:
            found["cores"] = cores
            dataset = stoker.ImageFolder(folder, T.Compose([T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip()]))
            for what, where in (("there", "cuda"), ("engine", None)):
                with decoding(dataset, size, where) as loader:
                    found[what] = loaded(loader, 6.0)
            peers = {}
            for what, one in decoders().items():
                try:
                    peers[what] = loaded(Lists(folder, size, one), 4.0)
                except Exception as error:  # it is of a build without CUDA
                    found[f"not measured: {what}"] = f"{type(error).__name__}: {error}"[:300]
            found["lists of"] = peers
            try:
                found["dali"] = dali(folder, size, 4.0)
            except Exception as error:
                found["dali"] = f"{type(error).__name__}: {error}"[:300]
    found["cpu"] = found["there"]["rate"] / found["engine"]["rate"]
    if peers:
        found["lists"] = found["there"]["rate"] / max(one["rate"] for one in peers.values())
    return found


def strips(args: argparse.Namespace) -> dict[str, Any]:
    import stoker

    T = stoker.transforms
    size, seconds = 128, 3.0
    found: dict[str, Any] = {**chosen_decoder(), "batch": size}
    steps = T.Compose([T.RandomResizedCrop(SIDE), T.RandomHorizontalFlip()])
    with tempfile.TemporaryDirectory(prefix="stoker-gpu-") as name, photographs(args.data) as given:
        files = sorted(path.resolve() for path in given.glob("*/*") if path.suffix.lower() in (".jpg", ".jpeg"))
        files = files[:: max(1, len(files) // PACKED)][:PACKED]
        few = many(files, Path(name) / "photos", len(files))
        shards = {}
        for kind, how in (("whole", None), ("strips", "index")):
            to = Path(name) / kind
            begin = time.perf_counter()
            stoker.pack(str(few), str(to), jpeg=how)
            sizes = sum(path.stat().st_size for path in to.glob("*.tar"))
            found[f"packed, {kind}"] = {"seconds": time.perf_counter() - begin, "bytes": sizes}
            shards[kind] = str(to / "shard-*.tar")
        with on_two_cores() as cores:
            found["cores"] = cores

            def rate(kind: str, where: Any) -> dict[str, float]:
                dataset: Any = stoker.WebDataset(shards[kind]).decode("pil").to_tuple("jpg", "cls").map_tuple(steps)
                with decoding(dataset, size, where) as loader:
                    return loaded(loader, seconds)

            found["engine"] = rate("strips", None)
            found["files there"] = rate("whole", "cuda")
            found["strips there"] = rate("strips", "cuda")
            shares = {share: rate("strips", ("cuda", share / 16)) for share in SHARES}
    found["shares"] = shares
    best = max(shares, key=lambda share: shares[share]["rate"])
    better = max(found["engine"]["rate"], found["strips there"]["rate"])
    found["best share"] = f"{best}/16"
    found["whole"] = found["strips there"]["rate"] / found["files there"]["rate"]
    found["share"] = shares[best]["rate"] / better
    return found


def graph(__: argparse.Namespace) -> dict[str, Any]:
    """The same graph, over the same buffers: with the loader's next batch in them before each step, and without."""
    import stoker
    import torch

    side = 112
    layers: list[Any] = []
    for before, after in ((3, 64), (64, 128), (128, 256)):
        layers += [torch.nn.Conv2d(before, after, 3, stride=2, padding=1), torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
    net = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(256, 10))
    net = net.to("cuda", torch.bfloat16).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    labels = torch.zeros(BATCH, dtype=torch.int64, device="cuda")
    data = stoker.Synthetic(BATCH * 100_000, (side, side, 3))
    with stoker.DataLoader(data, BATCH, device="cuda", static_buffers=True, drop_last=True) as loader:
        batches = iter(loader)
        (images,) = next(batches)
        images = images if images.shape[1] == 3 else images.permute(0, 3, 1, 2)

        def step() -> None:
            x = images.to(torch.bfloat16, memory_format=torch.channels_last).div_(127.5).sub_(1)
            torch.nn.functional.cross_entropy(net(x).float(), labels).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        warm = torch.cuda.Stream()
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(warm)
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            step()

        def rate(seconds: float, fed: bool) -> float:
            torch.cuda.synchronize()
            begin, count = time.perf_counter(), 0
            while time.perf_counter() - begin < seconds:
                for _ in range(20):
                    if fed:
                        next(batches)
                    recorded.replay()
                count += 20
                if not fed:
                    torch.cuda.synchronize()  # or thousands would be started ahead
            torch.cuda.synchronize()
            return count * BATCH / (time.perf_counter() - begin)

        rate(0.5, True)
        rounds = [{"staying": rate(1.5, False), "loaded": rate(2.0, True)} for _ in range(3)]
        told = loader.stats()
    ratio = statistics.median(one["loaded"] / one["staying"] for one in rounds)
    return {"rounds": rounds, "ratio": ratio, "step_ms": 1e3 * BATCH / rounds[-1]["staying"], "device": told["device"]}


def _each(transform: Any, images: Any) -> list[Any]:
    """Picture by picture."""
    return [transform(image) for image in images]


def floats(_: argparse.Namespace) -> dict[str, Any]:
    """Seconds of the device for a batch, by events; every call has other memory than the three before it."""
    import torch
    from stoker import _cuda, _fused

    found: dict[str, Any] = {"lacking": _fused.lacking()}
    if found["lacking"]:
        return found
    port = _cuda.Port(torch.cuda.current_device())

    class Operators:
        """A port without the kernel."""

        name, numbers, kernel = port.name, port.numbers, staticmethod(lambda: None)

    size = BATCH * SIDE * SIDE * 3
    images = [torch.randint(0, 256, (BATCH, SIDE, SIDE, 3), dtype=torch.uint8, device="cuda") for _ in range(4)]
    given = itertools.cycle(image.permute(0, 3, 1, 2) for image in images)
    large = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(2)]
    found["copy_bytes_per_s"] = copy = 2 * (1 << 30) / device_seconds(lambda: large[0].copy_(large[1]), 10)
    normal = _fused.Step(mean=tuple(MEAN), std=tuple(STD))
    scale = [1 / 255 / std for std in STD]
    bias = [-mean / std for mean, std in zip(MEAN, STD, strict=True)]
    ends = {
        "float32": _fused.Left("float32", tuple(scale), tuple(bias), ()),
        "bfloat16": _fused.Left("bfloat16", (), (), (_fused.Step("bfloat16", scale=True), normal)),
    }
    for name, left in ends.items():
        dtype = getattr(torch, name)
        mean, std = (torch.tensor(values, dtype=dtype, device="cuda").mul_(255).view(3, 1, 1) for values in (MEAN, STD))
        outs = itertools.cycle([torch.empty((BATCH, 3, SIDE, SIDE), dtype=dtype, device="cuda") for _ in range(4)])
        kernel, operators = _fused.Floats(port), _fused.Floats(Operators)

        def four(dtype: Any = dtype, mean: Any = mean, std: Any = std) -> Any:
            return next(given).to(dtype).sub_(mean).div_(std).contiguous()

        def ours(by: Any, left: Any = left, outs: Any = outs) -> None:
            by.make(next(outs), None, next(given), left, True)

        one: dict[str, float] = {
            "kernel": device_seconds(partial(ours, kernel)),
            "its_operators": device_seconds(partial(ours, operators)),
            "four_operators": device_seconds(four),
        }
        assert kernel.fused  # it has not failed
        one["bytes_per_s"] = size * (1 + dtype.itemsize) / one["kernel"]
        found[name] = one | {"against_operators": one["four_operators"] / one["kernel"]}
        found[name]["against_copy"] = one["bytes_per_s"] / copy
    for ratio in ("against_operators", "against_copy"):
        found[ratio] = min(found[name][ratio] for name in ends)
    return found


def device_seconds(work: Callable[[], Any], times: int = 40) -> float:
    """Seconds of the device for a call, of so many that were queued while it was busy: the median of five rounds."""
    import torch

    found = []
    for _ in range(6):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(20_000_000)
        begin.record()
        for _ in range(times):
            work()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) / 1e3 / times)
    return statistics.median(found[1:])


def timed(work: Callable[[], Any], times: int) -> float:
    """Seconds that work takes, until the device has done it: the median, after one that does not count."""
    import torch

    found = []
    for _ in range(times + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        found.append(time.perf_counter() - begin)
    return statistics.median(found[1:])


PARTS: dict[str, tuple[Callable[[argparse.Namespace], dict[str, Any]], float]] = {  # and its seconds at most
    "bus": (bus, 40.0),
    "cpu": (cpu, 60.0),
    "train": (train, 80.0),
    "first": (first, 50.0),
    "two_cores": (two_cores, 75.0),
    "augment": (augment, 60.0),
    "floats": (floats, 40.0),
    "decode": (decode, 60.0),
    "strips": (strips, 75.0),
    "graph": (graph, 40.0),
}


def measured(name: str, args: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """What a part says, in a process of its own."""
    command = [sys.executable, "-m", "bench.gpu", "--part", name, "--rounds", str(args.rounds)]
    command += [] if args.data is None else ["--data", str(args.data)]
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as late:
        said = late.stderr.decode(errors="replace") if isinstance(late.stderr, bytes) else late.stderr or ""
        return {"error": f"it took longer than {seconds:.0f} s", "said": said[-2000:]}
    if done.returncode:
        return {"error": f"it ended with {done.returncode}", "said": (done.stdout + done.stderr)[-4000:]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return {**found, "took": time.perf_counter() - begin, "said": done.stderr[-1000:]}


def concluded(parts: dict[str, Any]) -> dict[str, Any]:
    """What was to be reached, and what was measured, as in every result."""
    gates = []
    for name, (part, key, limit, way) in FIGURES.items():
        value = parts.get(part, {}).get(key)
        reached = None if value is None else (value >= limit if way == "high" else value <= limit)
        gates.append({"what": name, "value": value, "limit": limit, "better": way, "reached": reached})
    return {
        "gates": gates,
        "figures": {one["what"]: one["value"] for one in gates if one["value"] is not None},
        "disturbed": {"most": None, "note": "not measured: ratios are of one run on one machine"},
        "doubts": [f"{name}: {part['error']}" for name, part in parts.items() if "error" in part],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="a folder of JPEGs in classes")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "gpu.json")
    parser.add_argument("--rounds", type=int, default=2, help="of train")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for all of it")
    parser.add_argument("--only", nargs="+", choices=PARTS)
    parser.add_argument("--part", choices=PARTS, help="this one, in this process")
    args = parser.parse_args()
    if args.part:
        print(json.dumps(PARTS[args.part][0](args)))
        return 0
    sys.path.insert(0, str(ROOT / "tools"))
    from gpu_tests import machine  # type: ignore[import-not-found]

    begin = time.perf_counter()
    document: dict[str, Any] = {"question": "batches on a GPU", "machine": machine(), "parts": {}}
    for name in args.only or PARTS:
        left = args.limit - (time.perf_counter() - begin)
        if left < 10.0:
            document["parts"][name] = {"error": "not measured: the time was over"}
        else:
            document["parts"][name] = measured(name, args, min(PARTS[name][1], left))
        document |= concluded(document["parts"])
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(document, indent=1) + "\n")
        print(name, json.dumps(document["parts"][name])[:1500], flush=True)
    for one in document["gates"]:
        value = "not measured" if one["value"] is None else f"{one['value']:.3f}"
        print(f"{one['what']:55} {value:>14}  (must: {one['better']}, {one['limit']})")
    return 0 if all(one["reached"] for one in document["gates"]) else 1


if __name__ == "__main__":
    raise SystemExit(main())

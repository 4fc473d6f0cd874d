"""A dataset of the user's own under torch's DataLoader or stoker's: the same object, the same keywords.

    own_dataset CASE --loader torch|stoker|none [--data FOLDER] [--samples N]

none: the dataset's own code alone, in one process, which is what no loader can save. Every batch is checked for its
shapes and read, one byte of each cache line.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.consumer import MEAN, SIZE, STD, emit, touch
from bench.meter import Clock

SEED = 5


class Photos(torch.utils.data.Dataset[Any]):
    """Pillow and torchvision v2, as people write it."""

    def __init__(self, folder: str) -> None:
        from torchvision.transforms import v2

        self.files = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop(SIZE),
                v2.RandomHorizontalFlip(),
                v2.PILToTensor(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
            ]
        )

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        with Image.open(self.files[index]) as picture:
            return self.transform(picture.convert("RGB")), index


class Ready(torch.utils.data.Dataset[Any]):
    """Samples that are in memory."""

    def __init__(self, sample: Any, count: int) -> None:
        self.sample, self.count = sample, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.sample, index


class Texts(torch.utils.data.Dataset[Any]):
    def __init__(self, count: int) -> None:
        draw = np.random.default_rng(SEED)
        words = ["data", "loader", "batch", "the", "of", "a", "gradient", "photograph", "shuffle", "epoch"]
        self.texts = [" ".join(draw.choice(words, draw.integers(8, 120))) for _ in range(512)]
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> str:
        return self.texts[index % len(self.texts)]


class Pad:
    """A tokenizer, and padding to the longest text of the batch."""

    def __init__(self) -> None:
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        self.tokenizer = Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        self.tokenizer.train_from_iterator(Texts(1).texts, trainers.BpeTrainer(vocab_size=200, show_progress=False))

    def __call__(self, texts: list[str]) -> dict[str, torch.Tensor]:
        ids = [torch.tensor(one.ids) for one in self.tokenizer.encode_batch(texts)]
        lengths = torch.tensor([len(one) for one in ids])
        return {"ids": torch.nn.utils.rnn.pad_sequence(ids, batch_first=True), "lengths": lengths}


def _albumentations(folder: str) -> Any:
    import albumentations as A
    import cv2

    class Photos(torch.utils.data.Dataset[Any]):
        """OpenCV and Albumentations, as people write it."""

        def __init__(self) -> None:
            self.files = sorted(
                str(path) for path in Path(folder).rglob("*") if path.suffix.lower() in (".jpg", ".jpeg")
            )
            self.transform = A.Compose(
                [
                    A.RandomResizedCrop((SIZE, SIZE)),
                    A.HorizontalFlip(),
                    A.RandomBrightnessContrast(),
                    A.Normalize(MEAN, STD),
                ]
            )

        def __len__(self) -> int:
            return len(self.files)

        def __getitem__(self, index: int) -> tuple[Any, int]:
            picture = cv2.cvtColor(cv2.imread(self.files[index]), cv2.COLOR_BGR2RGB)
            return torch.from_numpy(self.transform(image=picture)["image"].transpose(2, 0, 1).copy()), index

    return Photos()


def _split(folder: str) -> Any:
    """The same by stoker: the engine reads, decodes, crops and flips, Albumentations changes the colours in workers,
    and the engine makes numbers of them."""
    import albumentations as A
    import stoker
    from stoker import transforms as T

    crop = [T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip()]
    chain = T.Compose([*crop, A.Compose([A.RandomBrightnessContrast()]), T.ToTensor(), T.Normalize(MEAN, STD)])
    return stoker.files(str(Path(folder) / "*"), transform=chain)


CASES: dict[str, tuple[int, Callable[[argparse.Namespace], Any]]] = {
    "photos": (64, lambda o: Photos(o.data)),
    "albumentations": (64, lambda o: _albumentations(o.data)),
    "split": (64, lambda o: _split(o.data) if o.loader == "stoker" else _albumentations(o.data)),
    "floats": (64, lambda o: Ready(torch.rand(3, SIZE, SIZE), 1 << 20)),
    "pixels": (64, lambda o: Ready((torch.rand(SIZE, SIZE, 3) * 255).to(torch.uint8), 1 << 20)),
    "tiny": (256, lambda o: Ready(torch.arange(16), 1 << 22)),
    "tensors": (
        256,
        lambda o: torch.utils.data.TensorDataset(torch.arange(16 << 20).view(-1, 16), torch.arange(1 << 20)),
    ),
    "texts": (64, lambda o: Texts(1 << 20)),
}


def arrays(batch: Any) -> Iterator[np.ndarray]:
    for value in batch.values() if isinstance(batch, dict) else batch:
        yield value.numpy()


def endless(loader: Any) -> Iterator[Any]:
    for epoch in itertools.count():
        if hasattr(loader, "set_epoch"):
            loader.set_epoch(epoch)
        yield from loader


def opened(options: argparse.Namespace, dataset: Any, batch: int) -> Any:
    keywords: dict[str, Any] = {"batch_size": batch, "shuffle": options.case in ("photos", "albumentations", "split")}
    keywords |= {"num_workers": options.workers, "persistent_workers": True, "drop_last": True}
    if options.case == "texts":
        keywords["collate_fn"] = Pad()
    if options.loader == "torch":
        return torch.utils.data.DataLoader(dataset, **keywords)
    import stoker

    if options.seeding:
        keywords["seeding"] = options.seeding
    return stoker.DataLoader(dataset, **keywords)


def alone(options: argparse.Namespace, dataset: Any, cpu: Clock) -> None:
    """The dataset's own code."""
    torch.set_num_threads(1)
    count = len(dataset)
    for i in range(64):
        dataset[i % count]
    emit("start", cpu=cpu.seconds(), wall=time.perf_counter())
    for i in range(options.samples):
        dataset[i % count]
    emit("stop", cpu=cpu.seconds(), wall=time.perf_counter(), samples=options.samples, wait=True)
    sys.stdin.readline()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--loader", choices=("torch", "stoker", "none"), required=True)
    parser.add_argument("--data")
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeding")
    options = parser.parse_args()
    cpu = Clock.from_env()
    os.environ.setdefault("STOKER_LOG", "error")
    size, make = CASES[options.case]
    dataset = make(options)
    if options.loader == "none":
        return alone(options, dataset, cpu)
    loader = opened(options, dataset, size)
    begin = time.perf_counter()
    stream = endless(loader)
    batch = next(stream)
    first = time.perf_counter() - begin
    for _ in range(max(8, options.samples // size // 10)):
        batch = next(stream)
    shapes = [(value.shape[1:], value.dtype) for value in arrays(batch)]
    emit("start", cpu=cpu.seconds(), wall=time.perf_counter(), first=first)
    seen = 0
    while seen < options.samples:
        batch = next(stream)
        for value, (shape, dtype) in zip(arrays(batch), shapes, strict=True):
            if options.case != "texts" and (value.shape[1:] != shape or value.dtype != dtype):
                raise SystemExit(f"a batch of {value.dtype}{list(value.shape)} in mid-run")
            if value.size:
                touch(value)
        seen += size
    emit("stop", cpu=cpu.seconds(), wall=time.perf_counter(), samples=seen, wait=True)
    sys.stdin.readline()
    del loader


if __name__ == "__main__":
    main()

"""Small datasets of every kind that goes to a device, and what their loaders give without one: for soaked.py.

Kind       makes loaders over the same samples, with the same seed, every time
KINDS      all of them, by name
expected   the batches of some epochs, as a loader without a device gives them
leaves     what is in a batch, and what is known of it
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from conftest import make_folder, make_tar

import stoker
from stoker import transforms as T

SEED = 5
EPOCHS = 3  # that are known of each kind
ROWS = 44  # samples of datasets of Python
PIECE = 12  # samples in a piece of a sampler's order
FACTS = ("ids", "valid", "epoch", "step", "bad", "cu_seqlens", "position_ids")
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Data:
    """Files of all kinds, in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = make_folder(root / "folder", 50)
        self.damaged = Path(shutil.copytree(self.folder, root / "damaged"))
        for number in (7, 31):
            victim = sorted(self.damaged.rglob("*.jpg"))[number]
            victim.write_bytes(victim.read_bytes()[:300])
        for number, (first, count) in enumerate([(0, 11), (11, 9), (20, 10)]):
            make_tar(root / f"train-{number:03d}.tar", first, count)
        self.shards = str(root / "train-{000..002}.tar")
        rng = np.random.default_rng(3)
        np.save(root / "x.npy", rng.integers(0, 256, (90, 6, 50), dtype=np.uint8))
        np.save(root / "y.npy", rng.normal(size=90))
        np.save(root / "large.npy", rng.integers(0, 256, (40, 300, 200), dtype=np.uint8))
        rng.integers(0, 60000, 9000, dtype=np.uint16).tofile(root / "tokens.bin")
        np.where(rng.random(4000) < 0.02, 9, rng.integers(10, 250, 4000)).astype(np.uint8).tofile(root / "texts.bin")
        self.lengths = [1 + i * 5 % 14 for i in range(120)]
        lines = "".join(f'{{"text": "{chr(97 + i % 26) * n}"}}\n' for i, n in enumerate(self.lengths))
        (root / "texts.jsonl").write_text(lines)


Make = Callable[..., Any]  # (data, keywords of the loader) -> a loader


@dataclass(frozen=True)
class Kind:
    """``make`` knows from the keyword device, or its absence, which half does what."""

    name: str
    make: Callable[..., Any]
    bundles: bool = False  # several batches may arrive together, and are on the device together
    wraps: bool = True  # a wrapper of a loader without a device gives the same
    resumes: bool = True
    skips: bool = True
    jax: bool = False
    static: bool = False
    theirs: bool = False  # not a loader of ours: only wrappers can have it
    large: bool = False  # its steps are slow
    known: dict[int, Any] = field(default_factory=dict, compare=False)


class Pair(NamedTuple):
    """A named tuple in a sample."""

    left: Any
    right: Any


class Boxed:
    """An object that moves in its own way."""

    def __init__(self, values: Any) -> None:
        self.values = list(values)

    def to(self, *args: Any, **kwargs: Any) -> Boxed:
        return Boxed(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Boxed) and other.values == self.values

    __hash__ = None  # type: ignore[assignment]


def row(number: int, size: int = 40) -> torch.Tensor:
    return torch.arange(size * size).mul_(number + 3).add_(number).to(torch.uint8).view(size, size)


class Rows(torch.utils.data.Dataset[Any]):
    """Samples of Python, of a deep structure."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, number: int) -> Any:
        small = np.float32(number) / 3
        pair = Pair(torch.tensor(number), np.full((3, 2), number, np.int16))
        return {"x": row(number), "deep": [(small, f"text {number}"), pair], "y": number * 7}


class Stream(torch.utils.data.IterableDataset[Any]):
    """The same, iterated by the workers in turn."""

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, ROWS, step):
            yield {"x": row(number), "y": number * 7, "name": f"s{number}"}


class Plain(torch.utils.data.Dataset[Any]):
    """Samples of NumPy."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, number: int) -> Any:
        return {"x": row(number).numpy(), "y": number * 7, "name": f"s{number}"}


def collate(samples: list[Any]) -> Any:
    """A batch with gaps, one tensor twice, and what moves by itself."""
    both = torch.stack([one["x"] for one in samples])
    wide = both.flip(2)[:, ::2]
    return {"x": both, "again": both, "wide": wide, "few": both[:, 0, :3], "own": Boxed(both[:, 0, 1].tolist())}


class Theirs:
    """A loader that is not of ours: batches of tensors, made for each pass."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def close(self) -> None:
        """Nothing."""

    def __len__(self) -> int:
        return 9

    def __iter__(self) -> Iterator[Any]:
        for step in range(9):
            number = 100 * self.epoch + step
            yield {"x": row(number), "pair": (torch.tensor([number]), f"t{number}"), "none": None, "wide": row(9)[::3]}


def _pictures(transform: list[Any], **more: Any) -> Make:
    def make(data: Data, **keywords: Any) -> Any:
        return stoker.DataLoader(stoker.ImageFolder(data.folder, T.Compose(transform)), 6, True, **more, **keywords)

    return make


def _left(front: list[Any], left: list[Any], **more: Any) -> Make:
    """The steps of ``left`` are done on the device if there is one."""

    def make(data: Data, **keywords: Any) -> Any:
        if "device" in keywords:
            keywords["device_transform"] = left
        steps = front if "device" in keywords else [*front, *left]
        return stoker.DataLoader(stoker.ImageFolder(data.folder, T.Compose(steps)), 6, True, **more, **keywords)

    return make


def _views(data: Data, **keywords: Any) -> Any:
    views = T.Views([T.RandomResizedCrop(28)], [T.RandomResizedCrop(20), T.RandomSolarize(100)], T.CenterCrop(24))
    return stoker.DataLoader(stoker.ImageFolder(data.folder, views), 6, True, **keywords)


def _of_shards(data: Data) -> Any:
    return stoker.WebDataset(data.shards).shuffle(20).decode("pil").map_dict(jpg=T.Resize((30, 26)))


def _dicts(data: Data, **keywords: Any) -> Any:
    return stoker.DataLoader(_of_shards(data), 4, **keywords)


def _with_epoch(data: Data, **keywords: Any) -> Any:
    return stoker.DataLoader(_of_shards(data).to_tuple("jpg", "cls").with_epoch(44), 4, **keywords)


def _arrays(data: Data, **keywords: Any) -> Any:
    found = stoker.NpyDataset(x=str(data.root / "x.npy"), y=str(data.root / "y.npy")).to_tuple("x", "y")
    return stoker.DataLoader(found, 4, True, **keywords)


def _large(data: Data, **keywords: Any) -> Any:
    return stoker.DataLoader(stoker.NpyDataset(str(data.root / "large.npy")), 5, True, **keywords)


def _windows(data: Data, **keywords: Any) -> Any:
    return stoker.DataLoader(stoker.TokenDataset(data.root / "tokens.bin", 24), 4, True, **keywords)


def _ragged(data: Data, **keywords: Any) -> Any:
    found = stoker.TokenDataset(data.root / "texts.bin", documents=True, dtype="uint8", eos=9, out=None)
    return stoker.DataLoader(found, 3, True, **keywords)


def _packed(data: Data, **keywords: Any) -> Any:
    lines = stoker.LinesDataset(data.root / "texts.jsonl", fields=[stoker.Field("text", decode="bytes")])
    return stoker.DataLoader(lines, 2, pack=24, lengths=data.lengths, **keywords)


def _sampler(data: Data, **keywords: Any) -> Any:
    """An order that comes in pieces, each a pass of its own in the engine."""
    order = [number * 7 % 50 for number in range(60)]
    return stoker.DataLoader(stoker.ImageFolder(data.folder, T.Resize((30, 30))), 5, sampler=order, **keywords)


def _bad(on_bad: str) -> Make:
    def make(data: Data, **keywords: Any) -> Any:
        found = stoker.ImageFolder(data.damaged, T.Resize((30, 30)))
        return stoker.DataLoader(found, 6, True, on_bad=on_bad, **keywords)

    return make


def _mixed(data: Data, **keywords: Any) -> Any:
    found = stoker.ImageFolder(data.folder, T.Compose([T.Resize((30, 30)), T.ToTensor()]))
    return stoker.DataLoader(found, 6, True, batch_transform=T.MixUp(num_classes=3), **keywords)


def _cropped(batch: Any) -> Any:
    """A function of batches: views of what is on the device."""
    return {"middle": batch[0][:, :, 3:-3, 4:-4], "label": batch[1]}


def _changed(data: Data, **keywords: Any) -> Any:
    found = stoker.ImageFolder(data.folder, T.Resize((30, 30)))
    return stoker.DataLoader(found, 6, True, batch_transform=_cropped, **keywords)


def _rows(dataset: type, workers: int, **more: Any) -> Make:
    def make(data: Data, **keywords: Any) -> Any:
        return stoker.DataLoader(dataset(), 4, num_workers=workers, **more, **keywords)

    return make


def _theirs(data: Data, **keywords: Any) -> Any:
    return Theirs()


FLIPPED: list[Any] = [T.RandomCrop(30, pad_if_needed=True), T.RandomHorizontalFlip()]
FLOATS: list[Any] = [T.ToTensor(), T.Normalize(MEAN, STD)]
POLICY: list[Any] = [T.RandAugment(1), T.RandomErasing(0.5), *FLOATS]
JITTER: list[Any] = [T.RandomResizedCrop(20), T.ColorJitter(0.4), T.ToDtype("bfloat16", scale=True)]
FULL: dict[str, Any] = {"drop_last": True}


def _every() -> Iterator[Kind]:
    yield Kind("uint8", _pictures(FLIPPED))
    yield Kind("large", _pictures([T.Resize((160, 160))]), large=True)
    yield Kind("float32", _pictures([*FLIPPED, *FLOATS]), wraps=False)
    half = T.ToDtype("bfloat16", scale=True)
    yield Kind("bfloat16", _pictures([*FLIPPED, half, T.Normalize(MEAN, STD)], layout="nhwc"), wraps=False)
    yield Kind("policy", _left([T.Resize((24, 24))], POLICY), wraps=False, large=True)
    yield Kind("jitter", _left([T.Resize((28, 28))], JITTER, layout="nhwc"), wraps=False, large=True)
    yield Kind("flips", _left([T.Resize((28, 28))], [T.CenterCrop(20), T.RandomVerticalFlip()]), wraps=False)
    yield Kind("views", _views)
    yield Kind("dicts", _dicts)
    yield Kind("with_epoch", _with_epoch, skips=False, resumes=False)
    yield Kind("arrays", _arrays, bundles=True)
    yield Kind("large arrays", _large, bundles=True)
    yield Kind("windows", _windows, bundles=True)
    yield Kind("ragged", _ragged)
    yield Kind("packed", _packed)
    yield Kind("sampler", _sampler)
    yield Kind("replaced", _bad("replace"))
    yield Kind("damaged", _bad("fail"), skips=False)
    yield Kind("mixed", _mixed)
    yield Kind("changed", _changed)
    yield Kind("workers", _rows(Rows, 2, shuffle=True))
    yield Kind("inline", _rows(Rows, 0, shuffle=True))
    yield Kind("collated", _rows(Rows, 1, collate_fn=collate, shuffle=True))
    yield Kind("stream", _rows(Stream, 2), skips=False)
    yield Kind("static", _pictures(FLIPPED, **FULL), static=True, wraps=False)
    yield Kind("static floats", _left([T.Resize((24, 24))], FLOATS, **FULL), static=True, wraps=False)
    yield Kind("theirs", _theirs, theirs=True, resumes=False, skips=False)
    yield Kind("jax", _pictures(FLIPPED), jax=True)
    yield Kind("jax nhwc", _pictures([*FLIPPED, *FLOATS], layout="nhwc"), jax=True)
    yield Kind("jax arrays", _arrays, jax=True, bundles=True)
    yield Kind("jax workers", _rows(Plain, 1, shuffle=True), jax=True)


KINDS = {kind.name: kind for kind in _every()}


# What is in a batch.


class Error:
    """Stands for a batch in whose place an error comes."""


class Leaf:
    """An array of a batch that is known, and its bytes in the order of its memory. ``like`` has its strides, if it has
    gaps that the array has not."""

    def __init__(self, array: Any, like: Any = None) -> None:
        self.array = array
        self.stride = (array if like is None else like).stride() if isinstance(array, torch.Tensor) else ()
        self.bytes = raw(array) if isinstance(array, torch.Tensor) else array.tobytes()


def raw(tensor: Any) -> bytes:
    """The bytes of a tensor, in the order of its memory."""
    order = sorted(range(tensor.ndim), key=lambda axis: -tensor.stride(axis) if tensor.shape[axis] > 1 else 1)
    laid = tensor.permute(order).contiguous()
    return bytes((laid.view(torch.int16) if laid.dtype == torch.bfloat16 else laid).numpy().tobytes())


def leaves(value: Any, facts: Any = None) -> Iterator[tuple[str, Any]]:
    """The arrays and other things in a batch by path, and what is known of it."""
    known = value if hasattr(value, "ids") else facts
    for name in FACTS:
        if (fact := getattr(known, name, None)) is not None:
            yield f".{name}", [one[:3] for one in fact] if name == "bad" else fact
    yield from _inside("", value)


def _inside(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _inside(f"{path}[{key!r}]", one)
    elif isinstance(value, (list, tuple)) and not (value and isinstance(value[0], (str, bytes))):
        yield f"{path}:", type(value).__name__
        for number, one in enumerate(value):
            yield from _inside(f"{path}[{number}]", one)
    else:
        yield path, value


def is_array(value: Any) -> bool:
    return isinstance(value, (torch.Tensor, np.ndarray))


def expected(kind: Kind, data: Data) -> dict[int, list[Any]]:
    """By epoch, what a loader without a device gives: for each batch its leaves; Error for an error."""
    if kind.known:
        return kind.known
    loader = kind.make(data, seed=SEED, **({"output": "numpy"} if kind.jax else {}))
    for epoch in range(EPOCHS):
        loader.set_epoch(epoch)
        found: list[Any] = []
        try:
            for batch in loader:
                facts = getattr(loader, "facts", None)
                found.append(
                    {path: Leaf(copied(one), one) if is_array(one) else one for path, one in leaves(batch, facts)}
                )
        except stoker.DataError:
            found.append(Error)
        kind.known[epoch] = found
    loader.close()
    return kind.known


def copied(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return np.array(array, order="K")
    return array.detach().clone(memory_format=torch.preserve_format)

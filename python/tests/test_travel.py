"""Batches that move to a device or another dtype keep their class and what is known of them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import stoker
from stoker import transforms as T

FACTS = ("ids", "valid", "epoch", "step", "bad")
Pair = namedtuple("Pair", "left right")


class Nested(Dataset[Any]):
    """Samples of any structure, and one that cannot be read."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        if i == 3:
            raise ValueError("damaged")
        return {"x": torch.full((2,), float(i)), "deep": [Pair(torch.tensor(i), str(i)), {"n": np.int64(i)}]}


def kept(before: Any, after: Any) -> None:
    assert type(after) is type(before)
    for name in FACTS:
        assert getattr(after, name) is getattr(before, name), name


def test_tuples_of_the_engine(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, T.Compose([T.RandomResizedCrop(16), T.ToTensor()]))
    for batch in stoker.DataLoader(dataset, batch_size=4, shuffle=True):
        there = batch.to("meta", non_blocking=True)
        kept(batch, there)
        images, labels = there
        assert images.device.type == labels.device.type == "meta"
        assert images.shape == batch[0].shape
        half = batch.to(torch.float16)
        kept(batch, half)
        assert torch.equal(half[0], batch[0].half())
        assert batch[0].dtype == torch.float32  # the first one is as it was
        same = batch.to("cpu")
        assert same[0].data_ptr() == batch[0].data_ptr()


def test_views_and_dicts_of_the_engine(folder: Path) -> None:
    crop = T.Compose([T.RandomResizedCrop(16), T.ToTensor()])
    views = stoker.DataLoader(stoker.ImageFolder(folder, T.Views(crop, crop)), batch_size=4)
    for both in views:
        there = both.to("meta")
        kept(both, there)
        assert [view.device.type for view in there[0]] == ["meta", "meta"]
    named = stoker.ImageFolder(folder, crop).map(lambda sample: {"pixels": sample[0], "label": sample[1]})
    loader: Any = stoker.DataLoader(named, batch_size=4, num_workers=1)
    for batch in loader:
        assert issubclass(type(batch), dict)
        there = batch.to("meta")
        kept(batch, there)
        assert {name: value.device.type for name, value in there.items()} == {"pixels": "meta", "label": "meta"}


@pytest.mark.parametrize("workers", [0, 2])
def test_nested_values(workers: int) -> None:
    loader = stoker.DataLoader(Nested(), batch_size=5, num_workers=workers, on_bad="skip")
    found = list(loader)
    assert [len(batch.bad) for batch in found] == [1, 0]
    for batch in found:
        there = batch.to("meta")
        kept(batch, there)
        pair, numbers = there["deep"]
        assert type(pair).__name__ == "Pair"
        assert pair.left.device.type == there["x"].device.type == numbers["n"].device.type == "meta"
        assert list(pair.right) == list(batch["deep"][0].right)  # texts


class Known:
    """What a collate function may return: values that know how to move, and mappings of other classes."""

    def __call__(self, samples: list[Any]) -> Any:
        packed = torch.nn.utils.rnn.pack_sequence([sample["x"] for sample in samples], enforce_sorted=False)
        return packed, OrderedDict(target=torch.ones(2)), defaultdict(list, boxes=[torch.zeros(4)])


def test_values_that_know_how_to_move() -> None:
    for batch in stoker.DataLoader(Nested(), batch_size=3, collate_fn=Known(), num_workers=0):
        there = batch.to("meta")
        kept(batch, there)
        packed, target, boxes = there
        assert packed.data.device.type == "meta"
        assert packed.batch_sizes.device.type == "cpu"  # as torch has it
        assert type(target) is OrderedDict
        assert target["target"].device.type == boxes["boxes"][0].device.type == "meta"
        break


def test_packed_tokens(tmp_path: Path) -> None:
    texts = [b"a" * (1 + i % 7) for i in range(40)]
    lines = tmp_path / "texts.jsonl"
    lines.write_text("".join(f'{{"text": "{text.decode()}"}}\n' for text in texts))
    data = stoker.LinesDataset(lines, fields=[stoker.Field("text", decode="bytes")])
    for batch in stoker.DataLoader(data, batch_size=2, pack=16, lengths=[len(text) for text in texts]):
        there = batch.to("meta")
        kept(batch, there)
        assert there.cu_seqlens.device.type == there.position_ids.device.type == "meta"  # the model reads them
        assert there.ids.device.type == "cpu"


def test_numpy_batches_stay(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, T.RandomResizedCrop(16))
    for batch in stoker.DataLoader(dataset, batch_size=4, output="numpy"):
        there = batch.to("meta")
        kept(batch, there)
        assert there[0] is batch[0]


def test_pinning_needs_a_gpu(folder: Path) -> None:
    batch = next(iter(stoker.DataLoader(stoker.ImageFolder(folder, T.RandomResizedCrop(16)), batch_size=4)))
    if torch.cuda.is_available():
        pinned = batch.pin_memory()
        kept(batch, pinned)
        assert pinned[0].is_pinned()
        assert torch.equal(pinned[0], batch[0])
    else:
        with pytest.raises(RuntimeError):  # torch's own
            batch.pin_memory()


def test_pytrees_take_batches_apart(folder: Path) -> None:
    from torch.utils import _pytree

    dataset = stoker.ImageFolder(folder, T.RandomResizedCrop(16))
    for batch in stoker.DataLoader(dataset, batch_size=4):
        found = _pytree.tree_map(lambda value: value.shape, batch)
        assert tuple(found) == (batch[0].shape, batch[1].shape)
        assert isinstance(found, stoker.Batch)

"""WebDataset's chain with functions: equal to what the real webdataset does with the same calls."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import webdataset as wds
from conftest import make_tar
from forms import mostly
from needs import needs
from PIL import Image
from test_steps import copied

import stoker


@pytest.fixture(scope="module")
def tar(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tar(tmp_path_factory.mktemp("tar") / "x-000.tar", 0, 12))


def same(mine: Any, theirs: Any) -> None:
    """Pictures may differ by three levels: the decoders are two. A PIL image is delivered as (3, h, w)."""
    if isinstance(theirs, dict):
        for key in theirs.keys() - {"__url__", "__local_path__"}:
            same(mine[key], theirs[key])
    elif isinstance(theirs, (tuple, list)):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            same(one, other)
    elif isinstance(theirs, Image.Image):
        same(mine, np.asarray(theirs).transpose(2, 0, 1))
    elif isinstance(theirs, (np.ndarray, torch.Tensor)):
        one, other = np.asarray(mine), np.asarray(theirs)
        assert one.shape == other.shape
        limit = 3 / 255 if other.dtype.kind == "f" and other.max() <= 1 else 3
        assert np.abs(one.astype(float) - other.astype(float)).max() <= limit
    else:
        assert mine == theirs


def size(sample: Any) -> Any:
    assert isinstance(sample["jpg"], Image.Image)
    return {"width": sample["jpg"].size[0], "label": sample["cls"]}


def top(image: Any) -> Any:
    assert isinstance(image, Image.Image)
    return image.crop((0, 0, 16, 8))


def corner(array: Any) -> Any:
    return np.asarray(array)[:4, :4].copy()


def even(sample: Any) -> Any:
    return sample["cls"] % 2 == 0


def own(key: str, value: bytes) -> Any:
    return len(value) if key == ".jpg" else None


def shouted(key: str, value: bytes) -> Any:
    return value.decode().upper() if key == ".txt" else None


def numbered(samples: Any) -> Any:
    for sample in samples:
        yield {"number": sample["json"]["number"] + 1}


def counted(samples: Any) -> Any:
    return len(samples), [sample[1] for sample in samples]


def summed(batch: Any) -> Any:
    return sum(batch[1])


CHAINS: dict[str, Callable[[Any], Any]] = {
    "map": lambda d: d.decode("pil").map(size),
    "map of bytes": lambda d: d.map(lambda s: {"n": len(s["jpg"])}),
    "map_tuple": lambda d: (
        d.decode("pil").to_tuple("jpg", "cls").map_tuple(top, None).map_tuple(corner, lambda y: y + 1)
    ),
    "map_dict": lambda d: d.decode("rgb8").map_dict(jpg=corner, cls=lambda y: y * 2).to_tuple("jpg", "cls"),
    "floats": lambda d: d.decode("rgb").map_dict(jpg=corner).to_tuple("jpg", "txt"),
    "tensors": lambda d: d.decode("torchrgb").map_dict(jpg=lambda x: x[:, :4, :4]).to_tuple("jpg"),
    "a PIL image at the end": lambda d: d.decode("pil").to_tuple("jpg", "cls").map_tuple(top),
    "select": lambda d: d.decode("pil").select(even).to_tuple("txt", "cls"),
    "select after map": lambda d: d.decode("pil").map(size).select(lambda s: s["label"] == 3),
    "decode": lambda d: d.decode(own).to_tuple("jpg", "cls", "json"),
    "decode, then words": lambda d: d.decode(shouted, "pil").map(lambda s: (s["jpg"].size, s["txt"])),
    "decode, words in Python": lambda d: d.decode(shouted, "rgb8").to_tuple("jpg", "txt"),
    "decode only": lambda d: d.decode(own, only="jpg").to_tuple("jpg", "txt"),
    "slice": lambda d: d.decode("pil").slice(2, 9, 3).map(size),
    "slice, native": lambda d: d.decode("pil").slice(5).to_tuple("cls"),
    "compose": lambda d: d.decode("pil").compose(numbered),
    "rename": lambda d: d.decode("pil").map(size).rename(w="width", keep=False).to_tuple("w"),
    "collation_fn": lambda d: d.decode("pil").to_tuple("jpg", "cls").batched(5, collation_fn=counted),
    "map after batched": lambda d: d.decode("pil").to_tuple("jpg", "cls").batched(5, collation_fn=counted).map(summed),
    "unbatched": lambda d: d.decode("pil").to_tuple("cls").map_tuple(lambda y: y).batched(4).unbatched(),
}


@pytest.mark.parametrize(
    ("name", "workers"),
    mostly(product(CHAINS, [0, 2]), *product(CHAINS, [0]), *product(["map_tuple", "select", "collation_fn"], [2])),
)
def test_like_webdataset(tar: str, name: str, workers: int) -> None:
    theirs = list(CHAINS[name](wds.WebDataset(tar, shardshuffle=False)))
    mine = CHAINS[name](stoker.WebDataset(tar))
    assert len(mine) == len(theirs)
    with stoker.DataLoader(mine, batch_size=None, num_workers=workers) as loader:
        found = [copied(sample) for sample in loader]
    assert len(found) == len(theirs)
    for one, other in zip(found, theirs, strict=True):
        same(one, other)
    if mine._batch is None:
        same(mine[1], theirs[1])


def test_a_selection_alone_is_native(tar: str, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = stoker.WebDataset(tar).decode("rgb8").select(even).to_tuple("jpg", "cls")
    assert isinstance(next(iter(stoker.DataLoader(stoker.WebDataset(tar).decode("rgb8").select(even), 2))), dict)
    assert "because to_tuple" not in capsys.readouterr().err
    assert len(chosen) == 7


def test_shuffle_and_epochs_as_without_functions(tar: str) -> None:
    chain = stoker.WebDataset(tar, seed=3).shuffle(100).decode("pil")
    plain = [sample["__key__"] for sample in stoker.DataLoader(chain, None)]
    mapped = [sample["__key__"] for sample in stoker.DataLoader(chain.map(size), None, num_workers=2)]
    assert mapped == plain != sorted(plain)
    long = chain.select(even).map(size).with_epoch(30)
    assert len(list(stoker.DataLoader(long, None, num_workers=1))) == 30
    assert len(long) == 30


@pytest.mark.parametrize("asked", ["shuffle", "with_epoch", "batched"])
def test_a_filter_looks_at_each_sample(tar: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its verdicts come by place, and are those of the samples stored there, whatever order the chain asks for."""
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))  # no verdicts of other chains
    chain = stoker.WebDataset(tar, seed=3).decode("pil")
    made = {
        "shuffle": lambda: chain.shuffle(100).select(even),
        "with_epoch": lambda: chain.select(even).with_epoch(30),
        "batched": lambda: chain.select(even).batched(5),
    }[asked]()
    labels = [int(label) for sample in stoker.DataLoader(made, None) for label in np.atleast_1d(sample["cls"])]
    stored = [i % 5 for i in range(12) if i % 5 % 2 == 0]
    assert sorted(set(labels)) == [0, 2, 4]
    assert len(labels) == 30 if asked == "with_epoch" else sorted(labels) == sorted(stored)


def raises(sample: Any) -> Any:
    if sample["cls"] == 1:
        raise KeyError(sample["__key__"])
    return sample["cls"]


@pytest.mark.parametrize("workers", mostly([0, 2], 0))
def test_handlers(tar: str, workers: int) -> None:
    chain = stoker.WebDataset(tar).decode("pil")

    def labels(dataset: Any) -> list[int]:
        return [int(label) for label in stoker.DataLoader(dataset, None, num_workers=workers)]

    for handler in (wds.warn_and_continue, wds.ignore_and_continue):
        assert 1 not in labels(chain.map(raises, handler=handler))
    for handler in (wds.reraise_exception, None):
        with pytest.raises(stoker.DataError) as caught:
            labels(chain.map(raises, handler=handler))
        assert isinstance(caught.value.__cause__, KeyError)
    seen: list[BaseException] = []

    def noted(error: BaseException) -> bool:
        seen.append(error)
        return True

    assert 1 not in labels(chain.map(raises, handler=noted))
    assert {type(error) for error in seen} == {KeyError}
    assert len(seen) >= 3
    with pytest.raises(stoker.DataError):
        labels(chain.map(raises, handler=lambda error: False))


def test_stages_that_are_not_one_for_one(tar: str) -> None:
    chain = stoker.WebDataset(tar).decode("pil")
    with (
        stoker.DataLoader(
            chain.compose(lambda samples: (s for s in samples if even(s))), None, num_workers=1
        ) as loader,
        pytest.raises(stoker.DataError, match="gave 0 samples for one"),
    ):
        list(loader)
    with pytest.raises(stoker.ConfigError, match="batches"):
        chain.batched(2, collation_fn=counted).unbatched()


def test_what_functions_get_does_not_depend_on_imports(tar: str) -> None:
    needs("torchvision.transforms.v2")
    kinds: list[Any] = []

    def note(image: Any) -> Any:
        kinds.append(type(image))
        return 0

    for word in ("rgb8", "rgb"):
        chain = stoker.WebDataset(tar).decode(word).to_tuple("jpg", "cls").map_tuple(note, lambda label: label)
        list(stoker.DataLoader(chain, 2, num_workers=0))
    assert set(kinds) == {np.ndarray}

"""WebDataset's chain over tar shards."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import jpeg, make_tar
from forms import mostly
from PIL import Image

import stoker
from stoker import transforms as T


def identity(x: Any) -> Any:
    return x


def reraise_exception(error: Exception) -> bool:
    raise error


def warn_and_continue(error: Exception) -> bool:
    return True


CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


def ids(batches: Any) -> list[int]:
    return [i for batch in batches for i in batch.ids.tolist()]


def test_the_usual_chain(shards: str) -> None:
    dataset = (
        stoker.WebDataset(shards, shardshuffle=False)
        .shuffle(1000)
        .decode("pil")
        .to_tuple("jpg;png", "cls")
        .map_tuple(CROP, identity)
    )
    with stoker.DataLoader(dataset, batch_size=8, num_workers=2) as loader:
        seen = []
        for batch in loader:
            images, labels = batch
            assert images.shape[1:] == (3, 24, 24)
            assert images.dtype == torch.uint8
            assert labels.tolist() == [i % 5 for i in batch.ids.tolist()]
            seen += batch.ids.tolist()
        assert sorted(seen) == list(range(30))
        assert seen != sorted(seen)
        assert len(loader) == 4


def test_batches_of_the_dataset(shards: str) -> None:
    dataset = stoker.WebDataset(shards).decode("pil").to_tuple("jpg", "cls").map_tuple(CROP).batched(12)
    with stoker.DataLoader(dataset, batch_size=None, num_workers=2) as loader:
        assert [tuple(batch[0].shape) for batch in loader] == [(12, 3, 24, 24)] * 2 + [(6, 3, 24, 24)]
    assert [len(batch[1]) for batch in dataset] == [12, 12, 6]
    assert len(dataset) == 3
    whole = stoker.WebDataset(shards).decode("pil").to_tuple("jpg", "cls").map_tuple(CROP).batched(12, partial=False)
    assert [len(batch[1]) for batch in whole] == [12, 12]
    assert len(whole) == 2
    with pytest.raises(stoker.ConfigError, match="batch_size=None"):
        stoker.DataLoader(dataset)


def test_dicts_of_all_fields(shards: str) -> None:
    dataset = stoker.WebDataset(shards).decode("pil").map_dict(jpg=CROP)
    with stoker.DataLoader(dataset, batch_size=4) as loader:
        batch = next(iter(loader))
    assert isinstance(batch, dict)
    assert set(batch) == {"__key__", "__url__", "jpg", "cls", "txt", "json"}
    assert batch["jpg"].shape == (4, 3, 24, 24)
    assert batch["cls"].tolist() == [0, 1, 2, 3]
    assert batch["txt"] == [f"picture {i} — ü" for i in range(4)]
    assert batch["json"] == [{"number": i, "odd": bool(i % 2)} for i in range(4)]
    assert [key.rpartition("/")[2] for key in batch["__key__"]] == [f"s{i:04d}" for i in range(4)]
    assert all(url.endswith("train-000.tar") for url in batch["__url__"])
    assert batch.ids.tolist() == [0, 1, 2, 3]  # type: ignore[attr-defined]
    sample = next(iter(stoker.WebDataset(shards).decode("pil").map_dict(jpg=CROP)))
    assert (sample["cls"], sample["txt"]) == (0, "picture 0 — ü")
    assert sample["jpg"].shape == (3, 24, 24)


def test_without_decode_fields_are_bytes(shards: str) -> None:
    for sample in stoker.WebDataset(shards):
        assert sample["jpg"] == jpeg(0)
        assert sample["cls"] == b"0"
        break
    first = next(iter(stoker.WebDataset(shards).decode().to_tuple("jpg", "cls")))
    assert tuple(first) == (jpeg(0), 0)
    only = next(iter(stoker.WebDataset(shards).decode("pil", only="cls").to_tuple("txt", "cls")))
    assert tuple(only) == ("picture 0 — ü".encode(), 0)


WORDS: list[tuple[str, str, tuple[int, ...], bool]] = [
    ("pil", "uint8", (3, 64, 80), False),
    ("rgb8", "uint8", (64, 80, 3), False),
    ("rgb", "float32", (64, 80, 3), False),
    ("torchrgb8", "uint8", (3, 64, 80), False),
    ("torchrgb", "float32", (3, 64, 80), False),
    ("pill", "uint8", (1, 64, 80), True),
    ("l8", "uint8", (64, 80), True),
    ("l", "float32", (64, 80), True),
    ("torchl8", "uint8", (64, 80), True),
    ("torchl", "float32", (64, 80), True),
]


@pytest.mark.parametrize(
    ("word", "dtype", "shape", "gray"),
    mostly(WORDS, *(one for one in WORDS if one[0] in ("pil", "rgb", "torchrgb", "l8"))),
    ids=[word[0] for word in WORDS],
)
def test_words_of_decode(shards: str, word: str, dtype: str, shape: tuple[int, ...], gray: bool) -> None:
    dataset = stoker.WebDataset(shards).decode(word).to_tuple("jpg")
    with stoker.DataLoader(dataset, batch_size=None, output="numpy") as loader:
        (image,) = next(iter(loader))
    assert (str(image.dtype), image.shape) == (dtype, shape)
    with Image.open(io.BytesIO(jpeg(0))) as photo:
        expected = np.asarray(photo.convert("L" if gray else "RGB")).astype(np.float32)
    if dtype == "float32":
        expected /= 255
    if shape[0] == 3:
        expected = expected.transpose(2, 0, 1)
    scale = 1 if dtype == "uint8" else 255
    assert np.abs(image.astype(np.float32).reshape(expected.shape) - expected).max() * scale <= 2.01


def test_rename(shards: str) -> None:
    dataset = stoker.WebDataset(shards).decode("pil").rename(image="jpg;png", target="cls")
    sample = next(iter(dataset))
    assert set(sample) == {"__key__", "__url__", "image", "target", "txt", "json"}
    assert sample["target"] == 0
    image, target = next(iter(dataset.to_tuple("image", "target")))
    assert image.shape == (3, 64, 80)
    assert target == 0


def test_a_field_twice(shards: str) -> None:
    dataset = stoker.WebDataset(shards).decode("pil").to_tuple("jpg", "jpg", "__key__").map_tuple(T.Resize(16), None)
    small, large, key = next(iter(dataset))
    assert (small.shape, large.shape) == ((3, 16, 20), (3, 64, 80))
    assert key.endswith("s0000")


def test_with_epoch_is_an_endless_row(shards: str) -> None:
    base = stoker.WebDataset(shards).shuffle(10).decode("pil").to_tuple("cls")
    with stoker.DataLoader(base, batch_size=None) as loader:
        plan = ids(loader) + ids(loader) + ids(loader) + ids(loader)
    dataset = base.with_epoch(13)
    assert len(dataset) == 13
    with stoker.DataLoader(dataset, batch_size=None) as loader:
        assert len(loader) == 13
        parts = [ids(loader) for _ in range(8)]
        assert [len(part) for part in parts] == [13] * 8
        assert [i for part in parts for i in part] == plan[: 8 * 13]
        loader.set_epoch(3)
        assert ids(loader) == parts[3]
        loader.set_epoch(4)
        iterator = iter(loader)
        head = [i for _ in range(5) for i in next(iterator).ids.tolist()]
        state = loader.state_dict()
    with stoker.DataLoader(dataset, batch_size=None) as loader:
        loader.load_state_dict(state)
        loader.set_epoch(4)
        assert head + ids(loader) == parts[4]
        assert ids(loader) == parts[5]


def test_with_epoch_in_batches(shards: str) -> None:
    dataset = stoker.WebDataset(shards).decode("pil").to_tuple("cls").batched(8).with_epoch(6)
    with stoker.DataLoader(dataset, batch_size=None) as loader:
        for _ in range(2):
            batches = list(loader)
            assert [len(batch[0]) for batch in batches] == [8] * 6
    ranks = []
    for rank in range(2):
        with stoker.DataLoader(dataset, batch_size=None, rank=rank, world_size=2) as loader:
            ranks.append([batch.ids.tolist() for batch in loader])
    assert [len(rank) for rank in ranks] == [6, 6]
    long = stoker.WebDataset(shards).decode("pil").to_tuple("cls").with_epoch(100)
    with stoker.DataLoader(long, batch_size=8) as loader:
        assert len(list(loader)) == len(loader) == 13


@pytest.mark.parametrize(
    ("length", "more", "steps", "noticed"),
    [
        (96, {"batch_size": 8}, 12, None),
        (100, {"batch_size": 8}, 13, "13 batches, 104 samples"),
        (100, {"batch_size": 8, "drop_last": True}, 12, "12 batches, 96 samples"),
        (100, {"batch_size": None}, 100, None),
        (100, {"batch_size": 1}, 100, None),
        (96, {"global_batch_size": 16, "rank": 1, "world_size": 2}, 12, None),
        (100, {"global_batch_size": 16, "rank": 1, "world_size": 2}, 13, "13 batches, 104 samples"),
    ],
)
def test_with_epoch_says_where_it_rounds(
    shards: str,
    length: int,
    more: dict[str, Any],
    steps: int,
    noticed: str | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    dataset = stoker.WebDataset(shards).decode("pil").to_tuple("cls").with_epoch(length)
    with stoker.DataLoader(dataset, **more) as loader:
        assert len(list(loader)) == len(loader) == steps
    notices = [line for line in capsys.readouterr().err.splitlines() if "with_epoch" in line]
    assert len(notices) == (noticed is not None)
    assert noticed is None or noticed in notices[0]


def test_length_is_known_or_said(shards: str) -> None:
    dataset = stoker.WebDataset(shards).decode("pil").to_tuple("cls")
    assert len(dataset) == 30
    assert len(dataset.with_length(7)) == 7
    assert dataset[29][0] == 29 % 5
    assert len(pickle.loads(pickle.dumps(dataset))) == 30


def test_each_call_returns_a_new_dataset(shards: str) -> None:
    base = stoker.WebDataset(shards).decode("pil")
    one, two = base.to_tuple("cls"), base.to_tuple("txt")
    assert [len(next(iter(d))) for d in (one, two)] == [1, 1]
    assert isinstance(next(iter(base)), dict)
    assert next(iter(two))[0].startswith("picture")


def test_paths_of_all_kinds(shards: str) -> None:
    root = Path(shards).parent
    paths = sorted(root.glob("*.tar"))
    for urls in (
        str(root / "*.tar"),
        [str(path) for path in paths],
        paths,
        "::".join(map(str, paths)),
        f"file:{shards}",
    ):
        assert len(stoker.WebDataset(urls)) == 30
    assert len(stoker.WebDataset(paths[0])) == 11


REFUSED: list[tuple[Any, str]] = [
    (lambda d: d.map("print"), "print"),
    (lambda d: d.select(identity, "jpg"), "select"),
    (lambda d: d.slice(-5), "slice"),
    (lambda d: d.shuffle(10).slice(5), "others in each"),
    (lambda d: d.compose(3), "compose"),
    (lambda d: d.batched(2).compose(print), "compose"),
    (lambda d: d.batched(2).select(identity), "select"),
    (lambda d: d.batched(2, collation_fn=identity).unbatched(), "collation_fn"),
    (lambda d: d.repeat(2), "epoch"),
    (lambda d: d.unbatched(), "batched"),
    (lambda d: d.decode("rbg"), "did you mean 'rgb'"),
    (lambda d: d.decode("rgba"), "rgba"),
    (lambda d: d.decode(5), "5"),
    (lambda d: d.decode("pil", post=["pil"]), "post"),
    (lambda d: d.to_tuple("jpg").decode("pil"), "to_tuple"),
    (lambda d: d.map_tuple(None), "to_tuple"),
    (lambda d: d.to_tuple("jpg").map_tuple(None, None), "2 transforms"),
    (lambda d: d.to_tuple("jpg").map_tuple(dict), "dict"),
    (lambda d: d.to_tuple(), "names"),
    (lambda d: d.map_dict(jpg=5), "map_dict(jpg=...)"),
    (lambda d: d.batched(0), "batchsize"),
    (lambda d: d.batched(2).batched(2), "already"),
    (lambda d: d.batched(2, collation_fn=5), "collation_fn"),
    (lambda d: d.batched(2).shuffle(10), "shuffle"),
    (lambda d: d.shuffle(-1), "size"),
    (lambda d: d.with_epoch(0), "length"),
    (lambda d: d.decode("pil", handler="prnt"), "handler"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_can_not_be_native_is_refused(shards: str, call: Any, text: str) -> None:
    with pytest.raises(stoker.ConfigError) as caught:
        call(stoker.WebDataset(shards))
    assert text in str(caught.value)


def test_arguments_of_the_constructor(shards: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(stoker.ConfigError) as caught:
        stoker.WebDataset(17, handler="print", resampled=True, select_files=identity, seed=-1)
    for word in ("urls", "handler", "resampled", "select_files", "seed"):
        assert word in str(caught.value)
    with pytest.raises(stoker.ConfigError, match="YAML"):
        stoker.WebDataset("mix.yaml")
    stoker.WebDataset(shards, nodesplitter=identity, workersplitter=identity, detshuffle=True, cache_dir="x")
    said = capsys.readouterr().err
    for name in ("nodesplitter", "workersplitter", "detshuffle", "cache_dir"):
        assert f"WebDataset({name}=...) is ignored" in said
    assert stoker.WebDataset(shards, handler=warn_and_continue)._recipe().on_bad == "replace"
    assert stoker.WebDataset(shards, handler=reraise_exception)._recipe().on_bad == "fail"
    assert stoker.WebDataset(shards, shardshuffle=100, seed=3)._recipe().shuffle
    assert stoker.WebDataset(shards, seed=3)._recipe().seed == 3


def test_pickles_are_refused(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "boom",)

    path = tmp_path / "p.tar"
    with tarfile.open(path, "w") as shard:
        for name, body in {"a.pyd": pickle.dumps(Bomb()), "a.npy": b"123", "a.cls": b"3"}.items():
            info = tarfile.TarInfo(name)
            info.size = len(body)
            shard.addfile(info, io.BytesIO(body))
    with pytest.raises(stoker.ConfigError) as caught:
        next(iter(stoker.WebDataset(path).decode()))
    assert "pickle" in str(caught.value)
    assert "npy" in str(caught.value)
    assert tuple(next(iter(stoker.WebDataset(path).decode().to_tuple("cls")))) == (3,)
    assert not (tmp_path / "boom").exists()


def test_fields_that_are_not_there(shards: str) -> None:
    with pytest.raises(stoker.StokerError) as caught:
        next(iter(stoker.WebDataset(shards).decode("pil").to_tuple("jpgg", "cls")))
    assert "jpgg" in str(caught.value)
    with pytest.raises(stoker.ConfigError, match="did you mean 'jpg'"):
        next(iter(stoker.WebDataset(shards).decode("pil").map_dict(jpgg=CROP)))


def test_a_shard_that_is_not_there(tmp_path: Path, shards: str) -> None:
    with pytest.raises(stoker.ConfigError) as caught:
        next(iter(stoker.WebDataset(shards.replace("002}", "004}"))))
    assert "train-003" in str(caught.value)


def test_a_cut_shard_is_an_error_not_a_smaller_dataset(tmp_path: Path) -> None:
    path = make_tar(tmp_path / "cut.tar", 0, 6)
    body = path.read_bytes()
    for cut in (512 * 7, 512 * 7 + 100, len(body) // 2):
        path.write_bytes(body[:cut])
        with pytest.raises(stoker.DataError) as caught:
            len(stoker.WebDataset(path))
        assert str(path) in str(caught.value)
        assert caught.value.where.get("offset", -1) >= 0


def test_text_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "t.tar"
    with tarfile.open(path, "w") as shard:
        for i, (cls, meta) in enumerate([(b"1", b"{}"), (b"x1", b"{}"), (b"2", b"{")]):
            for name, body in {"cls": cls, "json": meta}.items():
                info = tarfile.TarInfo(f"{i}.{name}")
                info.size = len(body)
                shard.addfile(info, io.BytesIO(body))
    dataset = stoker.WebDataset(path).decode().to_tuple("cls", "json")
    with stoker.DataLoader(dataset, batch_size=None) as loader:
        iterator = iter(loader)
        assert tuple(next(iterator)) == (1, {})
        with pytest.raises(stoker.DataError) as caught:
            next(iterator)
        assert caught.value.where["member"].endswith("1.cls")
        assert caught.value.where["sample"] == 1
        assert caught.value.where["field"] == "cls"
        with pytest.raises(stoker.DataError):
            next(iterator)  # it does not go past what it could not deliver
    with stoker.DataLoader(dataset, batch_size=3, on_bad="skip") as loader:
        (batch,) = list(loader)
        assert batch.valid.tolist() == [True, False, False]
        assert [bad.sample for bad in batch.bad] == [1, 2]
        assert json.dumps(batch[1]) == "[{}, {}, {}]"

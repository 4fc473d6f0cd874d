"""What a dataset told its user holds for every loader over it, or the loader raises an error that says what changed."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA, engine, jpeg, kill, make_folder, make_tar, stored
from forms import mostly

import stoker


def _loaded(dataset: Any, **keywords: Any) -> int:
    with stoker.DataLoader(dataset, batch_size=4, **keywords) as loader:
        return sum(int(batch.valid.sum()) for batch in loader)


def _remove(root: Path, path: Path) -> str:
    path.unlink()
    return f"it had 12 samples and has 11 now: {path} is gone"


def _add(root: Path, path: Path) -> str:
    new = path.with_name("0000a.jpg")
    new.write_bytes(jpeg(40))
    return f"it had 12 samples and has 13 now: {new} is new"


def _replace(root: Path, path: Path) -> str:
    before = path.stat().st_size
    path.unlink()
    path.write_bytes(jpeg(41))
    return f": {path} had {before} bytes and has {path.stat().st_size}"


def _replace_as_long(root: Path, path: Path) -> str:
    """Another picture of as many bytes, in the place of the first."""
    body = path.read_bytes()
    new = path.with_name("new")
    new.write_bytes(body[:-2] + b"\xff\xd9")
    os.utime(new, ns=(1, 10**18))
    new.rename(path)
    return f": {path} was written again"


TOLD: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "samples": lambda dataset: dataset.samples,
    "targets": lambda dataset: dataset.targets,
    "classes": lambda dataset: dataset.classes,
    "a sample": lambda dataset: dataset[0],
    "a sampler": lambda dataset: stoker.RandomSampler(dataset),
    "the length of a loader": lambda dataset: len(stoker.DataLoader(dataset, batch_size=2)),
}


@pytest.mark.parametrize(
    ("told", "change"),
    mostly(
        product(TOLD, [_remove, _add, _replace, _replace_as_long]),
        *(("len", _remove), ("samples", _add), ("a sampler", _replace), ("the length of a loader", _replace_as_long)),
    ),
)
def test_a_folder_that_changed_before_its_loader(
    told: str, change: Callable[[Path, Path], str], tmp_path: Path
) -> None:
    root = make_folder(tmp_path / "d", 12)
    dataset = stoker.ImageFolder(root)
    TOLD[told](dataset)
    expected = change(root, root / "class1" / "0004.jpg")
    with pytest.raises(stoker.DataError) as caught:
        _loaded(dataset)
    assert caught.value.code == "changed"
    assert "the data changed after it was indexed for the ImageFolder" in str(caught.value)
    assert expected.lstrip(": ") in str(caught.value.cause)
    assert caught.value.where["file"] in expected
    assert "make the dataset again" in str(caught.value.hint)
    assert _loaded(stoker.ImageFolder(root)) in (11, 12, 13)


def test_a_file_that_was_rewritten_in_place_before(tmp_path: Path) -> None:
    """Its folder is as it was, so the dataset is made of the older index; a loader that reads the file notices. What
    is said then is true, and names the file, although its engine has ended."""
    root = make_folder(tmp_path / "d", 12)
    path = root / "class1" / "0004.jpg"
    for old in [*root.rglob("*.jpg"), *root.glob("*"), root]:
        os.utime(old, ns=(1, 10**18))
    assert len(stoker.ImageFolder(root)) == 12
    body = path.read_bytes()
    path.write_bytes(body)
    os.utime(path, ns=(1, 10**18 + 10**9))
    dataset = stoker.ImageFolder(root)
    assert len(dataset) == 12
    with pytest.raises(stoker.DataError, match="not the one that was indexed: it was written to") as caught:
        _loaded(dataset)
    assert caught.value.where["file"] == str(path)
    for _ in range(2):
        with pytest.raises(stoker.DataError, match="changed after it was indexed for the ImageFolder") as caught:
            _loaded(dataset)
        assert str(caught.value.cause) == f"{path} had changed since it was indexed"
        assert caught.value.where["file"] == str(path)
    assert _loaded(stoker.ImageFolder(root)) == 12


def test_nothing_told_nothing_to_hold(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "d", 12)
    dataset = stoker.ImageFolder(root)
    (root / "class1" / "0004.jpg").unlink()
    assert _loaded(dataset) == 11
    assert len(dataset) == 11  # what the loader found, and not what was there when the dataset was made
    assert len(dataset.samples) == 11
    (root / "class1" / "0001.jpg").unlink()
    with pytest.raises(stoker.DataError, match="it had 11 samples and has 10 now"):
        _loaded(dataset)


def test_a_loader_over_other_data_than_the_first(tmp_path: Path) -> None:
    """A loader that is made, a second one over the same dataset, and the first when it is opened again."""
    root = make_folder(tmp_path / "d", 12)
    dataset = stoker.ImageFolder(root)
    first, waiting = stoker.DataLoader(dataset, batch_size=4), stoker.DataLoader(dataset, batch_size=4)
    assert len(first) == 3
    assert len(list(first)) == 3
    assert _loaded(dataset) == 12
    (root / "class1" / "0004.jpg").unlink()
    for loader in (waiting, first):
        loader.close()
        with pytest.raises(stoker.DataError, match="12 samples and has 11 now"):
            list(loader)
    with pytest.raises(stoker.DataError, match="12 samples and has 11 now"):
        stoker.DataLoader(dataset)


def test_two_answers_are_of_the_same_data(tmp_path: Path) -> None:
    """A copy that was made of other data does not answer beside the dataset; neither does one beside a loader."""
    root = make_folder(tmp_path / "d", 12)
    dataset = stoker.ImageFolder(root)
    (root / "class1" / "0004.jpg").unlink()
    labels = dataset.select("label")
    assert len(dataset) == 12
    with pytest.raises(stoker.DataError, match="12 samples and has 11 now"):
        len(labels)
    other = stoker.ImageFolder(root)
    with stoker.DataLoader(other, batch_size=4) as loader:
        next(iter(loader))
        (root / "class1" / "0001.jpg").unlink()
        with pytest.raises(stoker.DataError, match="11 samples and has 10 now"):
            len(stoker.DataLoader(other.select("label")))


def test_a_loader_of_another_seed_over_other_data(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "d", 12)
    with stoker.DataLoader(stoker.ImageFolder(root), batch_size=4, shuffle=True) as loader:
        next(iter(loader))
        state = {**loader.state_dict(), "seed": 7}
        assert len(loader) == 3
        (root / "class1" / "0004.jpg").unlink()
        with pytest.raises(stoker.StokerError, match=r"12 samples and has 11 now|dataset differs"):
            loader.load_state_dict(state)
            list(loader)


def test_copies_and_pickles_of_a_dataset(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "d", 12)
    dataset = stoker.ImageFolder(root)
    copies = [dataset.select("label"), dataset.to_tuple(), dataset.cache("1MiB")]
    assert len(dataset.targets) == 12
    copies.append(pickle.loads(pickle.dumps(dataset)))
    for path in [*root.rglob("*.jpg"), *root.glob("*")]:
        os.utime(path, ns=(1, 10**18))  # as on another machine
    assert _loaded(copies[-1]) == 12
    (root / "class1" / "0004.jpg").unlink()
    for copy in copies:
        with pytest.raises(stoker.DataError, match="12 samples and has 11 now"):
            _loaded(copy)
    with pytest.raises(stoker.DataError, match="12 samples and has 11 now"):
        dataset.select("image")


def test_a_dataset_that_is_asked_again(tmp_path: Path) -> None:
    """On another engine it would find other data: its answers do not change without a word."""
    root = make_folder(tmp_path / "d", 12)
    dataset = stoker.ImageFolder(root)
    assert len(dataset) == 12
    assert _loaded(dataset) == 12  # ends the engine
    (root / "class1" / "0004.jpg").unlink()
    for ask in (lambda: dataset.samples, lambda: dataset[11]):
        with pytest.raises(stoker.DataError, match="12 samples and has 11 now"):
            ask()


@pytest.mark.parametrize("change", mostly([_remove, _add, _replace, _replace_as_long], _remove, _replace_as_long))
def test_an_engine_that_is_started_again(change: Callable[[Path, Path], str], tmp_path: Path) -> None:
    root = make_folder(tmp_path / "d", 12)
    with stoker.DataLoader(stoker.ImageFolder(root), batch_size=1, prefetch=1) as loader:
        batches = iter(loader)
        next(batches)
        change(root, root / "class1" / "0004.jpg")
        kill(engine())
        for _ in range(2):
            with pytest.raises(stoker.DataError, match="the dataset changed while it was in use") as caught:
                next(batches)
            assert caught.value.code == "changed"


def test_a_mixture_names_its_member(tmp_path: Path) -> None:
    a, b = (stoker.ImageFolder(make_folder(tmp_path / name, 12)) for name in "ab")
    mixture = stoker.Mixture([a, b])
    assert len(mixture) == 24
    gone = tmp_path / "b" / "class1" / "0004.jpg"
    gone.unlink()
    with pytest.raises(stoker.DataError) as caught:
        _loaded(mixture)
    assert caught.value.where["file"] == str(gone)
    assert "12 samples and has 11 now" in str(caught.value)
    assert _loaded(a) == 12


def _pair(name: str, copy: Callable[[Path], object]) -> Callable[[Path], tuple[Any, Path]]:
    """Two files of one format, of which the second goes."""

    def make(tmp: Path) -> tuple[Any, Path]:
        for number in range(2):
            copy(tmp / f"{name.format(number)}")
        return tmp / name.format("*"), tmp / name.format(1)

    return make


def _npy(path: Path) -> None:
    np.save(path, np.arange(6))


def _lines(path: Path) -> None:
    path.write_text('{"a": 1}\n{"a": 2}\n')


FORMATS: dict[str, tuple[Callable[[Any], Any], Callable[[Path], tuple[Any, Path]]]] = {
    "WebDataset": (stoker.WebDataset, _pair("a-{}.tar", lambda path: make_tar(path, 0, 5))),
    "NpyDataset": (stoker.NpyDataset, _pair("a-{}.npy", _npy)),
    "HDF5Dataset": (stoker.HDF5Dataset, _pair("a-{}.h5", lambda path: shutil.copy(DATA / "guides/photos.h5", path))),
    "TFRecordDataset": (
        stoker.TFRecordDataset,
        _pair("a-{}.tfrecord", lambda path: shutil.copy(DATA / "guides/photos-00000-of-00002", path)),
    ),
    "ParquetDataset": (
        stoker.ParquetDataset,
        _pair("a-{}.parquet", lambda path: shutil.copy(DATA / "guides/photos.parquet", path)),
    ),
    "LinesDataset": (lambda path: stoker.LinesDataset(path), _pair("a-{}.jsonl", _lines)),
    "TokenDataset": (
        lambda path: stoker.TokenDataset(path, 4),
        _pair("a-{}.bin", lambda path: shutil.copy(DATA / "tokens/train.bin", path)),
    ),
    "files": (stoker.files, _pair("{}.jpg", lambda path: path.write_bytes(jpeg(1)))),
}


@pytest.mark.parametrize("kind", mostly(FORMATS, "WebDataset", "ParquetDataset"))
def test_every_format(kind: str, tmp_path: Path) -> None:
    make, pair = FORMATS[kind]
    pattern, second = pair(tmp_path)
    dataset = make(str(pattern))
    count = len(dataset)
    second.unlink()
    with pytest.raises(stoker.DataError) as caught:
        _loaded(dataset)
    assert caught.value.code == "changed"
    assert caught.value.where["file"] == str(second)
    assert f"it had {count:,} samples and has {count // 2:,} now: {second} is gone" in str(caught.value)


def test_a_folder_of_shards_an_environment_and_a_table(tmp_path: Path) -> None:
    shutil.copytree(stored("mds") / "zstd", tmp_path / "mds")
    mds = stoker.MDSDataset(tmp_path / "mds")
    photos = make_folder(tmp_path / "d", 4)
    table = tmp_path / "t.csv"
    rows = [f"{path},{i}\n" for i, path in enumerate(sorted(photos.rglob("*.jpg")))]
    table.write_text("path,label\n" + "".join(rows))
    manifest = stoker.Table(table, path="path", label="label")
    assert len(mds) > len(manifest) == 4
    table.write_text("path,label\n" + "".join(rows[1:]))
    with pytest.raises(stoker.DataError, match="the data changed after it was indexed for the Table") as caught:
        _loaded(manifest)
    assert "4 samples and has 3 now" in str(caught.value.cause)

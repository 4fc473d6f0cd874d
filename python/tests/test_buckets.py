"""Datasets in a bucket and on a server beside the same datasets in local folders: numbers, order, bytes, states."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import stores
from conftest import DATA, make_folder, make_tar, stored
from forms import mostly
from reads import PHOTOS, SMALL, TABLE, fields_of, reviews, rows

import stoker

# What each dataset is made of, below a folder or a prefix that ends in "/".
MAKE: dict[str, Callable[[str], Any]] = {
    "folder": lambda at: stoker.ImageFolder(at + "folder", SMALL),
    "tar": lambda at: stoker.WebDataset(at + "tar/train-{000..002}.tar").decode().to_tuple("cls", "txt"),
    "tar.gz": lambda at: stoker.WebDataset(at + "tgz/*.tgz").decode().to_tuple("txt", "cls"),
    "files": lambda at: stoker.files(at + "photos/*.jpg", None, transform=SMALL),
    "list": lambda at: stoker.WebDataset("@" + at + "tar/list.txt").decode().to_tuple("cls"),
    "table": lambda at: stoker.Table(at + "photos/train.csv", "file", "class", transform=SMALL),
    "parquet": lambda at: stoker.ParquetDataset(at + "parquet/rows-zstd.parquet", columns=["i64", "text", "vec"]),
    "tfrecord": lambda at: stoker.TFRecordDataset(at + "tfrecord/pictures-0000{0,1}-of-00002"),
    "hdf5": lambda at: stoker.HDF5Dataset(at + "hdf5/filters.h5", ["gzip", "lzf_rows"]),
    "mds": lambda at: stoker.MDSDataset(at + "mds"),
    "tokens": lambda at: stoker.TokenDataset(at + "tokens/train.bin", 16),
    "npy": lambda at: stoker.NpyDataset(at + "npy/images.npy", at + "npy/labels.npy"),
    "npz": lambda at: stoker.NpyDataset(at + "npz"),
    "lmdb": lambda at: stoker.LMDBDataset(at + "lmdb/datum_raw.mdb"),
    "beton": lambda at: stoker.BetonDataset(at + "beton/raw.beton"),
    "lines": lambda at: stoker.LinesDataset(at + "lines", ["of", "text"]),
}


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, unzip: Callable[[str, str], str]) -> Path:
    """A small dataset of every format."""
    root = tmp_path_factory.mktemp("local")
    for name in ("photos", "lines", "tar"):
        (root / name).mkdir()
    make_folder(root / "folder", 11)
    for number in range(3):
        make_tar(root / "tar" / f"train-{number:03d}.tar", 5 * number, 5)
    (root / "tar" / "list.txt").write_text("# in this order\ntrain-002.tar\ntrain-{000..001}.tar\n")
    for photo in PHOTOS:
        shutil.copy(photo, root / "photos")
    (root / "photos" / "train.csv").write_text(TABLE)
    reviews(root / "lines")
    (root / "lines" / "x.jpg").unlink()
    for path in (
        stored("parquet") / "rows-zstd.parquet",
        *stored("tfrecord").glob("pictures-0000*"),
        *(DATA / "npy" / name for name in ("images.npy", "labels.npy")),
        *(DATA / "tokens").glob("train.*"),
        *(
            Path(unzip(kind, name))
            for kind, name in (("hdf5", "filters.h5"), ("lmdb", "datum_raw.mdb"), ("beton", "raw.beton"))
        ),
    ):
        kind = {"testdata": path.parent.parent.name}.get(path.parent.name, path.parent.name)
        (root / kind).mkdir(exist_ok=True)
        shutil.copy(path, root / kind)
    (root / "tgz").mkdir()
    (root / "tgz" / "train.tgz").write_bytes(gzip.compress((root / "tar" / "train-001.tar").read_bytes()))
    (root / "npz").mkdir()
    for name in ("packed.npz", "packed-1.npz"):
        shutil.copy(DATA / "npy" / name, root / "npz")
    shutil.copytree(stored("mds") / "zstd", root / "mds")
    return root


@pytest.fixture(scope="module")
def bucket(local: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[stores.Bucket]:
    with stores.s3(tmp_path_factory.mktemp("s3") / "objects") as store:
        store.put_folder(local, "data")
        yield store


@pytest.fixture
def remote(bucket: stores.Bucket, monkeypatch: pytest.MonkeyPatch) -> str:
    """The prefix of the same in the bucket; the engines of this test have its keys."""
    for key, value in bucket.env.items():
        monkeypatch.setenv(key, value)
    return bucket.name("data/")


def ids(loader: Any, count: int = -1) -> list[list[int]]:
    found = []
    for batch in loader:
        found.append(batch.ids.tolist())
        if len(found) == count:
            break
    return found


def batches(dataset: Any) -> list[Any]:
    """What a loader gives: numbers, and the bytes of every field. As dicts or as tuples."""
    with stoker.DataLoader(dataset, 3, shuffle=True, seed=1, output="numpy") as loader:
        return [
            (batch.ids.tolist(), [[type(batch).__name__.encode()], *map(rows, fields_of(batch))]) for batch in loader
        ]


@pytest.mark.parametrize("kind", MAKE)
def test_a_bucket_is_like_a_folder(kind: str, local: Path, remote: str) -> None:
    here, there = MAKE[kind](f"{local}/"), MAKE[kind](remote)
    assert len(there) == len(here) > 0
    found = batches(there)
    assert found == batches(here)
    assert sum(len(column) for _, columns in found for column in columns) > 0


@pytest.mark.parametrize("kind", mostly(MAKE, "folder", "tar", "parquet"))
@pytest.mark.parametrize("shuffle", [True, "block"])
def test_a_state_of_one_resumes_on_the_other(kind: str, shuffle: Any, local: Path, remote: str) -> None:
    settings: dict[str, Any] = {"batch_size": 2, "shuffle": shuffle, "seed": 7}
    made = [MAKE[kind](at) for at in (f"{local}/", remote)]
    whole = [ids(stoker.DataLoader(one, **settings)) for one in made]
    assert whole[0] == whole[1]
    for first, second in (made, made[::-1]):
        with stoker.DataLoader(first, **settings) as loader:
            begun = ids(loader, 1)
            state = json.loads(json.dumps(loader.state_dict()))
        with stoker.DataLoader(second, **settings) as loader:
            loader.load_state_dict(state)
            assert begun + ids(loader) == whole[0]
            receipt = loader.receipt()
            assert stoker.verify_receipts([receipt], loader)["ok"]


def test_a_mixture_of_a_folder_a_bucket_and_a_server(local: Path, remote: str, tmp_path: Path) -> None:
    def mixed(*prefixes: str) -> Any:
        parts = [
            stoker.WebDataset(f"{at}tar/train-{number:03d}.tar").decode().to_tuple("cls", "txt")
            for number, at in enumerate(prefixes)
        ]
        return stoker.DataLoader(stoker.Mixture(parts, [1, 2, 3]), 2, shuffle=True, seed=3, output="numpy")

    def given(loader: Any) -> list[Any]:
        return [(batch.ids.tolist(), *(list(column) for column in batch)) for batch in loader]

    here = f"{local}/"
    with stores.http(local) as server, mixed(here, remote, server.name()) as spread, mixed(here, here, here) as plain:
        whole = given(plain)
        assert given(spread) == whole
        spread.set_epoch(0)
        walk = iter(spread)
        next(walk)
        state = json.loads(json.dumps(spread.state_dict()))
        for loader in (spread, plain):
            loader.load_state_dict(state)
            assert given(loader) == whole[1:]


def test_names_of_a_store_that_say_nothing_of_what_they_are(local: Path, remote: str) -> None:
    """The arrays of .npz files have names, also if only the store knows that there are such files."""
    for path in (remote + "npz", remote + "npz/", remote + "npz/packed*"):
        one = stoker.NpyDataset(path)
        assert isinstance(one[0], dict)
        assert one.fields == stoker.NpyDataset(local / "npz").fields
    pair = stoker.NpyDataset(remote + "npy/images.npy")
    assert pair[0].shape == stoker.NpyDataset(local / "npy" / "images.npy")[0].shape


def test_files_of_a_store_are_listed(local: Path, remote: str) -> None:
    """As those of a folder: sorted, and one dataset of them all; a name that is not there is refused."""
    here = stoker.list_files(f"{local}/tfrecord/*")
    there = stoker.list_files([remote + "tfrecord/*"], storage_options={"fresh": "always"})
    assert list(there) == [remote + path.removeprefix(f"{local}/") for path in here]
    assert batches(there.interleave(stoker.TFRecordDataset)) == batches(here.interleave(stoker.TFRecordDataset))
    with pytest.raises(stoker.ConfigError, match="tfrecord"):
        stoker.list_files(remote + "tfrecrd/*")


def test_the_nearest_name(remote: str) -> None:
    with pytest.raises(stoker.ConfigError) as caught:
        len(stoker.ImageFolder(remote + "foldr"))
    assert "data/folder" in str(caught.value)


def test_the_deadline_of_a_loader_is_that_of_what_it_opens(remote: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tar dataset learns its fields when a loader is made: that waits no longer than the loader's fetch= says."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{stores.free_port()}")
    with pytest.raises(stoker.SourceError, match="within 1 s") as caught:
        stoker.DataLoader(stoker.WebDataset(remote + "tar/train-{000..002}.tar"), 2, fetch={"deadline": "1s"})
    assert caught.value.code == "unreachable"
    assert "connection was refused" in str(caught.value)

"""Datasets in stores and on servers beside the same datasets in local folders: numbers, order, bytes, states. `make
test` has those in S3, over HTTP, and a few on the Hub; `make test-remote` has all in every store."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import logging
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import clouds
import pytest
import stores
from conftest import DATA, TOP, make_folder, make_tar, stored, wait_until
from forms import long, mostly
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


Opened = Callable[[str], stores.Store]
CLOUDS = ("gs", "az", "hf")
STATED = ("folder", "tar", "parquet", "tokens")


@pytest.fixture(scope="module")
def opened(local: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """A store by its scheme, with the same below data/. Each is started once, by the first test that wants it."""
    all_: dict[str, stores.Store] = {}
    with contextlib.ExitStack() as ends:

        def get(scheme: str) -> stores.Store:
            if scheme not in all_:
                at = tmp_path_factory.mktemp(scheme)
                if scheme == "hf":
                    shutil.copytree(local, at / "files" / "data")
                    all_[scheme] = ends.enter_context(clouds.hub(at / "files"))
                elif scheme == "http":
                    (at / "files").mkdir()
                    all_[scheme] = ends.enter_context(stores.http(at / "files"))
                else:
                    start: Any = {"s3": stores.s3, "gs": clouds.gcs, "az": clouds.azure}[scheme]
                    all_[scheme] = ends.enter_context(start(at / "objects"))
                if scheme != "hf":
                    all_[scheme].put_folder(local, "data")
            return all_[scheme]

        yield get


@pytest.fixture
def below(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """The prefix of the same in a store; the engines of this test have its keys."""

    def get(scheme: str) -> str:
        for key, value in opened(scheme).env.items():
            monkeypatch.setenv(key, value)
        return opened(scheme).name("data/")

    return get


@pytest.fixture
def remote(below: Callable[[str], str]) -> str:
    """The prefix of the same in a bucket of S3."""
    return below("s3")


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


@pytest.mark.parametrize(
    ("kind", "scheme"),
    mostly(
        itertools.product(MAKE, ("s3", *CLOUDS)),
        *((kind, "s3") for kind in ("folder", "tar.gz", "list", "table", "hdf5", "npz")),
        ("tar", "hf"),
    ),
)
def test_a_store_is_like_a_folder(kind: str, scheme: str, local: Path, below: Callable[[str], str]) -> None:
    at = below(scheme)  # before the engine starts, which has the environment of its start
    here, there = MAKE[kind](f"{local}/"), MAKE[kind](at)
    assert len(there) == len(here) > 0
    found = batches(there)
    assert found == batches(here)
    assert sum(len(column) for _, columns in found for column in columns) > 0


@pytest.mark.parametrize(
    ("kind", "scheme", "shuffle"),
    mostly(
        [
            (*each, shuffle)
            for each in [*((kind, "s3") for kind in MAKE), *itertools.product(STATED, CLOUDS)]
            for shuffle in (True, "block")
        ],
        *(("parquet", "s3", True), ("tar", "s3", "block")),
    ),
)
def test_a_state_of_one_resumes_on_the_other(
    kind: str, scheme: str, shuffle: Any, local: Path, below: Callable[[str], str]
) -> None:
    settings: dict[str, Any] = {"batch_size": 2, "shuffle": shuffle, "seed": 7}
    there = below(scheme)
    made = [MAKE[kind](at) for at in (f"{local}/", there)]
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


@long
def test_a_state_goes_round_all_stores(local: Path, below: Callable[[str], str]) -> None:
    """An epoch whose batches come from another place each."""
    settings: dict[str, Any] = {"batch_size": 2, "shuffle": True, "seed": 11}
    places = [f"{local}/", *(below(scheme) for scheme in ("s3", *CLOUDS, "http"))]
    whole = ids(stoker.DataLoader(MAKE["folder"](places[0]), **settings))
    given: list[list[int]] = []
    state: Any = None
    for at in places:
        with stoker.DataLoader(MAKE["folder"](at), **settings) as loader:
            if state is not None:
                loader.load_state_dict(state)
            given += ids(loader, -1 if at is places[-1] else 1)
            state = json.loads(json.dumps(loader.state_dict()))
    assert given == whole
    assert len(given) >= len(places)


@pytest.mark.parametrize("schemes", mostly(["s3 http hf", "s3 http gs az hf"], "s3 http hf"))
def test_a_mixture_of_a_folder_and_stores(
    schemes: str, local: Path, below: Callable[[str], str], tmp_path: Path
) -> None:
    def mixed(*prefixes: str) -> Any:
        parts = [
            stoker.WebDataset(f"{at}tar/train-{number % 3:03d}.tar").decode().to_tuple("cls", "txt")
            for number, at in enumerate(prefixes)
        ]
        weights = list(range(1, len(parts) + 1))
        return stoker.DataLoader(stoker.Mixture(parts, weights), 2, shuffle=True, seed=3, output="numpy")

    def given(loader: Any) -> list[Any]:
        return [(batch.ids.tolist(), *(list(column) for column in batch)) for batch in loader]

    here = f"{local}/"
    places = [here, *map(below, schemes.split())]
    with mixed(*places) as spread, mixed(*([here] * len(places))) as plain:
        whole = given(plain)
        assert given(spread) == whole
        spread.set_epoch(0)
        walk = iter(spread)
        next(walk)
        state = json.loads(json.dumps(spread.state_dict()))
        for loader in (spread, plain):
            loader.load_state_dict(state)
            assert given(loader) == whole[1:]


@pytest.mark.parametrize("scheme", mostly(["s3", *CLOUDS], "s3", "hf"))
def test_storage_in_the_words_of_fsspec_reaches_the_store(
    scheme: str, local: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is in storage_options and nowhere else, as s3fs, gcsfs, adlfs and huggingface_hub spell it; keys
    are in the environment."""
    store = opened(scheme)
    every: dict[str, dict[str, Any]] = {
        "s3": {"anon": False, "client_kwargs": {"endpoint_url": store.url, "region_name": stores.REGION}},
        "gs": {"token": "anon", "project": "any", "endpoint_url": store.url},
        "az": {"anon": False, "account_name": clouds.ACCOUNT, "endpoint_url": f"{store.url}/{clouds.ACCOUNT}"},
        "hf": {"endpoint": store.url, "token": None},
    }
    options = every[scheme]
    keys = {
        "s3": {key: value for key, value in store.env.items() if "ENDPOINT" not in key and "REGION" not in key},
        "gs": {"STORAGE_EMULATOR_HOST": "http://127.0.0.1:1"},
        "az": {"AZURE_STORAGE_KEY": clouds.KEY, "AZURE_STORAGE_ACCOUNT": clouds.ACCOUNT},
        "hf": {**store.env, "HF_ENDPOINT": "http://127.0.0.1:1"},
    }[scheme]
    for key in ("AWS_ENDPOINT_URL_S3", "AWS_REGION", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(key, raising=False)
    for key, value in keys.items():
        monkeypatch.setenv(key, value)
    there = stoker.WebDataset(store.name("data/tar/train-{000..002}.tar"), storage_options=options)
    here = stoker.WebDataset(f"{local}/tar/train-{{000..002}}.tar")
    found = [
        ids(stoker.DataLoader(one.decode().to_tuple("cls"), 4, shuffle=True, seed=5, fetch={"deadline": 20}))
        for one in (there, here)
    ]
    assert found[0] == found[1]
    assert sum(map(len, found[0])) == 15


@pytest.fixture
def net(
    opened: Opened, remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[stores.Net, Callable[[Any], dict[str, int]]]]:
    """A proxy before S3, and what a loader says was asked of it."""
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    with stores.proxy(opened("s3")) as proxy:
        for key, value in proxy.env.items():
            monkeypatch.setenv(key, value)

        def told(loader: Any) -> dict[str, int]:
            ((host, one),) = loader.stats()["sources"].items()
            assert proxy.url.endswith(f"//{host}")
            return dict(one)

        yield proxy, told


def test_what_was_asked_of_a_store_is_told(net: Any, remote: str, caplog: pytest.LogCaptureFixture) -> None:
    """Statistics and the epoch's line have what the proxy has counted."""
    caplog.set_level(logging.INFO, "stoker")
    proxy, told = net
    data = MAKE["tar"](remote)
    with stoker.DataLoader(data, 4, shuffle=True, seed=1) as loader:
        before, counted = told(loader), proxy.counts()
        proxy.rules("range *.tar #1 reset=300", "range *.tar #1 status=500")
        assert sum(map(len, ids(loader))) == 15

        def asked() -> tuple[int, int]:
            return told(loader)["requests"] - before["requests"], proxy.counts()["requests"] - counted["requests"]

        # The next epoch is read ahead.
        wait_until(lambda: told(loader)["retries"] == 2 and asked()[0] == asked()[1], "all requests")
        after, now = told(loader), proxy.counts()
    assert [rule["met"] for rule in now["rules"]] == [1, 1]
    assert now["requests"] - counted["requests"] >= 3
    assert (before["retries"], after["faults"]) == (0, 2)
    assert 3 * 1024 < after["bytes"] - before["bytes"] <= now["bytes"] - counted["bytes"]
    host = proxy.url.removeprefix("http://")
    line = next(text for text in caplog.messages if f" MB from {host} in " in text)
    assert re.search(r" in \d+ requests? \(\d retried\)", line), line


def test_late_answers_are_hedged_and_told(net: Any, opened: Opened) -> None:
    """A read that takes far longer than others of its size is made a second time."""
    for number in range(100):
        opened("s3").put(f"alike/{number % 2}/{number:02d}.ppm", b"P6 2 1 255\n%06d" % number)
    proxy, told = net
    data = stoker.ImageFolder("s3://bucket/alike")
    with stoker.DataLoader(data, 1, shuffle=True, seed=1) as loader:
        before, counted = told(loader), proxy.counts()
        proxy.rules("range * #70 delay=60s")
        assert len(ids(loader)) == 100

        def unknown() -> int:
            asked: int = told(loader)["requests"] - before["requests"]
            sent: int = proxy.counts()["requests"] - counted["requests"]
            return abs(asked - sent)

        # One that loses may never be sent.
        wait_until(lambda: unknown() <= told(loader)["hedges"] - before["hedges"], "all requests")
        after, now = told(loader), proxy.counts()
    assert now["rules"][0]["met"] == 1
    assert 1 <= after["hedges"] <= 1 + 0.05 * after["requests"]
    assert after["retries"] == after["faults"] == 0


@pytest.mark.parametrize("scheme", mostly(["s3", *CLOUDS], "s3"))
def test_a_stream_of_a_store_survives_kills(
    scheme: str, opened: Opened, below: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stoker verify-resume`, over a link that breaks."""
    path = below(scheme) + "tar"
    spec = tmp_path / "spec.json"
    text = {"dataset": {"path": path}, "order": {"shuffle": "full", "seed": 3}, "batch": {"size": 2}}
    spec.write_text(json.dumps(text))
    engine = os.environ.get("STOKER_ENGINE") or str(TOP / "build" / "stoker")
    with stores.proxy(opened(scheme), "--rule", "range * p=0.1 reset=200", "--seed", "4") as net:
        env = {**os.environ, **net.env, "STOKER_CACHE": str(tmp_path / "cache")}
        command = [engine, "verify-resume", str(spec), "--kills", "2", "--steps", "12", "--json"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
        counted = net.counts()
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == 2, told
    assert counted["kinds"]["range"]["requests"] > 0


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

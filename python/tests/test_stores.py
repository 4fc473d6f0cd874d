"""How stores are reached: storage_options=, origins=, fetch=, and names without their secrets."""

from __future__ import annotations

import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import DATA, TOP, stored

import stoker
from stoker import _shown
from stoker._errors import Problems
from stoker._stores import read_fetch, read_origins, read_storage

HUSH = "HUSH"


def test_names_are_shown_as_the_engine_shows_them() -> None:
    golden = json.loads((TOP / "testdata" / "shown.json").read_text())
    for given, want in golden["names"].items():
        assert _shown.shown(given) == want
        assert _shown.shown(want) == want
    for given, want in golden["texts"].items():
        assert _shown.shown_text(given) == want
    assert _shown.shown_all(["/a", "https://h/x?sig=HUSH"]) == ["/a", "https://h/x"]
    url = "https://u:HUSH@h/x?token=HUSH"
    error = stoker.SourceError(f"cannot open {url}", where={"file": url}, cause=url, hint=f"open {url}")
    for one in (error, pickle.loads(pickle.dumps(error))):
        assert HUSH not in str(one) + repr(one) + repr(vars(one))
        assert str(one).count("https://h/x") == 4


def test_what_is_quoted_is_not_named_again() -> None:
    where = {"file": "s3://b/x", "offset": 3}
    assert str(stoker.ConfigError('there is no "s3://b/x"', where={"file": "s3://b/x"})) == 'there is no "s3://b/x"'
    assert str(stoker.ConfigError('there is no "s3://b/x"', where=where)) == 'there is no "s3://b/x" (offset 3)'
    assert str(stoker.ConfigError("there is none", where=where)) == "there is none (s3://b/x, offset 3)"


def read(given: Any) -> dict[str, Any] | None:
    problems = Problems("read")
    found = read_storage(given, problems)
    problems.raise_any()
    return found


def test_storage_in_the_words_of_fsspec() -> None:
    own = {
        "endpoint_url": "http://h:1",
        "region": "r",
        "profile": "p",
        "requester_pays": True,
        "token_env": "T",
        "fresh": "never",
    }
    assert read(own) == own
    assert read(None) is None
    assert read({}) is None
    s3fs = {"anon": True, "client_kwargs": {"endpoint_url": "http://h:1", "region_name": "r"}, "use_ssl": False}
    assert read(s3fs) == {"anonymous": True, "endpoint_url": "http://h:1", "region": "r"}
    assert read({"anon": False, "profile": "p", "requester_pays": False, "key": None}) == {"profile": "p"}
    assert read({"token": "anon", "project": "x", "endpoint_url": "http://h"}) == {
        "anonymous": True,
        "endpoint_url": "http://h",
    }
    assert read({"token": None, "account_name": "a", "anon": False}) is None


def test_what_is_ignored_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert read({"project": "x", "account_name": "a", "token": "cloud"}) is None
    said = capfd.readouterr().err
    assert "storage_options['project'] is ignored: the bucket determines the project" in said
    assert "AZURE_STORAGE_ACCOUNT_NAME" in said
    assert "'cloud' is found as Google's own tools find it" in said


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        ("key", "AWS_ACCESS_KEY_ID"),
        ("aws_access_key_id", "AWS_ACCESS_KEY_ID"),
        ("secret", "AWS_SECRET_ACCESS_KEY"),
        ("secretAccessKey", "AWS_SECRET_ACCESS_KEY"),
        ("session_token", "AWS_SESSION_TOKEN"),
        ("token", "HF_TOKEN"),
        ("username", ".netrc"),
        ("password", ".netrc"),
        ("account_key", "AZURE_STORAGE_KEY"),
        ("sas_token", "AZURE_STORAGE_SAS_TOKEN"),
        ("connection_string", "AZURE_STORAGE_CONNECTION_STRING"),
        ("credential", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("client_secret", "AZURE_CLIENT_SECRET"),
    ],
)
def test_secrets_are_refused(key: str, instead: str, shards: str) -> None:
    for options in ({key: HUSH}, {"client_kwargs": {key: HUSH}}, {key: {"a": HUSH}}):
        with pytest.raises(stoker.ConfigError, match="they hold no keys, tokens or passwords") as caught:
            stoker.WebDataset(shards, storage_options=options)
        assert instead in str(caught.value)
        assert repr(key) in str(caught.value)
        assert HUSH not in str(caught.value) + repr(caught.value)


@pytest.mark.parametrize(
    ("url", "key", "instead"),
    [
        ("s3://b/x", "token", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for temporary keys, AWS_SESSION_TOKEN"),
        ("s3://b/x", "secret", "set AWS_SECRET_ACCESS_KEY where"),
        ("gs://b/x", "token", "set GOOGLE_APPLICATION_CREDENTIALS (the name of a file), or a variable of your own"),
        (["az://c/x", "az://c/y"], "key", "set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, or a variable of your own"),
        ("hf://datasets/a/b", "token", "set HF_TOKEN, or a variable of your own, named by token_env where"),
        ("https://h/x", "password", "write it into .netrc (or the file that NETRC names), or into a variable of your"),
        (["s3://b/x", "gs://b/x"], "token", "set HF_TOKEN, AWS_SESSION_TOKEN, GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_the_variables_named_are_those_of_the_store(url: Any, key: str, instead: str) -> None:
    for call in (stoker.WebDataset, stoker.ParquetDataset, stoker.TFRecordDataset):
        with pytest.raises(stoker.ConfigError) as caught:
            call(url, storage_options={key: HUSH})
        assert instead in str(caught.value)
        assert HUSH not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ("s3", "storage_options is of type str"),
        ({"endpoint": 3}, "'endpoint' of type int"),
        ({"endpoint_url": "https://u:HUSH@h"}, "with a user name, a password"),
        ({"endpoint_url": "https://h?sig=HUSH"}, "or a signature"),
        ({"endpoint_url": "127.0.0.1:9000"}, "endpoint_url of storage_options is not the URL of a server"),
        ({"token_env": "hf_HUSH"}, "not the name of an environment variable"),
        ({"token_env": "AKIAHUSHHUSHHUSHHUSH"}, "not the name of an environment variable"),
        ({"token_env": "F86D081884C7D659HUSHA0C55AD0"}, "give the name, not the token"),
        ({"fresh": "now"}, "'fresh': 'now'"),
        ({"fresh": True}, "'fresh' of type bool\n  try: give 'always' (the index is compared with a listing"),
        ({"anonymous": "yes"}, "'anonymous' of type str"),
        ({"anon": True, "token_env": "T"}, "token_env of storage_options exclude each other: keep one"),
        ({"bucket": "b"}, "storage_options has an unknown key 'bucket'"),
        ({"anonimous": True}, "did you mean 'anonymous'? The keys are endpoint_url, region, profile, anonymous,"),
        ({"annon": True}, "did you mean 'anon'?"),
        ({"Region": "r"}, "did you mean 'region'?"),
        ({"client_kwargs": {"endpoint-url": "http://h"}}, "did you mean 'endpoint_url'?"),
    ],
)
def test_wrong_storage_options_are_told(options: Any, want: str, shards: str) -> None:
    with pytest.raises(stoker.ConfigError) as caught:
        len(stoker.WebDataset(shards, storage_options=options))
    assert want in str(caught.value)
    assert HUSH not in str(caught.value)


def test_shards_without_an_end_are_not_iterated() -> None:
    with pytest.raises(stoker.ConfigError, match="urls is"):
        stoker.WebDataset(itertools.repeat("s3://b/x.tar"), storage_options={"region": "r"})


def test_every_dataset_takes_them(folder: Path, shards: str, unzip: Callable[[str, str], str]) -> None:
    reached: dict[str, Any] = {"storage_options": {"region": "r"}, "origins": ["s3://b/c/"]}
    want = {"storage": {"region": "r"}, "origins": ["s3://b/c/"]}
    tokens = DATA / "tokens" / "train.bin"
    parquet = sorted((DATA / "parquet").glob("rows-*.parquet"))[0]
    table = stored("files") / "manifest.parquet"
    for dataset in (
        stoker.NpyDataset(DATA / "npy" / "packed.npz", **reached),
        stoker.HDF5Dataset(unzip("hdf5", "filters.h5"), ["gzip"], **reached),
        stoker.ParquetDataset(parquet, **reached),
        stoker.TFRecordDataset(DATA / "tfrecord" / "raw.tfrec", **reached),
        stoker.TokenDataset(tokens, 16, dtype="uint16", **reached),
        stoker.Table(table, **reached),
        stoker.files(f"{folder}/class0/*.jpg", None, **reached),
    ):
        where = dataset._recipe().dataset
        assert {key: where[key] for key in want} == want
        assert len(pickle.loads(pickle.dumps(dataset))) == len(dataset) > 0
    options = reached["storage_options"]
    for one in (
        stoker.ImageFolder(folder, storage_options=options),
        stoker.WebDataset(shards, storage_options=options),
    ):
        assert one._recipe().dataset["storage"] == {"region": "r"}
        assert len(one) > 0
    mixed = stoker.Mixture(
        [stoker.WebDataset(shards, storage_options={"region": r}).decode().to_tuple("cls") for r in ("a", "b")]
    )
    assert [one["storage"]["region"] for one in mixed._recipe().dataset] == ["a", "b"]
    assert len(mixed) == 60  # local files are reached in no way, so both may have them
    assert stoker.stats(folder, headers=True, storage_options={"region": "r"})["samples"] == 50


def test_origins_are_prefixes(folder: Path) -> None:
    problems = Problems("x")
    assert read_origins("s3://b/", problems) == ["s3://b/"]
    assert read_origins(None, problems) is None
    for wrong, want in ((3, "of type int"), ([""], "origins has ''"), ([3], "origins has 3")):
        with pytest.raises(stoker.ConfigError, match=want):
            stoker.files(f"{folder}/class0/*.jpg", None, origins=wrong)  # type: ignore[arg-type]
    with pytest.raises(stoker.ConfigError, match="would allow every bucket or host"):
        stoker.files(f"{folder}/class0/*.jpg", None, origins=["s3://"])


def test_fetch_reaches_the_spec(folder: Path) -> None:
    asked = {"ahead": "1GiB", "connections": 9, "bandwidth": "10MB/s", "hedge": False, "deadline": "90s"}
    with stoker.DataLoader(stoker.ImageFolder(folder), 10, fetch=asked) as loader:
        assert loader._spec()["fetch"] == asked
        assert len(list(loader)) == 5
    auto = {"ahead": "auto", "connections": "auto", "bandwidth": "none", "hedge": True, "deadline": 5}
    with stoker.DataLoader(stoker.ImageFolder(folder), 10, fetch=auto) as loader:
        assert len(list(loader)) == 5
    for wrong, want in (
        ({"ahead": "far"}, "fetch has ahead 'far'"),
        ({"connections": 0}, "fetch has connections 0"),
        ({"bandwidth": 0}, "fetch has bandwidth 0"),
        ({"hedge": "no"}, "hedge of fetch is 'no'"),
        ({"deadline": -1}, "fetch has deadline -1"),
        (
            {"deadline": 0},
            "fetch has deadline 0\n  try: give a number of seconds above 0, such as 90, or text such as '10m'",
        ),
        ({"deadline": "0"}, 'deadline of fetch is "0": it must be a number of seconds above 0, such as 90'),
        ({"deadline": "soon"}, 'deadline of fetch is "soon"'),
        ({"retries": 3}, "fetch has an unknown key 'retries'"),
        ({"bandwith": "1MB"}, "did you mean 'bandwidth'\\? The keys are ahead, connections, bandwidth, hedge"),
        (3, "fetch is of type int"),
    ):
        with pytest.raises(stoker.ConfigError, match=want):
            stoker.DataLoader(stoker.ImageFolder(folder), 10, fetch=wrong)  # type: ignore[arg-type]
    assert read_fetch({}, Problems("x")) is None


def test_shards_are_written_to_folders(folder: Path) -> None:
    with pytest.raises(stoker.ConfigError, match="dst is in a store"):
        stoker.pack(folder, "s3://bucket/packed")
    with pytest.raises(stoker.ConfigError, match="dst is in a store"):
        stoker.pack([(b"x", 1)], "s3://bucket/packed")

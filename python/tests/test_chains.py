"""Chains of calls on datasets: a field keeps its declaration, whatever is called after it."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA, make_folder, make_tar, stored
from forms import ALL, mostly
from reads import PHOTOS, SMALL, columns, fields_of, reviews, table

import stoker
from stoker import Field
from stoker import transforms as T
from stoker._cache import amount

CROP = T.CenterCrop(4)
ROWS = stored("parquet") / "rows-zstd.parquet"

# Datasets that say something of their first field, and nothing of another.
MAKE: dict[str, Callable[[Any, Path], Any]] = {
    "npy": lambda unzip, tmp: stoker.NpyDataset(
        DATA / "npy/images.npy", DATA / "npy/labels.npy", fields=[Field("images", transform=CROP), "labels"]
    ),
    "hdf5": lambda unzip, tmp: stoker.HDF5Dataset(
        unzip("hdf5", "filters.h5"), fields=[Field("gzip", dtype="float64"), "lzf_rows"]
    ),
    "lmdb": lambda unzip, tmp: stoker.LMDBDataset(
        unzip("lmdb", "datum_raw.mdb"), fields=[Field("image", dtype="float32"), "label"]
    ),
    "tfrecord": lambda unzip, tmp: stoker.TFRecordDataset(
        stored("tfrecord") / "pictures-0000{0,1}-of-00002",
        [Field("tokens", batch="padded", value=9, to=40), "image/class/label"],
    ),
    "parquet": lambda unzip, tmp: stoker.ParquetDataset(
        stored("parquet") / "rows-zstd.parquet", [Field("vec", dtype="float64", batch="padded", to=9), "text"]
    ),
    "renamed": lambda unzip, tmp: stoker.ParquetDataset(
        stored("parquet") / "rows-zstd.parquet", [Field("number", source="i64", dtype="float32"), "text"]
    ),
    "mds": lambda unzip, tmp: stoker.MDSDataset(stored("mds") / "zstd", [Field("label", dtype="float32"), "text"]),
    "beton": lambda unzip, tmp: stoker.BetonDataset(
        unzip("beton", "raw.beton"), [Field("image", transform=CROP), "label"], pictures=True
    ),
    "tokens": lambda unzip, tmp: stoker.TokenDataset(DATA / "tokens/train.bin", 16, out="float32"),
    "files": lambda unzip, tmp: stoker.files(PHOTOS, transform=SMALL),
    "files, fields": lambda unzip, tmp: stoker.files(PHOTOS, transform=SMALL, fields=["image", "label"]),
    "table": lambda unzip, tmp: stoker.Table(table(tmp), "file", "class", root=PHOTOS[0].parent, transform=SMALL),
    "table, fields": lambda unzip, tmp: stoker.Table(
        table(tmp), "file", "class", root=PHOTOS[0].parent, transform=SMALL, fields=[Field("image"), "label"]
    ),
    "rows": lambda unzip, tmp: stoker.Table(
        table(tmp), label="class", fields=[Field("score", dtype="float32"), "file"]
    ),
    "lines": lambda unzip, tmp: stoker.LinesDataset(reviews(tmp), [Field("of", decode="bytes"), "text"]),
}

CHAINS: dict[str, Callable[[Any, str, str], Any]] = {
    "select": lambda data, first, other: data.select(first),
    "select both": lambda data, first, other: data.select(other, first),
    "select twice": lambda data, first, other: data.select(other, first).select(first),
    "select it back": lambda data, first, other: data.select(other).select(first),
    "select a Field": lambda data, first, other: data.select(Field(first)),
    "to_tuple": lambda data, first, other: data.to_tuple(first),
    "to_tuple of all": lambda data, first, other: data.to_tuple(),
    "to_tuple, select": lambda data, first, other: data.to_tuple(other, first).select(first),
    "cache": lambda data, first, other: data.cache().select(first),
    "cache after": lambda data, first, other: data.select(first).cache(),
    "pickle": lambda data, first, other: pickle.loads(pickle.dumps(data)).select(first),
}


@pytest.mark.parametrize(
    "name",
    mostly(
        MAKE,
        *("parquet", "renamed", "files, fields", "table"),
    ),
)
def test_what_was_said_of_a_field_stays(name: str, unzip: Any, tmp_path: Path) -> None:
    data = MAKE[name](unzip, tmp_path)
    first, other = data.fields[:2]
    want = columns(data)[first]
    shape = described(data, first)
    turn = list(MAKE).index(name)  # the short form has every fourth chain, beginning with another one for each dataset
    for chain, call in list(CHAINS.items())[slice(None) if ALL else slice(turn % 4, None, 4)]:
        chained = call(data, first, other)
        assert columns(chained)[first] == want, chain
        assert described(chained, first) == shape, chain
    alone = stoker.Mixture([data.select(first)])
    assert described(alone, first, [first]) == shape


def described(data: Any, name: str, names: Any = None) -> Any:
    """The type and shape of a field in a batch of two."""
    with stoker.DataLoader(data, batch_size=2, output="numpy") as loader:
        batch = next(iter(loader))
    at = list(names or data.fields).index(name)
    value = batch[name] if isinstance(batch, dict) else batch[at]
    return type(value), getattr(value, "dtype", None), getattr(value, "shape", None)


def test_another_name_keeps_what_was_said() -> None:
    data = stoker.files(PHOTOS, transform=SMALL)
    assert described(data.select(Field("photo", source="image")), "photo") == described(data, "image")


def test_a_field_that_says_more_adds_to_what_was_said() -> None:
    rows = stoker.ParquetDataset(stored("parquet") / "rows-zstd.parquet", [Field("vec", dtype="float64")])
    padded = rows.select(Field("vec", batch="padded", to=9))
    assert described(padded, "vec")[1:] == ("float64", (2, 9))
    files = stoker.files(PHOTOS, transform=SMALL)
    encoded = files.select(Field("image", decode="bytes"))  # which takes the transform away
    assert isinstance(encoded[0]["image"], bytes)
    assert described(files.select(Field("image", transform=CROP)), "image")[2] == (2, 3, 4, 4)


def test_a_transform_beside_fields_is_of_the_picture_that_has_none() -> None:
    two: list[Any] = [Field("small", source="image", transform=CROP), Field("image", decode="gray"), "label"]
    data = stoker.files(PHOTOS, transform=T.CenterCrop(6), fields=two)
    assert described(data, "small")[2] == (2, 3, 4, 4)
    assert described(data, "image")[2] == (2, 1, 6, 6)
    none: list[list[Any]] = [["label"], [Field("image", transform=CROP)], [Field("image", decode="bytes")]]
    for fields in none:
        with pytest.raises(stoker.ConfigError, match="transform is given") as caught:
            stoker.files(PHOTOS, transform=CROP, fields=fields)
        assert "Field('image', transform=" in str(caught.value)


def test_folders_and_shards(tmp_path: Path) -> None:
    root = make_folder(tmp_path / "folder", 6)
    whole = stoker.ImageFolder(str(root), CROP)
    for data in (whole.cache(), pickle.loads(pickle.dumps(whole)), stoker.Mixture([whole])):
        assert described(data, "image", ["image", "label"])[2] == (2, 3, 4, 4)
    shard = stoker.WebDataset(str(make_tar(tmp_path / "a.tar", 0, 6)))
    decoded = shard.decode("pil")
    for chain in (
        decoded.to_tuple("jpg", "cls").map_tuple(CROP),
        decoded.to_tuple("jpg", "cls").map_tuple(CROP).shuffle(9).with_epoch(4).with_length(4).cache(),
        shard.map_dict(jpg=CROP).decode("pil").to_tuple("jpg", "cls"),
        decoded.map_dict(jpg=CROP).rename(image="jpg").to_tuple("image", "cls"),
        decoded.rename(image="jpg;png").map_dict(image=CROP).to_tuple("image", "cls"),
        decoded.rename(image="jpg").map_dict(image=CROP).rename(photo="image").to_tuple("photo", "cls"),
        decoded.map_dict(jpg=CROP).to_tuple("png;jpg", "cls"),
    ):
        assert described(chain, "image", ["image", "label"])[2] == (2, 3, 4, 4)
    renamed = decoded.rename(image="jpg").map_dict(image=CROP).rename(photo="image")
    assert "image" not in renamed[0]  # nor is it there a second time, whole
    assert renamed[0]["photo"].shape == (3, 4, 4)
    with pytest.raises(stoker.ConfigError, match="tuples already"):
        decoded.to_tuple("jpg", "cls").map_tuple(CROP).to_tuple("cls", "jpg")


def loaded(data: Any, **keywords: Any) -> list[tuple[Any, list[bool]]]:
    with stoker.DataLoader(data, batch_size=3, output="numpy", **keywords) as loader:
        return [(next(iter(batch.values())).tolist(), batch.valid.tolist()) for batch in loader]


def test_a_chain_is_what_fields_are_where_nothing_else_can_be_delivered(tmp_path: Path) -> None:
    sound = (stored("tfrecord") / "pictures-00000-of-00002").read_bytes()
    path = tmp_path / "damaged"
    path.write_bytes(sound[:40] + bytes([sound[40] ^ 4]) + sound[41:])  # in the first record
    name = "image/class/label"
    by_keyword, by_call = stoker.TFRecordDataset(path, [name]), stoker.TFRecordDataset(path).select(name)
    skipped = loaded(by_call, on_bad="skip")
    assert skipped == loaded(by_keyword, on_bad="skip")
    assert sum(not valid for _, row in skipped for valid in row) == 1
    for data in (by_keyword, by_call, stoker.TFRecordDataset(path).to_tuple(name)):
        with pytest.raises(stoker.DataError, match="CRC"):
            columns(data)
    with pytest.raises(stoker.ConfigError, match="nothing is left to deliver"):
        stoker.DataLoader(stoker.TFRecordDataset(path), batch_size=2)

    gaps = tmp_path / "gaps.csv"
    gaps.write_text("a,b\n1,\n,2\n")
    assert stoker.Table(gaps).select("b").fields == ["b"]
    for call in (lambda: stoker.Table(gaps).fields, lambda: stoker.Table(gaps)[0], stoker.Table(gaps).to_tuple):
        with pytest.raises(stoker.ConfigError, match="nothing is left to deliver"):
            call()
    with pytest.raises(stoker.ConfigError, match="there is no"):  # what is wrong with the data itself is said at once
        stoker.Table(tmp_path / "none.csv")


MISSPELT: list[tuple[Callable[..., Any], str, str]] = [
    (stoker.TFRecordDataset, "feilds", "TFRecordDataset.*'feilds': did you mean 'fields'"),
    (stoker.LinesDataset, "feilds", "LinesDataset.*did you mean 'fields'"),
    (stoker.ParquetDataset, "colums", "did you mean 'columns'"),
    (stoker.NpyDataset, "feild", "did you mean 'fields'"),
    (stoker.MDSDataset, "unpackd", "did you mean 'unpacked'"),
    (stoker.ImageFolder, "transfrom", "did you mean 'transform'"),
    (stoker.WebDataset, "shardshufle", "did you mean 'shardshuffle'"),
    (lambda path, **other: stoker.WebDataset(path).shuffle(9, **other), "sed", "shuffle.*did you mean 'seed'"),
    (lambda path, **other: stoker.WebDataset(path).to_tuple("jpg", **other), "handlr", "did you mean 'handler'"),
    (stoker.Synthetic, "colour", "there are n, shape"),
]


@pytest.mark.parametrize(("call", "keyword", "says"), MISSPELT)
def test_keywords_that_are_spelt_wrong(call: Any, keyword: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=says):
        call(tmp_path / "data", **{keyword: ["x"]})


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: stoker.ParquetDataset(ROWS, unpacked="lots"), "unpacked is 'lots'"),
        (lambda: stoker.NpyDataset(DATA / "npy/packed.npz", unpacked=-1), "unpacked is -1"),
        (lambda: stoker.DataLoader(stoker.Synthetic(5), cache="x"), "cache has memory 'x'"),
        (lambda: stoker.DataLoader(stoker.Synthetic(5), memory="many"), "memory is 'many'"),
        (lambda: Field("image", decode="rbg"), "decode is 'rbg'\n.*did you mean 'rgb'"),
        (
            lambda: stoker.ParquetDataset(ROWS, [Field("i64", transform=CROP)]),
            "a number, int64.*leave its transform out",
        ),
        (lambda: stoker.pack(stoker.ParquetDataset(ROWS, [Field("n", source="i64")]), "x"), r"n \(i64\)\n.*\['i64'\]"),
    ],
)
def test_errors_name_the_keyword(call: Any, says: str) -> None:
    with pytest.raises(stoker.ConfigError, match=says):
        call()


def test_amounts_of_memory_are_the_engines() -> None:
    for given, size in {"8GiB": 8 << 30, " 1.5 mb ": 1.5e6, "7": 7, 7: 7, "auto": -1, "0b": 0, "12B": 12}.items():
        assert amount(given) == size
    for none in ("", "GiB", "-1", -1, 1.5, True, "1e30", "5 bananas", None, "nan"):
        assert amount(none) is None


def shard(path: Path, samples: list[dict[str, Any]]) -> str:
    """A tar shard of .npy members."""
    with tarfile.open(path, "w") as tar:
        for i, sample in enumerate(samples):
            for name, value in sample.items():
                body = io.BytesIO()
                np.save(body, value)
                info = tarfile.TarInfo(f"{i:03d}.{name}.npy")
                info.size = len(body.getvalue())
                tar.addfile(info, io.BytesIO(body.getvalue()))
    return str(path)


@pytest.mark.parametrize("kind", mostly(["u2", "i4", "u8", "f2", "f4", "f8"], "u2", "f8"))
def test_arrays_of_either_order_of_bytes(kind: str, tmp_path: Path) -> None:
    want = (np.arange(24).reshape(4, 2, 3) - (kind[0] != "u") * 9).astype(kind)
    big = want.astype(want.dtype.newbyteorder(">"))
    np.save(tmp_path / "x.npy", big)
    np.savez(tmp_path / "plain.npz", x=big)
    np.savez_compressed(tmp_path / "packed.npz", x=big)
    tar = shard(tmp_path / "a.tar", [{"x": big[0]}, {"x": want[1]}, {"x": big[2]}, {"x": big[3]}])
    for data, name in (
        *((stoker.NpyDataset(tmp_path / file), "x") for file in ("x.npy", "plain.npz", "packed.npz")),
        (stoker.WebDataset(tar).decode().to_tuple("x.npy"), "x.npy"),
    ):
        with stoker.DataLoader(data, batch_size=4, output="numpy") as loader:
            (value,) = (fields_of(batch)[0] for batch in loader)
        assert value.dtype == want.dtype, name
        assert (value == want).all(), name


def test_arrays_that_are_not_read_stand_in_nobodys_way(tmp_path: Path) -> None:
    x = np.arange(4.0)
    odd: dict[str, Any] = {
        "c": x.astype("c8"),
        "s": np.array(list("abcd")),
        "t": x.astype("M8[s]"),
        "long": np.arange(9),
    }
    np.savez(tmp_path / "a.npz", x=x, **odd)
    only = stoker.NpyDataset(tmp_path / "a.npz", fields=["x"])  # "long" has other rows, and is not looked at
    assert [only[i] for i in range(4)] == [{"x": value} for value in x.tolist()]
    with pytest.raises(stoker.DataError, match="complex"):
        stoker.NpyDataset(tmp_path / "a.npz", fields=["x", "c"])
    with pytest.raises(stoker.ConfigError, match="did you mean"):
        stoker.NpyDataset(tmp_path / "a.npz", fields=["xx"])
    for name, value in odd.items():
        np.save(tmp_path / f"{name}.npy", value)
    np.save(tmp_path / "x.npy", x)
    pair = stoker.NpyDataset(x=tmp_path / "x.npy", c=tmp_path / "c.npy", fields=["x"])
    assert pair.fields == ["x"]
    tar = shard(tmp_path / "a.tar", [{"x": x, "c": odd["c"]}] * 3)
    assert (np.asarray(stoker.WebDataset(tar).decode().to_tuple("x.npy")[0][0]) == x).all()
    with pytest.raises(stoker.StokerError, match="complex"):
        stoker.WebDataset(tar).decode().to_tuple("c.npy")[0]

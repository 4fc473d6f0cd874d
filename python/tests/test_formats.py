"""Every format as its own tool wrote it: what arrives is what that tool reads, shuffled, batched and resumed."""

from __future__ import annotations

import base64
import hashlib
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA, stored
from forms import mostly
from needs import needs
from reads import PHOTOS, SMALL, columns, fields_of, golden, in_order, reviews, rows, table

import stoker
from stoker import Field
from stoker import transforms as T

# What all of them can do.

MAKE: dict[str, Callable[[Any, Path], Any]] = {
    "npy": lambda unzip, tmp: stoker.NpyDataset(DATA / "npy/images.npy", DATA / "npy/labels.npy"),
    "npz": lambda unzip, tmp: stoker.NpyDataset(DATA / "npy/packed.npz", unpacked="1MiB"),
    "hdf5": lambda unzip, tmp: stoker.HDF5Dataset(unzip("hdf5", "filters.h5"), ["gzip", "lzf_rows"], unpacked=65536),
    "lmdb": lambda unzip, tmp: stoker.LMDBDataset(unzip("lmdb", "datum_raw.mdb")),
    "tfrecord": lambda unzip, tmp: stoker.TFRecordDataset(stored("tfrecord") / "pictures-0000{0,1}-of-00002"),
    "parquet": lambda unzip, tmp: stoker.ParquetDataset(
        stored("parquet") / "rows-zstd.parquet", columns=["i64", "text", "vec"]
    ),
    "mds": lambda unzip, tmp: stoker.MDSDataset(stored("mds") / "zstd"),
    "beton": lambda unzip, tmp: stoker.BetonDataset(unzip("beton", "raw.beton")),
    "tokens": lambda unzip, tmp: stoker.TokenDataset(DATA / "tokens/train.bin", 16),
    "documents": lambda unzip, tmp: stoker.TokenDataset(DATA / "tokens/train.bin", documents=True, eos=50256),
    "files": lambda unzip, tmp: stoker.files(PHOTOS, transform=SMALL),
    "table": lambda unzip, tmp: stoker.Table(table(tmp), "file", "class", root=PHOTOS[0].parent, transform=SMALL),
    "lines": lambda unzip, tmp: stoker.LinesDataset(reviews(tmp), ["of", "text"]),
    "rows": lambda unzip, tmp: stoker.Table(table(tmp), label="class"),
}


@pytest.fixture
def dataset(request: pytest.FixtureRequest, unzip: Any, tmp_path: Path) -> Any:
    return MAKE[request.param](unzip, tmp_path)


def of_all(*short: str) -> pytest.MarkDecorator:
    """Every format in the long form."""
    return pytest.mark.parametrize("dataset", mostly(MAKE, *short), indirect=True)


@of_all("npy", "lmdb", "tfrecord", "mds", "beton", "documents", "rows")
def test_shuffled_batches_are_the_samples(dataset: Any) -> None:
    plain = columns(dataset, 2)
    assert all(list(column) == list(range(len(dataset))) for column in plain.values())
    shuffled = columns(dataset, 3, shuffle=True, seed=5)
    assert shuffled == plain
    assert list(next(iter(shuffled.values()))) != list(range(len(dataset)))


@of_all("hdf5", "parquet", "files")
def test_samples_have_numbers(dataset: Any) -> None:
    plain = columns(dataset)
    for i in (0, len(dataset) - 1, -2):
        values = fields_of(dataset[i])
        assert len(values) == len(dataset.fields)
        for (name, column), value in zip(plain.items(), values, strict=True):
            want = column[i % len(dataset)]
            if isinstance(value, (bytes, str)):
                assert rows([value])[0] == want, name
            elif hasattr(value, "numpy"):
                assert value.numpy().tobytes() == want, name
            else:
                assert (
                    np.frombuffer(want, np.dtype(f"{'f' if isinstance(value, float) else 'i'}{len(want)}"))[0] == value
                )
    with pytest.raises(IndexError):
        dataset[len(dataset)]


@of_all("tfrecord", "documents", "rows")
def test_it_goes_on_from_a_state(dataset: Any) -> None:
    size = max(1, len(dataset) // 4)

    def ids(loader: Any) -> list[list[int]]:
        return [batch.ids.tolist() for batch in loader]

    with stoker.DataLoader(dataset, size, shuffle=True, seed=3) as loader:
        whole = ids(loader)
    with stoker.DataLoader(dataset, size, shuffle=True, seed=3) as loader:
        walk = iter(loader)
        begun = [next(walk).ids.tolist()]
        state = json.loads(json.dumps(loader.state_dict()))
    with stoker.DataLoader(dataset, size, shuffle=True, seed=3) as loader:
        loader.load_state_dict(state)
        assert begun + ids(loader) == whole


@of_all("npz", "tokens", "lines")
def test_a_pickle_is_the_same_dataset(dataset: Any) -> None:
    again = pickle.loads(pickle.dumps(dataset))
    assert type(again) is type(dataset)
    assert (len(again), again.fields, again.classes) == (len(dataset), dataset.fields, dataset.classes)
    assert columns(again) == columns(dataset)
    assert type(dataset).__name__ in repr(dataset)


@of_all("parquet", "documents", "files")
def test_fields_are_chosen(dataset: Any) -> None:
    last = dataset.fields[-1]
    every = columns(dataset)
    source = Field(last, source="tokens") if isinstance(dataset, stoker.TokenDataset) else last
    chosen = dataset.select(source)
    assert chosen.fields == [last]
    assert list(chosen[0]) == [last]
    as_tuples = dataset.to_tuple(source)
    assert isinstance(as_tuples[1], tuple)
    if not isinstance(dataset, (stoker.files, stoker.TokenDataset)) and last not in ("x", "y"):
        assert columns(chosen)[last] == columns(as_tuples)[last] == every[last]
    assert columns(dataset.to_tuple()) == every  # and the first one is as it was
    with pytest.raises(stoker.StokerError) as caught:
        dataset.select("no such field")[0]  # of lines each has keys of its own
    assert "no such field" in str(caught.value)


@of_all("parquet", "table")
def test_torch_and_numpy_hold_the_same(dataset: Any) -> None:
    torch = needs("torch")
    with stoker.DataLoader(dataset, 3, output="torch") as ours, stoker.DataLoader(dataset, 3, output="numpy") as theirs:
        for tensors, arrays in zip(ours, theirs, strict=True):
            if isinstance(tensors, dict):
                assert list(tensors) == list(arrays) == dataset.fields
            for tensor, array in zip(fields_of(tensors), fields_of(arrays), strict=True):
                if isinstance(tensor, list):
                    assert tensor == array
                elif isinstance(tensor, stoker.Ragged):
                    assert isinstance(tensor.values, torch.Tensor)
                    assert tensor.values.numpy().tobytes() == array.values.tobytes()
                    assert tensor.offsets.tolist() == array.offsets.tolist()
                else:
                    assert isinstance(tensor, torch.Tensor)
                    assert str(tensor.dtype) == f"torch.{array.dtype}"
                    assert (tensor.numpy() == array).all()


# What each of them reads, against what the tool that wrote it says.

NPY: dict[str, Any] = golden("npy", "golden.json")


@pytest.mark.parametrize(
    "name",
    mostly(
        [name for name, case in NPY.items() if "fields" in case],
        *("uint16", "float64", "version 2", "one column in Fortran order", "pair", "shards", "packed", "mixed", "big"),
    ),
)
def test_npy(name: str) -> None:
    case = NPY[name]
    files = [DATA / "npy" / path for path in case["paths"]]
    if len(case["fields"]) == 1 or files[0].suffix == ".npz":
        found = stoker.NpyDataset(files)
    else:
        share = len(files) // len(case["fields"])
        named: dict[str, Any] = {
            field["name"]: files[i * share : i * share + share] for i, field in enumerate(case["fields"])
        }
        found = stoker.NpyDataset(**named)
    want = {field["name"]: [bytes.fromhex(row) for row in field["rows"]] for field in case["fields"]}
    assert in_order(found) == want
    with stoker.DataLoader(found, 2, output="numpy") as loader:
        for value, field in zip(fields_of(next(iter(loader))), case["fields"], strict=True):
            assert (str(value.dtype), list(value.shape[1:])) == (field["dtype"], field["shape"])


@pytest.mark.parametrize("name", [name for name, case in NPY.items() if "what" in case])
def test_npy_that_is_not_read_says_why(name: str) -> None:
    case = NPY[name]
    with pytest.raises(stoker.StokerError) as caught:
        stoker.NpyDataset([DATA / "npy" / path for path in case["paths"]])
    assert caught.value.code == case["code"]
    assert case["what"] in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "name",
    mostly(
        ["plain", "filters", "types", "latest", "sparse", "userblock", "latest_2", "shuffled_2", "shuffled_latest_2"],
        *("filters", "types", "sparse", "shuffled_latest_2"),
    ),
)
def test_hdf5(name: str, unzip: Any) -> None:
    want = golden("hdf5", "want_2.json" if name.endswith("_2") else "want.json")[name]
    found = stoker.HDF5Dataset(unzip("hdf5", name + ".h5"))
    for field, column in in_order(found, num_workers=2).items():
        seen = hashlib.sha256()
        for row in column:
            seen.update(b"%d " % len(row) + row)
        assert seen.hexdigest() == want[field]["sha256"], field
        assert want[field]["shape"][0] == len(found)


def test_hdf5_has_groups_and_shards(unzip: Any) -> None:
    path = unzip("hdf5", "groups.h5")
    group = stoker.HDF5Dataset(path, group="train")
    named = stoker.HDF5Dataset(path, columns=["train/x", "train/y"])
    assert (group.fields, named.fields) == (["x", "y"], ["train/x", "train/y"])
    assert list(columns(group).values()) == list(columns(named).values())
    assert stoker.HDF5Dataset(path, "x", group="train").fields == ["x"]
    with pytest.raises(stoker.ConfigError, match=r"columns=.*group="):
        stoker.HDF5Dataset(path)
    with pytest.raises(stoker.ConfigError, match=r'did you mean "train/x"'):
        stoker.HDF5Dataset(path, ["train/xx"])
    assert stoker.HDF5Dataset(unzip("hdf5", "refused.h5")).fields == ["fine"]
    with pytest.raises(stoker.DataError, match="compound types are not read"):
        stoker.HDF5Dataset(unzip("hdf5", "refused.h5"), ["fine", "compound"])
    shards = stoker.HDF5Dataset([unzip("hdf5", f"shard{i}.h5") for i in range(3)])
    want = golden("hdf5", "want.json")
    assert len(shards) == sum(want[f"shard{i}"]["x"]["shape"][0] for i in range(3))


@pytest.mark.parametrize(
    ("name", "database"),
    mostly(
        [("small", None), ("mixed", None), ("deep", None), ("named", "val"), ("only", None), ("pages16k", None)],
        *(("deep", None), ("named", "val")),
    ),
)
def test_lmdb(name: str, database: str | None, unzip: Any) -> None:
    want = golden("lmdb", "want.json")[name]
    found = stoker.LMDBDataset(unzip("lmdb", name + ".mdb"), database=database, values="bytes")
    pairs = in_order(found.select("__key__", "value"), size=50)
    seen = hashlib.sha256()
    for key, value in zip(pairs["__key__"], pairs["value"], strict=True):
        seen.update(b"%d %s %d " % (len(key), key, len(value)) + value)
    assert seen.hexdigest() == want["sha256"]
    assert [key.decode()[:16] for key in pairs["__key__"][:4]] == want["first"][:4]


def test_lmdb_says_which_databases_there_are(unzip: Any) -> None:
    path = unzip("lmdb", "named.mdb")
    with pytest.raises(stoker.ConfigError, match="train, val"):
        stoker.LMDBDataset(path)
    with pytest.raises(stoker.ConfigError, match='did you mean "val"'):
        stoker.LMDBDataset(path, database="vall")
    with pytest.raises(stoker.ConfigError):
        stoker.LMDBDataset(unzip("lmdb", "empty.mdb"))


@pytest.mark.parametrize(
    "name", mostly(["pictures.tfrecord", "pictures.tfrecord.gz", "data.tfrecord"], "pictures.tfrecord.gz")
)
def test_tfrecord(name: str) -> None:
    want = golden("tfrecord", "tensorflow.json")[name]["features"]
    found = stoker.TFRecordDataset(stored("tfrecord") / name)
    for field, column in in_order(found).items():
        assert column == [bytes.fromhex("".join(sample[field][1])) if field in sample else b"" for sample in want], (
            field
        )
    payloads = golden("tfrecord", "tensorflow.json")[name].get("payloads")
    if payloads and "data" not in want[0]:  # a feature may have the name that the whole message goes by
        whole = found.select(Field("data", decode="bytes"))
        assert in_order(whole)["data"] == [bytes.fromhex(one) for one in payloads]


def test_tfrecord_of_no_examples() -> None:
    found = stoker.TFRecordDataset(stored("tfrecord") / "raw.tfrec")
    assert found.fields == ["data"]
    want = golden("tfrecord", "tensorflow.json")["raw.tfrec"]["payloads"]
    assert in_order(found)["data"] == [bytes.fromhex(one) for one in want]


def plain(value: Any, kind: str) -> bytes:
    """A value of pyarrow's as the bytes of a row."""
    if isinstance(value, str) and value.startswith("hex:"):
        return bytes.fromhex(value[4:])
    if isinstance(value, str):
        return value.encode()
    return np.array(value, kind).tobytes()


@pytest.mark.parametrize(
    "name", mostly(["zstd", "snappy", "gzip", "brotli", "lz4", "none", "v2-none", "index"], "brotli", "v2-none")
)
def test_parquet(name: str) -> None:
    kinds = {"flag": "?", "i8": "i1", "u16": "u2", "i64": "i8", "u64": "u8", "f32": "f4", "f64": "f8", "vec": "f4"}
    names = [*kinds, "text", "blob", "four", "box.x"]
    found = in_order(stoker.ParquetDataset(stored("parquet") / f"rows-{name}.parquet", names), size=7)
    for i, row in enumerate(golden("parquet", "rows.json")):
        row["box.x"] = row["box"]["x"]
        for field in names:
            assert found[field][i] == plain(row[field], kinds.get(field, "f8")), (i, field)


def test_parquet_lists_are_ragged_or_padded() -> None:
    want = [row["x"] for row in golden("parquet", "lists.json")]
    path = stored("parquet") / "lists.parquet"
    found = in_order(stoker.ParquetDataset(path, ["x"]))
    assert found["x"] == [np.array(x, np.int32).tobytes() for x in want]
    padded = stoker.ParquetDataset(path, [Field("x", dtype="int64", batch="padded", multiple=64, value=-1)]).to_tuple()
    assert padded.fields == ["x", "x_lengths"]
    at = 0
    with stoker.DataLoader(padded, 3, output="numpy") as loader:
        for x, lengths in loader:
            expected = want[at : at + len(x)]
            assert lengths.tolist() == [len(row) for row in expected]
            assert x.dtype == np.int64
            assert x.shape[1] == -(-max(map(len, expected)) // 64) * 64
            for row, tokens in zip(x, expected, strict=True):
                assert row.tolist() == tokens + [-1] * (x.shape[1] - len(tokens))
            at += len(x)
    short = stoker.ParquetDataset(path, [Field("x", to=8, truncate=True)])
    with stoker.DataLoader(short, 10, output="numpy") as loader:
        (batch,) = loader
        assert batch["x"].tolist() == [(row + [0] * 8)[:8] for row in want]
        assert batch["x_lengths"].tolist() == [min(len(row), 8) for row in want]
    with pytest.raises(stoker.DataError, match="truncate"):
        in_order(stoker.ParquetDataset(path, [Field("x", to=8)]))


def test_the_index_of_parquet_knows_few_lengths() -> None:
    """It knows pages, and values of few columns. A share of a page, taken for a length, would sort and pack samples
    wrongly."""
    found = stoker.ParquetDataset(stored("parquet") / "lists.parquet", columns=["x"])
    with pytest.raises(stoker.ConfigError, match="how long that is in sample 0") as said:
        list(stoker.DataLoader(found, 2, lengths="x", bucket=4))
    assert "lengths= as a list" in str(said.value)


def test_parquet_of_hugging_face() -> None:
    found = stoker.ParquetDataset(stored("parquet") / "huggingface.parquet")
    want = golden("parquet", "huggingface.json")
    assert found.classes == ["cat", "dog", "eel"]
    values = in_order(found)
    assert values["image"] == [bytes.fromhex(row["image"]["bytes"][4:]) for row in want]
    assert [int.from_bytes(one, "little") for one in values["label"]] == [row["label"] for row in want]
    by_text = stoker.ParquetDataset(stored("parquet") / "rows-zstd.parquet", columns=["text"], label="text")
    texts = [row["text"] for row in golden("parquet", "rows.json")]
    assert by_text.classes == sorted(set(texts))
    assert [int.from_bytes(one, "little") for one in in_order(by_text)["text"]] == [
        by_text.classes.index(t) for t in texts
    ]
    with pytest.raises(stoker.ConfigError, match="give only one"):
        stoker.ParquetDataset(stored("parquet") / "lists.parquet", ["x"], columns=["x"])
    with pytest.raises(stoker.ConfigError, match='did you mean "i64"'):
        stoker.ParquetDataset(stored("parquet") / "rows-zstd.parquet", columns=["i65"])


def values_of(sample: dict[str, Any], name: str) -> bytes:
    return base64.b64decode(sample[name]["data" if "data" in sample[name] else "bytes"])


@pytest.mark.parametrize(
    ("name", "answer"),
    mostly([("plain", "plain"), ("zstd", "packed"), ("bz2", "packed"), ("one", "one")], ("bz2", "packed")),
)
def test_mds(name: str, answer: str) -> None:
    want = golden("mds", "expected.json")[answer]
    found = in_order(stoker.MDSDataset(stored("mds") / name, unpacked="64KiB"))
    for field, column in found.items():
        assert column == [values_of(sample, field) for sample in want], field


def test_mds_of_every_kind() -> None:
    want = golden("mds", "expected.json")["everything"]
    names = [name for name in want[0] if name not in ("n", "odd", "pixels")]
    fields = [Field(name, decode="bytes") if "bytes" in want[0][name] else name for name in names]
    for field, column in in_order(stoker.MDSDataset(stored("mds") / "everything", fields)).items():
        assert column == [values_of(sample, field) for sample in want], field
    pictures = stoker.MDSDataset(stored("mds") / "everything", ["image", "text"])
    assert [pictures[i]["text"].encode() for i in range(6)] == [values_of(sample, "text") for sample in want]
    assert tuple(pictures[3]["image"].shape) == (3, 4, 8)


@pytest.mark.parametrize("name", mostly(["raw", "numbers", "everything", "empty"], "everything"))
def test_beton(name: str, unzip: Any) -> None:
    want = golden("beton", "expected.json")[name]
    found = stoker.BetonDataset(unzip("beton", name + ".beton"))
    chosen = found.to_tuple(
        *[
            Field(field, decode="bytes") if "bytes" in want[0][field] else field
            for field in found.fields
            if not (name == "everything" and field == "image")
        ]
    )
    for field, column in in_order(chosen).items():
        assert column == [values_of(sample, field) for sample in want], field


def test_beton_pictures_are_transformed(unzip: Any) -> None:
    path = unzip("beton", "raw.beton")
    image = Field("image", transform=T.CenterCrop(4))
    want = golden("beton", "expected.json")["raw"]
    with stoker.DataLoader(stoker.BetonDataset(path, [image, "label"], pictures=True), 9, output="numpy") as loader:
        ((images, labels),) = map(fields_of, loader)
    for picture, label, sample in zip(images, labels, want, strict=True):
        whole = np.frombuffer(values_of(sample, "image"), np.uint8).reshape(sample["image"]["shape"])
        assert (picture.transpose(1, 2, 0) == whole[1:5, 2:6]).all()
        assert label == int.from_bytes(values_of(sample, "label"), "little", signed=True)


# What is wrong is said at once.


def test_another_format_is_said(tmp_path: Path, unzip: Any) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("nothing of any format" * 30)
    for make in (
        stoker.NpyDataset,
        stoker.HDF5Dataset,
        stoker.LMDBDataset,
        stoker.TFRecordDataset,
        stoker.ParquetDataset,
        stoker.BetonDataset,
    ):
        with pytest.raises(stoker.StokerError) as caught:
            make(text)
        assert "notes.txt" in str(caught.value)
        with pytest.raises(stoker.ConfigError, match=r"nothing\.x"):
            make(tmp_path / "nothing.x")
        with pytest.raises(stoker.ConfigError, match="path"):
            make(5)
    with pytest.raises(stoker.StokerError):
        stoker.MDSDataset(tmp_path)


def test_a_cut_file_is_an_error_with_its_place(tmp_path: Path, unzip: Any) -> None:
    for kind, name, make in (
        ("tfrecord", "pictures.tfrecord", stoker.TFRecordDataset),
        ("parquet", "rows-zstd.parquet", stoker.ParquetDataset),
        ("npy", "images.npy", stoker.NpyDataset),
    ):
        whole = (stored(kind) / name).read_bytes()
        path = tmp_path / name
        path.write_bytes(whole[: len(whole) * 2 // 3])
        with pytest.raises(stoker.DataError) as caught:
            columns(make(path))
        assert name in str(caught.value)


def test_fields_that_make_no_sense() -> None:
    path = DATA / "npy/images.npy"
    with pytest.raises(stoker.ConfigError, match=r"fields\[0\] is 5"):
        stoker.NpyDataset(path, fields=[5])  # type: ignore[list-item]
    with pytest.raises(stoker.ConfigError, match="empty"):
        stoker.NpyDataset(path, fields=[])
    with pytest.raises(stoker.ConfigError, match="to is 0"):
        Field("x", to=0)
    with pytest.raises(stoker.ConfigError, match="padding"):
        Field("x", to=5, batch="ragged")
    with pytest.raises(stoker.ConfigError, match="paths"):
        stoker.NpyDataset(path, x=path)
    with pytest.raises(stoker.ConfigError, match="ragged"):
        stoker.ParquetDataset(stored("parquet") / "lists.parquet", [Field("x", batch="dense")])
    assert "images" in repr(stoker.NpyDataset(path, DATA / "npy/labels.npy"))


def test_mixtures_have_fields_of_their_own(unzip: Any, tmp_path: Path) -> None:
    path = stored("parquet") / "rows-zstd.parquet"
    other = tmp_path / "other.csv"
    other.write_text("text,i64\n" + "".join(f"other {i},{i}\n" for i in range(20)))
    mix = stoker.Mixture([stoker.ParquetDataset(path, ["text", "i64"]), stoker.Table(other).select("text", "i64")])
    with stoker.DataLoader(mix, 10, shuffle=True) as loader:
        texts = [text for batch in loader for text in batch["text"]]
    assert {"alpha", "other 1"} <= set(texts)


@pytest.mark.parametrize(
    "kind", mostly(["dict", "dict-snappy", "plain", "plain-snappy", "plain-crc", "mixed"], "plain-crc", "mixed")
)
def test_pictures_in_one_page_of_parquet(unzip: Any, kind: str) -> None:
    """pyarrow puts up to 1,024 large values into one page, or one dictionary."""
    path = unzip("parquet", f"pictures-{kind}.parquet")
    found = in_order(stoker.ParquetDataset(path, [Field("image", decode="bytes"), "label"]), shuffle=True)
    assert found["image"] == [bytes((i + j // 500) % 251 for j in range(17000 + 300 * i)) for i in range(24)]
    assert found["label"] == [np.int64(i % 5).tobytes() for i in range(24)]


def test_notices_are_of_the_columns_that_are_wanted(unzip: Any, capfd: pytest.CaptureFixture[str]) -> None:
    path = unzip("parquet", "pictures-dict-snappy.parquet")
    for wanted, said in ((None, True), (["label"], False), (["image", "label"], False)):
        stoker._notice._said.clear()
        capfd.readouterr()
        data = stoker.ParquetDataset(path, columns=wanted)
        assert data.fields == (wanted or ["image", "label"])
        assert ('"maybe" (null in 2 of 24 rows)' in capfd.readouterr().err) == said

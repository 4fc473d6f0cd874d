"""Errors of the engine in Python's words: its own are those of a Spec."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker._errors import in_words

anyhow: Any = stoker  # what checkers of types would refuse

TOKENS = str(Path(__file__).parents[2] / "testdata" / "tokens" / "train.bin")


def first(dataset: Any, **keywords: Any) -> Any:
    with stoker.DataLoader(dataset, **keywords) as loader:
        return next(iter(loader))


@pytest.fixture
def rows(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", np.zeros((4, 3), "f4"))
    np.savez(tmp_path / "uneven.npz", x=np.zeros((4, 3)), y=np.zeros(5))
    return str(tmp_path / "x.npy")


def mixture(path: str) -> stoker.Mixture:
    return stoker.Mixture([stoker.NpyDataset(path), stoker.NpyDataset(path)], weights=[1, 2])


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        (
            lambda x: first(stoker.NpyDataset(x, fields=[stoker.Field("x", to=2)])),
            "raise to=, cut longer samples with truncate=True",
        ),
        (lambda x: stoker.NpyDataset(x, fields=[stoker.Field("x", truncate=True)]), "needs a length in to"),
        (
            lambda x: stoker.NpyDataset(x, fields=[stoker.Field("x", view=(3, 3))]),
            "(begin, end) as of a slice, None for",
        ),
        (lambda x: stoker.NpyDataset(str(Path(x).parent / "uneven.npz")), 'NpyDataset(x="data.npz")'),
        (lambda x: first(stoker.NpyDataset(x), shuffle=True, block=3), "shuffle is 'full'"),
        (lambda x: first(mixture(x), shuffle=True, num_samples=3), "stop='first_exhausted'"),
        (lambda _: stoker.TokenDataset(TOKENS, 10**8), "take length=299"),
    ],
)
def test_hints_are_keywords(wrong: Callable[[str], Any], right: str, rows: str) -> None:
    with pytest.raises(stoker.StokerError) as caught:
        wrong(rows)
    text = str(caught.value)
    assert right in text
    assert not re.search(r"\b(dataset|pad|mix|batch|order|deliver|on_bad)\.[a-z_]+", text.replace(rows, ""))


def test_the_way_out_works(rows: str) -> None:
    assert stoker.NpyDataset(x=str(Path(rows).parent / "uneven.npz")).fields == ["x"]


def test_paths_stay_what_they_are() -> None:
    for path in ("/data/pad.to/x.tar", '"dataset.window"', "mix.stop.tar/mix.stop", "'order.seed'"):
        assert in_words(f"there is no {path}") == f"there is no {path}"
    assert in_words("pad.to is 3") == "to is 3"


FIELDS: list[tuple[str, Callable[[str], Any]]] = [
    ("HDF5Dataset: columns is 5", lambda x: anyhow.HDF5Dataset(x, columns=5)),
    ("HDF5Dataset: columns[1] is 5", lambda x: anyhow.HDF5Dataset(x, columns=["a", 5])),
    ("HDF5Dataset: columns is {'a': 1}", lambda x: anyhow.HDF5Dataset(x, columns={"a": 1})),
    ("HDF5Dataset: group is 5", lambda x: anyhow.HDF5Dataset(x, group=5)),
    ("ParquetDataset: columns is 5", lambda x: anyhow.ParquetDataset(x, columns=5)),
    ("ParquetDataset: columns[0] is 5", lambda x: anyhow.ParquetDataset(x, columns=[5])),
    ("ParquetDataset: label is 5", lambda x: anyhow.ParquetDataset(x, label=5)),
    ("LMDBDataset: database is 5", lambda x: anyhow.LMDBDataset(x, database=5)),
    ("LMDBDataset: values is 5", lambda x: anyhow.LMDBDataset(x, values=5)),
    ("BetonDataset: pictures is 5", lambda x: anyhow.BetonDataset(x, pictures=5)),
    ("Table: path is 5", lambda x: anyhow.Table(x, path=5)),
    ("Table: label is 5", lambda x: anyhow.Table(x, label=5)),
    ("TokenDataset: eos is 'a'", lambda x: anyhow.TokenDataset(x, 5, eos="a")),
    ("TokenDataset: documents is 5", lambda x: anyhow.TokenDataset(x, documents=5)),
    ("Synthetic: shape is 5", lambda _: anyhow.Synthetic(5, 5)),
    ("Mixture: datasets is of type int", lambda _: anyhow.Mixture(5)),
    ("Mixture: weights is of type int", lambda x: anyhow.Mixture([stoker.NpyDataset(x)], 5)),
    ("Mixture: weights contains an item", lambda x: anyhow.Mixture([stoker.NpyDataset(x)], ["a"])),
    ("Mixture: schedule is 5", lambda x: anyhow.Mixture([stoker.NpyDataset(x)], schedule=5)),
    ("Mixture: schedule is [5]", lambda x: anyhow.Mixture([stoker.NpyDataset(x)], schedule=[5])),
    ("Field 5: name is 5", lambda _: anyhow.Field(5)),
    ("Field 'a': source is 5", lambda _: anyhow.Field("a", source=5)),
    ("Field 'a': decode is ['rgb']", lambda _: anyhow.Field("a", decode=["rgb"])),
    ("Field 'a': batch is ['dense']", lambda _: anyhow.Field("a", batch=["dense"])),
    ("Field 'a': view is 5", lambda _: anyhow.Field("a", view=5)),
    ("Field 'a': view is (1, 2, 3)", lambda _: anyhow.Field("a", view=(1, 2, 3))),
    ("Field 'a': value is 'k'", lambda _: anyhow.Field("a", value="k")),
    ("NpyDataset: fields[0] is 5", lambda x: anyhow.NpyDataset(x).select(5)),
    ("WebDataset.decode: 5 is not a known", lambda _: stoker.WebDataset("a.tar").decode(5)),
    ("WebDataset.decode: ['rgb'] is not a known", lambda _: stoker.WebDataset("a.tar").decode(["rgb"])),
    ("WebDataset.decode: only is 5", lambda _: stoker.WebDataset("a.tar").decode("pil", only=5)),
    ("WebDataset.rename: image is 5", lambda _: anyhow.WebDataset("a.tar").rename(image=5)),
    ("max_bad is 18446744073709551616", lambda x: first(stoker.NpyDataset(x), max_bad=1 << 64)),
]
FIELDS_OF: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in "HDF5Dataset LMDBDataset TFRecordDataset ParquetDataset LinesDataset".split()),
    *((name, {}) for name in "MDSDataset BetonDataset NpyDataset Table files".split()),
    ("Table", {"path": "file"}),
    ("TokenDataset", {"length": 5}),
]


@pytest.mark.parametrize(("said", "wrong"), FIELDS, ids=[said for said, _ in FIELDS])
def test_a_value_of_the_wrong_type_is_named_by_its_keyword(said: str, wrong: Callable[[str], Any], rows: str) -> None:
    with pytest.raises(stoker.ConfigError) as caught:
        wrong(rows)
    assert said in str(caught.value)
    assert "try:" in str(caught.value)


@pytest.mark.parametrize(("name", "more"), FIELDS_OF)
def test_fields_of_the_wrong_type_are_named_by_every_class(name: str, more: dict[str, Any], rows: str) -> None:
    with pytest.raises(stoker.ConfigError, match=f"{name}: fields is 5") as caught:
        getattr(stoker, name)(rows, fields=5, **more)
    assert caught.value.hint


KEYWORDS: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 1 << 64}, "batch_size is 18446744073709551616"),
    ({"batch_size": 1 << 21}, "batch_size is 2097152: it can be 1 to"),
    ({"global_batch_size": 1 << 31}, "global_batch_size is 2147483648: it can be 1 to"),
    ({"num_workers": 1 << 64}, "num_workers is 18446744073709551616"),
    ({"num_workers": 100000}, "num_workers is 100000: it can be 1 to 256 lanes"),
    ({"prefetch": 1 << 40}, "prefetch is 1099511627776"),
    ({"prefetch_factor": 1 << 62, "num_workers": 2}, "prefetch_factor is 4611686018427387904"),
    ({"length_window": 5}, "length_window is used by bucket, tokens and pack"),
    ({"lengths": [1] * 4, "bucket": 3, "length_window": 1 << 60}, "length_window is 1152921504606846976"),
    ({"lengths": [1] * 4, "bucket": 3, "length_window": 2}, "bucket is 3 and length_window 2"),
    ({"lengths": [5] * 4, "tokens": 3}, "raise tokens"),
    ({"lengths": [5] * 4, "pack": 1 << 33}, "pack is 8589934592"),
    ({"num_samples": 5}, "set num_samples to at most 4, or pass replacement=True"),
    ({"weights": [1]}, "1 weight for 4 samples"),
]


@pytest.mark.parametrize(("keywords", "said"), KEYWORDS, ids=[said for _, said in KEYWORDS])
def test_the_engine_names_keywords(keywords: dict[str, Any], said: str, rows: str) -> None:
    with pytest.raises(stoker.ConfigError) as caught:
        first(stoker.NpyDataset(rows), **keywords)
    text = str(caught.value).replace(rows, "")
    assert said in text
    assert not re.search(r"\b(dataset|pad|mix|batch|order|deliver|on_bad)\.[a-z_]+|\bdraw:", text)


def test_the_engine_names_the_keywords_of_datasets(rows: str) -> None:
    for said, wrong in (
        ("length is 18446744073709551616", lambda: stoker.TokenDataset(TOKENS, 1 << 64)),
        ("stride is 18446744073709551616", lambda: stoker.TokenDataset(TOKENS, 5, stride=1 << 64)),
        ("value of field 0 is nan", lambda: stoker.NpyDataset(rows, fields=[stoker.Field("x", value=float("nan"))])),
        ("view of field 0 is", lambda: stoker.NpyDataset(rows, fields=[stoker.Field("x", view=(1 << 70, None))])),
        ("weights[1] is inf", lambda: stoker.Mixture([stoker.NpyDataset(rows)] * 2, [1, float("inf")])),
        ("weights are all 0", lambda: stoker.Mixture([stoker.NpyDataset(rows)] * 2, [0, 0])),
        ("linear needs a schedule", lambda: stoker.Mixture([stoker.NpyDataset(rows)] * 2, linear=True)),
    ):
        with pytest.raises(stoker.ConfigError, match=re.escape(said)):
            wrong()


def test_small_amounts_of_memory_are_not_zero(rows: str) -> None:
    with pytest.raises(
        stoker.ResourceError, match=r"a batch takes \d\.\d KiB and two must fit, but memory is 1 B"
    ) as caught:
        first(stoker.NpyDataset(rows), memory=1)
    assert "raise memory= to at least 8 KiB, or lower batch_size" in str(caught.value.hint)

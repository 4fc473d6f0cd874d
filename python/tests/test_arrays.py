"""Arrays of files as batches: any dtype and shape, parts of them, as NumPy wrote them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import mostly
from needs import needs

import stoker

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "float32",
    "float64",
]


def saved(path: Path, array: Any) -> str:
    np.save(path, array)
    return str(path)


def batches(dataset: Any, size: int, output: Any = "numpy", **keywords: Any) -> list[Any]:
    with stoker.DataLoader(dataset, batch_size=size, output=output, **keywords) as loader:
        return list(loader)


@pytest.mark.parametrize("dtype", mostly(DTYPES, *DTYPES[::2]))
def test_every_dtype_arrives_as_it_was_saved(tmp_path: Path, dtype: str) -> None:
    raw = np.random.default_rng(1).integers(0, 256, (10, 3, 16), dtype=np.uint8)
    array = raw > 127 if dtype == "bool" else raw.reshape(10, -1).view(dtype)
    dataset = stoker.NpyDataset(saved(tmp_path / "x.npy", array))
    found = batches(dataset, 4)
    assert [len(batch) for batch in found] == [4, 4, 2]
    got = np.concatenate(found)
    assert got.dtype == array.dtype
    assert got.tobytes() == array.tobytes()


def test_a_pair_of_files_is_a_tuple(tmp_path: Path) -> None:
    images = np.random.default_rng(2).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(20) * 7
    pair = stoker.NpyDataset(saved(tmp_path / "images.npy", images), saved(tmp_path / "labels.npy", labels))
    assert pair.fields == ["images", "labels"]
    assert len(pair) == 20
    for x, y in batches(pair, 8, shuffle=True):
        rows = y // 7
        assert (x == images[rows]).all()
    named = pickle.loads(
        pickle.dumps(stoker.NpyDataset(x=str(tmp_path / "images.npy"), y=str(tmp_path / "labels.npy")))
    )
    x, y = named[3]
    assert y == 21
    assert (np.asarray(x) == images[3]).all()
    assert named.select("y")[5] == {"y": 35}


def test_fields_show_parts_of_one_stored_field(tmp_path: Path) -> None:
    tokens = np.random.default_rng(3).integers(0, 60_000, (12, 17), dtype=np.uint16)
    path = saved(tmp_path / "tokens.npy", tokens)
    views = [
        stoker.Field("x", source="tokens", dtype="int64", view=(None, -1)),
        stoker.Field("y", source="tokens", dtype="int64", view=(1, None)),
    ]
    dataset = stoker.NpyDataset(path, fields=views)
    at = 0
    for x, y in batches(dataset, 5):
        want = tokens[at : at + len(x)].astype(np.int64)
        assert (x == want[:, :-1]).all()
        assert (y == want[:, 1:]).all()
        assert x.flags["C_CONTIGUOUS"]
        assert y.flags["C_CONTIGUOUS"]
        at += len(x)
    assert at == 12


def test_torch_gets_views_too(tmp_path: Path) -> None:
    torch = needs("torch")
    tokens = np.random.default_rng(4).integers(0, 60_000, (8, 9), dtype=np.uint16)
    path = saved(tmp_path / "tokens.npy", tokens)
    views = [
        stoker.Field("x", source="tokens", dtype=torch.int64, view=(0, 8)),
        stoker.Field("y", source="tokens", dtype="int64", view=(1, 9)),
    ]
    ((x, y),) = batches(stoker.NpyDataset(path, fields=views), 8, output="torch")
    assert x.dtype == torch.int64
    assert x.shape == y.shape == (8, 8)
    assert torch.equal(x[:, 1:], y[:, :-1])
    assert x.is_contiguous()
    assert y.view(-1).shape == (64,)


def test_large_views_keep_the_slot(tmp_path: Path) -> None:
    tokens = np.random.default_rng(5).integers(0, 60_000, (64, 4097), dtype=np.uint16)
    path = saved(tmp_path / "tokens.npy", tokens)
    views = [
        stoker.Field("x", source="tokens", dtype="int64", view=(0, -1)),
        stoker.Field("y", source="tokens", view=(1, None)),
    ]
    kept = batches(stoker.NpyDataset(path, fields=views), 32)
    for i, (x, y) in enumerate(kept):
        want = tokens[32 * i : 32 * i + 32]
        assert (x == want[:, :-1]).all()
        assert (y == want[:, 1:]).all()


def test_what_can_not_be_delivered_is_said_at_once(tmp_path: Path) -> None:
    path = saved(tmp_path / "x.npy", np.zeros((4, 3), np.float32))
    with pytest.raises(stoker.ConfigError, match="int64"):
        stoker.NpyDataset(path, fields=[stoker.Field("x", dtype="int64")])
    with pytest.raises(stoker.ConfigError, match="nothing"):
        stoker.NpyDataset(path, fields=["nothing"])
    with pytest.raises(stoker.ConfigError, match="batch"):
        stoker.Field("x", batch="sparse")
    with pytest.raises(stoker.ConfigError, match="paths"):
        stoker.NpyDataset()
    fortran = saved(tmp_path / "f.npy", np.asfortranarray(np.zeros((4, 3))))
    with pytest.raises(stoker.DataError, match="Fortran"):
        stoker.NpyDataset(fortran)
    objects = tmp_path / "o.npy"
    np.save(objects, np.array([{}, {}], dtype=object), allow_pickle=True)
    with pytest.raises(stoker.DataError, match="pickle"):
        stoker.NpyDataset(objects)


def test_mixtures_of_arrays(tmp_path: Path) -> None:
    a, b = np.arange(30).reshape(10, 3), np.arange(30, 60).reshape(10, 3)
    mixture = stoker.Mixture(
        [stoker.NpyDataset(x=saved(tmp_path / "a.npy", a)), stoker.NpyDataset(x=saved(tmp_path / "b.npy", b))]
    )
    got = np.concatenate(batches(mixture, 4))
    assert sorted(got[:, 0].tolist()) == [*range(0, 60, 3)]


def test_a_folder_is_read_whole(tmp_path: Path) -> None:
    x, y = np.arange(12.0).reshape(4, 3), np.arange(4)
    folders: dict[str, dict[str, Any]] = {"one": {"x": x}, "pair": {"x": x, "y": y}, "parts": {"x-0": x, "x-1": x[:2]}}
    for name, arrays in folders.items():
        (tmp_path / name).mkdir()
        for stem, array in arrays.items():
            saved(tmp_path / name / f"{stem}.npy", array)
    (tmp_path / "named").mkdir()
    np.savez(tmp_path / "named" / "all.npz", x=x, y=y)
    one = stoker.NpyDataset(tmp_path / "one")
    assert np.array_equal(one[1], x[1])
    for pair in (
        stoker.NpyDataset(tmp_path / "pair"),
        stoker.NpyDataset(tmp_path / "pair" / "*.npy"),
        stoker.NpyDataset([tmp_path / "pair" / "x.npy", tmp_path / "pair" / "y.npy"]),
    ):
        assert pair.fields == ["x", "y"]
        ((rows, numbers),) = batches(pair, 4)
        assert np.array_equal(rows, x)
        assert np.array_equal(numbers, y)
    parts = stoker.NpyDataset(tmp_path / "parts")
    assert np.array_equal(parts[5], x[1])
    chosen = stoker.NpyDataset(tmp_path / "pair", fields=["y"])
    assert int(chosen[2]) == 2
    named = stoker.NpyDataset(tmp_path / "named")
    assert set(named[0]) == {"x", "y"}


def test_a_folder_of_no_samples_says_how_to_name_its_arrays(tmp_path: Path) -> None:
    saved(tmp_path / "a.npy", np.arange(4))
    saved(tmp_path / "b.npy", np.arange(5))
    with pytest.raises(stoker.ConfigError, match='"a" has 4 rows, and the field "b" has 5') as caught:
        stoker.NpyDataset(tmp_path)
    assert 'NpyDataset(x="x.npy", y="y.npy")' in str(caught.value)
    np.savez(tmp_path / "c.npz", c=np.arange(4))
    with pytest.raises(stoker.ConfigError, match="give files of one kind"):
        stoker.NpyDataset(tmp_path)

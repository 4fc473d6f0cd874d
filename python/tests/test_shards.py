"""ShardWriter: what it writes is read by stoker, by tarfile and by the real webdataset, and is never half there."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import logging
import os
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import jpeg, picture
from needs import needs

import stoker

RNG = np.random.default_rng(3)


def sample(i: int) -> dict[str, Any]:
    return {
        "__key__": f"dir.x/s{i:04d}",
        "jpg": jpeg(i, (32, 24)),
        "png": np.full((6, 5, 3), i, np.uint8),
        "cls": np.int64(i % 5),
        "txt": f"picture {i} — ü",
        "json": {"number": i, "odd": bool(i % 2), "text": "ü"},
        "npy": np.arange(i, i + 6, dtype=np.float32).reshape(2, 3),
        "mask.pgm": np.linspace(0, 1, 20).reshape(4, 5, 1),
        "extra.json.gz": [i],
        "__note__": "not written",
    }


def written(folder: Path, count: int = 25, **keywords: Any) -> list[Path]:
    with stoker.ShardWriter(str(folder / "train-%06d.tar"), verbose=0, **keywords) as sink:
        for i in range(count):
            sink.write(sample(i))
    return sorted(folder.iterdir())


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]


def test_stoker_reads_what_was_written(tmp_path: Path) -> None:
    shards = written(tmp_path, maxcount=10)
    assert [path.name for path in shards] == ["train-000000.tar", "train-000001.tar", "train-000002.tar"]
    data = stoker.WebDataset(str(tmp_path / "train-{000000..000002}.tar")).decode("pil", only="png cls txt json")
    assert len(data) == 25
    for i in (0, 9, 10, 24):
        found, want = data[i], sample(i)
        assert found["__key__"] == want["__key__"]
        assert found["jpg"] == want["jpg"]
        assert (np.asarray(found["png"]) == i).all()
        assert (found["cls"], found["txt"], found["json"]) == (i % 5, want["txt"], want["json"])
        assert (np.load(io.BytesIO(found["npy"])) == want["npy"]).all()
        assert json.loads(gzip.decompress(found["extra.json.gz"])) == [i]
        assert "__note__" not in found


def test_arrays_come_back_as_batches(tmp_path: Path) -> None:
    written(tmp_path, maxcount=10)
    data = stoker.WebDataset(str(tmp_path / "train-{000000..000002}.tar")).decode().to_tuple("npy", "cls")
    with stoker.DataLoader(data, 10, shuffle=True, output="numpy") as loader:
        for arrays, labels in loader:
            assert arrays.dtype == np.float32
            first = arrays[:, 0, 0].astype(int)
            assert (arrays == np.arange(6).reshape(2, 3) + first[:, None, None]).all()
            assert (first % 5 == labels).all()


def test_the_real_webdataset_reads_what_was_written(tmp_path: Path) -> None:
    webdataset = needs("webdataset")
    written(tmp_path, maxcount=10, compress=True)
    urls = str(tmp_path / "train-{000000..000002}.tar")
    found = list(webdataset.WebDataset(urls, shardshuffle=False).decode("rgb8"))
    assert len(found) == 25
    for i, one in enumerate(found):
        want = sample(i)
        assert one["__key__"] == want["__key__"]
        assert one["jpg"].shape == (24, 32, 3)
        assert (one["png"] == i).all()
        assert (one["cls"], one["txt"], one["json"]) == (i % 5, want["txt"], want["json"])
        assert (one["npy"] == want["npy"]).all()
        assert one["npy"].dtype == np.float32
        assert one["mask.pgm"].shape == (4, 5, 3)


def test_members_are_those_of_the_real_webdataset(tmp_path: Path) -> None:
    webdataset = needs("webdataset")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, writer in ((ours, stoker.ShardWriter), (theirs, webdataset.ShardWriter)):
        folder.mkdir()
        with writer(str(folder / "x-%03d.tar"), maxcount=4, maxsize=40_000, start_shard=7, verbose=0) as sink:
            for i in range(11):
                one = {key: value for key, value in sample(i).items() if key not in ("mask.pgm", "cls")}
                sink.write({**one, "cls": i, "image.jpg": np.asarray(picture(i, (16, 16)))})
    assert sorted(p.name for p in ours.iterdir()) == sorted(p.name for p in theirs.iterdir())
    for path in ours.iterdir():
        mine, other = members(path), members(theirs / path.name)
        assert list(mine) == list(other)
        for name in mine:
            if name.endswith(".gz"):
                assert gzip.decompress(mine[name]) == gzip.decompress(other[name])
            else:
                assert mine[name] == other[name], name


def test_the_same_samples_are_the_same_bytes(tmp_path: Path) -> None:
    digests = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        shards = written(folder, 12, maxcount=5, compress="gz")
        digests.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in shards])
    assert digests[0] == digests[1]
    with tarfile.open(tmp_path / "0/train-000000.tar") as tar:
        for info in tar:
            assert (info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode) == (0, 0, 0, "", "", 0o444)
            assert not info.pax_headers


def test_shards_end_by_count_and_by_size(tmp_path: Path) -> None:
    posted: list[str] = []
    with stoker.ShardWriter(
        tmp_path / "s-%d.tar", maxcount=3, maxsize=1000, post=posted.append, start_shard=4, verbose=0
    ) as sink:
        for i, size in enumerate([10, 10, 10, 10, 990, 2000, 10]):
            assert sink.write({"__key__": str(i), "bin": bytes(size)}) == size
            assert Path(str(sink.fname)).name not in os.listdir(tmp_path)
        assert (sink.total, sink.count, sink.size, sink.shard) == (7, 1, 10, 8)
    assert [len(members(tmp_path / f"s-{n}.tar")) for n in (4, 5, 6, 7)] == [3, 2, 1, 1]
    assert posted == [str(tmp_path / f"s-{n}.tar") for n in (4, 5, 6, 7)]


@pytest.mark.parametrize(("compress", "mode"), [("gz", "r:gz"), ("bz2", "r:bz2"), ("xz", "r:xz"), (False, "r:")])
def test_compression(tmp_path: Path, compress: Any, mode: Any) -> None:
    (path,) = written(tmp_path, 3, compress=compress)
    with tarfile.open(path, mode) as tar:
        assert len(tar.getnames()) == 24
    with stoker.ShardWriter(tmp_path / f"named-%d.tar.{compress}", verbose=0) as sink:
        sink.write({"__key__": "a", "txt": "text"})
    if compress:
        with tarfile.open(tmp_path / f"named-0.tar.{compress}", mode) as tar:
            assert tar.getnames() == ["a.txt"]
    if compress == "gz":
        assert stoker.WebDataset(tmp_path / "named-0.tar.gz").to_tuple("txt")[0] == (b"text",)


def test_long_names_and_metadata(tmp_path: Path) -> None:
    key = "deep/" * 40 + "ü" * 50
    for format in (None, "GNU_FORMAT", tarfile.PAX_FORMAT):
        with stoker.ShardWriter(tmp_path / "x-%d.tar", verbose=0, format=format, keep_meta=True, user="me") as sink:
            sink.write({"__key__": key, "txt": b"text", "_note": "kept"})
        assert members(tmp_path / "x-0.tar") == {f"{key}._note": b"kept", f"{key}.txt": b"text"}
        assert stoker.WebDataset(tmp_path / "x-0.tar")[0]["__key__"] == key


def test_encoders_of_ones_own(tmp_path: Path) -> None:
    with stoker.ShardWriter(tmp_path / "a-%d.tar", verbose=0, encoder={"sum": lambda x: str(sum(x))}) as sink:
        sink.write({"__key__": "a", "sum": [1, 2], "cls": 4})
    assert sorted(members(tmp_path / "a-0.tar").items()) == [("a.cls", b"4"), ("a.sum", b"3")]
    with stoker.ShardWriter(tmp_path / "b-%d.tar", verbose=0, encoder=lambda s: {**s, "txt": b"x"}) as sink:
        sink.write({"__key__": "b"})
    assert members(tmp_path / "b-0.tar") == {"b.txt": b"x"}
    with stoker.ShardWriter(tmp_path / "c-%d.tar", verbose=0, encoder=False) as sink:
        with pytest.raises(stoker.ConfigError, match="not bytes"):
            sink.write({"__key__": "c", "cls": 4})
        sink.write({"__key__": "c", "cls": b"4", "pyd": bytearray(b"as it is")})
    assert members(tmp_path / "c-0.tar") == {"c.cls": b"4", "c.pyd": b"as it is"}


def test_arrays_and_pictures_are_what_they_were(tmp_path: Path) -> None:
    arrays = {"a": RNG.normal(size=(3, 2)), "b": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3))}
    image = picture(1, (20, 10))
    with stoker.ShardWriter(tmp_path / "x-%d.tar", verbose=0) as sink:
        sink.write({"__key__": "a", "npz": arrays, "npy": arrays["b"], "x.npy": np.float32(2), "png": image})
    found = members(tmp_path / "x-0.tar")
    packed = np.load(io.BytesIO(found["a.npz"]))
    assert all((packed[key] == array).all() for key, array in arrays.items())
    assert np.load(io.BytesIO(found["a.npy"])).flags.c_contiguous
    assert np.load(io.BytesIO(found["a.x.npy"])).shape == ()
    back = stoker.WebDataset(tmp_path / "x-0.tar").decode("rgb8").to_tuple("png")
    assert (np.asarray(back[0][0]) == np.asarray(image)).all()


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (5, "is of type int"),
        ({"jpg": b""}, "__key__ is None"),
        ({"__key__": ""}, "__key__ is ''"),
        ({"__key__": "a.b", "jpg": b""}, "follows a dot"),
        ({"__key__": "/a", "jpg": b""}, "relative path"),
        ({"__key__": "../a", "jpg": b""}, "relative path"),
        ({"__key__": "a"}, "no field"),
        ({"__key__": "a", "x/y": b""}, "'x/y'"),
        ({"__key__": "a", 5: b""}, "field 5"),
        ({"__key__": "a", "pyd": {}}, "runs code that it contains"),
        ({"__key__": "a", "model.pth": {}}, "runs code that it contains"),
        ({"__key__": "a", "npy": np.array([{}], object)}, "pickle"),
        ({"__key__": "a", "npz": [1]}, "dict of arrays"),
        ({"__key__": "a", "cls": 1.5}, "cls"),
        ({"__key__": "a", "txt": 3}, "give a str"),
        ({"__key__": "a", "json": {1, 2}}, "json"),
        ({"__key__": "a", "json": float("nan")}, "json"),
        ({"__key__": "a", "cbor": {}}, "not supported"),
        ({"__key__": "a", "xyz": {}}, "no encoder"),
        ({"__key__": "a", "jpg": [1, 2]}, "PIL image"),
        ({"__key__": "a", "jpg": np.zeros((2, 2, 5), np.uint8)}, "shape"),
        ({"__key__": "a", "png": np.full((2, 2), 7.0)}, "from 0 to 1"),
        ({"__key__": "a", "png": np.zeros((2, 2), np.int32)}, "int32"),
        ({"__key__": "same", "txt": "again"}, "this shard already has a sample"),
    ],
)
def test_a_bad_sample_is_said_and_damages_nothing(tmp_path: Path, bad: Any, words: str) -> None:
    with stoker.ShardWriter(tmp_path / "x-%d.tar", verbose=0) as sink:
        sink.write({"__key__": "same", "txt": "first"})
        with pytest.raises(stoker.ConfigError) as caught:
            sink.write(bad)
        assert words in str(caught.value)
        assert caught.value.hint
        sink.write({"__key__": "other", "txt": "last"})
    assert members(tmp_path / "x-0.tar") == {"same.txt": b"first", "other.txt": b"last"}


def test_arguments_that_make_no_sense_are_one_error(tmp_path: Path) -> None:
    with pytest.raises(stoker.ConfigError, match="7 problems") as caught:
        stoker.ShardWriter(
            tmp_path / "train.tar", 0, -1, start_shard=-1, compress="zstd", encoder=5, format="ZIP", verbose=0
        )
    assert "train-%06d.tar" in str(caught.value)
    with pytest.raises(stoker.ConfigError, match="does not exist"):
        stoker.ShardWriter(tmp_path / "nowhere" / "x-%d.tar")
    with pytest.raises(stoker.ConfigError, match="opener"):
        stoker.ShardWriter("s3://bucket/x-%d.tar")
    with pytest.raises(stoker.ConfigError, match="the same name"):
        stoker.ShardWriter("x-%d-%d.tar")


def test_what_is_not_whole_has_no_name(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    with pytest.raises(Stop), stoker.ShardWriter(tmp_path / "x-%d.tar", maxcount=2, verbose=0) as sink:
        for i in range(5):
            sink.write({"__key__": str(i), "txt": "text"})
        assert sorted(path.suffix for path in tmp_path.iterdir()) == [".tar", ".tar", ".tmp"]
        raise Stop
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x-0.tar", "x-1.tar"]
    with pytest.raises(stoker.ConfigError, match="closed"):
        sink.write({"__key__": "a", "txt": "text"})
    sink.close()


def test_no_shard_without_a_sample(tmp_path: Path) -> None:
    with stoker.ShardWriter(tmp_path / "x-%d.tar", verbose=0):
        pass
    assert not list(tmp_path.iterdir())


def test_an_older_shard_is_replaced_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x-0.tar"
    path.write_bytes(b"old")
    with stoker.ShardWriter(tmp_path / "x-%d.tar", verbose=0) as sink:
        sink.write({"__key__": "a", "txt": "text"})
        assert path.read_bytes() == b"old"
    assert members(path) == {"a.txt": b"text"}


class Full(io.BytesIO):
    """A stream that has no room for long."""

    def __init__(self, room: int, number: int) -> None:
        super().__init__()
        self._room, self._number = room, number

    def write(self, data: Any) -> int:
        self._room -= len(data)
        if self._room < 0:
            raise OSError(self._number, os.strerror(self._number))
        return super().write(data)


@pytest.mark.parametrize("compress", [None, "gz"])
@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, stoker.ResourceError), (errno.EIO, stoker.SourceError)])
def test_a_disk_that_is_full_is_said(number: int, kind: type[Exception], compress: Any) -> None:
    opened: list[str] = []

    def opener(name: str) -> Any:
        opened.append(name)
        return Full(30_000, number)

    sink = stoker.ShardWriter("memory-%02d.tar", opener=opener, verbose=0, compress=compress)
    with pytest.raises(kind, match=r"memory-00\.tar") as caught:
        for i in range(50):
            sink.write({"__key__": str(i), "bin": RNG.bytes(4000)})
    assert isinstance(caught.value, stoker.StokerError)
    assert os.strerror(number) in str(caught.value)
    assert (caught.value.code == "space") == (number == errno.ENOSPC)
    assert opened == ["memory-00.tar"]
    sink.close()


def test_an_opener_gets_the_bytes(tmp_path: Path) -> None:
    class Kept(io.BytesIO):
        def close(self) -> None:
            kept.append(self.getvalue())
            super().close()

    kept: list[bytes] = []
    for opener in (lambda name: Kept(), None):
        with stoker.ShardWriter(tmp_path / "x-%d.tar", maxcount=4, opener=opener, verbose=0) as sink:
            for i in range(6):
                sink.write(sample(i))
    assert kept == [(tmp_path / f"x-{n}.tar").read_bytes() for n in range(2)]


def test_it_says_which_shard_it_writes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stoker"), stoker.ShardWriter(tmp_path / "x-%d.tar", maxcount=1) as sink:
        for i in range(2):
            sink.write({"__key__": str(i), "txt": "text"})
    assert "x-0.tar" in caplog.text
    assert "x-1.tar, 1 sample before it" in caplog.text

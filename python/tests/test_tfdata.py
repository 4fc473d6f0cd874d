"""tf.data's names on stoker's datasets."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import steps
import torch
from conftest import DATA
from test_steps import SMALL, equal, loaded, rows

import stoker
from stoker._padded import Padded


@pytest.fixture
def train(folder: Path) -> Any:
    return stoker.ImageFolder(folder, SMALL)


def test_a_pipeline_as_people_write_it(train: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = (
        train.cache()
        .shuffle(1000, seed=4)
        .map(lambda image, label: (image[:, :4, :4].float() / 255, label), num_parallel_calls=stoker.AUTOTUNE)
        .filter(lambda image, label: label != 0)
        .batch(8, drop_remainder=True)
        .prefetch(stoker.AUTOTUNE)
        .with_options(object())
    )
    said = capsys.readouterr().err
    for word in (".shuffle(n) is a full shuffle", "num_parallel_calls", ".prefetch(n)", ".with_options"):
        assert said.count(word) == 1, word
    assert len(pipeline) == 33 // 8
    batches = list(pipeline)
    assert len(batches) == 4
    assert batches[0][0].shape == (8, 3, 4, 4)
    loader = stoker.DataLoader(pipeline, num_workers=2)
    assert loader.batch_size == 8
    assert len(loader) == 4
    assert loader.drop_last
    labels = [label for _, batch in loader for label in batch.tolist()]
    assert set(labels) == {1, 2}
    assert labels != sorted(labels)


def test_without_functions_it_is_native(train: Any) -> None:
    loader = stoker.DataLoader(train.shuffle(10).batch(16).prefetch(2))
    batch = next(iter(loader))
    assert isinstance(batch, stoker.Batch)
    assert len(batch.ids) == 16
    assert batch.ids.tolist() != list(range(16))
    assert [len(labels) for _, labels in train.batch(20)] == [20, 20, 10]
    (label,) = train.shuffle(10).to_tuple("label")[3]
    assert label == 0


def test_the_loader_may_say_the_same_size(train: Any) -> None:
    batched = train.shuffle(10).batch(16)
    assert stoker.DataLoader(batched, batch_size=16).batch_size == 16
    assert len(next(iter(stoker.DataLoader(batched, 16))).ids) == 16


def test_counts_after_batch_are_of_batches(train: Any) -> None:
    assert len(train.batch(8).take(2)) == 2
    assert train.batch(8).take(2).indices == list(range(16))
    assert train.batch(8).skip(2).indices == list(range(16, 50))
    assert len(train.batch(8)) == 7
    assert len(train.batch(8, drop_remainder=True)) == 6


def test_map_after_batch_gets_batches(train: Any) -> None:
    mapped = train.batch(10).map(lambda images, labels: (images.float().mean((1, 2, 3)), labels * 3))
    for workers in (0, 2):
        found = list(stoker.DataLoader(mapped, num_workers=workers))
        assert [len(means) for means, _ in found] == [10] * 5
        assert found[1][1].tolist() == [label * 3 for label in train.targets[10:20]]


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_padding_changes_no_value(kind: Any) -> None:
    numbers = Padded()([{"x": kind(3.5)}, {"x": kind(4.5)}])["x"]
    assert numbers.tolist() == [3.5, 4.5]
    with pytest.raises(ValueError, match=r"float.* and .*int"):
        Padded()([kind([1, 2]), kind([1.5])])


def test_padded_batch(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('"a"\n"bcd"\n"ef"\n')
    lines = stoker.LinesDataset(tmp_path / "t.jsonl", "json").map(
        lambda s: (torch.tensor(list(s["json"].encode())), np.ones((len(s["json"]), 1)), len(s["json"]))
    )
    (batch,) = list(stoker.DataLoader(lines.padded_batch(3, padding_values=(-1, 0, None)), num_workers=1))
    assert batch[0].tolist() == [[97, -1, -1], [98, 99, 100], [101, 102, -1]]
    assert batch[1].shape == (3, 3, 1)
    assert batch[2].tolist() == [1, 3, 2]
    shapes = ((5,), (None, 1), ())
    (batch,) = list(stoker.DataLoader(lines.padded_batch(3, padded_shapes=shapes), num_workers=0))
    assert batch[0].shape == (3, 5)
    with pytest.raises(stoker.StokerError, match="padded_shapes says 2"):
        list(stoker.DataLoader(lines.padded_batch(3, padded_shapes=((2,), (None, 1), ())), num_workers=0))


def test_list_files(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = stoker.list_files(f"{folder}/class0/*.jpg")
    paths = sorted(map(str, folder.glob("class0/*.jpg")))
    assert len(files) == len(paths)
    assert files[2] == paths[2]
    assert list(files)[:3] == paths[:3]
    assert "sorted order" in capsys.readouterr().err
    sizes = files.map(lambda path: Path(path).stat().st_size)
    assert rows(sizes) == [Path(path).stat().st_size for path in paths]
    with pytest.raises(stoker.ConfigError, match="no file matches"):
        stoker.list_files(str(tmp_path / "*.none"))


def test_interleave_makes_one_dataset_of_all_files(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"k": "{name}1"}}\n{{"k": "{name}2"}}\n')
    files = stoker.list_files(f"{tmp_path}/*.jsonl")
    lines = files.interleave(stoker.LinesDataset, cycle_length=2, num_parallel_calls=stoker.AUTOTUNE)
    assert isinstance(lines, stoker.LinesDataset)
    assert [lines[i]["json"]["k"] for i in range(4)] == ["a1", "a2", "b1", "b2"]
    with pytest.raises(stoker.ConfigError, match="list of all files"):
        files.interleave(lambda path: path + "x")
    with pytest.raises(stoker.ConfigError, match="list_files"):
        lines.interleave(stoker.LinesDataset)


def test_mistakes_are_explained(train: Any) -> None:
    for call, text in (
        (lambda: train.repeat(), "one epoch at a time"),
        (lambda: train.batch(0), "at least 1"),
        (lambda: train.batch(2).batch(2), "already"),
        (lambda: train.batch(2).filter(steps.second), "call filter first"),
        (lambda: train.take(-2), "count"),
        (lambda: train.shard(2, 2), "parts go from 0"),
        (lambda: train.shuffle(0), "at least 1"),
        (lambda: train.map(steps.small, parallel=3), "no keyword 'parallel'"),
        (lambda: stoker.DataLoader(stoker.Mixture([train, train]).take(3)), "none of the 50 samples of dataset 1"),
        (lambda: train.shuffle(10).take(5), "after .shuffle.. would choose in the order of storage"),
        (lambda: stoker.DataLoader(train.batch(4), batch_size=8), "makes batches of 4, but batch_size is 8"),
    ):
        with pytest.raises(stoker.ConfigError, match=text):
            call()


def test_what_wastes_work_is_said(train: Any, capsys: pytest.CaptureFixture[str]) -> None:
    train.map(steps.small).cache()
    assert "functions run again in every epoch: stoker.pack" in capsys.readouterr().err


def test_existing_names_keep_their_meaning(shards: str) -> None:
    tar = stoker.WebDataset(shards).decode("pil")
    assert tar.shuffle(100)._recipe().shuffle
    assert len(tar.batched(10)) == 3
    assert len(tar.take(7)) == 7
    assert tar.filter(lambda s: s["cls"] == 1)[0]["cls"] == 1
    with pytest.raises(stoker.ConfigError, match="one epoch"):
        tar.repeat(2)


def test_tfrecords(tmp_path: Path) -> None:
    path = sorted((DATA / "tfrecord").glob("*.tfrecord*"))[0]
    records = stoker.list_files(str(path)).interleave(stoker.TFRecordDataset)
    assert len(rows(records.map(lambda s: len(s)), num_workers=1)) == len(records)
    assert equal(records.take(1)[0], records[0])
    with loaded(records.take(1), None, num_workers=1) as loader:
        assert len(list(loader)) == 1


def test_to_tf_without_tensorflow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With it: frameworks/test_tf.py."""
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(stoker.ConfigError, match=r"tensorflow is not installed(.|\n)*pip install tensorflow"):
        stoker.to_tf(stoker.DataLoader(stoker.ImageFolder(folder), 4))

"""stoker.to_tf: a tf.data.Dataset over a loader, alone, under Keras, and in two processes that are killed."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.update(CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="2", STOKER_POISON="1")

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

import stoker
from stoker import transforms as T

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from conftest import make_folder, make_tar
from forms import long
from plain import Numbers
from ranks import continues, receipts, run

EXAMPLE = Path(__file__).parents[2] / "examples" / "frameworks" / "tf_train.py"
N = 50


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    os.environ["STOKER_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    return make_folder(tmp_path_factory.mktemp("folder"), N)


def loader_of(folder: Path, size: Any = 8, crop: int = 48, **keywords: Any) -> stoker.DataLoader[Any]:
    photos = stoker.ImageFolder(folder, T.Compose([T.RandomCrop(crop), T.RandomHorizontalFlip()]))
    return stoker.DataLoader(photos, size, True, seed=1, **{"output": "numpy", "layout": "nhwc", **keywords})


def same(tensor: Any, array: Any) -> None:
    assert tf.is_tensor(tensor)
    assert tensor.dtype.as_numpy_dtype == array.dtype
    assert np.array_equal(tensor.numpy(), array)


# Batches, epochs, shapes.


def test_every_iteration_is_the_next_epoch(folder: Path) -> None:
    ours, theirs = loader_of(folder), loader_of(folder)
    dataset = stoker.to_tf(ours)
    assert ours.state_dict()["position"] == 0  # the batch of which shapes were taken does not count
    assert dataset.element_spec == (tf.TensorSpec((None, 48, 48, 3), tf.uint8), tf.TensorSpec((None,), tf.int64))
    assert dataset.cardinality() == 7
    for _ in range(2):
        for got, want in zip(dataset, theirs, strict=True):
            same(got[0], want[0])
            same(got[1], want[1])
            assert ours.state_dict() == theirs.state_dict()
    for got, want in zip(dataset.take(3), theirs, strict=False):  # an epoch that is left early
        same(got[0], want[0])
    theirs.set_epoch(3)
    for got, want in zip(dataset.prefetch(2), theirs, strict=True):
        same(got[0], want[0])
    theirs.set_epoch(4)
    to_device = tf.data.experimental.prefetch_to_device("/cpu:0", 2)
    for got, want in zip(dataset.apply(to_device), theirs, strict=True):
        same(got[0], want[0])
    assert stoker.verify_receipts([theirs.receipt()], loader_of(folder))["ok"]


def test_batches_that_are_all_full_have_static_shapes(folder: Path) -> None:
    for keywords, size in (({"tail": "fill"}, 7), ({"drop_last": True}, 6), ({"batch_size": 10}, 5)):
        settings: dict[str, Any] = {"size": 8, **keywords}
        rows = settings.pop("batch_size", settings["size"])
        dataset = stoker.to_tf(loader_of(folder, **{**settings, "size": rows}))
        assert dataset.element_spec[0].shape == (rows, 48, 48, 3)
        assert [len(labels) for _, labels in dataset] == [rows] * size


class Rows(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return {"x": np.full((3, 2), index, np.float32), "deep": (index, [torch.tensor(index)]), "name": f"row {index}"}


def grown(samples: Any) -> Any:
    return np.zeros((len(samples), max(samples) + 1), np.float32)


def test_kinds_of_fields(folder: Path, tmp_path: Path) -> None:
    shards = stoker.WebDataset(str(make_tar(tmp_path / "a.tar", 0, 10))).decode("rgb")
    dicts = shards.to_tuple("jpg", "txt", "cls")
    photos, texts, labels = next(iter(stoker.to_tf(stoker.DataLoader(dicts, 5, output="numpy"))))
    assert (photos.shape, photos.dtype) == ((5, 64, 80, 3), tf.float32)
    assert texts.numpy().tolist() == [f"picture {i} — ü".encode() for i in range(5)]
    assert labels.numpy().tolist() == [0, 1, 2, 3, 4]

    np.array([1, 0, 1, 2, 0, 5, 6, 7, 0, 9, 0], np.uint16).tofile(tmp_path / "tokens.bin")
    documents = stoker.TokenDataset(tmp_path / "tokens.bin", documents=True, eos=0)
    for output in ("numpy", "torch"):
        loader = stoker.DataLoader(documents, 3, output=output)
        dataset = stoker.to_tf(loader)
        (spec,) = tf.nest.flatten(dataset.element_spec)
        assert isinstance(spec, tf.RaggedTensorSpec)
        for got, want in zip(dataset, loader, strict=True):
            (ragged,) = tf.nest.flatten(got, expand_composites=False)
            assert isinstance(ragged, tf.RaggedTensor)
            values = next(iter(want.values())) if isinstance(want, dict) else want[0]
            assert ragged.to_list() == [row.tolist() for row in values.rows()]

    dataset = stoker.to_tf(stoker.DataLoader(Rows(), 8, num_workers=0))
    assert dataset.element_spec["x"] == tf.TensorSpec((None, 3, 2), tf.float32)
    rows = [i for batch in dataset for i in batch["deep"][1][0].numpy().tolist()]
    assert rows == list(range(20))
    first = next(iter(dataset))
    assert first["name"].numpy().tolist() == [b"row %d" % i for i in range(8)]
    assert first["x"].numpy()[:, 0, 0].tolist() == list(range(8))
    numbers = stoker.DataLoader(Numbers(20, 0), 8, num_workers=1, multiprocessing_context="forkserver")
    assert [i for batch, _ in stoker.to_tf(numbers) for i in batch.numpy().tolist()] == list(range(20))

    singles = stoker.to_tf(loader_of(folder, None))
    assert singles.element_spec == (tf.TensorSpec((48, 48, 3), tf.uint8), tf.TensorSpec((), tf.int64))
    assert sum(1 for _ in singles.batch(8)) == 7


def test_batches_of_a_function_have_open_shapes() -> None:
    loader = stoker.DataLoader(list(range(9)), 4, collate_fn=grown, num_workers=0)
    assert [tuple(batch.shape) for batch in stoker.to_tf(loader)] == [(4, 4), (4, 8), (1, 9)]
    fixed = stoker.to_tf(loader, output_signature=tf.TensorSpec((None, 4), tf.float32))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)is not float32 of the shape .*output_signature"):
        list(fixed)


# Memory.


def test_tensors_are_the_slots(folder: Path) -> None:
    theirs = loader_of(folder, crop=60)
    want = [images.astype(np.int64).sum() for _ in range(2) for images, _ in theirs]
    with loader_of(folder, 48, crop=60) as loader:
        kept = next(iter(stoker.to_tf(loader)))[0]
        gc.collect()  # a batch that only garbage holds counts until then
        assert loader.stats()["leased"] == 1
        del kept
        for images, _ in stoker.to_tf(loader).take(1):
            assert images.shape == (48, 60, 60, 3)
    # More batches than slots: kept, and ahead of a loop that begins late.
    for memory in (None, "2MiB"):
        with loader_of(folder, crop=60, memory=memory) as loader:
            kept = [images for _ in range(2) for images, _ in stoker.to_tf(loader)]
            assert [images.numpy().astype(np.int64).sum() for images in kept] == want
            loader.set_epoch(0)
            ahead = stoker.to_tf(loader).repeat(2).prefetch(14)
            assert [images.numpy().astype(np.int64).sum() for images, _ in ahead] == want
    assert [images.numpy().astype(np.int64).sum() for images in kept] == want


# Errors.


def test_errors(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(stoker.ConfigError, match=r"type ImageFolder\n.*stoker.DataLoader"):
        stoker.to_tf(stoker.ImageFolder(folder))  # type: ignore[arg-type]
    shard = stoker.WebDataset(str(make_tar(tmp_path / "a.tar", 0, 4))).decode("rgb")
    with pytest.raises(stoker.ConfigError, match=r"\[1\] is JSON, not a tensor\n.*to_tuple"):
        stoker.to_tf(stoker.DataLoader(shard.to_tuple("jpg", "json"), 4, output="numpy"))
    with pytest.raises(stoker.ConfigError, match="sample_weight needs batches of two items"):
        stoker.to_tf(stoker.DataLoader(shard.to_tuple("jpg"), 4, output="numpy"), sample_weight=True)

    broken = make_folder(tmp_path / "broken", 12)
    loader = stoker.DataLoader(stoker.ImageFolder(broken), 4, output="numpy")
    dataset = stoker.to_tf(loader)
    file = sorted(broken.rglob("*.jpg"))[6]
    file.write_bytes(file.read_bytes()[:-300])
    with pytest.raises(tf.errors.UnknownError, match=rf"(?s)DataError: .*{file.name}.*try: "):
        list(dataset)

    loader = loader_of(folder)
    dataset = stoker.to_tf(loader)
    assert len(list(loader)) == 7
    loader.load_state_dict({**loader.state_dict(), "epoch": 4, "position": 16})
    with pytest.raises(tf.errors.InvalidArgumentError, match="had 5 batches, and its dataset was made for 7"):
        list(dataset)
    loader.load_state_dict({**loader.state_dict(), "epoch": 4, "position": 16})
    dataset = stoker.to_tf(loader)
    assert dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert [len(list(dataset)) for _ in range(2)] == [5, 7]


# Keras.


class Watch(keras.callbacks.Callback):
    """Saves everything after one batch, and notes where the loader is after each."""

    def __init__(self, loader: Any, save_at: int = 0) -> None:
        super().__init__()
        self.loader, self.save_at = loader, save_at
        self.places: list[tuple[int, int]] = []
        self.saved: Any = None

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        state = self.loader.state_dict()
        self.places.append((state["epoch"], state["position"]))
        if len(self.places) == self.save_at:
            self.saved = state, self.model.get_weights()


def model_of() -> Any:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Rescaling(1 / 255), keras.layers.AveragePooling2D(8), keras.layers.Flatten()]
    model = keras.Sequential([*layers, keras.layers.Dense(3)])
    model.compile(
        keras.optimizers.SGD(0.1),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
    )
    return model


EPOCH = [8, 16, 24, 32, 40, 48, 50]


@pytest.fixture
def quiet() -> Iterator[None]:
    keras.utils.disable_interactive_logging()
    yield
    keras.utils.enable_interactive_logging()


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_keras(folder: Path, quiet: None) -> None:
    loader = loader_of(folder)
    whole = Watch(loader, save_at=10)
    model = model_of()
    history = model.fit(stoker.to_tf(loader), epochs=3, callbacks=[whole], verbose=0)
    assert whole.places == [(epoch, position) for epoch in range(3) for position in EPOCH]
    assert len(history.history["loss"]) == 3

    state, weights = whole.saved  # in epoch 1, and a new program that knows no more than this
    again = loader_of(folder)
    again.load_state_dict(state)
    rest, resumed = Watch(again), model_of()
    resumed.build((None, 48, 48, 3))
    resumed.set_weights(weights)
    # Keras takes the length of the first epoch for that of all, so the rest of one is a call of its own.
    for epoch in (1, 2):
        resumed.fit(stoker.to_tf(again), initial_epoch=epoch, epochs=epoch + 1, callbacks=[rest], verbose=0)
    assert rest.places == whole.places[10:]
    for one, other in zip(model.get_weights(), resumed.get_weights(), strict=True):
        assert np.allclose(one, other, atol=1e-6)

    loader = loader_of(folder)
    steps = Watch(loader)
    model_of().fit(stoker.to_tf(loader).repeat(), epochs=4, steps_per_epoch=4, callbacks=[steps], verbose=0)
    assert steps.places == [(epoch, position) for epoch in range(3) for position in EPOCH][:16]


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed")
def test_padding_does_not_count(folder: Path, quiet: None) -> None:
    model = model_of()
    model.fit(stoker.to_tf(loader_of(folder, tail="fill"), sample_weight=True), verbose=0)
    photos = stoker.ImageFolder(folder, T.CenterCrop(48))
    shape: dict[str, Any] = {"output": "numpy", "layout": "nhwc"}
    filled = stoker.to_tf(stoker.DataLoader(photos, 8, tail="fill", **shape), sample_weight=True)
    assert filled.element_spec[2] == tf.TensorSpec((8,), tf.float32)
    assert sum(float(tf.reduce_sum(weight)) for *_, weight in filled) == N
    exact = model.evaluate(stoker.to_tf(stoker.DataLoader(photos, N, **shape)), verbose=0)
    weighted = model.evaluate(filled, verbose=0)
    assert weighted[1] == pytest.approx(exact[1], abs=1e-6)  # the accuracy over 50 pictures, not over 56


# Two processes.


@long  # Keras's, above, is the short form
def test_killed_in_mid_epoch_and_continued(folder: Path, tmp_path: Path) -> None:
    args = [folder, "--batch-size", 8, "--size", 16, "--save-every", 2]
    whole = run(EXAMPLE, *args, out=tmp_path / "whole")
    for rank in whole.ranks:
        assert rank[0].places == [(epoch, step) for epoch in range(3) for step in range(7)]
    for epoch in range(3):
        assert whole.epoch(epoch) == list(range(N))
    cut = run(EXAMPLE, *args, out=tmp_path / "cut", kill_at=10)
    rest = run(EXAMPLE, *args, "--resume", out=tmp_path / "cut")
    assert continues(whole, cut, rest) == {"epoch": 1, "step": 1}
    stream = loader_like(folder)
    verdict = stoker.verify_receipts(receipts(cut, rest), stream)
    assert verdict["ok"], verdict
    assert verdict["complete"], verdict
    ends = [np.load(tmp_path / name / "checkpoint.npz") for name in ("whole", "cut")]
    for number in range(3):
        assert np.allclose(ends[0][f"param{number}"], ends[1][f"param{number}"], rtol=1e-5, atol=1e-6)


def loader_like(folder: Path) -> stoker.DataLoader[Any]:
    """The stream of the example."""
    photos = stoker.ImageFolder(folder, T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()]))
    return stoker.DataLoader(photos, 8, shuffle=True, seed=0, tail="fill", output="numpy", rank=0, world_size=1)

"""What batches hold: pixels, labels, ids, kinds of arrays, tails, ranks."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forms import long, thinned
from PIL import Image

import stoker
from stoker import transforms as T

CROP = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip()])


def drain(loader: Any) -> list[Any]:
    return [(batch.ids.tolist(), batch[0].numpy().copy(), batch[1].tolist()) for batch in loader]


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        x[0] == y[0] and np.array_equal(x[1], y[1]) and x[2] == y[2] for x, y in zip(a, b, strict=True)
    )


def test_the_main_job(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    loader = stoker.DataLoader(dataset, batch_size=8, shuffle=True, num_workers=2)
    assert len(loader) == 7
    seen: list[int] = []
    for step, batch in enumerate(loader):
        images, labels = batch
        rows = 8 if step < 6 else 2
        assert images.shape == (rows, 3, 32, 32)
        assert images.dtype == torch.uint8
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert labels.dtype == torch.int64
        assert labels.tolist() == [dataset.targets[i] for i in batch.ids.tolist()]
        assert (batch.epoch, batch.step, batch.bad) == (0, step, [])
        assert bool(batch.valid.all())
        seen += batch.ids.tolist()
    assert sorted(seen) == list(range(50))
    assert seen != sorted(seen)
    loader.close()


def test_pixels_are_pillows(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder)
    with stoker.DataLoader(dataset, batch_size=10, output="numpy", layout="nhwc") as loader:
        for images, labels in loader:
            assert images.shape == (10, 64, 80, 3)
            assert labels.dtype == np.int64
            break
        for row, image in enumerate(images):
            with Image.open(dataset.samples[row][0]) as photo:
                expected = np.asarray(photo.convert("RGB")).astype(int)
            assert np.abs(image.astype(int) - expected).max() <= 2


def test_folder_answers_without_a_loader(folder: Path) -> None:
    from torchvision.datasets import ImageFolder

    ours, theirs = stoker.ImageFolder(folder), ImageFolder(str(folder))
    assert len(ours) == len(theirs) == 50
    assert ours.classes == theirs.classes
    assert ours.class_to_idx == theirs.class_to_idx
    assert ours.samples == ours.imgs == theirs.samples
    assert ours.targets == theirs.targets


def test_one_sample_is_what_the_loader_gives(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    with stoker.DataLoader(dataset, batch_size=1) as loader:
        expected = [(batch[0][0].clone(), int(batch[1][0])) for batch in loader]
    for i in (0, 1, 17, 49, -1):
        image, label = dataset[i]
        assert torch.equal(image, expected[i][0])
        assert label == expected[i][1]
        assert type(label) is int
    for i in (50, -51):
        with pytest.raises(IndexError, match="50"):
            dataset[i]


def test_no_engine_is_left_by_a_dataset(folder: Path) -> None:
    from conftest import engines

    dataset = stoker.ImageFolder(folder)
    assert len(dataset) == 50
    assert len(engines()) == 1
    del dataset
    assert engines() == []


def test_outputs_are_equal(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    with (
        stoker.DataLoader(dataset, 8, True, seed=3) as tensors,
        stoker.DataLoader(dataset, 8, True, seed=3, output="numpy") as arrays,
    ):
        count = 0
        for a, b in zip(tensors, arrays, strict=True):
            assert isinstance(b[0], np.ndarray)
            assert isinstance(b.ids, np.ndarray)
            assert np.array_equal(a[0].numpy(), b[0])
            assert np.array_equal(a[1].numpy(), b[1])
            assert a.ids.tolist() == b.ids.tolist()
            count += 1
        assert count == 7


@long
def test_jax_arrays_stay(folder: Path) -> None:
    """In a process of its own: JAX has threads, and other tests fork."""
    program = f"""
        import jax, numpy, stoker
        from stoker import transforms as T
        dataset = stoker.ImageFolder({str(folder)!r}, T.CenterCrop(40))
        theirs = stoker.DataLoader(dataset, 8, True, output="jax")
        arrays = stoker.DataLoader(dataset, 8, True, output="numpy")
        for a, b in zip(list(theirs), arrays, strict=True):
            assert isinstance(a[0], jax.Array)
            assert numpy.array_equal(numpy.asarray(a[0]), b[0])
            assert a.ids.tolist() == b.ids.tolist()
        assert type(a.ids) is numpy.ndarray
        print(len(arrays), "equal")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "7 equal\n"


def test_floats_are_laid_out_as_asked(folder: Path) -> None:
    ops = T.Compose([T.CenterCrop(16), T.ToTensor(), T.Normalize([0.5, 0.5, 0.5], [0.2, 0.2, 0.2])])
    dataset = stoker.ImageFolder(folder, ops)
    plain = stoker.ImageFolder(folder, T.CenterCrop(16))
    with (
        stoker.DataLoader(dataset, 5) as planes,
        stoker.DataLoader(dataset, 5, layout="nhwc") as pixels,
        stoker.DataLoader(plain, 5) as raw,
    ):
        a, b, c = next(iter(planes))[0], next(iter(pixels))[0], next(iter(raw))[0]
    assert a.dtype == torch.float32
    assert a.is_contiguous()
    assert b.is_contiguous()
    assert torch.equal(a, b.permute(0, 3, 1, 2))
    assert torch.allclose(a, (c / 255 - 0.5) / 0.2, atol=1e-5)


def test_batch_size_none_gives_single_samples(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder)
    with stoker.DataLoader(dataset, batch_size=None) as loader:
        assert len(loader) == 50
        sample = next(iter(loader))
        image, label = sample
        assert image.shape == (3, 64, 80)
        assert label == dataset.targets[0]
        assert type(label) is int
        assert sample.ids.tolist() == [0]


def test_pictures_of_several_sizes(tmp_path: Path) -> None:
    for i, size in enumerate([(20, 30), (30, 20)]):
        (tmp_path / "c").mkdir(exist_ok=True)
        Image.new("RGB", size, (i, 2, 3)).save(tmp_path / "c" / f"{i}.png")
    dataset = stoker.ImageFolder(tmp_path)
    with stoker.DataLoader(dataset, batch_size=None) as loader:
        assert [tuple(image.shape) for image, _ in loader] == [(3, 30, 20), (3, 20, 30)]
    with stoker.DataLoader(dataset, batch_size=2) as loader, pytest.raises(stoker.ConfigError, match="Resize"):
        next(iter(loader))


def test_synthetic_measures_delivery() -> None:
    dataset = stoker.Synthetic(100, (4, 5, 3))
    assert len(dataset) == 100
    with stoker.DataLoader(dataset, 32, output="numpy") as loader:
        rows = 0
        for (images,) in loader:
            assert images.shape[1:] == (4, 5, 3)
            assert images.dtype == np.uint8
            rows += len(images)
        assert rows == 100
    with pytest.raises(stoker.ConfigError) as caught:
        stoker.Synthetic(0, (0,))
    assert "n is 0" in str(caught.value)
    assert "shape" in str(caught.value)


@pytest.mark.parametrize("settings", [{"num_workers": 0}, {"num_workers": 3}, {"prefetch": 1}, {"prefetch": 16}])
def test_settings_that_must_not_matter(folder: Path, settings: dict[str, Any]) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    with (
        stoker.DataLoader(dataset, 8, True, seed=5) as plain,
        stoker.DataLoader(dataset, 8, True, seed=5, **settings) as other,
    ):
        assert same(drain(plain), drain(other))
        assert same(drain(plain), drain(other))


@thinned
@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("tail", ["pad", "fill", "drop"])
def test_ranks_put_together_are_the_plan(folder: Path, world: int, tail: str) -> None:
    dataset = stoker.ImageFolder(folder)
    with stoker.DataLoader(dataset, 1, True, seed=9) as alone:
        plan = [int(batch.ids[0]) for batch in alone]
    size = 4
    ranks = []
    for rank in range(world):
        with stoker.DataLoader(dataset, size, True, seed=9, rank=rank, world_size=world, tail=tail) as loader:
            ranks.append([(batch.ids.tolist(), batch.valid.tolist()) for batch in loader])
            assert len(loader) == len(ranks[-1])
    assert len({len(steps) for steps in ranks}) == 1
    together: list[int] = []
    valid: list[bool] = []
    for steps in zip(*ranks, strict=True):
        assert len({len(ids) for ids, _ in steps}) == 1
        for row in range(len(steps[0][0])):
            together += [ids[row] for ids, _ in steps]
            valid += [ok[row] for _, ok in steps]
    if tail == "drop":
        assert len(together) == 50 // (size * world) * size * world
    else:
        unit = world if tail == "pad" else world * size
        assert len(together) == -(-50 // unit) * unit
    assert together == [plan[p % 50] for p in range(len(together))]
    assert valid == [p < 50 for p in range(len(together))]


def test_epochs_differ_and_come_again(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder)
    with stoker.DataLoader(dataset, 8, True) as loader:
        first, second = drain(loader), drain(loader)
        assert [batch.epoch for batch in loader] == [2] * 7
        loader.set_epoch(0)
        assert same(drain(loader), first)
        assert same(drain(loader), second)
        assert not same(first, second)
        with pytest.raises(stoker.ConfigError):
            loader.set_epoch(-1)


def test_list_of_a_loader(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    with stoker.DataLoader(dataset, 8, True) as loader:
        batches = list(loader)
        loader.set_epoch(0)
        for kept, batch in zip(batches, loader, strict=True):
            assert torch.equal(kept[0], batch[0])


def test_two_passes_side_by_side(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    with stoker.DataLoader(dataset, 8, True) as loader:
        expected = drain(loader), drain(loader)
        loader.set_epoch(0)
        one, two = iter(loader), iter(loader)
        got: tuple[list[Any], list[Any]] = ([], [])
        for a, b in zip(one, two, strict=True):
            got[0].append((a.ids.tolist(), a[0].numpy().copy(), a[1].tolist()))
            got[1].append((b.ids.tolist(), b[0].numpy().copy(), b[1].tolist()))
        assert same(got[0], expected[0])
        assert same(got[1], expected[1])


def test_break_and_again(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    with stoker.DataLoader(dataset, 4, True) as loader:
        for epoch in range(30):
            for batch in loader:
                assert batch.epoch == epoch
                break
        assert sum(len(batch.ids) for batch in loader) == 50


def test_training_and_evaluation_share_an_engine(folder: Path) -> None:
    from conftest import engines

    train = stoker.DataLoader(stoker.ImageFolder(folder, CROP), 8, True)
    test = stoker.DataLoader(stoker.ImageFolder(folder, T.CenterCrop(32)), 16)
    for _ in range(2):
        for step, _ in enumerate(train):
            if step == 2:
                assert sum(len(batch.ids) for batch in test) == 50
    assert len(engines()) == 1
    train.close()
    assert len(engines()) == 1
    assert sum(len(batch.ids) for batch in test) == 50
    test.close()
    assert engines() == []


def test_a_cell_run_twice(folder: Path) -> None:
    from conftest import engines

    for _ in range(3):
        loader = stoker.DataLoader(stoker.ImageFolder(folder), 8)
        for _batch in loader:
            break
    assert len(engines()) == 1
    del loader, _batch
    assert engines() == []


def test_a_closed_loader(folder: Path) -> None:
    loader = stoker.DataLoader(stoker.ImageFolder(folder), 8)
    iterator = iter(loader)
    batch = next(iterator)
    loader.close()
    assert batch[0].sum() > 0
    with pytest.raises(stoker.ConfigError, match="closed"):
        next(iterator)
    assert len(list(loader)) == 7
    loader.close()


def test_threads_use_several_loaders_at_once(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    with stoker.DataLoader(dataset, 8, True, seed=4) as loader:
        expected = drain(loader)
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        with stoker.DataLoader(dataset, 8, True, seed=4) as loader:
            for _ in range(3):
                loader.set_epoch(0)
                found[number] = drain(loader)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 5
    assert all(same(got, expected) for got in found.values())


def test_a_loader_pickles(folder: Path) -> None:
    loader = stoker.DataLoader(stoker.ImageFolder(folder, CROP), 8, True, seed=2, num_workers=1)
    loader.set_epoch(3)
    again = pickle.loads(pickle.dumps(loader))
    with again:
        assert same(drain(again), drain(loader))
    assert next(iter(pickle.loads(pickle.dumps(loader)))).epoch == 4, "while it is open"
    loader.close()
    third = pickle.loads(pickle.dumps(loader))
    with third:
        assert next(iter(third)).epoch == 4
    assert len(pickle.loads(pickle.dumps(loader.dataset))) == 50


def test_a_batch_pickles_and_copies(folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder), 8) as loader:
        batch = next(iter(loader))
    for other in (pickle.loads(pickle.dumps(batch)), copy.copy(batch), copy.deepcopy(batch)):
        assert isinstance(other, stoker.Batch)
        assert torch.equal(other[0], batch[0])
        assert (other.ids.tolist(), other.step) == (batch.ids.tolist(), batch.step)


def test_the_line_at_start(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = stoker.ImageFolder(folder)
    for _ in range(2):
        with stoker.DataLoader(dataset, 8, num_workers=3, rank=3, world_size=8) as loader:
            next(iter(loader))
    said = [line for line in capsys.readouterr().err.splitlines() if "native" in line]
    assert len(said) == 1
    assert said[0].startswith("stoker: native, 3 lanes, rank 3 of 8, seed 0 (")


def test_errors_of_datasets_come_with_advice(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(stoker.ConfigError) as caught:
        len(stoker.ImageFolder(str(folder)[:-1] + "x"))
    assert caught.value.code == "not_found"
    assert caught.value.hint
    with pytest.raises(stoker.ConfigError):
        next(iter(stoker.DataLoader(stoker.ImageFolder(tmp_path), 8)))
    with pytest.raises(stoker.ConfigError, match="memory"):
        next(iter(stoker.DataLoader(stoker.ImageFolder(folder, CROP), 8, memory="many")))
    with pytest.raises(stoker.ResourceError, match="memory"):
        next(iter(stoker.DataLoader(stoker.ImageFolder(folder, CROP), 1024, memory="2MiB")))
    from conftest import engines

    assert engines() == []


def test_stats_are_numbers(folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder), 8) as loader:
        list(loader)
        assert loader.stats()["samples"] == 50

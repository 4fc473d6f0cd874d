"""A run that is packed in mid-training goes on over its packing: states of the folder fit there, and no others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import make_folder, make_tar
from forms import mostly

import stoker
from stoker import transforms as T

CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip()])


def rows(batches: Any) -> list[tuple[int, int, int, bytes, int]]:
    """Epoch, step, id, the bytes of the picture and the label of every row."""
    return [
        (batch.epoch, batch.step, int(i), image.contiguous().numpy().tobytes(), int(label))
        for batch in batches
        for i, image, label in zip(batch.ids, *columns(batch), strict=True)
    ]


def columns(batch: Any) -> Any:
    return batch.values() if isinstance(batch, dict) else batch


def saved(dataset: Any, steps: int = 2, **order: Any) -> tuple[dict[str, Any], list[Any]]:
    """The state after some steps, as it comes back from a file, and the rows of the rest of the epoch and the next."""
    with stoker.DataLoader(dataset, 8, seed=5, **order) as loader:
        loader.set_epoch(1)
        iterator = iter(loader)
        for _ in range(steps):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        return state, rows(iterator) + rows(loader)


def goes_on(dataset: Any, state: dict[str, Any], **order: Any) -> list[Any]:
    with stoker.DataLoader(dataset, 8, seed=5, **order) as loader:
        loader.load_state_dict(state)
        return rows(loader) + rows(loader)


def tar(root: Path, transform: Any = CROP) -> Any:
    return stoker.WebDataset(str(root / "*.tar")).decode("pil").to_tuple("jpg", "cls").map_tuple(transform)


@pytest.fixture(scope="module")
def packed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("packed")
    for kind in ("tar", "tfrecord"):
        assert len(stoker.pack(folder, root / kind, output=kind, shard_size="20KiB")["shards"]) > 2
    return root


ORDERS: dict[str, dict[str, Any]] = {
    "none": {},
    "full": {"shuffle": True},
    "window": {"shuffle": "window", "window": 11},
    "block": {"shuffle": "block", "block": 9, "window": 13},
    "drawn": {"weights": [1 + i % 3 for i in range(50)]},
}


@pytest.mark.parametrize("name", mostly(ORDERS, "full", "block"))
def test_a_run_goes_on_over_its_packing(
    folder: Path, packed: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The rest of the epoch is the samples that were left, in the same order, with the same pixels and labels."""
    order = ORDERS[name]
    state, rest = saved(stoker.ImageFolder(folder, CROP), **order)
    assert goes_on(tar(packed / "tar"), state, **order) == rest
    assert "packed from; resuming here\n" in capfd.readouterr().err
    fields = [stoker.Field("image", decode="rgb", transform=CROP), stoker.Field("label", decode="int")]
    assert goes_on(stoker.TFRecordDataset(str(packed / "tfrecord"), fields), state, **order) == rest


def test_the_state_of_the_packing_is_its_own(folder: Path, packed: Path) -> None:
    state, _ = saved(stoker.ImageFolder(folder, CROP), shuffle=True)
    with stoker.DataLoader(tar(packed / "tar"), 8, True, seed=5) as loader:
        loader.load_state_dict(state)
        next(iter(loader))
        after = loader.state_dict()
        rest = rows(loader)
    assert after["dataset"] != state["dataset"]
    assert goes_on(tar(packed / "tar"), {**after, "position": 50}, shuffle=True)[: len(rest)] == rest
    with pytest.raises(stoker.StateError, match="the dataset differs"):  # a folder does not know its packings
        goes_on(stoker.ImageFolder(folder, CROP), after, shuffle=True)


def test_other_data_is_refused(folder: Path, packed: Path, tmp_path: Path) -> None:
    """Equal counts, names and labels prove nothing."""
    other = make_folder(tmp_path / "other", 51)
    (other / "class0/0000.jpg").unlink()
    for i in range(50):
        path = other / f"class{(i + 1) % 3}" / f"{i + 1:04d}.jpg"
        path.rename(path.with_name(f"x{i:04d}.jpg"))
    state, _ = saved(stoker.ImageFolder(other, CROP), shuffle=True)
    with pytest.raises(stoker.StateError, match="the dataset differs"):
        goes_on(tar(packed / "tar"), state, shuffle=True)
    # Shards that are not a packing of it, and one whose manifest was lost.
    shutil.copytree(packed / "tar", tmp_path / "bare")
    (tmp_path / "bare/manifest.json").unlink()
    state, _ = saved(stoker.ImageFolder(folder, CROP), shuffle=True)
    with pytest.raises(stoker.StateError, match="the dataset differs"):
        goes_on(tar(tmp_path / "bare"), state, shuffle=True)
    make_tar(tmp_path / "fifty.tar", 0, 50)
    shutil.copy(packed / "tar/manifest.json", tmp_path / "manifest.json")
    with pytest.raises(stoker.StokerError):
        goes_on(tar(tmp_path), state, shuffle=True)


def test_another_arrangement_of_the_shards_is_refused(folder: Path, packed: Path, tmp_path: Path) -> None:
    state, _ = saved(stoker.ImageFolder(folder, CROP), shuffle=True)
    shards = sorted(map(str, (packed / "tar").glob("*.tar")))
    for urls in (shards[::-1], [shards[1], shards[0], *shards[2:]]):
        data = stoker.WebDataset(urls).decode("pil").to_tuple("jpg", "cls").map_tuple(CROP)
        assert len(data) == 50
        with pytest.raises(stoker.StateError, match="not all here, in their order"):
            goes_on(data, state, shuffle=True)
    whole = stoker.WebDataset(shards).decode("pil").to_tuple("jpg", "cls").map_tuple(CROP)
    assert goes_on(whole, state, shuffle=True)
    stoker.pack(folder, tmp_path / "shuffled", shuffle=True, seed=3)
    with pytest.raises(stoker.StateError, match="packed with --shuffle, and has the samples in another order") as why:
        goes_on(tar(tmp_path / "shuffled"), state, shuffle=True)
    assert "load the state over the original dataset" in str(why.value.hint)
    stoker.pack(folder, tmp_path / "twice", augment=2, transform=T.RandomHorizontalFlip())
    with pytest.raises(stoker.StateError, match="--augment 2, and contains every sample 2 times"):
        goes_on(tar(tmp_path / "twice"), state, shuffle=True)


def test_other_transforms_or_fields_are_refused(folder: Path, packed: Path) -> None:
    state, _ = saved(stoker.ImageFolder(folder, CROP), shuffle=True)
    for data in (
        tar(packed / "tar", T.RandomResizedCrop(24)),
        stoker.WebDataset(str(packed / "tar/*.tar")).decode("pil").to_tuple("cls", "jpg").map_tuple(None, CROP),
        stoker.WebDataset(str(packed / "tar/*.tar")).decode("l8").to_tuple("jpg", "cls").map_tuple(CROP),
    ):
        with (
            pytest.raises(stoker.StateError, match="the fields or transforms differ"),
            stoker.DataLoader(data, 8, True, seed=5) as loader,
        ):
            loader.load_state_dict(state)
    with (
        pytest.raises(stoker.StateError, match="the seed"),
        stoker.DataLoader(tar(packed / "tar"), 8, True, seed=6) as loader,
    ):
        loader.load_state_dict(state)


def test_a_block_order_over_other_blocks_is_another_order(folder: Path, packed: Path) -> None:
    state, _ = saved(stoker.ImageFolder(folder, CROP), shuffle="block")
    assert state["blocks"]
    with pytest.raises(stoker.StateError, match="the sizes of the blocks differ") as caught:
        goes_on(tar(packed / "tar"), state, shuffle="block")
    assert "pass the same block= in both places" in str(caught.value)
    assert "blocks" not in saved(stoker.ImageFolder(folder, CROP), shuffle=True)[0]


def test_a_packing_with_other_pixels_says_so(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    stoker.pack(folder, tmp_path / "small", resize=40)
    state, rest = saved(stoker.ImageFolder(folder, CROP), shuffle=True)
    got = goes_on(tar(tmp_path / "small"), state, shuffle=True)
    assert [row[:3] + row[4:] for row in got] == [row[:3] + row[4:] for row in rest]
    assert "its pictures were rewritten (resize 40) and have different pixels" in capfd.readouterr().err


def test_states_of_earlier_releases(folder: Path, packed: Path) -> None:
    """They have no second digest: over their dataset they go on, and over its packing they say what to do."""
    for order in ORDERS["full"], ORDERS["block"]:
        state, rest = saved(stoker.ImageFolder(folder, CROP), **order)
        old = {key: value for key, value in state.items() if key not in ("processing", "blocks")}
        assert goes_on(stoker.ImageFolder(folder, CROP), old, **order) == rest
        with pytest.raises(stoker.StateError, match="earlier release") as caught:
            goes_on(tar(packed / "tar"), old, **order)
        assert "save it again with this release" in str(caught.value)


def test_a_mixture_of_which_some_is_packed(folder: Path, packed: Path, tmp_path: Path) -> None:
    second = make_folder(tmp_path / "second", 20)
    stoker.pack(second, tmp_path / "second-packed", shard_size="20KiB")
    folders = [stoker.ImageFolder(folder, CROP), stoker.ImageFolder(second, CROP)]
    packings = [named(packed / "tar"), named(tmp_path / "second-packed")]
    with stoker.DataLoader(stoker.Mixture(folders), 8, True, seed=5) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        rest = rows(iterator)
    mixed: list[list[Any]] = [packings, [packings[0], folders[1]], [folders[0], packings[1]]]
    for members in mixed:
        with stoker.DataLoader(stoker.Mixture(members), 8, True, seed=5) as loader:
            loader.load_state_dict(state)
            assert rows(loader) == rest
    with (
        pytest.raises(stoker.StateError, match="the dataset differs"),
        stoker.DataLoader(stoker.Mixture(packings[::-1]), 8, True, seed=5) as loader,
    ):
        loader.load_state_dict(state)


def named(root: Path) -> Any:
    """A packing with the names of a folder's fields, for mixtures of both."""
    data = stoker.WebDataset(str(root / "*.tar")).decode("pil").rename(image="jpg", label="cls")
    return data.to_tuple("image", "label").map_tuple(CROP)


def test_receipts_of_both_add_up(folder: Path, packed: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder, CROP), 8, True, seed=5) as first:
        iterator = iter(first)
        next(iterator)
        next(iterator)
        with stoker.DataLoader(tar(packed / "tar"), 8, True, seed=5) as second:
            second.load_state_dict(first.state_dict())
            rows(second)
            verdict = stoker.verify_receipts([first.receipt(), second.receipt()], second)
    assert verdict["ok"], verdict
    assert verdict["complete"], verdict

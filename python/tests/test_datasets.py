"""What is done to a dataset after it was made, or by a subclass, has its effect or is refused; what a sample is."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import DATA, PHOTOS, jpeg, stored
from forms import mostly
from needs import needs

import stoker
from stoker import Field
from stoker import transforms as T

torch = needs("torch")


def shape(loader: Any) -> tuple[int, ...]:
    return tuple(next(iter(loader))[0].shape[2:])


PICTURES: dict[str, Any] = {
    "folder": lambda folder, tmp: stoker.ImageFolder(folder, T.Resize((8, 8))),
    "files": lambda folder, tmp: stoker.files([f"{folder}/*/*.jpg"], transform=T.Resize((8, 8))),
    "table": lambda folder, tmp: stoker.Table(table(tmp), "file", "class", transform=T.Resize((8, 8))),
    "fields": lambda folder, tmp: stoker.files([f"{folder}/*/*.jpg"], fields=["image"], transform=T.Resize((8, 8))),
    "selected": lambda folder, tmp: stoker.ImageFolder(folder, T.Resize((8, 8))).to_tuple(
        Field("picture", source="image"), "label"
    ),
}


def table(tmp: Path) -> Path:
    for i in range(6):
        (tmp / f"{i}.jpg").write_bytes(jpeg(i))
    (tmp / "t.csv").write_text("file,class\n" + "".join(f"{i}.jpg,{i % 2}\n" for i in range(6)))
    return tmp / "t.csv"


@pytest.fixture(params=list(PICTURES))
def pictures(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Any:
    return PICTURES[request.param](folder, tmp_path)


def test_a_transform_that_is_assigned_is_applied(pictures: Any) -> None:
    with stoker.DataLoader(pictures, 2) as loader:
        begun = iter(loader)
        assert tuple(next(begun)[0].shape[2:]) == (8, 8)
        assert tuple(pictures[0][0].shape[1:]) == (8, 8)
        pictures.transform = T.Compose([T.Resize((16, 12)), T.ToTensor()])
        assert tuple(pictures[0][0].shape[1:]) == (16, 12)
        images = next(iter(loader))[0]
        assert (tuple(images.shape[2:]), images.dtype) == ((16, 12), torch.float32)
        later = next(begun)[0]  # a pass that had begun is what it was
        assert (tuple(later.shape[2:]), later.dtype) == ((8, 8), torch.uint8)
    assert shape(stoker.DataLoader(pictures, 2)) == (16, 12)
    again = pickle.loads(pickle.dumps(pictures))
    assert shape(stoker.DataLoader(again, 2)) == (16, 12)
    pictures.transform = None
    with pytest.raises(stoker.ConfigError, match="differ in size"):
        next(iter(stoker.DataLoader(stoker.files(PHOTOS), 6)))
    assert shape(stoker.DataLoader(pictures, 2)) == (64, 80)
    assert shape(stoker.DataLoader(again, 2)) == (16, 12)  # the other one keeps its own


def test_a_transform_that_changes_in_place_is_applied(folder: Path) -> None:
    v2 = needs("torchvision.transforms.v2")
    train = stoker.ImageFolder(folder, v2.Compose([v2.Resize((8, 8))]))
    with stoker.DataLoader(train, 2) as loader:
        assert shape(loader) == (8, 8)
        train.transform.transforms.append(v2.Resize((6, 4)))
        assert shape(loader) == (6, 4)
        assert tuple(train[0][0].shape) == (3, 6, 4)
    assert train.transform.transforms[-1].size == [6, 4]


def test_a_transform_that_can_not_be_is_refused_and_changes_nothing(folder: Path) -> None:
    before = T.Resize((8, 8))
    train = stoker.ImageFolder(folder, before)
    for wrong in (T.Resize, T.Compose([T.ToTensor(), T.Resize(4)])):
        with pytest.raises(stoker.ConfigError):
            train.transform = wrong
        assert train.transform is before
    assert shape(stoker.DataLoader(train, 2)) == (8, 8)


def test_a_states_pipeline_is_that_of_the_transform(folder: Path) -> None:
    train = stoker.ImageFolder(folder, T.Resize((8, 8)))
    with stoker.DataLoader(train, 2) as loader:
        next(iter(loader))
        state = loader.state_dict()
        train.transform = T.Resize((4, 4))
        next(iter(loader))
        with pytest.raises(stoker.StateError, match="transform"):
            loader.load_state_dict(state)


def test_what_would_change_nothing_can_not_be_assigned(folder: Path, shards: str, unzip: Any) -> None:
    train = stoker.ImageFolder(folder)
    for (
        name
    ) in "target_transform transforms loader is_valid_file samples imgs targets classes class_to_idx root".split():
        with pytest.raises(stoker.ConfigError, match=f"ImageFolder.{name} .*have no effect") as caught:
            setattr(train, name, getattr(train, name, None))
        assert caught.value.hint
    h5 = stoker.HDF5Dataset(unzip("hdf5", "filters.h5"), ["gzip"])
    tar = stoker.WebDataset(shards).decode("pil")
    plain = stoker.Synthetic(4)
    for dataset in (h5, tar, plain, stoker.Mixture([train, train]), stoker.NpyDataset(DATA / "npy/labels.npy")):
        for name in ("transform", "target_transform"):
            with pytest.raises(stoker.ConfigError, match=name):
                setattr(dataset, name, T.Resize(4))
    for dataset, name in ((h5, "path"), (tar, "urls"), (plain, "n"), (stoker.Mixture([train, train]), "weights")):
        with pytest.raises(stoker.ConfigError, match=name):
            setattr(dataset, name, None)
    setattr(train, "note", "mine")  # noqa: B010 whatever is not ours is the user's
    assert vars(train)["note"] == "mine"


CHANGES: dict[str, Any] = {
    "pop": lambda held: held.pop(next(iter(held)) if isinstance(held, dict) else 0),
    "clear": lambda held: held.clear(),
    "del": lambda held: held.__delitem__(next(iter(held)) if isinstance(held, dict) else 0),
    "set": lambda held: held.__setitem__("a" if isinstance(held, dict) else slice(None), []),
    "grow": lambda held: held.__ior__({"a": 1}) if isinstance(held, dict) else held.__iadd__(["a"]),
    "sort": lambda held: held.update(a=1) if isinstance(held, dict) else held.sort(),
    "reverse": lambda held: held.setdefault("x", 1) if isinstance(held, dict) else held.reverse(),
}


@pytest.mark.parametrize("change", list(CHANGES))
def test_what_would_change_nothing_can_not_be_changed_in_place(change: str, folder: Path, shards: str) -> None:
    train = stoker.ImageFolder(folder)
    both = stoker.Mixture([train, train], weights=[1, 2])
    for dataset in (train, pickle.loads(pickle.dumps(train)), train.to_tuple()):
        for name in "samples imgs targets classes class_to_idx fields".split():
            before = copy.deepcopy(getattr(dataset, name))
            with pytest.raises(stoker.ConfigError, match=f"ImageFolder.{name} cannot be changed in place") as caught:
                CHANGES[change](getattr(dataset, name))
            assert f"(dataset.{name}) is a copy that can be changed" in str(caught.value.hint)
            assert getattr(dataset, name) == before
    tar = stoker.WebDataset([shards])
    rows = pickle.loads(pickle.dumps(stoker.NpyDataset([DATA / "npy/labels.npy"])))
    for dataset, name in ((both, "datasets"), (both, "weights"), (tar, "urls"), (rows, "path")):
        with pytest.raises(stoker.ConfigError, match=f"{name} cannot be changed in place"):
            CHANGES[change](getattr(dataset, name))


def test_what_is_handed_out_is_a_list_all_the_same(folder: Path) -> None:
    train = stoker.ImageFolder(folder)
    assert isinstance(train.samples, list)
    assert isinstance(train.class_to_idx, dict)
    assert train.samples is train.samples  # a loop over range(len(train)) makes it once
    assert train.samples == list(train.samples)
    assert json.loads(json.dumps(train.targets)) == train.targets
    assert np.asarray(train.targets).sum() == sum(train.targets)
    for plain in (
        list(train.samples),
        train.samples[:],
        train.samples.copy(),
        copy.copy(train.samples),
        copy.deepcopy(train.samples),
        pickle.loads(pickle.dumps(train.samples)),
    ):
        assert type(plain) is list
        assert plain == train.samples
        plain.pop()
    assert type(dict(train.class_to_idx)) is type(train.class_to_idx.copy()) is dict


class Weighted(stoker.ImageFolder):
    """What a subclass may do."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, T.Resize((8, 8)))
        self.scale = 3
        self.transform = T.Resize((4, 4))

    def weight(self) -> int:
        return self.scale * len(self)

    def __repr__(self) -> str:
        return "Weighted"


def test_a_subclass_that_makes_no_samples_is_loaded(folder: Path) -> None:
    assert Weighted(folder).weight() == 150
    assert shape(stoker.DataLoader(Weighted(folder), 2)) == (4, 4)


OVERRIDES: dict[str, Any] = {
    "__getitem__": lambda self, i: 1,
    "__getitems__": lambda self, ids: 1,
    "__len__": lambda self: 3,
    "__iter__": lambda self: iter(()),
    "find_classes": lambda self, root: (["a"], {"a": 0}),
    "make_dataset": staticmethod(lambda *args: []),
    "loader": lambda self, path: None,
    "is_valid_file": lambda self, path: True,
    "transform": lambda self, image: image,
    "target_transform": lambda self, label: label,
    "samples": property(lambda self: []),
    "targets": property(lambda self: []),
    "extensions": (".jpg",),
}


@pytest.mark.parametrize("name", list(OVERRIDES))
def test_a_subclass_that_makes_samples_is_refused(name: str, folder: Path) -> None:
    mine = type("Mine", (stoker.ImageFolder,), {name: OVERRIDES[name]})
    with pytest.raises(stoker.ConfigError) as caught:
        stoker.DataLoader(mine(folder, None), 2)
    assert f"Mine.{name} has no effect" in str(caught.value)
    assert "sampler=stoker.DistributedSampler" in str(caught.value)
    with pytest.raises(stoker.ConfigError, match=f"Mine.{name}"):
        stoker.Mixture([mine(folder, None)])


def test_an_override_in_a_mixin_is_refused(folder: Path) -> None:
    class Twice:
        def __getitem__(self, index: int) -> Any:
            return index, index

    class Mine(Twice, stoker.ImageFolder):
        pass

    with pytest.raises(stoker.ConfigError, match=r"Twice\.__getitem__"):
        stoker.DataLoader(Mine(folder))


def test_an_override_is_loaded_by_torch_with_stokers_sampler(folder: Path) -> None:
    class Halved(stoker.ImageFolder):
        def __getitem__(self, index: int) -> Any:
            image, label = super().__getitem__(index)
            return image // 2, label

    data = Halved(folder, T.Resize((8, 8)))
    sampler = stoker.DistributedSampler(data, seed=3)
    loader: Any = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
    images, _ = next(iter(loader))
    assert images.shape == (4, 3, 8, 8)
    assert images.max() < 128


@pytest.mark.parametrize(("workers", "batch_size"), mostly([(0, 5), (0, None), (2, 5), (2, None)], (0, None), (2, 5)))
def test_torchs_loader_gets_new_crops_in_every_epoch(folder: Path, workers: int, batch_size: int | None) -> None:
    class Same(stoker.ImageFolder):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)

    data = Same(folder, T.RandomResizedCrop(24))
    loader: Any = torch.utils.data.DataLoader(data, batch_size=batch_size, num_workers=workers)

    def epoch() -> list[bytes]:
        return [image.numpy().tobytes() for images, _ in loader for image in images.reshape(-1, 3, 24, 24)]

    torch.manual_seed(5)
    first, second = epoch(), epoch()
    assert len(first) == len(second) == 50
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 5
    torch.manual_seed(5)
    assert epoch() == first
    # A sample that is looked at is always the same.
    assert torch.equal(data[3][0], data[3][0])


# What a sample is.


def test_one_array_is_a_tensor_with_the_attributes_of_a_batch(tmp_path: Path) -> None:
    rows = np.arange(30, dtype=np.float32).reshape(10, 3)
    np.save(tmp_path / "x.npy", rows)
    one = stoker.NpyDataset(tmp_path / "x.npy")
    assert torch.equal(one[3], torch.from_numpy(rows[3]))
    for batch in stoker.DataLoader(one, 4, shuffle=True, seed=1):
        assert isinstance(batch, torch.Tensor)
        assert torch.equal(batch, torch.from_numpy(rows)[batch.ids])
        assert batch.valid.all()
        assert (batch.epoch, batch.bad) == (0, [])
    arrays: Any = stoker.DataLoader(one, 4, output="numpy")
    for number, array in enumerate(arrays):
        assert (array == rows[array.ids]).all()
        assert array.step == number
        assert isinstance(array, np.ndarray)
        assert type(pickle.loads(pickle.dumps(array))) is np.ndarray
    assert [sample.tolist() for sample in stoker.DataLoader(one, None, output="numpy")] == rows.tolist()
    np.save(tmp_path / "y.npy", np.arange(10))
    labels = stoker.NpyDataset(y=tmp_path / "y.npy")
    assert (labels[4], list(stoker.DataLoader(labels, None))) == (4, list(range(10)))
    assert [type(batch) for batch in stoker.DataLoader(one.to_tuple(), 10)] == [stoker.Batch]
    assert one.select("x")[2]["x"].tolist() == rows[2].tolist()


def test_one_array_of_jax(tmp_path: Path) -> None:
    jax = needs("jax")
    np.save(tmp_path / "x.npy", np.arange(12, dtype=np.float32))
    (batch,) = stoker.DataLoader(stoker.NpyDataset(tmp_path / "x.npy"), 12, output="jax")
    assert isinstance(batch, jax.Array)
    assert batch.ids.tolist() == list(range(12))


def test_storage_that_names_its_fields_gives_dicts(unzip: Any, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "label": 1}\n')
    np.savez(tmp_path / "a.npz", x=np.arange(4), y=np.arange(4))
    np.savez(tmp_path / "b.npz", x=np.arange(4))
    named = [
        stoker.HDF5Dataset(unzip("hdf5", "filters.h5"), ["gzip"]),
        stoker.LMDBDataset(unzip("lmdb", "datum_raw.mdb")),
        stoker.TFRecordDataset(stored("tfrecord") / "pictures-0000{0,1}-of-00002"),
        stoker.ParquetDataset(stored("parquet") / "rows-zstd.parquet", columns=["i64"]),
        stoker.LinesDataset(tmp_path / "a.jsonl", ["text"]),
        stoker.MDSDataset(stored("mds") / "zstd"),
        stoker.BetonDataset(unzip("beton", "raw.beton")),
        stoker.NpyDataset(tmp_path / "a.npz"),
        stoker.NpyDataset(tmp_path / "b.npz"),
        stoker.NpyDataset(f"{tmp_path}/b.*"),
    ]
    for dataset in named:
        assert isinstance(dataset[0], dict), dataset
        assert isinstance(next(iter(stoker.DataLoader(dataset, 1))), dict), dataset
        assert isinstance(dataset.to_tuple()[0], tuple), dataset
        assert isinstance(dataset.to_tuple().select(dataset.fields[0])[0], dict), dataset


def test_files_tables_and_arrays_give_tuples(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4))
    np.save(tmp_path / "y.npy", np.arange(4))
    resize = T.Resize((8, 8))
    given: list[Any] = [
        stoker.ImageFolder(folder, resize),
        stoker.files([f"{folder}/*/*.jpg"], transform=resize),
        stoker.files([f"{folder}/*/*.jpg"], None, transform=resize),
        stoker.Table(table(tmp_path), "file", "class", transform=resize),
        stoker.Table(tmp_path / "t.csv", label="class"),
        stoker.NpyDataset(tmp_path / "x.npy", tmp_path / "y.npy"),
        stoker.NpyDataset(x=tmp_path / "x.npy", y=tmp_path / "x.npy"),
        stoker.TokenDataset(DATA / "tokens/train.bin", 16),
    ]
    for dataset in given:
        assert isinstance(dataset[0], tuple), dataset
        assert isinstance(next(iter(stoker.DataLoader(dataset, 1))), stoker.Batch), dataset


def test_every_dataset_has_select_and_to_tuple(folder: Path, shards: str) -> None:
    train = stoker.ImageFolder(folder, T.Resize((8, 8)))
    assert list(train.select("label", "image")[0]) == ["label", "image"]
    assert train.select("image")[0]["image"].shape == (3, 8, 8)
    (label,) = train.to_tuple("label")[0]
    assert label == 0
    assert train.select("image").classes == train.classes
    float_image = Field("image", transform=T.Compose([T.Resize((4, 4)), T.ToTensor()]))
    assert next(iter(stoker.DataLoader(train.to_tuple(float_image), 2)))[0].shape == (2, 3, 4, 4)

    tar = stoker.WebDataset(shards).decode("pil").select("jpg", "cls")
    assert list(tar[0]) == ["jpg", "cls"]
    assert list(next(iter(stoker.DataLoader(tar.map_dict(jpg=T.Resize((8, 8))), 2)))) == ["jpg", "cls"]
    assert len(stoker.WebDataset(shards).select(lambda sample: sample["cls"] == b"1")) == 6
    with pytest.raises(stoker.ConfigError, match="tuples already"):
        stoker.WebDataset(shards).to_tuple("jpg").select("jpg")

    plain = stoker.Synthetic(4, (2, 2, 3))
    assert list(next(iter(stoker.DataLoader(plain.select("image"), 2)))) == ["image"]
    assert isinstance(plain.select("image").to_tuple()[0], tuple)
    with pytest.raises(stoker.ConfigError, match="'image'"):
        plain.select("label")

    mixture = stoker.Mixture([train, train], weights=[1, 2])
    assert list(next(iter(stoker.DataLoader(mixture.select("image"), 2)))) == ["image"]
    assert mixture.select("image").weights == [1, 2]
    assert isinstance(mixture.select("image").to_tuple()[0], tuple)


def test_a_mixture_has_samples_of_one_form(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4))
    np.savez(tmp_path / "x.npz", x=np.arange(4))
    one, named = stoker.NpyDataset(tmp_path / "x.npy"), stoker.NpyDataset(tmp_path / "x.npz")
    with pytest.raises(stoker.ConfigError, match="NpyDataset gives arrays, NpyDataset gives dicts"):
        stoker.Mixture([one, named])
    assert stoker.Mixture([one.to_tuple(), named.to_tuple()])[5] == (1,)


# nanoGPT, as people write it.


def test_the_loss_of_nanogpt_takes_the_windows(tmp_path: Path) -> None:
    (np.arange(5000) % 65).astype(np.uint16).tofile(tmp_path / "train.bin")
    block_size, batch_size, vocab_size = 64, 12, 65
    table = torch.nn.Embedding(vocab_size, vocab_size)
    windows = stoker.TokenDataset(tmp_path / "train.bin", block_size, stride=1)
    for size in (batch_size, 600):  # as copies, and as views of a slot
        with stoker.DataLoader(windows, size, shuffle=True) as loader:
            for number, (x, y) in enumerate(loader):
                if number == 3:
                    break
                assert x.stride() == y.stride() == (block_size, 1)
                logits = table(x)
                loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1), ignore_index=-1)
                loss.backward()
                assert torch.equal(x.view(-1, block_size)[:, 1:], y.view(-1, block_size)[:, :-1])
    (fused,) = next(iter(stoker.DataLoader(stoker.TokenDataset(tmp_path / "train.bin", 65, next=False), 4)))
    assert fused.is_contiguous()
    assert fused.shape == (4, 65)

"""What is said of attributes, indices, operators, keywords, paths and labels: it works when it is applied."""

from __future__ import annotations

import copy
import inspect
import logging
import pickle
import subprocess
import tarfile
from itertools import accumulate, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import jpeg
from forms import long, mostly
from needs import needs

import stoker
from stoker import _notice
from stoker import transforms as T
from stoker._compile import unbuilt

torch = needs("torch")

SMALL = T.Compose([T.Resize(8), T.CenterCrop(8)])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    for i in range(6):
        (tmp_path / "ab"[i % 2]).mkdir(exist_ok=True)
        (tmp_path / "ab"[i % 2] / f"{i}.jpg").write_bytes(jpeg(i))
    return tmp_path


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The notices so far."""
    monkeypatch.setattr(_notice, "_said", set())
    caplog.set_level(logging.INFO, "stoker")
    return lambda: "\n".join(caplog.messages)


def ids(loader: Any) -> list[int]:
    with loader:
        return [int(i) for batch in loader for i in batch.ids]


def refused(call: Any, *args: Any, kind: type[Exception] = TypeError, **keywords: Any) -> str:
    with pytest.raises(kind) as caught:
        call(*args, **keywords)
    return str(caught.value)


# Ragged fields.


@pytest.mark.parametrize("output", ["torch", "numpy"])
def test_the_line_at_start_makes_floats_of_ragged_fields(output: Any, tmp_path: Path, said: Any) -> None:
    np.arange(1, 101, dtype=np.uint8).tofile(tmp_path / "a.bin")
    data = stoker.TokenDataset(tmp_path / "a.bin", documents=True, dtype="uint8", eos=50, out=None)
    with stoker.DataLoader(data, batch_size=2, output=output) as loader:
        (tokens,) = next(iter(loader))
    assert isinstance(tokens, stoker.Ragged)
    expression = said().partition("to get floats, write ")[2].partition(" in the loop")[0]
    floats = eval(expression, {"tokens": tokens})  # as it is written
    assert "float32" in str(floats.dtype)
    assert floats.tolist() == [float(i) for i in range(1, 101)]


# Indices and operators.


def test_slices_lists_and_masks_of_datasets_are_answered(photos: Path) -> None:
    dataset = stoker.ImageFolder(photos, SMALL)
    mask = [True, False, True, False, False, True]
    for index, want in (
        (slice(None, 4), [0, 1, 2, 3]),
        (slice(-2, None), [4, 5]),
        (slice(None, None, 2), [0, 2, 4]),
        ([1, 2], [1, 2]),
        (np.array(mask), [0, 2, 5]),
        (torch.tensor(mask), [0, 2, 5]),
        (mask, [0, 2, 5]),
    ):
        text = refused(dataset.__getitem__, index)
        assert "ImageFolder indices are single integers" in text
        given = text.partition("DataLoader(dataset, sampler=")[2].partition(") loads these")[0]
        chosen = eval(given, {"numpy": np, "mask": mask})  # as it is written
        assert ids(stoker.DataLoader(dataset, sampler=chosen)) == want
        assert sorted(ids(stoker.DataLoader(dataset, sampler=stoker.SubsetRandomSampler(chosen)))) == want
        assert f"[dataset[i] for i in {given}]" in text
    assert "sampler=ids" in refused(dataset.__getitem__, np.array([1, 2]))
    assert "dataset.select('image')" in refused(dataset.__getitem__, "image")
    assert "the fields image, label" in refused(dataset.__getitem__, "picture")
    assert "integers, not float" in refused(dataset.__getitem__, 1.0)
    assert dataset[np.int64(-1)][1] == 1


def test_the_answer_to_a_slice_of_a_mixture_works() -> None:
    mixture: Any = stoker.Mixture([stoker.Synthetic(3, (2, 2, 3)), stoker.Synthetic(4, (2, 2, 3))])
    text = refused(mixture.__getitem__, slice(2, 5))
    assert "sampler=range(2, 5)" in text
    assert "SubsetRandomSampler" not in text
    assert ids(stoker.DataLoader(mixture, sampler=range(2, 5))) == [2, 3, 4]


def test_datasets_are_not_added_and_the_answer_works(photos: Path, tmp_path: Path) -> None:
    a: Any = stoker.ImageFolder(photos, SMALL)
    b: Any = stoker.ImageFolder(photos, SMALL)
    for call in (lambda: a + b, lambda: a | b, lambda: sum([a, b])):
        text = refused(call)
        made = "stoker.Mixture([a, b], weights=[len(a), len(b)], stop='all_exhausted')"
        assert made in text
        assert set(range(12)) == set(ids(stoker.DataLoader(eval(made, {"stoker": stoker, "a": a, "b": b}))))
    for name in ("x", "y"):
        (tmp_path / f"{name}.jsonl").write_text('{"a": 1}\n' * 3)
    one, two = (stoker.LinesDataset(tmp_path / f"{name}.jsonl") for name in ("x", "y"))
    text = refused(lambda: one + two)  # type: ignore[operator]
    made = text.partition(": ")[2].partition(" reads all")[0]
    assert len(eval(made, {"stoker": stoker})) == 6
    assert "[*mixture.datasets, b]" in refused(lambda: stoker.Mixture([a, b]) + a)
    with pytest.raises(TypeError, match="unsupported operand"):
        a + "b"


# Masks.


@pytest.mark.parametrize("kind", mostly(["list", "tuple", "array", "tensor", "scalars", "series"], "list", "tensor"))
def test_a_mask_is_not_taken_for_ids(kind: str, photos: Path) -> None:
    flags = [True, False, True, False, False, True]
    mask: Any = {"list": flags, "tuple": tuple(flags), "array": np.array(flags), "scalars": [*np.array(flags)]}.get(
        kind
    )
    if kind == "tensor":
        mask = torch.tensor(flags)
    if kind == "series":
        mask = needs("pandas").Series(flags)
    dataset = stoker.ImageFolder(photos, SMALL)
    for call in (
        lambda: stoker.DataLoader(dataset, sampler=mask),
        lambda: stoker.SubsetRandomSampler(mask),
        lambda: stoker.BatchSampler(mask, 2, False),
        lambda: ids(stoker.DataLoader(dataset, sampler=(flag for flag in mask))),
        lambda: ids(stoker.DataLoader(dataset, batch_sampler=[mask])),
        lambda: ids(stoker.DataLoader(dataset, batch_sampler=[[*mask]])),
    ):
        with pytest.raises(stoker.ConfigError, match=r"numpy\.flatnonzero\(mask\)"):
            call()
    assert ids(stoker.DataLoader(dataset, sampler=np.flatnonzero(mask))) == [0, 2, 5]
    assert ids(stoker.DataLoader(dataset, sampler=[0, 1])) == [0, 1]


# Attributes.


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("imgz", "did you mean 'imgs'"),
        ("clases", "did you mean 'classes'"),
        ("with_transform", "dataset.map(f)"),
        ("shuffel", "did you mean 'shuffle'?"),
        ("column_names", "dataset.fields"),
        ("train_test_split", "SubsetRandomSampler(ids)"),
    ],
)
def test_attributes_of_datasets_are_answered(name: str, want: str, photos: Path) -> None:
    dataset: Any = stoker.ImageFolder(photos)
    assert want in refused(getattr, dataset, name, kind=AttributeError)
    assert not hasattr(dataset, name)
    assert refused(getattr, dataset, "_anything", kind=AttributeError) == (
        "'ImageFolder' object has no attribute '_anything'"
    )
    for other in (copy.copy(dataset), copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset))):
        assert len(other) == 6


def shard(tmp: Path) -> Path:
    with tarfile.open(tmp / "a.tar", "w") as made:
        (tmp / "0.jpg").write_bytes(jpeg(0))
        made.add(tmp / "0.jpg", "0.jpg")
    return tmp / "a.tar"


def test_methods_of_webdataset_are_answered(tmp_path: Path) -> None:
    dataset: Any = stoker.WebDataset(shard(tmp_path))
    for typo, right in (("shufle", "shuffle"), ("decod", "decode"), ("to_tupel", "to_tuple")):
        assert f"did you mean {right!r}?" in refused(getattr, dataset, typo, kind=AttributeError)
    own = needs("webdataset").WebDataset
    inner = {"create_url_iterator", "iterator1", "update_cache_info"}  # not of its documented chain
    for name in dir(own):
        if not name.startswith("_") and not hasattr(dataset, name) and name not in inner:
            text = refused(getattr, dataset, name, kind=AttributeError)
            assert ": " in text, name
            assert "did you mean" not in text, name


def test_methods_of_a_web_loader_are_answered(tmp_path: Path) -> None:
    loader: Any = stoker.DataLoader(stoker.WebDataset(shard(tmp_path)))
    for name in ("unbatched", "shuffle", "batched", "with_epoch", "with_length", "repeat", "unlisted"):
        assert ": " in refused(getattr, loader, name, kind=AttributeError)
    assert "did you mean 'dataset'?" in refused(getattr, loader, "datasett", kind=AttributeError)
    assert loader.prefetch_factor is None


def test_select_of_rows_is_answered(photos: Path) -> None:
    dataset: Any = stoker.ImageFolder(photos, SMALL)
    for given in (range(3), [0, 1], np.arange(2)):
        for call in (dataset.select, dataset.to_tuple, stoker.Synthetic(4).select):
            text = refused(call, given, kind=stoker.ConfigError)
            assert "fields by their names" in text
            assert "sampler=ids" in text


# Keywords.


@pytest.mark.parametrize(
    ("keyword", "want"),
    [
        ("batchsize", "did you mean 'batch_size'?"),
        ("shufle", "did you mean 'shuffle'?"),
        ("nworkers", "did you mean 'num_workers'?"),
        ("transform", "give it to the dataset"),
        ("num_replicas", "did you mean 'world_size'?"),
        ("xyz", "there are dataset, batch_size,"),
    ],
)
def test_keywords_of_a_loader_are_answered(keyword: str, want: str) -> None:
    given: dict[str, Any] = {keyword: 4}
    text = refused(stoker.DataLoader, stoker.Synthetic(4), **given)
    assert f"DataLoader() got an unexpected keyword argument {keyword!r}: {want}" in text


def test_signatures_name_the_keywords() -> None:
    """For help(), editors and what wraps the class."""
    for made in (stoker.DataLoader, stoker.ImageFolder, stoker.Mixture):
        assert list(inspect.signature(made).parameters)[1:] == list(inspect.signature(made.__init__).parameters)[2:]
    assert "num_workers" in inspect.signature(stoker.DataLoader).parameters

    class Mine(stoker.DataLoader):
        def __init__(self, *args: Any, mine: int = 0, **keywords: Any) -> None:
            super().__init__(*args, **keywords)
            self.mine = mine

    assert Mine(stoker.Synthetic(4), batch_size=2, mine=3).mine == 3


# Paths.


def of_path(path: Any) -> str:
    return refused(stoker.DataLoader, path, kind=stoker.ConfigError)


def run_advice(text: str, **names: Any) -> Any:
    """The call that begins with stoker., as it is written."""
    call = text[text.index("stoker.") :]
    depths = accumulate({"(": 1, ")": -1}.get(sign, 0) for sign in call)
    end = next(i for i, depth in enumerate(depths) if depth == 0 and call[i] == ")")
    return eval(call[: end + 1], {"stoker": stoker, **names})


def test_a_path_is_answered_by_what_is_there(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    assert len(run_advice(of_path(str(photos)))) == 6
    assert len(run_advice(of_path(f"file://{photos}"))) == 6
    assert len(run_advice(of_path(photos / "a"))) == 3
    assert len(run_advice(of_path("a/*.jpg"))) == 3
    assert len(run_advice(of_path("a/0.jpg"))) == 1
    (photos / "data" / "train").mkdir(parents=True)
    for name in "ab":
        (photos / name).rename(photos / "data" / "train" / name)
    assert len(run_advice(of_path("data"))) == 6
    (photos / "shards").mkdir()
    shard(photos).rename(photos / "shards" / "a.tar")
    assert len(run_advice(of_path("shards"))) == 1
    np.arange(64, dtype=np.uint16).tofile("train.bin")
    assert len(run_advice(of_path("train.bin"), length=8)) == 7


def test_a_path_without_anything_is_answered(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(photos)
    text = of_path("nope")
    assert "there is nothing at 'nope'" in text
    assert "formats.md" in text
    assert "stoker inspect" not in text
    (photos / "train.h5").write_bytes(b"")
    text = of_path("trian.h5")
    assert "there is 'train.h5'" in text
    assert "stoker.HDF5Dataset('train.h5')" in text
    assert "stoker.WebDataset('s3://bucket/train')" in of_path("s3://bucket/train")
    assert "stoker.ParquetDataset('https://host/x.parquet')" in of_path("https://host/x.parquet?token=HUSH")


@long
def test_a_folder_of_hugging_face_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = needs("datasets")
    monkeypatch.chdir(tmp_path)
    one = datasets.Dataset.from_dict({"x": [1, 2, 3]})
    one.save_to_disk("one")
    datasets.DatasetDict({"train": one, "test": one.select([0])}).save_to_disk("several")
    for folder in ("one", "several"):
        text = of_path(folder)
        assert "stoker.ImageFolder" not in text
        write = text.partition("write it as Parquet once, ")[2].partition(", and load")[0]
        eval(write, {"datasets": datasets})  # as it is written
        assert len(run_advice(text)) == 3
        Path("data.parquet").unlink()


def test_data_in_the_place_of_a_path_are_answered(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = needs("pandas")
    monkeypatch.chdir(photos)
    frame = pandas.DataFrame({"file": [f"{'ab'[i % 2]}/{i}.jpg" for i in range(6)], "label": [0, 1] * 3})
    text = refused(stoker.Table, frame, path="file", label="label", kind=stoker.ConfigError)
    assert "manifest is of type DataFrame" in text
    eval(text.partition("write the table once, ")[2].partition(", and load")[0], {"frame": frame})
    assert len(stoker.Table("table.csv", path="file", label="label")) == 6
    x, y = np.zeros((4, 3)), np.arange(4)
    for given in ((x,), (x, y)):
        text = refused(stoker.NpyDataset, *given, kind=stoker.ConfigError)
        assert "numpy.save('x.npy', x)" in text
        assert "0." not in text  # the array itself
    assert "stoker.NpyDataset('x.npy')" in refused(stoker.HDF5Dataset, x, kind=stoker.ConfigError)


def test_lists_in_the_place_of_ids_are_answered(photos: Path) -> None:
    dataset = stoker.ImageFolder(photos, SMALL)
    mask = np.array([True, False, True])
    for wrong in (np.where(mask), torch.tensor(mask).nonzero(), np.array([[0], [2]])):
        text = refused(ids, stoker.DataLoader(dataset, sampler=wrong), kind=stoker.ConfigError)
        assert "sampler=numpy.ravel(ids)" in text
        assert ids(stoker.DataLoader(dataset, sampler=np.ravel(wrong))) == [0, 2]


def test_a_misspelt_transform_is_not_assigned(photos: Path) -> None:
    dataset: Any = stoker.ImageFolder(photos)
    with pytest.raises(stoker.ConfigError, match="did you mean 'transform'"):
        dataset.transfrom = SMALL
    dataset.note = "mine"
    dataset.transform = SMALL
    assert dataset[0][0].shape == (3, 8, 8)


def test_keywords_of_others_are_answered(photos: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 3)))
    assert "stoker.Field('image', transform=...)" in refused(stoker.HDF5Dataset, "a.h5", transform=SMALL)
    assert "stoker.DataLoader(dataset, batch_size=...)" in refused(stoker.ImageFolder, photos, batch_size=4)
    assert "stoker.DataLoader(dataset, shuffle=...)" in refused(stoker.TFRecordDataset, "a", shuffle=True)


def test_a_parquet_table_is_not_called_another_format(tmp_path: Path) -> None:
    needs("pandas").DataFrame({"x": [0.5, 1.0], "n": [1, 2]}).to_parquet(tmp_path / "a.parquet")
    text = refused(stoker.Table, tmp_path / "a.parquet", label="x", kind=stoker.ConfigError)
    assert "ParquetDataset" not in text


# tune, without a loader or a dataset.


def test_tune_without_a_dataset_is_answered() -> None:
    want = "lambda **settings: DataLoader(dataset, batch_size=64, **settings)"
    for given in (stoker.DataLoader, stoker.Synthetic(4), None, lambda **settings: None):
        assert want in refused(stoker.tune, given, kind=stoker.ConfigError)
    assert "DataLoader(dataset, batch_size=64)" in refused(
        stoker.benchmark, stoker.Synthetic(4), kind=stoker.ConfigError
    )


# Transforms.


def answer(transform: Any, photos: Path) -> str:
    return refused(stoker.ImageFolder, photos, transform, kind=stoker.ConfigError)


def test_the_advice_for_several_crops_works() -> None:
    v2 = needs("torchvision.transforms.v2")
    v1 = needs("torchvision.transforms")
    images = torch.zeros((4, 3, 16, 16), dtype=torch.uint8)
    for made, crops in ((v2.FiveCrop(8), 5), (v1.FiveCrop(8), 5), (v2.TenCrop(8), 10), (v1.TenCrop(8), 10)):
        text = unbuilt(type(made).__name__)
        space: dict[str, Any] = {"torch": torch, "t": made, "images": images}
        exec("crops = " + text.partition("crops = ")[2].partition(" has the shape")[0], space)
        assert space["crops"].shape == (4, crops, 3, 8, 8)
        assert f"(batch, {crops}, channels, h, w)" in text


# Labels.


def table(photos: Path, name: str, labels: list[Any]) -> Path:
    rows = [f"{'ab'[i % 2]}/{i}.jpg,{label}" for i, label in enumerate(labels)]
    (photos / "t.csv").write_text("\n".join([f"file,{name}", *rows, ""]))
    return photos / "t.csv"


LABELS: dict[str, tuple[list[Any], str, str]] = {
    "negative": ([0, 1, -1, 1, 0, 1], "int64", "there is -1, and classes are whole numbers from 0"),
    "ignored": ([0, 1, -100, 1, 0, 1], "int64", "there is -100"),
    "fractions": ([0.5, 1, 2, 3, 4, 5], "float64", "there are fractions; for a loss of float32, write labels.float()"),
    "points": (["1.0", "2.0", "0.0"] * 2, "float64", "for a loss over classes, write labels.long()"),
}


@pytest.mark.parametrize(
    ("kind", "name"), mostly(product(LABELS, ["label", "y"]), ("negative", "y"), ("fractions", "label"))
)
def test_labels_that_are_not_classes_are_told(kind: str, name: str, photos: Path, said: Any) -> None:
    values, dtype, want = LABELS[kind]
    data = stoker.Table(table(photos, name, values), path="file", label=name, transform=SMALL)
    with stoker.DataLoader(data, batch_size=6) as loader:
        (_, labels), *_ = list(loader)
    assert labels.tolist() == [float(one) for one in values]
    assert str(labels.dtype) == f"torch.{dtype}"
    assert f'the labels (column "{name}") are {dtype} numbers, not classes: ' in said()
    assert want in said()
    plain = stoker.Table(photos / "t.csv", label=name).to_tuple(name)
    assert [one[0] for one in (plain[i] for i in range(6))] == [float(one) for one in values]


def test_classes_are_not_told(photos: Path, said: Any) -> None:
    for values in ([0, 1] * 3, ["x", "y"] * 3, ["true", "false"] * 3):
        with stoker.DataLoader(
            stoker.Table(table(photos, "y", values), path="file", label="y", transform=SMALL), batch_size=6
        ) as loader:
            ((_, labels),) = list(loader)
        assert labels.dtype == torch.int64
    assert "not classes" not in said()


# The lines that inspect prints of a table that names files.


def test_inspect_of_a_table_of_paths_loads_pictures(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker._process import find

    monkeypatch.chdir(photos)
    (photos / "lists").mkdir()
    for path, rows in (
        ("t.csv", [f"{'ab'[i % 2]}/{i}.jpg,{i % 2}" for i in range(6)]),  # relative to the table
        ("lists/t.csv", [f"{'ab'[i % 2]}/{i}.jpg,{i % 2}" for i in range(6)]),  # to this folder
        ("lists/u.csv", [f"{photos}/{'ab'[i % 2]}/{i}.jpg,{i % 2}" for i in range(6)]),
    ):
        Path(path).write_text("\n".join(["picture,label", *rows, ""]))
        done = subprocess.run([find(), "inspect", path], capture_output=True, text=True, check=True)
        lines = done.stdout.partition("In Python:")[2]
        assert f'stoker.Table("{path}", path="picture", label="label"' in lines
        lines = lines.replace("...", "seen.append((images.shape, labels.tolist()))")
        space: dict[str, Any] = {"seen": []}
        exec("\n".join(line[4:] for line in lines.splitlines()), space)  # as they are printed
        assert [shape for shape, _ in space["seen"]] == [(6, 3, 224, 224)]
        assert sorted(label for _, labels in space["seen"] for label in labels) == [0, 0, 0, 1, 1, 1]
        space["loader"].close()

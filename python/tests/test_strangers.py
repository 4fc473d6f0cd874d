"""What is said of datasets, names, decoders and files that stoker does not have: what fits, and what always works."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import wave
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import jpeg, run_python
from forms import long, mostly
from needs import needs

import stoker
from stoker import Field
from stoker import transforms as T
from stoker._strangers import fitting

torch = needs("torch")


def foreign(module: str, called: str, /, **attributes: Any) -> Any:
    """An object of a class of a library that need not be here; it has samples."""
    samples = {"__len__": lambda self: 4, "__getitem__": lambda self, index: index}
    return type(called, (), {"__module__": module, **samples, **attributes})()


class Tensors(torch.utils.data.TensorDataset):  # type: ignore[misc, name-defined]
    """One that may do anything in its own methods."""


class Mine(torch.utils.data.Dataset):  # type: ignore[misc, name-defined]
    """A dataset as people write it, that keeps one thing."""

    def __init__(self, **kept: Any) -> None:
        self.__dict__.update(kept)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return index


def memmap(tmp: Path) -> Any:
    np.save(tmp / "images.npy", np.zeros((4, 3)))
    return np.load(tmp / "images.npy", mmap_mode="r")


def tokens(tmp: Path) -> Any:
    np.arange(40, dtype=np.uint16).tofile(tmp / "train.bin")
    return np.memmap(tmp / "train.bin", np.uint16, mode="r")


FRAME = foreign(
    "pandas.core.frame",
    "DataFrame",
    columns=["id", "file"],
    __getitem__=lambda self, name: ["a.jpg" if name == "file" else 7],
)
FITS: dict[str, tuple[Any, str]] = {
    "h5py file": (
        lambda tmp: Mine(file=foreign("h5py._hl.files", "File", filename="a.h5")),
        "stoker.HDF5Dataset('a.h5')",
    ),
    "h5py, opened later": (lambda tmp: Mine(hdf5_path="data.h5", file=None), "stoker.HDF5Dataset('data.h5')"),
    "h5py dataset": (
        lambda tmp: foreign("h5py._hl.dataset", "Dataset", file=foreign("h5py._hl.files", "File", filename="b.h5")),
        "stoker.HDF5Dataset('b.h5')",
    ),
    "memmap": (lambda tmp: Mine(data=memmap(tmp), targets=memmap(tmp)), "images.npy')"),
    "tokens": (lambda tmp: Mine(data=tokens(tmp), block_size=256), "train.bin', length=..., dtype='uint16')"),
    "frame": (lambda tmp: Mine(frame=FRAME, root="images"), "stoker.Table('table.csv', path='file', label=...)"),
    "tensors": (
        lambda tmp: Tensors(torch.zeros(4), torch.zeros(4)),
        "stoker.NpyDataset('x.npy', 'y.npy')",
    ),
    "arrays": (lambda tmp: Mine(data=np.zeros(4), targets=torch.zeros(4)), "stoker.NpyDataset('x.npy', 'y.npy')"),
    "arrow": (lambda tmp: foreign("datasets.arrow_dataset", "Dataset"), "dataset.to_parquet('data.parquet')"),
    "arrow inside": (lambda tmp: Mine(ds=foreign("datasets.arrow_dataset", "Dataset")), "stoker.ParquetDataset("),
    "arrow stream": (lambda tmp: foreign("datasets.iterable_dataset", "IterableDataset"), "stoker.ParquetDataset("),
    "parquet": (lambda tmp: Mine(table=foreign("pyarrow.lib", "Table")), "stoker.ParquetDataset("),
    "lmdb": (lambda tmp: Mine(env=foreign("lmdb", "Environment")), "stoker.LMDBDataset(path)"),
    "lines": (lambda tmp: Mine(path=Path("a/b.jsonl")), "stoker.LinesDataset('a/b.jsonl')"),
    "files": (lambda tmp: Mine(image_paths=["a/1.jpg"], labels=[0]), "stoker.files(paths, transform=...)"),
    "pairs": (lambda tmp: Mine(samples=[("a/1.png", 0)]), "stoker.files(paths, transform=...)"),
    "subset": (lambda tmp: torch.utils.data.Subset(Mine(p="x.csv"), [0]), "SubsetRandomSampler(dataset.indices)"),
    "subset of ours": (
        lambda tmp: torch.utils.data.Subset(stoker.Synthetic(4), [0]),
        "stoker.DataLoader(dataset.dataset, sampler=stoker.SubsetRandomSampler(dataset.indices))",
    ),
    "row of ours": (
        lambda tmp: torch.utils.data.ConcatDataset([stoker.Synthetic(4), stoker.Synthetic(4)]),
        "stoker.Mixture(dataset.datasets",
    ),
    "wrapped": (lambda tmp: Mine(inner=Mine(x="data.npz")), "stoker.NpyDataset('data.npz')"),
    "mds": (lambda tmp: foreign("streaming.base.dataset", "StreamingDataset"), "stoker.MDSDataset("),
}


@pytest.mark.parametrize("kind", mostly(FITS, *list(FITS)[::2]))
def test_the_class_that_fits_is_named(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    make, want = FITS[kind]
    with stoker.DataLoader(make(tmp_path)) as loader:
        next(iter(loader))
    said = capfd.readouterr().err
    assert "makes its samples in Python" in said
    (line,) = [line for line in said.splitlines() if "without Python code it would be faster: " in line]
    assert want in line


def test_without_a_class_that_fits_nothing_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    with stoker.DataLoader(Mine()) as loader:
        assert [int(i) for i in loader] == [0, 1, 2, 3]
    assert "would be faster" not in capfd.readouterr().err


def opened(kind: str, tmp: Path) -> tuple[Any, str]:
    """What people hand to a loader that is not a dataset, and what the error must say."""
    if kind == "npz":
        np.savez(tmp / "z.npz", x=np.zeros(4), y=np.zeros(4))
        return np.load(tmp / "z.npz"), f"stoker.NpyDataset({str(tmp / 'z.npz')!r})"
    if kind == "zip":
        with zipfile.ZipFile(tmp / "z.zip", "w") as made:
            made.writestr("0.jpg", b"")
        return zipfile.ZipFile(tmp / "z.zip"), "unpack it once, and load stoker.ImageFolder(folder)"
    if kind == "tar":
        with tarfile.open(tmp / "t.tar", "w"):
            pass
        return tarfile.open(tmp / "t.tar"), f"stoker.WebDataset({str(tmp / 't.tar')!r})"
    if kind == "file":
        (tmp / "a.jsonl").write_text("{}")
        return (tmp / "a.jsonl").open(), f"stoker.LinesDataset({str(tmp / 'a.jsonl')!r})"
    if kind == "picture":
        image = needs("PIL.Image")
        (tmp / "a.jpg").write_bytes(jpeg(1))
        return image.open(tmp / "a.jpg"), f"stoker.files([{str(tmp / 'a.jpg')!r}], labels=None)"
    if kind == "h5py file":
        return foreign("h5py._hl.files", "File", filename="a.h5", name="/"), "stoker.HDF5Dataset('a.h5')"
    if kind == "h5py group":
        file = foreign("h5py._hl.files", "File", filename="a.h5")
        return foreign("h5py._hl.group", "Group", file=file, name="/g"), "stoker.HDF5Dataset('a.h5', group='/g')"
    if kind == "arrays":
        return {"x": np.zeros(4), "y": np.zeros(4)}, "stoker.NpyDataset('x.npy', 'y.npy')"
    if kind == "class":
        return stoker.ImageFolder, "ImageFolder(...)"
    if kind == "loader":
        return torch.utils.data.DataLoader([1, 2]), "loader.dataset"
    return None, "docs/guides/formats.md"


@pytest.mark.parametrize(
    "kind",
    "npz;zip;tar;file;picture;h5py file;h5py group;arrays;class;loader;nothing".split(";"),
)
def test_what_is_not_a_dataset_is_named_and_so_is_the_class_that_fits(kind: str, tmp_path: Path) -> None:
    given, want = opened(kind, tmp_path)
    try:
        with pytest.raises(stoker.ConfigError, match="dataset is ") as caught:
            stoker.DataLoader(given)
        assert want in str(caught.value.hint)
        assert "torch's own loader" not in str(caught.value)  # which could not load it either
    finally:
        if callable(close := getattr(given, "close", None)):
            close()


def test_attributes_that_raise_are_no_obstacle(tmp_path: Path) -> None:
    class Odd(Mine):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    np.savez(tmp_path / "z.npz", x=np.zeros(4))
    with np.load(tmp_path / "z.npz") as held:
        assert "z.npz')" in str(fitting(Odd(arrays=held)))
    assert fitting(Odd()) is None
    assert [int(i) for i in stoker.DataLoader(Odd())] == [0, 1, 2, 3]
    file = foreign("h5py._hl.files", "File", file=property(lambda self: 1 // 0))
    with pytest.raises(stoker.ConfigError, match=r"stoker.HDF5Dataset\('data.h5'\)"):  # a closed one
        stoker.DataLoader(file)


def test_real_libraries_are_known(tmp_path: Path) -> None:
    h5py = needs("h5py")
    pandas = needs("pandas")
    datasets = needs("datasets")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros((4, 3))
        for given in (Mine(f=file), file["x"], Mine(x=file["x"])):
            assert "a.h5'" in str(fitting(given))
        assert [len(batch) for batch in stoker.DataLoader(file["x"], batch_size=2)] == [2, 2]
        with pytest.raises(stoker.ConfigError, match="HDF5Dataset"):
            stoker.DataLoader(file)
    assert "path='file'" in str(fitting(Mine(df=pandas.DataFrame({"file": ["a.jpg"], "label": [1]}))))
    assert "to_parquet" in str(fitting(datasets.Dataset.from_dict({"a": [1]})))


def test_a_table_in_memory_is_not_a_dataset_for_torch() -> None:
    pandas, pyarrow = needs("pandas"), needs("pyarrow")
    frame = pandas.DataFrame({"file": ["a.jpg"], "label": [1]})
    for table in (frame, pyarrow.Table.from_pandas(frame)):
        with pytest.raises(stoker.ConfigError, match="which is not a dataset") as caught:
            stoker.DataLoader(table)
        assert "torch's own loader" not in str(caught.value)


def test_what_always_works_works() -> None:
    data = Mine()
    loader: Any = torch.utils.data.DataLoader(data, sampler=stoker.DistributedSampler(data))
    assert sorted(int(x) for x in loader) == [0, 1, 2, 3]


def test_paths_are_named_by_their_endings() -> None:
    for path, want in (("data/train", "ImageFolder"), ("a.h5", "HDF5Dataset"), ("x-000.tar", "WebDataset")):
        with pytest.raises(stoker.ConfigError, match=rf"stoker.{want}\('{path}'\)"):
            stoker.DataLoader(path)


# Transforms.


def test_a_transform_that_no_picture_can_have_is_refused(folder: Path) -> None:
    v2 = needs("torchvision.transforms.v2")
    with pytest.raises(stoker.ConfigError, match="leave it out"):
        stoker.ImageFolder(folder, v2.ToPILImage())
    with pytest.raises(stoker.ConfigError, match="for batches"):
        stoker.ImageFolder(folder, [v2.Resize((8, 8)), v2.MixUp(num_classes=2)])
    with pytest.raises(stoker.ConfigError, match="is a class"):
        stoker.ImageFolder(folder, [v2.Resize((8, 8)), v2.ColorJitter])


def test_the_advice_draws_for_every_image() -> None:
    v2 = needs("torchvision.transforms.v2")
    torch.manual_seed(0)
    images = torch.full((16, 3, 8, 8), 128, dtype=torch.uint8)
    for t in (v2.ColorJitter(brightness=0.9), v2.RandomErasing(p=1.0, value=0)):
        apart = torch.stack([t(image) for image in images])
        assert len({image.numpy().tobytes() for image in apart}) > 8
        together = t(images)
        assert len({image.numpy().tobytes() for image in together}) == 1


# Names.


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("WebLoader", "stoker.webdataset as wds"),
        ("DataPipeline", "stoker.webdataset as wds"),
        ("SimpleShardList", "stoker.webdataset as wds"),
        ("Subset", "sampler=ids"),
        ("ColorJitter", "stoker.transforms.ColorJitter"),
        ("GaussianNoise", "torch.stack"),
        ("Resize", "stoker.transforms.Resize"),
        ("DataLoadre", "did you mean 'DataLoader'"),
        ("HDF5Datset", "did you mean 'HDF5Dataset'"),
        ("TarDataset", "stoker.WebDataset"),
        ("ShardList", "stoker.WebDataset"),
        ("LMDB", "stoker.LMDBDataset"),
        ("LmdbImageDataset", "stoker.LMDBDataset"),
        ("H5Dataset", "HDF5Dataset"),
        ("CSVDataset", "stoker.Table"),
        ("NumpyDataset", "NpyDataset"),
        ("JsonlDataset", "stoker.LinesDataset"),
        ("ImageDataset", "stoker.ImageFolder"),
        ("CIFAR10", "stoker.NpyDataset"),
        ("CIFAR10", "sampler=stoker.DistributedSampler"),
        ("ImageNet", "stoker.ImageFolder"),
        ("Flowers102", "sampler=stoker.DistributedSampler"),
        ("StreamingDataset", "stoker.MDSDataset"),
        ("StreamingDataLoader", "stoker.DataLoader"),
        ("optimize", "stoker pack"),
        ("load_dataset", "stoker.ParquetDataset"),
        ("AudioDataset", "sampler=stoker.DistributedSampler"),
    ],
)
def test_names_of_others_are_answered(name: str, want: str) -> None:
    with pytest.raises(AttributeError, match=f"'stoker' has no attribute '{name}'") as caught:
        getattr(stoker, name)
    assert want in str(caught.value)
    with pytest.raises(ImportError, match=f"cannot import name '{name}'") as refused:
        exec(f"from stoker import {name}")
    assert want in str(refused.value)
    assert not hasattr(stoker, name)


def test_every_dataset_of_torchvision_is_answered() -> None:
    datasets = needs("torchvision.datasets")
    for name in datasets.__all__:
        if not hasattr(stoker, name):
            with pytest.raises(AttributeError, match=r"stoker\.|DistributedSampler|Python code") as caught:
                getattr(stoker, name)
            assert "did you mean" not in str(caught.value)


def test_names_of_transforms_are_answered() -> None:
    with pytest.raises(AttributeError, match=r"'GaussianNoise': the engine does not have it.*torch.stack"):
        T.GaussianNoise  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError, match="did you mean 'RandomHorizontalFlip'"):
        exec("from stoker.transforms import RandomHorizontalFlp")
    assert not hasattr(T, "__wrapped__")


@long
def test_the_module_is_the_command() -> None:
    told = subprocess.run([sys.executable, "-m", "stoker", "version"], capture_output=True, text=True, check=True)
    assert told.stdout.startswith("stoker ")
    none = subprocess.run([sys.executable, "-m", "stoker"], capture_output=True, text=True, check=False)
    assert (none.returncode, none.stdout) == (2, "")
    assert none.stderr.startswith("Usage: stoker")
    assert run_python("import stoker, pydoc; pydoc.render_doc(stoker)").returncode == 0


# Decoders, commands, sounds.


def test_pillow_decodes_as_pil(shards: str) -> None:
    pil, pillow = (stoker.WebDataset(shards).decode(word).to_tuple("jpg", "cls")[3] for word in ("pil", "pillow"))
    assert torch.equal(pil[0], pillow[0])
    assert pil[0].shape == (3, 64, 80)


@pytest.mark.parametrize(
    ("word", "want"),
    [
        ("pilow", "'pillow'"),
        ("PIL8", "'pil'"),
        ("pilrbg", "'pilrgb'"),
        ("torchrbg", "'torchrgb'"),
        ("tochl", "'torchl'"),
        ("torchl88", "'torchl8'"),
        ("torch_audio", "delivered as bytes"),
        ("zzz", "it can be 'pil'"),
    ],
)
def test_decoders_of_the_same_kind_are_suggested(word: str, want: str, shards: str) -> None:
    with pytest.raises(stoker.ConfigError, match="is not a known image decoder") as caught:
        stoker.WebDataset(shards).decode(word)
    assert want in str(caught.value)


def test_a_command_is_not_a_missing_path() -> None:
    with pytest.raises(stoker.ConfigError, match="is a command") as caught:
        stoker.WebDataset("pipe:cat shards/train-{000..002}.tar")
    assert 'give the path: "shards/train-{000..002}.tar"' in str(caught.value)
    for command, want in {
        "pipe:aws s3 cp --profile me s3://bucket/a.tar -": 'give the URL: "s3://bucket/a.tar", with',
        "pipe:curl -s -L https://host/{0..9}.tar": 'give the URL: "https://host/{0..9}.tar"',
        "simplecache::s3://bucket/a.tar": 'give only the URL, which is read in place: "s3://bucket/a.tar"',
        "pipe:make-shards": "copy or mount",
    }.items():
        for urls in (command, [command]):
            with pytest.raises(stoker.ConfigError) as caught:
                stoker.WebDataset(urls)
            assert want in str(caught.value)


def test_a_sound_is_not_a_broken_picture(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "a.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(200))
    with pytest.raises(stoker.DataError, match="the field is decoded as a picture, but this is a WAV sound") as caught:
        stoker.files(f"{tmp_path}/*.wav", None)[0]
    assert caught.value.code == "unsupported"
    assert "restore" not in str(caught.value)
    assert 'decode="bytes"' in str(caught.value)
    (data,) = stoker.files(f"{tmp_path}/*.wav", None, fields=[Field("image", decode="bytes")])[0]
    assert data == (tmp_path / "a.wav").read_bytes()
    (tmp_path / "b.wav").write_bytes(jpeg(0))  # by its bytes, not by its name
    assert stoker.files(f"{tmp_path}/b.wav", None)[0][0].shape == (3, 64, 80)

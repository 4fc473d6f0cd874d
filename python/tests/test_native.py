"""Datasets of torchvision that the engine reads: the same samples in the same order as Python makes them, and every
reason for Python."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from forms import mostly
from torch.utils.data import ConcatDataset, Subset, random_split
from torchvision import transforms as v1
from torchvision.datasets import DatasetFolder
from torchvision.datasets.folder import IMG_EXTENSIONS, default_loader, pil_loader
from torchvision.transforms import v2

import stoker
from stoker import _native

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SMALL = v1.Compose([v1.Resize((32, 40)), v1.ToTensor()])
EVAL = v1.Compose([v1.Resize(40), v1.CenterCrop(32), v1.ToTensor(), v1.Normalize(MEAN, STD)])
TRAIN = v2.Compose(
    [
        v2.RandomResizedCrop(32, antialias=True),
        v2.RandomApply([v2.RandomHorizontalFlip()], 0.5),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD),
    ]
)


def images(root: Any, transform: Any = SMALL, **more: Any) -> Any:
    return torchvision.datasets.ImageFolder(root, transform, **more)


def loaded(dataset: Any, batch_size: Any = 7, **more: Any) -> Any:
    loader: Any = stoker.DataLoader
    return loader(dataset, batch_size, **{"num_workers": 1, **more})


def why(dataset: Any, **more: Any) -> str | None:
    """Why Python makes the samples; None if the engine does."""
    hands = loaded(dataset, **more)._settings.hands
    return None if hands is None else str(hands.why)


def here(line: Callable[..., Any]) -> str:
    return f"({os.path.relpath(__file__)}:{line.__code__.co_firstlineno})"


def imagenet(root: Path, folder: Path) -> Any:
    """ImageNet over a tree as its archives unpack to."""
    names = {f"class{i}": (f"name {i}", f"other {i}") for i in range(3)}
    torch.save((names, []), root / "meta.bin")
    shutil.copytree(folder, root / "train")
    return torchvision.datasets.ImageNet(root, "train", transform=SMALL)


def edited(root: Any) -> Any:
    dataset = images(root)
    dataset.samples = [(path, label + 4) for path, label in dataset.samples[30:3:-2]]
    return dataset


def cut(root: Any) -> Any:
    """A class of its own name in another order."""
    dataset = images(root)
    dataset.samples.sort(key=lambda sample: os.path.basename(sample[0]))
    return dataset


DATASETS: dict[str, Callable[[Path], Any]] = {
    "ImageFolder": images,
    "evaluation": lambda folder: images(folder, EVAL),
    "pil_loader": lambda folder: images(folder, loader=pil_loader),
    "DatasetFolder": lambda folder: DatasetFolder(str(folder), default_loader, IMG_EXTENSIONS, SMALL),
    "fewer extensions": lambda folder: DatasetFolder(str(folder), default_loader, (".jpg",), SMALL),
    "is_valid_file": lambda folder: images(folder, is_valid_file=lambda path: path.endswith("1.jpg")),
    "Subset": lambda folder: Subset(images(folder), [40, 3, 3, -1, 0, 17, 5, 6, 49]),
    "Subset of tensors": lambda folder: Subset(images(folder), torch.arange(3, 20)),  # type: ignore[arg-type]
    "Subset of a Subset": lambda folder: Subset(Subset(images(folder), range(9, 40)), range(20, 3, -2)),
    "random_split": lambda folder: random_split(images(folder), [0.7, 0.3])[1],
    "ConcatDataset": lambda folder: ConcatDataset([Subset(images(folder), [4, 2]), images(folder)]),
    "edited samples": edited,
    "sorted samples": cut,
    "uint8": lambda folder: images(folder, v2.Compose([v2.PILToTensor(), v2.Resize((8, 8), antialias=True)])),
    "bicubic": lambda folder: images(
        folder, v1.Compose([v1.Resize((9, 7), v2.InterpolationMode.BICUBIC), v1.ToTensor()])
    ),
    "bicubic of tensors": lambda folder: images(
        folder, v2.Compose([v2.PILToTensor(), v2.Resize((8, 8), v2.InterpolationMode.BICUBIC, antialias=True)])
    ),
    "erased": lambda folder: images(
        folder, v1.Compose([v1.Resize((8, 8)), v1.ToTensor(), v1.RandomErasing(0.0), v1.Normalize(MEAN, STD)])
    ),
    "grey": lambda folder: images(folder, v1.Compose([v1.Grayscale(), v1.Resize((8, 8)), v1.ToTensor()])),
}


@pytest.mark.parametrize(
    ("name", "shuffle"),
    mostly(
        product(DATASETS, [False, True]),
        *product(["evaluation", "fewer extensions", "Subset", "bicubic of tensors", "erased"], [False]),
        *product(["ImageFolder", "ConcatDataset", "sorted samples", "uint8", "grey"], [True]),
    ),
)
def test_both_paths_deliver_the_same(name: str, shuffle: bool, folder: Path) -> None:
    dataset = DATASETS[name](folder)
    with (
        loaded(dataset, shuffle=shuffle, seed=3, native=True) as native,
        loaded(dataset, shuffle=shuffle, seed=3, native=False) as python,
    ):
        assert native.dataset is python.dataset is dataset
        assert len(native) == len(python)
        for ours, theirs in zip(native, python, strict=True):
            assert type(ours) is type(theirs)
            assert list in type(ours).__mro__
            assert (ours.epoch, ours.step) == (theirs.epoch, theirs.step)
            for mine, his in [(ours[1], theirs[1]), (ours.ids, theirs.ids), (ours.valid, theirs.valid)]:
                assert mine.dtype == his.dtype
                assert mine.tolist() == his.tolist()
            assert ours[0].dtype == theirs[0].dtype
            assert ours[0].shape == theirs[0].shape
            scale = 1 if ours[0].dtype == torch.uint8 else 255 if ours[0].min() >= 0 else 60
            assert (ours[0].double() - theirs[0].double()).abs().mean() * scale < 2
            assert native.facts.ids is ours.ids
            assert native.facts.step == ours.step


def test_pixels_are_those_of_our_own_class(folder: Path) -> None:
    more: Any = {"shuffle": True, "seed": 5}
    with loaded(images(folder, TRAIN), **more) as theirs, loaded(stoker.ImageFolder(folder, TRAIN), **more) as ours:
        for _ in range(2):
            for (a, n), (b, m) in zip(theirs, ours, strict=True):
                assert torch.equal(a, b)
                assert torch.equal(n, m)
        assert theirs.state_dict() == ours.state_dict()
        assert theirs.receipt() == ours.receipt()


def test_imagenet(tmp_path: Path, folder: Path) -> None:
    dataset = imagenet(tmp_path, folder)
    with loaded(dataset, native=True) as native, loaded(dataset, native=False) as python:
        assert [b[1].tolist() for b in native] == [b[1].tolist() for b in python]


def test_single_samples(folder: Path) -> None:
    for native in (True, False):
        image, label = sample = next(iter(loaded(images(folder), None, native=native)))
        assert isinstance(sample, list)
        assert (image.shape, label) == ((3, 32, 40), 0)


def test_samplers_and_keywords_keep_it_native(folder: Path) -> None:
    dataset: Any = Subset(images(folder), range(40, 10, -1))
    for more in (
        {"sampler": torch.utils.data.RandomSampler(dataset)},
        {"sampler": [3, 5, 7]},
        {"batch_sampler": torch.utils.data.BatchSampler(range(9), 4, False), "batch_size": 1},
        {"weights": [1.0] * 30, "seed": 1},
        {"generator": torch.Generator().manual_seed(4), "shuffle": True},
        {"collate_fn": torch.utils.data.default_collate, "persistent_workers": True},
        {"multiprocessing_context": "spawn", "drop_last": True},
    ):
        with loaded(dataset, native=True, **more) as loader:
            for _, labels in loader:
                assert labels.tolist() == [dataset.dataset.samples[40 - i][1] for i in loader.facts.ids.tolist()]


def test_the_number_of_lanes(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for number, words in ((0, "native, 1 lane,"), (3, "native, 3 lanes,")):
        next(iter(loaded(images(folder), num_workers=number)))
        assert f"stoker: {words}" in capfd.readouterr().err
    loader: Any = stoker.DataLoader(images(folder))
    assert loader.num_workers == len(os.sched_getaffinity(0))


class MyAug:
    def __call__(self, image: Any) -> Any:
        return image


def jitter(image: Any) -> Any:
    return image


class Crop(v1.CenterCrop):  # type: ignore[misc]
    pass


class Mine(torchvision.datasets.ImageFolder):  # type: ignore[misc]
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


def to_tensors(*steps: Any) -> Any:
    return v1.Compose([v1.Resize((8, 8)), *steps, v1.ToTensor()])


UNKNOWN: dict[str, Any] = {
    "transform ElasticTransform is not known": to_tensors(v1.ElasticTransform()),
    "interpolation cannot be 'lanczos'": to_tensors(v1.Resize(8, v1.InterpolationMode.LANCZOS)),
    "Pillow takes other pixels": to_tensors(v1.Resize(8, v1.InterpolationMode.NEAREST)),
    "Resize is given a tensor of floats": v1.Compose([v1.ToTensor(), v1.Resize((8, 8))]),
    "ToDtype is given a PIL image": v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.ToImage()]),
    "Normalize is given a tensor of bytes": v2.Compose([v2.ToImage(), v2.Normalize(MEAN, STD)]),
    "RandomErasing is given a PIL image": to_tensors(v1.RandomErasing(1.0)),
    "RandomErasing is given a tensor of bytes": v2.Compose([v2.ToImage(), v2.RandomErasing(value="random")]),
    "floats of which some were erased": v1.Compose([v1.ToTensor(), v1.RandomErasing(), v1.RandomHorizontalFlip()]),
    "gives PIL images": v1.Resize((8, 8)),
    "it has no transform": None,
    "ToTensor in RandomApply changes the type": v1.RandomApply([v1.ToTensor()]),
}


@pytest.mark.parametrize("reason", UNKNOWN)
def test_transforms_for_python(reason: str, folder: Path) -> None:
    assert reason in (why(images(folder, UNKNOWN[reason])) or "")


def test_code_is_named_with_its_line(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def line(thing: type) -> str:
        number = next(
            i
            for i, text in enumerate(Path(__file__).read_text().splitlines(), 1)
            if text.startswith(f"class {thing.__name__}(") or text == f"class {thing.__name__}:"
        )
        return f"({os.path.relpath(__file__)}:{number})"

    own = images(folder, to_tensors(MyAug(), jitter))
    assert why(own) == f"transform MyAug {line(MyAug)} is not known"
    assert why(images(folder, to_tensors(jitter))) == f"transform jitter {here(jitter)} is not known"
    assert why(images(folder, to_tensors(Crop(8)))) == f"transform Crop {line(Crop)} is not known"
    unnamed = lambda image: image  # noqa: E731
    assert f"Lambda of test_code_is_named_with_its_line.<lambda> {here(unnamed)}" in str(
        why(images(folder, to_tensors(v1.Lambda(unnamed))))
    )
    assert f"Mine {line(Mine)} is a subclass of ImageFolder" in str(why(Mine(str(folder), SMALL)))
    assert f"Mine {line(Mine)} is a subclass" in str(why(Subset(Mine(str(folder), SMALL), [1, 2])))
    assert why(images(folder, target_transform=jitter)) == f"target_transform jitter {here(jitter)} is Python"
    assert why(images(folder, loader=jitter)) == f"loader jitter {here(jitter)} is not torchvision's own"
    assert why(images(folder), collate_fn=jitter) == f"collate_fn jitter {here(jitter)} is Python"
    assert why(images(folder), worker_init_fn=jitter) == f"worker_init_fn jitter {here(jitter)} is Python"
    capfd.readouterr()
    next(iter(loaded(own, num_workers=2)))
    told = capfd.readouterr().err
    assert f"stoker: 2 Python workers (fork), because transform MyAug {line(MyAug)} is not known" in told


def test_datasets_for_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "different transforms" in str(why(ConcatDataset([images(folder), images(folder, EVAL)])))
    other: Any = [1, 2]
    assert "makes its samples in Python" in str(why(ConcatDataset([images(folder), Subset(other, [0])])))
    assert why([1, 2]) == "list makes its samples in Python"
    odd = images(folder)
    odd.samples[3] = (odd.samples[3][0], -1)
    assert "the label -1" in str(why(odd))
    odd.samples[3] = (str(folder / "nothing.jpg"), 1)
    assert "the engine cannot read its files: " in str(why(odd))
    assert "indices of Subset" in str(why(Subset(images(folder), [99])))
    with monkeypatch.context() as patch:
        patch.setattr("PIL.ImageFile.LOAD_TRUNCATED_IMAGES", True)
        assert "LOAD_TRUNCATED_IMAGES" in str(why(images(folder)))
    with monkeypatch.context() as patch:
        patch.setattr(DatasetFolder, "__getitem__", Mine.__getitem__)
        assert "ImageFolder.__getitem__ was replaced by Mine.__getitem__" in str(why(images(folder)))
    assert why(images(folder)) is None
    assert why(images(folder), native=False) == "native=False was given"


def test_native_that_cannot_be(folder: Path) -> None:
    for dataset, reason in (
        (Mine(str(folder), SMALL), "native is True, but Mine .* is a subclass"),
        ([1, 2], "native is True, but list is not a dataset that the engine can read"),
    ):
        with pytest.raises(stoker.ConfigError, match=reason):
            loaded(dataset, native=True)
    with pytest.raises(stoker.ConfigError, match="native=False is for datasets whose samples Python makes"):
        loaded(stoker.ImageFolder(folder, SMALL), native=False)
    with pytest.raises(stoker.ConfigError, match="native is 'yes'"):
        loaded([1, 2], native="yes")


def test_changes_between_epochs(folder: Path) -> None:
    dataset = images(folder)
    with loaded(dataset) as loader:
        assert next(iter(loader))[0].shape == (7, 3, 32, 40)
        dataset.transform = EVAL
        assert next(iter(loader))[0].shape == (7, 3, 32, 32)
        dataset.samples = dataset.samples[::-5]
        assert len(list(loader)) == 2
        assert loader.facts.ids.tolist() == [7, 8, 9]
        dataset.transform = to_tensors(jitter)
        with pytest.raises(stoker.ConfigError, match=r"(?s)was changed after its loader was made.*transform jitter"):
            iter(loader)


def test_pickling(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for dataset in (images(folder), Subset(images(folder), range(9, 2, -1))):
        loader = loaded(dataset)
        packed = pickle.dumps(loader)
        want = [batch[1].tolist() for batch in loader]
        with monkeypatch.context() as patch:  # as on another machine
            patch.setenv("STOKER_CACHE", str(tmp_path / "elsewhere"))
            for table in (Path(os.environ["STOKER_CACHE"]) / "lists").glob("*"):
                table.unlink()
            with pickle.loads(packed) as other:
                assert [batch[1].tolist() for batch in other] == want


@pytest.mark.parametrize("choose", [lambda whole: whole, lambda whole: Subset(whole, range(44, 3, -1))])
def test_resume(choose: Callable[[Any], Any], folder: Path, tmp_path: Path) -> None:
    with loaded(choose(images(folder, TRAIN)), shuffle=True, seed=2) as loader:
        batches = list(loader)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        rest = list(iterator)
    assert len(rest) == len(batches) - 1
    moved = Path(shutil.copytree(folder, tmp_path / "moved"))  # the state does not depend on where the files are
    with loaded(choose(images(moved, TRAIN)), shuffle=True) as loader:
        loader.load_state_dict(state)
        for ours, theirs in zip(loader, rest, strict=True):
            assert torch.equal(ours[0], theirs[0])


def test_states_of_the_other_path(folder: Path) -> None:
    with loaded(images(folder)) as native, loaded(images(folder), native=False) as python:
        with pytest.raises(
            stoker.StateError, match=r"(?s)the engine read the dataset natively.*native=False was given"
        ):
            python.load_state_dict(native.state_dict())
        with pytest.raises(stoker.StateError, match=r"(?s)while Python made the samples.*native=False"):
            native.load_state_dict(python.state_dict())


def test_tables_in_the_cache_folder(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    lists = tmp_path / "lists"

    def made(first: int) -> set[str]:
        next(iter(loaded(Subset(images(folder), range(first, 30)))))
        return {path.name for path in lists.iterdir()}

    (one,) = made(1)
    time = (lists / one).stat().st_mtime_ns
    assert made(1) == {one}
    assert (lists / one).stat().st_mtime_ns == time
    assert len(made(2)) == 2
    os.utime(lists / one, (0, 0))
    assert len(made(3)) == 2
    assert not (lists / one).exists()
    monkeypatch.setattr(_native, "_KEPT_BYTES", 0)
    assert len(made(4)) == 3  # those of today stay
    (lists / one).write_text("half")  # of a disk that was full
    assert one in made(1)
    assert (lists / one).stat().st_size > 1000


def test_other_outputs_and_ranks(folder: Path) -> None:
    dataset = Subset(images(folder), range(20))
    for output in ("numpy", "torch"):
        shown = []
        for native in (True, False):
            labels: list[int] = []
            for rank in range(2):
                more: Any = {"rank": rank, "world_size": 2, "output": output, "native": native, "shuffle": True}
                with loaded(dataset, 4, seed=1, **more) as loader:
                    for batch in loader:
                        assert type(batch[0]).__module__.partition(".")[0] == output
                        labels += batch[1].tolist()
            shown.append(labels)
        assert shown[0] == shown[1]
        assert len(shown[0]) == 20

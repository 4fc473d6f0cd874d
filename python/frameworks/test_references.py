"""What torchvision's reference scripts do, with torch's import swapped: classification and detection."""

from __future__ import annotations

import bisect
import importlib.util
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate
from torch.utils.data.distributed import DistributedSampler
from torchvision import tv_tensors
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import stoker

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from conftest import PHOTOS

N, SIZE = 20, 3


def loaded(name: str) -> Any:
    """An example as a module."""
    path = Path(__file__).parents[2] / "examples" / "frameworks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # workers that are spawned look here
    spec.loader.exec_module(module)
    return module


script = loaded("torchvision_reference")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of several shapes."""
    root = tmp_path_factory.mktemp("classes")
    for photo in [photo for photo in PHOTOS if photo.name in ("chelsea.jpg", "coffee.jpg")]:
        (root / photo.stem).mkdir()
        with Image.open(photo) as whole:
            picture = whole.convert("RGB").resize((120, 100))
        for i in range(N // 2):
            width, height = ((60, 40), (40, 60), (50, 50), (90, 30), (64, 44))[i % 5]
            picture.crop((i, i, width + i, height + i)).save(root / photo.stem / f"{i}.jpg")
    return root


def hands(loader: Any) -> Any:
    return loader._settings.hands


# Classification.


@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v1"])
@pytest.mark.parametrize("policy", [None, *script.POLICIES])
def test_training_presets_are_native(folder: Path, policy: str | None, use_v2: bool) -> None:
    data = ImageFolder(str(folder), script.training_preset(24, policy, 0.5, use_v2))
    loader = stoker.DataLoader(data, 5, shuffle=True, seed=1)
    assert hands(loader) is None
    images, labels = next(iter(loader))
    assert (images.shape, images.dtype, labels.dtype) == ((5, 3, 24, 24), torch.float32, torch.int64)


@pytest.mark.parametrize("use_v2", [True, False], ids=["v2", "v1"])
def test_evaluation_is_torchvisions(folder: Path, use_v2: bool) -> None:
    """With the sampler of the script, which is torch's."""
    data = ImageFolder(str(folder), script.evaluation_preset(24, 28, use_v2))
    for rank in range(2):
        sampler = DistributedSampler(data, num_replicas=2, rank=rank, shuffle=False)
        ours = stoker.DataLoader(data, SIZE, sampler=sampler, num_workers=1)
        assert hands(ours) is None
        for (images, labels), (want, wanted) in zip(ours, DataLoader(data, SIZE, sampler=sampler), strict=True):
            assert torch.equal(labels, wanted)
            levels = (images - want).abs() * 0.225 * 255
            assert levels.max() < 1.01
            assert levels.mean() < 0.02


def of_ra(data: Any, rank: int) -> Any:
    return script.RASampler(len(data), rank, 2, repetitions=3, unit=4)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("how", ["engine", "workers"])
def test_repeated_augmentation(folder: Path, rank: int, how: str) -> None:
    """The same samples in the same order as torch's loader; the copies of a sample are other pictures."""
    data = ImageFolder(str(folder), script.training_preset(24, "ta_wide", 0.1, True))
    ours = stoker.DataLoader(
        data, SIZE, sampler=of_ra(data, rank), drop_last=True, seed=1, num_workers=1, native=how == "engine" or False
    )
    theirs = DataLoader(Numbers(data), SIZE, sampler=of_ra(data, rank), drop_last=True)
    for epoch in range(2):
        ours.set_epoch(epoch)
        theirs.sampler.set_epoch(epoch)
        pictures = defaultdict(list)
        for batch, want in zip(ours, theirs, strict=True):
            assert batch.ids.tolist() == want.tolist()
            for image, i in zip(batch[0], want.tolist(), strict=True):
                pictures[i].append(image.clone())
        assert not any(torch.equal(a, b) for same in pictures.values() for a, b in itertools.combinations(same, 2))


class Numbers(Dataset[int]):
    """The numbers of another dataset's samples."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> int:
        return index


mixing = script.mixup_or_cutmix(0.8, 1.0, 2)


def collate(batch: list[Any]) -> Any:
    """As the script has it."""
    return mixing(*default_collate(batch))


def test_mixup_in_the_collate_function(folder: Path) -> None:
    """Any number of workers gives the same; the samples are those of torch's loader."""
    data = ImageFolder(str(folder), script.training_preset(24, None, 0.0, True))
    found = {}
    for workers in (0, 2):
        loader = stoker.DataLoader(data, 4, shuffle=True, seed=1, num_workers=workers, collate_fn=collate)
        assert "collate_fn collate" in hands(loader).why
        found[workers] = [(images.clone(), labels.clone()) for images, labels in loader]
    for (images, labels), (more, others) in zip(found[0], found[2], strict=True):
        assert labels.shape == (4, 2)
        assert torch.equal(images, more)
        assert torch.equal(labels, others)
    probabilities = torch.cat([labels for _, labels in found[0]])
    assert torch.allclose(probabilities.sum(1), torch.ones(N))
    assert ((probabilities > 0.01) & (probabilities < 0.99)).any()
    native = stoker.DataLoader(data, 4, shuffle=True, seed=1, batch_transform=mixing)
    assert hands(native) is None
    assert next(iter(native))[1].shape == (4, 2)


# Detection.


class Boxes(Dataset[Any]):
    """Pictures with boxes, as the script's wrapped CocoDetection gives them."""

    def __init__(self, folder: Path, flip: float) -> None:
        self.files = ImageFolder(str(folder)).samples
        steps = [v2.PILToTensor(), v2.RandomHorizontalFlip(flip), v2.ToDtype(torch.float, scale=True)]
        self.transform = v2.Compose([v2.ToImage(), *steps[1:], v2.SanitizeBoundingBoxes(), v2.ToPureTensor()])

    def __len__(self) -> int:
        return len(self.files)

    def ratio(self, index: int) -> float:
        """Width by height, from the file's header."""
        with Image.open(self.files[index][0]) as picture:
            return picture.width / picture.height

    def __getitem__(self, index: int) -> Any:
        path, label = self.files[index]
        with Image.open(path) as file:
            picture = file.convert("RGB")
        corners = [[2 * i, 3, 2 * i + 9, 20] for i in range(1 + index % 3)]
        boxes = tv_tensors.BoundingBoxes(corners, format="XYXY", canvas_size=(picture.height, picture.width))
        target = {"boxes": boxes, "labels": torch.full((len(corners),), label), "image_id": index}
        return self.transform(picture, target)


class GroupedBatchSampler(Sampler[list[int]]):
    """Batches of pictures of one group, each as soon as it is full; groups that stay short are filled up again."""

    def __init__(self, sampler: Any, groups: list[int], size: int) -> None:
        self.sampler, self.groups, self.size = sampler, groups, size

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.sampler) // self.size

    def __iter__(self) -> Iterator[list[int]]:
        waiting, seen = defaultdict(list), defaultdict(list)
        given = 0
        for i in self.sampler:
            group = self.groups[i]
            waiting[group].append(i)
            seen[group].append(i)
            if len(waiting[group]) == self.size:
                given += 1
                yield waiting.pop(group)
        for group, short in sorted(waiting.items(), key=lambda one: -len(one[1])):
            if given < len(self):
                given += 1
                yield (short + seen[group] * self.size)[: self.size]


def grouped(data: Boxes, rank: int) -> GroupedBatchSampler:
    """By ratio, in bins as the script's create_aspect_ratio_groups makes them for k=2."""
    bins = [2 ** (i / 2 - 1) for i in range(5)]
    groups = [bisect.bisect_right(bins, data.ratio(i)) for i in range(len(data))]
    sampler = DistributedSampler(data, num_replicas=2, rank=rank, seed=4)
    return GroupedBatchSampler(sampler, groups, 2)


def zipped(batch: list[Any]) -> Any:
    return tuple(zip(*batch, strict=True))


def same(found: Any, want: Any) -> bool:
    if isinstance(want, torch.Tensor):
        return type(found) is type(want) and torch.equal(found, want)
    if isinstance(want, dict):
        return found.keys() == want.keys() and all(same(found[key], want[key]) for key in want)
    if isinstance(want, (tuple, list)):
        return len(found) == len(want) and all(map(same, found, want))
    return bool(found == want)


def detecting(data: Boxes, rank: int, workers: int) -> stoker.DataLoader[Any]:
    keywords: Any = {"batch_sampler": grouped(data, rank), "num_workers": workers, "collate_fn": zipped}
    return stoker.DataLoader(data, **keywords, seed=1, rank=rank, world_size=2)


@pytest.mark.parametrize("workers", [0, 2])
def test_detection_is_torchs(folder: Path, workers: int) -> None:
    """Lists of pictures of several sizes, and of dicts with boxes."""
    data = Boxes(folder, flip=1.0)
    for rank in range(2):
        ours = detecting(data, rank, workers)
        theirs = DataLoader(data, batch_sampler=grouped(data, rank), collate_fn=zipped)
        assert len(ours) == len(theirs) == N // 4
        for epoch in range(2):
            ours.set_epoch(epoch)
            theirs.batch_sampler.set_epoch(epoch)
            batches = 0
            for (images, targets), want in zip(ours, theirs, strict=True):
                assert len({image.shape for image in images}) <= 2  # of a bin
                assert same((tuple(images), tuple(targets)), want)
                batches += 1
            assert batches == N // 4


def test_detection_goes_on(folder: Path) -> None:
    """From the state of rank 0, on both ranks, with the same flips."""
    data = Boxes(folder, flip=0.5)
    want, states = [], []
    for rank in range(2):
        loader = detecting(data, rank, 2)
        loader.set_epoch(1)
        batches = []
        for images, targets in loader:
            batches.append(([image.clone() for image in images], [dict(target) for target in targets]))
            if len(batches) == 2:
                states.append(loader.state_dict())
        want.append(batches[2:])
    for rank in range(2):
        loader = detecting(data, rank, 0)
        loader.load_state_dict(states[0])
        found = [([*images], [*targets]) for images, targets in loader]
        assert same(found, want[rank])

"""Several views of a picture: Views of stoker.transforms, and objects like MoCo's TwoCropsTransform."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from forms import param
from torch.utils.data import default_collate
from torchvision import transforms as v1
from torchvision.transforms import v2

import stoker
from stoker import transforms as T
from stoker._compile import to_ops
from stoker._errors import ConfigError
from stoker._split import split
from stoker._views import views_of

BIG = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor()])
SMALL = [T.RandomResizedCrop(8, scale=(0.05, 0.3)), T.RandomGrayscale(0.5), T.ToTensor()]
THEIRS = v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), v1.ToTensor()])
PYTHON = v1.Compose([v1.RandomResizedCrop(24), v1.ElasticTransform(), v1.ToTensor()])


# Classes as their projects write them.


class TwoCropsTransform:
    """MoCo"""

    def __init__(self, base_transform: Any) -> None:
        self.base_transform = base_transform

    def __call__(self, x: Any) -> Any:
        q = self.base_transform(x)
        k = self.base_transform(x)
        return [q, k]


class TwoTransforms:
    """Barlow Twins, VICReg"""

    def __init__(self, one: Any, other: Any) -> None:
        self.transform = one
        self.transform_prime = other

    def __call__(self, sample: Any) -> Any:
        x1 = self.transform(sample)
        x2 = self.transform_prime(sample)
        return x1, x2


class ContrastiveLearningViewGenerator:
    """SimCLR"""

    def __init__(self, base_transform: Any, n_views: int = 2) -> None:
        self.base_transform = base_transform
        self.n_views = n_views

    def __call__(self, x: Any) -> Any:
        return [self.base_transform(x) for i in range(self.n_views)]


class DataAugmentationDINO:
    """DINO"""

    def __init__(self, big: Any, small: Any, local_crops_number: int) -> None:
        self.global_transfo1 = big
        self.global_transfo2 = big
        self.local_crops_number = local_crops_number
        self.local_transfo = small

    def __call__(self, image: Any) -> Any:
        crops = []
        crops.append(self.global_transfo1(image))
        crops.append(self.global_transfo2(image))
        for _ in range(self.local_crops_number):
            crops.append(self.local_transfo(image))
        return crops


class MultiViewTransform:
    """lightly"""

    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        return [transform(image) for transform in self.transforms]


class FullPipeline:
    """solo-learn"""

    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, x: Any) -> Any:
        out = []
        for transform in self.transforms:
            out.extend(transform(x))
        return out


class AsModule(torch.nn.Module):
    def __init__(self, base: Any, last: Any) -> None:
        super().__init__()
        self.base = base
        self.last = last

    def forward(self, x: Any) -> Any:
        return tuple(self.last(self.base(x)) for _ in range(2))


KNOWN = {
    "MoCo": (TwoCropsTransform(THEIRS), [[THEIRS]] * 2),
    "Barlow Twins": (TwoTransforms(THEIRS, BIG), [[THEIRS], [BIG]]),
    "SimCLR": (ContrastiveLearningViewGenerator(THEIRS, 3), [[THEIRS]] * 3),
    "DINO": (DataAugmentationDINO(THEIRS, BIG, 3), [[THEIRS]] * 2 + [[BIG]] * 3),
    "lightly": (MultiViewTransform([THEIRS, BIG]), [[THEIRS], [BIG]]),
    "solo-learn": (
        FullPipeline([ContrastiveLearningViewGenerator(THEIRS, 2), ContrastiveLearningViewGenerator(BIG, 1)]),
        [[THEIRS]] * 2 + [[BIG]],
    ),
    "a module, one after another": (AsModule(THEIRS, flip := v2.RandomHorizontalFlip()), [[THEIRS, flip]] * 2),
}


@pytest.mark.parametrize("name", KNOWN)
def test_objects_that_only_hold_transforms_are_views(name: str) -> None:
    given, want = KNOWN[name]
    found = views_of(given)
    assert found is not None
    assert [[id(step) for step in view] for view in found] == [[id(step) for step in view] for view in want]


class Chance(TwoCropsTransform):
    def __call__(self, x: Any) -> Any:
        if random.random() < 0.5:
            return [self.base_transform(x), self.base_transform(x)]
        return [self.base_transform(x)]


class Counted(TwoCropsTransform):
    n = 0

    def __call__(self, x: Any) -> Any:
        self.n += 1
        return [self.base_transform(x), self.base_transform(x)]


class Looked(TwoCropsTransform):
    def __call__(self, x: Any) -> Any:
        if x.size[0] > 100:
            return [self.base_transform(x), self.base_transform(x)]
        return [self.base_transform(x)]


class Kept(TwoCropsTransform):
    def __init__(self, base_transform: Any) -> None:
        super().__init__(base_transform)
        self.kept: list[Any] = []

    def __call__(self, x: Any) -> Any:
        self.kept.append(self.base_transform(x))
        return self.kept


class Stacked(TwoCropsTransform):
    def __call__(self, x: Any) -> Any:
        return torch.stack([self.base_transform(x), self.base_transform(x)])


class Single(TwoCropsTransform):
    def __call__(self, x: Any) -> Any:
        return self.base_transform(x)


class Nested(TwoCropsTransform):
    def __call__(self, x: Any) -> Any:
        return [[self.base_transform(x)], self.base_transform(x)]


class Generated(TwoCropsTransform):
    def __call__(self, x: Any) -> Any:
        yield self.base_transform(x)


class Branching(TwoCropsTransform):
    def __call__(self, x: Any) -> Any:
        return [self.base_transform(x)] if x else []


class Strange(TwoCropsTransform):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@pytest.mark.parametrize("cls", [Chance, Counted, Looked, Kept, Stacked, Single, Nested, Generated, Branching, Strange])
def test_anything_else_is_python(cls: Any) -> None:
    assert views_of(cls(THEIRS)) is None
    ops, tail = split([v1.Resize(30), cls(THEIRS)], "here")
    assert [op["op"] for op in ops] == ["Resize"]
    assert tail is not None


@pytest.mark.parametrize(
    "value", [None, 3, "x", len, TwoCropsTransform, THEIRS, v1.FiveCrop(3), lambda x: [x, x], torch.nn.Identity()]
)
def test_things_that_are_no_views(value: Any) -> None:
    assert views_of(value) is None


def test_a_replaced_method_is_python() -> None:
    wrapped = TwoCropsTransform(THEIRS)
    wrapped.__call__ = lambda x: x  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="replaced"):
        to_ops(wrapped, "here")


# Batches.


def test_a_batch_has_a_list_of_views(folder: Path) -> None:
    data = stoker.ImageFolder(folder, T.Views(BIG, BIG, SMALL))
    assert data.fields == ["image", "label"]
    batch = next(iter(stoker.DataLoader(data, batch_size=4)))
    views, labels = batch
    assert isinstance(views, list)
    assert [tuple(view.shape) for view in views] == [(4, 3, 24, 24), (4, 3, 24, 24), (4, 3, 8, 8)]
    assert not torch.equal(views[0], views[1])
    assert labels.tolist() == data.targets[:4]
    sample, label = data[1]
    assert label == labels[1]
    assert all(torch.equal(one, all_[1]) for one, all_ in zip(sample, views, strict=True))
    dicts = next(iter(stoker.DataLoader(data.select("image"), batch_size=2, output="numpy")))
    assert list(dicts) == ["image"]
    assert [view.shape for view in dicts["image"]] == [(2, 3, 24, 24)] * 2 + [(2, 3, 8, 8)]
    (single, _), *_ = stoker.DataLoader(data, batch_size=None)
    assert [tuple(view.shape) for view in single] == [(3, 24, 24), (3, 24, 24), (3, 8, 8)]


def test_view_0_is_what_the_picture_would_be_alone(folder: Path) -> None:
    both = next(iter(stoker.DataLoader(stoker.ImageFolder(folder, T.Views(BIG, BIG)), 4, seed=5)))
    alone = next(iter(stoker.DataLoader(stoker.ImageFolder(folder, BIG), 4, seed=5)))
    assert torch.equal(both[0][0], alone[0])


def test_steps_before_the_views(folder: Path) -> None:
    data = stoker.ImageFolder(folder, [T.Resize((40, 50)), T.Views([T.CenterCrop(30)], None)])
    views, _ = next(iter(stoker.DataLoader(data, 2)))
    assert [tuple(view.shape) for view in views] == [(2, 3, 30, 30), (2, 3, 40, 50)]
    assert torch.equal(views[0], views[1][:, :, 5:35, 10:40])


def test_explain_lists_each_views_choices(folder: Path) -> None:
    loader = stoker.DataLoader(stoker.ImageFolder(folder, T.Views(BIG, SMALL)), 2)
    choices = loader.explain(0)["rows"][0]["choices"]
    assert {name: [one["op"] for one in ops] for name, ops in choices.items()} == {
        "image_0": ["RandomResizedCrop", "RandomHorizontalFlip"],
        "image_1": ["RandomResizedCrop", "RandomGrayscale"],
    }


def test_a_cache_and_a_state_change_nothing(folder: Path) -> None:
    data = stoker.ImageFolder(folder, T.Views(BIG, SMALL))

    def epoch(loader: Any) -> list[Any]:
        return [view.clone() for views, _ in loader for view in views]

    plain, cached = (stoker.DataLoader(d, 4, shuffle=True, seed=3) for d in (data, data.cache("64MiB")))
    for _ in range(2):
        want = epoch(plain)
        assert all(torch.equal(a, b) for a, b in zip(want, epoch(cached), strict=True))
    begun = iter(plain)
    next(begun)
    again = stoker.DataLoader(data, 4, shuffle=True, seed=3)
    again.load_state_dict(plain.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(epoch(again), epoch(begun), strict=True))


def test_webdataset(shards: str) -> None:
    data = stoker.WebDataset(shards).decode("pil").to_tuple("jpg", "cls")
    views, labels = next(iter(stoker.DataLoader(data.map_tuple(T.Views(BIG, SMALL), None), 3)))
    assert [tuple(view.shape) for view in views] == [(3, 3, 24, 24), (3, 3, 8, 8)]
    assert labels.shape == (3,)
    pil = data.map_tuple(T.Views([T.CenterCrop(9)], [T.CenterCrop(5)]), None)
    sizes = pil.map(lambda sample: [view.size[0] for view in sample[0]])
    assert next(iter(stoker.DataLoader(sizes, batch_size=None, num_workers=1))) == [9, 5]


# Python.


def test_functions_get_the_list(folder: Path) -> None:
    data = stoker.ImageFolder(folder, T.Views(BIG, SMALL))
    mapped = data.map(lambda views, label: (views[0].mean() + len(views), label))
    means, _ = next(iter(stoker.DataLoader(mapped, 4, num_workers=1)))
    views, _ = next(iter(stoker.DataLoader(data, 4)))
    assert torch.allclose(means, views[0].mean((1, 2, 3)) + 2)


@pytest.mark.parametrize(
    "transform", [param(T.Views(PYTHON, BIG)), TwoTransforms(PYTHON, THEIRS)], ids=["ours", "theirs"]
)
def test_views_with_an_unknown_step_run_in_python(folder: Path, transform: Any) -> None:
    loader: Any = stoker.DataLoader(stoker.ImageFolder(folder, transform), 4, num_workers=1)
    name = type(transform).__name__
    assert loader._settings.hands.why == f"transform ElasticTransform is not known, in {name}"
    views, _ = next(iter(loader))
    assert type(views) is list
    assert [tuple(view.shape) for view in views] == [(4, 3, 24, 24)] * 2
    assert views[0].dtype == views[1].dtype == torch.float32


def test_what_draws_before_the_views_draws_once(folder: Path) -> None:
    steps = [T.RandomHorizontalFlip(), T.RandomCrop(20), T.Views([T.ToTensor()], [T.ToTensor()])]
    loader: Any = stoker.DataLoader(stoker.ImageFolder(folder, steps), 4, num_workers=1)
    assert "may draw, once for all views" in loader._settings.hands.why
    views, _ = next(iter(loader))
    assert torch.equal(views[0], views[1])


def test_colours_of_floats_in_a_view_are_python(folder: Path) -> None:
    late = v1.Compose([v1.CenterCrop(8), v1.ToTensor(), v1.ColorJitter(0.4)])
    early = v1.Compose([v1.CenterCrop(8), v1.ColorJitter(0.4), v1.ToTensor()])
    for steps, why in (
        (T.Views(early, late), "a colour transform in Views is given floats"),
        ([v1.CenterCrop(8), v1.ToTensor(), T.Views([v1.ColorJitter(0.4)], None)], "a colour transform in Views"),
        (T.Views(early, early), None),
    ):
        loader: Any = stoker.DataLoader(stoker.ImageFolder(folder, steps), 4, num_workers=1)
        hands = loader._settings.hands
        assert hands is None if why is None else why in hands.why
        views, _ = next(iter(loader))
        assert [tuple(view.shape) for view in views] == [(4, 3, 8, 8)] * 2


def test_steps_after_the_views_are_python(folder: Path) -> None:
    steps = [T.Views([T.CenterCrop(6), T.ToTensor()], [T.CenterCrop(6), T.ToTensor()]), v1.Lambda(torch.stack)]
    loader: Any = stoker.DataLoader(stoker.ImageFolder(folder, steps), 4, num_workers=1)
    assert "follows Views" in loader._settings.hands.why
    assert next(iter(loader))[0].shape == (4, 2, 3, 6, 6)


def test_torchvisions_dataset_with_two_crops_is_read_natively(folder: Path) -> None:
    still = v1.Compose([v1.Resize((32, 40)), v1.ToTensor()])
    two = TwoTransforms(still, v1.Compose([v1.CenterCrop(9), v1.ToTensor()]))
    data = torchvision.datasets.ImageFolder(str(folder), two)
    loader: Any = stoker.DataLoader(data, 4)
    assert loader._settings.hands is None
    batch = next(iter(loader))
    want = default_collate([data[i] for i in range(4)])
    assert type(batch[0]) is type(want[0]) is list
    for mine, theirs in zip(batch[0], want[0], strict=True):
        assert torch.allclose(mine, theirs, atol=1.01 / 255)
    assert torch.equal(batch[1], want[1])
    bad: Any = torchvision.datasets.ImageFolder(str(folder), TwoTransforms(still, PYTHON))
    loader = stoker.DataLoader(bad, 4, num_workers=1)
    assert "ElasticTransform is not known, in TwoTransforms" in loader._settings.hands.why


def test_views_can_be_called_and_pickled(folder: Path) -> None:
    views = T.Views(THEIRS, [v1.CenterCrop(5), v1.ToTensor()], None)
    data = torchvision.datasets.ImageFolder(str(folder), views)
    first, second, third = data[0][0]
    assert (tuple(first.shape), tuple(second.shape)) == ((3, 24, 24), (3, 5, 5))
    assert third.mode == "RGB"
    with pytest.raises(ConfigError, match="cannot be called"):
        T.Views(BIG)(third)
    assert to_ops(pickle.loads(pickle.dumps(T.Views(BIG, SMALL))), "here") == to_ops(T.Views(BIG, SMALL), "here")
    assert repr(T.Views(T.ToTensor())) == "Views(\n      ToTensor()\n)"


# Mistakes.


@pytest.mark.parametrize(
    ("transform", "what"),
    [
        ([T.Views(BIG), T.Grayscale()], "Grayscale follows the views"),
        ([T.RandomCrop(8), T.Views(BIG)], "RandomCrop comes before the views"),
        (T.Views(BIG, [T.Views(SMALL, BIG)]), "views in views"),
        (T.RandomApply([T.Views(BIG)]), "views in RandomApply"),
        (T.Views(BIG, T.Resize), "in view 2 of transform"),
    ],
)
def test_to_ops_says_what_is_wrong(transform: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        to_ops(transform, "here")


def test_wrong_arguments() -> None:
    for given in ([], [[BIG, BIG]]):
        with pytest.raises(ConfigError, match="Views"):
            T.Views(*given)
    with pytest.raises(ConfigError, match="transform makes views"):
        stoker.pack("data", "packed", transform=T.Views(BIG), augment=2)

"""timm's datasets and samplers under stoker.DataLoader, and stoker.timm.create_loader in place of timm's."""

from __future__ import annotations

import inspect
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import timm.data
import torch
from PIL import Image
from timm.data import AugMixDataset, FastCollateMixup, ImageDataset, Mixup, create_dataset, create_transform
from timm.data.dataset import IterableImageDataset
from timm.data.distributed_sampler import OrderedDistributedSampler, RepeatAugSampler
from timm.data.random_erasing import RandomErasing
from torchvision import transforms as v1

import stoker
from stoker.timm import create_loader

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from conftest import PHOTOS

CPU = torch.device("cpu")
N = 22


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Classes and files whose numbers sort otherwise as texts."""
    root = tmp_path_factory.mktemp("pictures")
    with Image.open(next(photo for photo in PHOTOS if photo.name == "chelsea.jpg")) as photo:
        picture = photo.convert("RGB").resize((80, 64))
    for i in range(N):
        path = root / f"class{(2, 10)[i % 2]}" / f"{i}.jpg"
        path.parent.mkdir(exist_ok=True)
        picture.crop((i, i, 40 + i, 36 + i)).save(path)
    return root


def hands(loader: Any) -> Any:
    return loader._settings.hands


def opened(folder: Any, **more: Any) -> Any:
    torch.manual_seed(4)
    dataset = create_dataset("", root=str(folder)) if isinstance(folder, Path) else folder
    usual = {"batch_size": 4, "is_training": True, "num_workers": 1, "device": CPU}
    return create_loader(dataset, (3, 32, 32), **{**usual, **more})


def batches(loader: Any) -> list[tuple[list[int], torch.Tensor, torch.Tensor]]:
    return [(batch.ids.tolist(), batch[0].clone(), batch[1].clone()) for batch in loader]


def same(found: list[Any], want: list[Any]) -> bool:
    pairs = list(zip(found, want, strict=True))
    return all(a[0] == b[0] and torch.equal(a[1], b[1]) and torch.equal(a[2], b[2]) for a, b in pairs)


# Datasets.


def test_its_image_dataset_is_native(folder: Path) -> None:
    """With the samples, the order and the labels that its reader has."""
    theirs = create_dataset("", root=str(folder))
    theirs.transform = create_transform(32)
    loader = stoker.DataLoader(theirs, 8)
    assert hands(loader) is None
    at = 0
    for images, labels in loader:
        for image, label in zip(images, labels.tolist(), strict=True):
            want, number = theirs[at]
            assert label == number
            assert ((image - want).abs() * 0.225 * 255).max() < 1.01
            at += 1
    assert at == N


def test_a_transform_that_is_assigned_later_is_used(folder: Path) -> None:
    theirs = create_dataset("", root=str(folder))
    theirs.transform = create_transform(32)
    loader = stoker.DataLoader(theirs, 8)
    assert next(iter(loader))[0].shape[-1] == 32
    theirs.transform = create_transform(24, is_training=True)
    images, _ = next(iter(loader))
    assert images.shape[-1] == 24
    theirs.transform = create_transform(24, is_training=True, auto_augment="rand-m9")  # is Python
    with pytest.raises(stoker.ConfigError, match="RandAugment of timm is not known"):
        next(iter(loader))
    without = create_dataset("", root=str(folder))
    loader = stoker.DataLoader(without, 8)  # nothing is known of it yet
    without.transform = create_transform(32)
    assert next(iter(loader))[0].shape == (8, 3, 32, 32)


class Greyer(ImageDataset):  # type: ignore[misc, no-any-unimported, unused-ignore]
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


def listed(root: Path) -> Any:
    """A reader of the user's own."""
    reader = create_dataset("", root=str(root)).reader
    return [(open(path, "rb"), label) for path, label in reader.samples]


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda root: ImageDataset(str(root), input_img_mode="L"), "its input_img_mode is 'L'"),
        (lambda root: ImageDataset(str(root), target_transform=int), "target_transform int is Python"),
        (lambda root: ImageDataset(str(root), reader=listed(root)), "its reader list is Python"),
        (lambda root: Greyer(str(root)), "Greyer"),
    ],
    ids=["mode", "targets", "reader", "subclass"],
)
def test_what_its_dataset_does_otherwise_is_python(folder: Path, made: Any, why: str) -> None:
    dataset = made(folder)
    dataset.transform = v1.Compose([v1.Resize((8, 8)), v1.ToTensor()])
    loader = stoker.DataLoader(dataset, 4)
    assert why in hands(loader).why
    images, labels = next(iter(loader))
    with Image.open(create_dataset("", root=str(folder)).reader.samples[0][0]) as picture:
        want = dataset.transform(picture.convert(dataset.input_img_mode))
    assert torch.equal(images[0], want)
    assert len(labels) == 4


def test_a_damaged_file_is_an_error_unless_it_is_to_be_replaced(folder: Path, tmp_path: Path) -> None:
    """timm takes the next sample, with a warning."""
    for path in folder.glob("*/*.jpg"):
        (tmp_path / path.parent.name).mkdir(exist_ok=True)
        (tmp_path / path.parent.name / path.name).write_bytes(path.read_bytes())
    (tmp_path / "class2" / "4.jpg").write_bytes(b"no picture")
    dataset = create_dataset("", root=str(tmp_path))
    dataset.transform = create_transform(32)
    with pytest.raises(stoker.DataError, match=r"4\.jpg"):
        list(stoker.DataLoader(dataset, 4))
    assert sum(int(batch.valid.sum()) for batch in stoker.DataLoader(dataset, 4, on_bad="replace")) == N


class Reader:
    """A stream of samples."""

    def __init__(self, root: Path) -> None:
        self.samples = create_dataset("", root=str(root)).reader.samples

    def __iter__(self) -> Any:
        for path, label in self.samples:
            yield Image.open(path).convert("RGB"), label

    def __len__(self) -> int:
        return len(self.samples)


def test_a_stream_of_timms(folder: Path) -> None:
    dataset = IterableImageDataset(str(folder), reader=Reader(folder))
    loader = opened(dataset, is_training=False, num_workers=0)
    labels = [label for _, labels in loader for label in labels.tolist()]
    assert labels == [label for _, label in dataset.reader.samples]


def test_splits_for_augmix(folder: Path) -> None:
    """The first split is clean, and comes first in the batch."""
    given = {"num_aug_splits": 3, "auto_augment": "augmix-m5-w2", "num_workers": 0, "hflip": 0.0, "re_prob": 1.0}
    loader = opened(AugMixDataset(create_dataset("", root=str(folder)), 3), re_split=True, **given)
    images, labels = next(iter(loader))
    assert images.shape == (12, 3, 32, 32)
    assert labels.tolist() == labels[:4].tolist() * 3
    assert not (images[:4] == 0).all(1).any()  # not erased
    assert (images[4:] == 0).all(1).flatten(1).any(1).all()


# Erasing.


def test_erasing_has_timms_law(folder: Path) -> None:
    """Shares of the area, in pictures that are one colour."""
    theirs = RandomErasing(0.6, max_area=0.25, device="cpu")
    dataset = stoker.ImageFolder(
        folder, [v1.CenterCrop(24), v1.ToTensor(), v1.Normalize([-5.0] * 3, [1.0] * 3), theirs]
    )
    shares = []
    for epoch in range(20):
        loader = stoker.DataLoader(dataset, N, seed=epoch)
        assert hands(loader) is None
        shares.append((next(iter(loader))[0] == 0).all(1).float().mean((1, 2)))
    ours = torch.cat(shares)
    want = torch.stack([(theirs(torch.ones(3, 24, 24)) == 0).all(0).float().mean() for _ in range(len(ours))])
    print(
        f"\nerased: {(ours > 0).float().mean():.3f}, {ours[ours > 0].mean():.3f} of the area; "
        f"timm {(want > 0).float().mean():.3f}, {want[want > 0].mean():.3f}"
    )
    assert abs((ours > 0).float().mean() - 0.6) < 0.1  # four deviations
    assert abs(ours[ours > 0].mean() - want[want > 0].mean()) < 0.02
    assert ours[ours > 0].min() > 0.01
    assert ours.max() < 0.27


# create_loader.


def test_every_argument_of_timms_is_read_or_refused() -> None:
    from stoker import timm as ours

    known = ours._READ | ours._OF_TRANSFORM | ours._OF_PREFETCHER | ours._NO_EFFECT
    refused = set(inspect.signature(timm.data.create_loader).parameters) - known
    assert refused == {
        "worker_seeding",
        "input_size_choices",
        "batch_size_choices",
        "batch_choice_weights",
        "batch_choice_seed",
        "batch_choice_schedule",
        "batch_schedule_epochs",
        "batch_schedule_spread",
        "batch_schedule_random_mix",
        "num_batches",
    }


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"worker_seeding": "part"}, "worker_seeding='part' is not supported"),
        ({"input_size_choices": [32, 64]}, "take timm's own create_loader"),
        ({"num_aug_repeats": 3}, "several ranks"),
    ],
)
def test_what_it_refuses(folder: Path, more: dict[str, Any], what: str) -> None:
    with pytest.raises(stoker.ConfigError, match=what):
        opened(folder, **more)


@pytest.mark.parametrize("prefetcher", [True, False])
def test_evaluation_is_timms(folder: Path, prefetcher: bool) -> None:
    given = {"use_prefetcher": prefetcher, "is_training": False, "interpolation": "bicubic", "crop_pct": 0.9}
    ours = opened(folder, **given)
    dataset = create_dataset("", root=str(folder))
    theirs = timm.data.create_loader(dataset, (3, 32, 32), 4, num_workers=0, device=CPU, **given)
    assert len(ours) == len(theirs)
    for (images, labels), (want, wanted) in zip(ours, theirs, strict=True):
        assert torch.equal(labels, wanted)
        assert ((images - want).abs() * 0.225 * 255).max() < 1.01


@pytest.mark.parametrize(
    "more",
    [
        {"re_prob": 0.5, "re_mode": "pixel"},
        {"re_prob": 0.5, "use_prefetcher": False},
        {"auto_augment": "rand-m9-mstd0.5-inc1", "num_workers": 0},
    ],
    ids=["prefetcher", "floats", "Python"],
)
def test_its_state_is_that_of_the_loop(folder: Path, more: dict[str, Any]) -> None:
    """From each batch on, a new loader gives the rest, erasing and all."""
    whole = opened(folder, **more)
    want, states, receipts = [], [], []
    for batch in whole:
        want.append((batch.ids.tolist(), batch[0].clone(), batch[1].clone()))
        states.append(whole.state_dict())
        receipts.append(whole.receipt())
    assert len(want) == N // 4
    assert [state["position"] for state in states] == [4, 8, 12, 16, 20]
    assert [receipt["parts"][-1]["to"] for receipt in receipts] == [4, 8, 12, 16, 20]
    for at in (1, 3):
        rest = opened(folder, **more)
        rest.load_state_dict(states[at - 1])
        rest.sampler.set_epoch(0)
        assert same(batches(rest), want[at:])
    whole.set_epoch(5)
    again = iter(whole)
    next(again)
    del again  # the loop broke off
    assert (whole.state_dict()["epoch"], whole.state_dict()["position"]) == (5, 4)


def test_erasing_leaves_the_scripts_generators_alone(folder: Path) -> None:
    import random

    loader = opened(folder, re_prob=1.0, re_mode="pixel")
    random.seed(1), torch.manual_seed(1)
    before = random.getstate(), torch.get_rng_state()
    next(iter(loader))
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_mixup_as_collate_function(folder: Path) -> None:
    """Its numbers are keyed; mixup_enabled = False reaches workers."""
    given = {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "num_classes": 2}
    found = {}
    for workers in (0, 2):
        loader = opened(folder, num_workers=workers, collate_fn=FastCollateMixup(**given))
        assert loader.mixup_enabled
        found[workers] = batches(loader)
        loader.mixup_enabled = False
        ((_, labels), *_) = loader
        assert set(labels.flatten().tolist()) == {labels.max().item(), labels.min().item()}
        assert labels.max() == pytest.approx(0.95)
    assert same(found[0], found[2])
    mixed = torch.cat([labels for _, _, labels in found[0]])
    assert ((mixed > 0.06) & (mixed < 0.94)).any()


def test_mixup_as_batch_transform(folder: Path) -> None:
    mixup = Mixup(mixup_alpha=0.8, num_classes=2)
    dataset = create_dataset("", root=str(folder))
    dataset.transform = create_transform(32, is_training=True)
    loader = stoker.DataLoader(dataset, 4, batch_transform=lambda batch: mixup(*batch))
    for images, labels in loader:
        assert images.dtype == labels.dtype == torch.float32
        assert torch.allclose(labels.sum(1), torch.ones(len(labels)))


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("kind", [RepeatAugSampler, OrderedDistributedSampler])
def test_its_samplers(folder: Path, kind: Any, rank: int) -> None:
    """The ids are those of torch's loader, in every epoch."""
    dataset = create_dataset("", root=str(folder))
    dataset.transform = create_transform(32)
    ids, want = [], []
    ours = stoker.DataLoader(dataset, 3, sampler=kind(dataset, num_replicas=2, rank=rank))
    assert hands(ours) is None
    theirs = kind(dataset, num_replicas=2, rank=rank)
    for epoch in range(2):
        for sampler in (ours.sampler, theirs):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
        ids += [i for batch in ours for i in batch.ids.tolist()]
        want += list(theirs)
    assert ids == want


@pytest.fixture(autouse=True)
def quiet() -> Any:
    logger = logging.getLogger("stoker")
    before = logger.level
    logger.setLevel(logging.WARNING)
    yield
    logger.setLevel(before)

"""The recipes, as their authors write them. Both loaders get what is made here; only the size of pictures is smaller.

resnet50   torchvision's reference for ResNet-50: TrivialAugmentWide, RandomErasing, MixUp or CutMix
vit        torchvision's reference for ViT: bicubic crop, RandAugment, MixUp or CutMix
deit       DeiT's call of timm's create_transform (RandAugment on PIL images, RandomErasing), and timm's Mixup
timm       create_transform with what has no part of timm's own: bicubic crop, flip, ColorJitter; and timm's Mixup
simclr     SimCLR's two views: crop, flip, ColorJitter, grey, blur; NT-Xent

With plain=True, a recipe lacks its colours, warps and erasing. What is said about two curves is worth something only if
the same rule tells these apart (judge.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torchvision import transforms as v1
from torchvision.transforms import v2
from torchvision.transforms.functional import InterpolationMode

from bench.consumer import MEAN, STD
from bench.recipes.models import SmallNet, SmallViT, nt_xent


class TwoCropsTransform:
    """Two random views of one picture, as MoCo's and SimCLR's code has it."""

    def __init__(self, base_transform: Any) -> None:
        self.base_transform = base_transform

    def __call__(self, x: Any) -> Any:
        q = self.base_transform(x)
        k = self.base_transform(x)
        return [q, k]


def _preset(size: int, interpolation: InterpolationMode, policy: Any, erase: float) -> Any:
    """ClassificationPresetTrain of torchvision's references, with v2 and PIL images."""
    steps = [
        v2.RandomResizedCrop(size, interpolation=interpolation, antialias=True),
        v2.RandomHorizontalFlip(0.5),
        *([] if policy is None else [policy]),
        v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(mean=MEAN, std=STD),
        *([v2.RandomErasing(p=erase)] if erase else []),
        v2.ToPureTensor(),
    ]
    return v2.Compose(steps)


def _resnet50(size: int, plain: bool) -> Any:
    mode = InterpolationMode.BILINEAR
    if plain:
        return _preset(size, mode, None, 0)
    return _preset(size, mode, v2.TrivialAugmentWide(interpolation=mode), 0.1)


def _vit(size: int, plain: bool) -> Any:
    mode = InterpolationMode.BICUBIC
    # Its own interpolation stays "nearest": torchvision's kernels have no bicubic warps, only PIL has.
    return _preset(size, mode, None if plain else v2.RandAugment(magnitude=9), 0)


def _deit(size: int, plain: bool) -> Any:
    from timm.data import create_transform  # type: ignore[import-not-found, unused-ignore]

    if plain:
        return create_transform(size, is_training=True, color_jitter=None, interpolation="bicubic")
    return create_transform(
        input_size=size,
        is_training=True,
        color_jitter=0.3,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=0.25,
        re_mode="pixel",
        re_count=1,
    )


def _timm(size: int, plain: bool) -> Any:
    from timm.data import create_transform  # type: ignore[import-not-found, unused-ignore]

    jitter = None if plain else 0.4
    return create_transform(size, is_training=True, color_jitter=jitter, interpolation="bicubic")


def _simclr(size: int, plain: bool) -> Any:
    first = [v1.RandomResizedCrop(size), v1.RandomHorizontalFlip()]
    colours = [
        v1.RandomApply([v1.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
        v1.RandomGrayscale(p=0.2),
        v1.RandomApply([v1.GaussianBlur(size // 20 * 2 + 1, (0.1, 2.0))], p=0.5),
    ]
    return TwoCropsTransform(v1.Compose([*first, *([] if plain else colours), v1.ToTensor()]))


def _mixup_cutmix(classes: int) -> Any:
    """get_mixup_cutmix of torchvision's references: one of both, for each batch."""
    return v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=classes), v2.CutMix(alpha=1.0, num_classes=classes)])


def _timms_mixup(classes: int) -> Any:
    """DeiT's; its loop calls it with the batch."""
    from timm.data import Mixup  # type: ignore[import-not-found, unused-ignore]

    return Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=classes)


def _cross_entropy(smoothing: float) -> Callable[[torch.nn.Module, Any, torch.Tensor], torch.Tensor]:
    found: Callable[[Any, Any], torch.Tensor] = torch.nn.CrossEntropyLoss(label_smoothing=smoothing)

    def loss(model: torch.nn.Module, images: Any, labels: torch.Tensor) -> torch.Tensor:
        return found(model(images), labels)

    return loss


def _contrast(model: torch.nn.Module, views: Any, labels: torch.Tensor) -> torch.Tensor:
    return nt_xent(model(torch.cat(list(views))), 0.5)


@dataclass(frozen=True)
class Recipe:
    """of_batch: made into what the loader does with each batch. in_loop: into what the loop does with it."""

    transform: Callable[[int, bool], Any]
    model: Callable[[int, int], torch.nn.Module]
    loss: Callable[[torch.nn.Module, Any, torch.Tensor], torch.Tensor]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    of_batch: Callable[[int], Any] | None = None
    in_loop: Callable[[int], Any] | None = None


def _sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=2e-5)


def _adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.05)


def _projector(classes: int, size: int) -> torch.nn.Module:
    return SmallNet(64, hidden=128)


def _net(classes: int, size: int) -> torch.nn.Module:
    return SmallNet(classes)


RECIPES: dict[str, Recipe] = {
    "resnet50": Recipe(_resnet50, _net, _cross_entropy(0.1), _sgd, of_batch=_mixup_cutmix),
    "vit": Recipe(_vit, SmallViT, _cross_entropy(0.11), _adamw, of_batch=_mixup_cutmix),
    "deit": Recipe(_deit, SmallViT, _cross_entropy(0.0), _adamw, in_loop=_timms_mixup),
    "timm": Recipe(_timm, SmallViT, _cross_entropy(0.0), _adamw, in_loop=_timms_mixup),
    "simclr": Recipe(_simclr, _projector, _contrast, _adamw),
}

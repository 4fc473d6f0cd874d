"""What torchvision makes of a picture by the choices that ``explain`` tells: one function for each operation.

Each takes a uint8 tensor (C, H, W), the choice, and the operation's own object, for arguments that are not chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torchvision.transforms.v2 import functional as F

Choice = Mapping[str, Any]
_ADJUST: tuple[Any, ...] = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
_ADJUSTED = ("brightness", "contrast", "saturation", "hue")


def _adjusted(picture: torch.Tensor, choice: Choice, order: str) -> torch.Tensor:
    for digit in order:
        number = int(digit) - 1
        amount = choice[_ADJUSTED[number]]
        if amount != (0 if number == 3 else 1):
            picture = _ADJUST[number](picture, amount)
    return picture


def _permuted(picture: torch.Tensor, choice: Choice) -> torch.Tensor:
    order = [int(digit) - 1 for digit in str(int(choice["order"]))]
    permuted: torch.Tensor = F.permute_channels(picture, order)
    return permuted


def _distorted(picture: torch.Tensor, choice: Choice, _: Any) -> torch.Tensor:
    return _permuted(_adjusted(picture, choice, "1234" if choice["contrast_first"] else "1342"), choice)


def _erased(picture: torch.Tensor, choice: Choice, t: Any) -> torch.Tensor:
    where = choice["top"], choice["left"], choice["height"], choice["width"]
    erased: torch.Tensor = F.erase(picture, *where, torch.tensor(t.value)[:, None, None])
    return erased


def _affine(picture: torch.Tensor, choice: Choice, t: Any) -> torch.Tensor:
    moved: torch.Tensor = F.affine(
        picture,
        angle=choice["angle"],
        translate=[choice["translate_x"], choice["translate_y"]],
        scale=choice["scale"],
        shear=[choice["shear_x"], choice["shear_y"]],
        **_warped(t),
    )
    return moved


def _perspective(picture: torch.Tensor, choice: Choice, t: Any) -> torch.Tensor:
    height, width = picture.shape[-2:]
    start = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
    names = ("top_left", "top_right", "bottom_right", "bottom_left")
    end = [[choice[f"{name}_x"], choice[f"{name}_y"]] for name in names]
    if start == end:
        return picture
    moved: torch.Tensor = F.perspective(picture, start, end, **_warped(t))
    return moved


def _warped(t: Any) -> dict[str, Any]:
    """The arguments of a warp that are not chosen."""
    names = [name for name in ("interpolation", "fill", "center", "expand") if hasattr(t, name)]
    given = {name: getattr(t, name) for name in names}
    if isinstance(t.fill, dict):
        given["fill"] = t.fill["others"]
    return given


def _augmented(picture: torch.Tensor, operations: list[str], magnitudes: list[float], t: Any) -> torch.Tensor:
    settings = {"interpolation": t.interpolation, "fill": t._fill}
    for name, magnitude in zip(operations, magnitudes, strict=True):
        picture = t._apply_image_or_video_transform(picture, name, magnitude, **settings)
    return picture


def _policy(picture: torch.Tensor, choice: Choice, t: Any) -> torch.Tensor:
    return _augmented(picture, choice["operations"], choice["magnitudes"], t)


def _augmix(picture: torch.Tensor, choice: Choice, t: Any) -> torch.Tensor:
    weights = torch.tensor(choice["weights"], dtype=torch.float32)
    mix = weights[0].reshape(1, 1, 1) * picture
    for weight, operations, magnitudes in zip(weights[1:], choice["operations"], choice["magnitudes"], strict=True):
        mix.add_(weight.reshape(1, 1, 1) * _augmented(picture, operations, magnitudes, t))
    return mix.to(torch.uint8)


OPERATIONS: dict[str, Callable[[torch.Tensor, Choice, Any], torch.Tensor]] = {
    "AugMix": _augmix,
    "AutoAugment": _policy,
    "ColorJitter": lambda picture, choice, _: _adjusted(picture, choice, str(int(choice["order"]))),
    "GaussianBlur": lambda picture, choice, t: F.gaussian_blur(picture, t.kernel_size, [choice["sigma"]] * 2),
    "RandomAdjustSharpness": lambda picture, choice, t: (
        F.adjust_sharpness(picture, t.sharpness_factor) if choice["applied"] else picture
    ),
    "RandAugment": _policy,
    "RandomAffine": _affine,
    "RandomAutocontrast": lambda picture, choice, _: F.autocontrast(picture) if choice["applied"] else picture,
    "RandomChannelPermutation": lambda picture, choice, _: _permuted(picture, choice),
    "RandomEqualize": lambda picture, choice, _: F.equalize(picture) if choice["applied"] else picture,
    "RandomErasing": _erased,
    "RandomInvert": lambda picture, choice, _: F.invert(picture) if choice["applied"] else picture,
    "RandomPerspective": _perspective,
    "RandomPhotometricDistort": _distorted,
    "RandomPosterize": lambda picture, choice, t: F.posterize(picture, t.bits) if choice["applied"] else picture,
    "RandomRotation": lambda picture, choice, t: F.rotate(picture, choice["angle"], **_warped(t)),
    "RandomSolarize": lambda picture, choice, t: F.solarize(picture, t.threshold) if choice["applied"] else picture,
    "TrivialAugmentWide": _policy,
}


def products_are_rounded() -> bool:
    """Whether torch's product of matrices, by which it warps, rounds each product before it adds it, as the engine
    does. Where its library does not, it takes another one of two pixels that are equally near."""
    places = torch.rand(1, 5000, 3, generator=torch.Generator().manual_seed(1))
    matrix = places[:, :2].mT
    columns = [places[..., i : i + 1] * matrix[:, i : i + 1] for i in range(3)]
    return torch.equal(places.bmm(matrix), columns[0] + columns[1] + columns[2])


def of_one_law(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Asserts that rows of numbers are drawn by the same law: by the largest distance between the two distributions of
    each number (Kolmogorov and Smirnov), and of each pair's product, which would tell numbers that depend on each
    other."""
    assert ours.shape == theirs.shape
    columns = [(a, b) for a, b in zip(ours.T, theirs.T, strict=True)]
    columns += [(ours[:, i] * ours[:, j], theirs[:, i] * theirs[:, j]) for i in range(ours.shape[1]) for j in range(i)]
    for number, (a, b) in enumerate(columns):
        at = np.unique(np.concatenate([a, b]))
        apart = np.abs(np.searchsorted(np.sort(a), at, "right") - np.searchsorted(np.sort(b), at, "right")) / len(ours)
        assert apart.max() < 2.3 * (2 / len(ours)) ** 0.5, number  # one of some 100,000 fails by chance

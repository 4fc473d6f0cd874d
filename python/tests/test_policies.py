"""The engine's automatic policies against torchvision's, by the choices that ``explain`` tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from forms import mostly, thinned
from needs import needs
from reads import PHOTOS

import stoker
from stoker import transforms as T
from stoker._compile import to_ops
from stoker._errors import ConfigError

needs("torchvision")
from replay import OPERATIONS, products_are_rounded  # noqa: E402
from test_augmentations import made, plain, resized  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

Policy = v2.AutoAugmentPolicy
CASES: list[Any] = [
    v2.RandAugment(),
    v2.RandAugment(4, 13, fill=77),
    v2.RandAugment(3, 30, interpolation=v2.InterpolationMode.BILINEAR),
    v2.RandAugment(3, -1, 7, interpolation="bilinear", fill=0),
    v2.TrivialAugmentWide(),
    v2.TrivialAugmentWide(9, "bilinear", fill=[200.0]),
    v2.AutoAugment(),
    v2.AutoAugment(Policy.CIFAR10, interpolation="bilinear"),
    v2.AutoAugment(Policy.SVHN, fill={"others": 30}),
    v2.AugMix(),
    v2.AugMix(10, 5, 3, 0.3, interpolation="nearest"),
    v2.AugMix(7, 1, 2, 4.0, all_ops=False, fill=50),
]


@thinned
@pytest.mark.parametrize("gray", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (5, 2), (3, 3), (64, 49), (131, 200)])
@pytest.mark.parametrize("policy", mostly(CASES, *CASES[::2]), ids=lambda t: type(t).__name__)
def test_pixels_are_torchvisions(policy: Any, size: tuple[int, int], gray: bool) -> None:
    torch = needs("torch")
    after, choices = made([*resized(size, gray), policy])
    name = type(policy).__name__
    far, pixels = 0, 0
    for picture, got, chosen in zip(plain(size, gray), after, choices, strict=True):
        want = OPERATIONS[name](torch.from_numpy(picture), chosen[name], policy).numpy()
        apart = np.abs(got.astype(int) - want)
        far += int((apart > 3).sum())
        pixels += apart.size
    assert far <= pixels / (1000 if products_are_rounded() else 50)


def test_choices_are_listed() -> None:
    _, choices = made([T.Resize((9, 8)), v2.RandAugment(3)])
    for chosen in choices:
        assert list(chosen["RandAugment"]) == ["op", "operations", "magnitudes"]
        assert len(chosen["RandAugment"]["operations"]) == len(chosen["RandAugment"]["magnitudes"]) == 3
    _, choices = made([T.Resize((9, 8)), v2.AugMix(mixture_width=2)])
    for chosen in choices:
        assert len(chosen["AugMix"]["weights"]) == 3
        assert sum(chosen["AugMix"]["weights"]) == pytest.approx(1)
        assert [len(chain) for chain in chosen["AugMix"]["operations"]] == [
            len(chain) for chain in chosen["AugMix"]["magnitudes"]
        ]
    assert len({str(chosen) for chosen in choices}) > len(choices) / 2


def replaced(t: Any, name: str, value: Any) -> Any:
    setattr(t, name, value)
    return t


class Mine(v2.RandAugment):  # type: ignore[misc, name-defined, unused-ignore]
    _AUGMENTATION_SPACE: ClassVar[Any] = {"Identity": (lambda num_bins, height, width: None, False)}


@pytest.mark.parametrize(
    "other",
    [
        lambda: Mine(),
        lambda: replaced(v2.TrivialAugmentWide(), "_AUGMENTATION_SPACE", Mine._AUGMENTATION_SPACE),
        lambda: replaced(v2.AugMix(), "_sample_dirichlet", lambda params: params),
        lambda: replaced(v2.AugMix(), "_PARAMETER_MAX", 20),
        lambda: replaced(v2.AutoAugment(), "_policies", [(("Invert", 1.0, None), ("Invert", 0.0, None))]),
        lambda: v2.RandAugment(interpolation=v2.InterpolationMode.BICUBIC),
    ],
)
def test_what_was_changed_is_not_native(other: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError):
        to_ops(other(), "here")


def test_what_was_changed_in_a_class_is_not_native(monkeypatch: pytest.MonkeyPatch) -> None:
    v1 = needs("torchvision.transforms")
    for cls, name, value in [
        (v2.RandAugment, "_AUGMENTATION_SPACE", Mine._AUGMENTATION_SPACE),
        (v1.RandAugment, "_augmentation_space", lambda self, bins, size: {}),
        (v2.RandomInvert, "transform", lambda self, inpt, params: inpt),
        (v1.RandomErasing, "get_params", staticmethod(lambda *args: (0, 0, 1, 1, args[0]))),
    ]:
        assert to_ops(cls(), "here")
        with monkeypatch.context() as patched:
            patched.setattr(cls, name, value)
            with pytest.raises(ConfigError, match=f"of class {cls.__name__} was replaced"):
                to_ops(cls(), "here")


def test_v1_objects_are_read() -> None:
    v1 = needs("torchvision.transforms")
    for a, b in [
        (v1.RandAugment(3, 4, 10), v2.RandAugment(3, 4, 10)),
        (v1.TrivialAugmentWide(), v2.TrivialAugmentWide()),
        (v1.AutoAugment(v1.AutoAugmentPolicy.SVHN), v2.AutoAugment(Policy.SVHN)),
        (v1.AugMix(5), v2.AugMix(5)),
    ]:
        assert to_ops(a, "here") == to_ops(b, "here")


def test_refusals_are_torchvisions() -> None:
    for make in (lambda: T.RandAugment(-1), lambda: T.RandAugment(1.5), lambda: T.AugMix(0), lambda: T.AugMix(11)):  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            make()
    for t, what in [
        (T.RandAugment(magnitude=31), "magnitude"),
        (T.RandAugment(num_magnitude_bins=5), "num_magnitude_bins"),
        (T.AutoAugment("imagnet"), "policy"),
        (T.TrivialAugmentWide(fill=[1, 2]), "fill"),
    ]:
        with pytest.raises(ConfigError, match=what):
            list(stoker.DataLoader(stoker.files([PHOTOS[0]], transform=[t]), 1))

"""What all transforms are made of."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from .. import _parameters as read
from .._errors import ConfigError


class InterpolationMode(enum.Enum):
    """The resampling filters that the engine has; strings and Pillow's integers work too."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


class Transform:
    """Base of all. Arguments are attributes; nothing else is stored."""

    # Whether it gives different numbers for floats than for bytes.
    _on_bytes: ClassVar[bool] = False

    # Whether torchvision does it to floats too, so that it runs in Python if it is given them.
    _takes_floats: ClassVar[bool] = False

    @staticmethod
    def _read(_: Any) -> read.Arguments:
        """The arguments of an operation of a Spec, from an object of this class or of torchvision's class of this
        name."""
        return {}

    def __call__(self, *inputs: Any) -> Any:
        raise ConfigError(
            f"{type(self).__name__} of stoker.transforms describes work for the engine and cannot be called",
            hint="give it to a stoker dataset, or take the class of the same name from torchvision.transforms.v2",
        )

    def __repr__(self) -> str:
        return self._shown(", ".join(f"{name}={value}" for name, value in vars(self).items() if value is not None))

    def _shown(self, inside: str) -> str:
        """As torch.nn.Module shows itself: several lines are indented."""
        if "\n" in inside:
            inside = "\n  " + inside.replace("\n", "\n  ") + "\n"
        return f"{type(self).__name__}({inside})"


class Holder(Transform):
    """A transform of transforms."""

    # Whether each of the transforms is chosen or placed by itself, and stays one operation.
    _parts: ClassVar[bool] = False
    transforms: Sequence[Any]

    def __init__(self, transforms: Sequence[Any]) -> None:
        # A torch.nn.ModuleList is not a Sequence, but has the methods needed here.
        if not (hasattr(transforms, "__iter__") and hasattr(transforms, "__len__")):
            raise ConfigError(f"{type(self).__name__}: transforms must be a list, not {transforms!r}")
        if len(transforms) == 0:
            raise ConfigError(f"{type(self).__name__}: transforms is empty", hint="pass at least one transform")
        self.transforms = transforms

    def __iter__(self) -> Iterator[Any]:
        return iter(self.transforms)

    def __repr__(self) -> str:
        if self._parts:
            return super().__repr__()
        return self._shown("\n".join(f"    {t}" for t in self.transforms))


class Chance(Transform):
    p: float

    def __init__(self, p: float = 0.5) -> None:
        self.p = probability(self, p)

    @staticmethod
    def _read(t: Any) -> read.Arguments:
        return {"p": read.number("p", t.p)}


def real(owner: Transform, name: str, value: Any) -> float:
    """The value of an argument that must be a number."""
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ConfigError(f"{type(owner).__name__}: {name} must be a number, not {value!r}")


def reals(owner: Transform, name: str, value: Any, *lengths: int) -> list[float]:
    """The values of an argument that must be so many numbers."""
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and len(value) in lengths:
        return [real(owner, name, one) for one in value]
    wanted = " or ".join(map(str, lengths))
    raise ConfigError(f"{type(owner).__name__}: {name} must be a list of {wanted} numbers, not {value!r}")


def probability(owner: Transform, p: float) -> float:
    if not 0.0 <= real(owner, "p", p) <= 1.0:
        raise ConfigError(f"{type(owner).__name__}: p must be a number from 0 to 1, not {p!r}")
    return p


def pair(owner: Transform, size: int | Sequence[int]) -> Sequence[int]:
    if isinstance(size, Sequence):
        if len(size) == 1:
            return size[0], size[0]
        if len(size) == 2:
            return size
        raise ConfigError(f"{type(owner).__name__}: size must be a number or (height, width), not {size!r}")
    side = int(real(owner, "size", size))
    return side, side

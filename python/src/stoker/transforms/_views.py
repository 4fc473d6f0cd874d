"""Several pictures made of one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .._errors import ConfigError
from ._base import Transform


class Views(Transform):
    """Several views of every picture, as SimCLR, BYOL and DINO want them: one for each transform, which may be a list.

    ``Views(t, t)`` is two views of one transform, ``Views(*[big] * 2, *[small] * 8)`` DINO's ten. A sample has a list
    of the views in place of the picture, and a batch a list of their batches. The picture is read once and, where that
    costs less, decoded once. Every view draws for itself.

    It is the last transform of a picture. What comes before it is done to all views and must not be random; what
    follows belongs in each view.
    """

    def __init__(self, *transforms: Any) -> None:
        if len(transforms) == 1 and isinstance(transforms[0], (list, tuple)):
            raise ConfigError(
                "Views: the one view is a list, which is a view of several steps",
                hint="for several views write Views(*transforms); for one, Views(Compose(transforms))",
            )
        if not transforms:
            raise ConfigError("Views: there are no transforms", hint="give one for each view: Views(t1, t2)")
        self.transforms = transforms

    def __iter__(self) -> Iterator[Any]:
        return iter(self.transforms)

    def __call__(self, *inputs: Any) -> list[Any]:
        """The views of one picture, where Python makes them: for transforms that can be called."""
        (picture,) = inputs
        return [_applied(transform, picture) for transform in self.transforms]

    def __repr__(self) -> str:
        lines = "\n".join(f"    {t}" for t in self.transforms).split("\n")
        return "Views(\n  " + "\n  ".join(lines) + "\n)"


def _applied(transform: Any, picture: Any) -> Any:
    if isinstance(transform, (list, tuple)):
        for step in transform:
            picture = _applied(step, picture)
        return picture
    return picture if transform is None else transform(picture)

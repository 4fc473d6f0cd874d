"""MixUp and CutMix of a batch where the batch is: the engine's choice, done by operators of torch.

Mixing   what is done to the rows of one batch
Blend    a tensor of a batch with which it is done: pictures as they are, or labels
Blended  the memory of its result on a device, and its making

Pictures of which floats are made on the device (_fused.py) are mixed in their memory, after that. Everything else gets
memory of its own. The numbers are the engine's to the bit (kernel.MixUp): two products and a sum, each rounded by
itself, as torch's operators do in every type. What is mixed with what is decided here, from the slot: nothing waits for
the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ._device_steps import there
from ._fused import shaped

Choice = Mapping[str, Any]  # of the engine: number, cut, lambda, x, y


def box(choice: Choice, width: int, height: int) -> tuple[int, int, int, int, float]:
    """The region that CutMix takes from the row before, (x1, y1, x2, y2), and the share of the picture that stays:
    torchvision's formulas, as Mixed.Box of internal/stage/transform/mix.go has them."""
    r = 0.5 * math.sqrt(1.0 - choice["lambda"])
    half_w, half_h = int(r * width), int(r * height)
    x, y = int(choice["x"] * width), int(choice["y"] * height)
    x1, y1 = max(x - half_w, 0), max(y - half_h, 0)
    x2, y2 = min(x + half_w, width), min(y + half_h, height)
    return x1, y1, x2, y2, 1.0 - (x2 - x1) * (y2 - y1) / (width * height)


class Mixing(NamedTuple):
    """Each row is mixed with the one before it, and the first with the last."""

    share: float  # of the row itself: of its label, and of its picture unless there is a region
    region: tuple[int, int, int, int] | None  # x1, y1, x2, y2: what a picture gets from the row before it
    rows: list[int] | None  # those that are mixed with each other, the others stay as they are; None: all

    @staticmethod
    def of(choice: Choice | None, valid: Sequence[bool], size: tuple[int, int]) -> Mixing:
        """What was chosen for a batch of pictures of this height and width; None: for one without rows."""
        rows = None if all(valid) else [row for row, is_valid in enumerate(valid) if is_valid]
        height, width = size
        if choice is None or not height * width:
            return Mixing(1.0, None, [])
        if not choice["cut"]:
            return Mixing(choice["lambda"], None, rows)
        *corners, share = box(choice, width, height)
        return Mixing(share, (corners[0], corners[1], corners[2], corners[3]), rows)

    def pictures(self, x: Any, planes: bool) -> None:
        """Mixes pictures, in place. ``planes``: height and width are the last two axes; otherwise channels follow them,
        if there is an axis for these."""
        if self.region is None:
            self.blend(x)
            return
        x1, y1, x2, y2 = self.region
        if x1 >= x2 or y1 >= y2:
            return
        x = _movable(x)
        part = x[..., y1:y2, x1:x2] if planes or x.ndim == 3 else x[:, y1:y2, x1:x2]
        if self.rows is None:
            part.copy_(part.roll(1, 0))
        elif self.rows:
            at, before = self._there(x)
            part.index_copy_(0, at, part.index_select(0, before))

    def blend(self, x: Any) -> None:
        """Mixes floats, in place: before * (1 - share) + own * share."""
        if self.rows is None:
            before = x.roll(1, 0).mul_(1.0 - self.share)
            x.mul_(self.share).add_(before)
        elif self.rows:
            at, of = self._there(x)
            before = x.index_select(0, of).mul_(1.0 - self.share)
            x.index_copy_(0, at, x.index_select(0, at).mul_(self.share).add_(before))

    def _there(self, like: Any) -> tuple[Any, Any]:
        """The numbers of the rows that are mixed, and of those before them, on the device of a tensor."""
        import torch

        assert self.rows is not None
        both = there([self.rows, [*self.rows[-1:], *self.rows[:-1]]], torch.int64, like)
        return both[0], both[1]


def _movable(x: Any) -> Any:
    """The same memory with a dtype that operators know: torch can do little with uint16 and its kin."""
    import torch

    kinds = {"torch.uint16": torch.int16, "torch.uint32": torch.int32, "torch.uint64": torch.int64}
    kind = kinds.get(str(x.dtype))
    return x if kind is None else x.view(kind)


class Blend:
    """A tensor that is mixed. ``planes`` is as in Mixing.pictures; None: it has labels, and they become probabilities:
    class numbers, int64, of so many ``classes``, or what are probabilities already."""

    __slots__ = ("_classes", "_mixing", "_planes", "tensor")

    def __init__(self, tensor: Any, mixing: Mixing, planes: bool | None, classes: int = 0) -> None:
        self.tensor = tensor
        self._mixing, self._planes, self._classes = mixing, planes, classes

    @staticmethod
    def of_labels(tensor: Any, mixing: Mixing, classes: int) -> Blend:
        """Labels as the engine has them, of any type; the engine has checked class numbers."""
        if tensor.ndim == 1:
            return Blend(tensor.long(), mixing, None, classes)
        return Blend(tensor if tensor.is_floating_point() else tensor.float(), mixing, None)

    def like(self) -> Any:
        """A tensor without memory, like the result."""
        import torch

        if self._classes:
            return torch.empty((len(self.tensor), self._classes), dtype=torch.float32, device="meta")
        return torch.empty_like(self.tensor.as_subclass(torch.Tensor), device="meta")

    def work(self) -> Callable[[Any, Any], None]:
        """What makes the result, of the tensor; it holds neither."""
        mixing, planes, classes = self._mixing, self._planes, self._classes

        def fill(out: Any, given: Any) -> None:
            if classes:
                out.zero_().scatter_(1, given.unsqueeze(1), 1.0)
            else:
                _movable(out).copy_(_movable(given))
            if planes is None:
                mixing.blend(out)
            else:
                mixing.pictures(out, planes)

        return fill

    def here(self) -> Any:
        """The result in memory of this process."""
        import torch

        like = self.like()
        out = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device="cpu")
        with torch.no_grad():
            self.work()(out, self.tensor)
        return out


class Blended:
    """What is made there of a Blend: as _fused.Result."""

    __slots__ = ("_kind", "_like", "_made", "_work", "memory")

    numbers = None

    def __init__(self, blend: Blend) -> None:
        self._kind = type(blend.tensor)
        self._like, self._work = blend.like(), blend.work()
        self.memory: Any = None
        self._made: Any = None

    def allocate(self, port: Any, floats: Any) -> None:
        """Takes memory there, or raises what ``port.full`` knows."""
        like = self._like
        self.memory = port.empty(max(like.numel() * like.element_size(), 1))
        self._made = shaped(self.memory, like)

    def start(self, port: Any, given: Any, numbers: Any, floats: Any) -> None:
        """Makes it on the stream of copies, of what is there."""
        work, out = self._work, self._made
        port.compute(lambda: work(out, given))

    def made(self) -> Any:
        """What the user gets."""
        import torch

        return self._made if self._kind is torch.Tensor else self._made.as_subclass(self._kind)

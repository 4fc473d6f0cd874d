"""static_buffers=True: the same tensors, at the same addresses, in every step and epoch, as CUDA graphs need them.

Each batch is copied into them on the loop's stream, when the loop takes it; the batch before is gone then. They are
made for the first batch, outside of any graph: ``next`` within a capture is an error. ``valid`` and ``position_ids``
are such tensors too. In packed rows (pack=) batches have different numbers of samples, so ``valid`` and ``cu_seqlens``
are new ones there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from ._batch import Ragged, _Facts
from ._errors import ConfigError, Problems
from ._moved import like, searched

After = Callable[[Any, int, int], Any]


def read(k: Mapping[str, Any], output: str, tail: str | None, single: bool, problems: Problems) -> bool:
    """Reads the keyword; adds what cannot be combined with it to problems."""
    static = k["static_buffers"]
    if static in (None, False):
        return False
    if static is not True:
        problems.add(f"static_buffers is {static!r:.80}", "it can be True or False")
    if output == "jax":
        problems.add("static_buffers is for torch's tensors, and output is 'jax'", "leave it out: arrays do not change")
    elif k["device"] is None:
        problems.add("static_buffers needs device=", "pass device='cuda'")
    if single:
        problems.add("static_buffers is for batches, and there are none", "give a batch_size")
    elif tail not in ("fill", "drop"):
        problems.add(
            f"static_buffers needs full batches, and tail is {tail or 'pad'!r}",
            "pass tail='fill', or drop_last=True",
        )
    if k["tokens"] is not None:
        problems.add("static_buffers needs batches of one shape, and tokens= makes others", "use pack=")
    return True


class Buffers:
    """The tensors of a loader, in the order in which they are found in a batch. One pass at a time uses them."""

    def __init__(self) -> None:
        self._tensors: list[Any] = []
        self._made = False
        self._known: dict[int, Any] = {}  # facts of this batch in the buffers, by what they were
        self._at = 0
        self._passage: weakref.ref[Any] | None = None

    def begin(self, passage: Any) -> None:
        """A pass begins. ConfigError while another one is not over."""
        other = None if self._passage is None else self._passage()
        if other is not None and other is not passage and not other.over:
            raise ConfigError(
                "static_buffers: another pass over this loader uses the buffers",
                hint="end it first (del its iterator), or make a second loader",
            )
        self._passage = weakref.ref(passage)

    def before(self, after: After | None) -> After:
        """What a pass does with a batch: it is copied into the buffers, and changed by ``after`` then."""

        def filled(given: Any, epoch: int, number: int) -> Any:
            given = self.fill(given)
            return given if after is None else after(given, epoch, number)

        return filled

    def fill(self, given: Any) -> Any:
        """A batch of the buffers, or the pair of one and its facts."""
        self._at = 0
        self._known = {}
        if not self._made:
            self._tensors = []  # an attempt that failed may have left some
        found = (self._filled(given[0]), self._told(given[1])) if type(given) is tuple else self._filled(given)
        self._made = True
        return found

    def _filled(self, value: Any) -> Any:
        import torch

        if isinstance(value, Ragged):
            raise ConfigError(
                "static_buffers needs dense fields, and one is ragged",
                hint="pad it to one length, Field(to=512), or leave it out with select() or to_tuple()",
            )
        if isinstance(value, torch.Tensor):
            with torch.no_grad():
                return self._copied(value)
        if isinstance(value, _Facts):
            batch: Any = value
            found: Any = type(batch)(self._inner(batch))
            vars(found).update(self._told(vars(batch)))
            return found
        return like(value, self._inner(value)) if searched(value) else value

    def _inner(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._filled(inner) for key, inner in value.items()}
        return [self._filled(inner) for inner in value]

    def _copied(self, tensor: Any) -> Any:
        import torch

        if not self._made:
            fresh = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
            self._tensors.append(fresh if type(tensor) is torch.Tensor else fresh.as_subclass(type(tensor)))
        elif self._at >= len(self._tensors):
            raise self._differs("has more tensors than the first one")
        static = self._tensors[self._at]
        self._at += 1
        if (static.shape, static.dtype, static.stride()) != (tensor.shape, tensor.dtype, tensor.stride()):
            raise self._differs(
                f"has a tensor of shape {tuple(tensor.shape)} ({tensor.dtype}), but the first one had "
                f"{tuple(static.shape)} ({static.dtype})"
            )
        static.copy_(tensor, non_blocking=True)
        if tensor.__dict__:
            static.__dict__.update(self._told(tensor.__dict__))
        return static

    def _told(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The facts of a batch, with those that have the same shape every time in the buffers. A batch that Python made
        has them twice."""
        found = dict(facts)
        for name in ["position_ids"] if "cu_seqlens" in facts else ["valid"]:
            if (one := facts.get(name)) is not None:
                if id(one) not in self._known:
                    self._known[id(one)] = self._filled(one)
                found[name] = self._known[id(one)]
        return found

    def _differs(self, how: str) -> ConfigError:
        return ConfigError(
            f"static_buffers: a batch {how}",
            hint="shapes may not change: pad, or drop what is short (drop_last=True)",
        )

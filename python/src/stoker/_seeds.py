"""Which seed a loader or a sampler has, and where it came from.

    1. seed= or generator=
    2. with several ranks, Lightning's PL_GLOBAL_SEED, else 0. torch's initial seed is not used then: many scripts seed
       every rank differently, but all ranks must share one permutation
    3. with one rank, torch's initial seed when the loader was made, if torch is loaded and somebody has set it
    4. 0

torch does not say whether somebody has set its seed. If nobody has, its generator starts with 64 (formerly 53) random
bits, and with 67280421310721 on devices. A seed below 2**32 was therefore set by somebody; people set seeds below 2**32
because NumPy and Lightning require that.

A seed of 2, 3 or 4 is replaced by the seed of a loaded state, so that a run continues wherever its state is loaded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _ranks
from ._errors import ConfigError, Problems, whole
from ._numbers import scalar
from ._order import MASK

TORCHS_OWN = 1 << 32  # from here on torch's initial seed is its own
LIGHTNINGS = "PL_GLOBAL_SEED"


class Seed:
    """A seed, given or not. One that was not given is decided when it is first needed: a process group may be started
    after the loader was made. ``world`` is the world size that the user gave."""

    def __init__(self, given: int | None = None, origin: str = "", world: int | None = None) -> None:
        self._given = given
        self._origin = origin
        self._world = world
        self._torchs = _of_torch() if given is None else None
        self._settled: tuple[int, str] | None = None

    @property
    def given(self) -> bool:
        """Whether the user gave it: if so, a state with another seed does not fit."""
        return self._given is not None

    @property
    def value(self) -> int:
        return self._decided()[0]

    def __str__(self) -> str:
        value, origin = self._decided()
        return f"seed {value} ({origin})"

    def settle(self) -> None:
        """Fixes its value from now on."""
        self._settled = self._decided()

    def give(self, value: int, origin: str) -> None:
        """Treats it as given by the user."""
        self._given, self._origin, self._settled = value, origin, None

    @contextmanager
    def gives_way(self, value: Any) -> Iterator[None]:
        """Replaces it by the seed of a state, unless it was given, or the state turns out not to fit."""
        before = self._settled
        if not self.given and is_seed(value):
            self._settled = value, "of the loaded state"
        try:
            yield
        except BaseException:
            self._settled = before
            raise

    def _decided(self) -> tuple[int, str]:
        if self._given is not None:
            return self._given, self._origin
        if self._settled is not None:
            return self._settled
        if (self._world or 1) > 1 or _several():
            text = os.environ.get(LIGHTNINGS, "").strip()
            if text.isdecimal() and text.isascii() and int(text) <= MASK:
                return int(text), f"{LIGHTNINGS}; pass seed= for another"
            return 0, "the same on all ranks, whatever torch.manual_seed says; pass seed= for another"
        if self._torchs is not None:
            return self._torchs, "torch.manual_seed"
        return (
            0,
            "the default; to set one, pass seed= or call torch.manual_seed (below 2**32) before the loader is made",
        )


def is_seed(value: Any) -> bool:
    """Whether value is an integer that can be a seed."""
    return whole(value) and 0 <= value <= MASK


def read(seed: Any, generator: Any, problems: Problems, dataset: int | None = None, world: Any = None) -> Seed:
    """The seed that the keywords give; ``dataset`` is the one that the dataset was given."""
    seed = scalar(seed)
    if seed is not None and generator is not None:
        problems.add("seed and generator exclude each other", "give only one")
    if seed is not None:
        if not is_seed(seed):
            problems.add(f"seed is {seed!r}", "give an integer from 0 to 2**64 - 1")
            return Seed(0)
        return Seed(int(seed), "seed=")
    if generator is not None:
        if not callable(initial := getattr(generator, "initial_seed", None)):
            problems.add(f"generator is of type {type(generator).__name__}", "give a torch.Generator, or seed=")
            return Seed(0)
        return Seed(int(initial()) & MASK, "generator=")
    if dataset is not None:
        return Seed(dataset, "seed= of the dataset")
    return Seed(world=world if whole(world) else None)


def _of_torch() -> int | None:
    """torch's initial seed; None if torch is not loaded or nobody has set a seed."""
    initial = getattr(sys.modules.get("torch"), "initial_seed", None)
    seed = int(initial()) & MASK if callable(initial) else TORCHS_OWN
    return seed if seed < TORCHS_OWN else None


def _several() -> bool:
    """Whether this process is one of several that share an order."""
    if _ranks.worker() is not None:
        return True
    try:
        return _ranks.of_process(None, None)[1] > 1
    except ConfigError:  # wrong RANK and WORLD_SIZE: reported where they are needed
        return False

"""Mixtures with Python in them: members of the user's own, members with functions, functions of the mixture.

Part     a member, taken apart: what is stored, which of it there is, and the steps of Python
Members  what workers get: the samples of all members by number
Mixed    the dataset of a loader over such a mixture

The engine knows of every member how many samples it has, so shares, schedules, ``stop`` and batches of one member are
those of any mixture. A sample is what its own dataset gives, with that dataset's functions, and then the mixture's.
What the engine draws for it depends on the sample's key, as everything else that is drawn for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

from . import _client, _keyed
from ._batch import Batch
from ._datasets import Dataset
from ._errors import ConfigError
from ._inline import Inline
from ._inputs import Begun, Made
from ._order import below
from ._program import Program
from ._spec import Settings, default_output
from ._steps import Stepped
from ._theirs import digest, facts, in_words, kind, length
from ._workers import Workers

_EPOCHS = (1 << 52) - 1  # epochs that stand for keys: those that Dataset._drawn draws
_MEMBER = 2  # the word below a sample's key for its own dataset's functions; the mixture's begin at 16


@dataclass(frozen=True)
class Part:
    """A member of a mixture."""

    data: Any  # a dataset of stoker's without steps of Python, or samples of the user's
    native: bool  # which of the two
    program: Program  # what Python does to each sample
    chain: Stepped | None  # the member, if it has steps

    @property
    def count(self) -> int:
        """Of the samples that are stored."""
        samples: int = self.data._samples() if self.native else length(self.data, 1)
        return samples

    @property
    def numbers(self) -> Sequence[int] | None:
        """Of these, the ones that there are; None: all."""
        if self.chain is None:
            return None
        self.chain._decide()
        return self.chain._numbers

    @property
    def python(self) -> bool:
        """Whether its samples need Python."""
        return not self.native or self.program.runs

    @property
    def shuffles(self) -> bool:
        """Whether it asks for a shuffle itself."""
        asked = self.chain is not None and self.chain._said().get("shuffle")
        return bool(asked or (self.native and self.data._recipe().shuffle))

    @property
    def digest(self) -> str:
        return str(self.data._remote().info().digest) if self.native else digest(self.data, self.count)

    def getter(self, keys: Callable[[], int]) -> Callable[[int], Any]:
        """What makes sample ``number`` of those that are stored; ``keys`` gives the key of now."""
        if not self.native:
            return _keyed.getter(self.data, keys)

        def get(number: int) -> Any:
            return plain(self.data._sample(number, keys() & _EPOCHS))

        return get


def taken(member: Any) -> Part:
    """A member, taken apart."""
    if not isinstance(member, Dataset):
        return Part(member, False, Program(), None)
    chain: Stepped | None = member._stepped()
    if chain is None:
        return Part(member, True, Program(), None)
    chain._renew()
    return Part(chain.base, isinstance(chain.base, Dataset), chain._finish.program, chain)


def plain(sample: Any) -> Any:
    """A sample as functions and batches get it: a tuple or a dict, and none of this package's classes."""
    if isinstance(sample, Batch):
        return tuple(sample)
    return dict(sample) if isinstance(sample, dict) else sample


class Members(_keyed.Keyed, Begun):
    """Samples of several datasets by number, with their functions, and then with those of the mixture."""

    def __init__(self, parts: Sequence[Part], counts: Sequence[int], program: Program, kinds: Any, output: str) -> None:
        self.parts = list(parts)
        self._counts = list(counts)  # given, because to count what is stored takes an engine
        self.program = program
        self.kinds = kinds
        self.output = output
        self._ends = [*accumulate(self._counts)]
        self._key = 0
        self._get = [part.getter(lambda: self._key) for part in self.parts]

    @property
    def functions(self) -> list[Any]:  # type: ignore[override]
        own = [part.data for part in self.parts if not part.native]
        return [*own, *(f for part in self.parts for f in part.program.functions), *self.program.functions]

    def parts_named(self) -> list[tuple[Any, str]]:
        theirs = [(part.data, f"datasets[{i}]") for i, part in enumerate(self.parts) if not part.native]
        return [*theirs, *(one for part in self.parts for one in part.program.parts()), *self.program.parts()]

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> Any:
        return self.keyed(index, 0)

    def keyed(self, number: int, key: int) -> Any:
        return self.made(number, None, lambda: key)

    def maker(self, tones: bool) -> Made:
        return partial(self.made, tones=tones)

    def made(self, number: int, begun: Callable[[], Any] | None, key: Callable[[], int], tones: bool = False) -> Any:
        self._key = word = key()
        which = bisect_right(self._ends, number)
        part = self.parts[which]
        sample = self._get[which](number - self._ends[which] + self._counts[which]) if begun is None else begun()
        own = part.program.begun if tones and not self.program.looks else part.program.apply
        sample = own(sample, below(word, _MEMBER))
        return self.program.begun(sample, word) if tones else self.program.apply(sample, word)

    def begins(self) -> list[dict[str, Any]]:
        return [{"member": i, "spec": part.data._alone()} for i, part in enumerate(self.parts) if part.native]

    def __reduce__(self) -> tuple[Any, ...]:
        parts = [Part(part.data, part.native, part.program, None) for part in self.parts]
        return Members, (parts, self._counts, self.program, self.kinds, self.output)


class Mixed(Stepped):
    """A mixture whose samples Python makes, or finishes. ``base`` is the Mixture."""

    _counts: Sequence[int] | None = None  # of the members' samples, when some of them were chosen

    def __init__(self, base: Any, *given: Any, **more: Any) -> None:
        super().__init__(base, *given, **more)
        self._native = False
        self._cached = None

    @property
    def foreign(self) -> bool:
        return not all(isinstance(member, Dataset) for member in self.base.datasets)

    def after(self) -> str:
        if self._finish.program.looks:
            return super().after()
        each = [part.program.toned for part in self.base._parts()]
        same = all(repr(steps) == repr(each[0]) for steps in each)  # rows with other numbers come finished
        return in_words([type(step).__name__ for step in each[0]]) if same else ""

    def _runs(self, collate: Any = None) -> bool:
        return True

    def _recipe(self) -> Any:
        recipe = super()._recipe()
        if recipe.subset is not None:
            counts = [part.count for part in self.base._parts()]
            if self._counts is not None and counts != self._counts:
                raise ConfigError(
                    f"datasets of a mixture have {counts} samples now, and had {self._counts} when some were chosen",
                    hint="make the mixture and the loader again after the change",
                )
            self._counts = counts
        return recipe

    def _crew(self, settings: Settings) -> _client.Crew | None:
        hands = settings.hands
        assert hands is not None
        crew = Workers if hands.workers else Inline
        return crew(self._made_of(), hands, settings.seed.value)

    def _made_of(self) -> Members:
        parts = self.base._parts()
        recipes = [part.data._recipe() for part in parts if part.native]
        kinds = [(recipe.form, recipe.squeeze) for recipe in recipes]
        counts = [part.count for part in parts]
        return Members(parts, counts, self._finish.program, kinds, default_output())

    def _made(self, at: int, epoch: int, key: int) -> Any:
        numbers = self._numbers if self._numbers is not None else self.base._ids()
        return self._made_of().keyed(numbers[at], key)

    def _named_steps(self) -> list[str]:
        told = [f"{i} {name}" for i, part in enumerate(self.base._parts()) for name in part.program.names()]
        return [*told, *super()._named_steps()]

    def _nameable(self, settings: Settings) -> None:
        return None

    def _code(self, settings: Settings) -> dict[str, Any]:
        collate = settings.hands.collate if settings.hands is not None else None
        functions = [f for part in self.base._parts() for f in part.program.functions]
        return facts(self.base, *functions, *self._finish.functions, *([collate] if collate is not None else []))

    @property
    def shown(self) -> str:
        return "a mixture with steps of Python"

    def why(self, collate: Any) -> str:
        for member, part in zip(self.base.datasets, self.base._parts(), strict=True):
            if not part.native and part.chain is None:
                return f"{kind(member)} makes its samples in Python"
            if part.python:
                assert part.chain is not None
                return str(part.chain.why(None))
        return str(super().why(collate))

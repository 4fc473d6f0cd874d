"""Datasets of stoker's with steps of Python: the engine reads, decodes and transforms, and workers do the rest.

Stepped   a dataset and the Program that runs on its samples: what ``map``, ``filter``, ``take`` and the like return
Source    what workers get where nothing of it is native: a list of files

Filters and views decide which samples there are; the engine then loads these, as it loads the subset of a sampler. So
without a function that runs on every sample, nothing runs in Python. Ids are those of the samples that are stored.
"""

from __future__ import annotations

import copy
import hashlib
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from . import _client, _keyed, _notice, _ranks
from ._batch import Batch, Kind
from ._datasets import Dataset
from ._errors import ConfigError
from ._inline import Inline
from ._inputs import Fed
from ._mixture import Mixture
from ._order import below, epoch_key
from ._program import Keep, Map, Pick, Program, Step, Then, View
from ._python import Own
from ._spec import Recipe, Settings, default_output
from ._theirs import called, digest, facts, in_words, named
from ._told import Member
from ._workers import Workers


class Finish:
    """Runs the steps on a sample that the engine has begun."""

    def __init__(self, program: Program) -> None:
        self.program = program

    @property
    def functions(self) -> list[Any]:
        return self.program.functions

    @property
    def toned(self) -> list[Any]:
        return self.program.toned

    def __call__(self, sample: Any, key: Callable[[], int]) -> Any:
        return self.program.apply(sample, key())

    def begun(self, sample: Any, key: Callable[[], int]) -> Any:
        """The same for a row, whose pictures may be a Toned."""
        return self.program.begun(sample, key())


class Source(_keyed.Keyed):
    """Samples of a dataset that is the user's own, by number, with steps of Python."""

    def __init__(self, user: Any, finish: Finish, numbers: Sequence[int] | None) -> None:
        self.user = user
        self.finish = finish
        self.numbers = numbers

    @property
    def functions(self) -> list[Any]:  # type: ignore[override]
        return self.finish.functions

    def parts_named(self) -> list[tuple[Any, str]]:
        return [(self.user, "dataset"), *self.finish.program.parts()]

    def __len__(self) -> int:
        return len(self.user) if self.numbers is None else len(self.numbers)

    def __getitem__(self, index: int) -> Any:
        return self.keyed(index, below(epoch_key(0, 0), index))

    def keyed(self, number: int, key: int) -> Any:
        sample = _keyed.getter(self.user, lambda: key)(number if self.numbers is None else self.numbers[number])
        return self.finish.program.apply(sample, key)


class Stepped(Own):
    """A dataset with steps of Python. ``dataset[i]`` is sample i, and ``len(dataset)`` their number: with a filter,
    that is decided first, over all samples."""

    _fixed: ClassVar[Mapping[str, str]] = {**Dataset._fixed, **dict.fromkeys(("base", "steps"), "")}

    def __init__(
        self,
        base: Any,
        steps: Sequence[Step] = (),
        *,
        asked: Mapping[str, Any] | None = None,
        program: Program | None = None,
        numbers: Sequence[int] | None = None,
    ) -> None:
        self.base = base  # a dataset of the engine's, or the user's samples
        self.steps = tuple(steps)
        self._native = isinstance(base, Dataset)
        self._asked = dict(asked or {})
        self._program = program  # not that of the steps
        self._finish = Finish(self._whole() if program is None else program)
        self._numbers = numbers if numbers is None else array("q", numbers)  # None: all
        self._subset = None if numbers is None else array("d", numbers)
        self._decided = numbers is not None or not any(isinstance(step, (Keep, View)) for step in steps)
        if self._native:
            self._cached = base._cached

    def _whole(self) -> Program:
        return Program((*tails(self.base), *self.steps))

    # The chain.

    def _step(self, *steps: Step) -> Stepped:
        if self._asked.get("sized") is not None and not all(isinstance(step, View) for step in steps):
            if not all(isinstance(step, Map) for step in steps):
                raise ConfigError(f"{steps[0].call} after batch: it is for samples", hint=f"call {steps[0].call} first")
            batched: Stepped = self._asking(
                collate=Then(self._asked.get("collate"), [step.functions[0] for step in steps])
            )
            return batched
        return type(self)(self.base, (*self.steps, *steps), asked=self._asked)

    def _asking(self, **asked: Any) -> Stepped:
        other = copy.copy(self)
        other.__dict__ = {**self.__getstate__(), "_asked": {**self._asked, **asked}}
        return other

    def select(self, *fields: Any) -> Stepped:
        """The same dataset with these keys of its samples only, as dicts."""
        if self._native and not self.steps:
            return Stepped(self.base.select(*fields), asked=self._asked)
        return self._step(Pick(_names("select", fields), "dict", "select"))

    def to_tuple(self, *fields: Any) -> Stepped:
        """The same dataset with these keys of its samples, as tuples."""
        if self._native and not self.steps:
            return Stepped(self.base.to_tuple(*fields), asked=self._asked)
        return self._step(Pick(_names("to_tuple", fields), "tuple", "to_tuple"))

    def cache(self, memory: str | int | None = None, after: str | None = None) -> Stepped:
        """See ``Dataset.cache``. What Python makes is not kept."""
        if not self._native:
            raise ConfigError("cache is for what the engine reads", hint="leave it out")
        if running := self._finish.program.running:
            _notice.say(
                f".cache() after {running[-1].call} keeps what the engine makes; functions run again in every epoch: "
                "stoker.pack(dataset, folder) stores what they make"
            )
        return Stepped(self.base.cache(memory, after), self.steps, asked=self._asked)

    @property
    def indices(self) -> list[int]:
        """For every sample, its number in the dataset that this one was made of."""
        self._decide()
        return list(numbers_of(self.base) if self._numbers is None else self._numbers)

    # For the loader.

    def _decide(self, keywords: Any = None) -> None:
        if isinstance(self.base, Dataset):
            self.base._decide(keywords)
        if not self._decided:
            from ._decide import decide

            numbers = decide(self.base, tails(self.base), self.steps, keywords)
            self._numbers, self._subset = array("q", numbers), array("d", numbers)
            self._decided = True

    def _renew(self) -> None:
        if self._native:
            self.base._renew()
            if self._mixed and self.base._python:  # it was not, when this was made
                raise ConfigError(
                    "the transform of a mixture's dataset was changed to one with a step of Python",
                    hint="make the mixture, its steps and the loader again after the change",
                )
            if self._program is None:
                self._finish.program = self._whole()

    def _runs(self, collate: Any = None) -> bool:
        """Whether anything of Python runs on every sample."""
        return collate is not None or not self._native or self._finish.program.runs

    def _recipe(self) -> Recipe:
        self._decide()
        if not isinstance(self.base, Dataset):
            samples = self._samples()
            return Recipe({"format": "python", "samples": samples, "digest": self._digest(samples)}, None)
        theirs = self.base._recipe()
        if self._subset is None:
            return theirs
        return replace(theirs, subset=self._subset, stored=theirs.stored or samples_of(self.base))

    def _described(self) -> Recipe:
        """Its recipe, but for the choice of samples: nothing is decided for it."""
        theirs: Recipe = self.base._recipe() if isinstance(self.base, Dataset) else Recipe({}, None)
        return theirs

    def _fields(self) -> list[dict[str, Any]] | None:
        self._renew()
        fields: list[dict[str, Any]] | None = self.base._fields() if self._native else None
        return fields

    def _digest(self, samples: int) -> str:
        known = digest(self.base, samples)
        if self._numbers is None:
            return known
        return hashlib.blake2b(known.encode() + self._numbers.tobytes(), digest_size=16).hexdigest()

    def _members(self) -> list[Member]:
        members: list[Member] = self.base._members() if self._native else []
        return members

    def _samples(self) -> int:
        self._decide()
        if self._numbers is not None:
            return len(self._numbers)
        return samples_of(self.base)

    @property
    def user(self) -> Stepped | None:
        """What the loader's keywords are read for; None: nothing runs in Python."""
        return self if self._runs(self._collating) else None

    _collating: Any = None  # the loader's collate_fn

    @property
    def foreign(self) -> bool:
        """Whether there are samples of the user's own in it."""
        return False

    @property
    def shown(self) -> str:
        """What it is called in errors."""
        return f"{type(self.base).__name__} with steps of Python"

    def why(self, collate: Any) -> str:
        """Why Python makes its samples: a clause after "because"."""
        if steps := self._finish.program.running or (self._program.steps if self._program is not None else ()):
            return steps[0].why()
        if not self._native:
            return f"{type(self.base).__name__} is a list of Python's"
        ours = type(collate).__module__.partition(".")[0] == __package__ and hasattr(collate, "why")
        return str(collate.why()) if ours else f"collate_fn {called(collate)} is Python"

    def after(self) -> str:
        """The user's last steps, if the engine does them to the rows that workers make."""
        return in_words([type(step).__name__ for step in self._finish.toned])

    def _nameable(self, settings: Settings) -> int | None:
        return None if self._native else super()._nameable(settings)

    def _crew(self, settings: Settings) -> _client.Crew | None:
        hands = settings.hands
        if hands is None:
            return None
        given: Any
        if self._native:
            recipe = self.base._recipe()
            given = Fed(self._finish, recipe.form, recipe.squeeze, default_output())
        else:
            given = Source(self.base, self._finish, self._numbers)
        crew = Workers if hands.workers else Inline
        return crew(given, hands, settings.seed.value)

    def _batches(self, info: _client.Opened, kind: Kind, settings: Settings, crew: Any) -> Any:
        if settings.hands is None:
            return Dataset._batches(self, info, kind, settings, crew)
        return self._watched(super()._batches(info, kind, settings, crew), settings)

    def _watched(self, made: Any, settings: Settings) -> Any:
        return self.base._watched(made, settings) if self._native else made

    def _pipeline(self, known: str, settings: Settings) -> str:
        if settings.hands is None:
            return known
        told = [known, *self._named_steps()]
        if settings.hands.collate is not None:
            told.append(named(settings.hands.collate))
        return known if len(told) == 1 else hashlib.blake2b("\0".join(told).encode(), digest_size=16).hexdigest()

    def _named_steps(self) -> list[str]:
        """What states know its steps by."""
        return self._finish.program.names()

    def _code(self, settings: Settings) -> dict[str, Any]:
        collate = settings.hands.collate if settings.hands is not None else None
        return facts(self.base, *self._finish.functions, *([collate] if collate is not None else []))

    def _stepped(self) -> Stepped:
        return self

    # Without a loader.

    def __len__(self) -> int:
        """The number of samples; of batches, after ``batch``."""
        samples, size = self._samples(), self._asked.get("sized")
        if size is None:
            return samples
        batches: int = samples // size if self._asked.get("drop") else -(-samples // size)
        return batches

    def __getitem__(self, index: int) -> Any:
        """Sample ``index`` as a loader over this dataset gives it at that place of epoch 0 without shuffle."""
        at, count = self._number(index), self._samples()
        if not -count <= at < count:
            raise IndexError(f"sample {at} is out of range: the dataset has {count}")
        epoch, at = self._drawn(), at % count
        key = below(epoch_key(0, epoch), at)
        if epoch:  # for torch's DataLoader, whose own generators count
            return self._made(at, epoch, key)
        with _keyed.put_back():
            _keyed.Seeder(self._finish).seed(key)
            return self._made(at, epoch, key)

    def _made(self, at: int, epoch: int, key: int) -> Any:
        if not self._native:
            return Source(self.base, self._finish, self._numbers).keyed(at, key)
        sample = self._of_mixture(at) if self._mixed else self._sample(at, epoch)
        sample = tuple(sample) if isinstance(sample, Batch) else dict(sample) if isinstance(sample, dict) else sample
        return self._finish.program.apply(sample, key) if self._runs(self._collating) else sample

    @property
    def _mixed(self) -> bool:
        return isinstance(self.base, Mixture)

    def _of_mixture(self, at: int) -> Any:
        part, number = self.base._part_of(numbers_of(self.base)[at] if self._numbers is None else self._numbers[at])
        return part.data[number]

    def _drawn(self) -> int:
        if "torch.utils.data" not in sys.modules or not _ranks.fetching():
            return 0
        drawn: int = super()._drawn()
        return drawn or 1

    def __iter__(self) -> Iterator[Any]:
        """The samples, in order, as ``dataset[i]`` gives them; after ``batch`` or ``shuffle``, those of the next epoch,
        as a loader gives them."""
        if self._asked.get("sized") is None and not self._asked.get("shuffle"):
            return (self[i] for i in range(self._samples()))
        from ._loader import DataLoader

        if self._loader is None:
            size: Any = None if self._asked.get("sized") is None else 1
            self._loader = DataLoader(self, batch_size=size)
        return iter(self._loader)

    _loader: Any = None

    if not TYPE_CHECKING:  # with this, type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            if name in ("classes", "class_to_idx", "fields") or (name == "targets" and not self.steps):
                return getattr(self.base, name)
            return super().__getattr__(name)

    def __repr__(self) -> str:
        calls = "".join(f".{step.call}({step.shown()})" for step in self.steps if not step.idle)
        return f"{self.base!r}{calls}"


def tails(base: Any) -> tuple[Step, ...]:
    """The steps of Python that the base itself has: the ends of its fields' transforms."""
    return base._python_steps() if isinstance(base, Dataset) else ()


def samples_of(base: Any) -> int:
    return base._samples() if isinstance(base, Dataset) else len(base)


def numbers_of(base: Any) -> Sequence[int]:
    """The numbers of its samples, among those that are stored."""
    return base._ids() if isinstance(base, Dataset) else range(len(base))


def _names(call: str, fields: Sequence[Any]) -> list[str]:
    names = fields[0].split() if len(fields) == 1 and isinstance(fields[0], str) else list(fields)
    if not names or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{call}: give names of fields", hint=f"{call}('image', 'label')")
    return names

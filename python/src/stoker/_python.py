"""A user's own dataset, whose samples its own Python code makes.

Anything with ``__getitem__`` and ``__len__`` is one: torch's Dataset, Subset, ConcatDataset, a list, an array, a class
without a base class. The engine knows its length and a digest; it decides the order, and workers (_workers.py, or the
calling thread: _inline.py) make the samples. So is a dataset that is iterated: it decides the order itself
(_iterable.py).
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar

from . import _client, _lookup
from ._batch import Kind
from ._crew import _is_default
from ._datasets import Dataset, check_subclass
from ._errors import MAX_COUNT, ConfigError, Problems
from ._inline import Inline
from ._iterable import Way, warn_of_length
from ._lookup import Lookup
from ._position import Position
from ._spec import Recipe, Settings
from ._strangers import advise, iterable, map_style
from ._theirs import digest, facts, kind, length, named
from ._told import Member
from ._values import Assembler
from ._workers import Workers

TURNS = 1 << 53  # more than any loop takes


class Own(Dataset[Any, Any, Any]):
    """The dataset of a loader over ``user``, an object of the user's own; never seen outside this package."""

    _fixed: ClassVar[Mapping[str, str]] = {}

    def __init__(self, user: Any, counted: bool = True) -> None:
        self.user = user
        self._counted = counted  # whether its length counts; otherwise a sampler says which samples there are

    def _recipe(self) -> Recipe:
        # Its length is asked for again and again: the trainer may change its dataset between epochs.
        samples = self._samples()
        return Recipe({"format": "python", "samples": samples, "digest": digest(self.user, samples)}, None)

    def _members(self) -> list[Member]:
        return []  # nothing is stored that could change between two looks

    def _samples(self) -> int:
        return length(self.user) if self._counted else MAX_COUNT

    def _nameable(self, settings: Settings) -> int | None:
        return None if settings.hands is not None and settings.hands.lookup else self._samples()

    def _crew(self, settings: Settings) -> _client.Crew | None:
        hands = settings.hands
        assert hands is not None
        if hands.lookup:
            return Lookup(self.user)
        if not hands.workers:
            return Inline(self.user, hands, settings.seed.value)
        return Workers(self.user, hands, settings.seed.value)

    def _batches(self, info: _client.Opened, kind: Kind, settings: Settings, crew: Any) -> Any:
        if isinstance(crew, Lookup):
            crew.assembler = _lookup.Assembler(kind, self.user)
            return crew.assembler
        assembler = Assembler(kind)
        hands = settings.hands
        assembler.converts = kind.name != "torch" and hands is not None and hands.collate is None
        if isinstance(crew, Inline):
            assembler.load = crew.fetch
        return assembler

    def _pipeline(self, known: str, settings: Settings) -> str:
        hands = settings.hands
        if hands is None or hands.collate is None:
            return known
        return hashlib.blake2b(f"{known}\0{named(hands.collate)}".encode(), digest_size=16).hexdigest()

    def _code(self, settings: Settings) -> dict[str, Any]:
        """What states say of the code, under "python"."""
        assert settings.hands is not None
        return facts(self.user, *([settings.hands.collate] if settings.hands.collate is not None else []))

    def __len__(self) -> int:
        return self._samples()

    def __getitem__(self, index: int) -> Any:
        return self.user[index]

    def __repr__(self) -> str:
        return kind(self.user)


class Iterated(Own):
    """The same for a dataset that is iterated: to the engine, its samples are the turns of workers."""

    _reported: int | None = None  # by len(), when a loader was asked for its length

    def _recipe(self) -> Recipe:
        return Recipe({"format": "python", "samples": TURNS, "digest": digest(self.user, 0)}, None)

    def _batches(self, info: _client.Opened, kind: Kind, settings: Settings, crew: Any) -> Any:
        assembler = super()._batches(info, kind, settings, crew)
        assembler.numbered = False
        return assembler

    def _way(self, at: Position, settings: Settings) -> Way:
        assert settings.hands is not None
        way: Way | None = at.way if at.restored is not None else None
        return way or Way(self.user, max(1, settings.hands.workers))

    def batches(self, settings: Settings) -> int:
        """How many a pass has, if ``__len__`` is right. TypeError without one, as in torch."""
        self._reported = samples = len(self.user)
        if settings.single:
            return samples
        size = settings.size or 1
        return samples // size if settings.tail == "drop" else -(-samples // size)

    def compare(self, way: Way) -> None:
        """Warns once if more has come than len() said."""
        reported = self._reported
        if reported is not None and way.samples > reported:
            self._reported = None
            warn_of_length(self.user, reported, way.samples, way.workers)


def check_native(dataset: Any) -> None:
    """ConfigError if a dataset that the engine reads alone has got steps of Python since its loader was made."""
    if not isinstance(dataset, Own) and (stepped := dataset._stepped()) is not None:
        raise ConfigError(
            f"the transform of {type(dataset).__name__} was changed after its loader was made, to one with a step of "
            f"Python: {stepped.why(None)}",
            hint="make a new loader after the change",
        )


def adopt(dataset: Any, keywords: dict[str, Any], problems: Problems) -> Any:
    """A user's own dataset, or one of ours with steps of Python or a ``collate_fn``, as one whose samples workers make;
    anything else as it is, with what is wrong with it added to problems."""
    if isinstance(dataset, Dataset):
        dataset._renew()
        check_subclass(dataset, problems)
        if keywords["collate_fn"] is None:
            keywords["collate_fn"] = dataset._collation()
        collate = keywords["collate_fn"]
        stepped = dataset._stepped()
        if (
            stepped is None
            and collate is not None
            and not any(_is_default(collate, single) for single in (True, False))
        ):
            stepped = dataset._collated()
        if stepped is None:
            return dataset
        stepped._decide(keywords)
        stepped = copy.copy(stepped)  # the loader's own
        stepped._collating = collate
        return stepped
    if iterable(dataset):
        return Iterated(dataset)
    sampled = keywords["sampler"] is not None or keywords["batch_sampler"] is not None
    if not map_style(dataset, sampled):
        problems.add(*advise(dataset))
        return dataset
    if sampled and (isinstance(dataset, dict) or not hasattr(type(dataset), "__len__")):
        return Own(dataset, counted=False)
    try:
        samples = length(dataset)
    except ConfigError as error:
        problems.take(error)
        return dataset
    if not samples and (shuffle := keywords["shuffle"]) not in (None, False, "none"):
        problems.add(
            f"the dataset {kind(dataset)} is empty, and shuffle={shuffle!r} needs samples, as in torch",
            "check what it is made of; without shuffle, an empty dataset gives no batches",
        )
    return Own(dataset)

"""Several datasets in one stream, in exact shares."""

from __future__ import annotations

import copy
import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

from . import _numbers
from ._datasets import Dataset, check_subclass
from ._errors import ConfigError, Problems, StokerError, many, whole
from ._numbers import scalar
from ._spec import Form, Recipe
from ._strangers import map_style
from ._told import Member
from ._types import J, N, T

if TYPE_CHECKING:
    from ._mixed import Part
    from ._types import AnyTuple, Dict

STOPS = ("first_exhausted", "all_exhausted", "repeat")
BATCHES = ("mixed", "single")

_FORMS = {"dict": "dicts", "tuple": "tuples", "one": "arrays"}


class Mixture(Dataset[T, N, J], Generic[T, N, J]):
    """Samples of several datasets, mixed in the order of a loader. Sample ids continue from one dataset to the next.

    datasets   datasets that give the same columns (same names, dtypes and shapes), filtered ones (``.filter(f)``), your
               own, and any with functions (``.map(f)``), which make the samples alike
    weights    the share of each, in any unit; default: equal. Within every thousand samples the shares are exact to
               the sample
    schedule   [(place, weights), ...] instead of weights: the weights that apply from a place of the epoch on; the
               first place is 0
    linear     interpolate the weights between the points of the schedule
    stop       when an epoch ends: "first_exhausted", before any dataset would start again; "all_exhausted", when all
               have been seen completely, smaller ones starting again meanwhile; "repeat", after the loader's
               num_samples= (default: as many as there are), with the rest of a dataset in the next epoch
    batches    "mixed", or "single": every batch from one dataset

    A dataset that asks for a shuffle itself (WebDataset.shuffle) is shuffled; the loader's shuffle= applies to the
    others. ``mixture[i]`` is sample i. ``loader.shares()`` says how many samples came from each dataset so far.
    """

    _fixed: ClassVar[Mapping[str, str]] = {
        **Dataset._fixed,
        "transform": "assign it to the mixture's datasets",
        **dict.fromkeys(("datasets", "weights", "schedule", "linear", "stop", "batches"), ""),
    }

    @overload
    def __init__(
        self,
        datasets: Sequence[Dataset[T, N, J]],
        weights: Sequence[float] | None = None,
        *,
        schedule: Sequence[tuple[int, Sequence[float]]] | None = None,
        linear: bool = False,
        stop: str = "first_exhausted",
        batches: str = "mixed",
    ) -> None: ...

    @overload
    def __init__(
        self: Mixture[Any, Any, Any],
        datasets: Sequence[Any],
        weights: Sequence[float] | None = None,
        *,
        schedule: Sequence[tuple[int, Sequence[float]]] | None = None,
        linear: bool = False,
        stop: str = "first_exhausted",
        batches: str = "mixed",
    ) -> None: ...

    def __init__(
        self,
        datasets: Sequence[Any],
        weights: Sequence[float] | None = None,
        *,
        schedule: Sequence[tuple[int, Sequence[float]]] | None = None,
        linear: bool = False,
        stop: str = "first_exhausted",
        batches: str = "mixed",
    ) -> None:
        problems = Problems("Mixture")
        if not isinstance(datasets, Iterable) or isinstance(datasets, Dataset):
            problems.add(f"datasets is of type {type(datasets).__name__}", "give a list of datasets: Mixture([a, b])")
            problems.raise_any()
        self.datasets = list(datasets)
        forms = [_member(i, dataset, problems) for i, dataset in enumerate(self.datasets)]
        if len({*forms} - {None}) > 1:
            told = zip(self.datasets, forms, strict=True)
            forms_told = ", ".join(f"{type(one).__name__} gives {_FORMS[form]}" for one, form in told if form)
            problems.add(
                f"all datasets of a mixture must give samples of the same form, but {forms_told}",
                "call .to_tuple() or .select(names) on each of them, with the same fields",
            )
        if not self.datasets:
            problems.add("there are no datasets", "give at least one")
        if weights is not None and schedule is not None:
            problems.add("weights and schedule exclude each other", "give only one")
        self.weights = None if weights is None else _shares("weights", weights, problems)
        self.schedule = None if schedule is None else _points(schedule, problems)
        if linear and schedule is None:
            problems.add("linear needs a schedule", "give schedule=, or leave it out")
        problems.raise_any()
        for shares in [self.weights] if self.weights is not None else [s for _, s in self.schedule or []]:
            if len(shares) != len(self.datasets):
                problems.add(
                    f"{many(len(shares), 'weight')} for {many(len(self.datasets), 'dataset')}", "give one for each"
                )
        if any(not whole(place) or place < 0 for place, _ in self.schedule or []):
            problems.add("a place in the schedule is not a number of samples", "places are integers, at least 0")
        for key, value, words in (("stop", stop, STOPS), ("batches", batches, BATCHES)):
            if value not in words:
                problems.add(f"{key} is {value!r}", f"it can be {', '.join(map(repr, words))}")
        problems.raise_any()
        self.linear = bool(linear)
        self.stop = stop
        self.batches = batches

    def _parts(self) -> list[Part]:
        """Its datasets, taken apart."""
        from ._mixed import taken

        return [taken(dataset) for dataset in self.datasets]

    @property
    def _python(self) -> bool:
        """Whether Python makes or finishes samples of a member."""
        return any(part.python for part in self._parts())

    def _collated(self) -> Any:
        if not self._python:
            return super()._collated()
        from ._mixed import Mixed

        return Mixed(self, asked=self._asked)

    def _stepped(self) -> Any:
        if all(part.native and part.chain is None for part in self._parts()):
            return None
        return self._collated()

    def _decide(self, keywords: Any = None) -> None:
        for part in self._parts():
            if part.chain is not None:
                part.chain._decide(keywords)

    def _renew(self) -> None:
        for dataset in self.datasets:
            if isinstance(dataset, Dataset):
                dataset._renew()

    def _ids(self) -> Sequence[int]:
        parts = self._parts()
        counts, numbers = [part.count for part in parts], [part.numbers for part in parts]
        if all(one is None for one in numbers):
            return range(sum(counts))
        known = self._choice
        if known is None or known[0] != counts or any(a is not b for a, b in zip(known[1], numbers, strict=True)):
            ids = array("q")
            for first, count, own in zip(accumulate(counts, initial=0), counts, numbers, strict=False):
                ids.extend(first + number for number in (range(count) if own is None else own))
            # The same object as long as nothing changes: the engine is sent the same numbers.
            known = self.__dict__["_choice"] = (counts, numbers, ids, array("d", ids))
        return known[2]

    def _part_of(self, number: int) -> tuple[Part, int]:
        """The part that has a sample, by its number among those that are stored, and its number there."""
        for part in self._parts():
            if number < (count := part.count):
                return part, number
            number -= count
        raise IndexError(f"no dataset of the mixture has sample {number}")

    def _recipe(self) -> Recipe:
        parts = self._parts()
        python = any(part.python for part in parts)
        specs: list[dict[str, Any]] = []
        for part in parts:
            if python:
                spec = {"format": "python", "samples": part.count, "digest": part.digest}
            else:
                spec = {**part.data._recipe().dataset}
                fields = part.data._fields()
                if fields is not None:
                    spec["fields"] = fields
            if part.shuffles:
                spec["shuffle"] = "full"
            specs.append(spec)
        recipe = replace(self._mixing(), dataset=specs)
        if not python:
            first = parts[0].data._recipe()
            recipe = replace(recipe, form=first.form, squeeze=first.squeeze)
        if isinstance(self._ids(), range):
            return recipe
        assert self._choice is not None
        return replace(recipe, subset=self._choice[3], stored=sum(part.count for part in parts))

    def _mixing(self) -> Recipe:
        """How its datasets are mixed, without them."""
        mix: dict[str, Any] = {"stop": self.stop, "batches": self.batches}
        # Not "weight" of the datasets: there, a weight of 0 means that none was given.
        schedule = self.schedule or ([(0, self.weights)] if self.weights is not None else [])
        if schedule:
            mix["schedule"] = [{"place": place, "weights": list(map(float, w))} for place, w in schedule]
            mix["linear"] = self.linear
        return Recipe([], None, mix=mix)

    def _members(self) -> list[Member]:
        parts = self._parts()
        return [] if any(part.python for part in parts) else [one for part in parts for one in part.data._members()]

    @property
    def indices(self) -> list[int]:
        """For every sample, the id that batches have: ids count the stored samples of the datasets, so they differ from
        the samples' numbers in the mixture if a dataset was filtered."""
        return list(self._ids())

    def select(self, *fields: Any) -> Mixture[Dict, Dict, Dict]:
        """The same mixture over ``dataset.select(...)`` of each dataset."""
        return self._of([dataset.select(*fields) for dataset in self.datasets])

    def to_tuple(self, *fields: Any) -> Mixture[AnyTuple, AnyTuple, AnyTuple]:
        """The same mixture over ``dataset.to_tuple(...)`` of each dataset."""
        return self._of([dataset.to_tuple(*fields) for dataset in self.datasets])

    def _of(self, datasets: list[Any]) -> Mixture[Any, Any, Any]:
        other = copy.copy(self)
        other.__dict__ = {**self.__getstate__(), "datasets": self._frozen("datasets", datasets)}
        return other

    def _samples(self) -> int:
        return len(self)

    def cache(self, memory: str | int | None = None, after: str | None = None) -> Any:
        """See ``Dataset.cache``."""
        if self._python:
            raise ConfigError(
                "Mixture.cache: a cache is for what the engine reads, and Python makes samples of this mixture",
                hint="leave it out",
            )
        return super().cache(memory, after)

    _choice: tuple[list[int], list[Any], array[int], array[float]] | None = None

    def __len__(self) -> int:
        """Number of samples of all datasets."""
        return sum(map(len, self.datasets))

    def __getitem__(self, index: int) -> Any:
        """Sample ``index``, as its dataset gives it."""
        at = self._number(index)
        ends = [*accumulate(map(len, self.datasets))]
        if not -ends[-1] <= at < ends[-1]:
            raise IndexError(f"sample {at} is out of range: the dataset has {ends[-1]}")
        at %= ends[-1]
        which = bisect_right(ends, at)
        own = at - (ends[which - 1] if which else 0)
        try:
            return self.datasets[which][own]
        except StokerError as error:
            if "sample" in error.where:
                error.what = f"{error.what}: it is sample {own} of dataset {which} of the mixture"
                error.args = (error.what,)
                error.where["sample"] = at
            raise

    def __repr__(self) -> str:
        return f"Mixture({self.datasets!r}, weights={self.weights!r}, stop={self.stop!r})"


def in_python(dataset: Any) -> bool:
    """Whether it is a mixture of which Python makes samples, or a chain over one: the engine alone cannot open it."""
    base = getattr(dataset, "base", dataset) if isinstance(dataset, Dataset) else None
    return isinstance(base, Mixture) and base._python


def _shares(name: str, weights: Any, problems: Problems) -> list[float]:
    """Weights as numbers, at least 0, at least one of them not 0."""
    found = _numbers.read(name, weights, problems, "dataset")
    if found is None:
        return []
    wrong = next((i for i, weight in enumerate(found) if not 0 <= weight < math.inf), None)
    if wrong is not None:
        problems.add(f"{name}[{wrong}] is {found[wrong]:g}", "weights must be finite and at least 0")
    elif found and not any(found):
        problems.add(f"{name} are all 0: nothing can be drawn", "give at least one weight above 0")
    return found.tolist()


def _points(schedule: Any, problems: Problems) -> list[tuple[int, list[float]]]:
    """The points of a schedule: a place of the epoch, and the weights that apply from there on."""
    pairs = [*schedule] if isinstance(schedule, Iterable) and not isinstance(schedule, (str, Mapping)) else None
    if pairs is None or not all(isinstance(pair, Sequence) and len(pair) == 2 for pair in pairs):
        problems.add(f"schedule is {schedule!r:.80}", "give a list of (place, weights): [(0, [1, 1]), (1000, [1, 3])]")
        return []
    if not pairs:
        problems.add("schedule is empty", "give the weights that apply from place 0: [(0, [1, 1]), ...]")
    return [(scalar(place), _shares(f"schedule[{i}]", shares, problems)) for i, (place, shares) in enumerate(pairs)]


def _member(i: int, dataset: Any, problems: Problems) -> Form | None:
    """Adds what is wrong with a dataset of a mixture; returns the form of its samples."""
    if isinstance(dataset, Mixture):
        problems.add(f"dataset {i} is a mixture, and mixtures cannot be nested", "list its datasets instead")
        return None
    if not isinstance(dataset, Dataset) and map_style(dataset):
        return None
    if not isinstance(dataset, Dataset):
        problems.add(
            f"dataset {i} is of type {type(dataset).__name__}",
            "give datasets of this package, or of your own with __getitem__ and __len__",
        )
        return None
    check_subclass(dataset, problems)
    if dataset._collation() is not None or dataset._said().get("sized") is not None:
        problems.add(f"dataset {i} was batched", "batch the mixture: Mixture([...]).batch(n)")
        return None
    if dataset._cached is not None:
        problems.add(f"dataset {i} has its own cache", "cache the mixture: Mixture([...]).cache()")
    try:
        chain = dataset._stepped()
        recipe = dataset._recipe() if chain is None else chain._described()
    except ConfigError as error:
        problems.take(error)
        return None
    if recipe.batch is not None or recipe.epoch_items is not None:
        problems.add(f"dataset {i} makes its own batches or epochs", "leave .batched() and .with_epoch() out")
    return None if chain is not None and chain._runs() else recipe.form

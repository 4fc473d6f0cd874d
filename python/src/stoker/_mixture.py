"""Several datasets in one stream, in exact shares."""

from __future__ import annotations

import copy
import math
import operator
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from . import _numbers
from ._datasets import Dataset, check_subclass
from ._errors import ConfigError, Problems, whole
from ._numbers import scalar
from ._spec import Form, Recipe
from ._types import J, N, T

if TYPE_CHECKING:
    from ._types import AnyTuple, Dict

STOPS = ("first_exhausted", "all_exhausted", "repeat")
BATCHES = ("mixed", "single")

_FORMS = {"dict": "dicts", "tuple": "tuples", "one": "arrays"}


class Mixture(Dataset[T, N, J], Generic[T, N, J]):
    """Samples of several datasets, mixed as a loader walks them. Sample ids run on from one dataset to the next.

    datasets   datasets of this package that give the same columns (same names, dtypes and shapes)
    weights    the share of each, in whatever unit; left out: all alike. Within every thousand samples shares are exact
               to the sample
    schedule   [(place, weights), ...] instead of weights: which weights count from a place of the epoch on; the first
               place is 0
    linear     move the weights evenly from each point of the schedule to the next
    stop       when an epoch ends: "first_exhausted", before any dataset would begin anew; "all_exhausted", when all
               have been seen whole, smaller ones begin anew meanwhile; "repeat", after num_samples= of the loader (left
               out: as many as there are), and what is left of a dataset comes in the next epoch
    batches    "mixed", or "single": every batch from one dataset

    A dataset that asks for a shuffle itself (WebDataset.shuffle) is shuffled; shuffle= of the loader is for the others.
    ``mixture[i]`` is sample i. ``loader.shares()`` tells what came of each dataset so far.
    """

    _fixed: ClassVar[Mapping[str, str]] = {
        **Dataset._fixed,
        "transform": "assign it to the datasets of the mixture",
        **dict.fromkeys(("datasets", "weights", "schedule", "linear", "stop", "batches"), ""),
    }

    def __init__(
        self,
        datasets: Sequence[Dataset[T, N, J]],
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
                f"all datasets of a mixture must give samples of one form, but {forms_told}",
                "call .to_tuple() or .select(names) on each of them, with the same fields",
            )
        if not self.datasets:
            problems.add("there is no dataset in it", "give at least one")
        if weights is not None and schedule is not None:
            problems.add("weights and schedule say the same", "give one of them")
        self.weights = None if weights is None else _shares("weights", weights, problems)
        self.schedule = None if schedule is None else _points(schedule, problems)
        if linear and schedule is None:
            problems.add(
                "linear moves the weights along schedule, and there is none", "give schedule=, or leave it out"
            )
        problems.raise_any()
        for shares in [self.weights] if self.weights is not None else [s for _, s in self.schedule or []]:
            if len(shares) != len(self.datasets):
                problems.add(f"{len(shares)} weights for {len(self.datasets)} datasets", "give one for each")
        if any(not whole(place) or place < 0 for place, _ in self.schedule or []):
            problems.add("a place of the schedule is not a number of samples", "places are integers from 0 on")
        for key, value, words in (("stop", stop, STOPS), ("batches", batches, BATCHES)):
            if value not in words:
                problems.add(f"{key} is {value!r}", f"it can be {', '.join(map(repr, words))}")
        problems.raise_any()
        self.linear = bool(linear)
        self.stop = stop
        self.batches = batches

    def _recipe(self) -> Recipe:
        recipes = [dataset._recipe() for dataset in self.datasets]
        specs = []
        for dataset, recipe in zip(self.datasets, recipes, strict=True):
            spec = {**recipe.dataset}
            fields = dataset._fields()
            if fields is not None:
                spec["fields"] = fields
            if recipe.shuffle:
                spec["shuffle"] = "full"
            specs.append(spec)
        mix: dict[str, Any] = {"stop": self.stop, "batches": self.batches}
        # Not "weight" of the datasets: a weight of 0 there is one that was not said.
        schedule = self.schedule or ([(0, self.weights)] if self.weights is not None else [])
        if schedule:
            mix["schedule"] = [{"place": place, "weights": list(map(float, w))} for place, w in schedule]
            mix["linear"] = self.linear
        return Recipe(specs, None, form=recipes[0].form, squeeze=recipes[0].squeeze, mix=mix)

    def select(self, *fields: Any) -> Mixture[Dict, Dict, Dict]:
        """The same mixture of ``dataset.select(...)`` of each dataset."""
        return self._of([dataset.select(*fields) for dataset in self.datasets])

    def to_tuple(self, *fields: Any) -> Mixture[AnyTuple, AnyTuple, AnyTuple]:
        """The same mixture of ``dataset.to_tuple(...)`` of each dataset."""
        return self._of([dataset.to_tuple(*fields) for dataset in self.datasets])

    def _of(self, datasets: list[Any]) -> Mixture[Any, Any, Any]:
        other = copy.copy(self)
        other.__dict__ = {**self.__getstate__(), "datasets": self._frozen("datasets", datasets)}
        return other

    def __len__(self) -> int:
        """Number of samples of all datasets."""
        return sum(map(len, self.datasets))

    def __getitem__(self, index: int) -> Any:
        """Sample ``index``, as its dataset gives it."""
        at = operator.index(index)
        ends = [*accumulate(map(len, self.datasets))]
        if not -ends[-1] <= at < ends[-1]:
            raise IndexError(f"sample {at} of a dataset of {ends[-1]}")
        at %= ends[-1]
        which = bisect_right(ends, at)
        return self.datasets[which][at - (ends[which - 1] if which else 0)]

    def __repr__(self) -> str:
        return f"Mixture({self.datasets!r}, weights={self.weights!r}, stop={self.stop!r})"


def _shares(name: str, weights: Any, problems: Problems) -> list[float]:
    """Weights as numbers, 0 or above, of which one at least is not 0."""
    found = _numbers.read(name, weights, problems, "dataset")
    if found is None:
        return []
    wrong = next((i for i, weight in enumerate(found) if not 0 <= weight < math.inf), None)
    if wrong is not None:
        problems.add(f"{name}[{wrong}] is {found[wrong]:g}", "weights are finite numbers, 0 or above")
    elif found and not any(found):
        problems.add(f"{name} are all 0: nothing can be drawn", "give at least one weight above 0")
    return found.tolist()


def _points(schedule: Any, problems: Problems) -> list[tuple[int, list[float]]]:
    """The points of a schedule: a place of the epoch, and the weights from there on."""
    pairs = [*schedule] if isinstance(schedule, Iterable) and not isinstance(schedule, (str, Mapping)) else None
    if pairs is None or not all(isinstance(pair, Sequence) and len(pair) == 2 for pair in pairs):
        problems.add(f"schedule is {schedule!r:.80}", "give a list of (place, weights): [(0, [1, 1]), (1000, [1, 3])]")
        return []
    if not pairs:
        problems.add("schedule is empty", "give the weights from place 0 on: [(0, [1, 1]), ...]")
    return [(scalar(place), _shares(f"schedule[{i}]", shares, problems)) for i, (place, shares) in enumerate(pairs)]


def _member(i: int, dataset: Any, problems: Problems) -> Form | None:
    """Adds what is wrong with a dataset of a mixture; gives the form of its samples."""
    if isinstance(dataset, Mixture):
        problems.add(f"dataset {i} is a mixture: mixtures do not nest", "list its datasets")
        return None
    if not isinstance(dataset, Dataset):
        problems.add(f"dataset {i} is of type {type(dataset).__name__}", "give datasets of this package")
        return None
    check_subclass(dataset, problems)
    if dataset._cached is not None:
        problems.add(f"dataset {i} has a cache of its own", "cache the mixture: Mixture([...]).cache()")
    try:
        recipe = dataset._recipe()
    except ConfigError as error:
        problems.take(error)
        return None
    if recipe.batch is not None or recipe.epoch_items is not None:
        problems.add(f"dataset {i} makes batches or epochs of its own", "leave .batched() and .with_epoch() out")
    return recipe.form

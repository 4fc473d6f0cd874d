"""What Python does to samples of a dataset of stoker's: a chain of functions, one step after another.

Program   the steps, as a worker runs them
Map       a function of the whole sample
Fields    functions of single fields
Pick      some fields, as a tuple or a dict
Keep      a filter: run once over all samples (_decide.py), and not when samples are loaded
View      a choice by number, made there too: take, skip, shard, repeat

A function with a parameter ``rng`` gets a generator of the sample's key and of its place in the chain.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CoroutineType, GeneratorType
from typing import Any

from ._compile import flat
from ._keyed import generator, takes_rng
from ._order import below
from ._theirs import called, named
from ._tone import InSamples, now

_STEP = 16  # the word below a sample's key for its first step; smaller ones are of collate functions


class Step:
    """One step. ``functions`` are the user's, for digests and for seeding."""

    functions: tuple[Any, ...] = ()
    call = "map"  # the method that added it
    idle = False  # it only prepares samples for others
    passes = False  # it passes values on without looking at them

    @property
    def toned(self) -> list[Any]:
        """The user's last steps in it, if they need no Python: see _tone.py."""
        return []

    def run(self, sample: Any, key: int) -> Any:
        return sample

    def end(self, sample: Any, key: int) -> Any:
        """The same as the last step that looks at values: some may be a Toned."""
        return self.run(sample, key)

    def alone(self) -> None:
        """Something follows that looks at values: it must run all that it has."""

    def shown(self) -> str:
        """Its arguments, as they are shown."""
        return ", ".join(map(named, self.functions))

    def why(self) -> str:
        """Why the engine cannot do it: a clause after "because"."""
        return f"{self.call}({called(self.functions[0])}) is Python" if self.functions else f"{self.call} is Python"


class Function:
    """A function of the user's, called with one value, or with the items of a tuple if it wants several."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.rng = takes_rng(function)
        self.spread = _wanted(function) > 1

    def __call__(self, value: Any, key: int) -> Any:
        args = value if self.spread and isinstance(value, (tuple, list)) else (value,)
        made = self.function(*args, rng=generator(key)) if self.rng else self.function(*args)
        if isinstance(made, (GeneratorType, CoroutineType)):
            made.close()
            kind, slip = ("generator", "yield") if isinstance(made, GeneratorType) else ("coroutine", "async")
            raise TypeError(
                f"{called(self.function)} returned a {kind}: it is called for one sample, and has to return it (a "
                f"function without {slip})"
            )
        if made is None:
            raise ValueError(
                f"{called(self.function)} returned None; it has to return the sample (filter leaves some out)"
            )
        return made


class Map(Step):
    """``function`` of the whole sample."""

    def __init__(self, function: Any, call: str = "map") -> None:
        self._function = Function(function)
        self._known = InSamples(flat(function))
        self.functions = (function,)
        self.call = call

    @property
    def toned(self) -> list[Any]:
        return self._known.steps

    def run(self, sample: Any, key: int) -> Any:
        return self._function(sample, key)

    def end(self, sample: Any, key: int) -> Any:
        found = self._known(sample)
        return self.run(sample, key) if found is None else found


class Fields(Step):
    """Functions of the values at some places of a tuple, or under some names of a dict."""

    def __init__(self, transforms: Mapping[Any, Any], call: str) -> None:
        self._tails = dict(transforms)  # by place or name: Tails
        self.functions = tuple(step for tail in self._tails.values() for step in tail.steps)
        self.call = call

    @property
    def toned(self) -> list[Any]:
        return next((list(tail.steps[tail.begin :]) for tail in self._tails.values() if tail.tone is not None), [])

    def run(self, sample: Any, key: int) -> Any:
        return self._run(sample, key, lambda tail: tail)

    def end(self, sample: Any, key: int) -> Any:
        return self._run(sample, key, lambda tail: tail.end)

    def alone(self) -> None:
        for tail in self._tails.values():
            tail.alone()

    def _run(self, sample: Any, key: int, way: Callable[[Any], Callable[[Any, int], Any]]) -> Any:
        if isinstance(sample, Mapping):
            made = dict(sample)
            for at, tail in self._tails.items():
                name = near(at, made)
                made[name] = way(tail)(made[name], below(key, _field(at)))
            return made
        if not isinstance(sample, (tuple, list)):
            raise TypeError(
                f"{self.call} needs samples that are tuples or dicts, and this is a {type(sample).__name__}"
            )
        values = list(sample)
        for at, tail in self._tails.items():
            values[at] = way(tail)(values[at], below(key, at))
        return tuple(values)


class Tails(Fields):
    """The ends of transforms of fields. ``one``: the sample is the picture itself."""

    def __init__(self, tails: Mapping[Any, Any], one: bool) -> None:
        super().__init__(tails, "transform")
        self._one = one

    def _run(self, sample: Any, key: int, way: Callable[[Any], Callable[[Any, int], Any]]) -> Any:
        return way(next(iter(self._tails.values())))(sample, key) if self._one else super()._run(sample, key, way)

    def why(self) -> str:
        return str(next(iter(self._tails.values())).why())


class Pick(Step):
    """These fields only, in this order. "jpg;png" takes the first that a sample has."""

    passes = True

    def __init__(self, names: Sequence[str], form: str, call: str) -> None:
        self.names = tuple(names)
        self.form = form
        self.call = call

    def run(self, sample: Any, key: int) -> Any:
        if not isinstance(sample, Mapping):
            raise TypeError(f"{self.call} needs samples that are dicts, and this one is a {type(sample).__name__}")
        if self.form == "tuple":
            return tuple(sample[near(name, sample)] for name in self.names)
        return {name: sample[near(name, sample)] for name in self.names}


class Renamed(Step):
    """Fields under new names: ``{new: "jpg;png"}``."""

    call = "rename"
    passes = True

    def __init__(self, names: Mapping[str, str], keep: bool) -> None:
        self.names = dict(names)
        self.keep = keep

    def run(self, sample: Any, key: int) -> Any:
        taken = {name: near(stored, sample) for name, stored in self.names.items()}
        rest = {} if not self.keep else {k: v for k, v in sample.items() if k not in taken.values()}
        return {**rest, **{name: sample[stored] for name, stored in taken.items()}}


class Keep(Step):
    """Only the samples for which ``function`` is true."""

    passes = True

    def __init__(self, function: Any, call: str = "filter") -> None:
        self._function = Function(function)
        self.functions = (function,)
        self.call = call

    def keeps(self, sample: Any, key: int) -> bool:
        found = self._function(sample, key)
        try:
            return bool(found)
        except (ValueError, RuntimeError):  # an array of several: NumPy's, torch's
            shape = tuple(getattr(found, "shape", ()))
            raise ValueError(
                f"{called(self._function.function)} returned an array of shape {shape}; {self.call} needs True or False"
            ) from None


class View(Step):
    """A choice by number: ``choose`` gives the numbers that remain."""

    passes = True

    def __init__(self, call: str, *numbers: Any) -> None:
        self.call = call
        self.numbers = numbers

    def choose(self, ids: Sequence[int]) -> Sequence[int]:
        first = self.numbers[0]
        if self.call == "take":
            return ids[:first]
        if self.call == "skip":
            return ids[first:]
        if self.call == "shard":
            return ids[self.numbers[1] :: first]
        if self.call == "slice":
            return ids[slice(*self.numbers)]
        several: Sequence[int] = array("q", ids) * first  # repeat
        return several

    def shown(self) -> str:
        return ", ".join(map(str, self.numbers))


class Then:
    """A collate function and functions of its batches: what ``map`` after ``batch`` is."""

    def __init__(self, collate: Any, functions: Sequence[Any]) -> None:
        self.collate = collate
        self.functions = [Function(function) for function in functions]
        self.__qualname__ = " ".join(named(function) for function in functions)

    def why(self) -> str:
        return f"map({called(self.functions[0].function)}) of batches is Python"

    def __call__(self, samples: Any, rng: Any = None) -> Any:
        from ._values import collated

        batch = (self.collate or collated)(samples)
        for number, function in enumerate(self.functions):
            batch = function(batch, int(rng.integers(1 << 62)) + number if function.rng else 0)
        return batch


class Program:
    """Steps, one after another. Can be pickled if the functions can."""

    def __init__(self, steps: Iterable[Step] = ()) -> None:
        self.steps = tuple(steps)
        looking = [number for number, step in enumerate(self.steps, _STEP) if not (step.passes or step.idle)]
        self._last = looking[-1] if looking else 0
        last = self.steps[self._last - _STEP] if looking else None
        for number in looking[:-1]:
            self.steps[number - _STEP].alone()
        self.toned = list(last.toned) if last is not None else []
        self.looks = last is not None  # at values

    @property
    def functions(self) -> list[Any]:
        return [function for step in self.steps for function in step.functions]

    def parts(self) -> list[tuple[Any, str]]:
        """The user's functions, each with the words by which errors name it."""
        return [
            (function, f"{step.call} {called(function if hasattr(function, '__qualname__') else type(function))}")
            for step in self.steps
            for function in step.functions
        ]

    @property
    def running(self) -> list[Step]:
        """The steps that do something to every sample."""
        return [step for step in self.steps if not step.idle and not isinstance(step, (Keep, View))]

    @property
    def runs(self) -> bool:
        """Whether a sample is anything else afterwards."""
        return bool(self.running)

    def apply(self, sample: Any, key: int) -> Any:
        return now(self.begun(sample, key))

    def begun(self, sample: Any, key: int) -> Any:
        """The same, but pictures may be a Toned."""
        for number, step in enumerate(self.steps, _STEP):
            run = step.end if number == self._last else step.run
            sample = run(sample, below(key, number))
        return sample

    def names(self) -> list[str]:
        """What states know it by: functions by their qualified names."""
        return [f"{step.call} {' '.join(map(named, step.functions))}" for step in self.steps]


def _wanted(function: Any) -> int:
    """How many values a function has to be given: a lambda of (image, label) gets the items of a sample."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    return sum(
        one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and one.default is one.empty and one.name != "rng"
        for one in found
    )


@functools.cache
def _field(at: Any) -> int:
    """A word below a sample's key for a field: its place, or a digest of its name."""
    return (
        at
        if isinstance(at, int)
        else int.from_bytes(hashlib.blake2b(str(at).encode(), digest_size=7).digest(), "little")
    )


def near(name: Any, sample: Mapping[Any, Any]) -> Any:
    """The name that the sample has, of "jpg;png"."""
    if name in sample or not isinstance(name, str):
        return name
    found = next((part for part in name.split(";") if part in sample), None)
    if found is None:
        raise KeyError(f"{name!r}: the sample has {', '.join(map(str, sample))}")
    return found

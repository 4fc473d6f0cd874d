"""Random numbers of user's code: the generators are seeded from a key before each sample.

A key is made by the engine from (seed, epoch, place), so that any number of workers, any restart and any resume give
the same samples. ``random``, NumPy's global generator and torch's default one are seeded if they are loaded. Objects in
the dataset with a generator of their own are seeded where they are known (Albumentations). A function with a parameter
``rng`` gets a numpy.random.Generator of the key.

Seeding costs some microseconds a sample, more than a tiny sample itself, so each generator is seeded the cheapest way:
torch.default_generator (torch.manual_seed formats a stack at each call until CUDA is initialised), NumPy by one integer
of 32 bits (an array of integers takes ten times as long), and ``random`` without the method in Python that asks for the
type of the seed. Seeding them lazily would need hooks in all three; giving NumPy another bit generator, whose state is
cheaper to set, would change what ``numpy.random.seed`` does in the user's code.
"""

from __future__ import annotations

import _random
import inspect
import pickle
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from operator import getitem
from types import FunctionType
from typing import Any

from ._order import MASK, below, epoch_key

MAX_DEPTH = 6  # of attributes that are searched for generators
_BASE = (1 << 62) - 1  # torch adds the worker's number to the seed, and seeds are below 2**63
_COLLATE = 1  # the word that names the level below a sample's key

# The generator of the functions in ``random``, and what random.seed does with an integer but for gauss_next.
_own: Any = getattr(random.random, "__self__")  # noqa: B009
_seed_random: Callable[[Any, int], None] = _random.Random.seed


class Steps:
    """What workers get of a dataset of this package's, in place of a dataset of the user's own."""

    functions: list[Any] = []  # noqa: RUF012 - of the user's, in which generators are searched for

    def parts_named(self) -> list[tuple[Any, str]]:
        """What is the user's in it, each with the words by which an error names it."""
        return []


class Keyed(Steps):
    """One whose samples are made from a number and a key."""

    def keyed(self, number: int, key: int) -> Any:
        raise NotImplementedError


def getter(dataset: Any, keys: Callable[[], int]) -> Callable[[Any], Any]:
    """What makes sample ``number`` of a dataset; ``keys`` gives the key of now, for those that want it."""
    if isinstance(dataset, Keyed):
        return lambda number: dataset.keyed(number, keys())
    if takes_rng(getattr(dataset, "__getitem__", None)):
        return with_rng(dataset.__getitem__, keys)
    return partial(getitem, dataset)


def wants_key(dataset: Any) -> bool:
    """Whether ``getter`` asks for keys."""
    return isinstance(dataset, Keyed) or takes_rng(getattr(dataset, "__getitem__", None))


class Seeder:
    """Seeds everything that ``dataset`` may draw from: ``seed(key)``. ``draws`` is False if it draws nothing."""

    def __init__(self, dataset: Any) -> None:
        self.draws = may_draw(dataset)
        self._own = list(owners(dataset))
        self._numpy: Any = None
        self._torch: Any = None
        self._modules = -1

    def seed(self, key: int) -> None:
        if len(sys.modules) != self._modules:
            self._look()
        _seed_random(_own, key)
        _own.gauss_next = None
        if self._numpy is not None:
            self._numpy(key & 0xFFFFFFFF)
        if self._torch is not None:
            self._torch(key if key < 1 << 63 else key - (1 << 64))
        for owner in self._own:
            owner.set_random_seed(key & 0xFFFFFFFF)

    def _look(self) -> None:
        """A sample may have imported NumPy or torch: the next ones then draw from it."""
        self._modules = len(sys.modules)
        if (numpy := _numpy()) is not None:
            self._numpy = getattr(numpy, "seed", None)
        if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "default_generator"):
            self._torch = torch.default_generator.manual_seed


def _numpy() -> Any:
    """numpy.random, if NumPy is loaded: NumPy loads it when it is first used, which may be in a sample."""
    numpy = sys.modules.get("numpy")
    try:
        return getattr(numpy, "random", None)
    except Exception:  # NumPy is being imported by another thread
        return None


def ready() -> None:
    """Loads what forked workers would otherwise load again, each for itself."""
    _numpy()


def collate_key(key: int) -> int:
    """The key of a collate function, from that of the first row."""
    return below(key, _COLLATE)


def generator(key: int) -> Any:
    """What a parameter ``rng`` gets."""
    import numpy

    return numpy.random.Generator(numpy.random.PCG64(key))


def takes_rng(function: Any) -> bool:
    """Whether a function has a parameter ``rng`` that a call without it would need or accept by name."""
    try:
        found = inspect.signature(function).parameters.get("rng")
    except (TypeError, ValueError):
        return False
    return found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)


def may_draw(dataset: Any) -> bool:
    """False for types that only look up what they hold: lists, arrays, TensorDataset, and torch's combinations of
    these."""
    if type(dataset) in (list, tuple, range, dict, str, bytes):
        return False
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(dataset, numpy.ndarray):
        return False
    if torch is None:
        return True
    if type(dataset) is torch.Tensor:
        return False
    data: Any = sys.modules.get("torch.utils.data")
    if data is None:
        return True
    if type(dataset) is data.TensorDataset:
        return False
    if type(dataset) is data.Subset:
        return may_draw(dataset.dataset)
    if type(dataset) in (data.ConcatDataset, getattr(data, "StackDataset", None)):
        inner = dataset.datasets
        return any(may_draw(part) for part in (inner.values() if isinstance(inner, dict) else inner))
    return True


def owners(dataset: Any) -> Iterator[Any]:
    """Objects in a dataset's attributes that have generators of their own: the outermost of Albumentations'."""
    if not any(name.partition(".")[0] == "albumentations" for name in sys.modules):
        return
    seen: set[int] = set()
    level = list(dataset.functions) if isinstance(dataset, Steps) else [dataset]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for value in level:
            if id(value) in seen:
                continue
            seen.add(id(value))
            if _own_generator(value):
                yield value
            elif isinstance(value, Mapping):
                inner += list(value.values())[:100]
            elif isinstance(value, (list, tuple)):
                inner += value[:100]
            elif isinstance(getattr(value, "__dict__", None), dict) and not isinstance(value, type):
                inner += vars(value).values()
                inner += [cell.cell_contents for cell in _cells(value)]
        level = inner


def _own_generator(value: Any) -> bool:
    kind = type(value)
    return any(base.__module__.partition(".")[0] == "albumentations" for base in kind.__mro__) and callable(
        getattr(value, "set_random_seed", None)
    )


def _cells(value: Any) -> list[Any]:
    """What a function closes over."""
    found = []
    for cell in (value.__closure__ or ()) if isinstance(value, FunctionType) else ():
        try:
            _ = cell.cell_contents
        except ValueError:  # empty
            continue
        found.append(cell)
    return found


def base_seed(seed: int, epoch: int, batch: int = 0) -> int:
    """The base seed of a pass of a loader with this seed: worker i is told this number plus i. Below 2**62. Another one
    if the pass goes on at a batch: the numbers that it began with are not drawn again."""
    key = epoch_key(seed, epoch)
    return (below(key, batch) if batch else key) & _BASE


def states() -> tuple[Any, ...]:
    """The states of the three generators, to be compared."""
    numpy, torch = _numpy(), sys.modules.get("torch")
    arrays = None if numpy is None else pickle.dumps(numpy.get_state())
    tensors = None if torch is None else torch.default_generator.get_state().tolist()
    return random.getstate(), arrays, tensors


def seed_worker(base: int, worker: int) -> None:
    """torch's rule for a worker: one seed per worker and pass."""
    random.seed(base + worker)
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.manual_seed((base + worker) & MASK if base >= 0 else base + worker)
    if (numpy := _numpy()) is not None:
        if (theirs := sys.modules.get("torch.utils.data._utils.worker")) is not None and hasattr(
            theirs, "_generate_state"
        ):
            numpy.seed(theirs._generate_state(base, worker))
        else:
            numpy.seed(((base + worker) & 0xFFFFFFFF, (base + worker) >> 32 & 0xFFFFFFFF))


def taken() -> tuple[Any, Any, Any]:
    """The states of the three generators, for ``give``."""
    numpy, torch = _numpy(), sys.modules.get("torch")
    arrays: Any = None if numpy is None else numpy.get_state()
    return random.getstate(), arrays, None if torch is None else torch.default_generator.get_state()


def give(states: tuple[Any, Any, Any]) -> None:
    """Puts the generators into these states; one that was loaded since stays as it is."""
    own, arrays, tensors = states
    random.setstate(own)
    if arrays is not None:
        _numpy().set_state(arrays)
    if tensors is not None:
        sys.modules["torch"].default_generator.set_state(tensors)


@contextmanager
def put_back() -> Iterator[None]:
    """The state of the three generators is the same after the block as before it."""
    before = taken()
    try:
        yield
    finally:
        give(before)


def with_rng(function: Callable[..., Any], keys: Callable[[], int]) -> Callable[..., Any]:
    """The function, which is given ``rng=`` if it has such a parameter; ``keys`` gives the key of now."""
    if not takes_rng(function):
        return function
    return lambda *args: function(*args, rng=generator(keys()))

"""The keywords that decide the order of samples and how samples become batches.

Ordering   their result: parts of the Spec, and the user's sampler if there is one
read()     keywords -> Ordering
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from . import _numbers
from ._advice import MASKED
from ._errors import MAX_COUNT, ConfigError, Problems, many, whole
from ._seeds import Seed

SHUFFLES = ("none", "full", "block", "window")
LONG = ("split", "truncate", "refuse")


@dataclass(frozen=True)
class Ordering:
    """What decides the order. Columns of numbers are kept separate, because they are sent separately."""

    order: dict[str, Any] = field(default_factory=dict)  # part of the Spec, without seed and tail
    batch: dict[str, Any] = field(default_factory=dict)  # part of the Spec, without size
    numbers: dict[str, array[float]] = field(default_factory=dict)  # "order.weights", "batch.lengths"
    global_size: int | None = None
    sampler: Any = None  # the user's object, whether or not the engine computes its order
    batched: bool = False  # whether it gives lists
    walked: bool = False  # its ids are taken from it, one by one; otherwise the engine computes them
    ranks: tuple[int, int] | None = None  # rank and world size that the sampler decides
    seed: Seed | None = None  # of the sampler
    size: int | None = None  # size of the batches that a batch_sampler makes
    drop: bool = False  # and whether it drops one that is not full
    picked: bool = False  # whether the sampler has ids of its own choice
    own: array[float] | None = None  # numbers of the samples that the dataset itself has chosen

    @property
    def free(self) -> bool:
        """Whether nothing but the dataset says which samples there are."""
        return self.plain or replace(self, numbers={k: v for k, v in self.numbers.items() if v is not self.own}).plain

    @property
    def stored(self) -> bool:
        """Whether the order is that of the storage, whatever the seed is."""
        return self.plain and not self.order and self.sampler is None

    @property
    def plain(self) -> bool:
        """Whether an epoch is every sample once, dealt place by place."""
        return not (
            self.sampler is not None
            or self.batch
            or "order.subset" in self.numbers
            or set(self.order) - {"shuffle", "block", "window", "streams"}
        )

    def spec(self, part: str) -> dict[str, Any]:
        """The keys of a part of the Spec."""
        said = dict(getattr(self, part))
        for name, numbers in self.numbers.items():
            where, _, key = name.partition(".")
            if where == part:
                said[key] = _numbers.column(numbers)
        return said


def read(k: Mapping[str, Any], shuffled: bool, problems: Problems) -> Ordering:
    """Reads the keywords; ``shuffled`` says whether the dataset asks for a shuffle itself."""
    if k["sampler"] is not None or k["batch_sampler"] is not None:
        return _sampled(k, shuffled, problems)
    order: dict[str, Any] = {}
    batch: dict[str, Any] = {}
    numbers: dict[str, array[float]] = {}
    _shuffle(k, shuffled, order, problems)
    for key, into in (
        ("block", order), ("window", order), ("streams", order), ("num_samples", order),
        ("bucket", batch), ("tokens", batch), ("pack", batch),
    ):  # fmt: skip
        _count(key, k[key], into, problems)
    if k["length_window"] is not None:
        _count("length_window", k["length_window"], batch, problems)
        batch["window"] = batch.pop("length_window", None)
    for key in ("balanced", "replacement"):
        if k[key] not in (None, False, True):
            problems.add(f"{key} is {k[key]!r}", "give True or False")
        elif k[key] is not None and (k[key] or key == "replacement"):
            order[key] = k[key]
    if k["long"] is not None:
        if k["long"] not in LONG:
            problems.add(f"long is {k['long']!r}", f"it can be {', '.join(map(repr, LONG))}")
        batch["long"] = k["long"]
    if k["weights"] is not None and (weights := _numbers.read("weights", k["weights"], problems)) is not None:
        numbers["order.weights"] = weights
    if isinstance(k["lengths"], str):
        batch["lengths"] = k["lengths"]
    elif k["lengths"] is not None and (lengths := _numbers.read("lengths", k["lengths"], problems)) is not None:
        numbers["batch.lengths"] = lengths
    return Ordering(order, batch, numbers, _global_size(k, problems))


def chosen(ordering: Ordering, subset: array[float] | None, stored: int, problems: Problems) -> Ordering:
    """The same order of the samples that a dataset chose itself: those with these numbers, of so many."""
    if subset is None:
        return ordering
    if ordering.order.get("shuffle") == "block":
        problems.add(
            "shuffle='block' reads whole shards, and the dataset has single samples of them (filter, take, ...)",
            "shuffle=True, or 'window'",
        )
    numbers = dict(ordering.numbers)
    if (weights := numbers.get("order.weights")) is not None and len(weights) != len(subset):
        problems.add(
            f"{many(len(weights), 'weight')} for {many(len(subset), 'sample')}",
            f"give one for each sample that is left of {stored} (filter, take, ...): dataset.indices has their numbers",
        )
    if ordering.walked:
        return replace(ordering, sampler=Through(ordering.sampler, subset), own=subset)
    if (lengths := numbers.get("batch.lengths")) is not None and len(lengths) == len(subset):
        spread = array("d", bytes(8 * stored))
        for number, value in zip(subset, lengths, strict=True):
            spread[int(number)] = value
        numbers["batch.lengths"] = spread
    before = numbers.get("order.subset")
    numbers["order.subset"] = subset if before is None else array("d", (subset[int(i)] for i in before))
    return replace(ordering, numbers=numbers, own=subset)


class Through:
    """A sampler of a chosen dataset's samples, as ids of the samples that are stored."""

    def __init__(self, inner: Any, subset: array[float]) -> None:
        self.inner = inner
        self._subset = subset

    def __iter__(self) -> Iterator[Any]:
        there = len(self._subset)
        for given in self.inner:
            several = given if isinstance(given, (list, tuple)) or hasattr(given, "tolist") and given.shape else [given]
            ids = []
            for one in several:
                if not -there <= int(one) < there:
                    raise ConfigError(
                        f"the sampler gave sample {one}, but the dataset has {many(there, 'sample')}",
                        hint="a sampler gives numbers from 0 to len(dataset) - 1; a dataset of which a filter chose "
                        "samples numbers those that are left",
                    )
                ids.append(int(self._subset[int(one)]))
            yield ids[0] if several is not given else ids

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("inner", "dtype", "shape", "tolist"):
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)


def given(sampler: Any) -> Any:
    """The sampler as the user gave it."""
    return sampler.inner if isinstance(sampler, Through) else sampler


def _shuffle(k: Mapping[str, Any], shuffled: bool, order: dict[str, Any], problems: Problems) -> None:
    shuffle = k["shuffle"]
    if shuffle in (None, False, True):
        shuffle = "full" if shuffle or shuffled else None
    elif shuffle not in SHUFFLES:
        problems.add(f"shuffle is {shuffle!r}", f"give True, False, or one of {', '.join(map(repr, SHUFFLES))}")
        return
    draws = k["weights"] is not None or k["balanced"] or k["replacement"]
    if draws and k["shuffle"]:
        problems.add(
            "shuffle and a draw (weights, balanced, replacement) exclude each other",
            "leave shuffle out: a draw is random",
        )
    if shuffle is not None and not draws:
        order["shuffle"] = shuffle


def _count(key: str, value: Any, into: dict[str, Any], problems: Problems) -> None:
    if value is None:
        return
    if not whole(value) or not 1 <= value <= MAX_COUNT:
        problems.add(f"{key} is {value!r:.80}", "give an integer from 1 to 2**53")
        return
    into[key] = int(value)


def _global_size(k: Mapping[str, Any], problems: Problems) -> int | None:
    size = k["global_batch_size"]
    if size is None:
        return None
    if not whole(size) or not 1 <= size <= MAX_COUNT:
        problems.add(f"global_batch_size is {size!r:.80}", "give an integer from 1 to 2**53")
        return None
    if k["batch_size"] not in (None, 1):
        problems.add(f"batch_size {k['batch_size']} and global_batch_size {size} exclude each other", "give only one")
    return int(size)


# Keywords that a sampler replaces.
_OWN = (
    "block", "window", "streams", "weights", "balanced", "replacement", "num_samples",
    "lengths", "bucket", "tokens", "pack", "long", "length_window", "global_batch_size",
)  # fmt: skip


def _sampled(k: Mapping[str, Any], shuffled: bool, problems: Problems) -> Ordering:
    name = "sampler" if k["sampler"] is not None else "batch_sampler"
    sampler = k[name]
    if k["sampler"] is not None and k["batch_sampler"] is not None:
        problems.add("sampler and batch_sampler exclude each other", "give only one")
    if k["shuffle"] or shuffled:
        problems.add(f"{name} and shuffle exclude each other", f"the {name} decides the order: leave shuffle out")
    if others := [key for key in _OWN if k[key] is not None and k[key] is not False]:
        problems.add(f"{name} alone decides the order, and so would {', '.join(others)}", "leave one of them out")
    if name == "batch_sampler" and (k["batch_size"] != 1 or k["drop_last"]):
        problems.add("batch_sampler makes the batches, so batch_size and drop_last cannot be given", "leave them out")
    if not hasattr(sampler, "__iter__") and not hasattr(sampler, "__getitem__"):
        problems.add(f"{name} is of type {type(sampler).__name__}, which is not iterable", "give any iterable of ids")
        return Ordering()
    if _numbers.is_mask(sampler):
        problems.add(f"{name} is a mask (bools), not a list of ids", MASKED)
        return Ordering()
    if name == "sampler":
        return _native(sampler) or Ordering(sampler=sampler, walked=True)
    if hasattr(sampler, "_batch"):
        inner, size, drop = sampler._batch()
        found = _native(inner)
        if found is not None and not found.walked and inner._world() is None:
            return replace(found, size=size, drop=drop)
    return Ordering(sampler=sampler, batched=True, walked=True)


def _native(sampler: Any) -> Ordering | None:
    """One of our samplers, if the engine can compute its order."""
    whole_order = getattr(sampler, "_order", None)
    said = whole_order() if callable(whole_order) else None
    if said is None:
        return None
    order = dict(said)
    rank, world, drop = sampler._world() or (0, 1, False)
    if drop and sampler._samples() % world:
        return Ordering(sampler=sampler, walked=True)  # a tail that the engine does not have
    numbers = {
        f"order.{key}": array("d", order.pop(key)) for key in ("weights", "subset") if order.get(key) is not None
    }
    if "order.weights" in numbers:
        order.setdefault("replacement", False)
    picked = "order.subset" in numbers
    return Ordering(
        order, {}, numbers, sampler=sampler, picked=picked, ranks=(rank, world), seed=getattr(sampler, "_seed", None)
    )

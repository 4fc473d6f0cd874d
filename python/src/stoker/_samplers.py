"""Samplers with torch's names and signatures, in stoker's order.

Sampler       common to all: passes, epochs, state (in _passes.py)
 ├── SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler
 └── DistributedSampler
BatchSampler  batches of any of them, or of any other iterable

They need neither torch nor an engine. In torch's own DataLoader they replace torch's samplers; inside stoker.DataLoader
the engine computes the same sequence itself, from these methods:

_order()   the order for the Spec, for a world size of one; None if the Spec cannot express it
_samples() the number of samples that are drawn from, which the dataset must have; for a subset, the minimum
_world()   (rank, world size, drop_last), of DistributedSampler
_batch()   (sampler, batch_size, drop_last), of BatchSampler
_begin()   begins a pass, as its first id does: returns its epoch and position, which advance in place
"""

from __future__ import annotations

import hashlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import Any

from . import _order, _seeds
from ._advice import MASKED
from ._arguments import check_race, count, length, plain, rank_and_world, read_weights, truth
from ._errors import Problems, StateError, whole
from ._numbers import is_mask
from ._passes import STATE_VERSION, Sampler, Seeded, check_kind
from ._torchs import DISTRIBUTED, SEQUENTIAL


class SequentialSampler(Sampler):
    """The ids of ``data_source`` from 0 on."""

    def __init__(self, data_source: Sized) -> None:
        super().__init__()
        problems = Problems("SequentialSampler")
        length("data_source", data_source, problems)
        problems.raise_any()
        self.data_source = data_source

    def _passes_for(self) -> tuple[tuple[str, str], ...]:
        return (SEQUENTIAL,)

    def _samples(self) -> int:
        return len(self.data_source)

    def _places(self) -> int:
        return len(self.data_source)

    def _sequence(self, epoch: int) -> _order.Sequence:
        return _order.Stored()

    def _policy(self) -> dict[str, Any]:
        return {"samples": self._samples()}

    def _order(self) -> dict[str, Any] | None:
        return {}


class RandomSampler(Seeded):
    """The ids of ``data_source`` in a different order every epoch.

    replacement   draw every id independently, so that it may come again
    num_samples   ids in a pass; default: one per sample. More than there are, without replacement, give whole
                  permutations one after another and part of one
    generator     gives the seed, by its initial_seed()
    seed          0 to 2**64 - 1; default, without a generator: as for DataLoader
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Any = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        problems = Problems("RandomSampler")
        samples = length("data_source", data_source, problems)
        replacement = truth("replacement", replacement, problems)
        if num_samples is not None:
            num_samples = count("num_samples", num_samples, problems)
        if samples == 0:
            problems.add("data_source is empty, so nothing can be drawn", "check the data source")
        self._seed = _seeds.read(seed, generator, problems)
        problems.raise_any()
        self.data_source = data_source
        self.replacement = replacement
        self.generator = generator
        self._num_samples = num_samples

    @property
    def num_samples(self) -> int:
        """Number of ids in a pass."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def _samples(self) -> int:
        return len(self.data_source)

    def _places(self) -> int:
        return self.num_samples

    def _sequence(self, epoch: int) -> _order.Sequence:
        key = _order.epoch_key(self.seed, epoch)
        samples = len(self.data_source)
        if self.replacement:
            return _order.Uniform(samples, _order.below(key, _order.DRAW))
        return _order.Rounds(samples, _order.below(key, _order.SHUFFLE))

    def _policy(self) -> dict[str, Any]:
        return {
            "samples": self._samples(),
            "seed": self.seed,
            "replacement": self.replacement,
            "num_samples": self.num_samples,
        }

    def _order(self) -> dict[str, Any] | None:
        if not self.replacement and self.num_samples > self._samples():
            return None
        said: dict[str, Any] = {"replacement": True} if self.replacement else {"shuffle": "full"}
        if self._num_samples is not None and self._num_samples != self._samples():
            said["num_samples"] = self._num_samples
        return said


class SubsetRandomSampler(Seeded):
    """The items of ``indices`` in a different order every epoch.

    generator   gives the seed, by its initial_seed()
    seed        0 to 2**64 - 1; default, without a generator: as for DataLoader
    """

    def __init__(self, indices: Sequence[int], generator: Any = None, *, seed: int | None = None) -> None:
        super().__init__()
        problems = Problems("SubsetRandomSampler")
        length("indices", indices, problems)
        if not hasattr(indices, "__getitem__"):
            problems.add(f"indices is of type {type(indices).__name__}, which has no order", "give a list of ids")
        if is_mask(indices):
            problems.add("indices is a mask (bools), not a list of ids", MASKED)
        self._seed = _seeds.read(seed, generator, problems)
        problems.raise_any()
        self.indices = indices
        self.generator = generator

    def _samples(self) -> int:
        """The smallest number of samples that includes all ids."""
        return max(self._ids() or (), default=-1) + 1

    def _places(self) -> int:
        return len(self.indices)

    def _sequence(self, epoch: int) -> _order.Sequence:
        key = _order.below(_order.epoch_key(self.seed, epoch), _order.SHUFFLE)
        return _order.Picked(_order.Full(len(self.indices), key), plain(self.indices))

    def _policy(self) -> dict[str, Any]:
        ids = self._ids()
        data = repr(list(self.indices)).encode() if ids is None else ids.tobytes()
        return {"indices": _digest(data), "samples": len(self.indices), "seed": self.seed}

    def _order(self) -> dict[str, Any] | None:
        ids = self._ids()
        if not ids or min(ids) < 0:
            return None
        return {"shuffle": "full", "subset": ids.tolist()}

    def _ids(self) -> array[int] | None:
        """The indices as integers; None if they are something else."""
        items = plain(self.indices)
        if not isinstance(items, (list, tuple, range)):
            items = [items[i] for i in range(len(items))]
        try:
            return array("q", items)
        except (TypeError, OverflowError):
            return None


class WeightedRandomSampler(Seeded):
    """Ids below ``len(weights)``, drawn in proportion to their weights.

    weights       numbers, at least 0, with any sum
    num_samples   ids in a pass; without replacement at most the number of weights above 0
    replacement   draw every id independently (default); otherwise no id comes twice in a pass
    generator     gives the seed, by its initial_seed()
    seed          0 to 2**64 - 1; default, without a generator: as for DataLoader
    """

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Any = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        problems = Problems("WeightedRandomSampler")
        replacement = truth("replacement", replacement, problems)
        num_samples = count("num_samples", num_samples, problems)
        self._seed = _seeds.read(seed, generator, problems)
        self._weights = read_weights(weights, problems)
        if replacement is False:
            check_race(self._weights, num_samples, problems)
        problems.raise_any()
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator
        self._cdf = _order.cumulate(self._weights)
        self._digest = _digest(self._weights.tobytes())

    @property
    def weights(self) -> Sequence[float]:
        """The weights that were given. They cannot be changed: make another sampler."""
        return memoryview(self._weights).toreadonly()

    def _samples(self) -> int:
        return len(self._weights)

    def _places(self) -> int:
        return self.num_samples

    def _sequence(self, epoch: int) -> _order.Sequence:
        key = _order.below(_order.epoch_key(self.seed, epoch), _order.DRAW)
        if self.replacement:
            return _order.Weighted(self._cdf, key)
        return _order.Race(self._weights, self.num_samples, key)

    def _policy(self) -> dict[str, Any]:
        return {
            "weights": self._digest,
            "seed": self.seed,
            "replacement": self.replacement,
            "num_samples": self.num_samples,
        }

    def _order(self) -> dict[str, Any] | None:
        said: dict[str, Any] = {"weights": self._weights.tolist()}
        if self.replacement:
            said["replacement"] = True
        if self.num_samples != len(self._weights):
            said["num_samples"] = self.num_samples
        return said


class DistributedSampler(Seeded):
    """One rank's share of the ids of ``dataset``: the ranks take turns along one order, and all get equally many.

    num_replicas, rank   default: torch.distributed's if it is running, else WORLD_SIZE and RANK, else 1 and 0
    shuffle              a different order every epoch
    seed                 0 to 2**64 - 1, the same on every rank
    drop_last            drop the ids at the end that do not divide evenly; otherwise ids from the beginning fill up

    Passes count the epochs themselves. torch's class repeats one order until ``set_epoch`` is called; a program that
    calls it before every pass sees no difference.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        super().__init__()
        problems = Problems("DistributedSampler")
        self._n = length("dataset", dataset, problems)
        self._placed = rank is not None and num_replicas is not None
        rank, num_replicas = rank_and_world(rank, num_replicas, problems)
        shuffle = truth("shuffle", shuffle, problems)
        drop_last = truth("drop_last", drop_last, problems)
        self._seed = _seeds.read(seed, None, problems)
        problems.raise_any()
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.shuffle = shuffle
        self.drop_last = drop_last

    def _passes_for(self) -> tuple[tuple[str, str], ...]:
        return (DISTRIBUTED,) if self.__dict__.get("shuffle", True) else (DISTRIBUTED, SEQUENTIAL)

    @property
    def num_samples(self) -> int:
        """Number of ids in a pass, on each rank."""
        return len(self)

    @property
    def total_size(self) -> int:
        """Number of ids in a pass, over all ranks."""
        return len(self) * self.num_replicas

    def _samples(self) -> int:
        return self._n

    def _places(self) -> int:
        return self._n

    def _share(self, start: int) -> range:
        left = self._n - start
        world = self.num_replicas
        each = left // world if self.drop_last else -(-left // world)
        return range(start + self.rank, start + self.rank + each * world, world)

    def _sequence(self, epoch: int) -> _order.Sequence:
        if not self.shuffle:
            return _order.Padded(_order.Stored(), self._n)
        key = _order.below(_order.epoch_key(self.seed, epoch), _order.SHUFFLE)
        return _order.Padded(_order.Full(self._n, key), self._n)

    def _policy(self) -> dict[str, Any]:
        return {"samples": self._n, "shuffle": self.shuffle, **({"seed": self.seed} if self.shuffle else {})}

    def _order(self) -> dict[str, Any] | None:
        return {"shuffle": "full"} if self.shuffle else {}

    def _world(self) -> tuple[int, int, bool]:
        return self.rank, self.num_replicas, self.drop_last


class BatchSampler:
    """Lists of ``batch_size`` ids from ``sampler``, which may be any iterable.

    ``drop_last`` drops a last batch that is not full. Epochs and state are the sampler's if it has them; for any other
    iterable, the state counts the ids that were given, and loading it skips as many.
    """

    def __init__(self, sampler: Iterable[Any], batch_size: int, drop_last: bool) -> None:
        problems = Problems("BatchSampler")
        if not hasattr(sampler, "__iter__") and not hasattr(sampler, "__getitem__"):
            problems.add(f"sampler is of type {type(sampler).__name__}", "give a sampler, or any iterable of ids")
        if is_mask(sampler):
            problems.add("sampler is a mask (bools), not a list of ids", MASKED)
        batch_size = count("batch_size", batch_size, problems)
        drop_last = truth("drop_last", drop_last, problems)
        problems.raise_any()
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last
        self._stateful = callable(getattr(sampler, "state_dict", None)) and hasattr(sampler, "load_state_dict")
        self._restored: _Taken | None = None
        self._taken: _Taken | None = None

    def __iter__(self) -> Iterator[list[Any]]:
        ids = iter(self.sampler)  # at once: see Sampler.__iter__; an iterator that ended is the same case
        if self._restored is not None and self._restored.ended:
            self._taken, self._restored = self._restored, None
            return iter(())
        return self._run(ids)

    def _run(self, ids: Iterator[Any]) -> Iterator[list[Any]]:
        taken = self._taken = self._restored or _Taken()
        self._restored = None
        deque(islice(ids, taken.ids), maxlen=0)
        while batch := [*islice(ids, self.batch_size)]:
            if self.drop_last and len(batch) < self.batch_size:
                break
            taken.ids += len(batch)
            yield batch
        taken.ended = True

    def __len__(self) -> int:
        """Number of batches in a whole pass, if the sampler has a length."""
        ids = len(self.sampler)  # type: ignore[arg-type]
        return ids // self.batch_size if self.drop_last else -(-ids // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the sampler's next pass, if it has epochs."""
        decide = getattr(self.sampler, "set_epoch", None)
        if decide is not None:
            decide(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The sampler's state; or how many of its ids were given in the newest pass."""
        state: dict[str, Any] = {"version": STATE_VERSION, "sampler": "BatchSampler"}
        if self._stateful:
            return {**state, "of": self.sampler.state_dict()}  # type: ignore[attr-defined]
        taken = self._restored or self._taken or _Taken()
        return {**state, "ids": taken.ids, "ended": taken.ended}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next pass continues after the batches of the state; at the end of a pass it yields nothing, once."""
        if self._stateful:
            check_kind("BatchSampler", state_dict, ["of"])
            self.sampler.load_state_dict(state_dict["of"])  # type: ignore[attr-defined]
            return
        check_kind("BatchSampler", state_dict, ["ids", "ended"])
        ids, ended = state_dict["ids"], state_dict["ended"]
        if not whole(ids) or ids < 0 or not isinstance(ended, bool):
            raise StateError(f"BatchSampler: a state of {ids!r} ids, ended: {ended!r}", hint="the state is damaged")
        self._restored = _Taken(ids, ended)

    def _batch(self) -> tuple[Iterable[Any], int, bool]:
        return self.sampler, self.batch_size, self.drop_last


class _Taken:
    """How many ids of a pass were given, and whether that was all."""

    def __init__(self, ids: int = 0, ended: bool = False) -> None:
        self.ids = ids
        self.ended = ended


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()

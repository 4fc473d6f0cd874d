"""Where the loop over a loader is: what states, receipts and the next ``iter()`` go by."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

from ._errors import ConfigError
from ._passes import counted_by_fabric
from ._torchs import DISTRIBUTED, SEQUENTIAL, Passing, torchs

if TYPE_CHECKING:
    from ._iterate import Progress
    from ._receipt import Part


class Position:
    """All that a loader knows of its own passes. Its engine, its pages and its statistics are elsewhere.

    A copy has its own lists and shares the pass begun last, which goes on moving; a pickle has a copy of that, without
    its iterator.
    """

    def __init__(self) -> None:
        self.next_epoch = 0
        self.restored: tuple[int, int] | None = None  # epoch and position of a loaded state, until a pass begins there
        self.seen: str | None = None  # of that state: the digest of what the sampler had given
        self.way: Any = None  # of that state: where each worker was in a dataset that is iterated
        self.decided = False  # whether set_epoch() or a state has said where the next pass begins
        self.progress: Progress | None = None  # of the pass begun last
        self.skipped: list[list[int]] = []  # runs of epochs that skip() passed over
        self.parts: list[Part] = []  # of receipts

    def __copy__(self) -> Position:
        other = Position()
        other.__dict__.update(self.__dict__, skipped=[*self.skipped], parts=[*self.parts])
        return other

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.alone().__dict__)

    def alone(self) -> Position:
        """A copy that stays where this is now."""
        other = copy(self)
        if self.progress is not None:
            other.progress = self.progress.copy()
        return other


class Turns(Passing):
    """Replaces torch's samplers, for loops that call ``loader.sampler.set_epoch(e)``. The loader deals to the ranks, so
    this passes for a DistributedSampler; and for a SequentialSampler if the order is that of the storage. A user's
    batch sampler deals only if its own sampler does."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def _passes_for(self) -> tuple[tuple[str, str], ...]:
        loader = self.__dict__.get("_loader")
        try:
            settings = None if loader is None else loader._settings
        except ReferenceError:  # isinstance() of a sampler that outlived its loader has an answer, too
            settings = None
        if loader is None or settings is None:
            return ()
        if settings.ordering.batched:
            distributed = torchs(*DISTRIBUTED)
            deals = distributed is not None and isinstance(getattr(loader.batch_sampler, "sampler", None), distributed)
            return (DISTRIBUTED,) if deals else ()
        return (DISTRIBUTED,) if loader._ordered else (DISTRIBUTED, SEQUENTIAL)

    @property
    def rank(self) -> int:
        """This process."""
        return int(self._loader._rank[0])

    @property
    def num_replicas(self) -> int:
        """The world size."""
        return int(self._loader._rank[1])

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the loader's next pass."""
        if not counted_by_fabric():
            self._loader.set_epoch(epoch)

    def __len__(self) -> int:
        """Samples of this rank in an epoch, with those that fill up."""
        return int(self._loader._share_of_rank())

    def __bool__(self) -> bool:  # also where there is no length
        return True

    def __iter__(self) -> Iterator[int]:
        raise _taken_apart("sampler")


class Batches:
    """Replaces torch's batch sampler, for loops that ask what the batches are. A loader of torch's that was made from
    it would give other batches, so it cannot be iterated. Lightning calls the constructor as torch's BatchSampler's,
    with a sampler of its own; a loader cannot be made from that (see _trainers.py)."""

    even_batches = True  # Accelerate asks: all ranks take the same number of steps

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool, loader: Any = None) -> None:
        self.sampler = sampler  # the loader's
        self.batch_size = batch_size  # samples per batch on this rank
        self.drop_last = drop_last  # whether a last batch that is not full is dropped
        self._loader = loader

    def __len__(self) -> int:
        if self._loader is None:
            raise _taken_apart("batch sampler")
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        raise _taken_apart("batch sampler")


def _taken_apart(what: str) -> ConfigError:
    return ConfigError(
        f"the {what} of a stoker.DataLoader was iterated, but the loader makes its batches itself; something "
        "has taken the loader apart to make another one, as accelerate.skip_first_batches does",
        hint="with Accelerate, call accelerator.prepare(loader), and accelerator.skip_first_batches after it; after "
        "load_state or load_state_dict the loader continues by itself, and nothing is to be skipped. Elsewhere, call "
        "loader.skip(batches), and pass the loader itself on",
    )

"""Where the loop over a loader is: what states, receipts and the next ``iter()`` go by."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

from ._errors import ConfigError

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


class Turns:
    """Replaces torch's samplers, for loops that call ``loader.sampler.set_epoch(e)``."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)


class Batches:
    """Replaces torch's batch sampler, for loops that ask what the batches are. A loader of torch's that was made from
    it would give other batches, so it cannot be iterated."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    @property
    def sampler(self) -> Any:
        """The loader's."""
        return self._loader.sampler

    @property
    def batch_size(self) -> int:
        """Samples per batch on this rank."""
        return int(self._loader.batch_size)

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is dropped."""
        return bool(self._loader.drop_last)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        raise ConfigError(
            "the batch sampler of a stoker.DataLoader was iterated, but the loader makes its batches itself; something "
            "has taken the loader apart to make another one, as accelerate.skip_first_batches does",
            hint="to begin in the middle of an epoch, call loader.skip(batches) or load the loader's state_dict(), and "
            "pass the loader itself on",
        )

"""Where the loop over a loader is: what states, receipts and the next ``iter()`` go by."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

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
        self.progress: Progress | None = None  # of the pass begun last
        self.skipped: list[list[int]] = []  # runs of epochs that skip() passed over
        self.parts: list[Part] = []  # of receipts

    def __copy__(self) -> Position:
        other = Position()
        other.__dict__.update(self.__dict__, skipped=[*self.skipped], parts=[*self.parts])
        return other

    def __getstate__(self) -> dict[str, Any]:
        state = dict(copy(self).__dict__)
        if self.progress is not None:
            state["progress"] = self.progress.copy()
        return state

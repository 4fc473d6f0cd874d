"""StatefulDataLoader: torchdata's name and its rules for states, on stoker's DataLoader."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from . import _notice
from ._errors import ConfigError, StateError, whole
from ._loader import DataLoader
from ._theirs import kind
from ._types import T

_SNAPSHOT = "snapshot_every_n_steps"
# Keys of the states of torchdata's own loader: without workers, and with them.
_THEIRS = ("_sampler_iter_yielded", "_snapshot", "_steps_since_snapshot")


class StatefulDataLoader(DataLoader[T]):
    """DataLoader with the rules of torchdata's StatefulDataLoader for states. Keywords are those of DataLoader, and:

    snapshot_every_n_steps   has no effect: every state is of the last batch received, and costs nothing in between

    As in torchdata, a state that was taken after a pass had raised StopIteration loads as the beginning of the next
    pass; one that was taken with its last batch gives an empty pass first. The state counts what the loop received, and
    can be taken at any moment: before ``iter()``, between two batches, after ``break``. ``load_state_dict({})`` does
    nothing. After ``break``, the next pass begins at the beginning, also of a dataset that keeps its place.

    The ``state_dict`` and ``load_state_dict`` of a dataset are called if it is iterated, in its workers; and if it has
    ``__getitem__`` and ``num_workers=0``. In workers, torchdata calls them for the latter too; here their copies keep
    what they have, with a warning. Those of a sampler, and of an iterator that is not the dataset itself, are not
    called: the sampler or dataset is iterated again up to the state. States of torchdata's own loader do not load.

    ``num_workers`` and ``batch_size`` may change between save and load, unless the dataset is iterated, and one rank's
    state is that of all.
    """

    def __init__(self, *args: Any, snapshot_every_n_steps: int | None = 1, **keywords: Any) -> None:
        n = snapshot_every_n_steps
        if n is not None and (not whole(n) or n < 1):
            raise ConfigError(f"StatefulDataLoader: {_SNAPSHOT} is {n!r:.80}", hint="leave it out: it has no effect")
        if n not in (None, 1):
            _notice.say(f"{_SNAPSHOT}={n} has no effect: a state is exact after every batch, and costs nothing else")
        super().__init__(*args, **keywords)
        self._snapshot = n
        self._stored = self._own_state()
        if self._stored is None and not self._settings.iterates and _stateful(self._given):
            _notice.warn(
                f"state_dict() of {kind(self._given)} is not part of the loader's state, because its samples are made "
                "in workers, each with a copy of its own; it is with num_workers=0, or if the dataset is iterated"
            )

    def __getattr__(self, name: str) -> Any:
        if name == _SNAPSHOT and "_snapshot" in self.__dict__:
            return self.__dict__["_snapshot"]
        return super().__getattr__(name)

    def _own_state(self) -> Any:
        """The user's dataset, if it has a state that no worker keeps to itself."""
        hands = self._settings.hands
        alone = hands is not None and not hands.workers and not hands.iterates and self._native is None
        return self._given if alone and _stateful(self._given) else None

    def state_dict(self) -> dict[str, Any]:
        """The position of the loop, as DataLoader's, and whether the pass has ended."""
        state = super().state_dict()
        at = self._standing()
        if at is not None and at.ended:
            state["finished"] = True
        if self._stored is not None:
            state["samples"] = self._stored.state_dict()
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next ``iter()`` goes on with the batch after the state. StateError if it does not fit."""
        if isinstance(state_dict, Mapping):
            if not state_dict:  # as in torchdata: what a job without a checkpoint has
                return
            if any(key in state_dict for key in _THEIRS):
                raise StateError(
                    "the state is of torchdata's StatefulDataLoader, which has another order",
                    hint="finish the epoch there, and begin the next one here with set_epoch()",
                )
        super().load_state_dict(state_dict)
        if self._stored is not None and "samples" in state_dict:
            self._stored.load_state_dict(state_dict["samples"])
        if state_dict.get("finished"):
            self.set_epoch(self._nominal(state_dict["epoch"], state_dict["position"]) + 1)


def _stateful(dataset: Any) -> bool:
    return callable(getattr(dataset, "state_dict", None)) and callable(getattr(dataset, "load_state_dict", None))


def _signature() -> inspect.Signature:
    """DataLoader's, with one more keyword."""
    theirs = inspect.signature(DataLoader.__init__)
    more = inspect.Parameter(_SNAPSHOT, inspect.Parameter.KEYWORD_ONLY, default=1, annotation="int | None")
    return theirs.replace(parameters=[*theirs.parameters.values(), more])


StatefulDataLoader.__init__.__signature__ = _signature()  # type: ignore[attr-defined]

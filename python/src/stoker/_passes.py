"""Common to all samplers: passes, epochs and state.

Course     how far one pass is
Sampler    the base: subclasses say which sample is at which place of which epoch
Seeded     the base of those that have a seed
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

from . import _notice, _order
from ._errors import MAX_EPOCH, ConfigError, StateError, whole
from ._numbers import scalar
from ._seeds import Seed, is_seed
from ._state import DAMAGED
from ._torchs import Passing

STATE_VERSION = 1


class Course:
    """How far a pass is: its epoch, and how many places of it were given, over all ranks.

    It keeps the other values of a state, so that a state costs nothing at every step.
    """

    def __init__(self, epoch: int, position: int, sampler: Sampler) -> None:
        self.epoch = epoch
        self.position = position
        self.places = sampler._places()
        self.policy = sampler._policy()


def counted_by_fabric() -> bool:
    """Whether Lightning's Fabric called the caller, with the number of passes over its wrapper of the loader. It begins
    at 0 in a run that goes on from a checkpoint, so it is not followed: passes are counted here."""
    frame: Any = sys._getframe(2)
    if frame.f_code.co_name != "_set_sampler_epoch" or frame.f_back is None:
        return False
    return type(frame.f_back.f_locals.get("self")).__name__ == "_FabricDataLoader"


class Sampler(Passing):
    """Ids in an order that is a function of seed and epoch.

    Every ``iter()`` is a pass over the next epoch. A pass takes its epoch when its first id is asked for, so iterators
    that are made and never used, as torch's DataLoader makes them, have no effect.
    """

    def __init__(self) -> None:
        self._next_epoch = 0
        self._epoch = 0
        self._restored: Course | None = None
        self._pass: Course | None = None

    # What the samplers differ in.

    def _passes_for(self) -> tuple[tuple[str, str], ...]:
        return ()

    def _samples(self) -> int:
        raise NotImplementedError

    def _places(self) -> int:
        """Places of an epoch, over all ranks, without padding."""
        raise NotImplementedError

    def _sequence(self, epoch: int) -> _order.Sequence:
        raise NotImplementedError

    def _policy(self) -> dict[str, Any]:
        """Values that must be the same for a state to fit."""
        raise NotImplementedError

    def _order(self) -> dict[str, Any] | None:
        raise NotImplementedError

    def _world(self) -> tuple[int, int, bool] | None:
        return None

    def _share(self, start: int) -> range:
        """The places of this rank in a pass that begins at this place."""
        return range(start, self._places())

    # Passes.

    def __iter__(self) -> Iterator[Any]:
        # A state of the very end belongs to this iterator, used or not: torchdata's StatefulDataLoader, loaded with a
        # state of a finished pass, makes one iterator, finds that nothing is left, and takes another for the next
        # epoch.
        if self._restored is not None and not self._share(self._restored.position):
            self._begin()
            return iter(())
        return self._run()

    def _run(self) -> Iterator[Any]:
        now = self._begin()
        self._announce()
        places = self._share(now.position)
        step = places.step
        for piece in _order.walk(self._sequence(now.epoch), places):
            for sample in piece:
                now.position += step
                yield sample

    def _coming(self) -> tuple[int, int]:
        """Epoch and position of the pass that ``_begin`` would begin."""
        now = self._restored
        return (self._next_epoch, 0) if now is None else (now.epoch, now.position)

    def _begin(self) -> Course:
        now = self._restored or Course(self._next_epoch, 0, self)
        self._restored = None
        self._pass = now
        self._epoch = now.epoch
        self._next_epoch = now.epoch + 1
        return now

    def _mark(self) -> tuple[Any, ...]:
        """Where this sampler is, for ``_return``."""
        return self._next_epoch, self._epoch, copy(self._restored), self._pass

    def _return(self, mark: tuple[Any, ...]) -> None:
        """Goes back, as if nothing had been taken from it since."""
        self._next_epoch, self._epoch, self._restored, self._pass = mark

    def _announce(self) -> None:
        """Checks what decides the order, when the sampler is iterated."""

    def __len__(self) -> int:
        """Ids in a whole pass, on this rank."""
        return len(self._share(0))

    @property
    def epoch(self) -> int:
        """The epoch of the newest pass, or the one set since."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next pass; later passes count up from it.

        Right after ``load_state_dict``, setting the epoch of the state keeps the state's position.
        """
        if counted_by_fabric():
            return
        epoch = scalar(epoch)
        if not whole(epoch) or not 0 <= epoch <= MAX_EPOCH:
            raise ConfigError(
                f"{type(self).__name__}.set_epoch: the epoch is {epoch!r:.80}",
                hint="epochs are integers from 0 to 2**63 - 1",
            )
        if self._restored is not None:
            if self._restored.epoch == epoch:
                return
            self._restored = None
        self._epoch = self._next_epoch = epoch

    # State.

    def state_dict(self) -> dict[str, Any]:
        """The position of the newest pass: plain JSON types, equal on every rank.

        It counts the ids that were given. torchdata's StatefulDataLoader saves it in step with its batches; torch's
        DataLoader with workers asks for ids before the loop gets their batches.
        """
        now = self._restored or self._pass or Course(self._next_epoch, 0, self)
        return {
            "version": STATE_VERSION,
            "sampler": type(self).__name__,
            "order": now.policy,
            "epoch": now.epoch,
            "position": min(now.position, now.places),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next pass continues where the state was saved. If that was the end of an epoch, it yields nothing, once.

        StateError if the state is of another sampler, or of other samples.
        """
        now = Course(0, 0, self)
        check_state(type(self).__name__, state_dict, now)
        now.epoch, now.position = state_dict["epoch"], state_dict["position"]
        self._restored = now
        self._epoch = self._next_epoch = now.epoch


class Seeded(Sampler):
    """A sampler whose order a seed decides."""

    _seed: Seed

    @property
    def seed(self) -> int:
        """The seed of the order."""
        return self._seed.value

    @seed.setter
    def seed(self, seed: int) -> None:
        self._seed.give(seed, "seed of the sampler")

    def _begin(self) -> Course:
        self._seed.settle()
        return super()._begin()

    def _announce(self) -> None:
        _notice.say(f"{type(self).__name__}: {self._seed}")

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next pass continues where the state was saved. If that was the end of an epoch, it yields nothing, once.

        The state of a DistributedSampler may come from another world size: the ranks continue together at the first
        place that none of them had. StateError if the state is of another sampler, other samples or weights, or a seed
        other than the one given here; a seed that was not given is replaced by the state's.
        """
        order = state_dict.get("order") if isinstance(state_dict, Mapping) else None
        with self._seed.gives_way(order.get("seed") if isinstance(order, Mapping) else None):
            super().load_state_dict(state_dict)


def check_kind(kind: str, state: Any, keys: list[str]) -> None:
    """StateError unless this is a state of this kind of sampler with all keys."""
    if not isinstance(state, Mapping):
        raise StateError(f"{kind}: a state must be a dict, not of type {type(state).__name__}")
    if missing := [key for key in ("version", "sampler", *keys) if key not in state]:
        raise StateError(
            f"{kind}: the state lacks {', '.join(missing)}", hint=f"pass what state_dict() of a stoker.{kind} returned"
        )
    if state["version"] != STATE_VERSION:
        raise StateError(
            f"{kind}: the state is of version {state['version']!r}, but this release reads {STATE_VERSION}",
            hint="load it with the release that saved it",
        )
    if state["sampler"] != kind:
        raise StateError(f"{kind}: the state is of a {state['sampler']}", hint="load it into a sampler of that class")


def check_state(kind: str, state: Any, mine: Course) -> None:
    """StateError with every reason why a state does not fit."""
    check_kind(kind, state, ["order", "epoch", "position"])
    theirs = state["order"]
    wrong, damaged = [], False
    if not isinstance(theirs, Mapping) or theirs.keys() != mine.policy.keys():
        wrong.append(f"its order is {theirs!r}, but here it is {mine.policy!r}")
    else:
        for key, value in mine.policy.items():
            if key == "seed" and not is_seed(theirs[key]):
                damaged = True
                wrong.append(f"its seed is {theirs[key]!r:.80}, but a seed is an integer from 0 to 2**64 - 1")
            elif theirs[key] != value:
                wrong.append(f"{key} is {theirs[key]!r} in the state but {value!r} here")
    epoch, position = state["epoch"], state["position"]
    hint = DAMAGED if damaged else "make the sampler with the arguments of the saved run"
    if not wrong and not (
        whole(epoch) and whole(position) and 0 <= epoch <= MAX_EPOCH and 0 <= position <= mine.places
    ):
        wrong.append(
            f"its epoch is {epoch!r:.80} and its position {position!r:.80}, but an epoch has places 0 to {mine.places}"
        )
        hint = DAMAGED
    if wrong:
        raise StateError(f"{kind}: the state does not fit: " + "; ".join(wrong), hint=hint)

"""Datasets that are iterated, as the training loop sees them: torch's IterableDataset, or a class with ``__iter__``.

Every worker iterates its own copy, and batches come from the workers in turn; one that has ended is left out. So a
position is a number of turns, and nobody knows how many there are. What the loop has received is counted here, by
worker, with what each said of its last batch (_walks.py): states are made of it, and a pass goes on from it on a new
engine.

Way                where a loop is in an iteration
IterablePassage    the iterator of a pass
"""

from __future__ import annotations

import warnings
import weakref
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from . import _notice, _pass, _queue
from ._errors import ConfigError, StateError, many, whole
from ._iterate import OwnPassage
from ._state import DAMAGED
from ._theirs import kind
from ._types import T
from ._walks import saves, tell, told, unsaved
from ._wire import Message


class Way:
    """Where a loop is in an iteration of ``user`` by so many workers."""

    def __init__(self, user: Any, workers: int) -> None:
        self._user = user
        self._saves = saves(user)
        self.workers = workers
        self.step = 0  # batches received
        self.samples = 0  # since the pass began here
        self.ended = False
        self._noticed = self._unsaved = False
        self._points: dict[int, tuple[int, bytes]] = {}  # by worker: its batches received, and what it said of the last

    def copy(self) -> Way:
        other = Way(self._user, self.workers)
        other.__dict__.update(self.__dict__, samples=0, _points=dict(self._points))
        return other

    def received(self, message: Message) -> None:
        self.step += 1
        self.samples += message["rows"]
        number, worker = divmod(message["position"] - 1, self.workers)
        said = b64decode(message.get("structure") or "")
        self._points[worker] = number + 1, said
        if not said:
            return
        facts = told(said)
        if (why := facts.get("unsaved")) and not self._unsaved:
            self._unsaved = True
            _notice.warn(
                f"state_dict() of {kind(self._user)} is left out of states, and a resume iterates it again: {why}"
            )
        if (again := facts.get("repeated")) and "state" not in facts and not self._noticed:
            self._noticed = True
            why = "" if self._saves else f"{unsaved(self._user)}, so it "
            _notice.say(
                f"{kind(self._user)} {why}was iterated again from its beginning: worker {worker} took {again[0]:,} "
                f"samples and dropped them, in {again[1]:.1f} s"
            )

    def points(self) -> list[dict[str, Any]]:
        """Where each worker begins, for the engine."""
        found = [self._points.get(worker, (0, b"")) for worker in range(self.workers)]
        return [{"after": after, "told": b64encode(said).decode()} for after, said in found]

    def state(self, size: int | None, rank: tuple[int, int]) -> dict[str, Any]:
        """What states say of it, under "iterable"."""
        workers = []
        for worker in range(self.workers):
            after, said = self._points.get(worker, (0, b""))
            workers.append({"batches": after, **{key: x for key, x in told(said).items() if key in _KEPT}})
        return {
            "step": self.step,
            "ended": self.ended,
            "batch_size": size,
            "rank": rank[0],
            "world_size": rank[1],
            "workers": workers,
        }

    def restored(self, state: Any, size: int | None, rank: tuple[int, int]) -> Way:
        """The way that a state tells of. StateError if it does not fit."""
        if not _sound(state):
            raise StateError(f"the state's 'iterable' is {state!r:.80}", hint=DAMAGED)
        theirs = {**state, "num_workers": len(state["workers"])}
        mine = {"num_workers": self.workers, "batch_size": size, "rank": rank[0], "world_size": rank[1]}
        if wrong := [f"{key} was {theirs[key]} and is {value}" for key, value in mine.items() if theirs[key] != value]:
            raise StateError(
                f"the state does not fit this loader: {', '.join(wrong)}",
                cause=f"every worker of every rank iterates its own copy of {kind(self._user)}, so nobody can say "
                "where another number of them would be",
                hint="pass the num_workers and batch_size of the saved run, and load on each rank the state that it "
                "saved",
            )
        way = Way(self._user, self.workers)
        way.step, way.ended = state["step"], state["ended"]
        for number, worker in enumerate(state["workers"]):
            facts = {key: worker[key] for key in _KEPT if key in worker and (self._saves or key != "state")}
            way._points[number] = worker["batches"], tell(**facts)
        return way


_KEPT = ("ended", "state")  # of what a worker says of a batch, in states


def _sound(state: Any) -> bool:
    """Whether a state has all parts."""
    return (
        isinstance(state, Mapping)
        and all(key in state for key in ("rank", "world_size", "batch_size"))
        and whole(state.get("step"))
        and isinstance(state.get("ended"), bool)
        and isinstance(state.get("workers"), list)
        and all(isinstance(worker, Mapping) and whole(worker.get("batches")) for worker in state["workers"])
    )


class IterablePassage(OwnPassage[T]):
    """One pass over a dataset that is iterated."""

    def _begin(self) -> _pass.Pass:
        at = self._progress
        way = at.way
        if way.ended:  # of a state that was saved at the end of a pass
            self._ended = True
            return _pass.Pass(self._remote, at.epoch, 0, 0, lambda _: {"ids": [], "place": 0, "item": 0})
        this = weakref.ref(self)

        def points() -> list[dict[str, Any]]:
            """Where the workers begin on another engine: after what the loop has got, and what is ahead of it."""
            passage, there = this(), way
            queue = getattr(passage, "_pass", None)
            if isinstance(queue, _queue.Queue) and (ahead := queue.ahead()):
                there = way.copy()
                for told in ahead:
                    there.received(told)
            found: list[dict[str, Any]] = there.points()
            return found

        return _pass.Pass(self._remote, at.epoch, at.position, way.step, points=points)

    def _received(self, message: Message) -> None:
        super()._received(message)
        way = self._progress.way
        way.received(message)
        self._loader._dataset.compare(way)

    def __next__(self) -> T:
        try:
            return super().__next__()
        except StopIteration:
            self._progress.way.ended = True
            raise


def refuse(loader: Any, call: str, hint: str) -> None:
    """ConfigError for a call that needs numbered samples."""
    user = loader.dataset
    raise ConfigError(f"{call}: nobody knows the samples of {kind(user)} before they are iterated", hint=hint)


def warn_of_length(user: Any, reported: int, received: int, workers: int) -> None:
    """torch's warning."""
    more = (
        "; does every worker give all samples? __iter__ has to split them by torch.utils.data.get_worker_info()"
        if workers > 1
        else ""
    )
    warnings.warn(
        f"len() of the dataset {kind(user)} was {reported} when len(loader) was asked for, but "
        f"{many(received, 'sample')} {'has' if received == 1 else 'have'} been received{more}",
        stacklevel=8,  # the loop over the loader
    )

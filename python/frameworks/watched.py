"""Runs a training script as a rank does, and writes what its loaders give it: ``watched.py SCRIPT ARGUMENT...``.

The file of STOKER_WATCHED, one for each rank, gets a line of JSON for every batch that the script receives, every
state that is taken of a loader, and every loader at the end. At batch STOKER_WATCHED_STOP of the loader that
STOKER_WATCHED_LOADER numbers, the process waits for ever, so that a kill always finds it at the same place. With
STOKER_WATCHED_VALUES, a line has a digest of the batch's values too.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import stoker

RANK = int(os.environ.get("RANK", "0"))
FILE = os.open(f"{os.environ['STOKER_WATCHED']}.{RANK}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
STOP = int(os.environ.get("STOKER_WATCHED_STOP", "0"))
VALUES = bool(os.environ.get("STOKER_WATCHED_VALUES"))
STOPPED = int(os.environ.get("STOKER_WATCHED_LOADER", "0"))

loaders: list[stoker.DataLoader] = []  # that gave a batch or a state, in this order
owners: dict[int, stoker.DataLoader] = {}  # of iterators, by id
kept: list[Any] = []  # these iterators: an id is theirs as long as they live
known: set[type] = set()
given = 0  # batches of that loader


def tell(**facts: Any) -> None:
    os.write(FILE, (json.dumps(facts) + "\n").encode())


def number(loader: stoker.DataLoader) -> int:
    for i, one in enumerate(loaders):
        if one is loader:
            return i
    loaders.append(loader)
    return len(loaders) - 1


def digest(batch: Any) -> str:
    """Of the values of a batch of tensors, wherever its rows are in memory."""
    return hashlib.sha256(b"".join(field.contiguous().numpy().tobytes() for field in batch)).hexdigest()


def told(batch: Any, loader: stoker.DataLoader) -> None:
    global given
    facts = batch if hasattr(batch, "ids") else loader.facts
    ids = []
    if facts.ids is not None:  # of a dataset that is iterated, nobody knows them
        ids = [i for i, valid in zip(facts.ids.tolist(), facts.valid.tolist(), strict=True) if valid]
    values = digest(batch) if VALUES else ""
    tell(loader=number(loader), epoch=facts.epoch, step=facts.step, ids=ids, values=values)
    given += number(loader) == STOPPED
    if given == STOP and number(loader) == STOPPED:
        tell(stopped=os.getpid())
        while True:
            time.sleep(60)


def watch(kind: type) -> None:
    if kind in known:
        return
    known.add(kind)
    before: Callable[[Any], Any] = kind.__next__  # type: ignore[attr-defined]

    @wraps(before)
    def following(self: Any) -> Any:
        batch = before(self)
        if type(self) is kind:
            told(batch, owners[id(self)])
        return batch

    kind.__next__ = following  # type: ignore[attr-defined]


begin = stoker.DataLoader.__iter__
state_of = stoker.DataLoader.state_dict


def __iter__(self: Any) -> Any:
    iterator = begin(self)
    owners[id(iterator)] = self
    kept.append(iterator)
    watch(type(iterator))
    return iterator


def state_dict(self: Any) -> Any:
    state = state_of(self)
    tell(loader=number(self), state=state, receipt=self.receipt())
    return state


@atexit.register
def ended() -> None:
    for i, loader in enumerate(loaders):
        tell(loader=i, receipt=loader.receipt())


stoker.DataLoader.__iter__ = __iter__  # type: ignore[method-assign]
stoker.DataLoader.state_dict = state_dict  # type: ignore[method-assign]
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")

"""What a loader does with batches that go to a device.

Stage    copies them there, and counts them
Same     the same where nothing is copied: device="cpu" of torch

All loaders of a process share one Copies (_copies.py) for each device.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from . import _cuda, _jax, _lease, _notice
from ._copies import Arrays, Copies, Full
from ._counts import Counts
from ._errors import ResourceError
from ._target import Target


class Stage:
    """What one loader does with its batches."""

    def __init__(self, copies: Copies, ahead: int, counts: Counts) -> None:
        self._copies = copies
        self._counts = counts
        self.ahead = ahead
        counts.device = copies.port.name

    def begin(self, ahead: int) -> None:
        """Before every batch; so many are on the device already."""
        self._copies.begin()
        self._counts.ask(ahead)

    def load(self, root: Any, values: Sequence[Any], paired: bool = False) -> list[Any]:
        """Starts copies of batches whose tensors may be in a slot. Raises Full."""
        return self._copies.load(root, values, paired, self._counts)

    def give(self, loaded: Any) -> Any:
        """One of them, for the loop."""
        return self._copies.give(loaded, self._counts)

    def after(self, change: Callable[[], Any]) -> Any:
        """What becomes of it before the loop gets it."""
        return self._copies.changed(change, self._counts)

    def full(self, error: Full) -> ResourceError:
        """The error for the loop. Its cause has no traceback, whose frames would hold the slot."""
        cause = error.__cause__
        assert cause is not None
        cause.__traceback__ = cause.__context__ = None
        found = ResourceError(
            f"there is no memory on {self._copies.port.name} for the next batch",
            cause=str(cause).partition("\n")[0],
            hint="free memory there and call next() again, which gives this batch; or make batches smaller",
        )
        found.__cause__ = cause
        return found


class Same:
    """Nothing is copied: batches stay what they are."""

    def __init__(self, ahead: int, counts: Counts) -> None:
        self.ahead = ahead
        self._counts = counts

    def begin(self, ahead: int) -> None:
        """Before every batch; so many are made already."""
        self._counts.ask(ahead)

    def load(self, root: Any, values: Sequence[Any], paired: bool = False) -> list[Any]:
        """The batches."""
        return list(values)

    def give(self, loaded: Any) -> Any:
        """The batch."""
        return loaded

    def after(self, change: Callable[[], Any]) -> Any:
        """What becomes of it."""
        return change()

    def full(self, error: Full) -> ResourceError:
        """There is none."""
        raise AssertionError


_devices: dict[Any, Copies] = {}  # by the number of CUDA's device; by JAX's device, or sharding
_opening = threading.Lock()


def stage(target: Target, counts: Counts) -> Stage | Same:
    """What a pass that begins now does with its batches."""
    if not target.moves:
        return Same(target.ahead, counts)
    if target.jax:
        return Stage(_arrays(target.placement or _jax.chosen(target.device)), target.ahead, counts)
    _, _, number = target.device.partition(":")
    chosen = int(number) if number else _cuda.current()
    if not number and (other := _cuda.another_ranks(chosen)) is not None:
        _notice.say(
            f"device='cuda' is torch's current device, cuda:{chosen}, but LOCAL_RANK is {other}: call "
            f"torch.cuda.set_device({other}) before the loop, or pass device='cuda:{other}'"
        )
    with _opening:
        copies = _devices.get(chosen)
        if copies is None:
            copies = _devices[chosen] = Copies(_cuda.Port(chosen))
    return Stage(copies, target.ahead, counts)


def _arrays(where: Any) -> Copies:
    """``where``: a device of JAX, or a Placement."""
    key = getattr(where, "sharding", where)
    with _opening:
        if key not in _devices:
            _devices[key] = Arrays(_jax.Port(where))
        return _devices[key]


def settle() -> None:
    """A loader is closed: waits for the copies in flight, and unpins what is gone."""
    for copies in list(_devices.values()):
        copies.settle()


def _after_fork() -> None:
    for copies in list(_devices.values()):
        copies.after_fork()
    _left.append(dict(_devices))
    _devices.clear()


_left: list[Any] = []  # in a forked child: the parent's


def _at_exit() -> None:
    for copies in list(_devices.values()):
        copies.at_exit()


_lease.relievers.append(settle)
os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

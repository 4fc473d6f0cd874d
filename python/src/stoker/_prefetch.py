"""Any loader's batches on a device before the loop asks for them.

PrefetchLoader   around a loader: every ``iter()`` is a pass over it
CUDAPrefetcher   one pass, an iterator

Over a stoker loader, both are what ``device=`` is. Over any other iterable there is one difference: its batches have to
be taken in the thread of the loop, so a slow one is waited for, as it would be without them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Generic

from . import _copies, _device, _target
from ._counts import Counts
from ._errors import ConfigError
from ._loader import DataLoader
from ._target import Target
from ._types import T

MOST_TAKEN = 2  # batches of the source in one call of next(): the queue fills up step by step


class Prefetched(Iterator[T]):
    """One pass over the batches of an iterable that is not a loader of ours."""

    def __init__(self, loader: Any, target: Target) -> None:
        self._target = target
        self._batches: Iterator[Any] | None = iter(loader)
        self._stage: _device.Stage | _device.Same | None = None
        self._counts = Counts()
        self._ahead: deque[Any] = deque()  # on the device, or on their way
        self._kept: list[Any] = []  # a batch that is here, because there was no memory for it on the device
        self._error: Exception | None = None  # of the source, after all of these

    def __iter__(self) -> Prefetched[T]:
        return self

    def __next__(self) -> T:
        first = self._stage is None
        stage = self._stage = self._stage or _device.stage(self._target, self._counts)
        stage.begin(len(self._ahead))
        taken = 0
        if not self._ahead:
            self._need(stage)
            taken = 1
        most = 0 if first or not self._target.moves else MOST_TAKEN
        while taken < most and len(self._ahead) <= stage.ahead and self._error is None:
            taken += 1
            try:
                if not self._load(stage):
                    break
            except _copies.Full:
                break  # it is tried again at the next call
            except Exception as error:
                self._error = error
        given: T = stage.give(self._ahead[0])
        self._ahead.popleft()
        return given

    def _need(self, stage: _device.Stage | _device.Same) -> None:
        """Takes the batch that the loop asks for."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # this frame is in its traceback
        try:
            if self._load(stage):
                return
        except _copies.Full as full:
            refused = stage.full(full)
        else:
            raise StopIteration
        try:
            raise refused
        finally:
            del refused  # this frame is in its traceback

    def _load(self, stage: _device.Stage | _device.Same) -> bool:
        """Takes a batch of the source, and starts to copy it; False if there are no more."""
        if not self._kept:
            if self._batches is None:
                return False
            try:
                self._kept.append(next(self._batches))
            except StopIteration:
                self._batches = None
                return False
        (loaded,) = stage.load(None, self._kept)
        self._ahead.append(loaded)
        self._kept.clear()
        return True


def passage(loader: Any, target: Target) -> Iterator[Any]:
    """A pass over a loader, with its batches on the device."""
    if isinstance(loader, DataLoader) and type(loader).__iter__ is DataLoader.__iter__:
        return loader._iterate(target)
    return Prefetched(loader, target)


def chosen(loader: Any, device: Any, ahead: int | None, who: str) -> Target:
    """The target of a wrapper; ConfigError for what cannot be."""
    target = _target.of(device, ahead, who)
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise ConfigError(f"{who}: loader is of type {type(loader).__name__}", hint="give a loader, or an iterable")
    if not isinstance(loader, DataLoader):
        return target
    settings = loader._settings
    if settings.target is not None and settings.target.jax:
        raise ConfigError(f"{who}: the loader puts its batches on JAX's devices", hint="iterate the loader itself")
    if target.moves and settings.output != "torch":
        raise ConfigError(
            f"{who}: the loader's output is {settings.output!r}, and only torch's tensors are copied to a device",
            hint="make the loader with output='torch'",
        )
    if settings.target is not None and settings.target.device != target.device:
        raise ConfigError(
            f"{who}: the loader's batches go to {settings.target.device!r}, and here device is {target.device!r}",
            hint="leave device= of the loader out, or iterate the loader itself",
        )
    return target


class PrefetchLoader(Generic[T]):
    """A loader whose batches are on a device before the loop asks for them.

    loader            torch's DataLoader, stoker's, or any iterable of batches: tensors, and tuples, lists and mappings
                      of any class with tensors in them, at any depth. Everything else in a batch stays what it is
    device            "cuda", "cuda:1", a torch.device, or "cpu": nothing is copied, and only batches of a stoker loader
                      are taken ahead
    device_prefetch   batches on the device besides the one that the loop has; default: 2

    Every batch comes exactly once, in order, and an exception of the loader comes where its batch would have come. The
    source of a copy is kept until the copy has ended, whatever becomes of the batch. Batches need not be pinned: those
    that are not are copied through pinned memory when they are taken, so a loader may then use their memory again: not
    that of pinned tensors, tensors on the device, arrays, and objects that move by their own ``to``.

    Every ``iter()`` is a pass. ``len()`` and other attributes, such as ``set_epoch`` and ``state_dict``, are those of
    the loader. ``state_dict`` of a stoker loader counts what the loop was given. That of another loader, or of a
    subclass with its own ``__iter__``, also counts batches that are ahead of the loop. For such a subclass, pass
    ``device=`` instead. A batch that a further stream uses has to be recorded there (``tensor.record_stream``), as any
    tensor.

    Raises ConfigError for a device that does not exist, and ResourceError, with torch's error as its cause, where the
    device has no memory for a batch; the next call gives that batch.
    """

    def __init__(self, loader: Any, device: Any, *, device_prefetch: int | None = None) -> None:
        self._target = chosen(loader, device, device_prefetch, "PrefetchLoader")
        self.loader = loader
        self.device = device

    def __iter__(self) -> Iterator[T]:
        return passage(self.loader, self._target)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "loader" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.loader, name)


class CUDAPrefetcher(Iterator[T]):
    """The same for one pass over a loader, as an iterator: ``for batch in stoker.CUDAPrefetcher(loader, "cuda")``. Make
    one for each epoch. It has the arguments of PrefetchLoader; ``len()`` is the loader's.
    """

    def __init__(self, loader: Any, device: Any, *, device_prefetch: int | None = None) -> None:
        target = chosen(loader, device, device_prefetch, "CUDAPrefetcher")
        self.loader = loader
        self.device = device
        self._batches = passage(loader, target)

    def __iter__(self) -> CUDAPrefetcher[T]:
        return self

    def __next__(self) -> T:
        batch: T = next(self._batches)
        return batch

    def __len__(self) -> int:
        return len(self.loader)

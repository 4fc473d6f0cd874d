"""Passes as the training loop sees them.

Progress   how far the loop is in a pass: what state_dict and receipts report
Early      the beginning of a pass, read before its first batch is asked for
Passage    the iterator of a pass
UserPassage the same over a dataset of the user's own: OwnPassage and NativePassage
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from time import monotonic_ns
from typing import Any, NamedTuple

from . import _client, _device, _pass, _queue, _ranks, _trainers
from ._feed import Feed, Piece
from ._mixing import Augmenter, Changer
from ._receipt import Part
from ._stats import FLUSH_NS, Meter, Tally
from ._target import Target
from ._types import T
from ._wire import Message

# The next piece is started this many batches before the end of a piece of a sampler's order.
AHEAD = 8

# What torch.profiler shows while the loop is in next(). Tools that read its traces know torch's loaders by such a name.
RANGE = "enumerate(DataLoader)#stoker.__next__"


def _profiled() -> Callable[[], bool] | None:
    """Says whether torch.profiler runs; None without torch, also while another thread is importing it. Found once per
    pass, because a look-up per batch shows where batches are tiny."""
    found: Callable[[], bool] | None = getattr(sys.modules.get("torch.autograd"), "_profiler_enabled", None)
    return found


class Progress:
    """How far the training loop is in a pass. The loader keeps this, not the iterator, so that an abandoned iterator is
    collected and its prefetching ends."""

    def __init__(
        self, epoch: int, position: int, restored: bool = False, seen: str | None = None, nominal: int = 0
    ) -> None:
        self.epoch = epoch
        self.position = position
        self.nominal = nominal  # the number of the pass: with_epoch() makes several per epoch
        self.start = position  # position at which it began
        self.iterator: weakref.ref[Passage] | None = None
        self.ended = False  # and its iterator has raised StopIteration
        self.restored = restored  # and no pass has begun since
        self.jumped: int | None = None  # where it was when loader.skip() moved it: other batches follow
        self.part: Part | None = None  # part of the receipt
        self.follower: Any = None  # a sampler's pass, whose position follows this one
        self.feed: Feed | None = None
        self.way: Any = None  # of a dataset that is iterated: where the loop is in it
        self._seen = seen

    @property
    def seen(self) -> str | None:
        """The digest of the ids that the sampler has given so far."""
        return self.feed.seen if self.feed is not None else self._seen

    @property
    def over(self) -> bool:
        """Whether it has ended or was abandoned."""
        return self.ended or self.iterator is None or self.iterator() is None

    def move(self, epoch: int, position: int) -> None:
        self.epoch, self.position = epoch, position
        if self.follower is not None:
            self.follower.position = position

    def copy(self) -> Progress:
        other = Progress(self.epoch, self.position, self.restored, self.seen)
        other.way = self.way and self.way.copy()
        return other


class Early:
    """The beginning of a pass, read before any batch of it was asked for. All iterators made meanwhile share it, and
    the first that is asked for a batch of this pass takes it; without iterators it is collected, and reading stops."""

    def __init__(self, remote: _client.Loader, epoch: int, position: int, stride: int) -> None:
        self._remote = remote
        self._closings = remote.closings
        self._place = epoch, position
        self._pass: _pass.Pass | None = _pass.Pass(remote, epoch, position, -(-position // stride), bundle=True)

    def fits(self, remote: _client.Loader, epoch: int, position: int) -> bool:
        """Whether it is the beginning of this pass and has not been taken."""
        here = remote is self._remote and remote.closings == self._closings
        return here and self._pass is not None and self._place == (epoch, position)

    def take(self) -> _pass.Pass | None:
        taken, self._pass = self._pass, None
        return taken


class Passage(Iterator[T]):
    """One pass; holds its loader, so that the loader stays open.

    It takes its epoch and position when its first batch is asked for. Trainers make iterators that they never use, and
    call ``set_epoch`` or ``load_state_dict`` after ``iter``: unused iterators have no effect, and the last decision
    holds. With ``target``, batches are on a device before the loop asks for them; what is counted here is what the loop
    was given.
    """

    target: Target | None = None  # set before the first batch is asked for

    def __init__(self, loader: Any, remote: _client.Loader, early: Early | None, entered: int, imported: int) -> None:
        self._loader = loader
        self._remote = remote
        self._closings = remote.closings
        self._early = early
        self._entered = entered  # spent in iter(loader), ns
        self._imported = imported  # of these, spent importing torch or JAX, ns
        self._left: int | None = None
        self._ended = False
        self._piece: Piece | None = None
        self._next: tuple[Piece, _pass.Pass | _queue.Queue] | None = None
        self._maker = loader._maker  # for this pass; the loader's next one may have another transform
        self._make = self._maker.make
        self._stage: _device.Stage | _device.Same | None = None  # where batches go before the loop gets them
        self._meter: Meter = loader._meter
        self._progress: Progress
        self._pass: _pass.Pass | _queue.Queue
        self._start: _ranks.Start | None = None  # until it has been compared with the other ranks' at the second batch
        self._place = _trainers.placing(loader)
        self._profiled = _profiled()
        self._tally: Tally | None = None  # None: no batch has been asked for yet

    def _enter(self, asked: int) -> Tally:
        """Takes the next pass of the loader. If it is interrupted, it can be called again."""
        if self._remote.closings != self._closings:
            raise _client.closed()
        loader = self._loader
        with loader._turns:
            if self._tally is not None:  # another thread did it first
                return self._tally
            self._remote = loader._opened()
            self._open_device()
            _trainers.before(loader)
            self._progress, self._left = loader._coming()
            at, early = self._progress, self._early
            start = loader._start_of(at)
            if start is not None and loader._at.decided:
                start.compare()
            at.iterator = weakref.ref(self)
            taken = None
            if at.feed is None and early is not None and early.fits(self._remote, at.epoch, at.position):
                taken = early.take()
            self._pass = self._queued(taken or self._begin())
            loader._took(at)
            _trainers.begun(loader)
            if start is not None:
                start.began()
            self._start = start
            self._early = None
            tally = Tally(self._remote, asked - self._entered, self._imported)
            tally.entered = self._entered + monotonic_ns() - asked
            self._tally = tally
        self._meter.begins(tally)
        return tally

    def _open_device(self) -> None:
        """Finds out where batches go. A function of batches gets those on the device."""
        if self.target is None or self._stage is not None:
            return
        static = self._loader._static
        if static is not None:
            static.begin(self)
        if (self.target.moves or static is not None) and isinstance(self._maker, (Augmenter, Changer)):
            self._make = self._maker.made.make
        self._stage = _device.stage(self.target, self._meter.copied)

    def _queued(self, begun: _pass.Pass) -> _pass.Pass | _queue.Queue:
        """The pass, with batches ahead of the loop on their way to the device."""
        if self._stage is None or self._ended:
            return begun
        after = self._maker.changed if self._make != self._maker.make else None
        if (static := self._loader._static) is not None:
            after = static.before(after)
        return _queue.Queue(begun, self._stage, self._left, after)

    def _begin(self) -> _pass.Pass:
        """A pass in the engine from the loop's position on."""
        at = self._progress
        if at.feed is None:
            step = -(-at.position // self._loader._stride)
            return _pass.Pass(self._remote, at.epoch, at.position, step, bundle=True)
        self._to(at.position, at.position)
        if self._piece is not None:
            return self._over(self._piece, at.position)
        self._ended = True
        return _pass.Pass(self._remote, at.epoch, 0, 0, lambda _: {"ids": [], "place": 0, "item": 0})

    def _over(self, piece: Piece, position: int) -> _pass.Pass:
        step = -(-position // self._loader._stride)
        return _pass.Pass(self._remote, self._progress.epoch, position, step, piece.left, bundle=True)

    def _to(self, begin: int, end: int) -> None:
        """Takes the piece that holds item ``end``; items from ``begin`` on count as given."""
        feed = self._progress.feed
        assert feed is not None
        while True:
            if self._piece is not None:
                stop = min(end, self._piece.end)
                feed.received(self._piece, begin, stop)
                begin = stop
                if end < self._piece.end:
                    return
            taken, self._next = self._next, None
            self._piece = feed.piece() if taken is None else taken[0]
            if self._piece is None:
                return

    @property
    def over(self) -> bool:
        """Whether it has given its last batch, or can give no more because its loader was closed."""
        return self._ended or self._remote.closings != self._closings

    def __iter__(self) -> Passage[T]:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> T:
        if self._profiled is None or not self._profiled():
            return self._batch()
        with sys.modules["torch.autograd.profiler"].record_function(RANGE):
            return self._batch()

    def _batch(self) -> T:
        asked = monotonic_ns()
        tally = self._tally
        if tally is None:
            tally = self._enter(asked)
        elif (start := self._start) is not None:  # not at the first batch: a rank may look at one batch alone
            if start.settle():  # another thread may do the same
                self._start = None
            else:
                start.compare()
        if self._progress.jumped is not None:
            self._jump()
        while not self._ended:
            batch: T | None = self._pass.next(self._make) if self._left != 0 else None
            if batch is not None:
                of = self._pass
                self._received(of.told)
                if "bad" in of.told:
                    self._meter.bad += len(of.told["bad"])
                now = monotonic_ns()
                tally.taken.append((asked, now, of.waited, of.rows, of.epoch, of.step - 1))
                if now - tally.settled >= FLUSH_NS:
                    self._meter.settle(tally)
                return batch if self._place is None else self._placed(batch, self._place)
            if self._piece is not None:
                self._following()
            elif not self._left:
                self._ended = True
                self._pass.cancel()
            else:  # the dataset's epoch ended within the pass
                self._pass = self._queued(_pass.Pass(self._remote, self._pass.epoch + 1, 0, bundle=True))
                self._loader._part(self._progress, self._pass.epoch, 0)
        if not tally.ended:
            self._progress.ended = tally.ended = True
            self._meter.ended(tally, self._progress.epoch)
            _trainers.ended(self._loader)
        raise StopIteration

    def _placed(self, batch: T, place: Callable[[Any], Any]) -> T:
        there: T = place(batch)
        return there

    def _received(self, told: Message) -> None:
        at, before = self._progress, self._progress.position
        at.move(self._pass.epoch, self._pass.position)
        if at.part is not None:
            at.part.count(told)
        if self._left is not None:
            self._left -= 1
        if at.feed is not None and self._piece is not None:
            at.feed.received(self._piece, before, at.position)
            if self._next is None and self._piece.end - at.position <= AHEAD * self._loader._size:
                following = at.feed.piece()
                if following is not None:
                    then = self._queued(self._over(following, following.item))
                    self._next = following, then
                    if isinstance(self._pass, _queue.Queue) and isinstance(then, _queue.Queue):
                        self._pass.then = then

    def _following(self) -> None:
        """Goes on to the next piece of a sampler's order."""
        if self._next is None:
            self._ended = True
            return
        before = self._pass.before
        self._piece, self._pass = self._next
        self._pass.follow(before)
        self._next = None

    def _jump(self) -> None:
        """Continues at the position to which loader.skip() has moved the loop."""
        at = self._progress
        begin, at.jumped = at.jumped, None
        self._pass.cancel()
        if self._next is not None:
            self._next[1].cancel()
        if at.feed is not None and begin is not None:
            self._to(begin, at.position)
        before = self._pass.before
        self._pass = self._queued(self._begin())
        self._pass.follow(before)


class Facts(NamedTuple):
    """What is known of a batch, whatever its type: as the attributes of ``Batch``."""

    ids: Any
    valid: Any
    epoch: int
    step: int
    bad: list[Any]


class UserPassage(Passage[T]):
    """One pass over a dataset of the user's own. ``facts`` are those of the batch that was given last."""

    facts: Facts | None = None

    def _given(self, facts: Facts) -> None:
        self.facts = facts
        if self._progress is self._loader._at.progress:
            self._loader._facts = facts


class OwnPassage(UserPassage[T]):
    """The same where Python code makes the samples. ``shift`` keeps the workers until the pass has ended, or until this
    is collected."""

    def __init__(self, loader: Any, remote: _client.Loader, early: Early | None, *times: int, shift: Any) -> None:
        super().__init__(loader, remote, early, *times)
        self._shift = shift

    def __next__(self) -> T:
        try:
            made: Any = super().__next__()
        except StopIteration:
            shift, self._shift = self._shift, None
            if shift is not None:
                shift.leave()
            raise
        batch: T
        batch, facts = made
        self._given(Facts(**facts))
        return batch

    def _placed(self, batch: Any, place: Callable[[Any], Any]) -> Any:
        return place(batch[0]), batch[1]


class NativePassage(UserPassage[T]):
    """The same where the engine reads the dataset."""

    def __next__(self) -> T:
        batch = super().__next__()
        self._given(Facts(*(getattr(batch, name) for name in Facts._fields)))
        return batch

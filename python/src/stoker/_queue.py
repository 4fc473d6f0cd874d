"""A pass in the engine with batches of it ahead of the loop, on the device.

There is no thread. Whoever calls ``next`` ends the copies that are done, starts the next one, and returns what is
ready; the request for the batch after it is sent before. ``next`` does not wait for the device, except for a decoder of
pictures. So nothing of CUDA is called while the loop records a graph: finalisers and answers of the engine only queue.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ._bundle import Bundle
from ._copies import Full
from ._device import Same, Stage
from ._device_jpeg import Undecodable
from ._engines import forked
from ._errors import ConfigError, DataError, StallError
from ._pass import Pass
from ._wire import Message

PATIENCE_SECONDS = 0.0005  # that next() waits for a batch beyond the loop's, if there is room for it on the device
MOST_REFUSALS = 8  # of a batch's pictures, by the device's decoder; the engine then decodes them, so there is one

Make = Callable[[Message, Any], Any]


class _Entry:
    """A batch ahead of the loop, and what is known of it. ``step``, ``position`` and ``before`` are those after it."""

    __slots__ = ("before", "epoch", "loaded", "number", "position", "rows", "step", "told", "value")

    def __init__(
        self, value: Any, told: Message, message: Message, number: int, step: int, before: tuple[int, int]
    ) -> None:
        self.value: Any = value
        self.loaded: Any = None
        self.told = told
        self.rows = int(message["rows"])
        self.epoch = int(message["epoch"])
        self.position = int(told["position"])
        self.number = number  # of the batch, as the loop sees it
        self.step = step
        self.before = before[0] + self.rows, before[1] + len(told.get("bad") or ())


class _Message:
    """The batches of one message that are here and not on the device yet."""

    def __init__(self, told: Message, root: Any, found: Any, step: int, before: tuple[int, int]) -> None:
        self._before = before  # of the pass, before it
        self.told = told
        self.root = root
        self._found = found
        self._step = step  # of the pass, before it
        self._made = 0
        self.entries: list[_Entry] = []  # that are loaded next

    def next(self, most: int | None) -> list[_Entry]:
        """The batches that are loaded together next: all of a Bundle, one of those that are made one after another."""
        if self.entries:
            return self.entries
        if self.told["type"] != "batches":
            found = [(self._found, self.told)]
        elif isinstance(self._found, Bundle):
            found = []
            while not self._found.spent:
                found.append(self._found.take())
        else:
            found = [self._found.take()]
        for value, told in found[:most]:
            self._made += 1
            number = self.told["step"] + self._made - 1
            entry = _Entry(value, told, self.told, number, self._step + self._made, self._before)
            self._before = entry.before
            self.entries.append(entry)
        return self.entries

    @property
    def spent(self) -> bool:
        return self.told["type"] != "batches" or bool(self._found.spent)


class Queue:
    """A pass in the engine, with batches of it ahead of the loop. It tells of the batch that ``next`` gave last what a
    ``_pass.Pass`` tells of it.

    ``left`` limits the batches that are taken from the pass. ``after`` changes what the loop gets: (batch, epoch,
    number) -> batch. ``then`` is what follows when the pass has ended: its first batches are loaded by then.
    """

    def __init__(self, source: Pass, stage: Stage | Same, left: int | None, after: Any = None) -> None:
        self._source = source
        self._stage = stage
        self._left = left
        self._after = after
        self._lock = threading.RLock()
        self._ahead: deque[_Entry] = deque()  # the first is the loop's next
        self._kept: _Message | None = None  # its batches come after those
        self._error: Exception | None = None  # of what comes after all of them
        self._over = left == 0
        self.then: Queue | None = None
        self.epoch, self.position, self.step = source.epoch, source.position, source.step
        self.before = source.before
        self._follows = False  # it knows of the pass before it, if there is one
        self.told: Message = {}
        self.rows = 0
        self.waited = 0
        self._refusals = 0  # by the device's decoder, one after the other
        forked(self)

    def next(self, make: Make) -> Any:
        """The next batch of the loop; None at the end. ``make(message, root of the slot)`` makes batches here. If the
        call is interrupted, the next call gives this batch."""
        with self._lock:
            try:
                self._source.check()
            except ConfigError:
                self._ahead.clear()
                self._kept = None
                raise
            self._stage.begin(len(self._ahead))
            self.waited = 0
            if not self._ahead:
                self._need(make)
                if not self._ahead:
                    return None
            self._fill(make, self._stage.ahead + 1)
            entry = self._ahead[0]
            given = self._stage.give(entry.loaded)
            if self._after is not None:
                given = self._stage.after(partial(self._after, given, entry.epoch, entry.number))
            self._given(entry)
            return given

    def follow(self, before: tuple[int, int]) -> None:
        """It goes on after another pass, which has given so many rows and bad samples. The first call counts, before a
        batch is asked for."""
        with self._lock:
            if not self._follows:
                self._follows = True
                self.before = before
                self._source.follow(before)

    def _given(self, entry: _Entry) -> None:
        self._ahead.popleft()
        self.told, self.rows, self.epoch = entry.told, entry.rows, entry.epoch
        self.position, self.step, self.before = entry.position, entry.step, entry.before

    def _need(self, make: Make) -> None:
        """Waits for the batch that the loop asks for."""
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # this frame is in its traceback
        try:
            while not self._ahead and not self._over:
                self._load(make)
            return
        except Full as full:
            refused = self._stage.full(full)
        except BaseException:
            self._back()
            raise
        self._back()  # its slot is returned, and the engine makes the batch again
        try:
            raise refused
        finally:
            del refused  # this frame is in its traceback

    def _fill(self, make: Make, most: int) -> None:
        """Loads batches until there are so many, as long as the engine has them ready; what goes wrong is raised when
        it is their turn. Then asks for the next one."""
        patience = PATIENCE_SECONDS if self.waited < PATIENCE_SECONDS * 1e9 else 0.0  # a slow engine is not waited for
        try:
            ready = True
            while ready and len(self._ahead) < most and not self._over and self._error is None:
                ready = self._kept is not None or self._source.ask(patience)
                if ready:
                    self._load(make)
            if ready and self._kept is None and not self._over and self._error is None:
                self._source.ask()
        except Full:
            pass  # it is tried again at the next call
        except StallError:
            self._back()  # nobody has waited for it: it has all its time when it is needed
        except Exception as error:
            self._error = error.with_traceback(None)  # whose frames hold this, and slots
            self._back()
        except BaseException:
            self._back()
            raise
        if self._over and self._error is None and self.then is not None and len(self._ahead) < most:
            with self.then._lock:
                self.then.follow(self._source.before)
                self.then._fill(make, most - len(self._ahead))

    def _load(self, make: Make) -> None:
        """Takes a message, unless there is one, and starts to copy its batches. If pictures cannot be decoded there,
        the engine makes the message again, with those decoded."""
        try:
            self._taken(make)
            self._refusals = 0
            return
        except Undecodable as error:
            refused = error
            refused.__traceback__ = refused.__context__ = None  # whose frames hold the slot
        self._refusals += 1
        if self._refusals > MOST_REFUSALS:
            raise DataError(
                "the decoder of decode_device refuses a batch again and again",
                cause=str(refused),
                hint="leave decode_device out, or install another version of torchcodec",
            )
        self._source.decode(refused.samples, str(refused))
        self._back()

    def _taken(self, make: Make) -> None:
        if self._kept is None:
            kept = self._source.whole(partial(self._message, make))
            self.waited += self._source.waited
            if kept is None:
                self._over = True
                return
            self._kept = kept
        message = self._kept
        entries = message.next(self._left)
        values = [entry.value for entry in entries]
        loaded = self._stage.load(message.root, values, paired=type(values[0]) is tuple)
        for entry, one in zip(entries, loaded, strict=True):
            entry.loaded, entry.value = one, None
        self._ahead.extend(entries)
        message.entries = []
        if self._left is not None:
            self._left -= len(entries)
            self._over = not self._left
        if message.spent or self._over:
            self._kept = None

    def _message(self, make: Make, told: Message, root: Any) -> _Message:
        return _Message(told, root, make(told, root), self._source.step, self._source.before)

    def _back(self) -> None:
        """Has the engine start again after the last batch that is here."""
        self._kept = None
        last: Any = self._ahead[-1] if self._ahead else self
        self._source.back(last.position, last.step, last.before)

    def ahead(self) -> list[Message]:
        """What the engine told of the batches that it has given and the loop has not got."""
        found = [entry.told for entry in self._ahead]
        return found if self._kept is None else [*found, self._kept.told]

    def cancel(self) -> None:
        """Ends the pass, and drops what is ahead."""
        with self._lock:
            self._ahead.clear()
            self._back()

    def after_fork(self) -> None:
        self._lock = threading.RLock()

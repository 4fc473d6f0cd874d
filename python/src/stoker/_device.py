"""Batches on their way to a device: what is in flight, and who holds it.

Copies   all copies to one device that were started, and the slots that are pinned for it; one per process and device
Arrays   the same for JAX's devices
Stage    what one loader does with its batches: copies and counts them
Same     the same where nothing is copied: device="cpu" of torch
Queue    a pass in the engine with batches of it ahead of the loop, on the device

There is no thread. Whoever calls ``next`` ends the copies that are done, starts the next one, and returns what is
ready; the request for the batch after it is sent before. ``next`` does not wait for the device, except for a decoder of
pictures. So nothing of CUDA is called while the loop records a graph: finalisers and answers of the engine only queue.

Lifetimes. A copy's source (the slot, or pinned memory) belongs to its Flight, in Copies, from the start of the copy
until its event has passed, whatever becomes of the batch, the loop and the loader. Memory there is allocated on the
stream of copies; a batch that the loop takes is recorded on the loop's stream, so that the memory is not used again
before that stream has used it. One that the loop never takes needs no record: later copies come after its own.

JAX has no streams to wait for, and its memory is its own: there the event is that all arrays of the message are ready.
A Flight holds them until then, so that it can ask, also if the loop has dropped them.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from . import _cuda, _jax, _lease, _notice
from ._bundle import Bundle
from ._client import Pass
from ._counts import Counts
from ._device_jpeg import Undecodable
from ._engines import forked
from ._errors import ConfigError, DataError, ResourceError, StallError
from ._fused import Floats
from ._staging import Plan, moved_late
from ._target import Target
from ._wire import Message

PATIENCE_SECONDS = 0.0005  # that next() waits for a batch beyond the loop's, if there is room for it on the device
EXIT_SECONDS = 5.0  # that the interpreter waits for copies when it exits
POLL_SECONDS = 0.001  # between two looks at them
MOST_REFUSALS = 8  # of a batch's pictures, by the device's decoder; the engine then decodes them, so there is one
WAITS = 64  # of the loop's stream, whose length is not known yet; of more, the first are not counted

Make = Callable[[Message, Any], Any]


class Full(Exception):
    """There is no memory on the device for a batch; torch's or JAX's error is the cause."""


class Flight:
    """Copies that were started together, and their sources."""

    __slots__ = ("begin", "counts", "end", "keep", "size")

    def __init__(self, keep: Any, begin: Any, end: Any, size: int, counts: Counts | None) -> None:
        self.keep, self.begin, self.end, self.size, self.counts = keep, begin, end, size, counts

    def started(self) -> None:
        """It was given to the device."""
        if self.counts is not None:
            self.counts.copying += 1

    def landed(self, port: Any) -> None:
        """Its event has passed."""
        self.keep = None
        if self.counts is not None:
            self.counts.copying -= 1
            self.counts.copies += 1
            self.counts.bytes += self.size
            self.counts.busy += port.seconds(self.begin, self.end)


class Decoding(Flight):
    """Pictures that are decoded there, ``many`` of them. Their sources are JPEGs, of ``size`` bytes."""

    __slots__ = ("many",)

    def __init__(self, keep: Any, begin: Any, end: Any, size: int, counts: Counts, many: int) -> None:
        super().__init__(keep, begin, end, size, counts)
        self.many = many

    def started(self) -> None:
        assert self.counts is not None
        self.counts.decoding += 1

    def landed(self, port: Any) -> None:
        self.keep = None
        assert self.counts is not None
        self.counts.decoding -= 1
        self.counts.decoded += self.many
        self.counts.decoded_bytes += self.size
        self.counts.decode_busy += port.seconds(self.begin, self.end)


class Making(Flight):
    """What is made there of the copies: it has no sources, and its time is counted by itself. ``size``: bytes made."""

    __slots__ = ()

    def started(self) -> None:
        assert self.counts is not None
        self.counts.making += 1

    def landed(self, port: Any) -> None:
        assert self.counts is not None
        self.counts.making -= 1
        self.counts.made += 1
        self.counts.made_bytes += self.size
        self.counts.made_busy += port.seconds(self.begin, self.end)


class Waiting:
    """The loop's stream waits from one of its events, ``begin``, to another, ``end``, until a batch has arrived:
    first for its copies, then for pictures that are decoded, then for what is made of them. ``until`` are the events
    with which the first two end; none: there is nothing but copies."""

    __slots__ = ("begin", "counts", "end", "until")

    def __init__(self, begin: Any, until: Sequence[Any], end: Any, counts: Counts) -> None:
        self.begin, self.until, self.end, self.counts = begin, until, end, counts

    def over(self, port: Any) -> None:
        """Its end has passed."""
        whole = port.seconds(self.begin, self.end)
        copies, decoding = [min(whole, max(0.0, port.seconds(self.begin, one))) for one in self.until] or [whole, whole]
        self.counts.waited += copies
        self.counts.decode_waited += decoding - copies
        self.counts.made_waited += whole - decoding


class Changing(Waiting):
    """The loop's own stream works for the loader between two of its events: on functions of the user."""

    __slots__ = ()

    def over(self, port: Any) -> None:
        took = port.seconds(self.begin, self.end)
        self.counts.made += 1
        self.counts.made_busy += took
        self.counts.made_waited += took


class _Ended(weakref.ref[_lease.Memory]):
    """Knows the address of a mapping that has ended."""

    __slots__ = ("address",)
    address: int


class Pins:
    """The slots that are pinned, by address. Each stays mapped until it is unpinned, which ``sweep`` does after the
    engine and all leases have let go of it. Guarded by Copies._lock; the callback of a weak reference only queues."""

    def __init__(self, port: Any) -> None:
        self._port = port
        self._pins: dict[int, tuple[_Ended, Any, bool]] = {}  # by address: the mapping, its memory, whether it is ours
        self._ended: deque[Any] = deque()
        self.refused = False

    def pinned(self, memory: _lease.Memory) -> bool:
        """Whether a slot is pinned; the first time, it is done here."""
        if memory.address in self._pins:
            return True
        if self.refused:
            return False
        try:
            ours = self._port.register(memory.address, memory.size)
        except _cuda.Refused as refused:
            self.refused = True
            _notice.say(
                f"batches go to {self._port.name} through torch's pinned memory, which costs a copy on the host: slots "
                f"cannot be pinned in place ({refused})"
            )
            return False
        ended = _Ended(memory, self._ended.append)
        ended.address = memory.address
        self._pins[memory.address] = ended, memory.map, ours
        return True

    def sweep(self, every: bool = False) -> None:
        """Unpins those whose mapping has ended, or all."""
        if every:
            self._ended.extend(ended for ended, _, _ in list(self._pins.values()))
        while self._ended:
            pin = self._pins.pop(self._ended.popleft().address, None)
            if pin is not None and pin[2]:
                self._port.unregister(pin[0].address)

    def leave(self) -> Any:
        """In a forked child: they are the parent's."""
        left, self._pins = self._pins, {}
        return left


class Copies:
    """The copies to one device that were started, by all loaders of this process. Safe for concurrent use."""

    def __init__(self, port: Any) -> None:
        self.port = port
        self.pins = Pins(port)
        self._floats = Floats(port)
        self._lock = threading.Lock()
        self._flights: list[Flight] = []
        self._waiting: deque[Waiting] = deque(maxlen=WAITS)
        self._lost: list[Any] = []  # sources of copies of which nobody knows whether they have ended

    def begin(self) -> None:
        """Before every batch: ends what is done. ConfigError while the loop's stream records a graph."""
        if self.port.capturing():
            raise ConfigError(
                "next() of a loader was called while a CUDA graph is captured",
                hint="take the batch before torch.cuda.graph(...), and copy it into the tensors that the graph reads",
            )
        self.collect()

    def collect(self) -> None:
        """Gives back the sources of copies that have ended, and unpins slots that are gone."""
        if not self._lock.acquire(blocking=False):
            return  # another thread does it
        try:
            self._end(self.port.done)
            self._waited()
            self.pins.sweep()
        finally:
            self._lock.release()

    def _waited(self) -> None:
        """Counts how long the loop's stream waited for batches that it has by now. Nobody waits for that."""
        while self._waiting and self.port.done(self._waiting[0].end):
            self._waiting.popleft().over(self.port)

    def _end(self, ended: Callable[[Any], bool]) -> None:
        left: list[Flight] = []
        flights, self._flights = self._flights, left
        try:
            while flights:
                flight = flights[0]
                if ended(flight.end):
                    flight.landed(self.port)
                else:
                    left.append(flight)
                del flights[0]
        except BaseException as error:
            if isinstance(error, Exception):  # of the device: its copies may have ended or not
                self._lost.extend(flight.keep for flight in flights)
            else:
                left.extend(flights)
            raise

    def settle(self, seconds: float | None = None) -> None:
        """Waits for the copies in flight, at most so long, and gives back their sources; not while a graph is recorded.
        It does not raise."""
        end = time.monotonic() + (seconds or 0.0)
        with suppress(Exception):
            if self.port.capturing():
                return
            with self._lock:
                self._end(self._finished if seconds is None else self.port.done)
                while self._flights and time.monotonic() < end:
                    time.sleep(POLL_SECONDS)
                    self._end(self.port.done)
                self._waited()
                self.pins.sweep()

    def _finished(self, event: Any) -> bool:
        self.port.finish(event)
        return True

    def load(self, root: Any, values: Sequence[Any], paired: bool, counts: Counts) -> list[Loaded]:
        """Starts the copies of a message's batches. Full if there is no memory for them. Copies may have been started
        then: they keep their own sources, and the batches are copied again at the next call."""
        port = self.port
        with self._lock:
            pinned = root is not None and self.pins.pinned(root.memory)
        counts.pinned = not self.pins.refused
        plan = Plan(port, root, pinned, len(values) > 1, paired)
        for value in values:
            plan.look(value)
        runs = plan.runs()
        with port.copying():
            try:
                for run in runs:
                    run.there = port.empty(run.room())
                for result in plan.results:
                    result.allocate(port, self._floats)
                until, end = self._started(runs, plan, counts)
            except Exception as error:
                if port.full(error):
                    raise Full from error
                raise
            there = [run.there for run in runs if plan.shown(run)] + [result.memory for result in plan.results]
            return [Loaded(plan.made(value), there, end, plan.late, until) for value in values]

    def _started(self, runs: Sequence[Any], plan: Plan, counts: Counts) -> tuple[Sequence[Any], Any]:
        """Starts copies, and what is made of them there. Returns the events after the copies and after pictures are
        decoded, if something is made, and that after all of it; None: there is nothing to copy. The sources are given
        back after the copies, also if there is no memory for what is made."""
        if not runs:
            return (), None
        port = self.port
        begin = port.mark()
        try:
            for run in runs:
                port.copy(run.there if run.there.numel() == run.size else run.there[: run.size], run.here)
            copied = port.mark()
        except BaseException:  # some may have been started
            self._lost.append(plan.keep)
            raise
        self._flies(Flight(plan.keep, begin, copied, sum(run.size for run in runs), counts))
        if not plan.results:
            return (), copied
        decoded = copied
        if plan.held:
            try:
                many, size, seconds = plan.decode()
                decoded = port.mark()
            except Exception:  # the decoder may have begun to read
                self._flies(Flight(plan.held, copied, port.mark(), 0, None))
                raise
            except BaseException:
                self._lost.append(plan.held)
                raise
            counts.decode_host += seconds
            self._flies(Decoding(plan.held, copied, decoded, size, counts, many))
        plan.compute(self._floats)
        end = port.mark()
        self._flies(Making(None, decoded, end, sum(result.memory.numel() for result in plan.results), counts))
        plan.started()
        return (copied, decoded), end

    def _flies(self, flight: Flight) -> None:
        with self._lock:
            self._flights.append(flight)
            flight.started()

    def give(self, loaded: Loaded, counts: Counts) -> Any:
        """The batch for the loop, whose stream waits for it from now on."""
        port = self.port
        if loaded.event is not None:
            begin = None if port.done(loaded.event) else port.mark_loop()
            port.wait(loaded.event)
            if begin is not None:
                self._waiting.append(Waiting(begin, loaded.until, port.mark_loop(), counts))
            for there in loaded.there:
                port.used(there)
        if not loaded.late:
            return loaded.value
        kept: list[Any] = []

        def move(value: Any) -> Any:
            kept.append(value)
            return port.move(value)

        try:
            value = moved_late(loaded.value, move)
            self._flies(Flight(kept, None, port.mark_loop(), 0, None))
        except BaseException:
            self._lost.append(kept)
            raise
        return value

    def changed(self, change: Callable[[], Any], counts: Counts) -> Any:
        """What ``change`` makes of a batch that the loop is given, on the loop's stream."""
        begin = self.port.mark_loop()
        value = change()
        self._waiting.append(Changing(begin, (), self.port.mark_loop(), counts))
        return value

    def after_fork(self) -> None:
        """In a child, which cannot use the device: nothing is returned, unpinned or unmapped."""
        self._lock = threading.Lock()
        self._lost += [self._flights, self.pins.leave()]
        self._flights = []
        self._lost.append(self._waiting)
        self._waiting = deque(maxlen=WAITS)

    def at_exit(self) -> None:
        """Unpins everything; what is still copied after some seconds stays mapped until the process has ended."""
        with suppress(Exception):
            self.settle(EXIT_SECONDS)
            if self._flights or self._lost:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
            else:
                self.pins.sweep(every=True)


class Arrays(Copies):
    """The same for arrays of JAX: on one of its devices, or placed over several."""

    def load(self, root: Any, values: Sequence[Any], paired: bool, counts: Counts) -> list[Loaded]:
        """Begins to put a message's batches there. Full if there is no memory for them; what was begun then arrives,
        and is dropped."""
        counts.pinned = False
        plan = _jax.Plan(self.port, root, paired)
        for value in values:
            plan.look(value)
        try:
            plan.begin()
        except Exception as error:
            if self.port.full(error):
                raise Full from error
            raise
        finally:  # what an interrupt has kept out of begun, JAX keeps itself
            if plan.begun:
                self._flies(Flight(plan.keep, None, plan.begun, plan.size, counts))
        return [Loaded(plan.made(value), (), None, False) for value in values]

    def changed(self, change: Callable[[], Any], counts: Counts) -> Any:
        """The same; JAX does not say how long it takes."""
        return change()


class Loaded:
    """A batch on the device, or on its way there: ``event`` passes when it has arrived, and ``until`` before that, as
    ``Waiting`` says."""

    __slots__ = ("event", "late", "there", "until", "value")

    def __init__(self, value: Any, there: Sequence[Any], event: Any, late: bool, until: Sequence[Any] = ()) -> None:
        self.value, self.there, self.event, self.late, self.until = value, there, event, late, until


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
    ``_client.Pass`` tells of it.

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

"""Copies to a device that are in flight, and who holds their sources.

Copies   all copies that were started to one device, and the slots that are pinned for it; one per process and device
Arrays   the same for JAX's devices
Loaded   a batch on its way to the device, or there
Full     there is no memory on the device for it

No thread watches copies: whoever calls ``next`` ends those that are done.

Lifetimes. A copy's source (the slot, or pinned memory) belongs to its Flight, in Copies, from the start of the copy
until its event has passed, whatever becomes of the batch, the loop and the loader. Memory there is allocated on the
stream of copies; a batch that the loop takes is recorded on the loop's stream, so that the memory is not used again
before that stream has used it. One that the loop never takes needs no record: later copies come after its own.

JAX has no streams to wait for, and its memory is its own: there the event is that all arrays of the message are ready.
A Flight holds them until then, so that it can ask, also if the loop has dropped them.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from . import _cuda, _jax, _lease, _notice
from ._counts import Counts
from ._errors import ConfigError
from ._fused import Floats
from ._staging import Plan, moved_late

EXIT_SECONDS = 5.0  # that the interpreter waits for copies when it exits
POLL_SECONDS = 0.001  # between two looks at them
WAITS = 64  # of the loop's stream, whose length is not known yet; of more, the first are not counted


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

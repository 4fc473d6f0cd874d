"""One engine process and the socket to it.

Owns the process, the socket, the mapped slots and the control page. There is no background thread: a thread that waits
for an answer reads the socket, and passes other threads' messages to them; those sleep until they are notified. So any
number of threads may have requests in flight, and an interrupted thread leaves nothing half done: its late answer is
recognised by its number and undone (a batch's slot is returned, a pass is cancelled, a loader closed).
"""

from __future__ import annotations

import array
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from . import _notice
from ._errors import EngineError, StallError, from_wire
from ._lease import ControlPage, Slots, Work
from ._version import VERSION
from ._wire import PROTOCOL, FrameError, Message, Reader, pack, receive

HELLO_SECONDS = 60.0
GRACE_SECONDS = 0.5  # seconds that an answer may be late after the engine's own deadline
TURN_SECONDS = 0.002  # seconds between two looks of a thread with an Aside, while another thread reads the socket

Progress = Callable[[Message], None]


class Aside(Protocol):
    """Work that the thread of a request does while it waits."""

    def fileno(self) -> int:
        """The socket at which work arrives; -1 if there is none any more."""

    def delay(self) -> float | None:
        """Seconds after which it is to be served even if nothing arrives; None: only if something does."""

    def serve(self) -> None:
        """Does what has arrived there."""


class Gone(Exception):
    """The engine in ``engine`` can no longer be reached. Never leaves this package.

    ``asked`` is the request that it had been sent, None if it was gone before.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self.asked: Mapping[str, Any] | None = None


class Unborn(Exception):
    """The engine exited before its hello, with this status. Never leaves this package."""

    def __init__(self, status: int | None) -> None:
        super().__init__()
        self.status = status

    def error(self) -> EngineError:
        return EngineError(
            f"the engine exited during its start ({status_words(self.status)})",
            code="died",
            hint="see what it wrote to stderr, just above",
        )


def find() -> str:
    """The engine's executable: STOKER_ENGINE, else the one in the wheel, else the one built in this checkout."""
    here = Path(__file__).resolve()
    candidates = [here.parent / "_engine" / "stoker", here.parents[3] / "build" / "stoker"]
    if asked := os.environ.get("STOKER_ENGINE"):
        candidates = [Path(asked)]
    for candidate in candidates:
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    raise EngineError(
        f"there is no engine at {candidates[0]}",
        code="incompatible",
        hint="install a wheel of stoker, or build the engine with `make engine` in a checkout, "
        "or set the environment variable STOKER_ENGINE to its path",
    )


def main() -> None:
    """The command ``stoker``: the engine's executable is also the command line."""
    try:
        os.execv(find(), ["stoker", *sys.argv[1:]])
    except EngineError as error:
        sys.exit(f"stoker: {error}")


class _Waiter:
    __slots__ = ("answer", "deadline", "descriptors", "patience", "progress")

    def __init__(self, patience: float, progress: Progress | None) -> None:
        self.patience = patience
        self.deadline = time.monotonic() + patience
        self.progress = progress
        self.answer: Message | None = None
        self.descriptors: list[int] = []


class Asked:
    """A request whose answer is taken later than it is sent. One thread at a time uses it.

    It holds the slot that its answer names until the answer is taken, or the request dropped.
    """

    def __init__(
        self, engine: Engine, message: Mapping[str, Any], patience: float, progress: Progress | None = None
    ) -> None:
        self.engine = engine
        self._message = message
        self._number = next(engine._numbers)
        self._waiter = _Waiter(patience, progress)
        self._sent = False

    def send(self, descriptor: int | None = None) -> None:
        """Sends it; a descriptor stays the caller's. Raises Gone."""
        engine = self.engine
        try:
            with engine._turn:
                engine._waiters[self._number] = self._waiter
            with engine._sending:
                engine._send({**self._message, "req": self._number}, self._waiter.deadline, descriptor)
            self._sent = True
            engine.flush()
        except BaseException:
            self.end()
            raise

    def ready(self, seconds: float = 0.0) -> bool:
        """Whether the answer is here. Reads what has arrived, and waits at most so long for more. Raises Gone."""
        engine, waiter, end = self.engine, self._waiter, time.monotonic() + seconds
        while waiter.answer is None:
            left = max(0.0, end - time.monotonic())
            with engine._turn:
                if waiter.answer is not None:
                    break
                engine._check()
                if engine._reading:  # another thread reads, and passes the answer on
                    if not left or not engine._turn.wait(left):
                        break
                    continue
                engine._reading = True
            try:
                if not engine._read(left):
                    break
            finally:
                with engine._turn:
                    engine._reading = False
                    engine._turn.notify_all()
        return waiter.answer is not None

    @property
    def kind(self) -> str:
        """The type of the answer that is here."""
        return "" if self._waiter.answer is None else str(self._waiter.answer["type"])

    def take(self, aside: Aside | None = None) -> tuple[Message, list[int]]:
        """Waits for the answer as ``Engine.request`` does. The patience begins now."""
        waiter = self._waiter
        try:
            if waiter.answer is None:
                waiter.deadline = time.monotonic() + waiter.patience
            if aside is not None:
                self.engine._serve(waiter, aside)
            else:
                self.engine._wait(waiter)
        except BaseException as error:
            if self._sent and isinstance(error, Gone):
                error.asked = self._message
            self.end()
            raise
        with self.engine._turn:
            self.engine._waiters.pop(self._number, None)
        answer = waiter.answer
        assert answer is not None
        if answer["type"] == "error":
            raise from_wire(answer.get("error") or {})
        return answer, waiter.descriptors

    def drop(self) -> None:
        """Nobody will take the answer: it is undone, now or when it arrives. Takes no lock: finalisers call it."""
        self.engine.drop(self)

    def end(self) -> None:
        """Forgets it, and undoes an answer that has arrived."""
        with self.engine._turn:
            self.engine._waiters.pop(self._number, None)
        waiter = self._waiter
        answer, waiter.answer = waiter.answer, None
        if answer is not None:
            self.engine._undo(answer, waiter.descriptors)


class Engine:
    """A running engine that has sent its hello. ``suspects`` are samples that were being worked on when others died."""

    def __init__(self, suspects: list[dict[str, Any]]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        fd = theirs.fileno()
        try:
            command = [find(), "engine", "--fd", str(fd)]
            if threading.get_native_id() == os.getpid():
                # The main thread, which lives as long as the process: the kernel kills the engine with it, even if
                # the engine is stopped. If another thread started the engine, it would be killed when that thread ends.
                command += ["--parent", str(os.getpid())]
            self._process = subprocess.Popen(
                command,
                pass_fds=(fd,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise EngineError(
                "cannot start the engine",
                code="incompatible",
                cause=str(error),
                hint="is it built for this machine?",
            ) from error
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._reader = Reader()
        self._descriptors: deque[int] = deque()
        self._numbers = itertools.count(1)
        self._waiters: dict[int, _Waiter] = {}
        self._turn = threading.Condition()  # guards _waiters and _reading
        self._reading = False
        self._sending = threading.Lock()
        self._unsent: deque[Message] = deque()
        self._dropped: deque[Asked] = deque()  # requests whose answers nobody takes
        # True while bytes are being read or sent. A thread that finds one set when it is its turn knows that its
        # predecessor was interrupted there, and that the stream of frames is lost.
        self._torn_in = self._torn_out = False
        self._gone = False
        self.digests: dict[int, str] = {}  # digests of the datasets of its loaders
        self.abandoned = False  # ended by this side: not a death
        self.crash: tuple[float, str] | None = None  # how and when it died, unless somebody else ended it
        try:
            self._greet(suspects)
        except Gone:
            raise Unborn(self.end(5.0)) from None
        except BaseException:
            self.end(0.0)
            raise

    def _greet(self, suspects: list[dict[str, Any]]) -> None:
        hello: Message = {"type": "hello", "protocol": PROTOCOL, "version": VERSION, "pid": os.getpid()}
        if suspects:
            hello["suspects"] = suspects
        answer, descriptors = self.request(hello, HELLO_SECONDS)
        theirs = (answer.get("protocol"), answer.get("version"))
        if theirs != (PROTOCOL, VERSION) or len(descriptors) != 2:
            for fd in descriptors:
                os.close(fd)
            raise EngineError(
                f"this package has version {VERSION} (protocol {PROTOCOL}), but "
                f"the engine {find()} has version {theirs[1]} (protocol {theirs[0]})",
                code="incompatible",
                hint="install both from the same release, or build the engine again with `make engine`",
            )
        self.page = ControlPage(*descriptors)
        self.slots = Slots(self.page)
        self.lanes = int(answer.get("lanes", 0))
        self.kernel = str(answer.get("kernel", ""))

    @property
    def pid(self) -> int:
        return self._process.pid

    # Requests.

    def request(
        self,
        message: Mapping[str, Any],
        patience: float,
        progress: Progress | None = None,
        descriptor: int | None = None,
        aside: Aside | None = None,
    ) -> tuple[Message, list[int]]:
        """Sends a message, waits for its answer, and returns it with the descriptors that came with it.

        ``patience`` is in seconds and starts again with every progress message; when it is over, StallError. Raises an
        error that the engine answers. Raises Gone if the engine is gone. ``descriptor`` is sent with the message, and
        stays the caller's. ``aside`` is done meanwhile, in this thread.
        """
        asked = Asked(self, message, patience, progress)
        try:
            asked.send(descriptor)
            return asked.take(aside)
        except BaseException:  # also between the two
            asked.end()
            raise

    def post(self, message: Message) -> None:
        """Sends a message that has no answer, now or with the next request; never waits for a lock, never raises.

        Finalisers call it, in any thread at any time.
        """
        self._unsent.append(message)
        self.flush()

    def drop(self, asked: Asked) -> None:
        """Forgets a request, now or before the next answer is passed on; never waits for a lock."""
        self._dropped.append(asked)
        if self._turn.acquire(blocking=False):
            try:
                self._end_dropped()
            finally:
                self._turn.release()

    def _end_dropped(self) -> None:
        """Ends the requests that were dropped; ``_turn`` is held."""
        with suppress(IndexError):  # a finaliser may come in between, in this thread
            while True:
                self._dropped.popleft().end()

    def flush(self) -> None:
        while self._unsent and not self._gone and self._sending.acquire(blocking=False):
            try:
                with suppress(Gone, IndexError, StallError):
                    while True:
                        self._send(self._unsent.popleft(), time.monotonic() + 5.0)
            finally:
                self._sending.release()

    def _send(self, message: Mapping[str, Any], deadline: float, descriptor: int | None = None) -> None:
        """Sends one frame, and a descriptor with its first byte; ``_sending`` is held."""
        self._check(self._torn_out)
        left = memoryview(pack(message))
        rights = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        torn = False
        while left:
            self._torn_out = True
            try:
                sent = self._socket.sendmsg([left], rights) if rights else self._socket.send(left)
            except BlockingIOError:
                self._torn_out = torn  # half a frame has been sent: no other can follow
                if not self._poll(select.POLLOUT, deadline - time.monotonic()):
                    raise self._stalled("accepts no requests") from None
                continue
            except OSError:
                self._gone = True
                raise Gone(self) from None
            left = left[sent:]
            rights = []
            torn = True
        self._torn_out = False

    # Reading.

    def _wait(self, waiter: _Waiter) -> None:
        """Returns when the waiter has its answer."""
        with self._turn:
            while True:
                if waiter.answer is not None:
                    return
                self._check()
                if not self._reading:
                    self._reading = True
                    break
                if not self._turn.wait(max(0.0, waiter.deadline - time.monotonic())):
                    self._expire(waiter)
        try:
            while waiter.answer is None:
                left = waiter.deadline - time.monotonic()
                # A trainer that slept past the deadline may find its answer waiting.
                if not self._read(max(0.0, left)) and waiter.deadline <= time.monotonic():
                    self._expire(waiter)
        finally:
            with self._turn:
                self._reading = False
                self._turn.notify_all()

    def _serve(self, waiter: _Waiter, aside: Aside) -> None:
        """The same, while this thread does what arrives aside. It reads the socket only while nothing has arrived
        there, so that other threads get their answers while the user's code runs."""
        while waiter.answer is None:
            with self._turn:
                if waiter.answer is not None:
                    return
                self._check()
                reading = not self._reading
                self._reading = True
            ready, here, delay = select.poll(), aside.fileno(), aside.delay()
            seconds = waiter.deadline - time.monotonic()
            if not reading:  # another thread reads: it notifies, but that does not wake a poll
                seconds = TURN_SECONDS
            try:
                try:
                    if here >= 0:
                        ready.register(here, select.POLLIN)
                    if reading:
                        ready.register(self._socket, select.POLLIN)
                except ValueError:  # closed by another thread
                    raise Gone(self) from None
                wait = seconds if delay is None else min(seconds, delay)
                found = [fd for fd, _ in ready.poll(max(0.0, wait) * 1000)]
                if found and found != [here]:
                    self._read(0.0)
                    continue
            finally:
                if reading:
                    with self._turn:
                        self._reading = False
                        self._turn.notify_all()
            if found or (delay is not None and delay <= seconds):
                aside.serve()
            else:
                self._expire(waiter)

    def _expire(self, waiter: _Waiter) -> None:
        if waiter.answer is None and waiter.deadline <= time.monotonic():
            raise self._stalled(f"did not answer for {waiter.patience:.3g} s")

    def _read(self, seconds: float) -> bool:
        """Waits for bytes and handles all complete messages; False if none came in time."""
        self._check(self._torn_in)
        if not self._poll(select.POLLIN, seconds):
            return False
        self._torn_in = True
        try:
            data, descriptors = receive(self._socket)
        except BlockingIOError:
            self._torn_in = False
            return False
        except OSError:
            data, descriptors = b"", ()
        self._descriptors.extend(descriptors)
        if not data:
            self._gone = True
            raise Gone(self)
        self._reader.feed(data)
        try:
            while (message := self._reader.take()) is not None:
                self._deal(message)
        except (FrameError, LookupError, TypeError, ValueError) as error:
            self._gone = True
            raise EngineError("the engine sent bytes that are not a message", code="bug", cause=str(error)) from error
        self._torn_in = False
        return True

    def _poll(self, event: int, seconds: float) -> bool:
        waits = select.poll()
        try:
            waits.register(self._socket, event)
        except ValueError:  # closed by another thread
            raise Gone(self) from None
        return bool(waits.poll(max(0.0, seconds) * 1000))

    def _deal(self, message: Message) -> None:
        kind = message["type"]
        if kind == "slot":
            if size := message.get("bytes", 0):
                self.slots.put(message["slot"], self._descriptors.popleft(), size)
            else:
                self.slots.drop(message["slot"])
            return
        count = {"hello": 2, "table": 1}.get(kind, 0)
        descriptors = [self._descriptors.popleft() for _ in range(min(count, len(self._descriptors)))]
        with self._turn:
            self._end_dropped()
            waiter = self._waiters.get(message.get("req", 0))
            if waiter is not None and kind != "progress":
                waiter.answer, waiter.descriptors = message, descriptors
                self._turn.notify_all()
                return
        if kind != "progress":
            self._undo(message, descriptors)
        elif waiter is not None:
            waiter.deadline = time.monotonic() + waiter.patience
            if line := message.get("waiting"):
                _notice.warn(line)
            elif waiter.progress is not None:
                waiter.progress(message)

    def _undo(self, message: Message, descriptors: list[int]) -> None:
        """Undoes an answer that nobody waits for any more."""
        for fd in descriptors:
            os.close(fd)
        match message["type"]:
            case "batch" | "batches":
                self.slots.release(message["slot"])
            case "passed":
                self.post({"type": "cancel", "pass": message["pass"]})
            case "opened":
                self.post({"type": "close", "loader": message["loader"]})

    # The end.

    def _check(self, torn: bool = False) -> None:
        self.abandoned = self.abandoned or torn
        if self._gone or self.abandoned:
            raise Gone(self)

    def _stalled(self, what: str) -> StallError:
        work = self.page.work() if hasattr(self, "page") else []
        return stall(f"the engine {what}", self._process.pid, work)

    def end(self, seconds: float) -> int | None:
        """Closes the socket, which ends the engine, and waits this long before killing it.

        Returns the exit status as subprocess does (a signal is negative), None if it is not available.
        """
        self._gone = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for fd in self._descriptors:
            os.close(fd)
        self._descriptors.clear()
        if hasattr(self, "slots"):
            self.slots.end()
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        return None

    def forget(self) -> None:
        """In a forked child: releases what belongs to the parent."""
        self._gone = True
        self._socket.close()
        self._process.returncode = 0  # not ours to wait for


def stall(what: str, pid: int, work: list[Work]) -> StallError:
    """The error for a silent engine, from what its control page says."""
    stopped, tracer = _stopped(pid)
    where: dict[str, Any] = {}
    if work:
        oldest = work[0]
        what += f"; the oldest of its work: stage {oldest.stage} at sample {oldest.sample} for {oldest.seconds:.1f} s"
        where = {"stage": oldest.stage, "sample": oldest.sample}
    else:
        what += "; all of its lanes are idle"
    if tracer:
        hint = f"its process {pid} is stopped by debugger or tracer {tracer}: continue it there, or detach it"
    elif stopped:
        hint = f"its process {pid} is stopped: `kill -CONT {pid}` continues it"
    else:
        hint = "check whether the storage answers (a hung mount shows as stage read), or raise timeout="
    return StallError(what, where=where, hint=hint)


def _stopped(pid: int) -> tuple[bool, int]:
    """Whether a process is stopped, and the process that traces it while it is, else 0. It must be stopped for a
    moment: Ctrl-Z and fg stop and continue all processes of a terminal, and a tracer stops one at every system call."""
    found: list[tuple[bool, int]] = []
    for wait in (0.0, 0.05, 0.05):
        time.sleep(wait)
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return False, 0
        words = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        state = words.get("State", "").strip()[:1]
        found.append((state in ("T", "t"), int(words.get("TracerPid", "0")) if state == "t" else 0))
    return (True, found[-1][1]) if all(stopped for stopped, _ in found) else (False, 0)


def status_words(status: int | None) -> str:
    """An exit status in words."""
    if status is None:
        return "it did not end and was killed"
    if status < 0:
        with suppress(ValueError):
            return f"signal {-status}, {signal.Signals(-status).name}"
        return f"signal {-status}"
    return f"exit status {status}"

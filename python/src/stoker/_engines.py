"""The one engine of this process: started when it is first needed, restarted when it dies, ended with its last loader.

    Client   which engine runs, how often it died, which samples may have killed it, who needs it

The thread that talks to an engine when it dies cleans up after it, and every other request in flight is repeated on the
next engine. A loader whose requests kill two engines is refused, and the others go on: after a crash, the loaders that
had requests in flight take turns on the next engine until each has had an answer, which shows whose request it was. A
forked child starts with its own Client.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from . import _notice
from ._errors import EngineError, many
from ._process import Engine, Gone, Unborn, status_words

MAX_RESTARTS = 3
MAX_CRASHES = 2  # crashes at requests of one loader
WINDOW_SECONDS = 3600.0

# Signals by which somebody else ends a process. They say nothing about the samples being worked on.
_FOREIGN = {-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}


class Client:
    """Safe for concurrent use; there is one per process, see ``client()``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._needed: set[int] = set()  # Loaders that keep the engine alive, by their number
        self._released: deque[tuple[int, Engine | None, int]] = deque()
        self._deaths: list[tuple[float, str]] = []
        self._crashes: dict[
            int, list[tuple[float, str]]
        ] = {}  # by Loader: those of _deaths that happened at its requests
        self._turns = threading.RLock()  # held by the Loader of _crashes that has a request in flight
        self._suspects: dict[tuple[str, int], dict[str, Any]] = {}  # in wire form, by digest and sample

    def engine(self, need: int | None = None) -> Engine:
        """The engine, started if none runs. ``need`` keeps it alive from now on."""
        try:
            with self._lock:
                if need is not None:
                    self._needed.add(need)
                if self._engine is None:
                    self._refuse_too_many_deaths()
                    self._engine = self._started()
                return self._engine
        finally:
            self._settle()

    def _started(self) -> Engine:
        """A new engine. If it is killed before its hello, that counts as a death."""
        while True:
            try:
                return Engine(list(self._suspects.values()))
            except Unborn as unborn:
                if unborn.status is not None and unborn.status >= 0:  # it says why itself, and would do so again
                    raise unborn.error() from None
                self._died(unborn.status)
                self._goes_on()

    def _died(self, status: int | None) -> tuple[float, str]:
        """Counts a death."""
        now = time.monotonic()
        self._deaths = [d for d in self._deaths if now - d[0] < WINDOW_SECONDS]
        self._deaths.append((now, status_words(status)))
        return self._deaths[-1]

    def _goes_on(self) -> None:
        """Logs that the next engine is started; EngineError if engines have died too often."""
        self._refuse_too_many_deaths()
        if self._deaths:
            _notice.warn(
                f"the engine died ({self._deaths[-1][1]}); starting it again, "
                f"restart {len(self._deaths)} of {MAX_RESTARTS} per hour"
            )

    def bury(self, gone: Gone, number: int, digest: str) -> EngineError | None:
        """Handles a dead engine, once; EngineError if engines have died too often.

        Returns the error if they died too often at requests of this Loader, whose dataset has this digest.
        """
        engine = gone.engine
        try:
            with self._lock:
                first = self._engine is engine
                if first:
                    self._engine = None
                    status = engine.end(1.0)
                    first = not engine.abandoned
                if first:
                    death = self._died(status)
                    if status not in _FOREIGN:
                        self._suspect(engine)
                        engine.crash = death
                if engine.crash is not None and gone.asked is not None:
                    refusal = self._blamed(number, digest, engine.crash, gone.asked)
                    if refusal is not None:
                        return refusal
                if first:
                    self._goes_on()
                return None
        finally:
            self._settle()

    def _blamed(
        self, number: int, digest: str, crash: tuple[float, str], asked: Mapping[str, Any]
    ) -> EngineError | None:
        """Counts a crash at a request of a Loader, and says whether there have been too many."""
        crashes = self._crashes.setdefault(number, [])
        crashes.append(crash)
        # If two crashes have a sample in common, it is the cause, and the next engine treats it as bad.
        known = any(s["digest"] == digest and s["deaths"] >= MAX_CRASHES for s in self._suspects.values())
        if len(crashes) < MAX_CRASHES or (known and len(crashes) == MAX_CRASHES):
            return None
        # They are this loader's: the other loaders keep their number of restarts.
        self._deaths = [death for death in self._deaths if death not in crashes]
        del self._crashes[number]
        epoch = f" of epoch {asked['epoch']}" if "epoch" in asked else ""
        return EngineError(
            f"the engine died {many(len(crashes), 'time')} during requests of this loader, the last time by {crash[1]} "
            f"during {asked['type']!r}{epoch}: the loader is refused",
            code="died",
            hint="read what the engine wrote to stderr, and please report it. Other loaders are not affected",
        )

    @contextmanager
    def turn(self, number: int) -> Iterator[None]:
        """Wraps a request of a Loader. If one of several Loaders crashed an engine, they take turns."""
        if number not in self._crashes:
            yield
            return
        with self._turns:
            yield
        self._crashes.pop(number, None)  # this Loader was not the cause

    def suspected(self, number: int) -> bool:
        """Whether a Loader's requests take turns."""
        return number in self._crashes

    def _refuse_too_many_deaths(self) -> None:
        now = time.monotonic()
        recent = [how for when, how in self._deaths if now - when < WINDOW_SECONDS]
        if len(recent) <= MAX_RESTARTS:
            return
        raise EngineError(
            f"the engine died {many(len(recent), 'time')} within an hour, the last time by {recent[-1]}",
            code="died",
            hint="read what it wrote to stderr (SIGKILL often means that memory ran out: see dmesg, and lower memory= "
            "or batch_size); please report it if nothing there explains it",
        )

    def _suspect(self, engine: Engine) -> None:
        for work in engine.page.work():
            if (digest := engine.digests.get(work.loader)) is not None and work.sample >= 0:
                suspect = {"loader": work.loader, "digest": digest, "sample": work.sample, "deaths": 0}
                self._suspects.setdefault((digest, work.sample), suspect)["deaths"] += 1

    def release(self, number: int, engine: Engine | None, loader: int) -> None:
        """Somebody no longer needs the engine; ``loader`` is 0 if none was opened.

        Finalisers call it, anywhere: it never waits for the lock.
        """
        self._released.append((number, engine, loader))
        self._settle()

    def _settle(self) -> None:
        while self._released and self._lock.acquire(blocking=False):
            try:
                while self._released:
                    number, engine, loader = self._released.popleft()
                    last = self._needed == {number}
                    self._needed.discard(number)
                    current = engine is self._engine
                    if engine is not None and current and loader and self._needed:
                        engine.post({"type": "close", "loader": loader})
                    elif self._engine is not None and not self._needed and (current or last):
                        ending, self._engine = self._engine, None
                        ending.end(2.0)
            finally:
                self._lock.release()

    def stop(self) -> None:
        """Ends the engine when the interpreter exits."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.end(2.0)

    def forget(self) -> None:
        """In a forked child, instead of everything else."""
        if self._engine is not None:
            self._engine.forget()


_client = Client()
_locked: weakref.WeakSet[Any] = weakref.WeakSet()


def client() -> Client:
    """The Client of this process."""
    return _client


def forked(each: Any) -> None:
    """each.after_fork() is called in forked children."""
    _locked.add(each)


def _after_fork() -> None:
    global _client
    parents, _client = _client, Client()
    parents.forget()
    for each in list(_locked):
        each.after_fork()


def _at_exit() -> None:
    with suppress(KeyboardInterrupt):  # a second one, while the first ends the script: the engine ends by itself
        _client.stop()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

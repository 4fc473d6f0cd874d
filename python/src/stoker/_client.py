"""The one engine of this process: started when it is first needed, restarted when it dies, ended with its last loader.

    Client   which engine runs, how often it died, which samples may have killed it, who needs it
    Loader   a loader in the engine: a Spec, opened again on every new engine
    Pass     a pass in the engine: continues at its position on every new engine

The thread that talks to an engine when it dies cleans up after it, and every other request in flight is repeated on the
next engine. A loader whose requests kill two engines is refused, and the others go on: after a crash, the loaders that
had requests in flight take turns on the next engine until each has had an answer, which shows whose request it was. A
forked child starts with its own Client.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import signal
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from time import monotonic_ns
from typing import Any, NamedTuple, TypeVar, cast

from . import _notice
from ._errors import MAX_EPOCH, ConfigError, DataError, EngineError
from ._process import GRACE_SECONDS, Engine, Gone, Unborn, status_words
from ._told import Contents, Member, changed
from ._wire import Message

MAX_RESTARTS = 3
MAX_CRASHES = 2  # crashes at requests of one loader
WINDOW_SECONDS = 3600.0
BUNDLE = 16  # small batches in one message
QUIET_SECONDS = 60.0  # seconds that the engine may work on a request without a message
LAST_SECONDS = 2.0  # seconds that closing a loader waits for its statistics

T = TypeVar("T")

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
            f"the engine died {len(crashes)} times during requests of this loader, the last time by {crash[1]} during "
            f"{asked['type']!r}{epoch}: the loader is refused",
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

    def _refuse_too_many_deaths(self) -> None:
        now = time.monotonic()
        recent = [how for when, how in self._deaths if now - when < WINDOW_SECONDS]
        if len(recent) <= MAX_RESTARTS:
            return
        raise EngineError(
            f"the engine died {len(recent)} times within an hour, the last time by {recent[-1]}",
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
_locked: weakref.WeakSet[Loader | Pass] = weakref.WeakSet()


def client() -> Client:
    """The Client of this process."""
    return _client


def _after_fork() -> None:
    global _client
    parents, _client = _client, Client()
    parents.forget()
    for each in list(_locked):
        each.after_fork()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(lambda: _client.stop())


class Field(NamedTuple):
    """A field of batches, in the engine's words."""

    name: str
    kind: str  # image | number | bytes | text | json | array
    dtype: str
    axes: str  # layout of an image: hwc, chw or ""
    view: str  # layout in which it is shown


class Opened(NamedTuple):
    """What the engine says about a loader that it opened."""

    samples: int
    digest: str
    pipeline: str
    classes: list[str]
    format: str
    fields: list[Field]
    lanes: int
    order: dict[str, Any]  # the order, as states record it
    stride: int  # items per step over all ranks
    beside: dict[str, str]  # other values that states record: the keys processing and blocks, if they have one
    sources: list[str]  # digests of the datasets this one was packed from, whose states fit too
    altered: str  # how packing changed what is delivered
    unlike: dict[str, str]  # digests of datasets packed into other samples, and how: their states do not fit
    contents: list[Contents]  # of each dataset


def _opened(answer: Message, engine: Engine) -> Opened:
    return Opened(
        samples=int(answer.get("samples", 0)),
        digest=str(answer.get("digest", "")),
        pipeline=str(answer.get("pipeline", "")),
        classes=list(answer.get("classes") or []),
        format=str(answer.get("format", "")),
        fields=[
            Field(f["name"], f["kind"], f["dtype"], f.get("axes", ""), f.get("view", ""))
            for f in answer.get("fields") or []
        ],
        lanes=int(answer.get("lanes") or engine.lanes),
        order=dict(answer.get("order") or {}),
        stride=int(answer.get("stride", 1)),
        beside={key: answer[key] for key in ("processing", "blocks") if answer.get(key)},
        sources=list(answer.get("sources") or []),
        altered=str(answer.get("altered", "")),
        unlike=dict(answer.get("unlike") or {}),
        contents=[
            Contents(int(one["samples"]), str(one["digest"]), str(one.get("stamp", "")))
            for one in answer.get("contents") or []
        ],
    )


class _Place:
    """The location of a loader or a pass in an engine; outlives its owner, for the finaliser."""

    __slots__ = ("engine", "id")

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.id = 0


class Loader:
    """A loader in the engine. Opens at first need, and again after ``close()`` or on a new engine.

    ``timeout`` is the stall deadline of a batch in seconds. ``keeps`` says whether it keeps the engine alive.
    ``stored``: only the stored data is inspected and no batch is made, so no field has to be deliverable.
    ``members`` are the datasets of the Spec: the engine has to find what they told their user. ``before`` is what the
    loader found that this one takes over from.
    """

    _count = 0

    def __init__(
        self,
        spec: dict[str, Any],
        timeout: float = 60.0,
        keeps: bool = True,
        stored: bool = False,
        members: Sequence[Member] = (),
        before: Sequence[Contents] = (),
    ) -> None:
        Loader._count += 1
        self._number = Loader._count
        self.spec = spec
        self.timeout = timeout
        self._keeps = keeps
        self._stored = {"stored": True} if stored else {}
        self._members = members
        self._before = before
        self._lock = threading.Lock()
        self._at = _Place()
        self.opened: Opened | None = None
        self._refused: EngineError | None = None
        self.closings = 0  # passes begun before the last close have ended
        _locked.add(self)
        weakref.finalize(self, _release, self._number, self._at).atexit = False

    @property
    def open(self) -> bool:
        return self._at.engine is not None

    @property
    def number(self) -> int:
        """The engine's number for it, while it is open."""
        return self._at.id

    def info(self) -> Opened:
        """What the engine says about it; opens it if that is not known."""
        return self.opened or self.reopened()

    def reopened(self) -> Opened:
        """Opens it if it is not open."""
        self.call(lambda engine, loader: None)
        assert self.opened is not None
        return self.opened

    def check(self) -> Opened:
        """Opens and closes it to raise everything that is wrong with the Spec. The engine stays."""
        info = self.reopened()
        engine, self._at.engine = self._at.engine, None
        if engine is not None:
            engine.post({"type": "close", "loader": self._at.id})
        return info

    def call(self, work: Callable[[Engine, int], T]) -> T:
        """work(engine, number of this loader there), repeated on the next engine if that one dies."""
        while True:
            if self._refused is not None:
                raise copy(self._refused)
            try:
                with client().turn(self._number):
                    engine = client().engine(self._number if self._keeps else None)
                    return work(engine, self._open(engine))
            except Gone as gone:
                digest = "" if self.opened is None else self.opened.digest
                self._refused = client().bury(gone, self._number, digest)
                if self._refused is not None:
                    self._leave(gone.engine, 0)

    def _open(self, engine: Engine) -> int:
        with self._lock:
            if self._at.engine is engine:
                return self._at.id
            progress = _notice.Progress()
            try:
                answer, _ = engine.request(
                    {"type": "open", "spec": self.spec, **self._stored},
                    max(QUIET_SECONDS, self.timeout),
                    lambda m: progress.show(m.get("done", 0), m.get("total", 0), m.get("what", "")),
                )
            except Gone:
                raise
            except BaseException:
                self._leave(engine, 0)
                raise
            finally:
                progress.close()
            loader, found = int(answer["loader"]), _opened(answer, engine)
            try:
                self._compare(engine, loader, found)
            except Gone:
                raise
            except BaseException:
                self._leave(engine, loader)
                raise
            # Warnings about data that is only inspected are given when it is loaded, for the fields that are wanted
            # then.
            for note in [] if self._stored else answer.get("notes") or []:
                _notice.say(note)
            self.opened = found
            engine.digests[loader] = found.digest
            self._at.id, self._at.engine = loader, engine
            return loader

    def _compare(self, engine: Engine, loader: int, found: Opened) -> None:
        """Raises if what the engine found is not what was there before."""
        for number, (member, now) in enumerate(zip(self._members, found.contents, strict=False)):
            told = member.told.before(member.where)
            if told is not None and told[0].differs(now):
                change: dict[str, str] = {}
                looked = told[1]
                if looked is not None and looked is not self and looked._at.engine is engine:
                    question = {"what": "changed", "epoch": 0, "from": number, "to": 0, "loader": looked.number}
                    try:
                        answer, _ = engine.request({"type": "ask", "loader": loader, "ask": question}, QUIET_SECONDS)
                        change = answer["answer"]
                    except ConfigError:  # the loader that looked was closed meanwhile: there is no file to name
                        pass
                raise changed(member.kind, told[0], now, change)
        # A pass cannot go on over other data; a dataset that is only looked at shows what is there now.
        before = self.opened.contents if self._keeps and self.opened is not None else self._before
        for was, now in zip(before, found.contents, strict=False):
            if was.differs(now):
                raise DataError(
                    "the dataset changed while it was in use",
                    code="changed",
                    cause=was.became(now),
                    hint="make a new loader and begin again: a pass cannot go on over other data",
                )
        if self._keeps:
            for member, now in zip(self._members, found.contents, strict=False):
                member.told.load(member.where, now)

    def _leave(self, engine: Engine, loader: int) -> None:
        self._at.engine = None
        client().release(self._number, engine, loader)

    def table(self, columns: list[str]) -> dict[str, list[Any]]:
        """Whole columns of the dataset's index."""

        def ask(engine: Engine, loader: int) -> dict[str, list[Any]]:
            answer, (fd,) = engine.request(
                {"type": "table", "loader": loader, "columns": columns}, max(QUIET_SECONDS, self.timeout)
            )
            try:
                size = int(answer.get("bytes", 0))
                with mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ) as text:
                    found: dict[str, list[Any]] = json.loads(text[:])
                return found
            finally:
                os.close(fd)

        return self.call(ask)

    def ask(self, what: str, **about: Any) -> Any:
        """The engine's answer to a question about the order: steps, items, sum, shares, explain, verify."""

        def ask(engine: Engine, loader: int) -> Any:
            question = {"what": what, "epoch": 0, "from": 0, "to": 0, **about}
            answer, _ = engine.request(
                {"type": "ask", "loader": loader, "ask": question}, max(QUIET_SECONDS, self.timeout)
            )
            return answer.get("answer")

        return self.call(ask)

    def stats(self, before: dict[str, Any] | None = None, wait_share: float | None = None) -> dict[str, Any]:
        """The engine's current numbers for this loader, with rates since the previous call, or since it was opened.
        ``wait_share`` is the share of that time that the loop waited, as it saw it."""
        return self.call(lambda engine, loader: _stats(engine, loader, before, wait_share, QUIET_SECONDS))

    def last_stats(self, wait_share: float | None = None) -> dict[str, Any]:
        """The same for a loader about to be closed: nothing if its engine does not answer at once, and never from
        another engine."""
        engine = self._at.engine
        if engine is None:
            return {}
        try:
            return _stats(engine, self._at.id, None, wait_share, LAST_SECONDS)
        except Exception:
            return {}

    def close(self) -> None:
        """Closes it in the engine, and ends the engine if nobody else needs it."""
        self.closings += 1
        _release(self._number, self._at)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._at.engine = None


def _stats(
    engine: Engine, loader: int, before: dict[str, Any] | None, wait_share: float | None, timeout: float
) -> dict[str, Any]:
    question: dict[str, Any] = {"type": "stats", "loader": loader}
    since: dict[str, Any] = {}
    if before and before.get("opened_s") and before.get("loader") == loader:
        since["before"] = before
    if wait_share is not None:
        since["wait_share"] = wait_share
    if since:
        question["stats"] = since
    answer, _ = engine.request(question, timeout)
    return dict(answer.get("stats") or {})


def _release(number: int, at: _Place) -> None:
    engine, at.engine = at.engine, None
    if engine is not None:
        client().release(number, engine, at.id)


def closed() -> ConfigError:
    """What an iterator raises after its loader was closed."""
    return ConfigError("the loader of this iterator was closed", hint="start a new pass with iter(loader)")


class Pass:
    """A pass over ``remote`` from ``position`` of ``epoch`` on; begins in the engine at once.

    ``position`` and ``step`` are those after the last batch that ``next`` built, or before the first. ``told`` is what
    the engine says about that batch. ``order`` gives the list of ids that remains from a position on, if the client
    decides the order. ``bundle``: one message may hold several batches.
    """

    def __init__(
        self,
        remote: Loader,
        epoch: int,
        position: int,
        step: int = 0,
        order: Callable[[int], dict[str, Any]] | None = None,
        bundle: bool = False,
    ) -> None:
        self._remote = remote
        self._closings = remote.closings
        self._lock = threading.Lock()
        self._at = _Place()
        self.epoch = epoch
        self.position = position
        self.step = step
        self.told: Message = {}
        self.rows = 0  # of the last batch
        self.waited = 0  # spent by the engine for the last next, ns
        self._order = order
        self._bundled = bundle
        self._bundle: Any = None  # batches that arrived together and have not been given yet
        _locked.add(self)
        weakref.finalize(self, _cancel, self._at).atexit = False
        if not 0 <= epoch <= MAX_EPOCH:
            raise ConfigError(
                f"epoch {epoch} is out of range", hint="epochs go from 0 to 2**63 - 1: set one with set_epoch()"
            )
        self._remote.call(self._begin)

    def next(self, build: Callable[[Message, Any], T]) -> T | None:
        """build(message of the next batch, root of its slot); None at the end.

        A message with several batches becomes a ``Bundle``. If the call is interrupted, the next call gives this batch.
        """
        with self._lock:
            if self._closings != self._remote.closings:
                self._bundle = None
                raise closed()
            try:
                bundle = self._bundle
                self.waited = 0
                if bundle is None:
                    asked = monotonic_ns()
                    found = self._remote.call(self._ask)
                    self.waited = monotonic_ns() - asked
                    if found is None:
                        self._at.engine = None
                        return None
                    told, root = found
                    self.rows = int(told["rows"])
                    built: Any = build(told, root)
                    if told["type"] == "batches":
                        self._bundle = bundle = built
                if bundle is not None:
                    built, told = bundle.take()
                    if bundle.spent:
                        self._bundle = None
                self.position, self.step, self.told = told["position"], self.step + 1, told
                return cast(T, built)
            except BaseException:
                self.cancel()  # the engine may have moved on: it starts again after the last batch that arrived
                raise

    def _begin(self, engine: Engine, loader: int) -> int:
        if self._at.engine is not engine:
            begin = {"type": "pass", "loader": loader, "epoch": self.epoch, "position": self.position}
            begin["step"] = self.step
            if self._bundled:
                begin["bundle"] = BUNDLE
            if self._order is not None:
                begin["list"] = self._order(self.position)
            answer, _ = engine.request(begin, max(QUIET_SECONDS, self._remote.timeout))
            self._at.id, self._at.engine = int(answer["pass"]), engine
        return self._at.id

    def _ask(self, engine: Engine, loader: int) -> tuple[Message, Any] | None:
        seconds = self._remote.timeout
        answer, _ = engine.request(
            {"type": "next", "pass": self._begin(engine, loader), "timeout": int(seconds * 1000)},
            seconds + GRACE_SECONDS,
        )
        return None if answer["type"] == "end" else (answer, engine.slots.lease(answer["slot"]))

    def cancel(self) -> None:
        """Ends it in the engine; ``next`` starts it again at its position."""
        self._bundle = None
        _cancel(self._at)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._at.engine = None


def _cancel(at: _Place) -> None:
    engine, at.engine = at.engine, None
    if engine is not None:
        engine.post({"type": "cancel", "pass": at.id})

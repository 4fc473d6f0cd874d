"""The worker processes of one loader: started, replaced and ended here, in the threads of the loop; _work.py is what
runs in them.

Workers   the crew of a loader in the engine
Shift     one iterator that needs them

Each worker has one end of a socket pair, and the engine gets the other with the message ``worker``; this process closes
both at once, so that a worker's end is seen. Workers end when the engine closes their sockets (``dismiss``), or when it
or the trainer has ended. Without persistent_workers they live from one ``iter()`` to the end of its pass, so that they
have the dataset as the trainer has it then.

There is no thread here. The finaliser of an iterator may run anywhere, in any thread that holds any lock: it tells the
engine to dismiss the workers, waits for no lock, and a moment for them, so that none stays as a zombie. Those that are
busy for longer are waited for by whoever comes next; the engine kills them after some seconds.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from . import _keyed, _notice, _work
from ._blob import unpicklable
from ._crew import Hands
from ._errors import ConfigError, EngineError
from ._inputs import begins
from ._process import Engine, status_words
from ._stuck import words
from ._theirs import kind
from ._wire import Message

HIRE_SECONDS = 60.0  # seconds for the engine to take a worker
END_SECONDS = 5.0  # seconds that a worker may go on after it was dismissed, as in torch; then it is killed
EXIT_SECONDS = 1.0  # the same when the trainer ends
PAUSE_SECONDS = 0.2  # seconds that the end of a pass, or of an iterator or a loader, waits for its workers
_MAIN_GUARD = "in a script that starts workers by {!r}, the training code is below `if __name__ == '__main__':`"
MAX_IDLE_DEATHS = 3  # workers that end before any sample, one after another, with no batch between them

# This process's ends of socket pairs whose worker is being started: a forked child closes them, except its own.
_ends: set[socket.socket] = set()
_own = threading.local()
_crews: weakref.WeakSet[Workers] = weakref.WeakSet()
# All that were started and have not been waited for: a crew may be collected before its workers have ended.
_running: set[Worker] = set()
_registered = False


class Worker:
    """One process."""

    __slots__ = ("crew", "number", "pid", "process", "since")

    def __init__(self, crew: int, number: int, process: Any) -> None:
        self.crew = crew
        self.number = number
        self.process = process
        self.pid = int(process.pid)
        self.since = 0.0  # when it was dismissed


class Shift:
    """Held by an iterator: while there is one, workers are kept. ``leave`` or its collection ends it."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = weakref.finalize(self, end)
        self._end.atexit = False

    def leave(self) -> None:
        self._end()


class Workers:
    """The workers of a loader over ``user``, a dataset of the user's own. Safe for concurrent use."""

    bundles = False
    ahead = True

    def __init__(self, user: Any, hands: Hands, seed: int) -> None:
        self._user = user
        self._hands = hands
        self._seed = seed
        self.epoch = 0  # of the next pass: workers that are started for it are seeded from it
        self.timeout = hands.timeout
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._loader = 0
        self._workers: list[Worker] = []
        self._leaving: list[Worker] = []
        self._number = 0  # of the last shift
        self._shifts: set[int] = set()
        self._left: deque[int] = deque()  # shifts that have ended and are still in _shifts
        self._idle_deaths = 0
        self._kept = hands.persistent  # between passes
        self._shown: set[int] = set()  # processes of workers that were stuck
        _crews.add(self)
        weakref.finalize(self, _abandoned, id(self)).atexit = False

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {"workers": self._hands.workers, "whole": self._hands.whole}
        if self._hands.seeding == "worker":
            told["turns"] = True
        return told | self._hands.told() | begins(self._user)

    @property
    def pids(self) -> list[int]:
        """The processes of the workers, by number."""
        return [worker.pid for worker in self._workers]

    def aside(self) -> None:
        return None

    # Iterators.

    def shift(self, epoch: int) -> Shift:
        """An iterator over this epoch begins to need workers; its first batches are made from now on."""
        with self._lock:
            if not self._shifts:
                self.epoch = epoch
            self._number += 1
            number = self._number
            self._shifts.add(number)
        self._settle()
        return Shift(partial(_leave, weakref.ref(self), number))

    def _settle(self) -> None:
        """Dismisses the workers when the last iterator has ended. Never waits for the lock: finalisers come here, and
        who has the lock settles when it is done."""
        while self._left and self._lock.acquire(blocking=False):
            try:
                while self._left:
                    self._shifts.discard(self._left.popleft())
                if not self._shifts and not self._kept:
                    self._dismiss()
                    self._reap(time.monotonic() + PAUSE_SECONDS)
            finally:
                self._lock.release()

    # Starting.

    def staff(self, engine: Engine, loader: int) -> None:
        try:
            with self._lock:
                if self._engine is engine and self._loader == loader and self._workers:
                    return
                self._dismiss()  # those of an engine that has died
                self._engine, self._loader = engine, loader
                _remaining([worker for worker in list(_running) if worker.since])  # also of crews that are gone
                self._reap(0.0)
                for number in range(self._hands.workers):
                    self._start(number)
        finally:
            self._settle()

    def hire(self, engine: Engine, loader: int, answer: Message) -> None:
        """Starts as many workers as the engine misses. A notice says who died, of what, and with which sample."""
        died = answer.get("died") or []
        try:
            with self._lock:
                if self._engine is not engine or self._loader != loader:
                    self._dismiss()
                    self._engine, self._loader = engine, loader
                for death in died:
                    self._bury(death)
                missing = int(answer.get("missing", 0))
                here = {worker.number for worker in self._workers}
                free = [number for number in range(self._hands.workers) if number not in here]
                known = sorted(self._workers, key=lambda worker: worker.process.exitcode is None)  # dead ones first
                for worker in known[: max(0, missing - len(free))]:  # the engine does not know them
                    self._workers.remove(worker)
                    self._leaving.append(worker)
                    free.append(worker.number)
                for number in sorted(free)[:missing]:
                    self._start(number)
        finally:
            self._settle()

    def shows(self, progress: Message) -> None:
        """A notice of a worker that is stuck: one for each."""
        stuck = progress.get("stuck")
        if stuck and stuck["pid"] not in self._shown:
            self._shown.add(stuck["pid"])
            _notice.warn(words(stuck))

    def worked(self) -> None:
        self._idle_deaths = 0
        if self._leaving and self._lock.acquire(blocking=False):
            self._reap(0.0)
            self._lock.release()
            self._settle()

    def _bury(self, death: Message) -> None:
        """One worker has died."""
        pid, sample = int(death["pid"]), int(death.get("sample", -1))
        worker = next((worker for worker in self._workers if worker.pid == pid), None)
        how = "it ended"
        if worker is not None:
            self._workers.remove(worker)
            worker.process.join(1.0)
            how = status_words(worker.process.exitcode)
            if worker.process.exitcode is None:
                how = "its socket was closed"
                self._leaving.append(worker)
        if death.get("stuck"):
            _notice.warn(f"Python worker {pid}, which was stuck, was killed; another one is started")
            return
        if death.get("early") and worker is not None and (worker.process.exitcode or 0) > 0:  # the next one would too
            raise ConfigError(
                f"Python worker {worker.number} could not start: its process ended with {how}",
                hint="read what it wrote to stderr, just above"
                + ("" if self._hands.method == "fork" else f"; {_MAIN_GUARD.format(self._hands.method)}"),
            )
        self._idle_deaths = 0 if sample >= 0 else self._idle_deaths + 1
        doing = f"while it made sample {sample}" if sample >= 0 else "between samples"
        if self._hands.iterates and sample >= 0:  # the number of a turn
            doing = f"while it iterated the dataset, at batch {sample // max(1, self._hands.workers)} of its own"
        hint = "; the kernel kills when memory runs out: see dmesg" if how.startswith("signal 9,") else ""
        if self._idle_deaths >= MAX_IDLE_DEATHS * max(1, self._hands.workers):
            raise EngineError(
                f"{self._idle_deaths} Python workers ended one after another, with no batch between them, the last one "
                f"by {how}",
                code="died",
                hint=f"read what it wrote to stderr, just above; {_MAIN_GUARD.format(self._hands.method)}",
            )
        _notice.warn(
            f"Python worker {pid} died {doing} ({how}){hint}; another one is started, with the dataset as it is now"
        )

    def _start(self, number: int) -> None:
        """Starts a worker and hands it over; ``_lock`` is held."""
        engine, hands = self._engine, self._hands
        assert engine is not None
        _importing()
        _register()
        if hands.method == "fork":
            _keyed.ready()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        _ends.update((ours, theirs))
        _own.end = ours
        try:
            process = hands.context.Process(
                target=_work.main,
                args=(ours, self._carried(self._user), self._settings(number, engine)),
                name=f"stoker worker {number}",
                daemon=True,
            )
            try:
                with _without_signals(hands.method == "fork"):
                    process.start()
            except AssertionError:  # a trainer that is daemonic itself: torch's loader says the same
                raise
            except (EOFError, ConnectionError) as error:  # newer Pythons import the script in the fork server itself
                raise ConfigError(
                    f"Python worker {number} could not start: the process that starts workers ended",
                    hint=f"read what it wrote to stderr, just above; {_MAIN_GUARD.format(hands.method)}",
                ) from error
            except Exception as error:
                self._explain(error)
                raise
            worker = Worker(id(self), number, process)
            _running.add(worker)
            self._leaving.append(worker)
            engine.request(
                {"type": "worker", "loader": self._loader, "pid": worker.pid, "place": number},
                HIRE_SECONDS,
                descriptor=theirs.fileno(),
            )
            self._leaving.remove(worker)
            self._workers.append(worker)
        finally:
            _own.end = None
            _ends.difference_update((ours, theirs))
            ours.close()
            theirs.close()

    def _carried(self, value: Any) -> Any:
        """As a forked worker gets it, or pickled for one that begins without the trainer's memory."""
        return value if self._hands.method == "fork" else _work.Carried(value)

    def _settings(self, number: int, engine: Engine) -> _work.Settings:
        hands = self._hands
        collate = hands.collate or (convert if hands.single else None)
        return _work.Settings(
            worker=number,
            workers=hands.workers,
            base_seed=_keyed.base_seed(self._seed, self.epoch),
            seed=self._seed,
            seeding="worker" if hands.iterates else hands.seeding,
            trainer=os.getpid(),
            engine=engine.pid,
            worker_init_fn=self._carried(hands.init),
            collate_fn=self._carried(collate),
            whole=hands.whole,
            single=hands.single,
            size=hands.size,
            drop=hands.drop,
            items=hands.lists,
            direct=threading.get_native_id() == os.getpid(),
        )

    def _explain(self, error: Exception) -> None:
        """ConfigError if something cannot be pickled for a worker that is not forked: it names the part."""
        if self._hands.method == "fork":
            return
        from multiprocessing.reduction import ForkingPickler

        hands = self._hands
        own = self._user.parts_named() if isinstance(self._user, _keyed.Steps) else []
        given = (self._user, "dataset"), (hands.collate, "collate_fn"), (hands.init, "worker_init_fn")
        for value, name in (*own, *given):
            found = unpicklable(value, name, ForkingPickler.dumps)
            # Locks, queues and shared tensors say that they are pickled only for a process that is being started.
            if found is not None and not (isinstance(found[1], RuntimeError) and "inheritance" in str(found[1])):
                where, reason = found
                what = "it"
                if value is not hands.collate and value is not hands.init:
                    what = "the dataset and its functions" if own else f"the dataset ({kind(self._user)})"
                raise ConfigError(
                    f"{where} cannot be pickled, and workers started by {hands.method!r} get {what} pickled",
                    cause=str(reason),
                    hint="define functions and classes at the top of a module, open files in __getitem__; or pass "
                    "multiprocessing_context='fork'",
                ) from error

    # Ending.

    def leave(self) -> None:
        """Workers that are kept between passes end, once no pass needs them."""
        with self._lock:
            self._kept = False
            if not self._shifts:
                self._dismiss()
        self._settle()

    def _dismiss(self) -> None:
        """The engine closes the sockets of all workers; ``_lock`` is held. Never waits."""
        engine, self._engine = self._engine, None
        if engine is not None and self._workers:
            engine.post({"type": "dismiss", "loader": self._loader})
        now = time.monotonic()
        for worker in self._workers:
            worker.since = now
        self._leaving += self._workers
        self._workers = []

    def _reap(self, until: float) -> None:
        """Waits for workers that were dismissed, and kills those that go on for too long."""
        while True:
            now = time.monotonic()
            for worker in self._leaving:
                worker.since = worker.since or now
                if now - worker.since > END_SECONDS:
                    worker.process.kill()
            self._leaving = _remaining(self._leaving)
            if not self._leaving or now >= until:
                return
            time.sleep(0.002)

    def close(self) -> None:
        """Ends all workers, and returns when they are gone."""
        with self._lock:
            self._dismiss()
            self._reap(time.monotonic() + END_SECONDS)
            self._kill()

    def _kill(self) -> None:
        self._leaving = _killed(self._leaving)

    def after_fork(self) -> None:
        """In a forked child: the workers are the parent's."""
        self._lock = threading.Lock()
        self._engine = None
        self._workers, self._leaving = [], []
        self._shifts.clear()
        self._left.clear()


# Finalisers, and the end of the interpreter: Python would print a traceback of a second Ctrl-C that comes there, while
# the first one ends the script, and go on. Who has pressed it twice does not want to wait.


def _leave(crew: weakref.ref[Workers], number: int) -> None:
    workers = crew()
    if workers is not None:
        workers._left.append(number)
        with suppress(KeyboardInterrupt):
            workers._settle()


def _abandoned(crew: int) -> None:
    """A crew was collected; the engine has been told that its loader is closed."""
    now = time.monotonic()
    left = [worker for worker in list(_running) if worker.crew == crew]
    for worker in left:
        worker.since = worker.since or now
    with suppress(KeyboardInterrupt):
        while (left := _remaining(left)) and time.monotonic() < now + PAUSE_SECONDS:
            time.sleep(0.002)


def convert(sample: Any) -> Any:
    """What batches of batch_size=None hold: torch's default_convert of the sample."""
    try:
        from torch.utils import data
    except ImportError:
        return sample
    whole: Any = data.default_convert
    return whole(sample)


def _register() -> None:
    """Ends workers when the interpreter exits: before multiprocessing does, whose own exit was registered when it was
    imported."""
    global _registered
    if not _registered:
        import multiprocessing.util  # noqa: F401

        _registered = True
        atexit.register(_at_exit)


def _importing() -> None:
    """ConfigError while this process imports the script for a worker that is not forked: the training code has no
    main guard, and would train here too. multiprocessing itself only refuses another worker that is not forked."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(
            "a loader cannot start workers in a process that is being started itself: this one imports the script, to "
            "make samples of its dataset",
            hint="put the training code below `if __name__ == '__main__':`; the default is forkserver, which imports "
            "the script, where JAX runs in the trainer",
        )


def _remaining(workers: list[Worker]) -> list[Worker]:
    """Those that have not ended."""
    left = [worker for worker in workers if worker.process.exitcode is None]
    _running.difference_update(worker for worker in workers if worker not in left)
    return left


@contextmanager
def _without_signals(forks: bool) -> Iterator[None]:
    """Signals wait: a worker that was just forked still has the trainer's handlers, which may save a checkpoint. It
    takes them after it has dropped these (_inside.settle)."""
    if not forks:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _killed(workers: list[Worker]) -> list[Worker]:
    for worker in workers:
        worker.process.kill()
    for worker in workers:
        worker.process.join(1.0)
    return _remaining(workers)


def _at_exit() -> None:
    """multiprocessing would send SIGTERM, which workers ignore, and wait."""
    with suppress(KeyboardInterrupt):
        for crew in list(_crews):
            if crew._lock.acquire(timeout=EXIT_SECONDS):
                crew._dismiss()
                crew._lock.release()
        until = time.monotonic() + EXIT_SECONDS
        left = _remaining(list(_running))
        while left and time.monotonic() < until:
            time.sleep(0.002)
            left = _remaining(left)
    with suppress(KeyboardInterrupt):
        _killed(list(_running))


def _after_fork() -> None:
    mine = getattr(_own, "end", None)
    for end in list(_ends):
        if end is not mine:
            end.close()
    _ends.clear()
    _running.clear()
    for crew in list(_crews):  # also one whose loader is gone
        crew.after_fork()


os.register_at_fork(after_in_child=_after_fork)

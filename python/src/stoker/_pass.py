"""Passes in the engine of this process: a Pass continues at its position on every new engine.

What happens when an engine dies is in _engines.py.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from time import monotonic_ns
from typing import Any, TypeVar

from ._client import QUIET_SECONDS, Loader, Place, closed
from ._engines import forked
from ._errors import MAX_EPOCH, ConfigError, ResourceError, StallError
from ._process import GRACE_SECONDS, Asked, Engine, Gone
from ._stuck import explained
from ._wire import Message

BUNDLE = 16  # small batches in one message
SLOW_SECONDS = 60.0  # seconds after which a worker that is stuck is shown, where the loop waits for ever
STACK_SECONDS = 1.5  # seconds that the engine may wait for the Python stack of a worker that is stuck
FOREVER_SECONDS = 1e6  # poll(2) counts milliseconds to 2^31

T = TypeVar("T")


class Pass:
    """A pass over ``remote`` from ``position`` of ``epoch`` on; begins in the engine at once.

    ``position`` and ``step`` are those after the last batch that ``next`` built, or before the first. ``told`` is what
    the engine says about that batch. ``order`` gives the list of ids that remains from a position on, if the client
    decides the order. ``bundle``: one message may hold several batches. ``points`` says where workers are that iterate
    the dataset.

    Batches are asked for when they are needed; after ``ask``, the answer to the next request arrives meanwhile.
    """

    def __init__(
        self,
        remote: Loader,
        epoch: int,
        position: int,
        step: int = 0,
        order: Callable[[int], dict[str, Any]] | None = None,
        bundle: bool = False,
        points: Callable[[], list[dict[str, Any]]] | None = None,
    ) -> None:
        self._remote = remote
        self._closings = remote.closings
        self._lock = threading.Lock()
        self._at = Place()
        self.epoch = epoch
        self.position = position
        self.step = step
        self.told: Message = {}
        self.rows = 0  # of the last batch
        self.before = (0, 0)  # rows and bad samples up to position, of this pass and of those that it follows
        self._untold = False  # the engine does not know of those before its own pass
        self.waited = 0  # spent by the engine for the last next, ns
        self._order = order
        self._points = points
        self._bundled = bundle and (remote.crew is None or remote.crew.bundles)
        self._bundle: Any = None  # batches that arrived together and have not been given yet
        forked(self)
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
            self.check()
            try:
                bundle = self._bundle
                self.waited = 0
                if bundle is None:
                    found = self._built(build)
                    if found is None:
                        return None
                    built, told = found
                    if told["type"] == "batches":
                        self._bundle = bundle = built
                if bundle is not None:
                    built, told = bundle.take()
                    if bundle.spent:
                        self._bundle = None
                self.position, self.step, self.told = told["position"], self.step + 1, told
                self._counted(1)
                return built
            except BaseException:
                self.cancel()  # the engine may have moved on: it starts again after the last batch that arrived
                raise

    def whole(self, build: Callable[[Message, Any], T]) -> T | None:
        """The same for all batches of a message at once: ``position`` and ``step`` are those after the last of them."""
        with self._lock:
            self.check()
            try:
                found = self._built(build)
                if found is None:
                    return None
                built, self.told = found
                parts = self.told.get("parts") or [self.told]
                self.position, self.step = parts[-1]["position"], self.step + len(parts)
                self._counted(len(parts))
                return built
            except BaseException:
                self.cancel()
                raise

    def _built(self, build: Callable[[Message, Any], T]) -> tuple[T, Message] | None:
        asked = monotonic_ns()
        found = self._answer()
        self.waited = monotonic_ns() - asked
        if found is None:
            self._at.engine = None
            return None
        told, root = found
        self.rows = int(told["rows"])
        return build(told, root), told

    def check(self) -> None:
        """Raises if the loader was closed since the pass began."""
        if self._closings != self._remote.closings:
            self._bundle = None
            raise closed()

    def ask(self, seconds: float = 0.0) -> bool:
        """Asks for the next message, unless that is done already, and waits for the answer, but not longer than so
        many seconds. Returns whether ``next`` and ``whole`` would find it; then they raise what there is to raise.
        0 seconds: a request that is sent now is not looked at, because its answer cannot be here."""
        with self._lock:
            crew, asked = self._remote.crew, self._at.asked
            if self._bundle is not None or self._closings != self._remote.closings:
                return True
            if asked is None:
                if self._remote.suspected or (crew is not None and not crew.ahead):
                    return False
                self._remote.call(self._send)
                asked = self._at.asked
                if not seconds:
                    return False
            try:
                if asked is None or not asked.ready(seconds):
                    return False
            except Gone:
                return True
            if asked.kind == "hire":
                self._remote.call(self._hire)
                return False
            return True

    def _counted(self, batches: int) -> None:
        """Rows and bad samples of the message that was built last, or of so many batches of it."""
        rows, bad = self.before
        self.before = rows + self.rows * batches, bad + len(self.told.get("bad") or ())

    def back(self, position: int, step: int, before: tuple[int, int]) -> None:
        """Continues there, with batches that it has given already."""
        with self._lock:
            self.position, self.step, self.before = position, step, before
            self.cancel()

    def follow(self, before: tuple[int, int]) -> None:
        """It goes on after another pass, which has given so many rows and bad samples. Called before the first of its
        batches is asked for."""
        self.before = before

    def decode(self, samples: Sequence[int], why: str) -> None:
        """Has the engine decode the pictures of these samples, in passes that begin from now on."""
        self._remote.decode(samples, why)

    def _answer(self) -> tuple[Message, Any] | None:
        """The message of the next batch with the root of its slot; None at the end."""
        while True:
            try:
                found = self._remote.call(self._ask)
            except ResourceError as error:
                engine = self._at.engine
                if error.code != "held" or engine is None or not engine.slots.relieved():
                    raise
                self._remote.strained = True
                self.cancel()
                continue
            if found is not None and self._remote.strained:
                found[0]["strained"] = True
            return found

    def _begin(self, engine: Engine, loader: int) -> int:
        if self._at.engine is not engine:
            if self._remote.crew is not None:
                self._remote.crew.staff(engine, loader)
            begin = {"type": "pass", "loader": loader, "epoch": self.epoch, "position": self.position}
            begin["step"] = self.step
            if self._bundled:
                begin["bundle"] = BUNDLE
            if self._order is not None:
                begin["list"] = self._order(self.position)
            if self._points is not None:
                begin["points"] = self._points()
            if self._remote.undecodable:
                begin["refused"] = sorted(self._remote.undecodable)
            answer, _ = engine.request(begin, max(QUIET_SECONDS, self._remote.timeout))
            self._at.id, self._at.engine = int(answer["pass"]), engine
            self._untold = True
        return self._at.id

    def _question(self, engine: Engine, loader: int) -> Asked:
        """The request for the next message, of this engine."""
        crew = self._remote.crew
        question: dict[str, Any] = {"type": "next", "pass": self._begin(engine, loader)}
        if self._untold:
            self._untold = False
            if self.before != (0, 0):
                question["before"] = self._kept()
        if crew is None:
            seconds = self._remote.timeout
            question["timeout"] = int(seconds * 1000)
            return Asked(engine, question, seconds + GRACE_SECONDS)
        seconds = FOREVER_SECONDS
        if crew.timeout:
            question["timeout"] = max(1, int(crew.timeout * 1000))
            seconds = crew.timeout + STACK_SECONDS + GRACE_SECONDS
        else:
            question["slow"] = int(SLOW_SECONDS * 1000)
        return Asked(engine, question, seconds, crew.shows)

    def _send(self, engine: Engine, loader: int) -> None:
        asked = self._question(engine, loader)
        asked.send()
        self._at.asked = asked

    def _hire(self, engine: Engine, loader: int) -> None:
        """The engine misses workers before it can answer a request that was sent ahead."""
        asked, self._at.asked = self._at.asked, None
        crew = self._remote.crew
        if asked is not None and crew is not None and asked.engine is engine:
            crew.hire(engine, loader, asked.take()[0])
        self._send(engine, loader)

    def _ask(self, engine: Engine, loader: int) -> tuple[Message, Any] | None:
        """The answer of this engine. Workers that are missing are started first."""
        crew = self._remote.crew
        while True:
            asked, self._at.asked = self._at.asked, None
            if asked is None or asked.engine is not engine:
                asked = self._question(engine, loader)
                asked.send()
            try:
                answer, _ = asked.take(None if crew is None else crew.aside())
            except StallError as error:
                if crew is None:
                    raise
                raise explained(error) from error.__cause__
            except BaseException:
                asked.end()
                raise
            if answer["type"] == "end":
                return None
            if crew is not None:
                if answer["type"] == "hire":
                    crew.hire(engine, loader, answer)
                    continue
                crew.worked()
            try:
                return answer, engine.slots.lease(answer["slot"])
            except LookupError:  # another thread has ended it meanwhile
                raise Gone(engine) from None

    def cancel(self) -> None:
        """Ends it in the engine; ``next`` starts it again at its position, and what was given after that is not counted
        twice."""
        self._bundle = None
        _cancel(self._at, {"step": self.step, "before": self._kept()})

    def _kept(self) -> dict[str, int]:
        return {"rows": self.before[0], "bad": self.before[1]}

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._at.engine = self._at.asked = None


def _cancel(at: Place, kept: Mapping[str, Any] | None = None) -> None:
    engine, at.engine = at.engine, None
    asked, at.asked = at.asked, None
    if asked is not None:
        asked.drop()
    if engine is not None:
        engine.post({"type": "cancel", "pass": at.id, **(kept or {})})

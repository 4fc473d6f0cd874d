"""What a training loop waits for: counted batch by batch, shown in this process's page, told by ``loader.stats()`` and
by a line of logging now and then.

    Meter   the books of one loader
    Tally   those of one pass of it

The engine counts for itself (its stages); here it is the time in ``next`` that counts, and the time between.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from . import _gpu, _page

LINE_NS = 60_000_000_000  # between two lines while a pass runs
FLUSH_NS = 5_000_000  # quick batches are put into the page together: it is looked at by people

_logger = logging.getLogger("stoker")
_gpu_watch = _gpu.Watch()  # finds the device when it is first asked


class Mark:
    """Where the books stood when a line was written."""

    def __init__(self, at: int, meter: Meter, engine: dict[str, Any]) -> None:
        self.at = at
        self.samples, self.waited, self.away = meter.samples, meter.busy + meter.input, meter.away
        self.engine = engine
        self.gpu = _gpu_watch.sums()


class Meter:
    """The books of one loader. Safe for concurrent use: several threads may iterate it.

    ``ask`` gives the engine's numbers, and rates since earlier ones; it is told what share of that time was waited.
    """

    def __init__(self, ask: Callable[[dict[str, Any] | None, float | None], dict[str, Any]]) -> None:
        self._method = weakref.WeakMethod(ask)  # of the loader, which holds this
        self._lock = threading.Lock()
        # Nanoseconds: making arrays, waiting for the engine, the loop at work. All since the loader was made.
        self.busy = self.input = self.away = 0
        self.batches = self.samples = self.bad = 0
        self.passes = self.first = self.firsts = 0
        self._seat = _Seat()
        weakref.finalize(self, _Seat.leave, self._seat).atexit = False
        self._known = (0, 0)
        self._flushed = 0
        self._pending = _Pending()
        self._lined = 0
        self._mark: Mark | None = None

    def opened(self, loader: int, lanes: int) -> None:
        """The engine has opened the loader, by this number; again on another engine, or after ``close``."""
        with self._lock:
            self._known = (loader, lanes)
            self._enter()

    def _enter(self) -> None:
        """Takes an entry of this process's page: another one than the parent's in a forked child."""
        page = _page.page()
        if page is None:
            return
        seat = self._seat
        if seat.mine() is None:
            seat.page, seat.entry = page, page.entry(monotonic_ns())
        if seat.entry is not None:
            seat.entry.known(*self._known)

    def got(self, tally: Tally, asked: int, waited: int, epoch: int, step: int, rows: int, bad: int) -> int:
        """Counts a batch that the loop gets now, and returns when that is."""
        with self._lock:
            now = monotonic_ns()
            took = now - asked
            pending = self._pending
            if tally.got:
                self.away += asked - tally.got
                pending.away += asked - tally.got
            else:
                self.passes += 1
                self.first = pending.first = tally.first = now - tally.begun
                self.firsts += self.first
            waited = min(waited, took)
            self.busy += took - waited
            self.input += waited
            self.batches += 1
            self.samples += rows
            self.bad += bad
            pending.add(took, waited, asked, epoch, step, rows)
            if now - self._flushed >= FLUSH_NS:
                self._flush(now)
            line = now - self._lined >= LINE_NS
        if line:
            self._minute(tally, now, epoch)
            now = monotonic_ns()
        tally.got = now
        return now

    def flush(self) -> None:
        """Puts into the page what is not there yet."""
        with self._lock:
            self._flush(monotonic_ns())

    def _flush(self, now: int) -> None:
        self._flushed = now
        pending = self._pending
        if not pending.took:
            return
        self._pending = _Pending()
        if self._seat.page is not _page.page():
            self._enter()
        entry = self._seat.mine()
        if entry is None:
            return
        entry.wait(sum(pending.took) - pending.waited, pending.waited, pending.away, len(pending.took), 0, pending.took)
        step = pending.step + len(pending.took) - 1
        entry.progress(now, pending.epoch, step, self.samples, self.batches, self.bad, pending.first)
        entry.span(pending.epoch, pending.step, len(pending.took), pending.asked, now, pending.rows)

    def close(self) -> None:
        """The loader is closed."""
        with self._lock:
            self._flush(monotonic_ns())
            self._seat.leave()

    def _ask(self, before: dict[str, Any] | None, wait_share: float | None) -> dict[str, Any]:
        ask = self._method()
        return ask(before, wait_share) if ask is not None else {}

    # What is told.

    def told(self) -> dict[str, Any]:
        """The engine's numbers and these, as ``DataLoader.stats`` gives them."""
        self.flush()
        now = monotonic_ns()
        _gpu_watch.look(now)
        with self._lock:
            all_ns = self.busy + self.input + self.away
            client = {
                "busy_s": self.busy / 1e9,
                "blocked_in_s": self.input / 1e9,
                "blocked_out_s": self.away / 1e9,
                "wait_share": (self.busy + self.input) / all_ns if all_ns else 0.0,
                "batches": self.batches,
                "samples": self.samples,
                "bad": self.bad,
                "passes": self.passes,
                "first_batch_s": self.first / 1e9,
                "first_batch_mean_s": self.firsts / 1e9 / self.passes if self.passes else 0.0,
                "p50_s": 0.0,
                "p99_s": 0.0,
            }
            if (entry := self._seat.mine()) is not None:
                wait = entry.wait_stage()
                client |= {"p50_s": wait["p50_s"], "p99_s": wait["p99_s"]}
        engine = self._ask(None, client["wait_share"] if self.batches else None)
        return {**engine, "client": client, "gpu": _gpu_watch.told()}

    # Lines.

    def begins(self, tally: Tally) -> None:
        """A pass has begun."""
        if _logger.isEnabledFor(logging.INFO):
            self._lined = tally.begun
            _gpu_watch.look(tally.begun)
            tally.mark = self._mark = Mark(tally.begun, self, self._ask(None, None))

    def ended(self, tally: Tally, epoch: int) -> None:
        """A pass has ended by itself."""
        self.flush()
        if tally.mark is not None and _logger.isEnabledFor(logging.INFO):
            self._line(f"epoch {epoch} ended", tally, tally.mark, monotonic_ns())

    def _minute(self, tally: Tally, now: int, epoch: int) -> None:
        self._lined = now
        if _logger.isEnabledFor(logging.INFO):
            mark = self._mark
            if mark is not None:
                self._line(f"epoch {epoch}", tally, mark, now)
            self._mark = Mark(now, self, self._ask(None, None))

    def _line(self, what: str, tally: Tally, mark: Mark, now: int) -> None:
        _gpu_watch.look(now)
        after = Mark(now, self, {})
        waited, away = after.waited - mark.waited, after.away - mark.away
        share = waited / max(waited + away, 1)
        engine = self._ask(mark.engine, share).get("rates", {})
        gpu, looks = after.gpu[0] - mark.gpu[0], after.gpu[1] - mark.gpu[1]
        parts = [
            f"{(after.samples - mark.samples) / max((now - mark.at) / 1e9, 1e-9):,.0f} samples/s",
            f"wait {100 * share:.0f} %",
            f"limited by {engine.get('limiting') or 'nothing yet'}",
            f"queue {engine.get('queue_mean', 0.0):.1f}",
            f"first batch after {tally.first / 1e9:.2f} s",
        ]
        if looks:
            parts.append(f"GPU {100 * gpu / looks:.0f} %")
        _logger.info("%s: %s", what, ", ".join(parts))


class _Seat:
    """A meter's entry in the page; outlives it, for the finaliser."""

    def __init__(self) -> None:
        self.page: _page.Page | None = None
        self.entry: _page.Entry | None = None

    def mine(self) -> _page.Entry | None:
        """The entry; None where there is none, or, in a forked child, in the parent's page."""
        return self.entry if self.page is _page.current() else None

    def leave(self) -> None:
        entry, self.entry = self.mine(), None
        if entry is not None:
            entry.close()


class _Pending:
    """Batches that are not in the page yet."""

    def __init__(self) -> None:
        self.took: list[int] = []
        self.waited = self.away = self.first = self.asked = 0
        self.epoch = self.step = self.rows = 0

    def add(self, took: int, waited: int, asked: int, epoch: int, step: int, rows: int) -> None:
        if not self.took:
            self.asked, self.epoch, self.step, self.rows = asked, epoch, step, rows
        self.took.append(took)
        self.waited += waited


class Tally:
    """What the books need to know of one pass."""

    def __init__(self) -> None:
        self.begun = monotonic_ns()
        self.got = 0  # when the loop had its last batch; 0: none yet
        self.first = 0  # what the first one took
        self.ended = False
        self.mark: Mark | None = None

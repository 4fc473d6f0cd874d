"""What a training loop waits for: counted batch by batch, shown in this process's page, returned by ``loader.stats()``
and logged now and then. The loop also waits in ``iter(loader)``, where the loader is opened.

    Meter   the counts of one loader
    Tally   those of one pass of it

The engine counts its own stages; counted here are the time in ``iter`` and ``next``, and the time between calls.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping
from time import monotonic_ns
from typing import Any

from . import _gpu, _page
from ._counts import Counts, Work
from ._errors import many

LINE_NS = 60_000_000_000  # seconds between two log lines while a pass runs
FLUSH_NS = 5_000_000  # quick batches are put into the page together: people look at it
DEVICE_NS = 50_000_000  # what a device did is put there more rarely: it is many numbers
IMPORT_NS = 50_000_000  # importing torch or JAX for longer than this: the line says so
NOTICEABLE = 0.05  # share of JPEGs decoded by a decoder other than ours: the line says so

NAMED = 3  # servers in a line

_logger = logging.getLogger("stoker")
_meters: weakref.WeakSet[Meter] = weakref.WeakSet()

# A batch that the loop was given: when it asked and got it, in ns, how much of that it waited for the engine; rows,
# epoch and step.
Taken = tuple[int, int, int, int, int, int]
_gpu_watch = _gpu.Watch()  # finds the device when it is first asked


class Mark:
    """The counts at the time a line was logged."""

    def __init__(self, at: int, meter: Meter, engine: dict[str, Any]) -> None:
        self.at = at
        self.samples, self.waited, self.away = meter.samples, meter.busy + meter.input, meter.away
        self.engine = engine
        self.gpu = _gpu_watch.sums()
        self.copied = meter.copied.mark()


class Meter:
    """The counts of one loader. Safe for concurrent use: several threads may iterate it.

    ``ask`` returns the engine's numbers, and rates since earlier ones; it is given the share of that time that was
    spent waiting.
    """

    def __init__(self, ask: Callable[[dict[str, Any] | None, float | None], dict[str, Any]]) -> None:
        self._method = weakref.WeakMethod(ask)  # the loader's, which holds this
        self.copied = Counts()  # to a device
        self._lock = threading.Lock()
        # Nanoseconds: making arrays, waiting for the engine, the loop at work; all since the loader was made.
        self.busy = self.input = self.away = 0
        self.batches = self.samples = self.bad = 0
        self.passes = self.first = self.firsts = self.imported = 0
        self._seat = _Seat()
        weakref.finalize(self, _Seat.leave, self._seat).atexit = False
        self._known = (0, 0)
        self._put = self.copied.mark(), self.copied.works()  # what the page has of the device
        self._put_at = 0
        self._tallies: weakref.WeakSet[Tally] = weakref.WeakSet()
        self._lined = 0
        self._mark: Mark | None = None
        _meters.add(self)

    def opened(self, loader: int, lanes: int) -> None:
        """The engine has opened the loader under this number; called again for another engine, or after ``close``."""
        with self._lock:
            self._known = (loader, lanes)
            self._enter()

    def _enter(self) -> None:
        """Takes an entry in this process's page: in a forked child, not the parent's."""
        page = _page.page()
        if page is None:
            return
        seat = self._seat
        if seat.mine() is None:
            seat.page, seat.entry = page, page.entry(monotonic_ns())
            self._put = self.copied.mark(), self.copied.works()
        if seat.entry is not None:
            seat.entry.known(*self._known)

    def flush(self) -> None:
        """Counts what has not been counted yet, of all passes."""
        for tally in list(self._tallies):
            self.settle(tally)

    def settle(self, tally: Tally) -> None:
        """Counts the batches of a pass since the last call, and puts them into the page."""
        with self._lock:
            tally.settled = now = monotonic_ns()
            count = len(tally.taken)
            taken = tally.taken[:count]  # and no more: the pass's own thread may continue
            del tally.taken[:count]
            if not taken:
                return
            self._count(tally, taken)
            line = now - self._lined >= LINE_NS
        if self._mark is not None:  # somebody listens to the log
            _gpu_watch.look(now)
        if line:
            self._minute(tally, now, tally.epoch)
            tally.paused(monotonic_ns() - now)

    def _count(self, tally: Tally, taken: list[Taken]) -> None:
        away = first = 0
        took = []
        for asked, got, _, _, _, _ in taken:
            took.append(got - asked)
            if tally.got:
                away += asked - tally.got
            else:
                tally.first = first = got - tally.begun
            tally.got = got
        waited = sum(one[2] for one in taken)
        busy = sum(took) - waited
        if first:
            self.imported += tally.imported
            busy += tally.imported
            waited += max(0, tally.entered - tally.imported)
        self.away += away
        self.busy += busy
        self.input += waited
        self.batches += len(taken)
        self.samples += sum(one[3] for one in taken)
        if first:
            self.passes += 1
            self.first = first
            self.firsts += first
        if self._seat.page is not _page.page():
            self._enter()
        entry = self._seat.mine()
        if entry is None:
            return
        if tally.remote.number != self._known[0]:  # on another engine
            self._known = tally.remote.number, self._known[1]
            entry.known(*self._known)
        asked, got, _, rows, tally.epoch, step = taken[-1]
        entry.wait(busy, waited, away, len(taken), 0, took)
        if got - self._put_at >= DEVICE_NS:
            self._put_device(entry, got)
        entry.progress(got, tally.epoch, step, self.samples, self.batches, self.bad, first)
        steps = sum(1 for one in taken if one[4] == tally.epoch)  # a pass may continue from one epoch into the next
        entry.span(tally.epoch, step - steps + 1, steps, taken[-steps][0], got, rows)

    def _put_device(self, entry: _page.Entry | None, now: int = 0) -> None:
        """Puts into the page what was done on the device since the last call."""
        if entry is None or self.copied.device in ("", "cpu"):  # what is done here is in the stage wait
            return
        self._put_at = now
        sums, works = self.copied.mark(), self.copied.works()
        (before, were), self._put = self._put, (sums, works)
        asked = sums.asked - before.asked
        entry.ahead(self.copied.ready, sums.ahead - before.ahead, asked)
        entry.device([_since(now, then) for now, then in zip(works, were, strict=True)], asked)

    def close(self) -> None:
        """The loader is closed."""
        self.flush()
        with self._lock:
            self._put_device(self._seat.mine())  # what has ended since the last batch
            self._seat.leave()

    def after_fork(self) -> None:
        self._lock = threading.Lock()

    def _ask(self, before: dict[str, Any] | None, wait_share: float | None) -> dict[str, Any]:
        ask = self._method()
        return ask(before, wait_share) if ask is not None else {}

    # Returning numbers.

    def told(self) -> dict[str, Any]:
        """The engine's numbers and these, as ``DataLoader.stats`` returns them."""
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
                "import_s": self.imported / 1e9,
                "p50_s": 0.0,
                "p99_s": 0.0,
            }
            if (entry := self._seat.mine()) is not None:
                wait = entry.wait_stage()
                client |= {"p50_s": wait["p50_s"], "p99_s": wait["p99_s"]}
        engine = self._ask(None, client["wait_share"] if self.batches else None)
        if (rates := engine.get("rates")) and "limiting" in rates:
            waited = client["busy_s"] + client["blocked_in_s"]
            rates["limiting"] = self.copied.limiting(rates["limiting"], None, all_ns / 1e9, waited)
        return {**engine, "client": client, "gpu": _gpu_watch.told(), "device": self.copied.told(all_ns / 1e9)}

    # Log lines.

    def begins(self, tally: Tally) -> None:
        """A pass has begun."""
        self._tallies.add(tally)
        if _logger.isEnabledFor(logging.INFO):
            self._lined = tally.begun
            _gpu_watch.look(monotonic_ns())
            tally.mark = self._mark = Mark(tally.begun, self, self._ask(None, None))

    def ended(self, tally: Tally, epoch: int) -> None:
        """A pass has ended normally."""
        self.settle(tally)
        with self._lock:
            self._put_device(self._seat.mine())
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
        gpu = _gpu_watch.between(mark.gpu, after.gpu)
        seconds = (waited + away) / 1e9
        limiting = self.copied.limiting(engine.get("limiting") or "", mark.copied, seconds, waited / 1e9)
        jpeg = engine.get("jpeg", {})
        others = sum(jpeg.values()) - jpeg.get("own", 0)
        parts = [
            f"{(after.samples - mark.samples) / max((now - mark.at) / 1e9, 1e-9):,.0f} samples/s",
            f"wait {100 * share:.0f} %",
            f"limited by {limiting or 'nothing yet'}",
            f"queue {engine.get('queue_mean', 0.0):.1f}",
            f"first batch after {tally.first / 1e9:.2f} s" + _import(tally),
        ]
        if others > NOTICEABLE * sum(jpeg.values()):
            by = "libjpeg" if jpeg.get("libjpeg") else "Go"
            parts.append(f"{100 * others / sum(jpeg.values()):.0f} % of JPEGs by {by}")
        parts += _entered(engine.get("entries") or {})
        parts += _asked(engine.get("sources", {}))
        parts += self.copied.line(mark.copied, seconds)
        if gpu is not None:
            parts.append(f"GPU {100 * gpu:.0f} %")
        _logger.info("%s: %s", what, ", ".join(parts))


def _entered(entries: Mapping[str, int]) -> list[str]:
    """How many JPEGs had entry points, and what part of their data did not have to be decoded."""
    known = entries.get("known", 0)
    if not known:
        return []
    leapt = 100 * entries["leapt"] / max(entries["mcus"], 1)
    return [f"{100 * known / max(entries['pictures'], 1):.0f} % of JPEGs with entry points, which save {leapt:.0f} %"]


def _since(now: Work, then: Work) -> tuple[str, int, int, int, int, int, int]:
    """What was done between two moments, as a page counts it."""
    busy, waited = round(1e9 * (now.busy - then.busy)), round(1e9 * (now.waited - then.waited))
    return (now.name, now.items - then.items, now.bytes - then.bytes, busy, waited, now.queue, now.queued - then.queued)


def _asked(sources: dict[str, dict[str, int]]) -> list[str]:
    """What was asked of each server, in words; those that gave most come first, and a few are named."""
    out = []
    for host in sorted(sources, key=lambda host: -sources[host]["bytes"])[:NAMED]:
        one = sources[host]
        text = f"{one['bytes'] / 1e6:,.1f} MB from {host} in {many(one['requests'], 'request')}"
        for key, what in (("retries", "retried"), ("hedges", "hedged")):
            if one[key]:
                text += f" ({one[key]:,} {what})"
        out.append(text)
    return out


def _import(tally: Tally) -> str:
    return f" ({tally.imported / 1e9:.2f} s of it an import)" if tally.imported >= IMPORT_NS else ""


class _Seat:
    """A meter's entry in the page; outlives the meter, for the finaliser."""

    def __init__(self) -> None:
        self.page: _page.Page | None = None
        self.entry: _page.Entry | None = None

    def mine(self) -> _page.Entry | None:
        """The entry; None if there is none, or, in a forked child, if it is in the parent's page."""
        return self.entry if self.page is _page.current() else None

    def leave(self) -> None:
        entry, self.entry = self.mine(), None
        if entry is not None:
            entry.close()


class Tally:
    """What one pass has given. Its own thread appends to ``taken``; the meter counts it now and then.

    A loop of quick batches may take one every ten microseconds or so: this is all the work done for each.
    """

    def __init__(self, remote: Any, begun: int, imported: int) -> None:
        self.remote = remote  # number of the loader in the engine
        self.begun = begun  # when the first batch was asked for, minus the time in iter(loader)
        self.entered = 0  # ns in iter(loader), and until the pass had begun
        self.imported = imported  # of these, ns importing torch or JAX
        self.taken: list[Taken] = []
        self.settled = 0  # time of the last log line
        self.got = 0  # when the loop got the last counted batch; 0: none yet
        self.first = 0  # duration of the first one
        self.epoch = 0
        self.ended = False
        self.mark: Mark | None = None

    def paused(self, ns: int) -> None:
        """Excludes the time spent logging a line from the time of the loop."""
        self.got += ns


def _after_fork() -> None:
    for meter in list(_meters):
        meter.after_fork()


os.register_at_fork(after_in_child=_after_fork)

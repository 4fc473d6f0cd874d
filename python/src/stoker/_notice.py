"""What stoker tells people: the line at start, notices, progress of indexing.

A text goes to the logger "stoker" if a handler gets it there. Otherwise it goes to stderr, unless the level that was
set for this logger excludes it. Notices are shown once per process, warnings every time.
"""

from __future__ import annotations

import logging
import sys
import time

_logger = logging.getLogger("stoker")
_said: set[str] = set()


def say(text: str) -> None:
    """Logs text at level INFO, unless it was logged before."""
    if text in _said:
        return
    _said.add(text)
    _emit(logging.INFO, text)


def warn(text: str) -> None:
    """Logs text at level WARNING, every time."""
    _emit(logging.WARNING, text)


def _emit(level: int, text: str) -> None:
    if _logger.hasHandlers() and _logger.isEnabledFor(level):
        _logger.log(level, text)
        return
    # Only this logger's own level counts: the root logger's is WARNING unless somebody sets it.
    wanted = level >= _logger.level and level > logging.root.manager.disable
    if wanted and sys.stderr is not None:  # None under pythonw and some daemons
        print(f"stoker: {text}", file=sys.stderr, flush=True)


class Progress:
    """A progress line on a terminal, with rate and time left; silent if stderr is not a terminal.

    ``show`` may be called for every message; the line is drawn at most ten times a second.
    """

    def __init__(self) -> None:
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._start = time.monotonic()
        self._drawn = 0.0
        self._width = 0

    def show(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        if not self._terminal or now - self._drawn < 0.1:
            return
        self._drawn = now
        self._draw(progress_line(done, total, what, now - self._start))

    def close(self) -> None:
        if self._width:
            self._draw("")
            print("\r", end="", file=sys.stderr, flush=True)
            self._width = 0

    def _draw(self, text: str) -> None:
        print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
        self._width = len(text)


def progress_line(done: int, total: int, what: str, seconds: float) -> str:
    """``seconds`` since the start; total is 0 if it is unknown."""
    rate = done / seconds if seconds > 0 else 0.0
    line = f"stoker: {what or 'indexing'} {done:,}"
    if total:
        line += f" of {total:,}"
    if rate:
        line += f", {rate:,.0f}/s"
        if total > done:
            line += f", {_duration((total - done) / rate)} left"
    return line


def _duration(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"

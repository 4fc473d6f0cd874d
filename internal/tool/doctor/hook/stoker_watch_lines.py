"""Which lines of the script compute, by tracing a few samples.

A look at the thread now and then sees only where it gives the interpreter's lock away, which a sample that computes
for less than five milliseconds does where it calls into NumPy or torch. So a handful of samples of a worker are traced
line by line, on the clock of their thread, and never more: a traced sample costs several times as much. A thread that
somebody else traces is left alone.
"""

import sys
from time import thread_time

from stoker_watch_process import is_user, line_of

SAMPLES = 24  # that are traced, at most
BUDGET = 0.3  # s of them all, at most
FETCHER = "torch/utils/data/_utils/fetch.py"
KEPT = 64  # lines that are remembered


class Lines:
    """CPU s by line, of the samples that were traced."""

    def __init__(self) -> None:
        self.cpu: dict = {}  # (code, line) -> s
        self.taken = 0
        self.spent = 0.0
        self.on = False
        self.place: object = None

    def begin(self) -> bool:
        if self.on or self.taken >= SAMPLES or self.spent >= BUDGET or sys.gettrace() is not None:
            return False
        self.taken += 1
        self.on = True
        self.place = None
        self.began = self.at = thread_time()
        sys.settrace(self._call)
        return True

    def end(self) -> None:
        if not self.on:
            return
        self.on = False
        if getattr(sys.gettrace(), "__self__", None) is self:
            sys.settrace(None)
        self._mark(None)
        self.spent += thread_time() - self.began

    def _mark(self, place: object) -> None:
        now = thread_time()
        before, self.place = self.place, place
        if before is not None and (before in self.cpu or len(self.cpu) < KEPT):
            self.cpu[before] = self.cpu.get(before, 0.0) + now - self.at
        self.at = thread_time()

    def _call(self, frame, event, arg):
        """A new frame: of a library's, the time stays with the line that called it."""
        if not self.on or not is_user(frame.f_code.co_filename):
            return None
        self._mark((frame.f_code, frame.f_lineno))
        return self._line

    def _line(self, frame, event, arg):
        if not self.on:
            return None
        if event == "line":
            self._mark((frame.f_code, frame.f_lineno))
        elif event == "return":
            outer = frame.f_back
            while outer is not None and not is_user(outer.f_code.co_filename):
                # From torch's fetcher on it is the loop that asks, and not the dataset.
                outer = None if outer.f_code.co_filename.endswith(FETCHER) else outer.f_back
            self._mark(None if outer is None else (outer.f_code, outer.f_lineno))
        return self._line

    def shares(self) -> dict:
        """FILE:FUNCTION:LINE -> share of what was traced."""
        lines = self.cpu.copy()
        whole = sum(lines.values())
        found: dict = {}
        for (code, number), seconds in lines.items():
            name = line_of(code, number)
            found[name] = found.get(name, 0.0) + seconds / max(whole, 1e-9)
        return found

"""What the loop does between two batches: how long steps take, and where the script is in them.

And what of the script runs inside __next__ in the trainer although workers make the batches: its sampler.

Steps are the trainer's own business; a report that says that loading is fine should say where the time goes instead,
and a step that now and then takes many times as long (a checkpoint, a validation, a log) should be told from one that
always does. Durations come from the loop's own looks at the clock; lines by looking at the loop's thread now and then.
"""

import sys
from _thread import get_ident, get_native_id
from time import monotonic

import stoker_watch_fetch as fetch
import stoker_watch_process as core

SHORT = 0.002  # s a step below which nobody asks where it goes
ASKING = 0.005  # s a step from which on it is asked how long it waited for a core
KEPT = 32  # lines that are remembered
SHOWN = 4
DEPTH = 24  # frames between a sampler's innermost call and the loader
LOADER = "torch/utils/data/dataloader.py"


class Between:
    """The steps of one loader's loop."""

    def __init__(self) -> None:
        self.steps = fetch.Histogram()
        self.thread = 0
        self.usual: dict = {}  # line -> looks
        self.long: dict = {}  # the same, of steps that took many times the usual
        self.inside: dict = {}  # the same, of the script's lines that __next__ runs in the trainer
        self.waiting = 0  # looks while the loop waited in __next__
        self.numbers: list = []  # of the last long steps
        self.count = 0
        self.spent = 0.0  # s, of all steps
        self.native = 0
        self.queued: float | None = (
            None  # s that the thread had waited for a core when the step began, if that is asked
        )

    def step(self, seconds: float) -> None:
        if self.queued is not None:  # a core that comes late is not part of the step
            seconds = max(0.0, seconds - fetch.delay(self.native) + self.queued)
            self.queued = None
        self.count += 1
        self.spent += seconds
        self.steps.add(seconds)
        middle = self.steps.quantile(0.5) if self.count > 16 and seconds > 4 * SHORT else None
        if middle is not None and seconds > fetch.TAIL * middle:
            self.numbers = [*self.numbers, self.count][-16:]

    def here(self) -> None:
        if self.thread != get_ident():
            self.thread, self.native = get_ident(), get_native_id()
        self.queued = fetch.delay(self.native) if self.count and self.spent > ASKING * self.count else None

    def sample(self, doing: tuple) -> None:
        what, since = doing
        if what == "wait" and self.thread:
            self.asked()
        if what != "step" or not self.thread:
            return
        middle = self.steps.quantile(0.5) or 0.0
        if middle < SHORT and monotonic() - since < SHORT:
            return
        frame = sys._current_frames().get(self.thread)
        inner = frame
        while frame is not None and not core.is_user(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None or frame.f_code.co_filename.startswith(core.OWN):
            return
        name = core.line_of(frame.f_code, frame.f_lineno)
        if inner is not frame:
            name += f" ({core.line_of(inner.f_code, inner.f_lineno)})"
        long = self.count > 16 and monotonic() - since > max(fetch.TAIL * middle, 4 * SHORT)
        places = self.long if long else self.usual
        if name in places or len(places) < KEPT:
            places[name] = places.get(name, 0) + 1

    def asked(self) -> None:
        """Looks for the script's own code between the loader's __next__ and what the thread does."""
        self.waiting += 1
        frame = sys._current_frames().get(self.thread)
        for _ in range(DEPTH):
            if frame is None or frame.f_code.co_filename.endswith(LOADER):
                return
            if core.is_user(frame.f_code.co_filename):
                name = core.line_of(frame.f_code, frame.f_lineno)
                if name in self.inside or len(self.inside) < KEPT:
                    self.inside[name] = self.inside.get(name, 0) + 1
                return
            frame = frame.f_back

    def report(self) -> dict:
        return {
            **self.steps.report(),
            "tail": self.steps.tail(),
            "numbers": self.numbers,
            "usual": _most(self.usual),
            "long": _most(self.long),
            "inside": _most(self.inside, self.waiting),
        }


def _most(places: dict, looks: int = 0) -> list:
    """The lines that were seen most, with their shares of the looks; by default of those in which one was seen."""
    looks = looks or sum(places.values())
    return [[at, n / looks] for at, n in sorted(places.copy().items(), key=lambda x: -x[1])[:SHOWN]]

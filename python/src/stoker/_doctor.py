"""stoker.doctor: runs a loop over a loader for some seconds, and has the command ``stoker doctor`` judge it.

The loop runs in this process, because its step does. The command watches it from outside: stoker's loaders through
their page of statistics, torch's through the hook that it also puts into scripts, which is loaded here while the loop
runs. Only the command knows the rules, predictions and the report.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import _command
from ._benchmark import _size
from ._errors import ConfigError, Problems, from_wire
from ._kept import kept
from ._loader import DataLoader
from ._process import find

_RUN = _command.Verb("doctor", "watching", "it starts again from the beginning")
_one = threading.Lock()  # torch's classes can be wrapped only once at a time

SYNTHETIC = 0.2  # share of the seconds for the step over synthetic batches
FEWEST = 3  # batches that are timed, however long they take


class Diagnosis:
    """The result of ``stoker.doctor``; ``str()`` gives the report as ``stoker doctor`` prints it, 80 columns wide.

    verdict     what limits the loop, in a few words: "decode", "transform RandomResizedCrop", "not data-bound"
    data_bound  whether the loop waits for its data at all
    findings    known mistakes in the settings; each is a dict with name, what, fix, source
    speedup     how many times faster the loop would be after the change, by the model; None: no prediction
    change      what to change first, as code or a command; None: nothing
    evidence    everything that was measured and where, a dict of plain values; times in seconds, sizes in bytes
    report      verdict, findings and evidence as one dict, as ``stoker doctor --json`` writes it
    """

    def __init__(self, report: dict[str, Any], text: str) -> None:
        self.report = report
        self._text = text
        told = report["verdict"]
        self.verdict: str = " ".join(filter(None, (told["name"], told.get("of"))))
        self.data_bound: bool = told["data_bound"]
        self.findings: list[dict[str, Any]] = report["findings"]
        self.speedup: float | None = told.get("speedup")
        changes = told.get("changes") or [{}]
        self.change: str | None = changes[0].get("code")
        self.evidence: dict[str, Any] = report["evidence"]

    def json(self) -> str:
        """The report as ``stoker doctor --json`` writes it; ``stoker doctor --from FILE`` reads it."""
        return json.dumps(self.report)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Diagnosis({self.verdict!r})"


def doctor(loader: Any, step: Callable[[Any], Any] | float | None = None, *, seconds: float = 10.0) -> Diagnosis:
    """Runs a loop over a loader, and says what limits it, by how much, and what to change.

    loader   stoker's DataLoader or torch's, as the training uses it
    step     the training step: a function of a batch, or seconds that stand for one. The function is really called, so
             a step that trains will train. None: no step, which measures the most that the loader can do; such a loop
             always waits, so the verdict names what to make faster, and the report says from which training speed on
             it matters
    seconds  the loop's time from its first batch on, approximately; another fifth is spent on running the step over
             one batch again and again, which shows the most there is to gain. Below 5 the evidence is often
             insufficient

    The loop runs as many epochs as fit. Afterwards the position of the loader is restored, and so are the random number
    generators of Python, NumPy, torch on the CPU and the loader; ``stats()`` of stoker's loader includes the loop. A
    copy of torch's loader is run, with its own workers. If a dataset is iterated in this process (``num_workers=0``),
    changes it makes to itself remain. Call it between epochs: a loop over the same loader that is already running would
    lose its position.

    Exceptions of the step and the loader propagate. Raises ConfigError if the loader is neither stoker's nor torch's,
    if it gives no batch, or if the process already runs under ``stoker doctor -- python ...``, which watches it anyway.
    """
    problems = Problems("doctor")
    torch = sys.modules.get("torch.utils.data")
    if not isinstance(loader, DataLoader) and not (torch is not None and isinstance(loader, torch.DataLoader)):
        problems.add(
            f"loader is of type {type(loader).__name__}", "give stoker's DataLoader or torch's, not its iterator"
        )
    if not (
        step is None or callable(step) or (isinstance(step, (int, float)) and not isinstance(step, bool) and step >= 0)
    ):
        problems.add(f"step is {step!r:.80}", "give a function of the batch, seconds or None")
    if not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        problems.add(f"seconds is {seconds!r}", "give a number above 0")
    problems.raise_any()
    frame = sys._getframe(1)
    where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    if not _one.acquire(blocking=False):
        raise ConfigError("doctor: another call is running in this process", hint="make one call after the other")
    try:
        with _Command() as command, kept(loader) as subject:
            loop = _Loop(step, float(seconds))
            with _watched(subject, where, command):
                loop.run(subject)
            command.say({"over": True})
            alone = loop.alone()
            about = {"name": _name(loader, where), "step": bool(step), "loop": loop.counted(), "synthetic": alone}
            command.say(about)
            return command.answer()
    finally:
        _one.release()


class _Loop:
    """The loop and its counts."""

    def __init__(self, step: Callable[[Any], Any] | float | None, seconds: float) -> None:
        self._step = step
        self._seconds = seconds
        self._batch: Any = None
        self._batches = self._samples = 0
        self._spent = 0.0

    def run(self, loader: Any) -> None:
        """Runs epochs until the time is up; everything before the second batch is warm-up."""
        first: float | None = None
        number, since = 0, 0.0
        decide, epoch = _epochs(loader)
        while True:
            before = number
            stream = iter(loader)
            try:
                for batch in stream:
                    first = first or time.perf_counter()
                    self._take(batch)
                    self._batch = batch if self._batch is None else self._batch
                    number += 1
                    if number == 2:
                        _settle()
                        since = time.perf_counter()
                    elif number > 2:
                        self._batches += 1
                        self._samples += _size(batch)
                    if number >= FEWEST and time.perf_counter() - first >= self._seconds:
                        return
            finally:
                _settle()
                self._spent = time.perf_counter() - since if number > 2 else 0.0
                if callable(
                    end := getattr(stream, "_shutdown_workers", None)
                ):  # torch's loader, closed now instead of when it is collected
                    end()
                    loader.__dict__["_iterator"] = None
                del stream
            if number == before:
                if number == 0:
                    raise ConfigError("doctor: the loader gave no batch", hint="check its dataset and drop_last")
                return
            epoch += 1
            decide(epoch)

    def _take(self, batch: Any) -> None:
        if callable(self._step):
            self._step(batch)
        elif self._step:
            time.sleep(self._step)

    def counted(self) -> dict[str, float]:
        return {"batches": self._batches, "samples": self._samples, "seconds": self._spent}

    def alone(self) -> dict[str, float]:
        """The same step over one batch, again and again."""
        size, number = _size(self._batch), 0
        begin = end = time.perf_counter()
        while number < FEWEST or end - begin < min(SYNTHETIC * self._seconds, 5.0):
            self._take(self._batch)
            number += 1
            end = time.perf_counter()
        _settle()
        return {"batches": number, "samples": size * number, "seconds": time.perf_counter() - begin}


def _settle() -> None:
    """Waits for what a step has queued on a GPU, if one is in use."""
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()


def _epochs(loader: Any) -> tuple[Callable[[int], Any], int]:
    """How torch's loader is told its epoch, and the current one: otherwise the same shuffled order comes again."""
    if not isinstance(loader, DataLoader):
        for sampler in (loader.sampler, getattr(loader, "batch_sampler", None)):
            if callable(decide := getattr(sampler, "set_epoch", None)) and isinstance(
                epoch := getattr(sampler, "epoch", None), int
            ):
                return decide, epoch
    return (lambda epoch: None), 0


def _name(loader: Any, where: str) -> str:
    kind, data = type(loader), type(getattr(loader, "dataset", None))
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__} over {data.__name__}, called at {where}"


# The command that runs beside.


class _Command:
    """``stoker doctor --beside``: watches this process, and keeps its hook in a folder."""

    def __enter__(self) -> _Command:
        self._errors = tempfile.TemporaryFile()
        self._child = subprocess.Popen(
            [find(), "doctor", f"--beside={os.getpid()}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        try:
            told = self._hear()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        self.hook, self.lines = told["hook"], told["lines"]
        return self

    def say(self, message: Mapping[str, Any]) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its messages come through its other pipes
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            self._child.stdin.flush()

    def answer(self) -> Diagnosis:
        told = self._hear()
        self._child.wait()
        return Diagnosis(told["report"], told["text"])

    def _hear(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        if line := self._child.stdout.readline():
            return _command.read_line(line)
        status = self._child.wait()
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").splitlines()
        for word in words:
            if "error" in (told := _command.read_line(word.encode())):
                raise from_wire(told["error"])
        raise _command.died(_RUN, status, words)

    def __exit__(self, *exc: object) -> None:
        if self._child.poll() is None:
            _command.end(self._child)
        for pipe in (self._child.stdin, self._child.stdout, self._errors):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()


@contextlib.contextmanager
def _watched(loader: Any, where: str, command: _Command) -> Iterator[None]:
    """The hook in this process while torch's loader runs. stoker's loaders have pages and need no hook."""
    if isinstance(loader, DataLoader):
        yield
        return
    guest = sys.modules.get("stoker_watch_guest")
    if guest is None:
        if "stoker_watch_process" in sys.modules:
            raise ConfigError(
                "doctor: `stoker doctor` already watches this process",
                hint="run the script without it, or read the report that it prints",
            )
        guest = _loaded(command.hook)
    before = {name: os.environ.get(name) for name in ("PYTHONPATH", "STOKER_DOCTOR_DIR")}
    os.environ["STOKER_DOCTOR_DIR"] = command.lines  # spawned workers find it when they start
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (command.hook, before["PYTHONPATH"])))
    try:
        guest.begin(command.lines, loader, where)
        try:
            yield
        finally:
            guest.end()
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _loaded(folder: str) -> Any:
    """The hook's modules, which import each other by name; their folder is removed with the command."""
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("stoker_watch_guest")
    finally:
        sys.path.remove(folder)
        sys.dont_write_bytecode = writes

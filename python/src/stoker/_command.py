"""Verbs of the command as functions: run by the engine's executable beside this process, with their progress and
errors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from . import _notice
from ._errors import EngineError, from_wire
from ._process import status_words

END_SECONDS = 3.0  # seconds that a command may take to stop after Ctrl-C

Told = Callable[[int, int, int], Any]  # samples done, total samples, bytes


@dataclass(frozen=True)
class Verb:
    """How messages refer to a command."""

    name: str
    doing: str
    again: str  # said when it was stopped, unless it says so itself


def run(
    command: list[str], verb: Verb, progress: Told | None = None, dataset: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Runs a command that was given --json and --progress, and returns its result; raises its errors. The command ends
    with this call, whatever happens. ``dataset`` goes to its standard input, because everybody can see command lines,
    and names may have signatures."""
    bar = _notice.Progress()
    error: Mapping[str, Any] | None = None
    words: list[str] = []
    stopped = verb.again
    if dataset is not None:
        command = [*command[:2], "--dataset=-", *command[2:]]
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL if dataset is None else subprocess.PIPE,
            stdout=out,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            if child.stdin is not None:
                with suppress(BrokenPipeError):  # it says why it ended
                    child.stdin.write(json.dumps(dataset).encode())
                    child.stdin.close()
            assert child.stderr is not None
            for line in child.stderr:
                told = read_line(line)
                if "progress" in told:
                    at = told["progress"]
                    bar.show(at["done"], at["total"], verb.doing)
                    if progress is not None:
                        progress(at["done"], at["total"], at["bytes"])
                elif "waiting" in told:
                    _notice.warn(told["waiting"])
                elif "error" in told:
                    error = told["error"]
                elif "interrupted" in told:
                    stopped = told["interrupted"]
                else:
                    words.append(line.decode(errors="replace").rstrip())
            status = child.wait()
        except BaseException as error_here:
            end(child)
            if not isinstance(error_here, Exception):  # Ctrl-C, or something that ends the program
                assert child.stderr is not None
                for line in child.stderr:
                    stopped = read_line(line).get("interrupted", stopped)
                if sys.version_info >= (3, 11):
                    error_here.add_note(f"stoker.{verb.name} was stopped: {stopped}")
                else:
                    _notice.say(f"{verb.name} was stopped: {stopped}")
            raise
        finally:
            bar.close()
            assert child.stderr is not None
            child.stderr.close()
        if error is not None:
            raise from_wire(error)
        if status == 128 + signal.SIGINT:
            raise KeyboardInterrupt(f"stoker.{verb.name} was stopped: {stopped}")
        if status != 0:
            raise died(verb, status, words)
        out.seek(0)
        report: dict[str, Any] = json.load(out)
        return report


def died(verb: Verb, status: int | None, words: list[str]) -> EngineError:
    """The error for a command that ended without saying why."""
    return EngineError(
        f"{verb.name} ended early, by {status_words(status)}",
        code="died",
        cause="\n".join(words[-20:]) or None,
        hint=f"call it again: {verb.again}",
    )


def read_line(line: bytes) -> dict[str, Any]:
    """The object on a line of JSON; empty if there is none."""
    with suppress(ValueError):
        told = json.loads(line)
        if isinstance(told, dict):
            return told
    return {}


def end(child: subprocess.Popen[bytes]) -> None:
    """Stops the child as Ctrl-C does, and kills it if that does not help."""
    child.send_signal(signal.SIGINT)
    try:
        child.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()

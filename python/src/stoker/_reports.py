"""What a worker says of an exception in the user's code, and of a sample that does not fit: JSON for the engine, which
the trainer raises as an error again."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

from ._blob import exception_text
from ._values import Misfit

# Failures of a source and of the machine: the data may be good, so on_bad never skips them.
_NEVER_SKIPPED = (ConnectionError, TimeoutError, MemoryError)
# Frames of these files come before the user's in a traceback, and say nothing.
_OURS = frozenset(
    str(Path(__file__).parent / name)
    for name in (
        "_making.py",
        "_work.py",
        "_inline.py",
        "_walks.py",
        "_keyed.py",
        "_steps.py",
        "_program.py",
        "_split.py",
    )
)


_SOURCE = "on_bad never skips it, because the data may be good: try again, from the last state if the loop has ended"
_CUDA = 'use CUDA in the training loop only, or pass multiprocessing_context="spawn" or num_workers=0'
LISTS = (
    "call dataset.__getitems__ by itself with a list of ids: it returns a list with a sample for each, in their order"
)


def alone(error: BaseException, name: str) -> str:
    """What to try for an exception of dataset[name]."""
    if isinstance(error, IndexError):
        return "check that len() of the dataset is the number of its samples"
    return f"call dataset[{name}] by itself to see why; on_bad='skip' or 'replace' goes on without such samples"


def collating(workers: bool, single: bool) -> str:
    """What to try for an exception of collate_fn."""
    samples = "a sample" if single else "a list of samples, [dataset[i] for i in ids]"
    return f"call collate_fn by itself with {samples}" + ("; num_workers=0 runs it where pdb works" if workers else "")


class Failed(Exception):
    """A sample could not be made: ``body`` is the JSON for the engine."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body


def report(error: BaseException, before: str, hint: str = "", retry: bool = True) -> bytes:
    """The JSON for an exception of the user's code. ``retry``: on_bad may skip it. ``hint`` is for those that say
    nothing better themselves."""
    kind = type(error).__name__
    text = str(error)
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in _OURS:
        frames = frames.tb_next
    try:
        lines = traceback.format_exception(type(error), error, frames)
    except Exception:  # a class whose str() fails
        lines = [kind]
    source = isinstance(error, _NEVER_SKIPPED)
    return said(
        f"{before}{kind}{': ' if text else ''}{text}",
        kind,
        hint=_CUDA if "Cannot re-initialize CUDA" in text else _SOURCE if source and retry else hint,
        retry=retry and not source,
        code="damaged" if not source else "memory" if isinstance(error, MemoryError) else "unreadable",
        text="".join(lines),
        pickled=exception_text(error),
    )


def unfit(error: Exception, number: int, of: str = "") -> bytes:
    """The JSON for a sample that cannot be a row of its batch. ``of`` follows its number: "of the batch "."""
    if isinstance(error, Failed):
        return error.body
    if isinstance(error, Misfit):
        return said(f"sample {number} {of}does not fit a batch: {error}", "Misfit", hint=error.hint)
    return report(error, f"sample {number} {of}cannot be taken apart: ")


def said(
    what: str,
    kind: str,
    *,
    hint: str = "",
    retry: bool = True,
    code: str = "damaged",
    text: str = "",
    pickled: str = "",
) -> bytes:
    found = {"what": what, "kind": kind, "retry": retry, "code": code, "text": text, "pickle": pickled}
    if hint:
        found["hint"] = hint
    return json.dumps(found).encode()

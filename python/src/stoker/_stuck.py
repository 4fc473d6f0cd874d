"""A worker that is stuck: where its Python code is, from the stack that its faulthandler wrote for the engine.

tidy(stack)      the stack without threads and frames of this package
line(stack)      the line of the user's own code
explained(error) a StallError that says it
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ._errors import StallError

_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')
_HERE = str(Path(__file__).parent) + os.sep


def tidy(stack: str) -> str:
    """The stack without this package's threads, and without what called the user's code. The main thread, which makes
    samples, is the last."""
    threads = []
    for thread in stack.strip().split("\n\n"):
        lines = thread.splitlines()
        frames = [line for line in lines if (found := _FRAME.match(line)) is None or not found[1].startswith(_HERE)]
        ours = next((i for i, line in enumerate(lines) if line not in frames), len(lines))
        if ours > 1:
            threads.append("\n".join(lines[:ours]))
    return "\n\n".join(threads)


def line(stack: str) -> str:
    """Such as "in load (train.py:12)"; "" if it is not known. The innermost line that is in no library; if all are, the
    outermost: the dataset's own."""
    frames = [found.groups() for text in tidy(stack).split("\n\n")[-1].splitlines() if (found := _FRAME.match(text))]
    if not frames:
        return ""
    import sysconfig

    paths = sysconfig.get_paths()
    libraries = tuple(paths[name] + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    own = [frame for frame in frames if not frame[0].startswith((*libraries, "<frozen"))]
    file, number, function = own[0] if own else frames[-1]
    with_folder = os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file
    return f"in {function} ({with_folder}:{number})"


def explained(error: StallError) -> StallError:
    """The error with the line of the user's code, if the engine got a stack from the worker."""
    if error.traceback and (found := line(error.traceback)):
        error.what += f", {found}"
        error.traceback = tidy(error.traceback)
        error.args = (error.what,)
    return error


def words(stuck: Mapping[str, Any]) -> str:
    """A notice of a worker that is stuck, where the loop waits for ever."""
    stack = str(stuck.get("text", ""))
    where = f", {found}" if (found := line(stack)) else ""
    text = (
        f"Python worker {stuck['worker']} (process {stuck['pid']}) has been {stuck['what']} for {stuck['s']:.0f} s"
        f"{where}; the loop waits for it, and timeout= would end that"
    )
    return f"{text}\n{tidy(stack)}" if where else text

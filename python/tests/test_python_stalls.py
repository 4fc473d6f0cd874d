"""Python workers that are stuck: who is named, who is killed, and what a loop that waits for ever is told."""

from __future__ import annotations

import ctypes
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import mine
import pytest
from conftest import kill, stop, wait_until
from forms import thinned
from test_python_workers import children

import stoker
from stoker import _pass, _stuck


class Stuck(mine.Squares):
    """Sample 5 does not come, as long as there is the file."""

    def __init__(self, file: Path, how: Any = None) -> None:
        super().__init__()
        file.touch()
        self.file = file
        self.how = how or threading.Event().wait

    def __getitem__(self, i: int) -> Any:
        if i == 5 and self.file.exists():
            self.stay()
        return i

    def stay(self) -> None:
        self.how(60)  # the line that is named


LINE = next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if "the line that" in line)


def asleep(seconds: int) -> None:
    """C code that keeps the interpreter's lock."""
    ctypes.PyDLL(None).sleep(seconds)


def stall(iterator: Any, words: str, found: list[Any] | None = None) -> stoker.StallError:
    """The next stall whose text has this. Where others have the cores, any worker may be slow for a moment."""
    for _ in range(100):
        try:
            batch = next(iterator)
            if found is not None:
                found.append(batch.tolist())
        except stoker.StallError as error:
            if re.search(words, error.what):
                return error
    raise AssertionError(words)


def rest(iterator: Any) -> list[Any]:
    """The other batches, whoever is slow meanwhile."""
    found = []
    while True:
        try:
            found.append(next(iterator).tolist())
        except stoker.StallError:
            continue
        except StopIteration:
            return found


@thinned
@pytest.mark.parametrize("how", [None, asleep])
@pytest.mark.parametrize("whole", [False, True])
def test_a_stuck_worker_is_named_and_killed(whole: bool, how: Any, tmp_path: Path, caplog: Any) -> None:
    made = Stuck(tmp_path / "stuck", how)
    with stoker.DataLoader(made, 4, num_workers=2, timeout=0.5, collate_fn=mine.ids if whole else None) as loader:
        iterator = iter(loader)
        found: list[Any] = []
        for _ in range(3):  # a storage that hangs is not a bad sample, however often
            error = stall(iterator, "at sample 5", found)
        assert error.where == {"sample": 5, "worker": error.where["worker"], "epoch": 0, "step": 1, "rank": 0}
        assert error.where["worker"] in (0, 1)
        told = re.match(r"no batch for [\d.]+ s: Python worker (\d) \(process (\d+)", error.what)
        assert told is not None
        assert int(told[1]) == error.where["worker"]
        name = "asleep" if how else "stay"
        if not how:
            assert f"in stay ({'tests/' * (Path.cwd().name != 'tests')}test_python_stalls.py:{LINE})" in error.what
        assert f"in {name}\n" in str(error)
        assert f'test_python_stalls.py", line {LINE} in stay' in str(error)
        assert "stoker/_" not in str(error)
        assert "killed" in str(error)
        wait_until(lambda: int(told[2]) not in children(), "the worker that was stuck")
        made.file.unlink()
        found += rest(iterator)
    assert [i for batch in found for i in batch] == list(range(20))
    notices = [record.getMessage() for record in caplog.records]
    assert sum("which was stuck, was killed" in line for line in notices) >= 2
    assert not any("died" in line for line in notices)


@pytest.mark.parametrize(
    ("keyword", "words"),
    [("collate_fn", "in collate_fn"), ("worker_init_fn", r"starting \(unpickling the dataset, worker_init_fn\)")],
)
def test_what_else_can_be_stuck(keyword: str, words: str) -> None:
    def slow(_: Any) -> None:
        time.sleep(60)

    keywords: Any = {keyword: slow}
    with stoker.DataLoader(mine.Squares(), 4, num_workers=2, timeout=1, **keywords) as loader:
        error = stall(iter(loader), rf" has been {words} for .*, in slow \(")
    assert "sample" not in error.where
    assert error.where["worker"] in (0, 1)


def test_a_worker_that_somebody_stopped_is_left_alone() -> None:
    with stoker.DataLoader(mine.Slow(40, 0.02), 4, num_workers=1, timeout=5) as loader:
        iterator = iter(loader)
        next(iterator)
        (worker,) = children()
        stop(worker)
        error = stall(iterator, f"process {worker}")
        assert f"`kill -CONT {worker}` continues it" in str(error)
        kill(worker, signal.SIGCONT)
        assert worker in children()


def test_without_a_timeout_a_notice_shows_the_stack(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(_pass, "SLOW_SECONDS", 0.5)
    made = Stuck(tmp_path / "stuck", lambda _: time.sleep(5))
    with stoker.DataLoader(made, 4, num_workers=2) as loader:
        assert [i for batch in loader for i in batch.tolist()] == list(range(20))
    (told,) = [record.getMessage() for record in caplog.records if "has been at sample 5 for" in record.getMessage()]
    assert f"line {LINE} in stay" in told


THREADS = """\
Thread 0x00007f00 (most recent call first):
  File "{here}/_inside.py", line 83 in _watch
  File "/usr/lib/python3.11/threading.py", line 975 in run

Thread 0x00007f01 (most recent call first):
  File "/home/me/pool.py", line 3 in fetch

Current thread 0x00007f02 (most recent call first):
  File "{stdlib}/socket.py", line 706 in readinto
  File "{site}/requests/api.py", line 59 in get
  File "/home/me/train.py", line 12 in __getitem__
  File "{site}/torch/utils/data/dataset.py", line 415 in __getitem__
  File "{here}/_making.py", line 128 in samples
  File "{here}/_work.py", line 50 in main
  File "/usr/lib/python3.11/multiprocessing/process.py", line 108 in run
"""


def test_the_line_in_a_stack() -> None:
    import sysconfig

    paths = sysconfig.get_paths()
    here = Path(_stuck.__file__).parent
    stack = THREADS.format(here=here, stdlib=paths["stdlib"], site=paths["purelib"])
    assert _stuck.line(stack) == "in __getitem__ (/home/me/train.py:12)"
    tidy = _stuck.tidy(stack)
    assert "_watch" not in tidy
    assert "_making" not in tidy
    assert "multiprocessing" not in tidy
    assert "line 3 in fetch" in tidy
    # A dataset of a library: its own line.
    assert _stuck.line(stack.replace("/home/me/train.py", f"{paths['purelib']}/x.py")).endswith(
        "torch/utils/data/dataset.py:415)"
    )
    assert _stuck.line("") == ""
    assert _stuck.line("Current thread 0x00007f02 (most recent call first):\n  <no Python frame>\n") == ""

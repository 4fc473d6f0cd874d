"""How a script with Python workers ends: nothing is printed that nobody asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from itertools import product

import pytest
from forms import mostly

BEGIN = """
import time, stoker
class Slow:
    def __len__(self):
        return 100
    def __getitem__(self, i):
        time.sleep(SECONDS)
        return i
loader = stoker.DataLoader(Slow(), 4, num_workers=WORKERS, output="numpy", shuffle=True)
"""
WAITS = """
iterator = iter(loader)
print("begins", flush=True)
try:
    next(iterator)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
LEFT = """
for _ in zip(range(2), loader):
    pass
iterator = iter(loader)
next(iterator)
GONE
print("done")
"""


def script(text: str, *flags: str, **words: object) -> subprocess.Popen[str]:
    for name, word in words.items():
        text = text.replace(name, str(word))
    return subprocess.Popen(
        [sys.executable, *flags, "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_second_interrupt_ends_the_wait_for_workers() -> None:
    """They are at a slow sample when the script ends, which waits a second for them."""
    with script(BEGIN + WAITS, SECONDS=20, WORKERS=2) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "begins\n"
        time.sleep(0.5)
        os.killpg(child.pid, signal.SIGINT)
        assert child.stdout.readline() == "interrupted\n"
        time.sleep(0.3)
        os.killpg(child.pid, signal.SIGINT)
        _, told = child.communicate(timeout=60)
    assert "Traceback" not in told
    assert "Exception ignored" not in told
    assert child.returncode == 0


GONE = ["", "del loader, iterator", "loader.close()", "del iterator"]


@pytest.mark.parametrize(  # without workers, the script itself imports torch
    ("gone", "workers"), mostly(product(GONE, [0, 2]), *product(GONE, [2]))
)
def test_no_resource_is_left(gone: str, workers: int) -> None:
    text = BEGIN + LEFT
    with script(text, "-X", "dev", "-W", "error::ResourceWarning", SECONDS=0, WORKERS=workers, GONE=gone) as child:
        out, told = child.communicate(timeout=60)
    assert out == "done\n"
    assert "ResourceWarning" not in told
    assert child.returncode == 0

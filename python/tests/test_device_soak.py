"""Steps on devices that can be wrong, drawn by a seed (soaked.py, in a process of its own): a hundred here, ten
thousand in the long form, and a hundred thousand in `make soak-device`. STOKER_SOAK_SEED gives another seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forms
import pytest
from soaked import PLANTS

SEED = os.environ.get("STOKER_SOAK_SEED", "1")


def soaked(*arguments: str) -> Any:
    command = [sys.executable, str(Path(__file__).with_name("soaked.py")), "--seed", SEED, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # it ends by itself if it hangs


def test_every_byte_arrives_and_every_slot_returns() -> None:
    done = soaked("--steps", "100")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert "all correct" in done.stdout


@forms.long
def test_every_byte_arrives_and_every_slot_returns_for_long() -> None:
    done = soaked("--steps", "10000")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]


@pytest.mark.parametrize("mistake", forms.mostly(PLANTS, "too many batches are ahead"))
def test_mistakes_are_found(mistake: str) -> None:
    """So that the tests above mean something; test_device.py plants some of them under simpler loops."""
    done = soaked("--steps", "2000", "--plant", mistake, "--kind", "uint8", "--kind", "large", "--kind", "arrays")
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-6000:]
    assert "Wrong: " in done.stderr or "slots are not returned" in done.stderr, done.stderr[-6000:]

"""Datasets for scripts that import no torch, which takes ten times as long as they do."""

from __future__ import annotations

import os
import time
from typing import Any


class Numbers:
    """Samples of a number and the process that made it, each made after some seconds."""

    def __init__(self, n: int = 20, seconds: float = 0.01) -> None:
        self.n = n
        self.seconds = seconds

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> Any:
        if not 0 <= i < self.n:
            raise IndexError(i)
        time.sleep(self.seconds)
        return i, os.getpid()

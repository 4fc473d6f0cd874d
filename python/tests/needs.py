"""The libraries that tests compare with."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

# What a package is called where it is installed from, if not as it is imported.
_CALLED = {"PIL": "pillow", "streaming": "mosaicml-streaming", "tensorflow": "tensorflow-cpu"}


def _declared() -> set[str]:
    """The packages that every environment of tests has."""
    lines = (Path(__file__).parents[1] / "requirements-dev.txt").read_text().splitlines()
    return {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in lines if line and not line.startswith("#")}


def needs(module: str) -> Any:
    """The module. One of requirements-dev.txt has to be there: without it the test fails, so that nothing is hidden.
    Without any other the test is skipped."""
    package = module.partition(".")[0]
    if _CALLED.get(package, package) in _declared():
        return importlib.import_module(module)
    return pytest.importorskip(module)

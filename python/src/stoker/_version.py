"""The version, from the one file that holds it.

A wheel carries it beside its engine; in a checkout it is the file VERSION at the top.
"""

from __future__ import annotations

from pathlib import Path


def read() -> str:
    here = Path(__file__).resolve()
    for place in (here.parent / "_engine" / "VERSION", here.parents[3] / "VERSION"):
        try:
            return place.read_text(encoding="ascii").strip()
        except OSError:
            continue
    return "0+unknown"


VERSION = read()

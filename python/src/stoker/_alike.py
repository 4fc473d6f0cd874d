"""A batch whose samples do not fit the first sample of all, but may fit each other: several scales, or a last batch of
another length. One worker makes it as a whole, and stacks it as rows are stacked (``Stacked`` in _values.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._values import Stacked, Structure, split


class Alike:
    """The samples of one batch by row. ``first`` is the structure of the first sample of all."""

    def __init__(self, first: Structure | None) -> None:
        self._first = first
        self._decided: Structure | None = None
        self._data = b""
        self._rows: dict[int, tuple[int, bool, Any]] = {}

    def add(self, row: int, number: int, attempt: int, sample: Any) -> None:
        """A sample of its own, or one that replaces another, if ``attempt`` is not 0."""
        self._rows[row] = number, attempt > 0, sample

    def unlike(self) -> list[tuple[int, int, Exception]]:
        """Row, sample and reason of each that does not fit; they are forgotten.

        If a sample fits the first one of all, the others have to. Otherwise the first row decides that can be stacked
        at all. Samples that replace others come from anywhere, and decide nothing if there is another.
        """
        bad: list[tuple[int, int, Exception]] = []
        own = sorted(row for row, (_, replaces, _) in self._rows.items() if not replaces) or sorted(self._rows)
        if self._decided is None and self._first is not None:
            first = self._first
            if any(_problem(first, self._rows[row][2]) is None for row in own):
                self._decided = first
        for row in own:
            if self._decided is not None:
                break
            number, _, sample = self._rows[row]
            try:
                self._decided, _ = split(sample, number)
                self._data = self._decided.encode()
            except Exception as error:
                self._decided = None
                bad.append((row, number, error))
                del self._rows[row]
        for row in sorted(self._rows):
            if self._decided is None:
                break
            number, _, sample = self._rows[row]
            if (problem := _problem(self._decided, sample)) is not None:
                bad.append((row, number, problem))
                del self._rows[row]
        return bad

    def stacked(self, sources: Sequence[int]) -> Stacked:
        """The batch: row i is the sample of row ``sources[i]``."""
        assert self._decided is not None
        self._data = self._data or self._decided.encode()
        return Stacked.of(self._decided, self._data, [self._rows[row][2] for row in sources])


def _problem(structure: Structure, sample: Any) -> Exception | None:
    try:
        structure.check(sample)
    except Exception as error:
        return error
    return None

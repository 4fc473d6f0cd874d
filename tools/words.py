"""Refuses English that this project does not write: "can not", "is no X", "behind" for "after".

    tools/words.py            shows every place, and fails if there is one
    tools/words.py PATH ...   the same below these paths

The patterns are below, each with what to write instead. tools/words.allow has what they match and is right English.
A phrase may be broken over lines, also of a comment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
ALLOW = TOP / "tools/words.allow"

PATTERNS = {
    r"can not": "cannot",
    r"(?:is|are|was|were) no": "is not a, are not, has no",
    r"behind": "after",
    r"as (?:it|they) (?:lies?|lay|stands?)": "in place, unchanged",
    r"(?:lie|lies|lay)": "is, is stored",
    r"(?:stand|stands|stood)": "is, is stored, is written",
    r"(?:go|goes) not": "does not",
}
KINDS = {".go", ".c", ".h", ".py", ".md", ".sh", ".toml"}
APART = ("tools/words", "python/tests/test_english.py", "bench/results/", "CHANGELOG.md", "python/src/stoker/_engine/")
GAP = r"(?:[ \t]|[ \t]*\n[ \t]*(?://+|#+|\*|>|-)?[ \t]*)+"


def regex(phrase: str) -> re.Pattern[str]:
    """A phrase between words, in either case, broken over lines or not."""
    return re.compile(rf"(?<![\w-]){phrase.replace(' ', GAP)}(?![\w-])", re.IGNORECASE)


def allowed() -> list[re.Pattern[str]]:
    lines = (line.strip() for line in ALLOW.read_text(encoding="utf-8").splitlines())
    return [regex(line) for line in lines if line and not line.startswith("#")]


def places(text: str, right: list[re.Pattern[str]]) -> Iterator[tuple[int, str, str]]:
    """The line, the words and what to write instead, of every place that no right phrase covers."""
    fine = [match.span() for phrase in right for match in phrase.finditer(text)]
    taken: list[tuple[int, int]] = []
    for phrase, instead in PATTERNS.items():
        for match in regex(phrase).finditer(text):
            begin, end = match.span()
            if any(a <= begin and end <= b for a, b in fine + taken):
                continue
            taken.append((begin, end))
            yield text.count("\n", 0, begin) + 1, " ".join(match[0].split()), instead


def walked(below: list[str]) -> Iterator[str]:
    """What git would list, in a tree without git: all but hidden folders and what make builds."""
    for start in below or ["."]:
        if (TOP / start).is_file():
            yield start
        for folder, folders, names in os.walk(TOP / start):
            folders[:] = [name for name in folders if not name.startswith(".") and name not in ("build", "dist")]
            yield from ((Path(folder) / name).relative_to(TOP).as_posix() for name in names)


def files(below: list[str]) -> Iterator[str]:
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *below]
    listed = subprocess.run(command, cwd=TOP, capture_output=True, check=False).stdout.decode("utf-8", "surrogateescape")
    names = listed.split("\0") if listed else walked(below)
    for name in names:
        if name and Path(name).suffix in KINDS and not name.startswith(APART) and "testdata" not in Path(name).parts:
            yield name


def found(below: list[str]) -> Iterator[tuple[str, int, str, str]]:
    right = allowed()
    for name in files(below):
        path = TOP / name
        if path.is_file():
            for line, words, instead in places(path.read_text(encoding="utf-8", errors="replace"), right):
                yield name, line, words, instead


def main(args: list[str]) -> int:
    every = sorted(found(args))
    for name, line, words, instead in every:
        print(f'{name}:{line}: "{words}": write {instead}')
    return bool(every)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Refuses English that this project does not write: "can not", "is no X", "behind" for "after".

    tools/words.py            fails if a package has more of it than tools/words.baseline allows
    tools/words.py PATH ...   shows every place below these paths, and fails if there is one
    tools/words.py --write    writes the baseline anew: counts may only fall, so look at its difference

The patterns are below, each with what to write instead. tools/words.allow has what they match and is right English.
A phrase may be broken over lines, also of a comment. Counts are kept for each folder; a folder that is not in the
baseline has none. When the baseline is empty, delete it and the code that reads it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
BASELINE, ALLOW = TOP / "tools/words.baseline", TOP / "tools/words.allow"

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
APART = ("tools/words", "bench/results/", "CHANGELOG.md", "python/src/stoker/_engine/")
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


def files(below: list[str]) -> Iterator[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *below], cwd=TOP, capture_output=True, check=True
    )
    for name in listed.stdout.decode("utf-8", "surrogateescape").split("\0"):
        if name and Path(name).suffix in KINDS and not name.startswith(APART) and "testdata" not in Path(name).parts:
            yield name


def found(below: list[str]) -> Iterator[tuple[str, int, str, str]]:
    right = allowed()
    for name in files(below):
        path = TOP / name
        if path.is_file():
            for line, words, instead in places(path.read_text(encoding="utf-8", errors="replace"), right):
                yield name, line, words, instead


def folder(name: str) -> str:
    return str(Path(name).parent)


def main(args: list[str]) -> int:
    if args and args != ["--write"]:
        every = sorted(found(args))
        for name, line, words, instead in every:
            print(f'{name}:{line}: "{words}": write {instead}')
        return bool(every)
    counts = Counter(folder(name) for name, *_ in found([]))
    if args:
        BASELINE.write_text("".join(f"{count:5} {name}\n" for name, count in sorted(counts.items()) if count))
        return 0
    most: Counter[str] = Counter()
    if BASELINE.exists():
        for line in BASELINE.read_text().splitlines():
            count, name = line.split(maxsplit=1)
            most[name] = int(count)
    worse = [name for name in sorted(counts) if counts[name] > most[name]]
    for name in worse:
        print(f"{name}: {counts[name]} places that `tools/words.py {name}` shows; there may be {most[name]}")
    better = sum(most.values()) - sum(counts.values())
    if not worse and better > 0:
        print(f"{better} places fewer than tools/words.baseline has: run tools/words.py --write")
    return bool(worse)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Which lines of each parser its fuzz targets reach: `make fuzz-coverage`.

    tools/fuzz_coverage.py [--seconds N] [PACKAGE ...]

Fuzzes every target for N seconds (0: not at all), then runs the seeds and what Go's fuzzer has kept in its cache, here
in a copy of the tree, with coverage. It prints percent of lines for each file, of those functions that the targets
enter: a package of a parser has writers, options and texts too. Functions that they never enter are listed below, so
that nobody takes a parser that is missed for one of these.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
AIM = 85
TARGET = re.compile(r"^func (Fuzz\w*)\(", re.MULTILINE)
BLOCK = re.compile(r"^(.+):(\d+)\.\d+,(\d+)\.\d+ \d+ (\d+)$")
MODULE = "github.com/stoker-data/stoker/"


def packages() -> dict[str, list[str]]:
    """The folders that have fuzz targets, with their names."""
    found: dict[str, list[str]] = defaultdict(list)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*_test.go"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.split():
        if names := TARGET.findall((TOP / name).read_text(encoding="utf-8")):
            found[str(Path(name).parent)] += names
    return dict(sorted(found.items()))


def copy(to: Path) -> None:
    """A copy of the tree without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=TOP, capture_output=True, check=True
    )
    for name in listed.stdout.decode().split("\0"):
        if name and (TOP / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TOP / name, to / name)


def fuzz(folder: str, target: str, seconds: int) -> None:
    command = [
        "go",
        "test",
        "-run",
        "^$",
        "-fuzz",
        f"^{target}$",
        "-fuzztime",
        f"{seconds}s",
        "-fuzzminimizetime",
        "10x",
    ]
    run = subprocess.run([*command, f"./{folder}"], cwd=TOP, capture_output=True, text=True, check=False)
    if "Failing input written" in run.stdout:
        print(run.stdout)
        sys.exit(f"{folder} {target} found something")


def with_corpus(tree: Path, folder: str, targets: list[str]) -> None:
    """Puts what the fuzzer has kept beside the seeds."""
    cache = Path(subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip())
    for target in targets:
        kept = cache / "fuzz" / (MODULE + folder).rstrip("/.") / target
        if kept.is_dir():
            shutil.copytree(kept, tree / folder / "testdata/fuzz" / target, dirs_exist_ok=True)


FUNCTION = re.compile(r"^func (?:\([^)]*?\*?(\w+)(?:\[[^\]]*\])?\) )?(\w+)", re.MULTILINE)


def functions(path: Path) -> list[tuple[int, str]]:
    """The first lines of a file's functions, with their names."""
    text = path.read_text(encoding="utf-8")
    return [(text.count("\n", 0, m.start()) + 1, ".".join(filter(None, m.groups()))) for m in FUNCTION.finditer(text)]


def lines(profile: Path) -> dict[str, dict[str, tuple[int, int]]]:
    """Of each function of each file how many lines have code, and how many of these ran."""
    code: dict[str, set[int]] = defaultdict(set)
    ran: dict[str, set[int]] = defaultdict(set)
    for line in profile.read_text(encoding="utf-8").splitlines():
        if match := BLOCK.match(line):
            name, first, last, count = match[1].removeprefix(MODULE), int(match[2]), int(match[3]), int(match[4])
            code[name].update(range(first, last + 1))
            if count:
                ran[name].update(range(first, last + 1))
    out: dict[str, dict[str, tuple[int, int]]] = {}
    for name, have in sorted(code.items()):
        starts = functions(TOP / name)
        out[name] = {}
        for (first, function), (end, _) in zip(starts, [*starts[1:], (1 << 30, "")]):
            inside = {n for n in have if first <= n < end}
            out[name][function] = len(inside), len(inside & ran[name])
    return out


def parsed(folder: str, fuzzed: dict[str, list[str]]) -> list[str]:
    """The folder and those below it whose code only its targets reach: they have none of their own."""
    below = {
        str(path.parent.relative_to(TOP))
        for path in (TOP / folder).glob("*/*.go")
        if not path.name.endswith("_test.go") and "testdata" not in path.parts
    }
    return [folder, *sorted(below - fuzzed.keys())] if folder != "." else [folder]


def measure(tree: Path, folder: str, parts: list[str]) -> dict[str, dict[str, tuple[int, int]]]:
    with tempfile.TemporaryDirectory() as here:
        profile = Path(here) / "cover.out"
        command = [
            "go",
            "test",
            "-vet=off",
            "-run",
            "^Fuzz",
            "-timeout",
            "20m",
            "-coverpkg",
            ",".join(f"./{part}" for part in parts),
            "-coverprofile",
            str(profile),
            f"./{folder}",
        ]
        run = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
        if run.returncode:
            print(run.stdout + run.stderr)
            sys.exit(f"the corpus of {folder} fails")
        return lines(profile)


def percent(have: list[tuple[int, int]]) -> float:
    return 100 * sum(ran for _, ran in have) / max(sum(code for code, _ in have), 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=0)
    parser.add_argument("package", nargs="*")
    arguments = parser.parse_args()
    below = []
    with tempfile.TemporaryDirectory(prefix="fuzz-coverage") as here:
        tree = Path(here)
        copy(tree)
        fuzzed = packages()
        for folder, targets in fuzzed.items():
            if arguments.package and folder not in arguments.package:
                continue
            for target in targets:
                if arguments.seconds:
                    fuzz(folder, target, arguments.seconds)
            with_corpus(tree, folder, targets)
            files = measure(tree, folder, parsed(folder, fuzzed))
            entered = {name: [have for have in parts.values() if have[1]] for name, parts in files.items()}
            share = percent([have for parts in entered.values() for have in parts])
            print(f"{share:5.1f} %  {folder}: {' '.join(targets)}")
            for name, parts in files.items():
                if entered[name]:
                    print(f"    {percent(entered[name]):5.1f} %  {os.path.basename(name)}")
                missed = [function for function, (code, ran) in parts.items() if code and not ran]
                if missed:
                    print(f"             not entered in {os.path.basename(name)}: {', '.join(missed)}", flush=True)
            if share < AIM:
                below.append(f"{folder} ({share:.1f} %)")
    print(f"below {AIM} %: {', '.join(below) if below else 'none'}")


if __name__ == "__main__":
    main()

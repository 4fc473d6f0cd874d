"""Runs tests, and says at the end which were skipped and why.

    skips.py go test ./...     runs it; prints what `go test` prints, and notes the skips
    skips.py report            prints the skips that were noted, by reason, and forgets them

Skips are noted in build/skips.jsonl; the Python tests' conftest.py notes theirs in the same way. Every skip must be in
internal/testdata/skips.txt. Where CI is `true`, or STOKER_CI is set, report ends with 1 if one is not. With
STOKER_CI=root, as .ci/run sets it for root, it also ends with 1 if one is in that list's section of what CI has.
"""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
NOTED = TOP / "build" / "skips.jsonl"
DECLARED = TOP / "internal" / "testdata" / "skips.txt"
CI_HAS = "# What CI has"  # begins the section of skips that are refused where STOKER_CI is root


def note(file: str, test: str, reason: str) -> None:
    """One skip: the test's file, without folders."""
    NOTED.parent.mkdir(exist_ok=True)
    with open(NOTED, "a") as noted:
        noted.write(json.dumps({"file": file, "test": test, "reason": reason}) + "\n")


def run(command: list[str]) -> int:
    """Runs `go test ...` with -json, and prints what it prints without: package lines, and failures."""
    NOTED.parent.mkdir(exist_ok=True)
    NOTED.touch()  # tests ran, even if none is skipped
    with subprocess.Popen(
        [*command[:2], "-json", *command[2:]], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        lines: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        for line in process.stdout:
            if not line.startswith("{"):
                print(line, end="", flush=True)
                continue
            event = json.loads(line)
            package, test, action = (
                event.get("Package", ""),
                event.get("Test", ""),
                event["Action"],
            )
            key = package, test
            if action in ("output", "build-output"):
                output = event["Output"]
                if action == "build-output" or (
                    not test and output.strip() not in ("PASS", "FAIL")
                ):
                    print(output, end="", flush=True)
                elif test:
                    lines[key].append(output)
            elif action == "skip" and test:
                skipped = re.search(
                    r"(\w+\.go):\d+: (.*)", "".join(lines.pop(key, [])), re.DOTALL
                )
                file, reason = skipped.groups() if skipped else ("", "")
                note(file, test, reason.split("\n--- SKIP")[0].strip())
            elif action == "fail" and test:
                print("".join(lines.pop(key, [])), end="", flush=True)
            elif action == "pass":
                lines.pop(key, None)
        return process.wait()


def declared() -> list[tuple[str, re.Pattern[str] | None, bool]]:
    """The list: a file, its reason as a pattern (None: any), and whether it waits for what CI has."""
    found = []
    refused = False
    before = ""
    for line in DECLARED.read_text().splitlines():
        if line.startswith("#"):
            if not before.startswith("#"):  # the first line of a comment says which section begins
                refused = line.startswith(CI_HAS)
            before = line
            continue
        before = line
        file, _, call = line.partition(": ")
        literal = re.search(r'"((?:[^"\\]|\\.)*)"', call)
        pattern = None
        if literal:
            text = re.sub(r"%[a-z]|\{[^}]*\}", "\0", literal[1].replace('\\"', '"'))
            pattern = re.compile(re.escape(text).replace("\0", ".*"), re.DOTALL)
        if file:
            found.append((file, pattern, refused))
    return found


def report() -> int:
    if not NOTED.exists():
        print(
            "no test has run since the last report, or none was skipped: run `make test`, or `make go-test py-test skips`"
        )
        return 0
    noted = [json.loads(line) for line in NOTED.read_text().splitlines()]
    NOTED.unlink(missing_ok=True)
    known = declared()
    root = os.environ.get("STOKER_CI") == "root"
    by_reason: dict[str, list[str]] = collections.defaultdict(list)
    wrong = []
    for skip in noted:
        matches = [
            r
            for file, p, r in known
            if file == skip["file"] and (p is None or p.search(skip["reason"]))
        ]
        if not matches:
            wrong.append(
                f"{skip['file']}: {skip['test']} was skipped, which skips.txt does not declare: {skip['reason']}"
            )
        elif root and all(matches):
            wrong.append(
                f"{skip['file']}: {skip['test']} was skipped, and CI has what it needs: {skip['reason']}"
            )
        # Without what differs from test to test: a path, and what follows it.
        reason = re.split(r":? \(?/", skip["reason"].split("\n")[0])[0]
        by_reason[reason or "no reason given"].append(skip["test"])
    print(f"{len(noted)} tests were skipped" + (", by reason:" if noted else ""))
    for reason, tests in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        print(f"{len(tests):5}  {reason[:110]}")
    strict = os.environ.get("CI") == "true" or bool(os.environ.get("STOKER_CI"))
    if strict and wrong:
        print("\n".join(wrong))
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["report"]:
        sys.exit(report())
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(run(sys.argv[1:]))

"""What tools/skips.py reports and refuses, run on a list of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TOP
from forms import param

LIST = """# What machines differ in.
a_test.go: Skip("no cat here")
# What CI has: these need root. Where .ci/run runs as
# root, they are refused.
b_test.go: Skipf("FUSE cannot be used here: %v", err)
"""
CAT = {"file": "a_test.go", "test": "TestA", "reason": "no cat here"}
FUSE = {"file": "b_test.go", "test": "TestB", "reason": "FUSE cannot be used here: no /dev/fuse"}
OTHER = {"file": "c_test.go", "test": "TestC", "reason": "too tired"}


def report(folder: Path, *skips: dict[str, str], **env: str) -> subprocess.CompletedProcess[str]:
    for name in ("tools", "build", "internal/testdata"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(TOP / "tools/skips.py", folder / "tools")
    (folder / "internal/testdata/skips.txt").write_text(LIST)
    (folder / "build/skips.jsonl").write_text("".join(json.dumps(skip) + "\n" for skip in skips))
    return again(folder, **env)


def again(folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("CI", "STOKER_CI")}
    command = [sys.executable, str(folder / "tools/skips.py"), "report"]
    return subprocess.run(command, env={**clean, **env}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("env", "undeclared", "ci_has"),
    [
        ({}, 0, 0),
        param(({"CI": "true"}, 1, 0)),
        ({"STOKER_CI": "user"}, 1, 0),
        ({"STOKER_CI": "root"}, 1, 1),
        param(({"CI": "true", "STOKER_CI": "root"}, 1, 1)),
    ],
)
def test_what_is_refused(env: dict[str, str], undeclared: int, ci_has: int, tmp_path: Path) -> None:
    """Undeclared skips in every CI; those of root's tests only where .ci/run runs as root."""
    done = report(tmp_path, CAT, OTHER, **env)
    assert done.returncode == undeclared, done.stdout
    assert "2 tests were skipped, by reason:" in done.stdout
    assert ("c_test.go: TestC was skipped, which skips.txt does not declare" in done.stdout) == bool(undeclared)
    done = report(tmp_path, CAT, FUSE, **env)
    assert done.returncode == ci_has, done.stdout
    assert ("b_test.go: TestB was skipped, and CI has what it needs" in done.stdout) == bool(ci_has)


def test_no_test_has_run(tmp_path: Path) -> None:
    """Nothing noted is not the same as tests of which none was skipped."""
    assert "0 tests were skipped" in report(tmp_path).stdout
    assert "no test has run since the last report" in again(tmp_path).stdout


def test_ci_run_says_what_is_refused(tmp_path: Path) -> None:
    """.ci/run does not rely on whoever starts it."""
    (tmp_path / "make").write_text('#!/bin/sh\necho "$STOKER_CI"\n')
    (tmp_path / "make").chmod(0o755)
    for user, said in (("0", "root"), ("1000", "user")):
        (tmp_path / "id").write_text(f"#!/bin/sh\necho {user}\n")
        (tmp_path / "id").chmod(0o755)
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(["bash", str(TOP / ".ci/run")], env=env, capture_output=True, text=True, check=True)
        assert set(done.stdout.split()) == {said}

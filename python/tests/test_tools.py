"""The scripts that `make test` and `make fuzz` are made of say so when they did nothing; and the packages of the bundle
for a GPU are used where they are missing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from forms import long

TOP = Path(__file__).resolve().parents[2]

RAN = "fuzz: elapsed: 0s, gathering baseline coverage: 0/3 completed\nfuzz: elapsed: 9s, execs: 512 (57/sec)\nPASS"
SEEDS = "fuzz: elapsed: 0s, gathering baseline coverage: 0/3 completed\nfuzz: elapsed: 9s, gathering baseline: 2/3"
NONE = "fuzz: elapsed: 10s, execs: 0 (0/sec), new interesting: 0 (total: 3)\nPASS"
GONE = "testing: warning: no fuzz tests to fuzz\nPASS"
FOUND = "fuzz: elapsed: 2s, execs: 40 (20/sec)\n--- FAIL: FuzzThis\n    Failing input written to testdata/fuzz/x\nFAIL"


def fuzz(here: Path, said: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs fuzz.sh in a tree with one fuzz target and a go that says this."""
    (here / "tools").mkdir()
    (here / "bin").mkdir()
    shutil.copy(TOP / "tools/fuzz.sh", here / "tools")
    (here / "said").write_text(said + "\n")
    (here / "bin/go").write_text(f'#!/bin/sh\ncat "{here}/said"\nexit {status}\n')
    (here / "bin/go").chmod(0o755)
    env = os.environ | {"PATH": f"{here}/bin:{os.environ['PATH']}"}
    script = ["bash", str(here / "tools/fuzz.sh"), "10"]
    return subprocess.run(script, env=env, capture_output=True, text=True, timeout=60)


def target(here: Path) -> Path:
    (here / "a_test.go").write_text("package a\n\nfunc FuzzThis(f *testing.F) {}\n")
    return here


@pytest.mark.parametrize("said", [SEEDS, NONE, GONE, ""])
def test_a_fuzz_target_that_ran_no_input_fails(tmp_path: Path, said: str) -> None:
    run = fuzz(target(tmp_path), said)
    assert run.returncode != 0
    assert "FuzzThis ran no input in 60 s" in run.stdout


def test_a_fuzz_target_that_ran_passes_and_says_how_often(tmp_path: Path) -> None:
    run = fuzz(target(tmp_path), RAN)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "FuzzThis execs: 512" in run.stdout


def test_a_finding_fails_and_is_shown(tmp_path: Path) -> None:
    run = fuzz(target(tmp_path), FOUND, status=1)
    assert run.returncode != 0
    assert "Failing input written to testdata/fuzz/x" in run.stdout


def test_the_deadline_of_gos_fuzzer_is_not_a_finding(tmp_path: Path) -> None:
    run = fuzz(target(tmp_path), RAN + "\n    context deadline exceeded\nFAIL", status=1)
    assert run.returncode == 0, run.stdout + run.stderr


def test_no_fuzz_target_at_all_fails(tmp_path: Path) -> None:
    assert fuzz(tmp_path, RAN).returncode != 0


def parts(here: Path, *names: str) -> subprocess.CompletedProcess[str]:
    rules = "good other:\n\t@echo ran $@\nbad:\n\t@false\nburn:\n\t@python3 burn.py\n"
    (here / "Makefile").write_text(".PHONY: good other bad burn\n" + rules)
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    script = ["bash", str(TOP / "tools/parts.sh"), "all of it", *names]
    return subprocess.run(script, cwd=here, env=env, capture_output=True, text=True, timeout=60)


def test_parts_are_run_and_timed(tmp_path: Path) -> None:
    run = parts(tmp_path, "good", "good+other")
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("ran good") == 2
    table = [line.split(maxsplit=2) for line in run.stdout.splitlines() if ":" in line]
    assert [what for _, _, what in table] == ["good", "good+other", "all of it, set-up included"]


@long
def test_parts_show_the_time_of_processors(tmp_path: Path) -> None:
    (tmp_path / "burn.py").write_text("import time\nwhile time.process_time() < 2.5: pass\n")
    run = parts(tmp_path, "burn", "good")
    assert run.returncode == 0, run.stderr
    table = [line.split(maxsplit=2) for line in run.stdout.splitlines() if ":" in line]
    burnt, idle, whole = [int(used[-2:]) for _, used, _ in table]
    assert burnt >= 2
    assert idle < burnt
    assert whole >= burnt


def test_a_part_that_fails_ends_the_run_with_the_table(tmp_path: Path) -> None:
    run = parts(tmp_path, "good", "bad", "other")
    assert run.returncode != 0
    assert "all of it: bad failed" in run.stdout
    assert "ran other" not in run.stdout
    assert "bad\n" in run.stdout


def test_packages_of_the_bundle(tmp_path: Path) -> None:
    """Those that are missing and are for this Python; without what only video needs."""
    script = str(TOP / "tools/gpu_wheels.py")
    wheel = tmp_path / "x.whl"
    here = f"{sys.version_info[0]}.{sys.version_info[1]}-{platform.machine()}"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in ("missing_one/__init__.py", "missing_one/libtorchcodec_core8.so", "missing_one/Frames.cpp"):
            file.writestr(name, "")
    pack = (
        "import sys; sys.path[0] = {!r}; import gpu_wheels, pathlib; gpu_wheels.pack(*map(pathlib.Path, sys.argv[1:]))"
    )
    (tmp_path / "wheels").mkdir()
    for name in (f"missing_one-1.0-{here}", f"missing_two-1.0-2.7-{platform.machine()}", f"json-1.0-{here}"):
        out = str(tmp_path / "wheels" / f"{name}.tar.xz")
        subprocess.run([sys.executable, "-c", pack.format(str(TOP / "tools")), str(wheel), out], check=True)
    command = [sys.executable, script, "use", str(tmp_path / "wheels")]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(tmp_path / "wheels" / "missing_one")
        assert f"missing_two is missing, and missing_two-1.0-2.7-{platform.machine()}.tar.xz is not for" in done.stderr
    found = [path.name for path in (tmp_path / "wheels" / "missing_one").rglob("*") if path.is_file()]
    assert found == ["__init__.py"]
    assert subprocess.run([sys.executable, script], capture_output=True, check=False).returncode == 2

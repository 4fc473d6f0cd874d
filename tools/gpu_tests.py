"""Runs the tests of a GPU, and writes to a file what became of each, after each test: also of a run that is cut off.

    gpu_tests.py OUT.json [ARGUMENT OF PYTEST ...]

It needs pytest, torch and an engine, no network and no virtual environment. Ends with pytest's status: where there is
no device, the tests fail.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from bench import covers


def commit() -> str:
    """The commit of these sources: of git, or of the bundle that they came in."""
    told = TOP / "commit"
    if told.exists():
        return told.read_text(encoding="utf-8").strip()
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40"], cwd=TOP, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def processor() -> str:
    """The model of the processor."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine() -> dict[str, Any]:
    """What the tests run on."""
    found: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "cpu": processor(),
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "sources": covers.digests(TOP),
    }
    try:
        query = "name,driver_version,pcie.link.gen.max,pcie.link.width.max"
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        found["nvidia_smi"] = done.stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        found["nvidia_smi"] = str(error)
    try:
        import torch

        found |= {"torch": torch.__version__, "cuda": torch.version.cuda}
        if torch.cuda.is_available():
            found["device"] = torch.cuda.get_device_name(0)
    except Exception as error:
        found["torch"] = str(error)
    return found


class Notes:
    """A plug-in of pytest."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.found: dict[str, Any] = {
            "question": "the tests of a GPU", "machine": machine(), "status": None,
            "gates": [], "figures": {}, "doubts": [],
            "disturbed": {"most": None, "note": "not measured: tests do not depend on the time"},
            "tests": {},
        }
        self.write()

    def write(self) -> None:
        """The figures are how many passed, and the floats that tests have recorded (record_property)."""
        outcomes = [one["outcome"] for one in self.found["tests"].values()]
        told = [pair for one in self.found["tests"].values() for pair in one.get("properties", {}).items()]
        self.found["figures"] = {
            **{one: outcomes.count(one) for one in ("passed", "failed", "skipped", "not run")},
            **{name: round(value, 4) for name, value in told if type(value) is float},
        }
        self.out.write_text(json.dumps(self.found, indent=1) + "\n")

    def pytest_deselected(self, items: Any) -> None:
        """Lists what needs Triton, where that cannot run."""
        from stoker import _fused

        if why := _fused.lacking():
            nodes = [item.nodeid for item in items if item.get_closest_marker("triton") is not None]
            self.found["tests"] |= {node: {"outcome": "not run", "text": why} for node in nodes}
            self.write()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.passed:
            return
        text = "" if report.passed else str(report.longrepr)[-4000:]
        was = self.found["tests"].get(report.nodeid, {})
        outcome = was.get("outcome", report.outcome) if report.passed else report.outcome
        self.found["tests"][report.nodeid] = {
            "outcome": outcome,
            "seconds": round(report.duration, 3),
            **({"properties": dict(report.user_properties)} if report.user_properties else {}),
            **({"text": text} if text else {}),
            **({"printed": report.capstdout[-2000:]} if report.capstdout else {}),
        }
        self.write()


def main(args: list[str]) -> int:
    import pytest

    out = Path(args[0])
    out.parent.mkdir(parents=True, exist_ok=True)
    os.environ["STOKER_GPU"] = "1"
    notes = Notes(out)
    tests = TOP / "python" / "tests" / "gpu"
    given = ["-c", str(TOP / "python" / "pyproject.toml"), "-p", "no:cacheprovider", "-v", str(tests), *args[1:]]
    notes.found["status"] = status = int(pytest.main(given, plugins=[notes]))
    notes.write()
    return status


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))

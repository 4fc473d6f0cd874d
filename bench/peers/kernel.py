"""The bound: stoker's kernel alone on the same files, no loader around it (bench/kernel, a Go program built here).

It reads a file, draws a box by the same rule, runs the fused job into a ready buffer, and starts again; threads as
many as lanes. It runs under the Python of the driver and turns into the program, which writes the same marks.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench import rig

ROOT = Path(__file__).resolve().parents[2]


def skip(reason: str) -> None:
    print(json.dumps({"event": "skip", "reason": reason}), flush=True)
    raise SystemExit(0)


def main() -> None:
    go = shutil.which("go")
    if go is None:
        skip("no Go compiler: cannot build the kernel alone")
    program = ROOT / "build" / "bench-kernel"
    built = subprocess.run(
        [go, "build", "-tags", rig.go_tags(), "-o", program, "./bench/kernel"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        lines = [line for line in built.stderr.splitlines() if line and not line.startswith("#")]
        skip("bench/kernel does not build: " + (lines or ["?"])[0])
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    main()

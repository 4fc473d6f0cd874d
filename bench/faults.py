"""Runs the campaign of faults (harness/faults) and writes bench/results/faults.json: for each fault how often it was
injected and met, and what came of it. ``make faults`` calls this."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bench import rig

TOP = Path(__file__).parents[1]
RESULT = TOP / "bench" / "results" / "faults.json"


def main() -> None:
    report = TOP / "build" / "faults.json"
    report.unlink(missing_ok=True)
    machine = rig.machine(range(os.cpu_count() or 1))
    command = ["go", "test", "-count=1", "-timeout", "30m", "-v", "-run", "^TestCampaign$", "./faults"]
    ended = subprocess.run(command, cwd=TOP / "harness", env={**os.environ, "STOKER_FAULTS": str(report)}).returncode
    if ended != 0 or not report.exists():
        sys.exit(f"the campaign failed with status {ended}; nothing was written")
    found = json.loads(report.read_text())
    counts = found["all"]
    if counts["wrong"] or counts["met"] < 600:
        sys.exit(f"the campaign asks for 600 faults that are met, and none with a wrong result: {counts}")
    result = {
        "question": "what becomes of a stream when the network or a store fails",
        "machine": machine,
        "disturbed": {"most": None, "note": "not measured: the counts do not depend on the time"},
        "doubts": [],
        "gates": [],
        "figures": {name.replace("_", " "): value for name, value in counts.items()},
        **found,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{RESULT.relative_to(TOP)}: {counts}")


if __name__ == "__main__":
    main()

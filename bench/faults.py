"""Runs the campaign of faults (harness/faults) and writes bench/results/faults.json: for each fault how often it was
injected and met, and what came of it. ``make faults`` calls this; all servers of tools/servers.sh must be there."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from bench import rig

TOP = Path(__file__).parents[1]
RESULT = TOP / "bench" / "results" / "faults.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULT)
    out = parser.parse_args().out
    report = TOP / "build" / "faults-report.json"
    report.unlink(missing_ok=True)
    machine = rig.machine(range(os.cpu_count() or 1))
    command = ["go", "test", "-count=1", "-timeout", "60m", "-v", "-run", "^TestCampaign$", "./faults"]
    env = {**os.environ, "STOKER_FAULTS": str(report), "STOKER_SERVERS": "all"}
    ended = subprocess.run(command, cwd=TOP / "harness", env=env).returncode
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
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{out}: {counts}")


if __name__ == "__main__":
    main()

"""Scripts under the doctor's hook, for the tests of what it sees."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOOK = Path(__file__).resolve().parents[2] / "internal" / "tool" / "doctor" / "hook"
LONG = 120  # s in which a script ends on any machine

Line = dict[str, Any]


@dataclass
class Run:
    """A script under the hook: what it printed, and the last line of each of its processes."""

    code: int
    out: str
    err: str
    lines: list[Line] = field(default_factory=list)

    def main(self) -> Line:
        (line,) = [x for x in self.lines if x["role"] == "main"]
        return line

    def loader(self, name: str) -> Line:
        """The loader whose dataset is of the class NAME."""
        found = [x for line in self.lines for x in line["loaders"] if x["dataset"].endswith("." + name)]
        assert len(found) == 1, f"{len(found)} loaders of {name}"
        return dict(found[0])

    def workers(self, loader: Line) -> list[Line]:
        found = [x["worker"] for x in self.lines if x["role"] == "worker" and x["worker"]["loader"] == loader["id"]]
        return sorted(found, key=lambda x: (x["index"], x["started"]))


def crowded(evidence: dict[str, Any]) -> bool:
    """Whether the doctor itself saw other processes on the cores: what then limits a loop may be another thing."""
    machine = evidence["machine"]
    cores = machine["cores"]["value"]
    online = machine.get("cores_online", machine["cores"])["value"]  # not known in a container without /sys
    others = evidence["run"].get("others_cores", {"value": 0})["value"]
    return bool(others - (online - cores) >= cores / 4)


def read(out: Path) -> list[Line]:
    """The last whole line of each file; all lines before it must be whole, too."""
    last = []
    for file in out.glob("*.jsonl"):
        whole, _, _ = file.read_text().rpartition("\n")
        lines = [json.loads(x) for x in whole.splitlines()]
        assert all(x["v"] == 1 and x["pid"] == int(file.stem) for x in lines)
        assert [x["t"] for x in lines] == sorted(x["t"] for x in lines)
        last += lines[-1:]
    return last


class Scripts:
    """Writes scripts into a folder of their own and runs them, with the hook or without."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.processes: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(text))
        return path

    def start(self, text: str, watch: bool = True, **env: str) -> subprocess.Popen[str]:
        self.count += 1
        path = self.write("train.py", text)
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_DOCTOR", "PYTHON"))}
        environ["CUDA_VISIBLE_DEVICES"] = ""
        environ["PYTHONWARNINGS"] = "ignore:Sharing of workers"
        if watch:
            self.out = self.folder / f"out{self.count}"
            self.out.mkdir()
            environ |= {"PYTHONPATH": str(HOOK), "STOKER_DOCTOR_DIR": str(self.out)}
        environ["PYTHONDONTWRITEBYTECODE"] = "1"
        process = subprocess.Popen(
            [sys.executable, str(path)],
            env=environ | env,
            cwd=self.folder,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def end(self, process: subprocess.Popen[str], out: Path | None = None) -> Run:
        text, err = process.communicate(timeout=LONG)
        return Run(process.returncode, text, err, read(out) if out is not None and out.is_dir() else [])

    def run(self, text: str, **env: str) -> Run:
        """Runs under the hook; the hook itself must have made no mistake."""
        process = self.start(text, True, **env)
        run = self.end(process, self.out)
        assert [x["trouble"] for x in run.lines] == [[]] * len(run.lines)
        return run

    def close(self) -> None:
        """Ends what is still running."""
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def both(self, text: str) -> tuple[Run, Run]:
        """With the hook and without it, at the same time."""
        watched = self.start(text)
        out = self.out
        plain = self.start(text, watch=False)
        return self.end(watched, out), self.end(plain)

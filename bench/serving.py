"""One process that is measured, with those that it starts, as its driver sees it: a line of JSON asks, one answers.

It works while it is asked and sleeps meanwhile, so that many take turns on one processor. Lines of its output that are
not JSON objects are passed over.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import meter, rig


def build(kind: str) -> Path:
    """The Go program of a comparison, bench/KIND/native: what answers for stoker, and for other native code."""
    program = rig.ROOT / "build" / f"bench-{kind}"
    go = shutil.which("go")
    if go is None:
        raise SystemExit("no Go compiler: stoker cannot be measured")
    command = [go, "build", "-tags", rig.go_tags(), "-o", str(program), f"./bench/{kind}/native"]
    subprocess.run(command, cwd=rig.ROOT, check=True)
    return program


class Server:
    """A process in a Scope of its own. versions: what its first line said. problem: why it has ended for the driver."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problem = ""
        self.versions: dict[str, str] = {}
        self._process: Any = None
        self._scope: Any = None
        self._errors: Any = None

    def open(
        self, stack: contextlib.ExitStack, command: Sequence[str | Path], cpus: Sequence[int], venv: str = ""
    ) -> dict[str, Any]:
        """Starts it, under the Python of venv if one is named; the answer is its first line."""
        if venv and not rig.python_of(venv).exists():
            self.problem = f"no {venv}; bench/setup.py makes it"
            return {}
        whole = [rig.python_of(venv), *command] if venv else command
        self._errors = stack.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115
        self._scope = stack.enter_context(meter.Scope(self.name.replace("/", "-")))
        self._process = rig.start(whole, cpus, self._scope, self._errors)
        stack.callback(self._end)
        first = self.hear()
        self.versions = first.get("versions", {})
        return first

    def pids(self) -> list[int]:
        return self._scope.pids() if self._scope is not None else []

    def say(self, **request: Any) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next answer. An answer with "error", or an end, is this server's problem."""
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):
            line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            said = "".join(self._errors.readlines()[-5:]).strip()
            line = json.dumps({"error": f"ended with status {self._process.returncode}: {said}"})
        answer: dict[str, Any] = json.loads(line)
        self.problem = self.problem or answer.get("error", "")
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        self.say(**request)
        return self.hear()

    def _end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

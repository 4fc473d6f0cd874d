"""Training scripts on several processes under gloo: undisturbed, killed in the middle of an epoch, and continued.

    whole = run(script, *args, out=tmp_path / "whole")
    cut = run(script, *args, out=tmp_path / "cut", kill_at=7)
    rest = run(script, *args, "--resume", out=tmp_path / "cut")
    continues(whole, cut, rest)

A script gets ``--out FOLDER`` for its checkpoints. It is not changed: watched.py notes what its loaders give it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import stoker

WATCHED = Path(__file__).with_name("watched.py")
PATIENCE = 300  # seconds until a run that hangs is given up


@dataclass
class Step:
    """A batch that a script received: the ids of its samples, without padding, and a digest of its values if the run
    was asked for them."""

    epoch: int
    step: int
    ids: list[int]
    values: str = ""


@dataclass
class Seen:
    """What a loader of one rank gave, the states taken of it with the receipts up to there, and its last receipt."""

    steps: list[Step] = field(default_factory=list)
    states: list[tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    receipt: dict[str, Any] | None = None

    @property
    def places(self) -> list[tuple[int, int]]:
        """Epochs and steps."""
        return [(one.epoch, one.step) for one in self.steps]


@dataclass
class Run:
    """What came of a script: ``ranks[rank][loader]``; loaders are numbered as each gave its first batch or state."""

    ranks: list[list[Seen]]
    text: str  # what the ranks wrote to stdout and stderr

    def epoch(self, epoch: int, loader: int = 0) -> list[int]:
        """The samples of an epoch, of all ranks, sorted."""
        return sorted(i for rank in self.ranks for one in rank[loader].steps if one.epoch == epoch for i in one.ids)


def run(
    script: Path,
    *args: Any,
    out: Path,
    world: int = 2,
    kill_at: int = 0,
    kill_rank: int | None = None,
    loader: int = 0,
    torchrun: bool = False,
    values: bool = False,
    cuda: bool = False,
) -> Run:
    """Runs a script on ``world`` processes, each with a line of what its loaders did. With kill_at, every rank is
    killed when it has received so many batches of that loader; with kill_rank too, only that rank and its engine are,
    and the others have to end by themselves, as torchrun sees to. Other ends than 0 are an error. Without cuda, the
    processes see no GPU."""
    out.mkdir(parents=True, exist_ok=True)
    record = out / f"watched-{len([*out.glob('watched-*.0')])}"
    command = [str(WATCHED), str(script), "--out", str(out), *map(str, args)]
    paths = [str(Path(stoker.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    usual = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    usual |= {} if cuda else {"CUDA_VISIBLE_DEVICES": ""}
    watch = {"STOKER_WATCHED": str(record), "STOKER_WATCHED_STOP": str(kill_at), "STOKER_WATCHED_LOADER": str(loader)}
    env = {**os.environ, **usual, **watch, "STOKER_WATCHED_VALUES": "1" if values else ""}
    said = out / f"{record.name}.txt"
    with open(said, "wb") as text:
        if torchrun:
            launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
            begun = [_begin([*launch, *command], env, text)]
        else:
            begun = [
                _begin(command, {**env, **_rank(rank, world, port)}, text)
                for port in [_port()]
                for rank in range(world)
            ]
        try:
            ended = _wait(begun, record, world, kill_at)
            if ended and kill_rank is not None:
                _kill_rank(Path(f"{record}.{kill_rank}"))
                for process in begun:
                    assert process.wait(PATIENCE) != 0, "it did not notice that a rank was killed"
        finally:
            for process in begun:
                _kill(process)
    found = Run([_read(Path(f"{record}.{rank}")) for rank in range(world)], said.read_text(errors="replace"))
    if not ended:
        raise AssertionError(f"{script.name} did not get to its end:\n{found.text[-6000:]}")
    return found


def continues(whole: Run, cut: Run, rest: Run, loader: int = 0) -> dict[str, int]:
    """The killed run and its continuation gave what the undisturbed run gave: none twice, none left out, on every rank.
    Returns at which step of which epoch it continued."""
    at = {"epoch": -1, "step": -1}
    for expected, before, after in zip(whole.ranks, cut.ranks, rest.ranks, strict=True):
        first = after[loader].steps[0]
        at = {"epoch": first.epoch, "step": first.step}
        places = expected[loader].places
        assert (first.epoch, first.step) in places, f"it continued at {at}, where the undisturbed run never was"
        begin = places.index((first.epoch, first.step))
        assert 0 < begin <= len(before[loader].steps), (
            f"it continued at batch {begin}, killed at {len(before[loader].steps)}"
        )
        assert before[loader].steps == expected[loader].steps[: len(before[loader].steps)], "before the kill"
        assert after[loader].steps == expected[loader].steps[begin:], "after the kill"
    return at


def receipts(cut: Run, rest: Run, loader: int = 0) -> list[dict[str, Any]]:
    """The receipts of both pieces, for stoker.verify_receipts: of the killed one up to the state at which the other
    began."""
    found = []
    for before, after in zip(cut.ranks, rest.ranks, strict=True):
        last = after[loader].receipt
        assert last is not None, "the second run ended without a receipt"
        begin = last["parts"][0]["epoch"], last["parts"][0]["from"]
        saved = [kept for state, kept in before[loader].states if (state["epoch"], state["position"]) == begin]
        assert saved, f"the killed run took no state at epoch and position {begin}"
        found += [saved[0], last]
    return found


def _rank(rank: int, world: int, port: int) -> dict[str, str]:
    """What torchrun tells a rank; several trainers go by TORCHELASTIC_RUN_ID."""
    place = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "ROLE_RANK": rank, "TORCHELASTIC_RESTART_COUNT": 0}
    size = {"WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_WORLD_SIZE": 1, "ROLE_WORLD_SIZE": world}
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "stoker"}
    return {key: str(value) for key, value in {**place, **size, **where}.items()}


def _port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _begin(command: list[str], env: dict[str, str], text: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *command], env=env, stdout=text, stderr=text, start_new_session=True)


def _wait(begun: list[subprocess.Popen[bytes]], record: Path, world: int, kill_at: int) -> bool:
    """Until all have ended, or wait at the batch where they are to be killed; False if one failed or hangs."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        codes = [process.poll() for process in begun]
        if any(codes):
            return False
        if kill_at and all(_stopped(Path(f"{record}.{rank}")) for rank in range(world)):
            return True
        if all(code == 0 for code in codes):
            return not kill_at
        time.sleep(0.05)
    return False


def _stopped(path: Path) -> bool:
    return path.exists() and b'"stopped"' in path.read_bytes()


def _kill_rank(path: Path) -> None:
    """SIGKILL to a rank that is stopped, and to its engine."""
    pid = next(told["stopped"] for line in path.read_text().splitlines() if "stopped" in (told := json.loads(line)))
    engines = [child for child in _children(pid) if b"engine" in Path(f"/proc/{child}/cmdline").read_bytes()]
    assert engines, "the rank has no engine"
    for one in (*engines, pid):
        os.kill(one, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found.append(int(entry.name))
    return found


def _kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process and to its children, which may have sessions of their own."""
    for child in _children(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(60)


def _read(path: Path) -> list[Seen]:
    found: list[Seen] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        told = json.loads(line)
        if "stopped" in told:
            continue
        while len(found) <= told["loader"]:
            found.append(Seen())
        seen = found[told["loader"]]
        if "ids" in told:
            seen.steps.append(Step(told["epoch"], told["step"], told["ids"], told["values"]))
        elif "state" in told:
            seen.states.append((told["state"], told["receipt"]))
        else:
            seen.receipt = told["receipt"]
    return found

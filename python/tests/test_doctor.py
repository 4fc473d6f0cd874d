"""`stoker doctor -- python train.py` on real scripts with torch's DataLoader: output, exit status, verdict."""

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from forms import long, param
from hooked import crowded
from needs import needs

from stoker import _process

needs("torch")

HEAD = """
import os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass

class Samples(Dataset):
    def __init__(self, work, length=100000):
        self.work, self.length = work, length
    def __len__(self):
        return self.length
    def __getitem__(self, i):
        self.work()
        return torch.zeros(4), i

def nap():
    time.sleep(0.004)

def loop(loader, step, seconds=60):
    end = time.monotonic() + seconds
    for batch in loader:
        time.sleep(step)
        if time.monotonic() > end:
            break

"""


Write = Callable[..., Path]


@pytest.fixture
def script(tmp_path: Path) -> Write:
    def write(text: str, head: str = HEAD) -> Path:
        path = tmp_path / "train.py"
        path.write_text(head + textwrap.dedent(text))
        return path

    return write


def two_cores() -> None:
    """What limits a loop depends on the cores that there are: verdicts are those of a small machine."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def run(*arguments: str, env: "dict[str, str] | None" = None) -> "subprocess.CompletedProcess[str]":
    command = [str(_process.find()), "doctor", *arguments]
    whole = {**os.environ, **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=whole, preexec_fn=two_cores)


def doctor(
    path: Path, *flags: str, python: Sequence[str] = (), env: "dict[str, str] | None" = None
) -> "subprocess.CompletedProcess[str]":
    return run(*flags, "--", sys.executable, *python, str(path), env=env)


def judged(path: Path, *flags: str) -> "tuple[Any, subprocess.CompletedProcess[str]]":
    done = doctor(path, "--json", *flags)
    return json.loads(done.stdout), done


def left(tmp_path: Path) -> "list[str]":
    return [p.name for p in tmp_path.glob("stoker-doctor-*")]


def test_too_few_workers_and_the_script_ends_by_itself(script: Write) -> None:
    path = script("""
        import stoker

        loader = DataLoader(Samples(nap), batch_size=8)
        try:
            stoker.doctor(loader)
        except stoker.ConfigError as error:
            print("already watches this process" in str(error))
        loop(loader, 0.05, 3)
        print("trained")
        sys.exit(6)
    """)
    done = doctor(path)
    assert done.returncode == 6
    assert done.stdout == "True\ntrained\n"
    assert "verdict   too few workers (train.py:" in done.stderr
    assert "num_workers=1" in done.stderr
    assert "found     no workers" in done.stderr


def test_stop_json_and_check(script: Write) -> None:
    path = script("""
        print("begins", flush=True)
        loop(DataLoader(Samples(nap), batch_size=16, num_workers=2), 0.01)
    """)
    began = time.monotonic()
    report, done = judged(path, "--stop", "--check")
    assert done.returncode == 4
    assert time.monotonic() - began < 60
    assert "begins" in done.stderr
    assert report["schema"] == 1
    assert report["verdict"]["name"] in {"too few workers", "Python code"}  # the latter where others use the cores
    assert report["verdict"]["data_bound"] is True
    assert report["verdict"]["speedup"] > 1.5
    assert report["evidence"]["run"]["ended"] == "by --stop"
    assert all(line["source"] for line in report["verdict"]["evidence"])


@long
def test_a_healthy_loop_is_left_in_peace(script: Write) -> None:
    path = script("loop(DataLoader(TensorDataset(torch.zeros(5000, 4)), batch_size=8), 0.05, 4)")
    report, done = judged(path, "--check")
    assert done.returncode == 0
    assert report["verdict"]["name"] == "not data-bound"
    assert report["findings"] == []


@long
def test_epoch_start_and_what_takes_two_epochs(script: Write) -> None:
    path = script("""
        from torch.utils.data import DistributedSampler
        data = Samples(lambda: None, 80)
        loader = DataLoader(data, batch_size=8, num_workers=2, sampler=DistributedSampler(data, 1, 0))
        for epoch in range(20):
            loop(loader, 0.001)
    """)
    report, done = judged(path)
    assert done.returncode == 0
    assert report["verdict"]["name"] == "epoch start" or crowded(report["evidence"])
    names = [f["name"] for f in report["findings"]]
    assert "workers torn down every epoch" in names
    assert "set_epoch forgotten" in names


@pytest.mark.parametrize(
    ("torch", "text", "status", "sentence"),
    [
        (False, "raise SystemExit(3)", 3, "torch was not imported"),
        param((True, "raise SystemExit(3)", 3, "No DataLoader of torch was iterated")),
        param((True, "for _ in DataLoader(TensorDataset(torch.zeros(9)), batch_size=3): pass", 0, "too few")),
        param((True, "for i, _ in enumerate(DataLoader(TensorDataset(torch.zeros(99)))): 1 / (7 - i)", 1, "too few")),
        param((True, "os.kill(os.getpid(), 9)", 137, "No DataLoader of torch was iterated")),
    ],
)
def test_scripts_that_say_little(script: Write, torch: bool, text: str, status: int, sentence: str) -> None:
    report, done = judged(script(text, head=HEAD if torch else ""))
    assert done.returncode == status
    assert report["verdict"]["name"] == "insufficient evidence"
    assert sentence in report["verdict"]["sentence"]


def test_a_hook_that_does_not_load_is_reported(script: Write) -> None:
    done = doctor(script("print('quiet')", head="import sys\n"), python=("-I",))
    assert done.returncode == 0
    assert done.stdout == "quiet\n"
    assert "No Python process loaded the hook" in done.stderr
    assert "without -I" in done.stderr


@long
def test_two_loaders(script: Write) -> None:
    path = script("""
        end = time.monotonic() + 3
        while time.monotonic() < end:
            loop(DataLoader(Samples(nap, 80), batch_size=8), 0.01)
            loop(DataLoader(TensorDataset(torch.zeros(20, 4)), batch_size=4), 0.005)
    """)
    report, done = judged(path)
    assert done.returncode == 0
    assert report["verdict"]["name"] == "Python code" or report["verdict"]["name"] == "too few workers"
    loops = report["evidence"]["loops"]
    assert len(loops) == 2
    assert loops[0]["settings"]["where"] == report["verdict"]["loader"]


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("import time\n", "time.sleep(60)"),
        param((HEAD, "loop(DataLoader(Samples(nap), batch_size=8, num_workers=2), 0.02)")),
    ],
    ids=["of nothing", "of a loop"],
)
def test_interrupted_it_still_reports_and_leaves_nothing(script: Write, tmp_path: Path, head: str, body: str) -> None:
    path = script(f"print('begins', flush=True)\n{body}", head)
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [str(_process.find()), "doctor", "--", sys.executable, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(1.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in err
    assert "verdict   " in err
    assert left(tmp_path) == []


def test_nowhere_to_write(script: Write, tmp_path: Path) -> None:
    path = script("print('done')", head="")
    nowhere = tmp_path / "none"
    done = doctor(path, env={"TMPDIR": str(nowhere), "HOME": str(nowhere)})
    assert done.returncode == 0
    assert done.stdout == "done\n"
    assert "torch was not imported" in done.stderr


@long
def test_ranks_of_torchrun(script: Write) -> None:
    path = script("""
        rank = int(os.environ["RANK"])
        loop(DataLoader(Samples(lambda: time.sleep(0.05 * rank)), batch_size=4), 0.02, 4)
    """)
    done = run("--json", "--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(path))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    if not crowded(report["evidence"]):
        assert report["verdict"]["name"] == "imbalance of ranks on this machine"
        assert report["verdict"]["rank"] == 1
    assert sorted(loop["rank"] for loop in report["evidence"]["loops"]) == [0, 1]


def test_a_script_before_a_terminal_stays_before_it() -> None:
    ours, theirs = pty.openpty()
    try:
        asks = "import sys; print([s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)])"
        command = [str(_process.find()), "doctor", "--", sys.executable, "-c", asks]
        subprocess.run(command, stdin=theirs, stdout=theirs, stderr=theirs, timeout=120, check=True)
        assert b"[True, True, True]" in os.read(ours, 4096)
    finally:
        os.close(ours)
        os.close(theirs)

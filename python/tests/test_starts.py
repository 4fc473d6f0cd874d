"""Ranks that begin an epoch at different places are told. Ranks that make different numbers of passes are left alone,
and never wait for one another. In real processes, with gloo."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from forms import long, mostly
from test_distributed import torchrun

import stoker
from stoker import _ranks

# Instead of torchrun: one interpreter, which imports torch for all ranks, and has their store as torchrun would.
FORKED = """
import os, sys
import torch
import torch.distributed as dist
import stoker
ranks = set()
for number in range(int(os.environ["WORLD_SIZE"])):
    if not (rank := os.fork()):
        os.environ["RANK"] = str(number)
        break
    ranks.add(rank)
else:
    port = int(os.environ["MASTER_PORT"])
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    while ranks:
        rank, status = os.wait()
        ranks.remove(rank)
        if status:
            for rank in ranks:
                os.kill(rank, 9)
            sys.exit(1)
    sys.exit()
"""

HEAD = """
import os, sys
from concurrent.futures import ThreadPoolExecutor, wait
import torch
import torch.distributed as dist
import stoker
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
data = stoker.ImageFolder(sys.argv[1])

def make(**more):
    return stoker.DataLoader(data, 4, **{"shuffle": True, "seed": 7, "output": "numpy", **more})

def say(name, what):
    os.write(1, f"{name} of {rank}: {what}\\n".encode())  # one write: lines of two ranks do not mix

def tried(name, run):
    try:
        run()
        say(name, "fine")
    except stoker.ConfigError as error:
        say(name, repr(str(error)))
    dist.barrier()

def passes(loader, *epochs, steps=99, together=True):
    for epoch in epochs:
        if epoch is not None:
            loader.set_epoch(epoch)
        for step, batch in zip(range(steps), loader):
            if together:
                dist.all_reduce(torch.ones(1))

def loaded(loader, state):
    if state is not None:
        loader.load_state_dict(state)
    return loader

def at(epoch, steps):
    loader = make()
    loader.set_epoch(epoch)
    for step, batch in zip(range(steps), loader):
        pass
    return loader.state_dict()
"""

SAME = """
class Shared(torch.utils.data.IterableDataset):
    def __iter__(self):
        dist.distributed_c10d._get_default_store = None  # the connection to the store is the trainer's
        for batch in make(rank=rank, world_size=world):
            yield torch.tensor(batch.ids)

def worker():
    for ids in torch.utils.data.DataLoader(Shared(), None, num_workers=1, multiprocessing_context="fork"):
        pass
tried("a worker", worker)

tried("equal", lambda: passes(make(), 0, 1, 2))
tried("counted", lambda: passes(make(), None, None, None))
tried("no collectives", lambda: passes(make(), 0, 1, 2, together=False))
half = at(3, 2)
tried("resumed", lambda: passes(loaded(make(), half), 3, 4))
tried("resumed, counted", lambda: passes(loaded(make(), half), None, None))
tried("resumed by hand", lambda: passes(loaded(make(rank=rank, world_size=world), half), 3, 4))
tried("resumed at the end", lambda: passes(loaded(make(), at(1, 99)), None, None))
tried("alone", lambda: passes(make(rank=0, world_size=1), rank, together=False))
tried("stored", lambda: passes(make(shuffle=None), rank))

# One rank does more than the others.

def validated(shuffle):
    train, test = make(), make(shuffle=shuffle)
    for epoch in range(3):
        passes(train, epoch)
        if rank == 0:
            passes(test, None, together=False)
    if not shuffle:
        passes(test, None)
tried("validation of 0", lambda: validated(None))
tried("validation of 0, shuffled", lambda: validated(True))

def looked(state, after):
    loader = loaded(make(), state)
    if rank == 0:
        next(iter(loader))
    if rank == 0 and after == "loop":
        passes(loader, 9, together=False)
    passes(loaded(loader, state), 3 if state else 0, 4)
tried("look of 0", lambda: looked(None, ""))
tried("look of 0, resumed", lambda: looked(half, ""))
tried("loop of 0, resumed", lambda: looked(half, "loop"))

def uneven(loader):
    for epoch in range(4):
        passes(loader, epoch, steps=1 + (rank + epoch) % 2 * 3, together=False)
tried("uneven", lambda: uneven(make()))

def again(loader):
    for epoch in range(3):
        passes(loader, *[epoch] * (2 if rank == 0 else 1), together=False)
tried("again", lambda: again(make()))
tried("more epochs of 0", lambda: passes(make(), *range(2 if rank == 0 else 1), together=False))

def order(loaders):
    for loader in loaders if rank else loaders[::-1]:
        passes(loader, None if loader is loaders[0] else 5, together=False)
tried("another order of loaders", lambda: order([make(), make()]))

def prefetched(loader):  # by a thread: rank 0 has begun epoch 3 when the others begin epoch 1
    begun = []
    with ThreadPoolExecutor(1) as thread:
        for epochs in [[0], [1], [2, 3]] if rank else [[0, 1, 2], [3], []]:
            begun.append(thread.submit(passes, loader, *epochs, together=False))
            wait(begun)
            dist.all_reduce(torch.ones(1))
    for one in begun:
        one.result()
tried("a prefetcher", lambda: prefetched(make()))

def grouped():
    part = dist.new_group(list(range(world // 2)))
    if rank < world // 2:
        dist.all_reduce(torch.ones(1), group=part)
    passes(make(), 0, 1)
tried("a group", grouped)
"""

END = """
dist.destroy_process_group()
"""

APART = """
from functools import partial
passes = partial(passes, together=False)  # a rank that stops would hold up the others
half = at(3, 2)
tried("set_epoch(rank)", lambda: passes(make(), rank))
tried("set_epoch(rank), first batch", lambda: passes(make(), rank, steps=1))
tried("epoch + rank", lambda: passes(make(), *range(rank, rank + 3)))
tried("placed", lambda: passes(make(rank=rank, world_size=world), rank))
tried("sampler", lambda: passes(make(shuffle=None, seed=None, sampler=stoker.DistributedSampler(data)), rank))
tried("state on 0", lambda: passes(loaded(make(), half if rank == 0 else None), None, steps=2))
tried("another state", lambda: passes(loaded(make(), at(3, 1 + rank)), None, steps=1))

def stored():
    first = make(shuffle=None, rank=0, world_size=1)
    next(iter(first))
    passes(loaded(make(shuffle=None), first.state_dict() if rank == 0 else None), None, steps=2)
tried("stored order, state on 0", stored)

def late():
    loader = make(seed=None)
    iter(loader)
    passes(loaded(loader, {**half, "epoch": 0, "position": 0, "seed": 5} if rank == 0 else None), None, steps=2)
tried("seed of a state on 0", late)

def ahead():
    loader = make()
    if rank == 0:
        passes(loader, None)
    dist.barrier()
    passes(loader, None, steps=2)
tried("loop of 0", ahead)

def peeked():
    loader = make()
    if rank == 0:
        next(iter(loader))
    for step, batch in zip(range(3), loader):
        if step == 0:
            dist.all_reduce(torch.ones(1))
tried("peek of 0", peeked)

def skipped():
    loader = make()
    loader.skip(rank)
    passes(loader, None, steps=2)
tried("skip(rank)", skipped)
"""


def told(stdout: str) -> dict[str, list[str]]:
    """What the ranks said under each name, "fine" first."""
    found: dict[str, list[str]] = {}
    for line in stdout.splitlines():
        name, _, what = line.partition(": ")
        if " of " in name:
            found.setdefault(name.rpartition(" of ")[0], []).append(what)
    return {name: sorted(said, key=len) for name, said in found.items()}


def variables(world: int) -> dict[str, str]:
    """The environment of ranks that no torchrun starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {
        **os.environ,
        "PYTHONPATH": str(Path(stoker.__file__).parents[1]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
    }


def forked(script: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What two ranks do that are forked."""
    theirs = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    return subprocess.run(
        [sys.executable, str(script), str(folder)],
        env={**variables(2), **theirs},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


APARTS = re.findall(r'^tried\("([^"]*)"', APART, re.MULTILINE)


@long
def test_four_ranks_that_begin_at_the_same_place_are_left_alone(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "same.py"
    script.write_text(HEAD + SAME + END)
    done = torchrun(script, str(folder), ranks=4)
    assert done.returncode == 0, done.stderr
    said = told(done.stdout)
    assert len(said) == 21
    assert said == {name: ["fine"] * 4 for name in said}
    assert "no longer compared" not in done.stderr


@pytest.mark.parametrize("run", mostly([forked, torchrun], forked))
def test_ranks_that_begin_apart_are_told_and_others_left_alone(folder: Path, tmp_path: Path, run: Any) -> None:
    script = tmp_path / "both.py"
    script.write_text((FORKED if run is forked else "") + HEAD + SAME + APART + END)
    done = run(script, str(folder))
    assert done.returncode == 0, done.stderr
    assert "no longer compared" not in done.stderr
    said = told(done.stdout)
    same = {name: what for name, what in said.items() if name not in APARTS}
    assert len(same) == 21
    assert same == {name: ["fine", "fine"] for name in same}
    epochs = "set_epoch(rank);set_epoch(rank), first batch;epoch + rank;placed;sampler;loop of 0;peek of 0".split(";")
    wanted = dict.fromkeys(epochs, ("epoch 0", "epoch 1", "set_epoch"))
    wanted |= {
        "state on 0": ("position 16 of epoch 3", "position 0 of epoch 0", "load the same state on every rank"),
        "another state": ("position 8", "position 16", "load the same state on every rank"),
        "stored order, state on 0": ("position 4", "position 0", "load the same state on every rank"),
        "seed of a state on 0": ("seed 5", "seed 0", "the same seed"),
        "skip(rank)": ("position 8", "position 0", "on every rank"),
    }
    assert set(APARTS) == wanted.keys()
    for name, words in wanted.items():
        fine, error = said[name]
        assert fine == "fine", name
        for word in ("rank 0", "rank 1", "some samples come twice", *words):
            assert word in error, (name, word, error)


def test_entries_of_processes_before_a_restart_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """On two nodes, of which one was replaced: the number of restarts does not tell old entries from new ones."""
    for name, value in {"MAX_RESTARTS": "1", "RESTART_COUNT": "0"}.items():
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    monkeypatch.setenv("GROUP_WORLD_SIZE", "2")
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    before, after = ([_ranks._Board(store, rank, 2, 0) for rank in range(2)] for _ in range(2))
    for board in (*before, *after):
        board.met("begun", {})
    for writer in range(2):
        for first in range(2):
            key = f"{writer} before, {first} first"
            assert before[writer].met(key, {"epoch": 0}) is None
            assert after[first].met(key, {"epoch": 1}) is None
            theirs = after[1 - first].met(key, {"epoch": 2})
            assert theirs is not None, key
            assert (theirs["by"], theirs["epoch"]) == (first, 1)


ELASTIC = """
saved = sys.argv[2]
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
loader = make()
if attempt:
    loader.load_state_dict(torch.load(saved, weights_only=True))
for epoch in range(1 if attempt else 0, 3):
    loader.set_epoch(epoch)
    for batch in loader:
        dist.all_reduce(torch.ones(1))
        if not attempt and batch.epoch == 1 and batch.step == 3:
            if rank == 0:
                torch.save(loader.state_dict(), saved)
            dist.barrier()
            sys.exit(3)
    say(f"epoch {epoch}", "fine")
dist.destroy_process_group()
"""


# Gloo finds the addresses of the processes before a restart in torchrun's store, and may wait for them without end. It
# gets keys of its own for each start; what stoker writes is still found after a restart.
APART_FROM_GLOO = """
store, rank, world = next(dist.rendezvous("env://"))
start = dist.PrefixStore(os.environ["TORCHELASTIC_RESTART_COUNT"], store)
dist.init_process_group("gloo", store=start, rank=rank, world_size=world)
dist.distributed_c10d._get_default_store = lambda: store
"""


@long
def test_a_job_that_torchrun_starts_again_is_left_alone(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "elastic.py"
    init = 'dist.init_process_group("gloo")\n'
    assert init in HEAD
    script.write_text(HEAD.replace(init, APART_FROM_GLOO) + ELASTIC)
    done = torchrun(script, str(folder), str(tmp_path / "state"), restarts=1)
    assert done.returncode == 0, done.stderr
    assert told(done.stdout) == {f"epoch {epoch}": ["fine", "fine"] for epoch in range(3)}


STOPPED = """
import time
loader = make()
next(iter(loader))
dist.barrier()
if rank == 0:
    say("barrier", "fine")
    time.sleep(600)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
for epoch in range(3):
    loader.set_epoch(epoch)
    say(f"epoch {epoch}", len(list(loader)))
os._exit(0)
"""


class Silent:
    """A store that does not answer while the test runs."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        def wait(*_: Any) -> None:
            self.asked += 1
            self.over.wait()

        return wait


def test_a_store_that_does_not_answer_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_ranks, "_LIMIT_S", 0.2)
    store = Silent()
    board = _ranks._Board(store, 1, 2, 0)
    for number in range(3):
        assert board.met(f"key {number}", {"epoch": 0}) is None
    store.over.set()
    assert store.asked == 1
    assert capfd.readouterr().err.count("no longer compared") == 1


@long  # the test before does it without processes
def test_a_rank_whose_store_is_stopped_goes_on(folder: Path, tmp_path: Path) -> None:
    script, flag = tmp_path / "stopped.py", tmp_path / "flag"
    script.write_text(HEAD + STOPPED)
    env = variables(2)
    command = [sys.executable, str(script), str(folder), str(flag)]
    first, second = (
        subprocess.Popen(command, env={**env, "RANK": rank}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in "01"
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "barrier of 0: fine\n"
        first.send_signal(signal.SIGSTOP)  # it has the store
        os.waitpid(first.pid, os.WUNTRACED)
        flag.touch()
        out, notices = second.communicate(timeout=300)
    finally:
        for process in (first, second):
            process.kill()
            process.communicate()
    assert told(out) == {f"epoch {epoch}": ["7"] for epoch in range(3)}
    assert notices.count("no longer compared") == 1

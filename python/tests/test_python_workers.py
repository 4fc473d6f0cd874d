"""Python workers as processes: when they start, what they see, how they end, and what a death costs."""

from __future__ import annotations

import contextlib
import gc
import itertools
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import mine
import pytest
import torch
from conftest import engine, gone, kill, run_python, wait_until
from forms import long, mostly, param
from torch.utils import data

import stoker
from stoker import _workers


def children(parent: int | None = None) -> list[int]:
    """The running worker processes of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text()
            fields = stat.rpartition(")")[2].split()
            if "(stoker_worker)" in stat and int(fields[1]) == (parent or os.getpid()) and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


def second(loader: Any) -> list[Any]:
    return [batch[1].tolist() for batch in loader]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Any:
    yield
    gc.collect()
    wait_until(lambda: not children(), "workers are left")


# When they start and end.


def test_none_starts_before_iter_and_none_outlives_the_pass() -> None:
    loader = stoker.DataLoader(mine.Squares(), 4, num_workers=2)
    len(loader), loader.state_dict(), loader.explain(0)
    assert children() == []
    iterator = iter(loader)
    wait_until(lambda: len(children()) == 2, "the workers have started")
    assert len(list(iterator)) == 5
    wait_until(lambda: not children(), "the pass has ended")
    loader.close()


def test_without_persistent_workers_they_have_the_dataset_of_now() -> None:
    made = mine.Squares(8)
    with stoker.DataLoader(made, 4, num_workers=2) as loader:
        assert second(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        made.n = 12
        assert len(loader) == 3
        assert len(second(loader)) == 3
    with stoker.DataLoader(made, 4, num_workers=2, persistent_workers=True) as loader:
        second(loader)
        there = children()
        assert len(there) == 2
        second(loader)
        assert children() == there


@pytest.mark.parametrize("persistent", mostly([False, True], True))
def test_they_end_with_close_and_with_the_loader(persistent: bool) -> None:
    loader = stoker.DataLoader(mine.Slow(), 4, num_workers=2, persistent_workers=persistent)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    assert children() == []
    with pytest.raises(stoker.ConfigError, match="was closed"):
        next(iterator)
    iterator = iter(loader)
    next(iterator)
    wait_until(lambda: len(children()) == 2, "the workers have started")
    del iterator, loader
    gc.collect()
    wait_until(lambda: not children(), "the loader is gone")


def test_they_end_with_an_abandoned_iterator() -> None:
    loader = stoker.DataLoader(mine.Slow(), 4, num_workers=2)
    for _ in loader:
        break
    gc.collect()
    wait_until(lambda: not children(), "nobody iterates")
    assert len(first_of(loader)) == 5


def zombies() -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text()
            fields = stat.rpartition(")")[2].split()
            if "(stoker_worker)" in stat and int(fields[1]) == os.getpid() and fields[0] == "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.parametrize(
    "how", mostly(["an iterator", "a loader", "a loader of persistent workers"], "a loader of persistent workers")
)
def test_none_stays_as_a_zombie(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_workers, "PAUSE_SECONDS", 20.0)  # where tests run, others may have all cores
    loader: Any = stoker.DataLoader(mine.Slow(), 4, num_workers=2, persistent_workers="persistent" in how)
    iterator = iter(loader)
    next(iterator)
    if "loader" in how:
        loader = None
    del iterator
    gc.collect()
    assert zombies() == []
    assert children() == []


@long  # others are dropped while their workers are at shorter samples
def test_a_worker_that_is_busy_when_its_iterator_is_dropped() -> None:
    loader = stoker.DataLoader(mine.Slow(40, 0.5), 1, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    before = children()
    del iterator
    gc.collect()
    wait_until(lambda: not children(), "it has done what it was at")
    iterator = iter(loader)
    assert next(iterator)[0].tolist() == [0]
    assert not set(before) & set(zombies())


def first_of(loader: Any) -> list[Any]:
    return [batch[0].tolist() for batch in loader]


def test_two_passes_at_once() -> None:
    with stoker.DataLoader(mine.Slow(), 4, num_workers=2) as loader:
        for one, other in zip(loader, loader, strict=True):
            assert one[0].tolist() == other[0].tolist()
    with stoker.DataLoader(mine.Slow(), 4) as loader:
        for one, other in zip(loader, loader, strict=True):
            assert one[0].tolist() == other[0].tolist()


def test_threads_iterate_in_the_calling_thread() -> None:
    found: dict[int, list[Any]] = {}

    def loop(number: int) -> None:
        with stoker.DataLoader(mine.Threads(), 4, seed=number, shuffle=True) as loader:
            found[number] = [set(batch[1].tolist()) for batch in loader]
            found[number].append({threading.get_ident()})

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == [0, 1, 2]
    assert all(len(set(map(frozenset, sets))) == 1 for sets in found.values())


def test_one_loader_in_several_threads() -> None:
    with stoker.DataLoader(mine.Squares(80), 4) as loader:
        counts: list[int] = []
        threads = [threading.Thread(target=lambda: counts.append(len(list(loader)))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert counts == [20, 20, 20]


def test_an_iterator_begun_in_a_thread_that_ends() -> None:
    with stoker.DataLoader(mine.Squares(), 4, num_workers=2) as loader:
        begun: list[Any] = []

        def begin() -> None:
            begun.append(iter(loader))
            begun.append(next(begun[0]))

        thread = threading.Thread(target=begin)
        thread.start()
        thread.join(60)
        time.sleep(0.3)
        assert len(list(begun[0])) == 4


# What they see.


@pytest.mark.parametrize("method", mostly(["fork", "spawn"], "fork"))
def test_worker_info(method: str) -> None:
    with stoker.DataLoader(mine.Info(), 4, num_workers=2, multiprocessing_context=method) as loader:
        rows = [row for batch in loader for row in zip(*(column.tolist() for column in batch), strict=True)]
    assert {row[1] for row in rows} <= {0, 1}
    assert {row[2] for row in rows} == {2}
    assert len({row[3] - row[1] for row in rows}) == 1  # the base seed
    assert data.get_worker_info() is None


def test_worker_init_fn(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def init(worker: int) -> None:
        (tmp_path / str(worker)).touch()

    with stoker.DataLoader(mine.Squares(), 4, num_workers=2, worker_init_fn=init) as loader:
        list(loader)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    assert "seeds that worker_init_fn sets have no effect" in capfd.readouterr().err
    with stoker.DataLoader(mine.Squares(), 4, num_workers=2, worker_init_fn=mine.raising_init) as loader:
        with pytest.raises(stoker.ConfigError, match=r"worker_init_fn raised RuntimeError: no worker \d") as caught:
            list(loader)
        assert isinstance(caught.value.__cause__, RuntimeError)
        assert "call worker_init_fn(" in str(caught.value)
        assert "sample" not in caught.value.where
        assert caught.value.where["worker"] in (0, 1)


@pytest.mark.parametrize("method", mostly(["fork", "spawn", "forkserver"], "fork"))
def test_what_multiprocessing_shares_stays_shared(method: str) -> None:
    context = multiprocessing.get_context(method)
    made = mine.Counting(context)
    workers = 2 if method == "fork" else 1  # each of the others imports torch
    with stoker.DataLoader(made, 4, num_workers=workers, multiprocessing_context=context) as loader:
        list(loader)
    assert made.count.value == 20
    assert made.seen.tolist() == list(range(20))


def test_what_cannot_be_pickled_is_named() -> None:
    made = mine.Squares()
    made.config = {"steps": [lambda x: x]}  # type: ignore[attr-defined]
    loader = stoker.DataLoader(made, 4, num_workers=2, multiprocessing_context="spawn")
    with pytest.raises(stoker.ConfigError, match=r"dataset\.config\['steps'\]\[0\] cannot be pickled.*spawn"):
        list(loader)
    loader = stoker.DataLoader(
        mine.Squares(), 4, num_workers=2, multiprocessing_context="forkserver", collate_fn=lambda samples: samples
    )
    with pytest.raises(stoker.ConfigError, match=r"collate_fn cannot be pickled, .* get it pickled"):
        list(loader)


def test_what_cannot_be_unpickled_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torn.py").write_text(  # the worker imports this, and no torch
        "class Torn:\n    def __len__(self): return 4\n    def __getitem__(self, i): return i\n"
        "    def __setstate__(self, state): raise KeyError('rebuild')\n"
        "    def __getstate__(self): return {'kept': 1}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "torn", None)  # as it was not there, it is removed at the end
    del sys.modules["torn"]
    import torn  # type: ignore[import-not-found]

    loader = stoker.DataLoader(torn.Torn(), 4, num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(stoker.ConfigError, match=r"Torn.__setstate__ raised KeyError: 'rebuild'") as caught:
        list(loader)
    assert "pickle.loads(pickle.dumps(dataset))" in str(caught.value)


def test_a_module_that_a_spawned_worker_cannot_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_here.py").write_text(
        "import os\nif os.environ.get('IN_WORKER'):\n    raise ImportError('only in the trainer')\n"
        "class Here:\n    def __len__(self): return 4\n    def __getitem__(self, i): return i\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import only_here  # type: ignore[import-not-found]

    monkeypatch.setenv("IN_WORKER", "1")
    with stoker.DataLoader(only_here.Here(), 4, num_workers=1, multiprocessing_context="spawn") as loader:
        with pytest.raises(stoker.ConfigError, match="ImportError: only in the trainer") as caught:
            list(loader)
        assert type(caught.value.__cause__) is ImportError
        assert "multiprocessing_context='fork'" in str(caught.value)
        assert "sample" not in caught.value.where


def test_a_daemonic_trainer_gets_torchs_error() -> None:
    def trainer(answer: Any) -> None:
        try:
            list(stoker.DataLoader(mine.Squares(), 4, num_workers=1))
        except AssertionError as error:
            answer.send(str(error))

    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=trainer, args=(there,), daemon=True)
    process.start()
    assert here.poll(60)
    assert here.recv() == "daemonic processes are not allowed to have children"
    process.join(20)


@pytest.mark.parametrize(("outside", "inside"), mostly([(2, 0), (0, 0), (0, 2)], (2, 0), (0, 0)))
def test_a_loader_inside_getitem(outside: int, inside: int) -> None:
    made: Any = mine.Nested(inside)
    with stoker.DataLoader(made, 4, num_workers=outside) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 3, 6, 9], [12, 15, 18, 21]]


def test_a_loader_with_workers_inside_a_worker_gets_torchs_error() -> None:
    made: Any = mine.Nested(1)
    with stoker.DataLoader(made, 4, num_workers=2) as loader:
        with pytest.raises(stoker.DataError, match="daemonic processes are not allowed to have children") as caught:
            list(loader)
        assert type(caught.value.__cause__) is AssertionError


def test_a_forked_child_has_its_own_workers() -> None:
    with stoker.DataLoader(mine.Squares(), 4, num_workers=2) as loader:
        iterator = iter(loader)
        next(iterator)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(write, bytes([len(second(stoker.DataLoader(mine.Squares(), 4, num_workers=2)))]))
            finally:
                os._exit(0)
        assert os.read(read, 1) == bytes([5])
        os.waitpid(child, 0)
        assert len(list(iterator)) == 4


# Deaths.


def expected(made: Any, epochs: int = 1, **keywords: Any) -> list[Any]:
    with stoker.DataLoader(made, 4, seed=1, shuffle=True, **keywords) as loader:
        return [batch[0].tolist() for _ in range(epochs) for batch in loader]


@pytest.mark.parametrize("collate", mostly([None, data.default_collate, mine.stacked], mine.stacked))
def test_workers_are_killed_at_random(collate: Any, caplog: pytest.LogCaptureFixture) -> None:
    want = expected(mine.Slow(80, 0), 3)
    found, deaths = [], 0
    dice = random.Random(0)
    with stoker.DataLoader(
        mine.Slow(80, 0.002), 4, seed=1, shuffle=True, num_workers=3, collate_fn=collate, on_bad="fail"
    ) as loader:
        for _ in range(3):
            for batch in loader:
                found.append(batch[0].tolist())
                # A sample that was in work at one death must be made before the next: at two it is bad.
                if len(found) % 8 == 0 and (alive := children()):
                    time.sleep(dice.random() * 0.01)
                    kill(dice.choice(alive))
                    deaths += 1
    assert found == want
    assert deaths > 4
    assert "died" in caplog.text
    assert "SIGKILL" in caplog.text


def test_a_death_is_told_once_with_its_sample(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with stoker.DataLoader(mine.Deadly(tmp_path, 1), 4, num_workers=2) as loader:
        assert [i for batch in loader for i in batch.tolist()] == list(range(20))
    (line,) = [record.getMessage() for record in caplog.records if "died" in record.getMessage()]
    assert "died while it made sample 5 (signal 9, SIGKILL)" in line
    assert "with the dataset as it is now" in line


def test_a_worker_never_runs_the_trainers_handlers(tmp_path: Path) -> None:
    """Nor does it die of a signal, from the moment at which it is forked."""
    code = """
import os, signal, stoker
def handler(*_):
    with open({0!r}, "a") as file:
        file.write("here")
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, handler)
    os.register_at_fork(after_in_child=lambda number=number: os.kill(os.getpid(), number))
print(len(list(stoker.DataLoader(list(range(8)), 4, num_workers=2, multiprocessing_context="fork", output="numpy"))))
os.kill(os.getpid(), signal.SIGTERM)
"""
    log = tmp_path / "log"
    assert run_python(code.format(str(log))).stdout == "2\n"
    assert log.read_text() == "here"


def test_collate_draws_the_same_numbers_after_a_death(tmp_path: Path) -> None:
    """Also where the first sample of its batch is bad, so that the worker that goes on never gets it."""
    died = tmp_path / "died"

    class Some:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            if index == 4:
                raise ValueError("bad")
            return index

    def drawn(samples: Any) -> Any:
        if 5 in samples and not died.exists():
            died.touch()
            os._exit(1)
        return samples, random.random(), float(torch.rand(()))

    dataset: Any = Some()

    def batches(workers: int) -> list[Any]:
        return list(stoker.DataLoader(dataset, 4, seed=3, num_workers=workers, collate_fn=drawn, on_bad="skip"))

    interrupted = batches(1)
    assert died.exists()
    assert interrupted == batches(1) == batches(0)


@pytest.mark.parametrize("collate", mostly([None, mine.ids], None))
def test_a_sample_of_two_deaths_is_bad(tmp_path: Path, collate: Any) -> None:
    with stoker.DataLoader(mine.Deadly(tmp_path, 9), 4, num_workers=2, collate_fn=collate) as loader:
        with pytest.raises(stoker.DataError, match="2 Python workers ended while they made this sample") as caught:
            list(loader)
        assert caught.value.where["sample"] == 5
    with stoker.DataLoader(mine.Deadly(tmp_path, 9), 4, num_workers=2, on_bad="replace", collate_fn=collate) as loader:
        assert len(list(loader)) == 5
        assert stoker.verify_receipts([loader.receipt()], loader)["ok"]


def test_workers_that_cannot_live_are_given_up(capfd: pytest.CaptureFixture[str]) -> None:
    def die(worker: int) -> None:
        os._exit(3)

    with stoker.DataLoader(mine.Squares(), 4, num_workers=2, worker_init_fn=die) as loader:
        with pytest.raises(stoker.ConfigError, match=r"worker \d could not start: .* exit status 3"):
            list(loader)

    def killed(worker: int) -> None:
        kill(os.getpid())

    with stoker.DataLoader(mine.Squares(), 4, num_workers=2, worker_init_fn=killed) as loader:
        with pytest.raises(stoker.EngineError, match=r"ended one after another, with no batch.*SIGKILL"):
            list(loader)


# As in a script in which JAX runs before the second loader, so that the default becomes forkserver.
UNGUARDED = """
import multiprocessing, os, plain, stoker, sys
print("body", flush=True)
keywords = {"num_workers": 1, "output": "numpy"}
if sys.argv[1] == "late":
    list(stoker.DataLoader(plain.Numbers(), 4, **keywords))
method = sys.argv[2] if multiprocessing.parent_process() is None else sys.argv[3]
list(stoker.DataLoader(plain.Numbers(), 4, multiprocessing_context=method, **keywords))
print("trained", flush=True)
"""


@pytest.mark.parametrize(
    ("first", "method", "inner"),
    mostly(
        [("", "spawn", "spawn"), ("", "spawn", "fork"), ("", "forkserver", "fork"), ("late", "forkserver", "fork")],
        ("", "forkserver", "fork"),
    ),
)
def test_a_script_without_a_main_guard(tmp_path: Path, first: str, method: str, inner: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    path = os.pathsep.join([str(Path(stoker.__file__).parents[1]), str(Path(__file__).parent)])
    ran = subprocess.run(
        [sys.executable, str(script), first, method, inner],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert "trained" not in ran.stdout
    assert "ConfigError: a loader cannot start workers in a process that is being started itself" in ran.stderr
    assert "ConfigError: Python worker 0 could not start: " in ran.stderr
    assert "below `if __name__ == '__main__':`" in ran.stderr.partition("Python worker 0 could not start")[2]
    assert " died " not in ran.stderr


@pytest.mark.parametrize("workers", mostly([0, 2], 2))
def test_the_engine_is_killed(workers: int) -> None:
    want = expected(mine.Slow(40, 0), 2)
    found = []
    with stoker.DataLoader(mine.Slow(40, 0.001), 4, seed=1, shuffle=True, num_workers=workers) as loader:
        for _ in range(2):
            for number, batch in enumerate(loader):
                found.append(batch[0].tolist())
                if number == 4:
                    before = children()
                    kill(engine())
                    if workers:
                        wait_until(lambda: all(map(gone, before)), "workers of a dead engine")  # noqa: B023
    assert found == want


SCRIPT = """
import os, plain, stoker, sys, time
keywords = {"num_workers": 2, "multiprocessing_context": sys.argv[1], "output": "numpy"}
loader = stoker.DataLoader(plain.Numbers(400, 0.005), 4, **keywords)
for number, batch in enumerate(loader):
    if number == 1 and "fork" == sys.argv[2]:  # it holds all sockets: nobody sees them close
        if not os.fork():
            time.sleep(600)
    print("batch", flush=True)
    if number == 4:
        time.sleep(600)
"""


@pytest.mark.parametrize(
    ("method", "child", "killed"),
    mostly(
        [
            *itertools.product(["fork"], ["none", "fork"], ["trainer", "engine"]),
            *itertools.product(["spawn", "forkserver"], ["none"], ["trainer"]),
            *itertools.product(["spawn", "forkserver"], ["fork"], ["engine"]),
        ],
        ("fork", "none", "trainer"),
        ("fork", "fork", "engine"),
        ("spawn", "fork", "engine"),
        ("forkserver", "none", "trainer"),
    ),
)
def test_the_trainer_or_the_engine_is_killed(method: str, child: str, killed: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("if __name__ == '__main__':\n" + "".join(f"    {line}\n" for line in SCRIPT.splitlines()))
    path = os.pathsep.join([str(Path(stoker.__file__).parents[1]), str(Path(__file__).parent)])
    process = subprocess.Popen(
        [sys.executable, str(script), method, child],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    for _ in range(5):
        assert process.stdout.readline()
    # Two workers and the engine; the first worker makes batches while the second one starts.
    wait_until(lambda: len(descendants(process.pid)) >= 3, "two workers and the engine do not start")
    mine_now = descendants(process.pid)
    (engine,) = [pid for pid in mine_now if Path(f"/proc/{pid}/comm").read_text() == "stoker\n"]
    holders = others(process.pid, mine_now) if child == "fork" else []
    assert len(holders) == (child == "fork")
    try:
        kill(process.pid if killed == "trainer" else engine)
        if killed == "trainer":
            process.wait()
        wait_until(lambda: all(map(ended, mine_now)), f"{method}: something outlives the {killed}")
    finally:
        for pid in (process.pid, *holders):
            with contextlib.suppress(ProcessLookupError):
                kill(pid)
        process.wait()
        process.stdout.close()


def others(pid: int, known: list[int]) -> list[int]:
    """Copies of a process that it has forked."""
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [one for one in children if one not in known and Path(f"/proc/{one}/cmdline").read_bytes() == command]


def ended(pid: int) -> bool:
    """Gone, or waiting for a trainer that does not look."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def descendants(pid: int) -> list[int]:
    """Processes of stoker below a process."""
    parents = {}
    names = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text()
            names[int(entry.name)] = stat[stat.index("(") + 1 : stat.rindex(")")]
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = []
    for one in parents:
        at = one
        while at in parents and at != pid:
            at = parents[at]
        if at == pid and one != pid and names[one].startswith("stoker"):
            found.append(one)
    return found


def test_a_signal_for_the_whole_group_while_the_trainer_saves() -> None:
    """SIGTERM of a job manager: the trainer's handler goes on with the loop, to save at a good place."""
    code = """
import os, signal, plain, stoker
os.setpgrp()
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
signal.signal(signal.SIGHUP, lambda *_: asked.append(1))
loader = stoker.DataLoader(plain.Numbers(80, 0.01), 4, num_workers=2, output="numpy")
found = []
for number, batch in enumerate(loader):
    found += batch[0].tolist()
    if number in (2, 5):
        os.killpg(0, signal.SIGTERM if number == 2 else signal.SIGHUP)
    if number == 9:
        state = loader.state_dict()
        break
print(len(asked), found == list(range(40)))
loader.load_state_dict(state)
print([i for batch in loader for i in batch[0].tolist()] == list(range(40, 80)))
"""
    ran = run_python(code)
    assert ran.stdout.split() == ["2", "True", "True"], ran.stderr
    assert ran.returncode == 0
    assert "died" not in ran.stderr


@long  # the test before sends the group other signals
def test_ctrl_c_for_the_whole_group_and_a_normal_exit() -> None:
    code = """
import os, signal, plain, stoker
os.setpgrp()
loader = stoker.DataLoader(plain.Numbers(40, 0.01), 4, num_workers=2, output="numpy")
found = []
for number, batch in enumerate(loader):
    found += batch[0].tolist()
    if number == 2:
        try:
            os.killpg(0, signal.SIGINT)
            import time; time.sleep(5)
        except KeyboardInterrupt:
            print("interrupted")
print(found == list(range(40)))
iterator = iter(loader)
next(iterator)
"""
    ran = run_python(code)
    assert ran.stdout.split() == ["interrupted", "True"], ran.stderr
    assert ran.returncode == 0
    assert "died" not in ran.stderr


def test_an_interrupt_in_the_calling_thread_makes_the_batch_again() -> None:
    with stoker.DataLoader(mine.Interrupting(), 4) as loader:
        iterator = iter(loader)
        found = [next(iterator).tolist()]
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        found += [batch.tolist() for batch in iterator]
        assert [i for batch in found for i in batch] == list(range(20))


def test_an_interrupt_after_a_bad_sample_makes_the_batch_again() -> None:
    done: list[Any] = []

    class Bad(mine.Squares):
        def __getitem__(self, i: int) -> Any:
            if i == 2:
                raise ValueError(i)
            return i

    def collate(samples: list[int]) -> list[int]:
        if not done:
            done.append(True)
            raise KeyboardInterrupt
        return samples

    with stoker.DataLoader(Bad(8), 4, collate_fn=collate, on_bad="skip") as loader:
        iterator = iter(loader)
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert list(next(iterator)) == [0, 1, 3, 3]
        assert list(next(iterator)) == [4, 5, 6, 7]


def test_a_stuck_worker_does_not_hold_up_the_exit() -> None:
    begun = time.monotonic()
    ran = run_python(
        "import plain, stoker\n"
        "next(iter(stoker.DataLoader(plain.Numbers(8, 60), 4, num_workers=2, timeout=1, output='numpy')))"
    )
    assert "StallError" in ran.stderr
    assert time.monotonic() - begun < 30


# Batches are leases.


@pytest.mark.parametrize("collate", mostly([None, data.default_collate, mine.stacked], None))
def test_batches_that_are_held(collate: Any) -> None:
    def whole(batch: Any) -> bool:
        # Not with torch: in a forked child, its threads are gone.
        pictures, numbers = batch[0].numpy(), batch[1].numpy()
        return all(bool((pictures[row] == numbers[row]).all()) for row in range(len(numbers)))

    loader = stoker.DataLoader(mine.Large(48), 4, num_workers=2, collate_fn=collate)
    held = []
    for batch in loader:
        held.append((batch[0][1:], batch[1][1:]))
        held.append((batch[0].clone(), batch[1].clone()))
    assert all(map(whole, held))
    child = os.fork()
    if not child:
        os._exit(0 if all(map(whole, held)) else 1)
    list(loader)
    assert os.waitpid(child, 0)[1] == 0
    assert all(map(whole, held))
    loader.close()
    del loader
    gc.collect()
    assert all(map(whole, held))
    held[0][0].zero_()  # it belongs to the loop


def test_batches_of_the_calling_thread_may_be_anything() -> None:
    marker = object()
    with stoker.DataLoader(mine.Squares(), 4, collate_fn=lambda samples: marker) as loader:
        assert all(batch is marker for batch in loader)
    with stoker.DataLoader([torch.empty(2, device="meta")] * 4, 2) as loader:
        assert [batch.device.type for batch in loader] == ["meta", "meta"]


def test_nothing_is_made_ahead_in_the_calling_thread() -> None:
    made = mine.Recording()
    with stoker.DataLoader(made, 4) as loader:
        for number, _ in enumerate(loader):
            assert len(made.asked) == 4 * (number + 1)
            time.sleep(0.01)
            assert len(made.asked) == 4 * (number + 1)


def test_a_timeout_names_the_worker() -> None:
    with stoker.DataLoader(mine.Slow(8, 30), 4, num_workers=2, timeout=1) as loader:
        with pytest.raises(stoker.StallError, match="Python worker"):
            next(iter(loader))


@long  # test_a_worker_never_runs_the_trainers_handlers has signals from the fork on
def test_signals_of_the_trainer_are_not_the_workers() -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with stoker.DataLoader(mine.Slow(40, 0.005), 4, num_workers=2) as loader:
            found = []
            for batch in loader:
                for child in children():
                    os.kill(child, signal.SIGTERM)
                found += batch[0].tolist()
        assert found == list(range(40))
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("keywords", [param({"batch_size": None}), {"batch_size": 4, "collate_fn": mine.refilled}])
def test_an_array_that_is_filled_again_is_passed_on_before(keywords: dict[str, Any]) -> None:
    """The next batch is not made before the last one is in its slot."""
    loader = stoker.DataLoader(mine.Refilled(200), num_workers=1, **keywords)
    found = [float(batch[-1]) for batch in loader]
    assert found == list(map(float, range(0, 200, keywords["batch_size"] or 1)))

"""Deaths, stalls and interrupts, on both sides; nothing is left behind. STOKER_SOAK=n repeats the kills n times."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import engine, engines, gone, kill, run_python, stop, wait_until
from forms import mostly

import stoker
from stoker import _engines
from stoker import transforms as T
from stoker._lease import Work
from stoker._process import stall

CROP = T.Compose([T.RandomResizedCrop(128), T.RandomHorizontalFlip()])
SOAK = int(os.environ.get("STOKER_SOAK", "13"))  # as many as an epoch has steps


def rows(batches: Any) -> list[tuple[int, int, int]]:
    return [
        (batch.step, int(i), int(image.long().sum()))
        for batch in batches
        for i, image in zip(batch.ids, batch[0], strict=True)
    ]


def test_kill_of_the_engine_at_any_moment(folder: Path) -> None:
    """The stream goes on with the same steps, ids and bytes; batches that are held stay what they are."""
    dataset = stoker.ImageFolder(folder, CROP)
    with stoker.DataLoader(dataset, 4, True, num_workers=2) as loader:
        expected = rows(loader)
        for number in range(SOAK):
            _engines.client()._deaths.clear()  # three an hour are allowed, and this test needs more
            loader.set_epoch(0)
            got = []
            held = None
            at = number % 13
            for batch in loader:
                got += rows([batch])
                if batch.step == at:
                    held = batch
                    pid = engine()
                    kill(pid)
                    if number % 2:
                        wait_until(lambda: gone(pid), "a killed engine lives")  # noqa: B023
            assert got == expected
            assert held is not None
            assert rows([held]) == [row for row in expected if row[0] == at]
    assert engines() == []


def test_kill_between_passes_and_loaders(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    plain = stoker.ImageFolder(folder, T.CenterCrop(48))
    train, test = stoker.DataLoader(dataset, 8, True), stoker.DataLoader(plain, 8)
    expected = rows(train), rows(test)
    kill(engine())
    train.set_epoch(0)
    assert (rows(train), rows(test)) == expected
    iterators = iter(test), iter(test)
    got: tuple[list[Any], list[Any]] = ([], [])
    for step in range(7):
        if step == 3:
            kill(engine())
        for iterator, rest in zip(iterators, got, strict=True):
            rest += rows([next(iterator)])
    assert got == (expected[1], expected[1])
    kill(engine())
    assert len(train.dataset) == 50
    assert train.state_dict()["position"] == 50
    train.close()
    test.close()
    assert engines() == []


def test_a_fourth_kill_within_an_hour_is_an_error(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder, CROP), 2) as loader:
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
            kill(engine())
        next(iterator)
        kill(engine())
        with pytest.raises(stoker.EngineError, match=r"4 times.*SIGKILL") as caught:
            next(iterator)
        assert caught.value.code == "died"
        assert caught.value.hint
        with pytest.raises(stoker.EngineError, match="4 times"):
            next(iter(loader))
    assert engines() == []
    assert "restart 3 of 3" in caplog.text


def test_a_crash_suspects_the_samples_in_work(folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder, CROP), 2) as loader:
        next(iter(loader))
        client = _engines.client()
        dying = client.engine()
        digest = loader.state_dict()["dataset"]
        page: Any = dying.page
        work = Work(0, "decode", next(iter(dying.digests)), 17, 0.5)
        page.work = lambda: [work]
        kill(dying.pid, signal.SIGABRT)
        wait_until(lambda: gone(dying.pid), "the engine survived SIGABRT")
        list(loader)
        assert client._suspects[(digest, 17)] == {"loader": work.loader, "digest": digest, "sample": 17, "deaths": 1}


def test_a_sample_that_killed_two_engines_is_bad(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    with stoker.DataLoader(dataset, 10) as loader:
        digest = loader.state_dict()["dataset"]
    _engines.client()._suspects[(digest, 17)] = {"loader": 1, "digest": digest, "sample": 17, "deaths": 2}
    with stoker.DataLoader(dataset, 10, on_bad="skip") as loader:
        bad = [bad for batch in loader for bad in batch.bad]
        assert [b.sample for b in bad] == [17]
        assert isinstance(bad[0].error, stoker.DataError)
        assert "died" in str(bad[0].error)


def test_a_stopped_engine_is_a_stall(folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder, CROP), 4, timeout=0.5) as loader:
        expected = rows(loader)
        loader.set_epoch(0)
        iterator = iter(loader)
        got = rows([next(iterator)])
        pid = engine()
        stop(pid)
        with pytest.raises(stoker.StallError, match="stopped") as caught:
            next(iterator)
        assert f"kill -CONT {pid}" in str(caught.value)
        assert isinstance(caught.value, TimeoutError)
        kill(pid, signal.SIGCONT)
        got += rows(iterator)  # nothing was lost, nothing comes twice
        assert got == expected
        assert engine() == pid


def test_a_stall_advises_to_continue_only_what_is_stopped() -> None:
    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert "kill -CONT" not in str(stall("it is silent", child.pid, []))
            stop(child.pid)
            assert f"kill -CONT {child.pid}" in str(stall("it is silent", child.pid, []))
            kill(child.pid, signal.SIGCONT)
            wait_until(lambda: state(child.pid) == "S", "it did not go on")
            assert "kill -CONT" not in str(stall("it is silent", child.pid, []))
            # A tracer's process is stopped too, and a signal would not let it go on.
            libc = ctypes.CDLL(None, use_errno=True)
            libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
            if libc.ptrace(16, child.pid, None, None) == 0:  # attach; some sandboxes refuse it
                wait_until(lambda: state(child.pid) == "t", "it is not traced")
                told = str(stall("it is silent", child.pid, []))
                assert "kill -CONT" not in told
                assert f"stopped by debugger or tracer {os.getpid()}" in told
        finally:
            child.kill()
    assert "kill -CONT" not in str(stall("it is silent", child.pid, []))  # it is gone


def test_a_stall_names_stage_and_sample() -> None:
    error = stall("the engine gave no answer for 62 s", os.getpid(), [Work(3, "read", 1, 40, 61.5)])
    assert error.where == {"stage": "read", "sample": 40}
    assert "stage read at sample 40 for 61.5 s" in str(error)
    assert "all of its lanes are idle" in str(stall("the engine gave no answer for 62 s", os.getpid(), []))


def test_a_pipe_in_place_of_a_file_hangs_nothing(own_folder: Path) -> None:
    dataset = stoker.ImageFolder(own_folder, CROP)
    path = Path(dataset.samples[40][0])
    with stoker.DataLoader(dataset, 4, timeout=10, prefetch=1) as loader:
        next(iter(loader))
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(stoker.StokerError) as caught:
            list(loader)
        assert caught.value.code in ("changed", "unreadable")
        assert str(path) in str(caught.value)


def test_a_pipe_among_the_pictures_is_left_out_and_said(own_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = stoker.ImageFolder(own_folder, CROP)
    os.mkfifo(own_folder / "class0" / "0.jpg")
    with stoker.DataLoader(stoker.ImageFolder(own_folder, CROP), 10, timeout=10) as loader:
        assert sum(len(batch.ids) for batch in loader) == len(before)
    assert "1 pipe, socket or device was found" in capfd.readouterr().err


def test_a_trainer_that_pauses_raises_nothing(folder: Path) -> None:
    code = f"""
    import stoker, sys
    from stoker import transforms as T
    data = stoker.ImageFolder({str(folder)!r}, T.RandomResizedCrop(64))
    loader = stoker.DataLoader(data, 4, timeout=0.3, output="numpy")
    rows = 0
    for batch in loader:
        rows += len(batch.ids)
        print(rows, flush=True)
        sys.stdin.readline()
    print("done", rows, flush=True)
    """
    trainer = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert trainer.stdin
    assert trainer.stdout
    try:
        for _ in range(3):
            trainer.stdout.readline()
            kill(trainer.pid, signal.SIGSTOP)
            time.sleep(1.0)  # longer than its deadline
            kill(trainer.pid, signal.SIGCONT)
            trainer.stdin.write("\n")
            trainer.stdin.flush()
        out, _ = trainer.communicate("\n" * 20, timeout=60)
        assert "done 50" in out
    finally:
        trainer.kill()
        trainer.wait()


TRAINER = """
import os, signal, sys, time
import stoker
from stoker import transforms as T
data = stoker.ImageFolder({folder!r}, T.RandomResizedCrop(64))
loader = stoker.DataLoader(data, 4, num_workers=2, output="numpy")
def forever():
    while True:
        yield from loader
"""


def start(folder: Path, body: str) -> subprocess.Popen[str]:
    code = TRAINER.format(folder=str(folder)) + textwrap.dedent(body)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("forked", mostly([False, True], True))
def test_kill_of_the_trainer_leaves_no_engine(folder: Path, forked: bool) -> None:
    body = """
    for step, batch in enumerate(forever()):
        if step == 5:
            child = os.fork() if {forked} else 1
            if child == 0:
                time.sleep(600)
            print(child, flush=True)
    """
    for _ in range(max(2, SOAK // 10)):
        trainer = start(folder, body.format(forked=forked))
        assert trainer.stdout
        child = int(trainer.stdout.readline())
        pid = None
        try:
            (pid,) = engines(trainer.pid)
            trainer.kill()
            trainer.wait()
            wait_until(lambda: gone(pid), "the engine outlives its trainer")  # noqa: B023
        finally:
            trainer.kill()
            trainer.wait()
            if child > 1:
                kill(child)
            trainer.stdout.close()
            if trainer.stderr:
                trainer.stderr.close()


# What follows this in a script cannot call pidfd_open (434 on every architecture), as before Linux 5.3 and in
# some sandboxes: a filter that answers EPERM, passed on to children.
REFUSED = """
import ctypes, os, struct, threading
program = b"".join(
    struct.pack("HBBI", *step)
    for step in [(0x20, 0, 0, 0), (0x15, 0, 1, 434), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
)
buffer = ctypes.create_string_buffer(program)
filter = struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(filter), 0, 0) == 0, ctypes.get_errno()
try:
    os.pidfd_open(os.getpid())
    raise SystemExit("pidfd_open was not refused")
except PermissionError:
    pass
"""


def test_kill_of_the_trainer_where_processes_cannot_be_watched(folder: Path) -> None:
    """A thread starts the engine, so the kernel does not end it; a child that was forked in C keeps its socket open."""
    code = (
        REFUSED
        + f"""
import stoker
def begin():
    global iterator
    iterator = iter(stoker.DataLoader(stoker.ImageFolder({str(folder)!r}), None, output="numpy"))
    next(iterator)
thread = threading.Thread(target=begin)
thread.start()
thread.join()
child = libc.fork()  # as a library does, of which Python does not know
if child == 0:
    libc.sleep(600)
print(child, flush=True)
libc.sleep(600)
"""
    )
    trainer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert trainer.stdout
    assert trainer.stderr
    child = 0
    try:
        child = int(trainer.stdout.readline() or trainer.stderr.read())
        (pid,) = engines(trainer.pid)
        trainer.kill()
        trainer.wait()
        wait_until(lambda: gone(pid), "the engine outlives its trainer")
    finally:
        trainer.kill()
        trainer.wait()
        if child > 1:
            kill(child)
        trainer.stdout.close()
        trainer.stderr.close()


def test_kill_of_the_trainer_of_a_stopped_engine(folder: Path) -> None:
    """A process that is stopped reads no socket: the kernel ends it with the thread that started it."""
    trainer = start(folder, "next(forever()); print(1, flush=True); time.sleep(600)")
    assert trainer.stdout
    assert trainer.stderr
    pid = None
    try:
        assert trainer.stdout.readline() == "1\n"
        (pid,) = engines(trainer.pid)
        stop(pid)
        trainer.kill()
        trainer.wait()
        wait_until(lambda: gone(pid), "a stopped engine outlives its trainer")
    finally:
        trainer.kill()
        trainer.wait()
        if pid is not None and not gone(pid):
            kill(pid)
        trainer.stdout.close()
        trainer.stderr.close()


def test_the_engine_outlives_the_thread_that_started_it(folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder, CROP), 4) as loader:
        expected = rows(loader)
    got: list[Any] = []
    begun: list[Any] = []

    def begin() -> None:
        loader = stoker.DataLoader(stoker.ImageFolder(folder, CROP), 4)
        iterator = iter(loader)
        got.extend(rows([next(iterator)]))
        begun.extend([loader, iterator, engine()])

    assert not engines()
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    loader, iterator, pid = begun
    with loader:
        time.sleep(0.3)  # the kernel tells children of the end of a thread at once
        assert engine() == pid
        got += rows(iterator)
        assert got == expected
        assert engine() == pid


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_to_all_end_the_trainer_first(folder: Path, number: int) -> None:
    """Schedulers signal every process: the engine waits for its trainer, which may be saving."""
    with stoker.DataLoader(stoker.ImageFolder(folder, CROP), 4) as loader:
        iterator = iter(loader)
        next(iterator)
        pid = engine()
        kill(pid, number)
        assert len(list(iterator)) == 12
        assert engine() == pid


def test_ctrl_c_ends_a_script_at_once(folder: Path) -> None:
    trainer = start(
        folder,
        """
        for step, batch in enumerate(forever()):
            if step == 3:
                print("ready", flush=True)
        """,
    )
    assert trainer.stdout
    assert trainer.stderr
    try:
        trainer.stdout.readline()
        (pid,) = engines(trainer.pid)
        kill(trainer.pid, signal.SIGINT)
        _, errors = trainer.communicate(timeout=60)
    finally:
        trainer.kill()
    assert "KeyboardInterrupt" in errors
    assert trainer.returncode == -signal.SIGINT
    assert gone(pid)


INTERRUPTED = """
import os, signal, threading
import stoker

with stoker.DataLoader(stoker.Synthetic(1 << 20, (300, 300, 3)), 1, num_workers=1, output="numpy") as loader:
    iterator = iter(loader)
    for number in range(NUMBER):
        timer = threading.Timer(0.002 + number % 23 * 0.0001, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            timer.start()
            for _ in range(50_000):
                next(iterator)
            print("lost", number)
            break
        except KeyboardInterrupt:
            timer.join()
    else:
        print("none lost")
"""


@pytest.mark.parametrize("number", mostly([150, 600], 150))
def test_no_ctrl_c_is_lost(number: int) -> None:
    """An interrupt that falls on a finaliser in Python would be reported as ignored, and the loop would run on. It runs
    in a process of its own, because other tests leave objects with such finalisers."""
    done = run_python(INTERRUPTED.replace("NUMBER", str(number)))
    assert done.stdout == "none lost\n", done.stdout + done.stderr


def test_ctrl_c_while_waiting_leaves_the_loader_whole(folder: Path) -> None:
    """As in a notebook: the cell is interrupted, and the next one goes on with the same iterator."""
    with stoker.DataLoader(stoker.ImageFolder(folder, CROP), 4, True, timeout=30) as loader:
        expected = rows(loader)
        loader.set_epoch(0)
        iterator = iter(loader)
        got: list[Any] = []
        pid = engine()
        for _ in range(12):
            stop(pid)
            timer = threading.Timer(0.1, lambda: kill(os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):
                timer.start()
                next(iterator)
            kill(pid, signal.SIGCONT)
            timer.join()
            got += rows([next(iterator)])
        got += rows(iterator)
        assert got == expected
        assert engine() == pid
        wait_until(lambda: loader.stats()["leased"] == 0, "an interrupted batch keeps its slot")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_ctrl_c_at_any_moment(folder: Path) -> None:
    """Interrupts wherever they fall: what is delivered is in the order of the plan, with its bytes."""
    armed = threading.Event()
    over = threading.Event()
    interrupts = 0

    def interrupt(*_: Any) -> None:
        nonlocal interrupts
        if armed.is_set():
            armed.clear()
            interrupts += 1
            raise KeyboardInterrupt

    def pester() -> None:
        delay = 0.0002
        while not over.is_set():
            time.sleep(delay)
            # Up to what an engine needs to start on a busy machine: interrupted while it
            # starts every time, none would ever run.
            delay = delay * 1.37 if delay < 0.2 else 0.0002
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, interrupt)
    thread = threading.Thread(target=pester)
    try:
        with stoker.DataLoader(stoker.ImageFolder(folder, T.RandomResizedCrop(16)), 2, True, timeout=30) as loader:
            expected = rows(loader)
            thread.start()
            for _ in range(10):
                loader.set_epoch(0)
                iterator = iter(loader)
                got: list[Any] = []
                while True:
                    try:
                        armed.set()
                        batch = next(iterator)
                        armed.clear()
                    except KeyboardInterrupt:
                        continue
                    except StopIteration:
                        break
                    finally:
                        armed.clear()
                    got += rows([batch])
                # Only a batch that next() was about to return can be lost: then it was handed out, to nobody.
                assert [row for row in expected if row in set(got)] == got
                assert len(got) > len(expected) // 2
            over.set()
            thread.join()
            del batch
            wait_until(lambda: loader.stats()["leased"] == 0, "an interrupted batch keeps its slot")
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    assert interrupts


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def mappings(pid: int | str = "self") -> int:
    return len(Path(f"/proc/{pid}/maps").read_text().splitlines())


@pytest.mark.parametrize("number", mostly([100, 200], 100))
def test_no_leak_of_many_loaders(folder: Path, number: int) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    keeper = stoker.DataLoader(dataset, 4)
    list(keeper)
    pid = engine()

    def use(i: int) -> None:
        loader = stoker.DataLoader(dataset, 4, bool(i % 2), num_workers=2)
        iterator = iter(loader)
        next(iterator)
        if i % 3:
            loader.close()

    for i in range(20):
        use(i)
    before = descriptors(), len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))
    maps = mappings(), mappings(pid)
    for i in range(number):
        use(i)
    list(keeper)
    wait_until(lambda: keeper.stats()["leased"] == 0, "slots are held")
    assert engine() == pid
    after = descriptors(), len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))
    assert all(b <= a + 8 for a, b in zip(before[:2], after[:2], strict=True)), (before, after)
    # Go keeps a thread of the system for each call into C or the kernel that was once in progress with others: a few
    # more on a busy machine. A leak would be one for each of them.
    assert after[2] <= before[2] + 40, (before, after)
    assert mappings() <= maps[0] + 20
    assert mappings(pid) <= maps[1] + 60
    keeper.close()
    assert engines() == []


def test_no_leak_of_200_engines_in_turn(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder, T.CenterCrop(16))
    with stoker.DataLoader(dataset, 4) as loader:
        next(iter(loader))
    before = descriptors(), threading.active_count()
    for _ in range(max(20, SOAK)):
        with stoker.DataLoader(dataset, 4) as loader:
            next(iter(loader))
        assert engines() == []
    assert descriptors() <= before[0]
    assert threading.active_count() <= before[1]


@pytest.mark.parametrize("more", mostly(["", ", loader.dataset[3]"], ""))  # a sample imports torch
def test_the_interpreter_ends_quietly(folder: Path, more: str) -> None:
    code = TRAINER.format(folder=str(folder)) + textwrap.dedent(
        f"""
        iterator = iter(loader)
        held = next(iterator){more}
        other = stoker.DataLoader(loader.dataset, 2, output="numpy")
        next(iter(other))
        import stoker._client as c
        print(c.client().engine().pid)
        """
    )
    done = run_python(code)
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if not line.startswith("stoker: native")] == []
    assert gone(int(done.stdout))


def test_an_engine_of_another_version_is_refused(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "stoker"
    fake.write_text(
        f"#!{sys.executable}\n"
        "import json, socket, struct, sys\n"
        "s = socket.socket(fileno=int(sys.argv[3]))\n"
        "n, = struct.unpack('<I', s.recv(4)); s.recv(n)\n"
        "b = json.dumps({'type': 'hello', 'req': 1, 'protocol': 9, 'version': '9.9.9'}).encode()\n"
        "s.sendall(struct.pack('<I', len(b)) + b)\n"
        "s.recv(1)\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("STOKER_ENGINE", str(fake))
    with pytest.raises(stoker.EngineError, match=r"9\.9\.9") as caught:
        len(stoker.ImageFolder(folder))
    assert caught.value.code == "incompatible"
    fake.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(stoker.EngineError, match="exit status 3"):
        len(stoker.ImageFolder(folder))
    monkeypatch.setenv("STOKER_ENGINE", str(tmp_path / "none"))
    with pytest.raises(stoker.EngineError, match="no engine") as caught:
        len(stoker.ImageFolder(folder))
    assert "STOKER_ENGINE" in str(caught.value.hint)
    assert engines() == []

"""What ends an engine, or keeps one from starting, is one loader's matter: numbers, crashes, kills before the hello.

STOKER_SOAK=n repeats the kills n times.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import engine, engines, kill
from forms import ALL

import stoker
from stoker import _client, _engines, _process
from stoker import transforms as T

CROP = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip()])
SOAK = int(os.environ.get("STOKER_SOAK", "0"))
FAR = 1 << 63


def rows(batches: Any) -> list[tuple[int, int, int]]:
    return [
        (batch.epoch, int(i), int(image.long().sum()))
        for batch in batches
        for i, image in zip(batch.ids, batch[0], strict=True)
    ]


# Numbers.


@pytest.mark.parametrize("epoch", [FAR, FAR + 1, 1 << 64, 1 << 200, -1])
def test_an_epoch_that_is_too_large_is_an_error_and_nothing_else(folder: Path, epoch: int) -> None:
    dataset = stoker.ImageFolder(folder, CROP)
    with stoker.DataLoader(dataset, 10, True) as loader:
        expected = rows(loader)
        pid = engine()
        for decide in (loader.set_epoch, loader.sampler.set_epoch, stoker.RandomSampler(dataset).set_epoch):
            with pytest.raises(stoker.ConfigError, match=r"epochs are integers from 0 to 2\*\*63 - 1"):
                decide(epoch)
        state = loader.state_dict()
        for key in ("epoch", "position"):
            with pytest.raises(stoker.StateError, match="its epoch is"):
                loader.load_state_dict({**state, key: epoch})
        loader.set_epoch(0)
        assert rows(loader) == expected
        assert engine() == pid


def test_the_last_epoch_there_is(folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder, CROP), 10, True) as loader:
        loader.set_epoch(FAR - 1)
        assert len({i for _, i, _ in rows(loader)}) == 50
        pid = engine()
        with pytest.raises(stoker.ConfigError, match="is out of range"):
            iter(loader)
        loader.set_epoch(0)
        assert len(rows(loader)) == 50
        assert engine() == pid


def test_what_the_client_lets_through_the_engine_answers(folder: Path) -> None:
    """As by a client that checks nothing."""
    with stoker.DataLoader(stoker.ImageFolder(folder, CROP), 10, True) as loader:
        expected = rows(loader)
        remote: Any = loader._remote
        pid = engine()
        for bad in (FAR, 1 << 64, 1.5, "x", [1], {"a": 1}):
            with pytest.raises(stoker.ConfigError, match=r"epoch is .*: it must be a whole number"):
                remote.call(lambda e, n, bad=bad: e.request({"type": "pass", "loader": n, "epoch": bad}, 10.0))
        with pytest.raises(stoker.StateError, match="neither can be negative"):
            remote.call(lambda e, n: e.request({"type": "pass", "loader": n, "epoch": -1}, 10.0))
        loader.set_epoch(0)
        assert rows(loader) == expected
        assert engine() == pid


def test_a_value_of_the_wrong_type_is_named(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("path,label\n" + "".join(f"{p},{i % 2}\n" for i, p in enumerate(sorted(folder.rglob("*.jpg")))))
    wrong: tuple[tuple[Any, str], ...] = (
        (["a"], r'^label is \["a"\]: it must be text$'),
        ({"a": 1}, r'^label is {"a":1}: it must be text$'),
        (3.5, r"^label is 3.5: it must be text$"),
        (object(), r"(?s)^label is <object object at .*>, of type object\n.*settings are numbers, strings"),
        (float("nan"), r"(?s)^label is nan\n.*give a finite number"),
    )
    for label, given in wrong:
        spec = {"dataset": {"manifest": str(table), "path_column": "path", "label": label}, "workers": 1}
        with pytest.raises(stoker.ConfigError, match=given) as caught:
            _client.Loader(spec, keeps=False).info()
        assert "json" not in str(caught.value)
        assert "Go " not in str(caught.value)
        with pytest.raises(stoker.ConfigError, match=r"Table: label is .*\n.*give a name, as a string"):
            stoker.Table(table, path="path", label=label)
    with pytest.raises(stoker.ConfigError, match=r"seed is -1"):
        stoker.DataLoader(stoker.ImageFolder(folder), seed=-1)


# Crashes.


class Deadly:
    """Aborts the engine at requests of one loader, as a fault of the engine's would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loader: Any = None
        self.kind = "pass"
        self.crashes = 0
        plain = _process.Engine.request
        deadly = self

        def request(self: Any, message: Any, *more: Any) -> Any:
            remote = deadly.loader._remote if deadly.loader is not None else None
            if remote is not None and message["type"] == deadly.kind and deadly.is_its(self, remote, message):
                deadly.crashes += 1
                asked, send = threading.Event(), self._send

                def kept(frame: Any, *rest: Any) -> None:
                    if all(frame.get(key) is message[key] for key in message):  # not the same of another loader
                        asked.set()  # a dying engine may still answer what it gets, and its loader would be innocent
                    else:
                        send(frame, *rest)

                self._send = kept
                threading.Thread(target=deadly.abort, args=(self.pid, asked)).start()
            return plain(self, message, *more)

        monkeypatch.setattr(_process.Engine, "request", request)

    @staticmethod
    def abort(pid: int, asked: threading.Event) -> None:
        asked.wait(60)  # a request that was never made cannot have been the cause
        os.kill(pid, signal.SIGABRT)

    @staticmethod
    def is_its(of: Any, remote: Any, message: Any) -> bool:
        if "spec" in message:
            return message["spec"] is remote.spec
        return bool(remote._at.engine is of and message.get("loader") == remote.number)


@pytest.mark.parametrize("kind", ["pass", "open"])
def test_a_loader_that_crashes_the_engine_is_refused_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    deadly = Deadly(monkeypatch)
    dataset = stoker.ImageFolder(folder, CROP)
    with stoker.DataLoader(dataset, 4) as good, stoker.DataLoader(dataset, 4, True) as bad:
        expected = rows(good)
        rows(bad)
        good.set_epoch(0)
        iterator = iter(good)
        got = rows([next(iterator)])
        deadly.kind = kind
        if kind == "open":
            bad.close()
        deadly.loader = bad
        for _ in range(6):
            with pytest.raises(stoker.EngineError, match=r"died 2 times during requests of this.*refused") as caught:
                next(iter(bad))
            assert caught.value.code == "died"
            got += rows([next(iterator)])
        assert deadly.crashes == 2
        got += rows(iterator)
        assert got == expected
        for _ in range(3):  # the restarts that everybody has are all there still
            kill(engine())
            good.set_epoch(0)
            assert rows(good) == expected
        with stoker.DataLoader(dataset, 4, True) as other:
            assert len(rows(other)) == 50
    assert engines() == []


def test_who_was_only_there_is_not_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several loaders in threads are in flight at every crash; the one whose requests they are is found."""
    deadly = Deadly(monkeypatch)
    dataset = stoker.ImageFolder(folder, CROP)
    loaders = [stoker.DataLoader(dataset, 4, True, seed=n) for n in range(4)]
    expected = [rows(loader) for loader in loaders]
    deadly.loader, deadly.kind = loaders[2], "pass"
    failed: dict[int, Exception] = {}
    got: dict[int, Any] = {}

    def use(n: int) -> None:
        try:
            for _ in range(3):
                loaders[n].set_epoch(0)
                got[n] = rows(loaders[n])
        except stoker.EngineError as error:
            failed[n] = error

    threads = [threading.Thread(target=use, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert list(failed) == [2], failed
    assert "requests of this loader" in str(failed[2])
    assert {n: got[n] for n in (0, 1, 3)} == {n: expected[n] for n in (0, 1, 3)}
    for loader in loaders:
        loader.close()


# Kills before the hello.


class Killing:
    """Real kills of engines that have just been started, so many of them one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.delays: list[float] = []
        self.killed = 0
        killing = self

        plain: Any = subprocess.Popen

        class Popen(plain):  # type: ignore[misc]
            def __init__(self, *args: Any, **keywords: Any) -> None:
                super().__init__(*args, **keywords)
                if not killing.delays:
                    return
                delay = killing.delays.pop()
                if delay:
                    threading.Thread(target=killing.kill, args=(self, delay)).start()
                else:  # before the client says anything: a thread might come too late
                    killing.kill(self, delay)

        monkeypatch.setattr(subprocess, "Popen", Popen)

    def kill(self, process: Any, delay: float) -> None:
        time.sleep(delay)
        process.kill()
        self.killed += 1


def test_a_kill_before_the_hello_is_survived(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One to three kills, from at once to after the hello: nothing is raised, and the stream is the same."""
    dataset = stoker.ImageFolder(folder, CROP)
    with stoker.DataLoader(dataset, 10, True) as loader:
        expected = rows(loader)
    killing = Killing(monkeypatch)
    chance = random.Random(7)
    times = SOAK or (30 if ALL else 12)  # each number of kills with each kind of delay
    for number in range(times):
        _engines.client()._deaths.clear()
        count = 1 + number % 3
        killing.delays = [0.0 if number % 4 == 0 else chance.uniform(0, 0.03) for _ in range(count)]
        with stoker.DataLoader(dataset, 10, True) as loader:
            assert rows(loader) == expected
        killing.delays.clear()
    assert killing.killed >= times
    assert engines() == []


def test_a_kill_before_the_hello_of_a_restart_is_survived(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder, CROP), 10, True) as loader:
        expected = rows(loader)
        loader.set_epoch(0)
        iterator = iter(loader)
        got = rows([next(iterator)])
        killing = Killing(monkeypatch)
        killing.delays = [0.0, 0.0]
        kill(engine())
        assert got + rows(iterator) == expected
        assert killing.killed == 2


def test_a_fourth_kill_before_the_hello_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killing = Killing(monkeypatch)
    killing.delays = [0.0] * 9
    with pytest.raises(stoker.EngineError, match="died 4 times within an hour, the last time by signal 9, SIGKILL"):
        len(stoker.ImageFolder(folder))
    assert len(killing.delays) == 5
    assert engines() == []

"""Workers, engines and trainers are killed at random instants: the stream is that of a run in peace, nothing is left
over, and nobody writes to a slot that was taken from him (the engine poisons slots, and ends if one changes).

STOKER_KILLS=n kills n workers, n / 4 engines and n / 4 trainers; `make test-kills-python` has 200.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import mine
import pytest
from conftest import engine, engines, gone, wait_until
from forms import long, mostly
from test_python_workers import children, descendants, zombies

import stoker
from stoker import _engines

KILLS = int(os.environ.get("STOKER_KILLS", "12"))
UNITS = {"rows": None, "whole": mine.woven}
HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _poison(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_POISON", "1")


def make(unit: str, **keywords: Any) -> Any:
    return stoker.DataLoader(
        mine.Woven(), 4, shuffle=True, seed=5, collate_fn=UNITS[unit], on_bad="fail", **{"num_workers": 3, **keywords}
    )


def told(batch: Any) -> str:
    """Everything that is in a batch."""
    found = hashlib.blake2b(digest_size=12)
    for name in ("noise", "drawn", "i"):
        found.update(batch[name].numpy().tobytes())
    found.update(json.dumps([*batch["text"], batch.ids.tolist(), batch.epoch, batch.step]).encode())
    return found.hexdigest()


class Peace:
    """What runs without any death give, by unit and epoch."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], tuple[list[str], Any]] = {}

    def __call__(self, unit: str, epoch: int) -> tuple[list[str], Any]:
        if (unit, epoch) not in self._found:
            with make(unit, num_workers=0) as loader:
                loader.set_epoch(epoch)
                self._found[unit, epoch] = [told(batch) for batch in loader], loader.receipt()
        return self._found[unit, epoch]


@pytest.fixture(scope="module")
def peace() -> Peace:
    return Peace()


class Held:
    """The loop keeps some batches, which must not change."""

    def __init__(self) -> None:
        self._held: deque[tuple[Any, str]] = deque()

    def take(self, batch: Any) -> str:
        text = told(batch)
        self._held.append((batch, text))
        if len(self._held) > 3:
            self.check(self._held.popleft())
        return text

    @staticmethod
    def check(one: tuple[Any, str]) -> None:
        assert told(one[0]) == one[1], "a batch changed after it was delivered"

    def end(self) -> None:
        while self._held:
            self.check(self._held.popleft())


def left_over() -> int:
    """How much this process has open and mapped of loaders."""
    gc.collect()
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.append(os.readlink(entry))
        except OSError:
            continue
    found += [
        line.split(maxsplit=5)[5] for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:" in line
    ]
    return sum("memfd:stoker" in name and "stats" not in name for name in found)


def shared_files(pids: set[int]) -> list[str]:
    """What these processes have left in /dev/shm."""
    return [name for name in os.listdir("/dev/shm") if any(f"_{pid}_" in name for pid in pids)]


@pytest.mark.parametrize("unit", mostly(UNITS, "rows"))
def test_workers_are_killed_at_any_instant(unit: str, peace: Peace) -> None:
    dice = random.Random(f"workers {unit}")
    pids, memory, killed, epoch = {os.getpid()}, left_over(), 0, 0
    loader = make(unit)
    while killed < KILLS // 2:
        loader.set_epoch(epoch)
        expected, receipt = peace(unit, epoch)
        held, found = Held(), []
        # A sample that is in work at two deaths is bad: those that one has interrupted are delivered before the next.
        wait = dice.randrange(1, 4)
        for batch in loader:
            found.append(held.take(batch))
            del batch
            wait -= 1
            if wait <= 0 and len(found) < len(expected) and (alive := children()):
                pids.update(alive)
                time.sleep(dice.random() * 0.004)
                try:
                    os.kill(dice.choice(alive), 9)
                    killed += 1
                except ProcessLookupError:
                    pass
                wait = 8 + dice.randrange(3)
        assert found == expected
        held.end()
        assert loader.receipt()["parts"][-1:] == receipt["parts"]
        epoch += 1
    loader.close()
    del loader, held
    assert children() == []
    assert zombies() == []
    wait_until(lambda: left_over() <= memory, "memory of slots is left")
    assert shared_files(pids) == []
    assert engines() == []


@pytest.mark.parametrize("unit", mostly(UNITS, "rows"))
def test_engines_are_killed_at_any_instant(unit: str, peace: Peace) -> None:
    dice = random.Random(f"engines {unit}")
    pids, memory, killed, epoch = {os.getpid()}, left_over(), 0, 0
    loader = make(unit)
    while killed < max(2, KILLS // 8):
        loader.set_epoch(epoch)
        expected, receipt = peace(unit, epoch)
        held, found = Held(), []
        at = dice.randrange(len(expected) - 1)
        for number, batch in enumerate(loader):
            found.append(held.take(batch))
            del batch
            if number == at:
                _engines.client()._deaths.clear()  # three an hour are allowed
                before = children()
                pids.update(before)
                pid = engine()
                time.sleep(dice.random() * 0.02)
                os.kill(pid, 9)
                killed += 1
                if dice.random() < 0.5:
                    wait_until(lambda: gone(pid), "a killed engine lives")  # noqa: B023
                    wait_until(lambda: not set(before) & set(children()), "workers of a dead engine")  # noqa: B023
        assert found == expected
        held.end()
        assert loader.receipt()["parts"][-1:] == receipt["parts"]
        epoch += 1
    loader.close()
    del loader, held
    assert children() == []
    assert zombies() == []
    wait_until(lambda: left_over() <= memory, "memory of slots is left")
    assert shared_files(pids) == []
    assert engines() == []


TRAINER = """
import json, os, sys
import test_python_kills as t
unit, epoch, state, method = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
if __name__ == "__main__":
    loader = t.make(unit, multiprocessing_context=method)
    if os.path.exists(state):
        loader.load_state_dict(json.load(open(state)))
    else:
        loader.set_epoch(epoch)
    for batch in loader:
        print(batch.step, t.told(batch), flush=True)
        with open(state + ".new", "w") as file:
            json.dump(loader.state_dict(), file)
        os.replace(state + ".new", state)
    print("end", flush=True)
"""


@long  # tests/test_swap.py kills a trainer of rows, frameworks/ those of others
@pytest.mark.parametrize("unit", UNITS)
def test_trainers_are_killed_at_any_instant(unit: str, peace: Peace, tmp_path: Path) -> None:
    """A trainer saves its state after each batch. Whoever goes on repeats the batch that was being saved, at most."""
    dice = random.Random(f"trainers {unit}")
    pids, killed, epoch = {os.getpid()}, 0, 0
    wanted = max(1, KILLS // 8)
    script = tmp_path / "trainer.py"
    script.write_text(TRAINER)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(stoker.__file__).parents[1]), str(HERE)])}
    while killed < wanted:
        state, ended = tmp_path / f"state {killed}", False
        found: dict[int, str] = {}
        while not ended:
            method = dice.choice(["fork", "fork", "spawn"]) if KILLS > 100 else "fork"
            process = subprocess.Popen(
                [sys.executable, str(script), unit, str(epoch), str(state), method],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            assert process.stdout is not None
            end = dice.randrange(2, 12)
            family: list[int] = []
            for number, line in enumerate(process.stdout):
                if line == "end\n":
                    ended = True
                    break
                step, text = line.split()
                assert found.setdefault(int(step), text) == text
                if number == end:
                    family = descendants(process.pid)
                    pids.update(family, [process.pid])
                    time.sleep(dice.random() * 0.01)
                    process.kill()
                    killed += 1
            process.wait()
            process.stdout.close()
            wait_until(lambda: all(map(gone, family)), "something outlives the trainer")  # noqa: B023
        expected, _ = peace(unit, epoch)
        assert [found[step] for step in sorted(found)] == expected
        epoch += 1
    assert shared_files(pids) == []

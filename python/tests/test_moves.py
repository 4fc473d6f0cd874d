"""How the doctor's hook watches batches go to a device, held to a device that is none: a clock of its own, and one
under real scripts."""

from __future__ import annotations

import importlib
import shutil
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import TOP
from hooked import HOOK, Scripts


class Event:
    """Of the device: at its time."""

    def __init__(self, device: Device, at: float) -> None:
        self.device, self.at = device, at

    def query(self) -> bool:
        if self.device.broken:
            raise RuntimeError("not while this goes on")
        assert not self.device.capturing
        return self.device.now >= self.at

    def elapsed_time(self, end: Event) -> float:
        return 1e3 * (end.at - self.at)


class Device:
    """Stands for the module torch: a clock, and tensors whose copies take as long as they say."""

    def __init__(self) -> None:
        self.now = 0.0
        self.free = 0.0  # when the device has done what it was told
        self.broken = self.capturing = False
        self.waits = 0
        device = self

        class Base:
            def __init__(self, seconds: float, pinned: bool = False, kind: str = "cpu") -> None:
                self.seconds, self.pinned = seconds, pinned
                self.device = types.SimpleNamespace(type=kind)

            def is_pinned(self) -> bool:
                return self.pinned

            def to(self, target: Any = None, non_blocking: bool = False, **_: Any) -> Any:
                device.free = max(device.free, device.now) + self.seconds
                if not self.pinned:
                    device.now = device.free
                return type(self)(self.seconds, kind=str(target))

            def cuda(self) -> Any:
                return type(self).to(self, "cuda")  # by its name, as torch may

        self.Tensor = type("Tensor", (Base,), {})
        stream = types.SimpleNamespace(record_event=self.record, synchronize=self.wait)
        self.cuda = types.SimpleNamespace(
            is_current_stream_capturing=lambda: self.capturing,
            current_stream=lambda number=None: stream,
            Event=lambda enable_timing: None,
        )

    def record(self, event: Any) -> Event:
        if self.broken:
            raise RuntimeError("not while this goes on")
        return Event(self, max(self.free, self.now))

    def wait(self) -> None:
        self.waits += 1


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Device, Any]]:
    found = Device()
    monkeypatch.setitem(sys.modules, "torch", found)
    monkeypatch.syspath_prepend(str(HOOK))
    moves: Any = importlib.import_module("stoker_watch_moves")
    monkeypatch.setattr(moves.look, "leaves", lambda data: list(enumerate(data)))
    yield found, moves
    moves.end()
    assert found.waits == 0


def move(device: Device, moves: Any, own: Any, batch: list[Any], steps: int = 64) -> None:
    for _ in range(steps):
        moves.watch(own, batch)
        for tensor in batch:
            copy = tensor.to("cuda:0", non_blocking=tensor.pinned)
            assert copy.device.type == "cuda:0"
        batch[0].to("cpu")  # no move to a device
        device.free = max(device.free, device.now) + 1.0  # the step: a second of work
        moves.end()
        assert "to" not in vars(device.Tensor)
    own.settle(device)


def test_copies_of_pageable_memory_are_timed_without_the_work_before_them(device: tuple[Device, Any]) -> None:
    torch, moves = device
    own = moves.Moves()
    move(torch, moves, own, [torch.Tensor(0.25), torch.Tensor(0.5)])
    told = own.report()
    assert told["non_blocking"] == {"true": 0, "false": 128}
    assert told["pageable"] == {"batches": 15, "seconds": pytest.approx(15 * 0.75)}


def test_copies_of_pinned_memory_are_not_timed(device: tuple[Device, Any]) -> None:
    torch, moves = device
    own = moves.Moves()
    move(torch, moves, own, [torch.Tensor(0.25, pinned=True)])
    assert own.report() == {"non_blocking": {"true": 64, "false": 0}, "pageable": None}


def test_a_move_that_calls_another_counts_once(device: tuple[Device, Any]) -> None:
    torch, moves = device
    own, batch = moves.Moves(), [torch.Tensor(0.25)]
    for _ in range(8):
        moves.watch(own, batch)
        batch[0].cuda()
        moves.end()
    own.settle(torch)
    assert own.report() == {
        "non_blocking": {"true": 0, "false": 8},
        "pageable": {"batches": 1, "seconds": pytest.approx(0.25)},
    }


@pytest.mark.parametrize("how", ["broken", "capturing"])
def test_a_device_that_must_not_be_asked_is_not(device: tuple[Device, Any], how: str) -> None:
    torch, moves = device
    setattr(torch, how, True)
    own = moves.Moves()
    move(torch, moves, own, [torch.Tensor(0.25)])
    assert own.report() == {"non_blocking": {"true": 0, "false": 64}, "pageable": None}


# Under real scripts, with torch and a device that only sleeps.

MOVED = """
    import time
    import torch
    import simulated_cuda
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __init__(self, **held):
            self.__dict__.update(held)
        def __len__(self):
            return 320
        def __getitem__(self, i):
            return torch.full((3, 64, 64), float(i)), i

    class Pageable(Numbers): pass
    class Blocks(Numbers): pass
    class Pinned(Numbers): pass
    class Holding(Numbers): pass
    class Inside(Numbers): pass

    def loop(dataset, pin, non_blocking, workers=1):
        for x, y in DataLoader(dataset, 8, num_workers=workers, pin_memory=pin):
            x, y = x.to("cuda", non_blocking=non_blocking), y.cuda(non_blocking=non_blocking)
            time.sleep(0.002)

    loop(Pageable(), False, True)
    loop(Blocks(), True, False)
    loop(Pinned(), True, True)
    layer = torch.nn.Sequential(torch.nn.Linear(2, 2))
    there = torch.ones(3).to("cuda")
    loop(Holding(weights=there, names=["a"], here=torch.ones(2), layer=layer), False, True)
    loop(Inside(of=Holding(tables={"x": there})), False, True, workers=0)
"""


@pytest.fixture
def simulated(scripts: Scripts) -> Scripts:
    shutil.copy(TOP / "harness" / "score" / "simulated_cuda.py", scripts.folder)
    return scripts


def test_moves_of_a_script(simulated: Scripts) -> None:
    run = simulated.run(MOVED)
    assert run.code == 0, run.err
    assert [x["trouble"] for x in run.lines] == [[]] * len(run.lines)
    pageable, blocks, pinned = run.loader("Pageable"), run.loader("Blocks"), run.loader("Pinned")
    assert pageable["non_blocking"] == {"true": 78, "false": 0}  # 40 batches of two; CUDA begins with the first
    assert pinned["non_blocking"] == {"true": 80, "false": 0}
    assert blocks["non_blocking"] == {"true": 0, "false": 80}
    assert (pageable["pinned"], blocks["pinned"], pinned["pinned"]) == (False, True, True)
    assert (blocks["pageable"], pinned["pageable"]) == (None, None)
    each = 8 * 3 * 64 * 64 * 4 / 0.2e9  # a copy of the pictures, 2 ms
    assert pageable["pageable"]["batches"] in (8, 9)  # of the fifth on, every fourth
    mean = pageable["pageable"]["seconds"] / pageable["pageable"]["batches"]
    assert 0.9 * each <= mean < each + 0.02  # a sleep may end late
    assert run.loader("Holding")["on_device"] == ["weights"]
    assert [run.loader(name)["on_device"] for name in ("Pageable", "Inside")] == [[], []]  # one has no workers
    assert run.main()["cuda_before_fork"] is False


def test_a_worker_that_uses_the_device(simulated: Scripts) -> None:
    """The script dies of it, and what it dies of is known."""
    run = simulated.run("""
        import torch
        import simulated_cuda
        from torch.utils.data import DataLoader, Dataset

        class Uses(Dataset):
            def __len__(self):
                return 8
            def __getitem__(self, i):
                raise RuntimeError("Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing")

        torch.ones(1).cuda()
        for x in DataLoader(Uses(), 2, num_workers=1):
            pass
    """)
    assert run.code == 1
    assert run.main()["cuda_before_fork"] is True

"""How the doctor's hook watches batches go to a device, held to a device that is none: a clock of its own."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOOK = Path(__file__).resolve().parents[2] / "internal" / "tool" / "doctor" / "hook"


class Device:
    """Stands for the module torch: a clock, and tensors whose copies take as long as they say."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pending = 0.0  # s of work that the device was told and has not done
        self.broken = self.capturing = False
        device = self

        class Base:
            def __init__(self, seconds: float, pinned: bool = False, kind: str = "cpu") -> None:
                self.seconds, self.pinned = seconds, pinned
                self.device = types.SimpleNamespace(type=kind)

            def is_pinned(self) -> bool:
                return self.pinned

            def to(self, target: Any = None, non_blocking: bool = False, **_: Any) -> Any:
                device.now += device.pending + self.seconds
                device.pending = 0.0
                return type(self)(self.seconds, kind=str(target))

            def cuda(self) -> Any:
                return self.to("cuda")

        self.Tensor = type("Tensor", (Base,), {})
        self.cuda = types.SimpleNamespace(
            is_current_stream_capturing=lambda: self.capturing,
            current_stream=lambda: types.SimpleNamespace(synchronize=self.wait),
        )

    def wait(self) -> None:
        if self.broken:
            raise RuntimeError("not while this goes on")
        self.now, self.pending = self.now + self.pending, 0.0


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Device, Any]]:
    found = Device()
    monkeypatch.setitem(sys.modules, "torch", found)
    monkeypatch.syspath_prepend(str(HOOK))
    moves: Any = importlib.import_module("stoker_watch_moves")
    monkeypatch.setattr(moves, "perf_counter", lambda: found.now)
    monkeypatch.setattr(moves.look, "leaves", lambda data: list(enumerate(data)))
    yield found, moves
    moves.end()


def move(device: Device, moves: Any, own: Any, batch: list[Any], steps: int = 64) -> None:
    for _ in range(steps):
        moves.watch(own, batch)
        for tensor in batch:
            copy = tensor.to("cuda:0", non_blocking=tensor.pinned)
            assert copy.device.type == "cuda:0"
        batch[0].to("cpu")  # no move to a device
        device.pending += 1.0  # the step: a second of work
        moves.end()
        assert "to" not in vars(device.Tensor)


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


@pytest.mark.parametrize("how", ["broken", "capturing"])
def test_a_device_that_can_not_be_waited_for_is_not(device: tuple[Device, Any], how: str) -> None:
    torch, moves = device
    setattr(torch, how, True)
    own = moves.Moves()
    move(torch, moves, own, [torch.Tensor(0.25)])
    assert own.report() == {"non_blocking": {"true": 0, "false": 64}, "pageable": None}

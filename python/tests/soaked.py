"""Steps on devices that can be wrong, all drawn by a seed: ``python soaked.py --steps 100000``.

Loaders of every kind (kinds.py) give their batches to a device of pretend.py or pretend_jax.py, in rounds: each has a
device, one to three loops over loaders, and actions between their steps. Batches are kept, viewed, cloned and dropped;
copies, the loop and the engine are late; the engine is killed, the process forks, the device has no memory; loops
break, raise, close, resume and begin again. Returned slots are poisoned.

It holds that every byte that the device reads is that of a loader without a device, at the time when the loop asked
for it and later; that batches come in order; that at most ``device_prefetch`` batches are ahead (and what arrived with
them); that every slot, mapping and descriptor is returned; and that nothing waits for ever.

The seed is printed, and the number of a round that fails: ``--seed S --round N`` repeats it. What is drawn is the same
then; the engine's timing is not.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pretend
import pretend_jax
import pytest
import torch
from conftest import wait_until
from kinds import EPOCHS as KNOWN
from kinds import KINDS, PIECE, SEED, Data, Error, Kind, Leaf, expected, is_array, leaves, raw

import stoker
from stoker import _copies, _device, _engines, _feed, _notice, _queue, _staging, _static

HANG_SECONDS = 180  # without a step: the stacks are shown, and the process ends
LAG = 100  # operations that the device may have left to do after a step: its memory is not without end
KEPT = 12  # what one loop keeps
BUNDLE = 15  # batches that may arrive with the one that is asked for


class Wrong(AssertionError):
    """Something does not hold."""


def check(holds: Any, what: str) -> None:
    if not holds:
        raise Wrong(what)


# Devices.


class Torchs(pretend.Device):
    """CUDA, as far as torch shows it. Now and then it has no memory, or cannot compute."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(memory=1 << 25, seed=chance.randrange(1 << 30))
        self.short = 0.0  # how likely an allocation fails
        self.buffers: dict[int, Any] = {}  # static ones: CUDA keeps them until their stream has used them
        self._chance = chance

    def empty(self, size: int) -> Any:
        self._refuse()
        return super().empty(size)

    def compute(self, work: Callable[[], None]) -> None:
        self._refuse()
        super().compute(work)

    def _refuse(self) -> None:
        if self.short and self._chance.random() < self.short:
            raise pretend.Full("tried to allocate when there was nothing")

    def look(self, there: Any, known: Leaf, what: str, stream: str, static: bool) -> None:
        check(self.is_there(there) or static or not there.numel(), f"{what} is not on the device")
        check(
            (there.dtype, there.shape) == (known.array.dtype, known.array.shape),
            f"{what} is {there.dtype} of {tuple(there.shape)}",
        )
        # One with gaps may have none there.
        check(there.stride() in (known.stride, known.array.stride()), f"{what} has strides {there.stride()}")
        self.read(there, known.bytes, what, stream)


class Jaxs(pretend_jax.Device):
    """The same of JAX."""

    stream = "loop"

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.short = 0.0
        self.records = False
        self._chance = chance
        self._waiting: list[tuple[Any, bytes, str]] = []

    def put(self, arrays: Any) -> Iterator[Any]:
        for array in arrays:
            if self.short and self._chance.random() < self.short:
                raise RuntimeError("RESOURCE_EXHAUSTED: nothing was left")
            yield from super().put([array])

    def look(self, there: Any, known: Leaf, what: str, stream: str, static: bool) -> None:
        check(isinstance(there, pretend_jax.Array), f"{what} is not on the device")
        check(
            (there.dtype, there.shape) == (known.array.dtype, known.array.shape),
            f"{what} is {there.dtype} of {there.shape}",
        )
        if self._chance.random() < 0.7:  # otherwise it is dropped before it has arrived
            self._waiting.append((there, known.bytes, what))

    def advance(self, steps: int = 1) -> int:
        done = super().advance(steps)
        for one in [one for one in self._waiting if one[0].arrived]:
            self._waiting.remove(one)
            if one[0].memory.tobytes() != one[1]:
                self.mistakes.append(f"{one[2]}: bytes are wrong")
        return done


# A loop.


class Loop:
    """A loop over a loader: where it is, and what it has kept."""

    def __init__(self, round: Round, kind: Kind) -> None:
        self.round, self.kind, self.chance = round, kind, round.chance
        self.known = expected(kind, round.data)
        self.kept: list[Callable[[], Any]] = []  # each looks again at something that is kept
        self.batches: Any = None
        self.fresh = True  # whether this pass has not begun: that is when its first batch is asked for
        self.newest = True  # whether this pass is the one that the loader's state is about
        self.epoch = self.at = 0
        self.loader: Any = None
        self.made()

    # Loaders and passes.

    def made(self) -> None:
        """Makes the loader anew, and finds another way to the device."""
        kind, chance = self.kind, self.chance
        ways = ["wrapper", "prefetcher"] if kind.theirs else ["device", "device", "cpu"]
        if kind.wraps and not kind.theirs and not kind.jax:
            ways += ["wrapper", "prefetcher"]
        if kind.jax:
            ways = ["device"]
        self.way = chance.choice(ways)
        self.ahead = chance.choice([1, 2, 2, 3, 5])
        keywords: dict[str, Any] = {"seed": SEED}
        if self.way in ("device", "cpu"):
            keywords |= {"device": "cuda" if self.way == "device" else "cpu", "device_prefetch": self.ahead}
        if kind.jax:
            keywords |= {"device": "cpu", "output": "jax"}
        if kind.static:
            keywords["static_buffers"] = True
        self.loader = kind.make(self.round.data, **keywords)
        self.iterated = self.loader
        if self.way == "wrapper":
            self.iterated = stoker.PrefetchLoader(self.loader, "cuda", device_prefetch=self.ahead)

    def passed(self) -> Any:
        """A new pass."""
        if self.way == "prefetcher":
            return stoker.CUDAPrefetcher(self.loader, "cuda", device_prefetch=self.ahead)
        return iter(self.iterated)

    def begin(self) -> None:
        self.epoch, self.at, self.newest, self.fresh = self.chance.randrange(KNOWN), 0, True, True
        self.batches = None
        self.loader.set_epoch(self.epoch)
        self.batches = self.passed()

    @property
    def moves(self) -> bool:
        return self.way != "cpu"

    # Steps.

    def step(self) -> bool:
        """Takes a batch; False if there was none."""
        if self.batches is None:
            self.begin()
        device = self.round.device
        device.stream = "loop" if self.kind.static else self.chance.choice(["loop", "loop", "other"])
        self.fresh = False
        try:
            batch = next(self.batches)
        except StopIteration:
            check(self.at == len(self.known[self.epoch]), f"{self} ends after {self.at} batches")
            self.batches = None
            return False
        except stoker.ResourceError as error:
            check(device.short and self.moves, f"{self}: {error}")
            check(error.__cause__ is not None and str(error.__cause__).count("noth"), f"{self}: the cause of {error}")
            self.round.done["no memory"] += 1
            if self.chance.random() < 0.5:
                device.short = 0.0
            return False
        except stoker.DataError:
            check(self.known[self.epoch][self.at] is Error, f"{self}: an error comes at the wrong time")
            self.round.done["errors of data"] += 1
            again, self.batches = self.batches, None
            if self.chance.random() < 0.3:
                self.errs_again(again)
            return False
        self.look(batch)
        return True

    def errs_again(self, batches: Any) -> None:
        try:
            next(batches)
        except stoker.DataError:
            return
        except stoker.ResourceError:  # what is before the error
            return
        raise Wrong(f"{self}: the error came once")

    def look(self, batch: Any) -> None:
        check(self.at < len(self.known[self.epoch]), f"{self} gives a batch after the last")
        known = self.known[self.epoch][self.at]
        check(known is not Error, f"{self} gives a batch in the place of an error")
        self.at += 1
        self.many_ahead()
        found = dict(leaves(batch, getattr(self.loader, "facts", None)))
        check(found.keys() == known.keys(), f"{self} has {sorted(found.keys() ^ known.keys())}")
        there: list[tuple[Any, Leaf, str]] = []
        for path, one in found.items():
            what, leaf = f"{self}{path}", known[path]
            if not isinstance(leaf, Leaf):
                check(one == leaf, f"{what} is {one!r:.200}, not {leaf!r:.200}")
            elif path == ".ids" or (is_array(one) and not self.moves):
                self.here(one, leaf, what)
                if path != ".ids":
                    there.append((one, leaf, what))
            else:
                self.round.device.look(one, leaf, what, self.round.device.stream, self.kind.static)
                there.append((one, leaf, what))
        self.keep(batch, there)

    def here(self, one: Any, leaf: Leaf, what: str) -> None:
        """An array in the memory of the process."""
        bytes_ = raw(one) if isinstance(one, torch.Tensor) else one.tobytes()
        check(bytes_ == leaf.bytes, f"{what} is wrong on the host")
        check(one.shape == leaf.array.shape, f"{what} has shape {one.shape}")

    def many_ahead(self) -> None:
        """At most so many batches are ahead of the loop; more only if they have arrived together."""
        most = self.ahead + (BUNDLE if self.kind.bundles else 0)
        passed = getattr(self.batches, "_batches", self.batches)
        queue, ahead = getattr(passed, "_pass", passed), 0
        while queue is not None and hasattr(queue, "_ahead"):
            ahead += len(queue._ahead)
            queue = getattr(queue, "then", None)
        check(ahead <= most, f"{self}: {ahead} batches are ahead, and device_prefetch is {self.ahead}")
        self.round.most = max(self.round.most, ahead)

    def keep(self, batch: Any, there: list[tuple[Any, Leaf, str]]) -> None:
        """Keeps the batch, a part, a view or a clone of it, or nothing."""
        what = self.chance.random()
        device, stream = self.round.device, self.round.device.stream
        if what < 0.55 or not there:
            return
        if self.kind.jax:
            self.kept.append(partial(id, batch))  # the device looks by itself
            return
        if self.kind.static and what < 0.9:  # the next batch takes its place
            return
        one, leaf, name = self.chance.choice(there)
        if what < 0.7:
            self.kept.append(partial(self.all_again, there, stream))
        elif what < 0.8:
            self.kept.append(lambda: self.again(one, leaf, f"kept {name}", stream))
        elif what < 0.9 and one.ndim and len(one) > 1:
            view, part = one[1:2], Leaf(leaf.array[1:2])
            self.kept.append(lambda: self.again(view, part, f"a view of {name}", stream))
        elif self.moves:
            read = device.clone(one, stream)
            self.kept.append(lambda: read(leaf.bytes, f"a clone of {name}"))

    def all_again(self, there: list[tuple[Any, Leaf, str]], stream: str) -> None:
        for each in there:
            self.again(*each, stream)

    def again(self, one: Any, leaf: Leaf, what: str, stream: str) -> None:
        if self.moves_of(one):
            self.round.device.read(one, leaf.bytes, f"kept {what}", stream)
        else:
            self.here(one, leaf, f"kept {what}")

    def moves_of(self, one: Any) -> bool:
        return bool(isinstance(self.round.device, Torchs) and self.round.device.is_there(one))

    def forget(self, most: int = 0) -> None:
        """Looks again at what is kept, and drops all but so much of it."""
        while len(self.kept) > most:
            kept = self.kept.pop(self.chance.randrange(len(self.kept)))
            kept()

    def returned(self) -> bool:
        """Whether the engine has all slots back."""
        if self.kind.theirs:
            return True
        stats = self.loader.stats()
        return not stats["open"] or not stats["leased"]  # numbers of a closed one are those before that

    def end(self) -> None:
        self.batches = None
        self.forget()
        self.loader.close()

    def __str__(self) -> str:
        return f"{self.kind.name} by {self.way}, epoch {self.epoch}, batch {self.at}"


# What happens between steps.

Action = Callable[["Round", Loop], None]
ACTIONS: list[tuple[float, Action]] = []  # how likely after a step


def action(likely: float) -> Callable[[Action], Action]:
    def add(function: Action) -> Action:
        ACTIONS.append((likely, function))
        return function

    return add


@action(0.03)
def late(round: Round, loop: Loop) -> None:
    """The loop works: the engine and the device go on."""
    time.sleep(round.chance.choice([0.0005, 0.002, 0.005, 0.02]))


@action(0.02)
def copies(round: Round, loop: Loop) -> None:
    """From now on the device is faster or slower."""
    round.pace = round.chance.choice([1, 2, 8, 24, 80])


@action(0.01)
def stopped(round: Round, loop: Loop) -> None:
    """The engine is stopped for a while."""
    if (pid := round.engine()) is not None:
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(round.chance.choice([0.001, 0.005, 0.03]), lambda: go_on(pid))
        timer.daemon = True
        timer.start()
        round.timers.append(timer)


def go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@action(0.004)
def killed(round: Round, loop: Loop) -> None:
    """The engine is killed, with copies in flight."""
    if (pid := round.engine()) is not None:
        _engines.client()._deaths.clear()  # three an hour are allowed
        os.kill(pid, signal.SIGKILL)
        if round.chance.random() < 0.5:
            time.sleep(0.01)


@action(0.012)
def broken(round: Round, loop: Loop) -> None:
    """The loop breaks."""
    loop.batches = None


@action(0.012)
def raised(round: Round, loop: Loop) -> None:
    """The loop raises, and somebody keeps the error with its frames."""
    if loop.batches is None:
        return

    def body() -> None:
        for batch in loop.batches:
            loop.look(batch)
            raise ZeroDivisionError

    try:
        body()
    except ZeroDivisionError as error:
        round.errors.append(error)
    except (stoker.ResourceError, stoker.DataError):
        pass
    loop.batches = None
    if len(round.errors) > 3:
        round.errors.clear()


@action(0.004)
def forked(round: Round, loop: Loop) -> None:
    """The process forks. The child drops everything, or has a loader of its own."""
    own = round.chance.random() < 0.4
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        round.children.append(child)
        round.reap(wait=round.chance.random() < 0.3)
        return
    status = 1
    try:
        signal.alarm(HANG_SECONDS)
        if own:
            own_loader(round.data)
        else:
            loop.batches = None
            loop.kept.clear()
            round.errors.clear()
            gc.collect()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def own_loader(data: Data) -> None:
    """In a child."""
    kind = KINDS["arrays"]
    with kind.make(data, seed=SEED) as loader:
        loader.set_epoch(1)
        for batch, known in zip(loader, expected(kind, data)[1], strict=True):
            for path, one in leaves(batch):
                leaf = known[path]
                check(raw(one) == leaf.bytes if isinstance(leaf, Leaf) else one == leaf, f"{path} in a child")


@action(0.01)
def shortage(round: Round, loop: Loop) -> None:
    """The device has little memory, or enough again."""
    round.device.short = round.chance.choice([0.0, 0.0, 0.3, 1.0])


@action(0.004)
def closed(round: Round, loop: Loop) -> None:
    """The loader is closed in the middle of a pass."""
    loop.loader.close()
    batches, loop.batches = loop.batches, None
    if batches is not None and not loop.kind.theirs and round.chance.random() < 0.5:
        try:
            next(batches)
        except stoker.ConfigError as error:
            check("closed" in str(error), f"{loop}: {error}")
        except StopIteration:  # it was over
            pass
        else:
            raise Wrong(f"{loop}: a closed loader gives batches")


@action(0.006)
def resumed(round: Round, loop: Loop) -> None:
    """Another loader goes on where this one was, on the device or not."""
    if not loop.kind.resumes or not loop.newest or loop.batches is None:
        return
    state = json.loads(json.dumps(loop.loader.state_dict()))
    if round.chance.random() < 0.5:
        loop.batches = None
    before, loop.batches = loop.loader, None
    if round.chance.random() < 0.7:
        before.close()
    loop.made()
    loop.loader.load_state_dict(state)
    loop.batches, loop.fresh = loop.passed(), True


@action(0.006)
def skipped(round: Round, loop: Loop) -> None:
    if loop.kind.skips and loop.newest and loop.batches is not None and 0 < loop.at < len(loop.known[loop.epoch]):
        steps = round.chance.randrange(1, 4)
        loop.loader.skip(steps)
        loop.at = min(loop.at + steps, len(loop.known[loop.epoch]))


@action(0.006)
def another(round: Round, loop: Loop) -> None:
    """Another pass over the same loader, for some batches; the first one goes on."""
    if loop.kind.theirs or not loop.moves or loop.batches is None or loop.fresh:
        return
    kept = loop.batches, loop.epoch, loop.at
    if loop.kind.static:
        with suppress(StopIteration):
            try:
                next(loop.passed())
            except stoker.ConfigError as error:
                check("another pass" in str(error), f"{loop}: {error}")
            else:
                check(loop.at == len(loop.known[loop.epoch]), f"{loop}: two passes use the buffers")
                loop.batches = None
        return
    loop.begin()
    for _ in range(round.chance.randrange(4)):
        if not loop.step():
            break
    loop.batches, loop.epoch, loop.at = kept
    loop.newest = loop.fresh = False


@action(0.01)
def unused(round: Round, loop: Loop) -> None:
    """An iterator that is never used."""
    if not loop.kind.theirs and not loop.kind.static:
        round.errors.append(loop.passed())
        loop.newest = False  # at the end of a pass, the state is that of the next one from here on


@action(0.005)
def recorded(round: Round, loop: Loop) -> None:
    """The loop records a graph. What is dropped meanwhile must not touch the device."""
    if loop.kind.jax or not loop.moves or loop.batches is None:
        return
    round.device.records = True
    loop.fresh = False
    for other in round.loops:
        other.kept.clear()
        if other is not loop and round.chance.random() < 0.3:
            other.batches = None
    round.errors.clear()
    gc.collect()
    try:
        next(loop.batches)
    except stoker.ConfigError as error:
        check("captured" in str(error), f"{loop}: {error}")
    except StopIteration:
        check(loop.at == len(loop.known[loop.epoch]), f"{loop} ends after {loop.at} batches")
        loop.batches = None
    else:
        raise Wrong(f"{loop} gives a batch while a graph is recorded")
    finally:
        round.device.records = False


@action(0.02)
def told(round: Round, loop: Loop) -> None:
    """Somebody asks how it goes."""
    if loop.kind.theirs:
        return
    stats = loop.loader.stats()
    there = stats["device"] or {"device": "cpu", "copies": 0}
    check(loop.moves or (there["device"], there["copies"]) == ("cpu", 0), f"{loop}: {there}")
    loop.loader.state_dict()
    loop.loader.receipt()


@action(0.01)
def collected(round: Round, loop: Loop) -> None:
    gc.collect()


@action(0.01)
def settled(round: Round, loop: Loop) -> None:
    """As if another loader was closed: it waits for the copies."""
    _device.settle()
    check(loop.kind.jax or not _device._devices or not any(d._flights for d in _device._devices.values()), "flights")


# Rounds.


class Round:
    """Some hundred steps on one device."""

    def __init__(self, data: Data, seed: str, plant: Plant | None, only: list[str]) -> None:
        self.data, self.chance = data, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.steps = self.most = 0
        self.pace = 24  # operations of the device after a step, at most
        self.errors: list[Any] = []
        self.children: list[int] = []
        self.timers: list[threading.Timer] = []
        self.loops: list[Loop] = []
        self.past: deque[str] = deque(maxlen=12)  # what was done last
        self.jax = self.chance.random() < 0.15
        self.device: Any = (Jaxs if self.jax else Torchs)(self.chance)
        if isinstance(self.device, Torchs) and self.chance.random() < 0.1:
            self.device.refuses = "cuMemHostRegister: CUDA_ERROR_NOT_SUPPORTED"
        self.plant = plant
        kinds = [kind for kind in KINDS.values() if kind.jax == self.jax and (not only or kind.name in only)]
        weights = [0.3 if kind.large else 1.0 for kind in kinds]
        self.kinds = self.chance.choices(kinds, weights, k=self.chance.choice([1, 2, 2, 3])) if kinds else []

    def run(self, most: int) -> int:
        """At most so many steps; returns how many there were."""
        steps = min(most, self.chance.randrange(60, 320))
        owned = self.chance.choice([1 << 10, 1 << 12, 1 << 18])  # what is small, in bytes
        with pytest.MonkeyPatch.context() as patch:
            (pretend_jax if self.jax else pretend).install(patch, self.device)
            patch.setattr(_staging, "OWNED_BYTES", owned)
            patch.setattr(_static.Buffers, "_copied", in_order(self.device))
            if self.plant is not None:
                self.plant(self.device, patch)
            try:
                self.loops = [Loop(self, kind) for kind in self.kinds]
                while self.steps < steps and self.kinds:
                    self.one()
                self.end()
            finally:
                self.clean()
        return self.steps

    def one(self) -> None:
        loop = self.chance.choice(self.loops)
        if loop.step():
            self.steps += 1
            self.done[loop.kind.name] += 1
        for likely, act in ACTIONS:
            if self.chance.random() < likely and not (self.jax and act in (recorded, forked)):
                self.done[act.__name__] += 1
                self.past.append(f"{act.__name__} at {loop}")
                act(self, loop)
        loop.forget(self.chance.choice([0, KEPT, KEPT, KEPT]))
        self.device.advance(max(self.chance.randrange(self.pace), self.device.pending - LAG))
        check(not self.device.mistakes, "\n".join(self.device.mistakes[:5]))
        if not self.steps % 16:
            watch()

    def end(self) -> None:
        """All that was taken comes back."""
        device = self.device
        device.short = 0.0
        self.reap(wait=True)
        for timer in self.timers:
            timer.join()
        self.errors.clear()
        self.end_loops()
        gc.collect()
        device.drain()
        _device.settle()
        check(not device.mistakes, "\n".join(device.mistakes[:5]))
        if isinstance(device, Torchs):
            gc.collect()
            check(device.in_use == 0, f"{device.in_use} bytes are in use on the device")
            check(not device.pins, f"{len(device.pins)} slots are pinned")
        for copies in _device._devices.values():
            check(not copies._lost and not copies._flights, "sources of copies are kept")
        check(self.engine() is None, "the engine runs on")
        check(not mapped(), f"still mapped: {mapped()}")

    def end_loops(self) -> None:
        device = self.device
        for loop in self.loops:
            loop.batches = None
            if not loop.moves or self.chance.random() < 0.5:
                loop.forget()
        device.drain()
        gc.collect()
        _device.settle()
        for loop in self.loops:  # although batches are kept on the device
            wait_until(loop.returned, f"{loop}: slots are not returned")
        for loop in self.loops:
            loop.end()
        self.loops.clear()

    def clean(self) -> None:
        self.device.records = False
        for child in self.children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def engine(self) -> int | None:
        running = _engines.client()._engine
        return None if running is None else running.pid

    def reap(self, wait: bool) -> None:
        for child in list(self.children):
            found, status = os.waitpid(child, 0 if wait else os.WNOHANG)
            if found:
                self.children.remove(child)
                check(status == 0, f"a forked child ended with {status}")


def in_order(device: Any) -> Callable[[Any, Any], Any]:
    """static_buffers copies on the loop's stream, and torch thinks that the device is the CPU, which copies at once:
    the copy is made when it is its turn."""
    real = _static.Buffers._copied

    def copied(buffers: Any, tensor: Any) -> Any:
        if not isinstance(device, Torchs) or not device.is_there(tensor):
            return real(buffers, tensor)
        torch.Tensor.copy_ = lambda self, *_, **__: self  # type: ignore
        try:
            static = real(buffers, tensor)
        finally:
            del torch.Tensor.copy_  # its base has the real one
        device.buffers[static.data_ptr()] = static
        device.transfer(static.data_ptr(), tensor.data_ptr(), _staging.extent(tensor))
        return static

    return copied


def mapped() -> list[str]:
    """Slots of engines that are mapped here."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return [line.split()[-2] for line in maps if "memfd:stoker-batch" in line]


def watch() -> None:
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)


# Mistakes that can be planted.

Plant = Callable[[Any, pytest.MonkeyPatch], None]


def _early(device: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(device, "done", lambda event: True)


def _no_wait(device: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(device, "wait", lambda event: None)


def _no_record(device: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(device, "used", lambda tensor: None)


def _twice(device: Any, patch: pytest.MonkeyPatch) -> None:
    given = _queue.Queue._given

    def once_more(queue: Any, entry: Any) -> None:
        if queue.step != 1:
            given(queue, entry)
        else:
            queue.step += 1

    patch.setattr(_queue.Queue, "_given", once_more)


def _greedy(device: Any, patch: pytest.MonkeyPatch) -> None:
    fill = _queue.Queue._fill
    patch.setattr(_queue.Queue, "_fill", lambda queue, make, most: fill(queue, make, most + 1))


def _leak(device: Any, patch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []
    load = _copies.Copies.load

    def loaded(copies: Any, root: Any, *rest: Any) -> Any:
        held.append(root)
        return load(copies, root, *rest)

    patch.setattr(_copies.Copies, "load", loaded)


PLANTS: dict[str, Plant] = {
    "a slot is returned too early": _early,
    "a read before the wait": _no_wait,
    "a missing record": _no_record,
    "a batch is handed out twice": _twice,
    "too many batches are ahead": _greedy,
    "a slot is not returned": _leak,
}


@contextmanager
def quiet() -> Iterator[None]:
    """Notices of engines that start again are many."""
    logging.getLogger("stoker").setLevel(logging.CRITICAL)
    _notice.say = lambda *args, **keywords: None
    yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=int(os.environ.get("STEPS", "1000")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SEED") or random.randrange(1 << 30)))
    parser.add_argument("--round", type=int, help="only this one")
    parser.add_argument("--plant", choices=PLANTS, help="a mistake that must be found")
    parser.add_argument("--kind", action="append", default=[], help="only loaders of this kind")
    given = parser.parse_args()
    os.environ["STOKER_POISON"] = "1"
    _feed.PIECE = PIECE
    torch.set_num_threads(1)
    print(f"seed {given.seed}", flush=True)
    done: Counter[str] = Counter()
    steps, number, most, began = 0, given.round or 0, 0, time.monotonic()
    with tempfile.TemporaryDirectory() as folder, quiet():
        os.environ["STOKER_CACHE"] = folder + "/cache"
        data = Data(Path(folder))
        gc.freeze()
        while steps < given.steps:
            watch()
            one = Round(data, f"{given.seed}:{number}", PLANTS.get(given.plant or ""), given.kind)
            try:
                steps += one.run(given.steps - steps)
            except BaseException as error:
                kinds = ", ".join(kind.name for kind in one.kinds)
                print("what was done last:", *one.past, sep="\n  ", file=sys.stderr)
                traceback.print_exception(error)
                print(f"seed {given.seed}, round {number} ({kinds}), after {one.steps} steps of it and {steps} before")
                return 130 if isinstance(error, KeyboardInterrupt) else 1
            done += one.done
            most = max(most, one.most)
            number += 1
            if given.round is not None:
                break
            if number % 50 == 0:
                print(f"{steps:,} steps, {time.monotonic() - began:.0f} s", flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps({**dict(sorted(done.items())), "most ahead": most}))
    print(f"{steps:,} steps in {number} rounds, {time.monotonic() - began:.0f} s, seed {given.seed}: all correct")
    return 0


if __name__ == "__main__":
    sys.exit(main())

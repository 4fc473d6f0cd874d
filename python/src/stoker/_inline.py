"""num_workers=0: the thread that asks for a batch makes it.

To the engine this is one worker that makes whole batches: it gets tasks at a socket and answers there. But the other
end is in the trainer, and is served while ``next`` waits for the engine's answer (``Engine.request(aside=)``), in the
calling thread, so that breakpoints work; nothing is made between two calls. Batches do not go through a slot: what is
written there is the number under which the trainer keeps the batch, which may hold anything, also CUDA tensors.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from . import _describe, _frames, _keyed, _reports
from ._crew import Hands
from ._errors import here, many
from ._inputs import Begun, Inputs, begins
from ._items import Items
from ._process import Engine
from ._values import Structure, collated, split
from ._walks import MADE, TURN, Walks
from ._wire import Message
from ._workers import HIRE_SECONDS, Shift, convert

TOKEN_BYTES = 8
QUIET_SECONDS = 0.05  # after a batch was made, its answer is waited for this long before another one is begun
MOST_KEPT = 64  # batches that were made and never fetched: of passes that were cancelled


class Inline:
    """The crew of a loader over ``user`` with num_workers=0."""

    bundles = False
    ahead = False  # the calling thread makes a batch, when the loop needs it

    def __init__(self, user: Any, hands: Hands, seed: int) -> None:
        self._user = user
        self._hands = hands
        self._seed = seed
        self.epoch = 0
        self.timeout = 0.0  # as in torch: who should end the thread that waits?
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._loader = 0
        self._maker: _Maker | None = None
        self._given_up: list[_Maker] = []
        self._batches: dict[int, Any] = {}
        self._number = 0

    def told(self) -> dict[str, Any]:
        return {"workers": 1, "whole": True, **self._hands.told(), **begins(self._user)}

    def aside(self) -> Inline:
        if self._maker is not None:
            self._maker.quiet = 0.0
        return self

    def shift(self, epoch: int) -> Shift | None:
        return None

    # The engine's end.

    def staff(self, engine: Engine, loader: int) -> None:
        with self._lock:
            if self._engine is engine and self._loader == loader and self._maker is not None:
                return
            self._leave()
            for maker in self._given_up:
                maker.close()
            self._given_up = []
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                maker = _Maker(ours, self._user, self._hands, self._keep, self._seed)
                self._engine, self._loader, self._maker = engine, loader, maker
                # Process 0: nobody may kill this worker.
                engine.request({"type": "worker", "loader": loader, "pid": 0}, HIRE_SECONDS, descriptor=theirs.fileno())
            except BaseException:
                self._maker = None
                ours.close()
                raise
            finally:
                theirs.close()

    def hire(self, engine: Engine, loader: int, answer: Message) -> None:
        """After an interrupt the engine misses this worker."""
        with self._lock:
            self._leave()
        self.staff(engine, loader)

    def shows(self, progress: Message) -> None:
        pass

    def worked(self) -> None:
        pass

    def fileno(self) -> int:
        maker = self._maker
        return maker.fileno() if maker is not None else -1

    def delay(self) -> float | None:
        maker = self._maker
        return maker.delay() if maker is not None else None

    def serve(self) -> None:
        with self._lock:
            maker = self._maker
            if maker is None:
                return
            try:
                if not maker.serve():
                    self._maker = None
                    maker.close()
            except BaseException:
                # An interrupt, or the end of a debugger: half a batch is made. It is not a death: the engine is told
                # to make it again, before it sees that the socket is closed.
                if self._engine is not None:
                    self._engine.post({"type": "dismiss", "loader": self._loader})
                self._given_up.append(maker)
                self._maker = None
                raise

    def _keep(self, batch: Any) -> int:
        self._number += 1
        self._batches[self._number] = batch
        while len(self._batches) > MOST_KEPT:
            self._batches.pop(next(iter(self._batches)))
        return self._number

    def fetch(self, root: Any, at: int, size: int) -> Any:
        """The batch whose number is at this byte of a slot."""
        (number,) = struct.unpack_from("<Q", memoryview(root).cast("B"), at)
        return self._batches.pop(number)

    def leave(self) -> None:
        pass

    def _leave(self) -> None:
        maker, self._maker = self._maker, None
        if maker is not None:
            maker.close()

    def close(self) -> None:
        with self._lock:
            self._leave()
            self._batches.clear()

    def after_fork(self) -> None:
        self._lock = threading.RLock()
        self._leave()
        self._engine = None


class _Half:
    """A batch that is being made: its samples by row."""

    def __init__(self, key: int) -> None:
        self.key = key  # of the first row
        self.samples: dict[int, Any] = {}
        self.number = 0  # under which the trainer keeps it
        self.nanos = 0
        self.made: tuple[int, bytes] | None = None  # of an iteration: samples, and what is told of it


class _Maker:
    """The worker's end of the socket. It sets no signals, threads or worker info, and puts the trainer's random
    generators back."""

    def __init__(self, sock: socket.socket, user: Any, hands: Hands, keep: Callable[[Any], int], seed: int) -> None:
        self.sock = sock
        weakref.finalize(self, sock.close)  # a loader need not be closed, and may be there when the interpreter exits
        self._frames = _frames.Frames(sock)
        self.quiet = 0.0  # until when no other batch is begun
        self._hands = hands
        self._user = user
        self._keep = keep
        self._slots: dict[int, mmap.mmap] = {}
        self._halves: dict[int, _Half] = {}
        self._given = Items()
        self._key = 0
        self._seeder = _keyed.Seeder(user)
        self._inputs = Inputs(user) if isinstance(user, Begun) else None
        self._begun: Callable[[int], Any] | None = None  # what the engine has made of the sample of a row
        self._get = _keyed.getter(user, lambda: self._key)
        collate = hands.collate or (convert if hands.single else collated)
        self._collate = _keyed.with_rng(collate, lambda: self._key)
        if hands.seeding == "worker":  # torch's rule: the trainer's own generators, as they are
            self._seeder.draws = False
        self._draws = hands.seeding == "key" and (self._seeder.draws or hands.collate is not None)
        self._seed = seed
        self._walks = Walks(user, hands.size, hands.drop, self._begins)
        self._makes = {_frames.TASKS: self._tasks, _frames.COLLATE: self._rows, _frames.TURN: self._turn}
        _frames.send(sock, _frames.HELLO, struct.pack("<I", os.getpid()))

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    def delay(self) -> float | None:
        """Seconds until ``serve`` has something to do, even if nothing arrives; None: it has not."""
        return max(0.0, self.quiet - time.monotonic()) if self._frames.whole else None

    def serve(self) -> bool:
        """Does what has arrived; False if the engine has closed the socket. The next batch is not begun right after
        one was made: nothing is made before the loop asks for it."""
        try:
            if not self._frames.look():
                return False
            while frames := self._frames.whole:
                kind, body = frames[0]
                if kind in (_frames.TASKS, _frames.TURN) and time.monotonic() < self.quiet:
                    break
                frames.popleft()
                self._act(kind, body)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def _act(self, kind: int, body: bytes) -> None:
        if kind == _frames.SLOT:
            self._map(body)
        elif kind == _frames.FREE:
            self._slots.pop(struct.unpack_from("<I", body)[0], None)
        elif kind == _frames.DROP:
            self._halves.pop(struct.unpack_from("<Q", body)[0], None)
        elif kind == _frames.ITEMS:
            self._given.arrive(body)
        elif kind == _frames.PAGE:
            os.close(self._frames.descriptor())  # this worker does not die alone
        elif kind == _frames.FITS:
            self._write(body)
        elif self._inputs is not None and (act := self._inputs.acts(self._slots).get(kind)) is not None:
            act(body)
        elif kind == _frames.WALK:
            self._walks.begin(body)
        elif kind == _frames.OVER:
            self._walks.over(body)
        elif (make := self._makes.get(kind)) is not None:
            with _keyed.put_back() if self._draws else nullcontext():
                make(body)

    def _map(self, body: bytes) -> None:
        slot, size = struct.unpack_from("<IQ", body)
        self._slots[slot] = self._frames.mapped(size)

    def _tasks(self, body: bytes) -> None:
        begin = time.monotonic_ns()
        batch, _, _, how, _, _, _ = _frames.TASKS_HEAD.unpack_from(body)
        tasks = list(_frames.TASK.iter_unpack(memoryview(body)[_frames.TASKS_HEAD.size :]))
        self._given.meet(tasks)
        self._begun = self._inputs.of(batch) if self._inputs is not None else None
        if how == _frames.WHOLE or batch not in self._halves:  # MORE, after an interrupt
            self._halves[batch] = _Half(tasks[0][3] if tasks else 0)
        half = self._halves[batch]
        bad: list[bytes] = []
        try:
            if self._hands.lists:
                half.samples.update(self._lists(tasks))
            else:
                bad = self._samples(half, tasks)
        except Exception as error:
            self._refuse(batch, error, "__getitems__ raised ", begin, _reports.LISTS)
            return
        half.nanos += time.monotonic_ns() - begin
        if bad or how == _frames.MORE:
            _frames.send_done(self.sock, batch, half.nanos, len(bad), *bad)
        else:
            self._finish(batch, half, sorted(half.samples), tasks)

    def _turn(self, body: bytes) -> None:
        """The next batch of an iteration, or of another pass."""
        begin = time.monotonic_ns()
        batch, number, at = TURN.unpack(body)
        try:
            walk = self._walks.turn(number)
            samples = walk.batch(at)
            if samples is None:
                _frames.send(self.sock, _frames.ENDED, struct.pack("<Q", batch))
                return
            self._halves[batch] = half = _Half(walk.collate_key(at))
            half.made = len(samples), walk.told()
            half.nanos = time.monotonic_ns() - begin
            half.samples = dict(enumerate(samples))
            self._finish(batch, half, list(half.samples), [])
        except _reports.Failed as error:
            row = _frames.refused(_frames.ALL_ROWS, _own(error.body, error.__cause__))
            _frames.send_done(self.sock, batch, time.monotonic_ns() - begin, 1, row)
        finally:
            if self._draws:
                self._walks.rest()

    def _begins(self, epoch: int, batch: int) -> int:
        """Seeds what a dataset may draw from that is iterated from this batch on. Returns the key."""
        if self._draws:
            _keyed.seed_worker(_keyed.base_seed(self._seed, epoch, batch), 0)
        return _keyed.base_seed(self._seed, epoch)

    def _samples(self, half: _Half, tasks: list[tuple[int, ...]]) -> list[bytes]:
        """Makes samples; returns what DONE says of the bad ones."""
        bad = []
        begun = self._begun
        made = self._user.maker(False) if begun is not None else None
        for row, _, number, key, _ in tasks:
            try:
                self._key = key
                if self._seeder.draws:
                    self._seeder.seed(key)
                if begun is None or made is None:
                    half.samples[row] = self._get(self._given[number])
                else:
                    half.samples[row] = made(number, begun(row), lambda: self._key)
            except Exception as error:
                name = self._given.name(number)
                bad.append(
                    _frames.refused(row, _report(error, f"dataset[{name}] raised ", _reports.alone(error, name)))
                )
        return bad

    def _lists(self, tasks: list[tuple[int, ...]]) -> dict[int, Any]:
        if self._seeder.draws and tasks:
            self._seeder.seed(tasks[0][3])
        found = list(self._user.__getitems__([self._given[task[2]] for task in tasks]))
        if len(found) != len(tasks):
            raise ValueError(f"it returned {many(len(found), 'sample')} for {many(len(tasks), 'id')}")
        return {task[0]: sample for task, sample in zip(tasks, found, strict=True)}

    def _rows(self, body: bytes) -> None:
        batch, n = struct.unpack_from("<QI", body)
        half = self._halves[batch]
        *rows, half.key = struct.unpack_from(f"<{n}IQ", body, 12)
        self._finish(batch, half, rows, [])

    def _finish(self, batch: int, half: _Half, rows: list[int], tasks: list[tuple[int, ...]]) -> None:
        begin = time.monotonic_ns()
        samples = [half.samples[row] for row in rows]
        stacks = self._hands.collate is None and not self._hands.single
        unlike = self._unlike(half, tasks) if stacks and tasks and not self._alike(samples) else []
        found = None
        try:
            if not unlike:
                self._key = _keyed.collate_key(half.key)
                if self._draws and half.made is None:
                    self._seeder.seed(self._key)
                found = self._collate(samples[0] if self._hands.single else samples)
        except Exception as error:
            unlike = self._unlike(half, tasks) if stacks else []
            if not unlike:
                what, hint = "the samples do not make a batch: ", _describe.FITTING
                if self._hands.collate:
                    what, hint = "collate_fn raised ", _reports.collating(False, self._hands.single)
                self._refuse(batch, error, what, begin, hint)
                return
        if unlike:
            _frames.send_done(self.sock, batch, time.monotonic_ns() - begin, len(unlike), *unlike)
            return
        half.samples = {}
        half.number = self._keep(found)
        half.nanos += time.monotonic_ns() - begin
        _frames.send(self.sock, _frames.NEED, struct.pack("<QQ", batch, TOKEN_BYTES))

    def _alike(self, samples: list[Any]) -> bool:
        """Whether samples have one structure. Those that workers make do, and default_collate would not mind."""
        try:
            return split(samples[0])[0].alike(samples)
        except Exception:  # such as tensors on a device, which may be collated here
            return True

    def _unlike(self, half: _Half, tasks: list[tuple[int, ...]]) -> list[bytes]:
        """What DONE says of samples that do not fit the first one."""
        bad = []
        structure: Structure | None = None
        for row, _, number, _, _ in tasks:
            try:
                if structure is None:
                    structure = split(half.samples[row], number)[0]
                else:
                    structure.check(half.samples[row])
            except Exception as error:
                del half.samples[row]
                bad.append(_frames.refused(row, _reports.unfit(error, number)))
        return bad

    def _refuse(self, batch: int, error: Exception, before: str, begin: int, hint: str) -> None:
        row = _frames.refused(_frames.ALL_ROWS, _report(error, before, hint))
        _frames.send_done(self.sock, batch, time.monotonic_ns() - begin, 1, row)

    def _write(self, body: bytes) -> None:
        batch, slot, at, _ = struct.unpack_from("<QIQQ", body)
        half = self._halves.pop(batch, None)
        if half is None:
            return
        struct.pack_into("<Q", self._slots[slot], at, half.number)
        if half.made is None:
            _frames.send(self.sock, _frames.WROTE, struct.pack("<QQQ", batch, TOKEN_BYTES, half.nanos))
        else:
            samples, told = half.made
            _frames.send(self.sock, _frames.MADE, MADE.pack(batch, TOKEN_BYTES, half.nanos, samples, len(told)), told)
        self.quiet = time.monotonic() + QUIET_SECONDS


def _report(error: Exception, before: str, hint: str) -> bytes:
    """What the engine is told of an exception; it comes back as the exception itself."""
    return _own(_reports.report(error, before, hint), error)


def _own(body: bytes, error: BaseException | None) -> bytes:
    """A report of an exception of this process."""
    return body if error is None else json.dumps({**json.loads(body), "text": "", "pickle": here(error)}).encode()

"""The loop of a worker: tasks from the engine, samples from the user's dataset into the rows of slots.

``main`` runs in a process of its own until its socket closes or the trainer or the engine ends. _frames.py has what is
said at the socket.

A row of unit SAMPLE is written by whoever made it. A batch of unit WHOLE is made by one worker, which keeps the samples
until they are collated. An odd row has another structure than the first sample of all; if all rows of a batch are odd,
the batch comes again as a whole (_alike.py). A worker keeps no state between tasks but that, the sample that told the
structure, and the last odd ones.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any

from . import _frames, _inside, _ranks
from ._alike import Alike
from ._blob import Blob, Unsuitable
from ._gather import Gather, gatherer
from ._inputs import Begun, Inputs
from ._making import Carried, Maker, Settings, opened, unpickling
from ._reports import Failed, collating, report, said, unfit
from ._tone import now, own, wire
from ._values import Misfit, Structure, split
from ._walks import MADE, TURN, Walks

__all__ = ["Carried", "Settings", "main"]

_AT_ONCE = frozenset((_frames.SLOT, _frames.FREE, _frames.FITS, _frames.DROP))  # what the rest may wait for
KEPT_SAMPLES = 4
_IMPORTS = (
    "a worker that is not forked imports again what the dataset is made of: define it at the top of a module that can "
    "be imported there, not below `if __name__ == '__main__':`; or pass multiprocessing_context='fork'"
)
_UNPICKLES = (
    "a worker that is not forked gets the dataset pickled: pickle.loads(pickle.dumps(dataset)) fails in the training "
    "process too; or pass multiprocessing_context='fork'"
)
APART_BYTES = 1 << 14  # samples of this many bytes and more are written one by one, while they are in the CPU's cache


def main(sock: socket.socket, dataset: Any, settings: Settings) -> None:
    """Works until the engine closes the socket. Owns the socket."""
    _inside.settle(settings.trainer, settings.engine, settings.direct)
    _ranks.makes_samples = True
    sock.setblocking(True)
    try:
        with sock:
            frames = _frames.Frames(sock)
            page = _paged(frames)
            if page is None:
                return
            _frames.send(sock, _frames.HELLO, struct.pack("<I", os.getpid()))
            try:
                worker = Worker(sock, frames, page, opened(dataset), settings)
            except Failed as failed:
                _frames.send(sock, _frames.FAILED, failed.body)
                return
            except BaseException as error:
                hint = doing = ""
                if isinstance(dataset, Carried):
                    if isinstance(error, (ImportError, AttributeError)):
                        hint = _IMPORTS
                    elif (method := unpickling(error)) is not None:
                        doing, hint = f"{method} raised ", _UNPICKLES
                before = f"worker {settings.worker} could not start: {doing}"
                _frames.send(sock, _frames.FAILED, report(error, before, hint))
                return
            worker.run()
    except ConnectionError:
        return


def _paged(frames: _frames.Frames) -> Any:
    """Where this worker says what it is at, and where its Python stack goes; None if the engine has gone."""
    if frames.next() is None:
        return None
    fd = frames.descriptor()
    page = memoryview(mmap.mmap(fd, _frames.PAGE_BYTES, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)).cast("I")
    os.lseek(fd, _frames.PAGE_BYTES, os.SEEK_SET)
    _inside.answers(fd)
    page[3] = _frames.STARTING
    return page


class _Layout:
    """Where the columns are. ``structure`` is None until it is known: the engine then sent sizes only."""

    def __init__(self, body: bytes) -> None:
        (n,) = struct.unpack_from("<I", body, 4)
        columns = list(struct.iter_unpack("<Qq", body[8 : 8 + 16 * n]))
        self.offsets = [offset for offset, _ in columns]
        self.sizes = [size for _, size in columns]
        self.structure: Structure | None = None
        self.told = body[8 + 16 * n + 4 :]


class _Kept:
    """A batch of unit WHOLE that this worker makes: its samples by row, then its blob."""

    def __init__(self, key: int) -> None:
        self.samples: dict[int, Any] = {}
        self.key = key  # of the first row
        self.blob: Blob | None = None
        self.nanos = 0
        self.alike: Alike | None = None  # there is no collate function
        self.made: tuple[int, bytes] | None = None  # of an iteration: samples, and what is told of it


class Worker:
    """The state of one worker; ``run`` answers frames until the socket closes."""

    def __init__(
        self, sock: socket.socket, frames: _frames.Frames, page: Any, dataset: Any, settings: Settings
    ) -> None:
        self._sock = sock
        self._frames = frames
        self._page = page
        self._maker = Maker(dataset, settings, page)
        self._inputs = Inputs(dataset) if isinstance(dataset, Begun) else None
        self._walks = Walks(dataset, settings.size, settings.drop, self._maker.begins)
        self._slots: dict[int, memoryview] = {}
        self._layouts: dict[int, _Layout] = {}
        self._structure: Structure | None = None  # of the sample that was shown to the engine
        self._samples: dict[tuple[int, ...], Any] = {}
        self._batches: dict[int, _Kept] = {}
        self._odd: deque[dict[tuple[int, ...], Any]] = deque(maxlen=2)  # samples of the last tasks with odd rows
        self._told: tuple[bytes, Structure | None] = b"", None  # the structure that the engine sent last
        self._gather: Gather | None = None
        self._gathers: Structure | None = None  # the structure that _gather was made for

    def run(self) -> None:
        acts: dict[int, Callable[[bytes], object]] = {
            _frames.SLOT: self._slot,
            _frames.FREE: self._free,
            _frames.LAYOUT: self._layout,
            _frames.TASKS: self._tasks,
            _frames.COLLATE: self._collate_rows,
            _frames.FITS: self._fits,
            _frames.DROP: self._drop,
            _frames.ITEMS: self._maker.given.arrive,
            _frames.PASS: lambda body: self._maker.begins(*struct.unpack_from("<q", body)),
            _frames.WALK: self._walks.begin,
            _frames.TURN: self._turn,
            _frames.OVER: self._walks.over,
        }
        if self._inputs is not None:
            acts |= self._inputs.acts(self._slots)
        self._page[3] = _frames.IDLE
        later: deque[tuple[int, bytes]] = deque()
        while True:
            frame = later.popleft() if later and not self._waits() else self._frames.next()
            if frame is None:
                return
            kind, body = frame
            if kind not in _AT_ONCE and self._waits():
                later.append(frame)
            else:
                acts[kind](body)

    def _waits(self) -> bool:
        """Whether a batch is not in its slot yet. The user's code does not run meanwhile: it may fill the same arrays
        again."""
        return any(kept.blob is not None for kept in self._batches.values())

    # Memory.

    def _slot(self, body: bytes) -> None:
        slot, size = struct.unpack_from("<IQ", body)
        self._slots[slot] = memoryview(self._frames.mapped(size))

    def _free(self, body: bytes) -> None:
        self._slots.pop(struct.unpack_from("<I", body)[0], None)  # unmapped when nothing refers to it

    def _layout(self, body: bytes) -> None:
        if len(self._layouts) >= 128:
            self._layouts.pop(next(iter(self._layouts)))
        self._layouts[struct.unpack_from("<I", body)[0]] = layout = _Layout(body)
        if layout.told:
            if self._told[0] != layout.told:
                self._told = layout.told, Structure.decode(layout.told)
            layout.structure = self._told[1]

    def _drop(self, body: bytes) -> None:
        self._batches.pop(struct.unpack_from("<Q", body)[0], None)

    # Samples.

    def _tasks(self, body: bytes) -> None:
        begin = time.monotonic_ns()
        self._maker.look()
        batch, slot, layout, how, epoch, _, _ = _frames.TASKS_HEAD.unpack_from(body)
        struct.pack_into("<Q", self._page, 0, batch)  # the row is 0 now
        tasks = list(_frames.TASK.iter_unpack(memoryview(body)[_frames.TASKS_HEAD.size :]))
        self._maker.given.meet(tasks)
        if self._inputs is not None:
            self._maker.begun = self._inputs.of(batch)
            structure = self._layouts[layout].structure if layout else None
            self._maker.tones = how == _frames.ROWS and (structure is None or structure.pictures)
        if how != _frames.ROWS:
            if how == _frames.ALIKE:
                self._batches[batch] = kept = _Kept(0)
                kept.alike = Alike(self._layouts[layout].structure)
            self._whole(batch, epoch, tasks, how, begin)
        elif not layout:
            self._show(batch, epoch, tasks[0], begin)
        else:
            odd: dict[tuple[int, ...], Any] = {}
            done = self._fill(self._slots[slot], self._layouts[layout], epoch, tasks, odd)
            if odd:
                self._odd.append({(epoch, *task): sample for task, sample in odd.items()})
            _frames.send_done(self._sock, batch, time.monotonic_ns() - begin, len(tasks) if done else 0, *done)

    def _show(self, batch: int, epoch: int, task: tuple[int, ...], begin: int) -> None:
        """Tells the engine the structure of the first sample, and keeps the sample."""
        row, place, number, _, attempt = task
        try:
            sample = self._maker.samples([task])[0]
            if isinstance(sample, Failed):
                raise sample
            structure, _ = split(sample, number)
            data = structure.encode()
        except Exception as error:
            body = unfit(error, number)
            nanos = time.monotonic_ns() - begin
            _frames.send_done(self._sock, batch, nanos, 1, _frames.refused(row, body))
            return
        self._structure = structure
        while len(self._samples) >= KEPT_SAMPLES:
            self._samples.pop(next(iter(self._samples)))
        self._samples[epoch, place, attempt, number] = own(sample)
        n = len(structure.sizes)
        head = struct.pack(f"<QII{n}qI", batch, row, n, *structure.sizes, len(data))
        _frames.send(self._sock, _frames.SHAPE, head, data, wire(structure.leaves))

    def _fill(
        self,
        memory: memoryview,
        layout: _Layout,
        epoch: int,
        tasks: list[tuple[int, ...]],
        odd: dict[tuple[int, ...], Any],
    ) -> list[bytes]:
        """Makes rows and writes them. Returns what DONE says of each, or nothing if all are filled and have no loose
        values; ``odd`` gets the samples of odd ones."""
        done: list[bytes] = []
        structure = layout.structure
        rows = [task[0] for task in tasks]
        together = rows == list(range(rows[0], rows[0] + len(rows)))
        lookup = together and not self._maker.given.named
        if lookup and structure is not None and (gather := self._gatherer(structure)) is not None:
            with suppress(Exception):  # made one by one, they say what is wrong
                gather(memory, layout.offsets, rows[0], [task[2] for task in tasks])
                return []
        kept = [self._samples.pop((epoch, task[1], task[4], task[2]), None) for task in tasks] if self._samples else []
        if any(sample is not None for sample in kept) or structure is None or structure.row_bytes >= APART_BYTES:
            for task, sample in zip(tasks, kept or repeat(None), strict=False):
                sample = self._maker.samples([task])[0] if sample is None else sample
                done += self._write(memory, layout, [task], [sample], odd)
            return done
        samples = self._maker.samples(tasks)
        if together and Failed not in set(map(type, samples)):
            return self._write(memory, layout, tasks, samples, odd, alone=True)
        begin = 0
        for i in range(1, len(tasks)):
            if rows[i] != rows[i - 1] + 1 or Failed in (type(samples[i]), type(samples[i - 1])):
                done += self._write(memory, layout, tasks[begin:i], samples[begin:i], odd)
                begin = i
        return done + self._write(memory, layout, tasks[begin:], samples[begin:], odd)

    def _gatherer(self, structure: Structure) -> Gather | None:
        if structure is not self._gathers:
            self._gathers, self._gather = structure, gatherer(self._maker.dataset, structure)
        return self._gather

    def _write(
        self,
        memory: memoryview,
        layout: _Layout,
        tasks: Sequence[tuple[int, ...]],
        samples: Sequence[Any],
        odd: dict[tuple[int, ...], Any],
        alone: bool = False,
    ) -> list[bytes]:
        """Writes samples to consecutive rows; a Failed comes alone. ``alone``: they are all of their tasks."""
        first = samples[0]
        row, number = tasks[0][0], tasks[0][2]
        if isinstance(first, Failed):
            return [_frames.refused(row, first.body)]
        if layout.structure is None and (problem := self._learn(layout, first, number)):
            return [_frames.refused(row, problem)]
        structure = layout.structure
        assert structure is not None
        status = _frames.FILLED
        try:
            loose = structure.write(memory, layout.offsets, row, samples)
        except Exception:
            if len(samples) > 1:
                return [
                    part
                    for task, sample in zip(tasks, samples, strict=True)
                    for part in self._write(memory, layout, [task], [sample], odd)
                ]
            first = now(first)
            try:
                loose = structure.write_one(memory, layout.offsets, row, first)
            except Exception as error:
                body = unfit(error, number)
                odd[tasks[0]] = first
                return [_frames.refused(row, body, _frames.ODD)]
            if structure.pictures:
                status = _frames.READY
        if not loose and status == _frames.FILLED:
            return [] if alone else [_filled(range(row, row + len(samples)))]
        done = []
        for i in range(len(samples)):
            done.append(_frames.ROW.pack(row + i, status, len(loose)))
            for column, values in loose:
                done += _frames.LOOSE.pack(column, len(values[i])), values[i]
        return done

    def _learn(self, layout: _Layout, sample: Any, number: int) -> bytes | None:
        """The structure of a layout whose sender did not say it: that of the sample shown, or of this one, if the sizes
        are the same."""
        try:
            for structure in (self._structure, None):
                structure = structure or split(sample, number)[0]
                if structure.sizes == layout.sizes:
                    layout.structure = structure
                    return None
        except Exception as error:
            return unfit(error, number)
        return unfit(Misfit("its values have other sizes than those of the first sample of the pass"), number)

    # Whole batches.

    def _whole(self, batch: int, epoch: int, tasks: list[tuple[int, ...]], how: int, begin: int) -> None:
        # MORE may be the first of a batch: of one whose worker has ended.
        if how == _frames.WHOLE or batch not in self._batches:
            self._batches[batch] = _Kept(tasks[0][3] if tasks else 0)
        kept = self._batches[batch]
        if self._maker.settings.items:
            samples = self._maker.items(tasks)
        elif kept.alike is not None:
            samples = [self._again(epoch, task) for task in tasks]
        else:
            samples = self._maker.samples(tasks)
        if isinstance(samples, Failed):
            self._bad_batch(batch, samples.body, begin)
            return
        bad: list[bytes] = []
        for task, sample in zip(tasks, samples, strict=True):
            if isinstance(sample, Failed):
                bad.append(_frames.refused(task[0], sample.body))
            else:
                kept.samples[task[0]] = sample
                if kept.alike is not None:
                    kept.alike.add(task[0], task[2], task[4], sample)
        kept.nanos += time.monotonic_ns() - begin
        if bad or how != _frames.WHOLE:
            _frames.send_done(self._sock, batch, kept.nanos, len(bad), *bad)
        else:
            self._finish(batch, kept, [kept.samples[row] for row in sorted(kept.samples)])

    def _again(self, epoch: int, task: tuple[int, ...]) -> Any:
        """A sample that was odd, if it is still here."""
        for kept in self._odd:
            if (epoch, *task) in kept:
                return kept.pop((epoch, *task))
        return self._maker.samples([task])[0]

    def _collate_rows(self, body: bytes) -> None:
        batch, n = struct.unpack_from("<QI", body)
        *sources, key = struct.unpack_from(f"<{n}IQ", body, 12)
        kept = self._batches.get(batch)
        if kept is None:
            return
        kept.key = key  # this worker may have replaced one, and not have got the first row
        if kept.alike is not None:
            self._stack(batch, kept, kept.alike, sources)
        else:
            self._finish(batch, kept, [kept.samples[source] for source in sources])

    def _stack(self, batch: int, kept: _Kept, alike: Alike, sources: Sequence[int]) -> None:
        begin = time.monotonic_ns()
        if unlike := alike.unlike():
            bad = [_frames.refused(row, unfit(error, number)) for row, number, error in unlike]
            _frames.send_done(self._sock, batch, time.monotonic_ns() - begin, len(bad), *bad)
            return
        try:
            kept.blob = Blob(alike.stacked(sources))
        except Exception as error:
            self._bad_batch(batch, report(error, "the batch cannot be passed on: "), begin)
            return
        kept.samples, kept.alike = {}, None
        kept.nanos += time.monotonic_ns() - begin
        _frames.send(self._sock, _frames.NEED, struct.pack("<QQ", batch, kept.blob.size))

    def _finish(self, batch: int, kept: _Kept, samples: list[Any]) -> None:
        begin = time.monotonic_ns()
        try:
            found = self._maker.collate(samples, kept.key)
        except BaseException as error:
            hint = collating(True, self._maker.settings.single)
            self._bad_batch(batch, report(error, "collate_fn raised ", hint), begin)
            return
        try:
            kept.blob = Blob(found)
        except Unsuitable as error:
            self._bad_batch(batch, said(str(error), "Unsuitable", hint=error.hint), begin)
            return
        except BaseException as error:
            self._bad_batch(batch, report(error, "the batch cannot be passed on: "), begin)
            return
        kept.nanos += time.monotonic_ns() - begin
        kept.samples = {}
        _frames.send(self._sock, _frames.NEED, struct.pack("<QQ", batch, kept.blob.size))

    def _turn(self, body: bytes) -> None:
        """The next batch of an iteration, or of another pass."""
        begin = time.monotonic_ns()
        self._maker.look()
        batch, number, at = TURN.unpack(body)
        struct.pack_into("<QI", self._page, 0, batch, 1)  # until it is collated: a death is at this batch
        try:
            walk = self._walks.turn(number)
            samples = walk.batch(at)
            if samples is None:
                _frames.send(self._sock, _frames.ENDED, struct.pack("<Q", batch))
                return
            self._batches[batch] = kept = _Kept(walk.collate_key(at))
            kept.made = len(samples), walk.told()
            kept.nanos = time.monotonic_ns() - begin
            if not self._maker.stacks:
                self._finish(batch, kept, samples)
                return
            alike = Alike(None)
            for row, sample in enumerate(samples):
                alike.add(row, row, 0, sample)
            if unlike := alike.unlike():
                raise Failed(unfit(unlike[0][2], unlike[0][1], "of the batch "))
            self._stack(batch, kept, alike, range(len(samples)))
        except Failed as error:
            self._bad_batch(batch, error.body, begin)
        finally:
            self._maker.at[2] = 0

    def _bad_batch(self, batch: int, body: bytes, begin: int) -> None:
        _frames.send_done(self._sock, batch, time.monotonic_ns() - begin, 1, _frames.refused(_frames.ALL_ROWS, body))

    def _fits(self, body: bytes) -> None:
        begin = time.monotonic_ns()
        batch, slot, at, room = struct.unpack_from("<QIQQ", body)
        kept = self._batches.get(batch)
        if kept is None or kept.blob is None:
            return
        size = kept.blob.size
        if size > room:
            _frames.send(self._sock, _frames.NEED, struct.pack("<QQ", batch, size))
            return
        kept.blob.write(self._slots[slot], at)
        del self._batches[batch]
        nanos = kept.nanos + time.monotonic_ns() - begin
        if kept.made is None:
            _frames.send(self._sock, _frames.WROTE, struct.pack("<QQQ", batch, size, nanos))
        else:
            samples, told = kept.made
            _frames.send(self._sock, _frames.MADE, MADE.pack(batch, size, nanos, samples, len(told)), told)


def _filled(rows: Sequence[int]) -> bytes:
    """What DONE says of rows without loose values."""
    return b"".join(map(_frames.ROW.pack, rows, repeat(_frames.FILLED), repeat(0)))

"""The engine's end of a worker's socket, for tests of workers: real processes, sockets and memory."""

from __future__ import annotations

import array
import base64
import contextlib
import json
import mmap
import multiprocessing
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from stoker import _frames, _values, _work
from stoker._batch import Kind, NumpyKind, TorchKind
from stoker._work import Carried, Settings

SLOT_BYTES = 1 << 22


class Crew:
    """Workers of one dataset, and what the engine knows of them."""

    def __init__(
        self, dataset: Any, workers: int = 1, *, method: str = "fork", seed: int = 7, page: int = -1, **settings: Any
    ) -> None:
        context: Any = multiprocessing.get_context(method)
        self.seed = seed
        self.workers: list[Worker] = []
        self.memories: dict[int, mmap.mmap] = {}
        self.fds: dict[int, int] = {}
        self.page = page if page >= 0 else os.memfd_create("page")  # of one worker; others write there too
        os.ftruncate(self.page, _frames.PAGE_BYTES)
        carried = (lambda value: Carried(value)) if method != "fork" else (lambda value: value)
        for key in ("collate_fn", "worker_init_fn"):
            if key in settings:
                settings[key] = carried(settings[key])
        for number in range(workers):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            told = Settings(
                worker=number,
                workers=workers,
                base_seed=seed,
                **{"trainer": os.getpid(), "engine": 0, "direct": True, **settings},
            )
            process = context.Process(target=_work.main, args=(theirs, carried(dataset), told), daemon=True)
            process.start()
            theirs.close()
            worker = Worker(ours, process)
            worker.send(_frames.PAGE, b"", [self.page])
            self.workers.append(worker)
        for worker in self.workers:
            worker.crew = self

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: Any) -> None:
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.socket.shutdown(socket.SHUT_RDWR)  # later workers inherited this end
            worker.socket.close()
        for worker in self.workers:
            worker.process.join(20)
            assert worker.process.exitcode is not None
        for fd in (self.page, *self.fds.values()):
            os.close(fd)

    def slot(self, slot: int, size: int = SLOT_BYTES) -> mmap.mmap:
        if slot not in self.memories:
            fd = os.memfd_create("slot")
            os.ftruncate(fd, size)
            self.fds[slot], self.memories[slot] = fd, mmap.mmap(fd, size)
        return self.memories[slot]

    def key(self, epoch: int, place: int) -> int:
        from stoker._order import below, epoch_key

        return below(epoch_key(self.seed, epoch), place)

    def tasks(self, samples: Sequence[int], epoch: int = 0, first: int = 0) -> list[tuple[int, int, int, int, int]]:
        return [(row, first + row, number, self.key(epoch, first + row), 0) for row, number in enumerate(samples)]

    def layout(self, sizes: Sequence[int], rows: int) -> tuple[list[int], int]:
        """Where the columns begin, and where the last one ends."""
        offsets, at = [], 0
        for size in sizes:
            offsets.append(at)
            at = -(-(at + max(size, 0) * rows) // 64) * 64
        return offsets, at

    def batch(self, samples: Sequence[int], *, epoch: int = 0, kind: Kind | None = None, chunk: int = 3) -> Any:
        """What the loop gets for these samples, made by all workers in turn."""
        rows = len(samples)
        tasks = self.tasks(samples, epoch)
        first = self.workers[0]
        shape = first.show(tasks[0], epoch)
        offsets, end = self.layout(shape["sizes"], rows)
        memory = self.slot(1)
        loose: dict[int, dict[int, bytes]] = {}
        numbers = {}
        for number, worker in enumerate(self.workers):
            numbers[number] = worker.learn(1, offsets, shape)
        for i, begin in enumerate(range(0, rows, chunk)):
            worker = self.workers[i % len(self.workers)]
            worker.rows(1, numbers[i % len(self.workers)], tasks[begin : begin + chunk], epoch)
        for i, _ in enumerate(range(0, rows, chunk)):
            done = self.workers[i % len(self.workers)].done()
            for row in done["rows"]:
                assert row["status"] == 0, row["error"]
                for number, value in row["loose"]:
                    loose.setdefault(number, {})[row["row"]] = value
        data: list[dict[str, Any]] = []
        for i, size in enumerate(shape["sizes"]):
            column: dict[str, Any] = {"name": str(i), "off": offsets[i], "shape": [size]}
            if size < 0:
                values = [loose[i][row] for row in range(rows)]
                ends = np.cumsum([0, *map(len, values)]).astype("<i8").tobytes()
                column = {"name": str(i), "kind": "bytes", "off": end, "at": end + len(ends)}
                memory[end : end + len(ends)] = ends
                joined = b"".join(values)
                memory[end + len(ends) : end + len(ends) + len(joined)] = joined
                end = -(-(end + len(ends) + len(joined)) // 64) * 64
            data.append(column)
        return assembled(memory, data, end, samples, shape["structure"], kind)


def assembled(
    memory: mmap.mmap, data: list[dict[str, Any]], end: int, samples: Sequence[int], structure: bytes, kind: Kind | None
) -> Any:
    rows = len(samples)
    memory[end : end + 8 * rows] = struct.pack(f"<{rows}q", *samples)
    memory[end + 8 * rows : end + 9 * rows] = b"\1" * rows
    data = [*data, {"name": "__ids__", "off": end}, {"name": "__valid__", "off": end + 8 * rows}]
    message = {"rows": rows, "epoch": 0, "step": 0, "data": data, "structure": base64.b64encode(structure).decode()}
    return _values.Assembler(kind or TorchKind()).make(message, bytearray(memory))


class Worker:
    def __init__(self, sock: socket.socket, process: Any) -> None:
        self.socket = sock
        self.process = process
        self.held = b""
        self.slots: set[int] = set()
        self.layouts = 0
        self.crew: Any = None
        sock.settimeout(60)

    # To the worker.

    def send(self, kind: int, payload: bytes, fds: Sequence[int] = ()) -> None:
        frame = struct.pack("<IB", 1 + len(payload), kind) + payload
        if fds:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
            sent = self.socket.sendmsg([frame], rights)
            frame = frame[sent:]
        self.socket.sendall(frame)

    def give(self, slot: int, size: int = SLOT_BYTES) -> mmap.mmap:
        memory: mmap.mmap = self.crew.slot(slot, size)
        if slot not in self.slots:
            self.slots.add(slot)
            self.send(_frames.SLOT, struct.pack("<IQ", slot, len(memory)), [self.crew.fds[slot]])
        return memory

    def learn(self, slot: int, offsets: Sequence[int], shape: dict[str, Any], told: bool = True) -> int:
        self.give(slot)
        self.layouts += 1
        columns = b"".join(struct.pack("<Qq", *column) for column in zip(offsets, shape["sizes"], strict=True))
        body = struct.pack("<II", self.layouts, len(offsets)) + columns
        if told:
            body += struct.pack("<I", len(shape["structure"])) + shape["structure"]
        self.send(_frames.LAYOUT, body)
        return self.layouts

    def rows(
        self, slot: int, layout: int, tasks: Sequence[tuple[int, ...]], epoch: int = 0, how: int = 0, batch: int = 1
    ) -> None:
        head = struct.pack("<QIIBqqI", batch, slot, layout, how, epoch, 0, len(tasks))
        self.send(_frames.TASKS, head + b"".join(struct.pack("<IqqQI", *task) for task in tasks))

    def show(self, task: tuple[int, ...], epoch: int = 0) -> dict[str, Any]:
        self.rows(0, 0, [task], epoch)
        kind, answer = self.next()
        assert kind == _frames.SHAPE, answer
        return answer

    # From the worker.

    def frame(self) -> tuple[int, bytes]:
        while len(self.held) < 4 or len(self.held) < 4 + int.from_bytes(self.held[:4], "little"):
            data = self.socket.recv(1 << 16)
            if not data:
                raise EOFError
            self.held += data
        end = 4 + int.from_bytes(self.held[:4], "little")
        kind, body = self.held[4], self.held[5:end]
        self.held = self.held[end:]
        return kind, body

    def next(self) -> tuple[int, dict[str, Any]]:
        """The next answer, after HELLO."""
        kind, body = self.frame()
        if kind == _frames.HELLO:
            assert struct.unpack("<I", body) == (self.process.pid,)
            return self.next()
        found: dict[str, Any] = {}
        if kind == _frames.SHAPE:
            batch, row, n = struct.unpack_from("<QII", body)
            sizes = struct.unpack_from(f"<{n}q", body, 16)
            (length,) = struct.unpack_from("<I", body, 16 + 8 * n)
            structure = body[20 + 8 * n : 20 + 8 * n + length]
            pictures = body[20 + 8 * n + length :]
            assert len(pictures) == 4 + 41 * int.from_bytes(pictures[:4], "little")
            found = {"batch": batch, "row": row, "sizes": sizes, "structure": structure, "pictures": pictures}
        elif kind == _frames.DONE:
            found = read_done(body)
        elif kind == _frames.NEED:
            found = dict(zip(("batch", "size"), struct.unpack("<QQ", body), strict=True))
        elif kind == _frames.WROTE:
            found = dict(zip(("batch", "size", "nanos"), struct.unpack("<QQQ", body), strict=True))
        elif kind == _frames.FAILED:
            found = json.loads(body)
        return kind, found

    def done(self) -> dict[str, Any]:
        kind, answer = self.next()
        assert kind == _frames.DONE, (kind, answer)
        return answer

    def whole(self, tasks: Sequence[tuple[int, ...]], epoch: int = 0, kind: Kind | None = None) -> Any:
        """A batch of unit WHOLE, all of whose samples are good."""
        self.rows(0, 0, tasks, epoch, how=1, batch=5)
        what, answer = self.next()
        assert what == _frames.NEED, answer
        return self.take(answer, [task[2] for task in tasks], kind)

    def take(self, need: dict[str, Any], samples: Sequence[int], kind: Kind | None = None) -> Any:
        memory = self.give(2)
        self.send(_frames.FITS, struct.pack("<QIQQ", need["batch"], 2, 128, len(memory) - 128))
        what, wrote = self.next()
        assert what == _frames.WROTE
        assert wrote["size"] == need["size"]
        column = {"name": "0", "kind": "placed", "at": 128, "shape": [wrote["size"]]}
        end = -(-(128 + wrote["size"]) // 64) * 64
        return assembled(memory, [column], end, samples, b"", kind)


def read_done(body: bytes) -> dict[str, Any]:
    batch, nanos, count = struct.unpack_from("<QQI", body)
    at = 20
    rows = []
    for _ in range(count):
        row, status, n = struct.unpack_from("<IBI", body, at)
        at += 9
        loose = []
        error = None
        if status:
            error = json.loads(body[at : at + n])
            at += n
        else:
            for _ in range(n):
                column, length = struct.unpack_from("<II", body, at)
                loose.append((column, body[at + 8 : at + 8 + length]))
                at += 8 + length
        rows.append({"row": row, "status": status, "loose": loose, "error": error})
    assert at == len(body)
    return {"batch": batch, "nanos": nanos, "rows": rows}


KINDS: dict[str, Any] = {"torch": TorchKind, "numpy": NumpyKind}

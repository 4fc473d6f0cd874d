"""The statistics page of this process: what its loops waited for, readable by other processes of the same user.

The engine's internal/base/stats/layout.go defines the layout, the rules for readers and the meaning of every word. This
module repeats the numbers, and testdata/stats checks both languages against the same bytes.

    Page    the memfd, written by this process only
    Entry   a loader in it, with its stages: wait and, if it uses a device, copies, transforms and decoding there
    read    decodes a page, of any process and version

Words are stored and loaded through a memoryview of 8-byte integers, which copies each as a whole; struct would go byte
by byte. Python has no memory fences: rows that must be consistent are safe for readers if stores are seen in order
(x86-64), and elsewhere as far as the interpreter's own locks order them.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

NAME = "stoker-stats"
MAGIC = int.from_bytes(b"STKSTAT1", "little")
VERSION = 3
ROLE_ENGINE, ROLE_CLIENT = 1, 2
WORD = 8

HEADER_WORDS, WORKER_WORDS, LOADER_WORDS, SPAN_WORDS = 32, 16, 64, 16
NAME_WORDS, BUCKET_WORDS = 8, 120
STAGE_WORDS = 24 + BUCKET_WORDS

(
    H_MAGIC, H_VERSION, H_SIZE, H_HEADER, H_PID, H_ROLE, H_STARTED, H_UPDATED, H_WORKERS, H_WORKER_COUNT,
    H_WORKER_BYTES, H_LOADERS, H_LOADER_COUNT, H_LOADER_BYTES, H_STAGES, H_STAGE_COUNT, H_STAGE_BYTES, H_BUCKETS,
    H_BUCKET_COUNT, H_SPANS, H_SPAN_COUNT, H_SPAN_BYTES, H_WRITTEN, H_UNSEEN, H_CPU,
) = range(25)  # fmt: skip
W_SEQ, W_KIND, W_STATE, W_SINCE, W_BEGUN, W_BUSY, W_INPUT, W_OUTPUT, W_IDLE, W_ITEMS, W_LOADER = range(11)
L_SEQ, L_STATE, L_ID, L_OPENED, L_LANES, L_STAGES = range(6)
(
    L_SEQ2, L_UPDATED, L_EPOCH, L_STEP, L_SAMPLES, L_BATCHES, L_BAD, L_READY, L_SLOTS, L_LEASED, L_MEMORY, L_PASSES,
    L_FIRST, L_FIRSTS,
) = range(16, 30)  # fmt: skip
L_JPEG = 32
(
    S_KIND, S_BUSY, S_INPUT, S_OUTPUT, S_CPU, S_CPU_ITEMS, S_ITEMS, S_BYTES, S_QUEUE, S_QUEUED, S_QUEUES, S_TIMED,
    S_WAITED,
) = range(13)  # fmt: skip
S_NAME, S_BUCKETS = 16, 24
P_SEQ = 0
SPAN = ("loader", "epoch", "step", "steps", "begun", "filled", "delivered", "asked", "got", "rows")  # from word 1 on

WAYS = ("own", "libjpeg", "go")
KINDS = ("", "read", "decode", "transform", "batch", "deliver", "wait", "plan", "python", "device")
WORKERS = ("free", "lane", "reader")
STATES = ("idle", "busy", "blocked on input", "blocked on output")
KIND_WAIT, KIND_DEVICE = KINDS.index("wait"), KINDS.index("device")

FIRST_OCTAVE, OCTAVES = 9, 28
BUCKETS = 4 * OCTAVES + 2

_F_ADD_SEALS = 1033
_SEALS = 0x1 | 0x2 | 0x4  # seal, shrink, grow
_SEAL_FUTURE_WRITE = 0x10  # since Linux 5.1
_FREE, _OPEN, _CLOSED = 0, 1, 2


def bucket(ns: int) -> int:
    """The bucket of a duration: four per octave from 512 ns to 137 s, one below, one above."""
    if ns < 1 << FIRST_OCTAVE:
        return 0
    octave = ns.bit_length() - 1 - FIRST_OCTAVE
    if octave >= OCTAVES:
        return BUCKETS - 1
    return 1 + 4 * octave + (ns >> (octave + FIRST_OCTAVE - 2) & 3)


def _floor(number: int) -> int:
    if number == 0:
        return 0
    octave, quarter = divmod(number - 1, 4)
    return (4 + quarter) << (octave + FIRST_OCTAVE - 2)


def percentile(counts: Sequence[int], share: float) -> float:
    """The seconds below which this share of the items stays; 0 without items."""
    total = sum(counts)
    if total <= 0:
        return 0.0
    left = int(share * total)
    number = 0
    while (left := left - counts[number]) >= 0:
        number += 1
    if number >= BUCKETS - 1:
        return _floor(BUCKETS - 1) / 1e9
    return (_floor(number) + _floor(number + 1)) / 2e9


class Room(NamedTuple):
    """How many entries the tables of a page have."""

    workers: int = 0
    loaders: int = 16
    stages: int = 4
    spans: int = 256

    @property
    def bytes(self) -> int:
        loader = LOADER_WORDS + self.stages * STAGE_WORDS
        return (HEADER_WORDS + self.workers * WORKER_WORDS + self.loaders * loader + self.spans * SPAN_WORDS) * WORD


def lay_out(words: Any, room: Room, role: int, pid: int, now: int) -> None:
    """Writes the header of a page into zeroed memory."""
    loader = (LOADER_WORDS + room.stages * STAGE_WORDS) * WORD
    workers = HEADER_WORDS * WORD
    loaders = workers + room.workers * WORKER_WORDS * WORD
    spans = loaders + room.loaders * loader
    header = [VERSION, room.bytes, HEADER_WORDS * WORD, pid, role, now, now]
    header += [workers, room.workers, WORKER_WORDS * WORD, loaders, room.loaders, loader]
    header += [LOADER_WORDS * WORD, room.stages, STAGE_WORDS * WORD, S_BUCKETS * WORD, BUCKET_WORDS]
    header += [spans, room.spans, SPAN_WORDS * WORD]
    for number, value in enumerate(header, H_VERSION):
        words[number] = value
    words[H_MAGIC] = MAGIC  # written last: a page that has it is complete


class Page:
    """The page of this process. Its owner holds a lock while taking an entry; an entry has one writer at a time."""

    def __init__(self) -> None:
        room = Room()
        fd = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(fd, 0, room.bytes)  # so that later writes cannot run out of memory
            # The mapping keeps its own descriptor, through which others find the page.
            self._map = mmap.mmap(fd, room.bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
            try:
                fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS | _SEAL_FUTURE_WRITE)
            except OSError:
                with suppress(OSError):
                    fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS)
        finally:
            os.close(fd)
        self.words = memoryview(self._map).cast("q")
        lay_out(self.words, room, ROLE_CLIENT, os.getpid(), time.monotonic_ns())

    def entry(self, now: int) -> Entry | None:
        """A free entry: an unused one, else the closed one that was opened first; None if all are in use."""
        words = self.words
        at, count, size = words[H_LOADERS] // WORD, words[H_LOADER_COUNT], words[H_LOADER_BYTES] // WORD
        closed: list[tuple[int, int]] = []
        for base in range(at, at + count * size, size):
            if words[base + L_STATE] == _FREE:
                return Entry(words, base, size, now)
            if words[base + L_STATE] == _CLOSED:
                closed.append((words[base + L_OPENED], base))
        if closed:
            return Entry(words, min(closed)[1], size, now)
        words[H_UNSEEN] += 1
        return None

    def leave(self) -> None:
        """In a forked child: the page is the parent's and must not look like the child's. Entries become void."""
        self.words.release()
        with suppress(BufferError):
            self._map.close()


class Entry:
    """A loader in the page: what its loop waited for."""

    def __init__(self, words: Any, base: int, size: int, now: int) -> None:
        self._words = words
        self._base = base
        self._stage = base + words[H_STAGES] // WORD
        self._buckets = self._stage + words[H_BUCKETS] // WORD
        words[base + L_SEQ] += 1
        for at in range(base + 1, base + size):
            if at != base + L_SEQ2:
                words[at] = 0
        words[base + L_OPENED] = now
        self._added("wait", KIND_WAIT)
        words[base + L_STATE] = _OPEN
        words[base + L_SEQ] += 1

    def _added(self, name: str, kind: int) -> None:
        """One more stage, within a change of the row."""
        words, number = self._words, self._words[self._base + L_STAGES]
        at = self._stage + number * (words[H_STAGE_BYTES] // WORD)
        words[at + S_KIND] = kind
        for part, value in enumerate(struct.unpack("<8q", name.encode().ljust(NAME_WORDS * WORD, b"\0"))):
            words[at + S_NAME + part] = value
        words[self._base + L_STAGES] = number + 1

    def known(self, loader: int, lanes: int) -> None:
        """The engine's number of the loader; it changes with the engine."""
        words, base = self._words, self._base
        words[base + L_SEQ] += 1
        words[base + L_ID], words[base + L_LANES] = loader, lanes
        words[base + L_SEQ] += 1

    def wait(self, busy: int, waited: int, away: int, items: int, nbytes: int, took: Sequence[int]) -> None:
        """Adds to the stage: nanoseconds, batches, bytes, and the duration of each batch."""
        words, at, buckets = self._words, self._stage, self._buckets
        words[at + S_BUSY] += busy
        words[at + S_INPUT] += waited
        words[at + S_OUTPUT] += away
        words[at + S_ITEMS] += items
        words[at + S_BYTES] += nbytes
        for ns in took:
            words[buckets + bucket(ns)] += 1

    def device(self, works: Sequence[tuple[str, int, int, int, int, int, int]], asked: int) -> None:
        """Adds to the stages of work on a device, in their order: name, items, bytes, nanoseconds busy and waited for,
        and the queue, now and summed over the times that the loop asked."""
        words, base = self._words, self._base
        size = words[H_STAGE_BYTES] // WORD
        if words[H_STAGE_COUNT] <= len(works):
            return  # there is no room
        if words[base + L_STAGES] == 1:
            words[base + L_SEQ] += 1
            for name, *_ in works:
                self._added(name, KIND_DEVICE)
            words[base + L_SEQ] += 1
        for number, (_, items, nbytes, busy, waited, queue, queued) in enumerate(works, 1):
            at = self._stage + number * size
            words[at + S_BUSY] += busy
            words[at + S_WAITED] += waited
            words[at + S_ITEMS] += items
            words[at + S_BYTES] += nbytes
            if items:
                words[self._buckets + number * size + bucket(busy // items)] += items
            self._queue(at, queue, queued, asked)

    def ahead(self, ready: int, summed: int, asked: int) -> None:
        """Batches on the device, or on their way, when the loop asked: now, and summed over the times that it did."""
        self._queue(self._stage, ready, summed, asked)

    def _queue(self, at: int, now: int, summed: int, times: int) -> None:
        words = self._words
        words[at + S_QUEUE] = now
        words[at + S_QUEUED] += summed
        words[at + S_QUEUES] += times

    def progress(self, now: int, epoch: int, step: int, samples: int, batches: int, bad: int, first: int) -> None:
        """How far the loop is; ``first`` is the duration of a pass's first batch, 0 if none of these was one."""
        words, base = self._words, self._base
        words[base + L_SEQ2] += 1
        values = (now, epoch, step, samples, batches, bad)
        for number, value in enumerate(values, base + L_UPDATED):
            words[number] = value
        if first:
            words[base + L_PASSES] += 1
            words[base + L_FIRST] = first
            words[base + L_FIRSTS] += first
        words[base + L_SEQ2] += 1
        words[H_UPDATED] = now

    def span(self, epoch: int, step: int, steps: int, asked: int, got: int, rows: int) -> None:
        """Puts batches that arrived together into the ring."""
        words = self._words
        written = words[H_WRITTEN]
        at = words[H_SPANS] // WORD + written % words[H_SPAN_COUNT] * (words[H_SPAN_BYTES] // WORD)
        words[at] += 1
        values = (words[self._base + L_ID], epoch, step, steps, 0, 0, 0, asked, got, rows)
        for number, value in enumerate(values, at + 1):
            words[number] = value
        words[at] += 1
        words[H_WRITTEN] = written + 1

    def close(self) -> None:
        """Marks the loader as closed. Its numbers stay until another loader needs the entry."""
        words, base = self._words, self._base
        words[base + L_SEQ] += 1
        words[base + L_STATE] = _CLOSED
        words[base + L_SEQ] += 1

    def wait_stage(self) -> dict[str, Any]:
        """The numbers of the stage, in the form of ``read``."""
        end = self._buckets + BUCKET_WORDS
        return _stage(list(self._words[self._stage : end]), S_BUCKETS, BUCKET_WORDS)


# Reading.


class PageError(ValueError):
    """Bytes that are not a page, or a damaged page."""


def read(data: Any, now: int) -> dict[str, Any]:
    """The contents of a page: the header, workers, loaders and spans, in the words and units of the engine's own
    reader.

    ``data`` is a buffer that may be written meanwhile. ``now`` is CLOCK_MONOTONIC in nanoseconds: the states of workers
    count up to then. Rows that stay half written are left out. PageError if it is not a page.
    """
    words = memoryview(data).cast("B")
    words = words[: len(words) // WORD * WORD].cast("q")
    if len(words) < HEADER_WORDS or words[H_MAGIC] != MAGIC or words[H_VERSION] < 1:
        raise PageError("this is not a statistics page")
    head = list(words[:HEADER_WORDS])
    for name, at, least in (("workers", H_WORKERS, 11), ("loaders", H_LOADERS, 30), ("spans", H_SPANS, 11)):
        begin, count, size = head[at : at + 3]
        if not _within(begin, count, size, len(words) * WORD) or size < least * WORD:
            raise PageError(f"{count} {name} of {size} bytes at {begin} are not within a page of {len(words) * WORD}")
    loader, stage = head[H_LOADER_BYTES], head[H_STAGE_BYTES]
    if not _within(head[H_STAGES], head[H_STAGE_COUNT], stage, loader) or stage < S_BUCKETS * WORD:
        raise PageError(f"stages are not within a loader's entry of {loader} bytes")
    if not _within(head[H_BUCKETS], head[H_BUCKET_COUNT], WORD, stage):
        raise PageError(f"buckets are not within a stage's entry of {stage} bytes")
    return {
        "header": _header(head),
        "workers": _workers(words, head, now),
        "loaders": _loaders(words, head, now),
        "spans": _spans(words, head),
    }


def _within(at: int, count: int, each: int, size: int) -> bool:
    return at >= 0 and count >= 0 and each > 0 and at % WORD == 0 and each % WORD == 0 and at + count * each <= size


def _steady(words: Any, begin: int, size: int, *seqs: int) -> list[int] | None:
    """A row that was not written while it was read; None if that did not succeed."""
    for _ in range(1000):
        before = [words[begin + seq] for seq in seqs]
        row = list(words[begin : begin + size])
        if not any(seq & 1 for seq in before) and before == [words[begin + seq] for seq in seqs]:
            return row
    return None


def _rows(words: Any, head: list[int], table: int, *seqs: int) -> list[list[int]]:
    begin, count, size = head[table] // WORD, head[table + 1], head[table + 2] // WORD
    found = [_steady(words, at, size, *seqs) for at in range(begin, begin + count * size, size)]
    return [row for row in found if row is not None]


def _header(head: list[int]) -> dict[str, Any]:
    return {
        "version": head[H_VERSION],
        "pid": head[H_PID],
        "role": head[H_ROLE],
        "started_s": head[H_STARTED] / 1e9,
        "updated_s": head[H_UPDATED] / 1e9,
        "written": head[H_WRITTEN],
        "unseen": head[H_UNSEEN],
        "cpu_s": head[H_CPU] / 1e9,
    }


def _named(names: Sequence[str], number: int) -> str:
    return names[number] if 0 <= number < len(names) else "unknown"


def _workers(words: Any, head: list[int], now: int) -> list[dict[str, Any]]:
    found = []
    for row in _rows(words, head, H_WORKERS, W_SEQ):
        if not row[W_KIND]:
            continue
        until = max(now, row[W_SINCE])
        sums = [row[W_IDLE], row[W_BUSY], row[W_INPUT], row[W_OUTPUT]]
        sums[row[W_STATE] & 3] += until - row[W_SINCE]
        idle, busy, waited, blocked = (ns / 1e9 for ns in sums)
        found.append(
            {
                "kind": _named(WORKERS, row[W_KIND]),
                "state": _named(STATES, row[W_STATE]),
                "s": (until - row[W_BEGUN]) / 1e9,
                "busy_s": busy,
                "blocked_in_s": waited,
                "blocked_out_s": blocked,
                "idle_s": idle,
                "items": row[W_ITEMS],
                "loader": row[W_LOADER],
            }
        )
    return found


def _loaders(words: Any, head: list[int], now: int) -> list[dict[str, Any]]:
    begin, size = head[H_STAGES] // WORD, head[H_STAGE_BYTES] // WORD
    buckets, count = head[H_BUCKETS] // WORD, head[H_BUCKET_COUNT]
    found = []
    for row in _rows(words, head, H_LOADERS, L_SEQ, L_SEQ2):
        if not row[L_STATE]:
            continue
        loader: dict[str, Any] = {"transforms": []}
        for number in range(min(max(row[L_STAGES], 0), head[H_STAGE_COUNT])):
            stage = row[begin + number * size : begin + (number + 1) * size]
            kind = KINDS[stage[S_KIND]] if 0 < stage[S_KIND] < len(KINDS) else ""
            if kind == "transform":
                loader["transforms"].append(_stage(stage, buckets, count))
            elif kind == "device":
                loader.setdefault("device", []).append(_stage(stage, buckets, count))
            elif kind:
                loader[kind] = _stage(stage, buckets, count)
        loader |= {
            "loader": row[L_ID],
            "open": row[L_STATE] == _OPEN,
            "opened_s": row[L_OPENED] / 1e9,
            "at_s": now / 1e9,
            "lanes": row[L_LANES],
            "jpeg": dict(zip(WAYS, row[L_JPEG:begin] + [0] * len(WAYS), strict=False)),
            "epoch": row[L_EPOCH],
            "step": row[L_STEP],
            "samples": row[L_SAMPLES],
            "batches": row[L_BATCHES],
            "bad": row[L_BAD],
            "ready": row[L_READY],
            "slots": row[L_SLOTS],
            "leased": row[L_LEASED],
            "memory": row[L_MEMORY],
            "passes": row[L_PASSES],
            "first_batch_s": row[L_FIRST] / 1e9,
            "first_batch_mean_s": row[L_FIRSTS] / 1e9 / row[L_PASSES] if row[L_PASSES] else 0.0,
        }
        found.append(loader)
    return sorted(found, key=lambda loader: loader["loader"])


def _stage(row: list[int], buckets: int, count: int) -> dict[str, Any]:
    name = struct.pack("<8q", *row[S_NAME : S_NAME + NAME_WORDS]).rstrip(b"\0").decode("utf-8", "replace")
    busy, cpu = row[S_BUSY] / 1e9, 0.0
    if row[S_TIMED] > 0:
        busy *= max(row[S_ITEMS], row[S_TIMED]) / row[S_TIMED]
    if row[S_CPU_ITEMS] > 0:
        cpu = row[S_CPU] / 1e9 * max(row[S_ITEMS], row[S_CPU_ITEMS]) / row[S_CPU_ITEMS]
    counts = row[buckets : buckets + min(count, BUCKETS)]
    waited = {"waited_s": row[S_WAITED] / 1e9} if row[S_WAITED] else {}
    return {
        "name": name,
        "busy_s": busy,
        "blocked_in_s": row[S_INPUT] / 1e9,
        "blocked_out_s": row[S_OUTPUT] / 1e9,
        **waited,
        "cpu_s": cpu,
        "items": row[S_ITEMS],
        "bytes": row[S_BYTES],
        "p50_s": percentile(counts, 0.5),
        "p99_s": percentile(counts, 0.99),
        "queue": row[S_QUEUE],
        "queue_mean": row[S_QUEUED] / row[S_QUEUES] if row[S_QUEUES] > 0 else 0.0,
        "queues": row[S_QUEUES],
    }


def _spans(words: Any, head: list[int]) -> list[dict[str, int]]:
    count, written = head[H_SPAN_COUNT], head[H_WRITTEN]
    begin, size = head[H_SPANS] // WORD, head[H_SPAN_BYTES] // WORD
    found = []
    for number in range(max(written - count, 0), written):
        row = _steady(words, begin + number % count * size, size, P_SEQ)
        if row is not None:
            found.append(dict(zip(SPAN, row[1:], strict=False)))
    return found


_page: Page | None = None


def page() -> Page | None:
    """The page of this process, made when it is first needed; None if that fails (out of memory): nothing depends on
    it."""
    global _page
    if _page is None:
        with suppress(OSError, ValueError):
            _page = Page()
    return _page


def current() -> Page | None:
    """The page of this process, if there is one."""
    return _page


def _after_fork() -> None:
    global _page
    parents, _page = _page, None
    if parents is not None:
        parents.leave()


os.register_at_fork(after_in_child=_after_fork)

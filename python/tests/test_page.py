"""The statistics page: one layout in two languages, and other processes reading it."""

from __future__ import annotations

import array
import json
import os
import random
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import TOP, engine, wait_until

import stoker
from stoker import _page

GOLDENS = TOP / "testdata" / "stats"
SECOND = 1_000_000_000
ROOM = _page.Room(workers=0, loaders=2, stages=4, spans=4)


def client_page() -> Any:
    """A page with something in every table that a client has, written through the functions that it uses, with a clock
    that does not advance."""
    words = memoryview(bytearray(ROOM.bytes)).cast("q")
    _page.lay_out(words, ROOM, _page.ROLE_CLIENT, 4343, 100 * SECOND)
    size = words[_page.H_LOADER_BYTES] // _page.WORD
    first = _page.Entry(words, words[_page.H_LOADERS] // _page.WORD, size, 101 * SECOND)
    first.known(7, 2)
    first.wait(3_000_000, 40_000_000, 600_000_000, 3, 0, [41_000_000, 1_200_000, 800_000])
    first.progress(105 * SECOND, 3, 8, 12, 3, 1, 500_000_000)
    first.wait(1_000_000, 2_000_000, 100_000_000, 1, 4096, [3_000_000])
    first.ahead(2, 5, 3)
    first.device(
        [
            ("copies", 3, 3 << 20, 6_000_000, 2_000_000, 1, 4),
            ("transforms", 2, 6 << 20, 3_000_000, 0, 0, 1),
            ("decoding", 0, 0, 0, 0, 0, 0),
        ],
        3,
    )
    first.device(
        [
            ("copies", 1, 1 << 20, 3_000_000, 0, 2, 2),
            ("transforms", 1, 2 << 20, 1_000_000, 500_000, 1, 1),
            ("decoding", 0, 0, 0, 0, 0, 0),
        ],
        1,
    )
    first.progress(106 * SECOND, 4, 0, 16, 4, 1, 100_000_000)
    for number in range(5):  # one more than there is room for
        first.span(3, number, 1, 99 * SECOND + number, 100 * SECOND + number, 4)
    second = _page.Entry(words, words[_page.H_LOADERS] // _page.WORD + size, size, 102 * SECOND)
    second.known(8, 1)
    second.close()
    return words


def dump(words: Any) -> str:
    """The words that are not 0, and their positions, for people."""

    def where(at: int) -> str:
        for name, table in (("worker", _page.H_WORKERS), ("loader", _page.H_LOADERS), ("span", _page.H_SPANS)):
            begin, count, size = words[table] // 8, words[table + 1], words[table + 2] // 8
            if not begin <= at < begin + count * size:
                continue
            number, rest = divmod(at - begin, size)
            stages = words[_page.H_STAGES] // 8
            if table == _page.H_LOADERS and rest >= stages:
                stage, rest = divmod(rest - stages, words[_page.H_STAGE_BYTES] // 8)
                return f"{name} {number} stage {stage} word {rest}"
            return f"{name} {number} word {rest}"
        return f"header word {at}"

    lines = [f"{at:5d} {value:20d}  {where(at)}\n" for at, value in enumerate(words) if value]
    return f"words {len(words)}\n" + "".join(lines)


def load(name: str) -> bytes:
    """The page that a dump is of."""
    first, *lines = (GOLDENS / name).read_text().splitlines()
    words = array.array("q", [0]) * int(first.split()[1])
    for line in lines:
        at, value, *_ = line.split()
        words[int(at)] = int(value)
    return words.tobytes()


def rounded(found: Any) -> Any:
    """With floats as far as both languages must agree."""
    if isinstance(found, float):
        return round(found, 9)
    if isinstance(found, dict):
        return {key: rounded(value) for key, value in found.items()}
    if isinstance(found, list):
        return [rounded(value) for value in found]
    return found


def agree(page: dict[str, Any], told: dict[str, Any]) -> None:
    """What this side reads is what the engine's reader tells; a stage that a page has not is empty there."""
    assert page["header"] == told["header"]
    assert rounded(page["workers"]) == rounded(told["workers"] or [])
    assert page["spans"] == told["spans"]
    assert len(page["loaders"]) == len(told["loaders"])
    for mine, theirs in zip(page["loaders"], told["loaders"], strict=True):
        mine = {key: value for key, value in mine.items() if value != []}
        empty = [
            key
            for key, stage in theirs.items()
            if isinstance(stage, dict) and "busy_s" in stage and not stage.get("name")
        ]
        theirs = {key: value for key, value in theirs.items() if key not in empty}
        assert rounded(mine) == rounded(theirs)


def test_the_clients_page() -> None:
    text = dump(client_page())
    if os.environ.get("STOKER_UPDATE"):
        (GOLDENS / "client.words").write_text(text)
    assert text == (GOLDENS / "client.words").read_text()
    told = json.loads((GOLDENS / "client.json").read_text())
    agree(_page.read(load("client.words"), 106 * SECOND), told)


def test_the_engines_page() -> None:
    told = json.loads((GOLDENS / "engine.json").read_text())
    agree(_page.read(load("engine.words"), 106 * SECOND), told)


def test_buckets_are_the_engines() -> None:
    for exponent in range(64):
        for ns in (2**exponent - 1, 2**exponent, 2**exponent + 2**exponent // 4):
            at = _page.bucket(ns)
            assert 0 <= at < _page.BUCKETS
            assert _page._floor(at) <= ns
            if at < _page.BUCKETS - 1:
                assert ns < _page._floor(at + 1)


def test_what_is_no_page_is_refused() -> None:
    good = load("engine.words")
    for bad in (b"", good[:100], b"\0" * len(good), good[: len(good) // 2]):
        with pytest.raises(_page.PageError):
            _page.read(bad, 0)
    draw = random.Random(5)
    for _ in range(300):
        data = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            at = draw.choice([draw.randrange(32), draw.randrange(len(good) // 8)])
            struct.pack_into(
                "<q", data, at * 8, draw.choice([draw.randint(-8, 9000), draw.randint(-(2**63), 2**63 - 1)])
            )
        try:
            _page.read(data, 0)
        except _page.PageError:
            pass


def pages_of(pid: int) -> list[Path]:
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(entry) == "/memfd:stoker-stats (deleted)":
                found.append(entry)
        except OSError:
            continue
    return found


def read_page(pid: int) -> dict[str, Any]:
    (path,) = pages_of(pid)
    return _page.read(path.read_bytes(), time.monotonic_ns())


def test_both_pages_of_a_running_loader(folder: Path) -> None:
    begun = time.monotonic_ns()  # the page is this process's, and holds what other tests did
    with stoker.DataLoader(stoker.ImageFolder(folder), 8, num_workers=2) as loader:
        for _ in range(2):
            assert len(list(loader)) == 7
        stats = loader.stats()
        # An engine notes that a batch was sent when it was: the client may be quicker.
        wait_until(lambda: len(read_page(engine())["spans"]) == 14, "spans are missing")
        mine, theirs = read_page(os.getpid()), read_page(engine())
        assert mine["header"]["pid"] == os.getpid()
        assert mine["header"]["role"] == _page.ROLE_CLIENT
        assert theirs["header"]["pid"] == engine()
        assert theirs["header"]["role"] == _page.ROLE_ENGINE
        (client,) = [row for row in mine["loaders"] if row["opened_s"] >= begun / 1e9]
        (there,) = [row for row in theirs["loaders"] if row["loader"] == stats["loader"]]
        assert client["loader"] == there["loader"]
        assert client["samples"] == there["samples"] == stats["samples"] == 100
        assert client["batches"] == there["batches"] == 14
        assert client["passes"] == there["passes"] == 2
        assert client["wait"]["items"] == 14
        assert there["decode"]["items"] >= 100
        assert {worker["kind"] for worker in theirs["workers"]} == {"lane", "reader"}
        # The spans of both join: what the engine sent is what the loop got later.
        sent = {(span["epoch"], span["step"]): span for span in theirs["spans"] if span["loader"] == there["loader"]}
        got = [span for span in mine["spans"] if span["asked"] >= begun]
        assert len(sent) == 14
        assert sum(span["steps"] for span in got) == 14
        for span in got:
            other = sent[span["epoch"], span["step"]]
            assert other["begun"] <= other["filled"] <= other["delivered"]
            assert other["asked"] <= other["delivered"]
            assert span["asked"] <= other["asked"]
            assert other["filled"] <= span["got"]
    (client,) = [row for row in read_page(os.getpid())["loaders"] if row["opened_s"] >= begun / 1e9]
    assert not client["open"]


def test_nobody_else_writes_the_page(folder: Path) -> None:
    with stoker.DataLoader(stoker.ImageFolder(folder), 8) as loader:
        next(iter(loader))
        (path,) = pages_of(os.getpid())
        fd = os.open(path, os.O_RDWR)
        try:
            with pytest.raises(OSError, match="not permitted"):
                os.ftruncate(fd, 0)
        finally:
            os.close(fd)


def test_loaders_that_come_and_go_leave_room(folder: Path) -> None:
    dataset = stoker.ImageFolder(folder)
    next(iter(stoker.DataLoader(dataset, 8)))
    before = read_page(os.getpid())["header"]["unseen"]
    for _ in range(40):
        next(iter(stoker.DataLoader(dataset, 8)))
    assert read_page(os.getpid())["header"]["unseen"] == before


FORK = """
import os, sys, time
import stoker
from pathlib import Path
from stoker import _page

loader = stoker.DataLoader(stoker.ImageFolder(sys.argv[1]), 8, output="numpy")
list(loader)
before = loader.stats()["client"]["batches"]
def pages():
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
    return links.count("/memfd:stoker-stats (deleted)")
assert pages() == 1
pid = os.fork()
if pid == 0:
    assert pages() == 0, "the child shows the parent's page as its own"
    assert len(list(loader)) == 7
    assert pages() == 1
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
page = _page._page
rows = _page.read(page._map, time.monotonic_ns())["loaders"]
assert [row["batches"] for row in rows if row["open"]] == [before], rows
print("done")
"""


def test_a_forked_child_has_a_page_of_its_own(folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FORK, str(folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout == "done\n", ran.stderr

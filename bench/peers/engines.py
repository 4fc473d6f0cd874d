"""Engines that are started, and one that rests: python -m bench.peers.engines ENGINE... [--data F].

Without --data, {"starts": N} on standard input asks for N starts of each ENGINE, in turns. The answer has, for each of
them, "ms": from before the process is made until its hello has been read, as the client does it, and "cpu_ms": of the
engine alone, until it has ended. With --data, the one ENGINE loads BATCHES batches of that folder, and the only line is
its memory in MiB when it rests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import sys
import time
from pathlib import Path

import stoker
from stoker import transforms as T
from stoker._process import Engine

from bench.consumer import emit

BATCH, BATCHES = 16, 16
REST = 3.0  # seconds; the engine gives memory back that it does not need
MEMORY = {"rss": "Rss", "pss": "Pss", "own": "Anonymous"}


def ended() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start(engine: str) -> tuple[float, float]:
    """Milliseconds until the hello, and of CPU."""
    os.environ["STOKER_ENGINE"] = engine
    cpu, begin = ended(), time.perf_counter()
    process = Engine([])
    wall = time.perf_counter() - begin
    if process.end(10.0) != 0:
        raise SystemExit(f"{engine} did not end as it should")
    return 1e3 * wall, 1e3 * (ended() - cpu)


def answer(engines: list[str]) -> None:
    emit("start")
    for line in sys.stdin:
        found: dict[str, list[tuple[float, float]]] = {engine: [] for engine in engines}
        for number in range(json.loads(line)["starts"]):
            for engine in engines if number % 2 else engines[::-1]:
                found[engine].append(start(engine))
        emit(
            "starts",
            ms=[[wall for wall, _ in found[engine]] for engine in engines],
            cpu_ms=[[cpu for _, cpu in found[engine]] for engine in engines],
        )


def rests(engine: str, data: str) -> None:
    os.environ["STOKER_ENGINE"] = engine
    train = stoker.ImageFolder(data, transform=T.RandomResizedCrop(64))
    loader = stoker.DataLoader(train, batch_size=BATCH, shuffle=True, num_workers=2, output="numpy", seed=0)
    stream = iter(loader)
    for _ in range(BATCHES):
        next(stream)
    time.sleep(REST)
    (pid,) = (
        int(one.name)
        for one in Path("/proc").iterdir()
        if one.name.isdigit() and _executable(one) == os.path.realpath(engine) and _parent(one) == os.getpid()
    )
    said = dict(re.findall(r"^(\w+): +(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE))
    emit("rests", **{name: int(said[line]) / 1024 for name, line in MEMORY.items()})


def _executable(process: Path) -> str:
    try:
        return os.readlink(process / "exe")
    except OSError:
        return ""


def _parent(process: Path) -> int:
    return int((process / "stat").read_text().rpartition(")")[2].split()[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engines", nargs="+")
    parser.add_argument("--data")
    args = parser.parse_args()
    if args.data:
        rests(args.engines[0], args.data)
    else:
        answer(args.engines)


if __name__ == "__main__":
    main()

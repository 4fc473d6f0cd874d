"""What bench.remote stores: photographs repeated to 6,000, as each peer keeps them; and the client that reads them.

Objects, by the beginning of their keys:

tar/     shards of 64 MB, members NNNNNN.jpg and NNNNNN.cls
more/    more of them, up to 1 GB in all: what is indexed
large/   1 GB of shards with members of 4 MiB, of random bytes
files/   a class a folder, an object a photograph
mds/     MosaicML Streaming's, 64 MB
litdata/ LitData's chunks of 64 MB

The client reads whole passes, one byte of each cache line, and marks when each ended.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import pictures, rig
from bench.link import BUCKET, Store
from bench.meter import Clock

SAMPLES, BATCH = 6000, 64
SHARD = 64_000_000
INDEXED = 1_000_000_000
MEMBER = 4 << 20
VENV = ".venv-bench/remote"
LINE = 64


def samples(data: Path) -> Iterator[tuple[int, Path, int]]:
    """(number, photograph, class): all of DATA, again and again, so that no neighbours are of one class."""
    found = pictures.find(data)
    names = sorted({name for name, _ in found})
    for number in range(SAMPLES):
        name, path = found[number * 7919 % len(found)]
        yield number, path, names.index(name)


def store(data: Path, prefixes: Sequence[str] = ()) -> Path:
    """The folder of a store that has all of it, or what these keys begin with; made and kept, as pictures.build keeps
    trees."""
    home = pictures.cache_dir() / "remote"
    wanted = f"{data.resolve()} {SAMPLES} {SHARD} {INDEXED} {MEMBER}"
    home.mkdir(parents=True, exist_ok=True)
    for prefix in prefixes or _WRITERS:
        mark = home / f"complete-{prefix}"
        if mark.exists() and mark.read_text() == wanted:
            continue
        shutil.rmtree(home / "store" / BUCKET / prefix, ignore_errors=True)
        rig.say(f"stores {prefix}/")
        with (
            Store(home / "store", sorted(os.sched_getaffinity(0))) as gateway,
            tempfile.TemporaryDirectory(dir=home) as folder,
        ):
            _WRITERS[prefix](Path(folder), data)
            files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            gateway.put({f"{prefix}/{path.relative_to(folder).as_posix()}": path for path in files})
        mark.write_text(wanted)
    return home / "store"


class _Shards:
    """tar files of SHARD bytes at most."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.number, self.bytes = folder, 0, 0
        self.file: Any = None

    def add(self, key: str, members: dict[str, bytes]) -> None:
        size = sum(512 + -(-len(data) // 512) * 512 for data in members.values())
        if self.file is None or self.file.offset + size + 10240 > SHARD:
            self.close()
            self.file = tarfile.open(self.folder / f"{self.number:06d}.tar", "w")  # noqa: SIM115
            self.number += 1
        for suffix, data in members.items():
            info = tarfile.TarInfo(f"{key}.{suffix}")
            info.size = len(data)
            self.file.addfile(info, io.BytesIO(data))
        self.bytes += size

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _tar(folder: Path, data: Path) -> None:
    shards = _Shards(folder)
    for number, path, label in samples(data):
        shards.add(f"{number:06d}", {"jpg": path.read_bytes(), "cls": str(label).encode()})
    shards.close()


def _more(folder: Path, data: Path) -> None:
    rest = INDEXED - sum(path.stat().st_size for _, path, _ in samples(data))
    shards = _Shards(folder)
    for number, path, label in samples(data):
        if shards.bytes >= rest:
            break
        shards.add(f"{number:06d}", {"jpg": path.read_bytes(), "cls": str(label).encode()})
    shards.close()


def _large(folder: Path, _data: Path) -> None:
    shards = _Shards(folder)
    for number in range(INDEXED // MEMBER):
        shards.add(f"{number:06d}", {"bin": os.urandom(MEMBER)})
    shards.close()


def _files(folder: Path, data: Path) -> None:
    for number, path, label in samples(data):
        to = folder / f"{label:04d}"
        to.mkdir(exist_ok=True)
        shutil.copyfile(path, to / f"{number:06d}.jpg")


def _by_peer(name: str) -> Callable[[Path, Path], None]:
    """A format that its own library writes, in the environment of the peers."""

    def write(folder: Path, data: Path) -> None:
        command = [rig.python_of(VENV), "-m", "bench.peers.remote_write", name, folder, data]
        subprocess.run([str(part) for part in command], cwd=rig.ROOT, check=True, stdout=subprocess.DEVNULL)

    return write


_WRITERS: dict[str, Callable[[Path, Path], None]] = {
    "tar": _tar,
    "files": _files,
    "more": _more,
    "large": _large,
    "mds": _by_peer("mds"),
    "litdata": _by_peer("litdata"),
}


def options() -> argparse.ArgumentParser:
    """What every client is told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--row", default="tar", help="tar, images, full or files")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.0, help="stop then, even if the passes are not over")
    parser.add_argument("--step", type=float, default=0.0, help="seconds that a training step takes, after each batch")
    return parser


def touch(batch: Any) -> tuple[int, int]:
    """Samples and bytes of a batch, of which one byte of each cache line is read: of a list of bytes, or of an array
    with the lengths of what is joined in it."""
    import numpy as np

    if isinstance(batch, tuple):
        array, count = batch
        flat = np.asarray(array).reshape(-1)
        np.bitwise_xor.reduce(flat[::LINE])
        return count, flat.nbytes
    total = 0
    for sample in batch:
        flat = np.frombuffer(sample, np.uint8)
        np.bitwise_xor.reduce(flat[::LINE])
        total += flat.nbytes
    return len(batch), total


def measure(
    args: argparse.Namespace, open_passes: Callable[[], Iterable[Iterable[Any]]], about: Callable[[], dict[str, Any]]
) -> None:
    """open_passes() gives passes of batches. The clock starts before it, after all imports.

    Besides the end of each pass, the moment is marked when a quarter of --seconds was over: a loader so slow that its
    second pass is not over in the time is measured from there on.
    """
    from bench.consumer import emit

    cpu = Clock.from_env()
    seen, total = 0, 0
    waits: list[float] = []
    cpu_begin, begin = cpu.seconds(), time.perf_counter()
    passes: list[dict[str, float]] = []
    started = False
    settled: dict[str, float] = {}
    for number, batches in enumerate(open_passes()):
        last = time.perf_counter()
        ours: list[float] = []
        for batch in batches:
            now = time.perf_counter()
            ours.append(now - last)
            count, size = touch(batch)
            seen, total = seen + count, total + size
            if not started:
                started = True
                first = time.perf_counter()
                emit("start", wall=first, cpu=cpu.seconds(), bytes=total, samples=seen, first=first - begin)
            del batch
            last = time.perf_counter()
            if args.step:
                time.sleep(max(0.0, now + args.step - last))
                last = time.perf_counter()
            if args.seconds and not settled and last - begin > args.seconds / 4:
                settled = {"wall": last, "cpu": cpu.seconds(), "bytes": total, "samples": seen}
            if args.seconds and last - begin > args.seconds:
                break
        passes.append({"wall": time.perf_counter(), "cpu": cpu.seconds(), "bytes": total, "samples": seen})
        waits += ours if number else []
        if number + 1 == args.passes or (args.seconds and last - begin > args.seconds):
            break
    emit(
        "stop",
        **{"begin": begin, "cpu_begin": cpu_begin, "passes": passes, "settled": settled, "about": about(), "wait": True},
        waits=[round(wait, 5) for wait in waits],
    )
    sys.stdin.readline()

"""The peers' own shards of the same pictures, written once beside the tree of files and kept.

The tree repeats each picture by hard links (bench.pictures); shards are repeated in the same way: each picture is
written once, and whole shards get more names. So the page cache holds every byte once for every peer, and one epoch is
as long for all. Nothing here is in a measured window: peers call it in prepare().
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SHARD_BYTES = 4 << 20


@dataclass(frozen=True)
class Photos:
    """files: each picture once, with its class. copies: how often an epoch has each."""

    files: list[tuple[str, int]]
    copies: int


def photos(data: str) -> Photos:
    files, total = [], 0
    for label, folder in enumerate(sorted(entry.path for entry in os.scandir(data) if entry.is_dir())):
        names = sorted(os.listdir(folder))
        total += len(names)
        files += [(os.path.join(folder, name), label) for name in names if name.split("_")[1] == "000000"]
    # Neighbours in a shard should not be of one class.
    files.sort(key=lambda f: os.path.basename(f[0])[::-1])
    return Photos(files, total // len(files))


def made(data: str, name: str, write: Callable[[Path, Photos], None]) -> Path:
    """The folder of that name beside the tree, written by write(folder, photos) where it is not complete."""
    folder = Path(data).parent / name
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        write(folder, photos(data))
        (folder / "complete").touch()
    return folder


def links(path: Path, copies: int) -> list[Path]:
    """copies names of a file, the first of them its own."""
    out = [path]
    for copy in range(1, copies):
        to = path.with_name(f"{copy:06d}-{path.name}")
        os.link(path, to)
        out.append(to)
    return out

"""The data of a comparison: a folder of classes with enough samples for one window, all of it inside one epoch.

The pictures of DATA are copied once and repeated by hard links, so the page cache holds each once (a big folder is
linked and not copied). Nothing in a peer caches by content or inode, and none may be added that does. One epoch is
longer than warm-up and window together: no peer is measured across the seam of two epochs, where some drain their
workers.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

EXTENSIONS = (".jpg", ".jpeg")
CLASSES = 10
SLACK_BATCHES = 64
COPY_LIMIT = 1 << 30


@dataclass(frozen=True)
class Tree:
    root: Path
    pictures: int
    samples: int
    mean_bytes: float

    def warm(self) -> None:
        """One full pass: every byte is in the page cache."""
        seen = set()
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                inode = os.stat(path).st_ino
                if inode not in seen:
                    seen.add(inode)
                    with open(path, "rb") as f:
                        while f.read(1 << 20):
                            pass


def cache_dir() -> Path:
    path = Path(tempfile.gettempdir()) / f"stoker-bench-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def find(data: Path) -> list[tuple[str, Path]]:
    """(class, picture), in a fixed order: classes are the folders of DATA, or made up where it has none."""
    found = []
    for folder, dirs, names in os.walk(data, followlinks=True):
        dirs.sort()
        for name in sorted(names):
            if name.lower().endswith(EXTENSIONS):
                found.append(Path(folder) / name)
    if not found:
        raise SystemExit(f"{data}: no JPEG picture (name ending in .jpg or .jpeg) in it")
    named = []
    for i, path in enumerate(found):
        parts = path.relative_to(data).parts
        named.append((parts[0] if len(parts) > 1 else f"class_{i % CLASSES}", path))
    return named


def build(data: Path, samples: int, batch: int, named: list[tuple[str, Path]] | None = None) -> Tree:
    """named: (class, picture), if the classes are not find's."""
    data = data.resolve()
    if not data.is_dir():
        raise SystemExit(f"{data}: no such folder")
    named = named or find(data)
    sizes = [path.stat().st_size for _, path in named]
    copies = -(-(samples + SLACK_BATCHES * batch) // len(named))
    what = (str(data), copies, [(name, str(path)) for name, path in named], sizes)
    key = hashlib.sha256(repr(what).encode()).hexdigest()[:16]
    root = cache_dir() / key
    tree = Tree(root / "train", len(named), copies * len(named), sum(sizes) / len(sizes))
    if not (root / "complete").exists():
        shutil.rmtree(root, ignore_errors=True)
        for number, (name, path) in enumerate(named):
            folder = tree.root / name
            folder.mkdir(parents=True, exist_ok=True)
            origin = folder / f"{number:05d}_000000_{path.stem}.jpg"
            _place(path, origin, link=sum(sizes) > COPY_LIMIT)
            for copy in range(1, copies):
                os.link(origin, folder / f"{number:05d}_{copy:06d}_{path.stem}.jpg")
        (root / "complete").touch()
    return tree


def _place(path: Path, to: Path, link: bool) -> None:
    if link:
        try:
            os.link(path, to)
            return
        except OSError:
            pass
    shutil.copyfile(path, to)

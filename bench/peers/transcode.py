"""Writes the pictures of a tree again with restart markers and tables of their own: stoker pack, or --jpegtran.

What is measured is CPU time over the processes of either, each with its own writing: jpegtran a file a picture, as it
must, stoker its tar shards. Progressive pictures are left out for both. --start-up has jpegtran rewrite a picture of
one block as often: what its processes cost by themselves.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image

from bench import rig, shards
from bench.consumer import emit
from bench.meter import Clock

MCUS = 8


def baseline(path: str) -> bool:
    """Whether the first frame header of a JPEG is one of sequential coding, 8 bits, Huffman."""
    with open(path, "rb") as file:
        data = file.read()
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        if 0xC0 <= data[at + 1] <= 0xCF and data[at + 1] not in (0xC4, 0xC8, 0xCC):
            return data[at + 1] in (0xC0, 0xC1)
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return False


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--copies", type=int, default=8, help="of each picture")
    parser.add_argument("--jpegtran", action="store_true")
    parser.add_argument("--start-up", action="store_true", help="of jpegtran: rewrite a picture of one block as often")
    args = parser.parse_args()
    cpu = Clock.from_env()
    with tempfile.TemporaryDirectory(dir=Path(args.data).parent) as scratch:
        tree, out = Path(scratch, "tree"), Path(scratch, "out")
        out.mkdir()
        pictures = []
        for path, label in shards.photos(args.data).files:
            if not baseline(path):
                continue
            folder = tree / f"class_{label}"
            folder.mkdir(parents=True, exist_ok=True)
            for copy in range(args.copies):
                pictures.append(folder / f"{copy:03d}_{Path(path).name}")
                os.link(path, pictures[-1])
        if args.start_up:
            Image.new("L", (8, 8), 128).save(tree / "block.jpg")
            pictures = [tree / "block.jpg"] * len(pictures)
        size = sum(path.stat().st_size for path in pictures)
        emit("start", cpu=cpu.seconds(), wall=time.perf_counter())
        if args.jpegtran:
            for number, path in enumerate(pictures):
                _jpegtran(path, out / f"{number:06d}.jpg")
        else:
            engine = os.environ.get("STOKER_ENGINE") or str(rig.ROOT / "build" / "stoker")
            command = [engine, "pack", str(tree), str(out / "packed"), "--jpeg", "index"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        end, wall = cpu.seconds(), time.perf_counter()
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        written = sum(path.stat().st_size for path in out.rglob("*.[jt][pa][gr]"))
        emit("stop", cpu=end, wall=wall, samples=len(pictures), bytes=size, written=written, peak_mib=peak, wait=True)
        sys.stdin.readline()


def _jpegtran(source: Path, to: Path) -> None:
    # B counts MCUs; posix_spawn costs less than a fork of this process.
    command = ["jpegtran", "-copy", "all", "-optimize", "-restart", f"{MCUS}B", "-outfile", str(to), str(source)]
    pid = os.posix_spawnp(command[0], command, os.environ)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        raise SystemExit(f"jpegtran failed on {source}")


if __name__ == "__main__":
    main()

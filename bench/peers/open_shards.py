"""A fresh process opens tar shards whose index is there, engine and all, until their length is known."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy  # noqa: F401
import stoker

from bench.consumer import emit
from bench.meter import Clock


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    names = sorted(str(path) for path in args.data.glob("*.tar"))
    cpu = Clock.from_env()
    begin, used = time.perf_counter(), cpu.seconds()
    samples = len(stoker.WebDataset(names))
    seconds = time.perf_counter() - begin
    emit("stop", seconds=seconds, cpu_seconds=cpu.seconds() - used, samples=samples, wait=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

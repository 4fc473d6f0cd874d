"""A fresh process opens a folder of many samples, through stoker or (--torchvision) the way torchvision does it."""

from __future__ import annotations

import argparse
import importlib
import sys
import time

import numpy  # noqa: F401

from bench.consumer import emit


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--torchvision", action="store_true")
    args = parser.parse_args()
    library = importlib.import_module("torchvision.datasets" if args.torchvision else "stoker")
    emit("before", wait=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    folder = library.ImageFolder(args.data)
    samples = len(folder)
    seconds = time.perf_counter() - begin
    emit("stop", seconds=seconds, samples=samples, classes=len(folder.classes), wait=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()

"""Writes what a peer's own library has to write: python -m bench.peers.remote_write mds|litdata FOLDER DATA."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench import far


def mds(folder: Path, data: Path) -> None:
    from streaming import MDSWriter

    columns = {"image": "bytes", "label": "int"}
    with MDSWriter(out=str(folder), columns=columns, size_limit=far.SHARD, exist_ok=True) as out:
        for _, path, label in far.samples(data):
            out.write({"image": path.read_bytes(), "label": label})


def packed(item: tuple[str, int]) -> dict[str, Any]:
    return {"image": Path(item[0]).read_bytes(), "label": item[1]}


def litdata(folder: Path, data: Path) -> None:
    from litdata import optimize

    inputs = [(str(path), label) for _, path, label in far.samples(data)]
    optimize(fn=packed, inputs=inputs, output_dir=str(folder), chunk_bytes=far.SHARD, num_workers=1, mode="overwrite")


if __name__ == "__main__":
    {"mds": mds, "litdata": litdata}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))

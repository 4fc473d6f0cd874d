"""output="jax" with sharding=: global arrays on eight simulated devices, of one process and of two."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import long

SCRIPT = Path(__file__).with_name("sharded.py")

# Several cases in one process: torch and JAX take longer to import than most of them do to run.
CASES = """
import contextlib, importlib, io, json, sys, traceback
module = importlib.import_module(sys.argv[1])
for case, *arguments in json.loads(sys.argv[2]):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            getattr(module, case)(*arguments)
        except Exception:
            traceback.print_exc(file=out)
    print(json.dumps([case, out.getvalue()]))
"""


def told(module: str, *cases: tuple[Any, ...], **env: str) -> dict[str, str]:
    """What each case of a module prints, or its traceback."""
    given = json.dumps([[str(one) for one in case] for case in cases])
    path = os.pathsep.join([str(SCRIPT.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", CASES, module, given]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, **env}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-6000:]
    return dict(map(json.loads, done.stdout.splitlines()))


@pytest.fixture(scope="module")
def said(folder: Path, shards: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.bin"
    np.array([1, 0, 1, 2, 0] * 4, np.uint16).tofile(tokens)
    cases = (("global_arrays", folder), ("kinds", folder, shards), ("memory", folder), ("refused", folder))
    return told("sharded", *cases, TOKENS=str(tokens))


def begin(case: str, *arguments: Any, **env: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), case, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env={**os.environ, **env}, stdout=pipe, stderr=pipe, text=True)


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-6000:]
    return out


def test_global_arrays(said: dict[str, str]) -> None:
    assert said["global_arrays"] == "global arrays\n"


def test_kinds_of_batches(said: dict[str, str]) -> None:
    assert said["kinds"] == "kinds\n"


def test_memory_stays_what_it_is_until_jax_has_read_it(said: dict[str, str]) -> None:
    """The slots', and with a sharding copies: with donated arrays, with fewer slots than computations that wait, and
    with all batches kept."""
    assert said["memory"] == "memory\n"


REFUSED = [
    "batch_size is 6, and sharding splits the batch over 8 devices of this process\\n.*give a multiple of 8",
    "global_batch_size is 12, and sharding splits",
    "sharding splits batches, and there are none",
    "output is 'numpy'\\n.*output=\"jax\"",
    "sharding is of type str\\n.*NamedSharding",
    "sharding is of type",
    "tail='pad' ends an epoch with a batch of 2 rows, .* 8 devices\\n.*fill",
    "collate_fn makes batches of its own",
    "a batch of 3 rows cannot be split over 8 devices",
    "tokens= makes batches of different numbers of rows",
    "sharding: the last batch of a dataset that is iterated may be short\\n.*drop_last",
    "the length of 'tokens' differs from batch to batch",
    r"an array of shape \(8, 3, 32, 32\) cannot be split as sharding says: .* 4 times, .*\n.*the batch axis alone",
]


def test_what_cannot_be_split_is_an_error_that_says_what_to_give(said: dict[str, str]) -> None:
    for text, expected in zip(map(json.loads, said["refused"].splitlines()), REFUSED, strict=True):
        assert re.search(expected, text), text


@long
def test_ranks_of_jax(folder: Path) -> None:
    """Two processes with four devices each: who loads what follows from the mesh, and every device has its rows."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    begun = [begin("ranks", folder, port, process, PROCESSES="2") for process in range(2)]
    both = [json.loads(ended(process).splitlines()[-1]) for process in begun]
    assert sorted(i for found in both for ids in found["plain"] for i in ids) == list(range(50))
    orders: dict[str, list[Any]] = {
        "data": [range(8), range(8, 16)],
        "model within": [range(8), range(8, 16)],
        "model across": [range(8), range(8)],
        "interleaved": [[0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]],
        "here": [range(8), range(8)],
    }
    for name, rows in orders.items():
        one, other = (found[name] for found in both)
        same = name == "model across"
        assert one["ids"] == other["ids"] if same else not {*one["ids"]} & {*other["ids"]}, name
        whole = 8 if name in ("model across", "here") else 16
        for found, expected in zip((one, other), rows, strict=True):
            assert found["shape"] == [whole, whole]
            assert found["rows"] == [[row, label] for row, label in zip(expected, found["labels"], strict=True)], name
        if name != "here":
            assert one["sum"] == other["sum"] == sum(one["labels"]) + (0 if same else sum(other["labels"]))
    for process, found in enumerate(both):
        assert f"sharding makes this process rank {process} of 2" in found["given"]
        assert "several processes that do not have the same rows" in found["mixed"]
        assert "give a multiple of 8" in found["share"]

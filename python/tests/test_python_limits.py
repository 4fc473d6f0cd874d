"""Python workers where a limit is reached: memory of a cgroup, /dev/shm of 64 MiB. These tests need root."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mine
import pytest
from forms import mostly

import stoker

LIMIT = 384 << 20  # bytes


class Greedy(mine.Squares):
    """Sample 5 allocates without end."""

    def __getitem__(self, i: int) -> Any:
        taken = []
        while i == 5:
            taken.append(bytearray(os.urandom(1 << 10)) * (4 << 10))  # 4 MiB
        return i


@pytest.fixture
def small_group() -> Iterator[Path]:
    """The list of processes of a cgroup with little memory."""
    name = f"stoker-test-{os.getpid()}"
    for top, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(top, name)
        try:
            group.mkdir()
            (group / limit).write_text(str(LIMIT))
            with contextlib.suppress(OSError):
                (group / "memory.swap.max").write_text("0")
        except OSError:
            with contextlib.suppress(OSError):
                group.rmdir()
            continue
        yield group / "cgroup.procs"
        group.rmdir()
        return
    pytest.skip("no cgroup with a limit of memory can be made here")


@pytest.mark.parametrize("collate", mostly([None, mine.ids], None))
def test_a_worker_that_allocates_without_end(small_group: Path, collate: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The kernel kills it in its cgroup, it is replaced, and the sample is named after the second time."""

    def init(worker: int) -> None:
        small_group.write_text(str(os.getpid()))

    def make(policy: str) -> Any:
        return stoker.DataLoader(
            Greedy(), 4, num_workers=2, worker_init_fn=init, collate_fn=collate, on_bad=policy, seed=0
        )

    with make("fail") as loader:
        with pytest.raises(stoker.DataError, match="2 Python workers ended while they made this sample") as caught:
            list(loader)
        assert caught.value.where["sample"] == 5
        assert caught.value.where["worker"] in (0, 1)
        assert "memory" in str(caught.value)
    told = [record.getMessage() for record in caplog.records if "died" in record.getMessage()]
    assert 1 <= len(told) <= 2
    words = "while it made sample 5 (signal 9, SIGKILL); the kernel kills when memory runs out"
    assert all(words in line for line in told)
    with make("skip") as loader:
        assert {i for batch in loader for i in batch.tolist()} - {5} == {*range(5), *range(6, 20)}


SMALL_SHM = """
import os, sys
sys.path[:0] = {path!r}
import mine, torch, stoker
from torch.utils.data import default_collate

class Large(mine.Squares):
    def __getitem__(self, i):
        return torch.full((6 << 20,), i, dtype=torch.float32), i  # 24 MiB; a batch has 96

def collated(samples):
    pictures, numbers = default_collate(samples)
    return {{"pictures": pictures, "numbers": numbers}}

WAYS = {{
    "rows": (None, "fork"),
    "torch's": (default_collate, "fork"),
    "own": (collated, "fork"),
    "spawned": (collated, "spawn"),
}}
size = os.statvfs("/dev/shm")
assert size.f_blocks * size.f_frsize == 64 << 20
for name in sys.argv[1:]:
    collate, method = WAYS[name]
    found = []
    workers = 2 if method == "fork" else 1  # which imports torch
    keywords = {{"collate_fn": collate, "multiprocessing_context": method}}
    for batch in stoker.DataLoader(Large(8), 4, num_workers=workers, **keywords):
        pictures, numbers = batch.values() if isinstance(batch, dict) else batch
        assert (pictures == numbers[:, None]).all()
        found += numbers.tolist()
        del batch, pictures
    assert found == list(range(8)), found
    assert os.listdir("/dev/shm") == []
print("whole")
"""


@pytest.mark.parametrize("ways", mostly(["rows", "own torch's spawned"], "rows"))
def test_shared_memory_of_64_mib(tmp_path: Path, ways: str) -> None:
    """As in a container: torch's own loader ends there with a bus error."""
    script = tmp_path / "script.py"
    path = [str(Path(stoker.__file__).parents[1]), str(Path(__file__).parent)]
    body = SMALL_SHM.format(path=path)
    head, work = body.split("size = ")
    script.write_text(f"{head}\nif __name__ == '__main__':\n" + textwrap.indent("size = " + work, "    "))
    small = "mount -t tmpfs -o size=64m tmpfs /dev/shm"
    if subprocess.run(["unshare", "-m", "sh", "-c", small], capture_output=True).returncode:
        pytest.skip("no mount namespace can be made here")
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{small} && exec {sys.executable} {script} "$@"', "sh", *ways.split()],
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "whole\n", ran.stderr

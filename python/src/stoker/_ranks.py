"""Which rank this process is, and whether all ranks read the same dataset."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

from ._errors import DataError, Problems, whole


def of_process(rank: int | None, world: int | None) -> tuple[int, int]:
    """Rank and world size: as said, else torch.distributed's where it runs, else the environment's, else 0 of 1."""
    if rank is not None and world is not None:
        return rank, world
    if (distributed := _running()) is not None:
        return distributed.get_rank(), distributed.get_world_size()
    texts = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if texts[0] is None or texts[1] is None:
        return 0, 1
    problems = Problems("RANK and WORLD_SIZE in the environment")
    try:
        found = int(texts[0]), int(texts[1])
        check(*found, problems)
    except ValueError:
        problems.add(f"they are {texts[0]!r} and {texts[1]!r}", "unset them, or give rank= and world_size=")
    problems.raise_any()
    return found


def check(rank: Any, world: Any, problems: Problems) -> None:
    """Adds a problem unless rank is one of world."""
    if not (whole(rank) and whole(world) and 0 <= rank < world):
        problems.add(f"rank is {rank!r} in a world of {world!r}", "ranks go from 0 to world_size - 1")


def _running() -> Any:
    """torch.distributed, if the program has imported it and a process group runs."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed
    return None


_published: dict[str, int] = {}


def compare(name: str, digest: str, rank: int) -> None:
    """DataError if another rank has opened its loader of this name over another dataset.

    The first rank to come writes its digest into the process group's store, the others compare: one request each, and
    nobody waits for anybody, so that a loader which only some ranks open hangs nothing. Loaders of one name are told
    apart by counting.
    """
    distributed = _running()
    if distributed is None:
        return
    number = _published[name] = _published.get(name, 0) + 1
    first = ""
    with suppress(AttributeError, RuntimeError, NotImplementedError):  # a store of a kind that can not compare
        store = distributed.distributed_c10d._get_default_store()
        first = bytes(store.compare_set(f"stoker/{name}/{number}", "", f"{digest} {rank}")).decode()
    theirs, _, other = first.partition(" ")
    if theirs and theirs != digest:
        raise DataError(
            f"rank {rank} reads another dataset than rank {other}",
            code="differs",
            cause=f"the digests of their files, sizes and labels are {digest} and {theirs}",
            hint="give every rank the whole dataset: stoker splits it over the ranks, and slicing it by hand as well "
            "loses samples (rank=0, world_size=1 leaves the splitting to you)",
        )

"""Which rank this process is, and whether all ranks read the same dataset in the same order."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ._errors import ConfigError, DataError, Problems, StokerError, whole


def of_process(rank: int | None, world: int | None) -> tuple[int, int]:
    """Rank and world size: as given, else torch.distributed's if it is running, else the environment's, else 0 of 1."""
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
    """torch.distributed, if the program has imported it and a process group is running."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed
    return None


# Workers of torch's DataLoader.


def worker() -> Any:
    """What torch knows about this process as a worker of its DataLoader; None if it is not one."""
    known = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", None)
    return known() if callable(known) else None


def refuse_worker() -> None:
    """ConfigError in a worker of torch's DataLoader: each of them would deliver the whole share of the rank."""
    info = worker()
    if info is None:
        return
    rank, world = of_process(None, None)
    raise ConfigError(
        f"DataLoader: iterated in worker {info.id} of the {info.num_workers} workers of a torch DataLoader; each "
        "would deliver all samples",
        hint="iterate it in the training loop, where it needs no workers. To share it among the workers: "
        "info = torch.utils.data.get_worker_info(), rank=rank * info.num_workers + info.id, "
        f"world_size=world_size * info.num_workers; that is rank={rank * info.num_workers + info.id}, "
        f"world_size={world * info.num_workers} here",
    )


# What must be the same on all ranks.

_made: dict[str, int] = {}  # number of loaders, by the lines that made them


def name() -> str:
    """The same name for a loader on every rank: the lines of the script that make it, and how many they made before."""
    lines = []
    frame = sys._getframe(1)
    while True:
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] != __package__:
            lines.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}")
        if frame.f_back is None or frame.f_code.co_name == "<module>":
            break
        frame = frame.f_back
    place = hashlib.blake2b(" ".join(lines).encode(), digest_size=8).hexdigest()
    number = _made[place] = _made.get(place, 0) + 1
    return f"{place}/{number}"


def compare(name: str, facts: Mapping[str, Any], rank: int, world: int) -> None:
    """An error if another rank opened its loader of this name with other facts.

    The first rank writes its facts into the process group's store, and the others compare: one request each. No rank
    waits for another, so a loader that only some ranks open does not hang.
    """
    distributed = _running()
    if distributed is None or distributed.get_world_size() != world:
        return
    mine = json.dumps({"rank": rank, **facts}, sort_keys=True)
    first = ""
    with suppress(AttributeError, RuntimeError, NotImplementedError):  # a kind of store that cannot compare
        store = distributed.distributed_c10d._get_default_store()
        first = bytes(store.compare_set(f"stoker/{name}", "", mine)).decode()
    theirs = json.loads(first or mine)
    for fact, value in facts.items():
        if theirs.get(fact) != value:
            raise _differs(fact, (rank, value), (theirs["rank"], theirs.get(fact)))


def _differs(fact: str, mine: tuple[int, Any], theirs: tuple[int, Any]) -> StokerError:
    rank, other = mine[0], theirs[0]
    if fact == "dataset":
        return DataError(
            f"rank {rank} does not read the same dataset as rank {other}",
            code="differs",
            cause=f"the digests of their files, sizes and labels are {mine[1]} and {theirs[1]}",
            hint="give every rank the whole dataset: stoker splits it over the ranks, and slicing it by hand too "
            "loses samples (with rank=0, world_size=1 you split it yourself)",
        )
    cause = "each rank takes its share of a different order: some samples come twice, others never"
    if fact == "seed":
        return ConfigError(
            f"rank {rank} shuffles with seed {mine[1]}, rank {other} with seed {theirs[1]}",
            cause=cause,
            hint="pass the same seed= on every rank; crops and flips still differ between ranks, because every "
            "sample draws its own",
        )
    return ConfigError(
        f"{fact} is {_shown(mine[1])} on rank {rank} but {_shown(theirs[1])} on rank {other}",
        cause=cause,
        hint=f"make the loader with the same {fact} on every rank",
    )


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)

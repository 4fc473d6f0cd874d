"""Which rank this process is, and whether all ranks read the same dataset in the same order.

of_process, check    rank and world size
refuse_worker        for workers of torch's DataLoader
name, compare        whether all ranks made a loader with the same facts
Starts, Start        whether all ranks begin their passes over it at the same place

Ranks compare through the store of torch.distributed's default process group. No rank waits for another: the first one
writes its facts, and each later one compares its own with them. A rank that never comes does not hold up the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import weakref
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic, sleep
from types import FrameType
from typing import Any

from . import _notice
from ._errors import ConfigError, DataError, Problems, StokerError, whole


def of_process(rank: int | None, world: int | None) -> tuple[int, int]:
    """Rank and world size: as given, else torch.distributed's or jax.distributed's if it is running, else the
    environment's, else 0 of 1."""
    if rank is not None and world is not None:
        return rank, world
    if (distributed := _running()) is not None:
        return distributed.get_rank(), distributed.get_world_size()
    if (place := _of_jax()) is not None:
        return place
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


def _of_jax() -> tuple[int, int] | None:
    """Process and number of processes of JAX, if the program has called jax.distributed.initialize()."""
    # Not jax.process_index(): it starts the devices, and a program may still have to choose them.
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(state, "client", None) is None:
        return None
    rank: Any = getattr(state, "process_id", None)
    world: Any = getattr(state, "num_processes", None)
    return (rank, world) if whole(rank) and whole(world) else None


# Workers of torch's DataLoader.


def worker() -> Any:
    """What torch knows about this process as a worker of its DataLoader; None if it is not one."""
    known = getattr(sys.modules.get("torch.utils.data"), "get_worker_info", None)
    return known() if callable(known) else None


def fetching() -> bool:
    """Whether torch's DataLoader has called this, for a batch: in a worker of it, or in this process."""
    if worker() is not None:
        return True
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "torch.utils.data._utils.fetch":
            return True
        frame = frame.f_back
    return False


makes_samples = False  # this process is a worker of stoker's: what it iterates is for one sample


def refuse_worker() -> None:
    """ConfigError in a worker of torch's DataLoader: each of them would deliver the whole share of the rank."""
    info = worker()
    if info is None or makes_samples:
        return
    rank, world = of_process(None, None)
    raise ConfigError(
        f"DataLoader: iterated in a worker ({info.id} of {info.num_workers}) of a torch DataLoader; each "
        "would deliver all samples",
        hint="iterate it in the training loop, where it needs no workers. To share it among the workers: "
        "info = torch.utils.data.get_worker_info(), rank=rank * info.num_workers + info.id, "
        f"world_size=world_size * info.num_workers; that is rank={rank * info.num_workers + info.id}, "
        f"world_size={world * info.num_workers} here",
    )


# What must be the same on all ranks.

_made: dict[str, int] = {}  # number of loaders, by the digest of the lines that made them


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
    digest = hashlib.blake2b(" ".join(lines).encode(), digest_size=8).hexdigest()
    number = _made[digest] = _made.get(digest, 0) + 1
    return f"{digest}/{number}"


def compare(name: str, facts: Mapping[str, Any], rank: int, world: int) -> None:
    """An error if another rank opened its loader of this name with other facts."""
    board = _board(world)
    theirs = None if board is None else board.met(name, {"rank": rank, **facts})
    if theirs is None:
        return
    for fact, value in facts.items():
        if theirs.get(fact) != value:
            raise _differs(fact, (rank, value), (theirs["rank"], theirs.get(fact)))


# The store. A request takes about 0.1 ms on one machine, and a round trip of the network otherwise.

_LIMIT_S = 5  # nobody waits longer for an answer: the process of the job that has the store may be stopped or gone


class _Board:
    """What the ranks of one process group write for one another in its store.

    torchrun's store survives a restart of the ranks, and keeps what the processes before it wrote. So keys begin with
    the number of restarts. A node that was replaced counts them from 0: where that can happen, an entry counts only
    while the process that wrote it is the newest of its rank.
    """

    def __init__(self, store: Any, rank: int, world: int, group: int) -> None:
        self.store = weakref.ref(store)
        self.group = group
        self._rank = rank
        self._prefix = f"stoker/{world}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}/{group}"
        self._process = os.urandom(8).hex()
        # Whether the store may hold entries of earlier processes under the same keys.
        self._outlived = _number("TORCHELASTIC_MAX_RESTARTS") > 0 and _number("GROUP_WORLD_SIZE") > 1
        self._limit_s = 2 * _LIMIT_S if self._outlived else _LIMIT_S
        self._entered = False  # whether this process is written down as the newest of its rank
        self._silent = False  # whether the store once did not answer: it is not asked again

    def met(self, key: str, facts: Mapping[str, Any]) -> dict[str, Any] | None:
        """The facts of the rank that came first to this key; None if that is this rank, or if the store does not
        answer. The first rank's facts are written down for the others."""
        store = self.store()
        if self._silent or store is None:
            return None
        found: list[dict[str, Any]] = []
        text = json.dumps({"by": self._rank, "process": self._process, **facts})

        def ask() -> None:
            with suppress(Exception):  # a kind of store that cannot compare, or one that has gone
                found.append(self._ask(store, f"{self._prefix}/{key}", text, facts))

        asking = threading.Thread(target=ask, name="stoker-ranks", daemon=True)
        asking.start()
        asking.join(self._limit_s)
        if asking.is_alive():
            self._silent = True
            limit = f"{self._limit_s} s"
            _notice.say(f"the store of torch.distributed did not answer in {limit}; ranks are no longer compared")
        return found[0] if found and found[0]["by"] != self._rank else None

    def _ask(self, store: Any, key: str, text: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        """The entry of this key, written if there was none, or if the one there does not count."""
        newest = f"stoker/process/{self._rank}"
        if self._outlived and not self._entered:
            store.set(newest, self._process)
            self._entered = True
        first = bytes(store.compare_set(key, "", text))
        theirs: dict[str, Any] = json.loads(first)
        same = all(theirs.get(fact) == value for fact, value in facts.items() if fact != "rank")
        if same or not self._outlived or theirs["process"] == self._process:
            return theirs
        until = monotonic() + _LIMIT_S
        while bytes(store.get(f"stoker/process/{theirs['by']}")).decode() == theirs["process"]:
            if monotonic() > until:
                return theirs
            sleep(0.1)  # a newer process of that rank may not have come here yet
        mine: dict[str, Any] = json.loads(store.compare_set(key, first.decode(), text))
        return mine


_boards: list[_Board] = []  # one for each default process group so far; the last one is current


def _board(world: int) -> _Board | None:
    """The board of the default process group; None if its ranks are not those of the loader.

    There is none in a worker of torch's DataLoader: a forked one shares the trainer's connection to the store.
    """
    distributed = _running()
    if distributed is None or distributed.get_world_size() != world or worker() is not None:
        return None
    try:
        store = distributed.distributed_c10d._get_default_store()
    except (AttributeError, RuntimeError, ValueError):
        return None
    if store is None:  # as with MPI
        return None
    if not _boards or _boards[-1].store() is not store:
        _boards.append(_Board(store, distributed.get_rank(), world, len(_boards)))
    return _boards[-1]


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else 0


# Where passes start.

_PLACES = 16  # how many places a rank tells the others: the last ones since its last collective call
_copies: dict[str, int] = {}  # of loaders, by name


class Starts:
    """Where this rank starts its passes over a loader. A place is an epoch and a position.

    Ranks may make different numbers of passes: one may look at a batch, or evaluate, alone. So passes are paired by the
    number of collective calls before them, which is equal on all ranks, and by their number since the last such call;
    and once more after a collective call within them. Passes that have no counterpart are not compared. Nor are passes
    that begin in another thread than the one that made the loader, such as a prefetcher's: the training loop makes
    collective calls meanwhile, at any moment.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread = threading.get_ident()
        self._since = (-1, 0)  # the process group, and its collective calls so far
        self._begun: tuple[int, list[list[int]]] = (0, [])  # since then: number of passes, and places of the last ones

    def __reduce__(self) -> tuple[Any, ...]:
        return _copy, (self._name,)

    def next(self, place: tuple[int, int], seed: int | None, rank: int, world: int) -> Start | None:
        """The start of the next pass, at this place; ``Start.began`` counts the pass. None if there is nothing to
        compare it with. If the order is the same in every epoch, the caller passes epoch 0 and no seed."""
        board = _board(world) if world > 1 and threading.get_ident() == self._thread else None
        return None if board is None else Start(self, board, list(place), seed, rank)


class Start:
    """Where one pass starts."""

    def __init__(self, of: Starts, board: _Board, place: list[int], seed: int | None, rank: int) -> None:
        self._of = of
        self._board = board
        self._since = (board.group, _calls())
        number, before = of._begun if of._since == self._since else (0, [])
        self._begun = number + 1, [*before, place][-_PLACES:]
        self._seed = seed
        self._rank = rank
        self._asked: set[str] = set()

    def began(self) -> None:
        """Counts the pass among those of this rank. A pass that could not begin is not counted, and may begin again."""
        self._of._since, self._of._begun = self._since, self._begun

    def compare(self) -> None:
        """ConfigError if the pass of another rank that is paired with this one starts elsewhere.

        A second call asks nothing unless there was a collective call since the first.
        """
        calls, (number, here) = self._since[1], self._begun
        key = f"{self._of._name}/{calls}/{number}/{_calls()}"
        if key in self._asked:
            return
        if (theirs := self._met(key, {"places": here})) is not None:
            there = theirs["places"]
            if here[-1] not in there and there[-1] not in here:  # else one of the ranks made further passes alone
                raise _apart((self._rank, here[-1]), (theirs["rank"], there[-1]))
        self._asked.add(key)

    def settle(self) -> bool:
        """The same once a collective call was made in the pass: ranks that have made as many calls are at the same line
        of the script, so this also finds a rank that has taken a batch alone before. True if it has compared."""
        calls = _calls()
        if calls == self._since[1]:
            return False
        here = self._begun[1][-1]
        theirs = self._met(f"{self._of._name}/within/{calls}", {"place": here})
        if theirs is not None and theirs["place"] != here:
            raise _apart((self._rank, here), (theirs["rank"], theirs["place"]))
        return True

    def _met(self, key: str, facts: dict[str, Any]) -> dict[str, Any] | None:
        """The facts of another rank under this key, if there is one; its seed is this rank's."""
        theirs = self._board.met(key, {"rank": self._rank, "seed": self._seed, **facts})
        if theirs is not None and theirs["seed"] != self._seed:
            raise _differs("seed", (self._rank, self._seed), (theirs["rank"], theirs["seed"]))
        return theirs


def _copy(name: str) -> Starts:
    """The starts of a copy of the loader, in this process or another."""
    number = _copies[name] = _copies.get(name, 0) + 1
    return Starts(f"{name}/copy{number}")


def _calls() -> int:
    """The number of collective calls in the default process group; 0 if it does not count them."""
    with suppress(AttributeError, RuntimeError, ValueError):
        return int(_running().group.WORLD._get_sequence_number_for_group())
    return 0


_CAUSE = "each rank takes its share of a different order: some samples come twice, others never"


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
    if fact == "seed":
        return ConfigError(
            f"rank {rank} shuffles with seed {mine[1]}, rank {other} with seed {theirs[1]}",
            cause=_CAUSE,
            hint="pass the same seed= on every rank; crops and flips still differ between ranks, because every "
            "sample draws its own",
        )
    return ConfigError(
        f"{fact} is {_shown(mine[1])} on rank {rank} but {_shown(theirs[1])} on rank {other}",
        cause=_CAUSE,
        hint=f"make the loader with the same {fact} on every rank",
    )


def _apart(mine: tuple[int, list[int]], theirs: tuple[int, list[int]]) -> StokerError:
    (rank, (epoch, position)), (other, (their_epoch, their_position)) = mine, theirs
    if epoch != their_epoch and position == their_position == 0:
        what = f"rank {rank} begins epoch {epoch}, rank {other} epoch {their_epoch}"
        hint = (
            "call set_epoch with the same number on every rank, and load the same state on every rank. If one rank has "
            "iterated the loader alone, call set_epoch on all ranks before the next epoch"
        )
    else:
        what = f"rank {rank} begins at position {position}, rank {other} at position {their_position}"
        if epoch != their_epoch:
            what = (
                f"rank {rank} begins at position {position} of epoch {epoch}, "
                f"rank {other} at position {their_position} of epoch {their_epoch}"
            )
        hint = (
            "load the same state on every rank: the state of one rank fits all. If one rank has iterated the loader "
            "alone, load the state again, or call set_epoch, on all ranks"
        )
    return ConfigError(what, cause=_CAUSE, hint=hint)


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)

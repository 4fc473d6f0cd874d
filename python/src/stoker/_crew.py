"""The keywords of a DataLoader that say how a user's own Python code runs.

Hands    their result
read()   keywords -> Hands
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import _lookup, _notice
from ._errors import Problems, whole
from ._orders import Ordering
from ._theirs import iterated, kind, ours, takes_lists
from ._values import collates_otherwise

PER_WORKER = 2  # batches made ahead for each worker that makes whole batches, as in torch
SEEDINGS = ("key", "worker")


@dataclass(frozen=True)
class Hands:
    """Who makes the samples of a user's own dataset, and how."""

    workers: int  # processes; 0: the calling thread
    whole: bool  # a worker makes whole batches
    single: bool  # samples are not batched
    lists: bool  # by one call of __getitems__
    collate: Any
    init: Any
    context: Any  # of multiprocessing; None for the calling thread
    persistent: bool
    prefetch: int  # batches made ahead
    timeout: float  # seconds; 0: for ever
    seeding: str  # "key", or "worker", torch's rule
    why: str  # what is not known to the engine
    lookup: bool = False  # nobody makes samples: the thread of the loop takes rows of arrays (_lookup.py)
    iterates: bool = False  # each worker iterates the dataset, which has no numbered samples
    size: int | None = None  # and so many samples are a batch; None: they are not batched
    drop: bool = False  # the last batch of a worker, if it is not full
    after: str = ""  # the user's last steps, if the engine does them to what workers make

    @property
    def method(self) -> str:
        """How processes are started: fork, spawn or forkserver."""
        return str(self.context.get_start_method()) if self.context is not None else ""

    def told(self) -> dict[str, Any]:
        """What the engine is told besides the number of workers and the unit."""
        return {"turns": True, "iterates": True} if self.iterates else {}

    def words(self) -> str:
        """For the line at start."""
        if self.lookup:
            return f"native, without workers: {self.why}"
        if not self.workers:
            return f"Python in the training process (num_workers=0), because {self.why}"
        workers = f"{self.workers} Python worker{'s' if self.workers > 1 else ''}"
        after = f"; the engine does {self.after} after it" if self.after else ""
        return f"{workers} ({self.method}), because {self.why}{after}"


def read(user: Any, k: Mapping[str, Any], single: bool, problems: Problems) -> Hands:
    """Reads the keywords for a user's own dataset; adds what is wrong with them to problems."""
    name = kind(user)
    why = f"{name} makes its samples in Python"
    mine = ours(user)
    if mine:
        name, why = user.shown, user.why(k["collate_fn"])
    for key in (
        ("pack", "tune") if mine and user._native else ("layout", "max_pixels", "fetch", "cache", "pack", "tune")
    ):
        if k[key] is not None and k[key] is not False:
            problems.add(
                f"{key} is for datasets that the engine reads, and {name} is made by Python code",
                "leave it out" if key != "pack" else "pack the samples in collate_fn",
            )
    collate, init = k["collate_fn"], k["worker_init_fn"]
    for key, function in (("collate_fn", collate), ("worker_init_fn", init)):
        if function is not None and not callable(function):
            problems.add(f"{key} is of type {type(function).__name__}, which cannot be called", "give a function")
    if _is_default(collate, single):
        collate = None
    workers = _workers(k, problems)
    context = _context(k["multiprocessing_context"], workers, problems)
    iterates = not mine and iterated(user)
    if iterates:
        why = f"{name} is iterated in Python"
        _iterated(name, k, problems)
    lists = not mine and not iterates and takes_lists(user)
    batches = iterates or collate is not None or lists or single or not workers or collates_otherwise()
    factor = k["prefetch_factor"]
    prefetch = k["prefetch"]
    if not whole(prefetch):
        prefetch = (factor if whole(factor) else PER_WORKER) * max(1, workers)
        if not whole(factor) and not batches and k["seeding"] != "worker":
            prefetch = workers + 1  # all workers work on one batch: more batches ahead are only memory
    if not workers:
        prefetch = 1  # nothing is made ahead
    seeding = SEEDINGS[0] if k["seeding"] is None else k["seeding"]
    if seeding not in SEEDINGS:
        problems.add(f"seeding is {seeding!r}", f"it can be {' or '.join(map(repr, SEEDINGS))}")
    return Hands(
        workers=workers,
        whole=batches,
        single=single,
        lists=lists and not single,
        collate=collate,
        init=init,
        context=context,
        persistent=bool(k["persistent_workers"]),
        prefetch=prefetch,
        timeout=float(k["timeout"]) if isinstance(k["timeout"], (int, float)) else 0.0,
        seeding=seeding,
        why=why,
        iterates=iterates,
        size=None if single else k["batch_size"],
        drop=bool(k["drop_last"]) or k["tail"] == "drop",
        after=user.after() if mine and not batches else "",
    )


def looked_up(
    user: Any, k: Mapping[str, Any], hands: Hands, output: str, ordering: Ordering, rows: int | None
) -> Hands:
    """The same, without anybody who makes samples if the rows of arrays are all that there is. ``rows`` are the samples
    of a batch, as far as they are known."""
    known = not ordering.walked or _lookup.gives_ids(ordering.sampler)
    own_code = hands.collate is not None or hands.init is not None or hands.lists or hands.single or hands.iterates
    if own_code or not known or k["native"] is False or collates_otherwise() or ours(user):
        return hands
    if hands.workers and rows is None or not _lookup.fits(user, output, rows if hands.workers else None):
        return hands
    why = f"the rows of {kind(user)} are looked up, a batch at a time"
    return replace(hands, lookup=True, why=why, prefetch=max(hands.prefetch, PER_WORKER))


# What decides an order of numbered samples.
_ORDERS = """shuffle sampler batch_sampler weights balanced replacement num_samples block window streams lengths bucket
tokens long length_window""".split()


def _iterated(name: str, k: Mapping[str, Any], problems: Problems) -> None:
    """Adds the keywords that need numbered samples, as torch refuses them too."""
    given = [key for key in _ORDERS if k[key] is not None and k[key] is not False]
    if given:
        problems.add(
            f"{' and '.join(given)} cannot be combined with {name}, which is iterated: it alone decides the order",
            "shuffle within it (a buffer in __iter__; datasets and webdataset have .shuffle()), or give it __getitem__ "
            "and __len__ instead of __iter__",
        )
    if k["global_batch_size"] is not None:
        problems.add(
            f"global_batch_size cannot be combined with {name}, which is iterated: ranks do not share its samples out",
            "give batch_size, the samples in a batch of one rank",
        )
    if k["tail"] in ("pad", "fill"):
        problems.add(
            f"tail={k['tail']!r} cannot be combined with {name}, which is iterated: nobody knows where it ends",
            "leave it out; drop_last=True drops the last batch of each worker, if it is not full",
        )


def _is_default(collate: Any, single: bool) -> bool:
    """Whether it is torch's own function, which is what batches get without one."""
    name = getattr(collate, "__name__", "")
    ours = str(getattr(collate, "__module__", "")).startswith("torch.utils.data")
    return ours and name == ("default_convert" if single else "default_collate")


def _workers(k: Mapping[str, Any], problems: Problems) -> int:
    number = k["num_workers"]
    if not whole(number) or number < 0:
        problems.add(f"num_workers is {number!r}", "give the number of worker processes; 0 is the training process")
        return 0
    if not number:
        if k["prefetch_factor"] is not None:
            problems.add("prefetch_factor needs num_workers > 0", "raise num_workers, or leave it out")
        if k["persistent_workers"]:
            problems.add("persistent_workers needs num_workers > 0", "raise num_workers, or leave it out")
    return int(number)


def _context(given: Any, workers: int, problems: Problems) -> Any:
    """The context of multiprocessing that starts the workers."""
    if given is not None and not workers:
        problems.add("multiprocessing_context needs num_workers > 0", "raise num_workers, or leave it out")
        return None
    if not workers:
        return None
    if given is None:
        method = multiprocessing.get_start_method(allow_none=True) or ("forkserver" if _jax_runs() else "fork")
        return multiprocessing.get_context(method)
    if isinstance(given, str):
        if given not in multiprocessing.get_all_start_methods():
            problems.add(
                f"multiprocessing_context is {given!r}",
                f"it can be {', '.join(map(repr, multiprocessing.get_all_start_methods()))}",
            )
            return None
        return multiprocessing.get_context(given)
    if not callable(getattr(given, "get_start_method", None)) or not hasattr(given, "Process"):
        problems.add(
            f"multiprocessing_context is of type {type(given).__name__}",
            "give 'fork', 'spawn', 'forkserver', or what multiprocessing.get_context() returned",
        )
        return None
    return given


def _jax_runs() -> bool:
    """Whether JAX has started its threads: a process that is forked then may wait for ever for a lock of theirs."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "_backends", None))


def notices(k: Mapping[str, Any], hands: Hands, left_out: bool) -> None:
    """What should be said once about the keywords."""
    if left_out and not hands.lookup:
        _notice.say(
            "num_workers is 0, as in torch, because it was left out: the dataset's Python code runs in the training "
            "process; num_workers=4 runs it in four worker processes"
        )
    if hands.init is not None and not hands.workers:
        _notice.say("worker_init_fn is not called: num_workers is 0")
    elif hands.init is not None and hands.seeding == "key" and not hands.iterates:
        _notice.say(
            "random numbers are seeded before each sample from the seed, the epoch and the sample's place, so seeds "
            "that worker_init_fn sets have no effect; they last with seeding='worker', torch's rule"
        )
    if k["pin_memory_device"]:
        _notice.say("pin_memory_device is ignored: pin_memory=True is enough")
    if not k["in_order"]:
        _notice.say("in_order=False is ignored: batches come in order")

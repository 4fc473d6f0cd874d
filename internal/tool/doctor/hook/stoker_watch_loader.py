"""torch's DataLoader, watched from the loop: how long it waits for each batch, and what the loader is.

Doors hang before DataLoader.__init__ and _get_iterator and before the iterators' _reset, _next_index and __next__, so
that subclasses and wrappers that come down to them are seen under their own names. None hangs before __iter__: what a
signal handler raises in a descriptor there, CPython turns into "object is not iterable". A pass is one epoch over a
loader; it is kept in the iterator's __dict__ (which refuses to be pickled anyway), the loader itself is not written to.
"""

import sys
import weakref
from _thread import get_ident
from collections import deque
from time import monotonic

import stoker_watch_calls as calls
import stoker_watch_fetch as fetch
import stoker_watch_look as look
import stoker_watch_moves as moves
import stoker_watch_process as core
import stoker_watch_steps as steps
from stoker_watch_door import Method, around, hang, keep, trouble

PASS = "_stoker_watch_pass"  # in the __dict__ of an iterator
EPOCHS = 8
RECENT = 64
FIRST = 32  # indices that tell one epoch's order from another's
LOADERS = 64
LOOKS = 16  # batches from one that is looked at to the next
LONG = 5.0  # s from which on a step is remembered by itself: it may have hung
LONGEST = 8  # of these are kept
LOOKING = 0.002  # share of the time that looking may take

_torch = None  # the module torch.utils.data.dataloader
_loaders: dict = {}  # id of a loader -> Loader, which may by now be another's id
# id of a loader -> weak reference, where it was built, and where a library that built it may have had it from: the
# lines of the loaders that there were, by the id of their dataset, which a loader made of another shares with that
_places: dict = {}
_building: dict = {}  # thread -> Pass whose iterator is being made
_count = 0


class Loader:
    """Figures of one DataLoader, all its epochs together."""

    def __init__(self, loader, number: int, where: str, facts: dict) -> None:
        self.reference = weakref.ref(loader)
        self.number = number
        self.where = where
        self.steps = 0
        self.epochs: deque = deque(maxlen=EPOCHS)
        self.passes = 0
        self.made = 1  # objects that were this loader, one after the other
        # Replaced as a whole: batches, wait s, of it for the first batches, step s, sum of ready, how many of them
        self.totals = (0, 0.0, 0.0, 0.0, 0, 0)
        self.waits = fetch.Histogram()
        self.between = steps.Between()
        self.lines: list = []  # the script's calls that built it: path, line, function
        self.long: list = []  # the longest steps, shortest first: s, and when they were over
        self.recent: deque = deque(maxlen=RECENT)
        self.doing = ("", 0.0)  # "wait", "step" or "start", since when
        self.context: str | None = None
        self.pids: list = []
        self.bytes = (0, 0, 0)  # batches looked at, their bytes, their samples
        self.seen: dict = {"shape": None, "pinned": None}
        self.paddings: list = []
        self.spent = 0.0
        self.moves = moves.Moves()
        self.set_epoch: bool | None = None
        self.epoch_number: int | None = None
        self.repeated: bool | None = None
        self.order: tuple | None = None
        self.stage = None
        self.dataset_bytes: int | None = None
        self.handles: list = []
        self.on_device: list = []  # what of the dataset is on a device when workers start
        self.stores: list = []  # what the dataset reads from, by the types of its attributes
        self.facts = facts
        workers = self.facts["workers"]
        if workers:
            self.dataset_bytes = look.pickled_bytes(loader.dataset)
        elif self.facts["kind"] is not None:
            self.stage = fetch.Stage(number, None, monotonic())
            core.process.stages.append(self.stage)

    def begin(self, loader, now: float) -> "Pass":
        if self.facts["workers"]:
            try:
                self.handles = [*self.handles, *(h for h in look.handles(loader.dataset) if h not in self.handles)]
            except Exception as error:
                trouble(error)
            try:
                self.on_device = look.on_device(loader.dataset) if look.cuda() else []
            except Exception as error:
                trouble(error)
        sampler = _epoch_sampler(loader)
        if sampler is not None:
            number = sampler.__dict__.get("epoch")
            if self.passes and self.set_epoch is not True:
                self.set_epoch = number != self.epoch_number
            self.epoch_number = number
        self.passes += 1
        try:
            self.stores = look.stores(loader.dataset)
        except Exception as error:
            trouble(error)
        if self.facts["workers"]:
            fetch.prepare(loader.dataset, self.passes == 1)
        epoch = {"begin": now, "first": None, "end": None, "batches": 0}
        self.epochs.append(epoch)
        self.doing = ("start", now)
        self.steps += 1
        return Pass(self, epoch)

    def iterated(self, iterator) -> None:
        workers = getattr(iterator, "_workers", None)
        if workers:
            self.context = getattr(workers[0]._popen, "method", None)
            self.pids = [worker.pid for worker in workers]
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if fetcher is not None and self.stage is not None:
            fetcher.__dict__[fetch.STAGE] = self.stage

    def began_with(self, indices: tuple) -> None:
        if self.order is not None and self.repeated is not True:
            self.repeated = self.order == indices
        self.order = indices

    def look(self, data) -> None:
        """At some batches only: the first, then one in sixteen, while that is cheap."""
        begin = monotonic()
        if self.bytes[0] >= 4:
            if self.totals[0] % LOOKS or self.spent > LOOKING * (begin - self.epochs[-1]["begin"]):
                return
        try:
            found = look.batch(data)
        except Exception as error:
            trouble(error)
            return
        n, size, samples = self.bytes
        self.bytes = (n + 1, size + found["bytes"], samples + (found["samples"] or 0))
        self.seen = {"shape": found["shape"], "pinned": found["pinned"]}
        if found["padding"] is not None:
            self.paddings.append(found["padding"])
            del self.paddings[:-256]
        self.spent += monotonic() - begin

    def report(self) -> dict:
        batches, wait, wait_first, step, ready, asked = self.totals
        looked, size, samples = self.bytes
        paddings = list(self.paddings)
        report = {
            "id": self.number,
            **self.facts,
            "where": self.where,
            "lines": self.lines,
            "steps": self.between.report(),
            "context": self.context,
            "pids": self.pids,
            "dataset_bytes": self.dataset_bytes,
            "stateful": list(self.stage.stateful) if self.stage is not None else [],
            "handles": self.handles,
            "on_device": self.on_device,
            "stores": self.stores,
            "set_epoch": self.set_epoch,
            "order_repeated": self.repeated,
            "passes": self.passes,
            "made": self.made,
            "epochs": [dict(epoch) for epoch in list(self.epochs)],
            "batches": batches,
            "wait": wait,
            "wait_first": wait_first,
            "step": step,
            "long_steps": list(self.long),
            "wait_hist": self.waits.report(),
            "ready": ready / asked if asked else None,
            "bytes": size / looked if looked else None,
            "sample_bytes": size / samples if samples else None,
            **self.seen,
            **self.moves.report(),
            "padding": sum(paddings) / len(paddings) if paddings else None,
            "doing": list(self.doing),
            "recent": [list(x) for x in list(self.recent)],
        }
        if self.stage is not None:
            report["inline"] = self.stage.report()
        return report


class Pass:
    """One epoch, from the call of iter() on."""

    def __init__(self, loader: Loader, epoch: dict) -> None:
        self.loader = loader
        self.epoch = epoch
        self.got_at = 0.0
        self.indices: list = []
        self.ordered = loader.facts["kind"] == "map"

    def index(self, indices):
        """Sees what the sampler gives, until the epoch's first indices are known."""
        try:
            self.indices.extend(indices if isinstance(indices, (list, tuple)) else [indices])
            if len(self.indices) >= FIRST:
                self.known()
        except Exception as error:
            trouble(error)
            self.ordered = False
        return indices

    def known(self) -> None:
        if self.ordered and self.indices:
            self.ordered = False
            self.loader.began_with(tuple(map(_number, self.indices[:FIRST])))

    def asked(self, iterator, now: float) -> "int | None":
        loader = self.loader
        loader.doing = ("wait", now)
        ready = _ready(iterator)
        batches, wait, wait_first, step, sum_ready, n_ready = loader.totals
        if self.got_at:
            step += now - self.got_at
            loader.between.step(now - self.got_at)
            if now - self.got_at >= LONG:
                loader.long = sorted([*loader.long, (now - self.got_at, now)])[-LONGEST:]
        if ready is not None:
            sum_ready, n_ready = sum_ready + ready, n_ready + 1
        loader.totals = (batches, wait, wait_first, step, sum_ready, n_ready)
        return ready

    def got(self, data, asked: float, ready: "int | None") -> None:
        now = monotonic()
        loader, epoch = self.loader, self.epoch
        waited = now - asked
        batches, wait, wait_first, step, sum_ready, n_ready = loader.totals
        if epoch["first"] is None:
            epoch["first"] = now - epoch["begin"]
            wait_first += waited
        loader.totals = (batches + 1, wait + waited, wait_first, step, sum_ready, n_ready)
        epoch["batches"] += 1
        loader.waits.add(waited)
        loader.recent.append((asked, now, ready))
        loader.steps += 1
        core.process.pulse.start()
        loader.between.here()
        loader.look(data)
        if loader.moves.watched < moves.MOVES and look.cuda():
            moves.watch(loader.moves, data)
        self.got_at = monotonic()
        loader.doing = ("step", self.got_at)

    def ended(self) -> None:
        """By StopIteration, or by an error; the script sees which."""
        self.known()
        self.epoch["end"] = monotonic()
        self.got_at = 0.0
        self.loader.doing = ("", self.epoch["end"])
        self.loader.steps += 1
        moves.end()


def _number(index: object) -> object:
    return index if isinstance(index, int) else str(type(index)) if isinstance(index, (list, dict)) else str(index)[:64]


class _Ask:
    """One call of __next__."""

    __slots__ = ("asked", "open", "over", "ready")

    def __init__(self, over: Pass) -> None:
        self.over = over
        self.open = False

    def before(self, iterator):
        try:
            moves.end()
            self.asked = monotonic()
            self.open = True
            self.ready = self.over.asked(iterator, self.asked)
        except Exception as error:
            trouble(error)
            self.open = False
        return iterator

    def after(self, data):
        try:
            if self.open:
                self.open = False
                self.over.got(data, self.asked, self.ready)
        except Exception as error:
            trouble(error)
        return data

    def __del__(self):
        try:
            if self.open:
                self.over.ended()
        except BaseException as error:
            keep(error)


def _next(iterator, original):
    over = iterator.__dict__.get(PASS)
    if over is None:
        return Method(original, iterator)
    ask = _Ask(over)
    return around(ask.before, original, ask.after, iterator)


def _next_index(iterator, original):
    over = _building.get(get_ident()) or iterator.__dict__.get(PASS)
    if over is None or not over.ordered:
        return Method(original, iterator)
    return map(over.index, map(original, (iterator,))).__next__


class _Start:
    """One call of DataLoader._get_iterator."""

    __slots__ = ("outer", "over", "thread")

    def __init__(self) -> None:
        self.over = None

    def before(self, loader):
        try:
            now = monotonic()
            known = of(loader)
            if known is None:
                return loader
            self.thread = get_ident()
            self.outer = _building.get(self.thread)
            self.over = _building[self.thread] = known.begin(loader, now)
            process = sys.modules.get("multiprocessing.process")
            if process is not None:
                process.current_process()._config[fetch.LOADER] = known.number
        except Exception as error:
            trouble(error)
        return loader

    def after(self, iterator):
        try:
            if self.over is not None and isinstance(iterator, _torch._BaseDataLoaderIter):
                iterator.__dict__[PASS] = self.over
                self.over.loader.iterated(iterator)
            core.process.pulse.start()
        except Exception as error:
            trouble(error)
        return iterator

    def __del__(self):
        try:
            if self.over is None:
                return
            _building.pop(self.thread, None)
            if self.outer is not None:
                _building[self.thread] = self.outer
            process = sys.modules.get("multiprocessing.process")
            if process is not None:
                process.current_process()._config.pop(fetch.LOADER, None)
        except BaseException as error:
            keep(error)


def _get_iterator(loader, original):
    start = _Start()
    return around(start.before, original, start.after, loader)


def _reset(iterator, original):
    """Persistent workers begin another pass; the first _reset is part of making the iterator."""
    over = iterator.__dict__.get(PASS)
    loader = over.loader.reference() if over is not None and get_ident() not in _building else None
    if loader is not None:
        iterator.__dict__[PASS] = over.loader.begin(loader, monotonic())
    return Method(original, iterator)


def _init(loader, original):
    where, itself = core.built(3, loader)
    number = id(loader)
    reference = weakref.ref(loader, lambda _: _places.pop(number, None))
    _places[number] = (reference, where, {} if itself else _lines(), core.callers(3))
    return Method(original, loader)


def _lines() -> dict:
    found = {}
    for reference, where, before, _ in list(_places.values()):
        dataset = getattr(reference(), "__dict__", {}).get("dataset")
        if dataset is not None:
            found[id(dataset)] = before.get(id(dataset), where)
    return found


def _place(loader) -> str:
    """The script's line that the loader is from."""
    place = _places.get(id(loader))
    if place is None or place[0]() is not loader:
        return core.caller(4)
    return place[2].get(id(loader.__dict__.get("dataset")), place[1])


def of(loader) -> "Loader | None":
    """What is known of a loader. One that a script builds anew at the same line for every epoch stays the same; of
    a script that keeps hundreds, the first are watched."""
    global _count
    number = id(loader)
    known = _loaders.get(number)
    if known is not None and known.reference() is loader:
        return known
    where = _place(loader)
    place = _places.get(number)
    facts = _facts(loader)
    for known in core.process.loaders:
        if known.where == where and known.reference() is None and known.facts == facts:
            known.made += 1
            known.reference = weakref.ref(loader)
            break
    else:
        if len(core.process.loaders) >= LOADERS:
            return None
        _count += 1
        known = Loader(loader, _count, where, facts)
        known.lines = place[3] if place is not None and place[0]() is loader else []
        core.process.loaders.append(known)
    _loaders[number] = known
    return known


def _facts(loader) -> dict:
    """What the loader is, as it says in its attributes. Of the dataset's own code only __len__ is called, and only
    where the sampler does the same in every epoch."""
    kind = {0: "map", 1: "iterable"}.get(getattr(loader, "_dataset_kind", None))
    dataset = getattr(loader, "dataset", None)
    sampler, batches = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
    sizes = loader
    if getattr(loader, "batch_size", None) is None and batches is not None:  # given as a batch_sampler, or wrapped
        sizes = batches
        for inner in _inside(batches):
            sampler = inner
    length = per_epoch = None
    if kind == "map" and {"SequentialSampler", "RandomSampler", "DistributedSampler"} & _kinds(sampler):
        length, per_epoch = _length(dataset), _length(loader)
    return {
        "class": _named(type(loader)),
        "dataset": _named(type(dataset)),
        "kind": kind,
        "length": length,
        "per_epoch": per_epoch,
        "batch_size": _plain(getattr(sizes, "batch_size", None)),
        "workers": int(getattr(loader, "num_workers", 0)),
        "prefetch": _plain(getattr(loader, "prefetch_factor", None)),
        "pin": bool(getattr(loader, "pin_memory", False)),
        "persistent": bool(getattr(loader, "persistent_workers", False)),
        "drop_last": bool(getattr(sizes, "drop_last", False)),
        "sampler": type(sampler).__name__,
        "shuffled": _shuffled(sampler),
        "collate": _collate(getattr(loader, "collate_fn", None)),
        "init": _function(getattr(loader, "worker_init_fn", None)),
        "transforms": calls.transforms(dataset),
    }


def _length(of: object) -> "int | None":
    try:
        return len(of)
    except Exception:
        return None


def _plain(value: object) -> "int | None":
    return value if type(value) is int else None


def _named(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _shuffled(sampler: object) -> "bool | None":
    said = getattr(sampler, "__dict__", {}).get("shuffle")
    if isinstance(said, bool):
        return said
    names = _kinds(sampler)
    if "SequentialSampler" in names:
        return False
    if {"RandomSampler", "SubsetRandomSampler", "WeightedRandomSampler"} & names:
        return True
    return None


def _kinds(value: object) -> set:
    return {kind.__name__ for kind in type(value).__mro__}


def _collate(collate: object) -> str:
    while hasattr(collate, "func"):
        collate = collate.func
    module, name = getattr(collate, "__module__", ""), getattr(collate, "__qualname__", None)
    if module == "torch.utils.data._utils.collate" and name in ("default_collate", "default_convert"):
        return "default"
    return f"{module}.{name}" if name else _named(type(collate))


def _function(function: object) -> str:
    """The name of a function of the script's own; empty where there is none."""
    if function is None:
        return ""
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def _epoch_sampler(loader) -> object:
    """The sampler whose order depends on set_epoch, under the wrappers that Accelerate and Lightning put around it."""
    for outer in (loader.__dict__.get("batch_sampler"), loader.__dict__.get("sampler")):
        for sampler in (outer, *_inside(outer)):
            inside = getattr(sampler, "__dict__", {})
            if callable(getattr(type(sampler), "set_epoch", None)) and isinstance(inside.get("epoch"), int):
                return sampler if inside.get("shuffle", True) else None
    return None


def _inside(sampler: object) -> list:
    """The samplers that a sampler wraps, outermost first."""
    found: list = []
    while len(found) < 6:
        inside = getattr(sampler, "__dict__", {})
        sampler = inside.get("batch_sampler", inside.get("sampler"))
        if sampler is None or isinstance(sampler, (list, tuple, range)):
            break
        found.append(sampler)
    return found


def _ready(iterator) -> "int | None":
    """Batches that wait for __next__: those in the last queue, and those that came before their turn."""
    inside = iterator.__dict__
    queue = inside.get("_data_queue")
    if queue is None:
        return None
    try:
        early = sum(1 for info in inside["_task_info"].values() if len(info) == 2)
        return early + queue.qsize()
    except Exception:
        return None


def dress(module) -> None:
    """`module` is torch.utils.data.dataloader, just imported."""
    global _torch
    _torch = module
    fetch.dress(module._utils.fetch, module._utils.worker)
    hang(module.DataLoader, "__init__", _init)
    hang(module.DataLoader, "_get_iterator", _get_iterator)
    hang(module._MultiProcessingDataLoaderIter, "_reset", _reset)
    hang(module._BaseDataLoaderIter, "__next__", _next)
    hang(module._BaseDataLoaderIter, "_next_index", _next_index)


def forked() -> None:
    global _count
    _loaders.clear()
    _building.clear()
    moves.end()
    _count = 0

"""A stage: the place where a DataLoader fetches samples, in a worker or, without workers, in the loop itself.

Every batch is timed as a whole (three looks at the clocks); samples one by one where they are long enough for that
not to matter; calls into libraries in some batches only, as many as cost two thousandths of the time. Figures of
calls are scaled by samples to all batches, and timed_samples says of how many they are.

torch's fetcher reads its own attributes at the right moments: `dataset` before each sample of a map, `dataset_iter`
before each of a stream, `collate_fn` between the samples and the batch. So the fetcher's class is exchanged for one
in which reading them is seen; the dataset itself is not touched.
"""

import math
import os
import sys
import weakref
from _thread import get_ident, get_native_id
from time import clock_gettime, monotonic, pthread_getcpuclockid, thread_time

import stoker_watch_calls as calls
import stoker_watch_lines as lines
import stoker_watch_look as look
import stoker_watch_process as core
from stoker_watch_door import Method, ending, hang, trouble

STAGE = "_stoker_watch_stage"  # in the __dict__ of a fetcher, which is never pickled
SHARE = 0.002  # of the time that timing calls may take
SOON = 0.2  # s between two batches whose calls are timed, at least
LATER = 1.0  # s until a worker that is not its loader's first times a batch
FINE = 50e-6  # s a sample from which on each is timed in every batch
STACKS = 8
TAIL = 4.0  # times the middle duration: what takes longer belongs to the tail
PLACES = 16  # lines that are remembered for each name
ASKING = 0.002  # s a batch from which on it is asked how long it waited for a core
TRACED = 0.25  # s between two samples that are traced, at least
SLOWEST = 8  # samples whose numbers are remembered

# Numbers of system calls that a thread waits in, as /proc/self/task/TID/syscall names them.
_X86_64 = {"read": (0, 17, 19, 295), "open": (2, 257, 437), "stat": (4, 5, 6, 262, 332), "list": (78, 217)}
_X86_64.update(sleep=(7, 23, 35, 230, 270), socket=(45, 47))
_AARCH64 = {"read": (63, 65, 67, 69), "open": (56, 437), "stat": (79, 80, 291), "list": (61,)}
_AARCH64.update(sleep=(72, 73, 101, 115), socket=(207, 212))
_CALLS = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(os.uname().machine, {})
_WAITS = {number: name for name, numbers in _CALLS.items() for number in numbers}


class Histogram:
    """Durations in buckets a twelfth apart, from a microsecond on; a quantile is exact to 6 %."""

    STEP = math.log(1.125)

    def __init__(self) -> None:
        self.buckets: dict = {}
        self.count = 0
        self.max = 0.0

    def add(self, seconds: float) -> None:
        bucket = int(math.log(seconds * 1e6) / self.STEP) if seconds > 1e-6 else 0
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        self.count += 1
        if seconds > self.max:
            self.max = seconds

    def quantile(self, q: float) -> "float | None":
        buckets = sorted(self.buckets.copy().items())
        rank = q * sum(n for _, n in buckets)
        for bucket, n in buckets:
            rank -= n
            if rank <= 0:
                return min(1e-6 * math.exp((bucket + 0.5) * self.STEP), self.max)
        return None

    def tail(self) -> dict:
        """What took four times as long as the middle one, and all: how many, and their s."""
        middle = self.quantile(0.5) or 0.0
        n = seconds = all_n = all_seconds = 0.0
        for bucket, count in self.buckets.copy().items():
            each = min(1e-6 * math.exp((bucket + 0.5) * self.STEP), self.max)
            all_n, all_seconds = all_n + count, all_seconds + count * each
            if each > TAIL * middle:
                n, seconds = n + count, seconds + count * each
        return {"n": n, "s": seconds, "all_n": all_n, "all_s": all_seconds}

    def report(self) -> dict:
        return {"p50": self.quantile(0.5), "p99": self.quantile(0.99), "max": self.max if self.count else None}


def _no_dataset() -> None:
    return None


class Stage:
    """Figures of one worker of a loader, or of a loader that fetches inline; all its epochs together."""

    def __init__(self, loader: "int | None", index: "int | None", started: float) -> None:
        self.loader = loader
        self.index = index
        self.started = started
        self.steps = 0
        self.first: float | None = None
        # Replaced as a whole, so that a line written at any moment is of whole batches:
        # batches, samples, fetch s, sample s, CPU s of it, collate s, CPU s of it, idle s
        self.totals = (0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self.samples = Histogram()
        self.later = Histogram()  # the same, without the first batches, which import, open and warm
        self.slowest: list = []  # [s, number of the sample, its name], shortest first
        self.numbers: object = None  # of the batch's samples, as the sampler gave them
        self.sums: dict = {}
        self.targets: dict = {}  # name -> calls.Targets
        self.files: list = []  # some that were opened, the first batch's too
        self.stores: list = []
        self.queued: float | None = (
            None  # s that the thread had waited for a core when the fetch began, if that is asked
        )
        self.timed_samples = 0
        self.timed_batches = 0
        self.eager = True  # time the first batches, before there is a share of the time to spend
        self.next_timed = 0.0
        self.doors = _doors
        # Where the looks found the thread, while it made samples and while it collated. The interpreter's lock is got
        # where the thread gives it away, or after 5 ms: of samples that compute for less, only collating is seen. So
        # a look says which line of a part it is, and the clock how much the part takes.
        self.stacks: tuple = ({}, {})
        self.held: dict = {}  # of the first of them, those in which the kernel held the thread
        self.lines = lines.Lines()
        self.traced = -1  # the sample of this batch that is
        self.trace = False  # one of this batch is
        self.next_traced = 0.0
        self.waits: dict = {}
        self.looks = 0
        self.place = ""  # where the dataset's samples are made
        self.ident = 0
        self.native = 0
        self.clock = 0
        self.looked = (0.0, 0.0)  # when the thread looked last, and the CPU s of the fetching thread then
        self.since = 0.0  # when the fetch that runs began; 0: none runs
        self.collating_at = self.collating_cpu = self.at_cpu = 0.0  # of the fetch that runs, or ran last
        self.left = 0.0  # when the last one ended
        self.fine = False  # each sample of the next batch is timed
        self.batched = False  # the dataset gives a batch's samples in one call (__getitems__)
        self.before: dict | None = None  # the dataset's fingerprint
        self.next_print = 1
        self.dataset = _no_dataset  # a weak reference: the script's own lifetimes hold
        self.stateful: list = []
        self.base = core.kernel()
        self.delay = 0.0  # s that the worker's thread had waited for a core when it came
        self.fetcher: object = None

    # What a fetch passes through, in this order.

    def begin(self, fetcher, original):
        if self.since:  # the dataset fetches from itself: the outer fetch counts
            return Method(original, fetcher)
        self.fetcher = fetcher
        self.enter(fetcher)
        self.stamps: list = []
        self.count = -1
        self.spans = None
        now = monotonic()
        if now >= self.next_timed or self.eager and self.timed_batches < 2 and self.totals[0] < 3:
            spans = calls.Spans()
            self.doors.look(fetcher.__dict__.get("dataset"))
            now = monotonic()  # what is done once is not charged to each timed batch
            if self.doors.up(spans):
                self.spans = spans
        self.traced = -1
        self.trace = self.spans is None and self.totals[0] >= 2 and now >= self.next_traced
        each = self.spans is not None or self.fine or self.totals[0] < 2
        fetcher.__class__ = _dressed(type(fetcher), each)
        call = ending(original, fetcher, self.end)
        self.up = monotonic() - now
        self.collating_at = self.collating_cpu = 0.0
        asks = self.totals[0] and self.totals[2] > ASKING * self.totals[0]
        self.queued = delay(self.native) if asks else None
        self.at_cpu = thread_time()
        self.since = self.at = monotonic()
        return call

    def enter(self, fetcher) -> None:
        core.process.pulse.start()
        if self.ident != get_ident():
            self.ident, self.native = get_ident(), get_native_id()
            self.clock = pthread_getcpuclockid(self.ident)
            self.delay = delay(self.native)
        dataset = fetcher.__dict__.get("dataset")
        if self.before is None or dataset is not self.dataset():
            try:
                self.dataset = weakref.ref(dataset)
            except TypeError:
                self.dataset = _no_dataset
            self.before = look.fingerprint(dataset)
            self.place = _made_in(type(dataset))
            self.batched = getattr(type(dataset), "__getitems__", None) is not None

    def each(self) -> None:
        if self.lines.on:
            self.lines.end()
        elif self.trace and self.stamps:  # of a map the first look is only whether it has __getitems__
            self.trace = False
            if self.lines.begin():
                self.traced = len(self.stamps)
                self.next_traced = monotonic() + TRACED
        self.stamps.append(monotonic())

    def collating(self, data: "int") -> None:
        self.lines.end()
        self.collating_cpu = thread_time()
        self.collating_at = monotonic()
        self.count = data

    def end(self) -> None:
        self.lines.end()
        now, cpu = monotonic(), thread_time()
        fetcher, at = self.fetcher, self.at
        self.since = 0.0
        self.fetcher = None
        spans, self.spans = self.spans, None
        if spans is not None:
            self.doors.down()
        batches, samples, fetch, sample, sample_cpu, collate, collate_cpu, idle = self.totals
        idle += max(0.0, at - self.left - self.up) if self.left else 0.0
        done = self.count >= 0
        extra = self._extra(self.collating_at if done else now)
        middle, middle_cpu = (self.collating_at, self.collating_cpu) if done else (now, cpu)
        self.totals = (
            batches + done, samples + max(self.count, 0), fetch + now - at - extra, sample + middle - at - extra,
            sample_cpu + max(0.0, middle_cpu - self.at_cpu - extra), collate + now - middle,
            collate_cpu + cpu - middle_cpu, idle,
        )  # fmt: skip
        if done:
            self.first = self.first if self.first is not None else now
            self._one_by_one(middle)
            if spans is not None:
                self._calls(spans, now)
        fetcher.__class__ = _plain(type(fetcher))
        if batches + done >= self.next_print:
            self.next_print = (batches + done) * 4
            self.compare()
        self.steps += 1
        self.left = monotonic()

    def _extra(self, end: float) -> float:
        """s that tracing has added to this batch: what the traced sample took beyond the others."""
        stamps = [*self.stamps, end]
        if self.traced < 0 or len(stamps) < 3 or self.traced + 1 >= len(stamps):
            return 0.0
        traced = stamps[self.traced + 1] - stamps[self.traced]
        return max(0.0, traced - (stamps[-1] - stamps[0] - traced) / (len(stamps) - 2))

    def _one_by_one(self, end: float) -> None:
        if self.count == 0:
            return
        stamps = self.stamps[-self.count :]
        if self.batched:
            self.samples.add((end - self.at) / self.count)
        elif len(stamps) == self.count:
            numbers = self.numbers if isinstance(self.numbers, list) and len(self.numbers) == self.count else None
            took = [b - a for a, b in zip(stamps, [*stamps[1:], end], strict=True)]
            if self.queued is not None:
                _relieve(took, delay(self.native) - self.queued)
            for k, seconds in enumerate(took):
                if k == self.traced - len(self.stamps) + self.count:
                    continue
                self.samples.add(seconds)
                if self.totals[0] > 1:
                    self.later.add(seconds)
                    if numbers is not None:
                        self._slow(seconds, numbers[k])
        self.fine = (end - self.at) / self.count >= FINE
        self.numbers = None

    def _slow(self, seconds: float, number: object) -> None:
        slowest = self.slowest
        if type(number) is not int or len(slowest) == SLOWEST and seconds <= slowest[0][0]:
            return
        rest = [x for x in slowest if x[1] != number]
        before = max((x[0] for x in slowest if x[1] == number), default=0.0)
        name = look.name_of(self.dataset(), number)
        self.slowest = sorted([*rest, [max(seconds, before), number, name]], key=_seconds)[-SLOWEST:]

    def _calls(self, spans, now: float) -> None:
        if self.timed_batches == 1 and self.eager:
            self.sums, self.timed_samples, self.targets = {}, 0, {}  # the first batch imported, opened and warmed
        for name, (n, s, c, places) in spans.sums.items():
            total = self.sums.setdefault(name, [0, 0.0, 0.0, {}])
            total[0] += n
            total[1] += s
            total[2] += c
            for place, seconds in places.items():
                if place in total[3] or len(total[3]) < PLACES:
                    total[3][place] = total[3].get(place, 0.0) + seconds
        for name, path in spans.targets:
            if isinstance(path, str) and path not in self.files and len(self.files) < PLACES:
                self.files.append(path)
            self.targets.setdefault(name, calls.Targets()).add(path)
        self.timed_batches += 1
        self.timed_samples += self.count
        down = monotonic() - now
        self.next_timed = now + max(SOON, (self.up + down + spans.count * self.doors.cost) / SHARE)

    def compare(self) -> None:
        """Which attributes the dataset changed since its first sample here."""
        try:
            self.stores = look.stores(self.dataset())
            for name in look.changed(self.before or {}, look.fingerprint(self.dataset())):
                if name not in self.stateful:
                    self.stateful.append(name)
        except RuntimeError:
            pass  # the dataset changes as we look

    # What the thread that writes does.

    def sample(self) -> None:
        """Where the fetch is just now: the script's line, and what the kernel waits for."""
        if not self.since:
            return
        # A thread that computes waits for nothing; asking the kernel gives the interpreter's lock away, and taking
        # it back from a thread that computes is what looking costs most.
        now, cpu = monotonic(), clock_gettime(self.clock)
        computing = cpu - self.looked[1] > 0.9 * (now - self.looked[0])
        self.looked = (now, cpu)
        wait = "" if computing else _WAITS.get(_system_call(self.native), "")
        frame = sys._current_frames().get(self.ident)
        if frame is None or not self.since:
            return
        name = _where(frame)
        if not name:
            return
        if wait and not self.collating_at:
            self.held[name] = self.held.get(name, 0) + 1
        stacks = self.stacks[self.collating_at > 0]
        stacks[name] = stacks.get(name, 0) + 1
        if wait:
            self.waits[wait] = self.waits.get(wait, 0) + 1
        self.looks += 1

    def report(self) -> dict:
        batches, samples, fetch, sample, sample_cpu, collate, collate_cpu, idle = self.totals
        now = core.kernel()
        looks = max(self.looks, 1)
        scale = samples / self.timed_samples if self.timed_samples else 0.0
        stacks = self._shares(*self._so_far(sample, sample_cpu, collate))
        since = self.since
        return {
            "loader": self.loader,
            "index": self.index,
            "started": self.started,
            "first": self.first,
            "batches": batches,
            "samples": samples,
            "fetch": fetch,
            "sample": sample,
            "sample_cpu": sample_cpu,
            "sample_hist": {**self.samples.report(), "of": "batch" if self.batched else "sample"},
            "tail": self.later.tail(),
            "collate": collate,
            "collate_cpu": collate_cpu,
            "idle": None if self.index is None else idle,
            # A worker's results go into an unbounded queue, emptied by a thread of its own: putting never waits.
            "blocked": None if self.index is None else 0.0,
            "timed_samples": self.timed_samples,
            "calls": {
                name: {"n": round(n * scale), "s": s * scale, "cpu": c * scale, "at": _most(places)}
                for name, (n, s, c, places) in sorted(self.sums.copy().items(), key=lambda x: -x[1][1])
            },
            "files": [os.path.abspath(path) for path in list(self.files)],
            "stores": list(self.stores),
            "targets": {name: target.report() for name, target in list(self.targets.items())},
            "slowest": self.slowest[::-1],
            "stacks": sorted(stacks.items(), key=lambda x: -x[1])[:STACKS],
            "waits": {name: n / looks for name, n in self.waits.copy().items()} if self.looks else {},
            "looks": self.looks,
            "on_cpu": min(1.0, (sample_cpu + collate_cpu) / fetch) if fetch else None,
            "delay": None if self.index is None or not self.native else delay(self.native) - self.delay,
            "cpu": now["cpu"] - self.base["cpu"],
            "io": {k: now[k] - self.base.get(k, 0) for k in ("rchar", "read_bytes", "syscr") if k in now},
            "faults": now["faults"] - self.base["faults"],
            "threads": core._threads(),
            "stateful": list(self.stateful),
            "fetching": since or None,
        }

    def _so_far(self, sample: float, sample_cpu: float, collate: float) -> tuple:
        """The totals with the batch that runs: one that hangs never ends, and is what the user looks for."""
        since, collating = self.since, self.collating_at
        if not since:
            return sample, sample_cpu, collate
        now = monotonic()
        cpu = self.collating_cpu if collating else clock_gettime(self.clock)
        sample += max(0.0, (collating or now) - since)
        sample_cpu += max(0.0, cpu - self.at_cpu)
        return sample, sample_cpu, collate + (now - collating if collating else 0.0)

    def _shares(self, sample: float, sample_cpu: float, collate: float) -> dict:
        """Where the thread was -> share of the time, which is so many s of samples and of collating.

        What samples compute is shared out as tracing saw it, and what they are held up by as looks did."""
        parts = [part.copy() for part in self.stacks]
        traced = self.lines.shares()
        if traced and sample > 0:
            held, queued = self.held.copy(), delay(self.native) - self.delay if self.native else 0.0
            waited = max(0.0, sample - sample_cpu - queued) if held else 0.0
            parts[0] = {name: share * sample_cpu for name, share in traced.items()}
            for name, n in held.items():
                parts[0][name] = parts[0].get(name, 0.0) + waited * n / sum(held.values())
        looks = [sum(part.values()) for part in parts]
        if not any(looks):
            return {}
        weights = [sample, collate] if sample + collate else looks  # no batch is done yet: as it was seen
        if not looks[0] and self.place:
            parts[0], looks[0] = {self.place: 1}, 1
        shares: dict = {}
        for part, n, weight in zip(parts, looks, weights, strict=True):
            for name, times in part.items():
                shares[name] = shares.get(name, 0.0) + times / n * weight / sum(weights)
        return shares


def _seconds(slow: list) -> float:
    return slow[0]


def _relieve(took: list, queued: float) -> None:
    """Takes what the thread waited for a core from the longest, down to the others: a core that comes late falls on any
    sample, and says nothing of it."""
    for k in sorted(range(len(took)), key=took.__getitem__, reverse=True):
        if queued <= 0 or len(took) < 2:
            return
        less = min(queued, took[k] - sum(took) / len(took))
        if less <= 0:
            return
        took[k] -= less
        queued -= less


def _most(places: dict) -> str:
    return max(places.copy().items(), key=lambda x: x[1], default=("", 0.0))[0]


def _made_in(dataset: type) -> str:
    """FILE:FUNCTION:LINE of what gives a dataset's samples; empty where that is not the script's own."""
    for name in ("__getitems__", "__getitem__", "__iter__"):
        code = getattr(getattr(dataset, name, None), "__code__", None)
        if code is not None and core.is_user(code.co_filename):
            return core.line_of(code, code.co_firstlineno)
    return ""


def delay(thread: int) -> float:
    """s that a thread was ready to run and had no core."""
    fields = core._read(f"/proc/self/task/{thread}/schedstat").split()
    return int(fields[1]) / 1e9 if len(fields) == 3 else 0.0


def _system_call(thread: int) -> int:
    number = core._read(f"/proc/self/task/{thread}/syscall").partition(" ")[0]
    return int(number) if number.isdigit() else -1


def _where(frame) -> str:
    """FILE:FUNCTION:LINE of the innermost frame of the script's own code, and what it called if that is a library's.

    Empty where no fetch runs any more: then it is the loop's own line that asks for the next.
    """
    while frame.f_back is not None and frame.f_code.co_filename.startswith(core.OWN):
        frame = frame.f_back
    inner = frame
    while frame is not None and not frame.f_code.co_filename.endswith("torch/utils/data/_utils/fetch.py"):
        if core.is_user(frame.f_code.co_filename):
            return _name(frame) + ("" if frame is inner else f" ({_name(inner)})")
        if frame.f_code.co_filename.endswith("torch/utils/data/dataloader.py"):
            return ""
        frame = frame.f_back
    return _name(inner)


def _name(frame) -> str:
    return core.line_of(frame.f_code, frame.f_lineno)


# The fetcher's classes: as torch made it, and one or two in which its attributes are seen being read.

_classes: dict = {}  # (class, each sample) -> dressed class
_origins: dict = {}  # dressed class -> class


def _seen(name: str, enter):
    def get(self):
        try:
            enter(self.__dict__[STAGE])
        except Exception as error:
            trouble(error)
        return self.__dict__[name]

    return property(get, lambda self, value: self.__dict__.__setitem__(name, value))


def _collate(self):
    """Between samples and batch: how many samples there are is seen in torch's own frame, which calls `data` so, and
    `possibly_batched_index` their numbers."""
    try:
        inside = sys._getframe(1).f_locals if self.auto_collation else {}
        data, stage = inside.get("data"), self.__dict__[STAGE]
        stage.numbers = inside.get("possibly_batched_index")
        stage.collating(len(data) if isinstance(data, (list, tuple)) else 1)
    except Exception as error:
        trouble(error)
    return self.__dict__["collate_fn"]


def _dressed(kind: type, each: bool) -> type:
    kind = _plain(kind)
    dressed = _classes.get((kind, each))
    if dressed is None:
        body = {"collate_fn": property(_collate, lambda self, value: self.__dict__.__setitem__("collate_fn", value))}
        if each:
            body["dataset"] = _seen("dataset", Stage.each)
        if each and "Iterable" in kind.__name__:
            del body["dataset"]
            body["dataset_iter"] = _seen("dataset_iter", Stage.each)
        body.update(__module__=kind.__module__, __qualname__=kind.__qualname__)
        dressed = _classes[kind, each] = type(kind.__name__, (kind,), body)
        _origins[dressed] = kind
    return dressed


def _plain(kind: type) -> type:
    return _origins.get(kind, kind)


_doors = calls.Doors()
_eager = True
_worker_of = None  # torch's module with _worker_info


def stage_of(fetcher) -> "Stage | None":
    """The stage that a fetcher fetches for; in a worker made at its first fetch, inline given by the loader."""
    stage = fetcher.__dict__.get(STAGE)
    if stage is None:
        info = _worker_of._worker_info
        if info is None or getattr(info, "worker_method", None) == "thread":
            return None
        process = core.process
        if process.worker is None:
            _become_worker(process, info)
        stage = fetcher.__dict__[STAGE] = process.worker
    return stage


def _become_worker(process, info) -> None:
    multiprocessing = sys.modules["multiprocessing.process"]
    this, parent = multiprocessing.current_process(), multiprocessing.parent_process()
    if parent is not None:
        process.ppid = parent.pid  # of a forkserver's child, getppid() tells the server
    process.role = "worker"
    process.worker = Stage(this._config.get(LOADER), info.id, process.started)
    process.worker.eager = _eager
    process.worker.next_timed = 0.0 if _eager else monotonic() + LATER
    process.stages = [process.worker]
    # A forked worker ends in os._exit, which runs multiprocessing's finalizers and not atexit's.
    sys.modules["multiprocessing.util"].Finalize(None, _last, exitpriority=1000)


def _last() -> None:
    if core.process.worker is not None:
        core.process.worker.compare()
    core.process.finish()


LOADER = "stoker_watch_loader"  # in the configuration that multiprocessing hands to a child, by fork or pickled


def _enter(fetcher, original):
    stage = stage_of(fetcher)
    if stage is None:
        return Method(original, fetcher)
    try:
        return stage.begin(fetcher, original)
    except Exception:
        stage.since = 0.0
        stage.doors.down()
        raise


def dress(fetch, worker) -> None:
    """The fetchers of torch.utils.data._utils.fetch, wherever they run; `worker` is torch's module of workers."""
    global _worker_of
    _worker_of = worker
    for kind in vars(fetch).copy().values():
        if isinstance(kind, type) and "fetch" in kind.__dict__ and kind.__name__ != "_BaseDatasetFetcher":
            hang(kind, "fetch", _enter)


def forked() -> None:
    """A child keeps the plan of doors that its parent made, and nothing else."""
    global _doors
    if _doors.hung:
        _doors.down()
    calls.active.clear()
    _doors = _doors.again()


def prepare(dataset: object, first: bool) -> None:
    """Before workers are forked: the search for libraries is made once and inherited, and only the workers of a
    loader's first pass time their first batches; later ones, made anew for every epoch, wait for their share."""
    global _eager
    _eager = first
    _doors.look(dataset)

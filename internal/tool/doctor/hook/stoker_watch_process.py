"""What a watched process says of itself: one file PID.jsonl, a line of JSON each time, the whole truth until then.

Owns the file, the thread that writes while the script runs (or hangs), and what happens at forks and exits. Written
are cumulative figures, so that a process may be killed at any moment: its last whole line is true.
"""

import _signal
import _thread
import atexit
import gc
import os
import sys
from _json import encode_basestring_ascii as _quote
from posix import O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_WRONLY, getpid, getppid
from posix import close as _close
from posix import open as _open
from posix import read as _take
from posix import write as _write
from time import monotonic

from stoker_watch_door import StandIn, trouble, troubles

VERSION = 1
LIBRARIES = (
    "torch torchvision torchaudio numpy PIL cv2 h5py lmdb transformers tokenizers datasets webdataset lightning "
    "pytorch_lightning accelerate albumentations monai timm stoker"
).split()
THREAD_SETTINGS = "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS NUMEXPR_NUM_THREADS".split()

# s between looks of the thread at a process that fetches samples, while it is younger than so many s. Waking it costs
# some 0.2 ms of CPU, most of it for the lock of the interpreter: twenty a second are almost a hundredth of a core.
SAMPLING = ((3.0, 0.05), (20.0, 0.1))
PULSE = 0.25  # later, and where nothing is fetched
INTERVAL = 0.5  # s between lines in the first seconds, then a fiftieth of the age, so that a day gives some hundred
INTERVAL_MAX = 30.0
FORKED = "Cannot re-initialize CUDA in forked subprocess"  # torch's words, of a worker that it happened to
STILL = 2.0  # s without a batch, while one is awaited, after which a line says so


def encode(value: object) -> str:
    """JSON, without the module json: a script may bring one of its own under that name."""
    if value is None:
        return "null"
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, str):
        return _quote(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return repr(round(value, 9)) if value - value == 0 else "null"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_quote(str(k))}:{encode(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(encode, value)) + "]"
    return _quote(str(type(value)))


_site = os.sep + "site-packages" + os.sep
_stdlib = os.path.dirname(os.__file__) + os.sep
OWN = os.path.dirname(os.path.realpath(__file__)) + os.sep
_users: dict = {}


def is_user(filename: str) -> bool:
    """Whether a file is the script's own code: no library, no standard library, not this hook."""
    known = _users.get(filename)
    if known is None:
        known = _users[filename] = not (
            filename.startswith(("<frozen", OWN, _stdlib)) or _site in filename or "/dist-packages/" in filename
        )
    return known


# Packages that build loaders for a script, wherever they are installed.
BUILDERS = frozenset(
    "torch torchvision torchdata accelerate lightning lightning_fabric pytorch_lightning transformers ignite fastai "
    "composer stoker".split()
)


def caller(depth: int = 2) -> str:
    """FILE:LINE of the script's code that called, or of the outermost frame there is."""
    return built(depth + 1)[0]


def built(depth: int = 2, thing: object = None) -> tuple:
    """The same, and whether it called itself, and not through a library. The constructor of a class that the script
    derives, which passes on what it is given, is passed over while there is a call of it: `thing` is its self."""
    frame = first = sys._getframe(depth)
    while frame.f_back is not None and not _of_script(frame):
        frame = frame.f_back
    while thing is not None and frame.f_back is not None and _forwards(frame, thing) and _of_script(frame.f_back):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}", frame is first


def _forwards(frame, thing: object) -> bool:
    """Whether it is a constructor of `thing` itself that takes **options; else the values are written in it."""
    code = frame.f_code
    if code.co_name != "__init__" or not code.co_argcount or not code.co_flags & 0x08:
        return False
    return frame.f_locals.get(code.co_varnames[0]) is thing


def _of_script(frame) -> bool:
    name = frame.f_globals.get("__name__")
    package = name.partition(".")[0] if isinstance(name, str) else ""
    return is_user(frame.f_code.co_filename) and package not in BUILDERS


def line_of(code, number: int) -> str:
    """FILE:FUNCTION:LINE."""
    return f"{os.path.basename(code.co_filename)}:{code.co_name}:{number}"


def callers(depth: int = 2) -> list:
    """The script's own calls that led here, innermost first, with whole paths: [path, line, function]."""
    frame, found = sys._getframe(depth), []
    while frame is not None and len(found) < CALLERS:
        if _of_script(frame):
            code = frame.f_code
            found.append([os.path.abspath(code.co_filename), frame.f_lineno, code.co_name])
        frame = frame.f_back
    return found


SOURCES = 64  # files of the script that are named
CALLERS = 8
_sources: list = [0, []]  # modules when they were looked for, and their paths


def sources() -> list:
    """The files of the script's own code that are loaded, the main one first."""
    if _sources[0] != len(sys.modules):
        paths = []
        for name, module in [("__main__", sys.modules.get("__main__")), *list(sys.modules.items())]:
            path = getattr(module, "__dict__", {}).get("__file__")
            package = name.partition(".")[0]
            if isinstance(path, str) and path.endswith(".py") and is_user(path) and package not in BUILDERS:
                path = os.path.abspath(path)
                if path not in paths and not os.path.basename(path).startswith("stoker_watch_"):
                    paths.append(path)
            if len(paths) == SOURCES:
                break
        _sources[:] = [len(sys.modules), paths]
    return _sources[1]


def of_stoker(number: int, where: str) -> None:
    """stoker's own client calls it when the engine opens a loader: the engine's page has its figures by that number,
    and no line of the script."""
    process.own[number] = where
    process.write()


class Pulse:
    """The thread that writes. It is stopped before a fork: a child of a process with threads may hang, and Python
    3.12 warns of one. It is not a threading.Thread, so that the script does not find it when it counts its own."""

    def __init__(self, beat) -> None:
        self.beat = beat
        self.gate = None
        self.over = None
        self.thread = 0

    def start(self) -> None:
        if self.gate is not None:
            return
        gate, over = _thread.allocate_lock(), _thread.allocate_lock()
        gate.acquire()
        over.acquire()
        self.gate, self.over, self.thread = gate, over, 0
        try:
            _thread.start_new_thread(self._run, (gate, over))
        except Exception:
            self.gate = self.over = None

    def stop(self) -> bool:
        """Ends the thread; true where there was one."""
        gate, over = self.gate, self.over
        if gate is None:
            return False
        self.gate = self.over = None
        gate.release()
        over.acquire(timeout=1.0)
        # Done with Python is not yet gone from the kernel's list, where Python 3.12 counts before it warns.
        until = monotonic() + 0.05
        while self.thread and monotonic() < until and os.path.exists(f"/proc/self/task/{self.thread}"):
            _pause()
        return True

    def _run(self, gate, over) -> None:
        try:
            self.thread = _thread.get_native_id()
            # The script's signals are for the script's threads.
            _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
            wait = 0.05
            while not gate.acquire(timeout=wait):
                wait = self.beat()
        except BaseException:
            pass
        finally:
            over.release()


def _pause() -> None:
    lock = _thread.allocate_lock()
    lock.acquire()
    lock.acquire(timeout=0.0005)


class Process:
    """What is known of this process; a forked child begins a new one."""

    def __init__(self, folder: str, role: str) -> None:
        self.folder = folder
        self.role = role
        self.pid = getpid()
        self.ppid = getppid()
        self.started = monotonic()
        self.loaders: list = []  # what reports under "loaders"
        self.own: dict = {}  # loaders of stoker: number in the engine -> FILE:LINE
        self.worker = None  # the stage of a DataLoader's worker
        self.stages: list = []  # what is sampled: the worker, or the inline stages of the loaders
        self.cuda_before_fork = False
        self.exit: str | None = None
        self.written = 0.0
        self.said = -1  # steps() at the last line
        self.seen = -1  # and when the thread looked last
        self.torn = False
        self.paused = False  # the collector of cycles pauses while a line is made
        self.pulse = Pulse(self.beat)

    def steps(self) -> int:
        """Grows whenever there is something new to say."""
        return sum(x.steps for x in self.loaders) + sum(x.steps for x in self.stages)

    def beat(self) -> float:
        for stage in self.stages:
            stage.sample()
        for loader in self.loaders:
            loader.between.sample(loader.doing)
        now = monotonic()
        interval = min(max(INTERVAL, (now - self.started) / 50), INTERVAL_MAX)
        steps, before = self.steps(), self.seen
        self.seen = steps
        if steps == self.said:
            due = max(interval, STILL)
        else:
            due = interval if steps != before else interval / 5  # nothing comes just now: perhaps the end
        if now - self.written >= due:
            self.write()
        if self.stages:
            age = now - self.stages[-1].started
            return next((wait for until, wait in SAMPLING if age < until), PULSE)
        return PULSE

    def line(self) -> dict:
        line = {
            "v": VERSION,
            "pid": self.pid,
            "ppid": self.ppid,
            "role": self.role,
            "t": monotonic(),
            "started": self.started,
            "argv": list(getattr(sys, "argv", None) or sys.orig_argv),
            "python": "{}.{}.{}".format(*sys.version_info[:3]),
            "libraries": _libraries(),
            "rank": _number("RANK", "SLURM_PROCID"),
            "local_rank": _number("LOCAL_RANK", "SLURM_LOCALID"),
            "world": _number("WORLD_SIZE", "SLURM_NTASKS"),
            "threads": _threads(),
            "cuda_before_fork": self.cuda_before_fork,
            "exit": self.exit,
            "trouble": list(troubles),
            "sources": sources() if self.loaders else [],
            "loaders": [loader.report() for loader in self.loaders],
        }
        if self.own:
            line["stoker"] = [{"loader": number, "where": where} for number, where in list(self.own.items())]
        if self.worker is not None:
            line["worker"] = self.worker.report()
        return line

    def write(self) -> None:
        self.paused = gc.isenabled()
        try:
            gc.disable()  # else the script's finalizers may run in this thread
            self.said = self.steps()
            self.written = monotonic()
            text = ("\n" if self.torn else "") + encode(self.line()) + "\n"
            data = text.encode()
            # Opened for each line: no descriptor of ours shows in the script or goes to its children.
            file = _open(f"{self.folder}/{self.pid}.jsonl", O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
            try:
                self.torn = _write(file, data) != len(data)
            finally:
                _close(file)
        except Exception as error:
            trouble(error)
        finally:
            if self.paused:
                gc.enable()
            self.paused = False

    def finish(self) -> None:
        """The last line; run by exit handlers, perhaps by more than one."""
        if self.pid != getpid():
            return
        try:
            self.pulse.stop()
            last = getattr(sys, "last_type", None)
            self.exit = "ok" if last is None else f"exception {last.__name__}"
            said = getattr(sys, "last_value", None)
            if type(said) is RuntimeError and said.args and FORKED in str(said.args[0]):
                self.cuda_before_fork = True
            self.write()
        except BaseException:  # of a signal handler: the interpreter would print it, and nothing comes after
            pass


process: Process


def begin(folder: str) -> None:
    global process
    process = Process(folder, _role(folder))
    process.write()
    atexit.register(lambda: process.finish())
    os._exit = StandIn(os._exit, _leave)
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


def _leave(original):
    """os._exit runs no exit handlers, and writes its last line here; a child with nothing to say stays silent."""
    if process.loaders or process.worker is not None:
        process.finish()
    return original


def _role(folder: str) -> str:
    """The first process under a doctor is the main one, whoever started it."""
    try:
        file = _open(f"{folder}/main", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
    except FileExistsError:
        return "child"
    _write(file, str(getpid()).encode())
    _close(file)
    return "main"


_restart = False


def _before_fork() -> None:
    global _restart
    try:
        _restart = process.pulse.stop()
    except Exception:
        _restart = False


def _after_fork() -> None:
    """From Python 3.13 on threads are counted after this: there the next batch starts the thread again."""
    if _restart and sys.version_info < (3, 13):
        process.pulse.start()


_parents: list = []  # in a forked child: what its parent knew, among it events of CUDA, which end in no child


def _in_child() -> None:
    global process
    try:
        if process.paused:  # the thread that would end the pause was not forked
            gc.enable()
        _parents.append(process)
        process = Process(process.folder, "child")
        for module in ("fetch", "loader"):
            part = sys.modules.get(f"stoker_watch_{module}")
            if part is not None:
                part.forked()
    except Exception:
        pass


def _libraries() -> dict:
    found = {}
    for name in LIBRARIES:
        module = sys.modules.get(name)
        version = module.__dict__.get("__version__") if module is not None else None
        if module is not None:
            found[name] = str(version) if version is not None else ""
    return found


def _number(*names: str) -> "int | None":
    for name in names:
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return None


def _threads() -> dict:
    found = {name: os.environ[name] for name in THREAD_SETTINGS if name in os.environ}
    torch = sys.modules.get("torch")
    if torch is not None and "get_num_threads" in torch.__dict__:
        found["torch"] = torch.get_num_threads()
    cv2 = sys.modules.get("cv2")
    if cv2 is not None and "getNumThreads" in cv2.__dict__:
        found["cv2"] = cv2.getNumThreads()
    found["os"] = kernel()["threads"]
    return found


def kernel() -> dict:
    """Figures of the kernel of this process, since its start: /proc/self/stat (fields of proc(5)) and /proc/self/io."""
    fields = _read("/proc/self/stat").rpartition(")")[2].split()
    tick = os.sysconf("SC_CLK_TCK")
    found = {
        "faults": int(fields[9]),
        "cpu": (int(fields[11]) + int(fields[12])) / tick,
        "threads": int(fields[17]),
    }
    for text in _read("/proc/self/io").splitlines():
        name, _, number = text.partition(": ")
        if name in ("rchar", "read_bytes", "syscr"):
            found[name] = int(number)
    return found


def _read(path: str) -> str:
    try:
        file = _open(path, O_CLOEXEC)
    except OSError:
        return "0 () " + "0 " * 50 if path.endswith("stat") else ""
    try:
        return _take(file, 4096).decode(errors="replace")
    finally:
        _close(file)

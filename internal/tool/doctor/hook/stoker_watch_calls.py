"""Which known library a sample's time goes to: self time of its entry points, while a batch is timed.

The doors are hung when a timed batch begins and taken down when it ends, in the process that fetches. Between them
the libraries are as they were: functions that a dataset holds pickle by name (which fails if another object has the
name), and calls of an untimed batch cost nothing. A library is looked for in sys.modules when a batch is timed, so
no import hook is needed for it and none that the script does not use is loaded.

Self time: a span's time less that of the spans within it, on the thread that fetches. Threads that a dataset starts
are not followed.

With a span goes the script's line that called, and for what opens a file which one: a file that is opened again for
every sample could stay open. The path comes by an audit event of Python's, since nothing of ours may see arguments;
that hook stays in the process, and does nothing between timed batches.
"""

import os
import sys
from _thread import get_ident
from collections import deque
from time import monotonic, thread_time

from stoker_watch_door import Door, Ending, Method, StandIn
from stoker_watch_process import is_user, line_of

active: dict = {}  # thread -> Spans: where a timed batch is being fetched

OBJECTS = 400  # of a dataset's that are searched for transforms
DEPTH = 40  # frames that are searched for the script's own line
PATHS = 256  # targets of one name that are told apart
AGAIN = 16  # openings back to which a target counts as opened again
INSTALLS = 400  # CPython 3.12 and 3.13 give up caching a type's attributes after a thousand changes of it

# Functions: module, names, and what they count as ("": each under its own name).
FUNCTIONS = (
    ("builtins", "open", "open"),
    ("io", "open", "open"),
    ("os", "read pread", "read"),
    ("time", "sleep", "sleep"),
    ("PIL.Image", "open", "PIL"),
    ("cv2", "imread imdecode imreadmulti", "cv2"),
    ("cv2", "resize cvtColor warpAffine warpPerspective remap GaussianBlur blur flip rotate copyMakeBorder", ""),
    ("numpy", "load", "numpy.load"),
    ("numpy", "fromfile loadtxt genfromtxt", ""),
    ("json", "load loads", ""),
    ("orjson", "loads", ""),
    ("yaml", "load safe_load", ""),
    ("xml.etree.ElementTree", "parse fromstring", "xml"),
    ("pickle", "load loads", ""),
    ("gzip", "open", ""),
    ("sqlite3", "connect", ""),
    ("lmdb", "open", ""),
    ("fcntl", "flock lockf", "lock"),
    ("urllib.request", "urlopen", "urlopen"),
    ("torch", "load", "torch.load"),
    ("torchaudio", "load", "torchaudio.load"),
    ("soundfile", "read", "soundfile.read"),
    ("librosa", "load", "librosa.load"),
    ("torchvision.io", "read_image decode_image decode_jpeg decode_png read_video", ""),
    ("pandas", "read_csv read_parquet read_json read_pickle read_feather read_hdf read_excel", ""),
    ("pyarrow.parquet", "read_table read_pandas", "pyarrow.read_table"),
    ("pyarrow.feather", "read_table", "pyarrow.read_table"),
)

# Methods: module, class, names, and what they count as. PIL's pixels are decoded in load(), whoever calls it first.
METHODS = (
    ("PIL.ImageFile", "ImageFile", "load", "PIL"),
    ("PIL.Image", "Image", "convert resize crop rotate transpose transform filter point thumbnail reduce", ""),
    ("pathlib", "Path", "read_bytes read_text", "read"),
    ("h5py._hl.dataset", "Dataset", "__getitem__ read_direct", "h5py"),
    ("h5py._hl.files", "File", "__init__", "h5py.File"),
    ("h5py._hl.files", "File", "close", "h5py.close"),
    ("h5py._hl.group", "Group", "__getitem__", "h5py.Group"),
    ("zipfile", "ZipFile", "__init__", "zipfile.ZipFile"),
    ("zipfile", "ZipFile", "read", "zipfile"),
    ("tarfile", "TarFile", "__init__", "tarfile.TarFile"),
    ("numpy.lib._npyio_impl", "NpzFile", "__getitem__", "numpy.npz"),
    ("numpy.lib.npyio", "NpzFile", "__getitem__", "numpy.npz"),
    ("datasets.arrow_dataset", "Dataset", "__getitem__ __getitems__", "datasets"),
    ("pandas.core.indexing", "_LocationIndexer", "__getitem__", "pandas.iloc"),
    ("pandas.core.indexing", "_ScalarAccessIndexer", "__getitem__", "pandas.iloc"),
    ("pandas.core.frame", "DataFrame", "__getitem__", "pandas.frame"),
    ("multiprocessing.synchronize", "SemLock", "__enter__", "lock"),
    ("requests.sessions", "Session", "request", "urlopen"),
    (
        "transformers.tokenization_utils_base",
        "PreTrainedTokenizerBase",
        "__call__ encode batch_encode_plus",
        "transformers",
    ),
    ("tiktoken.core", "Encoding", "encode encode_ordinary", "tiktoken"),
    ("sentencepiece", "SentencePieceProcessor", "Encode encode", "sentencepiece"),
    ("albumentations.core.transforms_interface", "BasicTransform", "__call__", "albumentations"),
)


class Spans:
    """The spans of a fetching thread: those that are open, and what the closed ones sum to."""

    def __init__(self) -> None:
        # [start, start of CPU, s of inner spans, CPU s of inner spans, is a transform, target, name]
        self.open: list = []
        self.sums: dict = {}  # name -> [calls, s, CPU s, line -> s]
        self.targets: list = []  # (name, path), as they were opened
        self.count = 0

    def begin(self, name: str, original, transform: bool = False):
        if name == "h5py.File" and self.open and self.open[-1][6].startswith("h5py"):
            name = "h5py.Group"  # a view of a file that is open
        frame = [0.0, 0.0, 0.0, 0.0, transform, None, name]
        at = _line()
        call = Ending(*original)
        call.end = lambda: self.close(name, frame, at, original)
        self.open.append(frame)
        self.count += 1
        frame[1] = thread_time()
        frame[0] = monotonic()
        return call

    def close(self, name: str, frame: list, at: str, original: tuple) -> None:
        now, cpu = monotonic(), thread_time()
        # A traceback may keep a call alive beyond its end: what was opened within it goes with it, and what was
        # closed with another is not counted.
        if not any(frame is other for other in self.open):
            return
        while self.open.pop() is not frame:
            pass
        wall, used = now - frame[0], cpu - frame[1]
        if self.open:
            self.open[-1][2] += wall
            self.open[-1][3] += used
        total = self.sums.setdefault(name, [0, 0.0, 0.0, {}])
        total[0] += 1
        total[1] += wall - frame[2]
        total[2] += used - frame[3]
        total[3][at] = total[3].get(at, 0.0) + wall - frame[2]
        if name in OPENERS:
            path = frame[5]
            if path is None and len(original) > 1:
                path = getattr(original[1], "filename", None)
            path = path if isinstance(path, str) else None
            if path is not None and path.startswith("file:"):  # as SQLite takes them: file:PATH?mode=ro
                from urllib.parse import unquote  # here: few scripts need it

                path = unquote(path[5:].partition("?")[0])
            if path is None and name in NAMELESS or path is not None and not path.endswith(CODE):
                self.targets.append((name, path))


def _line() -> str:
    """The line of the script's own code that calls, as FILE:FUNCTION:LINE."""
    frame = sys._getframe(2)
    for _ in range(DEPTH):
        if frame is None:
            return ""
        if is_user(frame.f_code.co_filename):
            return line_of(frame.f_code, frame.f_lineno)
        frame = frame.f_back
    return ""


# What opens: of these the targets are told apart.
OPENERS = frozenset(
    "open h5py.File zipfile.ZipFile tarfile.TarFile numpy.load torch.load sqlite3.connect lmdb.open read xml urlopen "
    "pandas.read_csv pandas.read_parquet pandas.read_json pandas.read_pickle pandas.read_feather pandas.read_hdf "
    "pyarrow.read_table".split()
)
NAMELESS = ("sqlite3.connect", "lmdb.open", "urlopen")  # of which it counts that they are made at all
CODE = (".py", ".pyc", ".so")


class Targets:
    """What calls of one name opened: how many there were, how often one again that was opened just before."""

    def __init__(self) -> None:
        self.calls = 0
        self.again = 0
        self.known: dict = {}  # path -> calls
        self.last: deque = deque(maxlen=AGAIN)

    def add(self, path: "str | None") -> None:
        self.calls += 1
        if path is None or path in self.last:
            self.again += 1
        if path is None:  # what has no name is one target
            return
        self.last.append(path)
        if path in self.known or len(self.known) < PATHS:
            self.known[path] = self.known.get(path, 0) + 1

    def report(self) -> dict:
        paths = list(self.known)
        last = [os.path.abspath(path) for path in paths[-4:]]
        return {"again": self.again / max(self.calls, 1), "targets": max(1, len(paths)), "paths": last}


_audited = False


def _audit(event: str, args: tuple) -> None:
    if not active or event not in ("open", "sqlite3.connect"):
        return
    spans = active.get(get_ident())
    if spans is not None and args and isinstance(args[0], str):
        for frame in spans.open:
            if frame[5] is None and not args[0].endswith(CODE):
                frame[5] = args[0]


def _function(name: str):
    def enter(original):
        spans = active.get(get_ident())
        return original if spans is None else spans.begin(name, (original,))

    return enter


def transforms(dataset: object) -> list:
    """The names of what is in the first Compose that the dataset holds, in order, those within others in place."""
    names: list = []

    def add(members: list) -> None:
        for member in members:
            inner = getattr(member, "__dict__", {}).get("transforms")
            if type(inner) in (list, tuple):
                add(inner)
            elif len(names) < 32:
                names.append(_title(member))

    add(next(_lists(dataset), []))
    return names


def _lists(dataset: object):
    """The lists called transforms of the objects that the dataset holds, nearest first; a few hundred are visited."""
    todo, seen = [dataset], {id(dataset)}
    plain = (int, float, str, bytes, list, tuple, dict, set, type, type(sys), type(_lists))
    while todo and len(seen) < OBJECTS:
        inside = getattr(todo.pop(0), "__dict__", None)
        for name, value in list(inside.items()) if isinstance(inside, dict) else ():
            if name == "transforms" and type(value) in (list, tuple):
                yield list(value[:64])
                todo.extend(member for member in value[:64] if id(member) not in seen)
                seen.update(map(id, value[:64]))
            elif not isinstance(value, plain) and id(value) not in seen:
                seen.add(id(value))
                todo.append(value)


def _title(member: object) -> str:
    kind = type(member)
    if kind is type(_title):
        return f"{member.__module__}.{member.__qualname__}"
    for prefix in ("torchvision.transforms.v2", "torchvision.transforms"):
        if kind.__module__.startswith(prefix):
            return f"{prefix}.{kind.__name__}"
    return _named(kind)


def _method(name: str, within: bool = True):
    """`within`: whether it counts by itself inside a transform, which else is charged for what it calls."""

    def enter(instance, original):
        spans = active.get(get_ident())
        if spans is None or not within and spans.open and spans.open[-1][4]:
            return Method(original, instance)
        return spans.begin(name, (original, instance))

    return enter


def _transform(prefix: str):
    def enter(instance, original):
        spans = active.get(get_ident())
        if spans is None:
            return Method(original, instance)
        kind = type(instance)
        name = f"{prefix}.{kind.__name__}" if kind.__module__.startswith(prefix) else _named(kind)
        return spans.begin(name, (original, instance), kind.__name__ != "Compose")

    return enter


def _named(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class Doors:
    """Hangs and takes down; one timed batch of a process at a time."""

    def __init__(self) -> None:
        self.hung: list = []  # (owner, name, original, ours)
        self.installs = 0
        self.known: tuple = ()
        self.plan: list = []
        self.cost = 0.0  # s that a span takes of the batch, measured at the first look

    def again(self) -> "Doors":
        """For a forked child: the same plan, nothing hung."""
        child = Doors()
        child.known, child.plan, child.cost = self.known, self.plan, self.cost
        return child

    def look(self, dataset: object) -> None:
        """New modules may bring new entry points; a script imports most of them before its first batches."""
        if not self.cost:
            self.cost = _calibrate()
        known = (len(sys.modules), min(self.installs, 2))
        if known != self.known:
            self.known = known
            self.plan = list(_plan(dataset))

    def up(self, spans: Spans) -> bool:
        if self.hung or self.installs >= INSTALLS:
            return False
        global _audited
        if not _audited:
            _audited = True
            sys.addaudithook(_audit)
        self.installs += 1
        active[get_ident()] = spans
        for owner, name, original, ours in self.plan:
            try:
                if owner.__dict__.get(name) is original:
                    setattr(owner, name, ours)
                    self.hung.append((owner, name, original, ours))
            except (TypeError, AttributeError):
                pass  # a class of C, or one that refuses
        return True

    def down(self) -> None:
        active.pop(get_ident(), None)
        for owner, name, original, ours in self.hung:
            if owner.__dict__.get(name) is ours:  # else the script has put something there meanwhile
                setattr(owner, name, original)
        self.hung = []


def _calibrate() -> float:
    spans = Spans()
    begin = monotonic()
    for _ in range(100):
        spans.begin("", (int,))()
    return (monotonic() - begin) / 100


def _plan(dataset: object):
    """All (owner, name, original, ours) that this process has by now."""
    functions = {}
    for module, names, counts in FUNCTIONS:
        owner = sys.modules.get(module)
        for name in names.split():
            original = None if owner is None else owner.__dict__.get(name)
            if callable(original) and not isinstance(original, StandIn):
                ours = functions.get(id(original), (None, None))[1]
                ours = ours or StandIn(original, _function(counts or f"{module.partition('.')[0]}.{name}"))
                functions[id(original)] = (original, ours)
                yield owner, name, original, ours
    yield from _imported(functions)
    for module, kind, names, counts in METHODS:
        owner = getattr(sys.modules.get(module), kind, None)
        if isinstance(owner, type):
            for name in names.split():
                enter = _method(counts or f"PIL.{name}", within=counts != "")
                if counts == "albumentations":
                    enter = _transform("albumentations")
                yield from _door(owner, name, enter)
    yield from _transforms(dataset)


def _imported(functions: dict):
    """The names under which the script's own modules imported the functions (`from time import sleep`)."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or not is_user(path):
            continue
        for name, value in list(module.__dict__.items()):
            original, ours = functions.get(id(value), (None, None))
            if original is value and ours is not None:
                yield module, name, original, ours


def _door(owner: type, name: str, enter):
    original = owner.__dict__.get(name)
    if callable(original) and not isinstance(original, Door):
        yield owner, name, original, Door(original, enter)


def _transforms(dataset: object):
    """torchvision's transforms of both kinds, what the script derives from them, and the members of its Compose."""
    seen: set = set()
    v1 = sys.modules.get("torchvision.transforms.transforms")
    for kind in list(vars(v1).values()) if v1 is not None else []:
        if isinstance(kind, type) and kind.__module__ == v1.__name__:
            yield from _class(kind, "torchvision.transforms", seen)
    for kind in _subclasses(dataset):
        yield from _class(kind, "torchvision.transforms.v2" if ".v2." in kind.__module__ else kind.__module__, seen)


def _class(kind: type, prefix: str, seen: set):
    name = "forward" if "forward" in kind.__dict__ else "__call__"
    if kind not in seen:
        seen.add(kind)
        yield from _door(kind, name, _transform(prefix))


def _subclasses(dataset: object) -> list:
    """Classes of v2's transforms, and of the members of the Compose objects that the dataset holds."""
    found: list = []
    v2 = sys.modules.get("torchvision.transforms.v2")
    base = getattr(v2, "Transform", None)
    todo = [base] if isinstance(base, type) else []
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo.extend(kind.__subclasses__())
    foreign = ("torchvision.", "torch.", "builtins", "functools")
    for kind in {type(member): None for members in _lists(dataset) for member in members}:
        if kind not in found and not kind.__module__.startswith(foreign):
            if "__call__" in kind.__dict__ or "forward" in kind.__dict__:
                found.append(kind)
    return found

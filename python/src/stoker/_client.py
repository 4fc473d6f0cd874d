"""Loaders in the engine of this process: a Loader is a Spec, opened again on every new engine.

What happens when an engine dies is in _engines.py.
"""

from __future__ import annotations

import json
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple, Protocol, TypeVar

from . import _notice
from ._engines import client, forked
from ._errors import ConfigError, DataError, EngineError, StokerError, located
from ._fused import Left, Rest
from ._process import Aside, Asked, Engine, Gone
from ._shown import shown_text
from ._stores import fetched
from ._told import Contents, Member, changed, read_error
from ._views import Groups
from ._wire import Message

QUIET_SECONDS = 60.0  # seconds that the engine may work on a request without a message
LAST_SECONDS = 2.0  # seconds that closing a loader waits for its statistics

T = TypeVar("T")


class Mixes(NamedTuple):
    """A field that MixUp or CutMix changes here."""

    label: bool  # it has the labels, which become probabilities; otherwise the pictures
    stored: str  # the dtype of what is in memory
    classes: int  # probabilities of a label


class Field(NamedTuple):
    """A field of batches, in the engine's words."""

    name: str
    kind: str  # image | number | bytes | text | json | array
    dtype: str
    axes: str  # layout of an image: hwc, chw or ""
    view: str  # layout in which it is shown
    batch: str = ""  # padded | ragged, of an array whose samples differ
    view_of: str = ""  # the picture of which it is one of several views, which follow one another
    left: Left | None = None  # its memory has bytes (uint8), of which the numbers are made here
    rest: Rest | None = None  # what is done here to the bytes of a picture before that
    sent: tuple[str, str] | None = None  # the columns with how rows are made here of JPEGs, and with those
    mix: Mixes | None = None  # it is mixed here, as the message of a batch says

    @staticmethod
    def read(told: Message) -> Field:
        axes, view, batch, view_of = (told.get(key, "") for key in ("axes", "view", "batch", "view_of"))
        left = None if told.get("left") is None else Left.read(told["dtype"], told["left"])
        rest = Rest(told["steps"], tuple(told["becomes"])) if told.get("steps") else None
        sent = (told["windows"], told["jpegs"]) if told.get("windows") else None
        mix = None
        if told.get("mix"):
            label = bool(told["mix"]["label"])
            mix = Mixes(label, told["mix"]["stored"], told["shape"][0] if label else 0)
        return Field(told["name"], told["kind"], told["dtype"], axes, view, batch, view_of, left, rest, sent, mix)

    @property
    def stored(self) -> str:
        """The dtype of what is in memory."""
        if self.mix is not None:
            return self.mix.stored
        return self.dtype if self.left is None else "uint8"


class Opened(NamedTuple):
    """What the engine says about a loader that it opened."""

    samples: int
    digest: str
    pipeline: str
    classes: list[str]
    format: str
    fields: list[Field]
    lanes: int
    order: dict[str, Any]  # the order, as states record it
    stride: int  # items per step over all ranks
    beside: dict[str, str]  # other values that states record: the keys processing and blocks, if they have one
    sources: list[str]  # digests of the datasets this one was packed from, whose states fit too
    altered: str  # how packing changed what is delivered
    unlike: dict[str, str]  # digests of datasets packed into other samples, and how: their states do not fit
    contents: list[Contents]  # of each dataset

    @property
    def names(self) -> list[str]:
        """The names of what samples have."""
        return Groups(self.fields).names


def _opened(answer: Message, engine: Engine) -> Opened:
    return Opened(
        samples=int(answer.get("samples", 0)),
        digest=str(answer.get("digest", "")),
        pipeline=str(answer.get("pipeline", "")),
        classes=list(answer.get("classes") or []),
        format=str(answer.get("format", "")),
        fields=[Field.read(field) for field in answer.get("fields") or [] if field["kind"] not in ("steps", "sent")],
        lanes=int(answer.get("lanes") or engine.lanes),
        order=dict(answer.get("order") or {}),
        stride=int(answer.get("stride", 1)),
        beside={key: answer[key] for key in ("processing", "blocks") if answer.get(key)},
        sources=list(answer.get("sources") or []),
        altered=str(answer.get("altered", "")),
        unlike=dict(answer.get("unlike") or {}),
        contents=[
            Contents(int(one["samples"]), str(one["digest"]), str(one.get("stamp", "")))
            for one in answer.get("contents") or []
        ],
    )


class Place:
    """The location of a loader or a pass in an engine; outlives its owner, for the finaliser."""

    __slots__ = ("asked", "engine", "id")

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.id = 0
        self.asked: Asked | None = None  # of a pass: the request for its next batch, if it was sent ahead


class Crew(Protocol):
    """Who makes the samples of a loader over a dataset of the user's own: worker processes, or the calling thread."""

    timeout: float  # seconds without a batch that count as a stall; 0: none is one
    bundles: bool  # whether one message may hold several batches
    ahead: bool  # whether a batch may be made before the loop waits for it

    def aside(self) -> Aside | None:
        """What the thread that is about to ask for a batch does meanwhile."""

    def told(self) -> dict[str, Any]:
        """What the engine is told of it when the loader is opened."""

    def staff(self, engine: Engine, loader: int) -> None:
        """Before a pass begins there: the engine gets its workers, if it has none yet."""

    def hire(self, engine: Engine, loader: int, answer: Message) -> None:
        """The engine says that workers are missing."""

    def shows(self, progress: Message) -> None:
        """What the engine says while the loop waits: a worker is stuck."""

    def worked(self) -> None:
        """A batch has arrived."""

    def leave(self) -> None:
        """The loader has taken another one in the engine: running passes go on."""

    def close(self) -> None:
        """The loader is closed."""

    def after_fork(self) -> None:
        """In a forked child: the workers are the parent's."""


class Loader:
    """A loader in the engine. Opens at first need, and again after ``close()`` or on a new engine.

    ``timeout`` is the stall deadline of a batch in seconds. ``keeps`` says whether it keeps the engine alive.
    ``stored``: only the stored data is inspected and no batch is made, so no field has to be deliverable.
    ``members`` are the datasets of the Spec: the engine has to find what they told their user. ``before`` is what the
    loader found that this one takes over from. ``crew`` makes the samples of a dataset of the user's own. ``bare``: the
    floats of pictures are made here, as far as ``Field.left`` says how. ``mixes``: batches are mixed here.
    """

    _count = 0

    def __init__(
        self,
        spec: dict[str, Any],
        timeout: float = 60.0,
        keeps: bool = True,
        stored: bool = False,
        members: Sequence[Member] = (),
        before: Sequence[Contents] = (),
        crew: Crew | None = None,
        bare: bool = False,
        mixes: bool = False,
    ) -> None:
        Loader._count += 1
        self._number = Loader._count
        self.spec = spec
        self.timeout = timeout
        self._keeps = keeps
        self._stored = {"stored": True} if stored else {}
        self._left = {key: True for key, said in (("bare", bare), ("mixes", mixes)) if said and crew is None}
        self._members = members
        self._before = before
        self.crew = crew
        self._lock = threading.Lock()
        self._at = Place()
        self.opened: Opened | None = None
        self.strained = False  # memory for its batches ran out while the loop held them
        self.undecodable: set[int] = set()  # samples that the device's decoder refused: the engine decodes them
        self._refused: EngineError | None = None
        self.closings = 0  # passes begun before the last close have ended
        forked(self)
        weakref.finalize(self, _release, self._number, self._at).atexit = False

    @property
    def open(self) -> bool:
        return self._at.engine is not None

    @property
    def number(self) -> int:
        """The engine's number for it, while it is open."""
        return self._at.id

    @property
    def suspected(self) -> bool:
        """Whether an engine died at a request of it: loaders like that take turns, so nothing is asked ahead."""
        return client().suspected(self._number)

    def info(self) -> Opened:
        """What the engine says about it; opens it if that is not known."""
        return self.opened or self.reopened()

    def reopened(self) -> Opened:
        """Opens it if it is not open."""
        self.call(lambda engine, loader: None)
        assert self.opened is not None
        return self.opened

    def check(self) -> Opened:
        """Opens and closes it to raise everything that is wrong with the Spec. The engine stays."""
        info = self.reopened()
        engine, self._at.engine = self._at.engine, None
        if engine is not None:
            engine.post({"type": "close", "loader": self._at.id})
        return info

    def call(self, work: Callable[[Engine, int], T]) -> T:
        """work(engine, number of this loader there), repeated on the next engine if that one dies."""
        while True:
            if self._refused is not None:
                raise copy(self._refused)
            try:
                with client().turn(self._number):
                    engine = client().engine(self._number if self._keeps else None)
                    return work(engine, self._open(engine))
            except DataError as error:
                read_error(self._members, error)
                raise
            except Gone as gone:
                digest = "" if self.opened is None else self.opened.digest
                self._refused = client().bury(gone, self._number, digest)
                if self._refused is not None:
                    self._leave(gone.engine, 0)

    def _open(self, engine: Engine) -> int:
        with self._lock:
            if self._at.engine is engine:
                return self._at.id
            progress = _notice.Progress()
            crew = {} if self.crew is None else {"crew": self.crew.told()}
            try:
                answer, _ = engine.request(
                    {"type": "open", "spec": fetched(self.spec), **self._stored, **self._left, **crew},
                    max(QUIET_SECONDS, self.timeout),
                    lambda m: progress.show(m.get("done", 0), m.get("total", 0), m.get("what", "")),
                )
            except Gone:
                raise
            except BaseException:
                self._leave(engine, 0)
                raise
            finally:
                progress.close()
            loader, found = int(answer["loader"]), _opened(answer, engine)
            try:
                self._compare(engine, loader, found)
            except Gone:
                raise
            except BaseException:
                self._leave(engine, loader)
                raise
            # Warnings about data that is only inspected are given when it is loaded, for the fields that are wanted
            # then.
            for note in [] if self._stored else answer.get("notes") or []:
                _notice.say(note)
            self.opened = found
            engine.digests[loader] = found.digest
            self._at.id, self._at.engine = loader, engine
            return loader

    def _compare(self, engine: Engine, loader: int, found: Opened) -> None:
        """Raises if what the engine found is not what was there before."""
        for number, (member, now) in enumerate(zip(self._members, found.contents, strict=False)):
            told = member.told.before(member.where)
            if told is not None and told[0].differs(now):
                change: dict[str, str] = {}
                looked = told[1]
                if looked is not None and looked is not self and looked._at.engine is engine:
                    question = {"what": "changed", "epoch": 0, "from": number, "to": 0, "loader": looked.number}
                    try:
                        answer, _ = engine.request({"type": "ask", "loader": loader, "ask": question}, QUIET_SECONDS)
                        change = answer["answer"]
                    except ConfigError:  # the loader that looked was closed meanwhile: there is no file to name
                        pass
                raise changed(member.kind, told[0], now, change, member.told.found)
        # A pass cannot go on over other data; a dataset that is only looked at shows what is there now.
        before = self.opened.contents if self._keeps and self.opened is not None else self._before
        for was, now in zip(before, found.contents, strict=False):
            if was.differs(now):
                raise DataError(
                    "the dataset changed while it was in use",
                    code="changed",
                    cause=was.became(now),
                    hint="make a new loader and begin again: a pass cannot go on over other data",
                )
        if self._keeps:
            for member, now in zip(self._members, found.contents, strict=False):
                member.told.load(member.where, now)

    def _leave(self, engine: Engine, loader: int) -> None:
        self._at.engine = None
        client().release(self._number, engine, loader)

    def table(self, columns: list[str]) -> dict[str, list[Any]]:
        """Whole columns of the dataset's index."""

        def ask(engine: Engine, loader: int) -> dict[str, list[Any]]:
            answer, (fd,) = engine.request(
                {"type": "table", "loader": loader, "columns": columns}, max(QUIET_SECONDS, self.timeout)
            )
            try:
                size = int(answer.get("bytes", 0))
                with mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ) as text:
                    found: dict[str, list[Any]] = json.loads(text[:])
                return found
            finally:
                os.close(fd)

        return self.call(ask)

    def ask(self, what: str, **about: Any) -> Any:
        """The engine's answer to a question about the order: steps, items, sum, shares, explain, verify; or about a
        sample: where."""

        def ask(engine: Engine, loader: int) -> Any:
            question = {"what": what, "epoch": 0, "from": 0, "to": 0, **about}
            answer, _ = engine.request(
                {"type": "ask", "loader": loader, "ask": question}, max(QUIET_SECONDS, self.timeout)
            )
            return answer.get("answer")

        return self.call(ask)

    def decode(self, samples: Sequence[int], why: str) -> None:
        """Has the engine decode the pictures of these samples from the next pass on, because the device's decoder has
        refused them. A notice names the first one; later ones, at ten, a hundred and so on, say how many there are."""
        before = len(self.undecodable)
        self.undecodable.update(samples)
        count = len(self.undecodable)
        if not before:
            more = f", and {count - 1:,} more of its batch" if count > 1 else ""
            _notice.say(
                f"the decoder of decode_device refuses a picture ({self._location(samples[0])}){more}: {why}; the "
                "engine decodes it, and others that are refused"
            )
        elif len(str(count)) > len(str(before)):
            _notice.say(f"the decoder of decode_device has refused {count:,} pictures so far; the engine decodes them")

    def _location(self, sample: int) -> str:
        """Where a sample is stored, as far as the engine says it."""
        try:
            where = self.ask("where", **{"from": sample})
        except StokerError:
            where = {}
        if "file" in where:
            where = {"file": shown_text(where["file"])}
        return located({**where, "sample": sample})

    def stats(self, before: dict[str, Any] | None = None, wait_share: float | None = None) -> dict[str, Any]:
        """The engine's current numbers for this loader, with rates since the previous call, or since it was opened.
        ``wait_share`` is the share of that time that the loop waited, as it saw it."""
        return self.call(lambda engine, loader: _stats(engine, loader, before, wait_share, QUIET_SECONDS))

    def last_stats(self, wait_share: float | None = None) -> dict[str, Any]:
        """The same for a loader about to be closed: nothing if its engine does not answer at once, and never from
        another engine."""
        engine = self._at.engine
        if engine is None:
            return {}
        try:
            return _stats(engine, self._at.id, None, wait_share, LAST_SECONDS)
        except Exception:
            return {}

    def close(self) -> None:
        """Closes it in the engine, and ends the engine if nobody else needs it."""
        self.closings += 1
        if self.crew is not None:
            self.crew.close()
        _release(self._number, self._at)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._at.engine = None
        if self.crew is not None:
            self.crew.after_fork()


def _stats(
    engine: Engine, loader: int, before: dict[str, Any] | None, wait_share: float | None, timeout: float
) -> dict[str, Any]:
    question: dict[str, Any] = {"type": "stats", "loader": loader}
    since: dict[str, Any] = {}
    if before and before.get("opened_s") and before.get("loader") == loader:
        since["before"] = before
    if wait_share is not None:
        since["wait_share"] = wait_share
    if since:
        question["stats"] = since
    answer, _ = engine.request(question, timeout)
    return dict(answer.get("stats") or {})


def _release(number: int, at: Place) -> None:
    engine, at.engine = at.engine, None
    if engine is not None:
        client().release(number, engine, at.id)


def closed() -> ConfigError:
    """What an iterator raises after its loader was closed."""
    return ConfigError("the loader of this iterator was closed", hint="start a new pass with iter(loader)")

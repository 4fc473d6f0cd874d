"""Which samples a filter keeps: found out once, by running the steps before it over all samples.

decide()   numbers of the samples that remain after all filters and views of a chain

The result of each filter is kept in the cache folder, under a digest of the data, the code of the functions and what
they close over. Ranks of one machine wait for the one that comes first. Where something cannot be hashed, nothing is
kept, and each process tries for itself.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from . import _notice
from ._cache import folder
from ._closures import closure
from ._datasets import Dataset
from ._errors import ConfigError, DataError, StokerError, many
from ._mixture import Mixture
from ._order import below, epoch_key
from ._program import Keep, Program, Step, View
from ._spec import ALL_CORES, Recipe

GONE, KEPT, RAISED = range(3)
_SIZE = 64  # samples in a batch of verdicts
_CHECK = 16  # bytes of a digest before the numbers in a file


class Judge(Program):
    """The steps up to the last filter. What they make of a sample is a verdict: whether the filters from step ``since``
    on keep it; those before have been decided."""

    def __init__(self, steps: Sequence[Step], since: int) -> None:
        super().__init__(steps)
        self._since = since
        self.toned = []  # it makes verdicts, and no pictures

    @property
    def runs(self) -> bool:
        return True

    def judge(self, sample: Any, key: int) -> int:
        from ._program import _STEP

        for number, step in enumerate(self.steps, _STEP):
            if isinstance(step, Keep) and number - _STEP >= self._since:
                if not step.keeps(sample, below(key, number)):
                    return GONE
            else:
                sample = step.run(sample, below(key, number))
        return KEPT

    def apply(self, sample: Any, key: int) -> Any:
        try:
            return self.judge(sample, key)
        except Exception:  # the user's: samples that cannot be read are not seen here
            return RAISED


def decide(
    base: Any, tails: Sequence[Step], steps: Sequence[Step], keywords: Mapping[str, Any] | None
) -> Sequence[int]:
    """The numbers of the base's samples that remain. ``keywords`` of the loader say how many workers try them."""
    from ._steps import numbers_of

    numbers = numbers_of(base)
    begin = 0
    for end in [i for i, step in enumerate(steps) if isinstance(step, View)] + [len(steps)]:
        last = max((i for i in range(begin, end) if isinstance(steps[i], Keep)), default=None)
        if last is not None:
            before = _stepping((*tails, *steps[:begin]))
            numbers = _judged(base, before + _stepping(steps[begin : last + 1]), len(before), numbers, keywords or {})
        if end < len(steps):
            view = steps[end]
            assert isinstance(view, View)
            numbers = view.choose(numbers)
            if not len(numbers):
                raise ConfigError(f"{view.call}({', '.join(map(str, view.numbers))}) leaves no sample", hint="check it")
        begin = end + 1
    return numbers


def _stepping(steps: Sequence[Step]) -> list[Step]:
    """The steps that are run on samples: all but views."""
    return [step for step in steps if not isinstance(step, View)]


def _judged(
    base: Any, steps: Sequence[Step], since: int, numbers: Sequence[int], keywords: Mapping[str, Any]
) -> Sequence[int]:
    if isinstance(base, Mixture):
        return _mixed(base, steps, since, numbers, keywords)
    judge = Judge(steps, since)
    name = _digest(base, steps, since, numbers)
    if name is None:
        return _tried(base, judge, numbers, keywords)
    path = os.path.join(folder("filters"), f"{name}.ids")
    if (found := _read(path)) is not None:
        return found
    with _locked(path + ".lock"):
        if (found := _read(path)) is not None:  # another rank has done it meanwhile
            return found
        found = _tried(base, judge, numbers, keywords)
        _write(path, found)
        return found


def _mixed(
    mixture: Mixture, steps: Sequence[Step], since: int, numbers: Sequence[int], keywords: Mapping[str, Any]
) -> Sequence[int]:
    """The same for a mixture: each of its datasets is tried by itself, and shares are those of what is left."""
    kept: set[int] = set()
    first = 0
    for i, part in enumerate(mixture._parts()):
        own = sorted({number - first for number in numbers if first <= number < first + part.count})
        theirs = [step for step in part.program.steps if not isinstance(step, View)]
        if not part.native and part.chain is None and keywords.get("num_workers") in (None, ALL_CORES):
            keywords = {**keywords, "num_workers": 0}  # as a loader over it would have
        try:
            found = _judged(part.data, (*theirs, *steps), len(theirs) + since, own, keywords) if own else ()
        except StokerError as error:
            error.what = f"dataset {i} of the mixture: {error.what}"
            error.args = (error.what,)
            if "sample" in error.where:
                error.where["sample"] += first
            raise
        kept.update(first + number for number in found)
        first += part.count
    return array("q", (number for number in numbers if number in kept))


def _tried(base: Any, judge: Judge, numbers: Sequence[int], keywords: Mapping[str, Any]) -> Sequence[int]:
    """The numbers that the judge keeps. Samples that cannot be read stay: the loader's on_bad decides about them."""
    from ._loader import DataLoader
    from ._steps import Stepped

    class Trial(DataLoader[Any]):
        def _announce(self, info: Any) -> None:
            pass

    class InOrder(Stepped):
        """Every sample once, as it is stored, whatever the chain says of shuffling, batches and epochs."""

        def _recipe(self) -> Recipe:
            told = super()._recipe()
            return replace(
                told, shuffle=False, seed=None, batch=None, sized=None, drop=False, on_bad=None, epoch_items=None
            )

    wanted = {key: keywords[key] for key in ("num_workers", "multiprocessing_context") if keywords.get(key) is not None}
    dataset = InOrder(base, program=judge, numbers=numbers)
    kept = array("q")
    unread = done = 0
    progress = _notice.Progress()
    call = next(step.call for step in reversed(judge.steps) if isinstance(step, Keep))
    size = max(1, min(_SIZE, len(numbers) // 8))
    try:
        with Trial(dataset, size, rank=0, world_size=1, seed=0, on_bad="skip", **wanted) as trial:
            for batch in trial:
                facts: Any = trial.facts
                verdicts, valid = batch.tolist(), facts.valid.tolist()
                for place, (verdict, good) in enumerate(zip(verdicts, valid, strict=True), done):
                    if good and verdict == RAISED:
                        _raise(Stepped(base, program=Program(), numbers=numbers), judge, place, numbers[place])
                    if not good or verdict == KEPT:
                        kept.append(numbers[place])
                unread += len(facts.bad)
                done += len(valid)
                progress.show(done, len(numbers), call)
    finally:
        progress.close()
    if unread:
        kept_too = f"{many(unread, 'sample')} cannot be read and {'is' if unread == 1 else 'are'} kept"
        _notice.say(f".{call}: {kept_too}; on_bad= of the loader decides about that")
    if not kept:
        raise ConfigError(
            f".{call} keeps none of the {many(len(numbers), 'sample')}",
            hint="call the function with dataset[0] of the dataset before it, and see what it returns",
        )
    return kept


def _raise(dataset: Any, judge: Judge, place: int, number: int) -> None:
    """Raises what the user's function raised in a worker: it is called once more, here."""
    key = below(epoch_key(0, 0), place)
    where = {"sample": number}
    try:
        judge.judge(dataset[place], key)
    except Exception as error:
        raise DataError(
            f"a filter cannot be decided: for sample {number}, {type(error).__name__} was raised: {error}",
            where=where,
            hint="every sample is tried before the first pass; return False for samples to leave out",
        ) from error
    raise DataError(
        "a filter raised an error in a worker, and none here", where=where, hint="look at what it depends on"
    )


# The cache folder.


def _digest(base: Any, steps: Sequence[Step], since: int, numbers: Sequence[int]) -> str | None:
    if not isinstance(base, Dataset):
        return None  # a user's own data: who knows what changes
    functions = closure(*steps)
    if functions is None:
        return None
    fields = json.dumps(base._fields(), sort_keys=True)
    told = ["in order", base._look().info().digest, fields, functions, str(since)]
    hashed = hashlib.blake2b("\0".join(told).encode(), digest_size=16)
    hashed.update(array("q", numbers).tobytes())
    return hashed.hexdigest()


def _read(path: str) -> Sequence[int] | None:
    """What ``_write`` wrote; None if there is nothing, or if it is damaged: a machine that stops may leave a file with
    zeros or without its end, and a dataset must not lose samples by that."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    if data[:_CHECK] != _check(data[_CHECK:]):
        return None
    return array("q", data[_CHECK:])


def _check(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_CHECK).digest()


def _write(path: str, numbers: Sequence[int]) -> None:
    data = array("q", numbers).tobytes()
    with suppress(OSError):  # a full disk: the next run tries again
        handle, part = tempfile.mkstemp(suffix=".part", dir=os.path.dirname(path))
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_check(data) + data)
            os.replace(part, path)
        except OSError:
            os.unlink(part)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """One process at a time; without locks (some network file systems), all of them."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

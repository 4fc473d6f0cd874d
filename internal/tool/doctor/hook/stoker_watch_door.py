"""Looking on without standing in the way: callables that are watched and leave no frame.

A wrapper written as a Python function shows in every traceback, in the stack levels of warnings and in
inspect.stack(). Here no frame of ours is on the stack while the script's own code runs: reading an attribute runs
our code first (a descriptor's __get__), C calls what that returns, and what must follow runs either in C's map,
which hands over the result, or when the callable is dropped, which CPython does once the call returned or raised.

An exception that a signal handler raises while we run in a destructor would be lost there: it is kept, and raised
at the next door.
"""

import _signal
import itertools
from _functools import partial

_late: list = []  # at most one exception of a signal handler
troubles: list = []  # the first of our own mistakes


class _Probe:
    def method(self):
        pass


Method = type(_Probe().method)


def keep(error: BaseException) -> None:
    """Call it with what a destructor caught: what a signal handler raised comes at the next door."""
    try:
        if isinstance(error, Exception):
            trouble(error)
        else:
            _late.append(error)
    except Exception:
        _late.append(error)


def trouble(error: Exception) -> None:
    """A mistake of ours: never the script's matter, and told in the lines, so that it does not stay unseen.

    What a signal handler of the script raised while we ran is not our mistake, and is raised again.
    """
    frames, entry = [], error.__traceback__
    while entry is not None:
        frames.append((entry.tb_frame.f_code, entry.tb_lineno))
        entry = entry.tb_next
    handlers = _handlers()
    if any(code in handlers for code, _ in frames):
        raise error
    if len(troubles) < 4:
        place = f"{frames[-1][0].co_name}:{frames[-1][1]}: " if frames else ""
        troubles.append(f"{place}{type(error).__name__}: {error}"[:200])


def _handlers() -> list:
    """The code of the script's signal handlers."""
    found = []
    for number in _signal.valid_signals():
        handler = _signal.getsignal(number)
        code = getattr(getattr(handler, "__func__", handler), "__code__", None)
        if code is not None:
            found.append(code)
    return found


def _raise_late() -> None:
    if _late:
        raise _late.pop()


def around(before, original, after, instance):
    """A callable without arguments: after(original(before(instance))), as often as it is called."""
    return map(after, map(original, map(before, itertools.repeat(instance)))).__next__


class Ending(partial):
    """A call whose `end` runs when it is over, however it ended."""

    __slots__ = ("end",)

    def __del__(self):
        try:
            self.end()
        except BaseException as error:
            keep(error)


def ending(original, instance, end):
    call = Ending(original, instance)
    call.end = end
    return call


class Door:
    """Takes the place of a method of a class; `enter(instance, original)` returns what is called instead.

    The class itself still shows the original, so that signatures, super() by name and pickles are as they were.
    """

    def __init__(self, original, enter):
        self.original = original
        self.enter = enter

    def __get__(self, instance, owner=None):
        if instance is None:
            return self.original
        if _late:
            _raise_late()
        try:
            return self.enter(instance, self.original)
        except Exception as error:
            trouble(error)
            return Method(self.original, instance)


def hang(owner: type, name: str, enter) -> Door:
    """Puts a door before a method that the class itself defines."""
    door = Door(owner.__dict__[name], enter)
    setattr(owner, name, door)
    return door


class _Call:
    def __get__(self, slot, owner=None):
        if slot is None:
            return None
        if _late:
            _raise_late()
        try:
            return slot.enter(slot.__wrapped__)
        except Exception as error:
            trouble(error)
            return slot.__wrapped__


class StandIn:
    """Stands for a function; `enter(original)` returns what is called instead."""

    __call__ = _Call()

    def __init__(self, original, enter):
        self.__wrapped__ = original
        self.enter = enter
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            value = getattr(original, name, None)
            if isinstance(value, str):
                self.__dict__[name] = value

    def __getattr__(self, name):
        return getattr(self.__dict__["__wrapped__"], name)

    def __repr__(self):
        return repr(self.__wrapped__)

    def __reduce__(self):
        return self.__qualname__


def then(end):
    """For StandIn: the original is called, then end()."""

    def enter(original):
        call = Ending(original)
        call.end = end
        return call

    return enter

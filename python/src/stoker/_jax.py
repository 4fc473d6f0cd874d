"""Puts arrays on JAX's devices, ahead of the loop.

chosen    the device that a keyword names
Port      one device, or a placement over several: puts arrays there, and says which have arrived
Plan      which arrays of the batches of one message are put, and the batches that are made of them there

JAX copies in threads of its own, and keeps what it copies from until it has copied it. On the CPU it copies nothing:
arrays refer to the memory that they were given, whatever ``may_alias`` says (jax-ml/jax#37830). There, a Plan copies.

A batch may be any structure of tuples, lists, dicts and named tuples. Its arrays are found in it, and then:

    in the slot             put from there, so the slot is kept until they have arrived; on the CPU, copied
    in other memory         copied, then put: the user's code may still use that memory
    of JAX                  put, which does nothing if they are there
    of other dtypes         (texts, objects, dates, records): left as they are

``ids`` stay here. With a placement ``valid`` and ``cu_seqlens`` do too: the loop has to read them, and cannot read a
global array of several processes. Under pack= they describe runs of samples, which no sharding splits.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import filterfalse
from operator import methodcaller
from typing import Any

from ._batch import _Facts
from ._errors import ConfigError
from ._moved import like, searched

ALIGN = 64  # of copies: JAX refers to memory that begins at a multiple of this
_NEVER = "OSUmM"  # kinds of NumPy's dtypes that JAX does not have
_FACTS = ("ids", "valid", "cu_seqlens", "position_ids")

# JAX 0.10 ends the process if a deleted array is asked whether it is ready, and another thread may delete one at any
# time. No bytecode runs between these two calls, so no other thread runs there.
_deleted, _ready = methodcaller("is_deleted"), methodcaller("is_ready")


def is_device(device: Any) -> bool:
    """Whether it is a jax.Device. JAX is not imported for this."""
    jax: Any = sys.modules.get("jax")
    return jax is not None and isinstance(device, jax.Device)


def name_of(device: Any) -> str:
    """A device's name, such as "cuda:1": JAX's, with the id that JAX gives it."""
    said = str(device)
    return said if re.fullmatch(r"\w+:\d+", said) else f"{device.platform}:{device.id}"


def chosen(name: str) -> Any:
    """The device of this process with this name: "cpu", "gpu", "cuda", "tpu", the first one; "cuda:1", the one with
    that id. Starts JAX's devices. ConfigError if there is none."""
    import jax

    kind, _, number = name.partition(":")
    found: Sequence[Any] = ()
    with suppress(RuntimeError):  # JAX knows no such kind, or cannot start it
        found = jax.local_devices(backend=kind)
    for device in found:
        if not number or device.id == int(number):
            return device
    raise ConfigError(f"device is {name!r}, which JAX does not have in this process", hint=f"these are here: {_here()}")


def _here() -> str:
    import jax

    found: list[Any] = []
    for kind in (None, "cpu"):
        with suppress(RuntimeError):  # JAX cannot start it
            found += [device for device in jax.local_devices(backend=kind) if device not in found]
    return ", ".join(map(name_of, found)) or "none"


class Port:
    """Where JAX puts arrays: a device of this process, or a Placement. Safe for concurrent use. Only ``finish``
    waits."""

    def __init__(self, where: Any) -> None:
        import jax

        self._jax: Any = jax
        self._where = where
        if is_device(where):
            self._placement, devices = None, [where]
            self.facts: tuple[str, ...] = ("valid", "cu_seqlens", "position_ids")  # that are put too
        else:
            self._placement, devices = where, sorted(where.sharding.addressable_devices, key=lambda one: one.id)
            self.facts = ("position_ids",)
        more = f" and {len(devices) - 1} more" if len(devices) > 1 else ""
        self.name = name_of(devices[0]) + more
        self.refers = any(device.platform == "cpu" for device in devices)  # to the memory that it is given

    def put(self, arrays: Sequence[Any]) -> Iterable[Any]:
        """Begins to put arrays there; gives JAX's, in this order, each as soon as it was begun."""
        try:
            if self._placement is None:
                return self._jax.device_put(list(arrays), self._where)  # type: ignore[no-any-return]
            return map(self._one, arrays)
        except TypeError:
            return map(self._one, arrays)  # to say which

    def _one(self, array: Any) -> Any:
        try:
            if self._placement is None:
                return self._jax.device_put(array, self._where)
            return self._placement.put(array)
        except TypeError as error:
            hint = 'convert the samples, or pass output="numpy"'
            raise ConfigError(f"JAX has no {array.dtype}", hint=hint) from error

    def is_array(self, value: Any) -> bool:
        """Whether it is an array of JAX."""
        return isinstance(value, self._jax.Array)

    def full(self, error: BaseException) -> bool:
        """Whether an error says that the device has no memory left."""
        return isinstance(error, RuntimeError) and "RESOURCE_EXHAUSTED" in str(error)

    # What Copies asks of a port. An event is a list of arrays.

    def done(self, arrays: Sequence[Any]) -> bool:
        """Whether these arrays have arrived. One that was deleted (a computation took its memory) counts as arrived:
        JAX does not say, and keeps the source itself."""
        return all(map(_ready, filterfalse(_deleted, arrays)))

    def finish(self, arrays: Sequence[Any]) -> None:
        """Waits for them."""
        for array in arrays:
            try:
                array.block_until_ready()
            except RuntimeError:
                if not array.is_deleted():
                    raise

    def seconds(self, begin: Any, end: Any) -> float:
        """0: JAX does not say how long it copied."""
        return 0.0

    def capturing(self) -> bool:
        """False: JAX has no graphs that are recorded."""
        return False


class Plan:
    """How the batches of one message get to a device: ``look`` at all of them, ``begin``, then ``made`` gives each.

    ``root`` is the slot, None if there is none. ``paired``: each is a pair of a batch that Python made and its facts.
    ``begun`` are JAX's arrays of ``size`` bytes here, ``keep`` is what must not change until they have arrived.
    """

    def __init__(self, port: Any, root: Any, paired: bool) -> None:
        import numpy

        self._np = numpy
        self._port = port
        self._root = root
        self._base = 0 if root is None else ctypes.addressof(root)
        self._end = self._base + (0 if root is None else len(root))
        self._paired = paired
        self._found: dict[int, Any] = {}  # arrays here, by id
        self._there: dict[int, Any] = {}  # what they are there
        self.begun: list[Any] = []
        self.keep: list[Any] = []
        self.size = 0

    def look(self, value: Any) -> None:
        """Notes the arrays of a batch."""
        self._all(value, self._note)

    def begin(self) -> None:
        """Begins to put what was noted. If it fails, ``begun`` and ``keep`` are what was begun before."""
        sources = [self._source(array) for array in self._found.values()]
        self.size = sum(source.nbytes for source in sources)
        if not sources:
            return
        self.keep.append(sources)
        for number, there in zip(self._found, self._port.put(sources), strict=True):
            self.begun.append(there)
            self._there[number] = there

    def made(self, value: Any) -> Any:
        """A batch there, or the pair of one and its facts."""
        return self._all(value, lambda array: self._there[id(array)])

    def _source(self, array: Any) -> Any:
        """What an array is put from."""
        if self._port.is_array(array):
            return array
        if self._inside(array) and not self._port.refers:
            return array.view(self._np.ndarray)  # it keeps the slot
        return self._copy(array)

    def _inside(self, array: Any) -> bool:
        return self._root is not None and bool(self._base <= array.ctypes.data < self._end)

    def _copy(self, array: Any) -> Any:
        """A copy in the order of its axes, where JAX can refer to it."""
        memory = self._np.empty(array.nbytes + ALIGN, self._np.uint8)
        begin = -memory.ctypes.data % ALIGN
        copy = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
        self._np.copyto(copy, array)
        return copy

    # The structure of a batch.

    def _note(self, array: Any) -> Any:
        self._found[id(array)] = array
        return array

    def _all(self, value: Any, one: Callable[[Any], Any]) -> Any:
        if self._paired:
            return self._each(value[0], one), self._told(value[1], one)
        return self._each(value, one)

    def _each(self, value: Any, one: Callable[[Any], Any]) -> Any:
        """The value with ``one(array)`` in the place of each of its arrays."""
        if isinstance(value, _Facts):
            found: Any = type(value)(self._inner(value, one))  # type: ignore[call-arg]
            vars(found).update(self._told(vars(value), one))
            return found
        if self._moves(value):
            return self._one(value, one)
        return like(value, self._inner(value, one)) if searched(value) else value

    def _inner(self, value: Any, one: Callable[[Any], Any]) -> Any:
        if isinstance(value, Mapping):
            return {key: self._each(inner, one) for key, inner in value.items()}
        return [self._each(inner, one) for inner in value]

    def _moves(self, value: Any) -> bool:
        np = self._np
        if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
            return value.dtype.kind not in _NEVER and value.dtype.names is None
        return bool(self._port.is_array(value))

    def _one(self, array: Any, one: Callable[[Any], Any]) -> Any:
        found = one(array)
        facts = getattr(array, "__dict__", None) or {}
        if "ids" in facts:  # a batch that is one array
            for name, fact in self._told(facts, one).items():
                if found is not array:
                    setattr(found, name, fact)
        return found

    def _told(self, facts: Mapping[str, Any], one: Callable[[Any], Any]) -> dict[str, Any]:
        found = dict(facts)
        for name in _FACTS:
            fact = found.get(name)
            if fact is None or not self._moves(fact):
                continue
            if name in self._port.facts:
                found[name] = one(fact)
            elif not self._port.is_array(fact) and self._inside(fact):
                found[name] = fact.copy()
        return found

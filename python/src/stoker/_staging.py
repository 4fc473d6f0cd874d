"""What of a batch is copied to a device, in how many copies, and the batch that is made of them there.

A batch may be any structure of tuples, lists and mappings. Its tensors are found in it, and then:

    in the slot, large       fields next to each other are one copy, and views of it there
    in the slot, small       the same, but in memory of their own: who keeps all labels must not keep all images
    in other memory          through pinned memory, small ones together; pinned tensors directly
    on a device already      left as they are
    bytes of what is left    as bytes; what is left is done there, in memory of its own (_fused.py)
    what is mixed there      the same (_device_mix.py)
    of an unusual kind       (sparse, nested, subclasses with rules of their own; objects with a ``to`` of their own):
                             moved when the loop takes the batch, by their own ``to``

Several small batches of one message are one copy, whatever the size of their fields. Shapes, strides, dtypes and
classes are those here. ``ids`` stay here, and so does everything that is not a tensor.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from ._batch import OWNED_BYTES, _Facts
from ._device_mix import Blend, Blended
from ._fused import Floats, Raw, Result, shaped
from ._moved import like, searched

GAP = 1 << 16  # at most so many bytes between two fields are copied with them
SHARED = 1 << 16  # at most so many bytes of small fields share memory there
ALIGN = 64
_MOVED = ("valid", "cu_seqlens", "position_ids")  # facts of a batch that go to the device


class Run:
    """Bytes that one copy moves: ``size`` of them, from ``here``, a tensor of bytes in pinned memory."""

    __slots__ = ("here", "size", "there")

    def __init__(self, here: Any, size: int) -> None:
        self.here, self.size = here, size
        self.there: Any = None

    def room(self) -> int:
        """The size of its memory there: each of its tensors is a whole number of elements of it."""
        return max(_up(self.size), ALIGN)


class Late:
    """What is moved when the loop takes the batch."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Plan:
    """How the batches of one message get to a device.

    ``look`` at all of them, then ``runs`` says what to copy; once ``there`` of each run is set, ``made`` gives the
    batches there. ``root`` is the slot, None if there is none. ``keep`` is what must not change before the copies have
    ended. ``pinned``: the slot is pinned; otherwise its bytes go through pinned memory, and it is not kept.
    ``paired``: each is a pair of a batch that Python made and its facts.
    """

    def __init__(self, port: Any, root: Any, pinned: bool, together: bool, paired: bool = False) -> None:
        import torch

        self._torch = torch
        self._port = port
        self._root = root
        self._base = 0 if root is None else ctypes.addressof(root)
        self._end = 0 if root is None else self._base + len(root)
        self._pinned = pinned
        self._together = together
        self._paired = paired
        self._seen: set[int] = set()
        self._inside: list[tuple[int, int, Any]] = []  # first byte in the slot, the byte after the last, the tensor
        self._outside: list[Any] = []
        self._owned: dict[int, Any] = {}  # ids, by what they were
        self._late: set[int] = set()
        # By a tensor's id: its run, its first byte there, and the tensor whose shape and strides it gets; once it is
        # made, what it is there.
        self._at: dict[int, tuple[Run, int, Any]] = {}
        self._made: dict[int, Any] = {}
        self.keep: list[Any] = []
        self._raw: dict[int, Result | Blended] = {}  # by the id of the tensor that has their bytes
        self._numbers: set[int] = set()  # ids of the tensors that have the numbers of their steps
        self.held: list[Any] = []  # what must not change before pictures are decoded

    @property
    def results(self) -> list[Result | Blended]:
        """What is made there of bytes."""
        return list(self._raw.values())

    @property
    def late(self) -> bool:
        """Whether anything is moved only when the loop takes a batch."""
        return bool(self._late)

    # Looking.

    def look(self, value: Any) -> None:
        """Notes the tensors of a batch."""
        if self._paired:
            value, facts = value
            self._facts(facts)
        self._look(value)

    def _look(self, value: Any) -> None:
        if isinstance(value, _Facts):
            self._facts(vars(value))
            self._all(value)
        elif isinstance(value, self._torch.Tensor):
            self._tensor(value)
            if value.__dict__:
                self._facts(value.__dict__)
        elif isinstance(value, Raw):
            self._raw[id(value.tensor)] = Result(value)
            self._look(value.tensor)
            if value.sent is not None:
                self.held.append(self._root)
            if value.numbers is not None:
                self._numbers.add(id(value.numbers))
                self._look(value.numbers)
        elif isinstance(value, Blend):
            self._raw[id(value.tensor)] = Blended(value)
            self._look(value.tensor)
        elif searched(value):
            self._all(value)
        elif callable(getattr(value, "to", None)) and not isinstance(value, type):
            self._late.add(id(value))

    def _all(self, value: Any) -> None:
        for inner in value.values() if isinstance(value, Mapping) else value:
            self._look(inner)

    def _facts(self, facts: Mapping[str, Any]) -> None:
        ids = facts.get("ids")
        if isinstance(ids, self._torch.Tensor) and self._base <= ids.data_ptr() < self._end:
            self._owned.setdefault(id(ids), self._own(ids))
        for name in _MOVED:
            if name in facts:
                self._look(facts[name])

    def _own(self, tensor: Any) -> Any:
        fresh = self._torch.empty_like(tensor)
        ctypes.memmove(fresh.data_ptr(), tensor.data_ptr(), tensor.numel() * tensor.element_size())
        return fresh

    def _tensor(self, tensor: Any) -> None:
        if id(tensor) in self._seen:
            return
        self._seen.add(id(tensor))
        if self._port.is_there(tensor):
            return
        if not (tensor.is_cpu and self._plain(tensor)):
            if not tensor.is_meta:
                self._late.add(id(tensor))
            return
        each, begin = tensor.element_size(), tensor.data_ptr()
        own = tensor.numel() * each
        size = own if tensor.is_contiguous() else extent(tensor)
        inside = self._base <= begin and begin + size <= self._end and size and begin % each == 0
        if inside and size <= 2 * own:
            self._inside.append((begin - self._base, begin - self._base + size, tensor))
        else:
            self._outside.append(tensor)

    def _plain(self, tensor: Any) -> bool:
        torch, kind = self._torch, type(tensor)
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            return False
        if tensor.is_conj() or tensor.is_neg() or (tensor.requires_grad and not tensor.is_leaf):
            return False
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            return True
        return bool(kind.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ and hasattr(tensor, "__dict__"))

    # Copying.

    def runs(self) -> list[Run]:
        """What is copied. Bytes that are not in pinned memory are put into some here."""
        found: list[Run] = []
        large: list[Any] = []
        small: list[Any] = []
        for part in self._inside:
            (large if self._together or part[1] - part[0] >= OWNED_BYTES else small).append(part)
        for parts, most in ((large, 0), (small, SHARED)):
            for begin, end, tensors in groups(parts, most):
                run = Run(self._bytes(begin, end), end - begin)
                found.append(run)
                for at, tensor in tensors:
                    self._at[id(tensor)] = run, at - begin, tensor
        return [*found, *self._bounced()]

    def _bytes(self, begin: int, end: int) -> Any:
        """Bytes of the slot, pinned."""
        if self._pinned:
            self.keep.append(self._root)
            return self._torch.frombuffer(self._root, dtype=self._torch.uint8, count=end - begin, offset=begin)
        here = self._port.pinned(end - begin)
        ctypes.memmove(here.data_ptr(), self._base + begin, end - begin)
        self.keep.append(here)
        return here

    def _bounced(self) -> list[Run]:
        """What is outside the slot."""
        found, together, at = [], [], 0
        for tensor in self._outside:
            if self._port.is_pinned(tensor) and extent(tensor) <= 2 * tensor.numel() * tensor.element_size():
                run = Run(self._flat(tensor), extent(tensor))
                self.keep.append(tensor)
                self._at[id(tensor)] = run, 0, tensor
                found.append(run)
                continue
            laid = self._dense(tensor)
            size = extent(laid)
            if size >= SHARED:
                found.append(self._through([(tensor, laid, 0)], size))
                continue
            together.append((tensor, laid, at))
            at += _up(size)
        return [*found, self._through(together, at)] if together else found

    def _through(self, parts: Sequence[tuple[Any, Any, int]], size: int) -> Run:
        """Tensors, and where they are in a run that goes through pinned memory."""
        size = max(size, 1)
        here = self._port.pinned(size)
        self.keep.append(here)
        run = Run(here, size)
        for tensor, laid, at in parts:
            ctypes.memmove(here.data_ptr() + at, laid.data_ptr(), extent(laid))
            self._at[id(tensor)] = run, at, laid
        return run

    def _dense(self, tensor: Any) -> Any:
        """The tensor, or a copy without gaps if much of its memory is not its own."""
        if extent(tensor) <= 2 * tensor.numel() * tensor.element_size():
            return tensor
        with self._torch.no_grad():
            return self._bare(tensor).contiguous()

    def _flat(self, tensor: Any) -> Any:
        """Its memory as bytes."""
        torch, at = self._torch, tensor.storage_offset() * tensor.element_size()
        flat = torch.empty(0, dtype=torch.uint8, device="cpu")
        return flat.set_(self._bare(tensor).untyped_storage(), at, (extent(tensor),), (1,))

    def _bare(self, tensor: Any) -> Any:
        """A tensor of torch's own class, without gradients."""
        with self._torch._C.DisableTorchFunctionSubclass():
            return tensor.detach().as_subclass(self._torch.Tensor)

    # Making.

    def shown(self, run: Run) -> bool:
        """Whether a batch has anything of what this run copies."""
        hidden = self._raw.keys() | self._numbers
        return not hidden or any(run is at[0] for number, at in self._at.items() if number not in hidden)

    def decode(self) -> tuple[int, int, float]:
        """Begins to decode the pictures of the batches there. Returns how many there are, their bytes, and the seconds
        that the decoder took here. Called where the runs are copied; raises Undecodable."""
        count, size, seconds = 0, 0, 0.0
        for result in self.results:
            if isinstance(result, Result) and (sent := result.sent) is not None:
                self._port.reads(sent.decode(self._port.device, self._port.full))
                pictures, compressed, took = result.decoded
                count, size, seconds = count + pictures, size + compressed, seconds + took
        return count, size, seconds

    def started(self) -> None:
        """All of it was started: nothing has to be decoded again."""
        for result in self.results:
            if isinstance(result, Result) and result.sent is not None:
                result.sent.release()

    def compute(self, floats: Floats) -> None:
        """Makes what is left of what was copied. Called where the runs are copied."""

        def there(number: int) -> Any:
            run, begin, like = self._at[number]
            return shaped(run.there, like, begin)

        for number, result in self._raw.items():
            numbers = None if result.numbers is None else there(id(result.numbers))
            result.start(self._port, there(number), numbers, floats)

    def made(self, value: Any) -> Any:
        """A batch there, or the pair of one and its facts. Called where the runs are copied."""
        if self._paired:
            return self._rebuilt(value[0]), self._told(value[1])
        return self._rebuilt(value)

    def _rebuilt(self, value: Any) -> Any:
        if isinstance(value, _Facts):
            found: Any = type(value)(self._inner(value))  # type: ignore[call-arg]
            vars(found).update(self._told(vars(value)))
            return found
        if id(value) in self._late:
            return Late(value)
        if isinstance(value, self._torch.Tensor):
            return self._there(value)
        if isinstance(value, (Raw, Blend)):
            made = self._raw[id(value.tensor)].made()
            if value.tensor.__dict__:
                made.__dict__.update(self._told(value.tensor.__dict__))
            return made
        return like(value, self._inner(value)) if searched(value) else value

    def _inner(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._rebuilt(inner) for key, inner in value.items()}
        return [self._rebuilt(inner) for inner in value]

    def _told(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(facts)
        if id(found.get("ids")) in self._owned:
            found["ids"] = self._owned[id(found["ids"])]
        found.update((name, self._rebuilt(found[name])) for name in _MOVED if name in found)
        return found

    def _there(self, tensor: Any) -> Any:
        if (known := self._made.get(id(tensor))) is not None:
            return known
        if (at := self._at.get(id(tensor))) is None:
            return tensor
        run, begin, like = at
        there = shaped(run.there, like, begin)
        if type(tensor) is not self._torch.Tensor:
            there = there.as_subclass(type(tensor))
        if tensor.__dict__:
            there.__dict__.update(self._told(tensor.__dict__))
        if tensor.requires_grad:
            there.requires_grad_(True)
        self._made[id(tensor)] = there
        return there


def groups(parts: Sequence[tuple[int, int, Any]], most: int) -> list[tuple[int, int, list[tuple[int, Any]]]]:
    """Runs of bytes that hold these parts: begin, end, and each part's begin and tensor. Neighbours are together unless
    the gap between them is too large, or, unless ``most`` is 0, there would be more bytes than that."""
    found: list[tuple[int, int, list[tuple[int, Any]]]] = []
    for begin, end, tensor in sorted(parts, key=lambda part: part[:2]):
        if found:
            first, last, tensors = found[-1]
            reach = max(last, end)
            if begin - last <= GAP and (not most or reach - first <= most):
                found[-1] = first, reach, [*tensors, (begin, tensor)]
                continue
        found.append((begin // ALIGN * ALIGN, end, [(begin, tensor)]))
    return found


def extent(tensor: Any) -> int:
    """Bytes from a tensor's first element to its last."""
    if not tensor.numel():
        return 0
    steps = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((steps + 1) * tensor.element_size())


def moved_late(value: Any, move: Any) -> Any:
    """A batch, or the pair of one and its facts, with ``move(value)`` in the place of everything that is Late."""
    if isinstance(value, Late):
        return move(value.value)
    if isinstance(value, _Facts):
        batch: Any = value
        inner: Any = [moved_late(one, move) for one in (batch.values() if isinstance(batch, Mapping) else batch)]
        found: Any = type(batch)(zip(batch, inner, strict=True) if isinstance(batch, Mapping) else inner)
        vars(found).update({name: moved_late(one, move) for name, one in vars(value).items()})
        return found
    if isinstance(value, Mapping) and searched(value):
        return like(value, {key: moved_late(one, move) for key, one in value.items()})
    return like(value, [moved_late(one, move) for one in value]) if searched(value) else value


def _up(size: int) -> int:
    return -(-size // ALIGN) * ALIGN

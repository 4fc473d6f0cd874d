"""JPEGs that are decoded where the batch is: the keyword ``decode_device``.

read()       the keyword -> Decoding
Decoding     which decoder there is for a device, and which share of the rows it gets
Sent         the pictures of a batch that the engine has sent instead of their rows
Undecodable  the decoder refused some of them: the engine decodes those samples from now on

The engine draws the box, and sends a whole JPEG or, of a file with restart markers, a strip: the segments that the box
needs, one below the other (kernel.Strip). The decoder makes pictures of them, one call for a batch. Then each row is
made of its picture: the box is cut out, resampled with antialiasing, mirrored, and written into the batch. The numbers
are those of the engine, to the bit, so that a row differs from the engine's only as far as the decoders differ.

There are two implementations with equal results: torch's operators, picture by picture, and one Triton kernel for the
batch (_triton_rows.py).

A decoder is the one place where bytes of a file meet C code that is not stoker's, in the training process.
"""

from __future__ import annotations

import base64
import importlib
import importlib.metadata
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _device_ops as ops
from . import _notice
from ._errors import ConfigError, Problems

if TYPE_CHECKING:
    from ._target import Target

NUMBERS = 22  # of a row that was sent; internal/stage/transform/window.go says what they are
SIXTEENTHS = 16
_MIRRORED, _UPSIDE_DOWN = 1, 2  # the row; the box before it is resampled: the same, shifted
_OF_BOX = 2

_TRIED: dict[tuple[str, str], bool] = {}  # by decoder and device
_SAME = 4  # levels by which pixels of one colour may differ

# 32 x 16 pixels of 4:2:0, the left half red and the right half blue. A decoder that repeats samples of chroma, one for
# each 2 x 2 pixels, keeps the edge between two columns.
_EDGE = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAMCAgMCAgMDAwMEAwMEBQgFBQQEBQoHBwYIDAoMDAsKCwsNDhIQDQ4RDgsLEBYQERMU"
    "FRUVDA8XGBYUGBIUFRT/2wBDAQMEBAUEBQkFBQkUDQsNFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU"
    "FBQUFBQUFBT/wAARCAAQACADASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAf/xAAUEAEAAAAAAAAAAAAAAAAAAAAA/8QA"
    "FgEBAQEAAAAAAAAAAAAAAAAACQcI/8QAFBEBAAAAAAAAAAAAAAAAAAAAAP/aAAwDAQACEQMRAD8AgQCZNxpSATAe7//Z"
)


class Undecodable(Exception):
    """These samples, which the decoder refused; the text says why."""

    def __init__(self, samples: Sequence[int], why: str) -> None:
        super().__init__(why)
        self.samples = list(samples)


class Decoder(NamedTuple):
    """A decoder of JPEGs. ``decode(bytes, device)`` takes uint8 tensors here, and returns for each one a uint8 tensor
    (3, height, width) there, or raises for all of them if one is damaged."""

    name: str  # with its version
    decode: Callable[[list[Any], Any], Sequence[Any]]


class Decoding(NamedTuple):
    """What ``decode_device=`` says."""

    decoder: Decoder
    share: int  # of the rows, in sixteenths
    target: Target
    given: bool  # the share is the user's, so a playbook does not change it

    def words(self, device: str) -> str:
        """For the line at start."""
        return f"{device} decodes {self.share}/{SIXTEENTHS} of the JPEGs ({self.decoder.name})"

    @property
    def state(self) -> str:
        """For states: what pixels depend on."""
        return f"{self.share}/{SIXTEENTHS} of the JPEGs by {self.decoder.name}"

    def spec(self, tried: bool = True) -> dict[str, Any]:
        """Part of the Spec. ``tried``: the decoder decodes a picture, which starts CUDA; otherwise what that shows is
        left out."""
        found: dict[str, Any] = {"by": self.decoder.name}
        if self.share != SIXTEENTHS:
            found["share"] = self.share
        if tried and _repeats(self.decoder, self.target):
            found["repeats"] = True
        return found


def read(
    k: Mapping[str, Any], output: str, target: Target | None, native: bool, single: bool, problems: Problems
) -> Decoding | None:
    """What the keyword says; None if it is not given. Adds what is wrong to problems. ``native``: the engine makes the
    batches."""
    given = k["decode_device"]
    if given is None:
        return None
    from ._target import takes_work  # which needs _fused, and that needs this

    where = "decode_device"
    paired = isinstance(given, (tuple, list)) and len(given) == 2
    device, share = given if paired else (given, 1.0)
    otherwise = "leave it out, or decode in your own code"
    if not takes_work(where, output, target, native, single, problems, otherwise) or target is None:
        return None
    name = str(device)
    if name not in (target.device, target.device.partition(":")[0]):
        problems.add(
            f"{where} is {device!r:.80}, and device is {target.device!r}",
            f"batches are decoded where they are: give {target.device!r}, or a pair of it and the share of the rows",
        )
        return None
    wrong = isinstance(share, bool) or not isinstance(share, (int, float)) or not math.isfinite(share)
    sixteenths = 0 if wrong else round(share * SIXTEENTHS)
    if not 0 < sixteenths <= SIXTEENTHS:
        problems.add(
            f"the share of {where} is {share!r:.80}",
            "give a share of the rows, in sixteenths: 0.0625 to 1; for none of them, leave decode_device out",
        )
        return None
    decoder, why = _decoder(target.moves)
    if decoder is None:
        problems.add(f"{where} has no decoder: {why}", "pip install stoker[gpu], or leave it out")
        return None
    return Decoding(decoder, sixteenths, target, paired)


# Decoders.


def _decoder(moves: bool) -> tuple[Decoder | None, str]:
    """The decoder for a device, or why there is none."""
    reasons = []
    for make in (_torchcodec, _torchvision):
        try:
            return make(moves), ""
        except ImportError as error:
            reasons.append(str(error))
    return None, "; ".join(reasons)


def _torchvision(moves: bool) -> Decoder:
    """torchvision's decode_jpeg: nvJPEG on a device, libjpeg-turbo here."""
    return _named("torchvision", "torchvision.io", moves, _by_torchvision)


def _by_torchvision(given: list[Any], device: Any) -> Sequence[Any]:
    from torchvision.io import ImageReadMode, decode_jpeg

    if device.type == "cpu":
        return [decode_jpeg(one, mode=ImageReadMode.RGB) for one in given]
    return list(decode_jpeg(given, mode=ImageReadMode.RGB, device=device))


def _torchcodec(moves: bool) -> Decoder:
    """torchcodec's decode_jpeg: nvJPEG on a device, libjpeg-turbo here."""
    return _named("torchcodec", "torchcodec.decoders", moves, _by_torchcodec)


def _by_torchcodec(given: list[Any], device: Any) -> Sequence[Any]:
    from torchcodec.decoders import decode_jpeg  # type: ignore[attr-defined,unused-ignore]

    return list(decode_jpeg(given, mode="RGB", device=device))


def _named(package: str, module: str, moves: bool, decode: Callable[[list[Any], Any], Sequence[Any]]) -> Decoder:
    """The decoder of a package; ImportError if it cannot be loaded."""
    try:
        found = hasattr(importlib.import_module(module), "decode_jpeg")
    except (ImportError, RuntimeError, OSError) as error:
        raise ImportError(f"{package} cannot be imported ({error})") from error
    if not found:
        raise ImportError(f"this {package} has no decode_jpeg")
    version = importlib.metadata.version(package).partition("+")[0]
    return Decoder(f"{package} {version}, {'nvJPEG' if moves else 'libjpeg'}", decode)


def _repeats(decoder: Decoder, target: Target) -> bool:
    """Whether it repeats samples of chroma, found out with a picture, once for each device. ConfigError if it cannot
    decode that."""
    import torch

    if not target.moves:
        return False
    key = decoder.name, target.device
    if key not in _TRIED:
        try:
            given = torch.frombuffer(bytearray(_EDGE), dtype=torch.uint8)
            picture = decoder.decode([given], torch.device(target.device))[0].cpu()
        except Exception as error:
            raise ConfigError(
                f"decode_device: {decoder.name} cannot decode on {target.device}",
                cause=_last_line(error),
                hint="install a torchcodec that fits torch and its CUDA, or leave decode_device out",
            ) from error
        halves = picture.to(torch.int16).split(16, 2)
        _TRIED[key] = all(int(half.amax((1, 2)).sub(half.amin((1, 2))).max()) <= _SAME for half in halves)
    return _TRIED[key]


def _last_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


# Rows.


class Sent:
    """The pictures of a batch that were sent: ``numbers``, int32 (rows, NUMBERS) here, and the bytes of each row, views
    of the slot, which stay there until what ``fill`` starts has ended."""

    __slots__ = ("_bytes", "_decoder", "_numbers", "_pictures", "_rows", "host_seconds", "size")

    def __init__(self, decoder: Decoder | None, numbers: Any, jpegs: Sequence[Any]) -> None:
        assert decoder is not None
        self._decoder = decoder
        self._numbers = ops.torch().tensor(numbers.tolist(), dtype=numbers.dtype, device="cpu")  # not of the slot
        self._rows: list[int] = numbers[:, 0].nonzero()[:, 0].tolist()
        self._bytes = [jpegs[row] for row in self._rows]
        self.size = sum(one.numel() for one in self._bytes)
        self._pictures: Sequence[Any] = ()
        self.host_seconds = 0.0  # that the decoder's call took

    def __len__(self) -> int:
        return len(self._rows)

    def decode(self, device: Any, full: Callable[[BaseException], bool] = lambda error: False) -> Sequence[Any]:
        """Begins to decode the pictures, which are then kept for ``fill``. Raises Undecodable, and errors that are
        ``full``: they say nothing about the pictures."""
        if self._rows:
            begin = time.perf_counter()
            self._pictures = self._decoded(device, full)
            self.host_seconds = time.perf_counter() - begin
        return self._pictures

    def release(self) -> None:
        """Lets go of the slot, which the caller keeps until the pictures are decoded. They are not decoded again."""
        self._bytes = []

    def fill(self, out: Any) -> None:
        """Makes the rows that were sent, of ``out``, uint8 (rows, height, width, 3), contiguous."""
        if self._rows:
            pictures, self._pictures = self._pictures, ()
            assert len(pictures) == len(self._rows)
            make = _by_kernel if out.is_cuda and _kernels() else make_rows
            make(out, self._rows, pictures, self._numbers[self._rows])

    def _decoded(self, device: Any, full: Callable[[BaseException], bool]) -> Sequence[Any]:
        try:
            found = self._decoder.decode(self._bytes, device)
        except Exception as error:
            if full(error):
                raise
            found = self._one_by_one(device, full)
        wrong = [
            at
            for at, picture in enumerate(found)
            if tuple(picture.shape) != (3, int(self._numbers[self._rows[at], 2]), int(self._numbers[self._rows[at], 1]))
        ]
        if wrong:
            raise Undecodable(self._samples(wrong), "they have another size there than their headers say")
        return found

    def _one_by_one(self, device: Any, full: Callable[[BaseException], bool]) -> Sequence[Any]:
        """A call with a damaged picture returns nothing, so each one is decoded by itself."""
        found: list[Any] = []
        refused: list[int] = []
        why = ""
        for at, one in enumerate(self._bytes):
            try:
                found += self._decoder.decode([one], device)
            except Exception as error:
                if full(error):
                    raise
                refused.append(at)
                why = why or _last_line(error)
        if refused:
            raise Undecodable(self._samples(refused), why)
        return found

    def _samples(self, at: Sequence[int]) -> list[int]:
        low, high = self._numbers[:, 20].tolist(), self._numbers[:, 21].tolist()
        return [(high[self._rows[i]] << 32) | (low[self._rows[i]] & 0xFFFFFFFF) for i in at]


class Tables(NamedTuple):
    """Where the rows of a batch come from, and how much of each pixel, on the device."""

    across: Any  # int32 (rows, width, taps): columns of the box
    down: Any  # the same of its rows
    columns: Any  # int32 (rows, width, taps): weights
    rows: Any
    bits: Any  # int32 (rows, 2): of the weights' unit, across and down
    shifts: Any  # int32 (rows, longest): what is added to a segment's number for its row in the strip


def tables(numbers: Any, height: int, width: int, like: Any) -> Tables:
    """Those of rows of so many pixels. ``numbers`` int32 (rows, NUMBERS) are here."""
    torch = ops.torch()
    given = numbers.to(torch.int64)
    there = ops.moved(given, like)
    sides = []
    for size, to, begin, out, flip in ((5, 7, 10, width, _MIRRORED), (6, 8, 11, height, _UPSIDE_DOWN)):
        box, whole, first = there[:, size], there[:, to], there[:, begin]
        result = torch.arange(out, device=like.device).view(1, -1)
        result = torch.where((there[:, 12:13] & flip) > 0, out - 1 - result, result) + first.view(-1, 1)
        at, weights, bits = _axis(given[:, size], given[:, to], given[:, 9], box, whole, result)
        mirrored = (there[:, 12] & (flip << _OF_BOX)) > 0
        at = torch.where(mirrored.view(-1, 1, 1), box.view(-1, 1, 1) - 1 - at, at)
        at = at + there[:, size - 2].view(-1, 1, 1)
        sides.append((at.to(torch.int32).contiguous(), weights.contiguous(), bits))
    (across, columns, wide), (down, rows, high) = sides
    return Tables(across, down, columns, rows, torch.stack([wide, high], 1).contiguous(), _shifts(given, like))


def _axis(
    sizes_here: Any, outs_here: Any, filters_here: Any, sizes: Any, outs: Any, result: Any
) -> tuple[Any, Any, Any]:
    """Positions int64 and weights int32, (rows, results, taps), and bits (rows,), of these results of a resampling from
    ``sizes`` to ``outs``."""
    torch = ops.torch()
    filters = filters_here.unique().tolist()
    made = []
    for filter in filters:
        smooth = filter in (ops.BILINEAR, ops.BICUBIC)
        if smooth:
            cubic = filter == ops.BICUBIC
            taps = ops.taps(sizes_here.tolist(), outs_here.tolist(), cubic)
            axis = ops.Axis(sizes, outs, int(outs_here.max()), taps, cubic, result)
            made.append((torch.stack(axis.at, 2), torch.stack(axis.weights, 2), axis.bits))
            continue
        at = ops.nearest(sizes, outs, filter == ops.NEAREST_EXACT, result).unsqueeze(2)
        one = torch.ones_like(at, dtype=torch.int32)
        made.append((at, one, torch.zeros_like(sizes, dtype=torch.int32)))
    if len(made) == 1:
        return made[0]
    taps = max(one[0].shape[2] for one in made)
    at, weights, bits = (
        torch.nn.functional.pad(made[0][i], (0, taps - made[0][i].shape[2])) if i < 2 else made[0][i] for i in range(3)
    )
    for filter, (a, w, b) in zip(filters[1:], made[1:], strict=True):
        chosen = ops.moved(filters_here == filter, sizes)
        more = (0, taps - a.shape[2])
        at = torch.where(chosen.view(-1, 1, 1), torch.nn.functional.pad(a, more), at)
        weights = torch.where(chosen.view(-1, 1, 1), torch.nn.functional.pad(w, more), weights)
        bits = torch.where(chosen, b, bits)
    return at, weights, bits


def _shifts(given: Any, like: Any) -> Any:
    """For each row of MCUs that a box touches: what is added to the number of a segment for its row in the strip."""
    torch = ops.torch()
    interval, cols, tall = (given[:, i].clamp(min=1) for i in (13, 14, 16))
    last = torch.div(given[:, 4] + given[:, 6] - 1, tall, rounding_mode="floor") - given[:, 19]
    count = int(torch.where(given[:, 13] > 0, last, torch.zeros_like(last)).max()) + 1
    row = torch.arange(count, device="cpu").view(1, -1) + given[:, 19:20]
    begin = torch.div(row * cols.view(-1, 1) + given[:, 17:18], interval.view(-1, 1), rounding_mode="floor")
    end = torch.div(row * cols.view(-1, 1) + given[:, 18:19], interval.view(-1, 1), rounding_mode="floor")
    before = torch.cat([torch.full_like(end[:, :1], -1), end[:, :-1]], 1)
    first = torch.maximum(begin, before + 1)
    sent = end - first + 1
    return ops.moved((sent.cumsum(1) - sent - first).to(torch.int32), like)


_KERNEL: list[Any] = []  # the module that has it, once it is known; None: there is none


def _kernels() -> bool:
    """Whether one kernel makes the rows. It is loaded the first time."""
    if not _KERNEL:
        from ._fused import lacking

        why = lacking()
        if not why:
            try:
                from . import _triton_rows

                _KERNEL.append(_triton_rows)
            except Exception as error:
                why = str(error) or type(error).__name__
        if why:
            _without(why)
    return _KERNEL[0] is not None


def _without(why: str) -> None:
    _KERNEL[:] = [None]
    _notice.say(f"pictures that the device has decoded become rows one by one, and not all in one kernel: {why}")


def _by_kernel(out: Any, rows: Sequence[int], pictures: Sequence[Any], numbers: Any) -> None:
    """``make_rows`` by one kernel. If it cannot be compiled, by ``make_rows``, now and later."""
    torch, module = ops.torch(), _KERNEL[0]
    made = tables(numbers, out.shape[1], out.shape[2], out)
    taps = [_taps(*row) for row in numbers[:, 5:10].tolist()]
    addresses = [[one.data_ptr(), *one.stride()] for one in pictures]
    lists = ((rows, torch.int32), (addresses, torch.int64), (module.facts(numbers, taps), torch.int32))
    there = [ops.moved(torch.tensor(values, dtype=dtype, device="cpu"), out) for values, dtype in lists]
    try:
        module.make(out, *there, made, len(rows))
    except Exception as error:
        make_rows(out, rows, pictures, numbers)
        from ._fused import failure

        _without(failure(error))  # the operators have not failed: the device is all right


def _taps(wide: int, high: int, across: int, down: int, filter: int) -> tuple[int, int]:
    """How many are used of the taps of a picture's tables, across and down."""
    if filter not in (ops.BILINEAR, ops.BICUBIC):
        return 1, 1
    cubic = filter == ops.BICUBIC
    return ops.taps([wide], [across], cubic), ops.taps([high], [down], cubic)


def make_rows(out: Any, rows: Sequence[int], pictures: Sequence[Any], numbers: Any) -> None:
    """Makes rows of ``out`` of decoded pictures, by torch's operators."""
    made = tables(numbers, out.shape[1], out.shape[2], out)
    for at, (row, picture, given) in enumerate(zip(rows, pictures, numbers.tolist(), strict=True)):
        left, top, wide, high = given[3:7]
        taps = _taps(wide, high, *given[7:10])
        box = _box(picture, given, made.shifts[at])
        box = _weighed(box, 2, made.across[at] - left, made.columns[at], made.bits[at, 0], taps[0])
        box = _weighed(box, 1, made.down[at] - top, made.rows[at], made.bits[at, 1], taps[1])
        out[row] = box.permute(1, 2, 0)


def _box(picture: Any, given: Sequence[int], shifts: Any) -> Any:
    """The pixels of the box, (3, height, width), wherever they are in what was decoded."""
    torch = ops.torch()
    left, top, wide, high = given[3:7]
    interval, cols, mcu_wide, mcu_high = given[13:17]
    if not interval:
        return picture[:, top : top + high, left : left + wide]
    x = torch.arange(left, left + wide, device=picture.device).view(1, -1)
    y = torch.arange(top, top + high, device=picture.device).view(-1, 1)
    row = torch.div(y, mcu_high, rounding_mode="floor")
    mcu = row * cols + torch.div(x, mcu_wide, rounding_mode="floor")
    segment = torch.div(mcu, interval, rounding_mode="floor") + shifts.to(torch.int64)[row - given[19]]
    flat = (segment * mcu_high + y % mcu_high) * picture.shape[2] + mcu % interval * mcu_wide + x % mcu_wide
    return picture.reshape(3, -1)[:, flat.view(-1)].view(3, high, wide)


def _weighed(values: Any, dim: int, at: Any, weights: Any, bits: Any, taps: int) -> Any:
    """The weighted sums of values (3, height, width) along a dimension, as bytes: of ``taps`` for each result."""
    torch = ops.torch()
    total = (torch.ones_like(bits) << bits) >> 1
    for tap in range(taps):
        weight = weights[:, tap] if dim == 2 else weights[:, tap].view(-1, 1)
        total = total + values.index_select(dim, at[:, tap]).to(torch.int32) * weight
    return (total >> bits).clamp_(0, 255).to(torch.uint8)

"""The floats of pictures in one kernel. Imported only where floats are made, as _triton_rows is for decoded pictures.

The operations of a Left (_fused.coded) are done to each byte in registers, so memory is read once and written once,
whatever they are. Every result is rounded by itself: nothing is fused (OPTIONS), and quotients are rounded to the
nearest. So the bits are those of torch's operators, and of the engine.

A program makes PARTS blocks of a row. What a row is depends on the memory (Layout):

    flat      bytes and numbers are in one order (NHWC, channels_last, one channel): a row is as long as that holds, and
              a number's channel is its offset modulo C. A store is of 16 bytes
    planes    the numbers are in another order, usually NCHW of HWC: a block is of pixels. All channels of a pixel are
              loaded before one is stored. A thread has two pixels, so that its neighbours read from the same lines

It is compiled for the operations and their numbers, and for whether strides are multiples of 16, not for sizes. There
is no autotuner.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl

OPTIONS = {"num_warps": 4, "enable_fp_fusion": False}
THREADS = 32 * 4  # of OPTIONS
MADE = 2048  # numbers that a program makes, if it is flat
MOST = 2**31 - 1  # programs, and numbers from a picture's first to its last
HALVES = {"float32": 0, "float16": 1, "bfloat16": 2}
TOGETHER = 4  # at most so many planes with the same numbers are read together


@triton.jit
def _rounded(x, HALF: tl.constexpr):
    """float32, rounded to float16 (HALF is 1) or bfloat16 (2). x is a number or an infinity. bfloat16 is done by hand,
    because the interpreter cuts bits off: so what tests see there is what a device does."""
    if HALF == 1:
        y = x.to(tl.float16).to(tl.float32)
    else:
        bits = x.to(tl.uint32, bitcast=True)
        bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16  # halfway: to the even one
        y = bits.to(tl.float32, bitcast=True)
    return y


@triton.jit
def _number(BITS: tl.constexpr):
    """A number of float32, given by its bits: -0.0 keeps its sign."""
    return tl.full([], BITS, tl.uint32).to(tl.float32, bitcast=True)


@triton.jit
def _done(
    x,
    channel,
    FIRST: tl.constexpr,
    K: tl.constexpr,
    CODES: tl.constexpr,
    NUMBERS: tl.constexpr,
    HALF: tl.constexpr,
    FLAT: tl.constexpr,
):
    """The operations, each on the result of the one before. The channel of x is FIRST, or, if FLAT, ``channel``."""
    for at in tl.static_range(len(CODES)):
        y = _number(NUMBERS[at * K + FIRST])
        if FLAT:
            for c in tl.static_range(1, K):
                y = tl.where(channel == c, _number(NUMBERS[at * K + c]), y)
        if CODES[at] % 8 == 1:
            x = x * y
        if CODES[at] % 8 == 2:
            x = x + y
        if CODES[at] % 8 == 3:
            x = x - y
        if CODES[at] % 8 == 4:
            x = tl.div_rn(x, y)
        if CODES[at] >= 8:
            x = _rounded(x, HALF)
    return x


@triton.jit
def _get(at, there, WHOLE: tl.constexpr):
    if WHOLE:
        found = tl.load(at)
    else:
        found = tl.load(at, mask=there, other=0)
    return found.to(tl.float32)


@triton.jit
def _put(at, x, there, WHOLE: tl.constexpr):
    if WHOLE:
        tl.store(at, x)
    else:
        tl.store(at, x, mask=there)


@triton.jit
def _block(
    given,
    out,
    start,
    size,
    out_c,
    GIVEN_P: tl.constexpr,
    GIVEN_C: tl.constexpr,
    OUT_P: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,
    CODES: tl.constexpr,
    NUMBERS: tl.constexpr,
    HALF: tl.constexpr,
    FLAT: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """One block of a row, from an offset on. WHOLE: all of it is in the row."""
    offset = tl.arange(0, BLOCK)
    there = start + offset < size
    given += start * GIVEN_P
    out += start * OUT_P
    if FLAT:
        channel = ((start % K).to(tl.int32) + offset) % K
        x = _get(given + offset, there, WHOLE)
        _put(out + offset, _done(x, channel, 0, K, CODES, NUMBERS, HALF, FLAT), there, WHOLE)
    else:
        for c in tl.static_range(0, C, 4):
            at = given + offset * GIVEN_P + c * GIVEN_C
            to = out + offset * OUT_P + c * out_c
            x0 = _get(at, there, WHOLE)
            if c + 1 < C:
                x1 = _get(at + GIVEN_C, there, WHOLE)
            if c + 2 < C:
                x2 = _get(at + 2 * GIVEN_C, there, WHOLE)
            if c + 3 < C:
                x3 = _get(at + 3 * GIVEN_C, there, WHOLE)
            _put(to, _done(x0, 0, c % K, K, CODES, NUMBERS, HALF, FLAT), there, WHOLE)
            if c + 1 < C:
                _put(to + out_c, _done(x1, 0, (c + 1) % K, K, CODES, NUMBERS, HALF, FLAT), there, WHOLE)
            if c + 2 < C:
                _put(to + 2 * out_c, _done(x2, 0, (c + 2) % K, K, CODES, NUMBERS, HALF, FLAT), there, WHOLE)
            if c + 3 < C:
                _put(to + 3 * out_c, _done(x3, 0, (c + 3) % K, K, CODES, NUMBERS, HALF, FLAT), there, WHOLE)


@triton.jit(do_not_specialize=["size", "blocks", "second"])
def kernel(
    given,
    out,
    size,
    blocks,
    second,
    given_a,
    given_b,
    out_a,
    out_b,
    out_c,
    GIVEN_P: tl.constexpr,
    GIVEN_C: tl.constexpr,
    OUT_P: tl.constexpr,
    C: tl.constexpr,
    K: tl.constexpr,
    CODES: tl.constexpr,
    NUMBERS: tl.constexpr,
    HALF: tl.constexpr,
    FLAT: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Rows of ``size``, each by ``blocks`` programs. NUMBERS has K for each of CODES; K is C, or 1 if all channels have
    the same. Strides are those of two dimensions of rows, of the pixels of a row (P), and of channels (C)."""
    program = tl.program_id(0)
    row = program // blocks
    a = (row // second).to(tl.int64)
    b = (row % second).to(tl.int64)
    given += a * given_a + b * given_b
    out += a * out_a + b * out_b
    start = (program % blocks).to(tl.int64) * (BLOCK * PARTS)
    if start + BLOCK * PARTS <= size:
        for part in tl.static_range(PARTS):
            at = start + part * BLOCK
            _block(given, out, at, size, out_c, GIVEN_P, GIVEN_C, OUT_P, C, K, CODES, NUMBERS, HALF, FLAT, BLOCK, True)
    else:
        for part in tl.static_range(PARTS):
            at = start + part * BLOCK
            if at < size:
                _block(
                    given, out, at, size, out_c, GIVEN_P, GIVEN_C, OUT_P, C, K, CODES, NUMBERS, HALF, FLAT, BLOCK, False
                )


class Layout(NamedTuple):
    """Where bytes and numbers are: ``rows`` of ``size``, in two dimensions of which the second has ``second``. The rest
    is as in ``kernel``."""

    rows: int
    size: int
    second: int
    given: tuple[int, int]
    out: tuple[int, int]
    out_c: int
    given_p: int
    given_c: int
    out_p: int
    flat: bool


def layout(given: Any, out: Any, channels: int, axis: int) -> Layout | None:
    """Of two tensors of one shape; None: they are laid out in a way that the kernel does not know. ``axis`` is that of
    the channels, unless there is one channel."""
    axes = list(zip(out.shape, given.stride(), out.stride(), strict=True))
    given_c = out_c = 0
    if channels > 1:
        _, given_c, out_c = axes.pop(axis)
    rows: list[tuple[int, int, int]] = []  # of which neighbours cannot be joined
    for size, one, other in sorted((one for one in axes if one[0] > 1), key=lambda one: -one[2]):
        if rows and rows[-1][1:] == (size * one, size * other):
            size *= rows.pop()[0]
        rows.append((size, one, other))
    size, given_p, out_p = rows.pop() if rows else (1, channels, channels)
    if len(rows) > 2 or channels * out_c > MOST or max(given_p, out_p) * MADE > MOST:
        return None
    first, second = [(1, 0, 0), (1, 0, 0), *rows][-2:]
    flat = (given_p, out_p) == (channels, channels) and (channels == 1 or (given_c, out_c) == (1, 1))
    return Layout(
        rows=first[0] * second[0],
        size=size * channels if flat else size,
        second=second[0],
        given=(first[1], second[1]),
        out=(first[2], second[2]),
        out_c=out_c,
        given_p=1 if flat else given_p,
        given_c=given_c,
        out_p=1 if flat else out_p,
        flat=flat,
    )


def _layout(given: Any, out: Any, columns: int, planes: bool) -> tuple[Layout | None, int]:
    """And the number of channels that go together."""
    axis = -3 if planes else -1
    channels = out.shape[axis] if out.ndim >= 3 else 1
    if columns > 1:
        return (layout(given, out, columns, axis) if channels == columns else None), columns
    found = layout(given, out, 1, axis)
    if (found is None or not found.flat) and 1 < channels <= TOGETHER:
        return layout(given, out, channels, axis), channels
    return found, 1


def make(out: Any, given: Any, codes: Sequence[int], numbers: Sequence[Sequence[float]], planes: bool) -> bool:
    """Makes ``out`` of the bytes ``given``, on the current stream. ``numbers``: float32, of each of ``codes`` one for
    each channel, or one for all. ``planes``: the channels, if there are any, are the third axis from the end, otherwise
    the last. False: it does not know how these are laid out, and has done nothing."""
    if not out.numel():
        return True
    columns = len(numbers[0]) if numbers else 1
    at, channels = _layout(given, out, columns, planes)
    if at is None:
        return False
    each = 16 // out.element_size() if at.flat else 2  # numbers of a thread: a store of 16 bytes, or two pixels
    block = THREADS * each
    parts = MADE // block if at.flat else 4
    blocks = -(-at.size // (block * parts))
    if at.rows * blocks > MOST:
        return False
    kernel[(at.rows * blocks,)](
        *(given, out, at.size, blocks, at.second, *at.given, *at.out, at.out_c),
        GIVEN_P=at.given_p,
        GIVEN_C=at.given_c,
        OUT_P=at.out_p,
        C=channels,
        K=columns,
        CODES=tuple(codes),
        NUMBERS=tuple(bits(value) for row in numbers for value in row),
        HALF=HALVES[str(out.dtype).removeprefix("torch.")],
        FLAT=at.flat,
        BLOCK=block,
        PARTS=parts,
        **OPTIONS,
    )
    return True


def bits(value: float) -> int:
    """Of a number of float32."""
    return int.from_bytes(struct.pack("<f", value), "little")

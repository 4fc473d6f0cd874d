"""Rows of a batch of decoded pictures, in one kernel: _device_jpeg.make_rows in Triton. Imported only where pictures
are decoded on a device.

A program makes a block of pixels of one row of the batch. For each line of the picture that a pixel needs, it takes
the weighted sum of the pixels across, as a byte, and of these the weighted sum down, as the engine does in two passes.
Lines that several blocks need are summed by each of them: for a device that is less work than to write them down.
Where a pixel is in a strip follows from the number of its MCU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl

BLOCK = 256  # pixels
OPTIONS = {"num_warps": 4}
FACTS = (
    7  # of a picture, int32: interval, MCUs in a row, an MCU's width and height, first row of MCUs, taps across, down
)


@triton.jit
def _byte(total, bits):
    return tl.minimum(tl.maximum(total >> bits, 0), 255)


@triton.jit(do_not_specialize=["most_across", "most_down", "most_shifts"])
def kernel(
    addresses,  # int64 (rows, 4): of a picture, and its strides: channels, lines, columns
    out,
    numbers,  # int32 (rows): in the batch
    facts,
    shifts,
    across,
    columns,
    down,
    weights,
    bits,
    height,
    width,
    most_across,
    most_down,
    most_shifts,
    row_bytes,
    FACTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    sample = tl.program_id(1)
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = offset < height * width
    pixel = tl.where(there, offset, 0)
    y, x = pixel // width, pixel % width
    given = tl.load(addresses + sample * 4).to(tl.pointer_type(tl.uint8))
    plane = tl.load(addresses + sample * 4 + 1)
    line_stride = tl.load(addresses + sample * 4 + 2)
    column_stride = tl.load(addresses + sample * 4 + 3)
    interval = tl.load(facts + sample * FACTS)
    cols = tl.load(facts + sample * FACTS + 1)
    wide = tl.load(facts + sample * FACTS + 2)
    tall = tl.load(facts + sample * FACTS + 3)
    top = tl.load(facts + sample * FACTS + 4)
    taps_across = tl.load(facts + sample * FACTS + 5)
    taps_down = tl.load(facts + sample * FACTS + 6)
    bits_across = tl.load(bits + sample * 2)
    bits_down = tl.load(bits + sample * 2 + 1)
    half_across = (1 << bits_across) >> 1
    start = (1 << bits_down) >> 1
    red = tl.full([BLOCK], 0, tl.int32) + start
    green = tl.full([BLOCK], 0, tl.int32) + start
    blue = tl.full([BLOCK], 0, tl.int32) + start
    of_x = (sample * width + x) * most_across
    of_y = (sample * height + y) * most_down
    for tap in range(taps_down):
        line = tl.load(down + of_y + tap)
        weight = tl.load(weights + of_y + tap)
        mcus = line // tall
        shift = tl.load(shifts + sample * most_shifts + tl.where(interval > 0, mcus - top, 0))
        r = tl.full([BLOCK], 0, tl.int32) + half_across
        g = tl.full([BLOCK], 0, tl.int32) + half_across
        b = tl.full([BLOCK], 0, tl.int32) + half_across
        for tip in range(taps_across):
            column = tl.load(across + of_x + tip)
            weight_across = tl.load(columns + of_x + tip)
            mcu = mcus * cols + column // wide
            segment = mcu // tl.maximum(interval, 1) + shift
            down_there = tl.where(interval > 0, segment * tall + line % tall, line)
            over_there = tl.where(interval > 0, mcu % tl.maximum(interval, 1) * wide + column % wide, column)
            at = given + (down_there.to(tl.int64) * line_stride + over_there.to(tl.int64) * column_stride)
            r += tl.load(at).to(tl.int32) * weight_across
            g += tl.load(at + plane).to(tl.int32) * weight_across
            b += tl.load(at + 2 * plane).to(tl.int32) * weight_across
        red += _byte(r, bits_across) * weight
        green += _byte(g, bits_across) * weight
        blue += _byte(b, bits_across) * weight
    to = out + tl.load(numbers + sample).to(tl.int64) * row_bytes + pixel * 3
    tl.store(to, _byte(red, bits_down).to(tl.uint8), mask=there)
    tl.store(to + 1, _byte(green, bits_down).to(tl.uint8), mask=there)
    tl.store(to + 2, _byte(blue, bits_down).to(tl.uint8), mask=there)


def make(out: Any, numbers: Any, addresses: Any, facts: Any, made: Any, count: int) -> None:
    """Makes ``count`` rows of ``out``, uint8 (rows, height, width, 3), contiguous. ``made`` is _device_jpeg.Tables; the
    others are tensors there, as ``kernel`` says."""
    _, height, width, _ = out.shape
    kernel[(triton.cdiv(height * width, BLOCK), count)](
        *(addresses, out, numbers, facts, made.shifts, made.across, made.columns, made.down, made.rows, made.bits),
        *(height, width, made.across.shape[2], made.down.shape[2], made.shifts.shape[1], height * width * 3),
        FACTS=FACTS,
        BLOCK=BLOCK,
        **OPTIONS,
    )


def facts(numbers: Any, taps: Sequence[Sequence[int]]) -> list[list[int]]:
    """Those of each picture, of the numbers that were sent of it, and its taps across and down."""
    found = []
    for row, (wide, high) in zip(numbers.tolist(), taps, strict=True):
        found.append([row[13], max(row[14], 1), max(row[15], 1), max(row[16], 1), row[19], wide, high])
    return found

"""The engine's steps on pictures, done to many pictures at once by torch's operators, on any device of torch.

A function gets ``x``, uint8 pictures of one size, (n, channels, height, width), and ``p``, their numbers, float64
(n, numbers), whose meaning internal/stage/transform/rest.go says; p[:, 0] is the kind of step. What it returns equals
the engine's result to the bit (internal/base/kernel: colour.go, resample.go, blur.go, warp.go): the same numbers,
each rounded by itself. So it is written with one operator for each rounding, whole numbers where the engine has whole
numbers, and quotients of two tensors: by a number, torch may multiply by its reciprocal. Nothing waits for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

NUMBERS = 16  # of a step
(
    CROP,
    RESIZE,
    PAD,
    FLIP_H,
    FLIP_V,
    GRAY,
    INVERT,
    POSTERIZE,
    SOLARIZE,
    BRIGHTNESS,
    CONTRAST,
    SATURATION,
    HUE,
    AUTOCONTRAST,
    EQUALIZE,
    PERMUTE,
    SHARPNESS,
    BLUR,
    ERASE,
    AFFINE,
    PERSPECTIVE,
) = range(1, 22)
ERASED = 255  # a box of the floats, after all others

BILINEAR, NEAREST, BICUBIC, NEAREST_EXACT = range(4)  # filters
CONSTANT, EDGE, REFLECT, SYMMETRIC = range(4)  # modes of padding

Step = Callable[..., Any]


def torch() -> Any:
    """torch, which is loaded where there are tensors."""
    import torch as found

    return found


def moved(tensor: Any, like: Any) -> Any:
    """A tensor of this process on the device of another one, where nothing waits for the copy."""
    return tensor.pin_memory().to(like.device, non_blocking=True) if like.is_cuda else tensor.to(like.device)


def _single(p: Any, number: int) -> Any:
    """A number of each sample, as float32, to be combined with pictures."""
    return p[:, number].to(torch().float32).view(-1, 1, 1, 1)


def _bytes(x: Any) -> Any:
    """Floats as bytes: clamped, their fractions cut off."""
    return x.clamp_(0, 255).to(torch().uint8)


def _like(x: Any, value: float, dtype: Any = None) -> Any:
    """A number on the device of x."""
    return torch().full((), value, dtype=dtype or x.dtype, device=x.device)


# Colours.


def invert(x: Any, p: Any) -> Any:
    """255 - v."""
    return 255 - x


def posterize(x: Any, p: Any) -> Any:
    """Keeps the highest bits."""
    lost = 8 - p[:, 1].to(torch().int32).view(-1, 1, 1, 1)
    return x & ((255 << lost) & 255).to(torch().uint8)


def solarize(x: Any, p: Any) -> Any:
    """Inverts values of at least N."""
    least = p[:, 1].ceil().clamp(0, 256).to(torch().int16).view(-1, 1, 1, 1)
    return torch().where(x.to(torch().int16) >= least, 255 - x, x)


def brightness(x: Any, p: Any) -> Any:
    """v * N."""
    return _bytes(x.to(torch().float32).mul_(_single(p, 1)))


def _luma(x: Any) -> Any:
    """torchvision's luma, whole numbers; of one channel, the channel."""
    wide = x.to(torch().int32)
    if x.shape[1] == 1:
        return wide[:, 0]
    red, green, blue = wide.unbind(1)
    return torch().div(red * 2989 + green * 5870 + blue * 1140, 10000, rounding_mode="floor")


def contrast(x: Any, p: Any) -> Any:
    """N of the picture, 1 - N of the mean of its luma."""
    t = torch()
    pixels = _like(x, x.shape[2] * x.shape[3], t.float64)
    mean = _luma(x).sum((1, 2), dtype=t.int64).to(t.float64) / pixels
    rest = (mean * (1 - p[:, 1])).to(t.float32).view(-1, 1, 1, 1)
    return _bytes(x.to(t.float32).mul_(_single(p, 1)).add_(rest))


def saturation(x: Any, p: Any) -> Any:
    """N of the picture, 1 - N of the luma of each pixel."""
    t = torch()
    rest = (1 - p[:, 1]).to(t.float32).view(-1, 1, 1, 1)
    gray = _luma(x).to(t.float32).unsqueeze(1).mul_(rest)
    return _bytes(x.to(t.float32).mul_(_single(p, 1)).add_(gray))


def hue(x: Any, p: Any) -> Any:
    """Turns the hue by N turns: from RGB to the hexagon of hues, and back."""
    t = torch()
    turn = (p[:, 1] * 6).to(t.float32).view(-1, 1, 1)
    red, green, blue = x.to(t.float32).unbind(1)
    most, least = t.maximum(t.maximum(red, green), blue), t.minimum(t.minimum(red, green), blue)
    chroma = most - least
    part = chroma.clamp(min=1)
    h = t.where(green == most, (blue - red) / part + 2, (red - green) / part + 4)
    h = t.where(red == most, (green - blue) / part, h) + turn
    h = t.where(h < 0, h + 6, h)
    h = t.where(h >= 6, h - 6, h)
    out = t.empty_like(x)
    for channel, begin in enumerate((5, 3, 1)):
        k = h + begin
        k = t.where(k >= 6, k - 6, k)
        lack = t.minimum(k, 4 - k).clamp_(0, 1)
        out[:, channel] = (most - chroma * lack).mul_(255.999 / 255).to(t.uint8)
    return out


def autocontrast(x: Any, p: Any) -> Any:
    """Stretches each channel from 0 to 255."""
    t = torch()
    least = x.amin((2, 3), keepdim=True).to(t.float32)
    span = x.amax((2, 3), keepdim=True).to(t.float32) - least
    scale = span * (1.0 / 255)
    stretched = _bytes((x.to(t.float32) - least) / t.where(span > 0, scale, _like(scale, 1)))
    return t.where(span > 0, stretched, x)


def equalize(x: Any, p: Any) -> Any:
    """Makes the histogram of each channel flat, as Pillow does."""
    t = torch()
    n, channels, height, width = x.shape
    values = x.reshape(n * channels, height * width).to(t.int64)
    counts = t.zeros((n * channels, 256), dtype=t.int32, device=x.device)
    counts.scatter_add_(1, values, t.ones((), dtype=t.int32, device=x.device).expand(values.shape))
    levels = t.arange(256, device=x.device)
    most = t.where(counts > 0, levels, _like(levels, 0)).amax(1, keepdim=True)
    step = t.div(height * width - counts.gather(1, most), _like(counts, 255), rounding_mode="floor")
    below = counts.cumsum(1, dtype=t.int32) - counts
    some = t.where(step > 0, step, _like(step, 1))
    half = t.div(step, _like(step, 2), rounding_mode="floor")
    table = t.div(below + half, some, rounding_mode="floor").clamp_(max=255)
    table = t.where(step > 0, table, levels.to(t.int32)).to(t.uint8)
    return table.gather(1, values).view(x.shape)


def permute(x: Any, p: Any) -> Any:
    """Channel c of the result is channel p[c]."""
    order = p[:, 1:4].to(torch().int64).view(-1, 3, 1, 1)
    return x.gather(1, order.expand(x.shape))


def gray(x: Any, p: Any, channels: int) -> Any:
    """Pillow's luma, in 1 or 3 channels."""
    t = torch()
    if x.shape[1] == 3:
        red, green, blue = x.to(t.int32).unbind(1)
        x = ((red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16).to(t.uint8).unsqueeze(1)
    return x.expand(-1, channels, -1, -1).contiguous()


# Neighbours.


def sharpness(x: Any, p: Any) -> Any:
    """N of the picture, 1 - N of the picture smoothed by 3 x 3."""
    t = torch()
    if x.shape[2] < 3 or x.shape[3] < 3:
        return x
    wide = x.to(t.int32)
    rows = wide[:, :, :-2] + wide[:, :, 1:-1] + wide[:, :, 2:]
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * wide[:, :, 1:-1, 1:-1]
    smooth = t.div(2 * total + 13, _like(total, 26), rounding_mode="floor").to(t.float32)
    rest = (1 - p[:, 1]).to(t.float32).view(-1, 1, 1, 1)
    out = x.clone()
    inner = x[:, :, 1:-1, 1:-1].to(t.float32)
    out[:, :, 1:-1, 1:-1] = _bytes(inner.mul_(_single(p, 1)).add_(smooth.mul_(rest)))
    return out


_PAIRS = 62  # the farthest reach at which products are cut to 128ths before they are added


def gauss(size: int, near: float) -> list[int]:
    """The weights of a blur, in 65536ths: of the pixel, and of those at each distance. kernel.gaussian explains it."""
    at, factor, every = 1.0, near, 0.5
    for _ in range(size // 2):
        at = at * factor
        factor = factor * near * near
        every += at
    at, factor, total = 1.0, near, 0.5
    done = int(total / every * 32768 + 0.5)
    found = [min(2 * done, 65535)]
    while done < 32768:
        at = at * factor
        factor = factor * near * near
        total += at
        now = int(total / every * 32768 + 0.5)
        found.append(now - done)
        done = now
    return found


def weights(size: int, near: Sequence[float]) -> tuple[list[list[int]], list[int]]:
    """Those of each sample along one axis, filled up with zeros to one length, and how many each sample has."""
    found = [gauss(size, q) for q in near]
    most = max(map(len, found))
    return [one + [0] * (most - len(one)) for one in found], [len(one) for one in found]


def blur(x: Any, across: Any, down: Any, reach: Any) -> Any:
    """A Gaussian. ``across`` and ``down`` are the weights, int64 (n, distances), filled up with zeros; ``reach`` is how
    many each sample has, int64 (2, n)."""
    t = torch()
    cuts = t.where(reach - 1 <= _PAIRS, reach, _like(reach, 0))
    rows = _smoothed(x.to(t.int64) << 7, across, 3, reach[0])
    rows = rows & 0xFFFF  # the engine keeps them in 16 bits
    half = 64 + t.div(cuts.sum(0), _like(cuts, 2), rounding_mode="floor").view(-1, 1, 1, 1)
    return ((_smoothed(rows, down, 2, reach[1]) + half) >> 7).clamp_(max=255).to(t.uint8)


def _smoothed(x: Any, by: Any, axis: int, reach: Any) -> Any:
    """The weighted sums of int64 values along an axis, beyond whose ends they are reflected."""
    t = torch()
    cut = (reach - 1 <= _PAIRS).view(-1, 1, 1, 1)
    size, at = x.shape[axis], t.arange(x.shape[axis], device=x.device)
    total = t.zeros_like(x)
    for distance in range(by.shape[1]):
        values = x
        if distance:
            values = x.index_select(axis, _reflected(at + distance, size)) + x.index_select(
                axis, _reflected(at - distance, size)
            )
        values = values * by[:, distance].view(-1, 1, 1, 1)
        total += t.where(cut, values >> 16, values)
    return t.where(cut, total, (total + 32768) >> 16)


def _reflected(at: Any, size: int) -> Any:
    if size == 1:
        return at * 0
    at = at.remainder(2 * size - 2)
    return torch().minimum(at, 2 * size - 2 - at)


def erase(x: Any, p: Any) -> Any:
    """A box becomes one colour."""
    t = torch()
    inside = boxes(p, x.shape[2], x.shape[3])
    fill = p[:, 5 : 5 + x.shape[1]].to(t.uint8).view(-1, x.shape[1], 1, 1)
    return t.where(inside, fill, x)


def boxes(p: Any, height: int, width: int) -> Any:
    """Which pixels are in the boxes x, y, w, h of each sample."""
    t = torch()
    x, y, w, h = (p[:, i].to(t.int64).view(-1, 1) for i in range(1, 5))
    across, down = t.arange(width, device=p.device), t.arange(height, device=p.device)
    columns = (across >= x) & (across < x + w)
    rows = (down >= y) & (down < y + h)
    return rows.view(-1, 1, height, 1) & columns.view(-1, 1, 1, width)


# Normal numbers, as kernel.normals makes them: whole numbers, then float32 with each result rounded by itself, and no
# function but the square root.

_WORD = 0xFFFFFFFF
_TURN = 3.14159265358979323846 / 4 / 8388608  # of 2^-23 of an eighth of the circle
_LOG = (
    -1.1514610310e-1,
    1.1676998740e-1,
    -1.2420140846e-1,
    1.4249322787e-1,
    -1.6668057665e-1,
    2.0000714765e-1,
    -2.4999993993e-1,
)


def normals(p: Any, channels: int, height: int, half: int) -> Any:
    """Those of boxes, float32 (n, channels, height, 2 * half): the first halves of their rows, and the second ones from
    column ``half`` on. ``height`` and ``half`` are enough for all. p[:, 4] is a box's height, and p[:, 9] its key."""
    t = torch()
    high, key = (p[:, number].to(t.int64).view(-1, 1, 1) for number in (4, 9))
    row = t.arange(channels, device=p.device).view(1, -1, 1) * high + t.arange(height, device=p.device)
    z = key + (row + 1) * _signed(0x9E3779B97F4A7C15)  # int64 wraps
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    z = (z ^ _shifted(z, 31)).unsqueeze(-1)
    steps = t.arange(half, device=p.device) * 0x9E3779B9
    a, b = (_scrambled((word + steps) & _WORD) for word in (z & _WORD, _shifted(z, 32)))
    r = (_log((a >> 9) * 2 + 1) * -2).to(t.float64).sqrt().to(t.float32)
    turn = (b >> 9).to(t.float32) * _TURN
    z = turn * turn
    s = ((z * -1.9515295891e-4 + 8.3321608736e-3) * z - 1.6666654611e-1) * (z * turn) + turn
    c = ((z * 2.443315711809948e-5 - 1.388731625493765e-3) * z + 4.166664568298827e-2) * (z * z) - z * 0.5 + 1
    turned = (b & 1) > 0
    x, y = t.where(turned, s, c), t.where(turned, c, s)
    x, y = t.where((b & 2) > 0, -x, x), t.where((b & 4) > 0, -y, y)
    return t.cat([x * r, y * r], -1)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _shifted(z: Any, bits: int) -> Any:
    """z, as a word of 64 bits without a sign, shifted to the right."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _scrambled(x: Any) -> Any:
    """A permutation of 32 bits, in int64."""
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _WORD
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _WORD
    return x ^ (x >> 15)


def _log(v: Any) -> Any:
    """The logarithm of v / 2^24, for v below 2^24: by Cephes's logf."""
    t = torch()
    bits = v.to(t.float32).view(t.int32)
    exponent = (bits - 0x3F3504F3) >> 23
    f = (bits - exponent * (1 << 23)).view(t.float32) - 1
    n = (exponent - 24).to(t.float32)
    y = f * 7.0376836292e-2
    for term in _LOG:
        y = (y + term) * f
    z = f * f
    y = (y + 3.3333331174e-1) * f * z
    y = y + n * -2.12194440e-4 - z * 0.5
    return (f + y) + n * 0.693359375


# Places.


def taken(x: Any, rows: Any, columns: Any) -> Any:
    """The pixels at these rows (n, height) and columns (n, width), int64, of each picture."""
    n, channels, _, width = x.shape
    x = x.gather(2, rows.view(n, 1, -1, 1).expand(n, channels, rows.shape[1], width))
    return x.gather(3, columns.view(n, 1, 1, -1).expand(n, channels, rows.shape[1], columns.shape[1]))


def pad(x: Any, p: Any, width: int, height: int, mode: int) -> Any:
    """Puts pixels around the picture."""
    t = torch()
    columns = t.arange(width, device=x.device) - p[:, 1].to(t.int64).view(-1, 1)
    rows = t.arange(height, device=x.device) - p[:, 2].to(t.int64).view(-1, 1)
    found = taken(x, _beyond(rows, x.shape[2], mode), _beyond(columns, x.shape[3], mode))
    if mode != CONSTANT:
        return found
    across = ((columns >= 0) & (columns < x.shape[3])).view(-1, 1, 1, width)
    down = ((rows >= 0) & (rows < x.shape[2])).view(-1, 1, height, 1)
    fill = p[:, 6 : 6 + x.shape[1]].to(t.uint8).view(-1, x.shape[1], 1, 1)
    return t.where(across & down, found, fill)


def _beyond(at: Any, size: int, mode: int) -> Any:
    if mode == REFLECT:
        return _reflected(at, size)
    if mode == SYMMETRIC:
        at = at.remainder(2 * size)
        return torch().minimum(at, 2 * size - 1 - at)
    return at.clamp(0, size - 1)


class Axis:
    """One dimension of a resampling: for each sample, ``taps`` positions and weights of each result. It is newAxis of
    the kernel. ``sizes`` int64 (n,) are the lengths that are resampled, ``outs`` the number of results, of all or of
    each, int64 (n,), of which ``most`` is the greatest; ``taps`` is enough for all. ``place`` int64 (n, results) says
    which of the results are wanted; None: all."""

    def __init__(self, sizes: Any, outs: Any, most: int, taps: int, cubic: bool, place: Any = None) -> None:
        t = torch()
        count = sizes.to(t.float64).view(-1, 1)
        wanted = _like(count, outs) if isinstance(outs, int) else outs.to(t.float64).view(-1, 1)
        scale = count / wanted
        down = scale >= 1
        one = _like(scale, 1)
        support = t.where(down, scale, one)
        inverse = t.where(down, one / scale, one)
        if cubic:
            support = support * 2
        self.taps = taps
        every = t.arange(most, dtype=t.float64, device=sizes.device)
        middle = scale * (every + 0.5)
        first = (middle - support + 0.5).trunc().clamp(min=0)
        used = t.minimum((middle + support + 0.5).trunc(), count) - first
        used = t.minimum(used.clamp(min=0), (support.ceil() * 2 + 1))
        used = t.where(every < wanted, used, _like(used, 0))
        total = t.zeros_like(middle)
        found: list[Any] = []
        for tap in range(taps):
            weight = (_keys if cubic else _triangle)((first + tap - middle + 0.5) * inverse)
            weight = t.where(used > tap, weight, _like(weight, 0))
            total = total + weight
            found.append(weight)
        some = t.where(total != 0, total, one)
        found = [t.where(total != 0, weight / some, weight) for weight in found]
        largest = t.stack([weight.amax(1) for weight in found]).amax(0).clamp_(min=0)
        steps = (1 << t.arange(1, 23, device=sizes.device)).to(t.float64)
        self.bits = ((largest.view(-1, 1) * steps + 0.5).trunc() < 1 << 15).sum(1).to(t.int32)
        if place is not None:
            first = first.expand(len(place), most).gather(1, place)
            found = [weight.gather(1, place) for weight in found]
        unit = (1 << self.bits.to(t.int64)).to(t.float64).view(-1, 1)
        self.weights = [(t.copysign(_like(weight, 0.5), weight) + weight * unit).to(t.int32) for weight in found]
        last = sizes.view(-1, 1) - 1
        self.at = [t.minimum(first.to(t.int64) + tap, last).clamp_(min=0) for tap in range(taps)]


def taps(sizes: Sequence[int], outs: Sequence[int], cubic: bool) -> int:
    """Enough taps to resample each of these lengths to as many results as it is given."""
    support = max(1.0, max(size / out for size, out in zip(sizes, outs, strict=True)))
    return math.ceil(support * (2 if cubic else 1)) * 2 + 1


def _triangle(x: Any) -> Any:
    return (1 - x.abs()).clamp_(min=0)


def _keys(x: Any) -> Any:
    """Keys's cubic with a = -1/2."""
    t = torch()
    x = x.abs()
    inner = ((x * 1.5 - 2.5) * x) * x + 1
    outer = ((x * -0.5 + 2.5) * x - 4) * x + 2
    return t.where(x < 1, inner, t.where(x < 2, outer, _like(x, 0)))


def resampled(x: Any, axis: Axis, dim: int, at: Callable[[Any], Any]) -> Any:
    """The weighted sums along dimension 2 or 3. ``at`` turns positions (n, out) into those in x."""
    t = torch()
    n, channels = x.shape[:2]
    out = axis.at[0].shape[1]
    shape = (n, 1, out, 1) if dim == 2 else (n, 1, 1, out)
    wide = (n, channels, out, x.shape[3]) if dim == 2 else (n, channels, x.shape[2], out)
    bits = axis.bits.view(-1, 1, 1, 1)
    total = ((t.ones_like(bits) << bits) >> 1).expand(wide).contiguous()
    for tap in range(axis.taps):
        values = x.gather(dim, at(axis.at[tap]).view(shape).expand(wide)).to(t.int32)
        total += values.mul_(axis.weights[tap].view(shape))
    return (total >> bits).clamp_(0, 255).to(t.uint8)


def nearest(sizes: Any, outs: Any, exact: bool, at: Any) -> Any:
    """The position that result number ``at``, int64 (n or 1, results), is taken from, int64 (n, results), of ``sizes``
    pixels each that become ``outs``: a number, or one for each sample."""
    t = torch()
    sizes = sizes.view(-1, 1)
    single = sizes.to(t.float32)
    many = _like(single, outs, t.int64) if isinstance(outs, int) else outs.view(-1, 1)
    scale = single / many.to(t.float32)
    if exact:
        x = ((at.to(t.float64) + 0.5) * scale.to(t.float64) - 0.5).to(t.float32).clamp(min=0)
        return t.minimum((x + 0.5).to(t.int64), sizes - 1)
    found = t.minimum((at.to(t.float32) * scale).floor().to(t.int64), sizes - 1)
    found = t.where(sizes * 2 == many, at >> 1, found)
    return t.where(sizes == many, at, found)


# Warps.

_WEIGHT, _PLACE = 14, 32  # bits of weights and places
_FARTHEST = 1 << 20  # pixels of a side


def affine(x: Any, p: Any, width: int, height: int, filter: int, filled: bool) -> Any:
    """Each pixel from where a linear map says."""
    t = torch()
    m = [p[:, 8 + i].view(-1, 1, 1) for i in range(6)]
    across = t.arange(width, device=x.device).view(1, 1, -1)
    down = t.arange(height, device=x.device).view(1, -1, 1)
    if filter == NEAREST:
        sides = (x.shape[3], x.shape[2])
        found = [_single_place(m[3 * i : 3 * i + 3], across, down, width, height, sides[i]) for i in (0, 1)]
        return _near(x, p, found[1], found[0], filled)
    places, fits = [], None
    for row in (m[:3], m[3:]):
        begin = row[0] / _like(row[0], 2) + row[1] / _like(row[1], 2) + row[2] - 0.5
        reach = row[0].abs() * width + row[1].abs() * height + begin.abs()
        fits = reach < 1 << (62 - _PLACE) if fits is None else fits & (reach < 1 << (62 - _PLACE))
        whole = [(v * 2.0**_PLACE).round().to(t.int64) for v in (row[0], row[1], begin)]
        places.append(whole[0] * across + whole[1] * down + whole[2])
    zero = _like(p, 0)
    others = _quotients(m, [zero, zero], across, down, 0.5)
    found = [t.where(fits, place, other) for place, other in zip(places, others, strict=True)]
    return _between(x, p, found[0], found[1], filled)


def perspective(x: Any, p: Any, width: int, height: int, filter: int, filled: bool) -> Any:
    """Each pixel from where a perspective says."""
    t = torch()
    m = [p[:, 8 + i].view(-1, 1, 1) for i in range(8)]
    across = t.arange(width, device=x.device).view(1, 1, -1)
    down = t.arange(height, device=x.device).view(1, -1, 1)
    sx, sy = _quotients(m, m[6:], across, down, 0.0 if filter == NEAREST else 0.5)
    if filter == NEAREST:
        return _near(x, p, sy >> _PLACE, sx >> _PLACE, filled)
    return _between(x, p, sx, sy, filled)


def _quotients(m: Sequence[Any], below: Sequence[Any], across: Any, down: Any, off: float) -> list[Any]:
    """Where pixels come from, along x and y, in 2^-32 of a pixel."""
    t = torch()
    fx, fy = across.to(t.float64) + 0.5, down.to(t.float64) + 0.5
    bottom = below[0] * fx + (below[1] * fy + 1)
    part = _like(bottom, 1) / bottom
    found = []
    for row in (m[:3], m[3:6]):
        at = (row[0] * fx + (row[1] * fy + row[2])) * part - off
        at = t.where(at < _FARTHEST + 2, at, _like(at, _FARTHEST + 2))  # and what is not a number
        at = t.where(at > -2, at, _like(at, -2))
        found.append((((at + (3 << 21)) - (3 << 21)) * 2.0**30).to(t.int64) << (_PLACE - 30))
    return found


def _single_place(m: Sequence[Any], across: Any, down: Any, width: int, height: int, side: int) -> Any:
    """The number of the nearest column, or row, of ``side``, as torchvision finds it in float32; -1: it is outside."""
    t = torch()
    half = _like(across, side, t.float32) / _like(across, 2, t.float32)
    last = m[2] + (m[0] * width / _like(m[0], 2) + m[1] * height / _like(m[1], 2) - side / 2)
    last = (last * 2.0**36).abs().add(0.5).floor().copysign(last) / _like(last, 2.0**36)  # halves away from zero
    grid = [v.to(t.float32) / half for v in (m[0], m[1], last)]
    x = (across.to(t.float32) - (width - 1) / 2) * grid[0]
    y = (down.to(t.float32) - (height - 1) / 2) * grid[1]
    at = ((x + y) + grid[2] + 1) * half - 0.5
    inside = (at >= -0.5) & (at <= side)
    return t.where(inside, at.round().nan_to_num(0, 0, 0), _like(at, -1)).to(t.int64)


def _picked(x: Any, rows: Any, columns: Any) -> tuple[Any, Any]:
    """The pixels at rows and columns (n, height, width), and which of them are in the picture."""
    n, channels, height, width = x.shape
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    at = rows.clamp(0, height - 1) * width + columns.clamp(0, width - 1)
    found = x.reshape(n, channels, height * width).gather(2, at.view(n, 1, -1).expand(n, channels, -1))
    return found.view(n, channels, *rows.shape[1:]), inside.unsqueeze(1)


def _near(x: Any, p: Any, rows: Any, columns: Any, filled: bool) -> Any:
    found, inside = _picked(x, rows, columns)
    return torch().where(inside, found, _fill(x, p, filled))


def _fill(x: Any, p: Any, filled: bool) -> Any:
    t = torch()
    fill = p[:, 5 : 5 + x.shape[1]].to(t.uint8)
    return (fill if filled else fill * 0).view(-1, x.shape[1], 1, 1)


def _between(x: Any, p: Any, sx: Any, sy: Any, filled: bool) -> Any:
    """Weighs the four pixels around sx, sy."""
    t = torch()
    one = 1 << _WEIGHT
    column, row = sx >> _PLACE, sy >> _PLACE
    fx, fy = (sx & 0xFFFFFFFF) >> (_PLACE - _WEIGHT), (sy & 0xFFFFFFFF) >> (_PLACE - _WEIGHT)
    both = fx * fy >> _WEIGHT
    total: Any = 0
    share: Any = 0
    for number, weight in enumerate((one - fx - fy + both, fx - both, fy - both, both)):
        found, inside = _picked(x, row + number // 2, column + number % 2)
        weight = t.where(inside, weight.unsqueeze(1), _like(weight, 0))
        share = share + weight
        total = total + found.to(t.int64) * weight
    if filled:
        total = (share * total + (one - share) * one * _fill(x, p, True).to(t.int64)) >> _WEIGHT
    return ((total + one // 2) >> _WEIGHT).to(t.uint8)


SAME: dict[int, Step] = {  # steps that keep the size, with p alone
    INVERT: invert,
    POSTERIZE: posterize,
    SOLARIZE: solarize,
    BRIGHTNESS: brightness,
    CONTRAST: contrast,
    SATURATION: saturation,
    HUE: hue,
    AUTOCONTRAST: autocontrast,
    EQUALIZE: equalize,
    PERMUTE: permute,
    SHARPNESS: sharpness,
    ERASE: erase,
}

"""The arithmetic of orders in Python: what the engine's packages rng and order compute, bit for bit.

rng           mix, seed_key, epoch_key, below, draw, uniform
Sequence      the samples at places: Stored, Full, Rounds, Uniform, Weighted, Race; Padded and Picked wrap one
walk          a range of places in growing pieces

Everything is a pure function of its arguments: ``testdata/rng.json`` and ``testdata/orders.json`` fix the numbers for
both languages. With numpy, many places are computed at once; without it, one at a time, with the same numbers.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from collections.abc import Sequence as Items
from itertools import accumulate
from typing import Any, Protocol

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / the golden ratio
STRIDE = 0xD6E8FEB86659FD93

# Words that separate the parts of an epoch's randomness; places, the other words, are never as large.
SHUFFLE = MASK
DRAW = MASK - 15

SMALL = 4096  # samples; up to here a table is shuffled: over so few bits a network deviates visibly from uniform
ROUNDS = 8  # of the network

# Bounds for weights of a draw without replacement, so that no arrival time overflows or loses precision.
LIGHTEST, HEAVIEST = 1e-150, 1e150

_FEW = 64  # places; below this, numpy costs more than it saves
_FIRST, _PIECE, _PIECE_WITH_NUMPY = 256, 4096, 1 << 15  # places per piece: the first comes soon, the last fit a cache


def _numpy() -> Any:
    """numpy, or None where it is not installed."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


# Keys.


def mix(z: int) -> int:
    """The finaliser of MurmurHash3 in David Stafford's variant 13."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def seed_key(seed: int) -> int:
    """The key of a seed."""
    return mix(seed + GOLDEN & MASK)


def below(key: int, word: int) -> int:
    """The key one level down, selected by word."""
    return mix((key ^ mix(word + GOLDEN & MASK) * STRIDE & MASK) + GOLDEN & MASK)


def epoch_key(seed: int, epoch: int) -> int:
    """The key of everything random about an epoch."""
    return below(seed_key(seed), epoch)


def draw(key: int, number: int) -> int:
    """Draw ``number`` of a key: 64 bits (SplitMix64: Steele, Lea, Flood 2014)."""
    return mix(key + (number + 1) * GOLDEN & MASK)


def uniform(key: int, number: int) -> float:
    """The draw as a number in [0, 1), on a grid of 2^-53."""
    return (draw(key, number) >> 11) * 2.0**-53


# The same for arrays of uint64, whose sums and products wrap around.


def _mix_all(np: Any, z: Any) -> Any:
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return z ^ z >> np.uint64(31)


def _draw_all(np: Any, key: int, numbers: range) -> Any:
    return _mix_all(np, _places(np, numbers) * np.uint64(GOLDEN) + np.uint64(key + GOLDEN & MASK))


def _uniform_all(np: Any, key: int, numbers: range) -> Any:
    return (_draw_all(np, key, numbers) >> np.uint64(11)) * 2.0**-53


def _places(np: Any, places: range) -> Any:
    return np.arange(places.start, places.stop, places.step, dtype=np.uint64)


def _high(np: Any, x: Any, factor: int) -> Any:
    """The upper 64 of the 128 bits of x * factor, by 32-bit halves: no sum here exceeds 64 bits."""
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    f0, f1 = np.uint64(factor & 0xFFFFFFFF), np.uint64(factor >> 32)
    x0, x1 = x & low, x >> half
    middle = x1 * f0 + (x0 * f0 >> half)
    cross = x0 * f1 + (middle & low)
    return x1 * f1 + (middle >> half) + (cross >> half)


# Sequences.


class Sequence(Protocol):
    """The samples of one epoch by place."""

    def take(self, places: range) -> list[Any]:
        """The samples at places within the sequence; the range's step is positive."""
        ...


class Stored:
    """Place p holds sample p."""

    def take(self, places: range) -> list[int]:
        return list(places)


class Full:
    """A keyed bijection of [0, n): a shuffled table up to SMALL, else a Feistel network.

    The network is over the smallest 2^(a+b) >= n, where a and b are the bits of its halves, and is repeated until the
    result is below n (Black, Rogaway 2002).
    """

    def __init__(self, n: int, key: int) -> None:
        self._n = n
        self._table: list[int] | None = None
        if n <= SMALL:
            self._table = list(range(n))
            for i in range(n - 1, 0, -1):  # Fisher, Yates; Durstenfeld 1964
                j = draw(key, i) * (i + 1) >> 64
                self._table[i], self._table[j] = self._table[j], self._table[i]
            return
        bits = (n - 1).bit_length()
        self._a = bits // 2
        self._b = bits - self._a
        self._keys = [draw(key, i) for i in range(ROUNDS)]

    def take(self, places: range) -> list[int]:
        if self._table is not None:
            return self._table[places.start : places.stop : places.step]
        if len(places) >= _FEW and (np := _numpy()) is not None:
            return self._all(np, places)
        return [self._at(place) for place in places]

    def _at(self, place: int) -> int:
        a, b, n, keys = self._a, self._b, self._n, self._keys
        mask_a, mask_b = (1 << a) - 1, (1 << b) - 1
        while True:
            left, right = place >> b, place & mask_b
            for i in range(0, ROUNDS, 2):
                left ^= _round(right, keys[i]) & mask_a
                right ^= _round(left, keys[i + 1]) & mask_b
            place = left << b | right
            if place < n:
                return place

    def _all(self, np: Any, places: range) -> list[int]:
        out = _places(np, places)
        todo, at = out, np.arange(len(out))
        while len(todo) >= _FEW:
            todo = self._walk(np, todo)
            inside = todo < np.uint64(self._n)
            out[at[inside]] = todo[inside]
            todo, at = todo[~inside], at[~inside]
        for i, place in zip(at.tolist(), todo.tolist(), strict=True):
            out[i] = self._at(place)
        found: list[int] = out.tolist()
        return found

    def _walk(self, np: Any, x: Any) -> Any:
        b = np.uint64(self._b)
        mask_a, mask_b = np.uint64((1 << self._a) - 1), np.uint64((1 << self._b) - 1)
        left, right = x >> b, x & mask_b
        for i in range(0, ROUNDS, 2):
            left = left ^ _round_all(np, right, self._keys[i]) & mask_a
            right = right ^ _round_all(np, left, self._keys[i + 1]) & mask_b
        return left << b | right


def _round(x: int, key: int) -> int:
    """The network's keyed function: two multiply-folds."""
    x = (x ^ key) * GOLDEN
    x = (x >> 64 ^ x & MASK ^ key >> 32) * STRIDE
    return x >> 64 ^ x & MASK


def _round_all(np: Any, x: Any, key: int) -> Any:
    x = x ^ np.uint64(key)
    x = _high(np, x, GOLDEN) ^ x * np.uint64(GOLDEN) ^ np.uint64(key >> 32)
    return _high(np, x, STRIDE) ^ x * np.uint64(STRIDE)


class Rounds:
    """An endless sequence of whole permutations of [0, n); the first is ``Full``."""

    def __init__(self, n: int, key: int) -> None:
        self._n = n
        self._key = key
        self._round: tuple[int, Full] = (0, Full(n, key))

    def take(self, places: range) -> list[int]:
        out: list[int] = []
        while places:
            number, first = divmod(places.start, self._n)
            if self._round[0] != number:
                self._round = (number, Full(self._n, below(self._key, number) if number else self._key))
            here = len(range(first, self._n, places.step))
            stop = first + len(places[:here]) * places.step
            out += self._round[1].take(range(first, min(stop, self._n), places.step))
            places = places[here:]
        return out


class Uniform:
    """Every place is drawn independently from [0, n)."""

    def __init__(self, n: int, key: int) -> None:
        self._n = n
        self._key = key

    def take(self, places: range) -> list[int]:
        if len(places) >= _FEW and (np := _numpy()) is not None:
            found: list[int] = _high(np, _draw_all(np, self._key, places), self._n).tolist()
            return found
        return [draw(self._key, place) * self._n >> 64 for place in places]


def cumulate(weights: Items[float]) -> array[float]:
    """The running sums of the weights, up to the last that is not 0: that sample gets what rounding leaves over."""
    end = len(weights)
    while end and weights[end - 1] == 0:
        end -= 1
    return array("d", accumulate(weights[:end]))


class Weighted:
    """Every place is drawn independently: the first sample whose running sum exceeds a fraction of the total."""

    def __init__(self, cdf: array[float], key: int) -> None:
        self._cdf = cdf
        self._key = key

    def take(self, places: range) -> list[int]:
        last = len(self._cdf) - 1
        total = self._cdf[last]
        if len(places) >= _FEW and (np := _numpy()) is not None:
            parts = _uniform_all(np, self._key, places) * total
            found: list[int] = np.searchsorted(np.frombuffer(self._cdf)[:last], parts, "right").tolist()
            return found
        return [bisect_right(self._cdf, uniform(self._key, place) * total, 0, last) for place in places]


class Race:
    """The k samples that arrive first, each at a time that is exponential with its weight as rate: a weighted draw
    without replacement (Efraimidis, Spirakis 2006). Ties are broken by number."""

    def __init__(self, weights: array[float], k: int, key: int) -> None:
        if len(weights) >= _FEW and (np := _numpy()) is not None:
            self._ids = _race_all(np, weights, k, key)
            return
        times = [
            (-logarithm(((draw(key, i) >> 12) + 0.5) * 2.0**-52) / weight, i)
            for i, weight in enumerate(weights)
            if weight
        ]
        self._ids = [i for _, i in sorted(times)[:k]]

    def take(self, places: range) -> list[int]:
        return self._ids[places.start : places.stop : places.step]


def _race_all(np: Any, weights: array[float], k: int, key: int) -> list[int]:
    rates = np.frombuffer(weights)
    ids = np.flatnonzero(rates)
    parts = ((_draw_all(np, key, range(len(rates))) >> np.uint64(12)) + 0.5) * 2.0**-52
    times = -_logarithm_all(np, parts[ids]) / rates[ids]
    found: list[int] = ids[np.argsort(times, kind="stable")[:k]].tolist()
    return found


# ln 2 in two parts; a small integer times the first is exact.
_LN2_HIGH = float.fromhex("0x1.62e42feep-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")


def logarithm(x: float) -> float:
    """ln x for x > 0, with the same bits on every machine, which math.log does not promise.

    With x = m 2^e, m in [1/√2, √2), and s = (m-1)/(m+1), it is e ln 2 + 2 (s + s³/3 + s⁵/5 + ...), |s| < 0.172, and the
    term after s²³/23 is below 2^-66.
    """
    m, e = math.frexp(x)
    if m < math.sqrt(2) / 2:
        m, e = 2 * m, e - 1
    value: float = _series((m - 1) / (m + 1), e)
    return value


def _logarithm_all(np: Any, x: Any) -> Any:
    m, e = np.frexp(x)
    low = m < math.sqrt(2) / 2
    m, e = np.where(low, 2 * m, m), np.where(low, e - 1, e)
    return _series((m - 1) / (m + 1), e)


def _series(s: Any, e: Any) -> Any:
    square = s * s
    total = 0.0
    for k in range(23, 1, -2):
        total = (total + 1 / k) * square
    return e * _LN2_HIGH + (2 * s + (2 * s * total + e * _LN2_LOW))


class Padded:
    """A sequence of n places that starts again from its beginning when it ends."""

    def __init__(self, sequence: Sequence, n: int) -> None:
        self._sequence = sequence
        self._n = n

    def take(self, places: range) -> list[Any]:
        own = len(range(places.start, self._n, places.step))
        out = self._sequence.take(places[:own])
        for place in places[own:]:
            out += self._sequence.take(range(place % self._n, place % self._n + 1))
        return out


class Picked:
    """A sequence of indices into items, as the items."""

    def __init__(self, sequence: Sequence, items: Items[Any]) -> None:
        self._sequence = sequence
        self._items = items

    def take(self, places: range) -> list[Any]:
        return [self._items[i] for i in self._sequence.take(places)]


def walk(sequence: Sequence, places: range) -> Iterator[list[Any]]:
    """The samples at places in pieces, each computed when it is needed, in bounded memory."""
    size, at = _FIRST, 0
    while at < len(places):
        yield sequence.take(places[at : at + size])
        at += size
        if size < _PIECE or _numpy() is not None:
            size = min(2 * size, _PIECE_WITH_NUMPY)

"""What the engine has left to be done to pictures: which of a batch go through which operator together, and where.

The engine makes every choice, and sends the steps of each sample as rows of numbers (transform.StepNumbers). They are
read here, on the host, where it is decided what is done; the device gets the same numbers with the batch, and a few
short lists of indices.

Script    what is done to one batch, and to which of its samples
run       does it: operators of torch on any device, none of which waits for it
erase     what is done to floats after they are made

Samples whose steps of one number are of one kind, and whose pictures are of one size, go through an operator together.
A crop or a flip only changes a sample's Window: which part of its picture counts. What needs pixels looks through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import _device_ops as ops

AT_ONCE = 1 << 22  # values of pictures that an operator gets at once, about: it may need sixty bytes for each


class Window(NamedTuple):
    """The part of a picture that counts, and whether it is mirrored."""

    x: int
    y: int
    w: int
    h: int
    across: bool = False
    down: bool = False

    def crop(self, x: int, y: int, w: int, h: int) -> Window:
        """A part of it."""
        x = self.x + (self.w - x - w if self.across else x)
        y = self.y + (self.h - y - h if self.down else y)
        return self._replace(x=x, y=y, w=w, h=h)


class Act(NamedTuple):
    """One operator over some samples. ``rows`` are their numbers in tensor ``source``, ``begin`` is where the act's
    indices begin in the script's list: rows, samples, and a window of each, unless ``whole``. The result becomes tensor
    ``target``, or, if that is ``source``, is put back into it."""

    op: int
    step: int
    source: int
    target: int
    rows: list[int]
    begin: int
    whole: bool  # every window is the whole picture
    windows: list[Window]
    size: tuple[int, int]  # of the windows, height and width; for OpResize the largest of each
    given: tuple[int, ...]  # what the operator is told besides
    near: list[float]  # of a blur: N of each sample


class Join(NamedTuple):
    """Tensors of one size become one."""

    sources: list[int]
    target: int


_NO_PIXELS = (0, ops.CROP, ops.FLIP_H, ops.FLIP_V, ops.ERASED)  # 0: there is no step
_GIVEN: dict[int, Callable[[Sequence[float]], tuple[int, ...]]] = {
    ops.RESIZE: lambda row: (int(row[1]), int(row[2]), int(row[3])),
    ops.PAD: lambda row: (int(row[3]), int(row[4]), int(row[5])),
    ops.GRAY: lambda row: (int(row[1]),),
    ops.BLUR: lambda row: (int(row[1]), int(row[2])),
    ops.AFFINE: lambda row: (int(row[1]), int(row[2]), int(row[3]), int(row[4])),
    ops.PERSPECTIVE: lambda row: (int(row[1]), int(row[2]), int(row[3]), int(row[4])),
}


class Script:
    """What is done to one batch. ``steps`` has the rows of numbers of each sample, ``size`` is the height, width and
    channels of all pictures.

    ``acts`` are done in order, on tensors by number; 0 is the batch. ``indices`` has every list of numbers that they
    need there. In the end, ``last`` says for each tensor which samples are in it.
    """

    def __init__(self, steps: Sequence[Sequence[Sequence[float]]], size: tuple[int, int, int]) -> None:
        self.acts: list[Act | Join] = []
        self.indices: list[int] = []
        self._sizes: list[tuple[int, int, int]] = [size]
        self._held: list[int] = [len(steps)]  # rows of each tensor
        height, width, _ = size
        self._where = [(0, row) for row in range(len(steps))]
        self._windows = [Window(0, 0, width, height)] * len(steps)
        for number in range(max((len(rows) for rows in steps), default=0)):
            self._level(steps, number)
        self.erased = self._erased(steps)
        self.last: list[Act] = []
        for group in self._groups(lambda sample: (self._where[sample][0],)).values():
            window = self._windows[group[0]]
            self.last.append(self._act(0, 0, self._where[group[0]][0], -1, group, (window.h, window.w), ()))

    def _groups(self, key: Callable[[int], tuple[Any, ...] | None]) -> dict[tuple[Any, ...], list[int]]:
        found: dict[tuple[Any, ...], list[int]] = {}
        for sample in range(len(self._where)):
            if (at := key(sample)) is not None:
                found.setdefault(at, []).append(sample)
        return found

    def _level(self, steps: Sequence[Sequence[Sequence[float]]], number: int) -> None:
        """Step ``number`` of every sample."""

        for sample, rows in enumerate(steps):
            self._moved(sample, rows[number])

        def key(sample: int) -> tuple[Any, ...] | None:
            row, window = steps[sample][number], self._windows[sample]
            op = int(row[0])
            if op in _NO_PIXELS:
                return None
            size = (0, 0) if op == ops.RESIZE else (window.h, window.w)
            return self._where[sample][0], op, _GIVEN[op](row) if op in _GIVEN else (), size

        for (source, op, given, size), samples in self._groups(key).items():
            self._step(steps, number, source, op, given, size, samples)
        self._join()

    def _moved(self, sample: int, row: Sequence[float]) -> None:
        """A crop or a flip of a sample."""
        op, window = int(row[0]), self._windows[sample]
        if op == ops.CROP:
            self._windows[sample] = window.crop(*map(int, row[1:5]))
        elif op == ops.FLIP_H:
            self._windows[sample] = window._replace(across=not window.across)
        elif op == ops.FLIP_V:
            self._windows[sample] = window._replace(down=not window.down)

    def _step(
        self,
        steps: Sequence[Sequence[Sequence[float]]],
        number: int,
        source: int,
        op: int,
        given: tuple[int, ...],
        size: tuple[int, int],
        samples: list[int],
    ) -> None:
        channels = self._sizes[source][2]
        becomes = (*size, channels)
        if op == ops.GRAY:
            becomes = (*size, given[0])
        elif given and op != ops.BLUR:
            becomes = (given[1], given[0], channels)
        if op == ops.RESIZE:
            windows = [self._windows[sample] for sample in samples]
            size = max(w.h for w in windows), max(w.w for w in windows)
        target = source if becomes == self._sizes[source] else len(self._sizes)
        near = [steps[sample][number][3] for sample in samples] if op == ops.BLUR else []
        self.acts.append(self._act(op, number, source, target, samples, size, given, near))
        height, width, _ = becomes
        for row, sample in enumerate(samples):
            self._windows[sample] = Window(0, 0, width, height)
            if target != source:
                self._where[sample] = target, row
        if target != source:
            self._sizes.append(becomes)
            self._held.append(len(samples))

    def _act(
        self,
        op: int,
        step: int,
        source: int,
        target: int,
        samples: list[int],
        size: tuple[int, int],
        given: tuple[int, ...],
        near: list[float] | None = None,
    ) -> Act:
        height, width, _ = self._sizes[source]
        windows = [self._windows[sample] for sample in samples]
        whole = all(window == (0, 0, width, height, False, False) for window in windows)
        rows = [self._where[sample][1] for sample in samples]
        begin = len(self.indices)
        self.indices += rows
        self.indices += samples
        if not whole:
            for column in zip(*windows, strict=True):
                self.indices += map(int, column)
        return Act(op, step, source, target, rows, begin, whole, windows, size, given, near or [])

    def _join(self) -> None:
        """Tensors of one size become one, so that their samples go together from here on."""
        alive: dict[tuple[int, int, int], list[int]] = {}
        for tensor in dict.fromkeys(where[0] for where in self._where):
            alive.setdefault(self._sizes[tensor], []).append(tensor)
        for size, tensors in alive.items():
            if len(tensors) < 2:
                continue
            target, begins, held = len(self._sizes), {}, 0
            for tensor in tensors:
                begins[tensor] = held
                held += self._held[tensor]
            self.acts.append(Join(tensors, target))
            self._sizes.append(size)
            self._held.append(held)
            self._where = [
                (target, begins[tensor] + row) if tensor in begins else (tensor, row) for tensor, row in self._where
            ]

    @staticmethod
    def _erased(steps: Sequence[Sequence[Sequence[float]]]) -> list[tuple[list[int], list[Sequence[float]]]]:
        """The boxes of floats: for the first of each sample, the second, and so on, the samples and their rows; boxes
        of one colour and of normal numbers apart."""
        found: dict[tuple[int, bool], tuple[list[int], list[Sequence[float]]]] = {}
        for sample, rows in enumerate(steps):
            for number, row in enumerate(row for row in rows if int(row[0]) == ops.ERASED):
                samples, boxes = found.setdefault((number, row[8] > 0), ([], []))
                samples.append(sample)
                boxes.append(row)
        return [found[key] for key in sorted(found)]


def run(x: Any, steps: Any, script: Script, becomes: Sequence[int], out: Any = None) -> Any:
    """The pictures after a script, in ``out``, by default a new tensor that is channels_last. ``x`` are those before,
    uint8 (rows, channels, height, width), which stay as they are; ``steps`` their numbers, float64 (rows, steps,
    NUMBERS). All are on one device."""
    torch = ops.torch()
    indices = there(script.indices, torch.int64, x)
    tensors: dict[int, Any] = {0: x}
    own: set[int] = set()  # tensors that may be written to
    for act in script.acts:
        if isinstance(act, Join):
            tensors[act.target] = torch.cat([tensors.pop(source) for source in act.sources])
            own.add(act.target)
            continue
        made = _done(act, tensors[act.source], steps, indices)
        if act.target != act.source or len(act.rows) == len(tensors[act.source]):
            tensors[act.target] = made if act.target != act.source else _ordered(act, made, indices)
            own.add(act.target)
            continue
        if act.source not in own:
            tensors[act.source] = tensors[act.source].clone()
            own.add(act.source)
        tensors[act.source].index_copy_(0, _rows(act, indices), made)
    height, width, channels = becomes
    if out is None:
        shape = (len(x), height, width, channels)
        out = torch.empty(shape, dtype=torch.uint8, device=x.device).permute(0, 3, 1, 2)
    for act in script.last:
        n = len(act.rows)
        pixels = _seen(act, tensors[act.source].index_select(0, _rows(act, indices)), indices, slice(0, n))
        out.index_copy_(0, indices[act.begin + n : act.begin + 2 * n], pixels)
    return out


def there(values: Any, dtype: Any, like: Any) -> Any:
    """A tensor of these values on the device of another one, where nothing waits for the copy."""
    tensor = ops.torch().tensor(values, dtype=dtype, device="cpu")
    return ops.moved(tensor, like)


def _ordered(act: Act, made: Any, indices: Any) -> Any:
    """The result for all rows of a tensor, in their order."""
    if act.rows == list(range(len(act.rows))):
        return made
    return ops.torch().empty_like(made).index_copy_(0, _rows(act, indices), made)


def _rows(act: Act, indices: Any) -> Any:
    return indices[act.begin : act.begin + len(act.rows)]


def _window(act: Act, indices: Any, part: slice) -> list[Any]:
    """x, y, w, h, across and down of the windows of some samples, int64."""
    n = len(act.rows)
    begin = act.begin + 2 * n
    return [indices[begin + i * n + part.start : begin + i * n + part.stop] for i in range(6)]


def _seen(act: Act, x: Any, indices: Any, part: slice) -> Any:
    """What the windows of some samples, all of one size, show of their pictures."""
    if act.whole:
        return x
    torch = ops.torch()
    height, width = act.size
    left, top, _, _, across, down = (v.view(-1, 1) for v in _window(act, indices, part))
    columns, rows = torch.arange(width, device=x.device), torch.arange(height, device=x.device)
    columns = torch.where(across > 0, width - 1 - columns, columns) + left
    rows = torch.where(down > 0, height - 1 - rows, rows) + top
    return ops.taken(x, rows, columns)


def _done(act: Act, x: Any, steps: Any, indices: Any) -> Any:
    """The result of an act for its samples."""
    torch = ops.torch()
    n = len(act.rows)
    rows, samples = _rows(act, indices), indices[act.begin + n : act.begin + 2 * n]
    result = act.given[0] * act.given[1] if len(act.given) > 2 else 0
    most = max(act.size[0] * act.size[1], x.shape[2] * x.shape[3], result)
    each = max(1, AT_ONCE // max(1, most * 3))
    found = []
    for begin in range(0, n, each):
        part = slice(begin, min(begin + each, n))
        pictures = x.index_select(0, rows[part])
        numbers = steps[:, act.step].index_select(0, samples[part])
        found.append(_one(act, pictures, numbers, indices, part))
    return found[0] if len(found) == 1 else torch.cat(found)


def _one(act: Act, x: Any, p: Any, indices: Any, part: slice) -> Any:
    if act.op == ops.RESIZE:
        return _resized(act, x, indices, part)
    x = _seen(act, x, indices, part)
    if act.op in ops.SAME:
        return ops.SAME[act.op](x, p)
    if act.op == ops.PAD:
        return ops.pad(x, p, *act.given)
    if act.op == ops.GRAY:
        return ops.gray(x, p, *act.given)
    if act.op == ops.BLUR:
        return _blurred(act, x, part)
    warp = ops.affine if act.op == ops.AFFINE else ops.perspective
    width, height, filter, filled = act.given
    return warp(x, p, width, height, filter, bool(filled))


def _resized(act: Act, x: Any, indices: Any, part: slice) -> Any:
    """What the windows show, resampled to one size."""
    torch = ops.torch()
    width, height, filter = act.given
    if act.whole:
        h, w = x.shape[2:]
        full = torch.full((len(x),), w, dtype=torch.int64, device=x.device)
        zero, tall = torch.zeros_like(full), torch.full_like(full, h)
        left, top, wide, high, across, down = zero, zero, full, tall, zero, zero
    else:
        left, top, wide, high, across, down = _window(act, indices, part)

    def of(begin: Any, size: Any, mirrored: Any) -> Callable[[Any], Any]:
        begin, size, mirrored = begin.view(-1, 1), size.view(-1, 1), mirrored.view(-1, 1)
        return lambda at: begin + torch.where(mirrored > 0, size - 1 - at, at)

    columns, rows = of(left, wide, across), of(top, high, down)
    if filter in (ops.NEAREST, ops.NEAREST_EXACT):
        exact = filter == ops.NEAREST_EXACT
        down, across = (torch.arange(n, dtype=torch.int64, device=x.device).view(1, -1) for n in (height, width))
        taken = rows(ops.nearest(high, height, exact, down)), columns(ops.nearest(wide, width, exact, across))
        return ops.taken(x, *taken)
    cubic = filter == ops.BICUBIC
    windows = act.windows[part]
    every = torch.arange(act.size[0], device=x.device).view(1, -1)
    at = rows(torch.minimum(every, high.view(-1, 1) - 1))
    x = x.gather(2, at.view(len(x), 1, -1, 1).expand(len(x), x.shape[1], at.shape[1], x.shape[3]))
    taps = ops.taps([max(window.w for window in windows)], [width], cubic)
    x = ops.resampled(x, ops.Axis(wide, width, width, taps, cubic), 3, columns)
    taps = ops.taps([max(window.h for window in windows)], [height], cubic)
    return ops.resampled(x, ops.Axis(high, height, height, taps, cubic), 2, lambda at: at)


def _blurred(act: Act, x: Any, part: slice) -> Any:
    kind = ops.torch().int64
    (across, wide), (down, high) = (ops.weights(size, act.near[part]) for size in act.given)
    return ops.blur(x, there(across, kind, x), there(down, kind, x), there([wide, high], kind, x))


def erase(floats: Any, script: Script) -> None:
    """Erases boxes of floats, (rows, channels, height, width), by numbers that are computed in float32."""
    torch = ops.torch()
    channels, height, width = floats.shape[1:]
    for samples, rows in script.erased:
        noise = rows[0][8] > 0
        p, at = there(rows, torch.float64, floats), there(samples, torch.int64, floats)
        each = max(1, AT_ONCE // max(1, channels * height * width)) if noise else len(rows)
        for begin in range(0, len(rows), each):
            q, here = p[begin : begin + each], at[begin : begin + each]
            fill = q[:, 5 : 5 + channels].to(torch.float32).view(-1, channels, 1, 1)
            if noise:
                scale = q[:, 10 : 10 + channels].to(torch.float32).view(-1, channels, 1, 1)
                fill = _noise(q, rows[begin : begin + each], channels, height, width).mul_(scale).add_(fill)
            fill = fill.to(floats.dtype)
            found = torch.where(ops.boxes(q, height, width), fill, floats.index_select(0, here))
            floats.index_copy_(0, here, found)


def _noise(p: Any, rows: Sequence[Sequence[float]], channels: int, height: int, width: int) -> Any:
    """The normal numbers of boxes, where they are in pictures of this size."""
    torch = ops.torch()
    high, half = max(int(row[4]) for row in rows), max(int(row[3]) + 1 for row in rows) // 2
    x, y, wide = (p[:, number].to(torch.int64).view(-1, 1) for number in (1, 2, 3))
    down = torch.arange(height, device=p.device) - y
    across = torch.arange(width, device=p.device) - x
    first = (wide + 1) >> 1  # of a row's numbers, those of the first half
    across = torch.where(across < first, across, across + (half - first))
    found = ops.normals(p, channels, high, half)
    return ops.taken(found, down.clamp_(0, high - 1), across.clamp_(0, 2 * half - 1))


def script_of(numbers: Any, size: tuple[int, int, int]) -> Script:
    """The script of a batch: ``numbers`` is its tensor of them, here, and ``size`` the height, width and channels."""
    used = int((numbers[:, :, 0] != 0).any(0).sum())
    return Script(numbers[:, :used].tolist(), size)

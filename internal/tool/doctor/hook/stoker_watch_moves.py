"""The way of a batch to the device, watched for the first batches of a process that uses CUDA.

Tensor.to and .cuda are dressed between a batch and the next call of __next__ and are torch's own again after it. They
are the one place where a frame of the hook may show in a traceback: what is asked is how they are called.

A copy out of memory that can be paged out is over when the call is, but the call waits for what the device does before
it, too. So of one batch in some the copies are put between two events of the stream that they are on: the device's own
time from one to the other is the copy, and nobody waits for it. It is asked for when a later batch comes.
"""

import sys
from collections import deque

import stoker_watch_look as look

MOVES = 64  # batches that are watched
TIMED = 4  # one in so many is timed; the first ones begin with CUDA
PENDING = 64  # copies whose time is not known yet; of more, the first are not counted

_moving: list = []


class Moves:
    """Of one loader: how its batches were moved, and what copies of pageable memory took."""

    def __init__(self) -> None:
        self.watched = 0
        self.blocking = {"true": 0, "false": 0}  # calls by non_blocking
        self.pending: deque = deque(maxlen=PENDING)  # events before and after a copy, and the number of its batch
        self.batches = 0  # whose copies were timed
        self.last = 0  # number of the last of them
        self.seconds = 0.0

    def settle(self, torch) -> None:
        """Counts the copies that are over by now."""
        try:
            if not self.pending or torch.cuda.is_current_stream_capturing():
                return
            while self.pending and self.pending[0][1].query():
                begin, end, number = self.pending.popleft()
                self.seconds += begin.elapsed_time(end) / 1e3
                self.batches += number != self.last
                self.last = number
        except Exception:  # of the device: it is the script's to meet
            self.pending.clear()

    def report(self) -> dict:
        timed = {"batches": self.batches, "seconds": self.seconds} if self.batches else None
        return {"non_blocking": dict(self.blocking), "pageable": timed}


def watch(moves: Moves, data: object) -> None:
    """Counts the moves of a batch's tensors from the host to a CUDA device, by whether they block, and times some."""
    torch = sys.modules["torch"]
    tensor = torch.Tensor
    wanted = {id(leaf) for _, leaf in look.leaves(data)}
    moves.settle(torch)
    moves.watched += 1
    number = moves.watched
    timed = number > TIMED and number % TIMED == 0
    inside = False  # torch may call a dressed method again, by its name

    def mover(name: str):
        original = getattr(tensor, name)

        def moved(self, *args, **options):
            nonlocal inside
            if not inside and id(self) in wanted and self.device.type == "cpu":
                target = str(args[0] if args else options.get("device", "cuda" if name == "cuda" else ""))
                if name == "cuda" or target.startswith("cuda") or target.isdigit():
                    moves.blocking["true" if options.get("non_blocking") or True in args[1:] else "false"] += 1
                    begin = _mark(torch, target) if timed and not self.is_pinned() else None
                    inside = True
                    try:
                        copy = original(self, *args, **options)
                    finally:
                        inside = False
                    if begin is not None and (end := _mark(torch, target)) is not None:
                        moves.pending.append((begin, end, number))
                    return copy
            return original(self, *args, **options)

        return moved

    for name in ("to", "cuda"):
        if name not in tensor.__dict__:
            setattr(tensor, name, mover(name))
            _moving.append((tensor, name))


def _mark(torch, target: str) -> object:
    """An event on the stream that copies to a device are on; None where none must be recorded."""
    try:
        if torch.cuda.is_current_stream_capturing():
            return None
        digits = target.removeprefix("cuda").removeprefix(":")
        stream = torch.cuda.current_stream(int(digits) if digits.isdigit() else None)
        return stream.record_event(torch.cuda.Event(enable_timing=True))
    except Exception:  # whatever it is, it is the script's to meet
        return None


def end() -> None:
    while _moving:
        owner, name = _moving.pop()
        delattr(owner, name)

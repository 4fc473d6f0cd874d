"""The way of a batch to the device, watched for the first batches of a process that uses CUDA.

Tensor.to and .cuda are dressed between a batch and the next call of __next__ and are torch's own again after it. They
are the one place where a frame of the hook may show in a traceback: what is asked is how they are called.

A copy out of memory that can be paged out is over when the call is, but the call waits for what the device does before
it, too. So of one batch in some the device is waited for first: what the calls take then is the copies.
"""

import sys
from time import perf_counter

import stoker_watch_look as look

MOVES = 64  # batches that are watched
TIMED = 4  # one in so many is timed; the first ones begin with CUDA

_moving: list = []


class Moves:
    """Of one loader: how its batches were moved, and what copies of pageable memory took."""

    def __init__(self) -> None:
        self.watched = 0
        self.blocking = {"true": 0, "false": 0}  # calls by non_blocking
        self.batches = 0  # that were timed
        self.seconds = 0.0

    def report(self) -> dict:
        timed = {"batches": self.batches, "seconds": self.seconds} if self.batches else None
        return {"non_blocking": dict(self.blocking), "pageable": timed}


def watch(moves: Moves, data: object) -> None:
    """Counts the moves of a batch's tensors from the host to a CUDA device, by whether they block, and times some."""
    torch = sys.modules["torch"]
    tensor = torch.Tensor
    wanted = {id(leaf) for _, leaf in look.leaves(data)}
    moves.watched += 1
    timed = moves.watched > TIMED and moves.watched % TIMED == 0
    counted = False

    def mover(name: str):
        original = getattr(tensor, name)

        def moved(self, *args, **options):
            nonlocal counted
            if id(self) in wanted and self.device.type == "cpu":
                target = str(args[0] if args else options.get("device", "cuda" if name == "cuda" else ""))
                if name == "cuda" or target.startswith("cuda") or target.isdigit():
                    moves.blocking["true" if options.get("non_blocking") or True in args[1:] else "false"] += 1
                    if timed and not self.is_pinned() and _idle(torch):
                        begin = perf_counter()
                        copy = original(self, *args, **options)
                        moves.seconds += perf_counter() - begin
                        moves.batches += not counted
                        counted = True
                        return copy
            return original(self, *args, **options)

        return moved

    for name in ("to", "cuda"):
        if name not in tensor.__dict__:
            setattr(tensor, name, mover(name))
            _moving.append((tensor, name))


def _idle(torch) -> bool:
    """Waits until the device has done what it was told; False where that must not be."""
    try:
        if torch.cuda.is_current_stream_capturing():
            return False
        torch.cuda.current_stream().synchronize()
        return True
    except Exception:  # whatever it is, it is the script's to meet
        return False


def end() -> None:
    while _moving:
        owner, name = _moving.pop()
        delattr(owner, name)

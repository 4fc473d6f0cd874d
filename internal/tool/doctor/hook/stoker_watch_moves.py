"""The way of a batch to the device, watched for the first batches of a process that uses CUDA.

Tensor.to and .cuda are dressed between a batch and the next call of __next__ and are torch's own again after it. They
are the one place where a frame of the hook may show in a traceback: what is asked is how they are called.
"""

import sys

import stoker_watch_look as look

MOVES = 64  # batches that are watched

_moving: list = []


def watch(counts: dict, data: object) -> None:
    """Counts the moves of a batch's tensors from the host to a CUDA device, by whether they block."""
    tensor = sys.modules["torch"].Tensor
    wanted = {id(leaf) for _, leaf in look.leaves(data)}

    def mover(name: str):
        original = getattr(tensor, name)

        def moved(self, *args, **options):
            if id(self) in wanted and self.device.type == "cpu":
                target = str(args[0] if args else options.get("device", "cuda" if name == "cuda" else ""))
                if name == "cuda" or target.startswith("cuda") or target.isdigit():
                    counts["true" if options.get("non_blocking") or True in args[1:] else "false"] += 1
            return original(self, *args, **options)

        return moved

    for name in ("to", "cuda"):
        if name not in tensor.__dict__:
            setattr(tensor, name, mover(name))
            _moving.append((tensor, name))


def end() -> None:
    while _moving:
        owner, name = _moving.pop()
        delattr(owner, name)

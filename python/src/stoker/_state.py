"""States of a loader: their contents, and whether one fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from . import _notice, _seeds
from ._client import Opened
from ._crew import Hands
from ._errors import MAX_EPOCH, StateError, whole

STATE_VERSION = 1
MAX_SKIPPED = 12  # number of skipped runs that a state remembers, so that it stays below 1 KiB


def skipped(runs: list[list[int]], epoch: int, begin: int, end: int) -> list[list[int]]:
    """The runs of items that were skipped, and one more."""
    if runs and runs[-1][0] == epoch and runs[-1][2] == begin:
        runs = [*runs[:-1], [epoch, runs[-1][1], end]]
    else:
        runs = [*runs, [epoch, begin, end]]
    return runs[-MAX_SKIPPED:]


def _known(value: Any) -> Any:
    """A part of a state, without what only a pass can check."""
    passing = ("seen", "rank")
    return {key: x for key, x in value.items() if key not in passing} if isinstance(value, Mapping) else value


def _run(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(whole, value))


DAMAGED = "pass what state_dict() returned, unchanged: this state is damaged or was written by hand"

# Values that are missing from states of earlier releases.
_LATER = ("processing", "blocks", "decode_device")


def compare(state: Any, mine: dict[str, Any], count: Callable[[int], int | None], info: Opened) -> None:
    """StateError with every reason why a state does not fit. ``count`` is the number of items in an epoch, None if
    unknown."""
    if not isinstance(state, Mapping):
        raise StateError(f"a state must be a dict, not of type {type(state).__name__}")
    if missing := [key for key in mine if key not in state and key not in _LATER]:
        raise StateError(
            f"the state lacks {', '.join(missing)}", hint="pass what state_dict() of a stoker.DataLoader returned"
        )
    if state["version"] != STATE_VERSION:
        raise StateError(
            f"the state is of version {state['version']!r}, but this release reads {STATE_VERSION}",
            hint="load it with the release that saved it",
        )
    if isinstance(state["dataset"], str) and (how := info.unlike.get(state["dataset"])):
        raise StateError(
            "the state does not fit this loader: it belongs to the dataset that this one was packed from, but the "
            f"packing does not have the same samples in the same order: {how}",
            hint="load the state over the original dataset, or over a packing of all its samples in their order",
        )
    words = {
        "dataset": ("the dataset differs", "its files, sizes or labels changed, or it is another dataset"),
        "pipeline": ("the fields or transforms differ", "make the dataset with those of the saved run"),
        "seed": ("the seed differs", f"pass seed={state['seed']!r}"),
        "order": ("the order differs", "pass the shuffle, weights, lengths or sampler of the saved run"),
    }
    runs = state.get("skipped", [])
    if not isinstance(runs, list) or not all(map(_run, runs)):
        raise StateError(
            f"the state's 'skipped' is {runs!r:.80}", hint=f"it must be a list of [epoch, from, to]; {DAMAGED}"
        )
    theirs, packed = dict(state), state["dataset"] != mine["dataset"] and state["dataset"] in info.sources
    if packed:
        if "processing" not in state:
            raise StateError(
                "the state is of the dataset that this one was packed from, but an earlier release saved it without "
                "the digests needed to resume here",
                hint="load it over the original dataset and save it again with this release",
            )
        theirs["dataset"] = mine["dataset"]
        words["processing"] = words.pop("pipeline")
    if packed or "blocks" in state:
        words["blocks"] = (
            "the sizes of the blocks differ",
            "pass the same block= in both places; by default a block is a shard, and the shards differ",
        )
    if state.get("decode_device") != mine.get("decode_device"):  # part of the digest of the transforms
        words.pop("pipeline", None)
        words.pop("processing", None)
        words["decode_device"] = (
            "decode_device differs, and pixels depend on the decoder",
            "pass decode_device= as the saved run did, with the same share, and install the same decoder",
        )
    wrong = []
    if not _seeds.is_seed(state["seed"]):
        words.pop("seed")
        wrong.append((f"its seed is {state['seed']!r:.80}", f"a seed is an integer from 0 to 2**64 - 1; {DAMAGED}"))
    wrong += [
        (f"{differs}: {theirs.get(key)!r} in the state but {mine.get(key)!r} here", hint)
        for key, (differs, hint) in words.items()
        if _known(theirs.get(key)) != mine.get(key)
    ]
    epoch, position = state["epoch"], state["position"]
    if not (whole(epoch) and whole(position) and 0 <= epoch <= MAX_EPOCH and 0 <= position <= MAX_EPOCH):
        wrong.append(
            (
                f"its epoch is {epoch!r:.80} and its position {position!r:.80}",
                f"both must be integers from 0 to 2**63 - 1; {DAMAGED}",
            )
        )
    elif not wrong and (items := count(epoch)) is not None and position > items:
        wrong.append((f"its position is {position}, but epoch {epoch} ends at {items}", DAMAGED))
    if wrong:
        raise StateError(
            "the state does not fit this loader: " + "; ".join(what for what, _ in wrong),
            hint="; ".join(hint for _, hint in wrong),
        )
    if packed:
        altered = f"; its pictures were rewritten ({info.altered}) and have different pixels" if info.altered else ""
        _notice.say(f"the state is of the dataset that this one was packed from; resuming here{altered}")


def compare_paths(state: Any, python: bool, hands: Hands | None) -> None:
    """StateError for a state of the same kind of dataset that was saved while the other path made the samples: the two
    draw other random numbers."""
    if not isinstance(state, Mapping) or ("python" in state) == python:
        return
    if python:
        raise StateError(
            "the state does not fit this loader: it was saved while the engine read the dataset natively, and here "
            "Python makes the samples" + (f", because {hands.why}" if hands is not None else ""),
            hint="make the loader as the saved run did: the same dataset and transform, without native=False",
        )
    raise StateError(
        "the state does not fit this loader: it was saved while Python made the samples, and here the engine reads "
        "the dataset natively",
        hint="pass native=False",
    )

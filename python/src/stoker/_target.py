"""The keywords ``device`` and ``device_prefetch``: where batches go, and how far ahead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _cuda
from ._errors import Problems, whole

AHEAD = 2
MOST_AHEAD = 1024
_KNOWN = "it can be 'cpu', 'cuda' (torch's current device), or one like 'cuda:1'"


class Target(NamedTuple):
    """A device by its name, and the number of batches on it beyond the one that the loop has."""

    device: str  # "cpu"; "cuda", which is torch's current device when a pass begins; "cuda:1"
    ahead: int

    @property
    def moves(self) -> bool:
        """Whether batches are copied."""
        return self.device != "cpu"


def read(k: Mapping[str, Any], output: str, problems: Problems) -> Target | None:
    """Reads the keywords; None if there is no device. Adds what is wrong to problems: also what torch does not have."""
    device, ahead = k["device"], k["device_prefetch"]
    if ahead is not None and device is None:
        problems.add("device_prefetch needs device=", "pass device='cuda', or leave device_prefetch out")
        return None
    if ahead is not None and (not whole(ahead) or not 1 <= ahead <= MOST_AHEAD):
        problems.add(f"device_prefetch is {ahead!r:.80}", f"give a number of batches, from 1 to {MOST_AHEAD:,}")
        ahead = None
    if device is None:
        return None
    name = _name(device)
    found = re.fullmatch(r"(cpu|cuda)(?::(\d{1,4}))?", name)
    if found is None:
        hint = _KNOWN
        if re.fullmatch(r"[a-z]+(:\d+)?", name) and not name.startswith(("cpu", "cuda")):
            hint += "; for another kind of device, leave it out and call batch.to(device) in the loop"
        problems.add(f"device is {name or device!r:.80}", hint)
        return None
    kind, number = found[1], found[2]
    if kind == "cpu":
        return Target("cpu", int(ahead or AHEAD))
    if output != "torch":
        problems.add(
            f"device is {name!r}, which is for torch's tensors, but output is {output!r}",
            "leave device out, and copy the arrays in the loop; or pass output='torch'",
        )
        return None
    try:
        wrong = _cuda.lacking(None if number is None else int(number))
    except ImportError:  # which is a problem of output
        return None
    if wrong is not None:
        problems.add(f"device is {name!r}: {wrong[0]}", wrong[1])
        return None
    return Target(kind if number is None else f"cuda:{int(number)}", int(ahead or AHEAD))


def of(device: Any, ahead: Any, who: str) -> Target:
    """The target of a wrapper of loaders; ConfigError for what is wrong."""
    problems = Problems(who)
    if device is None:
        problems.add("device is None", _KNOWN)
    target = read({"device": device, "device_prefetch": ahead}, "torch", problems)
    problems.raise_any()
    assert target is not None
    return target


def _name(device: Any) -> str:
    """The name of a device; "" for what is not one."""
    return str(device) if isinstance(device, str) or type(device).__module__ == "torch" else ""

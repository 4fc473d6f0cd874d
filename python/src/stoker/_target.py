"""The keywords ``device`` and ``device_prefetch``: where batches go, and how far ahead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _cuda, _jax
from ._errors import ConfigError, Problems, whole

if TYPE_CHECKING:
    from ._sharding import Placement

AHEAD = 2
MOST_AHEAD = 1024
_KNOWN = "it can be 'cpu', 'cuda' (torch's current device), or one like 'cuda:1'"


class Target(NamedTuple):
    """A device by its name, and the number of batches on it beyond the one that the loop has."""

    device: str  # "cpu"; "cuda", which is torch's current device when a pass begins; "cuda:1"; or JAX's name
    ahead: int
    jax: bool = False  # arrays of JAX
    placement: Placement | None = None  # of these over several devices; ``device`` is "" then

    @property
    def kind(self) -> str:
        """The device without its number."""
        return self.device.partition(":")[0]

    @property
    def moves(self) -> bool:
        """Whether batches are copied."""
        return self.jax or self.device != "cpu"


def read(k: Mapping[str, Any], output: str, placement: Placement | None, problems: Problems) -> Target | None:
    """Reads the keywords; None if there is no device. Adds what is wrong to problems: also what torch or JAX does not
    have. ``placement`` is what ``sharding`` says."""
    device, ahead = k["device"], k["device_prefetch"]
    if ahead is not None and device is None and k["sharding"] is None:
        problems.add("device_prefetch needs device=, or sharding=", "pass device='cuda', or leave device_prefetch out")
        return None
    if ahead is not None and (not whole(ahead) or not 1 <= ahead <= MOST_AHEAD):
        problems.add(f"device_prefetch is {ahead!r:.80}", f"give a number of batches, from 1 to {MOST_AHEAD:,}")
        ahead = None
    ahead = int(ahead or AHEAD)
    if device is not None and k["sharding"] is not None:
        problems.add(
            "device and sharding exclude each other", "leave device out: sharding says which devices there are"
        )
        return None
    if placement is not None:
        return Target("", ahead, True, placement)
    if device is None:
        return None
    return _of_jax(device, ahead, problems) if output == "jax" else _of_torch(device, ahead, output, problems)


def _of_jax(device: Any, ahead: int, problems: Problems) -> Target | None:
    name = device if isinstance(device, str) else _jax.name_of(device) if _jax.is_device(device) else ""
    if re.fullmatch(r"[A-Za-z_]+(:\d{1,9})?", name) is None:
        problems.add(
            f"device is {device!r:.80}, and output is 'jax'",
            "give a jax.Device, or its name: 'cpu', 'gpu', or one like 'cuda:1'",
        )
        return None
    try:
        _jax.chosen(name)
    except ImportError:  # which is a problem of output
        return None
    except ConfigError as error:
        problems.add(error.what, error.hint)
        return None
    return Target(name, ahead, True)


def _of_torch(device: Any, ahead: int, output: str, problems: Problems) -> Target | None:
    if _jax.is_device(device):
        problems.add(f"device is JAX's {_jax.name_of(device)!r}, and output is {output!r}", "pass output='jax'")
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
    if output != "torch":
        problems.add(
            f"device is {name!r}, which is for torch's tensors, but output is {output!r}",
            "leave device out: arrays are in the CPU's memory already"
            if kind == "cpu"
            else "leave device out, and copy the arrays in the loop; or pass output='torch' or 'jax'",
        )
        return None
    if kind == "cpu":
        return Target("cpu", ahead)
    try:
        wrong = _cuda.lacking(None if number is None else int(number))
    except ImportError:  # which is a problem of output
        return None
    if wrong is not None:
        problems.add(f"device is {name!r}: {wrong[0]}", wrong[1])
        return None
    return Target(kind if number is None else f"cuda:{int(number)}", ahead)


def takes_work(
    where: str, output: str, target: Target | None, native: bool, single: bool, problems: Problems, otherwise: str
) -> bool:
    """Whether a loader with these settings can have work done on its device, as the keyword ``where`` asks; adds what
    is wrong to problems. ``native``: the engine makes the batches. ``otherwise`` is where that work can be done."""
    before = len(problems)
    if not native:
        problems.add(f"{where} is for pictures that the engine makes, and Python makes these batches", otherwise)
        return False
    if output != "torch":
        problems.add(f"{where} gives tensors of torch, and output is {output!r}", "leave one of them out")
    if target is None:
        problems.add(
            f"{where} needs device=", "pass device='cuda'; with device='cpu', the training process does the work"
        )
    if single:
        problems.add(f"{where} is for batches, and there are none", "give a batch_size")
    return len(problems) == before


def of(device: Any, ahead: Any, who: str) -> Target:
    """The target of a wrapper of loaders; ConfigError for what is wrong."""
    problems = Problems(who)
    if device is None:
        problems.add("device is None", _KNOWN)
    target = read({"device": device, "device_prefetch": ahead, "sharding": None}, "torch", None, problems)
    problems.raise_any()
    assert target is not None
    return target


def _name(device: Any) -> str:
    """The name of a device; "" for what is not one."""
    return str(device) if isinstance(device, str) or type(device).__module__ == "torch" else ""

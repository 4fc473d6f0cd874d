"""A CUDA device that is none, for scripts that are written for one. Imported after torch, it makes torch say that there
is a device, unless there really is one: then it does nothing, and the script runs as it is.

A copy to it takes the time that its bytes need over a slow bus: the calling thread sleeps for it, unless the memory is
pinned and the call does not block; then copies follow each other, and nobody waits. Tensors there keep their memory
here, and only say that they are on the device. Memory that torch's DataLoader pins is a copy with a mark.

All of that is below torch.Tensor's methods (a mode of torch's functions), so whoever dresses these finds them as torch
has them.
"""

import threading
import time

import torch
import torch.utils.data
from torch.overrides import TorchFunctionMode

PAGEABLE, PINNED = 0.2e9, 4e9  # bytes per second: copies of a few MB take as long as on a fast bus those of 100 times

_to, _cuda, _is_pinned = torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.is_pinned
_device = torch.device("cuda", 0)
_begun = False
_free = 0.0  # when the bus has done what it was told


class There(torch.Tensor):
    """A tensor that says that it is on the device."""

    @property
    def device(self):
        return _device

    @property
    def is_cuda(self):
        return True


class Device(TorchFunctionMode):
    """Copies to the device, and whether memory is pinned; all else is torch's."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in (_is_pinned, torch.Tensor.is_pinned):
            return getattr(args[0], "pretends_pinned", False)
        if func in (_cuda, torch.Tensor.cuda):
            return _copy(args[0], kwargs.get("non_blocking", True in args[1:]))
        if func in (_to, torch.Tensor.to):
            target = str(args[1] if len(args) > 1 else kwargs.get("device", ""))
            if target.startswith("cuda"):
                return _copy(args[0], kwargs.get("non_blocking", True in args[2:]))
            return _to(*args, **kwargs)
        return func(*args, **kwargs)


def _copy(tensor, non_blocking):
    global _begun, _free
    if isinstance(tensor, There):
        return tensor
    _begun = True
    now = time.monotonic()
    pinned = getattr(tensor, "pretends_pinned", False)
    _free = max(now, _free) + tensor.numel() * tensor.element_size() / (PINNED if pinned else PAGEABLE)
    if not (pinned and non_blocking):
        time.sleep(_free - now)
    return tensor.as_subclass(There)


class Stream:
    """The only one."""

    def record_event(self, event=None):
        event = event or Event()
        event.at = max(time.monotonic(), _free)
        return event

    def synchronize(self):
        time.sleep(max(0.0, _free - time.monotonic()))


class Event:
    def __init__(self, enable_timing=False):
        self.at = 0.0

    def query(self):
        return time.monotonic() >= self.at

    def elapsed_time(self, end):
        return 1e3 * (end.at - self.at)



def _pinned(data, device=None):
    """Tensors of tuples, lists and dicts as copies with a mark."""
    if isinstance(data, torch.Tensor):
        found = data.clone()
        found.pretends_pinned = True
        return found
    if isinstance(data, dict):
        return {key: _pinned(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return type(data)(map(_pinned, data))
    return data


def _pretend():
    stream = Stream()
    for owner, names in (
        (
            torch.cuda,
            {
                "is_available": lambda: True,
                "is_initialized": lambda: _begun,
                "init": lambda: None,
                "device_count": lambda: 1,
                "current_device": lambda: 0,
                "set_device": lambda device: None,
                "current_stream": lambda device=None: stream,
                "synchronize": lambda device=None: stream.synchronize(),
                "is_current_stream_capturing": lambda: False,
                "Event": Event,
            },
        ),
        (
            getattr(torch, "accelerator", None),
            {
                "is_available": lambda: True,
                "current_accelerator": lambda check_available=False: torch.device("cuda"),
                "current_device_index": lambda: 0,
                "set_device_index": lambda device: None,
            },
        ),
        (torch.utils.data._utils.pin_memory, {"pin_memory": _pinned}),
    ):
        for name, value in names.items():
            if hasattr(owner, name):
                setattr(owner, name, value)
    Device().__enter__()  # for this thread, until its end


if not torch.cuda.is_available() and threading.current_thread() is threading.main_thread():
    _pretend()

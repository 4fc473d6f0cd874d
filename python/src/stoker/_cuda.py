"""The one module that touches CUDA: through torch, and through the driver's library for what torch lacks.

Port        one device: memory, copies on a stream of their own, events, and pinning memory of this process
lacking     what is wrong with a request for a device
current     torch's current device

Everything is asynchronous but ``finish``, ``register`` and ``unregister``. "Here" is the memory of the host, "there"
that of the device; the loop's stream is the one that is current in the calling thread.

Memory is pinned by the driver (cuMemHostRegister), not by the runtime: after a failure of cudaHostRegister, torch
reports the error at an unrelated call, and torch.cuda.cudart() has no function that clears it. A failure of the
driver's function leaves nothing pending.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ._fused import kernel, numbers

LIBRARY = "libcuda.so.1"
_PORTABLE = 1  # pinned for all contexts
_ALREADY = 712  # CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED


class Refused(Exception):
    """Memory could not be pinned; the text says why."""


class Port:
    """One device, by its number. Safe for concurrent use: each thread has its own current stream."""

    def __init__(self, number: int) -> None:
        import torch

        self._torch: Any = torch
        self.device = torch.device("cuda", number)
        self.name = str(self.device)
        self._stream = self._torch.cuda.Stream(self.device)  # which also creates torch's context
        self._driver: _Driver | None = None

    def capturing(self) -> bool:
        """Whether the loop's stream records a CUDA graph."""
        return bool(self._torch.cuda.is_current_stream_capturing())

    # Memory.

    @contextmanager
    def copying(self) -> Iterator[None]:
        """What is allocated and copied within belongs to the stream of copies, and is of no graph of gradients."""
        torch = self._torch
        with torch.cuda.stream(self._stream), torch.inference_mode(False), torch.no_grad():
            yield

    def empty(self, size: int) -> Any:
        """Bytes there, as a tensor of uint8. Where there is no room, an error that ``full`` knows."""
        return self._torch.empty(size, dtype=self._torch.uint8, device=self.device)

    def pinned(self, size: int) -> Any:
        """Pinned bytes here, from torch's own allocator."""
        return self._torch.empty(size, dtype=self._torch.uint8, device="cpu", pin_memory=True)

    def copy(self, there: Any, here: Any) -> None:
        """Starts a copy of bytes. ``here`` is pinned, and must not change before the copy has ended."""
        there.copy_(here, non_blocking=True)

    def numbers(self, values: Sequence[float], dtype: str, shape: Sequence[int]) -> Any:
        """A tensor there of numbers, which are rounded to the type, for ``compute``."""
        return numbers(tuple(values), dtype, shape).pin_memory().to(self.device, non_blocking=True)

    def compute(self, work: Callable[[], None]) -> None:
        """Operations of torch on what was copied. Memory that is given up after it is free when they have ended: it is
        of the stream that they are on."""
        work()

    def reads(self, tensors: Sequence[Any]) -> None:
        """The stream of copies uses memory there that another one may have allocated."""
        for tensor in tensors:
            tensor.record_stream(self._stream)

    def kernel(self) -> Callable[..., bool]:
        """What makes floats in one pass, for ``compute``. An error says why there is none."""
        return kernel()

    def is_pinned(self, tensor: Any) -> bool:
        """Whether a tensor here is pinned."""
        return bool(tensor.is_pinned())

    def is_there(self, tensor: Any) -> bool:
        """Whether a tensor is on this device."""
        return bool(tensor.device == self.device)

    def move(self, value: Any) -> Any:
        """What has a ``to`` of its own, moved by it on the loop's stream."""
        return value.to(self.device, non_blocking=True)

    def full(self, error: BaseException) -> bool:
        """Whether an error says that the device has no memory left."""
        return isinstance(error, self._torch.cuda.OutOfMemoryError)

    # Order.

    def mark(self) -> Any:
        """An event after everything that was started on the stream of copies."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def mark_loop(self) -> Any:
        """An event after everything that was started on the loop's stream."""
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._torch.cuda.current_stream(self.device))
        return event

    def wait(self, event: Any) -> None:
        """What is started on the loop's stream from now on waits for an event; the caller does not."""
        self._torch.cuda.current_stream(self.device).wait_event(event)

    def used(self, tensor: Any) -> None:
        """The loop's stream uses memory of the stream of copies: once it is free, it is not used again before
        everything has ended that was started on the loop's stream by then."""
        tensor.record_stream(self._torch.cuda.current_stream(self.device))

    def done(self, event: Any) -> bool:
        """Whether an event has passed. An error of the device is raised."""
        return bool(event.query())

    def finish(self, event: Any) -> None:
        """Waits for an event."""
        event.synchronize()

    def seconds(self, begin: Any, end: Any) -> float:
        """The device's time between two events that have passed."""
        return float(begin.elapsed_time(end)) / 1e3

    # Pinning.

    def register(self, address: int, size: int) -> bool:
        """Pins memory of this process. False if somebody else has done it already; Refused if it cannot be done."""
        if self._driver is None:
            self._driver = _Driver(self.device.index)
        return self._driver.register(address, size)

    def unregister(self, address: int) -> None:
        """Ends that, before the memory is unmapped. It does not raise: after an error of the device nothing copies."""
        if self._driver is not None:
            self._driver.unregister(address)


class _Driver:
    """The driver's library, in the context that torch uses: the primary one of its device."""

    def __init__(self, number: int) -> None:
        try:
            self._cuda = ctypes.CDLL(LIBRARY)
            device, context = ctypes.c_int(), ctypes.c_void_p()
            self._must("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number))
            self._must("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        except (OSError, AttributeError) as error:  # no such library, or one without these functions
            raise Refused(str(error)) from error
        self._context = context

    def register(self, address: int, size: int) -> bool:
        with self._within():
            call = self._cuda.cuMemHostRegister_v2
            failed = int(call(ctypes.c_void_p(address), ctypes.c_size_t(size), ctypes.c_uint(_PORTABLE)))
        if failed and failed != _ALREADY:
            raise Refused(f"cuMemHostRegister: {self._text(failed)}")
        return not failed

    def unregister(self, address: int) -> None:
        with self._within():
            self._cuda.cuMemHostUnregister(ctypes.c_void_p(address))

    @contextmanager
    def _within(self) -> Iterator[None]:
        """Any thread may call next(), also one in which torch has not been used yet."""
        self._must("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))

    def _must(self, name: str, *given: Any) -> None:
        if failed := int(getattr(self._cuda, name)(*given)):
            raise Refused(f"{name}: {self._text(failed)}")

    def _text(self, result: int) -> str:
        name = ctypes.c_char_p()
        self._cuda.cuGetErrorName(ctypes.c_int(result), ctypes.byref(name))
        return name.value.decode() if name.value else f"error {result}"


def lacking(number: int | None) -> tuple[str, str] | None:
    """Why torch cannot use this device, or any for None, and what to do; None: it can."""
    import torch

    if not torch.cuda.is_available():
        if torch.version.cuda is None:
            return f"torch {torch.__version__} is built without CUDA", "install a torch with CUDA, or leave device out"
        return "torch sees no CUDA device here", "look at what nvidia-smi and CUDA_VISIBLE_DEVICES say, or leave it out"
    there = torch.cuda.device_count()
    if number is None or number < there:
        return None
    names = ", ".join(f"cuda:{n} ({torch.cuda.get_device_name(n)})" for n in range(there))
    return f"there is no device {number}", f"these are here: {names}"


def current() -> int:
    """The number of torch's current device."""
    import torch

    return int(torch.cuda.current_device())


def another_ranks(number: int) -> int | None:
    """The device that LOCAL_RANK speaks for, if it is another one that exists."""
    import torch

    rank = os.environ.get("LOCAL_RANK", "")
    if not rank.isdecimal() or int(rank) == number or int(rank) >= torch.cuda.device_count():
        return None
    return int(rank)

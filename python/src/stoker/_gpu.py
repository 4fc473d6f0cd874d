"""How busy the GPU of this process is, according to the driver's own library (NVML), through ctypes.

Without a GPU or driver, or with an old driver, there is no figure and no message. NVML reports the share of a sampling
period of the driver (a second or less) in which any kernel of any process ran on the device.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from typing import Any

LIBRARY = "libnvidia-ml.so.1"


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Gpu:
    """One device. Safe for concurrent use."""

    def __init__(self, library: Any, device: ctypes.c_void_p) -> None:
        self._library = library
        self._device = device

    def utilization(self) -> float | None:
        """The share of the last sampling period in which it was busy, 0 to 1; None if the driver does not say."""
        found = _Utilization()
        if self._library.nvmlDeviceGetUtilizationRates(self._device, ctypes.byref(found)) != 0:
            return None
        return min(float(found.gpu) / 100, 1.0)


def find(library: str = LIBRARY) -> Gpu | None:
    """The device that this process uses: torch's current one, else that of its local rank, else the first."""
    try:
        nvml = ctypes.CDLL(library)
        if nvml.nvmlInit_v2() != 0:
            return None
        device = ctypes.c_void_p()
        name = _visible(_position())
        if name.isdecimal():
            failed = nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(name)), ctypes.byref(device))
        else:
            failed = nvml.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(device))
    except (OSError, AttributeError):  # no such library, or one without these functions
        return None
    return None if failed else Gpu(nvml, device)


def _position() -> int:
    """Which of the devices visible to this process under CUDA."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return int(cuda.current_device())
    rank = os.environ.get("LOCAL_RANK", "")
    return int(rank) if rank.isdecimal() else 0


def _visible(position: int) -> str:
    """The number or UUID of a device, from its position in CUDA_VISIBLE_DEVICES."""
    shown = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if not shown:
        return str(position)
    return shown[min(position, len(shown) - 1)]


class Watch:
    """The device's utilisation over time, sampled at most once a second by any thread that calls."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._sought = False
        self._gpu: Gpu | None = None
        self._looked = 0
        self._last: float | None = None
        self._sum = 0.0
        self._looks = 0

    def look(self, now: int) -> None:
        """Takes a figure, unless one was taken less than a second ago (CLOCK_MONOTONIC, ns)."""
        if now - self._looked < 1_000_000_000 or not self._lock.acquire(blocking=False):
            return
        try:
            self._looked = now
            if not self._sought:
                self._sought, self._gpu = True, find(self._library)
            if self._gpu is not None and (found := self._gpu.utilization()) is not None:
                self._last = found
                self._sum += found
                self._looks += 1
        finally:
            self._lock.release()

    def sums(self) -> tuple[float, int]:
        """The sum and the number of all figures, for ``between``."""
        return self._sum, self._looks

    def between(self, before: tuple[float, int], after: tuple[float, int]) -> float | None:
        """The mean of the figures between two moments, or the last one if there are none; None without a GPU."""
        looks = after[1] - before[1]
        return (after[0] - before[0]) / looks if looks else self._last

    def told(self) -> dict[str, float] | None:
        """The last figure and the mean of all; None without a GPU."""
        if self._last is None:
            return None
        return {"utilization": self._last, "utilization_mean": self._sum / max(self._looks, 1)}

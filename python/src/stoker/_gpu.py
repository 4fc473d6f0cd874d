"""How busy the GPU of this process is, by the driver's own library (NVML), through ctypes.

Where there is no GPU, no driver or an old one, there is no figure, and nothing is said. NVML counts the share of a
driver's sampling period (a second or less) in which any kernel ran on the device, of whatever process.
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
        """The share of the last sampling period in which it worked, 0 to 1; None where the driver does not say."""
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
    except (OSError, AttributeError):  # no such library; one without these functions
        return None
    return None if failed else Gpu(nvml, device)


def _position() -> int:
    """Which of the devices that CUDA shows to this process."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return int(cuda.current_device())
    rank = os.environ.get("LOCAL_RANK", "")
    return int(rank) if rank.isdecimal() else 0


def _visible(position: int) -> str:
    """The number or UUID of a device, from its place in CUDA_VISIBLE_DEVICES."""
    shown = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    if not shown:
        return str(position)
    return shown[min(position, len(shown) - 1)]


class Watch:
    """The device's utilisation over time, looked at no more than once a second, by whoever passes by."""

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
        """Takes a figure, unless one was taken less than a second (of CLOCK_MONOTONIC, in ns) ago."""
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
        """All figures and how many they are, for ``between``."""
        return self._sum, self._looks

    def between(self, before: tuple[float, int], after: tuple[float, int]) -> float | None:
        """The mean of the figures between two moments, the last one where none lies there; None without a GPU."""
        looks = after[1] - before[1]
        return (after[0] - before[0]) / looks if looks else self._last

    def told(self) -> dict[str, float] | None:
        """The last figure and the mean of all; None without a GPU."""
        if self._last is None:
            return None
        return {"utilization": self._last, "utilization_mean": self._sum / max(self._looks, 1)}

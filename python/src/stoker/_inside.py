"""Prepares a process to be a worker: its signals, its end, the threads of libraries, torch's worker info."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import select
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

POLL_SECONDS = 1.0  # how often a kernel without pidfd_open is asked whether a process is alive
# By this the engine asks a worker for its Python stack. A real-time signal: user's code may use SIGUSR1 and SIGUSR2.
STACK_SIGNAL = signal.SIGRTMAX - 2
_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
# What a terminal or a job manager sends to the whole group: the trainer may be saving. Job managers announce the end of
# a job with SIGUSR1 or SIGUSR2, which would end a worker without a handler.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def settle(trainer: int, engine: int, direct: bool) -> None:
    """Makes this process a worker.

    ``direct`` if the trainer's main thread started it: the kernel sends the parent-death signal when the thread that
    started a process ends.
    """
    gc.freeze()  # collections do not touch the trainer's objects, and so do not copy its pages
    _signals()
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_NAME, b"stoker_worker", 0, 0, 0)
        if direct and os.getppid() == trainer:
            libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != trainer:
                os._exit(0)
    watched = [pid for pid in (trainer, engine) if pid]
    threading.Thread(target=_watch, args=(watched,), name="stoker-watch", daemon=True).start()


def answers(file: int) -> None:
    """From now on STACK_SIGNAL writes the Python stack to this descriptor."""
    with suppress(OSError, ValueError):
        faulthandler.register(STACK_SIGNAL, file=file, all_threads=True, chain=False)


def _signals() -> None:
    if threading.current_thread() is not threading.main_thread():
        return
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        elif callable(handler):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _watch(pids: list[int]) -> None:
    """Ends this process when one of these has ended. A closed socket does not tell: a forked process may hold the
    other end."""
    poll = select.poll()
    unseen = []
    for pid in pids:
        try:
            poll.register(os.pidfd_open(pid), select.POLLIN)
        except ProcessLookupError:
            os._exit(0)
        except (OSError, AttributeError):
            unseen.append((pid, _born(pid)))
    while True:
        if poll.poll(None if not unseen else POLL_SECONDS * 1000):
            os._exit(0)
        if any(born is None or _born(pid) != born for pid, born in unseen):
            os._exit(0)


def _born(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


class Libraries:
    """One thread for each library, and torch's view of a worker, as soon as they are loaded: ``look()`` is called
    before work, because a dataset may import them late."""

    def __init__(self, worker: int, workers: int, seed: int, dataset: Any) -> None:
        self._info = {"id": worker, "num_workers": workers, "seed": seed, "dataset": dataset}
        self._modules = -1
        self._wanted = {"torch": self._torch, "torch.utils.data": self._data, "cv2": self._cv2}

    def look(self) -> None:
        if len(sys.modules) == self._modules:
            return
        for name, act in list(self._wanted.items()):
            module = sys.modules.get(name)
            # A module is in the table before it is complete; another thread may be importing it.
            spec = getattr(module, "__spec__", None)
            if module is not None and not getattr(spec, "_initializing", False):
                del self._wanted[name]
                act(module)
        self._modules = len(sys.modules)

    def reseed(self, seed: int) -> None:
        """Another seed in torch's view."""
        self._info["seed"] = seed
        if "torch.utils.data" not in self._wanted:
            self._data(sys.modules["torch.utils.data"])

    def _torch(self, torch: Any) -> None:
        torch.set_num_threads(1)

    def _cv2(self, cv2: Any) -> None:
        with suppress(Exception):
            cv2.setNumThreads(0)  # 0: in the calling thread
            cv2.ocl.setUseOpenCL(False)

    def _data(self, data: Any) -> None:
        from torch.utils.data._utils import worker

        worker._worker_info = worker.WorkerInfo(**self._info)
        plain_collate()


def plain_collate() -> None:
    """Lets torch's default_collate use plain memory in this process.

    With a worker info set it puts each tensor into torch's own shared memory: an extra copy, a descriptor each, and a
    bus error where /dev/shm is small. The code of the function is replaced, not its entry in default_collate_fn_map:
    a user's collate_fn may have imported it.
    """
    from torch.utils.data._utils import collate

    theirs: Any = getattr(collate, "collate_tensor_fn", None)
    if theirs is None or hasattr(theirs, "of_torch") or theirs.__code__.co_freevars:
        return
    original = type(theirs)(theirs.__code__, theirs.__globals__, theirs.__name__, theirs.__defaults__)
    original.__kwdefaults__ = theirs.__kwdefaults__
    theirs.of_torch = original
    theirs.__code__ = _collate_tensor_fn.__code__


def _collate_tensor_fn(batch, *, collate_fn_map=None):  # type: ignore[no-untyped-def]
    # Runs with the globals of torch.utils.data._utils.collate.
    elem = batch[0]
    if elem.is_nested or elem.layout is not torch.strided:  # type: ignore[name-defined]  # noqa: F821
        return collate_tensor_fn.of_torch(batch, collate_fn_map=collate_fn_map)  # type: ignore[name-defined]  # noqa: F821
    return torch.stack(batch, 0)  # type: ignore[name-defined]  # noqa: F821

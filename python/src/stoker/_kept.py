"""Loaders that are tried out, and then continue as if nothing had been taken from them."""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections.abc import Iterator
from typing import Any

from ._loader import DataLoader


def _torchs() -> tuple[type, ...]:
    data = sys.modules.get("torch.utils.data")
    return (data.DataLoader,) if data is not None else ()


@contextlib.contextmanager
def kept(loader: Any) -> Iterator[Any]:
    """The loader to run, or a copy of it; afterwards its position and random numbers are restored."""
    with _dice(loader):
        if isinstance(loader, DataLoader):
            position = copy.copy(loader._at)
            sampler = loader._sampler if loader._native_sampler else None
            mark = None if sampler is None else sampler._mark()
            with _epoch_kept(None if loader._native_sampler else loader._settings.ordering.sampler):
                try:
                    yield loader
                finally:
                    loader._at = position
                    if sampler is not None:
                        sampler._return(mark)
            return
        if not isinstance(loader, _torchs()):
            yield loader
            return
        twin = copy.copy(loader)
        twin.__dict__["_iterator"] = None  # persistent workers belong to the original
        with _epoch_kept(getattr(loader, "sampler", None)), _epoch_kept(getattr(loader, "batch_sampler", None)):
            yield twin


@contextlib.contextmanager
def _epoch_kept(sampler: Any) -> Iterator[None]:
    epoch = getattr(sampler, "epoch", None)
    try:
        yield
    finally:
        if isinstance(epoch, int) and callable(decide := getattr(sampler, "set_epoch", None)):
            decide(epoch)


@contextlib.contextmanager
def _dice(loader: Any) -> Iterator[None]:
    """The random number generators of this process, and those of the loader and its samplers."""
    batches = getattr(loader, "batch_sampler", None)
    holders = (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
    own: list[Any] = [g for one in holders if hasattr(g := getattr(one, "generator", None), "get_state")]
    states = [g.get_state() for g in own]
    python = random.getstate()
    numpy: Any = sys.modules.get("numpy")
    torch: Any = sys.modules.get("torch")
    numpys = numpy.random.get_state() if numpy is not None else None
    torchs = torch.get_rng_state() if torch is not None else None
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(numpys)
        if torch is not None:
            torch.set_rng_state(torchs)
        for generator, state in zip(own, states, strict=True):
            generator.set_state(state)

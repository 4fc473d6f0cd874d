"""static_buffers=True: every batch in the same tensors, at the same addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from forms import thinned
from pretend import Device, device
from test_device import BIG, Make, arrays, make, parts

import stoker

__all__ = ["arrays", "device", "make"]


@thinned
@pytest.mark.parametrize("where", ["cpu", "cuda"])
def test_static_buffers(device: Device, make: Make, where: str) -> None:
    with make(drop_last=True) as plain, make(drop_last=True, device=where, static_buffers=True) as loader:
        addresses = set()
        for _ in range(3):
            for here, there in zip(plain, loader, strict=True):
                # To torch the device is the CPU, which copies at once: what arrives there is not looked at.
                if where == "cpu":
                    assert torch.equal(parts(here)[0], parts(there)[0])
                    assert torch.equal(parts(here)[1], parts(there)[1])
                assert there.ids.tolist() == here.ids.tolist()
                assert type(there) is type(here)
                facts: Any = there if hasattr(there, "valid") else loader.facts
                assert facts.valid.tolist() == [True] * 8
                addresses.add(tuple(part.data_ptr() for part in (*parts(there), facts.valid)))
                device.drain()
        assert len(addresses) == 1
        batches = iter(loader)
        next(batches)
        with pytest.raises(stoker.ConfigError, match="another pass"):
            next(iter(loader))
        device.drain()
        del batches
        next(iter(loader))
        device.drain()


def test_static_buffers_need_full_dense_batches(folder: Path, tmp_path: Path) -> None:
    dataset = stoker.ImageFolder(folder, BIG)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"device": "cpu"}, "tail='fill'"),
        ({"device": "cpu", "tail": "pad"}, "tail is 'pad'"),
        ({"tail": "fill"}, "needs device="),
    ]
    for keywords, text in refused:
        with pytest.raises(stoker.ConfigError, match=text):
            stoker.DataLoader(dataset, 8, static_buffers=True, **keywords)
    np.arange(1, 101, dtype=np.uint8).tofile(tmp_path / "a.bin")
    data = stoker.TokenDataset(tmp_path / "a.bin", documents=True, dtype="uint8", eos=50, out=None)
    with (
        stoker.DataLoader(data, 1, device="cpu", static_buffers=True, drop_last=True) as loader,
        pytest.raises(stoker.ConfigError, match="ragged"),
    ):
        next(iter(loader))


def test_filled_rows_are_told_in_the_same_memory(folder: Path) -> None:
    """A graph that leaves them out of its loss reads ``valid``."""
    dataset = stoker.ImageFolder(folder, BIG)
    with stoker.DataLoader(dataset, 8, tail="fill", device="cpu", static_buffers=True) as loader:
        found = [(batch.valid.data_ptr(), batch.valid.tolist()) for batch in loader]
    assert len({address for address, _ in found}) == 1
    assert found[0][1] == [True] * 8
    assert sum(sum(valid) for _, valid in found) == len(dataset) < 8 * len(found)


def test_positions_of_packed_rows_are_the_same_tensor(tmp_path: Path) -> None:
    """The number of samples differs from batch to batch there, and so do the shapes of valid and cu_seqlens."""
    (np.arange(400) % 9).astype(np.uint8).tofile(tmp_path / "a.bin")
    data = stoker.TokenDataset(tmp_path / "a.bin", documents=True, dtype="uint8", eos=8, out=None)
    keywords: dict[str, Any] = {"lengths": [9] * 44 + [4], "pack": 24, "tail": "fill"}
    with (
        stoker.DataLoader(data, 2, **keywords) as plain,
        stoker.DataLoader(data, 2, device="cpu", static_buffers=True, **keywords) as loader,
    ):
        addresses = set()
        for here, there in zip(plain, loader, strict=True):
            for name in ("position_ids", "cu_seqlens", "valid"):
                assert torch.equal(getattr(here, name), getattr(there, name))
            addresses.add(there.position_ids.data_ptr())
    assert len(addresses) == 1


def test_static_buffers_are_of_batches(folder: Path) -> None:
    with pytest.raises(stoker.ConfigError, match="there are none"):
        stoker.DataLoader(stoker.ImageFolder(folder), None, device="cpu", static_buffers=True)

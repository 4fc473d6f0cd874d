"""What test_jax_devices.py runs in a process of its own, with eight devices of JAX."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sharded import Rows, equal, jax, jnp, over

import stoker
from stoker import _device
from stoker import transforms as T

held: list[Any] = []  # until the process ends


def on(array: Any, device: Any) -> None:
    assert isinstance(array, jax.Array)
    assert array.devices() == {device}


def returned(loader: Any) -> None:
    until = time.monotonic() + 60
    while loader.stats()["leased"]:
        _device.settle()
        assert time.monotonic() < until, "slots are not returned"
        time.sleep(0.01)


def devices(folder: str, shards: str) -> None:
    photos = stoker.ImageFolder(folder, T.Compose([T.RandomCrop(96, pad_if_needed=True), T.RandomHorizontalFlip()]))
    keywords: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 1}
    third = jax.devices()[3]
    for given, device, layout in (("cpu", jax.devices()[0], "nchw"), ("cpu:3", third, "nhwc"), (third, third, "nchw")):
        plain = stoker.DataLoader(photos, output="numpy", layout=layout, **keywords)
        expected = [[(batch, plain.state_dict()) for batch in plain] for _ in range(2)]
        plain.close()
        loader = stoker.DataLoader(photos, output="jax", device=given, layout=layout, **keywords)
        kept = []
        for epoch in range(2):
            for (b, state), a in zip(expected[epoch], loader, strict=True):
                on(a[0], device)
                on(a[1], device)
                on(a.valid, device)
                assert type(a.ids) is np.ndarray
                assert a.ids.tolist() == b.ids.tolist()
                assert (a.epoch, a.step, a.bad) == (b.epoch, b.step, b.bad)
                assert loader.state_dict() == state  # what is ahead does not count
                equal(a[0], b[0])
                equal(a[1], b[1].astype(np.int32))
                kept.append((a, b))
        returned(loader)  # although all batches are kept
        for a, b in kept:
            equal(a[0], b[0])
            equal(a.valid, b.valid)
        told = loader.stats()["device"]
        assert told["copies"] == 2 * len(expected[0])
        assert told["device"] == f"cpu:{device.id}"
        assert told["pinned_slots"] is False
        # States go both ways, and copies and pickles have the device.
        rest = [batch.ids.tolist() for batch, _ in expected[0][2:]]
        for other in (
            loader,
            pickle.loads(
                pickle.dumps(
                    stoker.DataLoader(
                        stoker.ImageFolder(folder, photos.transform),
                        output="jax",
                        device=given,
                        layout=layout,
                        **keywords,
                    )
                )
            ),
        ):
            other.load_state_dict(expected[0][1][1])
            found = list(other)
            assert [batch.ids.tolist() for batch in found] == rest
            on(found[0][0], device)
        for _ in loader:  # and out again
            break
        for batch in loader:
            equal(batch[0] + 0, np.asarray(batch[0]))
        loader.close()
    kinds(shards, third)
    donated(photos, third)
    print("devices")


def kinds(shards: str, device: Any) -> None:
    dicts = stoker.WebDataset(shards).decode("torchrgb8")
    with stoker.DataLoader(dicts, 8, output="jax", device=device) as loader:
        for batch in loader:
            on(batch["jpg"], device)
            on(batch["cls"], device)
            assert all(type(text) is str for text in batch["txt"])
    for workers, how in ((0, None), (2, None)):
        own = stoker.DataLoader(
            Rows(), 8, output="jax", device=device, num_workers=workers, multiprocessing_context=how
        )
        for batch in own:
            equal(batch["x"], np.repeat(batch.ids.astype(np.float32), 256 * 64).reshape(-1, 256, 64))
            on(batch["x"], device)
            on(batch["y"], device)
            assert own.facts is not None
            on(own.facts.valid, device)
            assert batch["name"] == [f"row {i}" for i in batch.ids]
    rows = stoker.DataLoader([np.full(4, i) for i in range(16)], 8, output="jax", device=device)
    for at, batch in enumerate(rows):
        on(batch, device)
        assert batch.tolist() == [[i] * 4 for i in range(8 * at, 8 * at + 8)]


def donated(photos: Any, device: Any) -> None:
    """A computation takes the memory of an array; nobody else's memory changes."""
    changed = jax.jit(lambda images: images + 1, donate_argnums=0)
    sums = jax.jit(lambda images: images.astype(jnp.int32).sum((1, 2, 3)))
    settings: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3}
    with stoker.DataLoader(photos, output="numpy", **settings) as loader:
        expected = [images.astype(np.int64).sum((1, 2, 3)).tolist() for images, _ in loader]
    with stoker.DataLoader(photos, output="jax", device=device, **settings) as loader:
        found = []
        for images, _ in loader:
            found.append(sums(images))
            changed(images)
            assert images.is_deleted()
        assert [one.tolist() for one in found] == expected


def shardings(folder: str) -> None:
    photos = stoker.ImageFolder(folder, T.RandomResizedCrop(128))
    keywords: dict[str, Any] = {"batch_size": 8, "shuffle": True, "seed": 1, "layout": "nhwc"}
    for sharding in (over("data"), over("data", None, "model", shape=(4, 2)), over(shape=(4, 2))):
        for ahead in (1, 3):
            with (
                stoker.DataLoader(photos, output="numpy", tail="fill", **keywords) as theirs,
                stoker.DataLoader(photos, output="jax", sharding=sharding, device_prefetch=ahead, **keywords) as ours,
            ):
                kept, most = [], 0
                batches: Any = iter(ours)
                for b in theirs:
                    a = next(batches)
                    assert ours.state_dict() == theirs.state_dict()
                    assert len(batches._pass._ahead) <= ahead
                    most = max(most, len(batches._pass._ahead))
                    assert a[0].sharding.is_equivalent_to(sharding, 4)
                    assert type(a.valid) is type(a.ids) is np.ndarray
                    kept.append((a, b, a.valid.copy()))
                    time.sleep(0.03 if most else 0.3)  # until the engine has made one ahead, on a busy machine too
                assert next(batches, None) is None
                assert most >= 1
                returned(ours)
                for a, b, valid in kept:
                    equal(a[0], b[0])
                    equal(a[1], b[1].astype(np.int32))
                    assert a.ids.tolist() == b.ids.tolist()
                    assert a.valid.tolist() == b.valid.tolist() == valid.tolist()
                assert "and 7 more" in ours.stats()["device"]["device"]
    print("shardings")


def ends(folder: str) -> None:
    """JAX is started by the first loader: from then on, nothing may be forked."""
    own = stoker.DataLoader(Rows(), 8, num_workers=1, output="jax", device="cpu")
    hands = own._settings.hands
    assert hands is not None
    assert hands.context.get_start_method() == "forkserver"
    photos = stoker.ImageFolder(folder, T.RandomResizedCrop(128))
    held.append(iter(stoker.DataLoader(photos, 8, output="jax", device="cpu:1")))
    next(held[0])
    print("ends")


def refused(folder: str) -> None:
    photos = stoker.ImageFolder(folder, T.CenterCrop(32))
    one: Any = jax.devices()[1]

    def made(**keywords: Any) -> Any:
        return stoker.DataLoader(photos, 8, **{"output": "jax", **keywords})

    cases: list[Callable[[], Any]] = [
        lambda: made(device="cuda"),
        lambda: made(device="cpu:9"),
        lambda: made(device="vulkan"),
        lambda: made(device=0),
        lambda: made(device=torch.device("cpu")),
        lambda: made(device="cpu", sharding=over("data")),
        lambda: made(device=one, output="torch"),
        lambda: made(device=one, output="numpy"),
        lambda: made(device_prefetch=2),
        lambda: made(device="cpu", device_prefetch=0),
        lambda: made(device="cpu", static_buffers=True, drop_last=True),
        lambda: made(sharding=over("data"), static_buffers=True, drop_last=True),
        lambda: stoker.PrefetchLoader(made(sharding=over("data")), "cpu"),
    ]
    for function in cases:
        try:
            function()
        except stoker.ConfigError as error:
            print(json.dumps(str(error)))

"""What test_sharding.py runs in processes of their own, with eight devices of JAX: ``sharded.py CASE FOLDER ...``.

JAX has threads, so it must not be in a process that forks, and the number of its devices is set before it is imported.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch

import stoker
from stoker import transforms as T

DEVICES = 8 // int(os.environ.get("PROCESSES", "1"))
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["STOKER_POISON"] = "1"  # what refers to a slot that was returned has other pixels

jax: Any = import_module("jax")
jnp: Any = import_module("jax.numpy")
Mesh, NamedSharding, PartitionSpec = jax.sharding.Mesh, jax.sharding.NamedSharding, jax.sharding.PartitionSpec


def mesh(*shape: int) -> Any:
    return Mesh(np.array(jax.devices()).reshape(shape), ("data", "model")[: len(shape)])


def over(*axes: Any, shape: tuple[int, ...] = (8,)) -> Any:
    return NamedSharding(mesh(*shape), PartitionSpec(*axes))


def equal(ours: Any, theirs: Any) -> None:
    assert isinstance(ours, jax.Array)
    assert ours.shape == theirs.shape
    assert np.array_equal(np.asarray(ours), theirs)


class Stream(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(range(20))


class Rows(torch.utils.data.Dataset[Any]):
    """A dataset of the user's own."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Any:
        return {"x": np.full((256, 64), index, np.float32), "y": index, "name": f"row {index}"}


def global_arrays(folder: str) -> None:
    photos = stoker.ImageFolder(folder, T.Compose([T.RandomCrop(48), T.RandomHorizontalFlip()]))
    for sharding, parts in (
        (over("data"), [1] * 8),
        (over("data", shape=(4, 2)), [2] * 8),
        (over(("data", "model"), shape=(4, 2)), [1] * 8),
        (over(shape=(4, 2)), [8] * 8),  # replicated
    ):
        with (
            stoker.DataLoader(photos, 8, True, seed=1, output="jax", layout="nhwc", sharding=sharding) as ours,
            stoker.DataLoader(photos, 8, True, seed=1, output="numpy", layout="nhwc", tail="fill") as theirs,
        ):
            steps = 0
            for a, b in zip(ours, theirs, strict=True):
                equal(a[0], b[0])
                equal(a[1], b[1].astype(np.int32))  # as JAX has integers
                for array in a:
                    assert array.sharding == sharding
                    assert [shard.data.shape[0] for shard in array.addressable_shards] == parts
                assert type(a.ids) is type(a.valid) is np.ndarray
                assert a.ids.tolist() == b.ids.tolist()
                assert a.valid.tolist() == b.valid.tolist()
                steps += 1
            assert steps == len(ours) == 7
            assert not a.valid.all()  # the last batch was filled up
    print("global arrays")


def kinds(folder: str, shards: str) -> None:
    floats = stoker.ImageFolder(folder, T.Compose([T.CenterCrop(32), T.ToTensor()]))
    weights = jax.device_put(jnp.ones((3, 32, 32)), over(shape=(4, 2)))

    def loss(weights: Any, batch: Any) -> Any:
        images, labels = batch
        return (images * weights).sum(), labels.sum()

    step = jax.jit(loss)

    # Pictures are split over two axes, labels over the first of them.
    sharding = over("data", None, "model", shape=(4, 2))
    with (
        stoker.DataLoader(floats, 8, output="jax", sharding=sharding) as ours,
        stoker.DataLoader(floats, 8, output="numpy", tail="fill") as theirs,
    ):
        for a, b in zip(ours, theirs, strict=True):
            equal(a[0], b[0])
            assert {shard.data.shape for shard in a[0].addressable_shards} == {(2, 3, 16, 32)}
            assert {shard.data.shape for shard in a[1].addressable_shards} == {(2,)}
            found, labels = step(weights, a)
            assert np.isclose(found, b[0].sum(), rtol=1e-4)
            assert int(labels) == b[1].sum()
    dicts = stoker.WebDataset(shards).decode("torchrgb8")
    for batch in stoker.DataLoader(dicts, 8, output="jax", sharding=over("data")):
        assert batch["jpg"].sharding == batch["cls"].sharding == over("data")
        assert batch["jpg"].shape == (8, 3, 64, 80)
        assert [type(text) for text in batch["txt"]] == [str] * 8
    for workers, how in ((0, None), (2, "forkserver")):
        own = stoker.DataLoader(
            Rows(), 8, output="jax", sharding=over("data"), num_workers=workers, multiprocessing_context=how
        )
        for at, batch in enumerate(own):
            ids = [i % 20 for i in range(8 * at, 8 * at + 8)]
            assert batch.ids.tolist() == ids or not batch.valid.all()
            equal(batch["x"], np.repeat(batch.ids.astype(np.float32), 256 * 64).reshape(8, 256, 64))
            assert np.asarray(batch["y"]).tolist() == batch.ids.tolist()
            assert batch["x"].sharding == batch["y"].sharding == over("data")
            assert batch["name"] == [f"row {i}" for i in batch.ids]
        assert at == 2
    rows = stoker.DataLoader([np.full(4, i) for i in range(16)], 8, output="jax", sharding=over("data"))
    assert [np.asarray(batch).tolist() for batch in rows] == [[[i] * 4 for i in range(j, j + 8)] for j in (0, 8)]
    print("kinds")


def memory(folder: str) -> None:
    photos = stoker.ImageFolder(folder, T.RandomResizedCrop(128))
    settings: dict[str, Any] = {"batch_size": 8, "shuffle": True, "layout": "nhwc", "seed": 3}
    with stoker.DataLoader(photos, output="numpy", tail="fill", **settings) as loader:
        expected = [images.astype(np.int64).sum((1, 2, 3)).tolist() for _ in range(3) for images, _ in loader]
    size = 8 * 128 * 128 * 3
    changed = jax.jit(lambda images: images + 1, donate_argnums=0)
    sums = jax.jit(lambda images: images.astype(jnp.int32).sum((1, 2, 3)))
    for sharding in (None, over("data")):
        # Two slots, which is less than what the loop is ahead of the computations; and as many as it wants.
        for limit in ("1MiB", None):
            more: dict[str, Any] = {} if sharding is None else {"sharding": sharding}
            loader = stoker.DataLoader(photos, output="jax", tail="fill", memory=limit, **more, **settings)
            found, views = [], 0
            for _ in range(3):
                for images, _ in loader:
                    starts = [shard.data.unsafe_buffer_pointer() for shard in images.addressable_shards]
                    views += starts == [starts[0] + i * size // len(starts) for i in range(len(starts))]
                    found.append(sums(images))
                    changed(images)  # its memory may be used again: not that of the slot
                    assert images.is_deleted()
            assert [one.tolist() for one in found] == expected
            # With a sharding JAX refers to one copy of the batch: a shard of its own would be anywhere.
            assert sharding is None or views == len(expected)
            if limit is None:
                loader.set_epoch(0)
                kept = [images for _ in range(3) for images, _ in loader]
                until = time.monotonic() + 60  # JAX may still have slots of the passes before
                while loader.stats()["leased"] >= 8 and time.monotonic() < until:
                    time.sleep(0.05)
                assert loader.stats()["leased"] < 8  # the others are copies
                loader.close()
                assert [sums(images).tolist() for images in kept] == expected
    print("memory")


def refused(folder: str) -> None:
    photos = stoker.ImageFolder(folder, T.CenterCrop(32))
    data = over("data")
    words = stoker.TokenDataset(os.environ["TOKENS"], documents=True, eos=0)

    def collate(samples: Any) -> Any:
        return samples

    def first(dataset: Any, batch_size: Any = 8, **keywords: Any) -> None:
        next(iter(stoker.DataLoader(dataset, batch_size, **{"output": "jax", "sharding": data, **keywords})))

    cases: list[Callable[[], None]] = [
        lambda: first(photos, 6),
        lambda: first(photos, 1, global_batch_size=12),
        lambda: first(photos, None),
        lambda: first(photos, output="numpy"),
        lambda: first(photos, sharding="data"),
        lambda: first(photos, sharding=PartitionSpec("data")),
        lambda: first(photos, tail="pad"),
        lambda: first(Rows(), collate_fn=collate),
        lambda: first(photos, 1, batch_sampler=[[0, 1, 2]]),
        lambda: first(photos, tokens=100, lengths=[1] * 50),
        lambda: first(Stream()),
        lambda: first(words),
        lambda: first(photos, sharding=over("data", ("model",), shape=(2, 4)), layout="nchw"),
    ]
    for function in cases:
        try:
            function()
        except stoker.ConfigError as error:
            print(json.dumps(str(error)))


def ranks(folder: str, port: str, process: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, int(process))
    photos = stoker.ImageFolder(folder, T.CenterCrop(32))
    found: dict[str, Any] = {}
    with stoker.DataLoader(photos, 8) as loader:  # nothing says rank and world size but JAX
        found["plain"] = [batch.ids.tolist() for batch in loader]
    devices = np.array(jax.devices())
    for name, sharding in {
        "data": over("data"),
        "model within": over("data", shape=(2, 4)),
        "model across": NamedSharding(Mesh(devices.reshape(2, 4).T, ("data", "model")), PartitionSpec("data")),
        "interleaved": NamedSharding(Mesh(devices.reshape(2, 4).T.reshape(8), ("data",)), PartitionSpec("data")),
        "here": NamedSharding(Mesh(np.array(jax.local_devices()), ("data",)), PartitionSpec("data")),
    }.items():
        with stoker.DataLoader(photos, 8, True, seed=5, output="jax", sharding=sharding) as loader:
            batches = iter(loader)
            batch = next(batches)
            assert len(list(batches)) == len(loader) - 1  # what is on its way is asked whether it has arrived
            images, labels = batch
            rows = {}
            for shard in labels.addressable_shards:
                begin = shard.index[0].start or 0
                rows.update({begin + i: value for i, value in enumerate(shard.data.tolist())})
            found[name] = {
                "ids": batch.ids.tolist(),
                "labels": [photos.targets[i] for i in batch.ids],
                "rows": sorted(rows.items()),
                "shape": [images.shape[0], labels.shape[0]],
                "sum": int(jax.jit(jnp.sum)(labels)),
            }
    mixed = Mesh(
        np.concatenate([devices[:3], devices[4:7], devices[3:4], devices[7:]]).reshape(4, 2), ("data", "model")
    )
    wrong: dict[str, dict[str, Any]] = {
        "given": {"rank": 1 - int(process), "world_size": 2, "sharding": over("data")},
        "mixed": {"sharding": NamedSharding(mixed, PartitionSpec("data"))},
        "share": {"global_batch_size": 12, "sharding": over("data")},
    }
    for name, keywords in wrong.items():
        try:
            stoker.DataLoader(photos, 1 if name == "share" else 8, output="jax", **keywords)
        except stoker.ConfigError as error:
            found[name] = str(error)
    print(json.dumps(found))
    jax.distributed.shutdown()


if __name__ == "__main__":
    case, *arguments = sys.argv[1:]
    globals()[case](*arguments)

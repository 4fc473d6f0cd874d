"""Batches as global arrays of JAX: ``sharding=`` of DataLoader.

read()      the keyword -> Placement
Placement   which rows of the global batch this process has, and global arrays made of them

A sharding says which rows of an array are on which devices, so it also says which processes have different rows: those
that share a piece of the batch axis must load the same samples. Rank and world size follow from that, not from the
number of processes. With a mesh (data=2, model=4) on four processes of two devices, two processes are rank 0.

The rows of the global batch are those of rank 0, then those of rank 1, and so on, if the devices of the mesh are in
the order of their processes; otherwise pieces of them, in the order of the mesh.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _mix
from ._errors import ConfigError, Problems, many
from ._fields import differing

if TYPE_CHECKING:
    from ._client import Opened
    from ._crew import Hands
    from ._spec import Recipe, Settings

_HELP = 'jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))'


class Placement:
    """A sharding, as far as this process is concerned.

    parts   pieces of the batch axis that this process has
    total   pieces of the batch axis
    rank, world   None if all devices are of this process: the sharding says nothing about other processes
    """

    def __init__(self, sharding: Any) -> None:
        self.sharding = sharding
        devices = len(sharding.device_set)
        places = {device: _rows(index, devices) for device, index in _at(sharding, 1, (devices,)).items()}
        self.total = len(set(places.values()))
        of: dict[int, set[tuple[int, int]]] = {}  # the pieces of each process
        for device, place in places.items():
            of.setdefault(device.process_index, set()).add(place)
        here = {device.process_index for device in sharding.addressable_devices}
        if not here:
            raise ConfigError("sharding has no device of this process", hint="make the mesh of jax.devices()")
        mine = of[here.pop()]
        self.parts = len(mine)
        # Where each piece begins, in units of pieces: in the global batch, and in this process's rows.
        each = devices // self.total
        self._pieces = {begin // each: number for number, (begin, _) in enumerate(sorted(mine))}
        self.rank: int | None = None
        self.world: int | None = None
        if not sharding.is_fully_addressable:
            groups = sorted({tuple(sorted(pieces)) for pieces in of.values()})
            if sum(map(len, groups)) != self.total:
                raise ConfigError(
                    "sharding gives some rows of a batch to several processes that do not have the same rows",
                    hint="order the devices of the mesh so that the devices of a process are next to each other",
                )
            if len({len(group) for group in groups}) > 1:
                raise ConfigError("sharding gives more rows to some processes than to others")
            self.rank, self.world = groups.index(tuple(sorted(mine))), len(groups)
        self._plans: dict[tuple[int, ...], tuple[Any, tuple[int, ...], int]] = {}

    def put(self, array: Any) -> Any:
        """The global array of which these rows are this process's. On the CPU it refers to their memory where JAX can,
        which needs pieces that begin at a multiple of 16 bytes or more."""
        import jax

        plan = self._plans.get(array.shape)
        if plan is None:
            plan = self._plans[array.shape] = self._plan(array.shape)
        sharding, shape, each = plan
        pieces = self._pieces

        def rows(index: Any) -> Any:
            begin = pieces[(index[0].start or 0) // each] * each
            at = (slice(begin, begin + each), *index[1:])
            return array[at]

        return jax.make_array_from_callback(shape, sharding, rows)

    def _plan(self, local: tuple[int, ...]) -> tuple[Any, tuple[int, ...], int]:
        """The sharding of arrays of this shape, the shape of the global array, and the rows of a piece."""
        rows = local[0]
        if rows % self.parts:
            raise ConfigError(
                f"a batch of {many(rows, 'row')} cannot be split over {self.parts} devices",
                hint='pass tail="fill" (the default) or drop_last=True, and a sampler whose batches have as many rows',
            )
        each = rows // self.parts
        shape = (each * self.total, *local[1:])
        sharding = _of_rank(self.sharding, len(shape))
        try:
            sharding.shard_shape(shape)
        except ValueError as error:
            raise ConfigError(
                f"an array of shape {shape} cannot be split as sharding says",
                cause=str(error).partition("\n")[0],
                hint="split the batch axis alone: " + _HELP,
            ) from error
        return sharding, shape, max(each, 1)

    def check(self, info: Opened, settings: Settings, fields: Sequence[Mapping[str, Any]]) -> None:
        """ConfigError if batches of an opened loader cannot be placed. ``fields`` are those of its Spec."""
        shared = (self.world or 1) > 1
        differ = differing([field for field in info.fields if shared or field.batch == "ragged"], fields)
        if differ:
            raise ConfigError(
                f"sharding: the length of {', '.join(map(repr, differ))} differs from batch to batch, and so between "
                "processes",
                hint="pad to one length, Field(to=512), or leave it out with select() or to_tuple()",
            )
        size = settings.size
        if self.parts == 1 or size is None or settings.tail != "pad" or not settings.ordering.plain:
            return
        share = -(-info.samples // settings.ranks[1])
        if share % size % self.parts:
            raise ConfigError(
                f"tail='pad' ends an epoch with a batch of {many(share % size, 'row')}, which cannot be split over "
                f"{self.parts} devices",
                hint='pass tail="fill", the default with sharding=, or drop_last=True',
            )


def read(k: Mapping[str, Any], output: str, problems: Problems) -> Placement | None:
    """Reads the keyword ``sharding``."""
    sharding = k["sharding"]
    if sharding is None:
        return None
    if output != "jax":
        problems.add(f"sharding is for arrays of JAX, and output is {output!r}", 'pass output="jax"')
        return None
    known = getattr(sys.modules.get("jax"), "sharding", None)
    if known is None or not isinstance(sharding, known.Sharding):
        problems.add(f"sharding is of type {type(sharding).__name__}", f"give a jax.sharding.Sharding, such as {_HELP}")
        return None
    try:
        return Placement(sharding)
    except ConfigError as error:
        problems.add(error.what, error.hint)
    except ValueError as error:
        problems.add(f"sharding cannot split a batch: {str(error).partition(chr(10))[0]}", f"use {_HELP}")
    return None


def check(
    placement: Placement,
    k: Mapping[str, Any],
    size: int | None,
    recipe: Recipe,
    hands: Hands | None,
    problems: Problems,
) -> None:
    """Adds what cannot be combined with the placement. ``size``: samples of a batch on this rank, if that is known;
    ``hands``: who makes them in Python."""
    size = size or recipe.batch
    if k["batch_size"] is None and size is None and k["batch_sampler"] is None and k["global_batch_size"] is None:
        problems.add("sharding splits batches, and there are none", "give a batch_size")
    elif size is not None and size % placement.parts:
        key = "batch_size" if k["global_batch_size"] is None else "the share of this rank in global_batch_size"
        unit = placement.parts * ((placement.world or 1) if k["global_batch_size"] is not None else 1)
        problems.add(
            f"{key} is {size}, and sharding splits the batch over {placement.parts} devices of this process",
            f"give a multiple of {unit}",
        )
    if k["tokens"] is not None:
        problems.add("tokens= makes batches of different numbers of rows, which sharding cannot split", "use bucket=")
    given = k["rank"], k["world_size"]
    if None not in given and placement.world is not None and given != (placement.rank, placement.world):
        problems.add(
            f"rank is {given[0]!r} in a world of {given[1]!r}, but sharding makes this process rank {placement.rank} "
            f"of {placement.world}",
            "leave rank and world_size out",
        )
    if hands is not None and hands.iterates and not hands.drop and placement.parts > 1:
        problems.add("sharding: the last batch of a dataset that is iterated may be short", "pass drop_last=True")
    if hands is not None and hands.collate is not None:
        problems.add(
            "sharding needs samples of arrays, and collate_fn makes batches of its own",
            "leave collate_fn out, or call jax.make_array_from_process_local_data(sharding, array) in the loop",
        )
    if hands is not None and isinstance(_mix.read(k["batch_transform"], Problems("")), _mix.Mix):
        problems.add("sharding with MixUp and CutMix needs a dataset that the engine reads", "mix in the training step")


def _at(sharding: Any, rank: int, shape: Sequence[int]) -> Mapping[Any, Any]:
    found: Mapping[Any, Any] = _of_rank(sharding, rank).devices_indices_map(tuple(shape))
    return found


def _of_rank(sharding: Any, rank: int) -> Any:
    """The sharding for arrays of so many axes: of a longer PartitionSpec, as many of its first entries. Labels of one
    axis are split as the batch axis of pictures."""
    spec = getattr(sharding, "spec", None)
    if spec is None or len(spec) <= rank:
        return sharding
    return type(sharding)(sharding.mesh, type(spec)(*spec[:rank]), memory_kind=sharding.memory_kind)


def _rows(index: Any, rows: int) -> tuple[int, int]:
    begin, end, _ = index[0].indices(rows)
    return begin, end

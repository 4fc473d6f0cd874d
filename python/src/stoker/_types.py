"""What type checkers know about batches: their types by dataset and output.

A dataset has three: its batches as torch's, as NumPy's, and as JAX's arrays. ``output`` chooses the loader's. At run
time only the names exist, so that torch, NumPy and typing_extensions need not be installed.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

if TYPE_CHECKING:
    import jax
    import torch
    import torch.utils.data
    from numpy import ndarray
    from typing_extensions import TypeVar, TypeVarTuple, Unpack

    from ._batch import Batch, DictBatch, Ragged

    Tensor: TypeAlias = torch.Tensor
    Array: TypeAlias = jax.Array
    Numpy: TypeAlias = ndarray[Any, Any]
    Fields = TypeVarTuple("Fields")
    AnyTuple: TypeAlias = Batch[Unpack[tuple[Any, ...]]]
    Documents: TypeAlias = Batch[Ragged]
    Dict: TypeAlias = DictBatch
    # Datasets of a user's own. Not a protocol: datasets of this package would match it too, and mypy would take their
    # batches for Any. What else has samples is Any, or needs a base class.
    MapStyle: TypeAlias = torch.utils.data.Dataset[Any] | Sequence[Any] | dict[int, Any] | Numpy | Tensor
else:
    Fields, Unpack = None, {None: Any}

    def TypeVar(name: str, default: Any = None) -> Any:
        return typing.TypeVar(name)


# For a dataset: its batches for output "torch", "numpy" and "jax".
T = TypeVar("T", default=Any)
N = TypeVar("N", default=Any)
J = TypeVar("J", default=Any)
# The same for datasets of dicts, unless to_tuple() was called.
TD = TypeVar("TD", default="Dict")
ND = TypeVar("ND", default="Dict")
JD = TypeVar("JD", default="Dict")
# The same for pairs: images and labels, x and y.
TP = TypeVar("TP", default="Batch[Tensor, Tensor]")
NP = TypeVar("NP", default="Batch[Numpy, Numpy]")
JP = TypeVar("JP", default="Batch[Array, Array]")


class Keywords(TypedDict, total=False):
    """The keywords of a DataLoader that do not change the type of its batches."""

    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory_device: str
    in_order: bool
    seeding: str | None
    seed: int | None
    global_batch_size: int | None
    block: int | None
    window: int | None
    streams: int | None
    weights: Sequence[float] | None
    balanced: bool | None
    replacement: bool | None
    num_samples: int | None
    lengths: Sequence[int] | str | None
    bucket: int | None
    tokens: int | None
    pack: int | None
    long: str | None
    length_window: int | None
    rank: int | None
    world_size: int | None
    tail: str | None
    on_bad: str | None
    max_bad: int | None
    max_bad_rate: float | None
    device: Any
    device_prefetch: int | None
    static_buffers: bool | None
    sharding: jax.sharding.Sharding | None
    layout: str | None
    prefetch: int | None
    memory: str | int | None
    max_pixels: int | None
    fetch: Mapping[str, Any] | None
    cache: Any
    entries: Any
    tune: str | None
    native: bool | None
    batch_transform: Any
    device_transform: Any
    decode_device: Any

"""A loader as a tf.data.Dataset.

to_tf()    the dataset
_Stream    what it iterates: arrays of NumPy over the memory of the loader's batches

tf.data takes arrays of NumPy from a generator without a copy if they are contiguous and begin at a multiple of 64
bytes, as large fields do, and keeps them until the tensor is gone. So DLPack saves nothing here: a tensor made by it
would become an array of NumPy again on its way through from_generator, in more time.
"""

from __future__ import annotations

import copy
import importlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from time import monotonic
from typing import Any

from . import _pass
from ._batch import OWNED_BYTES, Ragged
from ._bundle import HELD
from ._errors import ConfigError, ResourceError, many
from ._fields import differing
from ._loader import DataLoader
from ._mix import Changes
from ._views import name_of

_SIGNATURE = "pass output_signature=, with None for what differs: tf.TensorSpec((None, None), tf.int64)"


def to_tf(loader: DataLoader[Any], output_signature: Any = None, *, sample_weight: bool = False) -> Any:
    """A ``tf.data.Dataset`` of the loader's batches, for Keras and loops of TensorFlow's.

    Every iteration of it is the loader's next epoch, as ``iter(loader)`` is. Tuples stay tuples and dicts dicts; lists
    become tuples, ragged fields ``tf.RaggedTensor``, texts and bytes ``tf.string``. Give the loader ``output="numpy"``,
    which costs least, and ``layout="nhwc"``, as TensorFlow has pictures. Large arrays are not copied while only a few
    batches are in use.

    Shapes are those of one batch, which is loaded now and not counted; the batch axis is None if the last batch of an
    epoch may be short. ``output_signature`` says them instead, as for ``from_generator``. The cardinality is known,
    unless the loader's next pass begins in mid-epoch.

    With ``sample_weight=True``, batches of pictures and labels have a third item, float32: 1 for rows that are
    ``valid``, 0 for padding and skipped samples. Keras weights the loss with it, so that each sample counts once.
    An ``output_signature`` has it too.

    ``state_dict()`` of the loader counts what tf.data has taken: what the loop has received, and what a
    ``.prefetch(n)`` after it holds. Files are not shared out to workers again (AutoShardPolicy.OFF).

    Raises ConfigError without TensorFlow, and for batches that are not tensors. What the loader raises while it is
    iterated is in the text of tf.data's error.
    """
    if not isinstance(loader, DataLoader):
        raise ConfigError(
            f"to_tf: the loader is of type {type(loader).__name__}", hint="give stoker.DataLoader(dataset, batch_size)"
        )
    try:
        tf: Any = importlib.import_module("tensorflow")
    except ImportError as error:
        raise ConfigError(
            "to_tf: tensorflow is not installed", cause=str(error), hint="pip install tensorflow, or tensorflow-cpu"
        ) from error
    if loader._settings.placement is not None:
        raise ConfigError("to_tf: sharding makes arrays of JAX", hint='pass output="numpy" without sharding')
    signature = _signature(loader, tf) if output_signature is None else output_signature
    if sample_weight and output_signature is None:
        if type(signature) is not tuple or len(signature) != 2:
            raise ConfigError("to_tf: sample_weight needs batches of two items", hint='use to_tuple("image", "label")')
        signature = (*signature, tf.TensorSpec((loader.batch_size if _whole(loader) else None,), tf.float32))
    number = _number(loader)
    stream = _Stream(loader, signature, number, sample_weight, tf)
    dataset = tf.data.Dataset.from_generator(stream, output_signature=_dense(signature, tf))
    if any(isinstance(leaf, tf.RaggedTensorSpec) for leaf in tf.nest.flatten(signature)):
        several = isinstance(signature, (tuple, list))
        dataset = dataset.map(lambda *given: _packed(signature, given if several else given[0], tf))
    if number is not None:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(number))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    # The engine works ahead; a batch that tf.data takes unasked would make the loader's state one too far.
    options.experimental_optimization.inject_prefetch = False
    return dataset.with_options(options)


class _Stream:
    """Makes the generator of each epoch."""

    def __init__(self, loader: DataLoader[Any], signature: Any, number: int | None, weighs: bool, tf: Any) -> None:
        self._loader = loader
        self._weighs = weighs
        self._signature = signature
        self._number = number
        self._tf = tf
        self._used: list[weakref.ref[Any]] = []  # one array of each batch that tf.data has
        self._copies = False

    def __call__(self) -> Iterator[Any]:
        iterator = iter(self._loader)
        given = 0
        while (batch := self._next(iterator)) is not None:
            yield self._told((*batch[0], _weights(batch[0], iterator)) if self._weighs else batch[0])
            del batch
            given += 1
        if self._number is not None and given != self._number:
            raise ConfigError(
                f"to_tf: the epoch had {many(given, 'batch')}, and its dataset was made for {self._number}",
                hint="call load_state_dict() and skip() before stoker.to_tf(loader), and make a new one after them",
            )

    def _next(self, iterator: Iterator[Any]) -> tuple[Any] | None:
        """The next batch; None at the end. tf.data may hold all the batches that memory allows until the loop has used
        some: they come back, if not within the second after which the engine says so."""
        until = monotonic() + self._loader._settings.deadline
        while True:
            try:
                return (next(iterator),)
            except StopIteration:
                return None
            except ResourceError as error:
                if error.code != "held" or not self._alive() or monotonic() > until:
                    raise
                self._copies = True
                self._tf.numpy_function(int, [], self._tf.int64)  # TensorFlow lets go of arrays in such calls

    def _alive(self) -> int:
        self._used = [one for one in self._used if one() is not None]
        return len(self._used)

    def _told(self, batch: Any) -> Any:
        """The batch as from_generator takes it."""
        own = self._copies or self._alive() >= HELD
        large: list[Any] = []

        def shown(array: Any) -> Any:
            if array.nbytes >= OWNED_BYTES:
                array = array.copy() if own else array
                large.append(array)
            return array

        found = _told(batch, self._signature, shown, "the batch", self._tf)
        if large and not own:
            self._used.append(weakref.ref(max(large, key=lambda array: array.nbytes)))
        return found


# From batches to what tf.data takes. ``name`` says what of a batch it is, for errors.


def _told(value: Any, spec: Any, shown: Callable[[Any], Any], name: str, tf: Any) -> Any:
    """A part of a batch with this signature, as arrays."""
    if isinstance(spec, Mapping):
        if not isinstance(value, Mapping) or not spec.keys() <= value.keys():
            raise _unlike(name, f"a dict with {', '.join(map(repr, spec))}", value)
        return {key: _told(value[key], one, shown, repr(key), tf) for key, one in spec.items()}
    if isinstance(spec, (tuple, list)):
        if not isinstance(value, (tuple, list)) or len(value) != len(spec):
            raise _unlike(name, f"a tuple of {len(spec)}", value)
        inner = [_told(one, its, shown, f"[{at}]", tf) for at, (one, its) in enumerate(zip(value, spec, strict=True))]
        return type(spec)(*inner) if hasattr(spec, "_fields") else tuple(inner)
    if isinstance(spec, tf.RaggedTensorSpec):
        if not isinstance(value, Ragged):
            raise _unlike(name, "ragged", value)
        return shown(_array(value.values)), _array(value.offsets)
    if spec.dtype == tf.string:
        return _texts(value)
    array = _array(value)
    if array.dtype != spec.dtype.as_numpy_dtype or not spec.shape.is_compatible_with(array.shape):
        raise _unlike(name, f"{spec.dtype.name} of the shape {tuple(spec.shape)}", value)
    return shown(array)


def _weights(batch: Any, iterator: Any) -> Any:
    """1 for each row that counts, 0 for the others."""
    facts = batch if hasattr(batch, "valid") else iterator.facts
    return _array(facts.valid).astype("float32")


def _array(value: Any) -> Any:
    import numpy

    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return value if type(value) is numpy.ndarray else numpy.asarray(value)


def _texts(value: Any) -> Any:
    import numpy

    many = isinstance(value, (list, tuple))
    found = numpy.empty(len(value) if many else (), object)
    found[...] = [_text(one) for one in value] if many else _text(value)
    return found


def _text(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _unlike(name: str, expected: str, value: Any) -> ConfigError:
    found = type(value).__name__
    if hasattr(value, "shape"):
        found = f"{str(value.dtype).removeprefix('torch.')} of the shape {tuple(value.shape)}"
    return ConfigError(f"to_tf: {name} is not {expected}, but {found}", hint=_SIGNATURE)


# Signatures.


def _dense(spec: Any, tf: Any) -> Any:
    """The signature of what the generator gives: ragged fields are two arrays, values and offsets."""
    if isinstance(spec, Mapping):
        return {key: _dense(one, tf) for key, one in spec.items()}
    if isinstance(spec, (tuple, list)):
        inner = [_dense(one, tf) for one in spec]
        return type(spec)(*inner) if hasattr(spec, "_fields") else tuple(inner)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.TensorSpec((None, *spec.shape[2:]), spec.dtype), tf.TensorSpec((None,), tf.int64)
    return spec


def _packed(spec: Any, value: Any, tf: Any) -> Any:
    """Tensors of that signature as those of the user's."""
    if isinstance(spec, Mapping):
        return {key: _packed(one, value[key], tf) for key, one in spec.items()}
    if isinstance(spec, (tuple, list)):
        inner = [_packed(one, its, tf) for one, its in zip(spec, value, strict=True)]
        return type(spec)(*inner) if hasattr(spec, "_fields") else tuple(inner)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensor.from_row_splits(*value, validate=False)
    return value


def _signature(loader: DataLoader[Any], tf: Any) -> Any:
    """The signature of a loader's batches, from one of them."""
    batch = _example(loader)
    settings, info = loader._settings, loader._info()
    hands = settings.hands
    order = info.names if hands is None and isinstance(batch, tuple) and len(info.names) == len(batch) else None
    names = differing(info.fields, loader._spec().get("fields", []))
    rows = None if settings.single else loader._size
    whole = _whole(loader)
    made = hands is not None and hands.collate is not None or isinstance(settings.mix, Changes)

    fields = {name_of(field): field for field in info.fields} if hands is None else {}

    def spec(value: Any, name: str, field: str) -> Any:
        kind = getattr(fields.get(field), "kind", "")
        if isinstance(value, Ragged):
            values = _array(value.values)
            lengths = (rows if whole else None, None, *values.shape[1:])
            return tf.RaggedTensorSpec(lengths, tf.as_dtype(values.dtype), ragged_rank=1, row_splits_dtype=tf.int64)
        if isinstance(value, Mapping):
            return {key: spec(one, repr(key), key) for key, one in value.items()}
        if isinstance(value, (str, bytes)):
            return tf.TensorSpec((), tf.string)
        if isinstance(value, list) and value and all(isinstance(one, (str, bytes)) for one in value):
            return tf.TensorSpec((rows if whole else None,), tf.string)
        if isinstance(value, (tuple, list)) and value and kind != "json":
            whose = order if value is batch and order else [field] * len(value)
            inner = [spec(one, f"[{at}]", its) for at, (one, its) in enumerate(zip(value, whose, strict=True))]
            return type(value)(*inner) if hasattr(value, "_fields") else tuple(inner)
        if kind == "json" or not (hasattr(value, "dtype") or isinstance(value, (bool, int, float))):
            raise ConfigError(
                f"to_tf: {name} is {'JSON' if kind == 'json' else 'of type ' + type(value).__name__}, not a tensor",
                hint="leave it out with to_tuple() or select(), or make arrays of it",
            )
        array = _array(value)
        shape: list[int | None] = list(array.shape)
        if rows is not None and shape:
            shape[0] = shape[0] if whole and shape[0] == rows else None
            shape[1:] = [None] * (len(shape) - 1) if made else shape[1:]
            if field in names and len(shape) > 1:
                shape[1] = None
        return tf.TensorSpec(tuple(shape), tf.as_dtype(array.dtype))

    return spec(batch, "the batch", info.names[0] if len(info.names) == 1 else "")


def _example(loader: DataLoader[Any]) -> Any:
    """One batch. The loader's position does not change."""
    remote = loader._opened()
    settings = loader._settings
    found: Any
    if settings.ordering.walked or settings.hands is not None and not settings.hands.lookup:
        with copy.copy(loader) as other:  # which has the same engine
            for found in other:
                return found
    else:
        begun = _pass.Pass(remote, 0, 0)
        try:
            found = begun.next(loader._maker.make)
        finally:
            begun.cancel()
        if found is not None:
            return found[0] if remote.crew is not None or isinstance(settings.mix, Changes) else found
    raise ConfigError("to_tf: the loader has no batches", hint=_SIGNATURE)


def _whole(loader: DataLoader[Any]) -> bool:
    """Whether all batches surely have as many rows."""
    settings = loader._settings
    if settings.ordering.batched or "tokens" in settings.ordering.batch:
        return False
    if settings.iterates or settings.ordering.walked:
        return settings.tail == "drop" or (settings.hands is not None and settings.hands.drop)
    if settings.tail in ("fill", "drop"):
        return True
    if not settings.ordering.plain or loader._dataset._recipe().mix is not None:
        return False
    return -(-loader._info().samples // loader._rank[1]) % loader._size == 0


def _number(loader: DataLoader[Any]) -> int | None:
    """Batches in every epoch; None if they are not known, or if the next pass is not a whole one."""
    settings = loader._settings
    mixed = loader._dataset._recipe().mix is not None
    epoch, position, _ = loader._next_pass()
    if loader._epoch_steps is not None:
        return loader._epoch_steps if loader._left(epoch, position) == loader._epoch_steps else None
    if position or mixed or settings.iterates or settings.ordering.walked or set(settings.ordering.batch) - {"bucket"}:
        return None
    return len(loader)

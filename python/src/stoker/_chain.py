"""Functions of the user's on any dataset, and tf.data's names for what a loader does.

``map`` and ``filter`` add a step of Python (_program.py); ``take``, ``skip``, ``shard`` and ``repeat`` choose samples
by number; ``batch`` and ``shuffle`` say what a loader does unless its keywords say otherwise. What the engine does in
any case is accepted with a notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _notice
from ._errors import MAX_COUNT, ConfigError, whole
from ._numbers import scalar

AUTOTUNE = -1  # as in tf.data: a number that stoker decides

_PARALLEL = "the engine and its workers run in parallel in any case; num_workers= of the loader says how many"


class Chain:
    """The methods. A subclass gives ``_step`` and ``_asking``, which return a new dataset."""

    if TYPE_CHECKING:

        def __getstate__(self) -> dict[str, Any]: ...

    def _step(self, *steps: Any) -> Any:
        raise NotImplementedError

    def _asking(self, **asked: Any) -> Any:
        raise NotImplementedError

    def _said(self) -> dict[str, Any]:
        return dict(getattr(self, "_asked", {}))

    def map(self, function: Callable[..., Any], num_parallel_calls: Any = None, **keywords: Any) -> Any:
        """The same dataset with ``function`` of each sample: of the sample as ``dataset[i]`` gives it, or of its items
        if it is a tuple and the function wants several. It runs in Python workers. A parameter ``rng`` gets a NumPy
        generator that is seeded from the sample's place.

        ``num_parallel_calls``, ``deterministic`` and ``name`` have no effect.
        """
        from ._program import Map

        self._check("map", function, keywords, ("deterministic", "name"))
        if num_parallel_calls is not None or keywords.get("deterministic") is not None:
            _notice.say(f".map(num_parallel_calls=..., deterministic=...) has no effect: {_PARALLEL}")
        return self._step(Map(function))

    def filter(self, predicate: Callable[..., Any], name: Any = None) -> Any:
        """The same dataset with those samples only for which ``predicate`` is true. All samples are tried once, when
        ``len()`` or a loader first needs it; the result is kept in the cache folder."""
        from ._program import Keep

        self._check("filter", predicate, {}, ())
        return self._step(Keep(predicate))

    def _check(self, call: str, function: Any, keywords: Any, known: tuple[str, ...]) -> None:
        where = f"{type(self).__name__}.{call}"
        if not callable(function):
            raise ConfigError(
                f"{where}: {function!r:.60} is of type {type(function).__name__}, which cannot be called",
                hint="give a function of one sample",
            )
        for key in keywords:
            if key not in known:
                raise ConfigError(f"{where} has no keyword {key!r}", hint="it has " + ", ".join(("function", *known)))

    def take(self, count: int, name: Any = None) -> Any:
        """The first ``count`` samples (batches, after ``batch``); -1 takes all."""
        return self._view("take", count, every=-1)

    def skip(self, count: int, name: Any = None) -> Any:
        """All samples but the first ``count`` (batches, after ``batch``)."""
        return self._view("skip", count)

    def shard(self, num_shards: int, index: int, name: Any = None) -> Any:
        """Every ``num_shards``-th sample, from ``index`` on. A loader splits samples over ranks by itself."""
        from ._program import View

        num_shards, index = scalar(num_shards), scalar(index)
        if not whole(num_shards) or not whole(index) or not 0 <= index < num_shards:
            raise ConfigError(
                f"{type(self).__name__}.shard: part {index!r} of {num_shards!r}",
                hint="parts go from 0 to num_shards - 1",
            )
        if self._said().get("sized") is not None:
            raise ConfigError(f"{type(self).__name__}.shard: called after batch", hint="call shard first")
        _notice.say(".shard(n, i) is not needed for ranks: a loader gives every rank its part (rank=, world_size=)")
        return self._step(View("shard", num_shards, index)) if num_shards > 1 else self

    def repeat(self, count: int | None = None, name: Any = None) -> Any:
        """All samples ``count`` times in every epoch."""
        count = scalar(count)
        if count is None or count == -1:
            raise ConfigError(
                f"{type(self).__name__}.repeat: a loader gives one epoch at a time",
                hint="loop over epochs: every iter(loader) is the next one; repeat(n) has all samples n times in each",
            )
        return self._view("repeat", count) if count != 1 else self

    def _view(self, call: str, count: Any, every: int | None = None) -> Any:
        from ._program import View

        count = scalar(count)
        if count is not None and count == every:
            return self
        if not whole(count) or not 0 <= count <= MAX_COUNT or (call == "repeat" and count < 1):
            raise ConfigError(f"{type(self).__name__}.{call}: the count is {count!r}", hint="give a number of samples")
        asked = self._said()
        if call != "repeat":
            if asked.get("shuffle"):
                raise ConfigError(
                    f"{type(self).__name__}.{call}(n) after .shuffle() would choose in the order of storage",
                    hint=f".{call}(n).shuffle(...) if you mean that; .shard(n, i) for every n-th sample; num_samples=n "
                    "of the loader for n samples of every epoch's shuffle",
                )
            count *= asked.get("sized") or 1
        return self._step(View(call, count))

    def shuffle(
        self, buffer_size: Any, seed: Any = None, reshuffle_each_iteration: Any = None, name: Any = None
    ) -> Any:
        """A loader shuffles all samples fully, whatever ``buffer_size`` is, unless its ``shuffle=`` says otherwise."""
        buffer_size, seed = scalar(buffer_size), scalar(seed)
        if not whole(buffer_size) or buffer_size < 1:
            raise ConfigError(f"{type(self).__name__}.shuffle: the size is {buffer_size!r}", hint="give at least 1")
        _notice.say(".shuffle(n) is a full shuffle in stoker, for any n: no buffer is filled")
        if reshuffle_each_iteration is False:
            _notice.say("reshuffle_each_iteration=False is ignored: every epoch has an order of its own")
        if self._said().get("sized") is not None:
            _notice.say(".shuffle() after .batch() shuffles samples, not batches")
        return self._asking(shuffle=True, **({} if seed is None else {"seed": seed}))

    def batch(self, batch_size: int, drop_remainder: bool = False, **keywords: Any) -> Any:
        """Batches of ``batch_size`` for loaders whose ``batch_size`` is left out (or 1); ``len()`` counts batches.
        ``drop_remainder`` drops a last one that is not full."""
        size = scalar(batch_size)
        if not whole(size) or not 1 <= size <= MAX_COUNT:
            raise ConfigError(f"{type(self).__name__}.batch: the size is {batch_size!r}", hint="give at least 1")
        if self._said().get("sized") is not None:
            raise ConfigError(f"{type(self).__name__}.batch: the samples are batched already", hint="call it once")
        if keywords.pop("num_parallel_calls", None) is not None or keywords.pop("deterministic", None) is not None:
            _notice.say(f".batch(num_parallel_calls=..., deterministic=...) has no effect: {_PARALLEL}")
        for key in keywords:
            if key not in ("name", "deterministic"):
                raise ConfigError(f"{type(self).__name__}.batch has no keyword {key!r}", hint="it has drop_remainder")
        return self._asking(sized=size, **({"drop": True} if drop_remainder else {}))

    def padded_batch(
        self,
        batch_size: int,
        padded_shapes: Any = None,
        padding_values: Any = None,
        drop_remainder: bool = False,
        name: Any = None,
    ) -> Any:
        """Batches of arrays of unequal shapes, filled up at the end of each axis to the largest of the batch, or to
        ``padded_shapes``, with ``padding_values`` (0)."""
        from ._padded import Padded

        batched = self.batch(batch_size, drop_remainder)
        return batched._asking(collate=Padded(padded_shapes, padding_values))

    def prefetch(self, buffer_size: Any = AUTOTUNE, name: Any = None) -> Any:
        """The same dataset: batches are made ahead in any case."""
        _notice.say(".prefetch(n) has no effect: batches are made ahead")
        return self

    def with_options(self, options: Any, name: Any = None) -> Any:
        """The same dataset: tf.data's options are not stoker's."""
        _notice.say(".with_options(...) has no effect: the engine decides these things")
        return self

    def interleave(self, function: Any, *args: Any, **keywords: Any) -> Any:
        """Of ``stoker.list_files(...)`` only: see there."""
        raise ConfigError(
            f"{type(self).__name__}.interleave: its samples are not names of files",
            hint="stoker.list_files('*.tfrecord').interleave(stoker.TFRecordDataset), or give the dataset all files: "
            "they are read in parallel, and shuffle='block' mixes them",
        )

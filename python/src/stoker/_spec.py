"""Turns the keywords that users know into the one document that the engine reads.

Recipe     what a dataset says about itself
Settings   what the keywords of DataLoader say; all mistakes in them are one ConfigError
spec()     both together: the Spec
"""

from __future__ import annotations

import difflib
import importlib.util
import math
import os
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from . import _crew, _device_jpeg, _mix, _notice, _on_device, _sharding, _static, _target
from . import _orders as orders
from . import _ranks as ranks
from . import _seeds as seeds
from ._cache import amount, read_cache, read_entries
from ._errors import MAX_COUNT, MAX_EPOCH, Problems, whole
from ._orders import Ordering
from ._seeds import Seed
from ._stores import read_fetch
from ._theirs import ours

OUTPUTS = ("torch", "numpy", "jax")
TAILS = ("pad", "fill", "drop")
POLICIES = ("fail", "skip", "replace")
LAYOUTS = ("nchw", "nhwc")
LONGEST = 1e6  # seconds: poll(2) counts milliseconds to 2^31


class _AllCores(int):
    """The default of num_workers. It equals torch's default, 0, and is distinguished from it by identity."""

    def __repr__(self) -> str:
        return "all cores"

    def __reduce__(self) -> str:
        return "ALL_CORES"


ALL_CORES = _AllCores(0)


# The form of a sample: a tuple of its fields, a dict of them, or the only field itself.
Form = Literal["tuple", "dict", "one"]


@dataclass(frozen=True)
class Recipe:
    """What a dataset says about itself; the keywords of DataLoader are added to it."""

    dataset: Any  # part of the Spec: an object, or a list of them for a mixture
    fields: list[dict[str, Any]] | None  # part of the Spec; None: the format's own
    form: Form = "tuple"
    squeeze: frozenset[str] = frozenset()  # grey images shown without a channel axis
    shuffle: bool = False
    seed: int | None = None
    batch: int | None = None  # the dataset makes batches of this many samples
    subset: array[float] | None = None  # numbers of the samples that there are; None: all
    stored: int = 0  # samples that there would be without the choice
    sized: int | None = None  # samples in a batch, as .batch() said
    drop: bool = False
    on_bad: str | None = None
    epoch_items: int | None = None  # with_epoch: items in an epoch, per rank
    epoch_in_batches: bool = False  # and whether those items are batches
    mix: dict[str, Any] | None = None  # part of the Spec: how the datasets of a list are mixed
    cache: dict[str, Any] | None = None  # part of the Spec: from the dataset's .cache()


@dataclass(frozen=True)
class Settings:
    """What the keywords of a DataLoader say. None: not given."""

    batch_size: int | None  # on this rank; None: not given, or decided by the order
    single: bool  # samples are not batched
    ordering: Ordering
    seed: Seed  # from the sampler, if it has one
    own_seed: Seed  # from the loader's keywords
    workers: int | None  # lanes; None: all
    tail: str | None
    prefetch: int | None
    prefetch_factor: int | None
    memory: str | int | None
    max_pixels: int | None
    fetch: dict[str, Any] | None  # part of the Spec
    cache: dict[str, Any] | None  # part of the Spec
    entries: str | dict[str, Any] | None  # part of the Spec
    on_bad: str | None
    max_bad: int | None
    max_bad_rate: float | None
    rank: int | None
    world_size: int | None
    placed: bool  # whether the user gave rank and world size
    output: str
    layout: str | None
    pin: bool
    timeout: float  # in seconds, as in torch: 0 is the default deadline
    hands: _crew.Hands | None = None  # who makes the samples of a user's own dataset
    placement: _sharding.Placement | None = None  # of the arrays on JAX's devices
    target: _target.Target | None = None  # the device that batches are copied to
    static: bool = False  # into the same tensors every time
    mix: _mix.Mix | _mix.Changes | None = None  # the batch transform
    on_device: _on_device.OnDevice | None = None  # the device transform
    decoding: _device_jpeg.Decoding | None = None  # the pictures that the device decodes
    torch: dict[str, Any] = field(default_factory=dict)  # torch's keywords that are only shown as attributes

    @property
    def ranks(self) -> tuple[int, int]:
        """Rank and world size. A user's sampler decides alone, as if the world size were one."""
        if self.ordering.sampler is not None and self.ordering.ranks is None:
            return 0, 1
        return self.process

    @property
    def process(self) -> tuple[int, int]:
        """Rank and world size, also where a user's sampler decides."""
        return ranks.of_process(self.rank, self.world_size)

    @property
    def size(self) -> int | None:
        """Samples per batch on this rank; None: not batched here."""
        if self.ordering.global_size is not None:
            return self.ordering.global_size // self.ranks[1] or None
        return self.batch_size

    @property
    def iterates(self) -> bool:
        """Whether the dataset is iterated: it has no numbered samples."""
        return self.hands is not None and self.hands.iterates

    @property
    def open_ended(self) -> bool:
        """Whether only the iteration tells which samples there are: of a user's sampler, or of the dataset."""
        return self.ordering.walked or self.iterates

    def walking(self) -> Settings:
        """The same, taking the sampler's ids from it instead of computing them."""
        walked = Ordering(sampler=self.ordering.sampler, walked=True, size=self.ordering.size, drop=self.ordering.drop)
        walked = orders.chosen(walked, self.ordering.own, 0, Problems("DataLoader"))
        return replace(self, ordering=walked, seed=self.own_seed, rank=None, world_size=None)

    @property
    def deadline(self) -> float:
        """Seconds without a batch that count as a stall."""
        return min(self.timeout, LONGEST) or 60.0


def read(keywords: Mapping[str, Any], recipe: Recipe | None, problems: Problems, own: Any = None) -> Settings:
    """Reads the keywords of a DataLoader over a dataset (None: not a dataset, which is already a problem). ``own`` is
    the user's own.

    Raises everything collected in problems.
    """
    k = keywords
    recipe = recipe or Recipe({}, None)
    ordering = orders.chosen(orders.read(k, recipe.shuffle, problems), recipe.subset, recipe.stored, problems)
    batch_size = ordering.size or _batch_size(k["batch_size"], recipe, problems)
    single = batch_size is None and recipe.batch is None and ordering.global_size is None and not ordering.batched
    output = _output(k["output"], problems)
    placement = _sharding.read(k, output, problems)
    target = _target.read(k, output, placement, problems)  # may start JAX; then workers are not forked
    hands = None
    left_out = k["num_workers"] is ALL_CORES
    if own is not None:
        if left_out and ours(own) and not own.foreign:
            k, left_out = {**k, "num_workers": max(1, lanes() - 1)}, False
        hands = _crew.read(own, k, single, problems)
    workers = _workers(k, problems) if hands is None else None
    if ordering.global_size is not None or (ordering.batched or "tokens" in ordering.batch) and k["batch_size"] == 1:
        batch_size = None
    own_seed = seeds.read(k["seed"], k["generator"], problems, recipe.seed, k["world_size"])
    tail = "drop" if ordering.drop else _tail(k, recipe, single, problems)
    _sampler_only(ordering, recipe, problems)
    prefetch = _prefetch(k, problems)
    on_bad = _on_bad(k, recipe, problems)
    if placement is not None:
        share = batch_size
        if ordering.global_size is not None:
            share = ordering.global_size // (placement.world or ranks.of_process(k["rank"], k["world_size"])[1]) or None
        _sharding.check(placement, k, share, recipe, hands, problems)
        if tail is None and (hands is None or not hands.iterates):
            tail = "fill"
    static = _static.read(k, output, tail, single, problems)
    pin = (target is None or not target.moves or target.jax) and _pin(k, output)  # slots are pinned for a device
    memory = _memory(k["memory"], problems)
    max_pixels = _max_pixels(k["max_pixels"], problems)
    fetch = read_fetch(k["fetch"], problems)
    cache = read_cache(k["cache"], problems)
    if cache is not None and recipe.cache is not None and cache != recipe.cache:
        problems.add("cache and the dataset's .cache() differ", "give only one")
    entries = read_entries(k["entries"], problems)
    _one_of("layout", k["layout"], LAYOUTS, problems)
    timeout = k["timeout"]
    if not _number(timeout) or timeout < 0:
        problems.add(
            f"timeout is {timeout!r}", "give seconds; 0 is 60 s for stoker's datasets, and waits for ever for your own"
        )
    if (k["rank"] is None) != (k["world_size"] is None):
        problems.add("rank and world_size must be given together", "give both, or neither")
    elif k["rank"] is not None:
        ranks.check(k["rank"], k["world_size"], problems)
    mix = _mix.read(k["batch_transform"], problems)
    if isinstance(mix, _mix.Mix) and single and hands is None:
        problems.add(f"{mix.words} mixes the samples of a batch, and there are none", "give a batch_size")
    on_device = _on_device.read(k, output, target, own is None, single, problems)
    decoding = _device_jpeg.read(k, output, target, own is None, single, problems)
    if on_device is not None and on_device.functions and mix is not None:
        problems.add(
            "batch_transform= cannot be combined with functions in device_transform=",
            "call all functions in batch_transform"
            if isinstance(mix, _mix.Changes)
            else f"put {mix.words} into device_transform, before the functions",
        )
    elif on_device is not None and on_device.mix is not None and mix is not None:
        problems.add(f"batch_transform= and {on_device.mix.words} in device_transform= both mix", "give only one")
    problems.raise_any()
    if on_device is not None and on_device.mix is not None:
        mix = on_device.mix
    if isinstance(mix, _mix.Mix) and hands is not None and not (target is not None and target.moves and not target.jax):
        _notice.say(
            f"{mix.words} runs in the training process, because Python makes the batches; for batches that the engine "
            "makes, it runs there"
        )
    if hands is None:
        _ignore(k)
    else:
        hands = _crew.looked_up(own, k, hands, output, ordering, ordering.global_size or batch_size)
        prefetch = hands.prefetch
        _crew.notices(k, hands, left_out)
    rank, world = ordering.ranks or (k["rank"], k["world_size"])
    if placement is not None and rank is None:
        rank, world = placement.rank, placement.world
    return Settings(
        batch_size=batch_size,
        single=single,
        ordering=ordering,
        seed=_decides(own_seed, ordering.seed),
        own_seed=own_seed,
        workers=workers,
        tail=tail,
        prefetch=prefetch,
        prefetch_factor=k["prefetch_factor"] if hands is None else None,
        memory=memory,
        max_pixels=max_pixels,
        fetch=fetch,
        cache=cache or recipe.cache,
        entries=entries,
        on_bad=on_bad,
        max_bad=k["max_bad"],
        max_bad_rate=k["max_bad_rate"],
        rank=rank,
        world_size=world,
        placed=k["rank"] is not None or getattr(ordering.sampler, "_placed", False),
        output=output,
        layout=k["layout"],
        pin=pin,
        timeout=timeout,
        hands=hands,
        placement=placement,
        target=target,
        static=static,
        mix=mix,
        on_device=on_device,
        decoding=decoding,
        torch={
            name: k[name]
            for name in (
                "collate_fn",
                "worker_init_fn",
                "multiprocessing_context",
                "generator",
                "prefetch_factor",
                "persistent_workers",
                "pin_memory",
                "pin_memory_device",
                "in_order",
                "timeout",
            )
        },
    )


def spec(
    settings: Settings,
    recipe: Recipe,
    fields: Sequence[Mapping[str, Any]] | None,
    names: Callable[[], Sequence[str]] | None = None,
) -> dict[str, Any]:
    """The Spec, without values that nobody gave. ``names`` asks for the fields of batches that the engine makes."""
    rank, world = settings.ranks
    built: dict[str, Any] = {"dataset": recipe.dataset, "mix": recipe.mix}
    if recipe.mix is not None:
        built["dataset"] = [
            {**d, "fields": _laid_out(d["fields"], settings.layout)} if "fields" in d else d for d in recipe.dataset
        ]
    if settings.max_pixels is not None:
        limit = {"max_pixels": settings.max_pixels}
        members = built["dataset"]
        built["dataset"] = [{**d, **limit} for d in members] if recipe.mix is not None else {**members, **limit}
    if fields is not None:
        built["fields"] = _laid_out(fields, settings.layout)
    ordering = settings.ordering
    built["order"] = {**ordering.spec("order"), **_said(seed=settings.seed.value or None, tail=settings.tail)}
    if recipe.mix is not None and built["order"].get("shuffle") == "block":  # a block belongs to one dataset
        del built["order"]["shuffle"]
        built["dataset"] = [{"shuffle": "block", **d} for d in built["dataset"]]
    built["batch"] = ordering.spec("batch")
    if ordering.global_size is not None:
        built["batch"]["global_size"] = ordering.global_size
    elif settings.batch_size or recipe.batch or "tokens" not in ordering.batch:
        built["batch"]["size"] = settings.batch_size or recipe.batch or 1
    if settings.iterates:  # to the engine, a batch is one turn of a worker, and there are no ranks
        built["batch"], world = {"size": 1}, 1
        built["order"] = _said(seed=settings.seed.value or None)
    built["deliver"] = _said(
        prefetch=settings.prefetch, prefetch_factor=settings.prefetch_factor, memory=settings.memory
    )
    if isinstance(settings.mix, _mix.Mix):
        built["batch_transform"] = settings.mix.spec(recipe.form, names)
    if settings.on_device is not None:
        built["device_transform"] = settings.on_device.ops or None
    built["cache"] = settings.cache
    built["entries"] = settings.entries
    built["fetch"] = settings.fetch
    built["workers"] = settings.workers
    built["on_bad"] = _said(
        policy=settings.on_bad, max_bad=settings.max_bad or None, max_bad_rate=settings.max_bad_rate or None
    )
    if world > 1:
        built["rank"], built["world_size"] = rank, world
    return {key: value for key, value in built.items() if value not in (None, {})}


def _laid_out(fields: Sequence[Mapping[str, Any]], layout: str | None) -> list[dict[str, Any]]:
    """The fields, with images in the layout that the user asked for."""
    return [
        {**f, "layout": layout} if layout and f.get("decode") in ("rgb", "gray") and "layout" not in f else dict(f)
        for f in fields
    ]


def _said(**keys: Any) -> dict[str, Any]:
    return {key: value for key, value in keys.items() if value is not None}


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _one_of(key: str, value: Any, words: Sequence[str], problems: Problems) -> None:
    if value is None or value in words:
        return
    near = difflib.get_close_matches(str(value), words, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"it can be {', '.join(map(repr, words))}"
    problems.add(f"{key} is {value!r}", hint)


def _sampler_only(ordering: Ordering, recipe: Recipe, problems: Problems) -> None:
    """Adds what cannot be combined with a sampler, or with batches by length."""
    if recipe.epoch_items is not None and not ordering.free:
        problems.add(
            "the order cannot be combined with .with_epoch()",
            "leave .with_epoch() out: num_samples= sets the length of an epoch",
        )
    if recipe.batch is not None and (ordering.batched or ordering.batch or ordering.global_size):
        problems.add(f"the dataset itself makes batches of {recipe.batch}", "leave .batched() out")
    if recipe.mix is not None and ordering.sampler is None and set(ordering.order) & {"weights", "balanced"}:
        problems.add("a mixture already has weights for its datasets", "leave weights and balanced out")


def _workers(k: Mapping[str, Any], problems: Problems) -> int | None:
    number: int = k["num_workers"]
    if number is ALL_CORES:
        return None
    if not whole(number) or number < 0:
        problems.add(f"num_workers is {number!r}", "give the number of lanes, 0 for one, or leave it out for all cores")
        return None
    if number == 0 and k["prefetch_factor"] is not None:
        problems.add("prefetch_factor needs num_workers > 0", "raise num_workers, leave it out, or use prefetch=")
    if number == 0 and k["persistent_workers"]:
        problems.add("persistent_workers needs num_workers > 0", "leave it out: there are no workers to keep")
    return max(1, number)


def _batch_size(size: Any, recipe: Recipe, problems: Problems) -> int | None:
    if recipe.sized is not None and size not in (None, 1, recipe.sized):
        problems.add(
            f"the dataset makes batches of {recipe.sized}, but batch_size is {size!r:.80}", "leave one of them out"
        )
    if recipe.sized is not None:
        return recipe.sized
    if size is None:
        return None
    if not whole(size) or not 1 <= size <= MAX_COUNT:
        problems.add(
            f"batch_size is {size!r:.80}", "give an integer from 1 to 2**53, or None for samples that are not batched"
        )
        return None
    if recipe.batch is not None:
        problems.add(
            f"the dataset itself makes batches of {recipe.batch}, but batch_size is {size}",
            "pass batch_size=None, or leave .batched() out",
        )
    return int(size)


def _decides(own: Seed, samplers: Seed | None) -> Seed:
    """The seed of order and augmentation: the engine uses one seed for both."""
    if samplers is None:
        return own
    if own.given and not samplers.given:
        samplers.give(own.value, "seed= of the loader")
    elif own.given and own.value != samplers.value:
        _notice.say(f"{own} is ignored: the sampler has {samplers}")
    return samplers


def _tail(k: Mapping[str, Any], recipe: Recipe, single: bool, problems: Problems) -> str | None:
    tail = k["tail"]
    _one_of("tail", tail, TAILS, problems)
    if k["drop_last"] and (single or recipe.batch is not None):
        problems.add(
            "drop_last needs batches", "use .batched(n, partial=False)" if recipe.batch else "give a batch_size"
        )
    drop = bool(k["drop_last"]) or recipe.drop
    if drop and tail not in (None, "drop"):
        problems.add(f"drop_last and tail={tail!r} exclude each other", "give only one")
    if tail is None and drop:
        return "drop"
    if recipe.epoch_items is not None:
        if tail == "pad":
            problems.add("tail='pad' cannot be combined with .with_epoch()", "use 'fill' (the default there) or 'drop'")
        return str(tail or "fill")
    return None if tail is None else str(tail)


# The most batches ahead, in total or per lane: maxAhead of internal/spec/check.go.
_FARTHEST = 1 << 31


def _prefetch(k: Mapping[str, Any], problems: Problems) -> int | None:
    prefetch, factor = k["prefetch"], k["prefetch_factor"]
    for key, value in (("prefetch", prefetch), ("prefetch_factor", factor)):
        if value is not None and (not whole(value) or not 1 <= value <= _FARTHEST):
            problems.add(f"{key} is {value!r}", f"give a number of batches, from 1 to {_FARTHEST:,}")
            return None
    if prefetch is not None and factor is not None:
        problems.add(
            "prefetch and prefetch_factor exclude each other",
            "give only one: prefetch is a number of batches, prefetch_factor a number per lane",
        )
    return None if prefetch is None else int(prefetch)


def cores() -> int:
    """Number of cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def lanes() -> int:
    """Number of lanes that the engine has unless num_workers says another one."""
    return cores() - 1 if cores() > 2 else cores()


def _on_bad(k: Mapping[str, Any], recipe: Recipe, problems: Problems) -> str | None:
    policy = k["on_bad"] if k["on_bad"] is not None else recipe.on_bad
    _one_of("on_bad", policy, POLICIES, problems)
    most, rate = k["max_bad"], k["max_bad_rate"]
    if most is not None and (not whole(most) or not 1 <= most <= MAX_EPOCH):
        problems.add(f"max_bad is {most!r}", "give a number of samples, at least 1, or leave it out for no limit")
    if rate is not None and (not _number(rate) or not 0 < rate <= 1):
        problems.add(f"max_bad_rate is {rate!r}", "give a share of the samples, between 0 and 1")
    if (most is not None or rate is not None) and policy in (None, "fail"):
        problems.add("max_bad and max_bad_rate need a policy that continues", "pass on_bad='skip' or 'replace'")
    return None if policy is None else str(policy)


def default_output() -> str:
    """torch if it is installed, else numpy."""
    return "torch" if installed("torch") else "numpy"


def installed(name: str) -> bool:
    """Whether a library can be imported; it is not imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):  # an import hook, or a module without a spec, denies it
        return False


def _output(output: Any, problems: Problems) -> str:
    if output is None:
        output = default_output()
    _one_of("output", output, OUTPUTS, problems)
    if output in OUTPUTS and not installed(output):
        problems.add(f"output is {output!r}, but {output} is not installed", f"pip install {output}")
    return str(output)


def _pin(k: Mapping[str, Any], output: str) -> bool:
    if not k["pin_memory"]:
        return False
    if output != "torch":
        _notice.say(f"pin_memory is ignored: it applies to torch tensors, but output is {output!r}")
        return False
    import torch

    if not torch.cuda.is_available():
        _notice.say("pin_memory is ignored: torch sees no CUDA device here")
        return False
    return True


# The largest limit of pixels that the engine accepts: kernel.MostPixels.
MOST_PIXELS = 1 << 29


def _max_pixels(limit: Any, problems: Problems) -> int | None:
    if limit is None:
        return None
    if not whole(limit) or not 0 < limit <= MOST_PIXELS:
        problems.add(f"max_pixels is {limit!r}", f"give a number of pixels from 1 to {MOST_PIXELS:,}")
        return None
    return int(limit)


def _memory(memory: Any, problems: Problems) -> str | int | None:
    if memory is not None and not amount(memory):
        problems.add(f"memory is {memory!r}", "give 'auto', an amount like '2GiB', or a number of bytes")
        return None
    return memory if memory is None or isinstance(memory, str) else int(memory)


def _ignore(k: Mapping[str, Any]) -> None:
    """One notice for each keyword that has no effect in stoker."""
    reasons = {
        "persistent_workers": "the engine's lanes always live as long as the loader",
        "multiprocessing_context": "no worker processes are started",
        "worker_init_fn": "no worker processes are started; randomness is keyed by seed=",
        "pin_memory_device": "pin_memory=True is enough",
    }
    for key, reason in reasons.items():
        if k[key]:
            _notice.say(f"{key} is ignored: {reason}")
    if k["seeding"] is not None:
        _notice.say("seeding is ignored: no Python code draws random numbers; augmentation is keyed by seed=")
    if not k["in_order"]:
        _notice.say("in_order=False is ignored: batches come in order, and a slow sample delays only itself")

"""Tar shards with WebDataset's chain of calls, each translated into a part of the Spec; from the first function of the
user's on, into steps of Python (_webpython.py)."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from . import _client, _notice, _webwords
from ._advice import check_keywords, check_names
from ._compile import on_bytes
from ._datasets import Dataset, foreign
from ._errors import ConfigError, Problems, many, whole
from ._fields import read_list, read_names, read_text
from ._numbers import scalar
from ._program import Fields, Keep, Pick, Renamed, Step, Then, View
from ._shown import shown_all
from ._spec import Recipe
from ._split import Tail, after, in_python, split
from ._stores import read_storage
from ._suffixes import read_as, suffix
from ._types import JD, ND, TD
from ._webpython import Composed, Decode, Delivered, Handled, Mapped, Shown
from ._webwords import Ops

if TYPE_CHECKING:
    from ._types import AnyTuple


class WebDataset(Dataset[TD, ND, JD], Generic[TD, ND, JD]):
    """Samples in tar shards, by WebDataset's rules: members that share a name up to the first dot are one sample, and
    the rest of the name is the field.

    ``urls`` is a path, with ``{000..099}`` braces, wildcards or ``::`` between several, or a list of paths. The methods
    return a new dataset: ``shuffle decode map map_tuple map_dict select rename to_tuple slice compose batched unbatched
    with_epoch with_length cache``.

    Functions get what WebDataset gives them: PIL images after ``decode("pil")``, arrays of NumPy after "rgb8". They run
    in Python workers; what comes before the first one runs in the engine.

    Without ``to_tuple``, samples are dicts of all fields, with ``__key__`` and ``__url__``. Without ``decode``, fields
    are bytes. ``decode(words)`` turns images into what WebDataset turns them into:

        "pil", "pillow"       the picture as uint8 (3, height, width), ready for transforms
        "rgb8", "rgb"         uint8, or float32 from 0 to 1, (height, width, 3)
        "torchrgb8", "torchrgb"   the same as (3, height, width)
        "l8", "l", "torchl8", "torchl"   grey, (height, width)
        "pill"                grey as uint8 (1, height, width)

    Other fields: cls, cls2, index, inx, id become an integer; txt, text, transcript a str; json, jsn the decoded value;
    npy an array, of the same shape and dtype in all samples; the rest stay bytes. Pickles are refused, because reading
    one runs code.

    Samples are split over ranks one by one, so the number of shards need not divide by the number of ranks; the order
    is stoker's. These arguments keep their meaning: ``handler`` (reraise_exception, warn_and_continue and
    ignore_and_continue are on_bad="fail" and "replace"; another function is called with the exception, and the sample
    is replaced if it returns true), ``shardshuffle`` (any: full shuffle), ``empty_check``,
    ``seed``. The others are ignored with a notice if they have no effect in stoker, and are a ConfigError otherwise.

    ``storage_options`` says how the store of the shards is reached, as a dict of endpoint_url, region, profile,
    anonymous, requester_pays, token_env (the name of an environment variable) and fresh ("always", "never"). The names
    that s3fs, gcsfs and adlfs use work too. Keys and tokens are refused: they come from the environment, as for the
    store's own tools.
    """

    _fixed: ClassVar[Mapping[str, str]] = {
        **Dataset._fixed,
        "urls": "",
        "transform": "give transforms to fields: dataset.map_tuple(transform, None), or map_dict(jpg=transform)",
    }

    def __init__(
        self,
        urls: Any,
        handler: Any = None,
        mode: str | None = None,
        resampled: bool = False,
        repeat: bool = False,
        shardshuffle: Any = None,
        cache_size: int = -1,
        cache_dir: str | None = None,
        url_to_name: Any = None,
        detshuffle: bool = False,
        nodesplitter: Any = None,
        workersplitter: Any = None,
        select_files: Any = None,
        rename_files: Any = None,
        empty_check: bool = True,
        verbose: bool = False,
        seed: int | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        problems = Problems("WebDataset")
        self.urls = _webwords.shards(urls, problems)
        self._storage = read_storage(storage_options, problems, self.urls)
        seed = scalar(seed)
        self._shuffle = bool(shardshuffle)
        self._on_bad = _webwords.policy(handler, problems)
        self._handler = _webwords.called(handler)
        self._seed = seed
        if seed is not None and (not whole(seed) or not 0 <= seed < 1 << 64):
            problems.add(f"seed is {seed!r}", "give an integer from 0 to 2**64 - 1")
        if resampled or mode == "resampled":
            problems.add("resampled=True draws shards with replacement", "leave it out; .with_epoch(n) sets the length")
        if select_files is not None or rename_files is not None:
            problems.add("select_files and rename_files are functions of names", "use to_tuple and rename")
        problems.raise_any()
        if shardshuffle:
            _notice.say("shardshuffle: samples are shuffled over all shards, not only the shards")
        for name, given in {
            "nodesplitter": nodesplitter,
            "workersplitter": workersplitter,
            "detshuffle": detshuffle,
            "repeat": repeat,
            "cache_dir": cache_dir,
            "url_to_name": url_to_name,
            "empty_check": not empty_check,
        }.items():
            if given:
                _notice.say(f"WebDataset({name}=...) is ignored: {_webwords.MOOT[name]}")
        self._decode: dict[str, str] | None = None  # field -> word, "" for images; None: bytes
        self._renamed: dict[str, str] = {}  # new name -> stored names
        self._keep = True  # rename keeps the other fields
        self._tuple: list[str] | None = None
        self._native_tuple: list[str] | None = None  # the same, unless Python comes before
        self._chosen: list[str] | None = None  # for dicts; None: all
        self._ops: dict[int | str, Ops] = {}
        self._after: tuple[Step, ...] = ()  # from the first step of Python on
        self._collate: Any = None
        self._batch: int | None = None
        self._drop = False
        self._epoch: int | None = None
        self._epoch_in_batches = False
        self._length: int | None = None
        self._known: list[dict[str, Any]] | None = None
        self._loader: Any = None
        if any(foreign(url) for url in ([self.urls] if isinstance(self.urls, str) else self.urls)):
            self._remote().info()  # raises what to write instead

    # The chain of calls.

    def _with(self, **changes: Any) -> WebDataset[Any, Any, Any]:
        new = copy.copy(self)
        new.__dict__.update({"_peek": None, "_maker": None, "_known": None, "_loader": None, "_whole": None, **changes})
        return new

    def shuffle(  # type: ignore[override]
        self, size: int = 1000, **keywords: Any
    ) -> WebDataset[TD, ND, JD]:
        """Full shuffle: every order of all samples is possible, whatever ``size`` is (0 keeps the order).

        ``seed`` is used; ``initial``, ``bufsize``, ``rng`` and ``handler`` have no effect.
        """
        self._unbatched("shuffle")
        check_keywords("WebDataset.shuffle", keywords, ["size", "seed", "initial", "bufsize", "rng", "handler"])
        size = scalar(size)
        if not whole(size) or size < 0:
            raise ConfigError(f"WebDataset.shuffle: size is {size!r}", hint="give a buffer size, as for WebDataset")
        if size == 0:
            return self
        _notice.say(".shuffle(n) is a full shuffle in stoker, for any n above 0")
        return self._with(_shuffle=True, _seed=scalar(keywords.get("seed", self._seed)))

    def decode(
        self, *args: Any, pre: Any = None, post: Any = None, only: Any = None, **keywords: Any
    ) -> WebDataset[TD, ND, JD]:
        """How the bytes of fields are decoded; see the class. ``only`` names the fields to decode."""
        check_keywords("WebDataset.decode", keywords, ["pre", "post", "only", "handler", "partial"])
        problems = Problems("WebDataset.decode")
        if self._tuple is not None:
            problems.add("decode was called after to_tuple", "call decode first")
        words = dict(self._decode or {"": ""})
        for arg in args:
            if callable(arg):
                continue
            if not isinstance(arg, str):
                problems.add(
                    f"{arg!r:.80} is not a known image decoder",
                    "give a function of (key, bytes), or a word: " + ", ".join(map(repr, _webwords.IMAGES)),
                )
            elif arg.lower() in _webwords.IMAGES:
                words[""] = arg.lower()
            else:
                problems.add(f"{arg!r} is not a known image decoder", _webwords.decoders(arg.lower()))
        first, last = (read_list(key, one, "functions", problems) or [] for key, one in (("pre", pre), ("post", post)))
        if any(not callable(one) for one in (*first, *last)):
            problems.add("pre and post have something that cannot be called", "give functions of (key, bytes)")
        only = only.split() if isinstance(only, str) else only
        names = read_names("only", only, problems)
        problems.raise_any()
        decoders = [*first, *(arg.lower() if isinstance(arg, str) else arg for arg in args), *last]
        changes = self._handled(keywords)
        if self._after or any(map(callable, decoders)):
            return self._with(_after=(*self._after, Decode(decoders, names)), **changes)
        if names is not None:
            words["only"] = ";".join(names)
        return self._with(_decode=words, **changes)

    def rename(self, keep: bool = True, **names: str) -> WebDataset[TD, ND, JD]:
        """Renames fields: ``rename(image="jpg;png")`` takes the first that a sample has."""
        if self._tuple is not None:
            raise ConfigError("WebDataset.rename: called after to_tuple", hint="call rename first")
        changes = self._handled(names)
        names = {name: stored for name, stored in names.items() if name != "handler"}
        problems = Problems("WebDataset.rename")
        for name, stored in names.items():
            read_text(name, stored, problems)
        problems.raise_any()
        if self._after:
            return self._with(_after=(*self._after, Renamed(names, keep)), **changes)
        resolved = {name: ";".join(self._stored(part) for part in stored.split(";")) for name, stored in names.items()}
        ops = dict(self._ops)
        taken = {part for stored in names.values() for part in stored.split(";")}
        before = {name: stored for name, stored in self._renamed.items() if keep and name not in taken}
        for name, stored in names.items():  # earlier transforms follow the new name
            for part in stored.split(";"):
                if part in self._ops:
                    ops[name] = ops.get(name, []) + self._ops[part]
                    ops.pop(part, None)
        return self._with(_renamed={**before, **resolved}, _keep=keep and self._keep, _ops=ops, **changes)

    def to_tuple(self, *args: Any, **keywords: Any) -> WebDataset[AnyTuple, AnyTuple, AnyTuple]:
        """Samples become tuples of these fields; "jpg;png" takes the first that a sample has."""
        check_keywords("WebDataset.to_tuple", keywords, ["handler", "missing_is_error", "none_is_error"])
        if self._tuple is not None:
            raise ConfigError("WebDataset.to_tuple: the samples are tuples already", hint="call to_tuple once, last")
        names = args[0].split() if len(args) == 1 and isinstance(args[0], str) else args
        flat = [";".join(name) if isinstance(name, (list, tuple)) else name for name in names]
        if not flat or not all(isinstance(name, str) and name for name in flat):
            raise ConfigError("WebDataset.to_tuple: give names of fields", hint="to_tuple('jpg;png', 'cls')")
        changes = self._handled(keywords)
        if self._after:
            return self._with(_after=(*self._after, Pick(flat, "tuple", "to_tuple")), _tuple=flat, **changes)
        return self._with(_tuple=flat, _native_tuple=flat, **changes)

    def map_tuple(self, *transforms: Any, **keywords: Any) -> WebDataset[TD, ND, JD]:
        """Transforms for the fields of the tuple, in order; None, a function named identity, or ``lambda x: x`` leaves
        one unchanged."""
        check_keywords("WebDataset.map_tuple", keywords, ["handler"])
        if self._tuple is None:
            raise ConfigError("WebDataset.map_tuple: the samples are not tuples", hint="call to_tuple first")
        if len(transforms) > len(self._tuple):
            raise ConfigError(
                f"WebDataset.map_tuple: {many(len(transforms), 'transform')} for a tuple of "
                f"{many(len(self._tuple), 'field')}",
                hint="give at most one for each field of to_tuple",
            )
        given = {
            i: transform
            for i, transform in enumerate(transforms)
            if transform is not None and not _webwords.unchanged(transform)
        }
        return self._transformed(given, "map_tuple", self._handled(keywords), lambda i: f", argument {i + 1}")

    def map_dict(self, **transforms: Any) -> WebDataset[TD, ND, JD]:
        """Transforms for named fields of samples that are dicts."""
        if self._tuple is not None:
            raise ConfigError(
                "WebDataset.map_dict: called after to_tuple", hint="use map_tuple, or call map_dict first"
            )
        changes = self._handled(transforms)
        given = {
            name: transform
            for name, transform in transforms.items()
            if name != "handler" and transform is not None and not _webwords.unchanged(transform)
        }
        return self._transformed(given, "map_dict", changes, lambda name: f"({name}=...)")

    def _transformed(
        self, given: Mapping[Any, Any], call: str, changes: dict[str, Any], named: Callable[[Any], str]
    ) -> WebDataset[TD, ND, JD]:
        """The transforms of some fields, by place or name: their first steps for the engine, as long as it knows them
        and nothing of Python came before."""
        if self._batch is not None:
            raise ConfigError(f"WebDataset.{call}: called after batched", hint=f"call {call} first")
        ops = dict(self._ops)
        tails: dict[Any, Tail] = {}
        for key, transform in given.items():
            where = f"WebDataset.{call}{named(key)}"
            if self._after:
                tails[key] = in_python(transform, where)
                continue
            known, tail = split(transform, where)
            ops[key] = ops.get(key, []) + known
            if tail is not None:
                tails[key] = Tail(tail.steps, "")
        after = (*self._after, Fields(tails, call)) if tails else self._after
        return self._with(_ops=ops, _after=after, **changes)

    def batched(self, batchsize: int, collation_fn: Any = ..., partial: bool = True) -> WebDataset[TD, ND, JD]:
        """Batches of ``batchsize`` samples; ``partial=False`` drops the last one if it is not full. They are stacked,
        or what ``collation_fn`` makes of a list of samples; None leaves the list."""
        problems = Problems("WebDataset.batched")
        batchsize = scalar(batchsize)
        if not whole(batchsize) or batchsize < 1:
            problems.add(f"batchsize is {batchsize!r}", "give at least 1")
        if self._batch is not None:
            problems.add("the samples are batched already", "call it once")
        if collation_fn is None:
            collation_fn = list
        elif collation_fn is not ... and not callable(collation_fn):
            problems.add(
                f"collation_fn is of type {type(collation_fn).__name__}", "give a function of a list of samples"
            )
        problems.raise_any()
        own = collation_fn is not ... and getattr(collation_fn, "__name__", "") != "default_collation_fn"
        return self._with(_batch=batchsize, _drop=not partial, _collate=collation_fn if own else None)

    def cache(self, memory: str | int | None = None, after: str | None = None) -> WebDataset[TD, ND, JD]:
        """Keeps samples in memory, decoded and transformed up to the first random transform (``after="decode"``: only
        decoded), up to ``memory`` ("8GiB", bytes; None: a quarter of the free memory).

        It can be called anywhere in the chain: order, batches and random transforms are never kept.
        """
        if self._after:
            _notice.say(
                f".cache() after {self._after[-1].call} keeps what the engine makes; functions run in each epoch: "
                "stoker.pack(dataset, folder) stores what they make"
            )
        new = super().cache(memory, after)
        new.__dict__.update(_known=None, _loader=None, _whole=None)
        for call, there in (("shuffle", self._shuffle), ("batched", self._batch is not None)):
            if there:
                _notice.say(f".cache() after .{call}() keeps samples, the same as before it")
        late = {str(op["op"]) for ops in self._ops.values() for op in ops if op["op"].startswith("Random")}
        if late and after != "decode":
            names = ", ".join(sorted(late))
            _notice.say(
                f".cache() after {names} keeps what comes before: random transforms are drawn again in every epoch"
            )
        return new

    def with_epoch(self, nsamples: int = -1, nbatches: int = -1) -> WebDataset[TD, ND, JD]:
        """Epochs of ``nsamples`` items on every rank (batches, after ``batched``), cut from an endless stream of whole
        epochs: no sample comes again before all others came. Every batch is full, also at the end of an epoch of the
        dataset (tail "fill", or "drop"). So the length is rounded up to whole batches of the loader, or down with
        tail "drop", and a notice says so; it is exact for a multiple of the batch size.

        WebDataset counts in every worker: with w workers, its epochs have n * w items on every rank."""
        items = scalar(nbatches if nbatches > 0 else nsamples)
        if not whole(items) or items < 1:
            raise ConfigError(f"WebDataset.with_epoch: the length is {items!r}", hint="give at least 1")
        return self._with(_epoch=items, _epoch_in_batches=self._batch is not None)

    def with_length(self, n: int, silent: bool = False) -> WebDataset[TD, ND, JD]:
        """Sets what len() returns; without it, len() is the number of items."""
        n = scalar(n)
        if not whole(n) or n < 0:
            raise ConfigError(f"WebDataset.with_length: the length is {n!r}", hint="give a number of items")
        return self._with(_length=n)

    def map(self, f: Any, handler: Any = None, **keywords: Any) -> WebDataset[Any, Any, Any]:  # type: ignore[override]
        """Samples become what ``f(sample)`` returns; after ``batched``, batches."""
        self._check("map", f, keywords, ("num_parallel_calls", "deterministic", "name"))
        changes = self._handled({"handler": handler})
        if self._batch is not None:
            return self._with(_collate=Then(self._collate, [f]), **changes)
        return self._step(Mapped(f), **changes)

    def compose(self, *stages: Any) -> WebDataset[Any, Any, Any]:
        """Stages of a pipeline: those of ``stoker.webdataset``, and functions of an iterator of samples that give one
        sample for each."""
        from . import _webstages

        found: WebDataset[Any, Any, Any] = self
        for stage in map(_webstages.own, stages):
            if isinstance(stage, _webstages.Stage):
                found = stage.on(found)
            else:
                found._unbatched("compose")
                found._check("compose", stage, {}, ())
                found = found._step(Composed(stage))
        return found

    def select(self, *fields: Any, **keywords: Any) -> Any:
        """Samples become dicts of these fields; "jpg;png" takes the first that a sample has. With one function, as in
        WebDataset: the samples for which it is true, as ``filter``."""
        if len(fields) == 1 and callable(fields[0]) and not keywords:
            self._unbatched("select")
            return self._step(Keep(fields[0], "select"))
        if callable(predicate := keywords.get("predicate")) and not fields:
            return self.select(predicate)
        if self._tuple is not None:
            raise ConfigError(
                "WebDataset.select: the samples are tuples already", hint="call select instead of to_tuple"
            )
        check_names("WebDataset.select", fields)
        if not fields or keywords or not all(isinstance(name, str) and name for name in fields):
            raise ConfigError("WebDataset.select: give names of fields, or a function", hint="select('jpg;png', 'cls')")
        if self._after:
            return self._step(Pick(list(dict.fromkeys(fields)), "dict", "select"))
        return self._with(_chosen=list(dict.fromkeys(fields)))

    def slice(self, *args: int) -> WebDataset[TD, ND, JD]:
        """Samples by number, as ``itertools.islice``: ``slice(stop)``, or ``slice(start, stop, step)``."""
        self._unbatched("slice")
        numbers = tuple(map(scalar, args))
        if not 1 <= len(numbers) <= 3 or not all(one is None or (whole(one) and one >= 0) for one in numbers):
            raise ConfigError(
                f"WebDataset.slice: the numbers are {args!r}", hint="slice(stop), or slice(start, stop, step)"
            )
        if self._shuffle:
            raise ConfigError(
                "WebDataset.slice after .shuffle() would be the same stored samples in every epoch; in webdataset they "
                "are others in each",
                hint=".slice(n).shuffle(...) for the first n; num_samples=n of the loader, or .with_epoch(n), for n "
                "samples of every epoch's shuffle",
            )
        return self._step(View("slice", *numbers))

    def _asking(self, **asked: Any) -> WebDataset[Any, Any, Any]:
        return self._with(_asked={**self._asked, **asked})

    def _step(self, *steps: Any, **changes: Any) -> WebDataset[Any, Any, Any]:
        return self._with(_after=(*self._after, *steps), **changes)

    def repeat(self, nepochs: int | None = None, nbatches: int | None = None) -> WebDataset[TD, ND, JD]:
        """Not supported: every ``iter()`` is the next epoch."""
        raise ConfigError(
            "WebDataset.repeat: a loader gives one epoch at a time",
            hint="loop over epochs: every iter(loader) is the next one; with_epoch(n) makes epochs of any length",
        )

    def unbatched(self) -> WebDataset[TD, ND, JD]:
        """Samples again: takes ``batched`` back."""
        if self._batch is None:
            raise ConfigError("WebDataset.unbatched: the samples are not batched", hint="leave it out")
        if self._collate is not None:
            raise ConfigError(
                "WebDataset.unbatched: after collation_fn or map of batches, batches are not samples any more",
                hint="leave batched and unbatched out, and call map on samples",
            )
        return self._with(_batch=None, _drop=False)

    def _unbatched(self, call: str) -> None:
        if self._batch is not None:
            raise ConfigError(f"WebDataset.{call}: called after batched", hint=f"call {call} first")

    def _handled(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        problems = Problems("WebDataset")
        handler = keywords.get("handler")
        policy = _webwords.policy(handler, problems)
        problems.raise_any()
        return {} if policy is None else {"_on_bad": policy, "_handler": _webwords.called(handler)}

    # For the loader.

    def _where(self) -> dict[str, Any]:
        """The dataset in the form of the Spec."""
        storage = {} if self._storage is None else {"storage": self._storage}
        return {"path": self.urls, "format": "tar", **storage}

    def _recipe(self) -> Recipe:
        return Recipe(
            self._where(),
            self._known,
            form="dict" if self._native_tuple is None else "tuple",
            squeeze=self._squeezed(),
            shuffle=self._shuffle,
            seed=self._seed,
            batch=self._batch,
            drop=self._drop,
            on_bad=self._on_bad,
            epoch_items=self._epoch,
            epoch_in_batches=self._epoch_in_batches,
        )

    def _collation(self) -> Any:
        return self._collate or super()._collation()

    def _stepped(self) -> Any:
        if self._after and self._whole is None:
            self._whole = self._collated()
        return self._whole

    _whole: Any = None  # this dataset with its steps of Python; other chains have another one

    def _collated(self) -> Any:
        from ._steps import Stepped

        shown = Shown({(i if self._native_tuple else name): form for i, name, form in self._forms()})
        steps = (shown, *self._after, Delivered()) if self._after else (shown,)
        return Stepped(self._with(_after=(), _collate=None), steps, asked=self._asked)

    def _samples(self) -> int:
        whole = self._stepped()
        return super()._samples() if whole is None else int(whole._samples())

    def _forms(self) -> Iterator[tuple[int, str, str]]:
        """Which fields functions get in another form than the engine gives them."""
        word = (self._decode or {}).get("", "")
        for i, field in enumerate(self._fields()):
            if field["decode"] in ("rgb", "gray") and word:
                form = after(field.get("transform", []), "pil" if word.startswith("pil") else "tensor")
                if "layout" in field and not word.startswith("pil"):
                    form = "numpy"  # whether or not torchvision has been imported
                if form != "tensor":
                    yield i, field["name"], form
            elif field["decode"] == "npy":
                yield i, field["name"], "numpy"

    def _watched(self, made: Any, settings: Any) -> Any:
        return made if self._handler is None else Handled(made, self._handler, settings.hands is not None)

    def _squeezed(self) -> frozenset[str]:
        """Grey images without a channel axis; known when the fields are."""
        word = (self._decode or {}).get("", "")
        if not word or not _webwords.IMAGES[word][3]:
            return frozenset()
        return frozenset(f["name"] for f in self._known or [] if f["decode"] == "gray")

    def _fields(self) -> list[dict[str, Any]]:
        if self._known is None:
            names = self._native_tuple or self._chosen or self._all_names()
            problems = Problems("WebDataset")
            used: dict[str, int] = {}
            fields = []
            for i, name in enumerate(names):
                used[name] = used.get(name, 0) + 1
                shown = name if used[name] == 1 else f"{name}#{used[name]}"  # a tuple may hold a field twice
                fields.append(self._field(shown, name, self._ops.get(i, []), problems))
            for key in self._ops:
                if isinstance(key, str) and not any(key in shown.split(";") for shown in used):
                    near = difflib.get_close_matches(key, used, 1)
                    problems.add(
                        f"map_dict({key}=...): there is no field {key!r}",
                        f"did you mean {near[0]!r}?" if near else "there are " + ", ".join(used),
                    )
            problems.raise_any()
            self._known = fields
        return self._known

    def _all_names(self) -> list[str]:
        """All fields under their new names; the index knows them."""
        probe = _client.Loader({"dataset": self._where()}, keeps=False)
        try:
            stored = [f.name for f in probe.info().fields]
        finally:
            probe.close()
        taken = {part for names in self._renamed.values() for part in names.split(";")}
        kept = [name for name in stored if name not in taken and name not in self._renamed] if self._keep else []
        return [*_webwords.KEYS, *kept, *self._renamed]

    def _stored(self, name: str) -> str:
        return self._renamed.get(name, name)

    def _field(self, shown: str, name: str, ops: Ops, problems: Problems) -> dict[str, Any]:
        stored = ";".join(self._stored(part) for part in name.split(";"))
        ops = [op for part in name.split(";") for op in self._ops.get(part, [])] + ops
        codecs = [self._codec(part, problems) for part in stored.split(";")]
        codec, own, layout = codecs[0]
        if any(other != codecs[0] for other in codecs):
            problems.add(f"field {name!r}: {stored} are decoded in different ways", "name fields of one kind")
        if own == _webwords.FLOAT and (late := [op["op"] for op in ops if on_bytes(op["op"])]):
            problems.add(
                f"field {name!r}: decode() makes floats of images, and {late[0]} works on bytes",
                "decode('pil') keeps bytes; add ToTensor() after the other transforms",
            )
        field: dict[str, Any] = {"name": shown, "from": stored, "decode": codec}
        if own or ops:
            field["transform"] = own + ops
        if layout and not ops:
            field["layout"] = layout
        return field

    def _codec(self, stored: str, problems: Problems) -> tuple[str, Ops, str | None]:
        kind = read_as(stored)
        if stored in _webwords.KEYS:
            return "text", [], None
        decode = self._decode
        if decode is None or ("only" in decode and stored not in decode["only"].split(";")):
            return "bytes", [], None
        if kind == "image" and decode[""]:
            codec, ops, layout, _ = _webwords.IMAGES[decode[""]]
            return codec, ops, layout
        if kind == "pickle":
            problems.add(
                f"field {stored!r} is a pickle, and reading a pickle runs code that it contains",
                "leave the field out with to_tuple, take its bytes with decode(only=...), or store JSON instead",
            )
        if kind == "unbuilt":
            problems.add(
                f"field {stored!r}: decoding .{suffix(stored)} is not supported yet",
                "leave the field out with to_tuple, or take its bytes with decode(only=...) and read them yourself",
            )
        return _webwords.CODECS.get(kind, "bytes"), [], None

    # Without a loader.

    def __len__(self) -> int:
        """Number of items: samples, or batches after ``batched``; what ``with_length`` said, if it was called."""
        if self._length is not None:
            return self._length
        if self._epoch is not None:
            return self._epoch
        samples = self._samples()
        if (size := self._asked.get("sized")) is not None:
            batches: int = samples // size if self._asked.get("drop") else -(-samples // size)
            return batches
        if self._batch is None:
            return samples
        return samples // self._batch if self._drop else -(-samples // self._batch)

    def __iter__(self) -> Iterator[Any]:
        """The next epoch, as a loader with batch_size=None gives it."""
        from ._loader import DataLoader

        if self._loader is None:
            self._loader = DataLoader(self, batch_size=None)
        return iter(self._loader)

    def __repr__(self) -> str:
        return f"WebDataset({shown_all(self.urls)!r})"

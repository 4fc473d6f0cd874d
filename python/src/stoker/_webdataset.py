"""Tar shards with WebDataset's chain of calls, each translated into a part of the Spec."""

from __future__ import annotations

import copy
import difflib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from . import _client, _notice
from ._compile import on_bytes, to_ops
from ._datasets import Dataset, _path, absolute, check_keywords
from ._errors import ConfigError, Problems, whole
from ._fields import read_names, read_text
from ._numbers import scalar
from ._spec import Recipe
from ._suffixes import read_as, suffix
from ._types import JD, ND, TD

if TYPE_CHECKING:
    from ._types import AnyTuple, Dict

Ops = list[dict[str, Any]]

_FLOAT: Ops = [{"op": "ToImage"}, {"op": "ToDtype", "dtype": "float32", "scale": True}]
_BYTES: Ops = [{"op": "ToImage"}]

# decode's words for images: codec, operations, layout, whether without a channel axis.
_IMAGES: dict[str, tuple[str, Ops, str | None, bool]] = {
    "pil": ("rgb", [], None, False),
    "pillow": ("rgb", [], None, False),
    "pilrgb": ("rgb", [], None, False),
    "pill": ("gray", [], None, False),
    "rgb8": ("rgb", _BYTES, "nhwc", False),
    "rgb": ("rgb", _FLOAT, "nhwc", False),
    "l8": ("gray", _BYTES, "nhwc", True),
    "l": ("gray", _FLOAT, "nhwc", True),
    "torchrgb8": ("rgb", _BYTES, None, False),
    "torchrgb": ("rgb", _FLOAT, None, False),
    "torch": ("rgb", _FLOAT, None, False),
    "torchl8": ("gray", _BYTES, None, True),
    "torchl": ("gray", _FLOAT, None, True),
}
_CODECS = {"number": "int", "text": "text", "json": "json", "npy": "npy"}
_KEYS = ("__key__", "__url__")

_LATER = "running Python code on samples needs Python workers, which come in a later release; "


class WebDataset(Dataset[TD, ND, JD], Generic[TD, ND, JD]):
    """Samples in tar shards, by WebDataset's rules: members that share a name up to the first dot are one sample, and
    the rest of the name is the field.

    ``urls`` is a path, with ``{000..099}`` braces, wildcards or ``::`` between several, or a list of paths. The methods
    return a new dataset: ``shuffle decode select to_tuple map_tuple map_dict rename batched with_epoch with_length
    cache``.

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
    is stoker's. These arguments keep their meaning: ``handler`` (by name: reraise_exception, warn_and_continue,
    ignore_and_continue, for on_bad="fail" and "replace"), ``shardshuffle`` (any: full shuffle), ``empty_check``,
    ``seed``. The others are ignored with a notice if they have no effect in stoker, and are a ConfigError otherwise.
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
    ) -> None:
        problems = Problems("WebDataset")
        seed = scalar(seed)
        self.urls = _shards(urls, problems)
        self._shuffle = bool(shardshuffle)
        self._on_bad = _policy(handler, problems)
        self._seed = seed
        if seed is not None and (not whole(seed) or not 0 <= seed < 1 << 64):
            problems.add(f"seed is {seed!r}", "give an integer from 0 to 2**64 - 1")
        if resampled or mode == "resampled":
            problems.add("resampled=True draws shards with replacement", "leave it out; .with_epoch(n) sets the length")
        if select_files is not None or rename_files is not None:
            problems.add("select_files and rename_files are Python functions", _LATER + "use to_tuple and rename")
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
                _notice.say(f"WebDataset({name}=...) is ignored: {_MOOT[name]}")
        self._decode: dict[str, str] | None = None  # field -> word, "" for images; None: bytes
        self._renamed: dict[str, str] = {}  # new name -> stored names
        self._keep = True  # rename keeps the other fields
        self._tuple: list[str] | None = None
        self._chosen: list[str] | None = None  # for dicts; None: all
        self._ops: dict[int | str, Ops] = {}
        self._batch: int | None = None
        self._drop = False
        self._epoch: int | None = None
        self._epoch_in_batches = False
        self._length: int | None = None
        self._known: list[dict[str, Any]] | None = None
        self._loader: Any = None

    # The chain of calls.

    def _with(self, **changes: Any) -> WebDataset[Any, Any, Any]:
        new = copy.copy(self)
        new.__dict__.update({"_peek": None, "_maker": None, "_known": None, "_loader": None, **changes})
        return new

    def shuffle(self, size: int = 1000, **keywords: Any) -> WebDataset[TD, ND, JD]:
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
        if pre is not None or post is not None:
            problems.add("pre and post are Python functions", _LATER + "leave them out")
        words = dict(self._decode or {"": ""})
        for arg in args:
            if callable(arg):
                problems.add(
                    f"{getattr(arg, '__name__', arg)!r} is a Python function", _LATER + "use a word like 'pil'"
                )
            elif not isinstance(arg, str):
                problems.add(
                    f"{arg!r:.80} is not a known image decoder", "give a word: " + ", ".join(map(repr, _IMAGES))
                )
            elif arg.lower() in _IMAGES:
                words[""] = arg.lower()
            else:
                problems.add(f"{arg!r} is not a known image decoder", _decoders(arg.lower()))
        only = only.split() if isinstance(only, str) else only
        names = read_names("only", only, problems)
        problems.raise_any()
        if names is not None:
            words["only"] = ";".join(names)
        return self._with(_decode=words, _on_bad=self._handled(keywords))

    def rename(self, keep: bool = True, **names: str) -> WebDataset[TD, ND, JD]:
        """Renames fields: ``rename(image="jpg;png")`` takes the first that a sample has."""
        if self._tuple is not None:
            raise ConfigError("WebDataset.rename: called after to_tuple", hint="call rename first")
        self._handled(names)
        names = {name: stored for name, stored in names.items() if name != "handler"}
        problems = Problems("WebDataset.rename")
        for name, stored in names.items():
            read_text(name, stored, problems)
        problems.raise_any()
        resolved = {name: ";".join(self._stored(part) for part in stored.split(";")) for name, stored in names.items()}
        ops = dict(self._ops)
        taken = {part for stored in names.values() for part in stored.split(";")}
        before = {name: stored for name, stored in self._renamed.items() if keep and name not in taken}
        for name, stored in names.items():  # earlier transforms follow the new name
            for part in stored.split(";"):
                if part in self._ops:
                    ops[name] = ops.get(name, []) + self._ops[part]
                    ops.pop(part, None)
        return self._with(_renamed={**before, **resolved}, _keep=keep and self._keep, _ops=ops)

    def to_tuple(self, *args: Any, **keywords: Any) -> WebDataset[AnyTuple, AnyTuple, AnyTuple]:
        """Samples become tuples of these fields; "jpg;png" takes the first that a sample has."""
        check_keywords("WebDataset.to_tuple", keywords, ["handler", "missing_is_error", "none_is_error"])
        if self._tuple is not None:
            raise ConfigError("WebDataset.to_tuple: the samples are tuples already", hint="call to_tuple once, last")
        names = args[0].split() if len(args) == 1 and isinstance(args[0], str) else args
        flat = [";".join(name) if isinstance(name, (list, tuple)) else name for name in names]
        if not flat or not all(isinstance(name, str) and name for name in flat):
            raise ConfigError("WebDataset.to_tuple: give names of fields", hint="to_tuple('jpg;png', 'cls')")
        return self._with(_tuple=flat, _on_bad=self._handled(keywords))

    def map_tuple(self, *transforms: Any, **keywords: Any) -> WebDataset[TD, ND, JD]:
        """Transforms for the fields of the tuple, in order; None (or a function named identity) leaves one alone."""
        check_keywords("WebDataset.map_tuple", keywords, ["handler"])
        if self._tuple is None:
            raise ConfigError("WebDataset.map_tuple: the samples are not tuples", hint="call to_tuple first")
        if len(transforms) > len(self._tuple):
            raise ConfigError(
                f"WebDataset.map_tuple: {len(transforms)} transforms for a tuple of {len(self._tuple)} fields",
                hint="give at most one for each field of to_tuple",
            )
        ops = dict(self._ops)
        for i, transform in enumerate(transforms):
            if transform is not None and getattr(transform, "__name__", "") != "identity":
                ops[i] = ops.get(i, []) + to_ops(transform, f"WebDataset.map_tuple, argument {i + 1}")
        return self._with(_ops=ops, _on_bad=self._handled(keywords))

    def map_dict(self, **transforms: Any) -> WebDataset[TD, ND, JD]:
        """Transforms for named fields of samples that are dicts."""
        if self._tuple is not None:
            raise ConfigError(
                "WebDataset.map_dict: called after to_tuple", hint="use map_tuple, or call map_dict first"
            )
        on_bad = self._handled(transforms)
        ops = dict(self._ops)
        for name, transform in transforms.items():
            if name != "handler" and transform is not None:
                ops[name] = ops.get(name, []) + to_ops(transform, f"WebDataset.map_dict({name}=...)")
        return self._with(_ops=ops, _on_bad=on_bad)

    def batched(self, batchsize: int, collation_fn: Any = None, partial: bool = True) -> WebDataset[TD, ND, JD]:
        """Batches of ``batchsize`` samples; ``partial=False`` drops the last one if it is not full."""
        problems = Problems("WebDataset.batched")
        batchsize = scalar(batchsize)
        if not whole(batchsize) or batchsize < 1:
            problems.add(f"batchsize is {batchsize!r}", "give at least 1")
        if self._batch is not None:
            problems.add("the samples are batched already", "call it once")
        if collation_fn is not None and getattr(collation_fn, "__name__", "") != "default_collation_fn":
            problems.add("collation_fn is a Python function", _LATER + "leave it out: arrays are stacked")
        problems.raise_any()
        return self._with(_batch=batchsize, _drop=not partial)

    def cache(self, memory: str | int | None = None, after: str | None = None) -> WebDataset[TD, ND, JD]:
        """Keeps samples in memory, decoded and transformed up to the first random transform (``after="decode"``: only
        decoded), up to ``memory`` ("8GiB", bytes; None: a quarter of the free memory).

        It can be called anywhere in the chain: order, batches and random transforms are never kept.
        """
        new = super().cache(memory, after)
        new.__dict__.update(_known=None, _loader=None)
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
        dataset (tail "fill", or "drop")."""
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

    def map(self, f: Any, handler: Any = None) -> WebDataset[TD, ND, JD]:
        """Not supported: Python functions cannot run on samples."""
        raise self._python("map", f, "use map_tuple(transform) or map_dict(jpg=transform)")

    def select(self, *fields: Any, **keywords: Any) -> WebDataset[Dict, Dict, Dict]:
        """Samples become dicts of these fields; "jpg;png" takes the first that a sample has.

        WebDataset's ``select(predicate)`` is not supported: Python functions cannot run on samples.
        """
        for given in (*fields, *keywords.values()):
            if callable(given):
                raise self._python("select", given, "leave it out, and choose in the training loop")
        if self._tuple is not None:
            raise ConfigError(
                "WebDataset.select: the samples are tuples already", hint="call select instead of to_tuple"
            )
        if not fields or keywords or not all(isinstance(name, str) and name for name in fields):
            raise ConfigError("WebDataset.select: give names of fields", hint="select('jpg;png', 'cls')")
        return self._with(_chosen=list(dict.fromkeys(fields)))

    def slice(self, *args: int) -> WebDataset[TD, ND, JD]:
        """Not supported: views of datasets come later."""
        raise ConfigError(
            "WebDataset.slice: parts of a dataset are not supported yet", hint="with_epoch(n) shortens epochs"
        )

    def repeat(self, nepochs: int | None = None, nbatches: int | None = None) -> WebDataset[TD, ND, JD]:
        """Not supported: every ``iter()`` is the next epoch."""
        raise ConfigError(
            "WebDataset.repeat: a loader gives one epoch at a time",
            hint="loop over epochs: every iter(loader) is the next one; with_epoch(n) makes epochs of any length",
        )

    def unbatched(self) -> WebDataset[TD, ND, JD]:
        """Not supported: batches need not be taken apart, because the engine shuffles samples."""
        raise ConfigError("WebDataset.unbatched: batches are made once", hint="call batched(n) with the final size")

    def _python(self, call: str, f: Any, hint: str) -> ConfigError:
        name = getattr(f, "__qualname__", type(f).__name__)
        return ConfigError(f"WebDataset.{call}: {name} is a Python function", hint=_LATER + hint)

    def _unbatched(self, call: str) -> None:
        if self._batch is not None:
            raise ConfigError(f"WebDataset.{call}: called after batched", hint=f"call {call} first")

    def _handled(self, keywords: dict[str, Any]) -> str | None:
        problems = Problems("WebDataset")
        found = _policy(keywords.get("handler"), problems) or self._on_bad
        problems.raise_any()
        return found

    # For the loader.

    def _recipe(self) -> Recipe:
        dataset: dict[str, Any] = {"path": self.urls, "format": "tar"}
        return Recipe(
            dataset,
            self._known,
            form="dict" if self._tuple is None else "tuple",
            squeeze=self._squeezed(),
            shuffle=self._shuffle,
            seed=self._seed,
            batch=self._batch,
            drop=self._drop,
            on_bad=self._on_bad,
            epoch_items=self._epoch,
            epoch_in_batches=self._epoch_in_batches,
        )

    def _squeezed(self) -> frozenset[str]:
        """Grey images without a channel axis; known when the fields are."""
        word = (self._decode or {}).get("", "")
        if not word or not _IMAGES[word][3]:
            return frozenset()
        return frozenset(f["name"] for f in self._known or [] if f["decode"] == "gray")

    def _fields(self) -> list[dict[str, Any]]:
        if self._known is None:
            names = self._tuple or self._chosen or self._all_names()
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
        probe = _client.Loader({"dataset": {"path": self.urls, "format": "tar"}}, keeps=False)
        try:
            stored = [f.name for f in probe.info().fields]
        finally:
            probe.close()
        taken = {part for names in self._renamed.values() for part in names.split(";")}
        kept = [name for name in stored if name not in taken and name not in self._renamed] if self._keep else []
        return [*_KEYS, *kept, *self._renamed]

    def _stored(self, name: str) -> str:
        return self._renamed.get(name, name)

    def _field(self, shown: str, name: str, ops: Ops, problems: Problems) -> dict[str, Any]:
        stored = ";".join(self._stored(part) for part in name.split(";"))
        ops = [op for part in name.split(";") for op in self._ops.get(part, [])] + ops
        codecs = [self._codec(part, problems) for part in stored.split(";")]
        codec, own, layout = codecs[0]
        if any(other != codecs[0] for other in codecs):
            problems.add(f"field {name!r}: {stored} are decoded in different ways", "name fields of one kind")
        if own == _FLOAT and (late := [op["op"] for op in ops if on_bytes(op["op"])]):
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
        if stored in _KEYS:
            return "text", [], None
        decode = self._decode
        if decode is None or ("only" in decode and stored not in decode["only"].split(";")):
            return "bytes", [], None
        if kind == "image" and decode[""]:
            codec, ops, layout, _ = _IMAGES[decode[""]]
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
        return _CODECS.get(kind, "bytes"), [], None

    # Without a loader.

    def __len__(self) -> int:
        """Number of items: samples, or batches after ``batched``; what ``with_length`` said, if it was called."""
        if self._length is not None:
            return self._length
        if self._epoch is not None:
            return self._epoch
        samples = self._look().info().samples
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
        return f"WebDataset({self.urls!r})"


_MOOT = {
    "empty_check": "a dataset without a sample is always an error",
    "nodesplitter": "samples are split over ranks one by one, by rank= and world_size=",
    "workersplitter": "the engine's lanes share the samples of every batch",
    "detshuffle": "the order is always a function of seed and epoch",
    "repeat": "every iter() is the next epoch",
    "cache_dir": "shards are read in place",
    "url_to_name": "shards are read in place",
}


# WebDataset's words for other data, which need no word here, or have none.
_OTHERS = {
    "torch_audio": "leave it out: audio is delivered as bytes",
    "torch_video": "leave it out: videos are delivered as bytes",
}


def _decoders(word: str) -> str:
    """What to try instead of an unknown decoder: similar words that decode a picture to the kind it asks for. "pill" is
    similar to "pil", but grey: none of another kind is suggested."""
    if word in _OTHERS:
        return _OTHERS[word]
    grey = word.rstrip("8").endswith("l") and not word.startswith("pil") or "gr" in word
    same = [name for name in _IMAGES if (_IMAGES[name][0] == "gray") == grey]
    near = difflib.get_close_matches(word, same, 1)
    return f"did you mean {near[0]!r}?" if near else "it can be " + ", ".join(map(repr, _IMAGES))


def _shards(urls: Any, problems: Problems) -> str | list[str]:
    if isinstance(urls, (str, bytes, os.PathLike)):
        text = _path(urls, "urls", problems)
        if text.endswith((".yaml", ".yml")):
            problems.add(f"urls is {text}: mixtures in YAML files are not supported", "give the shards themselves")
        parts = [_plain(part, problems) for part in text.split("::")]
        return parts[0] if len(parts) == 1 else parts
    if isinstance(urls, Sequence) and urls:
        return [_plain(_path(url, f"urls[{i}]", problems), problems) for i, url in enumerate(urls)]
    problems.add(f"urls is {urls!r}", "give a path like 'train-{000..099}.tar', or a list of paths")
    return []


def _plain(url: str, problems: Problems) -> str:
    if url.startswith("pipe:"):
        command = url.removeprefix("pipe:").strip()
        path = command.removeprefix("cat ").strip()
        known = path != command and not any(sign in path for sign in "|;&<>")
        problems.add(
            f"{url!r} is a command, and stoker does not run commands: it only reads local files",
            f"give the path: {path!r}" if known else "copy or mount the data, and give its path",
        )
        return url
    return absolute(url.removeprefix("file:"))


def _policy(handler: Callable[..., Any] | str | None, problems: Problems) -> str | None:
    if handler is None:
        return None
    name = handler if isinstance(handler, str) else getattr(handler, "__name__", type(handler).__name__)
    policies = {"reraise_exception": "fail", "warn_and_continue": "replace", "ignore_and_continue": "replace"}
    if name not in policies:
        problems.add(
            f"handler {name} is a Python function",
            "use warn_and_continue, ignore_and_continue or reraise_exception, or on_bad= of DataLoader",
        )
        return None
    return policies[name]

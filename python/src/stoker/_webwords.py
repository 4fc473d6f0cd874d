"""The words of WebDataset: of decode(), of the constructor, and of its handlers; and what stoker makes of them."""

from __future__ import annotations

import difflib
import os
import types
from collections.abc import Callable, Sequence
from typing import Any

from ._datasets import _path, absolute, foreign
from ._errors import Problems

Ops = list[dict[str, Any]]

_SAME = (lambda value: value).__code__.co_code  # of a function that returns its argument

FLOAT: Ops = [{"op": "ToImage"}, {"op": "ToDtype", "dtype": "float32", "scale": True}]
_BYTES: Ops = [{"op": "ToImage"}]

# decode's words for images: codec, operations, layout, whether without a channel axis.
IMAGES: dict[str, tuple[str, Ops, str | None, bool]] = {
    "pil": ("rgb", [], None, False),
    "pillow": ("rgb", [], None, False),
    "pilrgb": ("rgb", [], None, False),
    "pill": ("gray", [], None, False),
    "rgb8": ("rgb", _BYTES, "nhwc", False),
    "rgb": ("rgb", FLOAT, "nhwc", False),
    "l8": ("gray", _BYTES, "nhwc", True),
    "l": ("gray", FLOAT, "nhwc", True),
    "torchrgb8": ("rgb", _BYTES, None, False),
    "torchrgb": ("rgb", FLOAT, None, False),
    "torch": ("rgb", FLOAT, None, False),
    "torchl8": ("gray", _BYTES, None, True),
    "torchl": ("gray", FLOAT, None, True),
}
CODECS = {"number": "int", "text": "text", "json": "json", "npy": "npy"}
KEYS = ("__key__", "__url__")

# Why some of the constructor's arguments have no effect.
MOOT = {
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


def decoders(word: str) -> str:
    """What to try instead of an unknown decoder: similar words that decode a picture to the kind it asks for. "pill" is
    similar to "pil", but grey: none of another kind is suggested."""
    if word in _OTHERS:
        return _OTHERS[word]
    grey = word.rstrip("8").endswith("l") and not word.startswith("pil") or "gr" in word
    same = [name for name in IMAGES if (IMAGES[name][0] == "gray") == grey]
    near = difflib.get_close_matches(word, same, 1)
    return f"did you mean {near[0]!r}?" if near else "it can be " + ", ".join(map(repr, IMAGES))


def shards(urls: Any, problems: Problems) -> str | list[str]:
    """The paths that WebDataset's ``urls`` names."""
    if getattr(urls, "seed", None) not in (None, False):
        problems.add("urls is a SimpleShardList with a seed", "give shardshuffle=True and seed= to WebDataset")
    urls = getattr(urls, "urls", urls)  # of a SimpleShardList
    if isinstance(urls, (str, bytes, os.PathLike)):
        text = _path(urls, "urls", problems)
        if text.endswith((".yaml", ".yml")):
            problems.add(f"urls is {text}: mixtures in YAML files are not supported", "give the shards themselves")
        parts = [_plain(part) for part in ([text] if foreign(text) else text.split("::"))]
        return parts[0] if len(parts) == 1 else parts
    if isinstance(urls, Sequence) and urls:
        return [_plain(_path(url, f"urls[{i}]", problems)) for i, url in enumerate(urls)]
    problems.add(f"urls is {urls!r}", "give a path like 'train-{000..099}.tar', or a list of paths")
    return []


def _plain(url: str) -> str:
    return absolute(url if "://" in url else url.removeprefix("file:"))


def unchanged(function: Any) -> bool:
    """Whether a function only returns its argument: it is called identity, or written so."""
    if getattr(function, "__name__", "") == "identity":
        return True
    if not isinstance(function, types.FunctionType):
        return False
    code = function.__code__
    plain = code.co_argcount == 1 and not code.co_flags & (0x04 | 0x08 | 0x20 | 0x80 | 0x200)  # no *args, no generator
    return plain and code.co_kwonlyargcount == 0 and code.co_code == _SAME


def policy(handler: Callable[..., Any] | str | None, problems: Problems) -> str | None:
    """What a handler means as ``on_bad``; None: nothing was said."""
    if handler is None:
        return None
    name = handler if isinstance(handler, str) else getattr(handler, "__name__", type(handler).__name__)
    policies = {"reraise_exception": "fail", "warn_and_continue": "replace", "ignore_and_continue": "replace"}
    policies.update(warn_and_stop="fail", ignore_and_stop="fail")
    if name not in policies and not callable(handler):
        problems.add(
            f"handler is {name!r}",
            "use warn_and_continue, ignore_and_continue or reraise_exception, a function, or on_bad= of DataLoader",
        )
        return None
    return policies.get(name, "replace")


def called(handler: Any) -> Any:
    """A handler that is called; None: its name says enough."""
    known = ("reraise_exception", "warn_and_continue", "ignore_and_continue", "warn_and_stop", "ignore_and_stop")
    return handler if callable(handler) and getattr(handler, "__name__", "") not in known else None

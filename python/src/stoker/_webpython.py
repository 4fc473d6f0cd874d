"""WebDataset's chain from its first step of Python on: what functions get, and what they do.

Shown      samples as WebDataset has them: PIL images, arrays of NumPy
Decode     ``decode`` with functions
Continue   what a decoder of ``decode`` returns for the next one
Composed   ``compose``: a stage, which gets an iterator of samples
Delivered  samples as they leave: a PIL image as the engine delivers pictures
Handled    batches of a loader whose bad samples a handler is asked about
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._program import Map, Step
from ._split import delivered, shown
from ._suffixes import read_as
from ._wire import Message


class Shown(Step):
    """``forms``: by name or place, "pil" or "numpy" for what is not so already."""

    call = "decode"
    idle = True

    def __init__(self, forms: Mapping[Any, str]) -> None:
        self.forms = dict(forms)

    def run(self, sample: Any, key: int) -> Any:
        if isinstance(sample, Mapping):
            made = dict(sample)
            for name, form in self.forms.items():
                made[name] = _formed(made[name], form)
            return made
        values = list(sample)
        for at, form in self.forms.items():
            values[at] = _formed(values[at], form)
        return tuple(values)


def _formed(value: Any, form: str) -> Any:
    if form == "numpy":
        return value.numpy() if hasattr(value, "numpy") else value
    return shown(value, form)


class Delivered(Step):
    idle = True

    def run(self, sample: Any, key: int) -> Any:
        if isinstance(sample, dict):
            return {name: delivered(value) for name, value in sample.items()}
        if type(sample) in (tuple, list):
            return type(sample)(map(delivered, sample))
        return delivered(sample)


class Mapped(Map):
    """``map``: a sample that is a dict keeps its key."""

    def run(self, sample: Any, key: int) -> Any:
        made = super().run(sample, key)
        if isinstance(made, dict) and isinstance(sample, Mapping):
            made["__key__"] = sample.get("__key__")
        return made


class Decode(Step):
    """Each field's bytes through the first decoder that does not return None: ``function(key, bytes)``, where the key
    is ".jpg", or a word for images; then the usual ones."""

    call = "decode"

    def __init__(self, decoders: Sequence[Any], only: Sequence[str] | None) -> None:
        self.decoders = tuple(decoders)
        self.only = None if only is None else frozenset(only)
        self.functions = tuple(one for one in decoders if callable(one))

    def run(self, sample: Any, key: int) -> Any:
        if not isinstance(sample, Mapping):
            raise TypeError("decode needs samples that are dicts: call it before to_tuple")
        return {name: self._decoded(name, value) for name, value in sample.items()}

    def _decoded(self, name: str, value: Any) -> Any:
        if name.startswith("__") or not isinstance(value, bytes) or (self.only is not None and name not in self.only):
            return value
        if name.endswith(".gz"):
            name, value = name[:-3], gzip.decompress(value)
        for decoder in self.decoders:
            found = decoder("." + name, value) if callable(decoder) else _pictured(decoder, name, value)
            if type(found).__name__ == "Continue":  # stoker's or webdataset's
                name, value = found.key.removeprefix("."), found.data
            elif found is not None:
                return found
        return _usual(name, value)


def _pictured(word: str, name: str, data: bytes) -> Any:
    """A picture as a word of WebDataset's says; None if it is none."""
    if read_as(name) != "image":
        return None
    import numpy
    from PIL import Image

    picture = Image.open(io.BytesIO(data)).convert("L" if word.rstrip("8").endswith("l") and word != "pil" else "RGB")
    if word.startswith("pil"):
        return picture
    pixels = numpy.array(picture)
    if not word.endswith("8"):
        pixels = pixels.astype("float32") / 255.0
    if not word.startswith("torch"):
        return pixels
    import torch

    return torch.from_numpy(pixels if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy())


def _usual(name: str, data: bytes) -> Any:
    kind = read_as(name)
    if kind == "number":
        return int(data)
    if kind == "text":
        return data.decode()
    if kind == "json":
        return json.loads(data)
    if kind == "npy":
        import numpy

        return numpy.load(io.BytesIO(data), allow_pickle=False)
    if kind == "pickle":
        raise ValueError(
            f"field {name!r} is a pickle, and reading it runs code that it contains: give decode a function for it"
        )
    return data


class Continue:
    """What a decoder returns for the next ones to go on with, instead of a decoded value: another key and other
    bytes."""

    def __init__(self, key: str, data: bytes) -> None:
        self.key, self.data = key, data


class Composed(Step):
    """A stage of a pipeline, run on one sample after another: it has to give one for one."""

    call = "compose"

    def __init__(self, stage: Callable[..., Any]) -> None:
        self.functions = (stage,)

    def run(self, sample: Any, key: int) -> Any:
        found = list(self.functions[0](iter([sample])))
        if len(found) != 1:
            raise ValueError(
                f"the stage gave {len(found)} samples for one: filter() or select(predicate) leaves samples out, and "
                "a stage that needs several samples has to run on batches, as collation_fn"
            )
        return found[0]


class Handled:
    """What makes batches; the handler is called with the exception of every bad sample, and the pass goes on if it
    returns true, as in WebDataset."""

    def __init__(self, inner: Any, handler: Callable[[BaseException], Any], facts: bool) -> None:
        self._inner = inner
        self._facts = facts  # it makes pairs of a batch and its facts
        self._handler = handler

    def make(self, message: Message, root: Any) -> Any:
        made = self._inner.make(message, root)
        if message.get("bad"):
            for bad in made[1]["bad"] if self._facts else made.bad:
                if not self._handler(bad.error.__cause__ or bad.error):
                    raise bad.error
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

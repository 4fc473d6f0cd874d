"""What ``batch_transform=`` of a DataLoader says: a Mix, or a function of the user's.

read()   the keyword -> Mix, Changes or None
mix_of() one transform -> Mix or None
Mix      MixUp, CutMix, or a RandomChoice of these, ours or torchvision's: the engine chooses, and mixes the batches
         that it makes; those that Python makes are mixed by _mixing.py, and those on a device by _device_mix.py
Changes  anything else that can be called: it gets each batch, in the training process

torch and torchvision are not imported: classes are recognised by their modules and names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _notice
from . import _parameters as parameters
from ._compile import _changed, _is_ours, _is_torchvision
from ._errors import ConfigError, Problems
from ._parameters import Wrong
from ._theirs import called, digest_with

_NAMES = ("MixUp", "CutMix")
_HEURISTIC = "_find_labels_default_heuristic"  # torchvision's labels_getter="default"


@dataclass(frozen=True)
class Mix:
    """A batch transform that the engine knows."""

    op: dict[str, Any]  # of the Spec, without the field of the labels
    getter: Callable[[Any], Any] | None  # what finds the labels in a batch; None: torchvision's rule

    @property
    def words(self) -> str:
        names = [op["op"] for op in self.op.get("transforms", [self.op])]
        return " or ".join(dict.fromkeys(names))

    def spec(self, form: str, names: Callable[[], Sequence[str]] | None) -> dict[str, Any]:
        """Its part of the Spec. ``names`` gives the fields of batches, if the engine makes them."""
        label = None if names is None else self._label(form, names())
        if label is None:
            return self.op
        if "transforms" in self.op:
            return {**self.op, "transforms": [{**op, "labels": label} for op in self.op["transforms"]]}
        return {**self.op, "labels": label}

    def _label(self, form: str, names: Sequence[str]) -> str:
        """The field that has the labels."""
        marks = {name: _Mark(name) for name in names}
        batch: Any = marks if form == "dict" else tuple(marks.values())
        if form == "one":
            batch = next(iter(marks.values()))
        if self.getter is None:
            found = usual(batch, self.words)
        else:
            try:
                found = self.getter(batch)
            except Exception as error:
                raise ConfigError(
                    f"labels_getter of {self.words} cannot find the labels in a batch of {_listed(names)}",
                    cause=f"{type(error).__name__}: {error}",
                    hint="it gets the batch and returns one of its fields: lambda batch: batch[1]",
                ) from error
        if not isinstance(found, _Mark):
            raise ConfigError(
                f"labels_getter of {self.words} returned {found!r:.80} for a batch of {_listed(names)}",
                hint="the engine mixes fields as they are: it has to return one of them, such as batch[1]",
            )
        return found.name

    def labels(self, batch: Any) -> Any:
        """The labels of a batch that Python made."""
        return usual(batch, self.words) if self.getter is None else self.getter(batch)


class _Mark:
    """In the place of a field, to see which one a labels_getter returns."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"the field {self.name!r}"


@dataclass(frozen=True)
class Changes:
    """A function of the user's that gets each batch."""

    function: Callable[[Any], Any]

    def pipeline(self, known: str) -> str:
        """The digest of fields and transforms in states, with this function in it."""
        return digest_with(known, "batch_transform", self.function)


def usual(batch: Any, what: str) -> Any:
    """The labels of a batch, by torchvision's rule: the second field; in a dict, "labels", or the first key with
    "label" in it."""
    if isinstance(batch, (tuple, list)):
        if len(batch) < 2:
            raise ConfigError(f"{what} finds the labels in the second field of a batch, and there is {len(batch)}")
        batch = batch[1]
    if not isinstance(batch, Mapping):
        return batch
    keys = [key for key in batch if isinstance(key, str)]
    found = [key for key in keys if key.lower() == "labels"] or [key for key in keys if "label" in key.lower()]
    if not found:
        raise ConfigError(
            f"{what} cannot tell where the labels are: batches have {_listed(keys)}",
            hint='pass labels_getter=lambda batch: batch["..."] to it, or rename the field to "labels"',
        )
    return batch[found[0]]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "no fields"


def read(transform: Any, problems: Problems) -> Mix | Changes | None:
    """What ``batch_transform=`` is; adds what is wrong with it to problems."""
    if transform is None:
        return None
    if isinstance(transform, type):
        name = transform.__name__
        problems.add(f"batch_transform is {name}, a class", f"write {name}(...)")
        return None
    try:
        mix = mix_of(transform)
    except Wrong as wrong:
        problems.add(f"batch_transform: {wrong.what}", wrong.hint)
        return None
    if mix is not None:
        return mix
    if _is_ours(type(transform)):
        problems.add(
            f"batch_transform: {type(transform).__name__} of stoker.transforms is for pictures, not for batches",
            "give it to the dataset; for batches there are MixUp, CutMix and a RandomChoice of these",
        )
        return None
    if not callable(transform):
        problems.add(
            f"batch_transform is of type {type(transform).__name__}, which cannot be called",
            "give MixUp, CutMix, a RandomChoice of these, or a function of a batch",
        )
        return None
    _notice.say(
        f"batch_transform {called(transform)} is called with each batch in the training process, which waits for it; "
        "MixUp, CutMix and a RandomChoice of these are known to the engine"
    )
    return Changes(transform)


def _known(transform: Any, *names: str) -> bool:
    """Whether it is of exactly such a class, ours or torchvision's, and nothing of it was replaced."""
    cls = type(transform)
    return cls.__name__ in names and (_is_ours(cls) or _is_torchvision(cls)) and _changed(transform) is None


def mix_of(transform: Any) -> Mix | None:
    """What a transform says of batches, or Wrong; None if it is none of those that the engine knows."""
    if _known(transform, *_NAMES):
        return _one(transform)
    if not _known(transform, "RandomChoice"):
        return None
    inner = list(transform.transforms)
    if not inner or not all(_known(one, *_NAMES) for one in inner):
        return None
    all_of = [_one(one) for one in inner]
    op: dict[str, Any] = {"op": "RandomChoice", "transforms": [one.op for one in all_of]}
    if transform.p is not None:
        op["p"] = parameters.numbers("p", transform.p)
    if any(one.getter != all_of[0].getter for one in all_of):
        raise Wrong("the transforms of RandomChoice have different labels_getters", "give all the same one")
    return Mix(op, all_of[0].getter)


def _one(transform: Any) -> Mix:
    name = type(transform).__name__
    op: dict[str, Any] = {"op": name, "alpha": parameters.number("alpha", transform.alpha)}
    if transform.num_classes is not None:
        op["num_classes"] = parameters.whole("num_classes", transform.num_classes)
    getter = transform._labels_getter if hasattr(transform, "_labels_getter") else transform.labels_getter
    if getter == "default" or getattr(getter, "__name__", "") == _HEURISTIC and not _is_ours(type(transform)):
        return Mix(op, None)
    if getter is None:
        raise Wrong(f"{name}: labels_getter is None, and there is nothing to mix without labels", "leave it out")
    return Mix(op, getter)

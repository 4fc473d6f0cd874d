"""Names for what a model gets: batches of stoker's own datasets as the keywords of ``forward``.

Batches of a collator are what it made. Those that no collator makes are renamed as transformers' default_data_collator
does (``label`` and ``label_ids`` are ``labels``), and a tuple gets the names of its fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from .._batch import DictBatch
from .._crew import _is_default
from .._errors import ConfigError
from .._loader import DataLoader
from .._theirs import in_words
from .._views import Groups

# Names of fields, and what transformers' models call them.
_SAME = {
    "label": "labels",
    "label_ids": "labels",
    "cls": "labels",
    "image": "pixel_values",
    "images": "pixel_values",
}


class Names:
    """``names(loader, batch)``: the batch as the model of a Trainer wants it."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._wanted: list[str] | None = None
        self._any = False  # whether forward takes every keyword

    def __call__(self, loader: DataLoader[Any], batch: Any) -> Any:
        collate = loader._settings.torch["collate_fn"]
        collated = collate is not None and not _is_default(collate, loader.batch_size is None)
        if collated or not isinstance(batch, (Mapping, tuple, list)):
            return batch
        wanted = self._wanted or self._parameters()
        named = dict(batch) if isinstance(batch, Mapping) else self._pairs(loader, batch, wanted)
        if isinstance(batch, Mapping) and all(name in wanted for name in named):
            return batch
        found = DictBatch(self._renamed(named, wanted))
        vars(found).update(getattr(batch, "__dict__", {}))
        return found

    def _parameters(self) -> list[str]:
        """The keywords of the model's forward, its main input first."""
        model = self._trainer.model
        if callable(inner := getattr(model, "get_base_model", None)):  # of PEFT
            model = inner()
        parameters = inspect.signature(model.forward).parameters.values()
        self._any = any(one.kind is one.VAR_KEYWORD for one in parameters)
        names = [one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        main = getattr(model, "main_input_name", None)
        first = [main] if main in names else [name for name in names if "label" not in name][:1]
        self._wanted = first + [name for name in names if name not in first]
        return self._wanted

    def _pairs(self, loader: DataLoader[Any], batch: Sequence[Any], wanted: Sequence[str]) -> dict[str, Any]:
        """The values of a tuple with their names: those of the fields, or of (input, label)."""
        names = _fields(loader, len(batch))
        if names is not None and all(self._name(name, wanted) is not None for name in names):
            return dict(zip(names, batch, strict=True))
        labels = [name for name in wanted if name == "labels"]
        if len(batch) <= 1 + len(labels) and wanted:
            return dict(zip([wanted[0], *labels], batch, strict=False))
        raise ConfigError(
            f"batches are tuples of {len(batch)}"
            + (f" ({in_words(names)})" if names else "")
            + ", and the model wants "
            f"names: {', '.join(wanted)}",
            hint="let the samples be dicts with these names: dataset.select(stoker.Field('pixel_values', "
            "source='image'), ...), or .map(lambda image, label: {'pixel_values': image, 'labels': label})",
        )

    def _name(self, name: str, wanted: Sequence[str]) -> str | None:
        """What the model calls a field; None if it does not take it."""
        if name in wanted:
            return name
        other = _SAME.get(name)
        return other if other in wanted or (other == "labels" and self._any) else None

    def _renamed(self, named: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in named.items():
            known = self._name(name, wanted)
            if known is not None:
                found[known] = value
            elif not self._trainer.args.remove_unused_columns:
                found[name] = value
        if not found:
            raise ConfigError(
                f"the model's forward takes none of the fields {in_words(list(named))}: it has {', '.join(wanted)}",
                hint="rename them: dataset.select(stoker.Field('pixel_values', source='jpg'), ...); or pass "
                "remove_unused_columns=False",
            )
        return found


def _fields(loader: DataLoader[Any], count: int) -> list[str] | None:
    """The names of the fields of batches that are tuples of this many; None if only Python code knows them."""
    if loader._settings.hands is not None:
        return None
    names = [str(name) for name in Groups(loader._info().fields).names]
    return names if len(names) == count else None

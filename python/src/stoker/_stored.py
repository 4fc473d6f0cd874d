"""Datasets of fields stored in files: this module chooses what is delivered, field by field; the engine reads it.

Stored   fields of samples that some format stores, as dicts or as tuples
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from . import _client
from ._advice import check_names
from ._cache import amount
from ._datasets import Dataset, _path, absolute
from ._errors import ConfigError, Problems, StokerError
from ._fields import SAID, Field, read_fields, read_text
from ._shown import shown_all
from ._spec import Form, Recipe
from ._split import bare, said
from ._stores import read_origins, read_storage
from ._types import JD, JP, ND, NP, TD, TP

if TYPE_CHECKING:
    from ._types import AnyTuple, Dict


# Keys of a dataset in the Spec that hold a name, and the keywords of those with another name.
_NAMES = frozenset(("group", "database", "values", "label", "path_column"))
_KEYWORDS = {"path_column": "path"}


class Stored(Dataset[TD, ND, JD], Generic[TD, ND, JD]):
    """Common to datasets of stored fields. If the storage names its fields, samples are dicts with these names; files,
    tables, .npy files and tokens give tuples.

    fields     what is delivered, in order: names, or ``Field``; None: all that the format has
    chosen_by  the keyword by which the user chose them
    storage_options   how the store of the path is reached: endpoint_url, region, profile, anonymous, requester_pays,
               token_env (the name of a variable), fresh ("always", "never"); fsspec's names for them work too.
               Keys and tokens are refused: they come from the environment, as for the store's own tools
    origins    prefixes of what a manifest or a list may name elsewhere ("s3://bucket/folder/")

    A name that was declared before, by ``fields`` or an earlier call, keeps its declaration: ``select("image")`` of a
    dataset with a transform has that transform.
    """

    _fixed: ClassVar[Mapping[str, str]] = {
        **Dataset._fixed,
        "path": "",
        "fields": "choose them with dataset.select(...) or dataset.to_tuple(...)",
        "classes": "the names are those of the stored labels",
    }
    _form: Form = "dict"
    _format = ""
    # The transform of a dataset of pictures, as it was given, and the names of the fields that have it.
    _transform: Any = None
    _pictures: tuple[str, ...] = ()
    _known: list[dict[str, Any]] | None = None
    _declared: dict[
        str, dict[str, Any]
    ]  # by name: the last declaration of every field, whether or not it is delivered now

    def __init__(
        self,
        path: Any,
        fields: Sequence[str | Field] | None = None,
        *,
        chosen_by: str = "fields",
        storage_options: Mapping[str, Any] | None = None,
        origins: Sequence[str] | None = None,
        **keys: Any,
    ) -> None:
        problems = Problems(type(self).__name__)
        self.path = paths(path, problems)
        self._given = read_fields(fields, {}, problems, chosen_by)
        self._declared = {field["name"]: field for field in self._given or []}
        keys["storage"] = read_storage(storage_options, problems, self.path)
        keys["origins"] = read_origins(origins, problems)
        self._keys = {key: value for key, value in keys.items() if value is not None}
        for key in _NAMES & self._keys.keys():
            read_text(_KEYWORDS.get(key, key), self._keys[key], problems)
        problems.raise_any()
        if "unpacked" in self._keys and amount(unpacked := self._keys["unpacked"]) is None:
            problems.add(f"unpacked is {unpacked!r}", "give an amount like '1GiB', or a number of bytes")
        problems.raise_any()
        self._opened()

    def _opened(self) -> None:
        """Raises what is wrong with the dataset. Fields of its own that cannot be delivered are not an error until they
        are asked for: select() and to_tuple() may name others."""
        try:
            self._remote().info()
        except ConfigError as error:
            self._peek = None
            if self._given is not None:
                raise
            try:
                self._probe(None)
            except StokerError:
                raise error from None

    def _where(self) -> dict[str, Any]:
        """The dataset in the form of the Spec."""
        return {"path": self.path, "format": self._format, **self._keys}

    def _recipe(self) -> Recipe:
        return Recipe(self._where(), copy.deepcopy(bare(self._given)), form=self._form)

    def _python_steps(self) -> tuple[Any, ...]:
        found = [(i, field["name"], field["python"]) for i, field in enumerate(self._given or []) if "python" in field]
        if not found:
            return ()
        from ._program import Tails

        at = {(name if self._form == "dict" else i): tail for i, name, tail in found}
        return (Tails(at, one=self._form == "one"),)

    def _renew(self) -> None:
        if self._transform is not None:
            self._transformed(said(self._transform, f"{type(self).__name__}.transform"))

    def _transformed(self, told: Mapping[str, Any]) -> None:
        """Sets this transform for the pictures."""
        ops, tail = told["transform"], told.get("python")
        changed = False
        for name in self._pictures:
            field = self._declared[name]
            if field.get("transform", []) == ops and field.get("python") == tail:
                continue
            changed = True
            # Not in place: other datasets made from this one share the same dicts.
            new = {key: value for key, value in field.items() if key not in ("transform", "python")}
            new.setdefault("decode", "rgb")
            new.update({key: value for key, value in told.items() if value})
            self._declared = {**self._declared, name: new}
            self._given = [new if one["name"] == name else one for one in self._given or []]
        if changed:
            self._known = self._peek = self._maker = None

    def _fields(self) -> list[dict[str, Any]] | None:
        """The fields as they were given; for those given by name only, what the format says about them."""
        self._renew()
        if self._known is None and self._given is not None:
            own = self._own() if any(not SAID & field.keys() for field in self._given) else {}
            self._known = [
                {**field, "decode": own[stored]}
                if not SAID & field.keys() and (stored := field.get("from", field["name"])) in own
                else field
                for field in self._given
            ]
        fields: list[dict[str, Any]] | None = copy.deepcopy(bare(self._known))
        return fields

    def _own(self) -> dict[str, str]:
        """How the format decodes those of its fields that it stores as bytes."""
        words = {"image": "rgb", "text": "text", "json": "json"}
        try:
            found = self._probe(None)
        except StokerError:  # the error will be raised again
            found = []
        own = {field.name: words[field.kind] for field in found if field.kind in words}
        return {"__key__": "text", "__url__": "text", **own}

    def _probe(self, fields: list[dict[str, Any]] | None) -> list[_client.Field]:
        """What the engine says about fields; None: about all of its own that it can deliver."""
        spec: dict[str, Any] = {"dataset": self._where(), "batch": {"size": 1}, "deliver": {"prefetch": 1}}
        spec = {**spec, "workers": 1, **({"fields": fields} if fields else {})}
        probe = _client.Loader(spec, keeps=False, stored=fields is None, members=self._members())
        try:
            return probe.info().fields
        finally:
            probe.close()

    @property
    def fields(self) -> list[str]:
        """The names of the fields of a sample, in order."""
        names: list[str] = self._frozen("fields", self._remote().info().names)
        return names

    @property
    def classes(self) -> list[str]:
        """The names of the classes, where labels have names."""
        names: list[str] = self._frozen("classes", list(self._look().info().classes))
        return names

    def select(self, *fields: str | Field) -> Stored[Dict, Dict, Dict]:
        """The same dataset with these fields only, in this order, as dicts. See the class for what they keep."""
        return self._with(fields, "dict")

    def to_tuple(self, *fields: str | Field) -> Stored[AnyTuple, AnyTuple, AnyTuple]:
        """The same dataset with these fields, in this order, as tuples; without fields, all it has."""
        return self._with(fields or None, "tuple")

    def _with(self, fields: Sequence[str | Field] | None, form: Form) -> Stored[Any, Any, Any]:
        other = copy.copy(self)
        other.__dict__ = self.__getstate__()
        check_names(f"{type(self).__name__}.{'select' if form == 'dict' else 'to_tuple'}", fields or ())
        problems = Problems(type(self).__name__)
        if fields is not None:
            given = read_fields(fields, self._declared, problems) or []
            other._declared = {**self._declared, **{field["name"]: field for field in given}}
            other._pictures = self._still(fields, given)
            other._given, other._known = given, None
        problems.raise_any()
        other._form = form
        other._remote().info()
        return other

    def _still(self, fields: Sequence[str | Field], given: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Which fields have the dataset's own transform: those that had it and were not given another one."""
        own = {
            field.name for field in fields if isinstance(field, Field) and {"transform", "decode"} & field.spec.keys()
        }
        kept = [name for name in self._pictures if name not in own]
        for field in given:
            if field["name"] not in own and field.get("from") in self._pictures:
                kept.append(field["name"])
        return tuple(dict.fromkeys(kept))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({shown_all(self.path)!r})"


def paths(path: Any, problems: Problems, name: str = "path") -> str | list[str]:
    """One path or several, absolute; globs and braces are kept."""
    if isinstance(path, (str, bytes, os.PathLike)):
        return absolute(_path(path, name, problems))
    if isinstance(path, Sequence) and path:
        return [absolute(_path(one, f"{name}[{i}]", problems)) for i, one in enumerate(path)]
    problems.add(*not_a_path(name, path))
    return []


def not_a_path(name: str, value: Any) -> tuple[str, str]:
    """What to say about a value that is not a path, such as the data themselves, and what to try."""
    from ._strangers import fitting  # which imports datasets

    what = f"{name} is {value!r}" if len(repr(value)) <= 40 else f"{name} is of type {type(value).__name__}"
    return what, fitting(value) or "give a path, a pattern such as 'data-*.h5', or a list of them"


def picture(transform: Any, where: str) -> Field:
    """The picture field of files, with these transforms."""
    field = Field("image", decode="rgb")
    if transform is not None:
        field.spec.update(said(transform, where))
    return field


class Pictures(Stored[TP, NP, JP], Generic[TP, NP, JP]):
    """Datasets of picture files, with one transform for the pictures of all fields without their own.

    ``dataset.transform`` is that transform. It can be assigned to, and may change in place, as in torchvision: passes
    that begin later use it.
    """

    _fixed: ClassVar[Mapping[str, str]] = {name: hint for name, hint in Stored._fixed.items() if name != "transform"}

    @property
    def transform(self) -> Any:
        """The transform of the pictures, as it was given."""
        return self._transform

    @transform.setter
    def transform(self, value: Any) -> None:
        where = f"{type(self).__name__}.transform"
        if "_given" not in self.__dict__:
            raise ConfigError(f"{where}: there are no fields yet", hint="call super().__init__(...) first")
        told = said(value, where)
        if not self._pictures:
            raise ConfigError(
                f"{where}: no field is a picture without its own transform",
                hint="give transforms to fields: dataset.select(stoker.Field('image', transform=...))",
            )
        before = self._transform
        self.__dict__["_transform"] = value
        try:
            self._transformed(told)
            self._remote().info()
        except BaseException:
            self.__dict__["_transform"] = before
            self._transformed(said(before, where))
            raise

    if TYPE_CHECKING:

        def select(self, *fields: str | Field) -> Pictures[Dict, Dict, Dict]: ...

        def to_tuple(self, *fields: str | Field) -> Pictures[AnyTuple, AnyTuple, AnyTuple]: ...

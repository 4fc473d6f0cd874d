"""Datasets: descriptions of where samples are stored and what is done with them. The engine reads them.

Dataset       common to all: len(), [i], select(), to_tuple(), and a small loader in the engine that answers questions
 ├── Stored        fields in files (_stored.py): ImageFolder (_folder.py) and the other formats (_formats.py)
 ├── WebDataset    tar shards, WebDataset's chain (_webdataset.py)
 ├── Mixture       several datasets in one stream (_mixture.py)
 └── Synthetic     samples made without any data, to measure delivery

A sample is a dict if the storage names its fields. Folders and lists of files, tables, .npy files and tokens give
tuples; to_tuple() and select() choose.
"""

from __future__ import annotations

import copy
import operator
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from . import _client, _pass, _ranks
from ._advice import ALWAYS, Checked, check_names, is_typo, no_attribute, not_added, not_an_index
from ._batch import Batch, JaxKind, Kind, Maker, NumpyKind, StagedJaxKind, StagedKind, TorchKind
from ._cache import read_cache
from ._chain import Chain
from ._errors import ConfigError, Problems, StokerError, whole
from ._frozen import frozen
from ._numbers import column, scalar
from ._position import Position
from ._spec import Form, Recipe, Settings, default_output
from ._told import Member, Told, where
from ._types import J, N, T

if TYPE_CHECKING:
    from ._types import AnyTuple, Array, Dict, Numpy, Tensor  # noqa: F401 in bases

# Attributes that are recomputed when needed: copies and pickles omit them.
_PASSING = frozenset(("_peek", "_maker", "_loader", "_listed", "_choice"))

Data = TypeVar("Data", bound="Dataset[Any, Any, Any]")

# What a subclass may define without an effect on a loader, which gets its samples from the engine; and
# the common part of the reason.
_PYTHON = "the engine makes the samples and does not run it"
_OVERRIDES = dict.fromkeys(
    "__getitem__ __getitems__ __len__ __iter__ collate_fn transform transforms target_transform".split(), _PYTHON
)


def make_kind(output: str, pin: bool = False, staged: bool = False) -> Kind:
    """The array maker for an output. ``staged``: the arrays are copied to a device before anybody has them."""
    if output == "torch":
        return StagedKind() if staged else TorchKind(pin)
    if output == "jax":
        return StagedJaxKind() if staged else JaxKind()
    return NumpyKind()


class Dataset(Checked, Chain, Generic[T, N, J]):
    """Base of all datasets. Can be pickled. After construction, only ``transform`` can be assigned to, if there is
    one."""

    # Attributes that decide what is delivered and cannot be assigned to, each with what to do instead; "": make a new
    # dataset. Each subclass in this package adds its own.
    _fixed: ClassVar[Mapping[str, str]] = {
        "transform": "give transforms to fields: dataset.select(stoker.Field('image', transform=...))",
        "target_transform": "map the labels in the training loop: labels = table[labels]",
    }
    # What a subclass may not override, each with the reason.
    _overrides: ClassVar[Mapping[str, str]] = _OVERRIDES

    if not TYPE_CHECKING:  # with these, type checkers would accept any argument and any attribute

        def __new__(cls, *args: Any, **keywords: Any) -> Any:
            made = super().__new__(cls, *args, **keywords)
            made.__dict__["_told"] = Told()
            return made

        def __getattr__(self, name: str) -> Any:
            raise no_attribute(self, name)

        def __add__(self, other: Any) -> Any:
            if isinstance(other, Dataset):
                raise not_added("+", self, other)
            return NotImplemented

        def __radd__(self, other: Any) -> Any:
            if isinstance(other, int):
                raise not_added("+", other, self)
            return NotImplemented

        def __or__(self, other: Any) -> Any:
            if isinstance(other, Dataset):
                raise not_added("|", self, other)
            return NotImplemented

    def __setattr__(self, name: str, value: Any) -> None:
        known = type(self)._fixed
        if is_typo(name, "transform") and not hasattr(type(self), name) and name not in known:
            raise ConfigError(
                f"{type(self).__name__}.{name} cannot be assigned to: it would have no effect",
                hint="did you mean 'transform'?",
            )
        if name in known and not (known[name] == "" and name not in self.__dict__):
            raise ConfigError(
                f"{type(self).__name__}.{name} cannot be assigned to: it would have no effect",
                hint=known[name] or "make a new dataset",
            )
        super().__setattr__(name, self._frozen(name, value) if name in known else value)

    def _frozen(self, name: str, value: Any) -> Any:
        """A description of this dataset, as handed out: its lists and dicts refuse changes."""
        return frozen(value, f"{type(self).__name__}.{name}", type(self)._fixed.get(name) or "make a new dataset")

    _told: Told  # copies have the same one
    _peek: _client.Loader | None = None  # the small loader; does not keep the engine alive
    _maker: Maker | None = None
    _cached: dict[str, Any] | None = None  # what cache() set, in the form of the Spec
    _asked: Mapping[str, Any] = MappingProxyType({})  # what batch() and shuffle() set: parts of a Recipe

    def _recipe(self) -> Recipe:
        raise NotImplementedError

    def _fields(self) -> list[dict[str, Any]] | None:
        """The fields in the form of the Spec; may ask the engine."""
        return self._recipe().fields

    def _renew(self) -> None:
        """Applies changes made since the last look: a transform that now holds other transforms."""

    def _reads(self) -> dict[str, Any]:
        """What batch() and shuffle() asked of the loader, as parts of its Recipe."""
        return {key: value for key, value in self._asked.items() if key != "collate"}

    def _step(self, *steps: Any) -> Any:
        return self._collated()._step(*steps)

    def _asking(self, **asked: Any) -> Any:
        return self._collated()._asking(**asked)

    def _python_steps(self) -> tuple[Any, ...]:
        """The steps (_program.py) of its transforms that only Python can run."""
        return ()

    def _collation(self) -> Any:
        """The user's function that makes a batch of samples; None: they are stacked."""
        return self._asked.get("collate")

    def _decide(self, keywords: Any = None) -> None:
        """Finds out which samples there are, with the workers that these keywords of a loader ask for."""

    def _stepped(self) -> Any:
        """The same with its steps of Python, for workers; None: the engine does everything."""
        return self._collated() if self._python_steps() else None

    def _collated(self) -> Any:
        """The same for workers that make batches of the user's collate function."""
        from ._steps import Stepped

        return Stepped(self, asked=self._asked)

    def _remote(self) -> _client.Loader:
        self._renew()
        if self._peek is None:
            self._peek = _client.Loader(self._alone(), keeps=False, members=self._members())
        return self._peek

    def _alone(self) -> dict[str, Any]:
        """The Spec of its samples one by one, in the order in which they are stored."""
        spec: dict[str, Any] = {
            "dataset": self._recipe().dataset,
            "batch": {"size": 1},
            "deliver": {"prefetch": 1},
            "workers": 1,
        }
        fields = self._fields()
        if fields is not None:
            spec["fields"] = fields
        if (subset := self._recipe().subset) is not None:
            spec["order"] = {"subset": column(subset)}
        return spec

    def _samples(self) -> int:
        """Number of samples."""
        return self._look().info().samples

    def _ids(self) -> Sequence[int]:
        """The numbers of its samples, in their order, as batches have them."""
        return range(self._samples())

    def _crew(self, settings: Settings) -> _client.Crew | None:
        """Who makes the samples of a loader; None: the engine."""
        return None

    def _names(self) -> list[str]:
        """The fields of batches, in their order."""
        fields = self._fields()
        if fields is not None:
            return [str(field["name"]) for field in fields]
        return [field.name for field in self._remote().info().fields]

    def _nameable(self, settings: Settings) -> int | None:
        """How many samples a sampler may ask for in its own way; None: it gives ids, as plain integers."""
        return None

    def _batches(self, info: _client.Opened, kind: Kind, settings: Settings, crew: Any) -> Any:
        """What makes batches of slots."""
        recipe = self._recipe()
        made = Maker(info.fields, kind, form=recipe.form, single=settings.single, squeeze=recipe.squeeze)
        return self._watched(made, settings)

    def _watched(self, made: Any, settings: Settings) -> Any:
        """What makes batches, and tells a handler of bad samples."""
        return made

    def _way(self, at: Position, settings: Settings) -> Any:
        """Where the next pass begins in a dataset that is iterated."""
        return None

    def _pipeline(self, known: str, settings: Settings) -> str:
        """The digest of fields and transforms in states; ``known`` is the engine's."""
        return known

    def _members(self) -> list[Member]:
        """The datasets that a loader over this one reads, and what they told of their data."""
        return [Member(type(self).__name__, where(self._recipe().dataset), self._told)]

    def _look(self) -> _client.Loader:
        """The small loader, to tell the user of the data: from now on every loader has to find the same."""
        remote = self._remote()
        (member,) = self._members()
        if self._told.stale(member.where, remote.info().contents[0]):
            self._peek = None
            remote = self._remote()
        self._told.tell(member.kind, member.where, remote.info().contents[0], remote)
        return remote

    def cache(self: Data, memory: str | int | None = None, after: str | None = None) -> Data:
        """The same dataset; loaders over it keep in memory what is the same in every epoch.

        memory  "8GiB", or a number of bytes; None: a quarter of the machine's free memory
        after   "random" (None): decoded and transformed up to the first random transform; "decode": only decoded

        Same as DataLoader's ``cache=``. Batches do not change.
        """
        problems = Problems(f"{type(self).__name__}.cache")
        cached = read_cache({"memory": memory, "after": after}, problems)
        problems.raise_any()
        other = copy.copy(self)
        other.__dict__ = {**self.__getstate__(), "_cached": cached}
        return other

    def select(self, *fields: Any) -> Dataset[Dict, Dict, Dict]:
        """The same dataset with these fields only, in this order, as dicts."""
        raise NotImplementedError

    def to_tuple(self, *fields: Any) -> Dataset[AnyTuple, AnyTuple, AnyTuple]:
        """The same dataset with these fields, in this order, as tuples; without fields, all it has."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Number of samples."""
        return self._look().info().samples

    def __getitem__(self, index: int) -> Any:
        """Sample ``index`` as a loader over this dataset gives it at that place of epoch 0 without shuffle, so always
        with the same crops and flips. For torch's DataLoader they are drawn anew each time, as torchvision's are: by a
        number of torch's random generator."""
        if (stepped := self._stepped()) is not None:
            return stepped[index]
        at = self._number(index)
        count = self._look().info().samples
        if not -count <= at < count:
            raise IndexError(f"sample {at} is out of range: the dataset has {count}")
        sample = self._sample(at % count, self._drawn())
        return tuple(sample) if isinstance(sample, Batch) else sample

    def _sample(self, at: int, epoch: int) -> Any:
        """A sample as the engine delivers it at that place of an epoch."""
        remote = self._look()
        if self._maker is None:
            recipe = self._recipe()
            self._maker = Maker(
                remote.info().fields,
                make_kind(default_output()),
                form=recipe.form,
                single=True,
                squeeze=recipe.squeeze,
            )
        begun = _pass.Pass(remote, epoch, at)
        try:
            return begun.next(self._maker.make)
        finally:
            begun.cancel()

    def _drawn(self) -> int:
        """The epoch that decides what the transforms of ``dataset[i]`` draw."""
        torch: Any = sys.modules.get("torch")
        if "torch.utils.data" not in sys.modules or not _ranks.fetching():
            return 0
        return int(torch.randint(1 << 52, ()))

    def _number(self, index: Any) -> int:
        try:
            return operator.index(index)
        except TypeError:
            pass
        try:
            fields = self._remote().info().names if isinstance(index, str) else []
        except StokerError:  # the error will be raised again
            fields = []
        raise not_an_index(self, index, fields)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in _PASSING}

    def __setstate__(self, state: dict[str, Any]) -> None:
        known = type(self)._fixed
        self.__dict__.update({key: self._frozen(key, value) if key in known else value for key, value in state.items()})


class Synthetic(Dataset["Batch[Tensor]", "Batch[Numpy]", "Batch[Array]"]):
    """``n`` samples of uint8 HWC ``shape`` made without any data, to measure delivery: batches are ``(images,)``.

    All samples hold the same bytes; nothing is read or decoded. The only field is ``image``.
    """

    _fixed: ClassVar[Mapping[str, str]] = {**Dataset._fixed, "n": "", "shape": ""}
    _form: Form = "tuple"

    def __init__(self, n: int, shape: Sequence[int] = (224, 224, 3)) -> None:
        problems = Problems("Synthetic")
        n = scalar(n)
        if not whole(n) or n < 1:
            problems.add(f"n is {n!r}", "give a number of samples")
        self.n = n
        self.shape = tuple(map(scalar, shape)) if isinstance(shape, Iterable) else ()
        if not self.shape or not all(whole(size) and size > 0 for size in self.shape):
            problems.add(f"shape is {shape!r}", "give a shape such as (224, 224, 3)")
        problems.raise_any()

    def _recipe(self) -> Recipe:
        dataset = {"format": "synthetic", "samples": self.n, "shape": list(self.shape)}
        return Recipe(dataset, None, form=self._form)

    def select(self, *fields: Any) -> Dataset[Dict, Dict, Dict]:
        """The same dataset with samples that are dicts; ``image`` is the only field."""
        return self._with(fields or (None,), "dict")

    def to_tuple(self, *fields: Any) -> Dataset[Any, Any, Any]:
        """The same dataset with samples that are tuples, which is the default."""
        return self._with(fields or ("image",), "tuple")

    def _with(self, fields: Sequence[Any], form: Form) -> Dataset[Any, Any, Any]:
        check_names(f"Synthetic.{'select' if form == 'dict' else 'to_tuple'}", fields)
        if list(fields) != ["image"]:
            raise ConfigError(f"Synthetic: fields are {list(fields)!r}", hint="it has one field: 'image'")
        other = copy.copy(self)
        other.__dict__ = {**self.__getstate__(), "_form": form}
        return other

    def __repr__(self) -> str:
        return f"Synthetic({self.n}, {self.shape})"


def check_subclass(dataset: Dataset, problems: Problems) -> None:
    """Adds methods that the class of a dataset overrides and only this package would call: they would not run."""
    kind = type(dataset)
    ours: Any = next(base for base in kind.__mro__ if base.__module__.startswith("stoker."))
    for base in kind.__mro__[: kind.__mro__.index(ours)]:
        for name in base.__dict__.keys() & ours._overrides.keys():
            problems.add(
                f"{base.__qualname__}.{name} has no effect: {ours._overrides[name]}",
                f"remove it and do its work on the batch, in the training loop; or load {kind.__name__} with "
                "torch's DataLoader and stoker's sampler: " + ALWAYS,
            )


def _path(path: Any, name: str, problems: Problems) -> str:
    try:
        text = os.fspath(path)
    except TypeError:
        problems.add(f"{name} is {path!r}", "give a path")
        return ""
    return os.fsdecode(text)


def absolute(path: str) -> str:
    """A path with the same meaning in the engine, in another process, and after ``os.chdir``. Names in stores are not
    changed, nor are WebDataset's commands and fsspec's chains, for which the engine says what to write instead."""
    if not path or "://" in path or foreign(path):
        return path
    if path.startswith("@") and not os.path.exists(path):  # a list of names
        return "@" + absolute(path[1:])
    return os.path.join(os.getcwd(), path)


_FOREIGN = re.compile(
    r"pipe:|dbfs:/|(simplecache|filecache|blockcache|cached|zip|tar|libarchive|reference|dir|git)(::|://)"
)


def foreign(path: str) -> bool:
    """Whether a path is a command, or a chain of fsspec's, and not a file here."""
    return _FOREIGN.match(path) is not None and not os.path.exists(path)

"""What datasets and loaders answer to attributes, indices, operators and keywords that they do not have."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._errors import ConfigError
from ._numbers import is_mask

# What works with every dataset.
ALWAYS = "torch.utils.data.DataLoader(dataset, sampler=stoker.DistributedSampler(dataset), ...)"

# How to make ids of a mask: a list, an array or a tensor of bools.
IDS_OF_MASK = "numpy.flatnonzero(mask)"
MASKED = f"give the ids of the samples for which it is true: {IDS_OF_MASK}"

_CHOOSE = "choose samples by their ids: stoker.DataLoader(dataset, sampler=ids)"
_PARTS = "stoker.DataLoader(dataset, sampler=stoker.SubsetRandomSampler(ids)), with the ids of each part"
_STAGES = "dataset.map(f) for functions of samples, collate_fn= of the loader for functions of batches"
_FUNCTIONS = "dataset.map(f), or give transforms of pictures to the dataset (transform=, or stoker.Field)"

# Methods and attributes of the datasets of torch, torchvision, Hugging Face and tf.data.
_DATASET = {
    "with_transform": _FUNCTIONS,
    "set_transform": _FUNCTIONS,
    "with_format": "stoker.DataLoader(dataset, output='numpy') decides what arrays are made: 'torch', 'numpy', 'jax'",
    "set_format": "stoker.DataLoader(dataset, output='numpy') decides what arrays are made: 'torch', 'numpy', 'jax'",
    "train_test_split": _PARTS,
    "random_split": _PARTS,
    "indices": _CHOOSE,
    "batched": "stoker.DataLoader(dataset, batch_size=64)",
    "iter": "stoker.DataLoader(dataset, batch_size=64)",
    "prefetch": "stoker.DataLoader(dataset, prefetch=8)",
    "concatenate": "stoker.Mixture([a, b], weights=[len(a), len(b)], stop='all_exhausted')",
    "column_names": "dataset.fields is the list of the names",
    "features": "dataset.fields is the list of the names",
    "keys": "dataset.fields is the list of the names",
    "columns": "dataset.fields is the list of the names",
    "remove_columns": "dataset.select('a', 'b') chooses the fields that are delivered",
    "select_columns": "dataset.select('a', 'b')",
    "rename_column": "dataset.select(stoker.Field('new', source='old'))",
    "rename": "dataset.select(stoker.Field('new', source='old'))",
    "cast_column": "dataset.select(stoker.Field('name', dtype='float32'))",
    "num_rows": "len(dataset)",
    "shape": "len(dataset) is the number of samples; dataset[0] shows the shapes",
    "num_classes": "len(dataset.classes)",
    "set_epoch": "loader.set_epoch(epoch)",
    "state_dict": "loader.state_dict()",
    "load_state_dict": "loader.load_state_dict(state)",
    "close": "leave it out: a dataset holds nothing open; loaders have close()",
    "with_epoch": "stoker.DataLoader(dataset, shuffle=True, num_samples=n)",
    "with_length": "leave it out: len(loader) is the number of batches",
    "map_tuple": "give transforms to fields: dataset.to_tuple(stoker.Field('image', transform=...), 'label')",
    "map_dict": "give transforms to fields: dataset.select(stoker.Field('image', transform=...))",
}

# Methods that WebDataset has, and stoker.WebDataset does not.
_WEBDATASET = {
    "append": _STAGES,
    "associate": ".compose(stoker.webdataset.associate(f))",
    "close": _DATASET["close"],
    "ddp_equalize": "leave it out: all ranks take the same number of steps",
    "dynamic_batched": "stoker.DataLoader(dataset, lengths='field', tokens=n) makes batches by the lengths of samples",
    "extract_keys": ".to_tuple('jpg;png', 'cls')",
    "invoke": _STAGES,
    "iterator": "iter(dataset), or stoker.DataLoader(dataset, batch_size=64)",
    "listed": ".batched(n), or stoker.DataLoader(dataset, batch_size=n)",
    "lmdb_cached": ".cache() keeps samples in memory",
    "log_keys": "leave it out: batch.ids are the samples of a batch, and '__key__' is a field",
    "mcached": ".cache()",
    "pipe": _STAGES,
    "rename_keys": ".rename(image='jpg;png')",
    "rsample": "stoker.DataLoader(dataset, sampler=ids) loads a part of the samples, num_samples= shortens epochs",
    "set_epoch": _DATASET["set_epoch"],
    "stage": _STAGES,
    "state_dict": _DATASET["state_dict"],
    "then": _STAGES,
    "unlisted": "leave it out: samples need not be taken out of batches, because the engine shuffles samples",
    "xdecode": ".decode('pil')",
}

_ON_DATASET = "call it on the dataset: stoker.WebDataset(urls).{}(...)"

_FASTAI = "stoker.fastai.DataLoaders(train, valid) makes what fastai's Learner wants of loaders"

# Methods of WebLoader and of other loaders.
_LOADER = {
    "after_batch": _FASTAI,
    "append": _STAGES,
    "batched": "stoker.DataLoader(dataset, batch_size=n)",
    "bs": "loader.batch_size; " + _FASTAI,
    "compose": _STAGES,
    "iterator": "iter(loader)",
    "listed": "stoker.DataLoader(dataset, batch_size=n)",
    "map": _STAGES,
    "new": _FASTAI,
    "next": "batch = next(iterator), after iterator = iter(loader)",
    "one_batch": _FASTAI,
    "repeat": "leave it out: every iter() is the next epoch",
    "reset": "leave it out: every iter() is the next epoch",
    "set_seed": "stoker.DataLoader(dataset, seed=n)",
    "show_batch": _FASTAI,
    "shuffle": "stoker.DataLoader(dataset, shuffle=True), or .shuffle(1000) of a stoker.WebDataset",
    "to": "batch.to(device) moves a batch; " + _FASTAI,
    "unbatched": "leave it out: batches need not be taken apart, because the engine shuffles samples",
    "unlisted": "leave it out: batches need not be taken apart, because the engine shuffles samples",
    "with_epoch": _ON_DATASET.format("with_epoch") + "; or stoker.DataLoader(dataset, shuffle=True, num_samples=n)",
    "with_length": _ON_DATASET.format("with_length"),
}

# What to write instead of keywords of other loaders and of datasets.
_KEYWORDS = {
    "bs": "did you mean 'batch_size'?",
    "num_replicas": "did you mean 'world_size'?",
    "transform": "give it to the dataset: stoker.ImageFolder(root, transform=...)",
    "target_transform": "map the labels in the training loop: labels = table[labels]",
    "dataset_transform": "give it to the dataset: stoker.ImageFolder(root, transform=...)",
    "distributed": "leave it out: the ranks are those of torch.distributed, or rank= and world_size=",
    "collate": "did you mean 'collate_fn'?",
    "epoch": "loader.set_epoch(epoch)",
    "epochs": "write the loop over epochs; every iter() of the loader is the next one",
}


def no_attribute(value: Any, name: str) -> AttributeError:
    """The error for an attribute that a dataset or a loader does not have: what to use instead, or the nearest one."""
    kinds = {base.__name__ for base in type(value).__mro__ if base.__module__.startswith("stoker.")}
    text = f"{type(value).__name__!r} object has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(text, name=name, obj=value)
    table = _WEBDATASET if "WebDataset" in kinds else _LOADER if "DataLoader" in kinds else _DATASET
    hint = table.get(name)
    if hint is None:
        there = [one for one in dir(type(value)) if not one.startswith("_")]
        if near := difflib.get_close_matches(name, there, 1):
            hint = f"did you mean {near[0]!r}?"
        elif near := difflib.get_close_matches(name, table, 1, 0.85):
            hint = f"did you mean {near[0]!r}? stoker does not have that either: {table[near[0]]}"
    return AttributeError(f"{text}: {hint}" if hint else text)


class Checked:
    """Base of classes whose constructors answer an unknown keyword with the nearest one that exists."""

    if not TYPE_CHECKING:  # a constructor typed as Any

        def __new__(cls, *args: Any, **keywords: Any) -> Any:
            known = inspect.signature(cls.__init__).parameters
            if not any(one.kind is one.VAR_KEYWORD for one in known.values()):
                check_keywords(cls.__name__, keywords, [*known][1:])
            return super().__new__(cls)


def check_keywords(call: str, keywords: Iterable[str], known: Sequence[str]) -> None:
    """TypeError, as Python's own, for an unknown keyword, with the nearest known one."""
    for key in keywords:
        if key not in known:
            raise TypeError(f"{call}() got an unexpected keyword argument {key!r}: {_keyword(call, key, known)}")


# Keywords of a loader, and of datasets of pictures, that are given to other datasets.
_OF_A_LOADER = "batch_size shuffle num_workers drop_last pin_memory sampler rank world_size on_bad prefetch".split()


def _keyword(call: str, key: str, known: Sequence[str]) -> str:
    if call == "DataLoader" and key in _KEYWORDS:
        return _KEYWORDS[key]
    if call.endswith("Dataset") and key == "transform":
        return "give transforms to fields: dataset.select(stoker.Field('image', transform=...), 'label')"
    if "." not in call and call != "DataLoader" and key in _OF_A_LOADER:
        return f"give it to the loader: stoker.DataLoader(dataset, {key}=...)"
    near = difflib.get_close_matches(key, known, 1)
    return f"did you mean {near[0]!r}?" if near else "there are " + ", ".join(known)


def not_an_index(dataset: Any, index: Any, fields: Sequence[str]) -> TypeError:
    """The error for ``dataset[index]`` if index is not a number."""
    kind = type(dataset).__name__
    if isinstance(index, str):
        what = f"{kind}[{index!r}]: samples are numbered; a name does not choose a field"
        if index in fields:
            return TypeError(f"{what}: dataset.select({index!r}) is a dataset of this field only")
        return TypeError(f"{what}: there are the fields {', '.join(fields)}" if fields else what)
    ids = "ids"
    if isinstance(index, slice):
        what, ids = "a slice", _range(dataset, index)
    elif is_mask(index):
        what, ids = "a mask", IDS_OF_MASK
    elif isinstance(index, Iterable):
        what = "several indices"
        if isinstance(index, (list, range)) and len(index) <= 8:
            ids = repr(index)
    else:
        return TypeError(f"{kind} indices are integers, not {type(index).__name__}")
    one = (
        f"{kind} indices are single integers, not {what}: stoker.DataLoader(dataset, sampler={ids}) loads these samples"
    )
    if kind != "Mixture":
        one += f", and sampler=stoker.SubsetRandomSampler({ids}) shuffles them"
    return TypeError(f"{one}; for the samples themselves, write [dataset[i] for i in {ids}]")


def _range(dataset: Any, index: slice) -> str:
    """The numbers of a slice, as a range."""
    try:
        begin, end, step = index.indices(len(dataset))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{type(dataset).__name__}: {error}") from None
    if step == 1:
        return f"range({begin}, {end})" if begin else f"range({end})"
    return f"range({begin}, {end}, {step})"


# Classes that read several paths as one dataset, and the name of that argument.
_SEVERAL = {
    "BetonDataset": "path",
    "HDF5Dataset": "path",
    "LinesDataset": "path",
    "ParquetDataset": "path",
    "TFRecordDataset": "path",
    "TokenDataset": "path",
    "WebDataset": "urls",
    "files": "path",
}


def not_added(sign: str, first: Any, second: Any) -> TypeError:
    """The error for ``a + b`` and ``a | b`` of datasets."""
    kinds = [type(one).__name__ for one in (first, second)]
    what = f"datasets are not joined with {sign}"
    if "int" in kinds:  # sum() begins with 0
        what = "a number and a dataset cannot be added; sum() does not join datasets"
    mixed = "stoker.Mixture([a, b], weights=[len(a), len(b)], stop='all_exhausted') loads both, shuffled together"
    if "Mixture" in kinds:
        mixed = "list all datasets in one mixture: stoker.Mixture([*mixture.datasets, b], weights=[...])"
    elif kinds[0] == kinds[1] and kinds[0] in _SEVERAL:
        path = _SEVERAL[kinds[0]]
        held = [getattr(one, path) for one in (first, second)]
        both = [one for paths in held for one in (paths if isinstance(paths, list) else [paths])]
        shown = repr(both) if len(both) <= 4 else f"[*a.{path}, *b.{path}]"
        more = ", ..." if kinds[0] == "TokenDataset" else ""
        mixed = f"stoker.{kinds[0]}({shown}{more}) reads all of them as one dataset; {mixed}"
    return TypeError(f"{what}: {mixed}")


def check_names(call: str, fields: Sequence[Any]) -> None:
    """ConfigError if a call that chooses fields was given numbers: in other libraries it chooses samples."""
    given = fields[0] if len(fields) == 1 else None
    numbers = isinstance(given, range) or not isinstance(given, (str, Mapping)) and hasattr(given, "dtype")
    if not numbers and isinstance(given, (list, tuple)) and given:
        numbers = isinstance(given[0], int)
    if numbers:
        raise ConfigError(
            f"{call} chooses fields by their names, not samples",
            hint="stoker.DataLoader(dataset, sampler=ids) loads the samples of these ids",
        )


def is_typo(name: str, right: str) -> bool:
    """Whether a name is a misspelling of another. A longer one is not: it may be a name of its own."""
    near = len(name) - len(right) in (-1, 0) and difflib.get_close_matches(name, [right], 1, 0.85)
    return bool(near) and name != right

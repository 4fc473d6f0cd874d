"""Loads training data fast: torch's DataLoader, with an engine of its own.

>>> import stoker
>>> from stoker import transforms as T
>>> train = stoker.ImageFolder("data/train", transform=T.Compose([T.RandomResizedCrop(224), T.ToTensor()]))
>>> for images, labels in stoker.DataLoader(train, batch_size=256, shuffle=True):
...     ...

Importing stoker needs only the standard library; numpy, torch and jax are imported when they are needed.
"""

import typing as _typing

from . import transforms
from ._batch import Batch, Ragged
from ._benchmark import Benchmark, benchmark
from ._chain import AUTOTUNE
from ._datasets import Synthetic
from ._doctor import Diagnosis, doctor
from ._errors import (
    ConfigError,
    DataError,
    EngineError,
    ResourceError,
    SourceError,
    StallError,
    StateError,
    StokerError,
)
from ._fields import Field
from ._files import Table, files
from ._folder import ImageFolder
from ._formats import (
    BetonDataset,
    HDF5Dataset,
    LinesDataset,
    LMDBDataset,
    MDSDataset,
    NpyDataset,
    ParquetDataset,
    TFRecordDataset,
    TokenDataset,
)
from ._listing import list_files
from ._loader import DataLoader
from ._mixture import Mixture
from ._pack import pack
from ._prefetch import CUDAPrefetcher, PrefetchLoader
from ._profile import Profile, profile, synthetic_like
from ._receipt import verify_receipts
from ._samplers import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from ._shards import ShardWriter
from ._stateful import StatefulDataLoader
from ._survey import stats
from ._tf import to_tf
from ._tune import Tuning, tune
from ._version import VERSION as __version__
from ._webdataset import WebDataset

__all__ = [
    "AUTOTUNE",
    "Batch",
    "BatchSampler",
    "Benchmark",
    "BetonDataset",
    "CUDAPrefetcher",
    "ConfigError",
    "DataError",
    "DataLoader",
    "Diagnosis",
    "DistributedSampler",
    "EngineError",
    "Field",
    "HDF5Dataset",
    "ImageFolder",
    "LMDBDataset",
    "LinesDataset",
    "MDSDataset",
    "Mixture",
    "NpyDataset",
    "ParquetDataset",
    "PrefetchLoader",
    "Profile",
    "Ragged",
    "RandomSampler",
    "ResourceError",
    "SequentialSampler",
    "ShardWriter",
    "SourceError",
    "StallError",
    "StateError",
    "StatefulDataLoader",
    "StokerError",
    "SubsetRandomSampler",
    "Synthetic",
    "TFRecordDataset",
    "Table",
    "TokenDataset",
    "Tuning",
    "WebDataset",
    "WeightedRandomSampler",
    "__version__",
    "benchmark",
    "doctor",
    "files",
    "list_files",
    "pack",
    "profile",
    "stats",
    "synthetic_like",
    "to_tf",
    "transforms",
    "tune",
    "verify_receipts",
]


# Imported when they are asked for, because of what they need, or because importing them takes long.
_MODULES = ("fastai", "hf", "timm", "webdataset")

if not _typing.TYPE_CHECKING:  # type checkers know every name

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            from importlib import import_module

            return import_module("." + name, __name__)
        from ._elsewhere import missing

        raise missing(__name__, name, __all__)

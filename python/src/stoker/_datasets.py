"""Datasets: descriptions of where samples lie and what becomes of them. The engine reads them.

Dataset       what all share: len(), [i], and a small loader in the engine that answers such questions
 ├── ImageFolder   a folder per class, torchvision's rules
 ├── WebDataset    tar shards, WebDataset's chain (in _webdataset.py)
 └── Synthetic     samples out of nothing, to measure delivery
"""

from __future__ import annotations

import copy
import difflib
import inspect
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from . import _client
from ._batch import JaxKind, Kind, Maker, NumpyKind, TorchKind
from ._cache import read_cache
from ._compile import to_ops
from ._errors import Problems, whole
from ._spec import Recipe, default_output

Data = TypeVar("Data", bound="Dataset")

# torchvision's list of extensions.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def make_kind(output: str, pin: bool = False) -> Kind:
    """The maker of arrays of an output."""
    if output == "torch":
        return TorchKind(pin)
    return JaxKind() if output == "jax" else NumpyKind()


class Dataset:
    """What all datasets share. Immutable once made; pickles."""

    def __new__(cls, *args: Any, **keywords: Any) -> Any:
        known = inspect.signature(cls.__init__).parameters
        if not any(one.kind is one.VAR_KEYWORD for one in known.values()):
            check_keywords(cls.__name__, keywords, [*known][1:])
        return super().__new__(cls)

    _peek: _client.Remote | None = None  # the small loader; not a need of the engine's
    _maker: Maker | None = None
    _cached: dict[str, Any] | None = None  # what cache() said, as the Spec has it

    def _recipe(self) -> Recipe:
        raise NotImplementedError

    def _fields(self) -> list[dict[str, Any]] | None:
        """The fields of the Spec; may ask the engine."""
        return self._recipe().fields

    def _remote(self) -> _client.Remote:
        if self._peek is None:
            spec: dict[str, Any] = {
                "dataset": self._recipe().dataset,
                "batch": {"size": 1},
                "deliver": {"prefetch": 1},
                "workers": 1,
            }
            fields = self._fields()
            if fields is not None:
                spec["fields"] = fields
            self._peek = _client.Remote(spec, keeps=False)
        return self._peek

    def cache(self: Data, memory: str | int | None = None, after: str | None = None) -> Data:
        """The same dataset; loaders over it keep in memory what is the same in every epoch.

        memory  "8GiB", or a number of bytes; None: a quarter of what the machine has left
        after   "random" (None): decoded, and worked on up to the first random transform; "decode": only decoded

        It is DataLoader's ``cache=``, and does not change a batch.
        """
        problems = Problems(f"{type(self).__name__}.cache")
        cached = read_cache({"memory": memory, "after": after}, problems)
        problems.raise_any()
        other = copy.copy(self)
        other.__dict__ = {**self.__getstate__(), "_cached": cached}
        return other

    def __len__(self) -> int:
        """Number of samples."""
        return self._remote().info().samples

    def __getitem__(self, index: int) -> Any:
        """Sample ``index`` as a loader over this dataset gives it at that place of epoch 0 without shuffle."""
        at = operator.index(index)
        remote = self._remote()
        count = remote.info().samples
        if not -count <= at < count:
            raise IndexError(f"sample {at} of a dataset of {count}")
        if self._maker is None:
            recipe = self._recipe()
            self._maker = Maker(
                remote.info().fields,
                make_kind(default_output()),
                as_dict=recipe.as_dict,
                single=True,
                squeeze=recipe.squeeze,
            )
        walk = _client.Walk(remote, 0, at % count)
        try:
            sample = walk.next(self._maker.make)
        finally:
            walk.cancel()
        return sample if isinstance(sample, dict) else tuple(sample or ())

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key not in ("_peek", "_maker", "_loader")}


class ImageFolder(Dataset):
    """Images in one folder per class, by the rules of torchvision.datasets.ImageFolder.

    Classes are the sorted names of the folders in ``root``; images are the files of any depth below them with one of
    torchvision's extensions. Samples are ``(image, label)``: without transforms uint8 of shape (3, height, width),
    and an integer.

    transform    transforms of this package or of torchvision (v1 or v2), or a Compose of them
    allow_empty  accept classes without an image

    ``target_transform``, ``loader`` and ``is_valid_file`` are Python functions and have to stay None.

    Raises ConfigError: a transform that is not built, no such folder, no image in it.
    """

    extensions = EXTENSIONS

    def __init__(
        self,
        root: str | os.PathLike[str],
        transform: Any = None,
        target_transform: Callable[[int], Any] | None = None,
        loader: Callable[[str], Any] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        problems = Problems("ImageFolder")
        hints = {
            "target_transform": (target_transform, "map the labels in the training loop: labels = table[labels]"),
            "loader": (loader, "leave it out: the engine reads every image format of Pillow's usual ones"),
            "is_valid_file": (is_valid_file, "leave it out; move the files that are not wanted out of the folder"),
        }
        for name, (function, hint) in hints.items():
            if function is not None:
                problems.add(f"{name} is a Python function, and samples are made without Python", hint)
        self.root = _path(root, "root", problems)
        self._absolute = absolute(self.root)
        problems.raise_any()
        self.transform = transform
        self.allow_empty = bool(allow_empty)
        self._ops = to_ops(transform, "ImageFolder(transform=...)")
        self._table: dict[str, list[Any]] | None = None
        self._remote().info()

    def _recipe(self) -> Recipe:
        dataset: dict[str, Any] = {"path": self._absolute, "format": "folder"}
        if self.allow_empty:
            dataset["allow_empty"] = True
        image: dict[str, Any] = {"name": "image", "from": "image", "decode": "rgb"}
        if self._ops:
            image["transform"] = self._ops
        return Recipe(dataset, [image, {"name": "label", "from": "label", "decode": "int"}])

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        return list(self._remote().info().classes)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of every class."""
        return {name: number for number, name in enumerate(self.classes)}

    @property
    def targets(self) -> list[int]:
        """The label of every sample."""
        return list(self._columns()["label"])

    @property
    def samples(self) -> list[tuple[str, int]]:
        """The path and the label of every sample."""
        columns = self._columns()
        return list(zip(columns["path"], columns["label"], strict=True))

    @property
    def imgs(self) -> list[tuple[str, int]]:
        """``samples``, by torchvision's other name."""
        return self.samples

    def _columns(self) -> dict[str, list[Any]]:
        if self._table is None:
            found = self._remote().table(["label", "path"])
            # As torchvision gives them: below the root as it was given.
            below = os.path.join(os.path.normpath(self._absolute), "")
            found["path"] = [os.path.join(self.root, path.removeprefix(below)) for path in found["path"]]
            self._table = found
        return self._table

    def __repr__(self) -> str:
        return f"ImageFolder({self.root!r}, transform={self.transform!r})"


class Synthetic(Dataset):
    """``n`` samples of uint8 HWC ``shape`` out of nothing, to measure delivery: batches are ``(images,)``.

    Every sample holds the same bytes; none is read or decoded.
    """

    def __init__(self, n: int, shape: Sequence[int] = (224, 224, 3)) -> None:
        problems = Problems("Synthetic")
        if not whole(n) or n < 1:
            problems.add(f"n is {n!r}", "give a number of samples")
        self.n = n
        self.shape = tuple(shape)
        if not self.shape or not all(whole(size) and size > 0 for size in self.shape):
            problems.add(f"shape is {shape!r}", "give sizes such as (224, 224, 3)")
        problems.raise_any()

    def _recipe(self) -> Recipe:
        return Recipe({"format": "synthetic", "samples": self.n, "shape": list(self.shape)}, None)

    def __repr__(self) -> str:
        return f"Synthetic({self.n}, {self.shape})"


def check_keywords(call: str, keywords: Iterable[str], known: Sequence[str]) -> None:
    """TypeError, as Python's own, if a keyword is none that is known, with the nearest that is."""
    for key in keywords:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else "there are " + ", ".join(known)
            raise TypeError(f"{call}() got an unexpected keyword argument {key!r}: {hint}")


def _path(path: Any, name: str, problems: Problems) -> str:
    try:
        text = os.fspath(path)
    except TypeError:
        problems.add(f"{name} is {path!r}", "give a path")
        return ""
    return os.fsdecode(text)


def absolute(path: str) -> str:
    """A path that means the same in the engine, in another process, and after ``os.chdir``."""
    if not path or "://" in path:
        return path
    return os.path.join(os.getcwd(), path)

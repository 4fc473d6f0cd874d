"""Which datasets of the user's own the engine can read itself, and why others need Python.

find()   a dataset and the loader's keywords -> Native, or the reason for Python
Native   torchvision's ImageFolder, DatasetFolder of pictures or ImageNet, timm's ImageDataset of a folder, a Subset or
         ConcatDataset of them

What decides is the object as it is, not how it was made: its ``samples``, its ``loader``, every step of its transform.
Samples keep the numbers that they have in the user's object, and batches are lists, as default_collate makes them and
as Python workers deliver them: which path runs must not be visible in what the loop gets.

The folder of an ImageFolder is read by stoker.ImageFolder if that finds exactly the object's samples. Any other list of
samples (a subset, several folders, one that was edited) becomes a table of files in the cache folder. In both cases
what the engine found is compared with the object's samples, one by one.

torch, torchvision and timm are not imported: classes are recognised by their modules and names.

timm's ImageDataset takes the next sample, with a warning, where a file is damaged. The engine does what ``on_bad``
says, which is an error by default: the samples of a run should not depend on a disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from . import _timm
from ._batch import Kind, Maker
from ._cache import folder
from ._client import Opened
from ._compile import _STILL, _changed, _is_ours, _name_of, _one, leaves, on_bytes, to_ops
from ._crew import _is_default
from ._datasets import Dataset, absolute
from ._errors import ConfigError, Problems, StokerError
from ._files import Table
from ._folder import EXTENSIONS, ImageFolder
from ._spec import Settings
from ._strangers import map_style
from ._theirs import called, kind
from ._values import ListBatch, register
from ._views import steps_of, views_of

_FOLDER, _SUBSETS = "torchvision.datasets.folder", "torch.utils.data.dataset"
_LEAVES = ("ImageFolder", "DatasetFolder", "ImageNet")
_TIMM = "timm.data.dataset"
_RESIZE = ("Resize", "RandomResizedCrop", "RandomResize", "RandomShortestSize", "ScaleJitter")
_DEEPEST = 32  # datasets in one another, and transforms
_KEPT_DAYS = 30  # tables of files that were written longer ago are removed
_KEPT_BYTES = 1 << 30  # and the oldest beyond this, if they were not written today
_MOST_LABEL = (1 << 31) - 1


class _Python(Exception):
    """The reason why Python has to make the samples: a clause that can follow "because"."""


@dataclass
class _Plan:
    """What a user's dataset says."""

    samples: Sequence[tuple[str, int]]
    transform: Any
    ops: list[dict[str, Any]]
    folder: str | None  # that ImageFolder may list; None: the samples are a choice or a union


class Native:
    """A user's dataset that the engine reads: ``dataset`` is ours over the same samples."""

    def __init__(self, user: Any) -> None:
        self.user = user
        self._take(_plan(user))

    def _take(self, plan: _Plan) -> None:
        self.dataset, self._table = _ours(plan)
        self._ops = plan.ops
        # A copy of the list: the user may change his own. The items are compared by identity first.
        self._samples: list[Any] | None = list(plan.samples)

    def renewed(self) -> Any:
        """Our dataset over the samples that the user's has now. Its transform and samples may have changed."""
        try:
            plan = _plan(self.user)
            same = plan.ops == self._ops and plan.samples == self._samples
            if not same or (self._table is not None and not os.path.exists(self._table)):
                self._take(plan)
        except _Python as why:
            raise ConfigError(
                f"the dataset {kind(self.user)} was changed after its loader was made, which reads it natively",
                cause=str(why),
                hint="make a new loader after the change, or pass native=False",
            ) from None
        return self.dataset

    def __getstate__(self) -> dict[str, Any]:
        # Another machine has other paths, and no table.
        return {**self.__dict__, "_samples": None}


class ListMaker(Maker):
    """Makes batches that are lists with the attributes of ``Batch``, as those of Python workers."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        register()

    def _batch(self, values: Sequence[Any], facts: Mapping[str, Any]) -> Any:
        batch = ListBatch(self._grouped(values))
        vars(batch).update(facts)
        return batch


class _Lists:
    """A dataset whose batches are lists."""

    def _batches(self: Any, info: Opened, kind: Kind, settings: Settings, crew: Any) -> Any:
        recipe = self._recipe()
        return ListMaker(info.fields, kind, form=recipe.form, single=settings.single, squeeze=recipe.squeeze)


class Folder(_Lists, ImageFolder[Any, Any, Any]):
    """The folder of a user's dataset."""


class Listed(_Lists, Table[Any, Any, Any]):
    """The files of a user's dataset."""


def find(user: Any, k: Mapping[str, Any], problems: Problems) -> tuple[Native | None, str]:
    """How to read a dataset natively, or None and why not; "" if it is not of a kind that could be. ``k`` are the
    keywords of the loader; with native=True, the reason is a problem."""
    wanted = k["native"]
    if wanted not in (None, False, True):
        problems.add(f"native is {wanted!r:.80}", "give True, False, or None to let stoker decide")
        return None, ""
    if isinstance(user, Dataset):
        if wanted is False:
            problems.add(
                f"native=False is for datasets whose samples Python makes, and the engine reads {type(user).__name__}",
                "leave it out",
            )
        return None, ""
    if not map_style(user):
        return None, ""
    if wanted is False:
        return None, "native=False was given"
    single = k["batch_size"] is None and k["batch_sampler"] is None and k["global_batch_size"] is None
    try:
        if not _promising(user):
            raise _Python("")
        _keywords(k, single)
        return Native(user), ""
    except _Python as error:
        why = str(error)
    if wanted:
        problems.add(
            f"native is True, but {why or f'{kind(user)} is not a dataset that the engine can read'}",
            "leave native out: Python then makes the samples",
        )
    return None, why


def _keywords(k: Mapping[str, Any], single: bool) -> None:
    """Refuses keywords that only Python can honour."""
    collate, init = k["collate_fn"], k["worker_init_fn"]
    if collate is not None and not _is_default(collate, single):
        raise _Python(f"collate_fn {called(collate)} is Python")
    if init is not None:
        raise _Python(f"worker_init_fn {called(init)} is Python")
    if k.get("seeding") == "worker":
        raise _Python("seeding is 'worker'")


# The user's dataset.


def _of(value: Any, module: str, *names: str) -> bool:
    """Whether a value is of exactly such a class."""
    return type(value).__module__ == module and type(value).__name__ in names


def _is_leaf(value: Any) -> bool:
    return (
        _of(value, _FOLDER, "ImageFolder", "DatasetFolder")
        or _of(value, "torchvision.datasets.imagenet", "ImageNet")
        or _of(value, _TIMM, "ImageDataset")
    )


def _parts(value: Any) -> list[Any]:
    """The datasets that a Subset or ConcatDataset is made of."""
    if _of(value, _SUBSETS, "Subset"):
        return [value.dataset]
    return list(value.datasets) if _of(value, _SUBSETS, "ConcatDataset") else []


def _promising(user: Any, depth: int = 0) -> bool:
    """Whether there is a folder of pictures in it, if only of a subclass: then the reason why not is worth saying."""
    if depth > _DEEPEST:
        return False
    if any(_promising(part, depth + 1) for part in _parts(user)):
        return True
    return _base(type(user)) is not None


def _base(cls: type) -> type | None:
    """The class of torchvision or timm with a folder of pictures that this one is, or is derived from."""
    for base in cls.__mro__:
        if base.__module__.startswith("torchvision.datasets.") and base.__name__ in _LEAVES:
            return base
        if base.__module__ == _TIMM and base.__name__ == "ImageDataset":
            return base
    return None


def _plan(user: Any, depth: int = 0) -> _Plan:
    """What a dataset says; _Python if the engine cannot do the same."""
    if depth > _DEEPEST:
        raise _Python("datasets are nested too deep")
    parts = [_plan(part, depth + 1) for part in _parts(user)]
    if not parts:
        return _leaf(user)
    first = parts[0]
    if any(part.ops != first.ops for part in parts):
        raise _Python("the datasets in ConcatDataset have different transforms")
    if _of(user, _SUBSETS, "Subset"):
        try:
            samples = [first.samples[i] for i in user.indices]
        except (TypeError, IndexError, ValueError) as error:
            raise _Python(f"the indices of Subset cannot be used: {error}") from None
    else:
        samples = [sample for part in parts for sample in part.samples]
    return _Plan(samples, first.transform, first.ops, None)


def _leaf(user: Any) -> _Plan:
    cls = type(user)
    if not _is_leaf(user):
        if (base := _base(cls)) is not None:
            raise _Python(f"{called(cls)} is a subclass of {base.__name__}: the engine cannot know what it changes")
        raise _Python(f"{called(cls)} makes its samples in Python")
    if user.target_transform is not None:
        raise _Python(f"target_transform {called(user.target_transform)} is Python")
    if getattr(sys.modules.get("PIL.ImageFile"), "LOAD_TRUNCATED_IMAGES", False):
        raise _Python("PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, and the engine refuses truncated pictures")
    samples, folder = _timms(user) if cls.__module__ == _TIMM else _torchvisions_folder(user)
    return _Plan(samples, user.transform, _steps(user.transform), folder)


def _own_methods(cls: type, module: str, of: str) -> None:
    """_Python if a class has other methods than it was written with."""
    for name in ("__getitem__", "__len__"):
        method = getattr(cls, name)
        if (method.__module__, method.__qualname__) != (module, f"{of}.{name}"):
            raise _Python(f"{cls.__name__}.{name} was replaced by {called(method)}")


def _torchvisions_folder(user: Any) -> tuple[Sequence[tuple[str, int]], str]:
    """The samples and the folder of one of torchvision's datasets."""
    cls, loader = type(user), user.loader
    _own_methods(cls, _FOLDER, "DatasetFolder")
    known = getattr(loader, "__name__", "") in ("default_loader", "pil_loader")
    if not known or getattr(loader, "__module__", "") != _FOLDER:
        raise _Python(f"loader {called(loader)} is not torchvision's own")
    torchvision = sys.modules.get("torchvision")
    backend = getattr(torchvision, "get_image_backend", lambda: "PIL")()
    if loader.__name__ == "default_loader" and backend != "PIL":
        raise _Python(f"torchvision's image backend is {backend!r}")
    return user.samples, os.fsdecode(user.split_folder if cls.__name__ == "ImageNet" else os.fspath(user.root))


def _timms(user: Any) -> tuple[Sequence[tuple[str, int]], str]:
    """The same of timm's ImageDataset, whose reader knows the samples."""
    _own_methods(type(user), _TIMM, "ImageDataset")
    reader = user.reader
    if not _of(reader, "timm.data.readers.reader_image_folder", "ReaderImageFolder"):
        raise _Python(f"its reader {called(type(reader))} is Python")
    _own_methods(type(reader), type(reader).__module__, "ReaderImageFolder")
    usual = {"load_bytes": False, "input_img_mode": "RGB", "additional_features": None}
    for name, value in usual.items():
        if (given := getattr(user, name, value)) != value:
            raise _Python(f"its {name} is {given!r:.80}")
    return reader.samples, os.fsdecode(os.fspath(reader.root))


# Its transform.


def _steps(transform: Any) -> list[dict[str, Any]]:
    """The operations of a transform; _Python names the first step that is not known, or that the engine would do to
    something else than torchvision does."""
    if transform is None:
        raise _Python("it has no transform: it gives PIL images, which torch does not stack either")
    try:
        ops = to_ops(transform, "transform")
    except ConfigError as error:
        for step, _ in leaves(transform):
            problems = Problems("")
            _one(step, "transform", problems)
            if problems:
                raise _Python(_unknown(step, problems)) from None
        raise _Python(error.what) from None
    for steps in _ways(list(leaves(transform))):
        if not any(_is_ours(type(step)) for step, _ in steps):  # nobody but the engine can run ours
            _torchvisions(steps)
    return ops


def _ways(steps: list[tuple[Any, str]]) -> Iterator[list[tuple[Any, str]]]:
    """The steps that a picture goes through: if it has views, one way for each."""
    views = views_of(steps[-1][0]) if steps else None
    if views is None:
        yield steps
        return
    for view in views:
        yield steps[:-1] + list(leaves(steps_of(view)))


def _torchvisions(steps: Sequence[tuple[Any, str]]) -> None:
    """_Python if torchvision would do something else in one of these steps."""
    state = "pil"
    for step, perhaps in steps:
        after = _after(step, state)
        if perhaps and after.removeprefix(_ERASED) != state.removeprefix(_ERASED):
            raise _Python(f"transform {type(step).__name__} in {perhaps} changes the type of pictures")
        state = after
    if state == "pil":
        raise _Python(
            "its transform gives PIL images, which torch does not stack either: end it with ToTensor() or ToImage()"
        )


_ERASED = "erased "  # before what a picture is


def _after(step: Any, state: str) -> str:
    """What a picture is after a step of torchvision: "pil", "bytes", "floats", "halves" (floats of 16 bits), or
    "erased floats" and "erased halves", of which some were erased. _Python where torchvision does something else to
    such a picture than the engine, or refuses it."""
    name = type(step).__name__
    if state.startswith(_ERASED):
        if name not in _STILL:
            raise _Python(f"transform {name} is given floats of which some were erased")
        return _ERASED + _after(step, state.removeprefix(_ERASED)).removeprefix(_ERASED)
    odd = _Python(f"transform {name} is given {'a PIL image' if state == 'pil' else f'a tensor of {state}'}")
    if _timm.known(type(step)):
        if (found := _timm.after(step, state)) is None:
            raise odd
        return found
    if name in ("ToImage", "PILToTensor"):
        if state != "pil" and name == "PILToTensor":
            raise odd
        return "bytes" if state == "pil" else state
    if name in ("ToTensor", "ImageClassification"):
        if state != "pil":
            raise odd
        return "floats"
    if name in ("ToDtype", "ConvertImageDtype"):
        if state == "pil":  # version 2 leaves it as it is, version 1 refuses it
            raise odd
        to = _one(step, "transform", Problems(""))[0]["dtype"]
        if state == "halves" or state == "floats" and to == "uint8":
            raise odd
        return {"uint8": state, "float32": "floats"}.get(to, "halves")
    floats = state in ("floats", "halves")
    if name == "Normalize" and not floats:
        raise odd
    if name in _RESIZE:
        op = _one(step, "transform", Problems(""))[0]
        if floats:
            raise odd
        how = op["interpolation"]
        if state == "pil" and how.startswith("nearest"):
            raise _Python(f"transform {name} is {how!r}, and Pillow takes other pixels than the engine")
        if state == "bytes" and not how.startswith("nearest") and step.antialias is not True:
            raise _Python(f"transform {name} has no antialias=True for tensors")
    if name == "RandomErasing":
        value = _one(step, "transform", Problems(""))[0]["value"]
        no_byte = state == "bytes" and (value == "random" or not all(0 <= v < 256 for v in value))
        if state == "pil" or no_byte:
            raise odd
        return _ERASED + state if floats else state
    if name in ("Grayscale", "RandomGrayscale") and state != "pil" or floats and on_bytes(name):
        raise odd
    pads = name in ("Pad", "RandomZoomOut") or name == "RandomCrop" and (step.padding is not None or step.pad_if_needed)
    if pads and floats:
        raise odd
    return state


def _unknown(step: Any, problems: Problems) -> str:
    """What is wrong with a step that the engine does not have, or not like this."""
    cls = type(step)
    for view in views_of(step) or ():
        for leaf, _ in leaves(steps_of(view)):
            inner = Problems("")
            _one(leaf, "transform", inner)
            if inner:
                return f"{_unknown(leaf, inner)}, in {cls.__name__}"
    if _changed(step) is None:
        if cls.__name__ == "Lambda" and hasattr(step, "lambd"):
            return f"transform Lambda of {called(step.lambd)} is not known"
        if _name_of(cls) is None and not _timm.known(cls):
            function = hasattr(step, "__code__") or isinstance(step, type)
            of = " of timm" if cls.__module__.startswith("timm.") else ""
            return f"transform {called(step if function else cls)}{of} is not known"
    what: str = problems._found[0][0]
    return f"transform {what.removeprefix('transform: ')}"


# Ours over the same samples.


def _ours(plan: _Plan) -> tuple[Any, str | None]:
    """Our dataset over these samples, and the table that was written for it, if one was. There may be millions, so
    they are looked at by whole columns."""
    paths, labels = _columns(plan.samples)
    for ending in {path.rpartition(".")[2].lower() for path in paths}:
        if f".{ending}" not in EXTENSIONS:
            raise _Python(f"it has files named *.{ending:.40}, which are not pictures")
    try:
        found = None if plan.folder is None else _of_folder(plan, paths, labels)
        return (found, None) if found is not None else _of_table(plan, paths, labels)
    except (StokerError, OSError) as error:
        raise _Python(f"the engine cannot read its files: {getattr(error, 'what', None) or error}") from None


def _columns(samples: Sequence[Any]) -> tuple[list[str], list[int]]:
    """The paths and the labels; _Python if they are not of the usual kind."""
    try:
        paths, labels = [path for path, _ in samples], [label for _, label in samples]
    except (TypeError, ValueError):
        raise _Python("samples holds something else than pairs of a path and a label") from None
    if not paths:
        raise _Python("it is empty")
    if {*map(type, paths)} != {str}:
        odd = next(path for path in paths if type(path) is not str)
        raise _Python(f"samples has {odd!r:.80}, which is not a path")
    if {*map(type, labels)} != {int} or min(labels) < 0 or max(labels) > _MOST_LABEL:
        odd = next(label for label in labels if type(label) is not int or not 0 <= label <= _MOST_LABEL)
        raise _Python(f"samples has the label {odd!r:.80}, and the engine has whole numbers from 0 on")
    return paths, labels


def _of_folder(plan: _Plan, paths: list[str], labels: list[int]) -> Any:
    """ImageFolder, if it finds exactly these samples."""
    assert plan.folder is not None
    root = os.path.expanduser(plan.folder)
    try:
        found: Any = Folder(root, plan.transform, allow_empty=True)
        if len(found) != len(paths):
            return None
        columns = found._look().table(["label", "path"])
    except StokerError:
        return None  # it may be in order as a list of files, or that gives an error that says more
    theirs, below = columns["path"], os.path.join(os.path.normpath(absolute(root)), "")
    if below != (given := os.path.join(root, "")):  # torchvision's begin with the root as it was given
        theirs = [given + path.removeprefix(below) for path in theirs]
    return found if theirs == paths and columns["label"] == labels else None


def _of_table(plan: _Plan, paths: list[str], labels: list[int]) -> tuple[Any, str]:
    """A table of these files. Its paths are relative, so that its digest does not depend on where the files are."""
    full = [
        path if path[0] == "/" and "//" not in path and "/." not in path else os.path.normpath(absolute(path))
        for path in paths
    ]
    root = os.path.commonpath({path.rpartition("/")[0] or "/" for path in full})
    below = len(os.path.join(root, ""))
    rows = [
        f'{{"path":{json.dumps(path[below:])},"label":{label}}}\n' for path, label in zip(full, labels, strict=True)
    ]
    table = _written("".join(rows).encode())
    found: Any = Listed(table, "path", "label", root=root, transform=plan.transform)
    columns = found._look().table(["label", "path"])
    if columns["path"] != full or columns["label"] != labels:
        raise _Python("the engine takes one of its paths for another file")  # a name that is not UTF-8, or a URL
    return found, table


def _written(data: bytes) -> str:
    """A file of the cache folder with these contents. One that is there stays as it is: loaders of other ranks would
    take a new time for a change of their data."""
    name = hashlib.blake2b(data, digest_size=16).hexdigest() + ".jsonl"
    lists = folder("lists")
    path = os.path.join(lists, name)
    with suppress(OSError):
        if os.path.getsize(path) == len(data):
            return path
        os.unlink(path)  # a disk that was full, a machine that stopped
    _tidy(lists)
    handle, part = tempfile.mkstemp(suffix=".part", dir=lists)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        with suppress(FileExistsError):  # another rank was faster
            os.link(part, path)
    finally:
        os.unlink(part)
    return path


def _tidy(lists: str) -> None:
    """Removes old tables, and the oldest of too many. A loader that still needs one writes it again with its next
    pass."""
    now, room = time.time(), _KEPT_BYTES
    with suppress(OSError):
        found = sorted(((entry.stat(), entry.path) for entry in os.scandir(lists)), key=lambda one: -one[0].st_mtime)
        for stat, path in found:
            room -= stat.st_size
            days = (now - stat.st_mtime) / 86400
            if days > _KEPT_DAYS or (room < 0 and days > 1):
                os.unlink(path)

"""Names of torch's, torchvision's and WebDataset's that this package does not have, and what to use in their place."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from types import FrameType

from ._compile import unbuilt

_NAMES = {
    "WebLoader": "stoker.DataLoader(dataset, batch_size=...) takes a stoker.WebDataset",
    "DataPipeline": "stoker.WebDataset(urls).shuffle(1000).decode('pil').to_tuple('jpg', 'cls') does the same",
    "FluidInterface": "stoker.WebDataset(urls) has the same chain of calls",
    "SimpleShardList": "stoker.WebDataset(urls) takes patterns and lists of shards",
    "ResampledShards": "stoker.WebDataset(urls).with_epoch(n) sets the length of an epoch",
    "ResampledShardList": "stoker.WebDataset(urls).with_epoch(n) sets the length of an epoch",
    "tarfile_to_samples": "stoker.WebDataset(urls) reads the samples of its shards",
    "split_by_node": "leave it out: samples are split over the ranks automatically",
    "split_by_worker": "leave it out: the engine's lanes share the samples of a batch",
    "shuffle": "stoker.WebDataset(urls).shuffle(1000), or DataLoader(shuffle=True)",
    "decode": "stoker.WebDataset(urls).decode('pil')",
    "to_tuple": "stoker.WebDataset(urls).to_tuple('jpg', 'cls'); every dataset has to_tuple",
    "map_tuple": "stoker.WebDataset(urls).to_tuple('jpg', 'cls').map_tuple(transform, None)",
    "batched": "stoker.WebDataset(urls).batched(64), or DataLoader(batch_size=64)",
    "RandomMix": "stoker.Mixture([a, b], weights=[...])",
    "RoundRobin": "stoker.Mixture([a, b])",
    "TarWriter": "stoker.ShardWriter(pattern)",
    "warn_and_continue": "pass handler='warn_and_continue', or DataLoader(on_bad='replace')",
    "ignore_and_continue": "pass handler='ignore_and_continue', or DataLoader(on_bad='replace')",
    "reraise_exception": "pass handler='reraise_exception', or DataLoader(on_bad='fail')",
    "Subset": "stoker.DataLoader(dataset, sampler=ids) loads these samples, SubsetRandomSampler(ids) shuffles them",
    "random_split": "stoker.DataLoader(dataset, sampler=stoker.SubsetRandomSampler(ids)), with the ids of each part",
    "ConcatDataset": "stoker.Mixture([a, b], stop='all_exhausted')",
    "ChainDataset": "stoker.Mixture([a, b], stop='all_exhausted')",
    "TensorDataset": "save the arrays with numpy.save, and load stoker.NpyDataset('x.npy', 'y.npy')",
    "Dataset": "a class for stored data, such as stoker.ImageFolder or stoker.files: Python code does not make samples",
    "IterableDataset": "a class for stored data, such as stoker.WebDataset: Python code does not make samples",
    "DatasetFolder": "stoker.ImageFolder for pictures, stoker.files for patterns",
    "Sampler": "torch's class, or any iterable of ids: stoker.DataLoader(dataset, sampler=ids)",
    "StatefulDataLoader": "stoker.DataLoader has state_dict() and load_state_dict()",
    "get_worker_info": "leave it out: your code does not run in workers",
    "default_collate": "leave collate_fn out: the engine stacks batches",
}

# Transforms of torchvision's that the engine does not have.
_TRANSFORMS = frozenset(
    "AugMix AutoAugment ColorJitter CutMix ElasticTransform FiveCrop GaussianBlur GaussianNoise JPEG Lambda "
    "LinearTransformation MixUp RGB RandAugment RandomAdjustSharpness RandomAffine RandomAutocontrast "
    "RandomChannelPermutation RandomChoice RandomEqualize RandomErasing RandomInvert RandomIoUCrop RandomOrder "
    "RandomPerspective RandomPhotometricDistort RandomPosterize RandomResize RandomRotation RandomShortestSize "
    "RandomSolarize RandomZoomOut ScaleJitter TenCrop ToPILImage ToPureTensor TrivialAugmentWide".split()
)


def missing(module: str, name: str, there: Iterable[str]) -> Exception:
    """The error of a name that a module does not have; what to use in its place, or the nearest name that it has."""
    hint = "" if name.startswith("_") else _instead(module, name, there)
    if hint and _imported(sys._getframe(2)):
        return ImportError(f"cannot import name {name!r} from {module!r}: {hint}", name=name)
    return AttributeError(f"module {module!r} has no attribute {name!r}" + (f": {hint}" if hint else ""))


def _imported(frame: FrameType) -> bool:
    """Whether the name was asked for by ``from stoker import name``. That swallows an AttributeError, and its text."""
    import dis

    code = frame.f_code.co_code
    return 0 <= frame.f_lasti < len(code) and code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]


def _instead(module: str, name: str, there: Iterable[str]) -> str:
    if module == "stoker" and name in _NAMES:
        return _NAMES[name]
    if name in _TRANSFORMS:
        return f"the engine does not have it; {unbuilt(name)}"
    if module == "stoker":
        from . import transforms

        if name in transforms.__all__:
            return f"it is stoker.transforms.{name}"
    near = difflib.get_close_matches(name, [one for one in there if not one.startswith("_")], 1)
    return f"did you mean {near[0]!r}?" if near else ""

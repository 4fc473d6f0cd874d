"""Names in torch, torchvision, WebDataset and other libraries that this package does not have, and what to use
instead."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable
from types import FrameType

from ._advice import ALWAYS
from ._compile import unbuilt

_NAMES = {
    "WebLoader": "stoker.DataLoader(dataset, batch_size=...) accepts a stoker.WebDataset",
    "DataPipeline": "stoker.WebDataset(urls).shuffle(1000).decode('pil').to_tuple('jpg', 'cls') does the same",
    "FluidInterface": "stoker.WebDataset(urls) has the same chain of calls",
    "SimpleShardList": "stoker.WebDataset(urls) accepts patterns and lists of shards",
    "MultiShardSample": "stoker.Mixture([a, b], weights=[...])",
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
    "ConcatDataset": "stoker.Mixture([a, b], weights=[len(a), len(b)], stop='all_exhausted')",
    "ChainDataset": "stoker.Mixture([a, b], weights=[len(a), len(b)], stop='all_exhausted')",
    "TensorDataset": "save the arrays with numpy.save, and load stoker.NpyDataset('x.npy', 'y.npy')",
    "Dataset": "a class for stored data, such as stoker.ImageFolder or stoker.files: Python code cannot make samples",
    "IterableDataset": "torch's class: stoker.DataLoader(dataset) takes such datasets",
    "DatasetFolder": "stoker.ImageFolder for pictures, stoker.files for patterns",
    "Sampler": "torch's class, or any iterable of ids: stoker.DataLoader(dataset, sampler=ids)",
    "get_worker_info": "leave it out: your code does not run in workers",
    "default_collate": "leave collate_fn out: the engine stacks batches",
}

_OPTIMIZED = (
    "pack the original files once with `stoker pack data packed`, then load stoker.WebDataset('packed/*.tar'); "
    "litdata's own chunks cannot be read"
)

# Names of litdata's, streaming's, FFCV's and datasets'.
_NAMES |= {
    "StreamingDataset": "stoker.MDSDataset(folder) reads MosaicML shards. For litdata, " + _OPTIMIZED,
    "StreamingDataLoader": "stoker.DataLoader(dataset, batch_size=...) has state_dict() and load_state_dict()",
    "CombinedStreamingDataset": "stoker.Mixture([a, b], weights=[...])",
    "ParallelStreamingDataset": "one stoker.DataLoader for each dataset, and zip() in the loop",
    "TokensLoader": "stoker.TokenDataset(path, length)",
    "optimize": _OPTIMIZED,
    "MDSWriter": "stoker.pack, or ShardWriter for your own samples",
    "Stream": "stoker.MDSDataset(folder) for each, and Mixture([a, b], weights=[...])",
    "Loader": "stoker.DataLoader(stoker.BetonDataset(path), batch_size=...)",
    "OrderOption": "leave it out: DataLoader(shuffle=True), shuffle='block' or False",
    "DatasetWriter": "stoker.pack, or ShardWriter for samples of your own",
    "load_dataset": "stoker.ParquetDataset(files) reads the Parquet files of a Hugging Face dataset",
    "load_from_disk": "write it as Parquet once, dataset.to_parquet(path), and load stoker.ParquetDataset(path)",
    "interleave_datasets": "stoker.Mixture([a, b], weights=[...])",
    "concatenate_datasets": "stoker.Mixture([a, b], weights=[len(a), len(b)], stop='all_exhausted')",
    "FakeData": "stoker.Synthetic(n, shape)",
    "ImageNet": "stoker.ImageFolder(root + '/train') reads the same files",
    "VisionDataset": "a class for stored data, such as stoker.ImageFolder: Python code cannot make samples",
    "wrap_dataset_for_transforms_v2": "leave it out: stoker.ImageFolder accepts torchvision.transforms.v2",
    "Imagenette": "stoker.ImageFolder(root) reads the same files",
    "EuroSAT": "stoker.ImageFolder(root) reads the same files",
    "CocoDetection": "stoker.Table(table, path='file') reads pictures and columns of a table; boxes vary in number: "
    "keep them as JSON",
}

# torchvision's datasets: those that hold arrays in memory, those with picture files, and those with videos, pairs
_IN_MEMORY = frozenset("CIFAR10 CIFAR100 EMNIST FashionMNIST KMNIST MNIST QMNIST STL10 SVHN USPS SEMEION".split())
_IN_FILES = frozenset(
    "Caltech101 Caltech256 CelebA Cityscapes CLEVRClassification CocoCaptions Country211 DTD FGVCAircraft FER2013 "
    "Flickr30k Flickr8k Flowers102 Food101 GTSRB INaturalist LFWPairs LFWPeople LSUN LSUNClass Omniglot OxfordIIITPet "
    "PCAM PhotoTour Places365 RenderedSST2 SBDataset SBU StanfordCars SUN397 VOCDetection VOCSegmentation "
    "WIDERFace".split()
)
_OTHERS = frozenset(
    "CarlaStereo CREStereo ETH3DStereo FallingThingsStereo FlyingChairs FlyingThings3D HD1K HMDB51 InStereo2k Kinetics "
    "Kitti Kitti2012Stereo Kitti2015Stereo KittiFlow Middlebury2014Stereo MovingMNIST SceneFlowStereo Sintel "
    "SintelStereo UCF101".split()
)

# What words in a name say about the data.
_WORDS = {
    ("tar", "tars", "shard", "shards", "wds", "webdataset", "tarfile"): "stoker.WebDataset(urls) reads tar shards",
    ("lmdb", "mdb", "caffe"): "stoker.LMDBDataset(path) reads LMDB environments",
    ("hdf5", "hdf", "h5", "h5py"): "stoker.HDF5Dataset(path) reads HDF5 files",
    ("parquet", "arrow", "hugging", "hf"): "stoker.ParquetDataset(path) reads Parquet files",
    ("tfrecord", "tfrecords", "record", "records", "tfds"): "stoker.TFRecordDataset(path) reads TFRecord files",
    ("npy", "npz", "numpy", "np", "array", "arrays", "memmap"): "stoker.NpyDataset(path) reads .npy and .npz files",
    (
        "csv",
        "tsv",
        "table",
        "frame",
        "dataframe",
        "pandas",
        "manifest",
    ): "stoker.Table(path) reads tables, and the files that they name",
    (
        "json",
        "jsonl",
        "ndjson",
        "text",
        "txt",
        "line",
        "lines",
    ): "stoker.LinesDataset(path) reads JSON lines and text",
    ("token", "tokens", "megatron", "gpt", "bin"): "stoker.TokenDataset(path, length) reads files of tokens",
    ("mds", "mosaic", "streaming"): "stoker.MDSDataset(folder) reads MosaicML's shards",
    ("beton", "ffcv"): "stoker.BetonDataset(path) reads FFCV's files",
    ("file", "files", "glob", "path", "paths"): "stoker.files(patterns) loads files",
    (
        "image",
        "images",
        "picture",
        "pictures",
        "folder",
        "photo",
    ): "stoker.ImageFolder(root) reads a folder of pictures for each class, stoker.files(patterns) any files",
    (
        "mix",
        "mixed",
        "concat",
        "chain",
        "combined",
        "interleave",
        "blend",
        "multi",
    ): "stoker.Mixture([a, b], weights=[...])",
    ("sampler",): "torch's class works: stoker.DataLoader(dataset, sampler=sampler)",
    ("loader", "dataloader"): "stoker.DataLoader(dataset, batch_size=...)",
    ("dataset", "datasets", "data"): "docs/guides/formats.md lists the classes; torch's own loader works with every "
    "dataset: " + ALWAYS,
}
_PART = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")

# torchvision's transforms that the engine does not have.
_TRANSFORMS = frozenset(
    "ElasticTransform FiveCrop GaussianNoise JPEG Lambda LinearTransformation RandomIoUCrop TenCrop ToPILImage "
    "ToPureTensor".split()
)


def missing(module: str, name: str, there: Iterable[str]) -> Exception:
    """The error for a name that a module does not have; what to use instead, or the nearest name that it has."""
    hint = "" if name.startswith("_") else _instead(module, name, there)
    if hint and _imported(sys._getframe(2)):
        return ImportError(f"cannot import name {name!r} from {module!r}: {hint}", name=name)
    return AttributeError(f"module {module!r} has no attribute {name!r}" + (f": {hint}" if hint else ""))


def _imported(frame: FrameType) -> bool:
    """Whether the name comes from ``from stoker import name``, which swallows an AttributeError and its text."""
    import dis

    code = frame.f_code.co_code
    return 0 <= frame.f_lasti < len(code) and code[frame.f_lasti] == dis.opmap["IMPORT_FROM"]


def _instead(module: str, name: str, there: Iterable[str]) -> str:
    if module == "stoker" and name in _NAMES:
        return _NAMES[name]
    from . import transforms

    if name in transforms.__all__:
        return f"it is stoker.transforms.{name}"
    if name in _TRANSFORMS:
        return f"the engine does not have it; {unbuilt(name)}"
    known = [one for one in there if not one.startswith("_")]
    words = _by_words(name) if module == "stoker" else ""
    # A word in the name tells more than similarity, unless it is a typo: TarDataset is similar to MDSDataset.
    near = difflib.get_close_matches(name, known, 1, 0.85 if words else 0.6)
    return f"did you mean {near[0]!r}?" if near else words


def _by_words(name: str) -> str:
    """What an unlisted name says about the data: the first word that means something."""
    if name in _IN_MEMORY:
        return (
            f"torchvision.datasets.{name} works with torch's own loader: {ALWAYS}; or save its arrays once with "
            "numpy.save, and load stoker.NpyDataset('data.npy', 'targets.npy')"
        )
    if name in _IN_FILES:
        return (
            f"torchvision.datasets.{name} works with torch's own loader: {ALWAYS}; its files are pictures: "
            "stoker.ImageFolder, stoker.files and stoker.Table load them by folder, pattern or table"
        )
    if name in _OTHERS:
        return f"torchvision.datasets.{name} works with torch's own loader: {ALWAYS}"
    parts = {part.lower() for part in _PART.findall(name)} | {name.lower()}
    return next((text for words, text in _WORDS.items() if parts & {*words}), "")

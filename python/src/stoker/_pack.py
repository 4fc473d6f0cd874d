"""stoker.pack: the command of the same name, run by the engine's executable beside this process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _command, _notice
from ._compile import to_ops
from ._datasets import Dataset, _path, absolute
from ._errors import Problems, whole
from ._numbers import scalar
from ._process import find
from ._strangers import map_style
from ._survey import reached

_RUN = _command.Verb("pack", "packing", "the same call continues after the finished shards")


def pack(
    src: Any,
    dst: str | os.PathLike[str],
    *,
    format: str | None = None,
    output: str | None = None,
    name: str | None = None,
    shard_size: str | int | None = None,
    compress: str | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    fields: str | Sequence[str] | None = None,
    keys: str | None = None,
    jpeg: str | None = None,
    progressive: str | None = None,
    resize: int | None = None,
    crop: int | None = None,
    quality: int | None = None,
    decode: bool = False,
    augment: int | None = None,
    transform: Any = None,
    tokenize: str | None = None,
    text_field: str | None = None,
    token_type: str | None = None,
    max_pixels: int | None = None,
    on_bad: str | None = None,
    jobs: int | None = None,
    task: str | tuple[int, int] | None = None,
    dry_run: bool = False,
    finish: bool = False,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    progress: _command.Told | None = None,
) -> dict[str, Any]:
    """Writes a dataset as new shards into the folder ``dst``. Same as the command ``stoker pack`` with these flags.

    src         a path, a pattern, a list of them, or a dataset of this package. Its samples are packed as they are
                stored: its transforms and shuffles are not applied, and renamed fields are refused. With steps of
                Python (``map``, a function in a transform), or a dataset of your own: what they return is packed, into
                tar, in the dataset's order: arrays as NAME.npy, whole numbers as .cls, texts as .txt, PIL images as
                .png, the rest as .json
    format      of a path; default: detected
    output      "tar" (WebDataset's, default), "tfrecord", "npy", "tokens"
    name        shards are called name-000000.tar and so on ("shard")
    shard_size  "1GiB" (default), or bytes
    compress    "none", "zstd", "gzip", "lz4"
    shuffle, seed   pack in random order
    fields      pack only these; keys="number" names samples by their numbers
    jpeg        "index": rewrites JPEGs losslessly so that crops can be decoded alone; progressive says what to do with
                progressive ones: "refuse", "convert" or "keep"
    resize, crop, quality, decode   scale pictures down, crop their centre, encode them again, store them as arrays
    augment, transform   store this many variants of every sample, made by these transforms
    tokenize, text_field, token_type   turn text into tokens: "gpt2", "cl100k_base", "o200k_base", or a model file
    max_pixels  a picture with more pixels is not decoded, but is a sample that cannot be read; default 178,956,970
    on_bad      samples that cannot be read: "fail" (default) ends the packing with DataError, "skip" leaves them out;
                the manifest names them in ``bad`` of their shard
    jobs        samples processed at once; default: one per core. With steps of Python: worker processes
    task        (i, n) or "i/n" makes only part i of n; finish=True, with src None, joins the parts
    dry_run     write nothing, and return an estimate
    overwrite   replace an existing packing
    storage_options   how the store of a path is reached, as for the datasets
    progress    called with (samples done, total samples, bytes written), at most ten times a second

    Returns the manifest, which is also in ``dst/manifest.json``; with ``task``, {"shards", "made"}; with ``dry_run``,
    the estimate: samples, bytes, shards, seconds; with ``on_bad="skip"`` also ``bad`` and ``untried`` samples.

    If it was stopped by Ctrl-C, an error or a power failure, calling it again continues after the finished shards and
    writes the same bytes. Raises ConfigError, DataError, SourceError, and ResourceError when the disk is full.
    """
    said = dict(locals())
    for key in ("src", "dst", "progress"):
        del said[key]
    problems = Problems("pack")
    if progress is not None and not callable(progress):
        problems.add(f"progress is of type {type(progress).__name__}", "give a function of (done, total, bytes)")
    to = _path(dst, "dst", problems)
    if "://" in to and not to.startswith("file://"):
        problems.add("dst is in a store, and shards are written to folders", "pack into a folder, and copy it there")
    if (stepped := _in_python(src)) is not None and to:
        problems.raise_any()
        from . import _packsteps  # which needs the loader

        return _packsteps.pack(stepped, absolute(to), said, progress)
    storage_options = said.pop("storage_options")
    where = _source(src, said, problems)
    if where is not None:
        where = {**where, **reached(src, storage_options, problems)}
    flags = _flags(said, problems)
    if not to:
        problems.add("dst is empty", "give the folder to pack into")
    problems.raise_any()
    command = [find(), "pack", "--json", "--progress", *flags, "--", absolute(to)]
    report = _command.run(command, _RUN, progress, where)
    manifest = report.get("manifest")
    return report if manifest is None else dict(manifest)


def _in_python(src: Any) -> Any:
    """A dataset whose samples Python makes; None: the engine packs it."""
    if isinstance(src, Dataset):
        return src._stepped()
    return src if not isinstance(src, Sequence) and map_style(src) else None


def _source(src: Any, said: dict[str, Any], problems: Problems) -> dict[str, Any] | None:
    """The dataset in the form of the Spec, None for no dataset; takes format, and fills in fields of a dataset."""
    if said["finish"]:
        if src is not None:
            problems.add("finish=True joins the parts in dst and takes no src", "pass None as src")
        return None
    if isinstance(src, Dataset):
        return _of_dataset(src, said, problems)
    given = {} if (kind := said["format"]) is None else {"format": kind}
    if isinstance(src, (str, bytes, os.PathLike)):
        said["format"] = None
        return {"path": [absolute(_path(src, "src", problems))], **given}
    if isinstance(src, Sequence) and src:
        said["format"] = None
        return {"path": [absolute(_path(one, f"src[{i}]", problems)) for i, one in enumerate(src)], **given}
    problems.add(f"src is {src!r:.80}", "give a path, a list of paths, or a dataset of stoker's")
    return {}


def _of_dataset(src: Dataset, said: dict[str, Any], problems: Problems) -> dict[str, Any]:
    where = src._recipe().dataset
    if not isinstance(where, Mapping) or where.get("format") == "synthetic":
        problems.add(f"a {type(src).__name__} cannot be packed", "pack its datasets one by one")
        return {}
    if said["format"] not in (None, where["format"]):
        problems.add(f"format is {said['format']!r}, but the dataset is {where['format']}", "leave format out")
    said["format"] = None
    given = src._fields() or []
    if given and where["format"] != "folder" and said["fields"] is None:
        stored = [name for field in given for name in field.get("from", field["name"]).split(";")]
        said["fields"] = [name for name in dict.fromkeys(stored) if not name.startswith("__")]
        renamed = [f"{field['name']} ({source})" for field in given if (source := _renamed(field))]
        if renamed and where["format"] != "tokens":
            problems.add(
                f"samples are packed under their stored names, but the dataset renames fields: {', '.join(renamed)}",
                f"fields={said['fields']!r} of pack takes the stored names; rename fields when you read the shards",
            )
    if any(field.get("transform") for field in given):
        _notice.say("pack: samples are packed as they are stored, without the dataset's transforms")
    return dict(where)


def _renamed(field: Mapping[str, Any]) -> str:
    """The stored name of a field that is renamed."""
    stored = str(field.get("from", field["name"]))
    return "" if field["name"] in (stored, *stored.split(";")) else stored


def _flags(said: Mapping[str, Any], problems: Problems) -> list[str]:
    found = []
    for key, value in said.items():
        flag = "--" + key.replace("_", "-")
        value = scalar(value)
        if isinstance(value, bool):
            if key not in ("shuffle", "decode", "dry_run", "finish", "overwrite"):
                problems.add(f"{key} is {value!r}", "see the docstring")
            elif value:
                found.append(flag)
        elif value is None:
            continue
        elif key == "fields":
            names = [value] if isinstance(value, str) else list(value)
            found += [f"{flag}={name}" for name in names]
        elif key == "transform":
            if not isinstance(value, str):
                ops = to_ops(value, "pack(transform=...)")
                if any(op["op"] == "Views" for op in ops):
                    problems.add("transform makes views", "give one view, and augment=n for n copies of each picture")
                value = json.dumps(ops)
            found.append(f"{flag}={value}")
        elif key == "task" and not isinstance(value, str):
            found.append(f"{flag}={'/'.join(map(str, value))}")
        elif isinstance(value, str) or whole(value):
            found.append(f"{flag}={value}")
        else:
            problems.add(f"{key} is {value!r}", "give text or a whole number")
    return found

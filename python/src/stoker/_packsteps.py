"""stoker.pack of datasets whose samples Python makes: what functions return becomes members of tar shards.

One pass of a loader makes the samples in workers, which also encode them; the trainer writes shards one after another.
After each shard its name and counts are noted in ``packing.json``: the same call goes on from there, at the same places
of the same order, so that functions draw the same numbers and the bytes are the same as without the interruption.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from . import _notice
from ._cache import amount
from ._datasets import Dataset
from ._errors import ConfigError, Problems, whole
from ._loader import DataLoader
from ._mixture import in_python
from ._numbers import scalar
from ._shards import ShardWriter
from ._spec import installed
from ._suffixes import written_as

SHARD_BYTES = 1 << 30
_SIZE = 16  # samples in a batch
_NOTED, _MANIFEST = "packing.json", "manifest.json"
# Keywords of pack that work here. The others are of the engine's packing.
_KNOWN = frozenset("output name shard_size shuffle seed on_bad jobs overwrite".split())


_INSTEAD = {
    "output": "samples that Python makes are packed into 'tar'; stoker.pack('DST/*.tar', other, output=...) writes "
    "these shards in another format",
    "task": "pack parts into folders of their own, such as dataset.shard(n, i).map(function), and load all folders",
    "finish": "parts of such a packing have folders of their own: load all of them",
    "compress": "stoker.pack('DST/*.tar', other, compress=...) then writes these shards compressed",
}


class Encode:
    """The collate function: the members of each sample, (extension, bytes)."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)  # of the items of a tuple, if it has as many

    def __call__(self, samples: Sequence[Any]) -> list[list[tuple[str, bytes]]]:
        return [self._members(sample) for sample in samples]

    def _members(self, sample: Any) -> list[tuple[str, bytes]]:
        if isinstance(sample, Mapping):
            items = [(str(name), value) for name, value in sample.items() if not str(name).startswith("__")]
        elif isinstance(sample, (tuple, list)):
            names = self._names if len(self._names) == len(sample) else [str(i) for i in range(len(sample))]
            items = list(zip(names, sample, strict=True))
        else:
            items = [(self._names[0] if len(self._names) == 1 else "value", sample)]
        if not items:
            raise ValueError("the sample has no field")
        members = sorted((_member(name, value) for name, value in items), key=lambda member: member[0])
        for (name, _), (other, _) in pairwise(members):
            if name == other:
                raise ValueError(f"two fields would both be stored as {name!r}: give them other names")
        return members


def _member(name: str, value: Any) -> tuple[str, bytes]:
    """The extension and the bytes of one value, as stoker and WebDataset decode them."""
    value = scalar(value)
    if isinstance(value, bytes):
        return name, value
    if isinstance(value, str):
        return _ending(name, "text", "txt"), value.encode()
    if whole(value):
        return _ending(name, "number", "cls"), str(value).encode()
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.numpy() if str(value.dtype) != "torch.bfloat16" else value.float().numpy()
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        import numpy

        out = io.BytesIO()
        numpy.save(out, numpy.ascontiguousarray(value), allow_pickle=False)
        return _ending(name, "npy", "npy"), out.getvalue()
    if hasattr(value, "save") and hasattr(value, "mode"):
        out = io.BytesIO()
        value.save(out, "PNG")
        return _ending(name, "image", "png"), out.getvalue()
    try:
        return _ending(name, "json", "json"), json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"field {name!r} is of type {type(value).__name__}, which a shard cannot hold ({error}): return an array, "
            "a number, text, bytes, or what JSON has"
        ) from None


def _ending(name: str, kind: str, extension: str) -> str:
    return name if written_as(name) == kind else f"{name}.{extension}"


def pack(src: Any, dst: str, said: Mapping[str, Any], progress: Any) -> dict[str, Any]:
    """Writes the shards; ``said`` are the keywords of stoker.pack. Returns the manifest."""
    options = _options(said)
    os.makedirs(dst, exist_ok=True)
    if isinstance(src, Dataset):
        plain = {"batch": None, "sized": None, "epoch_items": None, "drop": False, "shuffle": False}
        src = src._asking(**plain)
    loader: Any = DataLoader
    more: dict[str, Any] = {} if options["jobs"] is None else {"num_workers": options["jobs"]}
    if not isinstance(src, Dataset) and installed("numpy"):  # no batch is made: torch, which takes seconds, stays out
        more["output"] = "numpy"
    with loader(
        src,
        _SIZE,
        shuffle=options["shuffle"],
        seed=options["seed"],
        collate_fn=Encode(_names(src)),
        on_bad=options["on_bad"],
        rank=0,
        world_size=1,
        **more,
    ) as made:
        state = made.state_dict()
        identity = {key: value for key, value in state.items() if key not in ("epoch", "position", "skipped")}
        identity["options"] = {key: options[key] for key in ("name", "shard_size", "on_bad")}
        done = _begun(dst, identity, options["overwrite"])
        if done.pop("finished", False):
            return done
        _sweep(dst, options["name"])
        if done["places"]:
            made.load_state_dict({**state, "epoch": 0, "position": done["places"]})
        _write(made, dst, done, options, progress)
    return _finished(dst, done)


def _options(said: Mapping[str, Any]) -> dict[str, Any]:
    problems = Problems("pack")
    for key, value in said.items():
        if key not in _KNOWN and value not in (None, False):
            problems.add(
                f"{key} is for samples that are packed as they are stored, and here Python makes them",
                _INSTEAD.get(key, "leave it out; do it in a function given to map"),
            )
    if said["output"] not in (None, "tar"):
        problems.add(f"output is {said['output']!r}", _INSTEAD["output"])
    if said["on_bad"] not in (None, "fail", "skip"):
        problems.add(f"on_bad is {said['on_bad']!r}", "it can be 'fail' or 'skip'")
    size = SHARD_BYTES if said["shard_size"] is None else amount(said["shard_size"])
    if size is None or size < 1:
        problems.add(f"shard_size is {said['shard_size']!r}", "give an amount like '256MiB', or a number of bytes")
    if said["jobs"] is not None and (not whole(said["jobs"]) or said["jobs"] < 0):
        problems.add(f"jobs is {said['jobs']!r}", "give the number of worker processes")
    problems.raise_any()
    return {
        "name": said["name"] or "shard",
        "shard_size": int(size or 0),
        "shuffle": bool(said["shuffle"]),
        "seed": 0 if said["seed"] is None else said["seed"],
        "on_bad": said["on_bad"] or "fail",
        "jobs": said["jobs"],
        "overwrite": bool(said["overwrite"]),
    }


def _names(src: Any) -> list[str]:
    """What the items of tuples are called: the fields of the dataset that is read."""
    base = getattr(src, "base", src)
    if not isinstance(base, Dataset) or in_python(base):
        return []  # only its functions know
    return [name.replace(";", "_") for name in base._remote().info().names]


def _write(made: Any, dst: str, done: dict[str, Any], options: Mapping[str, Any], progress: Any) -> None:
    pattern = os.path.join(dst.replace("%", "%%"), options["name"].replace("%", "%%") + "-%06d.tar")
    total = made._dataset._samples()
    place = done["places"]  # of the next sample
    digits = max(9, math.ceil(math.log10(total + 1)))

    def note(path: str) -> None:
        done["shards"].append({"name": os.path.basename(path), "samples": sink.count, "bytes": os.path.getsize(path)})
        done["samples"] += sink.count
        done["places"] = place
        _save(os.path.join(dst, _NOTED), done)

    sink = ShardWriter(
        pattern, maxcount=1 << 53, maxsize=options["shard_size"], post=note, start_shard=len(done["shards"]), verbose=0,
        encoder=False,
    )  # fmt: skip
    drawn = _notice.Progress()
    with sink:
        for batch in made:
            facts = made.facts
            for members, good in zip(batch, facts.valid.tolist(), strict=True):
                if good:
                    sink.write({"__key__": f"{place:0{digits}d}", **dict(members)})
                place += 1
            drawn.show(place, total, "packing")
            if progress is not None:
                progress(place, total, sum(shard["bytes"] for shard in done["shards"]) + sink.size)
    drawn.close()
    done["places"] = total


def _begun(dst: str, identity: dict[str, Any], overwrite: bool) -> dict[str, Any]:
    """What there is of this packing; ConfigError if there is another one."""
    for name in (_MANIFEST, _NOTED):
        path = os.path.join(dst, name)
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        except (OSError, ValueError):
            continue
        if overwrite:
            os.unlink(path)
            continue
        if name == _NOTED and not found["shards"] and not _shards(dst):
            continue  # it had not come to the end of a shard
        known = found.get("identity") if isinstance(found, dict) else None
        if known != json.loads(json.dumps(identity)):
            raise ConfigError(
                f"{dst} has a packing of something else"
                + (f": {_unlike(known, identity)}" if isinstance(known, dict) else ""),
                hint="pack into an empty folder, or pass overwrite=True",
            )
        kept = {**found, "finished": name == _MANIFEST}
        for i, shard in enumerate(found["shards"]):
            with suppress(OSError):
                if os.path.getsize(os.path.join(dst, shard["name"])) == shard["bytes"]:
                    continue
            if i == 0:
                break
            raise ConfigError(f"{shard['name']} in {dst} is missing or incomplete", hint="pass overwrite=True")
        else:
            return kept
    for entry in _shards(dst) if overwrite else []:
        os.unlink(os.path.join(dst, entry))
    if _shards(dst):
        raise ConfigError(f"{dst} already has shards", hint="pack into an empty folder, or pass overwrite=True")
    begun = {"version": 1, "identity": identity, "samples": 0, "places": 0, "shards": []}
    _save(os.path.join(dst, _NOTED), begun)  # a shard without a note belongs to it: packing may end between the two
    return begun


def _shards(dst: str) -> list[str]:
    return [entry for entry in os.listdir(dst) if entry.endswith(".tar")]


def _sweep(dst: str, name: str) -> None:
    """Removes what a packing that was killed had not finished."""
    for entry in os.listdir(dst):
        if entry.startswith(f".{name}-") and entry.endswith(".tmp"):
            os.unlink(os.path.join(dst, entry))


def _unlike(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    words = {"dataset": "the data", "pipeline": "fields or functions", "python": "the code of functions"}
    return " and ".join(words.get(key, key) for key in now if before.get(key) != now[key]) + " differ"


def _finished(dst: str, done: dict[str, Any]) -> dict[str, Any]:
    _save(os.path.join(dst, _MANIFEST), done)
    with suppress(OSError):
        os.unlink(os.path.join(dst, _NOTED))
    return done


def _save(path: str, found: Mapping[str, Any]) -> None:
    part = path + ".part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)

"""Fields of samples: what is delivered, and how."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ._errors import Problems, whole
from ._numbers import scalar
from ._split import said as in_steps

_BATCHES = ("dense", "padded", "ragged")
_DECODES = ("rgb", "gray", "text", "json", "int", "float", "bytes", "npy", "array")

# Keys that say how a field is delivered; if none is given, the format decides.
SAID = {"decode", "transform", "dtype", "batch", "view"}

# What fields= accepts.
FIELDS = "the name of a field, a stoker.Field, or a list of these"


class Field:
    """How one stored field is delivered. The format decides what is left out.

    name       the stored name, or the name in the batch if ``source`` gives the stored name
    source     the stored name; "jpg;png" takes the first that a sample has, unless that is the name of a field
    decode     "rgb", "gray", "text", "json", "int", "float", "bytes", "npy" (bytes of a .npy file), or "array"
    transform  transforms of images
    dtype      type to convert numbers to: "int64", "float32", ...; checked before anything is read
    batch      "dense" (all samples have the same shape), "padded" or "ragged" (see ``Ragged``)
    to         for padded: the length of all batches; None: the length of the longest sample of the batch
    multiple   for padded: lengths are rounded up to a multiple of it
    value      for padded: fills the batch after the end of a sample
    truncate   for padded with ``to``: cut longer samples, which are errors otherwise
    view       (begin, end) along the first axis of a sample, as a slice; views of one stored field share one buffer

    Raises ConfigError if a value is wrong.
    """

    def __init__(
        self,
        name: str,
        *,
        source: str | None = None,
        decode: str | None = None,
        transform: Any = None,
        dtype: Any = None,
        batch: str | None = None,
        to: int | None = None,
        multiple: int | None = None,
        value: float | None = None,
        truncate: bool = False,
        view: tuple[int | None, int | None] | None = None,
    ) -> None:
        problems = Problems(f"Field {name!r}")
        if not isinstance(name, str) or not name:
            problems.add(f"name is {name!r}", "give the name of a stored field")
        read_text("source", source, problems)
        if batch is not None and (not isinstance(batch, str) or batch not in _BATCHES):
            problems.add(f"batch is {batch!r}", "it can be " + ", ".join(map(repr, _BATCHES)))
        if decode is not None and (not isinstance(decode, str) or decode not in _DECODES):
            near = difflib.get_close_matches(decode, _DECODES, 1) if isinstance(decode, str) else []
            hint = f"did you mean {near[0]!r}?" if near else "it can be " + ", ".join(map(repr, _DECODES))
            problems.add(f"decode is {decode!r}", hint)
        pad: dict[str, Any] = {}
        for key, given in (("to", scalar(to)), ("multiple", scalar(multiple))):
            if given is not None and (not whole(given) or not 1 <= given < 1 << 31):
                problems.add(f"{key} is {given!r}", "give a number of elements, from 1 to 2**31 - 1")
            elif given is not None:
                pad[key] = int(given)
        value = scalar(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            problems.add(f"value is {value!r}", "give a number")
        elif value is not None:
            pad["value"] = value
        if truncate:
            pad["truncate"] = True
        if pad and batch is None:
            batch = "padded"
        if pad and batch != "padded":
            problems.add(f"{', '.join(pad)} with batch={batch!r}", "padding needs batch='padded'")
        ends = _ends(view, problems)
        problems.raise_any()
        self.name = name
        self.spec: dict[str, Any] = {"name": name}
        said = {"from": source, "decode": decode, "dtype": dtype_name(dtype), "batch": batch, "pad": pad or None}
        self.spec.update({key: word for key, word in said.items() if word is not None})
        if transform is not None:
            self.spec["decode"] = decode or "rgb"
            self.spec.update(in_steps(transform, f"Field({name!r}, transform=...)"))
        if ends is not None:
            self.spec["view"] = ends

    def __repr__(self) -> str:
        return f"Field({self.spec!r})"


def _ends(view: Any, problems: Problems) -> list[int | None] | None:
    """Where a view begins and ends, in the form of the Spec."""
    if view is None:
        return None
    ends = [scalar(end) for end in view] if isinstance(view, Sequence) and not isinstance(view, str) else []
    if len(ends) == 2 and all(end is None or whole(end) for end in ends):
        return ends
    problems.add(f"view is {view!r}", "give (begin, end), integers as in a slice, or None for an open end")
    return None


def read_text(key: str, value: Any, problems: Problems) -> None:
    """Adds what is wrong with a keyword that must be a name."""
    if value is not None and not isinstance(value, str):
        problems.add(f"{key} is {value!r:.80}", "give a name, as a string")


def read_names(key: str, names: Any, problems: Problems) -> list[str] | None:
    """The names in a keyword that accepts one or several."""
    found = read_list(key, names, "a name, or a list of names", problems)
    for i, name in enumerate(found or []):
        if not isinstance(name, str) or not name:
            problems.add(f"{key}[{i}] is {name!r:.80}", "give names, as strings")
    return found


def read_list(key: str, given: Any, what: str, problems: Problems) -> list[Any] | None:
    """One or several values as a list."""
    if given is None:
        return None
    if isinstance(given, (str, Field)):
        return [given]
    if isinstance(given, Iterable) and not isinstance(given, (bytes, bytearray, Mapping)):
        return list(given)
    problems.add(f"{key} is {given!r:.80}", f"give {what}")
    return []


def dtype_name(dtype: Any) -> str | None:
    """The engine's name of a dtype, given as a name, a NumPy dtype or scalar type, or a torch dtype."""
    if dtype is None or isinstance(dtype, str):
        return dtype
    text = getattr(dtype, "__name__", None) or str(dtype)
    return text.removeprefix("torch.")


def read_fields(
    fields: Any, declared: Mapping[str, dict[str, Any]], problems: Problems, key: str = "fields"
) -> list[dict[str, Any]] | None:
    """The fields in the form of the Spec. ``key`` is the keyword by which they were given."""
    if fields is None:
        return None
    before = len(problems)
    found = []
    for i, field in enumerate(read_list(key, fields, FIELDS, problems) or []):
        if isinstance(field, Field):
            found.append(_kept(field.spec, declared))
        elif isinstance(field, str):
            found.append(_kept({"name": field}, declared))
        else:
            problems.add(f"{key}[{i}] is {field!r:.80}", "give names of fields, or stoker.Field")
    if not found and len(problems) == before:
        problems.add(f"{key} is empty", "leave it out to get all fields")
    return found


def _kept(spec: dict[str, Any], declared: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A field in the form of the Spec. What is left out is taken from an earlier declaration under its name, or of the
    one field with the same source, which renames it. A transform belongs to the decoding it was declared with."""
    name = spec["name"]
    before = declared.get(name)
    if "from" in spec and (before is None or before.get("from", name) != spec["from"]):
        same = [field for field in declared.values() if field.get("from", field["name"]) == spec["from"]]
        before = same[0] if len(same) == 1 else None
    if before is None:
        return dict(spec)
    kept = {"from": before["name"], **copy.deepcopy(before)}
    if "decode" in spec:
        kept.pop("transform", None)
        kept.pop("python", None)
    if "batch" in spec:
        kept.pop("pad", None)
    kept.update(spec)
    if kept["from"] == name:
        del kept["from"]
    return kept


def differing(fields: Iterable[Any], spec: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of fields whose arrays are longer in one batch than in another, of those of a loader. ``spec``: the
    fields of its Spec."""
    fixed = {field["name"] for field in spec if "to" in field.get("pad", {})}
    return [
        field.name for field in fields if field.batch == "ragged" or field.batch == "padded" and field.name not in fixed
    ]

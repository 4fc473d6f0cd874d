"""The line at start: which path runs, with how much parallelism, and what is worth knowing about its batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _client, _notice
from ._datasets import Dataset
from ._spec import Form, Settings
from ._strangers import fitting
from ._views import Groups, name_of


def announce(info: _client.Opened, settings: Settings, ranks: tuple[int, int], form: Form, user: Any = None) -> None:
    """Says it. ``user`` is a dataset of the user's own, whose samples Python makes, if advice about it may help."""
    rank, world = ranks
    hands = settings.hands
    if hands is None:
        line = f"native, {info.lanes} lane{'s' if info.lanes != 1 else ''}"
    else:
        line = hands.words()
    if settings.decoding is not None and settings.target is not None:
        line += f", {settings.decoding.words(settings.target.device)}"
    if world > 1:
        line += f", rank {rank} of {world}"
    _notice.say(
        f"{line}, {settings.seed}{_bytes(info.fields, settings.output, form, settings.single) if hands is None else ''}"
    )
    if hands is not None and not hands.lookup and not isinstance(user, Dataset) and (instead := fitting(user)):
        _notice.say(f"without Python code it would be faster: {instead}")


def _bytes(fields: Sequence[_client.Field], output: str, form: Form, single: bool) -> str:
    """What it says if batches hold bytes, which layers of a model do not accept."""
    found = [field for field in fields if field.dtype == "uint8" and field.kind in ("image", "array")]
    if not found:
        return ""
    field = found[0]
    names = list(dict.fromkeys(map(name_of, found)))
    item = {"dict": f"batch[{names[0]!r}]", "one": "batch"}.get(form, "")
    if not item:  # the variable that the loop unpacks to has the field's name, if it is an identifier
        item = names[0] if names[0].isidentifier() else f"batch[{Groups(fields).names.index(names[0])}]"
    if field.view_of:
        item += "[0]"
    if field.batch == "ragged" and not single:
        item += ".values"
    floats = f"{item}.float()" if output == "torch" else f"{item}.astype('float32')"
    words = f"; {' and '.join(names)} {'is' if len(names) == 1 else 'are'} uint8: "
    if field.kind == "image":
        return words + f"to get floats, end the transforms with ToTensor(), or write {floats} / 255 in the loop"
    return words + f"to get floats, write {floats} in the loop"

"""What a loader gives, as bytes; and stored data of several formats to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import conftest
import numpy as np
from conftest import jpeg, stored

import stoker
from stoker import transforms as T

# Without the two large ones, which take most of the time to decode.
PHOTOS = [photo for photo in conftest.PHOTOS if photo.stat().st_size < 200_000]
TABLE = "file,class,score,note\n" + "".join(
    f"{photo.name},{'ab'[i % 2]},{i}.5,{'' if i == 2 else 'note'}\n" for i, photo in enumerate(PHOTOS)
)
SMALL = T.Compose([T.Resize((32, 24)), T.ToTensor()])


def golden(kind: str, name: str) -> Any:
    return json.loads((stored(kind) / name).read_text())


def rows(value: Any) -> list[bytes]:
    """The bytes of every row of a column."""
    if isinstance(value, stoker.Ragged):
        return [row.tobytes() for row in value.rows()]
    if isinstance(value, list):
        return [one.encode() if isinstance(one, str) else one for one in value]
    return [np.ascontiguousarray(row).tobytes() for row in value]


def fields_of(batch: Any) -> list[Any]:
    """The fields of a batch or of a sample, in order, whatever it is."""
    if isinstance(batch, dict):
        return list(batch.values())
    return list(batch) if isinstance(batch, tuple) else [batch]


def columns(dataset: Any, size: int = 4, **keywords: Any) -> dict[str, dict[int, bytes]]:
    """Everything that a loader gives: the bytes of every field of every sample, by name and sample."""
    found: dict[str, dict[int, bytes]] = {name: {} for name in dataset.fields}
    with stoker.DataLoader(dataset, batch_size=size, output="numpy", **keywords) as loader:
        for batch in loader:
            values = fields_of(batch)
            ids = batch.ids[batch.valid].tolist()
            for name, value in zip(found, values, strict=True):
                found[name].update(zip(ids, rows(value), strict=False))
    return found


def in_order(dataset: Any, **keywords: Any) -> dict[str, list[bytes]]:
    return {name: [column[i] for i in range(len(dataset))] for name, column in columns(dataset, **keywords).items()}


def reviews(tmp: Path) -> Path:
    """A folder of text: two files of lines, with blank ones between them, and a picture."""
    lines = [
        json.dumps({"text": f"häufig {i}\n" * i, "label": i, "of": {"i": [i]}}, ensure_ascii=False) for i in range(11)
    ]
    (tmp / "b.ndjson").write_text("\r\n".join(lines[7:]))
    (tmp / "a.jsonl").write_text("\n\n".join(lines[:7]) + "\n")
    (tmp / "x.jpg").write_bytes(jpeg(0))
    return tmp


def table(tmp: Path) -> Path:
    path = tmp / "train.csv"
    path.write_text(TABLE)
    return path

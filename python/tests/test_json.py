"""JSON as Python's json module writes it, NaN and Infinity included, wherever it is read for fields."""

from __future__ import annotations

import io
import json
import math
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker import Field

SPECIAL = [math.nan, math.inf, -math.inf]
WORDS = ["NaN", "Infinity", "-Infinity", ", NaN", '": NaN', '"', "\\", '\\"', "[", "}", "ü", "\u2028", ""]


def value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(7 if depth < 4 else 5)
    if kind < 2:
        return draw.choice([*SPECIAL, draw.gauss(0, 1e6), draw.randrange(-(10**20), 10**20)])
    if kind < 4:
        return "".join(draw.choices(WORDS, k=draw.randrange(4)))
    if kind == 4:
        return draw.choice([None, True, False])
    if kind == 5:
        return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {draw.choice(WORDS): value(draw, depth + 1) for _ in range(draw.randrange(4))}


def equal(a: Any, b: Any) -> bool:
    """Equality by which NaN is NaN, and 1 is not 1.0."""
    return repr(a) == repr(b)


def test_lines_are_what_json_reads(tmp_path: Path) -> None:
    draw = random.Random(5)
    objects: list[dict[str, Any]] = [
        {"x": draw.choice([*SPECIAL, 1.5, -0.0, 3]), "v": [value(draw)], "t": "NaN"} for _ in range(300)
    ]
    compact: dict[str, Any] = {"separators": (",", ":")}
    spread: dict[str, Any] = {"separators": (" , ", "\t: "), "ensure_ascii": False}
    lines = [json.dumps(row, **draw.choice([{}, compact, spread])) for row in objects]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    fields = [
        Field("x", decode="float"),
        Field("v", decode="json"),
        Field("t", decode="text"),
        Field("json", decode="json"),
        Field("raw", source="json", decode="bytes"),
        Field("text", source="x", decode="bytes"),
    ]
    dataset = stoker.LinesDataset(path, fields)
    with stoker.DataLoader(dataset, 64, output="numpy") as loader:
        rows = {key: [v for batch in loader for v in batch[key]] for key in ("x", "v", "t", "json", "raw", "text")}
    for i, row in enumerate(objects):
        assert equal(float(rows["x"][i]), float(row["x"])), lines[i]
        assert equal(rows["v"][i], row["v"]), lines[i]
        assert rows["t"][i] == "NaN"
        assert equal(rows["json"][i], row), lines[i]
        assert rows["raw"][i] == lines[i].encode()
        assert rows["text"][i] == json.dumps(row["x"]).encode()


@pytest.mark.parametrize(
    "line",
    ['{NaN: 1, "x": 2}', '{"x": nan}', '{"x": -NaN}', '{"x": +Infinity}', '{"x": NaN NaN}', '{"x": NaN1}', "NaN"],
)
def test_what_is_not_an_object_for_python_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(stoker.DataError, match="not a JSON object"):
        stoker.LinesDataset(path, [Field("x", decode="float")])[0]


def test_an_integer_that_is_nan_names_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"label": 1}\n{"label": NaN}\n')
    with pytest.raises(stoker.DataError, match='expected an integer, but the text is "NaN"') as refused:
        list(stoker.DataLoader(stoker.LinesDataset(path, [Field("label", decode="int")]), batch_size=2))
    where = refused.value.where
    assert (where["shard"], where["sample"], where["offset"], where["field"]) == (str(path), 1, 13, "label")


def test_members_of_shards(tmp_path: Path) -> None:
    row = {"score": math.nan, "box": [math.inf, -math.inf, 1], "name": "NaN"}
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(3):
            text = json.dumps(row).encode()
            info = tarfile.TarInfo(f"{i}.json")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    assert equal(stoker.WebDataset(str(tmp_path / "a.tar")).decode()[1]["json"], row)
    assert stoker.WebDataset(str(tmp_path / "a.tar"))[1]["json"] == json.dumps(row).encode()


def test_tables(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    scores = [1, math.nan, -math.inf, 0.25, math.inf]
    path.write_text("".join(json.dumps({"score": x, "name": "NaN"}) + "\n" for x in scores))
    with stoker.DataLoader(stoker.Table(path).select("score", "name"), 5, output="numpy") as loader:
        (batch,) = loader
    assert batch["score"].dtype == np.float64
    np.testing.assert_array_equal(batch["score"], scores)
    assert batch["name"] == ["NaN"] * 5

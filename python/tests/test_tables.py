"""Columns of tables: which words of a CSV file are numbers, as in pandas, and what is said of columns that are text."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import mostly
from needs import needs

import stoker

WHOLE = ["0", "1", "-7", "12", "9223372036854775807", "-9223372036854775808"]
FLOATS = ["1.5", "-0.25", "1e5", "2.", ".5", "-1E-3"]
INFINITE = ["inf", "-inf", "+inf", "Inf", "INF", "Infinity", "-Infinity", "+infinity", "INFINITY"]
NAN = ["nan", "NaN", "-nan", "-NaN"]
LARGE = ["9223372036854775808", "18446744073709551615"]
HUGE = ["18446744073709551616", "-9223372036854775809"]
MISSING = [
    "",
    "NA",
    "N/A",
    "n/a",
    "<NA>",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "null",
    "NULL",
    "None",
    "1.#IND",
    "-1.#IND",
    "1.#QNAN",
    "-1.#QNAN",
]
TEXT = ["abc", "none", "Nan", "NAN", "+nan", "infini", "1_000", "0x10", "nan(1)", "-", "True", "1e", "naN"]
POOLS = [WHOLE, FLOATS, INFINITE, NAN, LARGE, HUGE, MISSING, TEXT]


def column(path: Path, cells: list[str], **keywords: Any) -> Any:
    """Column x as one batch: an array, or a list of texts; rows with nothing are left out."""
    path.write_text("x,y\n" + "".join(f"{cell},1\n" for cell in cells))
    dataset = stoker.Table(path).select("x")
    with stoker.DataLoader(dataset, len(cells), output="numpy", on_bad="skip", **keywords) as loader:
        batches = list(loader)
    valid = [bool(v) for batch in batches for v in batch.valid]
    values = [v for batch in batches for v in batch["x"]]
    values = [v for v, there in zip(values, valid, strict=True) if there]
    first = batches[0]["x"] if batches else []
    return np.array(values, first.dtype) if isinstance(first, np.ndarray) else values


@pytest.mark.parametrize("seed", mostly(range(40), *range(6)))
def test_columns_are_as_pandas_reads_them(tmp_path: Path, seed: int) -> None:
    pandas = needs("pandas")
    draw = random.Random(seed)
    pools = draw.sample(POOLS, draw.randrange(1, 4))
    cells = ["3", *(draw.choice(draw.choice(pools)) for _ in range(draw.randrange(3, 20)))]
    theirs = pandas.read_csv(io.StringIO("x,y\n" + "".join(f"{cell},1\n" for cell in cells))).x
    found = column(tmp_path / "t.csv", cells)
    rows = [i for i, cell in enumerate(cells) if cell not in MISSING]
    if not pandas.api.types.is_numeric_dtype(theirs.dtype):
        if isinstance(found, list):
            assert found == cells  # also the words that are nothing among numbers
        else:  # large whole numbers beside gaps, or both large and negative: pandas makes texts of some
            assert set(cells) & {*LARGE, *HUGE}
            assert not set(cells) & {*TEXT}
            want = [int(cells[i]) if found.dtype == np.uint64 else float(cells[i]) for i in rows]
            np.testing.assert_array_equal(found, np.array(want, found.dtype))
        return
    if len(rows) == len(cells):
        assert found.dtype == theirs.dtype, cells
    want = theirs.to_numpy()[rows]
    np.testing.assert_array_equal(np.asarray(found, want.dtype), want)


def test_a_cell_that_makes_a_column_text_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.csv"
    names = ["score", "id", "name", "code", "few"]
    rows = [[str(i), str(i), "x" if i % 2 else str(i), f"{i:04d}", str(i)] for i in range(40)]
    rows[7][0], rows[9][0], rows[20][1] = "abc", "d", "99999999999999999999"
    path.write_text("\n".join(",".join(row) for row in [names, *rows]) + "\n")
    next(iter(stoker.DataLoader(stoker.Table(path), 8)))
    told = [line for line in capfd.readouterr().err.splitlines() if "is text" in line]
    assert told == [
        'stoker: column "score" is text, because line 9 has "abc"; 38 rows have numbers: '
        "correct the cell, or leave it empty",
        'stoker: column "id" is text, because line 22 has "99999999999999999999"; 39 rows have numbers: '
        "correct the cell, or leave it empty",
    ]
    next(iter(stoker.DataLoader(stoker.Table(path).select("name", "code"), 8)))
    assert "is text" not in capfd.readouterr().err


def test_labels_may_be_called_none(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,label\n" + "".join(f"{i},{['None', 'cat', 'NA'][i % 3]}\n" for i in range(6)))
    assert stoker.Table(path).classes == ["NA", "None", "cat"]
    path.write_text("x,label\n1,0\n2,NA\n")
    with pytest.raises(stoker.DataError, match='line 3 has no label in column "label"'):
        len(stoker.Table(path))

"""Writes manifest.parquet, which the tests of this package read, with pyarrow.

    python make.py

Run by hand; the output is kept.
"""

import os

import pyarrow as pa
import pyarrow.parquet as pq

rows = [
    {"path": "%s/%d.jpg" % (c, i), "label": c, "score": None if i == 2 else i / 4, "split": i, "ok": i % 2 == 0, "box": [1, 2]}
    for i, c in enumerate(["dog", "cat", "dog", "eel"])
]
here = os.path.dirname(os.path.abspath(__file__))
pq.write_table(pa.Table.from_pylist(rows), os.path.join(here, "manifest.parquet"))

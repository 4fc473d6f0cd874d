"""Writes the files that the tests of internal/stage/format/parquet read, with pyarrow.

    python make.py

Run by hand, in an environment with pyarrow 26 and numpy; the output is kept.
lists.parquet comes from one with pyarrow 10 ("python make.py lists"): newer ones
end pages between rows only, as all readers must not expect.
rows.json has what all files rows-*.parquet hold; each other NAME.json is what
NAME.parquet holds. Bytes are written as "hex:...".
"""

import json
import os
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))


def plain(value):
    if isinstance(value, bytes):
        return "hex:" + value.hex()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def keep(name, rows):
    with open(os.path.join(HERE, name + ".json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(plain(r)) for r in rows) + "\n]\n")


def write(name, table, **options):
    pq.write_table(table, os.path.join(HERE, name + ".parquet"), **options)


N = 36
rng = np.random.default_rng(5)
ROWS = [
    {
        "flag": i % 3 == 0,
        "i8": (i * 37) % 256 - 128,
        "u8": (i * 91) % 256,
        "i16": (i * 7919) % 65536 - 32768,
        "u16": (i * 104729) % 65536,
        "i32": i * 1_000_003 - 2**20,
        "u32": 2**32 - 1 - i,
        "i64": (-1) ** i * i**9,
        "u64": 2**63 + i,
        "f32": float(np.float32(i / 7)),
        "f64": i / 7,
        "text": ["alpha", "beta", "gämma", ""][i % 4],
        "blob": rng.integers(0, 256, i % 23, dtype=np.uint8).tobytes(),
        "four": bytes([i, i + 1, i + 2, i + 3]),
        "maybe": None if i % 5 == 1 else i * 11,
        "note": None if i % 4 == 2 else "note %d" % (i // 3),
        "vec": [float(np.float32(j / 3)) for j in range(i % 6)],
        "ids": None if i % 7 == 3 else list(range(i, i + i % 3)),
        "box": {"x": i / 2, "name": "b%d" % i},
    }
    for i in range(N)
]
SCHEMA = pa.schema(
    [
        pa.field("flag", pa.bool_(), nullable=False),
        ("i8", pa.int8()), ("u8", pa.uint8()), ("i16", pa.int16()), ("u16", pa.uint16()),
        ("i32", pa.int32()), ("u32", pa.uint32()), ("i64", pa.int64()), ("u64", pa.uint64()),
        pa.field("f32", pa.float32(), nullable=False), ("f64", pa.float64()),
        ("text", pa.string()), pa.field("blob", pa.binary(), nullable=False), ("four", pa.binary(4)),
        ("maybe", pa.int64()), ("note", pa.string()),
        ("vec", pa.list_(pa.float32())), ("ids", pa.list_(pa.int64())),
        ("box", pa.struct([("x", pa.float64()), ("name", pa.string())])),
    ]
)  # fmt: skip
TABLE = pa.Table.from_pylist(ROWS, schema=SCHEMA)

# Small pages: a page is closed after every batch of 9 rows.
SMALL = dict(row_group_size=20, data_page_size=64, write_batch_size=9, write_statistics=False)


def rows():
    keep("rows", ROWS)
    for codec in ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]:
        write("rows-" + codec, TABLE, compression=codec, **SMALL)
    write("rows-v2-none", TABLE, compression="none", data_page_version="2.0", use_dictionary=False, **SMALL)
    write("rows-index", TABLE, compression="snappy", write_page_index=True, **SMALL)
    write("rows-index-v2", TABLE, compression="gzip", write_page_index=True, data_page_version="2.0", **SMALL)
    write("rows-crc", TABLE, compression="none", use_dictionary=False, write_page_checksum=True, **SMALL)
    write("rows-whole", TABLE, compression="snappy")
    write("rows-encodings", TABLE, compression="zstd", use_dictionary=False, data_page_version="2.0", **SMALL,
          column_encoding={
              "flag": "RLE", "i32": "DELTA_BINARY_PACKED", "i64": "DELTA_BINARY_PACKED", "u64": "DELTA_BINARY_PACKED",
              "maybe": "DELTA_BINARY_PACKED", "u8": "DELTA_BINARY_PACKED", "ids.list.element": "DELTA_BINARY_PACKED",
              "f32": "BYTE_STREAM_SPLIT", "f64": "BYTE_STREAM_SPLIT", "i16": "BYTE_STREAM_SPLIT", "four": "BYTE_STREAM_SPLIT",
              "text": "DELTA_BYTE_ARRAY", "note": "DELTA_LENGTH_BYTE_ARRAY", "blob": "DELTA_LENGTH_BYTE_ARRAY",
              "box.name": "DELTA_BYTE_ARRAY", "vec.list.element": "BYTE_STREAM_SPLIT",
          })  # fmt: skip


def huggingface():
    """Pictures as HuggingFace's datasets store them, with their description."""
    info = {"info": {"features": {
        "image": {"_type": "Image"},
        "label": {"names": ["cat", "dog", "eel"], "_type": "ClassLabel"},
        "embedding": {"feature": {"dtype": "float32", "_type": "Value"}, "length": 4, "_type": "Sequence"},
    }}}  # fmt: skip
    rows = [
        {
            "image": {"bytes": b"\xff\xd8picture %d" % i + rng.integers(0, 256, 40 + i, dtype=np.uint8).tobytes() + b"\xff\xd9",
                      "path": None if i % 2 else "%04d.jpg" % i},
            "label": (i * 2) % 3,
            "embedding": [float(i), 0.5, -float(i), 0.25],
        }
        for i in range(12)
    ]  # fmt: skip
    schema = pa.schema([
        ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ("label", pa.int64()),
        ("embedding", pa.list_(pa.float32(), 4)),
    ], metadata={"huggingface": json.dumps(info)})  # fmt: skip
    table = pa.Table.from_pylist(rows, schema=schema)
    keep("huggingface", rows)
    write("huggingface", table, row_group_size=5, compression="snappy")
    write("huggingface-plain", table.replace_schema_metadata(None), row_group_size=5, compression="none", use_dictionary=["label"])


def lists():
    """Long lists: pages end within them."""
    rows = [{"id": i, "x": list(range(i * 1000, i * 1000 + n))} for i, n in enumerate([3, 0, 400, 1, 1000, 2, 0, 0, 700, 5])]
    keep("lists", rows)
    schema = pa.schema([("id", pa.int32()), ("x", pa.list_(pa.int32()))])
    table = pa.Table.from_pylist(rows, schema=schema)
    write("lists", table, compression="zstd", data_page_size=256, write_batch_size=64, use_dictionary=False)


def kinds():
    """Types that are given out as they are stored, and types that are refused."""
    from datetime import date, datetime
    from decimal import Decimal

    n = 4
    rows = {
        "day": pa.array([date(2020, 1, 1 + i) for i in range(n)]),
        "when": pa.array([datetime(2020, 1, 1 + i) for i in range(n)], pa.timestamp("us")),
        "half": pa.array(np.arange(n, dtype=np.float16) / 2),
        "fixed": pa.array([[i, i + 1, i + 2] for i in range(n)], pa.list_(pa.int16(), 3)),
        "money": pa.array([Decimal("1.25")] * n),
        "map": pa.array([[("a", 1)]] * n, pa.map_(pa.string(), pa.int32())),
        "deep": pa.array([[[1, 2], [3]]] * n),
        "words": pa.array([["a", "b"]] * n),
        "holes": pa.array([[1, None], [2], None, []]),
        "things": pa.array([[{"x": 1, "y": 2.5}, {"x": 2, "y": 3.5}]] * n),
    }
    write("kinds", pa.table(rows), compression="snappy")
    write("no-rows", pa.table({"x": pa.array([], pa.int64())}))
    write("old-time", pa.table({"id": pa.array([1, 2]), "when": rows["when"][:2]}), use_deprecated_int96_timestamps=True)


def nulls():
    """Nulls of every kind, and columns that may have some and have none, as writers tell of them or do not."""
    n = 24
    numbers = pa.list_(pa.int32())
    struct = pa.struct([("x", numbers)])
    table = pa.table({
        "full": pa.array(range(n), pa.int64()),
        "gap": pa.array([None if i == 17 else i for i in range(n)], pa.int64()),
        "blob": pa.array([b"x" * i for i in range(n)], pa.binary()),
        "hole": pa.array([None if i % 6 == 5 else b"y" * i for i in range(n)], pa.binary()),
        "lists": pa.array([list(range(i % 4)) for i in range(n)], numbers),
        "nolist": pa.array([None if i == 20 else list(range(i % 3)) for i in range(n)], numbers),
        "inlist": pa.array([[1, None, None] if i == 19 else list(range(i % 3)) for i in range(n)], numbers),
        "both": pa.array([None if i == 3 else [None] if i == 4 else [] for i in range(n)], numbers),
        "in": pa.array([{"x": [i]} for i in range(n)], struct),
        "out": pa.array([None if i == 9 else {"x": None} if i == 10 else {"x": [i]} for i in range(n)], struct),
    })  # fmt: skip
    small = dict(row_group_size=10, data_page_size=64, write_batch_size=4)
    write("nulls-told", table, **small)
    write("nulls-v2", table, write_statistics=False, compression="zstd", data_page_version="2.0", **small)
    write("nulls-index", table, write_statistics=False, write_page_index=True, **small)
    for codec in ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]:
        write("nulls-" + codec, table, write_statistics=False, compression=codec, **small)


def pictures():
    """Values of some 20 kB each, many of them in one page or in one dictionary, as pyarrow puts pictures there.

    Value i is the bytes (i + j // 500) % 251, for j to 17,000 + 300 * i; row 5 of "maybe" is null, and so is row 6.
    The files are gzipped, without a name or a time.
    """
    import gzip

    def value(i):
        return bytes((i + j // 500) % 251 for j in range(17000 + 300 * i))

    n = 24
    table = pa.table({
        "image": pa.array([value(i) for i in range(n)], pa.binary()),
        "label": pa.array([i % 5 for i in range(n)], pa.int64()),
        "maybe": pa.array([None if i in (5, 6) else value(n - i) for i in range(n)], pa.binary()),
    })  # fmt: skip
    for name, options in {
        "dict": dict(compression="none"),
        "dict-snappy": dict(),
        "plain": dict(compression="none", use_dictionary=False),
        "plain-index": dict(compression="none", use_dictionary=False, write_page_index=True),
        "plain-v2": dict(compression="none", use_dictionary=False, data_page_version="2.0"),
        "plain-crc": dict(compression="none", use_dictionary=False, write_page_checksum=True),
        "plain-snappy": dict(use_dictionary=False),
        "mixed": dict(compression="none", write_batch_size=4, dictionary_pagesize_limit=60000, row_group_size=20),
    }.items():
        write("pictures-" + name, table, **options)
        path = os.path.join(HERE, "pictures-" + name + ".parquet")
        with open(path, "rb") as raw, open(path + ".gz", "wb") as out, gzip.GzipFile("", "wb", 9, out, 0) as z:
            z.write(raw.read())
        os.remove(path)


if __name__ == "__main__":
    if sys.argv[1:] == ["lists"]:
        lists()
    elif sys.argv[1:] == ["nulls"]:
        nulls()
    elif sys.argv[1:] == ["pictures"]:
        pictures()
    else:
        rows()
        huggingface()
        kinds()
        nulls()
        pictures()

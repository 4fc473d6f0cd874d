"""Writes the files here and tensorflow.json: what TensorFlow reads from them.

    pip install tensorflow-cpu==2.21.0 numpy zstandard lz4
    python make.py
"""

import gzip
import json
import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import lz4.frame
import numpy as np
import tensorflow as tf
import zstandard

HERE = Path(__file__).parent


def feature(value):
    if isinstance(value, bytes):
        value = [value]
    if isinstance(value, int):
        value = np.array([value])
    if isinstance(value, list):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=value))
    if value is None:
        return tf.train.Feature()
    if value.dtype == np.float32:
        return tf.train.Feature(float_list=tf.train.FloatList(value=value))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=value))


def example(**fields) -> bytes:
    return tf.train.Example(features=tf.train.Features(feature={k: feature(v) for k, v in fields.items()})).SerializeToString()


def pictures(n: int, first: int = 0) -> list[bytes]:
    rng = np.random.default_rng(first)
    out = []
    for i in range(first, first + n):
        fields = {
            "image/encoded": rng.bytes(rng.integers(0, 300)),
            "image/class/label": i - 2,
            "image/bbox": rng.standard_normal(4).astype(np.float32),
            "tokens": rng.integers(-(2**63), 2**63 - 1, rng.integers(0, 9)),
            "text": f"sample {i} größer".encode(),
            "weights": rng.standard_normal(rng.integers(1, 4)).astype(np.float32),
            "parts": [b"a", b"bc"] if i % 2 else [b"alone"],
            "nothing": None,
        }
        if i % 3 == 0:
            del fields["tokens"]
        out.append(example(**fields))
    return out


def sequences() -> list[bytes]:
    return [
        tf.train.SequenceExample(
            context=tf.train.Features(feature={"length": feature(i)}),
            feature_lists=tf.train.FeatureLists(feature_list={"frames": tf.train.FeatureList(feature=[feature(b"x")] * i)}),
        ).SerializeToString()
        for i in range(3)
    ]


def write(name: str, records: list[bytes], compression: str = "") -> None:
    with tf.io.TFRecordWriter(str(HERE / name), tf.io.TFRecordOptions(compression_type=compression)) as w:
        for r in records:
            w.write(r)


def read(name: str, compression: str = "") -> dict:
    records = [r.numpy() for r in tf.data.TFRecordDataset(str(HERE / name), compression_type=compression)]
    out = {"payloads": [r.hex() for r in records]}
    if not name.startswith(("pictures", "data")):
        return out
    out["features"] = []
    for r in records:
        e = tf.train.Example.FromString(r)
        one = {}
        for k, f in e.features.feature.items():
            which = f.WhichOneof("kind")
            if which == "bytes_list":
                one[k] = ["bytes", [v.hex() for v in f.bytes_list.value]]
            elif which == "int64_list":
                one[k] = ["int64", [np.array(f.int64_list.value, "<i8").tobytes().hex()]]
            elif which == "float_list":
                one[k] = ["float32", [np.array(f.float_list.value, "<f4").tobytes().hex()]]
            else:
                one[k] = ["none", []]
        out["features"].append(one)
    return out


def main() -> None:
    write("pictures.tfrecord", pictures(12))
    write("pictures-00000-of-00002", pictures(5, 20))
    write("pictures-00001-of-00002", pictures(4, 30))
    write("pictures.tfrecord.gz", pictures(12), "GZIP")
    write("raw.tfrec", [b"", b"\xff\xd8 a picture", bytes(range(256)) * 20])
    write("sequences.tfrecords", sequences())
    write("data.tfrecord", [example(data=b"a feature that is called data", n=i) for i in range(3)])
    golden = {}
    for p in sorted(HERE.iterdir()):
        if p.suffix not in (".py", ".json", ".zst", ".lz4"):
            golden[p.name] = read(p.name, "GZIP" if p.suffix == ".gz" else "")
    for name, pack in {"zst": zstandard.compress, "lz4": lz4.frame.compress}.items():
        (HERE / f"pictures.tfrecord.{name}").write_bytes(pack((HERE / "pictures.tfrecord").read_bytes()))
        golden[f"pictures.tfrecord.{name}"] = golden["pictures.tfrecord"]
    (HERE / "tensorflow.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""What `stoker pack` writes, read by the tools that it is written for.

    python testdata/pack/check.py build/stoker

needs webdataset, tensorflow, numpy and Pillow; what is not installed is named and
left out. Megatron's index is read by the few lines below, as it is laid out in
megatron/core/datasets/indexed_dataset.py.
"""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PHOTOS = sorted((HERE.parent / "photos").glob("*.jpg"))


def have(name):
    try:
        return __import__(name)
    except ImportError:
        print(f"left out: {name} is not installed")
        return None


def folder(root):
    """Three classes of small pictures; what they hold, in order."""
    rows = []
    for label, photo in enumerate(PHOTOS[:3]):
        data = photo.read_bytes()
        for i in range(4):
            path = root / photo.stem / f"{i}.5.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            rows.append((f"{photo.stem}/{i}%2E5", data, label))
    return rows


def check_webdataset(pack, rows, root):
    wds = have("webdataset")
    if not wds:
        return
    for how, end in (("none", ".tar"), ("gzip", ".tar.gz")):
        shards = sorted(map(str, pack("--compress", how, "--shard-size", "300KB").glob("*" + end)))
        assert len(shards) > 1, shards
        got = list(wds.WebDataset(shards, shardshuffle=False))
        assert [s["__key__"] for s in got] == [key for key, _, _ in rows]
        assert all(s["jpg"] == data and s["cls"] == b"%d" % label for s, (_, data, label) in zip(got, rows))
    decoded = wds.WebDataset(shards, shardshuffle=False).decode("rgb8").to_tuple("jpg", "cls")
    assert [label for _, label in decoded] == [label for _, _, label in rows]
    print("webdataset", wds.__version__, "reads it")

    shards = sorted(map(str, pack("--decode", "--resize", "40", "--crop", "32").glob("*.tar")))
    pictures = list(wds.WebDataset(shards, shardshuffle=False).decode().to_tuple("image.npy", "cls"))
    assert all(p.shape == (32, 32, 3) and p.dtype == "uint8" for p, _ in pictures) and len(pictures) == len(rows)
    print("webdataset decodes its arrays")


def check_tarfile(pack, rows, root):
    long = root / "long" / "c"
    long.mkdir(parents=True)
    (long / ("é" * 60 + "x" * 100 + ".jpg")).write_bytes(rows[0][1])
    (long / "plain.jpg").write_bytes(rows[0][1])
    shard = next(pack(source=root / "long").glob("*.tar"))
    with tarfile.open(shard) as t:
        names = t.getnames()
        assert t.extractfile(names[0]).read() == rows[0][1]
    assert sorted(names) == sorted(
        ["c/plain.jpg", "c/plain.cls", "c/" + "é" * 60 + "x" * 100 + ".jpg", "c/" + "é" * 60 + "x" * 100 + ".cls"]
    ), names
    listed = subprocess.run(["tar", "tf", shard], capture_output=True, check=True).stdout.decode().split("\n")
    assert len(listed) == 5
    zst = next(pack("--compress", "zstd").glob("*.tar.zst"))
    try:
        plain = subprocess.run(["zstd", "-dc", zst], capture_output=True, check=True).stdout
        assert plain == next(pack("--name", "plain").glob("*.tar")).read_bytes()
        print("zstd reads its frames")
    except FileNotFoundError:
        print("left out: zstd is not installed")
    print("tarfile and tar read it, with long names beyond ASCII")


def check_tensorflow(pack, rows, root):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf = have("tensorflow")
    if not tf:
        return
    spec = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
        "key": tf.io.FixedLenFeature([], tf.string),
    }
    for how, end, kind in (("none", "", ""), ("gzip", ".gz", "GZIP")):
        shards = sorted(
            map(str, pack("--output", "tfrecord", "--compress", how, "--shard-size", "3MB").glob("*.tfrecord" + end))
        )
        got = [tf.io.parse_single_example(r, spec) for r in tf.data.TFRecordDataset(shards, compression_type=kind)]
        assert [g["key"].numpy().decode() for g in got] == [key for key, _, _ in rows], kind
        assert all(g["image"].numpy() == data and g["label"].numpy() == label for g, (_, data, label) in zip(got, rows))
    shards = sorted(map(str, pack("--output", "tfrecord", "--decode", "--crop", "32").glob("*.tfrecord")))
    for r in tf.data.TFRecordDataset(shards):
        e = tf.train.Example.FromString(r.numpy())
        shape = list(e.features.feature["image/shape"].int64_list.value)
        raw = tf.io.decode_raw(e.features.feature["image"].bytes_list.value[0], tf.uint8)
        assert shape == [32, 32, 3] and tf.reshape(raw, shape).shape == (32, 32, 3)
    print("tensorflow", tf.__version__, "reads it")


def check_numpy(pack, rows, root):
    np = have("numpy")
    if not np:
        return
    dst = pack("--output", "npy", "--decode", "--resize", "40", "--crop", "32", "--shard-size", "20KB")
    images = [np.load(p, mmap_mode="r") for p in sorted(dst.glob("image-*.npy"))]
    labels = np.concatenate([np.load(p, mmap_mode="r") for p in sorted(dst.glob("label-*.npy"))])
    assert len(images) > 1 and all(i.dtype == np.uint8 and i.shape[1:] == (32, 32, 3) for i in images)
    assert labels.tolist() == [label for _, _, label in rows] and labels.dtype == np.int64
    assert all((i[0].mean() > 1) for i in images)
    print("numpy", np.__version__, "maps it")


def main():
    engine = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as tmp:
        root = pathlib.Path(tmp)
        os.environ["STOKER_CACHE"] = str(root / "cache")
        rows = folder(root / "data")
        made = iter(range(1000))

        def pack(*args, source=root / "data"):
            dst = root / f"packed{next(made)}"
            subprocess.run([engine, "pack", source, dst, *args], check=True, stdout=subprocess.DEVNULL)
            assert json.loads((dst / "manifest.json").read_text())["samples"]
            return dst

        for check in (check_webdataset, check_tarfile, check_tensorflow, check_numpy):
            check(pack, rows, root)


if __name__ == "__main__":
    main()

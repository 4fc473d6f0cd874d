"""Makes the data of the scripts in this folder, once, in a cache folder: python make_data.py CACHE PHOTOS.

PHOTOS is a folder of photographs (250 of ImageNet, or the six of testdata/photos: crops of them are taken then).
Needs numpy, Pillow, h5py and lmdb.
"""

import argparse
import json
import pathlib
import shutil
import sqlite3

import h5py
import lmdb
import numpy as np
from PIL import Image

PHOTOS = 240
TEXT = ("gradient", "loader", "batch", "epoch", "tensor", "photo", "kernel", "label", "worker", "shuffle")


def source_photos(folder, rng):
    """Yields PHOTOS pictures of about 500 x 375, RGB."""
    names = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    if not names:
        raise SystemExit(f"no photographs in {folder}")
    for k in range(PHOTOS):
        picture = Image.open(names[k % len(names)]).convert("RGB")
        if len(names) < PHOTOS:
            width = min(picture.width, 500)
            height = min(picture.height, 375)
            left = int(rng.integers(0, picture.width - width + 1))
            top = int(rng.integers(0, picture.height - height + 1))
            picture = picture.crop((left, top, left + width, top + height))
        picture.thumbnail((640, 640))
        yield picture


def make_photos(root, source, rng):
    (root / "large").mkdir()
    rows = ["path,label"]
    for k, picture in enumerate(source_photos(source, rng)):
        folder = root / "photos" / f"class_{k % 10}"
        folder.mkdir(parents=True, exist_ok=True)
        picture.save(folder / f"{k:04}.jpg", quality=90)
        rows.append(f"class_{k % 10}/{k:04}.jpg,{k % 10}")
        if k < 48:
            picture.resize((1600, 1200), Image.Resampling.BICUBIC).save(root / "large" / f"{k:04}.jpg", quality=90)
    body = rows[1:]
    (root / "photos.csv").write_text("\n".join(rows[:1] + body * 10) + "\n")


def make_tiles(root, rng):
    pictures = [np.asarray(Image.open(p)) for p in sorted((root / "photos").rglob("*.jpg"))]
    tiles = np.zeros((4096, 96, 96, 3), np.uint8)
    for k in range(len(tiles)):
        picture = pictures[k % len(pictures)]
        if min(picture.shape[:2]) >= 96:
            top = rng.integers(0, picture.shape[0] - 95)
            left = rng.integers(0, picture.shape[1] - 95)
            tiles[k] = picture[top : top + 96, left : left + 96]
    labels = rng.integers(0, 10, len(tiles))
    for name, chunk in (("tiles.h5", 32), ("tiles_single.h5", 1)):
        with h5py.File(root / name, "w") as file:
            file.create_dataset("images", data=tiles, chunks=(chunk, 96, 96, 3), compression="gzip", compression_opts=4)
            file.create_dataset("labels", data=labels)


def make_sqlite(root, rng):
    for name in ("visits.sqlite", "visits_indexed.sqlite"):
        base = sqlite3.connect(root / name)
        base.execute("CREATE TABLE visit (id INTEGER PRIMARY KEY, patient INTEGER, day INTEGER, a REAL, b REAL)")
        patients = rng.permutation(np.repeat(np.arange(1500), 40)).tolist()
        values = rng.normal(size=(len(patients), 2)).tolist()
        rows = [(p, k % 365, v[0], v[1]) for k, (p, v) in enumerate(zip(patients, values, strict=True))]
        base.executemany("INSERT INTO visit (patient, day, a, b) VALUES (?, ?, ?, ?)", rows)
        if name == "visits_indexed.sqlite":
            base.execute("CREATE INDEX by_patient ON visit (patient)")
        base.commit()
        base.close()


def make_lmdb(root):
    names = sorted((root / "photos").rglob("*.jpg"))
    env = lmdb.open(str(root / "photos.lmdb"), map_size=1 << 30)
    with env.begin(write=True) as txn:
        for k in range(960):
            txn.put(f"{k:08}".encode(), names[k % len(names)].read_bytes())
        txn.put(b"__len__", b"960")
    env.close()


def make_text(root, rng):
    vocabulary = {f"{TEXT[k % 10]}_{k}": k for k in range(400_000)}
    (root / "vocab.json").write_text(json.dumps(vocabulary))
    with open(root / "texts.jsonl", "w") as file:
        for k in range(3000):
            length = int(np.clip(rng.lognormal(6, 0.7), 20, 2000))
            tokens = rng.integers(1, 30000, length).tolist()
            file.write(json.dumps({"id": k, "tokens": tokens, "label": k % 4}) + "\n")
    with open(root / "reviews.jsonl", "w") as file:
        for k in range(4000):
            words = [f"{TEXT[w % 10]}_{w}" for w in rng.integers(0, 400_000, 60).tolist()]
            file.write(json.dumps({"text": " ".join(words), "stars": k % 5}) + "\n")


def make_clips(root, rng):
    (root / "clips").mkdir()
    lengths = np.sort(np.exp(rng.normal(8, 2, 400)).clip(2000, 400_000)).astype(int)
    rows = ["file,length"]
    for k, length in enumerate(lengths.tolist()):
        np.save(root / "clips" / f"{k:05}.npy", rng.normal(0, 3000, length).astype(np.int16))
        rows.append(f"{k:05}.npy,{length}")
    (root / "clips.csv").write_text("\n".join(rows) + "\n")


def make_signals(root, rng):
    """A long table: 240 sensors, 500 readings each, the sensors' rows one after another in time."""
    with open(root / "signals.csv", "w") as file:
        file.write("sensor,t,temperature,vibration\n")
        values = rng.normal(size=(500, 240, 2)).round(4).tolist()
        for t in range(500):
            file.writelines(f"sensor-{s:03},{t},{values[t][s][0]},{values[t][s][1]}\n" for s in range(240))


def make_arrays(root, rng):
    (root / "shards").mkdir()
    smooth = np.linspace(0, 1, 32, dtype=np.float32)
    for k in range(8):
        x = rng.integers(0, 40, (256, 3, 32, 32)).astype(np.float32) / 40 + smooth
        np.savez_compressed(root / "shards" / f"shard_{k}.npz", x=x, y=rng.integers(0, 10, 256))
    table = np.lib.format.open_memmap(root / "table.npy", "w+", np.float32, (200_000, 40))
    for begin in range(0, len(table), 20_000):
        table[begin : begin + 20_000] = rng.normal(size=(20_000, 40))
    np.save(root / "weights.npy", rng.random(200_000))


def make(root, source):
    """Makes everything below root, unless it is there."""
    done = root / "made"
    if done.exists():
        return
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    rng = np.random.default_rng(2)
    make_photos(root, source, rng)
    make_tiles(root, rng)
    make_sqlite(root, rng)
    make_lmdb(root)
    make_text(root, rng)
    make_clips(root, rng)
    make_signals(root, rng)
    make_arrays(root, rng)
    done.write_text("2\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cache", type=pathlib.Path)
    parser.add_argument("photos", type=pathlib.Path)
    args = parser.parse_args()
    make(args.cache, args.photos)

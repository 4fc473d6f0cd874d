"""Makes the data of the scripts in this folder, once, in a cache folder: python make_data.py CACHE PHOTOS.

PHOTOS is a folder of photographs. Needs numpy, Pillow, h5py, lmdb and pandas with pyarrow.
"""

import argparse
import base64
import io
import json
import pathlib
import shutil
import sqlite3

import h5py
import lmdb
import numpy as np
import pandas as pd
from PIL import Image

WORDS = """the a and of to was it for with this that but not very good bad great film book phone case battery screen
arrived broken late early works fine love hate return refund quality price cheap sound camera charger cable light
heavy small large fits perfect terrible awful amazing recommend never again bought gift husband daughter week month
year stopped working instructions missing package seller support replaced warranty plastic metal colour blue""".split()


def photographs(folder):
    names = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    if not names:
        raise SystemExit(f"no photographs in {folder}")
    pictures = []
    for k in range(240):
        picture = Image.open(names[k % len(names)]).convert("RGB")
        picture.thumbnail((500, 500))
        pictures.append(picture)
    return pictures


def crop(pictures, size, rng):
    picture = pictures[int(rng.integers(len(pictures)))]
    side = min(picture.size)
    side = int(rng.integers(side // 2, side + 1))
    left = int(rng.integers(0, picture.width - side + 1))
    top = int(rng.integers(0, picture.height - side + 1))
    return picture.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BILINEAR)


def jpeg(picture, quality=90):
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=quality)
    return out.getvalue()


def make_reviews(root, rng):
    with sqlite3.connect(root / "reviews.db") as db:
        db.execute("CREATE TABLE reviews (id INTEGER PRIMARY KEY, product TEXT, stars INTEGER, body TEXT)")
        for k in range(60000):
            body = " ".join(WORDS[w] for w in rng.integers(0, len(WORDS), int(rng.integers(60, 160))))
            row = (k + 1, f"B{int(rng.integers(10**6)):07}", int(rng.integers(1, 6)), body)
            db.execute("INSERT INTO reviews VALUES (?, ?, ?, ?)", row)
    db.close()


def make_icu(root, rng):
    stays, hours = 12000, 48
    frame = pd.DataFrame(
        {
            "stay_id": np.repeat([f"icu-{k * 7919 % 1000003:07}" for k in range(stays)], hours),
            "hour": np.tile(np.arange(hours, dtype=np.int32), stays),
        }
    )
    for name in ("heart_rate", "resp_rate", "spo2", "map", "temp", "glucose"):
        frame[name] = rng.normal(size=len(frame)).astype(np.float32)
    frame.to_parquet(root / "vitals.parquet")
    outcome = pd.DataFrame({"stay_id": frame["stay_id"].iloc[::hours].to_numpy(), "died": rng.integers(0, 2, stays)})
    outcome.to_parquet(root / "outcome.parquet")


def make_audio(root, rng):
    (root / "audio").mkdir()
    t = np.arange(20 * 44100) / 44100
    rows = ["recording,keyword"]
    for k in range(60):
        wave = sum(np.sin(2 * np.pi * f * t) for f in rng.uniform(80, 4000, 3)) * 3000
        wave = wave + rng.normal(scale=300, size=len(t))
        np.save(root / "audio" / f"rec{k:04}.npy", wave.astype(np.int16))
    for k in range(480):
        rows.append(f"rec{k % 60:04}.npy,{int(rng.integers(12))}")
    (root / "keywords.csv").write_text("\n".join(rows) + "\n")
    noise = (rng.normal(scale=600, size=(180, 8000)).cumsum(1) % 4000).astype(np.int16)
    np.savez_compressed(root / "noise.npz", **{f"room{k:03}": row for k, row in enumerate(noise)})


def make_tokens(root, rng):
    lengths = rng.integers(12, 40, 200000)
    (rng.zipf(1.3, int(lengths.sum()) + 1024) % 8000).astype(np.uint16).tofile(root / "tokens.bin")
    np.save(root / "doc_start.npy", np.concatenate([[0], lengths.cumsum()[:-1]]))
    np.save(root / "doc_weight.npy", rng.gamma(2.0, size=len(lengths)))


def make_patches(root, pictures, rng):
    (root / "patches").mkdir()
    for k in range(17):
        images = np.stack([np.asarray(crop(pictures, 40, rng)) for _ in range(112)])
        np.savez_compressed(root / "patches" / f"part{k:02}.npz", images=images, labels=rng.integers(0, 10, 112))


def make_crops(root, pictures, rng):
    with open(root / "crops.jsonl", "w") as f:
        for k in range(2400):
            image = base64.b64encode(jpeg(crop(pictures, 128, rng))).decode()
            f.write(json.dumps({"id": k, "image": image, "label": int(rng.integers(20))}) + "\n")


def make_gait(root, rng):
    lengths = rng.integers(250, 700, 3000)
    with h5py.File(root / "gait.h5", "w") as f:
        f["ends"] = lengths.cumsum()
        f["values"] = rng.normal(size=(int(lengths.sum()), 6)).astype(np.float32)
        f["subject"] = rng.integers(0, 20, len(lengths))


def make_faces(root, pictures, rng):
    with lmdb.open(str(root / "faces.lmdb"), map_size=1 << 28) as env, env.begin(write=True) as txn:
        for k in range(1200):
            txn.put(f"{k:08}".encode(), int(rng.integers(40)).to_bytes(2, "little") + jpeg(crop(pictures, 160, rng)))
        txn.put(b"length", b"1200")


def make_activity(root, rng):
    np.save(root / "activity_x.npy", rng.normal(size=(20000, 6, 128)).astype(np.float16))
    np.save(root / "activity_y.npy", rng.integers(0, 8, 20000))


def make_photos(root, pictures, rng):
    (root / "small").mkdir()
    rows = []
    for k, picture in enumerate(pictures):
        picture = picture.copy()
        picture.thumbnail((256, 256))
        picture.save(root / "small" / f"{k:04}.jpg", quality=88)
        rows.append(f"{k:04}.jpg {int(rng.integers(10))}")
    (root / "small.txt").write_text("\n".join(rows * 20) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cache", type=pathlib.Path)
    parser.add_argument("photos", type=pathlib.Path)
    args = parser.parse_args()
    if (args.cache / "complete").exists():
        return
    shutil.rmtree(args.cache, ignore_errors=True)
    args.cache.mkdir(parents=True)
    pictures = photographs(args.photos)
    for k, make in enumerate((make_reviews, make_icu, make_audio, make_tokens, make_gait, make_activity)):
        make(args.cache, np.random.default_rng(400 + k))
    for k, make in enumerate((make_patches, make_crops, make_faces, make_photos)):
        make(args.cache, pictures, np.random.default_rng(500 + k))
    (args.cache / "complete").write_text("1\n")


if __name__ == "__main__":
    main()

"""Makes the data of the scripts in this folder, once, in a cache folder: python make_data.py CACHE PHOTOS.

PHOTOS is a folder of photographs (JPEG). Parts that are there already are left as they are.
Needs numpy, Pillow, h5py and lmdb.
"""

import argparse
import csv
import json
import pathlib
import shutil
import sqlite3
import wave

import h5py
import lmdb
import numpy as np
from PIL import Image

WORDS = "set play turn find book call order show cancel move light music alarm table taxi weather room news".split()


def photos(source):
    names = sorted(p for p in source.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    if not names:
        raise SystemExit(f"no photographs in {source}")
    return names


def picture(names, k, longest=640):
    image = Image.open(names[k % len(names)]).convert("RGB")
    image.thumbnail((longest, longest), Image.Resampling.BICUBIC)
    return image


def squared(names, k, size):
    image = picture(names, k)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side)).resize((size, size), Image.Resampling.BICUBIC)


def make_intents(out, names, rng):
    """JSON lines: texts with their token ids."""
    rows = 9000
    with open(out / "intents.jsonl", "w") as f:
        for k in range(rows):
            n = int(rng.integers(120, 260))
            ids = rng.integers(2, 8000, n).tolist()
            text = " ".join(WORDS[i % len(WORDS)] for i in ids[:30])
            f.write(json.dumps({"id": k, "text": text, "ids": ids, "intent": sum(ids[:3]) % 12}) + "\n")
    (out / "meta.json").write_text(json.dumps({"rows": rows, "classes": 12, "vocab": 8000}))


def make_speech(out, names, rng):
    """Wave files of one second, 16 kHz."""
    t = np.arange(16000) / 16000
    rows = []
    for k in range(1000):
        label = k % 10
        tone = np.sin(2 * np.pi * (150 + 90 * label) * t) + 0.4 * np.sin(2 * np.pi * (500 + 60 * label) * t * (1 + t / 9))
        sound = (tone * 6000 + rng.normal(0, 900, 16000)).clip(-32768, 32767).astype("<i2")
        name = f"{label}_{k:04}.wav"
        with wave.open(str(out / name), "wb") as f:
            f.setnchannels(1)
            f.setsampwidth(2)
            f.setframerate(16000)
            f.writeframes(sound.tobytes())
        rows.append(f"{name}\t{label}")
    (out / "list.tsv").write_text("\n".join(rows) + "\n")


def make_scans(out, names, rng):
    """Compressed npz shards of 24 scans with 4 channels of 128 x 128."""
    for s in range(40):
        images = np.zeros((24, 4, 128, 128), np.uint8)
        for k in range(24):
            rgb = np.asarray(squared(names, s * 24 + k, 128)).transpose(2, 0, 1)
            images[k, :3] = rgb
            images[k, 3] = rgb.max(0)
        np.savez_compressed(out / f"part-{s:03}.npz", images=images, labels=rng.integers(0, 5, 24))


def make_sightings(out, names, rng):
    with open(out / "manifest.csv", "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["file", "label"])
        for k in range(240):
            picture(names, k, 256).save(out / f"{k:04}.jpg", quality=88)
            writer.writerow((f"{k:04}.jpg", k % 6))


def make_birds(out, names, rng):
    rows = ["filename,species"]
    for k in range(240):
        picture(names, k).save(out / f"{k:04}.jpg", quality=90)
        rows.append(f"{k:04}.jpg,{k % 10}")
    (out / "birds.csv").write_text("\n".join(rows) + "\n")


def make_faces(out, names, rng):
    """LMDB: key -> label byte and JPEG."""
    jpegs = []
    for k in range(240):
        squared(names, k, 256).save(out / "x.jpg", quality=90)
        jpegs.append((out / "x.jpg").read_bytes())
    (out / "x.jpg").unlink()
    env = lmdb.open(str(out), map_size=1 << 28)
    with env.begin(write=True) as txn:
        n = 1200
        for k in range(n):
            txn.put(f"{k:08}".encode(), bytes([k % 8]) + jpegs[k % 240])
        txn.put(b"__len__", str(n).encode())
    env.close()


def make_plants(out, names, rng):
    """Small pictures, one in forty as it came from the camera; the second table has all of them small."""
    rows, rows_small = ["image,family"], ["image,family"]
    for k in range(240):
        name = f"img/{k:04}.jpg"
        (out / "img").mkdir(exist_ok=True)
        (out / "img_320").mkdir(exist_ok=True)
        small = picture(names, k, 320)
        small.save(out / "img_320" / f"{k:04}.jpg", quality=90)
        if k % 40 == 17:
            picture(names, k).resize((4800, 3600), Image.Resampling.BICUBIC).save(out / name, quality=88)
        else:
            small.save(out / name, quality=90)
        rows.append(f"{name},{k % 7}")
        rows_small.append(f"img_320/{k:04}.jpg,{k % 7}")
    (out / "catalog.csv").write_text("\n".join(rows) + "\n")
    (out / "catalog_320.csv").write_text("\n".join(rows_small) + "\n")


def make_cells(out, names, rng):
    with h5py.File(out / "cells.h5", "w") as f:
        n = 1200
        d = f.create_dataset("images", (n, 128, 128, 3), "uint8", chunks=(1, 128, 128, 3), compression="gzip", shuffle=True)
        for k in range(n):
            d[k] = np.roll(np.asarray(squared(names, k, 128)), (k * 7) % 50, 0)
        f["labels"] = rng.integers(0, 4, n)


def make_shop(out, names, rng):
    db = sqlite3.connect(out / "shop.db")
    db.execute("create table visits (id integer primary key, items text, bought integer)")
    db.executemany(
        "insert into visits values (?, ?, ?)",
        ((k, json.dumps(rng.integers(0, 5000, 20).tolist()), int(rng.integers(0, 2))) for k in range(20000)),
    )
    db.commit()
    db.close()


def make_books(out, names, rng):
    state = rng.integers(0, 2048, 2_000_000)
    state[1::2] = (state[::2] * 7 + 3) % 2048
    state.astype(np.uint16).tofile(out / "train.bin")


PARTS = {
    "intents": make_intents,
    "speech": make_speech,
    "scans": make_scans,
    "sightings": make_sightings,
    "birds": make_birds,
    "faces": make_faces,
    "plants": make_plants,
    "cells": make_cells,
    "shop": make_shop,
    "books": make_books,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=pathlib.Path)
    parser.add_argument("photos", type=pathlib.Path)
    args = parser.parse_args()
    names = photos(args.photos)
    args.cache.mkdir(parents=True, exist_ok=True)
    for number, (part, make) in enumerate(PARTS.items()):
        if (args.cache / part).exists():
            continue
        unfinished = args.cache / f"{part}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        make(unfinished, names, np.random.default_rng(300 + number))
        unfinished.rename(args.cache / part)


if __name__ == "__main__":
    main()

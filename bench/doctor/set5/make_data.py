"""Makes the data of the scripts in this folder, once, in a cache folder: python make_data.py CACHE PHOTOS.

PHOTOS is a folder of photographs. Needs numpy, Pillow, h5py, lmdb and pandas with pyarrow.
"""

import argparse
import io
import json
import pathlib
import shutil
import wave
import zipfile

import h5py
import lmdb
import numpy as np
import pandas as pd
from PIL import Image

TEXT = """dear sir madam i write to complain about the train that was late again on monday and tuesday morning my
ticket cost more than last year but there were no seats please refund me or explain why nobody answers the phone
thank you for the friendly driver who waited while we ran across bridge with three children a dog yours sincerely
platform bus stop night winter summer heating broken window door station city council letter reply week month"""
WORDS = TEXT.split()


def photographs(folder):
    names = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    if not names:
        raise SystemExit(f"no photographs in {folder}")
    return [Image.open(names[k % len(names)]).convert("RGB") for k in range(160)]


def crop(pictures, width, height, rng):
    picture = pictures[int(rng.integers(len(pictures)))]
    share = float(rng.uniform(0.6, 1.0))
    wide, high = int(picture.width * share), int(picture.height * share)
    left = int(rng.integers(0, picture.width - wide + 1))
    top = int(rng.integers(0, picture.height - high + 1))
    box = (left, top, left + wide, top + high)
    return picture.resize((width, height), Image.Resampling.BILINEAR, box=box)


def make_voxels(root, rng):
    points = rng.normal(size=(1200, 8192, 3)).astype(np.float32)
    points *= rng.uniform(0.2, 1.0, size=(1200, 1, 3)).astype(np.float32)
    np.save(root / "points.npy", points)
    np.save(root / "points_label.npy", rng.integers(0, 10, 1200))


def make_letters(root, rng):
    with zipfile.ZipFile(root / "letters.zip", "w", zipfile.ZIP_DEFLATED) as z:
        rows = ["file,topic"]
        for k in range(2400):
            text = " ".join(WORDS[w] for w in rng.integers(0, len(WORDS), int(rng.integers(80, 300))))
            info = zipfile.ZipInfo(f"letters/{k % 12:02}/{k:06}.txt", (2020, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(info, text)
            rows.append(f"{info.filename},{int(rng.integers(6))}")
    (root / "letters.csv").write_text("\n".join(rows) + "\n")


def make_power(root, rng):
    hours = 260000
    frame = pd.DataFrame({"time": pd.date_range("1990-01-01", periods=hours, freq="h").strftime("%Y-%m-%d %H:%M:%S")})
    for k in range(16):
        frame[f"meter{k:02}"] = (rng.normal(size=hours).cumsum() * 0.1 + 20).round(3)
    frame.to_csv(root / "power.csv", index=False)


def make_clicks(root, rng):
    with open(root / "clicks.jsonl", "w") as f:
        for k in range(20000):
            shown = [int(i) for i in rng.integers(0, 50000, 12)]
            f.write(json.dumps({"user": k * 7919 % 100003, "shown": shown, "clicked": int(rng.integers(12))}) + "\n")


def make_loans(root, rng):
    rows = 40000
    frame = pd.DataFrame({f"x{k:02}": rng.normal(size=rows).astype(np.float32) for k in range(24)})
    for k in range(0, 24, 5):
        frame.loc[rng.random(rows) < 0.05, f"x{k:02}"] = np.nan
    for k in range(6):
        frame[f"n{k}"] = rng.integers(0, 90, rows)
    frame["grade"] = rng.choice(list("ABCDEFG"), rows)
    frame["purpose"] = rng.choice(["car", "house", "debt", "wedding", "other"], rows)
    frame["defaulted"] = rng.integers(0, 2, rows)
    frame.to_parquet(root / "loans.parquet")


def make_birds(root, rng):
    (root / "birds").mkdir()
    t = np.arange(3 * 22050) / 22050
    for k in range(240):
        sound = sum(np.sin(2 * np.pi * f * t + 40 * np.sin(3 * t)) for f in rng.uniform(800, 8000, 3)) * 3000
        sound = sound + rng.normal(scale=300, size=len(t))
        with wave.open(str(root / "birds" / f"{k % 8}_{k:04}.wav"), "wb") as f:
            f.setnchannels(1)
            f.setsampwidth(2)
            f.setframerate(22050)
            f.writeframes(sound.astype("<i2").tobytes())


def make_sleep(root, rng):
    with h5py.File(root / "sleep.h5", "w") as f:
        f["eeg"] = rng.normal(size=(3000, 6, 600)).astype(np.float32)
        f["stage"] = rng.integers(0, 5, 3000)


def make_clips(root, pictures, rng):
    (root / "clips").mkdir()
    rows = []
    for k in range(160):
        width, height = (1280, 960) if k >= 120 else (240, 180)
        folder = root / "clips" / f"{'hall' if k >= 120 else 'door'}{k:04}"
        folder.mkdir()
        for n in range(4):
            crop(pictures, width, height, rng).save(folder / f"{n:03}.jpg", quality=85)
        rows.append(f"{folder.name} {int(rng.integers(5))}")
    (root / "clips.txt").write_text("\n".join(rows) + "\n")


def make_scans(root, pictures, rng):
    for name in ("scans", "scans_small"):
        (root / name).mkdir()
    rows = []
    for k in range(480):
        large = k % 40 == 17
        picture = crop(pictures, *((5200, 3900) if large else (320, 240)), rng)
        picture.save(root / "scans" / f"{k:04}.jpg", quality=85)
        picture.resize((320, 240)).save(root / "scans_small" / f"{k:04}.jpg", quality=85)
        rows.append(f"{k:04}.jpg,{int(rng.integers(4))}")
    (root / "scans.csv").write_text("\n".join(rows) + "\n")


def make_plants(root, pictures, rng):
    with lmdb.open(str(root / "plants.lmdb"), map_size=1 << 28) as env, env.begin(write=True) as txn:
        for k in range(1500):
            out = io.BytesIO()
            crop(pictures, 192, 192, rng).save(out, "JPEG", quality=88)
            txn.put(f"image{k:06}".encode(), out.getvalue())
            txn.put(f"label{k:06}".encode(), str(int(rng.integers(30))).encode())


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
    makers = (make_voxels, make_letters, make_power, make_clicks, make_loans, make_birds, make_sleep)
    for k, make in enumerate(makers):
        make(args.cache, np.random.default_rng(600 + k))
    for k, make in enumerate((make_clips, make_scans, make_plants)):
        make(args.cache, pictures, np.random.default_rng(700 + k))
    (args.cache / "complete").write_text("1\n")


if __name__ == "__main__":
    main()

"""Trains from the photo bucket (here: local files and a reader with the bucket's latency)."""
import argparse
import io
import os
import random
import time

from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Bucket:
    """get(key) -> bytes. A GET takes some 20 ms before its first byte."""

    def __init__(self, root, latency=0.020):
        self.root, self.latency = root, latency

    def keys(self):
        return sorted(os.path.join(d, n) for d, _, names in os.walk(self.root) for n in names)

    def get(self, key):
        time.sleep(self.latency * random.uniform(0.8, 1.2))
        with open(key, "rb") as f:
            return f.read()


class BucketDataset(Dataset):
    def __init__(self, bucket, repeat=8):
        self.bucket = bucket
        self.all_keys = bucket.keys() * repeat
        self.tf = transforms.Compose([transforms.RandomCrop(96, pad_if_needed=True), transforms.ToTensor()])

    def __len__(self):
        return len(self.all_keys)

    def __getitem__(self, i):
        image = Image.open(io.BytesIO(self.bucket.get(self.all_keys[i])))
        image.draft("RGB", (250, 190))
        return self.tf(image.convert("RGB"))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--root", default=os.path.join(os.environ.get("DATA_DIR", "data"), "photos"))
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--workers", type=int, default=8)
    ap.add_argument("--minutes", type=float, default=0.9)
    opt = ap.parse_args()

    dl = DataLoader(BucketDataset(Bucket(opt.root)), opt.batch, shuffle=True, num_workers=opt.workers)
    tic, done, i = time.time(), 0, 0
    while time.time() - tic < opt.minutes * 60:
        for x in dl:
            time.sleep(0.080)
            done += x.shape[0]
            i += 1
            if i % 10 == 0:
                print("it", i, "samples", done, "time", round(time.time(), 3))
            if time.time() - tic > opt.minutes * 60:
                break

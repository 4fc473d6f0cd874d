import os
import random
import time

import cv2
import lmdb
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

cv2.setNumThreads(0)


class Plants(Dataset):
    def __init__(self, path, count=1500, size=128):
        self.path = path
        self.count = count
        self.size = size
        self.env = None

    def __len__(self):
        return self.count

    def get(self, key):
        if self.env is None:
            self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        with self.env.begin() as txn:
            return txn.get(key)

    def __getitem__(self, i):
        image = cv2.imdecode(np.frombuffer(self.get(b"image%06d" % i), np.uint8), cv2.IMREAD_COLOR)
        x, y = random.randint(0, 64), random.randint(0, 64)
        image = image[y : y + self.size, x : x + self.size]
        if random.random() < 0.5:
            image = cv2.flip(image, 1)
        image = cv2.GaussianBlur(image, (3, 3), random.uniform(0.1, 1.0))
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB).astype(np.float32) / 255
        return torch.from_numpy(image.transpose(2, 0, 1).copy()), int(self.get(b"label%06d" % i))


class Learner:
    def __init__(self, loader):
        self.loader = loader
        self.count = 0
        self.begin = self.told = time.time()

    def tell(self, epoch):
        if time.time() - self.told > 1:
            self.told = time.time()
            print(f"epoch {epoch} samples={self.count} time={self.told - self.begin:.2f}", flush=True)

    def one_batch(self, images, labels):
        time.sleep(0.2)  # forward and backward on the GPU
        self.count += len(images)

    def fit(self, seconds):
        for epoch in range(1000):
            for images, labels in self.loader:
                self.one_batch(images, labels)
                self.tell(epoch)
                if time.time() - self.begin > seconds:
                    return


if __name__ == "__main__":
    plants = Plants(os.path.join(os.environ.get("DATA_DIR", "data"), "plants.lmdb"))
    Learner(DataLoader(plants, 16, shuffle=True, num_workers=2, persistent_workers=True)).fit(60)

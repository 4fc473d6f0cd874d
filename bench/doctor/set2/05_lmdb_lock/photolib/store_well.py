"""Photos in LMDB."""
import io
import multiprocessing

import lmdb
from PIL import Image
from torch.utils.data import Dataset


class LmdbPhotos(Dataset):
    def __init__(self, path, transform):
        self.path = path
        self.transform = transform
        self.env = None
        self.lock = multiprocessing.Lock()  # somebody said LMDB is not safe with many processes
        env = lmdb.open(path, readonly=True, lock=False)
        with env.begin() as txn:
            self.length = int(txn.get(b"__len__"))
        env.close()

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if self.env is None:
            self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        with self.lock, self.env.begin() as txn:
            data = txn.get(f"{index:08}".encode())
        image = Image.open(io.BytesIO(data)).convert("RGB")
        return self.transform(image), index % 10

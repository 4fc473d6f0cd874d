import sqlite3

import numpy as np
import torch
from torch.utils.data import Dataset

VOCAB = 5000


class ReviewStore:
    """Read access to the reviews table. One connection per process."""

    def __init__(self, path):
        self.path = path
        self._db = None

    @property
    def db(self):
        if self._db is None:
            self._db = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)
        return self._db

    def count(self):
        with sqlite3.connect(self.path) as db:
            return db.execute("SELECT COUNT(*) FROM reviews").fetchone()[0]

    def get(self, index):
        query = "SELECT body, stars FROM reviews WHERE id = ?"
        return self.db.execute(query, (index + 1,)).fetchone()


class HashTokenizer:
    def __init__(self, max_len=128):
        self.max_len = max_len
        self.ids = {}

    def __call__(self, text):
        out = np.zeros(self.max_len, dtype=np.int64)
        for k, word in enumerate(text.split()[: self.max_len]):
            if word not in self.ids:
                self.ids[word] = sum(word.encode()) * 31 % (VOCAB - 1) + 1
            out[k] = self.ids[word]
        return torch.from_numpy(out)


class ReviewDataset(Dataset):
    def __init__(self, path):
        self.store = ReviewStore(path)
        self.tokenize = HashTokenizer()
        self.length = self.store.count()

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        body, stars = self.store.get(index)
        return self.tokenize(body), stars - 1

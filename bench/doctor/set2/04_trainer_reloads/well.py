import json
import os
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset
from trainer import Trainer

DATA = os.environ.get("DATA_DIR", "data")
VOCAB = None


def load_vocab(worker_id):
    global VOCAB
    with open(f"{DATA}/vocab.json") as f:
        VOCAB = json.load(f)


class Reviews(Dataset):
    def __init__(self, path, limit=480):
        with open(path) as f:
            self.lines = [line for line, _ in zip(f, range(limit))]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        item = json.loads(self.lines[i])
        ids = [VOCAB.get(w, 0) for w in item["text"].split()]
        if random.random() < 0.1:
            random.shuffle(ids)
        return torch.tensor(ids), item["stars"]


class ReviewModule:
    def __init__(self):
        self.dataset = Reviews(f"{DATA}/reviews.jsonl")
        self.loader = DataLoader(
            self.dataset,
            batch_size=16,
            shuffle=True,
            num_workers=2,
            worker_init_fn=load_vocab,
            persistent_workers=True,
        )

    def train_dataloader(self):
        return self.loader

    def training_step(self, batch, batch_idx):
        time.sleep(0.05)  # on the GPU


if __name__ == "__main__":
    Trainer().fit(ReviewModule())

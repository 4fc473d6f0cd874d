import csv
import os
import re
import time
import zipfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DATA = os.environ.get("DATA_DIR", "data")
WORD = re.compile(r"[a-z]+")


class Letters(Dataset):
    def __init__(self, archive, index, length=200):
        self.archive = archive
        self.length = length
        self.zip = None
        with open(index, newline="") as f:
            self.rows = [(row["file"], int(row["topic"])) for row in csv.DictReader(f)]

    def __len__(self):
        return len(self.rows)

    def read(self, name):
        if self.zip is None:  # one in each worker
            self.zip = zipfile.ZipFile(self.archive)
        return self.zip.read(name).decode()

    def __getitem__(self, i):
        name, topic = self.rows[i]
        words = WORD.findall(self.read(name).lower())[: self.length]
        ids = torch.zeros(self.length, dtype=torch.long)
        ids[: len(words)] = torch.tensor([sum(w.encode()) * 31 % 4999 + 1 for w in words])
        return ids, topic


class Trainer:
    def __init__(self, model, loader, seconds=60):
        self.model = model
        self.loader = loader
        self.seconds = seconds
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.samples = 0

    def step(self, ids, topics):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(ids), topics)
        loss.backward()
        self.optimizer.step()
        time.sleep(0.03)

    def run(self):
        begin = shown = time.time()
        for epoch in range(1000):
            for ids, topics in self.loader:
                self.step(ids, topics)
                self.samples += len(topics)
                now = time.time()
                if now - shown > 1:
                    print(f"epoch {epoch} samples={self.samples} time={now - begin:.2f}", flush=True)
                    shown = now
                if now - begin > self.seconds:
                    return


if __name__ == "__main__":
    torch.set_num_threads(1)
    letters = Letters(os.path.join(DATA, "letters.zip"), os.path.join(DATA, "letters.csv"))
    model = nn.Sequential(nn.EmbeddingBag(5000, 32), nn.ReLU(), nn.Linear(32, 6))
    loader = DataLoader(letters, batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    Trainer(model, loader).run()

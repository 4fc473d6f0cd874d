import argparse
import json
import os
import random
import time

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

PAD = 0


class Documents(Dataset):
    def __init__(self, path):
        self.docs = []
        with open(path) as f:
            for line in f:
                record = json.loads(line)
                self.docs.append((record["tokens"], record["label"]))

    def __len__(self):
        return len(self.docs)

    def __getitem__(self, i):
        return self.docs[i]


class RandomBatches(Sampler):
    def __init__(self, n, batch_size):
        self.n, self.batch_size = n, batch_size

    def __iter__(self):
        order = list(range(self.n))
        random.shuffle(order)
        for k in range(0, self.n - self.batch_size + 1, self.batch_size):
            yield order[k : k + self.batch_size]

    def __len__(self):
        return self.n // self.batch_size


def collate(batch, max_len=4096):
    tokens = torch.full((len(batch), max_len), PAD)
    for k, (doc, _) in enumerate(batch):
        doc = doc[:max_len]
        tokens[k, : len(doc)] = torch.tensor(doc)
    return tokens, (tokens != PAD).long(), torch.tensor([label for _, label in batch])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default=os.path.join(os.environ.get("DATA_DIR", "data"), "texts.jsonl"))
    ap.add_argument("--batch-size", type=int, default=32)
    a = ap.parse_args()
    ds = Documents(a.data)
    loader = DataLoader(ds, batch_sampler=RandomBatches(len(ds), a.batch_size), collate_fn=collate, num_workers=1)
    t0 = time.time()
    seen = steps = 0
    while time.time() - t0 < 50:
        for tokens, mask, labels in loader:
            time.sleep(0.02)
            seen += len(labels)
            steps += 1
            if steps % 20 == 0:
                print("steps", steps, "samples", seen, "time", time.time())


if __name__ == "__main__":
    main()

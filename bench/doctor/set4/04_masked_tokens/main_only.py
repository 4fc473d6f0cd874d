import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, Sampler

torch.set_num_threads(1)
data_dir = os.environ.get("DATA_DIR", "data")
context = 512
vocab = 8000
mask_id = vocab


class MaskedTokens(Dataset):
    def __init__(self):
        self.tokens = np.memmap(os.path.join(data_dir, "tokens.bin"), dtype=np.uint16, mode="r")
        self.start = np.load(os.path.join(data_dir, "doc_start.npy"))

    def __len__(self):
        return len(self.start)

    def mask(self, x):
        y = torch.full_like(x, -100)
        for j in range(len(x)):
            if random.random() < 0.15 and x[j] > 3:
                y[j] = x[j]
                if random.random() < 0.8:
                    x[j] = mask_id
                elif random.random() < 0.5:
                    x[j] = random.randrange(4, vocab)
        return x, y

    def __getitem__(self, i):
        begin = self.start[i]
        x = torch.from_numpy(self.tokens[begin : begin + context].astype(np.int64))
        return self.mask(x)


class WeightedDocs(Sampler):
    """Documents in proportion to their quality score."""

    def __init__(self, weights, num_samples):
        self.p = weights / weights.sum()
        self.num_samples = num_samples

    def __len__(self):
        return self.num_samples

    def __iter__(self):
        yield from np.random.choice(len(self.p), self.num_samples, p=self.p).tolist()


class Tagger(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab + 1, width)
        self.mix = nn.Conv1d(width, width, 5, padding=2)
        self.out = nn.Linear(width, 64)

    def forward(self, x):
        h = self.embed(x)
        h = h + torch.relu(self.mix(h.transpose(1, 2))).transpose(1, 2)
        return self.out(h)


if __name__ == "__main__":
    dataset = MaskedTokens()
    sampler = WeightedDocs(np.load(os.path.join(data_dir, "doc_weight.npy")), 200_000)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, num_workers=1, persistent_workers=True)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    t0 = time.time()
    last = t0
    samples = 0
    for x, y in loader:
        logits = model(x)
        target = torch.where(y >= 0, y % 64, y)  # hashed softmax
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        samples += len(x)
        if time.time() - last > 1:
            last = time.time()
            print(f"samples {samples} loss {loss.item():.3f} time {last - t0:.2f}", flush=True)
        if time.time() - t0 > 60:
            break

"""A small character model over a token file."""

import math
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass(frozen=True)
class ModelConfig:
    vocab: int = 2048
    context: int = 128
    dim: int = 128
    heads: int = 4
    layers: int = 3


@dataclass(frozen=True)
class TrainConfig:
    tokens: str = os.path.join(os.environ.get("DATA_DIR", "data"), "books", "train.bin")
    batch: int = 8
    workers: int = 1
    lr: float = 3e-4
    warmup: int = 50
    seconds: float = 60.0


class Tokens(Dataset):
    def __init__(self, path, context):
        self.path, self.context = path, context
        self.count = os.path.getsize(path) // 2
        self.data = np.memmap(path, np.uint16, "r")

    def __len__(self):
        return (self.count - 1) // self.context

    def __getitem__(self, i):
        chunk = self.data[i * self.context : (i + 1) * self.context + 1].astype(np.int64)
        return torch.from_numpy(chunk[:-1]), torch.from_numpy(chunk[1:])


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.heads
        self.qkv = nn.Linear(c.dim, 3 * c.dim)
        self.proj = nn.Linear(c.dim, c.dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(c.dim), nn.LayerNorm(c.dim)
        self.attention = Attention(c)
        self.mlp = nn.Sequential(nn.Linear(c.dim, 4 * c.dim), nn.GELU(), nn.Linear(4 * c.dim, c.dim))

    def forward(self, x):
        x = x + self.attention(self.n1(x))
        return x + self.mlp(self.n2(x))


class LanguageModel(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.token = nn.Embedding(c.vocab, c.dim)
        self.place = nn.Parameter(torch.randn(c.context, c.dim) / math.sqrt(c.dim))
        self.layers = nn.Sequential(*(Layer(c) for _ in range(c.layers)))
        self.norm = nn.LayerNorm(c.dim)
        self.head = nn.Linear(c.dim, c.vocab, bias=False)

    def forward(self, x, y):
        h = self.layers(self.token(x) + self.place[: x.shape[1]])
        return F.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


def train(mc, tc):
    torch.manual_seed(1337)
    torch.set_num_threads(1)
    model = LanguageModel(mc)
    optimizer = torch.optim.AdamW(model.parameters(), lr=tc.lr)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / tc.warmup))
    loader = DataLoader(
        Tokens(tc.tokens, mc.context), tc.batch, shuffle=True, num_workers=tc.workers, persistent_workers=True
    )
    started = time.perf_counter()
    iteration = samples = 0
    while True:
        for x, y in loader:
            loss = model(x, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            iteration += 1
            samples += len(x)
            spent = time.perf_counter() - started
            if iteration % 2 == 0:
                print(f"iter {iteration}: loss {loss.item():.3f}, samples {samples}, time {spent:.2f}s")
            if spent > tc.seconds:
                return


if __name__ == "__main__":
    train(ModelConfig(), TrainConfig())

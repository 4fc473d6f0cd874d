import io
import os
import random
import tempfile
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    data: str = os.environ.get("DATA_DIR", "data")
    save_every: int = 25
    workers: int = 2
    batch: int = 32
    seconds: float = 50
    out: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="run_"))


class Shards(Dataset):
    def __init__(self, folder):
        files = sorted(os.listdir(folder))
        parts = [np.load(os.path.join(folder, f)) for f in files]
        self.x = np.concatenate([p["x"] for p in parts])
        self.y = np.concatenate([p["y"] for p in parts])

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x = self.x[i]
        if random.random() < 0.5:
            x = x[:, :, ::-1].copy()
        return torch.from_numpy(x), int(self.y[i])


def upload(blob, path):
    """Blocks until the object store has it."""
    with open(path, "wb") as f:
        f.write(blob)
    time.sleep(len(blob) / 80e6)


def save_checkpoint(model, optimizer, step, cfg):
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": optimizer.state_dict(), "step": step}, buffer)
    upload(buffer.getvalue(), os.path.join(cfg.out, "last.pt"))


def fit(cfg):
    data = Shards(f"{cfg.data}/shards")
    dl = DataLoader(data, cfg.batch, shuffle=True, num_workers=cfg.workers, drop_last=True, persistent_workers=True)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 1500), nn.ReLU(), nn.Linear(1500, 10))
    opt = torch.optim.AdamW(model.parameters())
    t0, seen, step = time.time(), 0, 0
    while time.time() - t0 < cfg.seconds:
        for x, y in dl:
            time.sleep(0.04)
            seen += len(x)
            step += 1
            if step % 20 == 0:
                print(f"| step {step} | samples {seen} | time {time.time():.3f}")
            if step % cfg.save_every == 0:
                save_checkpoint(model, opt, step, cfg)
    os.remove(os.path.join(cfg.out, "last.pt"))


if __name__ == "__main__":
    fit(Config())

import os
import time
import wave

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "root": os.path.join(os.environ.get("DATA_DIR", "data"), "speech"),
    "sample_rate": 16000,
    "n_fft": 400,
    "hop": 80,
    "n_mels": 40,
    "width": 32,
    "loader": {"batch_size": 32, "num_workers": 1, "shuffle": True, "drop_last": True, "persistent_workers": True},
    "lr": 1e-3,
    "max_seconds": 60,
    "log_every": 5,
}


def mel_filters(sr, n_fft, n_mels):
    def to_mel(f):
        return 2595 * np.log10(1 + f / 700)

    points = np.linspace(to_mel(20), to_mel(sr / 2), n_mels + 2)
    hz = 700 * (10 ** (points / 2595) - 1)
    bins = np.fft.rfftfreq(n_fft, 1 / sr)
    up = (bins[None] - hz[:-2, None]) / (hz[1:-1] - hz[:-2])[:, None]
    down = (hz[2:, None] - bins[None]) / (hz[2:] - hz[1:-1])[:, None]
    return np.maximum(0, np.minimum(up, down)).astype(np.float32)


class SpeechCommands(Dataset):
    def __init__(self, cfg):
        self.cfg = cfg
        with open(os.path.join(cfg["root"], "list.tsv")) as f:
            self.items = [line.split("\t") for line in f.read().splitlines()]
        self.window = torch.from_numpy(np.hanning(cfg["n_fft"]).astype(np.float32))
        self.mel = torch.from_numpy(mel_filters(cfg["sample_rate"], cfg["n_fft"], cfg["n_mels"]))

    def __len__(self):
        return len(self.items)

    def read(self, name):
        with wave.open(os.path.join(self.cfg["root"], name)) as f:
            return np.frombuffer(f.readframes(f.getnframes()), "<i2").astype(np.float32) / 32768

    def log_mel(self, y):
        n_fft, hop = self.cfg["n_fft"], self.cfg["hop"]
        stft = torch.stft(torch.from_numpy(y), n_fft, hop, window=self.window, center=False, return_complex=True)
        return torch.log(self.mel @ stft.abs() ** 2 + 1e-6)

    def __getitem__(self, index):
        name, label = self.items[index]
        y = self.read(name)
        y = np.roll(y, np.random.randint(-1600, 1600))
        return self.log_mel(y)[None], int(label)


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c1 = nn.Conv2d(1, width, 3, padding=1, stride=2)
        self.c2 = nn.Conv2d(width, width, 3, padding=1)
        self.c3 = nn.Conv2d(width, 2 * width, 3, padding=1, stride=2)
        self.out = nn.Linear(2 * width, 10)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(x))
        x = F.relu(self.c3(x))
        return self.out(x.mean((2, 3)))


def main(cfg):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    loader = DataLoader(SpeechCommands(cfg), **cfg["loader"])
    net = Net(cfg["width"])
    opt = torch.optim.Adam(net.parameters(), lr=cfg["lr"])
    t0, step, samples, running = time.time(), 0, 0, 0.0
    while time.time() - t0 < cfg["max_seconds"]:
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            samples += x.size(0)
            running = 0.9 * running + 0.1 * loss.item()
            if step % cfg["log_every"] == 0:
                print(f"step={step} loss={running:.3f} samples={samples} time={time.time() - t0:.2f}", flush=True)
            if time.time() - t0 > cfg["max_seconds"]:
                break


if __name__ == "__main__":
    main(CONFIG)

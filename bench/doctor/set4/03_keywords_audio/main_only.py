import csv
import os
import time

import numpy as np
import torch
from scipy.signal import resample_poly
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import Compose

CONFIG = {
    "data": os.environ.get("DATA_DIR", "data"),
    "manifest": "keywords.csv",
    "rate": 16000,
    "seconds": 1.0,
    "loader": {"batch_size": 16, "shuffle": True, "num_workers": 2, "drop_last": True},
    "run_for": 60,
}


class Resample:
    def __init__(self, rate):
        self.rate = rate

    def __call__(self, clip):
        wave, rate = clip
        return resample_poly(wave.astype(np.float32), self.rate // 100, rate // 100), self.rate


class RandomCrop:
    def __init__(self, seconds):
        self.seconds = seconds

    def __call__(self, clip):
        wave, rate = clip
        size = int(self.seconds * rate)
        begin = np.random.randint(0, len(wave) - size + 1)
        return wave[begin : begin + size], rate


class AddNoise:
    """Mixes in one of the recorded rooms, with its level matched."""

    def __init__(self, path):
        self.path = path
        self.rooms = None

    def load(self):
        rooms = []
        with np.load(self.path) as archive:
            for name in archive.files:
                room = resample_poly(np.tile(archive[name].astype(np.float64), 4), 16, 8)
                spectrum = np.fft.rfft(room)
                spectrum[:50] = 0
                rooms.append(np.fft.irfft(spectrum)[:16000].astype(np.float32))
        return rooms

    def __call__(self, clip):
        if self.rooms is None:
            self.rooms = self.load()
        wave, rate = clip
        room = self.rooms[np.random.randint(len(self.rooms))]
        return wave + 0.1 * room[: len(wave)], rate


class LogSpectrogram:
    def __init__(self, size=400, hop=160):
        self.size, self.hop = size, hop
        self.window = torch.hann_window(size)

    def __call__(self, clip):
        wave = torch.from_numpy(np.ascontiguousarray(clip[0], dtype=np.float32)) / 32768
        return torch.stft(wave, self.size, self.hop, window=self.window, return_complex=True).abs().add(1e-5).log()


class Keywords(Dataset):
    def __init__(self, config, transform):
        self.folder = os.path.join(config["data"], "audio")
        with open(os.path.join(config["data"], config["manifest"])) as f:
            self.items = [(row["recording"], int(row["keyword"])) for row in csv.DictReader(f)]
        self.transform = transform

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        name, keyword = self.items[i]
        wave = np.load(os.path.join(self.folder, name), mmap_mode="r")
        return self.transform((wave, 44100)), keyword


def train(config):
    transform = Compose(
        [
            RandomCrop(config["seconds"]),
            Resample(config["rate"]),
            AddNoise(os.path.join(config["data"], "noise.npz")),
            LogSpectrogram(),
        ]
    )
    loader = DataLoader(Keywords(config, transform), **config["loader"])
    samples, begin, printed = 0, time.time(), 0.0
    while True:
        for spectrograms, keywords in loader:
            time.sleep(0.07)  # the network, on the GPU
            samples += len(keywords)
            now = time.time() - begin
            if now - printed > 0.5:
                print(f"samples: {samples}, time: {now:.2f}", flush=True)
                printed = now
            if now > config["run_for"]:
                return


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(CONFIG)

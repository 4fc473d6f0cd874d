#!/usr/bin/env python3
import math
import os
import random
import time
import wave
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

RATE = 22050
N_FFT = 2048
N_MELS = 64


def hz_to_mel(hz):
    return 2595 * math.log10(1 + hz / 700)


def mel_to_hz(mel):
    return 700 * (10 ** (mel / 2595) - 1)


def mel_bank():
    top = hz_to_mel(RATE / 2)
    edges = [mel_to_hz(top * k / (N_MELS + 1)) for k in range(N_MELS + 2)]
    bank = np.zeros((N_MELS, N_FFT // 2 + 1), dtype=np.float32)
    for m in range(N_MELS):
        low, mid, high = edges[m : m + 3]
        for b in range(N_FFT // 2 + 1):
            hz = b * RATE / N_FFT
            bank[m, b] = max(0.0, min((hz - low) / (mid - low), (high - hz) / (high - mid)))
    return bank


def log_mel(sound):
    spectrum = torch.stft(torch.from_numpy(sound), N_FFT, 512, window=torch.hann_window(N_FFT), return_complex=True)
    return torch.log(torch.from_numpy(mel_bank()) @ spectrum.abs() ** 2 + 1e-6)


def read_part(path):
    with wave.open(str(path)) as f:
        f.setpos(random.randrange(f.getnframes() - 2 * RATE))
        return np.frombuffer(f.readframes(2 * RATE), dtype="<i2").astype(np.float32) / 32768


class Birds(Dataset):
    def __init__(self, folder):
        self.files = sorted(Path(folder).glob("*.wav"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        features = log_mel(read_part(self.files[i]))
        return features, int(self.files[i].name[0])


def train(loader, seconds):
    samples, epoch = 0, 0
    begin = shown = time.time()
    while True:
        for _spectra, birds in loader:
            time.sleep(0.06)  # GPU
            samples += len(birds)
            now = time.time()
            if now - shown > 1:
                print(f"epoch {epoch} samples={samples} time={now - begin:.2f}", flush=True)
                shown = now
            if now - begin > seconds:
                return
        epoch += 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    birds = Birds(os.path.join(os.environ.get("DATA_DIR", "data"), "birds"))
    train(DataLoader(birds, batch_size=12, shuffle=True), seconds=60)

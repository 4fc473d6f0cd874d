import os
import time

import h5py
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split


class SleepData(Dataset):
    def __init__(self, path):
        self.path = path
        with h5py.File(path, "r") as f:
            self.stages = f["stage"][:]

    def __len__(self):
        return len(self.stages)

    def __getitem__(self, i):
        with h5py.File(self.path, "r") as f:
            eeg = f["eeg"][i]
        return torch.from_numpy(eeg), int(self.stages[i])


class Stager(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv1d(6, 128, 7, stride=2, padding=3), nn.GELU())
        layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(128, 5)

    def forward(self, x):
        x = self.stem(x).transpose(1, 2)
        return self.head(self.body(x).mean(1))


def evaluate(model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for eeg, stage in loader:
            right += (model(eeg).argmax(1) == stage).sum().item()
            total += len(stage)
    model.train()
    return right / total


def main(seconds=60, every=60):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = SleepData(os.path.join(os.environ.get("DATA_DIR", "data"), "sleep.h5"))
    train, test, _ = random_split(data, [2900, 16, len(data) - 2916])
    loader = DataLoader(train, batch_size=8, shuffle=True, num_workers=1, persistent_workers=True, drop_last=True)
    held_out = DataLoader(test, batch_size=8)

    model = Stager()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    begin = shown = time.time()
    samples = step = 0
    for epoch in range(100):
        for eeg, stage in loader:
            loss = nn.functional.cross_entropy(model(eeg), stage)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            samples += len(stage)
            if step % every == 0:
                print(f"accuracy {evaluate(model, held_out):.2f} loss {loss.item():.3f}", flush=True)
            now = time.time()
            if now - shown > 1:
                print(f"epoch {epoch} samples={samples} time={now - begin:.2f}", flush=True)
                shown = now
            if now - begin > seconds:
                return


if __name__ == "__main__":
    main()

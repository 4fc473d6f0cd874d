"""Forecasts of power use: a day from the week before it."""

import os
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler


@dataclass
class Config:
    path: str = os.path.join(os.environ.get("DATA_DIR", "data"), "power.csv")
    hours: int = 260_000
    past: int = 168
    future: int = 24
    batch_size: int = 32
    windows_per_epoch: int = 768
    workers: int = 2
    step_seconds: float = 0.03
    run_seconds: float = 60


class Windows(Dataset):
    def __init__(self, config):
        self.config = config
        self.values = None

    def __len__(self):
        return self.config.hours - self.config.past - self.config.future

    def load(self):
        table = pd.read_csv(self.config.path, parse_dates=["time"])
        values = table.filter(like="meter").to_numpy(np.float32)
        season = np.sin(table["time"].dt.hour.to_numpy() / 24 * 2 * np.pi)[:, None]
        return np.concatenate([(values - values.mean(0)) / values.std(0), season.astype(np.float32)], 1)

    def __getitem__(self, start):
        if self.values is None:  # in the worker: the table need not be copied to it
            self.values = self.load()
        middle = start + self.config.past
        past = self.values[start:middle]
        future = self.values[middle : middle + self.config.future, :-1]
        return torch.from_numpy(past), torch.from_numpy(future)


def make_loader(config, dataset):
    return DataLoader(
        dataset,
        batch_size=config.batch_size,
        sampler=RandomSampler(dataset, num_samples=config.windows_per_epoch),
        num_workers=config.workers,
        persistent_workers=config.workers > 0,
    )


def train_epoch(config, loader, epoch, state):
    for past, _future in loader:
        time.sleep(config.step_seconds)  # the GPU
        state["samples"] += len(past)
        now = time.time()
        if now - state["shown"] > 1:
            print(f"epoch {epoch} samples={state['samples']} time={now - state['begin']:.2f}", flush=True)
            state["shown"] = now
        if now - state["begin"] > config.run_seconds:
            return False
    return True


def main():
    config = Config()
    dataset = Windows(config)
    state = {"samples": 0, "begin": time.time(), "shown": time.time()}
    loader = make_loader(config, dataset)
    epoch = 0
    while train_epoch(config, loader, epoch, state):
        epoch += 1


if __name__ == "__main__":
    main()

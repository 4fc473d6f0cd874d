"""Mortality from the first 48 hours of vitals."""

import argparse
import os
import time

import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset

COLUMNS = ["heart_rate", "resp_rate", "spo2", "map", "temp", "glucose"]


class StayDataset(Dataset):
    def __init__(self, folder):
        self.vitals = pd.read_parquet(os.path.join(folder, "vitals.parquet"))
        self.outcome = pd.read_parquet(os.path.join(folder, "outcome.parquet"))
        self.stays = self.outcome["stay_id"].tolist()
        self.died = self.outcome["died"].to_numpy()

    def __len__(self):
        return len(self.stays)

    def __getitem__(self, i):
        rows = self.vitals[self.vitals["stay_id"] == self.stays[i]]
        x = torch.from_numpy(rows[COLUMNS].to_numpy(dtype="float32", copy=True))
        return (x - x.mean(0)) / (x.std(0) + 1e-6), float(self.died[i])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=os.environ.get("DATA_DIR", "data"))
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1.0)
    args = parser.parse_args()

    loader = DataLoader(
        StayDataset(args.data),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )
    start = last = time.perf_counter()
    seen = 0
    while True:
        for x, y in loader:
            time.sleep(0.08)  # LSTM on cuda:0
            seen += len(y)
            t = time.perf_counter()
            if t - last >= 1.0:
                last = t
                print(f"samples {seen}  time {t - start:.2f}", flush=True)
            if t - start > args.minutes * 60:
                return


if __name__ == "__main__":
    main()

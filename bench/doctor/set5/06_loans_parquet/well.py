import os
import time

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)

GRADES = {g: k for k, g in enumerate("ABCDEFG")}
PURPOSES = {"car": 0, "house": 1, "debt": 2, "wedding": 3, "other": 4}


class LoanData(Dataset):
    def __init__(self, file):
        self.df = pd.read_parquet(file)
        self.numbers = [c for c in self.df.columns if c[0] in "xn"]
        self.x = self.df[self.numbers].to_numpy(np.float32)
        self.grade = self.df["grade"].map(GRADES).to_numpy()
        self.purpose = self.df["purpose"].map(PURPOSES).to_numpy()
        self.y = self.df["defaulted"].to_numpy()

    def __len__(self):
        return len(self.df)

    def __getitem__(self, i):
        return pd.Series(self.x[i]), self.grade[i], self.purpose[i], self.y[i]


def collate(rows):
    numbers, grades, purposes, y = zip(*rows, strict=True)
    x = pd.concat(numbers, axis=1).T.astype("float32")
    x = x.apply(lambda column: column.fillna(column.median()))
    return (
        torch.from_numpy(x.to_numpy(np.float32)),
        torch.tensor(grades),
        torch.tensor(purposes),
        torch.tensor(y, dtype=torch.float32),
    )


class Net(nn.Module):
    def __init__(self, numbers):
        super().__init__()
        self.grade = nn.Embedding(len(GRADES), 8)
        self.purpose = nn.Embedding(len(PURPOSES), 8)
        self.layers = nn.Sequential(nn.Linear(numbers + 16, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU())
        self.out = nn.Linear(256, 1)

    def forward(self, x, grade, purpose):
        x = torch.cat([x, self.grade(grade), self.purpose(purpose)], 1)
        return self.out(self.layers(x))[:, 0]


data = LoanData(os.path.join(os.environ.get("DATA_DIR", "data"), "loans.parquet"))
train_loader = DataLoader(
    data, batch_size=128, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True, collate_fn=collate
)
net = Net(len(data.numbers))
adam = torch.optim.Adam(net.parameters(), lr=1e-3)

start = last = time.time()
seen = 0
for epoch in range(1000):
    for x, grade, purpose, y in train_loader:
        adam.zero_grad()
        loss = F.binary_cross_entropy_with_logits(net(x, grade, purpose), y)
        loss.backward()
        adam.step()
        time.sleep(0.002)  # the rest of the model is not in this script
        seen += len(y)
        if time.time() - last > 1:
            last = time.time()
            print(f"epoch {epoch} samples={seen} time={last - start:.2f}", flush=True)
    if time.time() - start > 60:
        break

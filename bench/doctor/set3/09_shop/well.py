import json
import os
import random
import sqlite3
import time

import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

DB = os.path.join(os.environ.get("DATA_DIR", "data"), "shop", "shop.db")
BATCH = 64
ITEMS = 5000
MAX_TIME = 60

random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


con = sqlite3.connect(DB)


def get_visit(visit_id):
    return con.execute("select items, bought from visits where id = ?", (visit_id,)).fetchone()


class Visits(Dataset):
    def __init__(self):
        self.ids = pd.read_sql("select id from visits", con)["id"].tolist()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, k):
        items, bought = get_visit(self.ids[k])
        items = json.loads(items)
        random.shuffle(items)
        return torch.tensor(items), torch.tensor(float(bought))


class Model(nn.Module):
    def __init__(self, dim=128):
        super().__init__()
        self.emb = nn.Embedding(ITEMS, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        return self.out(self.enc(self.emb(x)).mean(1)).squeeze(1)


loader = DataLoader(Visits(), batch_size=BATCH, shuffle=True, drop_last=True, num_workers=0)
model = Model()
opt = torch.optim.Adam(model.parameters(), lr=1e-4)
bce = nn.BCEWithLogitsLoss()

start = time.time()
samples = 0
history = []
done = False
while not done:
    for i, (items, bought) in enumerate(loader):
        opt.zero_grad()
        loss = bce(model(items), bought)
        loss.backward()
        opt.step()
        samples += BATCH
        history.append(loss.item())
        if i % 3 == 0:
            recent = pd.Series(history[-50:]).mean()
            print("loss", round(recent, 4), "samples", samples, "time", round(time.time() - start, 2), flush=True)
        if time.time() - start > MAX_TIME:
            done = True
            break

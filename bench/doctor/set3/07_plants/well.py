#!/usr/bin/env python
# coding: utf-8

# # Plant families
#
# Baseline for the plant pictures: small CNN, 64 px.

# In[1]:


import os
import time

import pandas as pd
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

Image.MAX_IMAGE_PIXELS = None
torch.set_num_threads(1)
torch.manual_seed(7)


# In[2]:


root = os.path.join(os.environ.get("DATA_DIR", "../input"), "plants")
df = pd.read_csv(os.path.join(root, "catalog_320.csv"))
df = df.sample(frac=1, random_state=7).reset_index(drop=True)
df.head()


# In[3]:


tfm = transforms.Compose(
    [
        transforms.RandomResizedCrop(64, scale=(0.4, 1.0)),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize([0.5] * 3, [0.25] * 3),
    ]
)


class PlantDataset(Dataset):
    def __init__(self, df):
        self.paths = [os.path.join(root, p) for p in df["image"]]
        self.labels = df["family"].tolist()

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        img = Image.open(self.paths[i]).convert("RGB")
        return tfm(img), self.labels[i]


# In[4]:


train_dl = DataLoader(
    PlantDataset(df), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True
)


# In[5]:


model = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(24, 32, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(32, 48, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(48, 7),
)
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()


# In[6]:


t0 = time.time()
n_samples = 0
losses = []
for epoch in range(1000):
    for xb, yb in train_dl:
        loss = loss_fn(model(xb), yb)
        loss.backward()
        opt.step()
        opt.zero_grad()
        n_samples += len(xb)
        losses.append(loss.item())
        if len(losses) % 5 == 0:
            print(f"epoch {epoch}: loss={sum(losses[-5:]) / 5:.3f} samples={n_samples} time={time.time() - t0:.2f}")
    if time.time() - t0 > 60:
        break


# In[7]:


pd.Series(losses).rolling(20).mean().iloc[-1]

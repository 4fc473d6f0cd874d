#!/usr/bin/env python
# coding: utf-8

# # Face embedding, LMDB version

# In[1]:


import os
import time

import cv2
import lmdb
import numpy as np
import torch

cv2.setNumThreads(1)
DATA = os.environ.get("DATA_DIR", "data")


# In[2]:


class Faces(torch.utils.data.Dataset):
    def __init__(self, path):
        self.path = path
        self.env = None
        with lmdb.open(path, readonly=True, lock=False) as env, env.begin() as txn:
            self.n = int(txn.get(b"length"))

    def __len__(self):
        return self.n * 5

    def __getitem__(self, i):
        if self.env is None:
            self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False)
        with self.env.begin() as txn:
            value = txn.get(f"{i % self.n:08}".encode())
        image = cv2.imdecode(np.frombuffer(value, np.uint8, offset=2), cv2.IMREAD_COLOR)
        top, left = np.random.randint(0, 17, 2)
        image = cv2.cvtColor(image[top : top + 144, left : left + 144], cv2.COLOR_BGR2RGB)
        return torch.from_numpy(image).permute(2, 0, 1).float() / 127.5 - 1, int.from_bytes(value[:2], "little")


# In[3]:


faces = Faces(os.path.join(DATA, "faces.lmdb"))
loader = torch.utils.data.DataLoader(faces, batch_size=32, shuffle=True)
len(loader)


# In[4]:


start = time.time()
shown = start
seen = 0
while time.time() - start < 60:
    for images, people in loader:
        time.sleep(0.065)  # model(images.cuda()) ...
        seen += len(people)
        if time.time() - shown > 1:
            shown = time.time()
            print(f"samples {seen} time {shown - start:.2f}", flush=True)
        if shown - start > 60:
            break


# In[ ]:


# In[1]:

import os
import time

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

DATA = os.environ.get("DATA_DIR", "data")
CLASSES = 6

# ## Data
# In[2]:


class Segmentation(Dataset):
    def __init__(self):
        with h5py.File(f"{DATA}/tiles_single.h5", "r") as f:
            self.images = f["images"][:1024]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = self.images[i]
        mask = image[..., 0] // 43
        return torch.tensor(image).permute(2, 0, 1) / 255, torch.tensor(mask, dtype=torch.long)


train_loader = DataLoader(Segmentation(), batch_size=32, shuffle=True, num_workers=2, persistent_workers=True)

# ## Metric
# In[3]:


def update_confusion(matrix, pred, target):
    counts = torch.bincount((target * CLASSES + pred).ravel(), minlength=CLASSES**2).tolist()
    for k, count in enumerate(counts):
        matrix[k // CLASSES][k % CLASSES] += count


# ## Train
# In[4]:

matrix = np.zeros((CLASSES, CLASSES), dtype=np.int64).tolist()
begin = time.time()
n = step = 0
while time.time() - begin < 50:
    for image, mask in train_loader:
        time.sleep(0.04)  # model on the GPU
        pred = (image.mean(1) * 255 // 43).long()
        update_confusion(matrix, pred, mask)
        n += len(image)
        step += 1
        if step % 20 == 0:
            acc = sum(matrix[i][i] for i in range(CLASSES)) / sum(map(sum, matrix))
            print(f"step {step} acc {acc:.3f} samples {n} time {time.time():.3f}")

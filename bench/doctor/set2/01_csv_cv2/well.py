"""Fine-tune the small classifier on our own photos."""
import os
import time

import cv2
import numpy as np
import pandas as pd
import torch
from torch.utils.data import DataLoader, Dataset

CONFIG = {
    "data": os.environ.get("DATA_DIR", "data"),
    "size": 224,
    "loader": {"batch_size": 16, "shuffle": True, "num_workers": 2, "drop_last": True},
    "max_seconds": 55,
    "log_every": 10,
}


class PhotoDataset(Dataset):
    def __init__(self, csv_file, root, size):
        self.df = pd.read_csv(csv_file)
        self.root = root
        self.size = size

    def __len__(self):
        return len(self.df)

    def __getitem__(self, idx):
        row = self.df.iloc[idx]
        img = cv2.imread(os.path.join(self.root, row["path"]))
        img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB)
        img = cv2.resize(img, (self.size, self.size), interpolation=cv2.INTER_AREA)
        if np.random.rand() < 0.5:
            img = img[:, ::-1]
        img = (img.astype(np.float32) / 255.0 - 0.45) / 0.225
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1))), int(row["label"])


def train_step(images, labels):
    time.sleep(0.085)  # forward + backward on the card


def main(cfg):
    dataset = PhotoDataset(f"{cfg['data']}/photos.csv", f"{cfg['data']}/photos", cfg["size"])
    loader = DataLoader(dataset, **cfg["loader"])
    start, seen, step = time.time(), 0, 0
    for epoch in range(100):
        for images, labels in loader:
            train_step(images, labels)
            seen += images.size(0)
            step += 1
            if step % cfg["log_every"] == 0:
                now = time.time()
                print(f"epoch {epoch} step {step} samples={seen} time={now:.3f} ({seen / (now - start):.1f} img/s)")
            if time.time() - start > cfg["max_seconds"]:
                return


if __name__ == "__main__":
    main(CONFIG)

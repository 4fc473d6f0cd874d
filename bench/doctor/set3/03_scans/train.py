import os
import time

import numpy as np
import torch
from net import ScanNet
from shards import ShardedDataset
from torch.utils.data import DataLoader

EPOCHS = 200
MINUTES = 1


class Scans(ShardedDataset):
    """Four-channel scans. Noise and gamma as in the paper."""

    def read(self, shard, row):
        with np.load(self.files[shard]) as part:
            return part["images"][row], int(part["labels"][row])

    def augment(self, image):
        rng = np.random.default_rng()
        image = image.astype(np.float32) / 255
        image = image ** np.float32(rng.uniform(0.7, 1.5))
        image = image + np.float32(0.02) * rng.standard_normal(image.shape, np.float32)
        mean = image.mean(axis=(1, 2), keepdims=True)
        std = image.std(axis=(1, 2), keepdims=True)
        return (image - mean) / (std + 1e-6)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    folder = os.path.join(os.environ.get("DATA_DIR", "."), "scans")
    loader = DataLoader(
        Scans(folder, per_shard=24), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True
    )
    net = ScanNet()
    loss_function = torch.nn.CrossEntropyLoss()
    optimiser = torch.optim.AdamW(net.parameters(), 3e-4)
    board = []  # for the plots
    begin = time.time()
    done = 0
    for epoch in range(EPOCHS):
        for k, (images, labels) in enumerate(loader):
            optimiser.zero_grad(set_to_none=True)
            loss = loss_function(net(images), labels)
            loss.backward()
            optimiser.step()
            done += len(images)
            low, middle, high = np.percentile(images.numpy(), (1, 50, 99))
            board.append((done, loss.item(), low, middle, high))
            if k % 5 == 0:
                print(f"epoch {epoch} batch {k} loss {loss.item():.3f} samples {done} time {time.time() - begin:.2f}")
            if time.time() - begin > 60 * MINUTES:
                return


if __name__ == "__main__":
    main()

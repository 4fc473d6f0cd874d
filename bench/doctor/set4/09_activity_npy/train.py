import argparse
import os
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Activity(Dataset):
    def __init__(self, folder):
        self.x = np.load(os.path.join(folder, "activity_x.npy"), mmap_mode="r")
        self.y = np.load(os.path.join(folder, "activity_y.npy"))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        window = self.x[i].astype(np.float32)
        window *= np.random.uniform(0.9, 1.1)
        return window, self.y[i]


def get_args():
    ap = argparse.ArgumentParser(description="activity recognition")
    ap.add_argument("--data-dir", default=os.environ.get("DATA_DIR", "data"))
    ap.add_argument("--bs", type=int, default=32)
    ap.add_argument("--hidden", type=int, default=96)
    ap.add_argument("--save-every", type=int, default=100)
    ap.add_argument("--max-time", type=float, default=60)
    return ap.parse_args()


def main():
    args = get_args()
    torch.set_num_threads(1)
    loader = DataLoader(Activity(args.data_dir), batch_size=args.bs, shuffle=True)
    model = nn.ModuleDict({"gru": nn.GRU(6, args.hidden, batch_first=True), "out": nn.Linear(args.hidden, 8)})
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    out = os.path.join(tempfile.mkdtemp(), "last.pt")
    t0 = time.time()
    tick, n, it = t0, 0, 0
    while time.time() - t0 < args.max_time:
        for x, y in loader:
            hidden, _ = model["gru"](x.transpose(1, 2))
            loss = nn.functional.cross_entropy(model["out"](hidden[:, -1]), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            n += len(y)
            it += 1
            if it % args.save_every == 0:
                torch.save(model.state_dict(), out)
            if time.time() - tick > 1:
                tick = time.time()
                print(f"it {it} samples {n} loss {loss.item():.3f} time {tick - t0:.2f}", flush=True)
            if time.time() - t0 > args.max_time:
                break


if __name__ == "__main__":
    main()

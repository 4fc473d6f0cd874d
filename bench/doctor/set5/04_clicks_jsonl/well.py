import argparse
import json
import os
import time

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class FeatureStore:
    """The client of our feature store; here it only takes as long as the real one."""

    def __init__(self, latency=0.010):
        self.latency = latency

    def user(self, user_id):
        time.sleep(self.latency)
        generator = torch.Generator().manual_seed(user_id)
        return torch.randn(64, generator=generator)


class Clicks(IterableDataset):
    def __init__(self, path, store):
        self.path = path
        self.store = store

    def __iter__(self):
        info = get_worker_info()
        part, parts = (info.id, info.num_workers) if info else (0, 1)
        with open(self.path) as lines:
            for number, line in enumerate(lines):
                if number % parts != part:
                    continue
                click = json.loads(line)
                yield self.store.user(click["user"]), torch.tensor(click["shown"]), click["clicked"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default=os.environ.get("DATA_DIR", "data"))
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60)
    args = parser.parse_args()

    clicks = Clicks(os.path.join(args.data, "clicks.jsonl"), FeatureStore())
    loader = DataLoader(clicks, batch_size=args.batch_size, num_workers=args.workers, prefetch_factor=4)

    samples = 0
    begin = shown = time.time()
    for epoch in range(100):
        for users, _shown_items, _clicked in loader:
            time.sleep(0.12)  # forward, backward and update on the GPU
            samples += len(users)
            now = time.time()
            if now - shown > 1:
                print(f"epoch {epoch} samples={samples} time={now - begin:.2f}", flush=True)
                shown = now
            if now - begin > args.seconds:
                return


if __name__ == "__main__":
    main()

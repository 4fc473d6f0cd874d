import base64
import io
import json
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset


@dataclass
class Config:
    path: str = os.path.join(os.environ.get("DATA_DIR", "data"), "crops.jsonl")
    batch_size: int = 32
    step: float = 0.2
    seconds: float = 75


def parse(line):
    record = json.loads(line)
    image = Image.open(io.BytesIO(base64.b64decode(record["image"]))).convert("RGB")
    return torch.from_numpy(np.array(image)).permute(2, 0, 1), record["label"]


class Crops(IterableDataset):
    def __init__(self, config, rank, world):
        self.config = config
        self.rank = rank
        self.world = world

    def read(self):
        with open(self.config.path) as f:
            for number, line in enumerate(f):
                if number % self.world == self.rank:
                    yield parse(line)

    def __iter__(self):
        while True:
            yield from self.read()


def main():
    config = Config()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(Crops(config, rank, world), batch_size=config.batch_size, num_workers=1)
    start = shown = time.time()
    samples = 0
    for images, labels in loader:
        time.sleep(config.step)  # this rank's GPU
        flag = torch.tensor([float(time.time() - start > config.seconds)])
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        samples += world * len(labels)
        if rank == 0 and time.time() - shown > 1:
            shown = time.time()
            print(f"samples={samples} time={shown - start:.2f}", flush=True)
        if flag.item() > 0:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

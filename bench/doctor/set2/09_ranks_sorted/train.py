"""torchrun --nproc-per-node 8 train.py"""
import os
import time

import torch
import torch.distributed as dist
from speech import Clips, my_part, read_manifest
from torch.utils.data import DataLoader


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    root = os.environ.get("DATA_DIR", "data")
    items = my_part(read_manifest(f"{root}/clips.csv"), rank, world)
    loader = DataLoader(Clips(f"{root}/clips", items * 20), batch_size=8, shuffle=True, num_workers=1)
    grad = torch.zeros(20_000)
    begin, samples, step = time.time(), 0, 0
    stop = torch.zeros(1)
    while not stop.item():
        for x in loader:
            time.sleep(0.1)  # forward and backward
            dist.all_reduce(grad)
            samples += world * len(x)
            step += 1
            if step % 10 == 0:
                if rank == 0:
                    print(f"step {step} samples={samples} time={time.time():.3f}")
                stop[0] = time.time() - begin > 55
                dist.broadcast(stop, 0)
                if stop.item():
                    break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

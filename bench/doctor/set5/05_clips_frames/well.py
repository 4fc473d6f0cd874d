import os
import time

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch.utils.data import DataLoader, Dataset

ROOT = os.environ.get("DATA_DIR", "data")
SECONDS = 60


class ClipFolder(Dataset):
    """Clips as folders of frames: clips/NAME/000.jpg and so on."""

    def __init__(self, clips, size=112):
        self.clips = clips
        self.size = size

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        name, label = self.clips[index]
        folder = os.path.join(ROOT, "clips", name)
        frames = []
        for file in sorted(os.listdir(folder)):
            frame = Image.open(os.path.join(folder, file)).convert("RGB")
            frame = frame.resize((self.size, self.size), Image.BILINEAR)
            frames.append(np.asarray(frame))
        return torch.from_numpy(np.stack(frames)).permute(3, 0, 1, 2), label


def read_list():
    with open(os.path.join(ROOT, "clips.txt")) as f:
        return [(name, int(label)) for name, label in (line.split() for line in f)]


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    clips = read_list()
    mine = clips[rank::world]
    loader = DataLoader(ClipFolder(mine), batch_size=4, shuffle=True, num_workers=1, persistent_workers=True)

    gradient = torch.zeros(10000)
    samples, epoch = 0, 0
    begin = shown = time.time()
    while True:
        for _clip, label in loader:
            time.sleep(0.1)  # this rank's GPU
            gradient.fill_(float(time.time() - begin > SECONDS))
            dist.all_reduce(gradient)
            samples += len(label) * world
            now = time.time()
            if rank == 0 and now - shown > 1:
                print(f"epoch {epoch} samples={samples} time={now - begin:.2f}", flush=True)
                shown = now
            if gradient[0] > 0:
                dist.destroy_process_group()
                return
        epoch += 1


if __name__ == "__main__":
    main()

# torchrun --standalone --nproc-per-node 8 train.py
import csv
import os
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T


@dataclass
class Options:
    root: str = field(default_factory=lambda: os.path.join(os.environ.get("DATA_DIR", "data"), "sightings"))
    batch: int = 32  # over all ranks
    size: int = 64
    lr: float = 0.05
    limit: float = 60.0


class Sightings(Dataset):
    def __init__(self, opt):
        with open(os.path.join(opt.root, "manifest.csv")) as f:
            self.rows = [(r["file"], int(r["label"])) for r in csv.DictReader(f)]
        self.root = opt.root
        self.transform = T.Compose([T.RandomResizedCrop(opt.size, scale=(0.5, 1.0)), T.RandomHorizontalFlip(), T.ToTensor()])

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        name, label = self.rows[i]
        with Image.open(os.path.join(self.root, name)) as img:
            return self.transform(img.convert("RGB")), label


def run(opt):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same order everywhere
    torch.set_num_threads(1)
    loader = DataLoader(
        Sightings(opt), batch_size=opt.batch, shuffle=True, drop_last=True, num_workers=1, persistent_workers=True
    )
    model = nn.Sequential(
        nn.Conv2d(3, 24, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(48, 6),
    )
    model = DDP(model)
    sgd = torch.optim.SGD(model.parameters(), lr=opt.lr)
    begin, step, seen = time.time(), 0, 0
    stop = torch.zeros(1)
    while not stop:
        for images, labels in loader:
            images, labels = images[rank::world], labels[rank::world]
            loss = nn.functional.cross_entropy(model(images), labels)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            step += 1
            seen += len(labels) * world
            if step % 2 == 0:
                stop.fill_(time.time() - begin > opt.limit)
                dist.broadcast(stop, 0)
                if rank == 0:
                    print(f"step {step} loss {loss.item():.3f} samples: {seen} time: {time.time() - begin:.2f}", flush=True)
                if stop:
                    break
    dist.destroy_process_group()


if __name__ == "__main__":
    run(Options())

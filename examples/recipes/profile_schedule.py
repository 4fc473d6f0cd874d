"""torch.profiler with a schedule and a trace handler, over batches that are dicts.

Answers the profile of the second article: one step is left out, one warms up, five are recorded, and
tensorboard_trace_handler writes them to a folder. The trace is read back here, to print what it says of each step.
The dataset is a Dataset with PIL, as one writes it oneself; stoker's side has the same pictures as an ImageFolder with
named fields, which the engine decodes while the step runs. Beside the trace, stoker.doctor says what limits either
loop.

    python examples/recipes/profile_schedule.py --samples 300 --doctor
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import flags, photographs, same, show_ms
from PIL import Image
from torch.profiler import ProfilerActivity, profile, tensorboard_trace_handler
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

import stoker

CHAIN = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])
WAIT, WARMUP, ACTIVE = 1, 1, 5


class Photographs(Dataset):
    """Pictures by class as dicts."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*/*"))
        self.classes = sorted({path.parent.name for path in self.paths})

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int) -> dict[str, Any]:
        path = self.paths[i]
        with Image.open(path) as picture:
            return {"image": CHAIN(picture.convert("RGB")), "label": self.classes.index(path.parent.name)}


class Model(torch.nn.Module):
    """A small network that takes the fields of a batch by name, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 7, stride=4), torch.nn.ReLU())
        self.head = torch.nn.LazyLinear(6)

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.head(self.body(image).mean((2, 3))), label)


def traced(loader: Any, step: Callable[[Any], Any], activities: list[ProfilerActivity]) -> tuple[float, float]:
    """The article's loop. Seconds of a step by its trace, and how many of these the loop waited for the batch."""
    with tempfile.TemporaryDirectory() as logs:
        with profile(
            activities=activities,
            schedule=torch.profiler.schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
            on_trace_ready=tensorboard_trace_handler(logs, use_gzip=True),
            with_stack=True,
        ) as profiler:
            for number, batch in enumerate(loader):
                step(batch)
                profiler.step()
                if number + 1 == WAIT + WARMUP + ACTIVE:
                    break
        (file,) = Path(logs).iterdir()
        events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    marked = {one["name"]: 0.0 for one in events if one.get("cat") == "user_annotation"}
    for one in events:
        if one.get("cat") == "user_annotation":
            marked[one["name"]] += one["dur"] / 1e6
    steps = [took for name, took in marked.items() if name.startswith("ProfilerStep#")]
    waits = [took for name, took in marked.items() if name.startswith("enumerate(DataLoader)#")]
    return sum(steps) / len(steps), sum(waits) / len(steps)


def main() -> None:
    parser = flags(__doc__, samples=256)
    parser.add_argument("--doctor", action="store_true", help="have stoker.doctor judge both loops, five seconds each")
    args = parser.parse_args()
    device = torch.device(args.device)
    model = Model().to(device)
    activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (device.type == "cuda")

    def step(batch: Any) -> None:
        loss = model(**{name: value.to(device) for name, value in batch.items()})
        loss.backward()

    with photographs(args) as folder:
        settings = {"batch_size": args.batch_size, "num_workers": args.workers}
        plain = DataLoader(Photographs(folder), **settings)
        photos = stoker.ImageFolder(folder, transform=CHAIN).select("image", "label")
        loader = stoker.DataLoader(photos, **settings)
        for name, one in (("plain torch", plain), ("stoker", loader)):
            took, waited = traced(one, step, activities)
            show_ms(f"{name}, a step", took, "by the trace")
            show_ms(f"{name}, waiting for its batch", waited, "of it")
        first, ours = next(iter(plain)), next(iter(loader))
        same("the labels", torch.equal(first["label"], ours["label"]))
        same("the pictures, within 2 levels of 255", (first["image"] - ours["image"]).abs().max().item() < 2.01 / 255)
        if args.doctor:
            print(stoker.doctor(plain, step, seconds=5))
            print(stoker.doctor(loader, step, seconds=5))


if __name__ == "__main__":
    main()

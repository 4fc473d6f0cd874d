"""torch.profiler over a training loop, with a name for each part of a step.

Answers the first profile of the first article: a TensorDataset, a linear model, a few batches, a table of what took
how long. The profiler has a range of its own for the loader, "enumerate(DataLoader)#...", which is how long the loop
waited for a batch. stoker's loader has it too. What one asks of the table is which share of the time the loop
waits, and the loader's own stats() answer that without a profiler.

Over tensors in memory neither loader waits for more than the copy of a batch's rows.

    python examples/recipes/profile_loop.py --samples 200
"""

from __future__ import annotations

import torch
from common import decoded, flags, photographs, same, show_ms
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, TensorDataset

import stoker

STEPS = 6


def main() -> None:
    args = flags(__doc__, samples=256).parse_args()
    device = torch.device(args.device)
    model = torch.nn.Linear(224 * 224 * 3, 10).to(device)
    with photographs(args) as folder:
        images, labels = decoded(folder, 224)
        dataset = TensorDataset(images.float() / 255, labels)

    activities, sort = [ProfilerActivity.CPU], "cpu_time_total"
    if device.type == "cuda":
        activities, sort = [*activities, ProfilerActivity.CUDA], "cuda_time_total"

    def profiled(name: str, loader: DataLoader | stoker.DataLoader) -> torch.Tensor:
        outputs = []
        with profile(activities=activities, record_shapes=True) as profiler:
            for i, (x, y) in enumerate(loader):
                with record_function("H2D_transfer"):
                    x, y = x.to(device), y.to(device)
                with record_function("model_forward"):
                    outputs.append(model(x.view(x.size(0), -1)))
                if i + 1 == STEPS:
                    break
        averages = profiler.key_averages()
        print(averages.table(sort_by=sort, row_limit=40, max_name_column_width=60))
        took = {one.key: one.cpu_time_total / one.count / 1e6 for one in averages}
        (waiting,) = [key for key in took if key.startswith("enumerate(DataLoader)#")]
        for part, key in (("waiting for a batch", waiting), ("H2D_transfer",) * 2, ("model_forward",) * 2):
            show_ms(f"{name}, {part}", took[key])
        return torch.cat(outputs)

    plain = profiled("plain torch", DataLoader(dataset, batch_size=args.batch_size, num_workers=0))
    loader = stoker.DataLoader(dataset, batch_size=args.batch_size, num_workers=0)
    ours = profiled("stoker", loader)
    same("the model's outputs", torch.equal(plain, ours))

    client = loader.stats()["client"]
    print(f"stats() of stoker's loader: {client['wait_share']:.0%} of the time in next()")


if __name__ == "__main__":
    main()

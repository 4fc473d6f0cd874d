"""Crop, flip and normalise on the device; the engine reads, decodes and resizes.

Answers the DALI pipeline of the first article. There the operators are a graph of another library, and its iterator
takes the loader's place. Here the dataset and the loader are torch's lines, ``device_transform=`` says what the device
does, and the batch arrives normalised.

    python examples/recipes/full_pipeline.py --device cuda
"""

from __future__ import annotations

import torch
import torchvision
from common import beside, equal, flags, photographs, rate, same, show
from torchvision.transforms import v2

import stoker
from stoker import transforms as T

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--size", type=int, default=256, help="to which pictures are resized; default: 256")
    parser.add_argument("--crop", type=int, default=224, help="of the result; default: 224")
    args = parser.parse_args()
    device = torch.device(args.device)
    size, tuned = (args.size, args.size), {"batch_size": args.batch_size, "num_workers": args.workers}

    with photographs(args) as folder:
        usual = v2.Compose(
            [
                v2.Resize(size),
                v2.RandomResizedCrop(args.crop),
                v2.RandomHorizontalFlip(),
                v2.ToImage(),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(MEAN, STD),
            ]
        )
        dataset = torchvision.datasets.ImageFolder(folder, usual)
        plain = torch.utils.data.DataLoader(
            dataset, shuffle=True, drop_last=True, pin_memory=device.type == "cuda", **tuned
        )
        usual_rate = rate((images.to(device, non_blocking=True), labels.to(device)) for images, labels in plain)
        show("plain torch, all in the workers", usual_rate)

        def loader(engine: list[object], left: list[object] | None) -> stoker.DataLoader:
            photos = stoker.ImageFolder(folder, T.Compose([T.Resize(size), *engine]))
            more = {} if left is None else {"device_transform": left}
            return stoker.DataLoader(photos, shuffle=True, drop_last=True, seed=12, device=device, **more, **tuned)

        crop = [T.RandomResizedCrop(args.crop), T.RandomHorizontalFlip(p=0.5)]
        floats = [T.ToDtype(torch.float32, scale=True), T.Normalize(MEAN, STD)]
        with loader([], [*crop, *floats]) as ours, loader([*crop, *floats], None) as engine:
            same("the same batches as with all of it in the engine", equal(ours, engine))
            images, labels = next(iter(ours))
            print(f"a batch: {tuple(images.shape)} {images.dtype} on {images.device.type}, labels {labels.dtype}")
            ours_rate = rate(ours)
            show("stoker, crop, flip and floats on the device", ours_rate)
            show("stoker, crop and flip in the engine", rate(engine))
        beside(usual_rate, ours_rate)


if __name__ == "__main__":
    main()

"""A Dataset with OpenCV and Albumentations, by torch and by stoker; with boxes as a ragged field; decoded natively.

Answers the Albumentations sample of the first article. Its pictures differ in size and cannot be batched as they are:
a Resize comes first here. With bbox_params, each picture has another number of boxes: a collate function makes one
stoker.Ragged of them (values and offsets), which goes to the device in one copy; torch's loader passes it on too.

The Dataset is Python in both loaders, so stoker's first lines gain little: OpenCV and Albumentations do the same work.
In the last one the engine decodes, resizes and normalizes, and Albumentations does the three random steps. (It resizes
with antialiasing, as torchvision does; OpenCV without.)

    python examples/recipes/albumentations_cv2.py --samples 400
"""

from __future__ import annotations

import os
from typing import Any

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # importing it asks the internet for a newer version otherwise

import albumentations as A
import cv2
import numpy as np
import torch
from albumentations.pytorch import ToTensorV2
from common import alike, beside, flags, photographs, rate, same, show
from torch.utils.data import DataLoader, Dataset

import stoker
from stoker import transforms as T

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
RANDOM = [A.HorizontalFlip(p=0.5), A.Rotate(limit=15, p=0.5), A.RandomBrightnessContrast(p=0.2)]
AUGMENT = [A.Resize(128, 128), *RANDOM, A.Normalize(mean=MEAN, std=STD), ToTensorV2()]
STILL = [A.Resize(128, 128), A.HorizontalFlip(p=1.0), A.Normalize(mean=MEAN, std=STD), ToTensorV2()]
BOXES = A.BboxParams(format="pascal_voc")


class AlbumentationsDataset(Dataset):
    """The article's class; with boxes, for a Compose with bbox_params, samples have a third item."""

    def __init__(self, image_paths: list[str], labels: list[int], transform: Any, boxes: Any = None) -> None:
        self.image_paths = image_paths
        self.labels = labels
        self.transform = transform
        self.boxes = boxes

    def __len__(self) -> int:
        return len(self.image_paths)

    def __getitem__(self, idx: int) -> Any:
        image = cv2.imread(self.image_paths[idx])
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        if self.boxes is None:
            return self.transform(image=image)["image"], self.labels[idx]
        augmented = self.transform(image=image, bboxes=self.boxes[idx])
        boxes = np.asarray(augmented["bboxes"], np.float32).reshape(-1, 5)
        return augmented["image"], self.labels[idx], torch.from_numpy(boxes)


def collate(samples: list[Any]) -> Any:
    """Images and labels stacked; the boxes of all pictures after each other, and where those of each begin."""
    images, labels, boxes = zip(*samples, strict=True)
    offsets = torch.tensor([0, *map(len, boxes)]).cumsum(0)
    return torch.stack(images), torch.tensor(labels), stoker.Ragged(torch.cat(boxes), offsets)


def made_up(paths: list[str]) -> list[Any]:
    """No to three boxes for each picture: x and y of two corners, and what is inside."""
    found = []
    for number, path in enumerate(paths):
        height, width = cv2.imread(path, cv2.IMREAD_REDUCED_GRAYSCALE_8).shape
        corners = [(i * width, i * height, (i + 4) * width, (i + 3) * height, i) for i in range(number % 4)]
        found.append(np.array(corners, np.float32).reshape(-1, 5))
    return found


def main() -> None:
    args = flags(__doc__).parse_args()
    settings = {"batch_size": args.batch_size, "num_workers": args.workers}
    with photographs(args) as photos:
        paths = sorted(map(str, photos.glob("*/*")))
        classes = sorted(path.name for path in photos.iterdir())
        labels = [classes.index(path.split(os.sep)[-2]) for path in paths]

        dataset = AlbumentationsDataset(paths, labels, A.Compose(AUGMENT))
        plain = compared("OpenCV and A.Compose", dataset, args, settings)

        shared = [T.Resize((128, 128)), A.Compose(RANDOM), T.ToTensor(), T.Normalize(MEAN, STD)]
        whole = stoker.ImageFolder(photos, transform=shared)
        with stoker.DataLoader(whole, shuffle=True, **settings) as loader:
            split = rate(moved(loader, args.device))
        show("stoker, all but the random steps native", split)
        beside(plain, split, "OpenCV in a Dataset")

        boxes = made_up(paths)
        dataset = AlbumentationsDataset(paths, labels, A.Compose(AUGMENT, bbox_params=BOXES), boxes)
        compared("with bbox_params", dataset, args, {**settings, "collate_fn": collate})

        # Without random steps, both give the same; with them, stoker's draws do not depend on the workers.
        for name, params, where, more in (
            ("images", None, None, {}),
            ("images and boxes", BOXES, boxes, {"collate_fn": collate}),
        ):
            dataset = AlbumentationsDataset(paths, labels, A.Compose(STILL, bbox_params=params), where)
            loaders = DataLoader(dataset, **settings, **more), stoker.DataLoader(dataset, **settings, **more)
            same(f"{name} of fixed transforms", alike(equal, *loaders))
            dataset = AlbumentationsDataset(paths, labels, A.Compose(AUGMENT, bbox_params=params), where)
            few, many = (
                stoker.DataLoader(dataset, args.batch_size, num_workers=workers, seed=1, **more) for workers in (1, 3)
            )
            same(f"{name} of random transforms with 1 and with 3 workers", alike(equal, few, many))


def compared(name: str, dataset: Any, args: Any, settings: Any) -> float:
    """Both loaders over the article's dataset; the plain rate."""
    plain = rate(moved(DataLoader(dataset, shuffle=True, **settings), args.device))
    show(f"plain torch, {name}", plain)
    with stoker.DataLoader(dataset, shuffle=True, **settings) as loader:
        ours = rate(moved(loader, args.device))
    show(f"stoker, {name}", ours)
    beside(plain, ours, "torch")
    return plain


def moved(loader: Any, device: str) -> Any:
    for images, labels, *boxes in loader:
        targets = [stoker.Ragged(*(part.to(device, non_blocking=True) for part in one)) for one in boxes]
        yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True), *targets


def equal(one: Any, other: Any) -> bool:
    """Two batches: tensors, and Ragged of two tensors."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    return len(one) == len(other) and all(map(equal, one, other))


if __name__ == "__main__":
    main()

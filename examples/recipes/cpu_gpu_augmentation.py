"""One augmentation, cut into a half for the processor and one for the device: throughput and accuracy.

The first article moves augmentation to the GPU, the second one warns that it competes with the model there. Where to
cut is a question of one line: what is in ``transform=`` is done by the engine while it decodes, what is in
``device_transform=`` by the device. Because the choices and the bytes are the same, so are the losses, whatever the
cut; only the rate differs.

    python examples/recipes/cpu_gpu_augmentation.py --device cuda
"""

from __future__ import annotations

import time
from typing import Any

import torch
from common import beside, flags, photographs, same, show

import stoker
from stoker import transforms as T


def network(classes: int) -> torch.nn.Module:
    """A small one."""
    layers: list[torch.nn.Module] = []
    for before, after in ((3, 16), (16, 32), (32, 64)):
        layers += [torch.nn.Conv2d(before, after, 3, 2, 1), torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, classes))


def train(loader: Any, device: torch.device, classes: int, epochs: int) -> tuple[list[float], float, float]:
    """The loss of every step, the accuracy over the last epoch, and samples a second."""
    torch.manual_seed(0)
    model = network(classes).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses: list[torch.Tensor] = []
    samples, seconds = 0, 0.0
    right = seen = 0
    for _ in range(epochs):
        right = seen = 0
        begin = None
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            scores = model(images)
            loss = torch.nn.functional.cross_entropy(scores, labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            right += int((scores.argmax(1) == labels).sum())
            seen += len(labels)
            if begin is None:
                begin = time.perf_counter()
            else:
                samples += len(labels)
        seconds += 0 if begin is None else time.perf_counter() - begin
    return [float(loss) for loss in losses], right / max(seen, 1), samples / max(seconds, 1e-9)


def main() -> None:
    parser = flags(__doc__)
    parser.add_argument("--crop", type=int, default=112, help="of the pictures; default: 112")
    parser.add_argument("--epochs", type=int, default=2, help="default: 2")
    args = parser.parse_args()
    device = torch.device(args.device)

    decoding = [T.RandomResizedCrop(args.crop), T.RandomHorizontalFlip()]
    colours = [T.RandAugment(), T.ToDtype(torch.float32, scale=True), T.Normalize([0.5] * 3, [0.25] * 3)]
    with photographs(args) as folder:

        def loader(engine: list[Any], left: list[Any], where: Any) -> Any:
            photos = stoker.ImageFolder(folder, T.Compose(engine))
            more = {"device": where, "device_transform": left} if left else {"device": where}
            tuned = {"batch_size": args.batch_size, "num_workers": args.workers, "drop_last": True}
            return stoker.DataLoader(photos, shuffle=True, seed=5, **tuned, **more)

        with loader([*decoding, *colours], [], device) as whole:
            classes = len(whole.dataset.classes)
            losses, accuracy, one = train(whole, device, classes, args.epochs)
        show("plain stoker, all in the engine", one)
        print(f"  accuracy {accuracy:.3f}, last loss {losses[-1]:.4f}")
        with loader(decoding, colours, device) as halves:
            cut, accuracy, other = train(halves, device, classes, args.epochs)
        show(f"stoker, colours and floats on {device.type}", other)
        print(f"  accuracy {accuracy:.3f}, last loss {cut[-1]:.4f}")
        close = all(abs(a - b) <= 1e-3 * max(1.0, abs(a)) for a, b in zip(losses, cut, strict=True))
        same("every loss, wherever it is cut", losses == cut if device.type == "cpu" else close)
        beside(one, other, "with all of it in the engine")


if __name__ == "__main__":
    main()

"""Trains a linear classifier in plain NumPy on a folder of pictures, and continues.

    python numpy_train.py data/train
    python numpy_train.py data/train --resume                  # from the last checkpoint, also in mid-epoch

Batches are NumPy arrays over memory shared with the engine. No other library is imported.
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np

import stoker
from stoker import transforms as T


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data", help="a folder with one folder of pictures for each class")
    parser.add_argument("--out", type=Path, default=Path("checkpoints"), help="folder of the checkpoint")
    parser.add_argument("--resume", action="store_true", help="continue from the checkpoint")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--size", type=int, default=32, help="height and width of the crops")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--save-every", type=int, default=10, help="steps between checkpoints")
    return parser.parse_args()


def main():
    args = arguments()
    normal = T.Normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25])
    crops = T.Compose([T.RandomResizedCrop(args.size), T.RandomHorizontalFlip(), T.ToTensor(), normal])
    photos = stoker.ImageFolder(args.data, crops)
    loader = stoker.DataLoader(photos, args.batch_size, shuffle=True, seed=0, output="numpy")
    weights = np.zeros((3 * args.size**2, len(photos.classes)), np.float32)

    checkpoint = args.out / "checkpoint.npz"
    if args.resume:
        with np.load(checkpoint) as saved:
            weights = saved["weights"]
            loader.load_state_dict(json.loads(str(saved["loader"])))

    def save():
        args.out.mkdir(parents=True, exist_ok=True)
        partial = args.out / "partial.npz"
        np.savez(partial, loader=json.dumps(loader.state_dict()), weights=weights)
        os.replace(partial, checkpoint)  # complete, or the one before

    loss = float("nan")
    for epoch in range(loader.state_dict()["epoch"], args.epochs):
        loader.set_epoch(epoch)  # which keeps the position of a state of this epoch
        for batch in loader:
            images, labels = batch
            x = images.reshape(len(images), -1)
            scores = x @ weights
            scores = np.exp(scores - scores.max(1, keepdims=True))
            probabilities = scores / scores.sum(1, keepdims=True)
            rows = np.arange(len(labels))
            loss = -np.log(probabilities[rows, labels]).mean()
            probabilities[rows, labels] -= 1
            weights -= args.lr / len(labels) * (x.T @ probabilities)
            if (batch.step + 1) % args.save_every == 0:
                save()
        save()
        print(f"epoch {epoch}: loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()

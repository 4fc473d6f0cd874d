"""Few-shot training on a handful of large photos. Runs on the Windows and Mac laptops too, hence spawn."""
import argparse
import os
import time

import torch
from photos import FewShot


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--folder", default=os.path.join(os.environ.get("DATA_DIR", "data"), "large"))
    p.add_argument("--shots", type=int, default=48)
    p.add_argument("--repeat", type=int, default=2)
    p.add_argument("--seconds", type=float, default=60)
    return p.parse_args()


def main():
    args = get_args()
    data = FewShot(args.folder, args.shots, args.repeat)
    loader = torch.utils.data.DataLoader(
        data,
        batch_size=8,
        shuffle=True,
        num_workers=2,
        multiprocessing_context="spawn",
    )
    start, count, step, epoch = time.time(), 0, 0, 0
    while time.time() - start < args.seconds:
        for x, y in loader:
            time.sleep(0.09)
            count += x.shape[0]
            step += 1
            if step % 10 == 0:
                print(f"epoch={epoch} step={step} samples={count} time={time.time():.3f}", flush=True)
        epoch += 1


if __name__ == "__main__":
    main()

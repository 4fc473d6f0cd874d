import logging
import os
import sys
import time

import torch
from photolib.store import LmdbPhotos
from torchvision import transforms

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
log = logging.getLogger("train")


def build_loader():
    tf = transforms.Compose([transforms.CenterCrop(160), transforms.RandomHorizontalFlip(), transforms.ToTensor()])
    dataset = LmdbPhotos(os.path.join(os.environ.get("DATA_DIR", "data"), "photos.lmdb"), tf)
    return torch.utils.data.DataLoader(
        dataset, batch_size=28, shuffle=True, num_workers=2, persistent_workers=True, prefetch_factor=3
    )


def main():
    loader = build_loader()
    started = time.time()
    samples, step = 0, 0
    while time.time() - started < 50:
        for images, _ in loader:
            time.sleep(0.034)  # model
            samples += len(images)
            step += 1
            if step % 10 == 0:
                log.info("step %d samples=%d time=%.3f", step, samples, time.time())
            if time.time() - started > 50:
                break


if __name__ == "__main__":
    main()

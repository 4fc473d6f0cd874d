import os
import time

from torch.utils.data import DataLoader, Subset
from torchvision import datasets, transforms

root = os.path.join(os.environ.get("DATA_DIR", "data"), "photos")

train_tf = transforms.Compose(
    [transforms.RandomResizedCrop(128), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
)
val_tf = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()])


def small_loader(path):
    from PIL import Image

    image = Image.open(path)
    image.draft("RGB", (256, 200))
    return image.convert("RGB")


def loaders():
    train = datasets.ImageFolder(root, train_tf, loader=small_loader)
    val = datasets.ImageFolder(root, val_tf)
    train_loader = DataLoader(
        Subset(train, list(range(0, 240, 1)) * 4), batch_size=16, shuffle=True, num_workers=2, persistent_workers=True
    )
    val_loader = DataLoader(Subset(val, range(0, 240, 3)), batch_size=8, num_workers=2, persistent_workers=True)
    return train_loader, val_loader


def validate(val_loader):
    correct = 0
    for images, labels in val_loader:
        time.sleep(0.03)
        correct += int((labels == 0).sum())
    return correct


def main():
    train_loader, val_loader = loaders()
    start = time.time()
    samples = step = 0
    while True:
        for images, labels in train_loader:
            time.sleep(0.06)
            samples += images.shape[0]
            step += 1
            if step % 10 == 0:
                print(f"train step {step} samples={samples} time={time.time():.3f}")
            if step % 20 == 0:
                print("val correct", validate(val_loader))
            if time.time() - start > 55:
                return


if __name__ == "__main__":
    main()

import os

from data import ReviewDataset
from torch.utils.data import DataLoader
from trainer import Trainer


def main():
    dataset = ReviewDataset(os.path.join(os.environ.get("DATA_DIR", "data"), "reviews.db"))
    loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True, drop_last=True)
    Trainer(loader, seconds=60).fit(epochs=20)


if __name__ == "__main__":
    main()

import os

import pandas as pd
from torch.utils.data import Dataset
from torchvision.datasets.folder import default_loader


class BirdDataset(Dataset):
    def __init__(self, root, table="birds.csv", transform=None):
        self.root = root
        self.table = pd.read_csv(os.path.join(root, table))
        self.filenames = self.table["filename"].to_numpy()
        self.species = self.table["species"].to_numpy()
        self.transform = transform

    @property
    def num_classes(self):
        return int(self.species.max()) + 1

    def __len__(self):
        return len(self.filenames)

    def __getitem__(self, item):
        img = default_loader(os.path.join(self.root, self.filenames[item]))
        if self.transform is not None:
            img = self.transform(img)
        return {"image": img, "target": int(self.species[item])}

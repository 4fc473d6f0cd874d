import csv
import os
import time

from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

data_dir = os.environ.get("DATA_DIR", "data")


class Scans(Dataset):
    def __init__(self, folder, index, transform=None):
        self.folder = folder
        self.transform = transform
        with open(index) as f:
            self.items = [(name, int(label)) for name, label in csv.reader(f)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, k):
        name, label = self.items[k]
        page = Image.open(os.path.join(self.folder, name)).convert("RGB")
        if self.transform is not None:
            page = self.transform(page)
        return page, label


tf = transforms.Compose(
    [
        transforms.Resize((160, 160)),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
    ]
)
scans = Scans(os.path.join(data_dir, "scans"), os.path.join(data_dir, "scans.csv"), tf)
loader = DataLoader(scans, batch_size=12, shuffle=True, num_workers=2, persistent_workers=True)

samples = 0
t0 = t1 = time.time()
epoch = 0
while time.time() - t0 < 60:
    for pages, _labels in loader:
        time.sleep(0.08)  # the GPU's share of a step
        samples += len(pages)
        if time.time() - t1 >= 1:
            t1 = time.time()
            print(f"epoch {epoch} samples={samples} time={t1 - t0:.2f}", flush=True)
        if time.time() - t0 > 60:
            break
    epoch += 1

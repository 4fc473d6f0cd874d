import os
import sys
import time

from PIL import Image, ImageFile
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms as T

ImageFile.LOAD_TRUNCATED_IMAGES = True
ROOT = os.path.join(os.environ.get('DATA_DIR', 'data'), 'large')
BS = 8
EPOCHS = 40

class LargePhotos(Dataset):
    def __init__(self, root):
        self.imgs = [os.path.join(root, n) for n in sorted(os.listdir(root))]
        self.T = T.Compose([T.Resize((128, 128)), T.RandomHorizontalFlip(), T.ToTensor()])
    def __len__(self):
        return len(self.imgs) * 5
    def __getitem__(self, i):
        img = Image.open(self.imgs[i % len(self.imgs)])
        img = img.convert('RGB')
        return self.T(img), i % 2

loader = DataLoader(LargePhotos(ROOT), batch_size=BS, shuffle=True, num_workers=2, persistent_workers=True)

class Progress:
    # tqdm is not installed on the cluster
    def __init__(self, total): self.total, self.t0 = total, time.time()
    def show(self, i, seen):
        bar = '#' * (20 * i // self.total)
        sys.stdout.write(f'\r{bar:20s}| {i}/{self.total} [{time.time() - self.t0:.0f}s]')
        if i % 10 == 0:
            sys.stdout.write(f' samples={seen} time={time.time():.3f}\n')

seen = i = 0
progress = Progress(EPOCHS * len(loader))
for epoch in range(EPOCHS):
    for x, y in loader:
        time.sleep(0.09)
        seen += len(x); i += 1
        progress.show(i, seen)
        if time.time() - progress.t0 > 50: sys.exit()
